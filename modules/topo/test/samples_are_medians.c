/* Median and spread are those of order statistics, and nothing measured is 0. */
#include "topo_test.h"

static void median_and_spread(void **state) {
  (void)state;
  atoll_samples none = {0}, one = {1, {5}}, even = {4, {1, 2, 3, 4}}, nine = {9, {1, 2, 3, 4, 5, 6, 7, 8, 100}};
  assert_true(atoll_samples_median(&none) == 0 && atoll_samples_spread(&none) == 0);
  assert_true(atoll_samples_median(&one) == 5 && atoll_samples_spread(&one) == 0);
  assert_true(atoll_samples_median(&even) == 2.5);
  assert_true(atoll_samples_median(&nine) == 5);
  /* quartiles 3 and 7: half of 4 over 5; the outlier is without effect */
  assert_true(atoll_samples_spread(&nine) == 0.4);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(median_and_spread)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
