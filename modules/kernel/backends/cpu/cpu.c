/* The cpu backend: cuts each kernel into blocks of fixed size and gives them to OpenMP threads. Which thread does a
 * block never matters: blocks write apart, or their partial sums are added in block order afterwards. */
#include "cpu_impl.h"

#include <math.h>
#include <omp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "atoll/packed.h"
#include "gemm_impl.h"
#include "keep_impl.h"
#include "kernel_impl.h"

#define BLOCK INT64_C(16384) /* elements: 64 KiB, so a block and its neighbours stay in the second-level cache */
#define ROWS  INT64_C(16)
#define BITS  1024 /* random numbers made at a time */

static const struct cpu_vec *vec_chosen;
static pthread_once_t vec_once = PTHREAD_ONCE_INIT;

/* ATOLL_TEST_VECTORS=plain|avx2|avx512 takes a lesser set than the CPU's best, so that one machine tests them all. */
static void choose_vectors(void) {
  const char *most = getenv("ATOLL_TEST_VECTORS");
  vec_chosen = &cpu_vec_plain;
#if defined(__x86_64__)
  if (most && !strcmp(most, "plain"))
    return;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    vec_chosen = &cpu_vec_avx2;
  if (most && !strcmp(most, "avx2"))
    return;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("fma"))
    vec_chosen = &cpu_vec_avx512;
#else
  (void)most;
#endif
}

const struct cpu_vec *cpu_vec_best(void) {
  (void)pthread_once(&vec_once, choose_vectors);
  return vec_chosen;
}

#ifndef CPU_BF16 /* what does not depend on the type */
void *cpu_alloc(size_t bytes) {
  const size_t huge = (size_t)2 << 20, align = bytes >= huge ? huge : 64;
  void *p = aligned_alloc(align, (bytes + align - 1) / align * align);
#ifdef MADV_HUGEPAGE
  if (p && align == huge)
    (void)madvise(p, (bytes + align - 1) / align * align, MADV_HUGEPAGE); /* a wish only */
#endif
  return p;
}
#endif

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* A team no larger than the work. */
static inline int team(int threads, int64_t blocks) {
  return blocks < 1 ? 1 : (int64_t)threads > blocks ? (int)blocks : threads;
}

/* ---- matrices ---- */

/* As cpu_gemm(); C holds elements, or floats for gradients of weights. */
static atoll_err product(int threads, int ta, int tb, int64_t M, int64_t N, int64_t K, const element *A, int64_t lda,
                         const element *B, int64_t ldb, int beta, void *C, int64_t ldc, int floats,
                         const element *bias) {
#ifdef CPU_BF16
  const gemm_product g = {.M = M,
                          .N = N,
                          .K = K,
                          .A = {A, ta ? 1 : lda, ta ? lda : 1, 1},
                          .B = {B, tb ? ldb : 1, tb ? 1 : ldb, 1},
                          .C = C,
                          .ldc = ldc,
                          .beta = beta,
                          .bf16_c = !floats,
                          .bias = bias};
  return gemm_packed(threads, &g);
#else
  (void)floats;
  return cpu_gemm(threads, ta, tb, M, N, K, A, lda, B, ldb, beta, C, ldc, bias);
#endif
}

static atoll_err cpu_linear_forward(int threads, const element *x, const element *w, const element *b, element *y,
                                    int64_t R, int64_t I, int64_t O) {
  return product(threads, 0, 1, R, O, I, x, I, w, I, 0, y, O, 0, b);
}

static atoll_err cpu_linear_backward_input(int threads, const element *dy, const element *w, element *dx, int64_t R,
                                           int64_t I, int64_t O, int accumulate) {
  return product(threads, 0, 0, R, I, O, dy, O, w, I, accumulate, dx, I, 0, NULL);
}

static atoll_err cpu_linear_forward_part(int threads, const element *x, const element *w, float *y, int64_t R,
                                         int64_t I, int64_t O) {
  return product(threads, 0, 1, R, O, I, x, I, w, I, 0, y, O, 1, NULL);
}

static atoll_err cpu_linear_backward_input_part(int threads, const element *dy, const element *w, float *dx, int64_t R,
                                                int64_t I, int64_t O) {
  return product(threads, 0, 0, R, I, O, dy, O, w, I, 0, dx, I, 1, NULL);
}

static atoll_err cpu_round_sum(int threads, const float *sum, const element *b, element *y, int64_t R, int64_t C,
                               int accumulate) {
#pragma omp parallel for num_threads(team(threads, R)) schedule(static)
  for (int64_t r = 0; r < R; r++)
    for (int64_t c = 0; c < C; c++)
      y[r * C + c] = rounded((accumulate ? value(y[r * C + c]) : 0) + sum[r * C + c] + (b ? value(b[c]) : 0));
  return ATOLL_OK;
}

static atoll_err cpu_linear_backward_weight(int threads, const element *dy, const element *x, float *dw, float *db,
                                            int64_t R, int64_t I, int64_t O, int accumulate) {
  const struct cpu_vec *v = cpu_vec_best();
  if (db) {
    int64_t strips = (O + CPU_STRIP - 1) / CPU_STRIP;
#pragma omp parallel for num_threads(team(threads, strips)) schedule(static)
    for (int64_t k = 0; k < strips; k++) {
      int64_t first = k * CPU_STRIP, n = least(CPU_STRIP, O - first);
      if (!accumulate)
        memset(db + first, 0, (size_t)n * sizeof *db);
      v->column_sum(dy, db, R, O, first, n);
    }
  }
  return product(threads, 1, 0, O, I, R, dy, O, x, I, accumulate, dw, I, 1, NULL);
}

/* ---- LayerNorm ---- */

static atoll_err cpu_layernorm_forward(int threads, const element *x, const element *gamma, const element *beta,
                                       element *y, float *mean, float *rstd, int64_t R, int64_t C, float eps) {
  const struct cpu_vec *v = cpu_vec_best();
  int64_t blocks = (R + ROWS - 1) / ROWS;
#pragma omp parallel for num_threads(team(threads, blocks)) schedule(static)
  for (int64_t k = 0; k < blocks; k++)
    for (int64_t r = k * ROWS; r < least(R, (k + 1) * ROWS); r++) {
      v->layernorm_stats(x + r * C, mean + r, rstd + r, C, eps);
      v->layernorm_apply(x + r * C, mean[r], rstd[r], gamma, beta, y + r * C, C);
    }
  return ATOLL_OK;
}

static atoll_err cpu_layernorm_apply(int threads, const element *x, const float *mean, const float *rstd,
                                     const element *gamma, const element *beta, element *y, int64_t R, int64_t C) {
  const struct cpu_vec *v = cpu_vec_best();
  int64_t blocks = (R + ROWS - 1) / ROWS;
#pragma omp parallel for num_threads(team(threads, blocks)) schedule(static)
  for (int64_t k = 0; k < blocks; k++)
    for (int64_t r = k * ROWS; r < least(R, (k + 1) * ROWS); r++)
      v->layernorm_apply(x + r * C, mean[r], rstd[r], gamma, beta, y + r * C, C);
  return ATOLL_OK;
}

static atoll_err cpu_layernorm_backward_input(int threads, const element *dy, const element *x, const float *mean,
                                              const float *rstd, const element *gamma, element *dx, int64_t R,
                                              int64_t C, int accumulate) {
  const struct cpu_vec *v = cpu_vec_best();
  int64_t blocks = (R + ROWS - 1) / ROWS;
#pragma omp parallel for num_threads(team(threads, blocks)) schedule(static)
  for (int64_t k = 0; k < blocks; k++)
    for (int64_t r = k * ROWS; r < least(R, (k + 1) * ROWS); r++)
      v->layernorm_backward_input(dy + r * C, x + r * C, mean[r], rstd[r], gamma, dx + r * C, C, accumulate);
  return ATOLL_OK;
}

static atoll_err cpu_layernorm_backward_weight(int threads, const element *dy, const element *x, const float *mean,
                                               const float *rstd, float *dgamma, float *dbeta, int64_t R, int64_t C) {
  const struct cpu_vec *v = cpu_vec_best();
  int64_t strips = (C + CPU_STRIP - 1) / CPU_STRIP;
#pragma omp parallel for num_threads(team(threads, strips)) schedule(static)
  for (int64_t k = 0; k < strips; k++)
    v->layernorm_backward_weight(dy, x, mean, rstd, dgamma, dbeta, R, C, k * CPU_STRIP,
                                 least(CPU_STRIP, C - k * CPU_STRIP));
  return ATOLL_OK;
}

/* ---- RMSNorm ---- */

static atoll_err cpu_rmsnorm_forward(int threads, const element *x, const element *gamma, element *y, float *rstd,
                                     int64_t R, int64_t C, float eps) {
  const struct cpu_vec *v = cpu_vec_best();
  int64_t blocks = (R + ROWS - 1) / ROWS;
#pragma omp parallel for num_threads(team(threads, blocks)) schedule(static)
  for (int64_t k = 0; k < blocks; k++)
    for (int64_t r = k * ROWS; r < least(R, (k + 1) * ROWS); r++) {
      v->rmsnorm_stats(x + r * C, rstd + r, C, eps);
      v->rmsnorm_apply(x + r * C, rstd[r], gamma, y + r * C, C);
    }
  return ATOLL_OK;
}

static atoll_err cpu_rmsnorm_apply(int threads, const element *x, const float *rstd, const element *gamma, element *y,
                                   int64_t R, int64_t C) {
  const struct cpu_vec *v = cpu_vec_best();
  int64_t blocks = (R + ROWS - 1) / ROWS;
#pragma omp parallel for num_threads(team(threads, blocks)) schedule(static)
  for (int64_t k = 0; k < blocks; k++)
    for (int64_t r = k * ROWS; r < least(R, (k + 1) * ROWS); r++)
      v->rmsnorm_apply(x + r * C, rstd[r], gamma, y + r * C, C);
  return ATOLL_OK;
}

static atoll_err cpu_rmsnorm_backward_input(int threads, const element *dy, const element *x, const float *rstd,
                                            const element *gamma, element *dx, int64_t R, int64_t C, int accumulate) {
  const struct cpu_vec *v = cpu_vec_best();
  int64_t blocks = (R + ROWS - 1) / ROWS;
#pragma omp parallel for num_threads(team(threads, blocks)) schedule(static)
  for (int64_t k = 0; k < blocks; k++)
    for (int64_t r = k * ROWS; r < least(R, (k + 1) * ROWS); r++)
      v->rmsnorm_backward_input(dy + r * C, x + r * C, rstd[r], gamma, dx + r * C, C, accumulate);
  return ATOLL_OK;
}

static atoll_err cpu_rmsnorm_backward_weight(int threads, const element *dy, const element *x, const float *rstd,
                                             float *dgamma, int64_t R, int64_t C) {
  const struct cpu_vec *v = cpu_vec_best();
  int64_t strips = (C + CPU_STRIP - 1) / CPU_STRIP;
#pragma omp parallel for num_threads(team(threads, strips)) schedule(static)
  for (int64_t k = 0; k < strips; k++)
    v->rmsnorm_backward_weight(dy, x, rstd, dgamma, R, C, k * CPU_STRIP, least(CPU_STRIP, C - k * CPU_STRIP));
  return ATOLL_OK;
}

/* ---- attention: the heads of one sample that share keys and values at a time ---- */

/* `all` points at the first sample's first head. */
static struct cpu_attention share_of(const struct cpu_attention *all, const atoll_attention_shape *s, int64_t b,
                                     int64_t kv, enum cpu_pass pass) {
  struct cpu_attention a = *all;
  int64_t q = b * s->S * a.q_row + kv * a.heads * a.D, k = b * s->S * a.kv_row + kv * a.D;
  int64_t o = b * s->S * a.o_row + kv * a.heads * a.D, line = (b * s->heads + kv * a.heads) * s->S;
  a.first = s->first_head + kv * a.heads;
  a.keys = s->lengths ? s->lengths[b] : s->S;
  a.v += k;
  if (pass != PASS_OF_KEPT)
    a.q += q, a.k += k;
  if (a.p)
    a.p += line * s->S;
  if (a.mask)
    a.dropped += line * s->S, a.mask += line * s->S;
  if (a.code)
    a.code += line * s->S, a.unit += line;
  if (a.lse)
    a.lse += line;
  if (pass == PASS_BACKWARD) {
    a.o += o, a.d_o += o, a.delta += line;
    a.dq += q, a.dk += k, a.dv += k;
  } else if (pass == PASS_FORWARD) {
    a.o_out += o, a.lse_out += line;
  } else if (pass == PASS_CODED || pass == PASS_OF_KEPT) {
    a.o_out += o;
  }
  return a;
}

static atoll_err attention(int threads, struct cpu_attention *all, const atoll_attention_shape *s,
                           const atoll_drop *drop, enum cpu_pass pass) {
  const struct cpu_vec *v = cpu_vec_best();
  int64_t tasks = s->B * s->kv_heads;
  if (tasks == 0 || s->S == 0)
    return ATOLL_OK;
  all->S = s->S, all->D = s->head_dim, all->heads = s->heads / s->kv_heads;
  all->q_row = s->q_row, all->kv_row = s->kv_row, all->o_row = s->heads * s->head_dim;
  all->both_ways = s->both_ways, all->scale = s->scale;
  all->threshold = drop_threshold(drop->p), all->keep_scale = drop_scale(drop->p);
  int n = team(threads, tasks);
  int64_t each = v->attention_scratch(s->S, s->head_dim, pass);
  each = (each + 15) / 16 * 16;
  float *scratch = aligned_alloc(64, (size_t)(each * n) * sizeof *scratch);
  if (!scratch)
    return atoll_fail(ATOLL_NOMEM, "no memory for attention tiles of %d threads (%lld bytes each)", n,
                      (long long)each * 4);
#pragma omp parallel num_threads(n)
  {
    float *mine = scratch + (int64_t)omp_get_thread_num() * each;
#pragma omp for schedule(dynamic, 1)
    for (int64_t t = 0; t < tasks; t++) {
      int64_t b = t / s->kv_heads;
      struct cpu_attention a = share_of(all, s, b, t % s->kv_heads, pass);
      atoll_rng_key key = drop_key(drop, b);
      a.key = drop->p > 0 ? &key : NULL;
      a.scratch = mine;
      if (pass == PASS_BACKWARD)
        v->attention_backward(&a);
      else if (pass == PASS_KEEP)
        v->keep.attention(&a);
      else if (pass == PASS_CODED)
        v->keep.attention_coded(&a);
      else if (pass == PASS_OF_KEPT)
        v->keep.attention_of_kept(&a);
      else
        v->attention_forward(&a);
    }
  }
  free(scratch);
  return ATOLL_OK;
}

static atoll_err cpu_attention_forward(int threads, const element *query, const element *key, const element *values,
                                       element *o, float *lse, const atoll_attention_shape *s, const atoll_drop *drop) {
  struct cpu_attention a = {.q = query, .k = key, .v = values, .o_out = o, .lse_out = lse};
  return attention(threads, &a, s, drop, PASS_FORWARD);
}

static atoll_err cpu_attention_backward(int threads, const element *query, const element *key, const element *values,
                                        const element *o, const float *lse, const element *d_o, element *dquery,
                                        element *dkey, element *dvalue, float *delta, const atoll_attention_shape *s,
                                        const atoll_drop *drop) {
  struct cpu_attention a = {.q = query,
                            .k = key,
                            .v = values,
                            .o = o,
                            .lse = lse,
                            .d_o = d_o,
                            .dq = dquery,
                            .dk = dkey,
                            .dv = dvalue,
                            .delta = delta};
  return attention(threads, &a, s, drop, PASS_BACKWARD);
}

atoll_err KEEP(attention)(int threads, const element *query, const element *key, const float *lse,
                          const atoll_attention_kept *kept, const atoll_attention_shape *s, const atoll_drop *drop) {
  struct cpu_attention a = {
      .q = query, .k = key, .v = key, .lse = lse, .p = kept->p, .dropped = kept->dropped, .mask = kept->mask};
  return attention(threads, &a, s, drop, PASS_KEEP);
}

atoll_err KEEP(attention_coded)(int threads, const element *query, const element *key, const element *values,
                                element *o, const atoll_attention_kept *kept, const atoll_attention_shape *s,
                                const atoll_drop *drop) {
  struct cpu_attention a = {.q = query, .k = key, .v = values, .o_out = o, .code = kept->code, .unit = kept->unit};
  return attention(threads, &a, s, drop, PASS_CODED);
}

atoll_err KEEP(attention_of_kept)(int threads, const element *values, const atoll_attention_kept *kept, element *o,
                                  const atoll_attention_shape *s, const atoll_drop *drop) {
  struct cpu_attention a = {.v = values, .o_out = o, .code = kept->code, .unit = kept->unit};
  return attention(threads, &a, s, drop, PASS_OF_KEPT);
}

atoll_err KEEP(attention_backward)(int threads, const element *query, const element *key, const element *values,
                                   const element *o, const atoll_attention_kept *kept, const element *d_o,
                                   element *dquery, element *dkey, element *dvalue, float *delta,
                                   const atoll_attention_shape *s, const atoll_drop *drop) {
  struct cpu_attention a = {.q = query,
                            .k = key,
                            .v = values,
                            .o = o,
                            .d_o = d_o,
                            .dq = dquery,
                            .dk = dkey,
                            .dv = dvalue,
                            .delta = delta,
                            .p = kept->p,
                            .dropped = kept->dropped,
                            .mask = kept->mask,
                            .code = kept->code,
                            .unit = kept->unit};
  return attention(threads, &a, s, drop, PASS_BACKWARD);
}

/* ---- rotary positions ---- */

/* Angles once per position, in double, then all rows by these. */
static atoll_err cpu_rope(int threads, element *x, int64_t B, int64_t S, int64_t heads, int64_t D,
                          const atoll_rope *rope, int back) {
  const struct cpu_vec *v = cpu_vec_best();
  int64_t half = D / 2;
  float *table = malloc((size_t)(2 * S * half + 1) * sizeof *table);
  double *frequency = malloc((size_t)(half + 1) * sizeof *frequency);
  if (!table || !frequency) {
    free(table);
    free(frequency);
    return atoll_fail(ATOLL_NOMEM, "no memory for the angles of %lld positions", (long long)S);
  }
  for (int64_t i = 0; i < half; i++)
    frequency[i] = atoll_rope_frequency(rope, i, D);
#pragma omp parallel num_threads(team(threads, S))
  {
#pragma omp for schedule(static)
    for (int64_t s = 0; s < S; s++)
      for (int64_t i = 0; i < half; i++) {
        table[2 * s * half + i] = (float)cos(frequency[i] * (double)s);
        table[(2 * s + 1) * half + i] = (float)(back ? -sin(frequency[i] * (double)s) : sin(frequency[i] * (double)s));
      }
#pragma omp for schedule(static)
    for (int64_t r = 0; r < B * S; r++)
      for (int64_t h = 0; h < heads; h++)
        v->rotate(x + (r * heads + h) * D, table + 2 * (r % S) * half, table + (2 * (r % S) + 1) * half, half);
  }
  free(table);
  free(frequency);
  return ATOLL_OK;
}

/* ---- elementwise ---- */

static atoll_err cpu_gelu_forward(int threads, const element *x, element *y, int64_t n) {
  const struct cpu_vec *v = cpu_vec_best();
  int64_t blocks = (n + BLOCK - 1) / BLOCK;
#pragma omp parallel for num_threads(team(threads, blocks)) schedule(static)
  for (int64_t k = 0; k < blocks; k++)
    v->gelu_forward(x + k * BLOCK, y + k * BLOCK, least(BLOCK, n - k * BLOCK));
  return ATOLL_OK;
}

static atoll_err cpu_gelu_backward(int threads, const element *dy, const element *x, element *dx, int64_t n) {
  const struct cpu_vec *v = cpu_vec_best();
  int64_t blocks = (n + BLOCK - 1) / BLOCK;
#pragma omp parallel for num_threads(team(threads, blocks)) schedule(static)
  for (int64_t k = 0; k < blocks; k++)
    v->gelu_backward(dy + k * BLOCK, x + k * BLOCK, dx + k * BLOCK, least(BLOCK, n - k * BLOCK));
  return ATOLL_OK;
}

static atoll_err cpu_gelu_erf_forward(int threads, const element *x, element *y, int64_t n) {
  const struct cpu_vec *v = cpu_vec_best();
  int64_t blocks = (n + BLOCK - 1) / BLOCK;
#pragma omp parallel for num_threads(team(threads, blocks)) schedule(static)
  for (int64_t k = 0; k < blocks; k++)
    v->gelu_erf_forward(x + k * BLOCK, y + k * BLOCK, least(BLOCK, n - k * BLOCK));
  return ATOLL_OK;
}

static atoll_err cpu_gelu_erf_backward(int threads, const element *dy, const element *x, element *dx, int64_t n) {
  const struct cpu_vec *v = cpu_vec_best();
  int64_t blocks = (n + BLOCK - 1) / BLOCK;
#pragma omp parallel for num_threads(team(threads, blocks)) schedule(static)
  for (int64_t k = 0; k < blocks; k++)
    v->gelu_erf_backward(dy + k * BLOCK, x + k * BLOCK, dx + k * BLOCK, least(BLOCK, n - k * BLOCK));
  return ATOLL_OK;
}

static atoll_err cpu_swiglu_forward(int threads, const element *x, const element *up, element *y, int64_t n) {
  const struct cpu_vec *v = cpu_vec_best();
  int64_t blocks = (n + BLOCK - 1) / BLOCK;
#pragma omp parallel for num_threads(team(threads, blocks)) schedule(static)
  for (int64_t k = 0; k < blocks; k++)
    v->swiglu_forward(x + k * BLOCK, up + k * BLOCK, y + k * BLOCK, least(BLOCK, n - k * BLOCK));
  return ATOLL_OK;
}

static atoll_err cpu_swiglu_backward(int threads, const element *dy, const element *x, const element *up, element *dx,
                                     element *dup, int64_t n) {
  const struct cpu_vec *v = cpu_vec_best();
  int64_t blocks = (n + BLOCK - 1) / BLOCK;
#pragma omp parallel for num_threads(team(threads, blocks)) schedule(static)
  for (int64_t k = 0; k < blocks; k++)
    v->swiglu_backward(dy + k * BLOCK, x + k * BLOCK, up + k * BLOCK, dx + k * BLOCK, dup + k * BLOCK,
                       least(BLOCK, n - k * BLOCK));
  return ATOLL_OK;
}

/* Of a few rows only (the pooler's), so no care is taken. */
static atoll_err cpu_tanh_forward(int threads, const element *x, element *y, int64_t n) {
  (void)threads;
  for (int64_t i = 0; i < n; i++)
    y[i] = rounded(tanhf(value(x[i])));
  return ATOLL_OK;
}

static atoll_err cpu_tanh_backward(int threads, const element *dy, const element *y, element *dx, int64_t n) {
  (void)threads;
  for (int64_t i = 0; i < n; i++)
    dx[i] = rounded(value(dy[i]) * (1 - value(y[i]) * value(y[i])));
  return ATOLL_OK;
}

static atoll_err cpu_rows(int threads, const element *x, int64_t x_row, element *y, int64_t y_row, int64_t n, int64_t C,
                          int accumulate) {
  const struct cpu_vec *v = cpu_vec_best();
#pragma omp parallel for num_threads(team(threads, n)) schedule(static)
  for (int64_t r = 0; r < n; r++)
    if (accumulate)
      v->residual(y + r * y_row, x + r * x_row, y + r * y_row, C, NULL, 0, 1);
    else
      memcpy(y + r * y_row, x + r * x_row, (size_t)C * sizeof *y);
  return ATOLL_OK;
}

static atoll_err cpu_add_scaled(int threads, const float *x, float *y, int64_t y_row, int64_t n, float scale) {
  (void)threads;
  for (int64_t i = 0; i < n; i++)
    y[i * y_row] += scale * x[i];
  return ATOLL_OK;
}

static atoll_err cpu_add(int threads, const float *x, float *y, int64_t n) {
  const struct cpu_vec *v = cpu_vec_best();
  int64_t blocks = (n + BLOCK - 1) / BLOCK;
#pragma omp parallel for num_threads(team(threads, blocks)) schedule(static)
  for (int64_t k = 0; k < blocks; k++)
    v->add(x + k * BLOCK, y + k * BLOCK, least(BLOCK, n - k * BLOCK));
  return ATOLL_OK;
}

/* y = x + drop(z), or dz = drop(dy) when x is NULL, in blocks of each sample. */
static void dropped(int threads, const element *x, const element *z, element *y, int64_t B, int64_t inner,
                    const atoll_drop *drop) {
  const struct cpu_vec *v = cpu_vec_best();
  int64_t per = (inner + BLOCK - 1) / BLOCK, blocks = B * per;
  uint32_t threshold = drop_threshold(drop->p);
  float scale = drop_scale(drop->p);
#pragma omp parallel for num_threads(team(threads, blocks)) schedule(static)
  for (int64_t k = 0; k < blocks; k++) {
    int64_t b = k / per, first = k % per * BLOCK, n = least(BLOCK, inner - first);
    uint32_t bits[BITS];
    atoll_rng_key key = drop_key(drop, b);
    int64_t step = drop->p > 0 ? BITS : BLOCK;
    for (int64_t i = 0; i < n; i += step) {
      int64_t m = least(step, n - i), at = b * inner + first + i;
      if (drop->p > 0)
        atoll_rng_fill_bits(&key, (uint64_t)(first + i), (size_t)m, bits);
      const uint32_t *use = drop->p > 0 ? bits : NULL;
      if (x)
        v->residual(x + at, z + at, y + at, m, use, threshold, scale);
      else
        v->drop(z + at, y + at, m, use, threshold, scale);
    }
  }
}

static atoll_err cpu_residual_forward(int threads, const element *x, const element *z, element *y, int64_t B,
                                      int64_t inner, const atoll_drop *drop) {
  dropped(threads, x, z, y, B, inner, drop);
  return ATOLL_OK;
}

static atoll_err cpu_drop_backward(int threads, const element *dy, element *dz, int64_t B, int64_t inner,
                                   const atoll_drop *drop) {
  if (dz != dy || drop->p > 0)
    dropped(threads, NULL, dy, dz, B, inner, drop);
  return ATOLL_OK;
}

/* ---- what follows a product ---- */

#ifdef CPU_BF16
#define cpu_then cpu_then_bf16
#endif

static void then_residual(const gemm_end *e, int64_t r, int64_t n0, int64_t n) {
  const struct cpu_vec *v = cpu_vec_best();
  const atoll_drop *drop = &e->then->drop;
  const int64_t S = e->R / e->then->B, first = r % S * e->C + n0;
  atoll_rng_key key = drop_key(drop, r / S);
  uint32_t bits[BITS];
  for (int64_t i = 0; i < n; i += BITS) {
    int64_t m = least(BITS, n - i), at = r * e->C + n0 + i;
    if (drop->p > 0)
      atoll_rng_fill_bits(&key, (uint64_t)(first + i), (size_t)m, bits);
    v->residual((const element *)e->then->x + at, (const element *)e->z + at, (element *)e->then->y + at, m,
                drop->p > 0 ? bits : NULL, drop_threshold(drop->p), drop_scale(drop->p));
  }
}

void cpu_then(const gemm_end *e, int64_t m0, int64_t m, int64_t n0, int64_t n) {
  const struct cpu_vec *v = cpu_vec_best();
  for (int64_t r = m0; r < m0 + m; r++) {
    const int64_t at = r * e->C + n0;
    const element *z = (const element *)e->z + at, *x = e->then->x ? (const element *)e->then->x + at : NULL;
    element *y = (element *)e->then->y + at;
    switch (e->then->kind) {
    case ATOLL_THEN_GELU:
      v->gelu_forward(z, y, n);
      break;
    case ATOLL_THEN_GELU_ERF:
      v->gelu_erf_forward(z, y, n);
      break;
    case ATOLL_THEN_GELU_BACKWARD:
      v->gelu_backward(z, x, y, n);
      break;
    case ATOLL_THEN_GELU_ERF_BACKWARD:
      v->gelu_erf_backward(z, x, y, n);
      break;
    case ATOLL_THEN_RESIDUAL:
      then_residual(e, r, n0, n);
      break;
    }
  }
}

/* ---- embedding ---- */

static atoll_err check_tokens(const int32_t *tokens, int64_t B, int64_t S, int64_t V) {
  for (int64_t r = 0; r < B * S; r++)
    if (tokens[r] < 0 || tokens[r] >= V)
      return kernel_bad_token("token", r / S, r % S, tokens[r], V);
  return ATOLL_OK;
}

static atoll_err cpu_embed_forward(int threads, const int32_t *tokens, const element *wte, const element *wpe,
                                   element *y, int64_t B, int64_t S, int64_t C, int64_t V, const atoll_drop *drop) {
  ATOLL_TRY(check_tokens(tokens, B, S, V));
  const struct cpu_vec *v = cpu_vec_best();
  uint32_t threshold = drop_threshold(drop->p);
  float scale = drop_scale(drop->p);
#pragma omp parallel for num_threads(team(threads, B *S)) schedule(static)
  for (int64_t r = 0; r < B * S; r++) {
    const element *t = wte + tokens[r] * C;
    element *to = y + r * C;
    if (wpe)
      v->residual(t, wpe + r % S * C, to, C, NULL, 0, 1);
    else
      memcpy(to, t, (size_t)C * sizeof *to);
    if (drop->p > 0) {
      uint32_t bits[BITS];
      atoll_rng_key key = drop_key(drop, r / S);
      for (int64_t c = 0; c < C; c += BITS) {
        int64_t m = least(BITS, C - c);
        atoll_rng_fill_bits(&key, (uint64_t)(r % S * C + c), (size_t)m, bits);
        v->drop(to + c, to + c, m, bits, threshold, scale);
      }
    }
  }
  return ATOLL_OK;
}

/* A thread owns strips of columns and walks all rows in order, so each element's sum has one order. */
static atoll_err cpu_embed_backward_weight(int threads, const int32_t *tokens, const element *dy, float *dwte,
                                           float *dwpe, int64_t B, int64_t S, int64_t C, int64_t V,
                                           const atoll_drop *drop) {
  enum { COLUMNS = 128 };
  ATOLL_TRY(check_tokens(tokens, B, S, V));
  const struct cpu_vec *v = cpu_vec_best();
  uint32_t threshold = drop_threshold(drop->p);
  float scale = drop_scale(drop->p);
  int64_t strips = (C + COLUMNS - 1) / COLUMNS;
#pragma omp parallel for num_threads(team(threads, strips)) schedule(dynamic, 1)
  for (int64_t k = 0; k < strips; k++) {
    int64_t c0 = k * COLUMNS, n = least(COLUMNS, C - c0);
    for (int64_t b = 0; b < B; b++) {
      atoll_rng_key key = drop_key(drop, b);
      for (int64_t s = 0; s < S; s++) {
        uint32_t bits[COLUMNS];
        if (drop->p > 0)
          atoll_rng_fill_bits(&key, (uint64_t)(s * C + c0), (size_t)n, bits);
        v->drop_add(dy + (b * S + s) * C + c0, dwte + tokens[b * S + s] * C + c0, dwpe ? dwpe + s * C + c0 : NULL, n,
                    drop->p > 0 ? bits : NULL, threshold, scale);
      }
    }
  }
  return ATOLL_OK;
}

/* ---- loss ---- */

static atoll_err cpu_cross_entropy(int threads, const element *logits, const int32_t *targets, float *loss,
                                   element *dlogits, float scale, int64_t R, int64_t V) {
  const struct cpu_vec *v = cpu_vec_best();
  for (int64_t r = 0; r < R; r++)
    if (targets[r] < -1 || targets[r] >= V)
      return kernel_bad_token("target", r, -1, targets[r], V);
#pragma omp parallel for num_threads(team(threads, R)) schedule(dynamic, 4)
  for (int64_t r = 0; r < R; r++) {
    element *d = dlogits ? dlogits + r * V : NULL;
    if (targets[r] >= 0) {
      loss[r] = v->cross_entropy(logits + r * V, targets[r], d, scale, V);
    } else {
      loss[r] = 0;
      if (d)
        memset(d, 0, (size_t)V * sizeof *d);
    }
  }
  return ATOLL_OK;
}

/* ---- whole buffers ---- */

static atoll_err cpu_sum_squares(int threads, const float *x, int64_t n, double *out) {
  enum { GROUP = 1024 };
  const struct cpu_vec *v = cpu_vec_best();
  double total = 0;
  for (int64_t first = 0; first < n; first += GROUP * BLOCK) {
    double part[GROUP];
    int64_t blocks = least(GROUP, (n - first + BLOCK - 1) / BLOCK);
#pragma omp parallel for num_threads(team(threads, blocks)) schedule(static)
    for (int64_t k = 0; k < blocks; k++)
      part[k] = v->sum_squares(x + first + k * BLOCK, least(BLOCK, n - first - k * BLOCK));
    for (int64_t k = 0; k < blocks; k++)
      total += part[k];
  }
  *out = total;
  return ATOLL_OK;
}

static atoll_err cpu_sum(int threads, const float *x, int64_t n, double *out) {
  (void)threads;
  double total = 0;
  for (int64_t i = 0; i < n; i++)
    total += x[i];
  *out = total;
  return ATOLL_OK;
}

/* Chance of n elements of a block from i on; NULL when there is none to take. */
static const uint32_t *chance_of(const atoll_rounding *r, int64_t i, int64_t n, uint32_t bits[BITS]) {
  if (!r->by_chance)
    return NULL;
  atoll_rng_fill_bits(&r->key, r->first + (uint64_t)i, (size_t)n, bits);
  return bits;
}

static atoll_err cpu_adamw(int threads, float *w, const float *g, float *m, float *v, element *to, int64_t n,
                           const atoll_adamw *p) {
  const struct cpu_vec *vec = cpu_vec_best();
  const int64_t block = to && p->rounding.by_chance ? BITS : BLOCK, blocks = (n + block - 1) / block;
#pragma omp parallel for num_threads(team(threads, blocks)) schedule(static)
  for (int64_t k = 0; k < blocks; k++) {
    uint32_t bits[BITS];
    int64_t i = k * block, c = least(block, n - i);
    vec->adamw(w + i, g + i, m + i, v + i, to ? to + i : NULL, to ? chance_of(&p->rounding, i, c, bits) : NULL, c, p);
  }
  return ATOLL_OK;
}

static atoll_err cpu_copy_weights(int threads, const float *w, element *y, int64_t n, const atoll_rounding *r) {
  const struct cpu_vec *vec = cpu_vec_best();
  const int64_t block = r->by_chance ? BITS : BLOCK, blocks = (n + block - 1) / block;
#pragma omp parallel for num_threads(team(threads, blocks)) schedule(static)
  for (int64_t k = 0; k < blocks; k++) {
    uint32_t bits[BITS];
    int64_t i = k * block, c = least(block, n - i);
    vec->copy_weights(w + i, y + i, chance_of(r, i, c, bits), c);
  }
  return ATOLL_OK;
}

#define M(name) cpu_##name
#ifdef CPU_BF16
#define TABLE        kernels_cpu_bf16
#define TABLE_NAME   "cpu:bf16"
#define TABLE_DTYPE  ATOLL_BF16
#define TABLE_DECODE NULL
#define TABLE_KEEP   &keep_cpu_bf16
#else
#define TABLE        kernels_cpu
#define TABLE_NAME   "cpu"
#define TABLE_DTYPE  ATOLL_F32
#define TABLE_DECODE &decode_cpu
#define TABLE_KEEP   &keep_cpu
#endif
#include "submit.inc"
