/* Answers of external parallelizers. */
#include "atoll/parallelizer_extern.h"
#include "fuzz.h"

#include <math.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  static atoll_extern_answer a;
  atoll_err err = atoll_extern_parse("program", (const char *)data, bytes, &a);
  if (err != ATOLL_OK) {
    FUZZ_CHECK(err == ATOLL_CORRUPT && strstr(atoll_err_message(), "program"));
    return 0;
  }
  FUZZ_CHECK(a.id >= 0 && a.count >= 0 && a.count <= ATOLL_EXTERN_POINTS && a.missing >= 0);
  for (int i = 0; i < a.count; i++) {
    const atoll_slice_plan *p = &a.point[i];
    int64_t sum = 0;
    FUZZ_CHECK(p->t > 0 && isfinite(p->t) && p->d >= 0 && isfinite(p->d) && p->forward > 0 && p->backward > 0);
    FUZZ_CHECK(isfinite(p->forward) && isfinite(p->backward) && p->bytes_peak >= 0 && p->bytes_host >= 0);
    FUZZ_CHECK(p->data >= 1 && p->tensor >= 1 && p->context >= 1 && p->expert >= 1 && p->zero >= 0 && p->zero <= 3);
    FUZZ_CHECK(p->policy >= 0 && p->policy < ATOLL_POLICIES && p->recompute >= 0);
    for (int c = 0; c < ATOLL_MEM_CATEGORIES; c++)
      sum += p->bytes[c];
    FUZZ_CHECK(!a.by_category[i] || sum == p->bytes_peak);
  }
  return 0;
}
