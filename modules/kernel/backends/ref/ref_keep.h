/* Host functions behind the oracle's kernels of memory policies (kernel_keep.h): attention is in ref.c. */
#ifndef ATOLL_REF_KEEP_H
#define ATOLL_REF_KEEP_H

#include "atoll/kernel_keep.h"

atoll_err ref_keep_attention(int threads, const float *query, const float *key, const float *lse,
                             const atoll_attention_kept *kept, const atoll_attention_shape *s, const atoll_drop *drop);
atoll_err ref_keep_attention_coded(int threads, const float *query, const float *key, const float *value, float *o,
                                   const atoll_attention_kept *kept, const atoll_attention_shape *s,
                                   const atoll_drop *drop);
atoll_err ref_keep_attention_of_kept(int threads, const float *value, const atoll_attention_kept *kept, float *o,
                                     const atoll_attention_shape *s, const atoll_drop *drop);
atoll_err ref_keep_attention_backward(int threads, const float *query, const float *key, const float *value,
                                      const float *o, const atoll_attention_kept *kept, const float *d_o, float *dquery,
                                      float *dkey, float *dvalue, float *delta, const atoll_attention_shape *s,
                                      const atoll_drop *drop);

#endif
