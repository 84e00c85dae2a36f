/* The table of chain.cu on the host, for the plug-in that tests load: the GPU kernel's source through its shim, on the
 * streams of fake_cuda.c. ATOLL_TEST_FAKE_CUDA=lost-kernel: launches do nothing, as if the GPU were stuck.
 * ATOLL_TEST_BLOCKS: of a launch, each 128 threads; default 2. */
#include "host_grid.h"

#include "atoll/ctapipe_device.h"
#include "chain_gemm.cuh"
#include "fake_cuda.h"

static int lost(void) {
  const char *set = getenv("ATOLL_TEST_FAKE_CUDA");
  return set && !strcmp(set, "lost-kernel");
}

static atoll_err resident(int *blocks, int *claims) {
  const char *wanted = getenv("ATOLL_TEST_BLOCKS");
  *blocks = wanted ? atoi(wanted) : 2;
  *claims = 1;
  return ATOLL_OK;
}

struct launch {
  struct cta_chain chain;
  int blocks;
};
static void tiles_run(void *args) {
  struct launch *l = (struct launch *)args;
  grid_join(grid_launch(&l->chain, l->blocks));
}
static atoll_err tiles(void *stream, const atoll_chain_launch *a, int blocks) {
  struct launch l = {cta_chain_of(a), blocks};
  if (!lost())
    fake_launch(stream, tiles_run, &l, sizeof l);
  return ATOLL_OK;
}

struct product {
  struct cta_job job;
  float *sums;
};
static void library_run(void *args) {
  struct product *l = (struct product *)args;
  struct cta_job *p = &l->job;
  for (int64_t i = 0; i < (int64_t)p->M * p->N; i++) {
    l->sums[i] = 0;
    for (int k = p->K - 1; k >= 0; k--) /* another order than the kernel's: a library's own */
      l->sums[i] += cta_from_bf16(p->A[i / p->N * p->K + k]) * cta_from_bf16(p->B[i % p->N * p->K + k]);
  }
  for (int64_t i = 0; i < cta_finish_count(p); i++)
    cta_finish(p, l->sums, i);
}
static atoll_err library(void *stream, const atoll_chain_gemm *g, float *sums) {
  struct product l = {cta_job_of(g), sums};
  if (!lost())
    fake_launch(stream, library_run, &l, sizeof l);
  return ATOLL_OK;
}

struct word {
  uint32_t *flag, value;
};
static void write_run(void *args) {
  struct word *w = (struct word *)args;
  cta_store_release(w->flag, w->value);
}
static void wait_run(void *args) {
  struct word *w = (struct word *)args;
  while ((int32_t)(cta_load_acquire(w->flag) - w->value) < 0)
    cta_pause();
}
static atoll_err write_flag(void *stream, uint32_t *flag, uint32_t value) {
  struct word w = {flag, value};
  if (!lost())
    fake_launch(stream, write_run, &w, sizeof w);
  return ATOLL_OK;
}
static atoll_err wait_flag(void *stream, uint32_t *flag, uint32_t value) {
  struct word w = {flag, value};
  fake_launch(stream, wait_run, &w, sizeof w);
  return ATOLL_OK;
}

extern "C" const struct atoll_chain_device cuda_chain = {"cuda", CTA_BM,  CTA_BN,     CTA_FLAG_STRIDE, resident,
                                                         tiles,  library, write_flag, wait_flag};
