/* What tile_gemm.cuh asks of a GPU, on the host, for tests: a block is 128 POSIX threads and a barrier, a warp a
 * barrier of 32 and a place to exchange registers. Asynchronous copies happen at once. Matrix instructions follow the
 * fragment layouts of the PTX ISA (m16n8k16 with bf16, ldmatrix.x4), so a wrong index in the kernel gives wrong numbers
 * here. The accumulation order inside an instruction is not a GPU's. */
#ifndef ATOLL_CTA_HOST_SHIM_H
#define ATOLL_CTA_HOST_SHIM_H

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifndef CTA_SHIM_RELEASE /* a test relaxes it to see the race reported */
#define CTA_SHIM_RELEASE __ATOMIC_RELEASE
#endif

typedef struct bf16 {
  uint16_t bits;
} bf16;

/* What lanes give each other. Instructions take the two slots in turn, so that one barrier is enough for each: who
 * writes a slot again has met all others since they read it. */
struct shim_slot {
  uint32_t a[32][4], b[32][2], said[32];
  const bf16 *row[32];
};
struct shim_warp {
  pthread_barrier_t barrier;
  struct shim_slot slot[2];
};
struct shim_block {
  pthread_barrier_t barrier;
  struct shim_warp warp[4];
  char shared[40960] __attribute__((aligned(64)));
};
struct shim_index {
  unsigned x;
};
static thread_local struct shim_index threadIdx;
static thread_local struct shim_block *shim_block;
static thread_local size_t shim_used; /* of shared; every thread declares the same */
static thread_local unsigned shim_turn;

#define CTA_DEVICE
#define CTA_KERNEL   static
#define CTA_PARAM(T) const T
#define CTA_UNROLL
#define CTA_SHARED(T, name, n)                                                                                         \
  T *name = (T *)(void *)(shim_block->shared + shim_used);                                                             \
  shim_used += (sizeof(T) * (n) + 63) / 64 * 64

static inline float cta_from_bf16(bf16 v) {
  uint32_t u = (uint32_t)v.bits << 16;
  float f;
  memcpy(&f, &u, sizeof f);
  return f;
}
static inline bf16 cta_to_bf16(float f) {
  uint32_t u;
  memcpy(&u, &f, sizeof u);
  if ((u & 0x7fffffffu) > 0x7f800000u)
    return bf16{(uint16_t)(u >> 16 | 0x40)};
  return bf16{(uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16)};
}

static inline uint32_t cta_load_acquire(const uint32_t *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
static inline uint32_t cta_load_relaxed(const uint32_t *p) { return __atomic_load_n(p, __ATOMIC_RELAXED); }
static inline void cta_store_release(uint32_t *p, uint32_t v) { __atomic_store_n(p, v, CTA_SHIM_RELEASE); }
static inline void cta_fence(void) {} /* the store that follows releases */
static inline uint64_t cta_load_word(const uint64_t *p) { return __atomic_load_n(p, __ATOMIC_RELAXED); }
static inline int cta_swap_word(uint64_t *p, uint64_t from, uint64_t to) {
  return __atomic_compare_exchange_n(p, &from, to, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}
static inline void cta_sync(void) { pthread_barrier_wait(&shim_block->barrier); }
static inline void cta_pause(void) { sched_yield(); }
/* Element by element: of what the compiler makes of a short memcpy, ThreadSanitizer sees nothing. */
static inline void cta_copy16(bf16 *to, const bf16 *from, int bytes) {
  for (int i = 0; i < 8; i++)
    to[i] = 2 * i < bytes ? from[i] : bf16{0};
}
static inline void cta_store16(void *to, const void *from) {
  for (int i = 0; i < 4; i++)
    ((uint32_t *)to)[i] = ((const uint32_t *)from)[i];
}
static inline void cta_copy_commit(void) {}
static inline void cta_copy_wait(int groups) { (void)groups; }

static inline struct shim_slot *shim_next_slot(void) {
  return &shim_block->warp[threadIdx.x / 32].slot[++shim_turn % 2];
}
static inline void shim_meet(void) { pthread_barrier_wait(&shim_block->warp[threadIdx.x / 32].barrier); }
static inline uint32_t shim_pair(const bf16 *p) { return (uint32_t)p[0].bits | (uint32_t)p[1].bits << 16; }
static inline float shim_half(uint32_t pair, int high) {
  return cta_from_bf16(bf16{(uint16_t)(high ? pair >> 16 : pair & 0xffff)});
}

static inline int cta_all(int yes) {
  struct shim_slot *w = shim_next_slot();
  int all = 1;
  w->said[threadIdx.x % 32] = (uint32_t)yes;
  shim_meet();
  for (int i = 0; i < 32; i++)
    all &= w->said[i] != 0;
  return all;
}
static inline uint32_t cta_first(uint32_t v) {
  struct shim_slot *w = shim_next_slot();
  if (threadIdx.x % 32 == 0)
    w->said[0] = v;
  shim_meet();
  return w->said[0];
}

/* Lane l names row l % 8 of matrix l / 8; it receives elements 2 (l % 4) and the next of row l / 4 of each matrix, or
 * of column l / 4 where they are turned. */
static inline void shim_ldmatrix(uint32_t *r, const bf16 *p, int turned) {
  struct shim_slot *w = shim_next_slot();
  unsigned lane = threadIdx.x % 32, at = lane % 4 * 2;
  w->row[lane] = p;
  shim_meet();
  for (unsigned i = 0; i < 4; i++) {
    const bf16 **row = &w->row[i * 8];
    r[i] = !turned ? shim_pair(row[lane / 4] + at)
                   : (uint32_t)row[at][lane / 4].bits | (uint32_t)row[at + 1][lane / 4].bits << 16;
  }
}
static inline void cta_ldmatrix(uint32_t *r, const bf16 *p) { shim_ldmatrix(r, p, 0); }
static inline void cta_ldmatrix_turned(uint32_t *r, const bf16 *p) { shim_ldmatrix(r, p, 1); }

/* Element (row, k) of the 16 x 16 left factor and (k, col) of the 16 x 8 right one. */
static inline float shim_left(const struct shim_slot *w, unsigned row, unsigned k) {
  return shim_half(w->a[row % 8 * 4 + k % 8 / 2][row / 8 + k / 8 * 2], k % 2);
}
static inline float shim_right(const struct shim_slot *w, unsigned k, unsigned col) {
  return shim_half(w->b[col * 4 + k % 8 / 2][k / 8], k % 2);
}

static inline void cta_mma(float *d, const uint32_t *a, const uint32_t *b) {
  struct shim_slot *w = shim_next_slot();
  unsigned lane = threadIdx.x % 32;
  memcpy(w->a[lane], a, sizeof w->a[lane]);
  memcpy(w->b[lane], b, sizeof w->b[lane]);
  shim_meet();
  for (unsigned h = 0; h < 4; h++)
    for (unsigned k = 0; k < 16; k++)
      d[h] += shim_left(w, lane / 4 + h / 2 * 8, k) * shim_right(w, k, lane % 4 * 2 + h % 2);
}

#endif
