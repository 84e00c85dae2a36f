/* What follows a pipeline: sums of gradients over the replicas of a stage, and over the uses of a tied tensor. */
#include "simulate/flow.h"

#include <math.h>
#include <stdlib.h>

static int node_of(const atoll_plan_problem *problem, const atoll_plan_replica *r) {
  return problem->topo->device[r->device[0]].node;
}

static int64_t gradient_of(const cost_model *cost, const atoll_plan_chunk *layers, int chunks, int tensor) {
  int64_t bytes = 0;
  for (int i = 0; i < chunks; i++)
    bytes += cost_gradient_share(cost, layers[i].first, layers[i].last, tensor);
  return bytes;
}

atoll_err sync_sum(const cost_model *cost, const atoll_plan_problem *problem, const atoll_plan *plan,
                   const atoll_plan_stage *const *stage, int stages, const atoll_plan_chunk *layers, int chunks,
                   double *seconds) {
  int *node = NULL, n = 0, parts = 0, most_parts = 1;
  int64_t most_bytes = 0;
  double bandwidth = INFINITY, leaf_most = 0;
  for (int i = 0; i < stages; i++)
    n += stage[i]->replicas;
  ATOLL_TRY(plan_alloc((size_t)n, sizeof *node, &node));
  n = 0;
  for (int i = 0; i < stages; i++)
    for (int k = 0; k < stage[i]->replicas; k++) {
      const atoll_plan_replica *r = &stage[i]->replica[k];
      int64_t first = plan_leaf_at(plan->sum_leaves, plan->micro_batches, r->first_micro_batch);
      int64_t last = plan_leaf_at(plan->sum_leaves, plan->micro_batches, r->first_micro_batch + r->micro_batches);
      int most, left, leaves = (int)(last - first);
      plan_tree_walk(plan->sum_leaves, first, leaves, &most, &left);
      parts += left;
      most_parts = left > most_parts ? left : most_parts;
      node[n++] = node_of(problem, r);
      int64_t bytes = gradient_of(cost, layers, chunks, r->tensor);
      double w = cost_bandwidth(cost, r->island), leaf = leaves * cost_leaf(cost, r->island, bytes);
      bandwidth = w < bandwidth ? w : bandwidth;
      most_bytes = bytes > most_bytes ? bytes : most_bytes;
      leaf_most = leaf > leaf_most ? leaf : leaf_most;
    }
  *seconds = leaf_most + cost_reduce(cost, node, n, most_bytes, parts, most_parts, bandwidth);
  free(node);
  return ATOLL_OK;
}

atoll_err sync_reduce(const cost_model *cost, const atoll_plan_problem *problem, const atoll_plan *plan, int p, int s,
                      double *seconds) {
  const atoll_plan_stage *stage = &plan->pipeline[p].stage[s];
  return sync_sum(cost, problem, plan, &stage, 1, stage->chunk, stage->chunks, seconds);
}

double sync_tied(const cost_model *cost, const atoll_plan_problem *problem, const atoll_plan *plan, int tied, int use) {
  const atoll_plan_tied *t = &plan->tied[tied];
  if (t->stage[use] == t->stage[use + 1])
    return 0;
  const atoll_plan_stage *a = &plan->pipeline[t->pipeline[use]].stage[t->stage[use]];
  const atoll_plan_stage *b = &plan->pipeline[t->pipeline[use]].stage[t->stage[use + 1]];
  const atoll_model_param *mp = atoll_model_param_at(problem->model, t->param);
  int64_t bytes = 4;
  for (int d = 0; d < mp->ndim; d++)
    bytes *= mp->shape[d];
  double most = 0;
  for (int k = 0; k < a->replicas && k < b->replicas; k++) {
    const atoll_plan_replica *x = &a->replica[k], *y = &b->replica[k];
    /* Tensor ranks all hold the whole tensor; those of the larger group take turns with the others' copies. */
    int more = x->tensor > y->tensor ? x->tensor : y->tensor, fewer = x->tensor + y->tensor - more;
    int turns = (more + fewer - 1) / fewer;
    double w = fmin(cost_bandwidth(cost, x->island), cost_bandwidth(cost, y->island));
    double s = turns * cost_tied(cost, node_of(problem, x), node_of(problem, y), bytes, w);
    most = s > most ? s : most;
  }
  return most;
}
