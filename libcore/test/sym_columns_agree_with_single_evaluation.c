/* Promise: over columns of candidates every lane has the value, or the kind of failure, that evaluating the expression
 * for it alone gives: random graphs with shared parts, guards and extreme numbers, lanes that fail beside lanes that do
 * not. ATOLL_TEST_SEED chooses another sequence. */
#include <math.h>

#include "atoll/sym.h"
#include "sym_draws.h"
#include "unit_check.h"

enum { VARS = 8, MADE = 60, OUTPUTS = 6, LANES = 700 };
static const char *const names[VARS] = {"a", "b", "c", "d", "u", "v", "p", "q"};
static const atoll_sym_type types[VARS] = {ATOLL_SYM_INT,  ATOLL_SYM_INT,  ATOLL_SYM_INT,  ATOLL_SYM_INT,
                                           ATOLL_SYM_REAL, ATOLL_SYM_REAL, ATOLL_SYM_BOOL, ATOLL_SYM_BOOL};
static double draw_real(int wild) {
  static const double some[] = {0.0, -0.0, 1.0, -1.0, 0.5, 3.25, 1e300, -1e300, 1e-300};
  return draw(2) ? some[draw(wild ? 9 : 6)] : ((double)draw(2000001) - 1000000) / 64;
}

/* Every new expression takes its operands from those made before, so graphs share a lot. */
static const atoll_sym *pick(const atoll_sym *const *made, int n, atoll_sym_type type) {
  int at = (int)draw((uint32_t)n);
  for (int i = 0; i < n; i++, at = (at + 1) % n)
    if (atoll_sym_type_of(made[at]) == type)
      return made[at];
  return NULL;
}

static const atoll_sym *one_more(atoll_syms *pool, const atoll_sym *const *made, int n, int wild) {
  static const atoll_sym_op ints[] = {ATOLL_SYM_ADD, ATOLL_SYM_ADD, ATOLL_SYM_SUB, ATOLL_SYM_MUL,     ATOLL_SYM_MUL,
                                      ATOLL_SYM_MIN, ATOLL_SYM_MAX, ATOLL_SYM_MOD, ATOLL_SYM_FLOORDIV};
  static const atoll_sym_op reals[] = {ATOLL_SYM_ADD, ATOLL_SYM_SUB, ATOLL_SYM_MUL,
                                       ATOLL_SYM_DIV, ATOLL_SYM_MIN, ATOLL_SYM_MAX};
  static const atoll_sym_op compare[] = {ATOLL_SYM_LT, ATOLL_SYM_LE, ATOLL_SYM_EQ, ATOLL_SYM_NE};
  atoll_sym_type type = (atoll_sym_type)draw(3), of = (atoll_sym_type)draw(2);
  switch (draw(8)) {
  case 0:
    return atoll_sym_select(pool, pick(made, n, ATOLL_SYM_BOOL), pick(made, n, type), pick(made, n, type));
  case 1:
    return atoll_sym_binary(pool, draw(2) ? ATOLL_SYM_AND : ATOLL_SYM_OR, pick(made, n, ATOLL_SYM_BOOL),
                            pick(made, n, ATOLL_SYM_BOOL));
  case 2:
    return atoll_sym_binary(pool, compare[draw(4)], pick(made, n, of), pick(made, n, of));
  case 3:
    return draw(2) ? atoll_sym_not(pool, pick(made, n, ATOLL_SYM_BOOL))
                   : atoll_sym_to_real(pool, pick(made, n, ATOLL_SYM_INT));
  case 4:
    return atoll_sym_binary(pool, reals[draw(6)], pick(made, n, ATOLL_SYM_REAL), pick(made, n, ATOLL_SYM_REAL));
  case 5:
    return draw(2) ? atoll_sym_int(pool, draw_int(wild)) : atoll_sym_real(pool, draw_real(wild));
  default:
    return atoll_sym_binary(pool, ints[draw(9)], pick(made, n, ATOLL_SYM_INT), pick(made, n, ATOLL_SYM_INT));
  }
}

static int64_t column_i[VARS][LANES];
static double column_r[VARS][LANES];
static atoll_sym_column columns[VARS];

static void draw_columns(int wild) {
  for (int v = 0; v < VARS; v++) {
    for (int i = 0; i < LANES; i++) {
      column_i[v][i] = types[v] == ATOLL_SYM_BOOL ? (int64_t)draw(3) : draw_int(wild);
      column_r[v][i] = draw_real(wild);
    }
    columns[v] = (atoll_sym_column){column_i[v], column_r[v], draw(5) == 0};
  }
}

static const char *const reason[] = {"", "overflow in", "division by zero in"};

static int compare_lane(const atoll_sym *e, int lane, int64_t i, double r, uint8_t status) {
  atoll_sym_binding b[VARS];
  atoll_sym_value want;
  for (int v = 0; v < VARS; v++) {
    int at = columns[v].same ? 0 : lane;
    b[v] = (atoll_sym_binding){names[v], {types[v], column_i[v][at], column_r[v][at]}};
  }
  atoll_err err = atoll_sym_eval(e, b, VARS, &want);
  if (err != ATOLL_OK) {
    assert_int_equal(err, ATOLL_INTERNAL);
    assert_int_not_equal(status, ATOLL_SYM_LANE_OK);
    if (strncmp(atoll_err_message(), reason[status], strlen(reason[status])) != 0)
      fail_msg("lane %d has status %d, alone: %s", lane, status, atoll_err_message());
    assert_true(i == 0 && r == 0);
    atoll_err_clear();
    return 1;
  }
  assert_int_equal(status, ATOLL_SYM_LANE_OK);
  if (want.type == ATOLL_SYM_REAL)
    assert_memory_equal(&want.r, &r, sizeof r);
  else
    assert_int_equal(want.i, i);
  return 0;
}

static void random_graphs(void **state) {
  (void)state;
  static int64_t out_i[OUTPUTS][LANES];
  static double out_r[OUTPUTS][LANES];
  static uint8_t status[OUTPUTS][LANES];
  int failed = 0, fine = 0;
  for (int round = 0; round < 400; round++) {
    atoll_syms *pool = NULL;
    const atoll_sym *made[VARS + MADE], *output[OUTPUTS];
    atoll_sym_results results[OUTPUTS];
    atoll_sym_program *program = NULL;
    int n = 0, wild = round % 2;
    size_t lanes = 1 + draw(LANES);
    assert_int_equal(atoll_syms_create(&pool), ATOLL_OK);
    for (int v = 0; v < VARS; v++)
      made[n++] = atoll_sym_var(pool, names[v], types[v]);
    for (int i = 0; i < MADE; i++) {
      const atoll_sym *e = one_more(pool, made, n, wild);
      if (e)
        made[n++] = e;
      else
        assert_int_not_equal(atoll_syms_error(pool), ATOLL_OK); /* a constant division by zero, say */
    }
    atoll_err_clear();
    draw_columns(wild);
    for (int o = 0; o < OUTPUTS; o++) {
      output[o] = made[n - 1 - (int)draw(20)];
      results[o] = (atoll_sym_results){out_i[o], out_r[o], status[o]};
      memset(out_i[o], 0, sizeof out_i[o]);
      memset(out_r[o], 0, sizeof out_r[o]);
    }
    assert_int_equal(atoll_sym_compile(output, OUTPUTS, names, types, VARS, &program), ATOLL_OK);
    assert_int_equal(atoll_sym_program_run(program, columns, lanes, results), ATOLL_OK);
    for (int o = 0; o < OUTPUTS; o++)
      for (size_t i = 0; i < lanes; i++)
        if (compare_lane(output[o], (int)i, out_i[o][i], out_r[o][i], status[o][i])) {
          failed++;
          assert_int_equal(atoll_sym_program_explain(program, columns, i, o), ATOLL_INTERNAL);
          atoll_err_clear();
        } else {
          fine++;
        }
    atoll_sym_program_destroy(&program);
    atoll_syms_destroy(&pool);
  }
  print_message("%d lanes with a value, %d that failed alike\n", fine, failed);
  assert_true(failed > 1000 && fine > 1000);
}

/* A sum whose terms pass 64 bits but whose total does not, and a guard, in one lane only. */
static void exact_where_needed(void **state) {
  (void)state;
  atoll_syms *pool = NULL;
  const atoll_sym *e[2];
  atoll_sym_program *program = NULL;
  const char *const xy[] = {"x", "y"};
  int64_t x[3] = {2, INT64_MAX, 7}, y[3] = {3, 4, 0}, sum[3], guard[3];
  uint8_t status[2][3];
  const atoll_sym_column column[] = {{x, NULL, 0}, {y, NULL, 0}};
  const atoll_sym_results results[] = {{sum, NULL, status[0]}, {guard, NULL, status[1]}};
  assert_int_equal(atoll_syms_create(&pool), ATOLL_OK);
  assert_int_equal(atoll_sym_parse(pool, "x*y - 3*x + x*(-1)", &e[0]), ATOLL_OK);
  assert_int_equal(atoll_sym_parse(pool, "y != 0 and x // y > 0", &e[1]), ATOLL_OK);
  assert_int_equal(atoll_sym_compile(e, 2, xy, NULL, 2, &program), ATOLL_OK);
  assert_int_equal(atoll_sym_program_run(program, column, 3, results), ATOLL_OK);
  const int64_t sums[] = {-2, 0, -28}, guards[] = {0, 1, 0};
  assert_memory_equal(sum, sums, sizeof sums);
  assert_memory_equal(guard, guards, sizeof guards);
  for (int i = 0; i < 3; i++)
    assert_true(status[0][i] == ATOLL_SYM_LANE_OK && status[1][i] == ATOLL_SYM_LANE_OK);
  atoll_sym_program_destroy(&program);
  atoll_syms_destroy(&pool);
}

static void refuses(void **state) {
  (void)state;
  atoll_syms *pool = NULL;
  const atoll_sym *e;
  atoll_sym_program *program = NULL;
  const char *const a[] = {"a"};
  const atoll_sym_type real = ATOLL_SYM_REAL;
  double bad[] = {1, NAN}, r[2];
  const atoll_sym_column without = {0}, infinite = {NULL, bad, 0};
  const atoll_sym_results results = {NULL, r, NULL};
  assert_int_equal(atoll_syms_create(&pool), ATOLL_OK);
  assert_int_equal(atoll_sym_parse(pool, "a + b", &e), ATOLL_OK);
  assert_int_equal(atoll_sym_compile(&e, 1, a, NULL, 1, &program), ATOLL_USAGE);
  assert_non_null(strstr(atoll_err_message(), "no column for variable b"));
  assert_int_equal(atoll_sym_parse(pool, "a + 1", &e), ATOLL_OK);
  assert_int_equal(atoll_sym_compile(&e, 1, a, &real, 1, &program), ATOLL_USAGE);
  assert_non_null(strstr(atoll_err_message(), "column a is real, the expression has it as int"));
  e = NULL;
  assert_int_equal(atoll_sym_compile(&e, 1, a, NULL, 1, &program), ATOLL_USAGE);
  e = atoll_sym_var(pool, "u", ATOLL_SYM_REAL);
  const char *const u[] = {"u"};
  assert_int_equal(atoll_sym_compile(&e, 1, u, &real, 1, &program), ATOLL_OK);
  assert_int_equal(atoll_sym_program_run(program, &without, 2, &results), ATOLL_USAGE);
  assert_non_null(strstr(atoll_err_message(), "column u has no real values"));
  assert_int_equal(atoll_sym_program_run(program, &infinite, 2, &results), ATOLL_USAGE);
  assert_non_null(strstr(atoll_err_message(), "column u is nan in lane 1"));
  atoll_sym_program_destroy(&program);
  atoll_syms_destroy(&pool);
}

int main(void) {
  const char *seed = getenv("ATOLL_TEST_SEED");
  key.seed = seed ? strtoull(seed, NULL, 10) : 20261129;
  print_message("seed %llu\n", (unsigned long long)key.seed);
  const struct CMUnitTest tests[] = {cmocka_unit_test(random_graphs), cmocka_unit_test(exact_where_needed),
                                     cmocka_unit_test(refuses)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
