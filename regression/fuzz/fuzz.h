/* What the fuzz targets share. A target is one LLVMFuzzerTestOneInput: libFuzzer drives it in a build with ATOLL_FUZZ
 * (clang), and replay.c feeds it the committed corpus in every build. A reader may refuse a text, but only with a
 * message and a code that blames the text; what it accepts must survive being written and read again. */
#ifndef ATOLL_FUZZ_H
#define ATOLL_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/err.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#define FUZZ_CHECK(condition)                                                                                          \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      fprintf(stderr, "%s:%d: broken: %s\nlast message: %s\n", __FILE__, __LINE__, #condition, atoll_err_message());   \
      abort();                                                                                                         \
    }                                                                                                                  \
  } while (0)

/* A refusal blames the text and says why. */
static inline void fuzz_refused(atoll_err err) {
  FUZZ_CHECK(err == ATOLL_USAGE || err == ATOLL_CORRUPT || err == ATOLL_NOINPUT || err == ATOLL_MISMATCH ||
             err == ATOLL_UNSUPPORTED || err == ATOLL_INFEASIBLE || err == ATOLL_NOMEM);
  FUZZ_CHECK(atoll_err_message()[0]);
}

#endif
