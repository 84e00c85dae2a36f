/* Products of operands that lie anyhow: against a sum in double, and the same bits whatever the threads. */
#include "atoll/gemm.h"
#include "kernel_test.h"

/* Where element (i, k) lies: rows packed, rows apart, columns packed, every other element. */
static void strides(int way, int64_t n, int64_t k, int64_t *outer, int64_t *inner) {
  *inner = way == 2 ? n : way == 3 ? 2 : 1;
  *outer = way == 0 ? k : way == 1 ? k + 3 : way == 2 ? 1 : 2 * k;
}

static void check(int64_t M, int64_t N, int64_t K, int ways, int64_t gap) {
  int64_t ao, ai, bo, bi, row = N + gap;
  strides(ways % 4, M, K, &ao, &ai);
  strides(ways / 4, N, K, &bo, &bi);
  float *a = numbers(1, 2 * (M + 1) * (K + 3), 1), *b = numbers(2, 2 * (N + 1) * (K + 3), 1);
  float *c = numbers(3, M * row, 0), *d = numbers(3, M * row, 0);
  OK(atoll_gemm_strided(1, M, N, K, a, ao, ai, b, bo, bi, c, row));
  OK(atoll_gemm_strided(2, M, N, K, a, ao, ai, b, bo, bi, d, row));
  same_bits("threads", d, c, (size_t)(M * row) * sizeof *c);
  for (int64_t i = 0; i < M; i++)
    for (int64_t j = 0; j < row; j++) {
      double sum = 0;
      for (int64_t k = 0; k < K && j < N; k++)
        sum += (double)a[i * ao + k * ai] * b[j * bo + k * bi];
      if (!(fabs(sum - c[i * row + j]) <= 1e-5 * (double)(K + 1)))
        fail_msg("%d x %d x %d, ways %d: element (%d, %d) is %g, expected %g", (int)M, (int)N, (int)K, ways, (int)i,
                 (int)j, (double)c[i * row + j], sum);
    }
  drop_numbers(a, 2 * (M + 1) * (K + 3));
  drop_numbers(b, 2 * (N + 1) * (K + 3));
  drop_numbers(c, M * row);
  drop_numbers(d, M * row);
}

static void products_of_any_layout(void **state) {
  static const int64_t size[][3] = {{1, 1, 1},    {1, 40, 7},     {40, 1, 7},     {5, 9, 1},     {7, 70, 33},
                                    {70, 7, 530}, {33, 50, 64},   {34, 50, 1030}, {128, 64, 64}, {130, 2, 70},
                                    {3, 200, 32}, {96, 112, 100}, {150, 3, 2500}};
  (void)state;
  for (size_t s = 0; s < sizeof size / sizeof *size; s++)
    for (int ways = 0; ways < 16; ways++) {
      check(size[s][0], size[s][1], size[s][2], ways, 0);
      check(size[s][0], size[s][1], size[s][2], ways, 5);
    }
}

/* An empty sum is zero. */
static void nothing_to_add(void **state) {
  float a = 1, c[6] = {1, 2, 3, 4, 5, 6};
  (void)state;
  OK(atoll_gemm_strided(1, 2, 3, 0, &a, 0, 1, &a, 0, 1, c, 3));
  for (int i = 0; i < 6; i++)
    assert_true(c[i] == 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(products_of_any_layout), cmocka_unit_test(nothing_to_add)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
