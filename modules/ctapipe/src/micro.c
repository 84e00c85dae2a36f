#include "micro.h"

#include <stdlib.h>
#include <string.h>

static const struct cta_micro *const tables[] = {&cta_micro_avx512, &cta_micro_avx2, &cta_micro_plain};
enum { TABLES = sizeof tables / sizeof *tables };

static int runs_here(int i) {
#if defined(__x86_64__)
  if (i == 0)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  if (i == 1)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
  return i == TABLES - 1;
}

const struct cta_micro *cta_micro_best(void) {
  const char *wanted = getenv("ATOLL_TEST_VECTORS");
  const struct cta_micro *best = NULL;
  for (int i = 0; i < TABLES; i++) {
    if (!runs_here(i))
      continue;
    best = best ? best : tables[i];
    if (wanted && !strcmp(wanted, tables[i]->name))
      return tables[i];
  }
  return best;
}

int64_t cta_packed(const struct cta_micro *micro, int64_t k, int64_t n) {
  return (n + micro->cols - 1) / micro->cols * micro->cols * k;
}

void cta_pack(const struct cta_micro *micro, int64_t k, int64_t n, const float *w, int64_t ks, int64_t ns, float *out) {
  int64_t cols = micro->cols;
  for (int64_t j = 0; j < n; j += cols, out += k * cols) {
    const float *from = w + j * ns;
    int64_t m = n - j < cols ? n - j : cols;
    for (int64_t i = 0; ns == 1 && i < k; i++)
      memcpy(out + i * cols, from + i * ks, (size_t)m * sizeof *out);
    for (int64_t c = ns == 1 ? m : 0; c < cols; c++)
      for (int64_t i = 0; i < k; i++)
        out[i * cols + c] = c < m ? from[i * ks + c * ns] : 0;
  }
}
