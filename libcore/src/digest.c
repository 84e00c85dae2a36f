#include "atoll/digest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct atoll_digester {
  XXH3_state_t *state;
};

static atoll_digest from_xxh(XXH128_hash_t h) { return (atoll_digest){.lo = h.low64, .hi = h.high64}; }

atoll_digest atoll_digest_bytes(const void *data, size_t bytes) { return from_xxh(XXH3_128bits(data, bytes)); }

int atoll_digest_equal(atoll_digest a, atoll_digest b) { return a.lo == b.lo && a.hi == b.hi; }

const char *atoll_digest_text(atoll_digest d, char buf[33]) {
  snprintf(buf, 33, "%016llx%016llx", (unsigned long long)d.hi, (unsigned long long)d.lo);
  return buf;
}

int atoll_digest_parse(const char *text, atoll_digest *d) {
  uint64_t word[2] = {0, 0};
  for (int i = 0; i < 32; i++) {
    char c = text[i];
    int digit;
    if (c >= '0' && c <= '9')
      digit = c - '0';
    else if (c >= 'a' && c <= 'f')
      digit = c - 'a' + 10;
    else if (c >= 'A' && c <= 'F')
      digit = c - 'A' + 10;
    else
      return -1;
    word[i / 16] = word[i / 16] << 4 | (uint64_t)digit;
  }
  if (text[32])
    return -1;
  *d = (atoll_digest){.hi = word[0], .lo = word[1]};
  return 0;
}

atoll_err atoll_digester_create(atoll_digester **out) {
  atoll_digester *d = malloc(sizeof *d);
  if (d)
    d->state = XXH3_createState();
  if (!d || !d->state) {
    free(d);
    return atoll_fail(ATOLL_NOMEM, "digester: out of memory");
  }
  XXH3_128bits_reset(d->state);
  *out = d;
  return ATOLL_OK;
}

void atoll_digester_add(atoll_digester *d, const void *data, size_t bytes) {
  if (bytes)
    XXH3_128bits_update(d->state, data, bytes);
}

/* Eight bytes, least significant first, on every machine. */
static void add_word(atoll_digester *d, uint64_t v) {
  unsigned char b[8];
  for (int i = 0; i < 8; i++)
    b[i] = (unsigned char)(v >> (8 * i));
  XXH3_128bits_update(d->state, b, sizeof b);
}

void atoll_digester_add_int(atoll_digester *d, int64_t v) { add_word(d, (uint64_t)v); }

void atoll_digester_add_real(atoll_digester *d, double v) {
  uint64_t bits;
  memcpy(&bits, &v, sizeof bits);
  add_word(d, bits);
}

void atoll_digester_add_text(atoll_digester *d, const char *s) {
  size_t n = s ? strlen(s) : 0;
  add_word(d, s ? (uint64_t)n : UINT64_MAX);
  atoll_digester_add(d, s, n);
}

atoll_digest atoll_digester_value(const atoll_digester *d) { return from_xxh(XXH3_128bits_digest(d->state)); }

void atoll_digester_destroy(atoll_digester **d) {
  if (!d || !*d)
    return;
  XXH3_freeState((*d)->state);
  free(*d);
  *d = NULL;
}
