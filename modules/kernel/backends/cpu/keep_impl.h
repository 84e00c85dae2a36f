/* Host functions behind the cpu table's kernels of memory policies; submit_keep.inc enqueues them. */
#ifndef ATOLL_CPU_KEEP_IMPL_H
#define ATOLL_CPU_KEEP_IMPL_H

#include "atoll/kernel_keep.h"
#include "cpu_impl.h"

#ifdef CPU_BF16
#define KEEP(name) keep_bf16_##name
#else
#define KEEP(name) keep_##name
#endif

atoll_err KEEP(attention)(int threads, const element *query, const element *key, const float *lse,
                          const atoll_attention_kept *kept, const atoll_attention_shape *s, const atoll_drop *drop);
atoll_err KEEP(attention_coded)(int threads, const element *query, const element *key, const element *value, element *o,
                                const atoll_attention_kept *kept, const atoll_attention_shape *s,
                                const atoll_drop *drop);
atoll_err KEEP(attention_of_kept)(int threads, const element *value, const atoll_attention_kept *kept, element *o,
                                  const atoll_attention_shape *s, const atoll_drop *drop);
atoll_err KEEP(attention_backward)(int threads, const element *query, const element *key, const element *value,
                                   const element *o, const atoll_attention_kept *kept, const element *d_o,
                                   element *dquery, element *dkey, element *dvalue, float *delta,
                                   const atoll_attention_shape *s, const atoll_drop *drop);
atoll_err KEEP(drop_mask)(int threads, uint8_t *mask, int64_t B, int64_t inner, const atoll_drop *drop);
atoll_err KEEP(drop_backward)(int threads, const element *dy, const uint8_t *mask, element *dz, int64_t n, float p);
atoll_err KEEP(normalize)(int threads, const element *x, element *hat, float *rstd, int64_t R, int64_t C, float eps,
                          int rms);
atoll_err KEEP(affine)(int threads, const element *hat, const element *gamma, const element *beta, element *y,
                       int64_t R, int64_t C, int rms);
atoll_err KEEP(norm_backward_input)(int threads, const element *dy, const element *hat, const float *rstd,
                                    const element *gamma, element *dx, int64_t R, int64_t C, int rms, int accumulate);
atoll_err KEEP(norm_backward_weight)(int threads, const element *dy, const element *hat, float *dgamma, float *dbeta,
                                     int64_t R, int64_t C, int rms);
atoll_err KEEP(gelu_root)(int threads, const element *x, element *t, int64_t n, int erf);
atoll_err KEEP(gelu_of_root)(int threads, const element *t, element *y, int64_t n, int erf);
atoll_err KEEP(gelu_root_backward)(int threads, const element *dy, const element *t, element *dx, int64_t n, int erf);
atoll_err KEEP(pack8)(int threads, const element *x, uint8_t *code, float *scale, int64_t R, int64_t C);
atoll_err KEEP(unpack8)(int threads, const uint8_t *code, const float *scale, element *x, int64_t R, int64_t C);

#endif
