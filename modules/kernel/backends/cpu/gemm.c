/* Matrix products of the cpu backend.
 *
 * A product is cut into blocks of rows and columns whose sizes depend on the shape alone; each block is one call of a
 * library, made by one OpenMP thread and running on that thread only (both libraries stay sequential when called where
 * one thread is allowed). The inner dimension is never split between threads. So the result is the same, bit for bit,
 * for any number of threads.
 *
 * Which way: as atoll_gemm_choose() measured, else by a rule that follows measurements (atoll_gemm_rate() repeats
 * them).
 *   - AVX2 without AVX-512: packed products of our own (gemm_packed.c); products of few rows or columns go to oneDNN.
 *   - AVX-512: oneDNN, which generates code for it; OpenBLAS 0.3.21 does not know CPUs newer than itself and obeys
 *     OPENBLAS_CORETYPE, which sites set.
 *   - outside x86-64: OpenBLAS; oneDNN falls back to plain loops there.
 * Products of bf16 are packed ones of our own everywhere; of AVX512_BF16's units where there are some (tile_bf16.c).
 * ATOLL_TEST_GEMM=packed|onednn|openblas|libxsmm overrides. */
#include "cpu_impl.h"

#include <cblas.h>
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gemm_impl.h"
#include "kernel_impl.h"

atoll_err gemm_onednn(int ta, int tb, int64_t M, int64_t N, int64_t K, const float *A, int64_t lda, const float *B,
                      int64_t ldb, int beta, float *C, int64_t ldc) {
  dnnl_status_t s = dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', M, N, K, 1, A, lda, B, ldb, (float)beta, C, ldc);
  if (s != dnnl_success)
    return atoll_fail(s == dnnl_out_of_memory ? ATOLL_NOMEM : ATOLL_INTERNAL,
                      "oneDNN sgemm %lld x %lld x %lld failed with status %d", (long long)M, (long long)N, (long long)K,
                      (int)s);
  return ATOLL_OK;
}

atoll_err gemm_openblas(int ta, int tb, int64_t M, int64_t N, int64_t K, const float *A, int64_t lda, const float *B,
                        int64_t ldb, int beta, float *C, int64_t ldc) {
  const int64_t sizes[] = {M, N, K, lda, ldb, ldc};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
    if (sizes[i] != (blasint)sizes[i])
      return atoll_fail(ATOLL_UNSUPPORTED, "OpenBLAS was built for 32-bit sizes; the product needs %lld",
                        (long long)sizes[i]);
  cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, (blasint)M, (blasint)N,
              (blasint)K, 1, A, (blasint)lda, B, (blasint)ldb, (float)beta, C, (blasint)ldc);
  return ATOLL_OK;
}

static struct {
  int way, forced;
  char text[320];
} chosen;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static const char *onednn_isa(void) {
  switch ((int)dnnl_get_effective_cpu_isa()) {
  case dnnl_cpu_isa_sse41:
    return "sse4.1";
  case dnnl_cpu_isa_avx:
    return "avx";
  case dnnl_cpu_isa_avx2:
    return "avx2";
  case dnnl_cpu_isa_avx2_vnni:
    return "avx2_vnni";
  case dnnl_cpu_isa_avx512_core:
    return "avx512_core";
  case dnnl_cpu_isa_avx512_core_vnni:
    return "avx512_core_vnni";
  case dnnl_cpu_isa_avx512_core_bf16:
    return "avx512_core_bf16";
  case dnnl_cpu_isa_avx512_core_amx:
    return "avx512_core_amx";
  default:
    return "isa unnamed";
  }
}

int atoll_gemm_bf16_units(void) { return gemm_bf16_tile() != NULL; }

static int way_named(const char *name) {
  const char *known;
  for (int i = 0; name && i < GEMM_WAYS && atoll_gemm_library(i, &known); i++)
    if (!strcmp(name, known))
      return i;
  return -1;
}

int gemm_forced(void) { return way_named(getenv("ATOLL_TEST_GEMM")) >= 0; }

int gemm_rule(void) {
  int wanted = way_named(getenv("ATOLL_TEST_GEMM"));
  if (wanted >= 0)
    return wanted;
#if defined(__x86_64__)
  return cpu_vec_best()->width == 8 ? GEMM_PACKED : GEMM_ONEDNN;
#else
  return GEMM_OPENBLAS;
#endif
}

static const char *why(void) {
  if (gemm_forced())
    return "ATOLL_TEST_GEMM";
#if defined(__x86_64__)
  return cpu_vec_best()->width == 8 ? "the CPU has AVX2 and no AVX-512" : "it generates code for this CPU";
#else
  return "oneDNN has no fast f32 code outside x86-64";
#endif
}

/* Products of few rows or columns, where packing costs more than it saves, are a library's; so are all, where no way is
 * packed. */
static gemm_call library_of(int way) {
#if defined(__x86_64__)
  return way == GEMM_OPENBLAS ? gemm_openblas : gemm_onednn;
#else
  return way == GEMM_ONEDNN ? gemm_onednn : gemm_openblas;
#endif
}

static void library_text(int way, char *to, size_t n) {
  const dnnl_version_t *v = dnnl_version();
  if (library_of(way) == gemm_onednn)
    (void)snprintf(to, n, "oneDNN %d.%d.%d %s", v->major, v->minor, v->patch, onednn_isa());
  else
    (void)snprintf(to, n, "OpenBLAS %s", openblas_get_corename());
}

const char *gemm_versions(void) {
  static char text[192]; /* every caller writes the same bytes */
  char onednn[64], openblas[64];
  library_text(GEMM_ONEDNN, onednn, sizeof onednn);
  library_text(GEMM_OPENBLAS, openblas, sizeof openblas);
  (void)snprintf(text, sizeof text, "%s, %s, packed %s%s", onednn, openblas, cpu_vec_best()->name, gemm_xsmm_version());
  return text;
}

static void use(int way, const char *because) {
  char library[96];
  library_text(way, library, sizeof library);
  const char *bf16 = gemm_bf16_tile() ? ", bf16 by AVX512_BF16" : "";
  chosen.way = way;
  chosen.forced = gemm_forced();
  if (gemm_packs(way))
    (void)snprintf(
        chosen.text, sizeof chosen.text, "cpu: GEMM by packed tiles %s (%s), few rows or columns by %s%s; vectors %s",
        way == GEMM_PACKED ? cpu_vec_best()->name : "of libxsmm", because, library, bf16, cpu_vec_best()->name);
  else
    (void)snprintf(chosen.text, sizeof chosen.text, "cpu: GEMM by %s (%s)%s; vectors %s", library, because, bf16,
                   cpu_vec_best()->name);
}

static void use_rule(void) { use(gemm_rule(), why()); }

void gemm_use(const atoll_gemm_choice *c) {
  char because[128];
  (void)pthread_once(&once, use_rule);
  if (c->gflops[c->way] > 0) {
    int n = snprintf(because, sizeof because, "%s: packed %.0f, oneDNN %.0f, OpenBLAS %.0f",
                     c->remembered ? "as measured before" : "measured", c->gflops[GEMM_PACKED], c->gflops[GEMM_ONEDNN],
                     c->gflops[GEMM_OPENBLAS]);
    for (int way = GEMM_PACKED + 1; way < GEMM_WAYS; way++)
      n += snprintf(because + n, sizeof because - (size_t)n, ", libxsmm %.0f", c->gflops[way]);
    (void)snprintf(because + n, sizeof because - (size_t)n, " GFLOP/s");
    use(c->way, because);
  }
}

const char *kernels_cpu_describe(void) {
  (void)pthread_once(&once, use_rule);
  return chosen.text;
}

int gemm_way(void) {
  (void)pthread_once(&once, use_rule);
  return chosen.way;
}

/* Blocks large enough that packing costs little (a block of m x n packs (m + n) k numbers for m n k multiply-adds),
 * small enough to stay in cache with their strips, and at least BLOCKS_LEAST where the shape allows, so that they share
 * out over threads. Of the grids with the fewest blocks the one that packs least. */
enum { BLOCKS_LEAST = 8, ROWS_MOST = 512, COLS_MOST = 768, ROWS_UNIT = 16, COLS_UNIT = 48 };

static int64_t part(int64_t n, int64_t parts, int64_t unit) {
  int64_t size = (n + parts - 1) / parts;
  return (size + unit - 1) / unit * unit;
}

static void block_sizes(int64_t M, int64_t N, int64_t *mb, int64_t *nb) {
  int64_t least = INT64_MAX;
  for (int rows = 1; rows <= BLOCKS_LEAST; rows *= 2) {
    int64_t m = part(M, rows, ROWS_UNIT), n = part(N, BLOCKS_LEAST / rows, COLS_UNIT);
    m = m < ROWS_MOST ? m : part(M, (M + ROWS_MOST - 1) / ROWS_MOST, ROWS_UNIT);
    n = n < COLS_MOST ? n : part(N, (N + COLS_MOST - 1) / COLS_MOST, COLS_UNIT);
    int64_t packed = ((M + m - 1) / m) * ((N + n - 1) / n) * (m + n);
    if (packed < least) {
      least = packed;
      *mb = m;
      *nb = n;
    }
  }
}

static void add_bias(const float *bias, float *C, int64_t ldc, int64_t m, int64_t n) {
  const struct cpu_vec *v = cpu_vec_best();
  for (int64_t i = 0; i < m; i++)
    v->add(bias, C + i * ldc, n);
}

atoll_err gemm_blocked(gemm_call call, int threads, int ta, int tb, int64_t M, int64_t N, int64_t K, const float *A,
                       int64_t lda, const float *B, int64_t ldb, int beta, float *C, int64_t ldc, const float *bias,
                       const gemm_end *end) {
  if (M <= 0 || N <= 0)
    return ATOLL_OK;
  int64_t mb = M, nb = N;
  block_sizes(M, N, &mb, &nb);
  int64_t rows = (M + mb - 1) / mb, blocks = rows * ((N + nb - 1) / nb);
  static pthread_mutex_t failing = PTHREAD_MUTEX_INITIALIZER;
  /* The first failure of any thread; its message is recorded again on this one. */
  atoll_err err = ATOLL_OK;
  char message[256] = "";
  if ((int64_t)threads > blocks)
    threads = (int)blocks;
#pragma omp parallel num_threads(threads)
  {
    omp_set_num_threads(
        1); /* of this thread's own setting: the library must not start a team, even in a region of one */
#pragma omp for schedule(dynamic, 1)
    for (int64_t k = 0; k < blocks; k++) {
      int64_t m0 = k % rows * mb, n0 = k / rows * nb;
      int64_t m = M - m0 < mb ? M - m0 : mb, n = N - n0 < nb ? N - n0 : nb;
      float *c = C + m0 * ldc + n0;
      atoll_err e = call(ta, tb, m, n, K, A + (ta ? m0 : m0 * lda), lda, B + (tb ? n0 * ldb : n0), ldb, beta, c, ldc);
      if (e == ATOLL_OK && bias)
        add_bias(bias + n0, c, ldc, m, n);
      if (e == ATOLL_OK)
        gemm_end_run(end, m0, m, n0, n);
      if (e != ATOLL_OK) {
        (void)pthread_mutex_lock(&failing); /* not an omp critical: its symbol would be exported */
        if (err == ATOLL_OK) {
          err = e;
          snprintf(message, sizeof message, "%s", atoll_err_message());
        }
        (void)pthread_mutex_unlock(&failing);
      }
    }
  }
  return err == ATOLL_OK ? ATOLL_OK : atoll_fail(err, "%s", message);
}

atoll_err gemm_by(int way, int threads, int ta, int tb, int64_t M, int64_t N, int64_t K, const float *A, int64_t lda,
                  const float *B, int64_t ldb, int beta, float *C, int64_t ldc, const float *bias,
                  const gemm_end *end) {
  if (K == 0) { /* an empty sum; libraries differ in what they do with it */
    for (int64_t i = 0; i < M; i++)
      for (int64_t j = 0; j < N; j++)
        C[i * ldc + j] = (beta ? C[i * ldc + j] : 0) + (bias ? bias[j] : 0);
    gemm_end_run(end, 0, M, 0, N);
    return ATOLL_OK;
  }
  if (gemm_packs(way) && gemm_packed_serves(M, N)) {
    const gemm_product g = {.M = M,
                            .N = N,
                            .K = K,
                            .A = {A, ta ? 1 : lda, ta ? lda : 1, 0},
                            .B = {B, tb ? ldb : 1, tb ? 1 : ldb, 0},
                            .C = C,
                            .ldc = ldc,
                            .beta = beta,
                            .bias = bias,
                            .end = end,
                            .xsmm = way != GEMM_PACKED};
    return gemm_packed(threads, &g);
  }
  return gemm_blocked(library_of(way), threads, ta, tb, M, N, K, A, lda, B, ldb, beta, C, ldc, bias, end);
}

atoll_err cpu_gemm(int threads, int ta, int tb, int64_t M, int64_t N, int64_t K, const float *A, int64_t lda,
                   const float *B, int64_t ldb, int beta, float *C, int64_t ldc, const float *bias) {
  return gemm_by(gemm_way(), threads, ta, tb, M, N, K, A, lda, B, ldb, beta, C, ldc, bias, NULL);
}

/* Rows of x or columns of them as libraries want them: 1 when `n` rows of `k` lie `*ld` apart, 2 when transposed; 0:
 * neither. */
static int layout_of(int64_t n, int64_t k, int64_t outer, int64_t inner, int64_t *ld) {
  if ((inner == 1 || k == 1) && (outer >= k || n == 1)) {
    *ld = n == 1 ? k : outer;
    return 1;
  }
  *ld = k == 1 ? n : inner;
  return (outer == 1 || n == 1) && *ld >= n ? 2 : 0;
}

atoll_err atoll_gemm_strided(int threads, int64_t M, int64_t N, int64_t K, const float *a, int64_t a_outer,
                             int64_t a_inner, const float *b, int64_t b_outer, int64_t b_inner, float *c, int64_t ldc) {
  int64_t lda, ldb;
  (void)pthread_once(&once, use_rule);
  if (!chosen.forced && K > 0 && gemm_small_serves(M, N, K, a_outer, b_outer)) {
    gemm_small(threads, M, N, K, a, a_outer, a_inner, b, b_outer, b_inner, c, ldc);
    return ATOLL_OK;
  }
  int rows = layout_of(M, K, a_outer, a_inner, &lda), columns = layout_of(N, K, b_outer, b_inner, &ldb);
  if (K > 0 && (!rows || !columns)) {
    const gemm_product g = {
        .M = M, .N = N, .K = K, .A = {a, a_outer, a_inner, 0}, .B = {b, b_outer, b_inner, 0}, .C = c, .ldc = ldc};
    return gemm_packed(threads, &g);
  }
  if (!gemm_packed_serves(M, N) && rows == 1 && columns == 1 && lda == K && ldb == K && ldc == N)
    return cpu_decode_linear(threads, a, b, NULL, c, M, K, N);
  return cpu_gemm(threads, rows == 2, columns == 1, M, N, K, a, lda, b, ldb, 0, c, ldc, NULL);
}
