/* A CTA-pipelined chain of GEMMs for GPUs, bf16 with f32 sums, on mma.sync m16n8k16 and cp.async, from sm_80 on. One
 * source: nvcc compiles it for GPUs, a C++ compiler with host_shim.h for tests, where every thread of a block is a
 * POSIX thread and warp instructions exchange registers between them.
 *
 * Every rank launches one grid with the same list of jobs: products C[M,N] = activation(A[M,K] B[N,K]^T + bias),
 * products back through a slope, and gradients of weights C[M,N] = A[K,M]^T B[K,N]. The protocol is the host's
 * (src/view.h, src/pipeline.c): a flag per tile, holding the epoch in which it was made, never reset, in the memory of
 * the GPU that consumes the tile. Producer: stores, block barrier, fence, release store at system scope. Consumer: one
 * thread's acquire loads inside the loop over k, before the tile is fetched, then a block barrier. Tiles are taken from
 * a claim word a job, in its owner's memory: turn << 32 | tiles taken, a word of another turn counting from zero. A
 * block prefers tiles of its own rank's jobs whose inputs are there, deepest job first, then others'; then it takes
 * tiles whose inputs have been taken and waits. With claims a block waits only for tiles that running blocks compute,
 * so the grid need not fit the GPU at once; without them the blocks of a rank wait for another GPU's grid. Spins can be
 * bounded; who gives up sets a word that ends every block.
 *
 * A SwiGLU layer multiplies by both its matrices at once: 32 rows of V and 32 of W take turns in B, so a tile of
 * products is 32 columns of each, side by side, and 32 columns of C. Its backward makes from a tile of gradients both
 * products' ones in the same order: 128 columns of C. Products and their gradients, kept so, are factors like others.
 *
 * Where the link has no atomics a tile may be taken twice: both give the same bits.
 *
 * Widths are multiples of 8 (16-byte copies), pointers are 16-byte aligned; the number of rows is free. */
#ifndef ATOLL_CTA_TILE_GEMM_CUH
#define ATOLL_CTA_TILE_GEMM_CUH

#ifdef ATOLL_CTA_HOST
#include "host_shim.h"
#else
#include <cuda_bf16.h>
#include <stdint.h>
#include "device_words.cuh"
#endif

enum { CTA_BM = 64, CTA_BN = 64, CTA_BK = 32, CTA_THREADS = 128, CTA_FLAG_STRIDE = 32 /* words: 128 bytes */ };
enum { CTA_JOBS = 16, CTA_GATE = 32 /* columns of V, then of W */ };
enum { CTA_NONE, CTA_RELU, CTA_GELU, CTA_GELU_ERF, CTA_SWIGLU }; /* as atoll_activation */

struct cta_job {
  const bf16 *A, *B; /* [M, K] and [N, K]; of a weight [K, M] and [K, N] */
  void *C; /* [M, N] bf16, of a weight f32; of a gate [M, N / 2], of its slope [M, 2 N]; may be another GPU's */
  const float *bias; /* [N], NULL: none */
  float *column;     /* [M] of a weight: sums of A's columns; NULL: not wanted */
  bf16 *before;      /* [M, N]: what the activation is applied to; NULL: not kept */
  const bf16 *at;    /* [M, N]: where the slope is taken: inputs of a GELU, results of a ReLU */
  int M, N, K, weight, activation, slope;
  int from, own;            /* the job that makes A, -1: A is whole; whether this rank owns the job */
  const uint32_t *ready_in; /* of A's tiles [panels of rows, tiles of columns] ... */
  int ready_columns;        /* ... of so many columns */
  uint32_t *ready_out;      /* of C's tiles, beside C; NULL: nobody waits */
  uint64_t *claim;
};

struct cta_chain {
  struct cta_job job[CTA_JOBS];
  int jobs, products; /* products first */
  int claims;         /* this rank takes tiles of others' jobs */
  int group;          /* panels that share a pass over B */
  uint32_t epoch, turn;
  uint32_t *gave_up; /* 0; what is set ends all blocks that share it */
  uint64_t spins;    /* most polls for one tile; 0: no bound */
};

static CTA_DEVICE int cta_ceil(int a, int b) { return (a + b - 1) / b; }
static CTA_DEVICE uint32_t cta_items(const struct cta_job *g) {
  return (uint32_t)(cta_ceil(g->M, CTA_BM) * cta_ceil(g->N, CTA_BN));
}

/* --- what to do next ---------------------------------------------------------------------------------------------- */

/* Panel and column of the i-th tile; those of a weight that share A's columns are neighbours. */
static CTA_DEVICE void cta_place(const struct cta_chain *p, const struct cta_job *g, uint32_t i, int *m, int *n) {
  int panels = cta_ceil(g->M, CTA_BM), cols = cta_ceil(g->N, CTA_BN), per = p->group * cols;
  int first = (int)i / per * p->group, rest = (int)i % per;
  int size = panels - first < p->group ? panels - first : p->group;
  *m = g->weight ? (int)i / cols : first + rest % size;
  *n = g->weight ? (int)i % cols : rest / size;
}

/* Tiles of a product up to the last one of panel m. */
static CTA_DEVICE uint32_t cta_through(const struct cta_chain *p, const struct cta_job *g, int m) {
  int panels = cta_ceil(g->M, CTA_BM), cols = cta_ceil(g->N, CTA_BN), first = m / p->group * p->group;
  int size = panels - first < p->group ? panels - first : p->group;
  return (uint32_t)(first * cols + (cols - 1) * size + m - first + 1);
}

static CTA_DEVICE uint32_t cta_counted(const struct cta_chain *p, uint64_t word) {
  return word >> 32 == p->turn ? (uint32_t)word : 0;
}
/* These are called by a whole warp, which agrees on what its first lane saw. */
static CTA_DEVICE uint32_t cta_taken(const struct cta_chain *p, const struct cta_job *g) {
  return cta_first(cta_counted(p, cta_load_word(g->claim)));
}
static CTA_DEVICE int cta_take(const struct cta_chain *p, const struct cta_job *g, uint32_t item) {
  uint32_t got = 0;
  if (threadIdx.x == 0) {
    uint64_t word = cta_load_word(g->claim);
    got = cta_counted(p, word) == item && cta_swap_word(g->claim, word, (uint64_t)p->turn << 32 | (item + 1));
  }
  return (int)cta_first(got);
}

/* What of k a flag stands for, and flag q of those that a tile of row panel m, or a weight's of A's columns m, waits
 * for. */
static CTA_DEVICE int cta_flag_depth(const struct cta_job *g) { return g->weight ? CTA_BM : g->ready_columns; }
static CTA_DEVICE const uint32_t *cta_flag_in(const struct cta_job *g, int m, int q) {
  int at = g->weight ? q * cta_ceil(g->M, g->ready_columns) + m * CTA_BM / g->ready_columns
                     : m * cta_ceil(g->K, g->ready_columns) + q;
  return g->ready_in + (size_t)at * CTA_FLAG_STRIDE;
}

static CTA_DEVICE int cta_may_begin(const struct cta_chain *p, const struct cta_job *g, uint32_t item, int early) {
  int m, n, there = 1, flags = g->ready_in ? cta_ceil(g->K, cta_flag_depth(g)) : 0;
  cta_place(p, g, item, &m, &n);
  if (early) {
    if (!g->ready_in)
      return 0; /* was there before */
    const struct cta_job *from = &p->job[g->from];
    return p->claims ? cta_taken(p, from) >= (g->weight ? cta_items(from) : cta_through(p, from, m)) : !from->own;
  }
  for (int q = (int)threadIdx.x; q < flags; q += 32)
    there &= (int32_t)(cta_load_relaxed(cta_flag_in(g, m, q)) - p->epoch) >= 0;
  return cta_all(there);
}

/* The job that an item was taken of, or -1. *left counts jobs that still have any. */
static CTA_DEVICE int cta_look(const struct cta_chain *p, int own, int early, int *left, uint32_t *item) {
  for (int i = 0; i < p->jobs; i++) {
    int j = i < p->products ? p->products - 1 - i : i; /* nobody waits for gradients of weights */
    const struct cta_job *g = &p->job[j];
    if (g->own != own)
      continue;
    *item = cta_taken(p, g);
    if (*item >= cta_items(g))
      continue;
    ++*left;
    if (cta_may_begin(p, g, *item, early) && cta_take(p, g, *item))
      return j;
  }
  return -1;
}

/* The next tile's job, waiting until one can be begun; -1: no more, or it gave up. Called by the first warp. */
static CTA_DEVICE int cta_find(const struct cta_chain *p, uint32_t *item) {
  for (uint64_t i = 0; !cta_first(cta_load_relaxed(p->gave_up)); i++) {
    int left = 0, found = -1;
    for (int early = 0; early < 2 && found < 0; early++)
      for (int own = 1; own >= !p->claims && found < 0; own--)
        found = cta_look(p, own, early, &left, item);
    if (found >= 0 || !left)
      return found;
    if (p->spins && i >= p->spins && threadIdx.x == 0)
      cta_store_release(p->gave_up, 1);
    cta_pause();
  }
  return -1;
}

/* 0 when it gave up. Called by one thread. */
static CTA_DEVICE int cta_poll(const struct cta_chain *p, const uint32_t *flag) {
  for (uint64_t i = 0; (int32_t)(cta_load_acquire(flag) - p->epoch) < 0; i++) {
    if (cta_load_relaxed(p->gave_up))
      return 0;
    if (p->spins && i >= p->spins) {
      cta_store_release(p->gave_up, 1);
      return 0;
    }
    cta_pause();
  }
  return 1;
}

/* --- one tile ----------------------------------------------------------------------------------------------------- */

/* In shared memory rows of 32 columns are four chunks of 16 bytes; chunk c of row r lies at c ^ (r / 2 % 4), so that
 * neither the copies nor ldmatrix meet one bank twice. Rows of 64 columns, for a weight, are eight, at c ^ r % 8. */
static CTA_DEVICE int cta_chunk(int row, int chunk) { return row * CTA_BK + (chunk ^ ((row >> 1) & 3)) * 8; }
static CTA_DEVICE int cta_chunk_turned(int row, int chunk) { return row * CTA_BM + (chunk ^ (row & 7)) * 8; }

/* Rows [r0, r0 + 64) and columns [c0, c0 + 32) of x [rows, columns], or 32 rows and 64 columns, to shared memory; what
 * lies outside is zero. */
static CTA_DEVICE void cta_fetch(bf16 *to, const bf16 *x, int r0, int rows, int c0, int columns, int turned) {
  int chunks = (turned ? CTA_BM : CTA_BK) / 8;
  for (int i = (int)threadIdx.x; i < CTA_BM * CTA_BK / 8; i += CTA_THREADS) {
    int r = i / chunks, c = i % chunks, inside = r0 + r < rows && c0 + c * 8 < columns;
    cta_copy16(to + (turned ? cta_chunk_turned(r, c) : cta_chunk(r, c)),
               inside ? x + (size_t)(r0 + r) * (size_t)columns + c0 + c * 8 : x, inside ? 16 : 0);
  }
  cta_copy_commit();
}

static CTA_DEVICE void cta_fetch_step(const struct cta_job *g, bf16 *stage, int m, int n, int k0) {
  bf16 *b = stage + CTA_BM * CTA_BK;
  if (g->weight) {
    cta_fetch(stage, g->A, k0, g->K, m * CTA_BM, g->M, 1);
    cta_fetch(b, g->B, k0, g->K, n * CTA_BN, g->N, 1);
  } else {
    cta_fetch(stage, g->A, m * CTA_BM, g->M, k0, g->K, 0);
    cta_fetch(b, g->B, n * CTA_BN, g->N, k0, g->K, 0);
  }
}

/* 32 x 32 of the tile to each of four warps, 32 columns of k, or rows where a and b lie turned. */
static CTA_DEVICE void cta_multiply(float d[2][4][4], const bf16 *a, const bf16 *b, int wm, int wn, int lane,
                                    int turned) {
  CTA_UNROLL
  for (int k = 0; k < CTA_BK / 8; k += 2) {
    uint32_t x[2][4], y[2][4];
    CTA_UNROLL
    for (int i = 0; i < 2; i++)
      if (turned)
        cta_ldmatrix_turned(
            x[i], a + cta_chunk_turned(k * 8 + (lane & 7) + ((lane >> 4) << 3), wm / 8 + i * 2 + ((lane >> 3) & 1)));
      else
        cta_ldmatrix(x[i], a + cta_chunk(wm + i * 16 + (lane & 15), k + (lane >> 4)));
    CTA_UNROLL
    for (int j = 0; j < 2; j++)
      if (turned)
        cta_ldmatrix_turned(y[j], b + cta_chunk_turned(k * 8 + (lane & 15), wn / 8 + j * 2 + (lane >> 4)));
      else
        cta_ldmatrix(y[j], b + cta_chunk(wn + j * 16 + (lane & 7) + ((lane >> 4) << 3), k + ((lane >> 3) & 1)));
    CTA_UNROLL
    for (int i = 0; i < 8; i++)
      cta_mma(d[i / 4][i % 4], x[i / 4], &y[i % 4 / 2][i % 2 * 2]);
  }
}

/* All of k; 0 when a wait gave up. *sum of thread t < 64 is that of column t of a weight's A. */
static CTA_DEVICE int cta_sums(const struct cta_chain *p, const struct cta_job *g, bf16 *tiles, uint32_t *said, int m,
                               int n, float d[2][4][4], float *sum) {
  int warp = (int)threadIdx.x >> 5, lane = (int)threadIdx.x & 31, wm = (warp & 1) * 32, wn = (warp >> 1) * 32;
  const int steps = cta_ceil(g->K, CTA_BK), half = (CTA_BM + CTA_BN) * CTA_BK;
  for (int k = -1; k < steps; k++) { /* fetch step k + 1 while step k is multiplied */
    if (k + 1 < steps) {
      int k0 = (k + 1) * CTA_BK;
      if (g->ready_in && k0 % cta_flag_depth(g) == 0) {
        if (threadIdx.x == 0)
          said[1] = (uint32_t)cta_poll(p, cta_flag_in(g, m, k0 / cta_flag_depth(g)));
        cta_sync();
        if (!said[1])
          return 0;
      }
      cta_fetch_step(g, tiles + ((k + 1) & 1) * half, m, n, k0);
    }
    if (k < 0) { /* the second flag's word is the first one's, which all have read then */
      cta_sync();
      continue;
    }
    if (k + 1 < steps)
      cta_copy_wait(2); /* this step's two groups; the next step's may be on their way */
    else
      cta_copy_wait(0);
    cta_sync();
    const bf16 *a = tiles + (k & 1) * half;
    if (g->weight) /* a constant in each: no branch among the matrix instructions */
      cta_multiply(d, a, a + CTA_BM * CTA_BK, wm, wn, lane, 1);
    else
      cta_multiply(d, a, a + CTA_BM * CTA_BK, wm, wn, lane, 0);
    if (g->weight && g->column && n == 0 && threadIdx.x < CTA_BM)
      for (int r = 0; r < CTA_BK; r++)
        *sum += cta_from_bf16(a[cta_chunk_turned(r, (int)threadIdx.x / 8) + (int)threadIdx.x % 8]);
    cta_sync();
  }
  return 1;
}

static CTA_DEVICE float cta_activate(int activation, float v) {
  if (activation == CTA_RELU)
    return v <= 0 ? 0 : v; /* NaN stays */
  if (activation == CTA_GELU_ERF)
    return 0.5f * v * (1 + erff(0.7071067812f * v));
  return activation == CTA_GELU ? 0.5f * v * (1 + tanhf(0.7978845608f * (v + 0.044715f * v * v * v))) : v;
}

static CTA_DEVICE float cta_slope(int activation, float v) {
  if (activation == CTA_RELU)
    return v > 0 ? 1 : 0;
  if (activation == CTA_GELU_ERF)
    return 0.5f * (1 + erff(0.7071067812f * v)) + v * 0.3989422804f * expf(-0.5f * v * v);
  if (activation != CTA_GELU)
    return 1;
  float t = tanhf(0.7978845608f * (v + 0.044715f * v * v * v));
  return 0.5f * (1 + t) + 0.5f * v * (1 - t * t) * 0.7978845608f * (1 + 3 * 0.044715f * v * v);
}

/* silu(f) u, from the products of V and W. */
static CTA_DEVICE float cta_gate(bf16 f, bf16 u) {
  float v = cta_from_bf16(f);
  return v / (1 + expf(-v)) * cta_from_bf16(u);
}

/* Row and column, inside of the tile, of sum e of this thread. */
static CTA_DEVICE void cta_spot(int e, int *r, int *c) {
  int warp = (int)threadIdx.x >> 5, lane = (int)threadIdx.x & 31, i = e / 16, j = e / 4 % 4, h = e % 4;
  *r = (warp & 1) * 32 + i * 16 + (lane >> 2) + (h >> 1) * 8;
  *c = (warp >> 1) * 32 + j * 8 + (lane & 3) * 2 + (h & 1);
}

/* Tile (m, n) of `columns` columns of a matrix [M, width] from shared memory, in 16-byte stores: scattered ones to
 * another GPU cost several times as much. */
static CTA_DEVICE void cta_copy_out(const struct cta_job *g, void *to, int width, const void *s, int columns, int size,
                                    int m, int n) {
  int each = 16 / size, chunks = columns / each;
  cta_sync();
  for (int i = (int)threadIdx.x; i < CTA_BM * chunks; i += CTA_THREADS) {
    int r = i / chunks, c = i % chunks * each, row = m * CTA_BM + r, col = n * columns + c;
    if (row < g->M && col < width)
      cta_store16((char *)to + ((size_t)row * (size_t)width + col) * size,
                  (const char *)s + (size_t)(r * columns + c) * size);
  }
  cta_sync();
}

/* A gate's gradients from those of what it gave: s [64, 128]. */
static CTA_DEVICE void cta_store_gradients(const struct cta_job *g, float d[2][4][4], bf16 *s, int m, int n) {
  CTA_UNROLL
  for (int e = 0; e < 32; e++) {
    int r, c;
    cta_spot(e, &r, &c);
    int row = m * CTA_BM + r, col = n * CTA_BN + c, place = c / CTA_GATE * CTA_GATE + c;
    if (row >= g->M || col >= g->N)
      continue;
    const bf16 *at = g->at + (size_t)row * 2 * (size_t)g->N + n * 2 * CTA_BN + place;
    float v = cta_from_bf16(at[0]), u = cta_from_bf16(at[CTA_GATE]), by = d[e / 16][e / 4 % 4][e % 4],
          half = 1 / (1 + expf(-v));
    s[r * 2 * CTA_BN + place] = cta_to_bf16(by * u * half * (1 + v * (1 - half)));
    s[r * 2 * CTA_BN + place + CTA_GATE] = cta_to_bf16(by * v * half);
  }
  cta_copy_out(g, g->C, 2 * g->N, s, 2 * CTA_BN, sizeof *s, m, n);
}

/* The products, each rounded; then 32 columns of C behind them. */
static CTA_DEVICE void cta_store_gated(const struct cta_job *g, float d[2][4][4], bf16 *s, int m, int n) {
  bf16 *out = s + CTA_BM * CTA_BN;
  CTA_UNROLL
  for (int e = 0; e < 32; e++) {
    int r, c;
    cta_spot(e, &r, &c);
    s[r * CTA_BN + c] = cta_to_bf16(d[e / 16][e / 4 % 4][e % 4]);
  }
  if (g->before)
    cta_copy_out(g, g->before, g->N, s, CTA_BN, sizeof *s, m, n);
  else
    cta_sync();
  for (int i = (int)threadIdx.x; i < CTA_BM * CTA_GATE; i += CTA_THREADS) {
    const bf16 *at = s + i / CTA_GATE * CTA_BN + i % CTA_GATE;
    out[i] = cta_to_bf16(cta_gate(at[0], at[CTA_GATE]));
  }
  cta_copy_out(g, g->C, g->N / 2, out, CTA_GATE, sizeof *s, m, n);
}

static CTA_DEVICE void cta_store_tile(const struct cta_job *g, float d[2][4][4], bf16 *s, int m, int n) {
  if (g->activation == CTA_SWIGLU)
    return cta_store_gated(g, d, s, m, n);
  if (g->slope == CTA_SWIGLU)
    return cta_store_gradients(g, d, s, m, n);
  for (int last = !g->before; last < 2; last++) { /* first what the activation is applied to */
    CTA_UNROLL
    for (int e = 0; e < 32; e++) {
      int r, c;
      cta_spot(e, &r, &c);
      int row = m * CTA_BM + r, col = n * CTA_BN + c, inside = row < g->M && col < g->N;
      float v = d[e / 16][e / 4 % 4][e % 4] + (g->bias && inside ? g->bias[col] : 0);
      if (last)
        v = cta_activate(g->activation, v);
      if (g->slope && inside)
        v *= cta_slope(g->slope, cta_from_bf16(g->at[(size_t)row * (size_t)g->N + col]));
      s[r * CTA_BN + c] = cta_to_bf16(v);
    }
    cta_copy_out(g, last ? g->C : g->before, g->N, s, CTA_BN, sizeof *s, m, n);
  }
}

static CTA_DEVICE void cta_store_weight(const struct cta_job *g, float d[2][4][4], float *s, int m, int n, float sum) {
  CTA_UNROLL
  for (int e = 0; e < 32; e++) {
    int r, c;
    cta_spot(e, &r, &c);
    s[r * CTA_BN + c] = d[e / 16][e / 4 % 4][e % 4];
  }
  cta_copy_out(g, g->C, g->N, s, CTA_BN, sizeof *s, m, n);
  int column = m * CTA_BM + (int)threadIdx.x;
  if (g->column && n == 0 && threadIdx.x < CTA_BM && column < g->M)
    g->column[column] = sum;
}

CTA_KERNEL void cta_tile_gemm(CTA_PARAM(struct cta_chain) p) {
  CTA_SHARED(bf16, tiles, 2 * (CTA_BM + CTA_BN) * CTA_BK); /* two stages of a and b; then the tile of C */
  CTA_SHARED(uint32_t, said, 3);                           /* the job and 1, whether to go on, the item */
  for (;;) {
    if (threadIdx.x < 32) {
      uint32_t item = 0;
      int job = cta_find(&p, &item);
      if (threadIdx.x == 0)
        said[0] = (uint32_t)(job + 1), said[2] = item;
    }
    cta_sync();
    if (!said[0])
      return;
    const struct cta_job *g = &p.job[said[0] - 1];
    int m, n;
    float d[2][4][4] = {}, sum = 0;
    cta_place(&p, g, said[2], &m, &n);
    if (!cta_sums(&p, g, tiles, said, m, n, d, &sum))
      return;
    if (g->weight)
      cta_store_weight(g, d, (float *)(void *)tiles, m, n, sum);
    else
      cta_store_tile(g, d, tiles, m, n); /* ends with every thread's stores done, and shared memory free again */
    if (g->ready_out && threadIdx.x == 0) {
      cta_fence();
      cta_store_release(g->ready_out + (size_t)(m * cta_ceil(g->N, CTA_BN) + n) * CTA_FLAG_STRIDE, p.epoch);
    }
  }
}

#endif
