/* Grids of the GPU kernel on the host: every thread of every block is a POSIX thread. */
#ifndef ATOLL_HOST_GRID_H
#define ATOLL_HOST_GRID_H

#define ATOLL_CTA_HOST 1
#include <stdlib.h>

#include "tile_gemm.cuh"

struct grid_thread {
  struct cta_chain chain;
  struct shim_block *block;
  unsigned index;
  pthread_t id;
};
struct grid {
  int threads;
  struct shim_block *block;
  struct grid_thread *thread;
};

static inline void *grid_main(void *arg) {
  struct grid_thread *t = (struct grid_thread *)arg;
  threadIdx.x = t->index;
  shim_block = t->block;
  shim_used = 0;
  shim_turn = 0;
  cta_tile_gemm(t->chain);
  return NULL;
}

static inline struct grid *grid_launch(const struct cta_chain *chain, int blocks) {
  struct grid *g = (struct grid *)calloc(1, sizeof *g);
  pthread_attr_t attr;
  pthread_attr_init(&attr);
  pthread_attr_setstacksize(&attr, 256 << 10);
  g->threads = blocks * CTA_THREADS;
  g->block = (struct shim_block *)aligned_alloc(64, (size_t)blocks * ((sizeof *g->block + 63) / 64 * 64));
  g->thread = (struct grid_thread *)calloc((size_t)g->threads, sizeof *g->thread);
  for (int b = 0; b < blocks; b++) {
    pthread_barrier_init(&g->block[b].barrier, NULL, CTA_THREADS);
    for (int w = 0; w < 4; w++)
      pthread_barrier_init(&g->block[b].warp[w].barrier, NULL, 32);
  }
  for (int i = 0; i < g->threads; i++) {
    struct grid_thread *t = &g->thread[i];
    t->chain = *chain;
    t->block = &g->block[i / CTA_THREADS];
    t->index = (unsigned)(i % CTA_THREADS);
    if (pthread_create(&t->id, &attr, grid_main, t))
      abort();
  }
  pthread_attr_destroy(&attr);
  return g;
}

static inline void grid_join(struct grid *g) {
  for (int i = 0; i < g->threads; i++)
    pthread_join(g->thread[i].id, NULL);
  free(g->thread);
  free(g->block);
  free(g);
}

#endif
