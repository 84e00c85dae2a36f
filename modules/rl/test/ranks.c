/* Learners on two ranks: what goes wrong on one of them is told by both, which can go on. */
#include <math.h>
#include <setjmp.h>

#include "atoll/agree.h"
#include "atoll/rl.h"
#include "unit_check.h"

enum { S = 2, B = 4, T = 6, HIDDEN = 4, EPISODE = 4, CHUNK = 2 };

/* States (x, age); x follows the actions. What it does wrong, and when: */
typedef enum wrong { NOTHING, STEP, REWARD, START } wrong;
static struct {
  int rank, step, at; /* of this rank; steps so far; fails from this one on */
  wrong what;
} now;

static int begin(const atoll_rl_env *self, int64_t first, int64_t n, const float *noise, float *state) {
  (void)self;
  (void)first;
  for (int64_t b = 0; b < n; b++) {
    state[b * S] = noise[b * S] - 0.5f;
    state[b * S + 1] = 0;
  }
  return now.what == START && now.step >= now.at ? 9 : 0;
}

static int advance(const atoll_rl_env *self, int64_t n, const float *state, const int32_t *action, float *result) {
  const int fails = now.step++ >= now.at;
  (void)self;
  for (int64_t b = 0; b < n; b++) {
    float *r = result + b * (S + 2);
    r[0] = 0.9f * state[b * S] + (action[b] ? 0.2f : -0.2f);
    r[1] = state[b * S + 1] + 1;
    r[2] = fails && now.what == REWARD ? NAN : 1 - r[0] * r[0];
    r[3] = r[1] >= EPISODE;
  }
  return fails && now.what == STEP ? 7 : 0;
}

static const atoll_rl_env environment = {.version = ATOLL_RL_ENV_VERSION,
                                         .name = "weak",
                                         .state = S,
                                         .observation = S,
                                         .actions = 2,
                                         .limit = EPISODE,
                                         .start = begin,
                                         .step = advance};

static atoll_rl *learner(MPI_Comm comm, int algorithm, int64_t n) {
  atoll_rl_params p;
  atoll_rl *rl = NULL;
  atoll_rl_params_init(&p);
  p.algorithm = algorithm;
  p.environments = B;
  p.steps = T;
  p.n = n;
  p.hidden = HIDDEN;
  p.chunk = CHUNK;
  now.what = NOTHING;
  assert_ok(atoll_rl_create(comm, &environment, &p, NULL, &rl));
  return rl;
}

enum { MOST = 1024 };

static int values(const atoll_rl *rl, float v[MOST]) {
  int n, at = 0;
  const atoll_tensor *t = atoll_rl_tensors(rl, &n);
  for (int k = 0; k < n; k++) {
    int count = (int)atoll_tensor_local_count(&t[k]);
    assert_true(at + count <= MOST);
    memcpy(v + at, t[k].data, (size_t)count * sizeof *v);
    at += count;
  }
  return at;
}

/* Rank 1 fails within the second run of a call, from the given step of it on. */
static void fail_and_go_on(atoll_rl *rl, const float *whole, wrong what, atoll_err code, const char *text) {
  static float before[MOST], after[MOST];
  now.step = 0;
  now.at = CHUNK * T + 2;
  assert_ok(atoll_rl_learn(rl, CHUNK, NULL));
  int n = values(rl, before);
  now.what = now.rank == 1 ? what : NOTHING;
  assert_refused(code, text, atoll_rl_learn(rl, CHUNK, NULL));
  assert_int_equal(atoll_rl_iteration(rl), CHUNK);
  assert_int_equal(values(rl, after), n);
  assert_memory_equal(before, after, (size_t)n * sizeof *before);
  now.what = NOTHING;
  assert_ok(atoll_rl_learn(rl, CHUNK, NULL));
  assert_int_equal(values(rl, after), n);
  assert_memory_equal(after, whole, (size_t)n * sizeof *whole);
}

static void what_fails_on_one_rank_is_told_by_all(void **state) {
  (void)state;
  static const struct {
    int algorithm, n, compiled;
    wrong what;
    atoll_err code;
    const char *text;
  } of[] = {
      {ATOLL_RL_REINFORCE, 0, 1, STEP, ATOLL_UNAVAILABLE,
       "rank 1: environment weak: step failed with 7 (iteration 2, step 2)"},
      {ATOLL_RL_REINFORCE, 3, 1, REWARD, ATOLL_NONFINITE,
       "rank 1: environment weak: step made number 2 of environment 2 nan (iteration 2, step 2)"},
      {ATOLL_RL_PPO, 0, 1, START, ATOLL_UNAVAILABLE,
       "rank 1: environment weak: start failed with 9 (iteration 2, step 3)"},
      {ATOLL_RL_REINFORCE, 0, 0, STEP, ATOLL_UNAVAILABLE,
       "rank 1: environment weak: step failed with 7 (iteration 2, step 2)"},
  };
  for (size_t k = 0; k < sizeof of / sizeof *of; k++) {
    static float whole[MOST];
    if (!of[k].compiled)
      setenv("ATOLL_CC", "", 1);
    atoll_rl *rl = learner(MPI_COMM_WORLD, of[k].algorithm, of[k].n);
    assert_ok(atoll_rl_learn(rl, 2 * CHUNK, NULL));
    (void)values(rl, whole);
    atoll_rl_destroy(&rl);
    rl = learner(MPI_COMM_WORLD, of[k].algorithm, of[k].n);
    fail_and_go_on(rl, whole, of[k].what, of[k].code, of[k].text);
    atoll_rl_destroy(&rl);
    unsetenv("ATOLL_CC");
  }
}

/* Parameters and moments of this rank and of rank 0. */
static int parameters(const atoll_rl *rl, float mine[MOST], float first[MOST]) {
  int n, count = 0;
  const atoll_tensor *t = atoll_rl_tensors(rl, &n);
  (void)values(rl, mine);
  for (int k = 0; k < n; k++)
    count += strncmp(t[k].name, "environment/", 12) ? (int)atoll_tensor_local_count(&t[k]) : 0;
  memcpy(first, mine, (size_t)count * sizeof *mine);
  MPI_Bcast(first, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
  return count;
}

static void add_on_rank_1(const atoll_rl *rl, float more) {
  int n;
  const atoll_tensor *t = atoll_rl_tensors(rl, &n);
  if (now.rank == 1)
    ((float *)t[0].data)[1] += more;
}

/* Rounding by another processor does not add up; other numbers are told. */
static void parameters_are_those_of_rank_0(void **state) {
  (void)state;
  static float mine[MOST], first[MOST];
  atoll_rl *rl = learner(MPI_COMM_WORLD, ATOLL_RL_REINFORCE, 0);
  assert_ok(atoll_rl_learn(rl, 1, NULL));
  add_on_rank_1(rl, 1e-6f);
  assert_ok(atoll_rl_learn(rl, 1, NULL));
  int n = parameters(rl, mine, first);
  assert_memory_equal(mine, first, (size_t)n * sizeof *mine);
  add_on_rank_1(rl, 0.5f);
  assert_refused(ATOLL_MISMATCH, "rank 1: parameters have parted before iteration 2: param/layer0.weight has",
                 atoll_rl_learn(rl, 1, NULL));
  assert_int_equal(atoll_rl_iteration(rl), 2);
  atoll_rl_destroy(&rl);
}

static jmp_buf aborted;
static atoll_err abort_with;

/* Stands before the library's, which ends the job. */
void atoll_abort(atoll_watch *watch, atoll_err code) {
  (void)watch;
  abort_with = code;
  longjmp(aborted, 1);
}

static atoll_err left(const atoll_rl *rl, atoll_err code, int *abort_code) {
  *abort_code = 0;
  if (setjmp(aborted) == 0)
    return atoll_rl_leave_alone(rl, NULL, code);
  *abort_code = abort_with;
  return ATOLL_OK;
}

/* What all ranks have is handed on by each; a rank on its own must not leave others waiting. */
static void ranks_leave_together(void **state) {
  (void)state;
  static const atoll_err of_all[] = {ATOLL_OK, ATOLL_NONFINITE, ATOLL_MISMATCH, ATOLL_UNAVAILABLE};
  static const atoll_err of_one[] = {ATOLL_NOMEM, ATOLL_IO, ATOLL_INTERNAL};
  int code;
  atoll_rl *rl = learner(MPI_COMM_WORLD, ATOLL_RL_REINFORCE, 0);
  atoll_rl *single = learner(MPI_COMM_SELF, ATOLL_RL_REINFORCE, 0);
  for (size_t k = 0; k < sizeof of_all / sizeof *of_all; k++) {
    assert_int_equal(left(rl, of_all[k], &code), of_all[k]);
    assert_int_equal(code, 0);
  }
  for (size_t k = 0; k < sizeof of_one / sizeof *of_one; k++) {
    (void)left(rl, of_one[k], &code);
    assert_int_equal(code, of_one[k]);
    assert_int_equal(left(single, of_one[k], &code), of_one[k]);
    assert_int_equal(code, 0);
  }
  atoll_rl_destroy(&rl);
  atoll_rl_destroy(&single);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(what_fails_on_one_rank_is_told_by_all),
                                     cmocka_unit_test(parameters_are_those_of_rank_0),
                                     cmocka_unit_test(ranks_leave_together)};
  if (atoll_mpi_init(&argc, &argv) != ATOLL_OK)
    return 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &now.rank);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  MPI_Finalize();
  return failed;
}
