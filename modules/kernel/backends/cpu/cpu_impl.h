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

/* bf16 is the upper half of a float. To nearest, ties to even; a NaN stays one. */
static inline float cpu_widen(uint16_t x) {
  union {
    uint32_t bits;
    float number;
  } u = {(uint32_t)x << 16};
  return u.number;
}

static inline uint16_t cpu_narrow(float x) {
  union {
    float number;
    uint32_t bits;
  } u = {x};
  if ((u.bits & 0x7fffffffu) > 0x7f800000u)
    return (uint16_t)(u.bits >> 16 | 0x40);
  return (uint16_t)((u.bits + 0x7fffu + (u.bits >> 16 & 1)) >> 16);
}

/* The sources of the backend are compiled once per type of activations and weights, `element`; all arithmetic is in
 * float. In the bf16 build each shared name carries the type, since what it stands for has it. */
#ifdef CPU_BF16
typedef struct cpu_bf16 {
  uint16_t bits;
} element;
#define cpu_vec        cpu_vec_bf16
#define cpu_attention  cpu_attention_bf16
#define cpu_vec_best   cpu_vec_best_bf16
#define cpu_vec_plain  cpu_vec_plain_bf16
#define cpu_vec_avx2   cpu_vec_avx2_bf16
#define cpu_vec_avx512 cpu_vec_avx512_bf16
static inline float value(element x) { return cpu_widen(x.bits); }
static inline element rounded(float x) { return (element){cpu_narrow(x)}; }
typedef uint8_t code_of; /* of a kept probability: half an element */
enum { CODE_MOST = UINT8_MAX };
#else
typedef float element;
static inline float value(element x) { return x; }
static inline element rounded(float x) { return x; }
typedef uint16_t code_of;
enum { CODE_MOST = UINT16_MAX };
#endif

/* The heads of one sample that share keys and values: pointers to the first of them. */
struct cpu_attention {
  const element *q, *k, *v, *o, *d_o;
  const float *lse;
  element *o_out, *dq, *dk, *dv;
  float *lse_out, *delta;
  int64_t S, D, heads, first; /* heads first .. first + heads - 1, as dropout counts them */
  int64_t q_row, kv_row, o_row;
  int64_t keys; /* those behind are padding */
  int both_ways;
  float scale;
  element *p, *dropped; /* S x S values that are kept, or NULL */
  uint8_t *mask;
  code_of *code;
  float *unit;
  const atoll_rng_key *key; /* NULL: no dropout */
  uint32_t threshold;
  float keep_scale;
  float *scratch; /* attention_scratch() floats of this thread */
};

/* What attention is asked for: o; gradients; the S x S values that are kept; o and these as codes; o from codes. */
enum cpu_pass { PASS_FORWARD, PASS_BACKWARD, PASS_KEEP, PASS_CODED, PASS_OF_KEPT };

/* Kernels of memory policies (vec_keep.inc). */
struct cpu_keep {
  void (*attention)(const struct cpu_attention *a);
  void (*attention_coded)(const struct cpu_attention *a);
  void (*attention_of_kept)(const struct cpu_attention *a);
  void (*scale_into)(const element *x, float rstd, element *dx, int64_t C, int accumulate);
  void (*gelu_root)(const element *x, element *t, int64_t n, int erf);
  void (*gelu_of_root)(const element *t, element *y, int64_t n, int erf);
  void (*gelu_root_backward)(const element *dy, const element *t, element *dx, int64_t n, int erf);
  void (*pack8)(const element *x, uint8_t *code, float *scale, int64_t C); /* a row */
  void (*unpack8)(const uint8_t *code, float scale, element *x, int64_t C);
};

struct cpu_vec {
  const char *name;
  int width; /* floats per vector */
  void (*gelu_forward)(const element *x, element *y, int64_t n);
  void (*gelu_backward)(const element *dy, const element *x, element *dx, int64_t n);
  void (*gelu_erf_forward)(const element *x, element *y, int64_t n);
  void (*gelu_erf_backward)(const element *dy, const element *x, element *dx, int64_t n);
  void (*swiglu_forward)(const element *x, const element *up, element *y, int64_t n);
  void (*swiglu_backward)(const element *dy, const element *x, const element *up, element *dx, element *dup, int64_t n);
  /* x[i], x[half + i] by the cosines and sines of i < half */
  void (*rotate)(element *x, const float *cosine, const float *sine, int64_t half);
  /* bits NULL: no dropout */
  void (*residual)(const element *x, const element *z, element *y, int64_t n, const uint32_t *bits, uint32_t threshold,
                   float scale);
  void (*drop)(const element *dy, element *dz, int64_t n, const uint32_t *bits, uint32_t threshold, float scale);
  void (*drop_add)(const element *dy, float *a, float *b, int64_t n, const uint32_t *bits, uint32_t threshold,
                   float scale);
  void (*add)(const float *x, float *y, int64_t n);
  void (*scale)(const float *x, float *y, int64_t n); /* y = 1.5 x: reads and writes n floats, for the memory probe */
  /* rows of C */
  void (*layernorm_stats)(const element *x, float *mean, float *rstd, int64_t C, float eps);
  void (*layernorm_apply)(const element *x, float mean, float rstd, const element *gamma, const element *beta,
                          element *y, int64_t C);
  void (*layernorm_backward_input)(const element *dy, const element *x, float mean, float rstd, const element *gamma,
                                   element *dx, int64_t C, int accumulate);
  /* columns c0 .. c0+n-1 of R rows, n at most CPU_STRIP */
  void (*layernorm_backward_weight)(const element *dy, const element *x, const float *mean, const float *rstd,
                                    float *dgamma, float *dbeta, int64_t R, int64_t C, int64_t c0, int64_t n);
  void (*rmsnorm_stats)(const element *x, float *rstd, int64_t C, float eps);
  void (*rmsnorm_apply)(const element *x, float rstd, const element *gamma, element *y, int64_t C);
  void (*rmsnorm_backward_input)(const element *dy, const element *x, float rstd, const element *gamma, element *dx,
                                 int64_t C, int accumulate);
  void (*rmsnorm_backward_weight)(const element *dy, const element *x, const float *rstd, float *dgamma, int64_t R,
                                  int64_t C, int64_t c0, int64_t n);
  void (*column_sum)(const element *dy, float *db, int64_t R, int64_t O, int64_t c0, int64_t n);
  float (*cross_entropy)(const element *x, int64_t target, element *dx, float scale, int64_t V); /* returns the loss */
  double (*sum_squares)(const float *x, int64_t n);
  /* rounded NULL: none; bits NULL: to nearest */
  void (*adamw)(float *w, const float *g, float *m, float *v, element *rounded, const uint32_t *bits, int64_t n,
                const atoll_adamw *p);
  void (*copy_weights)(const float *w, element *y, const uint32_t *bits, int64_t n);
  int64_t (*attention_scratch)(int64_t S, int64_t D, enum cpu_pass pass);
  void (*attention_forward)(const struct cpu_attention *a);
  void (*attention_backward)(const struct cpu_attention *a);
  void (*decode_linear)(const float *x, const float *w, const float *b, float *y, int64_t R, int64_t I, int64_t O,
                        int64_t o0, int64_t n);
  void (*decode_attention)(const float *q, const float *keys, const float *values, int64_t queries, int64_t n,
                           int64_t D, float scale, float *score, float *top, float *sum, float *o);
  /* packed products, see vec_gemm.inc: a panel has gemm_rows rows of A, or gemm_columns or CPU_WIDE columns of B, bf16
     or float; n rows or columns make as many panels of P as they need */
  int gemm_rows, gemm_columns;
  void (*gemm_pack)(const void *src, int bf16, int64_t rs, int64_t ks, int64_t n, int64_t K, int P, float *to);
  /* bf16 by pairs that follow one another in k, (K + 1) / 2 of them, the last filled up with a zero: each takes the
     place of a float */
  void (*gemm_pack_pairs)(const void *src, int64_t rs, int64_t ks, int64_t n, int64_t K, int P, float *to);
  void (*gemm_tile)(int64_t K, const float *a, const float *b, float *c, int64_t ldc, int accumulate,
                    const float *bias);
  void (*gemm_finish)(const float *tile, int ld, int m, int n, const float *sums, int64_t ld_sums, int keep,
                      const void *bias, int bf16, void *c, int64_t ldc);
  /* c[i ldc + j] = sum over k of a[i outer + k inner] b[k row + j], i < M, j < N, a multiple of width; nothing packed
   */
  void (*gemm_small)(int64_t M, int64_t N, int64_t K, const float *a, int64_t outer, int64_t inner, const float *b,
                     int64_t row, float *c, int64_t ldc);
  /* `loops` times a fixed number of independent multiply-adds; returns how many flop one loop is, *sink keeps it alive
   */
  double (*fma_loop)(int64_t loops, float *sink);
  struct cpu_keep keep;
};

#define CPU_STRIP  64
#define CPU_WIDE   32 /* columns of panels for libxsmm, and the most of ours */
#define CPU_PANELS 16 /* of A that pass by one panel of B */

extern const struct cpu_vec cpu_vec_plain, cpu_vec_avx2, cpu_vec_avx512;
const struct cpu_vec *cpu_vec_best(void);

/* C[M,N] = beta C + op(A) op(B), row-major; op transposes when the flag is set. beta is 0 or 1. `bias` [N] (may be
 * NULL) is added to each row. The result does not depend on threads. */
atoll_err cpu_gemm(int threads, int ta, int tb, int64_t M, int64_t N, int64_t K, const float *A, int64_t lda,
                   const float *B, int64_t ldb, int beta, float *C, int64_t ldc, const float *bias);

/* As atoll_decode_kernels.linear. */
atoll_err cpu_decode_linear(int threads, const float *x, const float *w, const float *b, float *y, int64_t R, int64_t I,
                            int64_t O);

/* 64-byte aligned, in huge pages where the system grants them (measured: a quarter less time for products); free()
 * releases it. */
void *cpu_alloc(size_t bytes);

#endif
