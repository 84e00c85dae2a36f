/* Random programs compiled, several to a translation unit, against the interpreter by demand.
 *
 * Arguments: first seed, number of seeds, "small" or "large" programs. A failing seed is printed. */
#include <unistd.h>

#include "random_program.h"

enum { BATCH = 40, CHOICES = 6, BUDGET = 100 /* bytes, of these programs' hundreds */, ENOUGH = 200 };
static uint64_t first_seed = 1;
static int seeds = 200, large, refused, helped;
static unsigned units; /* bit k: something became k translation units */
static char folder[] = "compiled-XXXXXX";

/* Choices of passes, by seed. Programs this small run in no time: what counts is the compiler's, which is several times
 * longer when it optimizes. */
static atoll_rec_params choice(int k) {
  static const char quick[] = "-O0 -ffp-contract=off -fopenmp-simd",
                    thorough[] = "-O2 -march=native -ffp-contract=off -fopenmp-simd";
  const atoll_rec_params p[CHOICES] = {
      {.passes = "simplify,groups"},         {.block = 2},  {.vectorize = "b"}, {.vectorize = "b,l", .block = 4},
      {.memory = BUDGET, .offload = folder}, {.passes = ""}};
  atoll_rec_params chosen = p[k];
  chosen.flags = large ? thorough : quick;
  return chosen;
}

static void check(uint64_t seed, const test_log *expected, const test_log *got) {
  for (int k = 0; k < RANDOM_LOGS; k++) {
    assert_int_equal(expected[k].n, got[k].n);
    for (int i = 0; i < got[k].n; i++)
      if (!(fabs(expected[k].v[i] - got[k].v[i]) < random_tolerance(seed)))
        fail_msg("seed %" PRIu64 ": sink %d element %d is %.17g, expected %.17g", seed, k, i, got[k].v[i],
                 expected[k].v[i]);
  }
}

static int units_of(const atoll_rec_program *p) {
  const char *at = strstr(atoll_rec_engine(p), "' in ");
  return at ? atoi(at + 5) : 0;
}

static int puts_away(const atoll_rec_program *p, const atoll_rec_binding *b, int n) {
  char *text = test_report(p, b, n);
  int found = strstr(text, "put away between uses") != NULL;
  free(text);
  return found;
}

/* Seeds first, first + CHOICES ...: of one choice of passes. */
static void run_batch(uint64_t first, int n, const atoll_rec_params *params) {
  static test_log expected[BATCH][RANDOM_LOGS], got[BATCH][RANDOM_LOGS];
  atoll_rec *c[BATCH] = {NULL};
  atoll_rec_program *program[BATCH];
  atoll_rec_binding b[RANDOM_BINDINGS];
  memset(expected, 0, sizeof expected);
  memset(got, 0, sizeof got);
  for (int k = 0; k < n; k++) {
    uint64_t seed = first + (uint64_t)(CHOICES * k);
    int bindings = random_bindings(seed, b);
    atoll_rec *oracle = random_make(seed, expected[k]);
    assert_ok(atoll_rec_interpret(oracle, b, bindings));
    random_count();
    atoll_rec_destroy(&oracle);
    c[k] = random_make(seed, got[k]);
  }
  assert_ok(atoll_rec_compile_all(n, c, params, program));
  for (int k = 0; k < n; k++) {
    uint64_t seed = first + (uint64_t)(CHOICES * k);
    int64_t peak, most;
    int bindings = random_bindings(seed, b);
    if (strncmp(atoll_rec_engine(program[k]), "compiled", 8) != 0)
      fail_msg("seed %" PRIu64 ": %s", seed, atoll_rec_engine(program[k]));
    units |= 1u << units_of(program[k]);
    atoll_err err = atoll_rec_run(program[k], b, bindings);
    if (err != ATOLL_OK && !(err == ATOLL_NOMEM && params->memory))
      fail_msg("seed %" PRIu64 ": %s", seed, atoll_err_message());
    refused += err != ATOLL_OK;
    if (err == ATOLL_OK) {
      helped += params->memory && puts_away(program[k], b, bindings);
      check(seed, expected[k], got[k]);
      assert_ok(atoll_rec_peak_bytes(program[k], b, bindings, &peak));
      assert_ok(atoll_rec_last_peak(program[k], &most));
      if (peak != most || (params->memory && most > params->memory))
        fail_msg("seed %" PRIu64 ": %lld bytes at most, the schedule says %lld", seed, (long long)most,
                 (long long)peak);
    }
    atoll_rec_program_destroy(&program[k]);
    atoll_rec_destroy(&c[k]);
  }
}

static void compiled_programs_agree(void **state) {
  (void)state;
  for (int k = 0; k < CHOICES; k++) {
    const atoll_rec_params p = choice(k);
    for (int from = k; from < seeds; from += CHOICES * BATCH) {
      int n = (seeds - from + CHOICES - 1) / CHOICES;
      run_batch(first_seed + (uint64_t)from, n < BATCH ? n : BATCH, &p);
    }
  }
  print_message("%d programs put values away, %d needed more than %d bytes even so\n", helped, refused, BUDGET);
  if (seeds >= ENOUGH)
    random_saw(1);
  assert_true(large ? helped > 0 : helped >= seeds / (8 * CHOICES)); /* seeds of one choice in CHOICES may */
}

/* One unit has the text of one program, and four that of many, whatever processors there are. */
static void any_number_of_units_agrees(void **state) {
  enum { ALL = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4 };
  (void)state;
  const atoll_rec_params p = choice(0);
  units = 0;
  for (int n = 1; n <= 12 && units != ALL; n++)
    run_batch(first_seed, n, &p);
  print_message("units seen: %#x\n", units);
  assert_int_equal(units, ALL);
}

int main(int argc, char **argv) {
  if (argc == 4) {
    first_seed = strtoull(argv[1], NULL, 10);
    seeds = atoi(argv[2]);
    large = strcmp(argv[3], "large") == 0;
  }
  if (!large)
    random_steps = (random_range){1, 3};
  if (!mkdtemp(folder))
    return 1;
  printf("seeds %" PRIu64 " to %" PRIu64 "\n", first_seed, first_seed + (uint64_t)seeds - 1);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(compiled_programs_agree),
      cmocka_unit_test(any_number_of_units_agrees),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  return rmdir(folder) != 0 || failed; /* nothing is left there */
}
