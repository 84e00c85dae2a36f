/* Random programs through the interpreter by demand and through the interpreter of their schedules: each pass alone,
 * several together, and under budgets for which values are put away. The executor of schedules refuses statements whose
 * inputs are not there, so the executed order is checked too, and counts what values take, which is what a program says
 * of itself. And each pass alone in programs that it changes.
 *
 * Arguments: first seed, number of seeds, "tiny", "small" or "large" programs, "all" ways through passes for each, or
 * "one", which is its turn. A failing seed is printed. */
#include <unistd.h>

#include "random_program.h"

static uint64_t first_seed = 1;
static int seeds = 150, turns;
static char folder[] = "random-XXXXXX";
enum { ISL = 3000000 /* operations: enough for small programs */, ENOUGH = 250 /* programs to see all in */ };

/* Graph and schedule of a program. */
static char *text_of(uint64_t seed, const atoll_rec_params *params) {
  static test_log unused[RANDOM_LOGS];
  atoll_rec_program *program = NULL;
  atoll_rec_params interpreted = *params;
  atoll_rec *c = random_make(seed, unused);
  interpreted.compiler = "";
  if (atoll_rec_compile(c, &interpreted, &program) != ATOLL_OK)
    fail_msg("seed %" PRIu64 ", passes '%s': %s", seed, params->passes, atoll_err_message());
  char *text = test_print(program);
  atoll_rec_program_destroy(&program);
  atoll_rec_destroy(&c);
  return text;
}

/* The peak, or -1 when the budget does not suffice, which is all that may go wrong. */
static int64_t run(uint64_t seed, const atoll_rec_params *params, const char *what, test_log *got) {
  atoll_rec_binding b[RANDOM_BINDINGS];
  int64_t peak = -1, told = -1;
  int n = random_bindings(seed, b);
  atoll_rec_program *program = NULL;
  atoll_rec_params interpreted = *params;
  atoll_rec *c = random_make(seed, got);
  interpreted.compiler = "";
  atoll_err err = atoll_rec_compile(c, &interpreted, &program);
  if (err == ATOLL_OK)
    err = atoll_rec_run(program, b, n);
  if (err == ATOLL_OK)
    err = atoll_rec_last_peak(program, &peak);
  if (err == ATOLL_OK)
    err = atoll_rec_peak_bytes(program, b, n, &told);
  if (err != ATOLL_OK && !(err == ATOLL_NOMEM && params->memory))
    fail_msg("seed %" PRIu64 ", %s: %s", seed, what, atoll_err_message());
  if (told != peak)
    fail_msg("seed %" PRIu64 ", %s: %lld bytes at most, the schedule says %lld", seed, what, (long long)peak,
             (long long)told);
  if (params->memory && told > params->memory)
    fail_msg("seed %" PRIu64 ", %s: %lld of %lld bytes", seed, what, (long long)told, (long long)params->memory);
  atoll_rec_program_destroy(&program);
  atoll_rec_destroy(&c);
  return err == ATOLL_OK ? peak : -1;
}

static int64_t compare(uint64_t seed, const test_log *expected, const atoll_rec_params *params, const char *what) {
  test_log got[RANDOM_LOGS] = {{0}};
  int64_t peak = run(seed, params, what, got);
  for (int k = 0; peak >= 0 && k < RANDOM_LOGS; k++) {
    assert_int_equal(expected[k].n, got[k].n);
    for (int i = 0; i < got[k].n; i++)
      if (!(fabs(expected[k].v[i] - got[k].v[i]) < random_tolerance(seed)))
        fail_msg("seed %" PRIu64 ", %s: sink %d element %d is %.17g, expected %.17g", seed, what, k, i, got[k].v[i],
                 expected[k].v[i]);
  }
  return peak;
}

static void interpret(uint64_t seed, test_log *expected) {
  atoll_rec_binding b[RANDOM_BINDINGS];
  int n = random_bindings(seed, b);
  atoll_rec *c = random_make(seed, expected);
  if (atoll_rec_interpret(c, b, n) != ATOLL_OK)
    fail_msg("seed %" PRIu64 ": %s", seed, atoll_err_message());
  random_count();
  atoll_rec_destroy(&c);
}

static const atoll_rec_params way[] = {
    {.passes = ""},
    {.passes = "simplify"},
    {.passes = "simplify,tile", .tile = 2},
    {.passes = "simplify,scans"},
    {.passes = "vectorize", .vectorize = "b"},
    {.passes = "simplify,lift"},
    {.passes = "simplify,pads"},
    {.passes = "groups"},
    {.passes = "donate"},
    {.passes = "simplify,groups", .budget = ISL},
    {.tile = 2, .block = 2},
    {.vectorize = "b,l"},
};
enum { WAYS = sizeof way / sizeof *way };

static int64_t go(uint64_t seed, const test_log *expected, int w) {
  char what[64];
  (void)snprintf(what, sizeof what, "way %d, passes '%s'", w, way[w].passes ? way[w].passes : "all");
  return compare(seed, expected, &way[w], what);
}

/* Parts of what the last way needs. */
static void go_under_budgets(uint64_t seed, const test_log *expected) {
  int64_t peak = go(seed, expected, WAYS - 1);
  for (int part = 1; part < 4; part++)
    (void)compare(seed, expected,
                  &(atoll_rec_params){.vectorize = "b,l", .memory = 1 + peak * part / 4, .offload = folder},
                  "under a budget");
}

/* Programs with gradients (random_make()) take most of the time, isl's: of those that take turns, one in 16 goes. */
static int goes(uint64_t seed) { return !turns || seed % 3 || seed % 48 == 0; }

static void schedules_keep_the_meaning(void **state) {
  int gone = 0;
  (void)state;
  for (int k = 0; k < seeds; k++) {
    static test_log expected[RANDOM_LOGS];
    uint64_t seed = first_seed + (uint64_t)k;
    if (!goes(seed))
      continue;
    const int turn = gone++ % WAYS;
    memset(expected, 0, sizeof expected);
    interpret(seed, expected);
    for (int w = 0; w < WAYS - 1; w++)
      if (!turns || turn == w)
        (void)go(seed, expected, w);
    if (!turns || turn == WAYS - 1)
      go_under_budgets(seed, expected);
  }
  print_message("%d programs\n", gone);
  if (gone >= ENOUGH)
    random_saw(gone / ENOUGH);
}

/* A pass that has nothing to do keeps every meaning. From the first seed on, programs are looked for that each of them
 * changes, and in these it keeps the meaning. */
static void what_passes_change_keeps_the_meaning(void **state) {
  enum { CHANGED = 2, TRIED = 200 };
  static const struct {
    const char *before, *passes; /* views are folded into what reads them before some passes find it */
  } alone[] = {{"", "simplify"},
               {"simplify", "simplify,tile"},
               {"", "vectorize"},
               {"simplify", "simplify,scans"},
               {"simplify", "simplify,lift"},
               {"simplify", "simplify,pads"},
               {"", "groups"},
               {"", "donate"}};
  (void)state;
  for (size_t w = 0; w < sizeof alone / sizeof *alone; w++) {
    int changed = 0, tried = 0;
    for (; changed < CHANGED && tried < TRIED; tried++) {
      static test_log expected[RANDOM_LOGS];
      const uint64_t seed = first_seed + (uint64_t)tried;
      const atoll_rec_params before = {.passes = alone[w].before},
                             params = {.passes = alone[w].passes, .tile = 2, .vectorize = "b"};
      char *text[2] = {text_of(seed, &before), text_of(seed, &params)};
      if (strcmp(text[0], text[1]) != 0) {
        memset(expected, 0, sizeof expected);
        interpret(seed, expected);
        (void)compare(seed, expected, &params, alone[w].passes);
        changed++;
      }
      free(text[0]);
      free(text[1]);
    }
    print_message("'%s' changes %d of %d programs\n", alone[w].passes, changed, tried);
    if (changed < CHANGED)
      fail_msg("'%s' changes %d of %d programs", alone[w].passes, changed, tried);
  }
}

int main(int argc, char **argv) {
  if (argc == 5) {
    first_seed = strtoull(argv[1], NULL, 10);
    seeds = atoi(argv[2]);
    if (strcmp(argv[3], "small") == 0)
      random_steps = (random_range){1, 3};
    if (strcmp(argv[3], "tiny") == 0)
      random_steps = (random_range){1, 1};
    turns = strcmp(argv[4], "one") == 0;
  }
  if (!mkdtemp(folder))
    return 1;
  printf("seeds %" PRIu64 " to %" PRIu64 "\n", first_seed, first_seed + (uint64_t)seeds - 1);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(schedules_keep_the_meaning),
      cmocka_unit_test(what_passes_change_keeps_the_meaning),
  };
  const struct CMUnitTest first[] = {tests[0]};
  int failed = turns ? cmocka_run_group_tests(first, NULL, NULL) : cmocka_run_group_tests(tests, NULL, NULL);
  return rmdir(folder) != 0 || failed; /* nothing is left there */
}
