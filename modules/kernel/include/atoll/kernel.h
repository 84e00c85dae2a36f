/** Mathematics on device memory, enqueued on a queue. `ref` is plain C with double accumulation and is the oracle;
 * `cpu` is oneDNN and OpenMP; plug-ins add theirs. Rows R = B * S, row-major.
 *
 *  Types: a table computes on one dtype of activations, their gradients and weights, passed as `void *`; f32 and bf16
 * tables have the same entries. Gradients of weights, statistics, log-sum-exp, loss, moments and master weights are
 * float in every table, and so is all arithmetic: bf16 is rounded (to nearest even) where a value is stored.
 *
 *  Determinism: each result depends only on its inputs, never on the number of threads: work is cut into blocks of
 * fixed size, each computed by one thread, and partial sums are added in block order. Backward kernels exist in input
 * and weight form; weight forms ADD to their outputs (gradients accumulate); input forms, and the weight form of
 * products, overwrite unless `accumulate` is set. */
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

/** Fields beyond `scale` may stay 0: causal attention over as many key heads as heads, each array packed. */
typedef struct atoll_attention_shape {
  int64_t B, S, heads, head_dim;
  float scale;            /* 1 / sqrt(head_dim) */
  int64_t kv_heads;       /* head h reads key head h / (heads / kv_heads); 0: heads */
  int64_t q_row, kv_row;  /* elements from one token's queries (keys, values) to the next one's; 0: packed. The same for
                             their gradients. Queries, keys and values in one [B, S, 3, heads, head_dim]: 3 x width */
  int both_ways;          /* 1: a query sees all keys of its sample, not only those up to itself */
  const int32_t *lengths; /* [B], 1 to S: keys from there on are padding, which no query sees; NULL: none are. Borrowed
                             until the call was carried out */
  int64_t first_head;     /* number that dropout knows head 0 by, where these heads are a part of all */
} atoll_attention_shape;

/** Rotary positions (Su et al. 2021, 2104.09864): pair (i, i + head_dim / 2) of each head turns by position x theta^(-2
 * i / head_dim). With factor > 0 the frequencies are scaled as in Llama 3 (2407.21783): one that makes fewer than `low`
 * turns within `context` positions is divided by factor, one with more than `high` stays, and between it is mixed in
 * proportion to its turns. */
typedef struct atoll_rope {
  double theta, factor, low, high;
  int64_t context;
} atoll_rope;

/** That angle per position, in radians, of pair i of a head; 0 <= i < head_dim / 2. */
ATOLL_API double atoll_rope_frequency(const atoll_rope *rope, int64_t i, int64_t head_dim);

/** How float weights become those that layers read, in the table's type: to nearest, or (by_chance) to one of the two
 * neighbours with the probability by which the weight is nearer to it, so that the mean over many steps is the weight
 * (Gupta et al. 2015, 1502.02551, section 3). Chance is element first + i of `key`. */
typedef struct atoll_rounding {
  int by_chance;
  atoll_rng_key key;
  uint64_t first;
} atoll_rounding;

typedef struct atoll_adamw {
  float lr, beta1, beta2, eps, decay;
  float grad_scale;   /* clipping factor, multiplied into the gradient */
  float bias1, bias2; /* 1 - beta^t */
  atoll_rounding rounding;
} atoll_adamw;

/** Keys and values of the tokens so far, [slots, kv_heads, room, head_dim] each. Heads, scale and rows as in
 * atoll_attention_shape. */
typedef struct atoll_cache {
  void *keys, *values;
  int64_t heads, kv_heads, room, head_dim;
  float scale;
  int64_t q_row, kv_row;
  int64_t window; /* a token attends to this many, itself included; 0: to all before it */
} atoll_cache;

/** An MLP of R rows of a cache's texts: y [R, C] = a(x w^T + b) w2^T + b2 with x [R, C], w [H, C], w2 [C, H], b [H] and
 * b2 [C] or NULL; a is GELU, in its tanh form or by erf, or with a gate [H, C] y = (silu(x gate^T) * (x w^T)) w2^T. All
 * borrowed until the task has run. */
typedef struct atoll_decode_mlp {
  const void *x, *w, *b, *gate, *w2, *b2;
  void *y;
  int64_t R, C, H;
  int erf;
} atoll_decode_mlp;

/** What generating needs: one token a row, row r at position at[r] of slot[r] of a cache (both [R], borrowed until the
 * task has run). The result of a row depends on that row alone, not on how many there are. */
typedef struct atoll_decode_kernels {
  /* linear_forward for few rows, as fast as w can be read */
  atoll_err (*linear)(atoll_queue *q, const void *x, const void *w, const void *b, void *y, int64_t R, int64_t I,
                      int64_t O);
  /* rope of x [R, heads, head_dim] */
  atoll_err (*rope)(atoll_queue *q, void *x, const atoll_rope *rope, int64_t heads, int64_t head_dim, const int32_t *at,
                    int64_t R);
  /* key and value [R, kv_heads, head_dim] into the cache */
  atoll_err (*store)(atoll_queue *q, const void *key, const void *value, const atoll_cache *c, const int32_t *slot,
                     const int32_t *at, int64_t R);
  /* query, o [R, heads, head_dim]: attention to positions 0 .. at[r] of the cache, or the
     last `window` of them */
  atoll_err (*attention)(atoll_queue *q, const void *query, void *o, const atoll_cache *c, const int32_t *slot,
                         const int32_t *at, int64_t R);
  /* optional, NULL where nothing is gained by calling it whole: the bits of linear, an activation and linear */
  atoll_err (*mlp)(atoll_queue *q, const atoll_decode_mlp *m);
} atoll_decode_kernels;

struct atoll_keep_kernels;

typedef struct atoll_kernels {
  const char *name;   /* "ref", "cpu"; of another dtype than f32 "cpu:bf16" */
  const char *device; /* device kind whose memory it works on; host kernels serve "cpu" and "async" */
  atoll_dtype dtype;  /* of what is passed as void *; atoll_dtype_bytes() is its size */
  const struct atoll_keep_kernels *keep; /* those of memory policies (kernel_keep.h); NULL: none */

  /* y[R,O] = x[R,I] w[O,I]^T + b[O]  (b may be NULL) */
  atoll_err (*linear_forward)(atoll_queue *q, const void *x, const void *w, const void *b, void *y, int64_t R,
                              int64_t I, int64_t O);
  /* dx[R,I] (+)= dy[R,O] w[O,I] */
  atoll_err (*linear_backward_input)(atoll_queue *q, const void *dy, const void *w, void *dx, int64_t R, int64_t I,
                                     int64_t O, int accumulate);
  /* Parts of sums over ranks, f32 in every table: y[R,O] = x w^T and dx[R,I] = dy w ... */
  atoll_err (*linear_forward_part)(atoll_queue *q, const void *x, const void *w, float *y, int64_t R, int64_t I,
                                   int64_t O);
  atoll_err (*linear_backward_input_part)(atoll_queue *q, const void *dy, const void *w, float *dx, int64_t R,
                                          int64_t I, int64_t O);
  /* ... and y[R,C] (+)= sum[R,C] + b[C], rounded once where y is stored (b may be NULL) */
  atoll_err (*round_sum)(atoll_queue *q, const float *sum, const void *b, void *y, int64_t R, int64_t C,
                         int accumulate);
  /* dw[O,I] (+)= dy[R,O]^T x[R,I];  db[O] (+)= sum over R of dy  (db may be NULL) */
  atoll_err (*linear_backward_weight)(atoll_queue *q, const void *dy, const void *x, float *dw, float *db, int64_t R,
                                      int64_t I, int64_t O, int accumulate);

  /* y = (x - mean) * rstd * gamma + beta over rows of C, rstd = 1 / sqrt(variance + eps); mean and rstd [R] are
     outputs */
  atoll_err (*layernorm_forward)(atoll_queue *q, const void *x, const void *gamma, const void *beta, void *y,
                                 float *mean, float *rstd, int64_t R, int64_t C, float eps);
  /* the same y, bit for bit, from stored mean and rstd */
  atoll_err (*layernorm_apply)(atoll_queue *q, const void *x, const float *mean, const float *rstd, const void *gamma,
                               const void *beta, void *y, int64_t R, int64_t C);
  atoll_err (*layernorm_backward_input)(atoll_queue *q, const void *dy, const void *x, const float *mean,
                                        const float *rstd, const void *gamma, void *dx, int64_t R, int64_t C,
                                        int accumulate);
  atoll_err (*layernorm_backward_weight)(atoll_queue *q, const void *dy, const void *x, const float *mean,
                                         const float *rstd, float *dgamma, float *dbeta, int64_t R, int64_t C);

  /* RMSNorm (Zhang and Sennrich 2019, 1910.07467): y = x * rstd * gamma, rstd = 1 / sqrt(mean of x^2 + eps) [R] */
  atoll_err (*rmsnorm_forward)(atoll_queue *q, const void *x, const void *gamma, void *y, float *rstd, int64_t R,
                               int64_t C, float eps);
  /* the same y, bit for bit, from stored rstd */
  atoll_err (*rmsnorm_apply)(atoll_queue *q, const void *x, const float *rstd, const void *gamma, void *y, int64_t R,
                             int64_t C);
  atoll_err (*rmsnorm_backward_input)(atoll_queue *q, const void *dy, const void *x, const float *rstd,
                                      const void *gamma, void *dx, int64_t R, int64_t C, int accumulate);
  atoll_err (*rmsnorm_backward_weight)(atoll_queue *q, const void *dy, const void *x, const float *rstd, float *dgamma,
                                       int64_t R, int64_t C);

  /* softmax attention without an S x S matrix; query and o [B, S, heads, head_dim], key and value [B, S, kv_heads,
     head_dim]; lse [B, heads, S] is an output; dropout acts on the probabilities, element ((first_head + head) * S +
     query) * S + key of its sample */
  atoll_err (*attention_forward)(atoll_queue *q, const void *query, const void *key, const void *value, void *o,
                                 float *lse, const atoll_attention_shape *s, const atoll_drop *drop);
  /* dquery, dkey, dvalue overwritten; delta [B, heads, S] is workspace */
  atoll_err (*attention_backward)(atoll_queue *q, const void *query, const void *key, const void *value, const void *o,
                                  const float *lse, const void *d_o, void *dquery, void *dkey, void *dvalue,
                                  float *delta, const atoll_attention_shape *s, const atoll_drop *drop);

  /* turns x [B, S, heads, head_dim] in place, by the position of each token; back = 1 by its negative, which is the
     gradient */
  atoll_err (*rope)(atoll_queue *q, void *x, int64_t B, int64_t S, int64_t heads, int64_t head_dim,
                    const atoll_rope *rope, int back);

  /* y = x / (1 + exp(-x)) * up (SwiGLU: Shazeer 2020, 2002.05202); y may be x, dx or dup dy */
  atoll_err (*swiglu_forward)(atoll_queue *q, const void *x, const void *up, void *y, int64_t n);
  atoll_err (*swiglu_backward)(atoll_queue *q, const void *dy, const void *x, const void *up, void *dx, void *dup,
                               int64_t n);
  /* x Phi(x), the form of bert (Hendrycks and Gimpel 2016, 1606.08415); y may be x, dx dy */
  atoll_err (*gelu_erf_forward)(atoll_queue *q, const void *x, void *y, int64_t n);
  atoll_err (*gelu_erf_backward)(atoll_queue *q, const void *dy, const void *x, void *dx, int64_t n);
  /* y may be x; backward from y, dx may be dy */
  atoll_err (*tanh_forward)(atoll_queue *q, const void *x, void *y, int64_t n);
  atoll_err (*tanh_backward)(atoll_queue *q, const void *dy, const void *y, void *dx, int64_t n);
  /* n rows of C, x_row and y_row elements from one to the next: y = x, or y += x when accumulate */
  atoll_err (*rows)(atoll_queue *q, const void *x, int64_t x_row, void *y, int64_t y_row, int64_t n, int64_t C,
                    int accumulate);

  /* Of the rows of targets[R] that have one (are not negative), in order, `skip` are passed over and the next n listed:
     index[n] their numbers, picked[n] their targets; both -1 where there are no more. USAGE: R has more than `most` */
  atoll_err (*pick)(atoll_queue *q, const int32_t *targets, int64_t R, int64_t most, int64_t skip, int64_t n,
                    int32_t *index, int32_t *picked);
  /* rows of `bytes`: y[i] = x[index[i]], zeros where that is -1; and y[index[i]] = x[i], nothing where it is */
  atoll_err (*gather)(atoll_queue *q, const void *x, const int32_t *index, void *y, int64_t n, int64_t bytes);
  atoll_err (*scatter)(atoll_queue *q, const void *x, const int32_t *index, void *y, int64_t n, int64_t bytes);

  /* tanh form (GPT-2's gelu_new); y may be x, dx dy */
  atoll_err (*gelu_forward)(atoll_queue *q, const void *x, void *y, int64_t n);
  atoll_err (*gelu_backward)(atoll_queue *q, const void *dy, const void *x, void *dx, int64_t n);

  /* y = x + drop(z); [B, inner] with the sample along B. y may be x or z */
  atoll_err (*residual_forward)(atoll_queue *q, const void *x, const void *z, void *y, int64_t B, int64_t inner,
                                const atoll_drop *drop);
  /* dz = drop'(dy); dz may be dy */
  atoll_err (*drop_backward)(atoll_queue *q, const void *dy, void *dz, int64_t B, int64_t inner,
                             const atoll_drop *drop);
  atoll_err (*add)(atoll_queue *q, const float *x, float *y, int64_t n); /* y += x; of gradients of weights */

  /* y[b,s,:] = drop(wte[token[b,s],:] + wpe[s,:]), wpe NULL: none; tokens in [0, V) are checked: CORRUPT names the
     first bad one */
  atoll_err (*embed_forward)(atoll_queue *q, const int32_t *tokens, const void *wte, const void *wpe, void *y,
                             int64_t B, int64_t S, int64_t C, int64_t V, const atoll_drop *drop);
  /* dwte, dwpe (may be NULL) += ; rows are added in order of (b, s) */
  atoll_err (*embed_backward_weight)(atoll_queue *q, const int32_t *tokens, const void *dy, float *dwte, float *dwpe,
                                     int64_t B, int64_t S, int64_t C, int64_t V, const atoll_drop *drop);

  /* logits [R, V] -> loss[R] = lse - logit[target]; when dlogits != NULL (may alias logits): (softmax - onehot) *
   * scale. target -1: no loss, zero gradient */
  atoll_err (*cross_entropy)(atoll_queue *q, const void *logits, const int32_t *targets, float *loss, void *dlogits,
                             float scale, int64_t R, int64_t V);

  /* y[i y_row] += scale x[i], i < n: losses */
  atoll_err (*add_scaled)(atoll_queue *q, const float *x, float *y, int64_t y_row, int64_t n, float scale);
  /* *out = sum of x^2 (double, fixed blocks) */
  atoll_err (*sum_squares)(atoll_queue *q, const float *x, int64_t n, double *out);
  /* *out = sum over x of n floats in double, in order */
  atoll_err (*sum)(atoll_queue *q, const float *x, int64_t n, double *out);
  /* decoupled weight decay (Loshchilov and Hutter 2019, algorithm 2); `rounded` (NULL: none) is what copy_weights would
     make of the new w, in the same pass */
  atoll_err (*adamw)(atoll_queue *q, float *w, const float *g, float *m, float *v, void *rounded, int64_t n,
                     const atoll_adamw *p);
  /* y = w in the table's type */
  atoll_err (*copy_weights)(atoll_queue *q, const float *w, void *y, int64_t n, const atoll_rounding *r);

  const atoll_decode_kernels *decode; /* NULL: this table cannot generate */
} atoll_kernels;

/** By name ("ref", "cpu", with a dtype "cpu:bf16"), or the best for a device kind ("auto:cpu"). UNAVAILABLE lists the
 * known. Also registers rate probes with device.h. */
ATOLL_API atoll_err atoll_kernels_get(const char *name, const atoll_kernels **out);
/** What GEMM library and instruction set the cpu kernels chose and why, one line, for logs and provenance. Borrowed,
 * static. */
ATOLL_API const char *atoll_kernels_describe(const atoll_kernels *k);

/** Where the time of this process goes: seconds by kernel, and by shape where a kernel is a matrix product. Off until
 * asked for. atoll_kernels_profile(1) forgets what was counted and starts; 0 stops and keeps. */
typedef struct atoll_kernel_time {
  const char *name;             /* as in atoll_kernels; borrowed, static */
  int64_t rows, inner, columns; /* of a product [rows, inner] x [inner, columns], by linear_*'s R, I, O; else 0 */
  int64_t calls;
  double seconds;
} atoll_kernel_time;
ATOLL_API void atoll_kernels_profile(int on);
/** Entry i, longest time first; 0 past the end. */
ATOLL_API int atoll_kernels_profile_entry(int i, atoll_kernel_time *out);

ATOLL_END_C
#endif
