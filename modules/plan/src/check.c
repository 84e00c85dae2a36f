/* What makes a plan well formed. A plan may come from a file somebody edited, so nothing is taken for granted: every
 * index that execution follows is checked here, and the message names pipeline, stage and field. */
#include "atoll/plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "plan_impl.h"
#include "simulate/flow.h"

#define BAD(...) atoll_fail(ATOLL_CORRUPT, "plan: " __VA_ARGS__)

static atoll_err check_head(const atoll_plan *plan, const atoll_model *model) {
  if (plan->version != ATOLL_PLAN_VERSION)
    return BAD("version is %d, this program reads %d", plan->version, ATOLL_PLAN_VERSION);
  if (!plan->schedule[0])
    return BAD("schedule is empty, expected 1f1b");
  if (plan->world < 1)
    return BAD("world is %d, expected 1 or more ranks", plan->world);
  if (plan->seq < 1)
    return BAD("seq is %" PRId64 ", expected 1 or more tokens", plan->seq);
  if (model && plan->seq > atoll_model_config(model)->context)
    return BAD("seq is %" PRId64 " tokens, the model's context is %" PRId64, plan->seq,
               atoll_model_config(model)->context);
  if (plan->global_batch < 1)
    return BAD("global_batch is %" PRId64 ", expected 1 or more samples", plan->global_batch);
  if (plan->micro_batches < 1 || plan->micro_batches > plan->global_batch)
    return BAD("micro_batches is %" PRId64 ", expected 1..%" PRId64 " (global_batch)", plan->micro_batches,
               plan->global_batch);
  if (plan->sum_leaves < 1 || plan->sum_leaves > plan->micro_batches)
    return BAD("sum_leaves is %" PRId64 ", expected 1..%" PRId64 " (micro_batches)", plan->sum_leaves,
               plan->micro_batches);
  if (plan->pipelines < 1)
    return BAD("there are no pipelines");
  return ATOLL_OK;
}

static atoll_err check_chunks(const atoll_plan_pipeline *pipe, int p, const atoll_model *model) {
  int chunks = pipe->stage[0].chunks, next = 0;
  for (int s = 0; s < pipe->stages; s++) {
    if (pipe->stage[s].chunks < 1)
      return BAD("pipeline %d stage %d has no chunks", p, s);
    if (pipe->stage[s].chunks != chunks)
      return BAD("pipeline %d stage %d has %d chunks, stage 0 has %d", p, s, pipe->stage[s].chunks, chunks);
  }
  for (int c = 0; c < chunks; c++)
    for (int s = 0; s < pipe->stages; s++) {
      const atoll_plan_chunk *k = &pipe->stage[s].chunk[c];
      if (k->first != next || k->last <= k->first)
        return BAD("pipeline %d stage %d chunk %d is layers [%d, %d), expected to begin at %d and to hold a layer", p,
                   s, c, k->first, k->last, next);
      next = k->last;
    }
  if (model && next != atoll_model_layers(model))
    return BAD("pipeline %d covers layers [0, %d), the model has %d", p, next, atoll_model_layers(model));
  return ATOLL_OK;
}

static atoll_err check_ranges(const atoll_plan_stage *stage, int p, int s) {
  int i = 0;
  for (int c = 0; c < stage->chunks; c++) {
    int next = stage->chunk[c].first;
    while (next < stage->chunk[c].last) {
      if (i == stage->ranges)
        return BAD("pipeline %d stage %d: no range treats layer %d", p, s, next);
      const atoll_plan_range *r = &stage->range[i];
      if (r->first != next || r->last <= r->first || r->last > stage->chunk[c].last)
        return BAD("pipeline %d stage %d range %d is layers [%d, %d), expected to begin at %d and end by %d", p, s, i,
                   r->first, r->last, next, stage->chunk[c].last);
      if (r->policy < 0 || r->policy >= ATOLL_POLICIES)
        return BAD("pipeline %d stage %d range %d: policy is %d, expected 0..%d", p, s, i, r->policy,
                   ATOLL_POLICIES - 1);
      if (r->recompute < 0 || r->recompute > r->last - r->first)
        return BAD("pipeline %d stage %d range %d: recompute is %d, expected 0..%d layers", p, s, i, r->recompute,
                   r->last - r->first);
      const double share[] = {r->offload_weights, r->offload_gradients, r->offload_optimizer, r->offload_activations};
      static const char *const name[] = {"offload_weights", "offload_gradients", "offload_optimizer",
                                         "offload_activations"};
      for (int k = 0; k < 4; k++)
        if (!(share[k] >= 0 && share[k] <= 1))
          return BAD("pipeline %d stage %d range %d: %s is %g, expected 0..1", p, s, i, name[k], share[k]);
      if (!r->mlp[0])
        return BAD("pipeline %d stage %d range %d: mlp is empty, expected plain", p, s, i);
      next = r->last;
      i++;
    }
  }
  if (i != stage->ranges)
    return BAD("pipeline %d stage %d has %d ranges, %d cover its layers", p, s, stage->ranges, i);
  return ATOLL_OK;
}

static atoll_err check_degrees(const atoll_plan_replica *r, int p, int s, int k) {
  const int degree[] = {r->tensor, r->context, r->expert};
  static const char *const name[] = {"tensor", "context", "expert"};
  for (int i = 0; i < 3; i++)
    if (degree[i] < 1)
      return BAD("pipeline %d stage %d replica %d: %s is %d, expected 1 or more", p, s, k, name[i], degree[i]);
  if (r->ranks < 1 || (int64_t)r->tensor * r->context != r->ranks / r->expert || r->ranks % r->expert)
    return BAD("pipeline %d stage %d replica %d has %d ranks, expected tensor x context x expert = %d x %d x %d", p, s,
               k, r->ranks, r->tensor, r->context, r->expert);
  if (r->zero < 0 || r->zero > 3)
    return BAD("pipeline %d stage %d replica %d: zero is %d, expected 0..3", p, s, k, r->zero);
  if (r->sequence_parallel != 0 && r->sequence_parallel != 1)
    return BAD("pipeline %d stage %d replica %d: sequence_parallel is %d, expected 0 or 1", p, s, k,
               r->sequence_parallel);
  if (r->island < 0)
    return BAD("pipeline %d stage %d replica %d: island is %d, expected 0 or more", p, s, k, r->island);
  if (r->micro_batch < 1)
    return BAD("pipeline %d stage %d replica %d: micro_batch is %" PRId64 ", expected 1 or more samples", p, s, k,
               r->micro_batch);
  if (r->micro_batches < 1)
    return BAD("pipeline %d stage %d replica %d: micro_batches is %" PRId64 ", expected 1 or more", p, s, k,
               r->micro_batches);
  return ATOLL_OK;
}

/* unsigned char taken[world]. */
static atoll_err take_rank(const atoll_plan *plan, unsigned char *taken, int rank, const char *where) {
  if (rank < 0 || rank >= plan->world)
    return BAD("%s: rank %d, expected 0..%d", where, rank, plan->world - 1);
  if (taken[rank])
    return BAD("%s: rank %d is used twice", where, rank);
  taken[rank] = 1;
  return ATOLL_OK;
}

static atoll_err check_replicas(const atoll_plan *plan, int p, int s, unsigned char *taken, int64_t *samples) {
  const atoll_plan_pipeline *pipe = &plan->pipeline[p];
  const atoll_plan_stage *stage = &pipe->stage[s];
  if (stage->replicas < 1)
    return BAD("pipeline %d stage %d has no replicas", p, s);
  if (stage->in_flight < 1)
    return BAD("pipeline %d stage %d: in_flight is %d, expected 1 or more", p, s, stage->in_flight);
  int64_t next = pipe->first_micro_batch, end = next + pipe->micro_batches;
  *samples = 0;
  for (int k = 0; k < stage->replicas; k++) {
    const atoll_plan_replica *r = &stage->replica[k];
    ATOLL_TRY(check_degrees(r, p, s, k));
    if (r->first_micro_batch != next || r->micro_batches > end - next)
      return BAD("pipeline %d stage %d replica %d has micro-batches [%" PRId64 ", +%" PRId64
                 "), expected to begin at %" PRId64 " and end by %" PRId64,
                 p, s, k, r->first_micro_batch, r->micro_batches, next, end);
    next += r->micro_batches;
    if (plan_leaf_at(plan->sum_leaves, plan->micro_batches, next) < 0)
      return BAD("pipeline %d stage %d replica %d ends at micro-batch %" PRId64
                 ", inside a leaf of the summation tree (%" PRId64 " leaves over %" PRId64 " micro-batches)",
                 p, s, k, next, plan->sum_leaves, plan->micro_batches);
    if (r->micro_batch > plan->global_batch / r->micro_batches)
      return BAD("pipeline %d stage %d replica %d takes %" PRId64 " micro-batches of %" PRId64
                 " samples, the batch has %" PRId64,
                 p, s, k, r->micro_batches, r->micro_batch, plan->global_batch);
    *samples += r->micro_batch * r->micro_batches;
    char where[96];
    snprintf(where, sizeof where, "pipeline %d stage %d replica %d", p, s, k);
    for (int i = 0; i < r->ranks; i++) {
      ATOLL_TRY(take_rank(plan, taken, r->rank[i], where));
      if (r->device[i] < 0)
        return BAD("%s: device %d of rank %d, expected 0 or more", where, r->device[i], r->rank[i]);
    }
  }
  if (next != end)
    return BAD("pipeline %d stage %d covers micro-batches up to %" PRId64 ", the pipeline has [%" PRId64 ", %" PRId64
               ")",
               p, s, next, pipe->first_micro_batch, end);
  /* Every micro-batch has one size, on whatever stage it is. */
  for (int k = 0, k0 = 0; s > 0 && k < stage->replicas;) {
    const atoll_plan_replica *r = &stage->replica[k], *r0 = &pipe->stage[0].replica[k0];
    int64_t e = r->first_micro_batch + r->micro_batches, e0 = r0->first_micro_batch + r0->micro_batches;
    if (r->micro_batch != r0->micro_batch)
      return BAD("pipeline %d: micro-batch %" PRId64 " has %" PRId64 " samples on stage %d and %" PRId64 " on stage 0",
                 p, r->first_micro_batch > r0->first_micro_batch ? r->first_micro_batch : r0->first_micro_batch,
                 r->micro_batch, s, r0->micro_batch);
    k += e <= e0;
    k0 += e0 <= e;
  }
  return ATOLL_OK;
}

static atoll_err check_tied(const atoll_plan *plan, const atoll_model *model) {
  int params = atoll_model_params_count(model), at = 0;
  for (int i = 0; i < params; i++) {
    const atoll_model_param *mp = atoll_model_param_at(model, i);
    if (mp->tied_layer < 0)
      continue;
    if (at == plan->tied_count || plan->tied[at].param != i)
      return BAD("tied entry %d is not parameter %d (%s)", at, i, mp->name);
    const atoll_plan_tied *t = &plan->tied[at];
    if (t->uses != 2 * plan->pipelines)
      return BAD("tied entry %d has %d uses, expected %d", at, t->uses, 2 * plan->pipelines);
    for (int u = 0; u < t->uses; u++) {
      int p = u / 2, layer = u % 2 ? mp->tied_layer : mp->layer;
      int stage = plan_stage_of(&plan->pipeline[p], layer);
      if (t->pipeline[u] != p || t->layer[u] != layer || t->stage[u] != stage)
        return BAD("tied entry %d use %d is pipeline %d stage %d layer %d, expected pipeline %d stage %d layer %d", at,
                   u, t->pipeline[u], t->stage[u], t->layer[u], p, stage, layer);
    }
    at++;
  }
  if (at != plan->tied_count)
    return BAD("%d tied entries, the model has %d", plan->tied_count, at);
  return ATOLL_OK;
}

static atoll_err check_body(const atoll_plan *plan, const atoll_model *model, unsigned char *taken) {
  int64_t next = 0, samples = 0;
  for (int p = 0; p < plan->pipelines; p++) {
    const atoll_plan_pipeline *pipe = &plan->pipeline[p];
    if (pipe->first_micro_batch != next || pipe->micro_batches < 1 || pipe->micro_batches > plan->micro_batches - next)
      return BAD("pipeline %d has micro-batches [%" PRId64 ", +%" PRId64 "), expected to begin at %" PRId64
                 " and stay below %" PRId64,
                 p, pipe->first_micro_batch, pipe->micro_batches, next, plan->micro_batches);
    next += pipe->micro_batches;
    if (pipe->stages < 1)
      return BAD("pipeline %d has no stages", p);
    ATOLL_TRY(check_chunks(pipe, p, model));
    int64_t mine = 0;
    for (int s = 0; s < pipe->stages; s++) {
      ATOLL_TRY(check_ranges(&pipe->stage[s], p, s));
      ATOLL_TRY(check_replicas(plan, p, s, taken, &mine));
    }
    samples += mine;
  }
  if (next != plan->micro_batches)
    return BAD("pipelines cover %" PRId64 " micro-batches of %" PRId64, next, plan->micro_batches);
  if (samples != plan->global_batch)
    return BAD("micro-batches hold %" PRId64 " samples, global_batch is %" PRId64, samples, plan->global_batch);
  for (int i = 0; i < plan->idle_count; i++)
    ATOLL_TRY(take_rank(plan, taken, plan->idle[i], "idle"));
  for (int r = 0; r < plan->world; r++)
    if (!taken[r])
      return BAD("rank %d is neither on a stage nor idle", r);
  return model ? check_tied(plan, model) : ATOLL_OK;
}

/* Replicas that wait for each other in a circle would hang a run. Looked for by going through the step, unless it is so
 * long that no run has it: a file may claim anything. */
#define ORDERS_MOST (INT64_C(1) << 20) /* forwards of a pipeline */
static atoll_err check_orders(const atoll_plan *plan) {
  const flow_params q = {.plan = plan, .unit = 1};
  for (int p = 0; p < plan->pipelines; p++) {
    const atoll_plan_pipeline *pipe = &plan->pipeline[p];
    if (pipe->micro_batches > ORDERS_MOST / pipe->stages / pipe->stage[0].chunks)
      continue;
    double *finish = NULL;
    int replicas = 0;
    for (int s = 0; s < plan->pipeline[p].stages; s++)
      replicas += plan->pipeline[p].stage[s].replicas;
    ATOLL_TRY(plan_alloc((size_t)replicas, sizeof *finish, &finish));
    atoll_err err = flow_run(&q, p, finish);
    free(finish);
    ATOLL_TRY(err);
  }
  return ATOLL_OK;
}

atoll_err atoll_plan_check(const atoll_plan *plan, const atoll_model *model) {
  ATOLL_TRY(check_head(plan, model));
  unsigned char *taken = NULL;
  ATOLL_TRY(plan_alloc((size_t)plan->world, 1, &taken));
  atoll_err err = check_body(plan, model, taken);
  free(taken);
  return err != ATOLL_OK ? err : check_orders(plan);
}

atoll_err atoll_plan_fits(const atoll_plan *plan, const atoll_model *model, const atoll_islands *islands, int world) {
  char a[33], b[33];
  if (plan->world != world)
    return atoll_fail(ATOLL_MISMATCH, "plan: made for %d ranks, the job has %d; plan again or start %d ranks",
                      plan->world, world, plan->world);
  if ((int)plan->dtype != atoll_model_config(model)->dtype)
    return atoll_fail(ATOLL_MISMATCH, "plan: made for training in %s, the job trains in %s (train.dtype); plan again",
                      atoll_dtype_name(plan->dtype), atoll_dtype_name((atoll_dtype)atoll_model_config(model)->dtype));
  atoll_digest of_model = atoll_model_digest(model), of_islands = atoll_islands_identity(islands);
  if (!atoll_digest_equal(plan->model, of_model))
    return atoll_fail(ATOLL_MISMATCH, "plan: made for another model (digest %s, the job's model is %s)",
                      atoll_digest_text(plan->model, a), atoll_digest_text(of_model, b));
  if (!atoll_digest_equal(plan->islands, of_islands))
    return atoll_fail(ATOLL_MISMATCH,
                      "plan: made for another cluster (islands %s, this cluster's are %s); plan again for this one",
                      atoll_digest_text(plan->islands, a), atoll_digest_text(of_islands, b));
  for (int p = 0; p < plan->pipelines; p++)
    for (int s = 0; s < plan->pipeline[p].stages; s++)
      for (int k = 0; k < plan->pipeline[p].stage[s].replicas; k++) {
        const atoll_plan_replica *r = &plan->pipeline[p].stage[s].replica[k];
        if (r->island >= islands->count)
          return atoll_fail(ATOLL_MISMATCH, "plan: pipeline %d stage %d replica %d is on island %d, there are %d", p, s,
                            k, r->island, islands->count);
        for (int i = 0; i < r->ranks; i++)
          if (r->device[i] >= islands->devices || islands->island_of[r->device[i]] != r->island)
            return atoll_fail(ATOLL_MISMATCH, "plan: pipeline %d stage %d replica %d: device %d is not on island %s", p,
                              s, k, r->device[i], islands->island[r->island].name);
      }
  return ATOLL_OK;
}

static void digest_replica(atoll_digester *d, const atoll_plan_replica *r) {
  const int64_t v[] = {
      r->island, r->ranks,       r->tensor,        r->context,          r->expert, r->sequence_parallel,
      r->zero,   r->micro_batch, r->micro_batches, r->first_micro_batch};
  for (size_t i = 0; i < sizeof v / sizeof *v; i++)
    atoll_digester_add_int(d, v[i]);
  for (int i = 0; i < r->ranks; i++) {
    atoll_digester_add_int(d, r->rank[i]);
    atoll_digester_add_int(d, r->device[i]);
  }
}

static void digest_stage(atoll_digester *d, const atoll_plan_stage *s) {
  atoll_digester_add_int(d, s->in_flight);
  atoll_digester_add_int(d, s->chunks);
  for (int c = 0; c < s->chunks; c++) {
    atoll_digester_add_int(d, s->chunk[c].first);
    atoll_digester_add_int(d, s->chunk[c].last);
  }
  atoll_digester_add_int(d, s->ranges);
  for (int i = 0; i < s->ranges; i++) {
    const atoll_plan_range *r = &s->range[i];
    atoll_digester_add_int(d, r->first);
    atoll_digester_add_int(d, r->last);
    atoll_digester_add_int(d, r->policy);
    atoll_digester_add_real(d, r->offload_weights);
    atoll_digester_add_real(d, r->offload_gradients);
    atoll_digester_add_real(d, r->offload_optimizer);
    atoll_digester_add_real(d, r->offload_activations);
    atoll_digester_add_text(d, r->mlp);
    if (r->recompute > 0) { /* so plans without it keep the digest they had before there was this field */
      atoll_digester_add_text(d, "recompute");
      atoll_digester_add_int(d, r->recompute);
    }
  }
  if (s->packed) /* as with recompute */
    atoll_digester_add_text(d, "packed");
  atoll_digester_add_int(d, s->replicas);
  for (int k = 0; k < s->replicas; k++)
    digest_replica(d, &s->replica[k]);
}

atoll_digest atoll_plan_digest(const atoll_plan *plan) {
  atoll_digest none = {0, 0};
  atoll_digester *d = NULL;
  if (atoll_digester_create(&d) != ATOLL_OK)
    return none;
  atoll_digester_add_text(d, "atoll plan 1");
  atoll_digester_add_text(d, plan->schedule);
  const int64_t v[] = {plan->world, plan->seq, plan->global_batch, plan->micro_batches, plan->sum_leaves};
  for (size_t i = 0; i < sizeof v / sizeof *v; i++)
    atoll_digester_add_int(d, v[i]);
  const atoll_digest of[] = {plan->model, plan->islands};
  for (int i = 0; i < 2; i++) {
    atoll_digester_add_int(d, (int64_t)of[i].lo);
    atoll_digester_add_int(d, (int64_t)of[i].hi);
  }
  atoll_digester_add_int(d, plan->pipelines);
  for (int p = 0; p < plan->pipelines; p++) {
    const atoll_plan_pipeline *pipe = &plan->pipeline[p];
    atoll_digester_add_int(d, pipe->first_micro_batch);
    atoll_digester_add_int(d, pipe->micro_batches);
    atoll_digester_add_int(d, pipe->stages);
    for (int s = 0; s < pipe->stages; s++)
      digest_stage(d, &pipe->stage[s]);
  }
  atoll_digester_add_int(d, plan->tied_count);
  for (int i = 0; i < plan->tied_count; i++) {
    const atoll_plan_tied *t = &plan->tied[i];
    atoll_digester_add_int(d, t->param);
    atoll_digester_add_int(d, t->uses);
    for (int u = 0; u < t->uses; u++) {
      atoll_digester_add_int(d, t->pipeline[u]);
      atoll_digester_add_int(d, t->stage[u]);
      atoll_digester_add_int(d, t->layer[u]);
    }
  }
  atoll_digester_add_int(d, plan->idle_count);
  for (int i = 0; i < plan->idle_count; i++)
    atoll_digester_add_int(d, plan->idle[i]);
  atoll_digest value = atoll_digester_value(d);
  atoll_digester_destroy(&d);
  return value;
}
