/* When nothing fits, the plainest reason there can be: a layer that no device holds even alone. */
#include "compose/compose.h"

#include <inttypes.h>
#include <string.h>

/* Least bytes of a layer alone on one of so many tensor ranks, of one micro-batch of b samples, over the policies
 * allowed. */
static atoll_err least_bytes(const composer *c, int layer, int tensor, int64_t b, int64_t *bytes,
                             atoll_policy *policy) {
  int named;
  ATOLL_TRY(plan_policy(c->params, &named));
  *bytes = INT64_MAX;
  *policy = ATOLL_POLICY_EXACT20;
  for (int p = 0; p < ATOLL_POLICIES; p++) {
    int64_t category[ATOLL_MEM_CATEGORIES];
    if (!plan_tries_policy(named, p))
      continue;
    const cost_stage alone = {layer, layer + 1, (atoll_policy)p, b, 1, 1, tensor, (atoll_mlp)c->params->mlp};
    ATOLL_TRY(cost_stage_bytes(c->cost, &alone, category));
    if (cost_sum_bytes(category) < *bytes) {
      *bytes = cost_sum_bytes(category);
      *policy = (atoll_policy)p;
    }
  }
  return ATOLL_OK;
}

/* INT64_MAX: unlimited. */
static int64_t limit_of(const composer *c, int island) {
  if (c->params->memory > 0)
    return c->params->memory;
  int64_t limit = (int64_t)((double)c->problem->islands->island[island].memory * c->params->memory_share);
  return limit > 0 ? limit : INT64_MAX;
}

/* The place where a layer lacks least; *missing <= 0: it fits. */
static atoll_err nearest(const composer *c, int layer, int64_t b, const stage_place **at, int64_t *bytes,
                         int64_t *missing, atoll_policy *policy) {
  *missing = INT64_MAX;
  for (int i = 0; i < c->places_known; i++) {
    int64_t need, limit = limit_of(c, c->place[i].island);
    atoll_policy by;
    ATOLL_TRY(least_bytes(c, layer, c->place[i].tensor, b, &need, &by));
    if (need - limit >= *missing || *missing <= 0)
      continue;
    *missing = need - limit;
    *bytes = need;
    *policy = by;
    *at = &c->place[i];
  }
  return ATOLL_OK;
}

atoll_err compose_nowhere(const composer *c, char *text, size_t n) {
  int64_t b = c->params->micro_batch > 0 ? c->params->micro_batch : 1, worst = 0;
  text[0] = 0;
  for (int l = 0; l < c->layers && c->places_known; l++) {
    int64_t bytes = 0, missing;
    const stage_place *at = NULL;
    atoll_policy policy = ATOLL_POLICY_EXACT20;
    char need[32], room[32], ranks[48] = "";
    ATOLL_TRY(nearest(c, l, b, &at, &bytes, &missing, &policy));
    if (missing <= worst)
      continue;
    worst = missing;
    if (at->tensor > 1)
      snprintf(ranks, sizeof ranks, " on each of %d tensor ranks", at->tensor);
    snprintf(text, n,
             "layer %d (%s) fits nowhere: alone, with one micro-batch of %" PRId64 " and policy %s, it needs %s%s, and "
             "the largest device, on island %s, has %s to plan with (%s)",
             l, atoll_layer_kind_name(atoll_model_layer_kind(c->problem->model, l)), b, atoll_policy_name(policy),
             plan_bytes_text(bytes, need, sizeof need), ranks, c->problem->islands->island[at->island].name,
             plan_bytes_text(bytes - missing, room, sizeof room),
             c->params->memory > 0 ? "plan.memory" : "plan.memory_share of its memory");
  }
  return ATOLL_OK;
}

/* The divisor of the batch in the middle of those above low and below high; 0: none. */
static int64_t between(int64_t batch, int64_t low, int64_t high) {
  int n = 0;
  for (int64_t b = low + 1; b < high; b++)
    n += batch % b == 0;
  for (int64_t b = low + 1, k = 0; b < high; b++)
    if (batch % b == 0 && k++ == n / 2)
      return b;
  return 0;
}

static atoll_err fits(const atoll_plan_problem *problem, const atoll_plan_params *params, int world, int64_t b) {
  atoll_plan *plan = NULL;
  atoll_plan_params less = *params;
  less.micro_batch = b;
  atoll_err err = compose_make(problem, &less, world, MPI_COMM_NULL, &plan, NULL);
  atoll_plan_destroy(&plan);
  atoll_err_clear();
  return err;
}

/* The largest divisor of the batch below what was asked that fits. Activations grow with a micro-batch, and gradient
 * buffers with how many there are: so where one sample fits, all up to the largest do, and it is found by halving;
 * where one does not, a few together still may, and they are tried from the largest down. */
atoll_err compose_say_batch(const atoll_plan_problem *problem, const atoll_plan_params *params, int world,
                            atoll_err err) {
  if (err != ATOLL_INFEASIBLE || params->micro_batch <= 1 || problem->islands->devices > COMPOSE_EXACT_DEVICES)
    return err;
  char message[ATOLL_MESSAGE_MAX];
  snprintf(message, sizeof message, "%s", atoll_err_message());
  int64_t low = fits(problem, params, world, 1) == ATOLL_OK, high = params->micro_batch, b;
  if (low)
    while ((b = between(problem->global_batch, low, high)) > 0)
      *(fits(problem, params, world, b) == ATOLL_OK ? &low : &high) = b;
  else
    for (b = high - 1; b > 1 && !low; b--)
      if (problem->global_batch % b == 0 && fits(problem, params, world, b) == ATOLL_OK)
        low = b;
  if (!low)
    atoll_err_set_message(message);
  else
    (void)atoll_fail(err, "%s; a micro-batch of %" PRId64 " would fit", message, low);
  return err;
}
