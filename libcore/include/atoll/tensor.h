/** Element types and tensor descriptors. A tensor has a global (logical) shape and the block of it that is held here.
 */
#ifndef ATOLL_TENSOR_H
#define ATOLL_TENSOR_H

#include <stddef.h>
#include <stdint.h>

#include "atoll/err.h"

ATOLL_BEGIN_C

#define ATOLL_DTYPE_LIST(X)                                                                                            \
  X(F32, 4, "f32") X(F64, 8, "f64") X(BF16, 2, "bf16") X(I32, 4, "i32") X(I64, 8, "i64") X(U16, 2, "u16") X(U8, 1, "u8")
typedef enum atoll_dtype {
#define ATOLL_DTYPE_ENUM(name, bytes, text) ATOLL_##name,
  ATOLL_DTYPE_LIST(ATOLL_DTYPE_ENUM)
#undef ATOLL_DTYPE_ENUM
      ATOLL_DTYPES
} atoll_dtype;

#define ATOLL_NDIM_MAX 4

struct atoll_device;

typedef struct atoll_tensor {
  char name[96];
  atoll_dtype dtype;
  int ndim;
  int64_t global[ATOLL_NDIM_MAX]; /* logical shape */
  int64_t start[ATOLL_NDIM_MAX];  /* first index of the local block */
  int64_t local[ATOLL_NDIM_MAX];  /* shape of the local block, row-major, dense */
  struct atoll_device *device;    /* borrowed; NULL = host memory */
  void *data;                     /* borrowed or owned, as the holder says */
} atoll_tensor;

ATOLL_API size_t atoll_dtype_bytes(atoll_dtype t);
ATOLL_API const char *atoll_dtype_name(atoll_dtype t);
ATOLL_API int atoll_dtype_parse(const char *name, atoll_dtype *t); /* 0 or -1 */

/** A tensor whose block is the whole; data is stored as given. USAGE on a bad ndim, negative extent, overflow or long
 * name. */
ATOLL_API atoll_err atoll_tensor_init(atoll_tensor *t, const char *name, atoll_dtype dtype, int ndim,
                                      const int64_t *shape, void *data);
/** Elements and bytes of the local block and of the whole. */
ATOLL_API int64_t atoll_tensor_local_count(const atoll_tensor *t);
ATOLL_API int64_t atoll_tensor_global_count(const atoll_tensor *t);
ATOLL_API int64_t atoll_tensor_local_bytes(const atoll_tensor *t);
/** Checks that the block lies inside the global shape. */
ATOLL_API atoll_err atoll_tensor_check(const atoll_tensor *t);

ATOLL_END_C
#endif
