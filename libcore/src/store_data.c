/* Datasets: whole arrays, texts, growing series and virtual views.
 *
 * Layout by size (store_impl.h): small data in the object header and medium data of images as one Fletcher-32 chunk, so
 * that a flipped byte is an error when read; large data contiguous, written once and never pre-filled, covered by the
 * digest its owner keeps. Series of a followed file have no filter: a reader may meet a chunk that is half rewritten,
 * which is harmless only without a checksum. */
#include "atoll/store.h"
#include "store_impl.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- types --------------------------------------------------------------------------------------------------- */

hid_t store_type(atoll_dtype t) {
  switch (t) {
  case ATOLL_F32:
    return H5Tcopy(H5T_IEEE_F32LE);
  case ATOLL_F64:
    return H5Tcopy(H5T_IEEE_F64LE);
  case ATOLL_I32:
    return H5Tcopy(H5T_STD_I32LE);
  case ATOLL_I64:
    return H5Tcopy(H5T_STD_I64LE);
  case ATOLL_U16:
    return H5Tcopy(H5T_STD_U16LE);
  case ATOLL_U8:
    return H5Tcopy(H5T_STD_U8LE);
  case ATOLL_BF16: {
    /* The upper half of an f32: sign 15, exponent 7..14 (bias 127), fraction 0..6. h5py converts it to float32. */
    hid_t type = H5Tcopy(H5T_IEEE_F32LE);
    if (type >= 0 && (H5Tset_fields(type, 15, 7, 8, 0, 7) < 0 || H5Tset_precision(type, 16) < 0 ||
                      H5Tset_size(type, 2) < 0 || H5Tset_ebias(type, 127) < 0)) {
      H5Tclose(type);
      return -1;
    }
    return type;
  }
  default:
    return -1;
  }
}

int store_type_parse(hid_t type, atoll_dtype *t) {
  size_t size = H5Tget_size(type);
  if (H5Tget_class(type) == H5T_FLOAT) {
    size_t sign, epos, esize, mpos, msize;
    if (H5Tget_fields(type, &sign, &epos, &esize, &mpos, &msize) < 0 || size > 8)
      return -1;
    *t = size == 2 && esize == 8 && msize == 7 ? ATOLL_BF16 : esize <= 8 && msize <= 23 ? ATOLL_F32 : ATOLL_F64;
    return 0;
  }
  if (H5Tget_class(type) == H5T_INTEGER) {
    int is_signed = H5Tget_sign(type) == H5T_SGN_2;
    if (size > 8)
      return -1;
    *t = is_signed ? (size <= 4 ? ATOLL_I32 : ATOLL_I64) : size == 1 ? ATOLL_U8 : size == 2 ? ATOLL_U16 : ATOLL_I64;
    return 0;
  }
  return -1;
}

static const char *class_name(hid_t type) {
  switch (H5Tget_class(type)) {
  case H5T_STRING:
    return "text";
  case H5T_INTEGER:
  case H5T_FLOAT:
    return "numbers of an unknown width";
  case H5T_COMPOUND:
    return "records";
  default:
    return "another type";
  }
}

/* Elements of a shape; USAGE on bad extents or when the bytes pass 2^63. */
static atoll_err check_shape(const atoll_store *s, const char *path, atoll_dtype t, int ndim, const int64_t *shape,
                             hsize_t *dims, int64_t *count) {
  if (!atoll_dtype_bytes(t))
    return atoll_fail(ATOLL_USAGE, "%s: %s: unknown element type %d", s->path, path, (int)t);
  if (ndim < 0 || ndim > ATOLL_NDIM_MAX)
    return atoll_fail(ATOLL_USAGE, "%s: %s: %d dimensions, expected 0 to %d", s->path, path, ndim, ATOLL_NDIM_MAX);
  int64_t n = 1, limit = INT64_MAX / (int64_t)atoll_dtype_bytes(t), empty = 0;
  for (int i = 0; i < ndim; i++) {
    if (shape[i] < 0)
      return atoll_fail(ATOLL_USAGE, "%s: %s: extent %d is %" PRId64, s->path, path, i, shape[i]);
    if (shape[i] > 0 && n > limit / shape[i])
      return atoll_fail(ATOLL_USAGE, "%s: %s: its bytes pass 2^63", s->path, path);
    if (shape[i] == 0)
      empty = 1;
    else
      n *= shape[i];
    dims[i] = (hsize_t)shape[i];
  }
  *count = empty ? 0 : n;
  return ATOLL_OK;
}

/* ---- creating ------------------------------------------------------------------------------------------------ */

hid_t store_dcpl(void) {
  hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
  if (dcpl >= 0)
    H5Pset_obj_track_times(dcpl, 0);
  return dcpl;
}

/* Groups on the way are made by hand: those HDF5 makes itself carry the time, and equal content should give equal
 * bytes. */
static atoll_err make_groups(atoll_store *s, const char *path) {
  char *copy = strdup(path);
  if (!copy)
    return atoll_fail(ATOLL_NOMEM, "%s: no memory for the name %s", s->path, path);
  atoll_err err = ATOLL_OK;
  for (char *slash = strchr(copy + 1, '/'); slash && err == ATOLL_OK; slash = strchr(slash + 1, '/')) {
    *slash = '\0';
    if (!store_exists(s, copy)) {
      hid_t gcpl = H5Pcreate(H5P_GROUP_CREATE);
      hid_t group = -1;
      if (gcpl >= 0 && H5Pset_obj_track_times(gcpl, 0) >= 0)
        group = H5Gcreate2(s->file, copy, H5P_DEFAULT, gcpl, H5P_DEFAULT);
      if (group < 0)
        err = store_error(s, "create group", copy);
      else if (H5Gclose(group) < 0)
        err = store_error(s, "create group", copy);
      if (gcpl >= 0)
        H5Pclose(gcpl);
    }
    *slash = '/';
  }
  free(copy);
  return err;
}

static atoll_err may_create(atoll_store *s, const char *path) {
  ATOLL_TRY(store_may_change(s, path));
  ATOLL_TRY(store_check_path(s, path));
  if (s->following)
    return atoll_fail(ATOLL_USAGE, "%s: %s cannot be created once readers follow", s->path, path);
  if (store_exists(s, path))
    return atoll_fail(ATOLL_USAGE, "%s: %s exists already", s->path, path);
  return make_groups(s, path);
}

/* Create, write (data may be NULL: nothing to write) and describe. Takes dcpl. */
static atoll_err write_dataset(atoll_store *s, const char *path, hid_t type, hid_t space, hid_t dcpl, const void *data,
                               const char *units, const char *long_name) {
  atoll_err err = ATOLL_OK;
  hid_t dataset = H5Dcreate2(s->file, path, type, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
  if (dataset < 0 || (data && H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0))
    err = store_error(s, dataset < 0 ? "create" : "write", path);
  else
    err = store_describe(s, dataset, path, units, long_name);
  if (dataset >= 0 && H5Dclose(dataset) < 0 && err == ATOLL_OK)
    err = store_error(s, "close", path);
  H5Pclose(dcpl);
  return err;
}

static atoll_err write_array(atoll_store *s, const char *path, atoll_dtype t, int ndim, const int64_t *shape,
                             const void *data, const char *units, const char *long_name) {
  hsize_t dims[ATOLL_NDIM_MAX];
  int64_t count;
  ATOLL_TRY(check_shape(s, path, t, ndim, shape, dims, &count));
  ATOLL_TRY(may_create(s, path));
  int64_t bytes = count * (int64_t)atoll_dtype_bytes(t);
  hid_t type = store_type(t), dcpl = store_dcpl();
  hid_t space = ndim ? H5Screate_simple(ndim, dims, NULL) : H5Screate(H5S_SCALAR);
  atoll_err err;
  herr_t set = 0;
  if (bytes > 0 && bytes <= STORE_COMPACT_MAX)
    set = H5Pset_layout(dcpl, H5D_COMPACT);
  else if (bytes > 0 && bytes <= STORE_CHECKED_MAX && s->image)
    set = H5Pset_chunk(dcpl, ndim, dims) < 0 || H5Pset_fletcher32(dcpl) < 0 ? -1 : 0;
  else
    set = H5Pset_fill_time(dcpl, H5D_FILL_TIME_NEVER);
  if (type < 0 || dcpl < 0 || space < 0 || set < 0) {
    err = store_error(s, "create", path);
    if (dcpl >= 0)
      H5Pclose(dcpl);
  } else {
    err = write_dataset(s, path, type, space, dcpl, count ? data : NULL, units, long_name);
  }
  if (type >= 0)
    H5Tclose(type);
  if (space >= 0)
    H5Sclose(space);
  return err;
}

atoll_err atoll_store_write(atoll_store *s, const char *path, atoll_dtype t, int ndim, const int64_t *shape,
                            const void *data, const char *units, const char *long_name) {
  store_lock();
  return store_done(s, write_array(s, path, t, ndim, shape, data, units, long_name), 1);
}

/* n texts of one fixed width; n < 0: one scalar. */
static atoll_err write_strings(atoll_store *s, const char *path, const char *const *texts, int64_t n,
                               const char *long_name) {
  size_t width = 1, count = n < 0 ? 1 : (size_t)n;
  for (size_t i = 0; i < count; i++) {
    if (!texts[i])
      return atoll_fail(ATOLL_USAGE, "%s: %s: text %zu is missing", s->path, path, i);
    size_t length = strlen(texts[i]);
    width = length > width ? length : width;
  }
  if (width > STORE_TEXT_MAX || (count && width > STORE_TEXT_MAX / count))
    return atoll_fail(ATOLL_USAGE, "%s: %s: %zu texts of up to %zu bytes pass the limit of %zu", s->path, path, count,
                      width, STORE_TEXT_MAX);
  ATOLL_TRY(may_create(s, path));
  char *block = calloc(count ? count : 1, width);
  if (!block)
    return atoll_fail(ATOLL_NOMEM, "%s: no memory for %zu texts of %zu bytes", s->path, count, width);
  for (size_t i = 0; i < count; i++)
    memcpy(block + i * width, texts[i], strlen(texts[i]));
  hsize_t dims = count;
  hid_t type = store_text_type(width), dcpl = store_dcpl();
  hid_t space = n < 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, &dims, NULL);
  atoll_err err;
  if (type < 0 || dcpl < 0 || space < 0 ||
      (count && count * width <= STORE_TEXT_COMPACT_MAX && H5Pset_layout(dcpl, H5D_COMPACT) < 0)) {
    err = store_error(s, "create", path);
    if (dcpl >= 0)
      H5Pclose(dcpl);
  } else {
    err = write_dataset(s, path, type, space, dcpl, count ? block : NULL, NULL, long_name);
  }
  if (type >= 0)
    H5Tclose(type);
  if (space >= 0)
    H5Sclose(space);
  free(block);
  return err;
}

atoll_err atoll_store_write_text(atoll_store *s, const char *path, const char *text, const char *long_name) {
  store_lock();
  return store_done(s, write_strings(s, path, &text, -1, long_name), 1);
}

atoll_err atoll_store_write_texts(atoll_store *s, const char *path, const char *const *texts, size_t n,
                                  const char *long_name) {
  store_lock();
  return store_done(s, write_strings(s, path, texts, (int64_t)n, long_name), 1);
}

/* ---- reading ------------------------------------------------------------------------------------------------- */

atoll_err store_open_dataset(atoll_store *s, const char *path, hid_t *out) {
  ATOLL_TRY(store_check_path(s, path));
  if (!store_exists(s, path))
    return atoll_fail(ATOLL_NOINPUT, "%s: no dataset %s", s->path, path);
  hid_t object = H5Oopen(s->file, path, H5P_DEFAULT);
  if (object < 0)
    return store_error(s, "open", path);
  if (H5Iget_type(object) != H5I_DATASET) {
    H5Oclose(object);
    return atoll_fail(ATOLL_NOINPUT, "%s: %s is a group, expected a dataset", s->path, path);
  }
  /* What is cached of a growing dataset is old. */
  if (s->swmr_reader && H5Drefresh(object) < 0) {
    atoll_err err = store_error(s, "refresh", path);
    H5Oclose(object);
    return err;
  }
  *out = object;
  return ATOLL_OK;
}

/* Shape of an open dataset; ndim at most ATOLL_NDIM_MAX. */
static atoll_err get_shape(atoll_store *s, const char *path, hid_t dataset, int *ndim, hsize_t *dims) {
  atoll_err err = ATOLL_OK;
  hid_t space = H5Dget_space(dataset);
  int n = space >= 0 ? H5Sget_simple_extent_ndims(space) : -1;
  H5S_class_t class = space >= 0 ? H5Sget_simple_extent_type(space) : H5S_NO_CLASS;
  if (n < 0)
    err = store_error(s, "read shape of", path);
  else if (class == H5S_NULL)
    err = atoll_fail(ATOLL_CORRUPT, "%s: %s is empty by definition (null space)", s->path, path);
  else if (n > ATOLL_NDIM_MAX)
    err = atoll_fail(ATOLL_CORRUPT, "%s: %s has %d dimensions, at most %d", s->path, path, n, ATOLL_NDIM_MAX);
  else if (n > 0 && H5Sget_simple_extent_dims(space, dims, NULL) < 0)
    err = store_error(s, "read shape of", path);
  for (int i = 0; err == ATOLL_OK && i < n; i++)
    if (dims[i] > INT64_MAX)
      err = atoll_fail(ATOLL_CORRUPT, "%s: %s: extent %d is %llu", s->path, path, i, (unsigned long long)dims[i]);
  if (space >= 0)
    H5Sclose(space);
  *ndim = n;
  return err;
}

static atoll_err read_shape(atoll_store *s, const char *path, atoll_dtype *t, int *ndim, int64_t *shape) {
  hid_t dataset;
  ATOLL_TRY(store_open_dataset(s, path, &dataset));
  hsize_t dims[ATOLL_NDIM_MAX];
  int n;
  atoll_dtype type = ATOLL_F32;
  atoll_err err = get_shape(s, path, dataset, &n, dims);
  if (err == ATOLL_OK) {
    hid_t h = H5Dget_type(dataset);
    if (h < 0)
      err = store_error(s, "read type of", path);
    else if (t && store_type_parse(h, &type))
      err = atoll_fail(ATOLL_CORRUPT, "%s: %s holds %s, expected numbers", s->path, path, class_name(h));
    if (h >= 0)
      H5Tclose(h);
  }
  H5Dclose(dataset);
  if (err != ATOLL_OK)
    return err;
  if (t)
    *t = type;
  if (ndim)
    *ndim = n;
  for (int i = 0; shape && i < n; i++)
    shape[i] = (int64_t)dims[i];
  return ATOLL_OK;
}

atoll_err atoll_store_shape(atoll_store *s, const char *path, atoll_dtype *t, int *ndim, int64_t *shape) {
  store_lock();
  return store_done(s, read_shape(s, path, t, ndim, shape), 0);
}

static atoll_err read_block(atoll_store *s, const char *path, hid_t dataset, atoll_dtype t, const int64_t *start,
                            const int64_t *count, void *data) {
  hsize_t dims[ATOLL_NDIM_MAX], from[ATOLL_NDIM_MAX], n[ATOLL_NDIM_MAX];
  int ndim, empty = 0;
  ATOLL_TRY(get_shape(s, path, dataset, &ndim, dims));
  for (int i = 0; i < ndim; i++) {
    int64_t a = start ? start[i] : 0, b = start ? count[i] : (int64_t)dims[i];
    if (a < 0 || b < 0 || a > (int64_t)dims[i] || b > (int64_t)dims[i] - a)
      return atoll_fail(ATOLL_CORRUPT, "%s: %s: %" PRId64 " elements from %" PRId64 " leave extent %d, which is %llu",
                        s->path, path, b, a, i, (unsigned long long)dims[i]);
    from[i] = (hsize_t)a;
    n[i] = (hsize_t)b;
    empty |= b == 0;
  }
  if (empty)
    return ATOLL_OK;
  atoll_err err = ATOLL_OK;
  atoll_dtype stored;
  hid_t type = store_type(t), held = H5Dget_type(dataset), space = H5Dget_space(dataset);
  hid_t memory = ndim ? H5Screate_simple(ndim, n, NULL) : H5Screate(H5S_SCALAR);
  if (type < 0 || held < 0 || space < 0 || memory < 0)
    err = store_error(s, "read", path);
  else if (store_type_parse(held, &stored))
    err = atoll_fail(ATOLL_CORRUPT, "%s: %s holds %s, expected numbers", s->path, path, class_name(held));
  else if ((ndim && start && H5Sselect_hyperslab(space, H5S_SELECT_SET, from, NULL, n, NULL) < 0) ||
           H5Dread(dataset, type, memory, space, H5P_DEFAULT, data) < 0)
    err = store_error(s, "read", path);
  if (type >= 0)
    H5Tclose(type);
  if (held >= 0)
    H5Tclose(held);
  if (space >= 0)
    H5Sclose(space);
  if (memory >= 0)
    H5Sclose(memory);
  return err;
}

atoll_err atoll_store_read(atoll_store *s, const char *path, atoll_dtype t, const int64_t *start, const int64_t *count,
                           void *data) {
  hid_t dataset;
  store_lock();
  atoll_err err = store_open_dataset(s, path, &dataset);
  if (err == ATOLL_OK) {
    err = atoll_dtype_bytes(t) && (!start || count)
              ? read_block(s, path, dataset, t, start, count, data)
              : atoll_fail(ATOLL_USAGE, "%s: read %s: unknown element type %d or no count", s->path, path, (int)t);
    H5Dclose(dataset);
  }
  return store_done(s, err, 0);
}

void atoll_store_texts_free(char ***texts, size_t n) {
  if (!texts || !*texts)
    return;
  for (size_t i = 0; i < n; i++)
    free((*texts)[i]);
  free(*texts);
  *texts = NULL;
}

/* Copy what HDF5 returned, fixed or variable, into one owned string per text. */
static atoll_err split_texts(atoll_store *s, const char *path, hid_t dataset, hid_t type, hid_t space, size_t n,
                             char **texts) {
  int variable = H5Tis_variable_str(type) > 0;
  size_t width = variable ? sizeof(char *) : H5Tget_size(type);
  atoll_err err = ATOLL_OK;
  if (!width || (n && width > STORE_TEXT_MAX / n))
    return atoll_fail(ATOLL_CORRUPT, "%s: %s claims %zu texts of %zu bytes", s->path, path, n, width);
  char *block = calloc(n ? n : 1, width);
  if (!block)
    return atoll_fail(ATOLL_NOMEM, "%s: no memory for %zu texts of %zu bytes", s->path, n, width);
  if (n && H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, block) < 0)
    err = store_error(s, "read", path);
  for (size_t i = 0; err == ATOLL_OK && i < n; i++) {
    const char *text = variable ? ((char **)(void *)block)[i] : block + i * width;
    size_t length = !text ? 0 : variable ? strlen(text) : strnlen(text, width);
    texts[i] = malloc(length + 1);
    if (!texts[i]) {
      err = atoll_fail(ATOLL_NOMEM, "%s: no memory for text %zu of %s", s->path, i, path);
      break;
    }
    if (length)
      memcpy(texts[i], text, length);
    texts[i][length] = '\0';
  }
  if (variable && n)
    H5Dvlen_reclaim(type, space, H5P_DEFAULT, block);
  free(block);
  return err;
}

/* All texts of a dataset; *scalar tells an array of one from a single text. */
static atoll_err read_strings(atoll_store *s, const char *path, char ***out, size_t *count) {
  hid_t dataset;
  ATOLL_TRY(store_open_dataset(s, path, &dataset));
  hsize_t dims[ATOLL_NDIM_MAX];
  int ndim;
  char **texts = NULL;
  size_t n = 1;
  hid_t type = -1, space = -1;
  atoll_err err = get_shape(s, path, dataset, &ndim, dims);
  if (err != ATOLL_OK)
    goto close_dataset;
  type = H5Dget_type(dataset);
  space = H5Dget_space(dataset);
  if (type < 0 || space < 0)
    err = store_error(s, "read", path);
  else if (H5Tget_class(type) != H5T_STRING)
    err = atoll_fail(ATOLL_CORRUPT, "%s: %s holds %s, expected text", s->path, path, class_name(type));
  for (int i = 0; err == ATOLL_OK && i < ndim; i++) {
    if (dims[i] && n > STORE_TEXT_MAX / dims[i])
      err = atoll_fail(ATOLL_CORRUPT, "%s: %s claims more than %zu texts", s->path, path, STORE_TEXT_MAX);
    n *= (size_t)dims[i];
  }
  if (err != ATOLL_OK)
    goto close_dataset;
  texts = calloc(n ? n : 1, sizeof *texts);
  if (!texts)
    err = atoll_fail(ATOLL_NOMEM, "%s: no memory for %zu texts", s->path, n);
  else
    err = split_texts(s, path, dataset, type, space, n, texts);
  if (err == ATOLL_OK) {
    *out = texts;
    *count = n;
  } else {
    atoll_store_texts_free(&texts, n);
  }
close_dataset:
  if (type >= 0)
    H5Tclose(type);
  if (space >= 0)
    H5Sclose(space);
  H5Dclose(dataset);
  return err;
}

atoll_err atoll_store_read_texts(atoll_store *s, const char *path, char ***texts, size_t *n) {
  store_lock();
  return store_done(s, read_strings(s, path, texts, n), 0);
}

atoll_err atoll_store_read_text(atoll_store *s, const char *path, char **text) {
  char **texts = NULL;
  size_t n = 0;
  store_lock();
  atoll_err err = read_strings(s, path, &texts, &n);
  if (err == ATOLL_OK && n != 1)
    err = atoll_fail(ATOLL_CORRUPT, "%s: %s holds %zu texts, expected 1", s->path, path, n);
  if (err == ATOLL_OK) {
    *text = texts[0];
    texts[0] = NULL;
  }
  atoll_store_texts_free(&texts, n);
  return store_done(s, err, 0);
}

/* ---- series -------------------------------------------------------------------------------------------------- */

static struct store_series *series_find(atoll_store *s, const char *path) {
  for (size_t i = 0; i < s->series_count; i++)
    if (!strcmp(s->series[i].path, path))
      return &s->series[i];
  return NULL;
}

void store_series_close(atoll_store *s) {
  for (size_t i = 0; i < s->series_count; i++) {
    H5Dclose(s->series[i].dataset);
    free(s->series[i].path);
  }
  free(s->series);
  s->series = NULL;
  s->series_count = 0;
}

static atoll_err make_series(atoll_store *s, const char *path, atoll_dtype t, const char *units,
                             const char *long_name) {
  struct store_series *have = path ? series_find(s, path) : NULL;
  if (have)
    return have->type == t ? ATOLL_OK
                           : atoll_fail(ATOLL_USAGE, "%s: series %s is %s, not %s", s->path, path,
                                        atoll_dtype_name(have->type), atoll_dtype_name(t));
  if (!atoll_dtype_bytes(t))
    return atoll_fail(ATOLL_USAGE, "%s: %s: unknown element type %d", s->path, path, (int)t);
  ATOLL_TRY(may_create(s, path));
  struct store_series *list = realloc(s->series, (s->series_count + 1) * sizeof *list);
  if (list)
    s->series = list;
  char *copy = strdup(path);
  if (!list || !copy) {
    free(copy);
    return atoll_fail(ATOLL_NOMEM, "%s: no memory for the series %s", s->path, path);
  }
  hsize_t none = 0, unlimited = H5S_UNLIMITED, chunk = STORE_SERIES_CHUNK;
  hid_t type = store_type(t), space = H5Screate_simple(1, &none, &unlimited), dcpl = store_dcpl(), dataset = -1;
  atoll_err err = ATOLL_OK;
  if (type < 0 || space < 0 || dcpl < 0 || H5Pset_chunk(dcpl, 1, &chunk) < 0 ||
      H5Pset_fill_time(dcpl, H5D_FILL_TIME_ALLOC) < 0 || (s->image && H5Pset_fletcher32(dcpl) < 0) ||
      (dataset = H5Dcreate2(s->file, path, type, space, H5P_DEFAULT, dcpl, H5P_DEFAULT)) < 0)
    err = store_error(s, "create", path);
  else
    err = store_describe(s, dataset, path, units, long_name);
  if (type >= 0)
    H5Tclose(type);
  if (space >= 0)
    H5Sclose(space);
  if (dcpl >= 0)
    H5Pclose(dcpl);
  if (err != ATOLL_OK) {
    if (dataset >= 0)
      H5Dclose(dataset);
    free(copy);
    return err;
  }
  s->series[s->series_count++] = (struct store_series){copy, dataset, t, 0};
  return ATOLL_OK;
}

atoll_err atoll_store_series(atoll_store *s, const char *path, atoll_dtype t, const char *units,
                             const char *long_name) {
  store_lock();
  return store_done(s, make_series(s, path, t, units, long_name), 1);
}

static atoll_err series_get(atoll_store *s, const char *path, struct store_series **out) {
  ATOLL_TRY(store_may_change(s, path));
  ATOLL_TRY(store_check_path(s, path));
  struct store_series *series = series_find(s, path);
  if (!series)
    return atoll_fail(ATOLL_USAGE, "%s: no series %s", s->path, path);
  *out = series;
  return ATOLL_OK;
}

/* Write n elements at `from`, inside the present extent. */
static atoll_err series_write(atoll_store *s, struct store_series *series, hsize_t from, hsize_t n, const void *data) {
  atoll_err err = ATOLL_OK;
  hid_t type = store_type(series->type), space = H5Dget_space(series->dataset), memory = H5Screate_simple(1, &n, NULL);
  if (type < 0 || space < 0 || memory < 0 || H5Sselect_hyperslab(space, H5S_SELECT_SET, &from, NULL, &n, NULL) < 0 ||
      H5Dwrite(series->dataset, type, memory, space, H5P_DEFAULT, data) < 0)
    err = store_error(s, "write", series->path);
  if (type >= 0)
    H5Tclose(type);
  if (space >= 0)
    H5Sclose(space);
  if (memory >= 0)
    H5Sclose(memory);
  return err;
}

static atoll_err series_append(atoll_store *s, const char *path, const void *data, size_t n) {
  struct store_series *series;
  ATOLL_TRY(series_get(s, path, &series));
  if (!n)
    return ATOLL_OK;
  hsize_t length = series->length + n;
  if (H5Dset_extent(series->dataset, &length) < 0)
    return store_error(s, "extend", path);
  ATOLL_TRY(series_write(s, series, series->length, n, data));
  series->length = length;
  return ATOLL_OK;
}

atoll_err atoll_store_append(atoll_store *s, const char *path, const void *data, size_t n) {
  store_lock();
  return store_done(s, series_append(s, path, data, n), 1);
}

static atoll_err series_put(atoll_store *s, const char *path, int64_t i, const void *value) {
  struct store_series *series;
  ATOLL_TRY(series_get(s, path, &series));
  if (i < 0 || (hsize_t)i >= series->length)
    return atoll_fail(ATOLL_USAGE, "%s: %s has %llu elements, no %" PRId64, s->path, path,
                      (unsigned long long)series->length, i);
  return series_write(s, series, (hsize_t)i, 1, value);
}

atoll_err atoll_store_put(atoll_store *s, const char *path, int64_t i, const void *value) {
  store_lock();
  return store_done(s, series_put(s, path, i, value), 1);
}

/* ---- virtual datasets ---------------------------------------------------------------------------------------- */

static atoll_err check_piece(const atoll_store *s, const char *path, int ndim, const int64_t *shape,
                             const atoll_store_piece *p, size_t index) {
  if (!p->file || !*p->file || p->file[0] == '/')
    return atoll_fail(ATOLL_USAGE, "%s: %s: piece %zu: file '%s' is not a relative name", s->path, path, index,
                      p->file ? p->file : "");
  if (!p->dataset || p->dataset[0] != '/')
    return atoll_fail(ATOLL_USAGE, "%s: %s: piece %zu: dataset '%s' is not an absolute path", s->path, path, index,
                      p->dataset ? p->dataset : "");
  for (int i = 0; i < ndim; i++)
    if (p->start[i] < 0 || p->count[i] < 0 || p->start[i] > shape[i] || p->count[i] > shape[i] - p->start[i])
      return atoll_fail(ATOLL_USAGE,
                        "%s: %s: piece %zu: %" PRId64 " elements from %" PRId64 " leave extent %d, which is %" PRId64,
                        s->path, path, index, p->count[i], p->start[i], i, shape[i]);
  return ATOLL_OK;
}

static atoll_err add_piece(atoll_store *s, const char *path, int ndim, hid_t space, hid_t dcpl,
                           const atoll_store_piece *p) {
  hsize_t start[ATOLL_NDIM_MAX], count[ATOLL_NDIM_MAX];
  for (int i = 0; i < ndim; i++) {
    start[i] = (hsize_t)p->start[i];
    count[i] = (hsize_t)p->count[i];
    if (!count[i])
      return ATOLL_OK; /* a rank that holds nothing */
  }
  atoll_err err = ATOLL_OK;
  hid_t source = H5Screate_simple(ndim, count, NULL);
  if (source < 0 || H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL) < 0 ||
      H5Pset_virtual(dcpl, space, p->file, p->dataset, source) < 0)
    err = store_error(s, "map a piece of", path);
  if (source >= 0)
    H5Sclose(source);
  return err;
}

static atoll_err make_virtual(atoll_store *s, const char *path, atoll_dtype t, int ndim, const int64_t *shape,
                              const atoll_store_piece *pieces, size_t n, const char *units, const char *long_name) {
  hsize_t dims[ATOLL_NDIM_MAX];
  int64_t count;
  ATOLL_TRY(check_shape(s, path, t, ndim, shape, dims, &count));
  if (ndim == 0)
    return atoll_fail(ATOLL_USAGE, "%s: %s: a virtual dataset needs a dimension", s->path, path);
  for (size_t i = 0; i < n; i++)
    ATOLL_TRY(check_piece(s, path, ndim, shape, &pieces[i], i));
  ATOLL_TRY(may_create(s, path));
  atoll_err err = ATOLL_OK;
  double nan_value = NAN;
  hid_t type = store_type(t), space = H5Screate_simple(ndim, dims, NULL), whole = H5Screate_simple(ndim, dims, NULL);
  hid_t dcpl = store_dcpl();
  int is_float = t == ATOLL_F32 || t == ATOLL_F64 || t == ATOLL_BF16;
  if (type < 0 || space < 0 || whole < 0 || dcpl < 0 ||
      (is_float && H5Pset_fill_value(dcpl, H5T_NATIVE_DOUBLE, &nan_value) < 0))
    err = store_error(s, "create", path);
  for (size_t i = 0; err == ATOLL_OK && i < n; i++)
    err = add_piece(s, path, ndim, space, dcpl, &pieces[i]);
  if (err == ATOLL_OK) {
    err = write_dataset(s, path, type, whole, dcpl, NULL, units, long_name);
    dcpl = -1;
  }
  if (dcpl >= 0)
    H5Pclose(dcpl);
  if (type >= 0)
    H5Tclose(type);
  if (space >= 0)
    H5Sclose(space);
  if (whole >= 0)
    H5Sclose(whole);
  return err;
}

atoll_err atoll_store_virtual(atoll_store *s, const char *path, atoll_dtype t, int ndim, const int64_t *shape,
                              const atoll_store_piece *pieces, size_t n, const char *units, const char *long_name) {
  store_lock();
  return store_done(s, make_virtual(s, path, t, ndim, shape, pieces, n, units, long_name), 1);
}
