/* When nothing fits, the plainest reason there can be: a layer that no device holds even alone. */
#include "compose/compose.h"

#include <inttypes.h>
#include <string.h>

/* Least bytes of a layer alone, of one micro-batch of b samples, over the policies allowed. */
static atoll_err least_bytes(const composer *c, int layer, int64_t b, int64_t *bytes, atoll_policy *policy) {
  int named;
  ATOLL_TRY(plan_policy(c->params, &named));
  *bytes = INT64_MAX;
  *policy = ATOLL_POLICY_EXACT20;
  for (int p = 0; p < ATOLL_POLICIES; p++) {
    int64_t category[ATOLL_MEM_CATEGORIES];
    if (!plan_tries_policy(named, p))
      continue;
    ATOLL_TRY(cost_stage_bytes(c->cost, layer, layer + 1, (atoll_policy)p, b, 1, 1, category));
    if (cost_sum_bytes(category) < *bytes) {
      *bytes = cost_sum_bytes(category);
      *policy = (atoll_policy)p;
    }
  }
  return ATOLL_OK;
}

atoll_err compose_nowhere(const composer *c, char *text, size_t n) {
  int64_t b = c->params->micro_batch > 0 ? c->params->micro_batch : 1, most = 0, worst = 0;
  int roomiest = -1;
  text[0] = 0;
  for (int x = 0; x < c->islands; x++) {
    int64_t memory = c->problem->islands->island[x].memory, limit;
    limit = c->params->memory > 0 ? c->params->memory : (int64_t)((double)memory * c->params->memory_share);
    if (c->devices[x] > 0 && limit <= 0)
      return ATOLL_OK; /* unlimited */
    if (c->devices[x] > 0 && limit > most) {
      most = limit;
      roomiest = x;
    }
  }
  for (int l = 0; l < c->layers && roomiest >= 0; l++) {
    int64_t bytes;
    atoll_policy policy;
    char need[32], room[32];
    ATOLL_TRY(least_bytes(c, l, b, &bytes, &policy));
    if (bytes <= most || bytes <= worst)
      continue;
    worst = bytes;
    snprintf(text, n,
             "layer %d (%s) fits nowhere: alone, with one micro-batch of %" PRId64 " and policy %s, it needs %s, and "
             "the largest device, on island %s, has %s to plan with (%s)",
             l, atoll_layer_kind_name(atoll_model_layer_kind(c->problem->model, l)), b, atoll_policy_name(policy),
             plan_bytes_text(bytes, need, sizeof need), c->problem->islands->island[roomiest].name,
             plan_bytes_text(most, room, sizeof room),
             c->params->memory > 0 ? "plan.memory" : "plan.memory_share of its memory");
  }
  return ATOLL_OK;
}
