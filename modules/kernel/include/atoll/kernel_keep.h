/** Kernels of memory policies: values that may be kept in place of those that backward usually reads. A table of
 * kernels may lack them. Rows R, row-major; determinism and types as in kernel.h. */
#ifndef ATOLL_KERNEL_KEEP_H
#define ATOLL_KERNEL_KEEP_H

#include "atoll/kernel.h"

ATOLL_BEGIN_C

/** S x S values of attention, each [B, heads, S, S], zero where a query sees no key. Probabilities before dropout, as
 * elements `p`; beside them what frameworks keep, after dropout and which were kept (1) or dropped (0), or NULL both.
 * Or, without p, these probabilities in half the bits of an element, 16 or 8: unit code^2, the row's largest code 65535
 * or 255, and unit [B, heads, S] such that the row adds up to 1, for gradients of its scores then add up to 0 as they
 * must. Error of one: sqrt(p unit), and a part of at most sqrt(S unit), as all of the row are stretched alike. By 8
 * bits the errors of a row have a norm of about 0.0023 sqrt(p's largest); bf16's is 0.0013 times the norm of p. A row
 * with a score that is not finite has a unit that is no number. */
typedef struct atoll_attention_kept {
  void *p, *dropped;
  uint8_t *mask;
  void *code;
  float *unit;
} atoll_attention_kept;

typedef struct atoll_keep_kernels {
  /* behind attention_forward(): fills `kept`, as elements, from its lse */
  atoll_err (*attention_keep)(atoll_queue *q, const void *query, const void *key, const float *lse,
                              const atoll_attention_kept *kept, const atoll_attention_shape *s, const atoll_drop *drop);
  /* attention_forward() that keeps codes: o is made from these, in place of the probabilities */
  atoll_err (*attention_coded)(atoll_queue *q, const void *query, const void *key, const void *value, void *o,
                               const atoll_attention_kept *kept, const atoll_attention_shape *s,
                               const atoll_drop *drop);
  /* o again, from codes: the bits of attention_coded() */
  atoll_err (*attention_of_kept)(atoll_queue *q, const void *value, const atoll_attention_kept *kept, void *o,
                                 const atoll_attention_shape *s, const atoll_drop *drop);
  /* attention_backward() from `kept` instead of scores and lse: from elements the same bits (ref, which computes in
     double: but for the rounding of p). Without a mask, dropout is made again */
  atoll_err (*attention_backward)(atoll_queue *q, const void *query, const void *key, const void *value, const void *o,
                                  const atoll_attention_kept *kept, const void *d_o, void *dquery, void *dkey,
                                  void *dvalue, float *delta, const atoll_attention_shape *s, const atoll_drop *drop);

  /* dropout's decisions, 1 or 0, for a sum's branch [B, inner]; and drop_backward() by these */
  atoll_err (*drop_mask)(atoll_queue *q, uint8_t *mask, int64_t B, int64_t inner, const atoll_drop *drop);
  atoll_err (*drop_backward)(atoll_queue *q, const void *dy, const uint8_t *mask, void *dz, int64_t n, float p);

  /* A norm in two steps, LayerNorm or (rms) RMSNorm: hat = (x - mean) * rstd, y = hat * gamma + beta, together the bits
     of layernorm_forward() (ref: but for the rounding of hat). Keeping hat serves backward for every gamma, 0 included:
     nothing is ever divided by it. rstd [R] is an output of normalize. */
  atoll_err (*normalize)(atoll_queue *q, const void *x, void *hat, float *rstd, int64_t R, int64_t C, float eps,
                         int rms);
  atoll_err (*affine)(atoll_queue *q, const void *hat, const void *gamma, const void *beta, void *y, int64_t R,
                      int64_t C, int rms);
  atoll_err (*norm_backward_input)(atoll_queue *q, const void *dy, const void *hat, const float *rstd,
                                   const void *gamma, void *dx, int64_t R, int64_t C, int rms, int accumulate);
  atoll_err (*norm_backward_weight)(atoll_queue *q, const void *dy, const void *hat, float *dgamma, float *dbeta,
                                    int64_t R, int64_t C, int rms);

  /* GELU y(x), tanh or (erf) error function form, has one minimum (x_min, y_min); t = sign(x - x_min) sqrt(y - y_min)
     tells both sides of it apart and makes y' analytic across it. y = t^2 + y_min; y'(x) is a polynomial in t, and in
     sqrt(-y) far left: error below 1.2e-5 for all x, below 2e-5 in f32. dx may be dy */
  atoll_err (*gelu_root)(atoll_queue *q, const void *x, void *t, int64_t n, int erf);
  atoll_err (*gelu_of_root)(atoll_queue *q, const void *t, void *y, int64_t n, int erf);
  atoll_err (*gelu_root_backward)(atoll_queue *q, const void *dy, const void *t, void *dx, int64_t n, int erf);

  /* 8 bits per element: code - 128 = round(x / scale), scale [R] = largest |x| of the row / 127. Error: scale / 2. A
     row that is not finite has a scale that is no number */
  atoll_err (*pack8)(atoll_queue *q, const void *x, uint8_t *code, float *scale, int64_t R, int64_t C);
  atoll_err (*unpack8)(atoll_queue *q, const uint8_t *code, const float *scale, void *x, int64_t R, int64_t C);
} atoll_keep_kernels;

ATOLL_END_C
#endif
