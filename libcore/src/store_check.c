/* What HDF5 does not check itself.
 *
 * The metadata of the 1.10 format carries checksums, except for the global heap, where text attributes and the maps of
 * virtual datasets live. There one flipped bit in a length makes the library loop for ever (1.10.8). Two defences:
 *
 * The seal. An image ends with 24 bytes: the digest of all bytes before it, low half first, and "AtollSum". HDF5
 * ignores what follows the end it knows and cuts it off when another program changes the file, so a seal never outlives
 * the content it was made for. A seal that does not fit is CORRUPT.
 *
 * The heaps. A file without a seal (followed, foreign, or cut) is searched for collections of the global heap, and the
 * objects of each must fill it exactly. */
#include "store_impl.h"

#include <stdlib.h>
#include <string.h>

#include "atoll/digest.h"

static const char mark[8] = {'A', 't', 'o', 'l', 'l', 'S', 'u', 'm'};

static void put64(unsigned char *p, uint64_t v) {
  for (int i = 0; i < 8; i++)
    p[i] = (unsigned char)(v >> 8 * i);
}

static uint64_t get64(const unsigned char *p) {
  uint64_t v = 0;
  for (int i = 7; i >= 0; i--)
    v = v << 8 | p[i];
  return v;
}

static void make_seal(const void *image, size_t n, unsigned char seal[STORE_SEAL_BYTES]) {
  atoll_digest d = atoll_digest_bytes(image, n);
  put64(seal, d.lo);
  put64(seal + 8, d.hi);
  memcpy(seal + 16, mark, sizeof mark);
}

void store_seal(void *image, size_t n) { make_seal(image, n, (unsigned char *)image + n); }

/* A collection: "GCOL", version 1, 3 zeros, its bytes; then objects: index (2), references (2), 4 zeros, length (8),
 * content padded to 8. Index 0 is the free space, counts its own head, and comes last. */
static int heap_is_sound(const unsigned char *p, size_t n) {
  enum { HEAD = 16, OBJECT = 16, LEAST = 4096 };
  uint64_t size = n >= HEAD ? get64(p + 8) : 0;
  if (size < LEAST || size > n)
    return 0;
  for (uint64_t at = HEAD; size - at >= OBJECT;) {
    uint64_t left = size - at, length = get64(p + at + 8), index = (uint64_t)p[at] | (uint64_t)p[at + 1] << 8;
    if (index == 0)
      return length == left;
    if (length > left - OBJECT)
      return 0;
    uint64_t whole = OBJECT + ((length + 7) & ~UINT64_C(7));
    if (whole > left)
      return 0;
    at += whole;
  }
  return 1;
}

atoll_err store_check_bytes(const char *name, const void *bytes, size_t n) {
  static const char collection[8] = {'G', 'C', 'O', 'L', 1, 0, 0, 0};
  const unsigned char *p = bytes;
  unsigned char seal[STORE_SEAL_BYTES];
  if (n > sizeof seal && !memcmp(p + n - sizeof mark, mark, sizeof mark)) {
    make_seal(p, n - sizeof seal, seal);
    return memcmp(seal, p + n - sizeof seal, sizeof seal) == 0
               ? ATOLL_OK
               : atoll_fail(ATOLL_CORRUPT, "%s: its %zu bytes differ from the digest at their end", name, n);
  }
  /* Offsets and lengths of other widths than 8 change the layout; HDF5 never writes them unless told to. */
  for (const unsigned char *at = p; (at = memmem(at, n - (size_t)(at - p), collection, sizeof collection)); at++)
    if (!heap_is_sound(at, n - (size_t)(at - p)))
      return atoll_fail(ATOLL_CORRUPT, "%s: the heap at byte %zu of %zu is damaged", name, (size_t)(at - p), n);
  return ATOLL_OK;
}
