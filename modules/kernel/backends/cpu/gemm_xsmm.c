/* Tiles by libxsmm (Heinecke et al., SC 2016), which generates code for the processor it runs on, for each size once.
 */
#include "gemm_impl.h"

#ifdef ATOLL_HAVE_LIBXSMM
#include <libxsmm.h>

#define TEXT(x)  #x
#define TEXT_(x) TEXT(x)
const char *gemm_xsmm_version(void) {
  return ", libxsmm " TEXT_(LIBXSMM_VERSION_MAJOR) "." TEXT_(LIBXSMM_VERSION_MINOR);
}

/* It thinks in columns: of C' [columns, rows] = b' [columns, K] a [K, rows], where a panel of A is the transpose of a.
 */
gemm_xsmm_tile gemm_xsmm(int64_t rows, int64_t columns, int64_t K, int64_t ldc) {
  const libxsmm_blasint m = (libxsmm_blasint)columns, n = (libxsmm_blasint)rows, ld = (libxsmm_blasint)ldc;
  const float one = 1, zero = 0;
  const int flags = LIBXSMM_GEMM_FLAG_TRANS_B, prefetch = LIBXSMM_GEMM_PREFETCH_NONE;
  if (ld != ldc)
    return NULL;
  return libxsmm_smmdispatch(m, n, (libxsmm_blasint)K, &m, &n, &ld, &one, &zero, &flags, &prefetch);
}
#else
const char *gemm_xsmm_version(void) { return ""; }

gemm_xsmm_tile gemm_xsmm(int64_t rows, int64_t columns, int64_t K, int64_t ldc) {
  (void)rows, (void)columns, (void)K, (void)ldc;
  return NULL;
}
#endif
