/* Inside of the cpu backend: how products are computed. */
#ifndef ATOLL_GEMM_IMPL_H
#define ATOLL_GEMM_IMPL_H

#include "atoll/gemm.h"
#include "cpu_impl.h"

/* What is done to rows m0 .. m0+m-1 and columns n0 .. n0+n-1 of C [R, C] once they are complete, by the thread that
 * made them. */
typedef struct gemm_end {
  void (*run)(const struct gemm_end *e, int64_t m0, int64_t m, int64_t n0, int64_t n);
  const struct atoll_linear_then *then; /* atoll/packed.h */
  const void *z;
  int64_t R, C;
} gemm_end;
/* As `run` (cpu.c). */
void cpu_then(const gemm_end *e, int64_t m0, int64_t m, int64_t n0, int64_t n);
void cpu_then_bf16(const gemm_end *e, int64_t m0, int64_t m, int64_t n0, int64_t n);
static inline void gemm_end_run(const gemm_end *e, int64_t m0, int64_t m, int64_t n0, int64_t n) {
  if (e)
    e->run(e, m0, m, n0, n);
}

/* One sequential product of one library. Shapes as in cpu_gemm(). */
typedef atoll_err (*gemm_call)(int ta, int tb, int64_t M, int64_t N, int64_t K, const float *A, int64_t lda,
                               const float *B, int64_t ldb, int beta, float *C, int64_t ldc);
atoll_err gemm_onednn(int ta, int tb, int64_t M, int64_t N, int64_t K, const float *A, int64_t lda, const float *B,
                      int64_t ldb, int beta, float *C, int64_t ldc);
atoll_err gemm_openblas(int ta, int tb, int64_t M, int64_t N, int64_t K, const float *A, int64_t lda, const float *B,
                        int64_t ldb, int beta, float *C, int64_t ldc);
/* In the order of atoll_gemm_library(). */
enum {
  GEMM_ONEDNN,
  GEMM_OPENBLAS,
  GEMM_PACKED,
#ifdef ATOLL_HAVE_LIBXSMM
  GEMM_LIBXSMM,
#endif
  GEMM_WAYS,
  GEMM_FMA_LOOP = GEMM_WAYS
};
/* Packed products, by either tile. */
static inline int gemm_packs(int way) { return way != GEMM_ONEDNN && way != GEMM_OPENBLAS; }
/* cpu_gemm() by one of atoll_gemm_library(). */
atoll_err gemm_by(int way, int threads, int ta, int tb, int64_t M, int64_t N, int64_t K, const float *A, int64_t lda,
                  const float *B, int64_t ldb, int beta, float *C, int64_t ldc, const float *bias, const gemm_end *end);
int gemm_rule(void);   /* the way for this processor when nothing was measured */
int gemm_forced(void); /* ATOLL_TEST_GEMM says which */
int gemm_way(void);    /* that is chosen */
void gemm_use(const atoll_gemm_choice *c);
const char *gemm_versions(void); /* of libraries and vectors; static */
atoll_err gemm_blocked(gemm_call call, int threads, int ta, int tb, int64_t M, int64_t N, int64_t K, const float *A,
                       int64_t lda, const float *B, int64_t ldb, int beta, float *C, int64_t ldc, const float *bias,
                       const gemm_end *end);

/* Element (i, k) of an operand lies at i outer + k inner elements; k is the index that is summed over. */
typedef struct gemm_operand {
  const void *at;
  int64_t outer, inner;
  int bf16;
} gemm_operand;

static inline const void *gemm_at(const gemm_operand *x, int64_t i, int64_t k) {
  int64_t at = i * x->outer + k * x->inner;
  return x->bf16 ? (const void *)((const uint16_t *)x->at + at) : (const void *)((const float *)x->at + at);
}

/* C[M,N] = beta C + A B + bias; C and bias are bf16 or f32 together. */
typedef struct gemm_product {
  int64_t M, N, K;
  gemm_operand A, B;
  void *C;
  int64_t ldc;
  int beta, bf16_c;
  const void *bias;   /* [N] or NULL */
  int xsmm;           /* tiles by libxsmm; C is f32 */
  const void *panels; /* of B, by gemm_panels_fill(); NULL: none */
  const gemm_end *end;
} gemm_product;

/* A tile of libxsmm: panel a x panel b to C, overwritten. NULL: there is none. */
typedef void (*gemm_xsmm_tile)(const float *b, const float *a, float *c, ...);
const char *gemm_xsmm_version(void); /* ", libxsmm 1.17"; empty without it */
gemm_xsmm_tile gemm_xsmm(int64_t rows, int64_t columns, int64_t K, int64_t ldc);

/* Tile of two panels of pairs of bf16, which follow one another in k; else like cpu_vec's gemm_tile. NULL: the
 * processor multiplies no bf16. */
typedef void (*gemm_tile_call)(int64_t steps, const float *a, const float *b, float *c, int64_t ldc, int accumulate,
                               const float *bias);
gemm_tile_call gemm_bf16_tile(void);
double gemm_bf16_loop(int64_t loops, float *sink); /* as cpu_vec's fma_loop; where there is such a tile */

/* INTERNAL: panels of another matrix. */
atoll_err gemm_packed(int threads, const gemm_product *g);
/* Panels of B [N, K] for all products with it; K > 0. */
int64_t gemm_panels_bytes(int64_t N, int64_t K);
void gemm_panels_fill(int threads, int way, int64_t N, int64_t K, const gemm_operand *B, void *panels);
int gemm_packed_serves(int64_t M, int64_t N); /* large enough for packing to pay */

/* As atoll_gemm_strided(), of those sizes that stay in the caches. */
void gemm_small(int threads, int64_t M, int64_t N, int64_t K, const float *a, int64_t a_outer, int64_t a_inner,
                const float *b, int64_t b_outer, int64_t b_inner, float *c, int64_t ldc);
int gemm_small_serves(int64_t M, int64_t N, int64_t K, int64_t a_outer, int64_t b_outer);

#endif
