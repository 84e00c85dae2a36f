/* Random programs compiled, several to a translation unit, against the interpreter by demand.
 *
 * Arguments: first seed, number of seeds. A failing seed is printed. */
#include "random_program.h"

enum { BATCH = 20 };
/* Programs this small run in no time; what counts is the compiler's. */
#define FLAGS "-O1 -march=native -ffp-contract=off -fopenmp-simd"
static uint64_t first_seed = 1;
static int seeds = 200;

/* Choices of passes, by seed. */
static const atoll_rec_params *choice(int k) {
  static const atoll_rec_params p[] = {{.passes = "simplify,groups", .flags = FLAGS},
                                       {.block = 2, .flags = FLAGS},
                                       {.vectorize = "b", .flags = FLAGS},
                                       {.vectorize = "b,l", .block = 4, .flags = FLAGS},
                                       {.passes = "", .flags = FLAGS}};
  return &p[k % 5];
}

static void check(uint64_t seed, const test_log *expected, const test_log *got) {
  for (int k = 0; k < RANDOM_LOGS; k++) {
    assert_int_equal(expected[k].n, got[k].n);
    for (int i = 0; i < got[k].n; i++)
      if (!(fabs(expected[k].v[i] - got[k].v[i]) < 1e-9))
        fail_msg("seed %" PRIu64 ": sink %d element %d is %.17g, expected %.17g", seed, k, i, got[k].v[i],
                 expected[k].v[i]);
  }
}

/* Seeds first, first + 5 ...: of one choice of passes. */
static void run_batch(uint64_t first, int n, const atoll_rec_params *params) {
  static test_log expected[BATCH][RANDOM_LOGS], got[BATCH][RANDOM_LOGS];
  atoll_rec *c[BATCH] = {NULL};
  atoll_rec_program *program[BATCH];
  atoll_rec_binding b[4];
  memset(expected, 0, sizeof expected);
  memset(got, 0, sizeof got);
  for (int k = 0; k < n; k++) {
    uint64_t seed = first + (uint64_t)(5 * k);
    int bindings = random_bindings(seed, b);
    atoll_rec *oracle = random_make(seed, expected[k]);
    assert_ok(atoll_rec_interpret(oracle, b, bindings));
    atoll_rec_destroy(&oracle);
    c[k] = random_make(seed, got[k]);
  }
  assert_ok(atoll_rec_compile_all(n, c, params, program));
  for (int k = 0; k < n; k++) {
    uint64_t seed = first + (uint64_t)(5 * k);
    int64_t peak, most;
    int bindings = random_bindings(seed, b);
    if (strncmp(atoll_rec_engine(program[k]), "compiled", 8) != 0)
      fail_msg("seed %" PRIu64 ": %s", seed, atoll_rec_engine(program[k]));
    if (atoll_rec_run(program[k], b, bindings) != ATOLL_OK)
      fail_msg("seed %" PRIu64 ": %s", seed, atoll_err_message());
    check(seed, expected[k], got[k]);
    assert_ok(atoll_rec_peak_bytes(program[k], b, bindings, &peak));
    assert_ok(atoll_rec_last_peak(program[k], &most));
    if (peak != most)
      fail_msg("seed %" PRIu64 ": %lld bytes at most, the schedule says %lld", seed, (long long)most, (long long)peak);
    atoll_rec_program_destroy(&program[k]);
    atoll_rec_destroy(&c[k]);
  }
}

static void compiled_programs_agree(void **state) {
  (void)state;
  for (int k = 0; k < 5; k++)
    for (int from = k; from < seeds; from += 5 * BATCH) {
      int n = (seeds - from + 4) / 5;
      run_batch(first_seed + (uint64_t)from, n < BATCH ? n : BATCH, choice(k));
    }
}

int main(int argc, char **argv) {
  if (argc == 3) {
    first_seed = strtoull(argv[1], NULL, 10);
    seeds = atoi(argv[2]);
  }
  printf("seeds %" PRIu64 " to %" PRIu64 "\n", first_seed, first_seed + (uint64_t)seeds - 1);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(compiled_programs_agree),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
