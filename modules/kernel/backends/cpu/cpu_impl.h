/* Inside of the cpu backend.
 *
 * The arithmetic is written once, in vector types of the compiler (vec.inc, vec_attention.inc, vec_decode.inc), and
 * compiled for each instruction set into one table of the struct below; the best one that the CPU has is taken at run
 * time. Functions of the table run on the calling thread and work on ranges; cpu.c cuts the work into blocks of fixed
 * size and hands those to threads. */
#ifndef ATOLL_CPU_IMPL_H
#define ATOLL_CPU_IMPL_H

#include <stddef.h>
#include <stdint.h>

#include "atoll/kernel.h"

/* The heads of one sample that share keys and values: pointers to the first of them. */
struct cpu_attention {
  const float *q, *k, *v, *o, *lse, *d_o;
  float *o_out, *lse_out, *dq, *dk, *dv, *delta;
  int64_t S, D, heads, first; /* heads first .. first + heads - 1 */
  int64_t q_row, kv_row, o_row;
  int64_t keys; /* those behind are padding */
  int both_ways;
  float scale;
  float *p, *dropped; /* S x S values that are kept, or NULL */
  uint8_t *mask;
  const atoll_rng_key *key; /* NULL: no dropout */
  uint32_t threshold;
  float keep_scale;
  float *scratch; /* attention_scratch() floats of this thread */
};

/* Kernels of memory policies (vec_keep.inc). */
struct cpu_keep {
  void (*attention)(const struct cpu_attention *a);
  void (*scale_into)(const float *x, float rstd, float *dx, int64_t C, int accumulate);
  void (*gelu_root)(const float *x, float *t, int64_t n, int erf);
  void (*gelu_of_root)(const float *t, float *y, int64_t n, int erf);
  void (*gelu_root_backward)(const float *dy, const float *t, float *dx, int64_t n, int erf);
};

struct cpu_vec {
  const char *name;
  int width; /* floats per vector */
  void (*gelu_forward)(const float *x, float *y, int64_t n);
  void (*gelu_backward)(const float *dy, const float *x, float *dx, int64_t n);
  void (*gelu_erf_forward)(const float *x, float *y, int64_t n);
  void (*gelu_erf_backward)(const float *dy, const float *x, float *dx, int64_t n);
  void (*swiglu_forward)(const float *x, const float *up, float *y, int64_t n);
  void (*swiglu_backward)(const float *dy, const float *x, const float *up, float *dx, float *dup, int64_t n);
  /* x[i], x[half + i] by the cosines and sines of i < half */
  void (*rotate)(float *x, const float *cosine, const float *sine, int64_t half);
  /* bits NULL: no dropout */
  void (*residual)(const float *x, const float *z, float *y, int64_t n, const uint32_t *bits, uint32_t threshold,
                   float scale);
  void (*drop)(const float *dy, float *dz, int64_t n, const uint32_t *bits, uint32_t threshold, float scale);
  void (*drop_add)(const float *dy, float *a, float *b, int64_t n, const uint32_t *bits, uint32_t threshold,
                   float scale);
  void (*add)(const float *x, float *y, int64_t n);
  void (*scale)(const float *x, float *y, int64_t n); /* y = 1.5 x: reads and writes n floats, for the memory probe */
  /* rows of C */
  void (*layernorm_stats)(const float *x, float *mean, float *rstd, int64_t C, float eps);
  void (*layernorm_apply)(const float *x, float mean, float rstd, const float *gamma, const float *beta, float *y,
                          int64_t C);
  void (*layernorm_backward_input)(const float *dy, const float *x, float mean, float rstd, const float *gamma,
                                   float *dx, int64_t C, int accumulate);
  /* columns c0 .. c0+n-1 of R rows, n at most CPU_STRIP */
  void (*layernorm_backward_weight)(const float *dy, const float *x, const float *mean, const float *rstd,
                                    float *dgamma, float *dbeta, int64_t R, int64_t C, int64_t c0, int64_t n);
  void (*rmsnorm_stats)(const float *x, float *rstd, int64_t C, float eps);
  void (*rmsnorm_apply)(const float *x, float rstd, const float *gamma, float *y, int64_t C);
  void (*rmsnorm_backward_input)(const float *dy, const float *x, float rstd, const float *gamma, float *dx, int64_t C,
                                 int accumulate);
  void (*rmsnorm_backward_weight)(const float *dy, const float *x, const float *rstd, float *dgamma, int64_t R,
                                  int64_t C, int64_t c0, int64_t n);
  void (*column_sum)(const float *dy, float *db, int64_t R, int64_t O, int64_t c0, int64_t n);
  float (*cross_entropy)(const float *x, int64_t target, float *dx, float scale, int64_t V); /* returns the loss */
  double (*sum_squares)(const float *x, int64_t n);
  void (*adamw)(float *w, const float *g, float *m, float *v, int64_t n, const atoll_adamw *p);
  int64_t (*attention_scratch)(int64_t S, int64_t D, int backward);
  void (*attention_forward)(const struct cpu_attention *a);
  void (*attention_backward)(const struct cpu_attention *a);
  void (*decode_linear)(const float *x, const float *w, const float *b, float *y, int64_t R, int64_t I, int64_t O,
                        int64_t o0, int64_t n);
  void (*decode_attention)(const float *q, const float *keys, const float *values, int64_t queries, int64_t n,
                           int64_t D, float scale, float *score, float *top, float *sum, float *o);
  /* packed products, see vec_gemm.inc: a panel has gemm_rows rows of A, or gemm_columns columns of B, bf16 or float */
  int gemm_rows, gemm_columns;
  void (*gemm_pack_rows)(const void *src, int bf16, int64_t rs, int64_t ks, int64_t n, int64_t K, float *to);
  void (*gemm_pack_columns)(const void *src, int bf16, int64_t rs, int64_t ks, int64_t n, int64_t K, float *to);
  void (*gemm_tile)(int64_t K, const float *a, const float *b, float *c, int64_t ldc, int accumulate);
  void (*gemm_finish)(const float *tile, int m, int n, const float *sums, int64_t ld_sums, int keep, const void *bias,
                      int bf16, void *c, int64_t ldc);
  /* `loops` times a fixed number of independent multiply-adds; returns how many flop one loop is, *sink keeps it alive
   */
  double (*fma_loop)(int64_t loops, float *sink);
  struct cpu_keep keep;
};

#define CPU_STRIP 64

extern const struct cpu_vec cpu_vec_plain, cpu_vec_avx2, cpu_vec_avx512;
const struct cpu_vec *cpu_vec_best(void);

/* C[M,N] = beta C + op(A) op(B), row-major; op transposes when the flag is set. beta is 0 or 1. `bias` [N] (may be
 * NULL) is added to each row. The result does not depend on threads. */
atoll_err cpu_gemm(int threads, int ta, int tb, int64_t M, int64_t N, int64_t K, const float *A, int64_t lda,
                   const float *B, int64_t ldb, int beta, float *C, int64_t ldc, const float *bias);
const char *cpu_gemm_describe(void);

/* 64-byte aligned, in huge pages where the system grants them (measured: a quarter less time for products); free()
 * releases it. */
void *cpu_alloc(size_t bytes);

#endif
