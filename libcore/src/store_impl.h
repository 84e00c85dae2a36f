/* Shared by store*.c. Every function here is called with the library lock held. */
#ifndef ATOLL_STORE_IMPL_H
#define ATOLL_STORE_IMPL_H

#include <hdf5.h>

#include "atoll/store.h"

/* Data up to this many bytes lives in the object header, which carries a checksum. */
#define STORE_COMPACT_MAX      8192
#define STORE_TEXT_COMPACT_MAX 32768
/* Data of an image up to this many bytes is one checked chunk; larger data is contiguous and covered by the caller's
 * digest. */
#define STORE_CHECKED_MAX (1 << 20)
/* Larger files are not read whole before they are opened; those of a checkpoint have their digest in COMMIT. */
#define STORE_CHECK_MAX  (INT64_C(16) << 20)
#define STORE_SEAL_BYTES 24
#define STORE_TEXT_MAX   ((size_t)1 << 30)
/* Elements in one chunk of a series. */
#define STORE_SERIES_CHUNK 512

struct store_series {
  char *path;
  hid_t dataset;
  atoll_dtype type;
  hsize_t length;
};

struct atoll_store {
  char *path; /* for messages */
  hid_t file;
  int writable, image, following, swmr_reader;
  const void *bytes; /* open_bytes: borrowed */
  size_t byte_count;
  atoll_store_buffer *buffer; /* open_image: borrowed */
  void *slurped;              /* owned: a file read into memory because its writer died */
  atoll_err first;
  char first_message[512];
  struct store_series *series;
  size_t series_count;
};

void store_lock(void);
void store_unlock(void);

/* The innermost message of HDF5's error stack, and whether it comes from a system call. buf is returned. */
const char *store_reason(char *buf, size_t n, int *system_error);
/* atoll_fail with path, what, object and the innermost reason: IO for writers and refused system calls, else CORRUPT.
 */
atoll_err store_error(const atoll_store *s, const char *what, const char *object);
/* Unlocks; remembers the first failed change, so that close reports it; gives err back. */
atoll_err store_done(atoll_store *s, atoll_err err, int change);
/* USAGE for a store that cannot be changed (now), the first error for one that failed before. */
atoll_err store_may_change(atoll_store *s, const char *object);
atoll_err store_check_path(const atoll_store *s, const char *path);
int store_exists(const atoll_store *s, const char *path);

/* A new HDF5 type for the file (and memory: all are little-endian, as are the machines); H5Tclose it. */
hid_t store_type(atoll_dtype t);
/* The element type that holds what the HDF5 type holds; -1: none. */
int store_type_parse(hid_t type, atoll_dtype *t);
/* UTF-8 string type of `bytes`, 0 = variable length. */
hid_t store_text_type(size_t bytes);
atoll_err store_set_text(atoll_store *s, hid_t object, const char *path, const char *name, const char *value);
/* units and long_name where given. */
atoll_err store_describe(atoll_store *s, hid_t object, const char *path, const char *units, const char *long_name);
hid_t store_dcpl(void);
/* A dataset opened for reading: NOINPUT when there is none. */
atoll_err store_open_dataset(atoll_store *s, const char *path, hid_t *out);
void store_series_close(atoll_store *s);

/* Put the seal behind n bytes of an image; room for STORE_SEAL_BYTES more. */
void store_seal(void *image, size_t n);
/* CORRUPT when a seal does not fit the bytes, or when a heap would lead HDF5 astray. Needs no lock. */
atoll_err store_check_bytes(const char *name, const void *bytes, size_t n);

#endif
