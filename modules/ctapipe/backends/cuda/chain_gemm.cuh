/* From a chain's description of a launch to the kernel's, and what follows the library's products. Shared by the GPU's
 * table (chain.cu) and the one that a test runs on the host. */
#ifndef ATOLL_CTA_CHAIN_GEMM_CUH
#define ATOLL_CTA_CHAIN_GEMM_CUH

#include "tile_gemm.cuh"

static_assert((int)CTA_JOBS == (int)ATOLL_CHAIN_JOBS, "jobs of a launch");
static_assert((int)CTA_GATE == (int)ATOLL_CHAIN_GATE && (int)CTA_SWIGLU == (int)ATOLL_ACTIVATION_SWIGLU, "of a gate");

static inline struct cta_job cta_job_of(const atoll_chain_gemm *g) {
  struct cta_job j = {};
  j.A = (const bf16 *)g->a, j.B = (const bf16 *)g->b, j.C = g->c, j.bias = g->bias, j.column = g->column;
  j.before = (bf16 *)g->before, j.at = (const bf16 *)g->at;
  j.M = g->m, j.N = g->n, j.K = g->k, j.weight = g->weight;
  j.activation = (int)g->activation, j.slope = (int)g->slope;
  j.from = g->from, j.own = g->own, j.claim = g->claim;
  j.ready_in = g->ready_in, j.ready_columns = g->ready_columns, j.ready_out = g->ready_out;
  return j;
}

static inline struct cta_chain cta_chain_of(const atoll_chain_launch *l) {
  struct cta_chain p = {};
  for (int i = 0; i < l->jobs; i++)
    p.job[i] = cta_job_of(&l->job[i]);
  p.jobs = l->jobs, p.products = l->products, p.claims = l->claims, p.group = l->group;
  p.epoch = l->epoch, p.turn = l->turn, p.gave_up = l->gave_up;
  return p;
}

/* A product without its activation, from the library's sums. */
static CTA_DEVICE bf16 cta_finish_product(const struct cta_job *p, const float *sums, int64_t i) {
  bf16 v = cta_to_bf16(sums[i]);
  if (p->before)
    p->before[i] = v;
  return v;
}

/* Elements of C, and element i of them from the library's sums. */
static inline int64_t cta_finish_count(const struct cta_job *p) {
  return (int64_t)p->M * (p->activation == CTA_SWIGLU ? p->N / 2 : p->N);
}
static CTA_DEVICE void cta_finish(const struct cta_job *p, const float *sums, int64_t i) {
  bf16 *c = (bf16 *)p->C + i;
  if (p->activation == CTA_SWIGLU) {
    int64_t at = i / CTA_GATE * 2 * CTA_GATE + i % CTA_GATE; /* rows are whole turns of V and W */
    *c = cta_to_bf16(cta_gate(cta_finish_product(p, sums, at), cta_finish_product(p, sums, at + CTA_GATE)));
    return;
  }
  float v = sums[i] + (p->bias ? p->bias[i % p->N] : 0);
  if (p->before)
    p->before[i] = cta_to_bf16(v);
  *c = cta_to_bf16(cta_activate(p->activation, v));
}

#endif
