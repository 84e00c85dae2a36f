/* Promise: overflow, division by zero, unbound names and wrong types are errors that name the subexpression, never
 * wrong numbers; and what is written with small intermediate results evaluates although the collected form has large
 * ones. */
#include "atoll/sym.h"
#include "unit_check.h"

static const char *const names[] = {"x", "y", "z"};

static atoll_err run(const char *text, int64_t x, int64_t y, int64_t z, int64_t *out) {
  atoll_syms *pool = NULL;
  const atoll_sym *e = NULL;
  const int64_t values[] = {x, y, z};
  assert_int_equal(atoll_syms_create(&pool), ATOLL_OK);
  if (atoll_sym_parse(pool, text, &e) != ATOLL_OK)
    fail_msg("%s", atoll_err_message());
  atoll_err err = atoll_sym_eval_int(e, names, values, 3, out);
  atoll_syms_destroy(&pool);
  return err;
}

static void failures_are_named(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int64_t x, y, z;
    const char *said;
  } cases[] = {
      {"x + y", INT64_MAX, 1, 0, "overflow in 'x + y'"},
      {"x - y", INT64_MIN, 1, 0, "overflow"},
      {"x*y", INT64_C(1) << 32, INT64_C(1) << 31, 0, "overflow in 'x*y' with operands 4294967296, 2147483648"},
      {"-x", INT64_MIN, 0, 0, "overflow in '-x'"},
      {"x // y", INT64_MIN, -1, 0, "overflow in 'x // y'"},
      {"z + 3*(x // y)", 5, 0, 0, "division by zero in 'x // y' with operands 5, 0"},
      {"x % y", 5, 0, 0, "division by zero in 'x % y'"},
      {"max(x*x*x, y)", INT64_C(1) << 22, 0, 0, "overflow in 'x*x*x'"},
      {"9223372036854775807 + 1", 0, 0, 0, "overflow"},
      {"4611686018427387904*4 + x", 0, 0, 0, "overflow"},
      {"1 // 0", 0, 0, 0, "division by zero"},
      {"x + w", 0, 0, 0, "variable w has no value in 'w + x'"},
      {"select(x // y == 0, 1, 2)", 5, 0, 0, "division by zero"},
      {"select(x // y == 0 and z == 7, 1, 2)", 5, 0, 7, "division by zero"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    int64_t out = 4711;
    atoll_err err = run(cases[i].text, cases[i].x, cases[i].y, cases[i].z, &out);
    if (err != (strstr(cases[i].said, "variable") ? ATOLL_USAGE : ATOLL_INTERNAL) ||
        !strstr(atoll_err_message(), cases[i].said))
      fail_msg("%s: %s: '%s', expected '%s'", cases[i].text, atoll_err_name(err), atoll_err_message(), cases[i].said);
    assert_int_equal(out, 4711); /* untouched */
  }
}

static void values_at_the_limits(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int64_t x, y, z, want;
  } cases[] = {
      {"x + y", INT64_MAX, INT64_MIN, 0, -1},
      {"x*y", INT64_C(1) << 32, -(INT64_C(1) << 31), 0, INT64_MIN},
      {"x % y", INT64_MIN, -1, 0, 0},
      {"x // y", -7, 2, 0, -4},
      {"x // y", 7, -2, 0, -4},
      {"x % y", -7, 2, 0, 1},
      {"x % y", 7, -2, 0, -1},
      /* Sorting puts x before y before z; as written nothing overflows. */
      {"(z - x) + y", INT64_MAX, INT64_MAX, 0, 0},
      {"(z*x)*y", INT64_MAX, INT64_MAX, 0, 0},
      {"(y + z) + x", INT64_MAX, -5, 3, INT64_MAX - 2},
      {"2*(x - y)", INT64_MAX, INT64_MAX - 3, 0, 6},
      {"(x*4611686018427387904)*4", 0, 0, 0, 0},
      {"ceildiv(x, y)", INT64_MAX, 64, 0, INT64_MAX / 64 + 1},
      {"ceildiv(x, 64)", INT64_MAX, 0, 0, INT64_MAX / 64 + 1},
      {"ceildiv(x, 64)", -65, 0, 0, -1},
      /* Guards work in any order, and the other branch is not evaluated. */
      {"select(y != 0 and x // y > 2, 1, 2)", 5, 0, 0, 2},
      {"select(x // y > 2 and y != 0, 1, 2)", 5, 0, 0, 2},
      {"select(x // y > 2 or y == 0, 1, 2)", 5, 0, 0, 1},
      {"select(y == 0, 7, x // y)", 5, 0, 0, 7},
      {"min(x, y, z) + max(x, y, z)*10", 3, -2, 7, 68},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    int64_t out = 4711;
    if (run(cases[i].text, cases[i].x, cases[i].y, cases[i].z, &out) != ATOLL_OK)
      fail_msg("%s: %s", cases[i].text, atoll_err_message());
    if (out != cases[i].want)
      fail_msg("%s: %lld, expected %lld", cases[i].text, (long long)out, (long long)cases[i].want);
  }
}

static void typed_bindings(void **state) {
  (void)state;
  atoll_syms *pool = NULL;
  const atoll_sym *e = NULL;
  atoll_sym_value v;
  assert_int_equal(atoll_syms_create(&pool), ATOLL_OK);
  assert_non_null(atoll_sym_var(pool, "t", ATOLL_SYM_REAL));
  assert_non_null(atoll_sym_var(pool, "on", ATOLL_SYM_BOOL));
  assert_int_equal(atoll_sym_parse(pool, "select(on, t/real(n), -1.0)", &e), ATOLL_OK);
  atoll_sym_binding b[] = {
      {"n", {ATOLL_SYM_INT, 8, 0}}, {"t", {ATOLL_SYM_REAL, 0, 2.0}}, {"on", {ATOLL_SYM_BOOL, 5, 0}}};
  assert_int_equal(atoll_sym_eval(e, b, 3, &v), ATOLL_OK);
  assert_int_equal(v.type, ATOLL_SYM_REAL);
  assert_true(v.r == 0.25);
  b[0].value.i = 0;
  assert_int_equal(atoll_sym_eval(e, b, 3, &v), ATOLL_INTERNAL);
  assert_non_null(strstr(atoll_err_message(), "division by zero in 't / real(n)'"));
  b[0].value.type = ATOLL_SYM_REAL;
  assert_int_equal(atoll_sym_eval(e, b, 3, &v), ATOLL_USAGE);
  assert_non_null(strstr(atoll_err_message(), "variable n is not int"));
  b[1].value.r = 1.0 / 0.0;
  assert_int_equal(atoll_sym_eval(e, b, 3, &v), ATOLL_USAGE);
  assert_non_null(strstr(atoll_err_message(), "not finite"));
  assert_int_equal(atoll_sym_parse(pool, "t*t", &e), ATOLL_OK);
  b[1].value.r = 1e200;
  assert_int_equal(atoll_sym_eval(e, b, 3, &v), ATOLL_INTERNAL);
  assert_non_null(strstr(atoll_err_message(), "overflow"));
  int64_t out;
  assert_int_equal(atoll_sym_eval_int(e, NULL, NULL, 0, &out), ATOLL_USAGE);
  assert_int_equal(atoll_sym_eval(NULL, NULL, 0, &v), ATOLL_USAGE);
  atoll_syms_destroy(&pool);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(failures_are_named), cmocka_unit_test(values_at_the_limits),
                                     cmocka_unit_test(typed_bindings)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
