/* Times are medians of repeats, exact where measured, on a line between or beyond measurements, and never invented. */
#include "atoll/profile.h"
#include "unit_check.h"

static const atoll_digest model = {1, 2};

static atoll_cost cost(double f) {
  return (atoll_cost){.forward = f, .backward_input = 2 * f, .backward_weight = 3 * f, .update = 0.5, .leaf = f / 8};
}

static void add(atoll_profile *p, const char *kind, int64_t B, double f) {
  atoll_cost c = cost(f);
  assert_int_equal(atoll_profile_add(p, "cpu/8c", model, kind, "eager", 64, B, &c), ATOLL_OK);
}

static atoll_err find(atoll_profile *p, const char *kind, int64_t B, atoll_cost *c) {
  return atoll_profile_find(p, "cpu/8c", model, kind, "eager", 64, B, c);
}

static void test(void **state) {
  (void)state;
  atoll_profile *p = NULL;
  atoll_cost c;
  assert_int_equal(atoll_profile_create(&p), ATOLL_OK);
  assert_int_equal(find(p, "block", 1, &c), ATOLL_NOINPUT);
  add(p, "block", 4, 9.0);
  add(p, "block", 4, 4.0);
  add(p, "block", 4, 5.0);
  assert_int_equal(find(p, "block", 4, &c), ATOLL_OK);
  assert_float_equal(c.forward, 5.0, 0); /* median of three */
  assert_float_equal(c.leaf, 5.0 / 8, 0);
  assert_float_equal(c.spread, 0.5 * (7.0 - 4.5) / 5.0, 1e-12); /* quartiles of 4 5 9 */
  assert_int_equal(c.source, ATOLL_COST_MEASURED);
  assert_float_equal(atoll_profile_spread(p, "cpu/8c", model), 0.25, 1e-12);
  assert_float_equal(atoll_profile_spread(p, "cpu/4c", model), 0, 0);
  assert_int_equal(find(p, "block", 2, &c), ATOLL_OK); /* one point: proportional */
  assert_float_equal(c.forward, 2.5, 1e-12);
  assert_float_equal(c.update, 0.5, 0);
  assert_float_equal(c.leaf, 5.0 / 8, 0); /* sums do not see the micro-batch */
  assert_int_equal(c.source, ATOLL_COST_INTERPOLATED);
  add(p, "block", 8, 7.0);
  assert_int_equal(find(p, "block", 6, &c), ATOLL_OK);
  assert_float_equal(c.forward, 6.0, 1e-12);
  assert_float_equal(c.backward_weight, 18.0, 1e-12);
  assert_float_equal(c.spread, 0.25, 1e-12);            /* of the less certain end */
  assert_int_equal(find(p, "block", 16, &c), ATOLL_OK); /* beyond, on the line of the two nearest */
  assert_float_equal(c.forward, 11.0, 1e-12);
  assert_int_equal(find(p, "block", 2, &c), ATOLL_OK);
  assert_float_equal(c.forward, 4.0, 1e-12);
  add(p, "block", 1, 1.0);
  assert_int_equal(find(p, "block", 2, &c), ATOLL_OK); /* now between 1 and 4 */
  assert_float_equal(c.forward, 1.0 + 4.0 / 3.0, 1e-12);
  assert_int_equal(find(p, "head", 4, &c), ATOLL_NOINPUT);
  assert_int_equal(atoll_profile_find(p, "cpu/4c", model, "block", "eager", 64, 4, &c), ATOLL_NOINPUT);
  assert_int_equal(atoll_profile_find(p, "cpu/8c", model, "block", "exact", 64, 4, &c), ATOLL_NOINPUT);
  assert_int_equal(atoll_profile_find(p, "cpu/8c", model, "block", "eager", 65, 4, &c), ATOLL_NOINPUT);
  assert_int_equal(atoll_profile_find(p, "cpu/8c", (atoll_digest){1, 3}, "block", "eager", 64, 4, &c), ATOLL_NOINPUT);
  c = cost(-1);
  assert_int_equal(atoll_profile_add(p, "cpu/8c", model, "block", "eager", 64, 4, &c), ATOLL_USAGE);
  c = cost(1);
  assert_int_equal(atoll_profile_add(p, "tab\there", model, "block", "eager", 64, 4, &c), ATOLL_USAGE);
  c = cost(2);
  c.source = ATOLL_COST_INTERPOLATED;
  assert_int_equal(atoll_profile_add(p, "cpu/8c", model, "guess", "eager", 64, 4, &c), ATOLL_OK);
  assert_int_equal(find(p, "guess", 4, &c), ATOLL_OK);
  assert_int_equal(c.source, ATOLL_COST_INTERPOLATED);
  add(p, "guess", 4, 6.0);
  assert_int_equal(find(p, "guess", 4, &c), ATOLL_OK); /* a measurement replaces the guess, */
  assert_true(c.forward == 6.0 && c.source == ATOLL_COST_MEASURED);
  c = cost(9);
  c.source = ATOLL_COST_IMPORTED;
  assert_int_equal(atoll_profile_add(p, "cpu/8c", model, "guess", "eager", 64, 4, &c), ATOLL_OK);
  assert_int_equal(find(p, "guess", 4, &c), ATOLL_OK); /* and what others measured does not replace it */
  assert_true(c.forward == 6.0 && c.source == ATOLL_COST_MEASURED);
  assert_int_equal(atoll_profile_count(p), 4);
  for (int i = 0; i < 100; i++)
    add(p, "many", 1, 3.0); /* more than are kept */
  assert_int_equal(find(p, "many", 1, &c), ATOLL_OK);
  assert_float_equal(c.forward, 3.0, 0);
  atoll_profile_destroy(&p);
  atoll_profile_destroy(&p);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
