/* Host functions behind the cpu table's kernels of memory policies; submit_keep.inc enqueues them. */
#ifndef ATOLL_CPU_KEEP_IMPL_H
#define ATOLL_CPU_KEEP_IMPL_H

#include "atoll/kernel_keep.h"

atoll_err keep_attention(int threads, const float *query, const float *key, const float *lse,
                         const atoll_attention_kept *kept, const atoll_attention_shape *s, const atoll_drop *drop);
atoll_err keep_attention_backward(int threads, const float *query, const float *key, const float *value, const float *o,
                                  const atoll_attention_kept *kept, const float *d_o, float *dquery, float *dkey,
                                  float *dvalue, float *delta, const atoll_attention_shape *s, const atoll_drop *drop);
atoll_err keep_drop_mask(int threads, uint8_t *mask, int64_t B, int64_t inner, const atoll_drop *drop);
atoll_err keep_drop_backward(int threads, const float *dy, const uint8_t *mask, float *dz, int64_t n, float p);
atoll_err keep_normalize(int threads, const float *x, float *hat, float *rstd, int64_t R, int64_t C, float eps,
                         int rms);
atoll_err keep_affine(int threads, const float *hat, const float *gamma, const float *beta, float *y, int64_t R,
                      int64_t C, int rms);
atoll_err keep_norm_backward_input(int threads, const float *dy, const float *hat, const float *rstd,
                                   const float *gamma, float *dx, int64_t R, int64_t C, int rms, int accumulate);
atoll_err keep_norm_backward_weight(int threads, const float *dy, const float *hat, float *dgamma, float *dbeta,
                                    int64_t R, int64_t C, int rms);
atoll_err keep_gelu_root(int threads, const float *x, float *t, int64_t n, int erf);
atoll_err keep_gelu_of_root(int threads, const float *t, float *y, int64_t n, int erf);
atoll_err keep_gelu_root_backward(int threads, const float *dy, const float *t, float *dx, int64_t n, int erf);
atoll_err keep_pack8(int threads, const float *x, uint8_t *code, float *scale, int64_t R, int64_t C);
atoll_err keep_unpack8(int threads, const uint8_t *code, const float *scale, float *x, int64_t R, int64_t C);

#endif
