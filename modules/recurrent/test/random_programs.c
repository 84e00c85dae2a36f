/* Random programs through the interpreter by demand and through the interpreter of their schedules, for several choices
 * of passes. The executor of schedules refuses statements whose inputs are not there, so the executed order is checked
 * too.
 *
 * Arguments: first seed, number of seeds. A failing seed is printed. */
#include "random_program.h"

static uint64_t first_seed = 1;
static int seeds = 150;
enum { ISL = 3000000 }; /* operations: enough for small programs */

static void compare(uint64_t seed, const atoll_rec_params *params, const char *what) {
  test_log expected[RANDOM_LOGS] = {{0}}, got[RANDOM_LOGS] = {{0}};
  atoll_rec_binding b[4];
  int n = random_bindings(seed, b);
  atoll_rec_program *program = NULL;
  atoll_rec *c = random_make(seed, expected);
  atoll_err err = atoll_rec_interpret(c, b, n);
  if (err != ATOLL_OK)
    fail_msg("seed %" PRIu64 ": %s", seed, atoll_err_message());
  atoll_rec_destroy(&c);
  c = random_make(seed, got);
  atoll_rec_params interpreted = *params;
  interpreted.compiler = "";
  err = atoll_rec_compile(c, &interpreted, &program);
  if (err == ATOLL_OK)
    err = atoll_rec_run(program, b, n);
  if (err != ATOLL_OK)
    fail_msg("seed %" PRIu64 ", %s: %s", seed, what, atoll_err_message());
  for (int k = 0; k < RANDOM_LOGS; k++) {
    assert_int_equal(expected[k].n, got[k].n);
    for (int i = 0; i < got[k].n; i++)
      if (!(fabs(expected[k].v[i] - got[k].v[i]) < 1e-9))
        fail_msg("seed %" PRIu64 ", %s: sink %d element %d is %.17g, expected %.17g", seed, what, k, i, got[k].v[i],
                 expected[k].v[i]);
  }
  atoll_rec_program_destroy(&program);
  atoll_rec_destroy(&c);
}

static void schedules_keep_the_meaning(void **state) {
  (void)state;
  for (int k = 0; k < seeds; k++) {
    uint64_t seed = first_seed + (uint64_t)k;
    compare(seed, &(atoll_rec_params){.passes = ""}, "no optional passes");
    compare(seed, &(atoll_rec_params){.passes = "simplify"}, "simplify");
    compare(seed, &(atoll_rec_params){.passes = "simplify,groups"}, "groups");
    compare(seed, &(atoll_rec_params){.passes = "simplify,groups", .budget = ISL}, "order by isl");
    compare(seed, &(atoll_rec_params){.passes = "lift"}, "lift");
    compare(seed, &(atoll_rec_params){.vectorize = "b"}, "vectorize b");
    compare(seed, &(atoll_rec_params){.vectorize = "b,l"}, "vectorize b and l");
  }
}

int main(int argc, char **argv) {
  if (argc == 3) {
    first_seed = strtoull(argv[1], NULL, 10);
    seeds = atoi(argv[2]);
  }
  printf("seeds %" PRIu64 " to %" PRIu64 "\n", first_seed, first_seed + (uint64_t)seeds - 1);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(schedules_keep_the_meaning),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
