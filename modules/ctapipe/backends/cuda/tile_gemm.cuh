/* CTA-pipelined GEMM for GPUs: C[M,N] = activation(A[M,K] B[N,K]^T + bias), bf16 with f32 sums, on mma.sync m16n8k16
 * and cp.async, from sm_80 on. One source: nvcc compiles it for GPUs, a C++ compiler with host_shim.h for tests, where
 * every thread of a block is a POSIX thread and warp instructions exchange registers between them.
 *
 * The protocol is the host's (src/view.h): a flag per tile, holding the epoch in which it was made, never reset, in the
 * memory of the GPU that consumes the tile. Producer: stores, block barrier, fence, release store at system scope.
 * Consumer: one thread's acquire loads inside the loop over k, before the tile's columns are fetched, then a block
 * barrier. Tiles are handed out by a counter that only grows, in groups of panels that share B. Spins are bounded; who
 * gives up sets a word that ends every block.
 *
 * K and N are multiples of 8 (16-byte copies), pointers are 16-byte aligned; M is free. A grid must fit the GPU at
 * once, as its blocks wait for another GPU's. */
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
enum { CTA_NONE, CTA_RELU, CTA_GELU, CTA_GELU_ERF }; /* as atoll_activation */

struct cta_gemm {
  const bf16 *A, *B;
  bf16 *C;           /* may be another GPU's memory */
  const float *bias; /* [N], NULL: none */
  int M, N, K, activation;
  const uint32_t *ready_in; /* of A's tiles [panels, K / CTA_BN]; NULL: A is whole */
  uint32_t *ready_out;      /* of C's tiles [panels, N / CTA_BN], beside C; NULL: nobody waits */
  uint32_t epoch;
  uint32_t *next;     /* tiles handed out since the beginning */
  uint32_t next_base; /* its value when this launch began */
  uint32_t *gave_up;  /* 0; what is set ends all blocks that share it */
  uint64_t spins;     /* most polls for one tile; 0: no bound */
  int group;          /* panels that share a pass over B */
};

static CTA_DEVICE int cta_ceil(int a, int b) { return (a + b - 1) / b; }

/* Panel and column of the i-th tile. */
static CTA_DEVICE void cta_place(const struct cta_gemm *p, uint32_t i, int *m, int *n) {
  int panels = cta_ceil(p->M, CTA_BM), cols = cta_ceil(p->N, CTA_BN), per = p->group * cols;
  int first = (int)i / per * p->group, rest = (int)i % per;
  int size = panels - first < p->group ? panels - first : p->group;
  *m = first + rest % size;
  *n = rest / size;
}

/* 0 when it gave up. Called by one thread. */
static CTA_DEVICE int cta_poll(const struct cta_gemm *p, const uint32_t *flag) {
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

/* Rows of 32 columns are four chunks of 16 bytes; chunk c of row r lies at c ^ (r / 2 % 4), so that neither the copies
 * nor ldmatrix meet one bank twice. */
static CTA_DEVICE int cta_chunk(int row, int chunk) { return row * CTA_BK + (chunk ^ ((row >> 1) & 3)) * 8; }

/* Rows [r0, r0 + 64) and columns [k0, k0 + 32) of x [rows, K] to shared memory; what lies outside is zero. */
static CTA_DEVICE void cta_fetch(bf16 *to, const bf16 *x, int r0, int rows, int k0, int K) {
  for (int i = (int)threadIdx.x; i < CTA_BM * CTA_BK / 8; i += CTA_THREADS) {
    int r = i / (CTA_BK / 8), c = i % (CTA_BK / 8), inside = r0 + r < rows && k0 + c * 8 < K;
    cta_copy16(to + cta_chunk(r, c), inside ? x + (size_t)(r0 + r) * (size_t)K + k0 + c * 8 : x, inside ? 16 : 0);
  }
  cta_copy_commit();
}

/* 32 x 32 of the tile to each of four warps, 32 columns of k. */
static CTA_DEVICE void cta_multiply(float d[2][4][4], const bf16 *a, const bf16 *b, int wm, int wn, int lane) {
  CTA_UNROLL
  for (int k = 0; k < CTA_BK / 8; k += 2) {
    uint32_t x[2][4], y[2][4];
    CTA_UNROLL
    for (int i = 0; i < 2; i++)
      cta_ldmatrix(x[i], a + cta_chunk(wm + i * 16 + (lane & 15), k + (lane >> 4)));
    CTA_UNROLL
    for (int j = 0; j < 2; j++)
      cta_ldmatrix(y[j], b + cta_chunk(wn + j * 16 + (lane & 7) + ((lane >> 4) << 3), k + ((lane >> 3) & 1)));
    CTA_UNROLL
    for (int i = 0; i < 8; i++)
      cta_mma(d[i / 4][i % 4], x[i / 4], &y[i % 4 / 2][i % 2 * 2]);
  }
}

static CTA_DEVICE float cta_activate(int activation, float v) {
  if (activation == CTA_RELU)
    return v <= 0 ? 0 : v; /* NaN stays */
  if (activation == CTA_GELU_ERF)
    return 0.5f * v * (1 + erff(0.7071067812f * v));
  return activation == CTA_GELU ? 0.5f * v * (1 + tanhf(0.7978845608f * (v + 0.044715f * v * v * v))) : v;
}

/* Through shared memory to rows of 16-byte stores: scattered stores to another GPU cost several times as much. */
static CTA_DEVICE void cta_store_tile(const struct cta_gemm *p, float d[2][4][4], bf16 *s, int m, int n, int wm, int wn,
                                      int lane) {
  CTA_UNROLL
  for (int e = 0; e < 32; e++) {
    int i = e / 16, j = e / 4 % 4, h = e % 4;
    int r = wm + i * 16 + (lane >> 2) + (h >> 1) * 8, c = wn + j * 8 + (lane & 3) * 2 + (h & 1), col = n * CTA_BN + c;
    float bias = p->bias && col < p->N ? p->bias[col] : 0;
    s[r * CTA_BN + c] = cta_to_bf16(cta_activate(p->activation, d[i][j][h] + bias));
  }
  cta_sync();
  for (int i = (int)threadIdx.x; i < CTA_BM * CTA_BN / 8; i += CTA_THREADS) {
    int r = i / (CTA_BN / 8), c = i % (CTA_BN / 8) * 8, row = m * CTA_BM + r, col = n * CTA_BN + c;
    if (row < p->M && col < p->N)
      cta_store16(p->C + (size_t)row * (size_t)p->N + col, s + r * CTA_BN + c);
  }
}

CTA_KERNEL void cta_tile_gemm(struct cta_gemm p) {
  CTA_SHARED(bf16, tiles, 2 * (CTA_BM + CTA_BN) * CTA_BK); /* two stages of a and b; then the tile of C */
  CTA_SHARED(uint32_t, said, 2);                           /* thread 0's tile, and whether to go on */
  int warp = (int)threadIdx.x >> 5, lane = (int)threadIdx.x & 31, wm = (warp & 1) * 32, wn = (warp >> 1) * 32;
  const uint32_t all = (uint32_t)(cta_ceil(p.M, CTA_BM) * cta_ceil(p.N, CTA_BN));
  const int steps = cta_ceil(p.K, CTA_BK), half = (CTA_BM + CTA_BN) * CTA_BK;
  for (;;) {
    if (threadIdx.x == 0)
      said[0] = cta_take(p.next) - p.next_base;
    cta_sync();
    uint32_t t = said[0];
    int m, n;
    float d[2][4][4] = {};
    if (t >= all)
      return;
    cta_place(&p, t, &m, &n);
    for (int k = -1; k < steps; k++) { /* fetch step k + 1 while step k is multiplied */
      if (k + 1 < steps) {
        int k0 = (k + 1) * CTA_BK;
        bf16 *stage = tiles + ((k + 1) & 1) * half;
        if (p.ready_in && k0 % CTA_BN == 0) {
          if (threadIdx.x == 0)
            said[1] = (uint32_t)cta_poll(&p, p.ready_in +
                                                 (size_t)(m * cta_ceil(p.K, CTA_BN) + k0 / CTA_BN) * CTA_FLAG_STRIDE);
          cta_sync();
          if (!said[1])
            return;
        }
        cta_fetch(stage, p.A, m * CTA_BM, p.M, k0, p.K);
        cta_fetch(stage + CTA_BM * CTA_BK, p.B, n * CTA_BN, p.N, k0, p.K);
      }
      if (k < 0)
        continue;
      if (k + 1 < steps)
        cta_copy_wait(2); /* this step's two groups; the next step's may be on their way */
      else
        cta_copy_wait(0);
      cta_sync();
      cta_multiply(d, tiles + (k & 1) * half, tiles + (k & 1) * half + CTA_BM * CTA_BK, wm, wn, lane);
      cta_sync();
    }
    cta_store_tile(&p, d, tiles, m, n, wm, wn, lane);
    cta_sync(); /* every thread's stores; and shared memory is free again */
    if (p.ready_out && threadIdx.x == 0) {
      cta_fence();
      cta_store_release(p.ready_out + (size_t)(m * cta_ceil(p.N, CTA_BN) + n) * CTA_FLAG_STRIDE, p.epoch);
    }
  }
}

#endif
