/* The tile of packed products (vec_gemm.inc) on pairs of bf16, by the instruction that multiplies two of them each and
 * adds both to a float (VDPBF16PS, AVX512_BF16): twice as many multiply-adds as on floats. It is a file of its own
 * because the processors that have it are fewer than those with AVX-512.
 *
 * The instruction takes numbers below 2^-126 for zeros and rounds each of its two additions. */
#include <stdlib.h>
#include <string.h>

#include "gemm_impl.h"

#if defined(__AVX512BF16__)
#include <immintrin.h>

enum { MR = 14, NV = 2, LANES = 16 }; /* as in vec_gemm.inc */

static void bf16_tile(int64_t steps, const float *restrict a, const float *restrict b, float *restrict c, int64_t ldc,
                      int accumulate, const float *restrict bias) {
  __m512 sum[MR][NV];
#pragma GCC unroll 16
  for (int i = 0; i < MR; i++) {
    __builtin_prefetch(c + i * ldc, 1, 3);
    __builtin_prefetch(c + i * ldc + NV * LANES - 1, 1, 3);
#pragma GCC unroll 2
    for (int j = 0; j < NV; j++)
      sum[i][j] = _mm512_setzero_ps();
  }
#pragma GCC unroll 4
  for (int64_t k = 0; k < steps; k++, a += MR, b += NV * LANES) {
    __m512bh row[NV];
#pragma GCC unroll 2
    for (int j = 0; j < NV; j++)
      row[j] = (__m512bh)_mm512_loadu_ps(b + j * LANES);
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++) {
      __m512bh x = (__m512bh)_mm512_set1_ps(a[i]);
#pragma GCC unroll 2
      for (int j = 0; j < NV; j++)
        sum[i][j] = _mm512_dpbf16_ps(sum[i][j], x, row[j]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < MR; i++)
#pragma GCC unroll 2
    for (int j = 0; j < NV; j++) {
      float *to = c + i * ldc + j * LANES;
      __m512 s = accumulate ? _mm512_add_ps(_mm512_loadu_ps(to), sum[i][j]) : sum[i][j];
      _mm512_storeu_ps(to, bias ? _mm512_add_ps(s, _mm512_loadu_ps(bias + j * LANES)) : s);
    }
}

/* As many multiply-adds a loop as fill the units: what fma_loop is for floats. */
double gemm_bf16_loop(int64_t loops, float *sink) {
  enum { SUMS = 16 };
  __m512 sum[SUMS];
  __m512bh x = (__m512bh)_mm512_set1_ps(sink[0]), y = (__m512bh)_mm512_set1_ps(sink[1]);
  for (int i = 0; i < SUMS; i++)
    sum[i] = _mm512_set1_ps((float)i);
  for (int64_t k = 0; k < loops; k++)
#pragma GCC unroll 16
    for (int i = 0; i < SUMS; i++)
      sum[i] = _mm512_dpbf16_ps(sum[i], x, y);
  for (int i = 1; i < SUMS; i++)
    sum[0] = _mm512_add_ps(sum[0], sum[i]);
  sink[0] = _mm512_reduce_add_ps(sum[0]);
  return 2.0 * 2 * SUMS * LANES;
}

/* ATOLL_TEST_VECTORS: see cpu.c; avx512 is what is without these units. */
gemm_tile_call gemm_bf16_tile(void) {
  const struct cpu_vec *v = cpu_vec_best();
  int fits = v->gemm_rows == MR && v->gemm_columns == NV * LANES && !getenv("ATOLL_TEST_VECTORS");
  return fits && __builtin_cpu_supports("avx512bf16") ? bf16_tile : NULL;
}
#else
double gemm_bf16_loop(int64_t loops, float *sink) {
  (void)loops, (void)sink;
  return 0;
}

gemm_tile_call gemm_bf16_tile(void) { return NULL; }
#endif
