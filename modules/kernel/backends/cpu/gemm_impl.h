/* Inside of the cpu backend: one sequential product of one library. Shapes as in cpu_gemm(). */
#ifndef ATOLL_GEMM_IMPL_H
#define ATOLL_GEMM_IMPL_H

#include "cpu_impl.h"

typedef atoll_err (*gemm_call)(int ta, int tb, int64_t M, int64_t N, int64_t K, const float *A, int64_t lda,
                               const float *B, int64_t ldb, int beta, float *C, int64_t ldc);
atoll_err gemm_onednn(int ta, int tb, int64_t M, int64_t N, int64_t K, const float *A, int64_t lda, const float *B,
                      int64_t ldb, int beta, float *C, int64_t ldc);
atoll_err gemm_openblas(int ta, int tb, int64_t M, int64_t N, int64_t K, const float *A, int64_t lda, const float *B,
                        int64_t ldb, int beta, float *C, int64_t ldc);
const char *gemm_openblas_core(void);
atoll_err gemm_blocked(gemm_call call, int threads, int ta, int tb, int64_t M, int64_t N, int64_t K, const float *A,
                       int64_t lda, const float *B, int64_t ldb, int beta, float *C, int64_t ldc, const float *bias);

#endif
