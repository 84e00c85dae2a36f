/* Copies between device and host memory of replicas that keep shares of their state there, by the phase table of steady
 * micro-batches (Zhu et al., Mist, EuroSys 2025): a forward brings weights and takes saved activations away; a backward
 * brings weights, gradients and activations and takes gradients away. What moves with the optimizer moves once a step,
 * within the update. */
#include "simulate/flow.h"

static int offloads(const atoll_plan_range *g) {
  return g->offload_weights > 0 || g->offload_gradients > 0 || g->offload_activations > 0;
}

static atoll_err add_range(cost_model *cost, const atoll_plan_range *g, const atoll_plan_replica *r,
                           atoll_sim_copies *out) {
  int64_t one[ATOLL_MEM_CATEGORIES], two[ATOLL_MEM_CATEGORIES];
  int layers = g->last - g->first;
  double state = (double)cost_gradient_share(cost, g->first, g->last, r->tensor) / COST_HOST_RATE;
  /* What one micro-batch more in flight keeps; of layers that run forward again, next to nothing. */
  cost_stage stage = {g->first, g->last, (atoll_policy)g->policy, r->micro_batch, 1, 1, r->tensor, ATOLL_MLP_PLAIN};
  ATOLL_TRY(cost_stage_bytes(cost, &stage, one));
  stage.slots = 2;
  ATOLL_TRY(cost_stage_bytes(cost, &stage, two));
  double saved = (double)(two[ATOLL_MEM_ACTIVATION] - one[ATOLL_MEM_ACTIVATION]) / COST_HOST_RATE *
                 g->offload_activations * (layers - g->recompute) / layers;
  out->forward_in += state * g->offload_weights;
  out->forward_out += saved;
  out->backward_in += state * (g->offload_weights + g->offload_gradients) + saved;
  out->backward_out += state * g->offload_gradients;
  return ATOLL_OK;
}

atoll_err copies_of_plan(cost_model *cost, const atoll_plan *plan, int replicas, atoll_sim_copies **out) {
  int any = 0, at = 0;
  for (int p = 0; p < plan->pipelines; p++)
    for (int s = 0; s < plan->pipeline[p].stages; s++)
      for (int i = 0; i < plan->pipeline[p].stage[s].ranges; i++)
        any = any || offloads(&plan->pipeline[p].stage[s].range[i]);
  if (!any)
    return ATOLL_OK;
  ATOLL_TRY(plan_alloc((size_t)replicas, sizeof **out, out));
  for (int p = 0; p < plan->pipelines; p++)
    for (int s = 0; s < plan->pipeline[p].stages; s++) {
      const atoll_plan_stage *stage = &plan->pipeline[p].stage[s];
      for (int k = 0; k < stage->replicas; k++, at++)
        for (int i = 0; i < stage->ranges; i++)
          if (offloads(&stage->range[i]))
            ATOLL_TRY(add_range(cost, &stage->range[i], &stage->replica[k], &(*out)[at]));
    }
  return ATOLL_OK;
}
