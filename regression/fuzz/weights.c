/* Files of weights, in every format that is recognised by its content. What is accepted can be read and written. */
#include "atoll/weights.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  atoll_weights *w = NULL;
  static const char *const family[] = {NULL, "bert"};
  for (int k = 0; k < 2; k++) {
    atoll_err err = bytes ? atoll_weights_open_bytes("weights", data, bytes, family[k], &w) : ATOLL_CORRUPT;
    if (err != ATOLL_OK) {
      if (bytes)
        fuzz_refused(err);
      FUZZ_CHECK(!w);
      continue;
    }
    for (int i = 0; i < atoll_weights_count(w); i++) {
      const atoll_weights_item *t = atoll_weights_at(w, i);
      size_t n = 1;
      for (int d = 0; d < t->ndim; d++)
        n *= (size_t)t->shape[d];
      FUZZ_CHECK(n <= bytes / 2);
      float *v = malloc((n ? n : 1) * sizeof *v);
      FUZZ_CHECK(v);
      err = atoll_weights_read(w, i, v);
      if (err != ATOLL_OK)
        fuzz_refused(err);
      free(v);
    }
    char *text = NULL;
    FUZZ_CHECK(atoll_weights_config_json(atoll_weights_config_of(w), &text) == ATOLL_OK);
    free(text);
    atoll_weights_close(&w);
  }
  return 0;
}
