/* The cpu backend's kernels of memory policies (kernel_keep.h), but for attention, which is in cpu.c. */
#include "atoll/kernel_keep.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>

#include "cpu_impl.h"
#include "keep_impl.h"
#include "kernel_impl.h"

enum { BLOCK = 16384, ROWS = 16 };

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* n numbers of one value: elements as gamma or beta of the usual kernels, floats as their statistics. */
#define CONSTANTS(name, type, CAST)                                                                                    \
  static atoll_err name(int64_t n, float x, type **out) {                                                              \
    *out = malloc((size_t)(n + 1) * sizeof **out);                                                                     \
    if (!*out)                                                                                                         \
      return atoll_fail(ATOLL_NOMEM, "no memory for a row of %lld constants", (long long)n);                           \
    for (int64_t i = 0; i < n; i++)                                                                                    \
      (*out)[i] = CAST(x);                                                                                             \
    return ATOLL_OK;                                                                                                   \
  }
CONSTANTS(elements, element, rounded)
CONSTANTS(floats, float, )

atoll_err KEEP(drop_mask)(int threads, uint8_t *mask, int64_t B, int64_t inner, const atoll_drop *drop) {
  enum { BITS = 1024 };
  uint32_t threshold = drop_threshold(drop->p);
  int64_t blocks = (inner + BITS - 1) / BITS;
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t k = 0; k < B * blocks; k++) {
    uint32_t bits[BITS];
    int64_t b = k / blocks, first = k % blocks * BITS, n = least(BITS, inner - first);
    atoll_rng_key key = drop_key(drop, b);
    atoll_rng_fill_bits(&key, (uint64_t)first, (size_t)n, bits);
    for (int64_t i = 0; i < n; i++)
      mask[b * inner + first + i] = bits[i] >= threshold;
  }
  return ATOLL_OK;
}

atoll_err KEEP(drop_backward)(int threads, const element *dy, const uint8_t *mask, element *dz, int64_t n, float p) {
  const float scale = drop_scale(p);
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t i = 0; i < n; i++)
    dz[i] = rounded(mask[i] ? value(dy[i]) * scale : 0);
  return ATOLL_OK;
}

atoll_err KEEP(normalize)(int threads, const element *x, element *hat, float *rstd, int64_t R, int64_t C, float eps,
                          int rms) {
  const struct cpu_vec *v = cpu_vec_best();
  element *one = NULL, *zero = NULL;
  atoll_err err;
  ATOLL_TRY_GOTO(err, done, elements(C, 1, &one));
  ATOLL_TRY_GOTO(err, done, elements(C, 0, &zero));
#pragma omp parallel for num_threads(threads) schedule(static, ROWS)
  for (int64_t r = 0; r < R; r++) {
    float mean;
    if (rms) {
      v->rmsnorm_stats(x + r * C, rstd + r, C, eps);
      v->rmsnorm_apply(x + r * C, rstd[r], one, hat + r * C, C);
    } else {
      v->layernorm_stats(x + r * C, &mean, rstd + r, C, eps);
      v->layernorm_apply(x + r * C, mean, rstd[r], one, zero, hat + r * C, C);
    }
  }
done:
  free(one);
  free(zero);
  return err;
}

atoll_err KEEP(affine)(int threads, const element *hat, const element *gamma, const element *beta, element *y,
                       int64_t R, int64_t C, int rms) {
  const struct cpu_vec *v = cpu_vec_best();
#pragma omp parallel for num_threads(threads) schedule(static, ROWS)
  for (int64_t r = 0; r < R; r++)
    if (rms)
      v->rmsnorm_apply(hat + r * C, 1, gamma, y + r * C, C);
    else
      v->layernorm_apply(hat + r * C, 0, 1, gamma, beta, y + r * C, C);
  return ATOLL_OK;
}

atoll_err KEEP(norm_backward_input)(int threads, const element *dy, const element *hat, const float *rstd,
                                    const element *gamma, element *dx, int64_t R, int64_t C, int rms, int accumulate) {
  const struct cpu_vec *v = cpu_vec_best();
  element *rows = malloc((size_t)(threads * C + 1) * sizeof *rows);
  if (!rows)
    return atoll_fail(ATOLL_NOMEM, "no memory for a row of %lld gradients per thread", (long long)C);
#pragma omp parallel for num_threads(threads) schedule(static, ROWS)
  for (int64_t r = 0; r < R; r++) {
    element *row = rows + omp_get_thread_num() * C;
    if (rms)
      v->rmsnorm_backward_input(dy + r * C, hat + r * C, 1, gamma, row, C, 0);
    else
      v->layernorm_backward_input(dy + r * C, hat + r * C, 0, 1, gamma, row, C, 0);
    v->keep.scale_into(row, rstd[r], dx + r * C, C, accumulate);
  }
  free(rows);
  return ATOLL_OK;
}

atoll_err KEEP(norm_backward_weight)(int threads, const element *dy, const element *hat, float *dgamma, float *dbeta,
                                     int64_t R, int64_t C, int rms) {
  const struct cpu_vec *v = cpu_vec_best();
  float *one = NULL, *zero = NULL;
  atoll_err err;
  ATOLL_TRY_GOTO(err, done, floats(R, 1, &one));
  ATOLL_TRY_GOTO(err, done, floats(R, 0, &zero));
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t c = 0; c < C; c += CPU_STRIP) {
    if (rms)
      v->rmsnorm_backward_weight(dy, hat, one, dgamma, R, C, c, least(CPU_STRIP, C - c));
    else
      v->layernorm_backward_weight(dy, hat, zero, one, dgamma, dbeta, R, C, c, least(CPU_STRIP, C - c));
  }
done:
  free(one);
  free(zero);
  return err;
}

atoll_err KEEP(gelu_root)(int threads, const element *x, element *t, int64_t n, int erf) {
  const struct cpu_vec *v = cpu_vec_best();
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t i = 0; i < n; i += BLOCK)
    v->keep.gelu_root(x + i, t + i, least(BLOCK, n - i), erf);
  return ATOLL_OK;
}

atoll_err KEEP(gelu_of_root)(int threads, const element *t, element *y, int64_t n, int erf) {
  const struct cpu_vec *v = cpu_vec_best();
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t i = 0; i < n; i += BLOCK)
    v->keep.gelu_of_root(t + i, y + i, least(BLOCK, n - i), erf);
  return ATOLL_OK;
}

atoll_err KEEP(gelu_root_backward)(int threads, const element *dy, const element *t, element *dx, int64_t n, int erf) {
  const struct cpu_vec *v = cpu_vec_best();
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t i = 0; i < n; i += BLOCK)
    v->keep.gelu_root_backward(dy + i, t + i, dx + i, least(BLOCK, n - i), erf);
  return ATOLL_OK;
}

atoll_err KEEP(pack8)(int threads, const element *x, uint8_t *code, float *scale, int64_t R, int64_t C) {
  const struct cpu_vec *v = cpu_vec_best();
#pragma omp parallel for num_threads(threads) schedule(static, ROWS)
  for (int64_t r = 0; r < R; r++)
    v->keep.pack8(x + r * C, code + r * C, scale + r, C);
  return ATOLL_OK;
}

atoll_err KEEP(unpack8)(int threads, const uint8_t *code, const float *scale, element *x, int64_t R, int64_t C) {
  const struct cpu_vec *v = cpu_vec_best();
#pragma omp parallel for num_threads(threads) schedule(static, ROWS)
  for (int64_t r = 0; r < R; r++)
    v->keep.unpack8(code + r * C, scale[r], x + r * C, C);
  return ATOLL_OK;
}

#define K KEEP
#ifdef CPU_BF16
#define KEEP_TABLE keep_cpu_bf16
#else
#define KEEP_TABLE keep_cpu
#endif
#include "submit_keep.inc"
