/* Shared by the tests of kernels: a device per thread count, and arrays filled from the counter-based generator. */
#ifndef ATOLL_KERNEL_TEST_H
#define ATOLL_KERNEL_TEST_H

#include "unit_check.h"

#include <math.h>

#include "atoll/kernel.h"

#define OK(call)                                                                                                       \
  do {                                                                                                                 \
    atoll_err ok_err_ = (call);                                                                                        \
    if (ok_err_ != ATOLL_OK)                                                                                           \
      fail_msg("%s: %s: %s", #call, atoll_err_name(ok_err_), atoll_err_message());                                     \
  } while (0)

struct bench {
  atoll_device *device;
  atoll_queue *queue;
  const atoll_kernels *k;
};

static inline struct bench bench_open(const char *kind, const char *kernels, int threads) {
  struct bench b = {0};
  atoll_device_params p;
  atoll_device_params_init(&p);
  p.threads = threads;
  OK(atoll_kernels_get(kernels, &b.k));
  OK(atoll_device_open(kind, &p, &b.device));
  OK(atoll_queue_create(b.device, "compute", &b.queue));
  return b;
}

static inline void bench_close(struct bench *b) {
  atoll_queue_destroy(&b->queue);
  atoll_device_close(&b->device);
}

/* n floats of deviation std; distinct `what` gives distinct numbers. Between guards that check_guards() verifies. */
#define GUARD 16
static inline float *numbers(uint64_t what, int64_t n, float std) {
  atoll_rng_key key = {.seed = 7, .sample = what, .site = ATOLL_RNG_TEST};
  float *p = malloc((size_t)(n + 2 * GUARD) * sizeof *p);
  assert_non_null(p);
  for (int i = 0; i < GUARD; i++)
    p[i] = p[GUARD + n + i] = 12345.0f;
  atoll_rng_fill_normal(&key, 0, (size_t)n, std, p + GUARD);
  return p + GUARD;
}

static inline float *copy_of(const float *x, int64_t n) {
  float *p = numbers(0, n, 0);
  memcpy(p, x, (size_t)n * sizeof *p);
  return p;
}

static inline void drop_numbers(float *p, int64_t n) {
  for (int i = 0; i < GUARD; i++)
    if (p[-1 - i] != 12345.0f || p[n + i] != 12345.0f)
      fail_msg("written outside of an array of %lld at %s %d", (long long)n, p[n + i] != 12345.0f ? "end +" : "start -",
               i);
  free(p - GUARD);
}

/* |a - b| <= tolerance x (largest |b| of the array): rounding of a sum is relative to its terms, not to a sum near 0.
 */
static inline void close_to(const char *what, const float *a, const float *b, int64_t n, double tolerance) {
  double scale = 1e-30;
  for (int64_t i = 0; i < n; i++)
    scale = fabs((double)b[i]) > scale ? fabs((double)b[i]) : scale;
  for (int64_t i = 0; i < n; i++)
    if (!(fabs((double)a[i] - b[i]) <= tolerance * scale))
      fail_msg("%s[%lld of %lld]: %.9g, expected %.9g within %g", what, (long long)i, (long long)n, a[i], b[i],
               tolerance * scale);
}

static inline void same_bits(const char *what, const void *a, const void *b, size_t bytes) {
  if (!memcmp(a, b, bytes))
    return;
  for (size_t i = 0; i < bytes / 4; i++)
    if (memcmp((const char *)a + 4 * i, (const char *)b + 4 * i, 4))
      fail_msg("%s differs in the bits of float %zu of %zu", what, i, bytes / 4);
  fail_msg("%s differs in the last of %zu bytes", what, bytes);
}

#endif
