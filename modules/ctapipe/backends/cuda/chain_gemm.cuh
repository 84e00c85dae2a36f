/* From a chain's description of a product to the kernel's, and what follows the library's products. Shared by the GPU's
 * table (chain.cu) and the one that a test runs on the host. */
#ifndef ATOLL_CTA_CHAIN_GEMM_CUH
#define ATOLL_CTA_CHAIN_GEMM_CUH

#include "tile_gemm.cuh"

static inline struct cta_gemm cta_gemm_of(const atoll_chain_gemm *g) {
  struct cta_gemm p = {};
  p.A = (const bf16 *)g->a, p.B = (const bf16 *)g->b, p.C = (bf16 *)g->c, p.bias = g->bias;
  p.M = g->m, p.N = g->n, p.K = g->k, p.activation = (int)g->activation;
  p.ready_in = g->ready_in, p.ready_out = g->ready_out, p.epoch = g->epoch;
  p.next = g->next, p.gave_up = g->gave_up, p.group = g->group;
  return p;
}

/* Element i of C from the library's sums. */
static CTA_DEVICE void cta_finish(const struct cta_gemm *p, const float *sums, int64_t i) {
  p->C[i] = cta_to_bf16(cta_activate(p->activation, sums[i] + p->bias[i % p->N]));
}

#endif
