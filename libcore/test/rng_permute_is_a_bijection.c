/* Promise: atoll_rng_permute() is a bijection of [0, n) for every n, differs between seeds and epochs, and prefers no
 * place. */
#include "atoll/rng.h"
#include "unit_check.h"

static void every_element_once(void **state) {
  (void)state;
  static char hit[100003];
  for (uint64_t n = 1; n <= 100003; n = n < 300 ? n + 1 : n == 300 ? 65536 : n == 65536 ? 100003 : n + 1) {
    memset(hit, 0, sizeof hit);
    for (uint64_t p = 0; p < n; p++) {
      uint64_t e = atoll_rng_permute(77, n & 3, n, p);
      assert_true(e < n);
      assert_int_equal(hit[e]++, 0);
    }
  }
}

static void seeds_and_epochs_differ(void **state) {
  (void)state;
  int same_seed = 0, same_epoch = 0, fixed = 0;
  const uint64_t n = 100000;
  for (uint64_t p = 0; p < 10000; p++) {
    uint64_t e = atoll_rng_permute(1, 0, n, p);
    same_seed += e == atoll_rng_permute(2, 0, n, p);
    same_epoch += e == atoll_rng_permute(1, UINT64_C(1) << 32, n, p);
    fixed += e == p;
    assert_int_equal(e, atoll_rng_permute(1, 0, n, p));
  }
  assert_true(same_seed < 5 && same_epoch < 5 && fixed < 5); /* 0.1 expected */
}

static void no_place_is_preferred(void **state) {
  (void)state;
  for (uint64_t n = 2; n <= 12; n++) {
    static int count[12][12];
    const int epochs = 6000;
    memset(count, 0, sizeof count);
    for (int epoch = 0; epoch < epochs; epoch++)
      for (uint64_t p = 0; p < n; p++)
        count[p][atoll_rng_permute(5, (uint64_t)epoch, n, p)]++;
    double want = (double)epochs / (double)n;
    for (uint64_t p = 0; p < n; p++) {
      double chi = 0;
      for (uint64_t e = 0; e < n; e++)
        chi += (count[p][e] - want) * (count[p][e] - want) / want;
      assert_true(chi < 45); /* at most 11 degrees of freedom: mean 11, deviation 4.7 */
    }
  }
}

static void widest_ranges(void **state) {
  (void)state;
  static const uint64_t ns[] = {UINT64_C(1) << 32, (UINT64_C(1) << 33) + 1, (UINT64_C(1) << 63) + 12345, UINT64_MAX};
  for (size_t i = 0; i < 4; i++) {
    uint64_t a = atoll_rng_permute(3, 4, ns[i], 0), b = atoll_rng_permute(3, 4, ns[i], ns[i] - 1);
    assert_true(a < ns[i] && b < ns[i] && a != b);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_element_once), cmocka_unit_test(seeds_and_epochs_differ),
                                     cmocka_unit_test(no_place_is_preferred), cmocka_unit_test(widest_ranges)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
