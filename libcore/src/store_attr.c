/* Attributes. Text is of variable length in UTF-8, which h5py shows as str. Its bytes lie in a heap without a checksum,
 * so long text is stored with fixed length inside the object header instead, where damage is noticed. */
#include "atoll/store.h"
#include "store_impl.h"

#include <stdlib.h>
#include <string.h>

#define HEAP_TEXT_MAX   2048
#define HEADER_TEXT_MAX 60000

hid_t store_text_type(size_t bytes) {
  hid_t type = H5Tcopy(H5T_C_S1);
  if (type < 0)
    return type;
  H5Tset_size(type, bytes ? bytes : H5T_VARIABLE);
  H5Tset_cset(type, H5T_CSET_UTF8);
  if (bytes)
    H5Tset_strpad(type, H5T_STR_NULLPAD);
  return type;
}

/* Replace an attribute of an open object. */
static atoll_err set_attr(atoll_store *s, hid_t object, const char *path, const char *name, hid_t type, hid_t space,
                          const void *data) {
  htri_t have = H5Aexists(object, name);
  if (have < 0 || (have > 0 && H5Adelete(object, name) < 0))
    return store_error(s, "replace attribute of", path);
  hid_t attr = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
  if (attr < 0 || H5Awrite(attr, type, data) < 0) {
    atoll_err err = store_error(s, "write attribute of", path);
    if (attr >= 0)
      H5Aclose(attr);
    return err;
  }
  H5Aclose(attr);
  return ATOLL_OK;
}

static atoll_err set_scalar(atoll_store *s, hid_t object, const char *path, const char *name, hid_t type,
                            const void *data) {
  hid_t space = H5Screate(H5S_SCALAR);
  if (space < 0)
    return store_error(s, "write attribute of", path);
  atoll_err err = set_attr(s, object, path, name, type, space, data);
  H5Sclose(space);
  return err;
}

atoll_err store_set_text(atoll_store *s, hid_t object, const char *path, const char *name, const char *value) {
  size_t n = strlen(value);
  if (n > HEADER_TEXT_MAX)
    return atoll_fail(ATOLL_USAGE, "%s: attribute %s of %s has %zu bytes, at most %d; write it as a dataset", s->path,
                      name, path, n, HEADER_TEXT_MAX);
  hid_t type = store_text_type(n > HEAP_TEXT_MAX ? n : 0);
  if (type < 0)
    return store_error(s, "write attribute of", path);
  atoll_err err =
      set_scalar(s, object, path, name, type, n > HEAP_TEXT_MAX ? (const void *)value : (const void *)&value);
  H5Tclose(type);
  return err;
}

atoll_err store_describe(atoll_store *s, hid_t object, const char *path, const char *units, const char *long_name) {
  if (long_name)
    ATOLL_TRY(store_set_text(s, object, path, "long_name", long_name));
  return units ? store_set_text(s, object, path, "units", units) : ATOLL_OK;
}

/* Open an object whose attributes are to change. Readers that follow a file do not see new attributes and may trip. */
static atoll_err open_to_change(atoll_store *s, const char *path, const char *name, hid_t *object) {
  ATOLL_TRY(store_may_change(s, path));
  ATOLL_TRY(store_check_path(s, path));
  if (!name || !*name)
    return atoll_fail(ATOLL_USAGE, "%s: an attribute of %s needs a name", s->path, path);
  if (s->following)
    return atoll_fail(ATOLL_USAGE, "%s: attribute %s of %s cannot be written once readers follow", s->path, name, path);
  if (!store_exists(s, path))
    return atoll_fail(ATOLL_USAGE, "%s: attribute %s: no object %s", s->path, name, path);
  *object = H5Oopen(s->file, path, H5P_DEFAULT);
  return *object < 0 ? store_error(s, "open", path) : ATOLL_OK;
}

static atoll_err set_number(atoll_store *s, const char *path, const char *name, hid_t type, const void *value) {
  hid_t object;
  ATOLL_TRY(open_to_change(s, path, name, &object));
  atoll_err err = set_scalar(s, object, path, name, type, value);
  H5Oclose(object);
  return err;
}

atoll_err atoll_store_attr_text(atoll_store *s, const char *path, const char *name, const char *value) {
  store_lock();
  hid_t object;
  atoll_err err = value ? open_to_change(s, path, name, &object)
                        : atoll_fail(ATOLL_USAGE, "%s: attribute %s of %s has no text", s->path, name, path);
  if (err == ATOLL_OK) {
    err = store_set_text(s, object, path, name, value);
    H5Oclose(object);
  }
  return store_done(s, err, 1);
}

atoll_err atoll_store_attr_int(atoll_store *s, const char *path, const char *name, int64_t value) {
  store_lock();
  return store_done(s, set_number(s, path, name, H5T_STD_I64LE, &value), 1);
}

atoll_err atoll_store_attr_real(atoll_store *s, const char *path, const char *name, double value) {
  store_lock();
  return store_done(s, set_number(s, path, name, H5T_IEEE_F64LE, &value), 1);
}

atoll_err atoll_store_axes(atoll_store *s, const char *path, const char *const *names, size_t n) {
  store_lock();
  hid_t object;
  hsize_t count = n;
  atoll_err err = n >= 1 && n <= ATOLL_NDIM_MAX ? open_to_change(s, path, "DIMENSION_LABELS", &object)
                                                : atoll_fail(ATOLL_USAGE, "%s: %zu axis names for %s, expected 1 to %d",
                                                             s->path, n, path, ATOLL_NDIM_MAX);
  if (err == ATOLL_OK) {
    hid_t type = store_text_type(0), space = H5Screate_simple(1, &count, NULL);
    err = type < 0 || space < 0 ? store_error(s, "write attribute of", path)
                                : set_attr(s, object, path, "DIMENSION_LABELS", type, space, names);
    if (type >= 0)
      H5Tclose(type);
    if (space >= 0)
      H5Sclose(space);
    H5Oclose(object);
  }
  return store_done(s, err, 1);
}

/* ---- reading ------------------------------------------------------------------------------------------------- */

struct opened {
  hid_t attr, type;
};

/* NOINPUT when the object or attribute is missing; CORRUPT when it holds more than one value. */
static atoll_err open_attr(atoll_store *s, const char *path, const char *name, struct opened *o) {
  ATOLL_TRY(store_check_path(s, path));
  if (!store_exists(s, path))
    return atoll_fail(ATOLL_NOINPUT, "%s: no object %s", s->path, path);
  htri_t have = H5Aexists_by_name(s->file, path, name, H5P_DEFAULT);
  if (have < 0)
    return store_error(s, "open attribute of", path);
  if (!have)
    return atoll_fail(ATOLL_NOINPUT, "%s: %s has no attribute %s", s->path, path, name);
  o->attr = H5Aopen_by_name(s->file, path, name, H5P_DEFAULT, H5P_DEFAULT);
  if (o->attr < 0)
    return store_error(s, "open attribute of", path);
  o->type = H5Aget_type(o->attr);
  hid_t space = H5Aget_space(o->attr);
  hssize_t n = space >= 0 ? H5Sget_simple_extent_npoints(space) : -1;
  if (space >= 0)
    H5Sclose(space);
  atoll_err err = ATOLL_OK;
  if (o->type < 0 || n < 0)
    err = store_error(s, "open attribute of", path);
  else if (n != 1)
    err = atoll_fail(ATOLL_CORRUPT, "%s: attribute %s of %s has %lld values, expected 1", s->path, name, path,
                     (long long)n);
  if (err != ATOLL_OK) {
    if (o->type >= 0)
      H5Tclose(o->type);
    H5Aclose(o->attr);
  }
  return err;
}

static void close_attr(struct opened *o) {
  H5Tclose(o->type);
  H5Aclose(o->attr);
}

static atoll_err get_number(atoll_store *s, const char *path, const char *name, hid_t type, int real_ok, void *value) {
  struct opened o;
  ATOLL_TRY(open_attr(s, path, name, &o));
  H5T_class_t class = H5Tget_class(o.type);
  atoll_err err = ATOLL_OK;
  if (class != H5T_INTEGER && !(real_ok && class == H5T_FLOAT))
    err = atoll_fail(ATOLL_CORRUPT, "%s: attribute %s of %s is %s, expected %s", s->path, name, path,
                     class == H5T_STRING  ? "text"
                     : class == H5T_FLOAT ? "a real number"
                                          : "of another type",
                     real_ok ? "a number" : "an integer");
  else if (H5Aread(o.attr, type, value) < 0)
    err = store_error(s, "read attribute of", path);
  close_attr(&o);
  return err;
}

atoll_err atoll_store_get_attr_int(atoll_store *s, const char *path, const char *name, int64_t *value) {
  int64_t v = 0;
  store_lock();
  atoll_err err = get_number(s, path, name, H5T_STD_I64LE, 0, &v);
  if (err == ATOLL_OK)
    *value = v;
  return store_done(s, err, 0);
}

atoll_err atoll_store_get_attr_real(atoll_store *s, const char *path, const char *name, double *value) {
  double v = 0;
  store_lock();
  atoll_err err = get_number(s, path, name, H5T_IEEE_F64LE, 1, &v);
  if (err == ATOLL_OK)
    *value = v;
  return store_done(s, err, 0);
}

static atoll_err get_text(atoll_store *s, const char *path, const char *name, char *buf, size_t n) {
  struct opened o;
  ATOLL_TRY(open_attr(s, path, name, &o));
  atoll_err err = ATOLL_OK;
  char *text = NULL, *heap = NULL;
  size_t length = 0;
  if (H5Tget_class(o.type) != H5T_STRING) {
    err = atoll_fail(ATOLL_CORRUPT, "%s: attribute %s of %s is not text", s->path, name, path);
    goto close;
  }
  if (H5Tis_variable_str(o.type) > 0) {
    hid_t type = H5Tcopy(o.type);
    if (type < 0 || H5Aread(o.attr, type, &heap) < 0)
      err = store_error(s, "read attribute of", path);
    if (type >= 0)
      H5Tclose(type);
    length = heap ? strlen(heap) : 0;
    text = heap;
  } else {
    size_t size = H5Tget_size(o.type);
    text = size && size <= STORE_TEXT_MAX ? calloc(1, size + 1) : NULL;
    if (!text)
      err = atoll_fail(ATOLL_CORRUPT, "%s: attribute %s of %s claims %zu bytes of text", s->path, name, path, size);
    else if (H5Aread(o.attr, o.type, text) < 0)
      err = store_error(s, "read attribute of", path);
    else
      length = strlen(text);
  }
  if (err == ATOLL_OK && length >= n)
    err = atoll_fail(ATOLL_CORRUPT, "%s: attribute %s of %s has %zu bytes, room for %zu", s->path, name, path, length,
                     n ? n - 1 : 0);
  if (err == ATOLL_OK) {
    if (length)
      memcpy(buf, text, length);
    buf[length] = '\0';
  }
  if (heap)
    H5free_memory(heap);
  else
    free(text);
close:
  close_attr(&o);
  return err;
}

atoll_err atoll_store_get_attr_text(atoll_store *s, const char *path, const char *name, char *buf, size_t n) {
  store_lock();
  return store_done(s, get_text(s, path, name, buf, n), 0);
}

int atoll_store_has(atoll_store *s, const char *path) {
  store_lock();
  int have = path && path[0] == '/' && store_exists(s, path);
  store_unlock();
  return have;
}

int atoll_store_has_attr(atoll_store *s, const char *path, const char *name) {
  store_lock();
  int have = path && path[0] == '/' && store_exists(s, path) && H5Aexists_by_name(s->file, path, name, H5P_DEFAULT) > 0;
  H5Eclear2(H5E_DEFAULT);
  store_unlock();
  return have;
}
