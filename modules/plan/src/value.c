#include "atoll/plan.h"

#include <stdlib.h>
#include <string.h>

#include "plan_impl.h"

atoll_err plan_alloc(size_t n, size_t size, void *out_address) {
  void *p = calloc(n ? n : 1, size);
  if (!p)
    return atoll_fail(ATOLL_NOMEM, "plan: no memory for %zu entries of %zu bytes", n, size);
  memcpy(out_address, &p, sizeof p);
  return ATOLL_OK;
}

atoll_err plan_create(int pipelines, atoll_plan **out) {
  atoll_plan *plan = NULL;
  ATOLL_TRY(plan_alloc(1, sizeof *plan, &plan));
  plan->version = ATOLL_PLAN_VERSION;
  strcpy(plan->schedule, "1f1b");
  if (plan_alloc((size_t)pipelines, sizeof *plan->pipeline, &plan->pipeline) != ATOLL_OK) {
    free(plan);
    return ATOLL_NOMEM;
  }
  plan->pipelines = pipelines;
  *out = plan;
  return ATOLL_OK;
}

void atoll_plan_destroy(atoll_plan **address) {
  if (!address || !*address)
    return;
  atoll_plan *plan = *address;
  for (int p = 0; plan->pipeline && p < plan->pipelines; p++) {
    atoll_plan_pipeline *pipe = &plan->pipeline[p];
    for (int s = 0; pipe->stage && s < pipe->stages; s++) {
      atoll_plan_stage *stage = &pipe->stage[s];
      for (int r = 0; stage->replica && r < stage->replicas; r++) {
        free(stage->replica[r].rank);
        free(stage->replica[r].device);
      }
      free(stage->chunk);
      free(stage->range);
      free(stage->replica);
    }
    free(pipe->stage);
  }
  free(plan->pipeline);
  free(plan->tied);
  free(plan->idle);
  free(plan);
  *address = NULL;
}

void atoll_plan_report_destroy(atoll_plan_report **report) {
  if (!report || !*report)
    return;
  free((*report)->rejected);
  free((*report)->idle);
  free(*report);
  *report = NULL;
}

/* ---- places ------------------------------------------------------------------------------------------------------ */

atoll_plan_place atoll_plan_find(const atoll_plan *plan, int rank) {
  for (int p = 0; p < plan->pipelines; p++)
    for (int s = 0; s < plan->pipeline[p].stages; s++) {
      const atoll_plan_stage *stage = &plan->pipeline[p].stage[s];
      for (int r = 0; r < stage->replicas; r++)
        for (int k = 0; k < stage->replica[r].ranks; k++)
          if (stage->replica[r].rank[k] == rank)
            return (atoll_plan_place){p, s, r, k};
    }
  return (atoll_plan_place){-1, -1, -1, -1};
}

int atoll_plan_owner(const atoll_plan *plan, int pipeline, int stage, int64_t g) {
  if (pipeline < 0 || pipeline >= plan->pipelines || stage < 0 || stage >= plan->pipeline[pipeline].stages)
    return -1;
  const atoll_plan_stage *s = &plan->pipeline[pipeline].stage[stage];
  int lo = 0, hi = s->replicas - 1; /* ranges are contiguous and ascending */
  while (lo <= hi) {
    int mid = lo + (hi - lo) / 2;
    const atoll_plan_replica *r = &s->replica[mid];
    if (g < r->first_micro_batch)
      hi = mid - 1;
    else if (g >= r->first_micro_batch + r->micro_batches)
      lo = mid + 1;
    else
      return mid;
  }
  return -1;
}

int plan_stage_of(const atoll_plan_pipeline *p, int layer) {
  for (int s = 0; s < p->stages; s++)
    for (int c = 0; c < p->stage[s].chunks; c++)
      if (layer >= p->stage[s].chunk[c].first && layer < p->stage[s].chunk[c].last)
        return s;
  return -1;
}

atoll_err atoll_plan_stage_params(const atoll_plan *plan, atoll_plan_place place, atoll_stage_params *out,
                                  atoll_policy *policy) {
  if (place.pipeline < 0 || place.pipeline >= plan->pipelines || place.stage < 0 ||
      place.stage >= plan->pipeline[place.pipeline].stages || place.replica < 0 ||
      place.replica >= plan->pipeline[place.pipeline].stage[place.stage].replicas)
    return atoll_fail(ATOLL_USAGE, "plan: no pipeline %d stage %d replica %d", place.pipeline, place.stage,
                      place.replica);
  const atoll_plan_stage *stage = &plan->pipeline[place.pipeline].stage[place.stage];
  if (stage->chunks != 1)
    return atoll_fail(ATOLL_UNSUPPORTED,
                      "plan: pipeline %d stage %d has %d layer chunks (interleaved); a stage executes one",
                      place.pipeline, place.stage, stage->chunks);
  const atoll_plan_replica *r = &stage->replica[place.replica];
  int first = stage->chunk[0].first, last = stage->chunk[0].last;
  for (int i = 0; i < stage->ranges; i++)
    for (int l = stage->range[i].first; l < stage->range[i].last; l++)
      if (l >= first && l < last)
        policy[l - first] = (atoll_policy)stage->range[i].policy;
  int64_t slots = stage->in_flight < r->micro_batches ? stage->in_flight : r->micro_batches;
  *out = (atoll_stage_params){.first = first,
                              .last = last,
                              .policy = policy,
                              .B = r->micro_batch,
                              .S = plan->seq,
                              .slots = slots < 1 ? 1 : (int)slots,
                              .partials = atoll_plan_partials(plan, r->first_micro_batch, r->micro_batches),
                              .train = 1,
                              .tensor = r->tensor,
                              .tensor_rank = place.slot > 0 ? place.slot % r->tensor : 0,
                              .mlp = ATOLL_MLP_PLAIN,
                              .packed = stage->packed};
  if (atoll_mlp_parse(stage->range[0].mlp, &out->mlp) != 0)
    return atoll_fail(ATOLL_UNSUPPORTED,
                      "plan: pipeline %d stage %d uses MLP algorithm %s; a stage executes plain, cta, cta_own",
                      place.pipeline, place.stage, stage->range[0].mlp);
  return ATOLL_OK;
}

/* ---- the summation tree ------------------------------------------------------------------------------------------
 * A range of leaves [a, b) splits at a + (largest power of two below b - a), so the tree of 7 leaves is
 * ((01)(23))((45)6). A replica adds its leaves from left to right, each in a buffer of its own, and merges two
 * neighbours as soon as they are the two children of a node. What cannot be merged (because the sibling is another
 * replica's) is kept to the end. */

int64_t plan_leaf_first(int64_t leaves, int64_t micro_batches, int64_t leaf) {
  int64_t each = micro_batches / leaves, rest = micro_batches % leaves; /* leaf * G / leaves without overflow */
  return leaf * each + leaf * rest / leaves;
}

int64_t plan_leaf_at(int64_t leaves, int64_t micro_batches, int64_t g) {
  int64_t lo = 0, hi = leaves;
  while (lo <= hi) {
    int64_t mid = lo + (hi - lo) / 2, first = plan_leaf_first(leaves, micro_batches, mid);
    if (first == g)
      return mid;
    if (first < g)
      lo = mid + 1;
    else
      hi = mid - 1;
  }
  return -1;
}

static int64_t power_below(int64_t n) {
  int64_t p = 1;
  while (p * 2 < n)
    p *= 2;
  return p;
}

/* Whether [a, a + left + right) is a node whose children are the two parts. */
static int are_siblings(int64_t leaves, int64_t a, int64_t left, int64_t right) {
  if (power_below(left + right) != left)
    return 0;
  int64_t lo = 0, n = leaves;
  while (n > left + right) {
    int64_t half = power_below(n);
    if (a < lo + half) {
      n = half;
    } else {
      lo += half;
      n -= half;
    }
  }
  return lo == a && n == left + right;
}

void plan_tree_walk(int64_t leaves, int64_t first, int64_t n, int *most, int *left) {
  struct {
    int64_t first, count;
  } node[64]; /* each live node is at most half its parent: 2 x 31 of them at 2^31 leaves */
  int depth = 0;
  *most = 1;
  for (int64_t leaf = first; leaf < first + n; leaf++) {
    node[depth].first = leaf;
    node[depth++].count = 1;
    *most = depth > *most ? depth : *most;
    while (depth >= 2 && are_siblings(leaves, node[depth - 2].first, node[depth - 2].count, node[depth - 1].count)) {
      node[depth - 2].count += node[depth - 1].count;
      depth--;
    }
  }
  *left = depth;
}

int atoll_plan_partials(const atoll_plan *plan, int64_t first_micro_batch, int64_t micro_batches) {
  int most = 1, left;
  if (micro_batches < 1 || plan->micro_batches < 1 || plan->sum_leaves < 1)
    return most;
  int64_t G = plan->micro_batches, last_micro_batch = first_micro_batch + micro_batches - 1;
  /* A range that cuts a leaf is refused by atoll_plan_check; here the leaves it touches are counted. */
  int64_t first = 0, last = plan->sum_leaves - 1;
  while (first < last && plan_leaf_first(plan->sum_leaves, G, first + 1) <= first_micro_batch)
    first++;
  while (last > first && plan_leaf_first(plan->sum_leaves, G, last) > last_micro_batch)
    last--;
  plan_tree_walk(plan->sum_leaves, first, last - first + 1, &most, &left);
  return most;
}

/* ---- tied tensors ------------------------------------------------------------------------------------------------ */

atoll_err plan_fill_tied(atoll_plan *plan, const atoll_model *model) {
  int count = 0, params = atoll_model_params_count(model);
  for (int i = 0; i < params; i++)
    count += atoll_model_param_at(model, i)->tied_layer >= 0;
  free(plan->tied);
  plan->tied = NULL;
  plan->tied_count = 0;
  if (plan->pipelines > 2 && count > 0)
    return atoll_fail(ATOLL_UNSUPPORTED, "plan: %d pipelines use a tied tensor; a plan lists the uses of at most 2",
                      plan->pipelines);
  ATOLL_TRY(plan_alloc((size_t)count, sizeof *plan->tied, &plan->tied));
  for (int i = 0; i < params; i++) {
    const atoll_model_param *mp = atoll_model_param_at(model, i);
    if (mp->tied_layer < 0)
      continue;
    atoll_plan_tied *t = &plan->tied[plan->tied_count++];
    t->param = i;
    for (int p = 0; p < plan->pipelines; p++)
      for (int use = 0; use < 2; use++) {
        int layer = use ? mp->tied_layer : mp->layer;
        t->pipeline[t->uses] = p;
        t->layer[t->uses] = layer;
        t->stage[t->uses++] = plan_stage_of(&plan->pipeline[p], layer);
      }
  }
  return ATOLL_OK;
}

atoll_err plan_panel_bytes(const atoll_model *model, const atoll_stage_params *of, int64_t *out) {
  int64_t with[ATOLL_MEM_CATEGORIES], without[ATOLL_MEM_CATEGORIES];
  atoll_stage_params sp = *of;
  *out = 0;
  if (!atoll_stage_packs(model, &sp))
    return ATOLL_OK;
  sp.packed = 0;
  ATOLL_TRY(atoll_stage_bytes(model, &sp, without));
  sp.packed = 1;
  ATOLL_TRY(atoll_stage_bytes(model, &sp, with));
  *out = with[ATOLL_MEM_PARAMETER] - without[ATOLL_MEM_PARAMETER];
  return ATOLL_OK;
}

static atoll_err unpack_stage(atoll_plan *plan, const atoll_model *model, int p, int s, atoll_policy *policy) {
  atoll_plan_stage *stage = &plan->pipeline[p].stage[s];
  for (int k = 0; k < stage->replicas; k++) {
    atoll_plan_replica *r = &stage->replica[k];
    atoll_stage_params sp;
    int64_t bytes;
    ATOLL_TRY(atoll_plan_stage_params(plan, (atoll_plan_place){p, s, k, 0}, &sp, policy));
    ATOLL_TRY(plan_panel_bytes(model, &sp, &bytes));
    if (r->bytes[ATOLL_MEM_PARAMETER] < bytes) /* a plan written by hand may say nothing */
      continue;
    r->bytes[ATOLL_MEM_PARAMETER] -= bytes;
    r->bytes_peak -= bytes;
  }
  stage->packed = 0;
  return ATOLL_OK;
}

atoll_err atoll_plan_unpack(atoll_plan *plan, const atoll_model *model) {
  atoll_policy *policy = NULL;
  atoll_err err = plan_alloc((size_t)atoll_model_layers(model), sizeof *policy, &policy);
  for (int p = 0; p < plan->pipelines && err == ATOLL_OK; p++)
    for (int s = 0; s < plan->pipeline[p].stages && err == ATOLL_OK; s++)
      if (plan->pipeline[p].stage[s].packed)
        err = unpack_stage(plan, model, p, s, policy);
  free(policy);
  return err;
}
