/** Mathematics on device memory, enqueued on a queue. `ref` is plain C with double accumulation and is the oracle;
 * `cpu` is oneDNN and OpenMP; plug-ins add theirs. Rows R = B * S, row-major.
 *
 *  Types: a table computes on one dtype of activations, their gradients and weights, passed as `void *`; f32 and bf16
 * tables have the same entries. Gradients of weights, statistics, log-sum-exp, loss, moments and master weights are
 * float in every table, and so is all arithmetic: bf16 is rounded (to nearest even) where a value is stored.
 *
 *  Determinism: each result depends only on its inputs, never on the number of threads: work is cut into blocks of
 * fixed size, each computed by one thread, and partial sums are added in block order. Backward kernels exist in input
 * and weight form; weight forms ADD to their outputs (gradients accumulate), input forms overwrite unless `accumulate`
 * is set. */
#ifndef ATOLL_KERNEL_H
#define ATOLL_KERNEL_H

#include <stdint.h>

#include "atoll/device.h"
#include "atoll/rng.h"
#include "atoll/tensor.h"

ATOLL_BEGIN_C

/** Dropout of one layer call. p = 0 switches it off. Element of (sample b, inner index i): key.sample = first_sample +
 * b, element i. */
typedef struct atoll_drop {
  float p;
  atoll_rng_key key; /* sample = global index of the first sample */
} atoll_drop;

typedef struct atoll_attention_shape {
  int64_t B, S, heads, head_dim; /* qkv is [B, S, 3, heads, head_dim] */
  float scale;                   /* 1 / sqrt(head_dim) */
} atoll_attention_shape;

typedef struct atoll_adamw {
  float lr, beta1, beta2, eps, decay;
  float grad_scale;   /* clipping factor, multiplied into the gradient */
  float bias1, bias2; /* 1 - beta^t */
} atoll_adamw;

typedef struct atoll_kernels {
  const char *name;   /* "ref", "cpu"; of another dtype than f32 "cpu:bf16" */
  const char *device; /* device kind whose memory it works on; host kernels serve "cpu" and "async" */
  atoll_dtype dtype;  /* of what is passed as void *; atoll_dtype_bytes() is its size */

  /* y[R,O] = x[R,I] w[O,I]^T + b[O]  (b may be NULL) */
  atoll_err (*linear_forward)(atoll_queue *q, const void *x, const void *w, const void *b, void *y, int64_t R,
                              int64_t I, int64_t O);
  /* dx[R,I] (+)= dy[R,O] w[O,I] */
  atoll_err (*linear_backward_input)(atoll_queue *q, const void *dy, const void *w, void *dx, int64_t R, int64_t I,
                                     int64_t O, int accumulate);
  /* dw[O,I] += dy[R,O]^T x[R,I];  db[O] += sum over R of dy  (db may be NULL) */
  atoll_err (*linear_backward_weight)(atoll_queue *q, const void *dy, const void *x, float *dw, float *db, int64_t R,
                                      int64_t I, int64_t O);

  /* y = (x - mean) * rstd * gamma + beta over rows of C; mean and rstd [R] are outputs */
  atoll_err (*layernorm_forward)(atoll_queue *q, const void *x, const void *gamma, const void *beta, void *y,
                                 float *mean, float *rstd, int64_t R, int64_t C);
  /* the same y, bit for bit, from stored mean and rstd */
  atoll_err (*layernorm_apply)(atoll_queue *q, const void *x, const float *mean, const float *rstd, const void *gamma,
                               const void *beta, void *y, int64_t R, int64_t C);
  atoll_err (*layernorm_backward_input)(atoll_queue *q, const void *dy, const void *x, const float *mean,
                                        const float *rstd, const void *gamma, void *dx, int64_t R, int64_t C,
                                        int accumulate);
  atoll_err (*layernorm_backward_weight)(atoll_queue *q, const void *dy, const void *x, const float *mean,
                                         const float *rstd, float *dgamma, float *dbeta, int64_t R, int64_t C);

  /* causal softmax attention without an S x S matrix; lse [B, heads, S] is an output; dropout acts on the
     probabilities, element (head * S + query) * S + key of its sample */
  atoll_err (*attention_forward)(atoll_queue *q, const void *qkv, void *o, float *lse, const atoll_attention_shape *s,
                                 const atoll_drop *drop);
  /* dqkv overwritten; delta [B, heads, S] is workspace */
  atoll_err (*attention_backward)(atoll_queue *q, const void *qkv, const void *o, const float *lse, const void *d_o,
                                  void *dqkv, float *delta, const atoll_attention_shape *s, const atoll_drop *drop);

  /* tanh form (GPT-2's gelu_new) */
  atoll_err (*gelu_forward)(atoll_queue *q, const void *x, void *y, int64_t n);
  atoll_err (*gelu_backward)(atoll_queue *q, const void *dy, const void *x, void *dx, int64_t n); /* dx may be dy */

  /* y = x + drop(z); [B, inner] with the sample along B. y may be x or z */
  atoll_err (*residual_forward)(atoll_queue *q, const void *x, const void *z, void *y, int64_t B, int64_t inner,
                                const atoll_drop *drop);
  /* dz = drop'(dy); dz may be dy */
  atoll_err (*drop_backward)(atoll_queue *q, const void *dy, void *dz, int64_t B, int64_t inner,
                             const atoll_drop *drop);
  atoll_err (*add)(atoll_queue *q, const float *x, float *y, int64_t n); /* y += x; of gradients of weights */

  /* y[b,s,:] = drop(wte[token[b,s],:] + wpe[s,:]) ; tokens in [0, V) are checked: CORRUPT names the first bad one */
  atoll_err (*embed_forward)(atoll_queue *q, const int32_t *tokens, const void *wte, const void *wpe, void *y,
                             int64_t B, int64_t S, int64_t C, int64_t V, const atoll_drop *drop);
  /* dwte, dwpe += ; rows are added in order of (b, s) */
  atoll_err (*embed_backward_weight)(atoll_queue *q, const int32_t *tokens, const void *dy, float *dwte, float *dwpe,
                                     int64_t B, int64_t S, int64_t C, int64_t V, const atoll_drop *drop);

  /* logits [R, V] -> loss[R] = lse - logit[target]; when dlogits != NULL (may alias logits): (softmax - onehot) *
   * scale. target -1: no loss, zero gradient */
  atoll_err (*cross_entropy)(atoll_queue *q, const void *logits, const int32_t *targets, float *loss, void *dlogits,
                             float scale, int64_t R, int64_t V);

  /* *out = sum of x^2 (double, fixed blocks) */
  atoll_err (*sum_squares)(atoll_queue *q, const float *x, int64_t n, double *out);
  /* *out = sum over x of n floats in double, in order */
  atoll_err (*sum)(atoll_queue *q, const float *x, int64_t n, double *out);
  /* decoupled weight decay (Loshchilov and Hutter 2019, algorithm 2) */
  atoll_err (*adamw)(atoll_queue *q, float *w, const float *g, float *m, float *v, int64_t n, const atoll_adamw *p);
} atoll_kernels;

/** By name ("ref", "cpu", with a dtype "cpu:bf16"), or the best for a device kind ("auto:cpu"). UNAVAILABLE lists the
 * known. Also registers rate probes with device.h. */
ATOLL_API atoll_err atoll_kernels_get(const char *name, const atoll_kernels **out);
/** What GEMM library and instruction set the cpu kernels chose and why, one line, for logs and provenance. Borrowed,
 * static. */
ATOLL_API const char *atoll_kernels_describe(const atoll_kernels *k);

/** Best GFLOP/s of a library for one GEMM shape, for benchmarks: library i of those compiled in ("onednn", "openblas",
 * "fma-loop"); 0 past the end. */
ATOLL_API int atoll_gemm_library(int i, const char **name);
ATOLL_API atoll_err atoll_gemm_rate(const char *library, int64_t M, int64_t N, int64_t K, int threads, int repetitions,
                                    double *best_gflops);

ATOLL_END_C
#endif
