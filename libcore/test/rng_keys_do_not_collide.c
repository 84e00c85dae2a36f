/* Promise: keys that differ in one field, within the range or beyond it, give different streams; uniforms lie in [0, 1)
 * and are even. */
#include <math.h>

#include "atoll/rng.h"
#include "unit_check.h"

static int by_value(const void *a, const void *b) { return memcmp(a, b, 16); }

/* 128 bits of each key; 2^17 keys collide by chance with probability 2^-95. */
static void distinct_streams(void **state) {
  (void)state;
  static const uint64_t wide[] = {
      0, 1, 255, 256, 65535, 65536, UINT32_MAX, UINT64_C(1) << 32, UINT64_C(3) << 40, UINT64_MAX};
  static const uint32_t narrow[] = {0, 1, 2, 255, 256, 65535, 65536, UINT32_MAX};
  static const uint64_t elements[] = {0, 4, UINT64_C(1) << 33, UINT64_C(1) << 34, UINT64_C(1) << 42, UINT64_MAX - 3};
  enum { W = 10, N = 8, E = 6, SEEDS = 4, ALL = SEEDS * W * W * N * N * E };
  static uint32_t seen[ALL][4];
  size_t n = 0;
  for (size_t seed = 0; seed < SEEDS; seed++)
    for (size_t step = 0; step < W; step++)
      for (size_t sample = 0; sample < W; sample++)
        for (size_t layer = 0; layer < N; layer++)
          for (size_t site = 0; site < N; site++)
            for (size_t e = 0; e < E; e++) {
              atoll_rng_key key = {wide[seed * 3], wide[step], wide[sample], narrow[layer], narrow[site]};
              atoll_rng_fill_bits(&key, elements[e], 4, seen[n++]);
            }
  assert_int_equal(n, ALL);
  qsort(seen, ALL, sizeof seen[0], by_value);
  for (size_t i = 1; i < ALL; i++)
    assert_memory_not_equal(seen[i - 1], seen[i], 16);
}

static void uniforms_are_even(void **state) {
  (void)state;
  enum { N = 1 << 20, BINS = 64 };
  const atoll_rng_key key = {2024, 1, 2, 3, ATOLL_RNG_TEST};
  static int count[BINS];
  double sum = 0;
  for (uint64_t e = 0; e < N; e++) {
    float u = atoll_rng_uniform(&key, e);
    assert_true(u >= 0 && u < 1);
    count[(int)(u * BINS)]++;
    sum += u;
  }
  double chi = 0, want = (double)N / BINS;
  for (int b = 0; b < BINS; b++)
    chi += (count[b] - want) * (count[b] - want) / want;
  assert_true(chi < 120); /* 63 degrees of freedom: mean 63, deviation 11 */
  assert_true(fabs(sum / N - 0.5) < 5 * sqrt(1.0 / 12 / N));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(distinct_streams), cmocka_unit_test(uniforms_are_even)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
