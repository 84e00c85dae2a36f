#include "atoll/kernel.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

#include "kernel_impl.h"

static const atoll_kernels *const known[] = {&kernels_ref, &kernels_cpu, &kernels_cpu_bf16};
#define KNOWN (sizeof known / sizeof known[0])

static pthread_once_t probes_once = PTHREAD_ONCE_INIT;

static void register_probes(void) {
  atoll_device_register_probe(&kernels_cpu_probe);
  atoll_device_register_probe(&kernels_async_probe);
}

atoll_err atoll_kernels_get(const char *name, const atoll_kernels **out) {
  if (!name || !out)
    return atoll_fail(ATOLL_USAGE, "kernels without name or result");
  (void)pthread_once(&probes_once, register_probes);
  const char *wanted = name;
  if (!strcmp(name, "auto:cpu") || !strcmp(name, "auto:async"))
    wanted = "cpu";
  else if (!strcmp(name, "auto:cpu:bf16") || !strcmp(name, "auto:async:bf16"))
    wanted = "cpu:bf16";
  for (size_t i = 0; i < KNOWN; i++)
    if (!strcmp(known[i]->name, wanted)) {
      *out = known[i];
      return ATOLL_OK;
    }
  return atoll_fail(ATOLL_UNAVAILABLE, "kernels '%s' are unknown; known are ref, cpu, cpu:bf16, auto:cpu, auto:async",
                    name);
}

const char *atoll_kernels_describe(const atoll_kernels *k) {
  return k != &kernels_ref ? kernels_cpu_describe() : "ref: plain C, one thread, sums in double";
}

double atoll_rope_frequency(const atoll_rope *r, int64_t i, int64_t head_dim) {
  double f = pow(r->theta, -2.0 * (double)i / (double)head_dim);
  if (!(r->factor > 0))
    return f;
  double turns = f * (double)r->context / 6.283185307179586477;
  double keep = turns <= r->low ? 0 : turns >= r->high ? 1 : (turns - r->low) / (r->high - r->low);
  return f * (keep + (1 - keep) / r->factor);
}

atoll_err kernel_bad_token(const char *what, int64_t row, int64_t column, int32_t id, int64_t V) {
  if (column < 0)
    return atoll_fail(ATOLL_CORRUPT, "%s of row %lld is %ld, expected -1..%lld", what, (long long)row, (long)id,
                      (long long)(V - 1));
  return atoll_fail(ATOLL_CORRUPT, "%s of sample %lld, position %lld is %ld, expected 0..%lld", what, (long long)row,
                    (long long)column, (long)id, (long long)(V - 1));
}
