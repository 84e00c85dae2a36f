/** HDF5, thinly: self-describing files that a stranger can read with h5py or h5dump.
 *
 *  Every call is checked, H5dont_atexit is called, and nothing is inferred from a successful close (a full disk closes
 * contentedly). Files are written as images in memory (core driver) and then through file.h, or directly with flushes
 * for the followable metrics file. Paths inside a file are absolute ("/metrics/loss"); missing groups are made. All
 * calls are local; one store belongs to one thread at a time (calls are serialised inside: Debian's HDF5 is not
 * thread-safe). Errors: IO, CORRUPT, NOINPUT, with path and object.
 *
 *  An image ends with 24 bytes behind HDF5's own end: the XXH3-128 digest of all before it (low half first,
 * little-endian) and "AtollSum". Opening bytes, or a file of up to 16 MiB, compares it: any changed byte is CORRUPT. A
 * program that edits the file with HDF5 cuts it off, and the file opens as usual. Small data and series of images are
 * checked by HDF5 as well. */
#ifndef ATOLL_STORE_H
#define ATOLL_STORE_H

#include <stddef.h>
#include <stdint.h>

#include "atoll/err.h"
#include "atoll/tensor.h"

ATOLL_BEGIN_C

typedef struct atoll_store atoll_store;

typedef enum atoll_store_mode {
  ATOLL_STORE_READ,   /* existing file */
  ATOLL_STORE_IMAGE,  /* new, in memory; get the bytes with atoll_store_image() */
  ATOLL_STORE_FOLLOW, /* new file on disk that readers open while it grows (latest format, SWMR writing where possible,
                         flushed) */
} atoll_store_mode;

/** `path` names the file (in messages only, for IMAGE). Locking failures are retried unlocked for READ; the mode used
 * is logged. */
ATOLL_API atoll_err atoll_store_open(const char *path, atoll_store_mode mode, atoll_store **out);
/** Open the bytes of a file in memory; borrowed until close. */
ATOLL_API atoll_err atoll_store_open_bytes(const char *name, const void *bytes, size_t n, atoll_store **out);
/** Returns the first failed write of the store's life, if any (failed reads are not repeated here); always releases. */
ATOLL_API atoll_err atoll_store_close(atoll_store **store);
/** The file's bytes as HDF5 would write them; *bytes owned: free(). */
ATOLL_API atoll_err atoll_store_image(atoll_store *store, void **bytes, size_t *n);
/** Closes an IMAGE store and puts its bytes into the file of that name, whole or not at all. `so_far`: of what was
 * written to the store; a failure is returned as it is and the file is left alone. Always releases the store. */
ATOLL_API atoll_err atoll_store_publish(atoll_store **store, atoll_err so_far, const char *path);

/** Memory in which large images are built, one after the other. Fresh pages cost more than what is written to them, so
 * a writer of many keeps one. Zero-initialised; of one store at a time. */
typedef struct atoll_store_buffer {
  void *bytes;
  size_t capacity;
} atoll_store_buffer;
ATOLL_API void atoll_store_buffer_free(atoll_store_buffer *buffer);
/** A new image in `buffer`, borrowed until the store is closed or finished. */
ATOLL_API atoll_err atoll_store_open_image(const char *name, atoll_store_buffer *buffer, atoll_store **out);
/** Closes a store of atoll_store_open_image() and gives what atoll_store_image() would, without a copy: *bytes lie in
 * the buffer until it is used again. Always releases the store. */
ATOLL_API atoll_err atoll_store_finish_image(atoll_store **store, const void **bytes, size_t *n);
ATOLL_API atoll_err atoll_store_flush(atoll_store *store);

/** Root attributes of every Atoll file: format name and version, software, softwareVersion, date, hostname, machine. */
ATOLL_API atoll_err atoll_store_stamp(atoll_store *store, const char *format, int format_version);

/** Attributes of an object ("/" for the file); replaced when present. */
ATOLL_API atoll_err atoll_store_attr_text(atoll_store *s, const char *object, const char *name, const char *value);
ATOLL_API atoll_err atoll_store_attr_int(atoll_store *s, const char *object, const char *name, int64_t value);
ATOLL_API atoll_err atoll_store_attr_real(atoll_store *s, const char *object, const char *name, double value);
/** Names of the axes of a dataset, outermost first (attribute DIMENSION_LABELS, as HDF5's dimension scales have it). */
ATOLL_API atoll_err atoll_store_axes(atoll_store *s, const char *object, const char *const *names, size_t n);
ATOLL_API atoll_err atoll_store_get_attr_text(atoll_store *s, const char *object, const char *name, char *buf,
                                              size_t n);
ATOLL_API atoll_err atoll_store_get_attr_int(atoll_store *s, const char *object, const char *name, int64_t *value);
ATOLL_API atoll_err atoll_store_get_attr_real(atoll_store *s, const char *object, const char *name, double *value);
ATOLL_API int atoll_store_has(atoll_store *s, const char *object);
ATOLL_API int atoll_store_has_attr(atoll_store *s, const char *object, const char *name);

/** Whole datasets. units and long_name become attributes (NULL: none). shape in rows first. */
ATOLL_API atoll_err atoll_store_write(atoll_store *s, const char *path, atoll_dtype t, int ndim, const int64_t *shape,
                                      const void *data, const char *units, const char *long_name);
ATOLL_API atoll_err atoll_store_write_text(atoll_store *s, const char *path, const char *text,
                                           const char *long_name); /* scalar string */
ATOLL_API atoll_err atoll_store_write_texts(atoll_store *s, const char *path, const char *const *texts, size_t n,
                                            const char *long_name);
ATOLL_API atoll_err atoll_store_shape(atoll_store *s, const char *path, atoll_dtype *t, int *ndim,
                                      int64_t *shape); /* shape[4] */
/** Read a block (start, count per dimension; NULL start = all) converted to t. */
ATOLL_API atoll_err atoll_store_read(atoll_store *s, const char *path, atoll_dtype t, const int64_t *start,
                                     const int64_t *count, void *data);
ATOLL_API atoll_err atoll_store_read_text(atoll_store *s, const char *path, char **text); /* owned: free() */
ATOLL_API atoll_err atoll_store_read_texts(atoll_store *s, const char *path, char ***texts,
                                           size_t *n); /* atoll_store_texts_free */
ATOLL_API void atoll_store_texts_free(char ***texts, size_t n);

/** Extendable one-dimensional series (chunked). Made by the first call; append adds n elements. */
ATOLL_API atoll_err atoll_store_series(atoll_store *s, const char *path, atoll_dtype t, const char *units,
                                       const char *long_name);
ATOLL_API atoll_err atoll_store_append(atoll_store *s, const char *path, const void *data, size_t n);
/** Overwrite element i of a series (e.g. mark a row superseded). */
ATOLL_API atoll_err atoll_store_put(atoll_store *s, const char *path, int64_t i, const void *value);
/** FOLLOW files: after all series exist, readers may follow. No effect for images. */
ATOLL_API atoll_err atoll_store_start_following(atoll_store *s);

/** Virtual dataset `path` of the whole tensor, built of pieces in other files (names relative to this file's folder);
 * NaN fill for floats, so that a missing shard shows. */
typedef struct atoll_store_piece {
  const char *file;
  const char *dataset;
  int64_t start[ATOLL_NDIM_MAX],
      count[ATOLL_NDIM_MAX]; /* where the piece lies in the whole; the source dataset has shape count */
} atoll_store_piece;
ATOLL_API atoll_err atoll_store_virtual(atoll_store *s, const char *path, atoll_dtype t, int ndim, const int64_t *shape,
                                        const atoll_store_piece *pieces, size_t n, const char *units,
                                        const char *long_name);

/** Visit every object below `group` in name order; is_dataset tells groups apart. Stops at the first error of the
 * callback. */
typedef atoll_err (*atoll_store_visitor)(void *arg, const char *path, int is_dataset);
ATOLL_API atoll_err atoll_store_visit(atoll_store *s, const char *group, atoll_store_visitor visit, void *arg);
/** "1.10.8 (compiled 1.10.8)". Static. */
ATOLL_API const char *atoll_store_library(void);

ATOLL_END_C
#endif
