/* Rates of the machine: GEMM libraries, the multiply-add peak, memory. For benchmarks and for topo's probes. */
#include "cpu_impl.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/clock.h"
#include "gemm_impl.h"
#include "kernel_impl.h"

static const char *const libraries[] = {"onednn", "openblas", "packed",
#ifdef ATOLL_HAVE_LIBXSMM
                                        "libxsmm",
#endif
                                        "fma-loop"};
#define LIBRARIES ((int)(sizeof libraries / sizeof libraries[0]))

int atoll_gemm_library(int i, const char **name) {
  if (i < 0 || i >= LIBRARIES)
    return 0;
  *name = libraries[i];
  return 1;
}

int atoll_gemm_ways(void) { return GEMM_WAYS; }

static atoll_err buffers(int64_t M, int64_t N, int64_t K, int threads, float **A, float **B, float **C) {
  const int64_t sizes[] = {M * K, N * K, M * N};
  float **p[] = {A, B, C};
  for (int k = 0; k < 3; k++) {
    *p[k] = cpu_alloc((size_t)sizes[k] * sizeof(float));
    if (!*p[k]) {
      while (k-- > 0)
        free(*p[k]);
      return atoll_fail(ATOLL_NOMEM, "no memory for matrices of %lld x %lld x %lld", (long long)M, (long long)N,
                        (long long)K);
    }
    /* Written in parallel, so that pages lie near the threads that use them; values small and various. */
    float *f = *p[k];
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < sizes[k]; i++)
      f[i] = (float)(i % 17 - 8) * 0.0625f;
  }
  return ATOLL_OK;
}

static double fma_seconds(int threads, double (*fma_loop)(int64_t, float *), double *flop) {
  enum { LOOPS = 1 << 20 };
  double total = 0, start = 0, end = 0;
#pragma omp parallel num_threads(threads) reduction(+ : total)
  {
    float sink[2] = {0.999f, 1e-7f};
    (void)fma_loop(LOOPS / 16, sink); /* up to speed */
    sink[0] = 0.999f;
#pragma omp barrier
#pragma omp master
    start = atoll_clock_now();
#pragma omp barrier
    total += LOOPS * fma_loop(LOOPS, sink);
#pragma omp barrier
#pragma omp master
    end = atoll_clock_now();
  }
  *flop = total;
  return end - start;
}

static double peak_gflops(int threads, int repetitions, double (*fma_loop)(int64_t, float *)) {
  double best = 0;
  for (int r = 0; r < repetitions; r++) {
    double flop, s = fma_seconds(threads, fma_loop, &flop);
    best = s > 0 && flop / s > best ? flop / s : best;
  }
  return best * 1e-9;
}

static atoll_err check_sizes(int64_t M, int64_t N, int64_t K, int threads, int repetitions) {
  if (M < 1 || N < 1 || K < 1 || threads < 1 || repetitions < 1)
    return atoll_fail(ATOLL_USAGE,
                      "GEMM rate of %lld x %lld x %lld with %d threads, %d repetitions: all must be positive",
                      (long long)M, (long long)N, (long long)K, threads, repetitions);
  return ATOLL_OK;
}

atoll_err atoll_gemm_bf16_rate(const char *library, int64_t M, int64_t N, int64_t K, int threads, int repetitions,
                               double *best_gflops) {
  int loop = library && !strcmp(library, libraries[GEMM_FMA_LOOP]);
  if (!library || (!loop && strcmp(library, libraries[GEMM_PACKED]) != 0))
    return atoll_fail(ATOLL_USAGE, "bf16 products by '%s' are unknown; known are packed, fma-loop",
                      library ? library : "");
  ATOLL_TRY(check_sizes(M, N, K, threads, repetitions));
  if (!atoll_gemm_bf16_units())
    return atoll_fail(ATOLL_UNSUPPORTED, "the processor has no units that multiply bf16");
  if (loop) {
    *best_gflops = peak_gflops(threads, repetitions, gemm_bf16_loop);
    return ATOLL_OK;
  }
  float *A, *B, *C; /* halves of these floats are bf16 of ordinary size, or zero */
  ATOLL_TRY(buffers(M, N, K, threads, &A, &B, &C));
  const gemm_product g = {.M = M, .N = N, .K = K, .A = {A, K, 1, 1}, .B = {B, K, 1, 1}, .C = C, .ldc = N, .bf16_c = 1};
  double least = 0;
  atoll_err err = ATOLL_OK;
  for (int r = 0; r <= repetitions && err == ATOLL_OK; r++) { /* the first turn pays page faults */
    double t = atoll_clock_now();
    err = gemm_packed(threads, &g);
    t = atoll_clock_now() - t;
    least = r <= 1 || t < least ? t : least;
  }
  free(A);
  free(B);
  free(C);
  if (err == ATOLL_OK)
    *best_gflops = 2e-9 * (double)M * (double)N * (double)K / least;
  return err;
}

atoll_err atoll_gemm_rate(const char *library, int64_t M, int64_t N, int64_t K, int threads, int repetitions,
                          double *best_gflops) {
  int which = 0;
  while (library && which < LIBRARIES && strcmp(libraries[which], library))
    which++;
  if (!library || which == LIBRARIES)
    return atoll_fail(
        ATOLL_USAGE,
        "GEMM library '%s' is unknown; known are onednn, openblas, packed, libxsmm where built with it, fma-loop",
        library ? library : "");
  ATOLL_TRY(check_sizes(M, N, K, threads, repetitions));
  double best = 0;
  if (which == GEMM_FMA_LOOP) {
    *best_gflops = peak_gflops(threads, repetitions, cpu_vec_best()->fma_loop);
    return ATOLL_OK;
  }
  float *A, *B, *C;
  ATOLL_TRY(buffers(M, N, K, threads, &A, &B, &C));
  gemm_call call = which == GEMM_OPENBLAS ? gemm_openblas : gemm_onednn;
  const gemm_product packed = {
      .M = M, .N = N, .K = K, .A = {A, K, 1, 0}, .B = {B, K, 1, 0}, .C = C, .ldc = N, .xsmm = which != GEMM_PACKED};
  atoll_err err = ATOLL_OK;
  int before = omp_get_max_threads();
  /* A library two ways: our blocks, and its own threads. The first turn of each pays page faults and code generation.
   */
  for (int r = 0; r < 2 * (repetitions + 1) && err == ATOLL_OK; r++) {
    double t = atoll_clock_now();
    if (gemm_packs(which)) {
      err = gemm_packed(threads, &packed);
    } else if (r % 2 == 0) {
      err = gemm_blocked(call, threads, 0, 1, M, N, K, A, K, B, K, 0, C, N, NULL, NULL);
    } else {
      omp_set_num_threads(threads);
      err = call(0, 1, M, N, K, A, K, B, K, 0, C, N);
      omp_set_num_threads(before);
    }
    t = atoll_clock_now() - t;
    double rate = 2.0 * (double)M * (double)N * (double)K / t;
    if (r >= 2 && t > 0 && rate > best)
      best = rate;
  }
  free(A);
  free(B);
  free(C);
  if (err == ATOLL_OK)
    *best_gflops = best * 1e-9;
  return err;
}

/* ---- topo's probes ---- */

/* One product of n x n matrices, as the kernels of that type compute it. */
static atoll_err square_product(int threads, int dtype, int64_t n, const float *A, const float *B, float *C) {
  const gemm_product g = {.M = n, .N = n, .K = n, .A = {A, n, 1, 1}, .B = {B, n, 1, 1}, .C = C, .ldc = n, .bf16_c = 1};
  return dtype == ATOLL_F32 ? cpu_gemm(threads, 0, 1, n, n, n, A, n, B, n, 0, C, n, NULL) : gemm_packed(threads, &g);
}

static atoll_err probe_gemm(atoll_device *device, int dtype, int64_t n, double *seconds, double *flop) {
  if (dtype != ATOLL_F32 && dtype != ATOLL_BF16)
    return atoll_fail(ATOLL_UNSUPPORTED, "the cpu kernels multiply f32 and bf16, not %s",
                      atoll_dtype_name((atoll_dtype)dtype));
  if (n < 1)
    return atoll_fail(ATOLL_USAGE, "GEMM probe of size %lld", (long long)n);
  int threads = atoll_device_threads(device);
  float *A, *B, *C;
  ATOLL_TRY(buffers(n, n, n, threads, &A, &B, &C));
  atoll_err err = square_product(threads, dtype, n, A, B, C); /* page faults and code generation */
  double t = atoll_clock_now();
  if (err == ATOLL_OK)
    err = square_product(threads, dtype, n, A, B, C);
  t = atoll_clock_now() - t;
  free(A);
  free(B);
  free(C);
  if (err == ATOLL_OK) {
    *seconds = t;
    *flop = 2.0 * (double)n * (double)n * (double)n;
  }
  return err;
}

/* Half of `bytes` is read, half written. */
static atoll_err probe_memory(atoll_device *device, int64_t bytes, double *seconds, double *moved) {
  enum { BLOCK = 1 << 16 };
  int64_t n = bytes / 2 / (int64_t)sizeof(float);
  if (n < BLOCK)
    return atoll_fail(ATOLL_USAGE, "memory probe of %lld bytes, expected at least %lld", (long long)bytes,
                      (long long)BLOCK * 8);
  int threads = atoll_device_threads(device);
  float *x = cpu_alloc((size_t)n * sizeof *x), *y = cpu_alloc((size_t)n * sizeof *y);
  if (!x || !y) {
    free(x);
    free(y);
    return atoll_fail(ATOLL_NOMEM, "no memory for a probe of %lld bytes", (long long)bytes);
  }
  const struct cpu_vec *v = cpu_vec_best();
  double t = 0;
  for (int turn = 0; turn < 2; turn++) { /* the first takes the page faults */
    t = atoll_clock_now();
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < n; i += BLOCK) {
      int64_t m = n - i < BLOCK ? n - i : BLOCK;
      if (turn == 0)
        memset(x + i, 0, (size_t)m * sizeof *x);
      v->scale(x + i, y + i, m);
    }
    t = atoll_clock_now() - t;
  }
  free(x);
  free(y);
  *seconds = t;
  *moved = 2.0 * (double)n * sizeof(float);
  return ATOLL_OK;
}

const atoll_rate_probe kernels_cpu_probe = {"cpu", probe_gemm, probe_memory};
const atoll_rate_probe kernels_async_probe = {"async", probe_gemm, probe_memory};
