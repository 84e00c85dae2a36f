/* Promise: normals are Box-Muller's of the elements' bits to float precision, and have a normal's moments and tails. */
#include <math.h>

#include "atoll/rng.h"
#include "unit_check.h"

enum { N = 1 << 20 };
static float x[N];

static void equals_the_formula(void **state) {
  (void)state;
  const double pi = 3.14159265358979323846;
  const atoll_rng_key key = {9, 8, 7, 6, ATOLL_RNG_INIT};
  atoll_rng_fill_normal(&key, 0, 20000, 3.0f, x);
  for (uint64_t e = 0; e < 20000; e += 2) {
    double r = sqrt(-2 * log((atoll_rng_bits(&key, e) + 1.0) / 4294967296.0));
    double angle = 2 * pi * (atoll_rng_bits(&key, e + 1) / 4294967296.0);
    /* One rounding to float (6e-8 relative), and the C library's own rounding near zeros of the circle functions. */
    assert_true(fabs(x[e] - 3 * r * cos(angle)) <= 6.1e-8 * fabs(x[e]) + 3e-15);
    assert_true(fabs(x[e + 1] - 3 * r * sin(angle)) <= 6.1e-8 * fabs(x[e + 1]) + 3e-15);
  }
}

static void moments_and_tails(void **state) {
  (void)state;
  const atoll_rng_key key = {1, 0, 5, 0, ATOLL_RNG_INIT};
  atoll_rng_fill_normal(&key, 0, N, 1.0f, x);
  double m1 = 0, m2 = 0, m3 = 0, m4 = 0, pair = 0;
  int beyond2 = 0, beyond4 = 0;
  for (int i = 0; i < N; i++) {
    double v = x[i];
    m1 += v, m2 += v * v, m3 += v * v * v, m4 += v * v * v * v;
    beyond2 += fabs(v) > 2;
    beyond4 += fabs(v) > 4;
    pair += i & 1 ? v * x[i - 1] : 0;
  }
  double s = 1 / sqrt((double)N); /* limits are five standard errors */
  assert_true(fabs(m1 / N) < 5 * s);
  assert_true(fabs(m2 / N - 1) < 5 * sqrt(2) * s);
  assert_true(fabs(m3 / N) < 5 * sqrt(15) * s);
  assert_true(fabs(m4 / N - 3) < 5 * sqrt(96) * s);
  assert_true(fabs(2 * pair / N) < 5 * sqrt(2) * s);
  assert_true(fabs((double)beyond2 / N - 0.0455) < 5 * sqrt(0.0455) * s);
  assert_in_range(beyond4, 30, 110); /* 66 expected */
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(equals_the_formula), cmocka_unit_test(moments_and_tails)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
