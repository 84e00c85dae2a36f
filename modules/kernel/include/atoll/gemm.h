/** By whom the f32 products of the cpu kernels are computed: a library, or our own packed products by either tile.
 * Whoever never asks gets what a fixed rule says of the instruction set; results of two differ in the last bits. */
#ifndef ATOLL_GEMM_H
#define ATOLL_GEMM_H

#include <mpi.h>
#include <stdint.h>

#include "atoll/err.h"

ATOLL_BEGIN_C

/** Best GFLOP/s of a library for one GEMM shape, for benchmarks: library i of those compiled in ("onednn", "openblas",
 * "packed" (our own), "libxsmm" (our own with its tiles, where built with it), "fma-loop"); 0 past the end. */
ATOLL_API int atoll_gemm_library(int i, const char **name);
ATOLL_API atoll_err atoll_gemm_rate(const char *library, int64_t M, int64_t N, int64_t K, int threads, int repetitions,
                                    double *best_gflops);

/** Products of at most so many floats together and of so long sums are made of operands where they lie: 512 KiB, which
 * are in the second-level cache with what else a program works on, and a panel that is on the stack. */
enum { ATOLL_GEMM_SMALL_FLOATS = 1 << 17, ATOLL_GEMM_SMALL_SUM = 512 };

/** c[i ldc + j] = sum over k of a[i a_outer + k a_inner] b[j b_outer + k b_inner] for i < M, j < N, k < K, in f32, by
 * the cpu kernels' products and at most `threads` threads. c overlaps neither operand. The result does not depend on
 * threads. NOMEM, INTERNAL: as the library says. */
ATOLL_API atoll_err atoll_gemm_strided(int threads, int64_t M, int64_t N, int64_t K, const float *a, int64_t a_outer,
                                       int64_t a_inner, const float *b, int64_t b_outer, int64_t b_inner, float *c,
                                       int64_t ldc);

/** 1 where the cpu kernels multiply bf16 by units of the processor (AVX512_BF16), which take numbers below 2^-126 for
 * zeros. Elsewhere they widen bf16 and multiply in float, and the rate of f32 products is the ceiling of bf16 ones too.
 */
ATOLL_API int atoll_gemm_bf16_units(void);
/** As atoll_gemm_rate(), of bf16 products with bf16 results by these units: "packed" or "fma-loop". UNSUPPORTED: there
 * are none. */
ATOLL_API atoll_err atoll_gemm_bf16_rate(const char *library, int64_t M, int64_t N, int64_t K, int threads,
                                         int repetitions, double *best_gflops);

/** How many can be chosen: the first of atoll_gemm_library(). */
enum { ATOLL_GEMM_WAYS = 4 }; /* at most */
ATOLL_API int atoll_gemm_ways(void);

typedef struct atoll_gemm_choice {
  int way;                        /* of atoll_gemm_library() */
  int remembered;                 /* 1: as a file said, 0: measured now */
  double gflops[ATOLL_GEMM_WAYS]; /* as measured; all 0 where nothing was, because ATOLL_TEST_GEMM says what to take */
} atoll_gemm_choice;

/** Choose by measurement and use from here on, for all products of this process. Collective on comm; no product may be
 * under way.
 *
 *  The three products of a linear layer, forward and backward, are timed by each way with `threads` threads, in turns;
 * the least time counts, as other load only adds to it, and what the fixed rule says stays unless another is faster by
 * more than a twentieth. Ranks whose processor and libraries are alike have one choice, that of the first of them,
 * whatever their threads, so that plans that divide work otherwise keep their bits; it is remembered in `path` (NULL:
 * "gemm-DIGEST.yaml" of the user's cache, see cache.h). A file that is damaged, was made on another processor, by
 * other libraries or other code of these kernels, or cannot be written, is told of (WARN) and costs a measurement.
 *
 *  NOMEM, INTERNAL: a product could not be computed. */
ATOLL_API atoll_err atoll_gemm_choose(MPI_Comm comm, int threads, const char *path, atoll_gemm_choice *out);

ATOLL_END_C
#endif
