/* Attributes, datasets, texts, series and views of a store. */
#include "atoll/store.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store_impl.h"

/* ---- types ---------------------------------------------------------------------------------------------------------
 */

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
  case ATOLL_BF16: /* HDF5 1.10 has no bfloat16: its bits */
    return H5Tcopy(H5T_STD_U16LE);
  default:
    return H5Tcopy(H5T_STD_U8LE);
  }
}

int store_type_parse(hid_t type, atoll_dtype *t) {
  size_t n = H5Tget_size(type);
  H5T_class_t c = H5Tget_class(type);
  if (c == H5T_FLOAT && (n == 4 || n == 8))
    *t = n == 4 ? ATOLL_F32 : ATOLL_F64;
  else if (c == H5T_INTEGER && (n == 8 || n == 4 || n == 2 || n == 1))
    *t = n == 8 ? ATOLL_I64 : n == 4 ? ATOLL_I32 : n == 2 ? ATOLL_U16 : ATOLL_U8;
  else
    return -1;
  return 0;
}

hid_t store_text_type(size_t bytes) {
  hid_t t = H5Tcopy(H5T_C_S1);
  H5Tset_size(t, bytes ? bytes : H5T_VARIABLE);
  H5Tset_cset(t, H5T_CSET_UTF8);
  return t;
}

/* ---- attributes ----------------------------------------------------------------------------------------------------
 */

static atoll_err put_attr(atoll_store *s, hid_t object, const char *path, const char *name, hid_t type,
                          const void *value) {
  char what[160];
  snprintf(what, sizeof what, "write attribute %.100s of", name);
  if (H5Aexists(object, name) > 0 && H5Adelete(object, name) < 0)
    return store_error(s, what, path);
  hid_t space = H5Screate(H5S_SCALAR), a = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
  atoll_err err = ATOLL_OK;
  if (a < 0 || H5Awrite(a, type, value) < 0)
    err = store_error(s, what, path);
  if (a >= 0 && H5Aclose(a) < 0 && err == ATOLL_OK)
    err = store_error(s, what, path);
  H5Sclose(space);
  return err;
}

atoll_err store_set_text(atoll_store *s, hid_t object, const char *path, const char *name, const char *value) {
  hid_t type = store_text_type(0); /* of variable length: h5py gives these as str, others as bytes */
  atoll_err err = put_attr(s, object, path, name, type, &value);
  H5Tclose(type);
  return err;
}

atoll_err store_describe(atoll_store *s, hid_t object, const char *path, const char *units, const char *long_name) {
  if (units)
    ATOLL_TRY(store_set_text(s, object, path, "units", units));
  return long_name ? store_set_text(s, object, path, "long_name", long_name) : ATOLL_OK;
}

static atoll_err open_object(atoll_store *s, const char *path, hid_t *out) {
  ATOLL_TRY(store_check_path(s, path));
  if (!store_exists(s, path))
    return atoll_fail(ATOLL_NOINPUT, "%s: no object %s", s->path, path);
  *out = H5Oopen(s->file, path, H5P_DEFAULT);
  return *out < 0 ? store_error(s, "open", path) : ATOLL_OK;
}

typedef enum attr_kind { ATTR_TEXT, ATTR_INT, ATTR_REAL } attr_kind;

static atoll_err set_attr(atoll_store *s, const char *path, const char *name, attr_kind kind, const void *value) {
  hid_t object = -1;
  store_lock();
  atoll_err err = store_may_change(s, path);
  if (err == ATOLL_OK)
    err = open_object(s, path, &object);
  if (err == ATOLL_OK && kind == ATTR_TEXT) {
    err = store_set_text(s, object, path, name, value);
  } else if (err == ATOLL_OK) {
    hid_t type = store_type(kind == ATTR_INT ? ATOLL_I64 : ATOLL_F64);
    err = put_attr(s, object, path, name, type, value);
    H5Tclose(type);
  }
  if (object >= 0)
    H5Oclose(object);
  return store_done(s, err, 1);
}

atoll_err atoll_store_attr_text(atoll_store *s, const char *object, const char *name, const char *value) {
  return set_attr(s, object, name, ATTR_TEXT, value);
}
atoll_err atoll_store_attr_int(atoll_store *s, const char *object, const char *name, int64_t value) {
  return set_attr(s, object, name, ATTR_INT, &value);
}
atoll_err atoll_store_attr_real(atoll_store *s, const char *object, const char *name, double value) {
  return set_attr(s, object, name, ATTR_REAL, &value);
}

/* A text of any HDF5 string type of one element into owned memory. */
static atoll_err take_text(atoll_store *s, const char *path, hid_t type, herr_t (*read)(hid_t, hid_t, void *),
                           hid_t from, char **text) {
  char *variable = NULL;
  if (H5Tget_class(type) != H5T_STRING)
    return atoll_fail(ATOLL_CORRUPT, "%s: %s is not a text", s->path, path);
  if (H5Tis_variable_str(type) > 0) {
    hid_t memory = store_text_type(0);
    herr_t bad = read(from, memory, &variable);
    H5Tclose(memory);
    if (bad < 0)
      return store_error(s, "read", path);
    *text = strdup(variable ? variable : "");
    H5free_memory(variable);
  } else {
    size_t n = H5Tget_size(type);
    if (n > STORE_TEXT_MAX)
      return atoll_fail(ATOLL_CORRUPT, "%s: %s is a text of %zu bytes", s->path, path, n);
    *text = calloc(1, n + 1);
    if (*text && read(from, type, *text) < 0) {
      free(*text);
      *text = NULL;
      return store_error(s, "read", path);
    }
  }
  return *text ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "%s: no memory for %s", s->path, path);
}

static atoll_err get_attr(atoll_store *s, const char *path, const char *name, attr_kind kind, void *value, size_t n) {
  hid_t object = -1, a = -1, type = -1, space = -1;
  char *text = NULL, what[320];
  store_lock();
  snprintf(what, sizeof what, "%.200s/@%.100s", path, name);
  atoll_err err = open_object(s, path, &object);
  if (err == ATOLL_OK && H5Aexists(object, name) <= 0)
    err = atoll_fail(ATOLL_NOINPUT, "%s: %s has no attribute %s", s->path, path, name);
  if (err == ATOLL_OK &&
      ((a = H5Aopen(object, name, H5P_DEFAULT)) < 0 || (type = H5Aget_type(a)) < 0 || (space = H5Aget_space(a)) < 0))
    err = store_error(s, "open", what);
  if (err == ATOLL_OK && H5Sget_simple_extent_npoints(space) != 1)
    err = atoll_fail(ATOLL_CORRUPT, "%s: %s is not a single value", s->path, what);
  if (err == ATOLL_OK && kind == ATTR_TEXT) {
    err = take_text(s, what, type, H5Aread, a, &text);
    if (err == ATOLL_OK && snprintf(value, n, "%s", text) >= (int)n)
      err = atoll_fail(ATOLL_CORRUPT, "%s: %s has %zu bytes, room for %zu", s->path, what, strlen(text), n);
    free(text);
  } else if (err == ATOLL_OK) {
    atoll_dtype t;
    if (store_type_parse(type, &t) != 0)
      err = atoll_fail(ATOLL_CORRUPT, "%s: %s is not a number", s->path, what);
    else if (H5Aread(a, kind == ATTR_INT ? H5T_NATIVE_INT64 : H5T_NATIVE_DOUBLE, value) < 0)
      err = store_error(s, "read", what);
  }
  if (space >= 0)
    H5Sclose(space);
  if (type >= 0)
    H5Tclose(type);
  if (a >= 0)
    H5Aclose(a);
  if (object >= 0)
    H5Oclose(object);
  return store_done(s, err, 0);
}

atoll_err atoll_store_get_attr_text(atoll_store *s, const char *object, const char *name, char *buf, size_t n) {
  return get_attr(s, object, name, ATTR_TEXT, buf, n);
}
atoll_err atoll_store_get_attr_int(atoll_store *s, const char *object, const char *name, int64_t *value) {
  return get_attr(s, object, name, ATTR_INT, value, sizeof *value);
}
atoll_err atoll_store_get_attr_real(atoll_store *s, const char *object, const char *name, double *value) {
  return get_attr(s, object, name, ATTR_REAL, value, sizeof *value);
}

int atoll_store_has(atoll_store *s, const char *object) {
  store_lock();
  int found = object && object[0] == '/' && store_exists(s, object);
  store_unlock();
  return found;
}

int atoll_store_has_attr(atoll_store *s, const char *object, const char *name) {
  hid_t o = -1;
  store_lock();
  int found = object && object[0] == '/' && store_exists(s, object) &&
              (o = H5Oopen(s->file, object, H5P_DEFAULT)) >= 0 && H5Aexists(o, name) > 0;
  if (o >= 0)
    H5Oclose(o);
  H5Eclear2(H5E_DEFAULT);
  store_unlock();
  return found;
}

/* ---- datasets ------------------------------------------------------------------------------------------------------
 */

hid_t store_dcpl(void) {
  hid_t p = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_attr_creation_order(p, H5P_CRT_ORDER_TRACKED);
  return p;
}

hid_t store_create(atoll_store *s, const char *path, hid_t type, hid_t space, hid_t dcpl) {
  hid_t links = H5Pcreate(H5P_LINK_CREATE);
  H5Pset_create_intermediate_group(links, 1);
  hid_t d = H5Dcreate2(s->file, path, type, space, links, dcpl, H5P_DEFAULT);
  H5Pclose(links);
  return d;
}

atoll_err store_open_dataset(atoll_store *s, const char *path, hid_t *out) {
  ATOLL_TRY(store_check_path(s, path));
  if (!store_exists(s, path))
    return atoll_fail(ATOLL_NOINPUT, "%s: no dataset %s", s->path, path);
  *out = H5Dopen2(s->file, path, H5P_DEFAULT);
  return *out < 0 ? store_error(s, "open", path) : ATOLL_OK;
}

/* New dataset with data, attributes, checked close. */
static atoll_err write_new(atoll_store *s, const char *path, hid_t type, hid_t space, hid_t dcpl, const void *data,
                           int64_t count, const char *units, const char *long_name) {
  atoll_err err = store_check_path(s, path);
  if (err == ATOLL_OK && store_exists(s, path))
    err = atoll_fail(ATOLL_USAGE, "%s: %s exists already", s->path, path);
  ATOLL_TRY(err);
  hid_t d = store_create(s, path, type, space, dcpl);
  if (d < 0)
    return store_error(s, "create", path);
  if (count > 0 && H5Dwrite(d, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0)
    err = store_error(s, "write", path);
  if (err == ATOLL_OK)
    err = store_describe(s, d, path, units, long_name);
  if (H5Dclose(d) < 0 && err == ATOLL_OK)
    err = store_error(s, "close", path);
  return err;
}

atoll_err atoll_store_write(atoll_store *s, const char *path, atoll_dtype t, int ndim, const int64_t *shape,
                            const void *data, const char *units, const char *long_name) {
  hsize_t dims[ATOLL_NDIM_MAX];
  int64_t count = 1;
  if (ndim < 0 || ndim > ATOLL_NDIM_MAX)
    return atoll_fail(ATOLL_USAGE, "%s: %s with %d dimensions, at most %d", s->path, path, ndim, ATOLL_NDIM_MAX);
  for (int i = 0; i < ndim; i++) {
    if (shape[i] < 0)
      return atoll_fail(ATOLL_USAGE, "%s: %s has extent %lld", s->path, path, (long long)shape[i]);
    dims[i] = (hsize_t)shape[i];
    count *= shape[i];
  }
  size_t bytes = (size_t)count * atoll_dtype_bytes(t);
  store_lock();
  atoll_err err = store_may_change(s, path);
  if (err == ATOLL_OK) {
    hid_t type = store_type(t), space = ndim ? H5Screate_simple(ndim, dims, NULL) : H5Screate(H5S_SCALAR),
          dcpl = store_dcpl();
    if (count > 0 && bytes <= STORE_COMPACT_MAX) {
      H5Pset_layout(dcpl, H5D_COMPACT);
    } else if (count > 0 && ndim > 0 && bytes <= STORE_CHECKED_MAX) {
      H5Pset_chunk(dcpl, ndim, dims);
      H5Pset_fletcher32(dcpl);
    }
    err = write_new(s, path, type, space, dcpl, data, count, units, long_name);
    H5Pclose(dcpl);
    H5Sclose(space);
    H5Tclose(type);
  }
  return store_done(s, err, 1);
}

atoll_err atoll_store_write_text(atoll_store *s, const char *path, const char *text, const char *long_name) {
  size_t n = strlen(text);
  store_lock();
  atoll_err err = store_may_change(s, path);
  if (err == ATOLL_OK) {
    hid_t type = store_text_type(n ? n : 1), space = H5Screate(H5S_SCALAR), dcpl = store_dcpl();
    if (n <= STORE_TEXT_COMPACT_MAX)
      H5Pset_layout(dcpl, H5D_COMPACT);
    err = write_new(s, path, type, space, dcpl, text, 1, NULL, long_name);
    H5Pclose(dcpl);
    H5Sclose(space);
    H5Tclose(type);
  }
  return store_done(s, err, 1);
}

/* Fixed width, so that a file image holds them without a heap. */
atoll_err atoll_store_write_texts(atoll_store *s, const char *path, const char *const *texts, size_t n,
                                  const char *long_name) {
  size_t width = 1;
  for (size_t i = 0; i < n; i++)
    width = strlen(texts[i]) > width ? strlen(texts[i]) : width;
  char *flat = calloc(n ? n : 1, width);
  if (!flat)
    return atoll_fail(ATOLL_NOMEM, "%s: no memory for %s", s->path, path);
  for (size_t i = 0; i < n; i++)
    memcpy(flat + i * width, texts[i], strlen(texts[i]));
  hsize_t dim = n;
  store_lock();
  atoll_err err = store_may_change(s, path);
  if (err == ATOLL_OK) {
    hid_t type = store_text_type(width), space = H5Screate_simple(1, &dim, NULL), dcpl = store_dcpl();
    err = write_new(s, path, type, space, dcpl, flat, (int64_t)n, NULL, long_name);
    H5Pclose(dcpl);
    H5Sclose(space);
    H5Tclose(type);
  }
  free(flat);
  return store_done(s, err, 1);
}

static atoll_err shape_of(atoll_store *s, const char *path, hid_t d, atoll_dtype *t, int *ndim, int64_t *shape) {
  hid_t type = H5Dget_type(d), space = H5Dget_space(d);
  hsize_t dims[H5S_MAX_RANK];
  int n = space < 0 ? -1 : H5Sget_simple_extent_ndims(space);
  atoll_err err = ATOLL_OK;
  if (type < 0 || n < 0)
    err = store_error(s, "describe", path);
  else if (store_type_parse(type, t) != 0)
    err = atoll_fail(ATOLL_CORRUPT, "%s: %s does not hold numbers of a known type", s->path, path);
  else if (n > ATOLL_NDIM_MAX)
    err = atoll_fail(ATOLL_CORRUPT, "%s: %s has %d dimensions, at most %d", s->path, path, n, ATOLL_NDIM_MAX);
  else if (H5Sget_simple_extent_dims(space, dims, NULL) < 0)
    err = store_error(s, "describe", path);
  for (int i = 0; err == ATOLL_OK && i < n; i++) {
    if (dims[i] > (hsize_t)INT64_MAX)
      err = atoll_fail(ATOLL_CORRUPT, "%s: %s has an extent beyond 2^63", s->path, path);
    shape[i] = (int64_t)dims[i];
  }
  *ndim = n;
  if (space >= 0)
    H5Sclose(space);
  if (type >= 0)
    H5Tclose(type);
  return err;
}

atoll_err atoll_store_shape(atoll_store *s, const char *path, atoll_dtype *t, int *ndim, int64_t *shape) {
  hid_t d = -1;
  store_lock();
  atoll_err err = store_open_dataset(s, path, &d);
  if (err == ATOLL_OK)
    err = shape_of(s, path, d, t, ndim, shape);
  if (d >= 0)
    H5Dclose(d);
  return store_done(s, err, 0);
}

atoll_err atoll_store_read(atoll_store *s, const char *path, atoll_dtype t, const int64_t *start, const int64_t *count,
                           void *data) {
  hid_t d = -1, file = -1, memory = -1, type = -1;
  atoll_dtype stored;
  int ndim = 0;
  int64_t shape[ATOLL_NDIM_MAX];
  hsize_t from[ATOLL_NDIM_MAX], extent[ATOLL_NDIM_MAX], total = 1;
  store_lock();
  atoll_err err = store_open_dataset(s, path, &d);
  if (err == ATOLL_OK)
    err = shape_of(s, path, d, &stored, &ndim, shape);
  for (int i = 0; err == ATOLL_OK && i < ndim; i++) {
    int64_t a = start ? start[i] : 0, n = start ? count[i] : shape[i];
    if (a < 0 || n < 0 || a > shape[i] || n > shape[i] - a)
      err = atoll_fail(ATOLL_USAGE, "%s: %s has %lld rows in dimension %d, wanted %lld from %lld", s->path, path,
                       (long long)shape[i], i, (long long)n, (long long)a);
    from[i] = (hsize_t)a;
    extent[i] = (hsize_t)n;
    total *= (hsize_t)n;
  }
  if (err == ATOLL_OK && total > 0) {
    type = store_type(t);
    file = H5Dget_space(d);
    memory = ndim ? H5Screate_simple(ndim, extent, NULL) : H5Screate(H5S_SCALAR);
    if (file < 0 || memory < 0 || (ndim && H5Sselect_hyperslab(file, H5S_SELECT_SET, from, NULL, extent, NULL) < 0) ||
        H5Dread(d, type, memory, file, H5P_DEFAULT, data) < 0)
      err = store_error(s, "read", path);
  }
  if (type >= 0)
    H5Tclose(type);
  if (file >= 0)
    H5Sclose(file);
  if (memory >= 0)
    H5Sclose(memory);
  if (d >= 0)
    H5Dclose(d);
  return store_done(s, err, 0);
}

static herr_t read_dataset(hid_t d, hid_t type, void *buf) {
  return H5Dread(d, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, buf);
}

atoll_err atoll_store_read_text(atoll_store *s, const char *path, char **text) {
  hid_t d = -1, type = -1, space = -1;
  store_lock();
  atoll_err err = store_open_dataset(s, path, &d);
  if (err == ATOLL_OK && ((type = H5Dget_type(d)) < 0 || (space = H5Dget_space(d)) < 0))
    err = store_error(s, "describe", path);
  if (err == ATOLL_OK && H5Sget_simple_extent_npoints(space) != 1)
    err = atoll_fail(ATOLL_CORRUPT, "%s: %s is not a single text", s->path, path);
  if (err == ATOLL_OK)
    err = take_text(s, path, type, read_dataset, d, text);
  if (space >= 0)
    H5Sclose(space);
  if (type >= 0)
    H5Tclose(type);
  if (d >= 0)
    H5Dclose(d);
  return store_done(s, err, 0);
}

atoll_err atoll_store_read_texts(atoll_store *s, const char *path, char ***texts, size_t *n) {
  hid_t d = -1, type = -1, space = -1;
  char *flat = NULL, **out = NULL;
  size_t width = 0, count = 0;
  store_lock();
  atoll_err err = store_open_dataset(s, path, &d);
  if (err == ATOLL_OK && ((type = H5Dget_type(d)) < 0 || (space = H5Dget_space(d)) < 0))
    err = store_error(s, "describe", path);
  if (err == ATOLL_OK &&
      (H5Tget_class(type) != H5T_STRING || H5Tis_variable_str(type) != 0 || H5Sget_simple_extent_ndims(space) != 1))
    err = atoll_fail(ATOLL_CORRUPT, "%s: %s is not a list of texts", s->path, path);
  if (err == ATOLL_OK) {
    width = H5Tget_size(type);
    count = (size_t)H5Sget_simple_extent_npoints(space);
    if (width == 0 || (count && width > STORE_TEXT_MAX / count))
      err = atoll_fail(ATOLL_CORRUPT, "%s: %s has %zu texts of %zu bytes", s->path, path, count, width);
  }
  if (err == ATOLL_OK) {
    flat = malloc(count * width + 1);
    out = calloc(count ? count : 1, sizeof *out);
    if (!flat || !out)
      err = atoll_fail(ATOLL_NOMEM, "%s: no memory for %s", s->path, path);
    else if (count && read_dataset(d, type, flat) < 0)
      err = store_error(s, "read", path);
  }
  for (size_t i = 0; err == ATOLL_OK && i < count; i++)
    if (!(out[i] = strndup(flat + i * width, width)))
      err = atoll_fail(ATOLL_NOMEM, "%s: no memory for %s", s->path, path);
  if (err == ATOLL_OK) {
    *texts = out;
    *n = count;
  } else {
    atoll_store_texts_free(&out, count);
  }
  free(flat);
  if (space >= 0)
    H5Sclose(space);
  if (type >= 0)
    H5Tclose(type);
  if (d >= 0)
    H5Dclose(d);
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

/* ---- series --------------------------------------------------------------------------------------------------------
 */

static struct store_series *find_series(atoll_store *s, const char *path) {
  for (size_t i = 0; i < s->series_count; i++)
    if (!strcmp(s->series[i].path, path))
      return &s->series[i];
  return NULL;
}

atoll_err atoll_store_series(atoll_store *s, const char *path, atoll_dtype t, const char *units,
                             const char *long_name) {
  hsize_t zero = 0, unlimited = H5S_UNLIMITED, chunk = STORE_SERIES_CHUNK;
  store_lock();
  atoll_err err = store_may_change(s, path);
  if (err == ATOLL_OK)
    err = store_check_path(s, path);
  if (err == ATOLL_OK && (find_series(s, path) || store_exists(s, path)))
    err = atoll_fail(ATOLL_USAGE, "%s: %s exists already", s->path, path);
  struct store_series *grown = err == ATOLL_OK ? realloc(s->series, (s->series_count + 1) * sizeof *grown) : NULL;
  if (err == ATOLL_OK && !grown)
    err = atoll_fail(ATOLL_NOMEM, "%s: no memory for %s", s->path, path);
  if (err == ATOLL_OK) {
    s->series = grown;
    struct store_series *x = &grown[s->series_count];
    hid_t type = store_type(t), space = H5Screate_simple(1, &zero, &unlimited), dcpl = store_dcpl();
    H5Pset_chunk(dcpl, 1, &chunk);
    H5Pset_fletcher32(dcpl);
    *x = (struct store_series){.path = strdup(path), .type = t};
    x->dataset = store_create(s, path, type, space, dcpl);
    H5Pclose(dcpl);
    H5Sclose(space);
    H5Tclose(type);
    if (x->dataset < 0 || !x->path) {
      err = store_error(s, "create", path);
      free(x->path);
    } else {
      s->series_count++;
      err = store_describe(s, x->dataset, path, units, long_name);
    }
  }
  return store_done(s, err, 1);
}

/* Elements [at, at + n) of a series whose extent holds them. */
static atoll_err write_range(atoll_store *s, struct store_series *x, hsize_t at, hsize_t n, const void *data) {
  hid_t type = store_type(x->type), file = H5Dget_space(x->dataset), memory = H5Screate_simple(1, &n, NULL);
  atoll_err err = ATOLL_OK;
  if (file < 0 || H5Sselect_hyperslab(file, H5S_SELECT_SET, &at, NULL, &n, NULL) < 0 ||
      H5Dwrite(x->dataset, type, memory, file, H5P_DEFAULT, data) < 0)
    err = store_error(s, "write", x->path);
  if (file >= 0)
    H5Sclose(file);
  H5Sclose(memory);
  H5Tclose(type);
  return err;
}

atoll_err atoll_store_append(atoll_store *s, const char *path, const void *data, size_t n) {
  store_lock();
  atoll_err err = store_may_change(s, path);
  struct store_series *x = find_series(s, path);
  if (err == ATOLL_OK && !x)
    err = atoll_fail(ATOLL_USAGE, "%s: %s is not a series of this file", s->path, path);
  if (err == ATOLL_OK && n > 0) {
    hsize_t length = x->length + n;
    if (H5Dset_extent(x->dataset, &length) < 0)
      err = store_error(s, "extend", path);
    else
      err = write_range(s, x, x->length, n, data);
    if (err == ATOLL_OK)
      x->length = length;
  }
  return store_done(s, err, 1);
}

atoll_err atoll_store_put(atoll_store *s, const char *path, int64_t i, const void *value) {
  store_lock();
  atoll_err err = store_may_change(s, path);
  struct store_series *x = find_series(s, path);
  if (err == ATOLL_OK && !x)
    err = atoll_fail(ATOLL_USAGE, "%s: %s is not a series of this file", s->path, path);
  if (err == ATOLL_OK && (i < 0 || (hsize_t)i >= x->length))
    err = atoll_fail(ATOLL_USAGE, "%s: %s has %llu elements, no element %lld", s->path, path,
                     (unsigned long long)x->length, (long long)i);
  if (err == ATOLL_OK)
    err = write_range(s, x, (hsize_t)i, 1, value);
  return store_done(s, err, 1);
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

/* ---- views ---------------------------------------------------------------------------------------------------------
 */

static atoll_err map_piece(atoll_store *s, const char *path, hid_t dcpl, hid_t space, int ndim,
                           const atoll_store_piece *p) {
  hsize_t start[ATOLL_NDIM_MAX], count[ATOLL_NDIM_MAX], total = 1;
  if (p->file[0] == '/')
    return atoll_fail(ATOLL_USAGE, "%s: view %s names %s, expected a name relative to this file", s->path, path,
                      p->file);
  for (int i = 0; i < ndim; i++) {
    start[i] = (hsize_t)p->start[i];
    count[i] = (hsize_t)p->count[i];
    total *= count[i];
  }
  if (total == 0)
    return ATOLL_OK;
  hid_t source = ndim ? H5Screate_simple(ndim, count, NULL) : H5Screate(H5S_SCALAR);
  atoll_err err = ATOLL_OK;
  if (source < 0 || (ndim && H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL) < 0) ||
      H5Pset_virtual(dcpl, space, p->file, p->dataset, source) < 0)
    err = store_error(s, "map a piece of", path);
  if (source >= 0)
    H5Sclose(source);
  return err;
}

atoll_err atoll_store_virtual(atoll_store *s, const char *path, atoll_dtype t, int ndim, const int64_t *shape,
                              const atoll_store_piece *pieces, size_t n, const char *units, const char *long_name) {
  hsize_t dims[ATOLL_NDIM_MAX];
  const double hole = NAN;
  store_lock();
  atoll_err err = store_may_change(s, path);
  if (err == ATOLL_OK && (ndim < 1 || ndim > ATOLL_NDIM_MAX))
    err = atoll_fail(ATOLL_USAGE, "%s: view %s with %d dimensions, expected 1 to %d", s->path, path, ndim,
                     ATOLL_NDIM_MAX);
  if (err == ATOLL_OK) {
    for (int i = 0; i < ndim; i++)
      dims[i] = (hsize_t)shape[i];
    hid_t type = store_type(t), space = H5Screate_simple(ndim, dims, NULL), dcpl = store_dcpl();
    if ((t == ATOLL_F32 || t == ATOLL_F64) && H5Pset_fill_value(dcpl, H5T_NATIVE_DOUBLE, &hole) < 0)
      err = store_error(s, "set the fill of", path);
    for (size_t i = 0; i < n && err == ATOLL_OK; i++)
      err = map_piece(s, path, dcpl, space, ndim, &pieces[i]);
    H5Sselect_all(space);
    if (err == ATOLL_OK)
      err = write_new(s, path, type, space, dcpl, NULL, 0, units, long_name);
    H5Pclose(dcpl);
    H5Sclose(space);
    H5Tclose(type);
  }
  return store_done(s, err, 1);
}
