/* Inside of the kernel room: what the backends share. */
#ifndef ATOLL_KERNEL_IMPL_H
#define ATOLL_KERNEL_IMPL_H

#include <math.h>
#include <stdint.h>

#include "atoll/kernel.h"

extern const atoll_kernels kernels_ref, kernels_cpu, kernels_cpu_bf16;
extern const atoll_decode_kernels decode_ref, decode_cpu;
extern const struct atoll_keep_kernels keep_ref, keep_cpu, keep_cpu_bf16;
const char *kernels_cpu_describe(void);
/* The rate probes of host memory. */
extern const atoll_rate_probe kernels_cpu_probe, kernels_async_probe;

/* One element is dropped when its 32 random bits lie below the threshold, and else scaled by 1 / (1 - p). All backends
 * use these two, so that they drop the same elements. */
static inline uint32_t drop_threshold(float p) {
  double t = (double)p * 4294967296.0;
  return t <= 0 ? 0 : t >= 4294967295.0 ? UINT32_MAX : (uint32_t)t;
}

static inline float drop_scale(float p) { return (float)(1.0 / (1.0 - (double)p)); }

/* Key of sample b of a call. */
static inline atoll_rng_key drop_key(const atoll_drop *d, int64_t b) {
  atoll_rng_key key = d->key;
  key.sample += (uint64_t)b;
  return key;
}

/* Zeros of the caller's shape filled in. */
static inline atoll_attention_shape attention_shape_of(const atoll_attention_shape *s) {
  atoll_attention_shape full = *s;
  if (!full.kv_heads)
    full.kv_heads = s->heads;
  if (!full.q_row)
    full.q_row = s->heads * s->head_dim;
  if (!full.kv_row)
    full.kv_row = full.kv_heads * s->head_dim;
  return full;
}

/* Of samples with padding, when their turn comes: lengths are read then. */
static inline atoll_err attention_check_lengths(const atoll_attention_shape *s) {
  for (int64_t b = 0; s->lengths && b < s->B; b++)
    if (s->lengths[b] < 1 || s->lengths[b] > s->S)
      return atoll_fail(ATOLL_CORRUPT, "length of sample %lld is %ld, expected 1..%lld", (long long)b,
                        (long)s->lengths[b], (long long)s->S);
  return ATOLL_OK;
}

/* The first position of a cache that a token at `at` attends to. */
static inline int64_t cache_first(const atoll_cache *c, int64_t at) {
  return c->window && at + 1 > c->window ? at + 1 - c->window : 0;
}

/* Entries of every host table (pick.c). */
atoll_err kernel_pick(atoll_queue *q, const int32_t *targets, int64_t R, int64_t most, int64_t skip, int64_t n,
                      int32_t *index, int32_t *picked);
atoll_err kernel_gather(atoll_queue *q, const void *x, const int32_t *index, void *y, int64_t n, int64_t bytes);
atoll_err kernel_scatter(atoll_queue *q, const void *x, const int32_t *index, void *y, int64_t n, int64_t bytes);

/* Around each kernel: begin returns a time, or a negative number when nobody profiles, and end adds to the kernel's
 * entry. rows, inner, columns of a matrix product; zeros elsewhere. */
double kernel_profile_begin(void);
void kernel_profile_end(double began, const char *name, int64_t rows, int64_t inner, int64_t columns);

/* Both backends name the first bad id the same way. */
atoll_err kernel_bad_token(const char *what, int64_t row, int64_t column, int32_t id, int64_t V);

#endif
