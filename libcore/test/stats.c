/* Medians and quantiles against values worked out by hand. */
#include "atoll/stats.h"

#include "unit_check.h"

static void medians(void **state) {
  (void)state;
  double odd[] = {5, -1, 3}, even[] = {4, 1, 2, 10}, one[] = {7};
  assert_true(atoll_median(odd, 3) == 3 && odd[0] == -1 && odd[2] == 5);
  assert_true(atoll_median(even, 4) == 3 && even[3] == 10);
  assert_true(atoll_median(one, 1) == 7);
  assert_true(atoll_median(NULL, 0) == 0 && atoll_quantile(NULL, 0, 0.3) == 0);
}

static void quantiles_lie_between_neighbours(void **state) {
  (void)state;
  const double v[] = {1, 2, 4, 8, 16};
  assert_true(atoll_quantile(v, 5, 0) == 1 && atoll_quantile(v, 5, 1) == 16);
  assert_true(atoll_quantile(v, 5, 0.25) == 2 && atoll_quantile(v, 5, 0.75) == 8);
  assert_true(atoll_quantile(v, 5, 0.125) == 1.5 && atoll_quantile(v, 5, 0.875) == 12);
  assert_true(atoll_quantile(v, 2, 0.5) == 1.5);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(medians), cmocka_unit_test(quantiles_lie_between_neighbours)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
