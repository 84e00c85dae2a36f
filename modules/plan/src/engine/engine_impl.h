/* What the engine's files share. problem: exact cost of a plan. search: the search over plans. */
#ifndef ATOLL_PLAN_ENGINE_IMPL_H
#define ATOLL_PLAN_ENGINE_IMPL_H

#include "engine/engine.h"

int64_t engine_width(const engine_stage *stage);
/* talks[a * right->groups + b] = 1 when a replica of group a exchanges data with one of group b. */
void engine_routes(const engine_stage *left, const engine_stage *right, int64_t micro_batches, unsigned char *talks);
/* Whether counts[w] replicas of w devices (w = 1 .. widest) fit into the nodes of a pool. */
int engine_packs(const engine_pool *pool, const int *counts, int widest);

/* Micro-batches of a step. */
static inline int64_t engine_total(const engine_problem *problem, int b) {
  return (problem->global_batch + problem->batch[b] - 1) / problem->batch[b];
}

/* Micro-batches of one of D replicas. */
static inline int64_t engine_rounds(const engine_problem *problem, int b, int64_t D) {
  int64_t samples = problem->batch[b] * D;
  return (problem->global_batch + samples - 1) / samples;
}

/* p_i. */
static inline double engine_exposed(const engine_problem *problem, int stages, int i, double act, double grad) {
  if (stages == 1)
    return 0;
  if (i == stages - 1)
    return problem->last_factor * grad;
  if (i == 0)
    return problem->double_after && stages > problem->double_after ? 2 * act : act;
  return act + grad;
}

#endif
