/** 128-bit XXH3 digests of values that are agreed on or stored. */
#ifndef ATOLL_DIGEST_H
#define ATOLL_DIGEST_H

#include <stddef.h>
#include <stdint.h>

#include "atoll/err.h"

ATOLL_BEGIN_C

typedef struct atoll_digest {
  uint64_t lo, hi;
} atoll_digest;

typedef struct atoll_digester atoll_digester;

ATOLL_API atoll_digest atoll_digest_bytes(const void *data, size_t bytes);
ATOLL_API int atoll_digest_equal(atoll_digest a, atoll_digest b);
/** 32 hexadecimal digits and a NUL into buf[33]; returns buf. */
ATOLL_API const char *atoll_digest_text(atoll_digest d, char buf[33]);
/** 0 on success, -1 when text is not 32 hexadecimal digits. */
ATOLL_API int atoll_digest_parse(const char *text, atoll_digest *d);

/** Streaming form. The typed adders are independent of byte order and padding. */
ATOLL_API atoll_err atoll_digester_create(atoll_digester **out);
ATOLL_API void atoll_digester_add(atoll_digester *d, const void *data, size_t bytes);
ATOLL_API void atoll_digester_add_int(atoll_digester *d, int64_t v);
ATOLL_API void atoll_digester_add_real(atoll_digester *d, double v);
/** Adds the length and the bytes; NULL differs from "". */
ATOLL_API void atoll_digester_add_text(atoll_digester *d, const char *s);
ATOLL_API atoll_digest atoll_digester_value(const atoll_digester *d);
ATOLL_API void atoll_digester_destroy(atoll_digester **d);

ATOLL_END_C
#endif
