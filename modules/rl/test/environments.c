/* Environments: those that are built in behave as described, shared objects are loaded, and what is wrong with one is
 * said, with the place and the number that is meant. */
#include <math.h>

#include "atoll/agree.h"
#include "rl_impl.h"
#include "unit_check.h"

/* Steps until the end under always the same action, or by the pole's side. */
static int steps_of_cartpole(const atoll_rl_env *e, int policy) {
  float state[5], result[7];
  const float noise[5] = {0.6f, 0.4f, 0.7f, 0.5f, 0};
  int steps = 0;
  assert_int_equal(e->start(e, 0, 1, noise, state), 0);
  for (;;) {
    int32_t action = policy == 2 ? state[2] + 0.5f * state[3] + 0.05f * state[0] + 0.1f * state[1] > 0 : policy;
    assert_int_equal(e->step(e, 1, state, &action, result), 0);
    assert_true(result[5] == 1);
    steps++;
    if (result[6] != 0)
      return steps;
    memcpy(state, result, sizeof state);
  }
}

static void poles_fall_unless_balanced(void **state) {
  (void)state;
  const atoll_rl_env *e = NULL;
  assert_ok(atoll_rl_env_open("cartpole", 4, &e));
  int left = steps_of_cartpole(e, 0), right = steps_of_cartpole(e, 1);
  assert_true(left >= 8 && left <= 12 && right >= 8 && right <= 12);
  assert_int_equal(steps_of_cartpole(e, 2), 500);
  atoll_rl_env_close(&e);
  assert_null(e);
}

static void the_grid_has_a_shortest_way(void **state) {
  (void)state;
  const atoll_rl_env *e = NULL;
  float s[3], result[5], sum = 0;
  const float noise[3] = {0, 0, 0};
  int steps = 0;
  assert_ok(atoll_rl_env_open("grid", 4, &e));
  assert_int_equal(e->start(e, 0, 1, noise, s), 0);
  assert_true(s[0] == -1 && s[1] == -1);
  do { /* right to the wall, then up */
    int32_t action = s[0] < 1 ? 0 : 2;
    assert_int_equal(e->step(e, 1, s, &action, result), 0);
    memcpy(s, result, sizeof s);
    sum += result[3];
    steps++;
  } while (result[4] == 0);
  assert_int_equal(steps, 14);
  assert_true(fabsf(sum - (1 - 13.0f / 64)) < 1e-6f);
  atoll_rl_env_close(&e);
}

/* A state of any width that goes by a formula, and episodes without an end. */
static void the_near_free_one_goes_by_its_formula(void **state) {
  enum { WIDTH = 6, COPIES = 3 };
  (void)state;
  const atoll_rl_env *e = NULL;
  float s[COPIES * WIDTH], part[WIDTH], result[COPIES * (WIDTH + 2)];
  const int32_t action[COPIES] = {0, 1, 0};
  assert_ok(atoll_rl_env_open("free", WIDTH, &e));
  assert_true(e->state == WIDTH && e->observation == WIDTH && e->actions == 2 && e->endless && e->limit == 0);
  assert_int_equal(e->start(e, 0, COPIES, NULL, s), 0);
  assert_int_equal(e->start(e, 2, 1, NULL, part), 0); /* by environments' numbers, whoever has them */
  assert_memory_equal(part, s + 2 * WIDTH, sizeof part);
  for (int k = 0; k < COPIES * WIDTH; k++)
    assert_true(s[k] >= -0.5f && s[k] < 0.5f && (k == 0 || s[k] != s[k - 1]));
  assert_int_equal(e->step(e, COPIES, s, action, result), 0);
  for (int b = 0; b < COPIES; b++) {
    const float *after = result + b * (WIDTH + 2);
    double squares = 0;
    for (int k = 0; k < WIDTH; k++) {
      const double want = 0.9 * s[b * WIDTH + k] + (action[b] ? 0.1 : -0.1);
      assert_true(fabs(after[k] - want) < 1e-6);
      squares += want * want;
    }
    assert_true(fabs(after[WIDTH] - (1 - squares / WIDTH)) < 1e-6);
    assert_true(after[WIDTH + 1] == 0);
  }
  atoll_rl_env_close(&e);
}

static void names_and_files_are_checked(void **state) {
  (void)state;
  const atoll_rl_env *e = NULL;
  assert_refused(ATOLL_USAGE, "did you mean 'cartpole'", atoll_rl_env_open("cartpol", 4, &e));
  assert_refused(ATOLL_NOINPUT, "./nowhere.so", atoll_rl_env_open("./nowhere.so", 4, &e));
  assert_refused(ATOLL_MISMATCH, "version 99, this program has 1",
                 atoll_rl_env_open(PLUGIN_DIR "/librl_env_1.so", 4, &e));
  assert_refused(ATOLL_MISMATCH, "has no function atoll_rl_env_v1", atoll_rl_env_open(CORE_LIBRARY, 4, &e));
  assert_null(e);
}

static atoll_err learn_in(const char *path) {
  const atoll_rl_env *e = NULL;
  atoll_rl_params p;
  atoll_rl *rl = NULL;
  atoll_rl_params_init(&p);
  p.environments = 2;
  p.steps = 3;
  p.hidden = 4;
  p.chunk = 1;
  assert_ok(atoll_rl_env_open(path, 4, &e));
  assert_ok(atoll_rl_create(MPI_COMM_WORLD, e, &p, NULL, &rl));
  atoll_err err = atoll_rl_learn(rl, 1, NULL);
  assert_int_equal(atoll_rl_iteration(rl), err == ATOLL_OK);
  atoll_rl_destroy(&rl);
  atoll_rl_env_close(&e);
  return err;
}

/* One step of two environments, as a program asks for it. */
static atoll_err step_in(const char *path) {
  const atoll_rl_env *e = NULL;
  rl_actor a;
  float state[2 * 3] = {0}, result[2 * 5];
  int32_t action[2] = {0, 1};
  const int64_t point[2] = {4, 7}, states[2] = {2, 3}, actions[1] = {2}, results[2] = {2, 5};
  const atoll_rt_view in[] = {{ATOLL_F32, 2, states, state}, {ATOLL_I32, 1, actions, action}};
  const atoll_rt_view out = {ATOLL_F32, 2, results, result};
  assert_ok(atoll_rl_env_open(path, 4, &e));
  assert_ok(rl_actor_create(e, 1, 0, 0, 2, 0, &a));
  atoll_err err = rl_step(&a, point, in, &out);
  rl_actor_free(&a);
  atoll_rl_env_close(&e);
  return err;
}

static void what_they_give_is_checked(void **state) {
  (void)state;
  assert_ok(learn_in(PLUGIN_DIR "/librl_env_0.so"));
  assert_refused(ATOLL_NONFINITE, "mine: step made number 0 of environment 1 nan (iteration 0, step 0)",
                 learn_in(PLUGIN_DIR "/librl_env_2.so"));
  assert_ok(step_in(PLUGIN_DIR "/librl_env_0.so"));
  assert_refused(ATOLL_MISMATCH, "mine: step left number 4 of environment 0 unwritten, of 5 (iteration 4, step 7)",
                 step_in(PLUGIN_DIR "/librl_env_3.so"));
  assert_refused(ATOLL_MISMATCH, "mine: step wrote more than 5 numbers", step_in(PLUGIN_DIR "/librl_env_4.so"));
  assert_refused(ATOLL_UNAVAILABLE, "mine: step failed with 7", step_in(PLUGIN_DIR "/librl_env_5.so"));
  assert_refused(ATOLL_MISMATCH, "step says 0.5 for the end of environment 0", step_in(PLUGIN_DIR "/librl_env_6.so"));
  assert_refused(ATOLL_MISMATCH, "step says that environment 0 has ended, which is endless (iteration 4, step 7)",
                 step_in(PLUGIN_DIR "/librl_env_8.so"));
  assert_refused(ATOLL_MISMATCH, "mine: step changed the state of environment 1 that it was given",
                 step_in(PLUGIN_DIR "/librl_env_9.so"));
  assert_refused(ATOLL_MISMATCH, "mine: step changed the action of environment 0 that it was given",
                 step_in(PLUGIN_DIR "/librl_env_10.so"));
  assert_refused(ATOLL_MISMATCH,
                 "mine: step has not ended environment 0 after its limit of 2 steps (iteration 0, step 1)",
                 learn_in(PLUGIN_DIR "/librl_env_11.so"));
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(poles_fall_unless_balanced),
      cmocka_unit_test(the_grid_has_a_shortest_way),
      cmocka_unit_test(the_near_free_one_goes_by_its_formula),
      cmocka_unit_test(names_and_files_are_checked),
      cmocka_unit_test(what_they_give_is_checked),
  };
  if (atoll_mpi_init(&argc, &argv) != ATOLL_OK)
    return 1;
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  MPI_Finalize();
  return failed;
}
