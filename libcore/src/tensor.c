#include "atoll/tensor.h"

#include <inttypes.h>
#include <string.h>

static const struct {
  const char *name;
  size_t bytes;
} dtypes[ATOLL_DTYPES] = {
#define ENTRY(name, bytes, text) {text, bytes},
    ATOLL_DTYPE_LIST(ENTRY)
#undef ENTRY
};

static int dtype_valid(atoll_dtype t) { return (int)t >= 0 && t < ATOLL_DTYPES; }

size_t atoll_dtype_bytes(atoll_dtype t) { return dtype_valid(t) ? dtypes[t].bytes : 0; }

const char *atoll_dtype_name(atoll_dtype t) { return dtype_valid(t) ? dtypes[t].name : "unknown"; }

int atoll_dtype_parse(const char *name, atoll_dtype *t) {
  for (int i = 0; name && i < ATOLL_DTYPES; i++)
    if (!strcmp(dtypes[i].name, name)) {
      *t = (atoll_dtype)i;
      return 0;
    }
  return -1;
}

/* Product of the extents; -1 when one is negative or the product passes `limit`. A zero extent gives 0, whatever the
 * others. */
static int64_t product(int ndim, const int64_t *extent, int64_t limit) {
  int64_t n = 1, zero = 0;
  for (int i = 0; i < ndim; i++) {
    if (extent[i] < 0)
      return -1;
    if (extent[i] == 0) {
      zero = 1;
      continue;
    }
    if (n > limit / extent[i])
      return -1;
    n *= extent[i];
  }
  return zero ? 0 : n;
}

atoll_err atoll_tensor_init(atoll_tensor *t, const char *name, atoll_dtype dtype, int ndim, const int64_t *shape,
                            void *data) {
  atoll_tensor made = {.dtype = dtype, .ndim = ndim, .data = data};
  if (!name || !*name)
    return atoll_fail(ATOLL_USAGE, "a tensor needs a name");
  size_t length = strlen(name);
  if (length >= sizeof made.name)
    return atoll_fail(ATOLL_USAGE, "tensor name of %zu bytes, at most %zu: %.40s...", length, sizeof made.name - 1,
                      name);
  if (!dtype_valid(dtype))
    return atoll_fail(ATOLL_USAGE, "tensor %s: unknown element type %d", name, (int)dtype);
  if (ndim < 0 || ndim > ATOLL_NDIM_MAX)
    return atoll_fail(ATOLL_USAGE, "tensor %s: %d dimensions, expected 0..%d", name, ndim, ATOLL_NDIM_MAX);
  for (int i = 0; i < ndim; i++)
    if (shape[i] < 0)
      return atoll_fail(ATOLL_USAGE, "tensor %s: extent %d is %" PRId64, name, i, shape[i]);
  if (product(ndim, shape, INT64_MAX / (int64_t)dtypes[dtype].bytes) < 0)
    return atoll_fail(ATOLL_USAGE, "tensor %s: its bytes pass 2^63", name);
  memcpy(made.name, name, length + 1);
  for (int i = 0; i < ndim; i++)
    made.global[i] = made.local[i] = shape[i];
  *t = made;
  return ATOLL_OK;
}

int64_t atoll_tensor_local_count(const atoll_tensor *t) { return product(t->ndim, t->local, INT64_MAX); }
int64_t atoll_tensor_global_count(const atoll_tensor *t) { return product(t->ndim, t->global, INT64_MAX); }

int64_t atoll_tensor_local_bytes(const atoll_tensor *t) {
  return atoll_tensor_local_count(t) * (int64_t)atoll_dtype_bytes(t->dtype);
}

atoll_err atoll_tensor_check(const atoll_tensor *t) {
  if (t->ndim < 0 || t->ndim > ATOLL_NDIM_MAX || !dtype_valid(t->dtype))
    return atoll_fail(ATOLL_USAGE, "tensor %s: %d dimensions of type %d", t->name, t->ndim, (int)t->dtype);
  for (int i = 0; i < t->ndim; i++)
    if (t->global[i] < 0 || t->local[i] < 0 || t->start[i] < 0 || t->start[i] > t->global[i] ||
        t->local[i] > t->global[i] - t->start[i])
      return atoll_fail(ATOLL_USAGE,
                        "tensor %s: block of %" PRId64 " from %" PRId64 " leaves extent %d, which is %" PRId64, t->name,
                        t->local[i], t->start[i], i, t->global[i]);
  if (product(t->ndim, t->global, INT64_MAX / (int64_t)dtypes[t->dtype].bytes) < 0)
    return atoll_fail(ATOLL_USAGE, "tensor %s: its bytes pass 2^63", t->name);
  return ATOLL_OK;
}
