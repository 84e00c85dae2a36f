/* Matrix product of our own: packed panels (vec_gemm.inc), shared by all threads.
 *
 * Why, beside two libraries: they pack per call and per thread, or, for blocks of the size that two threads get, not at
 * all; here each operand is packed once per product by all threads together, from any stride and from bf16 too, which
 * no library multiplies on CPUs without AVX-512. Measured over the products of a GPT-2 124M step on two Zen 3 cores, in
 * turn with the libraries: 142 GFLOP/s, OpenBLAS 136, oneDNN 134.
 *
 * Where the processor multiplies bf16 (tile_bf16.c), panels of two bf16 operands hold pairs that follow one another in
 * k, each in the place of a float: a step of a tile is then two of k.
 *
 * Tiles are our own, or libxsmm's, which has no products of this size but generates code for tiles. With AVX2 it wants
 * wider ones than ours: of 16 columns its version 1.17 makes 65 GFLOP/s on a Zen 3 core, of CPU_WIDE 86, ours 90.
 *
 * The inner dimension is cut into equal parts of at most INNER, a function of K alone, and each element's sum runs over
 * them in order: so a result depends neither on threads nor on how many rows or columns are computed beside it. */
#include <stdlib.h>

#include <pthread.h>

#include "gemm_impl.h"

/* INNER are steps. A part's panel of B columns (INNER x 16 floats) stays in the first-level cache while A panels pass,
 * CPU_PANELS of A in the second; the packed block of both, at most 12 MiB, in the third. */
enum { INNER = 512, BLOCK_M = 3072, BLOCK_N = 3072, TASK_N = 384 };

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t parts(int64_t n, int64_t most) { return (n + most - 1) / most; }

/* The packed panels of one product; the largest buffer so far is kept, so that its pages are taken once. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static float *kept;
static int64_t kept_floats;

static float *take_buffer(int64_t floats, int64_t *size) {
  float *p = NULL;
  (void)pthread_mutex_lock(&lock);
  if (kept_floats >= floats) {
    p = kept;
    *size = kept_floats;
    kept = NULL;
    kept_floats = 0;
  }
  (void)pthread_mutex_unlock(&lock);
  if (!p) {
    p = cpu_alloc((size_t)floats * sizeof *p);
    *size = floats;
  }
  return p;
}

static void give_buffer(float *p, int64_t floats) {
  (void)pthread_mutex_lock(&lock);
  if (floats > kept_floats) {
    float *smaller = kept;
    kept = p;
    kept_floats = floats;
    p = smaller;
  }
  (void)pthread_mutex_unlock(&lock);
  free(p);
}

/* Who computes tiles, of MR rows and NR columns. */
typedef struct tiles {
  const struct cpu_vec *v;
  gemm_tile_call by;
  int64_t MR, NR;
  int64_t each; /* elements of k in a step: 2 of bf16, in pairs */
  /* libxsmm's for inner parts and the last one: that overwrite C, and a tile apart. None adds to C: its sums would
   * begin at what is there, and lose more to rounding the larger that is */
  gemm_xsmm_tile xsmm[2][2];
} tiles;

enum { OVERWRITE, APART };

static tiles our_tiles(int both_bf16) {
  const struct cpu_vec *v = cpu_vec_best();
  gemm_tile_call pairs = both_bf16 ? gemm_bf16_tile() : NULL;
  return (tiles){
      .v = v, .by = pairs ? pairs : v->gemm_tile, .MR = v->gemm_rows, .NR = v->gemm_columns, .each = pairs ? 2 : 1};
}

/* Of k elements of K. */
static int64_t steps(const tiles *t, int64_t k) { return parts(k, t->each); }

/* Elements of K in all parts but the last. */
static int64_t inner_of(int64_t K, int64_t each) {
  int64_t n = parts(K, each);
  return n > 0 ? each * parts(n, parts(n, INNER)) : each;
}

/* Ours where libxsmm does not generate code for this processor. */
static tiles xsmm_tiles(int64_t K, int64_t ldc) {
  const int64_t inner = inner_of(K, 1);
  tiles t = our_tiles(0);
  t.NR = CPU_WIDE;
  for (int last = 0; last < 2; last++)
    for (int kind = OVERWRITE; kind <= APART; kind++) {
      int64_t k = last ? K - (parts(K, inner) - 1) * inner : inner;
      t.xsmm[last][kind] = gemm_xsmm(t.MR, t.NR, k, kind == APART ? t.NR : ldc);
      if (!t.xsmm[last][kind])
        return our_tiles(0);
    }
  return t;
}

/* One block of C: rows [m0, m0+m), columns [n0, n0+n), inner part [k0, k0+k). */
typedef struct block {
  int64_t m0, m, n0, n, k0, k;
  int first, last; /* of the inner parts */
  float *a, *b;    /* packed */
  float *sums;     /* of bf16 results between inner parts: [m, n] */
} block;

static void tile(const tiles *t, const gemm_product *g, const block *x, int64_t i, int64_t j) {
  const int64_t MR = t->MR, NR = t->NR, n_steps = steps(t, x->k);
  const float *a = x->a + i * n_steps, *b = x->b + j * n_steps;
  int m = (int)least(MR, x->m - i), n = (int)least(NR, x->n - j), full = m == MR && n == NR;
  int64_t at = (x->m0 + i) * g->ldc + x->n0 + j;
  void *c = g->bf16_c ? (void *)((uint16_t *)g->C + at) : (void *)((float *)g->C + at);
  float *sums = g->bf16_c ? x->sums + i * x->n + j : c, numbers[14 * CPU_WIDE]; /* the largest tile there is */
  int64_t ld = g->bf16_c ? x->n : g->ldc;
  int begun = !x->first || (!g->bf16_c && g->beta); /* sums holds a part already */
  const void *bias = !x->last || !g->bias ? NULL
                     : g->bf16_c          ? (const void *)((const uint16_t *)g->bias + x->n0 + j)
                                          : (const void *)((const float *)g->bias + x->n0 + j);
  int finish = x->last && (g->bf16_c || (bias && (!full || t->xsmm[0][0])));
  int apart = finish || !full || (t->xsmm[0][0] && begun);
  float *to = apart ? numbers : sums;
  if (t->xsmm[0][0])
    t->xsmm[x->last][apart ? APART : OVERWRITE](b, a, to);
  else
    t->by(n_steps, a, b, to, apart ? NR : ld, !apart && begun, finish ? NULL : bias);
  if (finish)
    t->v->gemm_finish(numbers, (int)NR, m, n, begun ? sums : NULL, ld, g->bf16_c && g->beta, bias, g->bf16_c, c,
                      g->ldc);
  else if (apart)
    t->v->gemm_finish(numbers, (int)NR, m, n, begun ? sums : NULL, ld, 0, NULL, 0, sums, ld);
}

/* Panels of P of n rows or columns. */
static void pack_some(const tiles *t, const gemm_operand *x, int64_t i, int64_t n, int64_t k0, int64_t k, int64_t P,
                      float *to) {
  if (t->each == 2)
    t->v->gemm_pack_pairs(gemm_at(x, i, k0), x->outer, x->inner, n, k, (int)P, to);
  else
    t->v->gemm_pack(gemm_at(x, i, k0), x->bf16, x->outer, x->inner, n, k, (int)P, to);
}

/* By all threads of a team; none waits for the others. */
static void pack_columns(const tiles *t, const gemm_operand *B, int64_t n0, int64_t n, int64_t k0, int64_t k,
                         float *to) {
  const int64_t columns = 64 / t->NR * t->NR; /* panels that lines are read for at a time */
#pragma omp for schedule(dynamic, 1) nowait
  for (int64_t j = 0; j < n; j += columns)
    pack_some(t, B, n0 + j, least(columns, n - j), k0, k, t->NR, to + j * steps(t, k));
}

/* Like compute(), ends on all threads of a team together. */
static void pack(const tiles *t, const gemm_product *g, const block *x) {
  const int64_t rows = 8 * t->MR;
  if (!g->panels)
    pack_columns(t, &g->B, x->n0, x->n, x->k0, x->k, x->b);
#pragma omp for schedule(dynamic, 1)
  for (int64_t i = 0; i < x->m; i += rows)
    pack_some(t, &g->A, x->m0 + i, least(rows, x->m - i), x->k0, x->k, t->MR, x->a + i * steps(t, x->k));
}

/* Panels that are kept come from memory, where packing would have left them in the caches: one of so many tiles by a
 * panel fetches its share of the next one. */
static void fetch_next(const tiles *t, const block *x, int64_t j, int64_t share, int64_t shares) {
  const int64_t floats = t->NR * steps(t, x->k), line = 64 / (int64_t)sizeof(float);
  const float *next = x->b + (j + t->NR) * steps(t, x->k);
  for (int64_t at = floats * share / shares; j + t->NR < x->n && at < floats * (share + 1) / shares; at += line)
    __builtin_prefetch(next + at, 0, 2);
}

static void compute(const tiles *t, const gemm_product *g, const block *x) {
  const int64_t step_m = CPU_PANELS * t->MR, step_n = TASK_N / t->NR * t->NR, rows = parts(x->m, step_m);
#pragma omp for schedule(dynamic, 1)
  for (int64_t p = 0; p < rows * parts(x->n, step_n); p++) {
    int64_t i0 = p % rows * step_m, j0 = p / rows * step_n, end = least(x->m, i0 + step_m);
    for (int64_t j = j0; j < least(x->n, j0 + step_n); j += t->NR)
      for (int64_t i = i0; i < end; i += t->MR) {
        if (g->panels)
          fetch_next(t, x, j, (i - i0) / t->MR, parts(end - i0, t->MR));
        tile(t, g, x, i, j);
      }
    if (x->last)
      gemm_end_run(g->end, x->m0 + i0, end - i0, x->n0 + j0, least(x->n, j0 + step_n) - j0);
  }
}

int gemm_packed_serves(int64_t M, int64_t N) {
  enum { LEAST = 32 }; /* of fewer rows or columns packing costs more than it saves */
  return M >= LEAST && N >= LEAST;
}

/* Panels that are kept: behind this, for one part of k after the other those of all columns, whose number is rounded up
 * to that of the widest tiles' so that bytes do not depend on the processor; pairs of bf16 leave half of them unused.
 */
typedef struct panels_head {
  int64_t N, K, NR, each, unused[4];
} panels_head;

int64_t gemm_panels_bytes(int64_t N, int64_t K) {
  return (int64_t)sizeof(panels_head) + parts(N, CPU_WIDE) * CPU_WIDE * K * (int64_t)sizeof(float);
}

static float *panels_part(const void *panels, const tiles *t, int64_t N, int64_t k0) {
  return (float *)((char *)(uintptr_t)panels + sizeof(panels_head)) + parts(N, t->NR) * t->NR * steps(t, k0);
}

void gemm_panels_fill(int threads, int way, int64_t N, int64_t K, const gemm_operand *B, void *panels) {
  const tiles t = way == GEMM_PACKED ? our_tiles(B->bf16) : xsmm_tiles(K, N);
  const int64_t inner = inner_of(K, t.each);
  *(panels_head *)panels = (panels_head){.N = N, .K = K, .NR = t.NR, .each = t.each};
#pragma omp parallel num_threads(threads)
  for (int64_t k0 = 0; k0 < K; k0 += inner)
    pack_columns(&t, B, 0, N, k0, least(inner, K - k0), panels_part(panels, &t, N, k0));
}

/* Of the product, made for its tiles, or NULL: tiles of libxsmm depend on the result's rows, too. */
static atoll_err usable_panels(const gemm_product *g, const tiles *t, const void **out) {
  const panels_head *head = g->panels;
  if (head && (head->N != g->N || head->K != g->K))
    return atoll_fail(ATOLL_INTERNAL, "panels of a %lld x %lld matrix for one of %lld x %lld", (long long)head->N,
                      (long long)head->K, (long long)g->N, (long long)g->K);
  *out = head && head->NR == t->NR && head->each == t->each ? head : NULL;
  return ATOLL_OK;
}

/* One buffer: two in turn would save a barrier, and have the cores share their third-level cache with twice as much. */
atoll_err gemm_packed(int threads, const gemm_product *asked) {
  gemm_product with = *asked, *g = &with;
  if (g->M == 0 || g->N == 0)
    return ATOLL_OK;
  const tiles t = g->xsmm && g->K > 0 ? xsmm_tiles(g->K, g->ldc) : our_tiles(g->A.bf16 && g->B.bf16);
  int64_t inner = inner_of(g->K, t.each);
  ATOLL_TRY(usable_panels(asked, &t, &g->panels));
  int64_t m = least(g->M, BLOCK_M), n = g->panels ? 0 : least(g->N, BLOCK_N);
  int64_t a = (parts(m, t.MR) * t.MR) * steps(&t, inner), b = (parts(n, t.NR) * t.NR) * steps(&t, inner);
  a = parts(a, 16) * 16, b = parts(b, 16) * 16;
  int64_t size, sums = g->bf16_c && inner < g->K ? m * least(g->N, BLOCK_N) : 0;
  float *buffer = take_buffer(a + b + sums, &size);
  if (!buffer)
    return atoll_fail(ATOLL_NOMEM, "no memory to pack a product of %lld x %lld x %lld", (long long)g->M,
                      (long long)g->N, (long long)g->K);
  int64_t tasks = parts(g->M, CPU_PANELS * t.MR) * parts(g->N, TASK_N);
#pragma omp parallel num_threads(tasks < threads ? (int)tasks : threads)
  for (int64_t n0 = 0; n0 < g->N; n0 += BLOCK_N)
    for (int64_t m0 = 0; m0 < g->M; m0 += BLOCK_M)
      for (int64_t k0 = 0; k0 == 0 || k0 < g->K; k0 += inner) { /* once also when there is nothing to sum */
        block x = {.m0 = m0, .m = least(BLOCK_M, g->M - m0), .n0 = n0, .n = least(BLOCK_N, g->N - n0)};
        x.k0 = k0, x.k = least(inner, g->K - k0), x.first = k0 == 0, x.last = k0 + x.k == g->K;
        x.a = buffer, x.b = buffer + a, x.sums = buffer + a + b;
        if (g->panels)
          x.b = panels_part(g->panels, &t, g->N, k0) + n0 * steps(&t, x.k);
        pack(&t, g, &x);
        compute(&t, g, &x);
      }
  give_buffer(buffer, size);
  return ATOLL_OK;
}
