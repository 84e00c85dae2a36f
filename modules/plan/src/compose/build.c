/* A shape, a layer split and policies as a plan, and the predictions of any plan. */
#include "compose/compose.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int64_t leaves_of(const composer *c, const shape *s, int column) {
  return c->column[s->columns + 2 * (size_t)column + 1];
}

static atoll_err build_stage(const composer *c, const shape *s, int i, const int *cut, const int *policy,
                             atoll_plan_stage *stage) {
  int tensor = build_place(c, s, 0, i)->tensor;
  stage->chunks = stage->ranges = 1;
  stage->in_flight = s->S - i;
  ATOLL_TRY(plan_alloc(1, sizeof *stage->chunk, &stage->chunk));
  ATOLL_TRY(plan_alloc(1, sizeof *stage->range, &stage->range));
  ATOLL_TRY(plan_alloc((size_t)s->D, sizeof *stage->replica, &stage->replica));
  stage->replicas = s->D;
  stage->chunk[0] = (atoll_plan_chunk){cut[i], cut[i + 1]};
  stage->range[0] = (atoll_plan_range){.first = cut[i], .last = cut[i + 1], .policy = policy[i]};
  snprintf(stage->range[0].mlp, sizeof stage->range[0].mlp, "%s",
           atoll_mlp_name(tensor > 1 ? (atoll_mlp)c->params->mlp : ATOLL_MLP_PLAIN));
  for (int k = 0; k < s->D; k++) {
    atoll_plan_replica *r = &stage->replica[k];
    ATOLL_TRY(plan_alloc((size_t)tensor, sizeof *r->rank, &r->rank));
    ATOLL_TRY(plan_alloc((size_t)tensor, sizeof *r->device, &r->device));
    r->ranks = r->tensor = tensor;
    r->context = r->expert = 1;
    r->micro_batch = s->b;
  }
  return ATOLL_OK;
}

/* The first `tensor` free devices of the first node of the island that has so many, as places in its list (by node);
 * -1: there is none. */
static int free_devices(const composer *c, const stage_place *at, const unsigned char *taken, int *out) {
  int n = 0, node = -1;
  for (int i = 0; i < c->devices[at->island] && n < at->tensor; i++) {
    int d = c->device[at->island][i], here = c->problem->topo->device[d].node;
    n = here == node ? n : 0;
    node = here;
    if (!taken[d])
      out[n++] = d;
  }
  return n == at->tensor ? 0 : -1;
}

/* Devices are handed out column by column, or stage by stage; stages of larger tensor degree come first, so that their
 * groups find nodes with room. device [S * D][c->fullest_node], as columns and stages are numbered. */
static int place_all(const composer *c, const shape *s, int layout, unsigned char *taken, int *device) {
  memset(taken, 0, (size_t)c->problem->topo->devices);
  for (int k = c->degrees - 1; k >= 0; k--)
    for (int i = 0; i < s->S * s->D; i++) {
      int column = layout ? i % s->D : i / s->S, stage = layout ? i / s->D : i % s->S;
      const stage_place *at = build_place(c, s, column, stage);
      int *mine = device + (size_t)(stage * s->D + column) * (size_t)c->fullest_node;
      if (at->degree != k)
        continue;
      if (free_devices(c, at, taken, mine) < 0)
        return 0;
      for (int n = 0; n < at->tensor; n++)
        taken[mine[n]] = 1;
    }
  return 1;
}

static atoll_err take_room(const composer *c, const shape *s, unsigned char **taken, int **device) {
  ATOLL_TRY(plan_alloc((size_t)c->problem->topo->devices, 1, taken));
  atoll_err err = plan_alloc((size_t)(s->S * s->D) * (size_t)c->fullest_node, sizeof **device, device);
  if (err != ATOLL_OK)
    free(*taken);
  return err;
}

atoll_err build_fits(composer *c, const shape *s, int *fits) {
  unsigned char *taken = NULL;
  int *device = NULL;
  *fits = 1;
  if (s->tensor == 1)
    return ATOLL_OK;
  ATOLL_TRY(take_room(c, s, &taken, &device));
  *fits = place_all(c, s, 0, taken, device) || place_all(c, s, 1, taken, device);
  free(taken);
  free(device);
  return ATOLL_OK;
}

static atoll_err place_stages(composer *c, const shape *s, int layout, atoll_plan_pipeline *pipe, int *fits) {
  unsigned char *taken = NULL;
  int *device = NULL;
  ATOLL_TRY(take_room(c, s, &taken, &device));
  *fits = place_all(c, s, layout, taken, device);
  for (int i = 0; i < s->S * s->D && *fits; i++) {
    atoll_plan_replica *r = &pipe->stage[i / s->D].replica[i % s->D];
    r->island = build_place(c, s, i % s->D, i / s->D)->island;
    for (int k = 0; k < r->ranks; k++) {
      r->device[k] = device[(size_t)i * (size_t)c->fullest_node + (size_t)k];
      r->rank[k] = c->rank_of[r->device[k]];
    }
  }
  free(taken);
  free(device);
  return ATOLL_OK;
}

static atoll_err fill_idle(composer *c, atoll_plan *plan) {
  unsigned char *taken = NULL;
  ATOLL_TRY(plan_alloc((size_t)plan->world, 1, &taken));
  for (int s = 0; s < plan->pipeline[0].stages; s++)
    for (int k = 0; k < plan->pipeline[0].stage[s].replicas; k++)
      for (int i = 0; i < plan->pipeline[0].stage[s].replica[k].ranks; i++)
        taken[plan->pipeline[0].stage[s].replica[k].rank[i]] = 1;
  int idle = 0;
  for (int r = 0; r < plan->world; r++)
    idle += !taken[r];
  atoll_err err = plan_alloc((size_t)idle, sizeof *plan->idle, &plan->idle);
  for (int r = 0; err == ATOLL_OK && r < plan->world; r++)
    if (!taken[r])
      plan->idle[plan->idle_count++] = r;
  free(taken);
  (void)c;
  return err;
}

atoll_err build_open(const composer *c, int stages, int64_t micro_batches, int64_t leaves, const char *source,
                     atoll_plan **out) {
  atoll_plan *plan = NULL;
  ATOLL_TRY(plan_create(1, &plan));
  plan->world = c->world;
  plan->seq = c->problem->seq;
  plan->global_batch = c->problem->global_batch;
  plan->micro_batches = micro_batches;
  plan->sum_leaves = leaves;
  plan->dtype = (atoll_dtype)atoll_model_config(c->problem->model)->dtype;
  plan->model = c->model_digest;
  plan->islands = c->islands_digest;
  snprintf(plan->source, sizeof plan->source, "%s+compose", source);
  atoll_plan_pipeline *pipe = &plan->pipeline[0];
  pipe->micro_batches = micro_batches;
  atoll_err err = plan_alloc((size_t)stages, sizeof *pipe->stage, &pipe->stage);
  if (err != ATOLL_OK)
    atoll_plan_destroy(&plan);
  else
    pipe->stages = stages;
  *out = plan;
  return err;
}

atoll_err build_plan(composer *c, const shape *s, const int *cut, const int *policy, int layout, atoll_plan **out) {
  atoll_plan *plan = NULL;
  int fits = 0;
  *out = NULL;
  ATOLL_TRY(build_open(c, s->S, s->G, s->leaves, c->parallelizer->name, &plan));
  atoll_plan_pipeline *pipe = &plan->pipeline[0];
  atoll_err err;
  for (int i = 0; i < s->S; i++)
    ATOLL_TRY_GOTO(err, fail, build_stage(c, s, i, cut, policy, &pipe->stage[i]));
  int64_t leaf = 0;
  for (int k = 0; k < s->D; k++) {
    int64_t first = plan_leaf_first(s->leaves, s->G, leaf);
    leaf += leaves_of(c, s, k);
    int64_t end = plan_leaf_first(s->leaves, s->G, leaf);
    for (int i = 0; i < s->S; i++) {
      pipe->stage[i].replica[k].first_micro_batch = first;
      pipe->stage[i].replica[k].micro_batches = end - first;
    }
  }
  ATOLL_TRY_GOTO(err, fail, place_stages(c, s, layout, pipe, &fits));
  if (!fits)
    goto fail;
  ATOLL_TRY_GOTO(err, fail, fill_idle(c, plan));
  ATOLL_TRY_GOTO(err, fail, plan_fill_tied(plan, c->problem->model));
  *out = plan;
  return ATOLL_OK;
fail:
  atoll_plan_destroy(&plan);
  return err;
}

void build_describe(const composer *c, const shape *s, const int *cut, const int *policy, char *buf, size_t n) {
  size_t at = (size_t)snprintf(buf, n, "%d stage%s x %d, micro-batch %" PRId64, s->S, s->S == 1 ? "" : "s", s->D, s->b);
  for (int i = 0; s->tensor > 1 && i < s->S && at < n; i++)
    at += (size_t)snprintf(buf + at, n - at, "%s%d", i ? "," : ", tensor ", build_place(c, s, 0, i)->tensor);
  if (cut && at < n) {
    at += (size_t)snprintf(buf + at, n - at, ", layers");
    for (int i = 0; i < s->S && at < n; i++)
      at += (size_t)snprintf(buf + at, n - at, "%s %d", i ? "," : "", cut[i + 1] - cut[i]);
  }
  if (policy && at < n) {
    int same = 1;
    for (int i = 1; i < s->S; i++)
      same = same && policy[i] == policy[0];
    at += (size_t)snprintf(buf + at, n - at, ", %s",
                           same ? atoll_policy_name((atoll_policy)policy[0]) : "mixed policies");
  }
  if (c->problem->islands->count < 2 || at >= n)
    return;
  at += (size_t)snprintf(buf + at, n - at, ", on ");
  for (int k = 0; k < s->D && at < n; k++) {
    if (k > 0 && build_type(c, s, k) == build_type(c, s, k - 1))
      continue;
    at += (size_t)snprintf(buf + at, n - at, "%s", k ? " / " : "");
    for (int i = 0; i < s->S && at < n; i++)
      at += (size_t)snprintf(buf + at, n - at, "%s%s", i ? "|" : "",
                             c->problem->islands->island[build_place(c, s, k, i)->island].name);
  }
}

/* ---- predictions ------------------------------------------------------------------------------------------------- */

static int64_t limit_of(const composer *c, int island) {
  if (c->params->memory > 0)
    return c->params->memory;
  int64_t memory = c->problem->islands->island[island].memory;
  return memory > 0 ? (int64_t)((double)memory * c->params->memory_share) : 0;
}

static atoll_err predict_times(composer *c, atoll_plan *plan, int p, int s, int k, atoll_cost_source *source) {
  const atoll_plan_stage *stage = &plan->pipeline[p].stage[s];
  atoll_plan_replica *r = &stage->replica[k];
  atoll_policy *policy = NULL;
  r->forward_seconds = r->backward_seconds = r->update_seconds = 0;
  for (int i = 0; i < stage->ranges; i++) {
    cost_slice t;
    slice_time asked = {.over = 1};
    atoll_stage_params sp;
    int at = space_find_place(c, r->island, r->tensor);
    if (c->parallelizer != &atoll_parallelizer_grid && stage->ranges == 1 &&
        at >= 0) { /* its word counts, where it gave one */
      ATOLL_TRY(plan_alloc((size_t)c->layers, sizeof *policy, &policy));
      atoll_err err = atoll_plan_stage_params(plan, (atoll_plan_place){p, s, k, 0}, &sp, policy);
      free(policy);
      ATOLL_TRY(err);
      ATOLL_TRY(search_slice(c, sp.B, at, stage->range[0].policy, sp.slots, sp.partials, sp.first, sp.last, &asked));
    }
    if (asked.over <= 0) {
      r->forward_seconds = asked.forward;
      r->backward_seconds = asked.backward;
      r->update_seconds = asked.extra;
      *source = asked.source > *source ? asked.source : *source;
      continue;
    }
    ATOLL_TRY(cost_of_slice(c->cost, r->island, r->tensor, (atoll_mlp)c->params->mlp, stage->range[i].first,
                            stage->range[i].last, (atoll_policy)stage->range[i].policy, r->micro_batch, &t));
    r->forward_seconds += t.forward;
    r->backward_seconds += t.backward;
    r->update_seconds += t.update;
    *source = t.source > *source ? t.source : *source;
  }
  return ATOLL_OK;
}

static atoll_err predict_bytes(composer *c, atoll_plan *plan, int p, int s, int k, atoll_policy *policy) {
  const atoll_plan_stage *stage = &plan->pipeline[p].stage[s];
  atoll_plan_replica *r = &stage->replica[k];
  atoll_stage_params sp;
  ATOLL_TRY(atoll_plan_stage_params(plan, (atoll_plan_place){p, s, k, 0}, &sp, policy));
  if (stage->ranges == 1) {
    const cost_stage one = {sp.first, sp.last, policy[0], sp.B, sp.slots, sp.partials, r->tensor, sp.mlp};
    ATOLL_TRY(cost_stage_bytes(c->cost, &one, r->bytes));
  } else {
    memset(r->bytes, 0, sizeof r->bytes);
    ATOLL_TRY(atoll_stage_bytes(c->problem->model, &sp, r->bytes));
    r->bytes[ATOLL_MEM_CHECKPOINT] += c->problem->checkpoint_bytes;
    r->bytes[ATOLL_MEM_DATA] += c->problem->fixed_bytes;
  }
  if (c->problem->extra_bytes)
    ATOLL_TRY(c->problem->extra_bytes(c->problem->model, plan, p, s, k, r->bytes));
  r->bytes_peak = cost_sum_bytes(r->bytes);
  r->bytes_limit = limit_of(c, r->island);
  return ATOLL_OK;
}

static int node_of(const composer *c, const atoll_plan_replica *r) {
  return c->problem->topo->device[r->device[0]].node;
}

/* One boundary, one way: the slowest peer of the replica, downstream (upstream for the last stage). */
void build_sends(composer *c, atoll_plan *plan, int p) {
  atoll_plan_pipeline *pipe = &plan->pipeline[p];
  for (int s = 0; s < pipe->stages; s++) {
    int to = s + 1 < pipe->stages ? s + 1 : s - 1;
    int64_t bytes = 0;
    const atoll_plan_stage *from = &pipe->stage[to < s ? to : s];
    if (to >= 0)
      (void)cost_boundary_bytes(c->problem->model, from->chunk[0].last - 1, from->replica[0].micro_batch, plan->seq,
                                &bytes);
    for (int k = 0; k < pipe->stage[s].replicas; k++) {
      atoll_plan_replica *r = &pipe->stage[s].replica[k];
      r->send_seconds = 0;
      for (int q = 0; to >= 0 && q < pipe->stage[to].replicas; q++) {
        const atoll_plan_replica *x = &pipe->stage[to].replica[q];
        if (x->first_micro_batch >= r->first_micro_batch + r->micro_batches ||
            r->first_micro_batch >= x->first_micro_batch + x->micro_batches)
          continue;
        double t = cost_send(c->cost, node_of(c, r), node_of(c, x), bytes) +
                   cost_hand_on(c->cost, node_of(c, x), r->tensor, x->tensor, bytes);
        r->send_seconds = t > r->send_seconds ? t : r->send_seconds;
      }
    }
  }
}

double build_tied_end(composer *c, const atoll_plan *plan, const double *end, double last) {
  for (int i = 0; i < plan->tied_count; i++) {
    const atoll_plan_tied *t = &plan->tied[i];
    for (int u = 0; u + 1 < t->uses; u += 2) {
      if (t->stage[u] == t->stage[u + 1])
        continue;
      int at = 0;
      for (int p = 0; p < t->pipeline[u]; p++)
        at += plan->pipeline[p].stages;
      double begin =
          end[at + t->stage[u]] > end[at + t->stage[u + 1]] ? end[at + t->stage[u]] : end[at + t->stage[u + 1]];
      double most = sync_tied(c->cost, c->problem, plan, i, u);
      last = begin + most > last ? begin + most : last;
    }
  }
  return last;
}

/* "stage 2 of 4 (layers 6-9, replica 0) needs 1.1 GiB of 922 MiB on island b, 209 MiB missing: parameter 108 MiB ..."
 */
static void say_fullest(const composer *c, const atoll_plan *plan, int p, int s, int k, char *where, size_t n) {
  const atoll_plan_stage *stage = &plan->pipeline[p].stage[s];
  const atoll_plan_replica *r = &stage->replica[k];
  int64_t over = r->bytes_peak - r->bytes_limit;
  char a[32], b[32], m[32];
  size_t at =
      (size_t)snprintf(where, n, "stage %d of %d (layers %d-%d, replica %d) needs %s of %s on island %s, %s %s:", s,
                       plan->pipeline[p].stages, stage->chunk[0].first, stage->chunk[0].last - 1, k,
                       plan_bytes_text(r->bytes_peak, a, sizeof a), plan_bytes_text(r->bytes_limit, b, sizeof b),
                       c->problem->islands->island[r->island].name,
                       plan_bytes_text(over > 0 ? over : -over, m, sizeof m), over > 0 ? "missing" : "free");
  for (int q = 0; q < ATOLL_MEM_CATEGORIES && at < n; q++)
    if (r->bytes[q])
      at += (size_t)snprintf(where + at, n - at, " %s %s", atoll_mem_category_name((atoll_mem_category)q),
                             plan_bytes_text(r->bytes[q], a, sizeof a));
}

atoll_err build_bytes(composer *c, atoll_plan *plan, int64_t *over, char *where, size_t n) {
  int fullest[3] = {0, 0, 0};
  atoll_policy *policy = NULL;
  *over = INT64_MIN;
  ATOLL_TRY(plan_alloc((size_t)c->layers, sizeof *policy, &policy));
  atoll_err err = ATOLL_OK;
  for (int p = 0; p < plan->pipelines && err == ATOLL_OK; p++)
    for (int s = 0; s < plan->pipeline[p].stages && err == ATOLL_OK; s++)
      for (int k = 0; k < plan->pipeline[p].stage[s].replicas && err == ATOLL_OK; k++) {
        err = predict_bytes(c, plan, p, s, k, policy);
        const atoll_plan_replica *r = &plan->pipeline[p].stage[s].replica[k];
        if (err == ATOLL_OK && r->bytes_limit > 0 && r->bytes_peak - r->bytes_limit > *over) {
          *over = r->bytes_peak - r->bytes_limit;
          fullest[0] = p;
          fullest[1] = s;
          fullest[2] = k;
        }
      }
  free(policy);
  if (err == ATOLL_OK && *over > 0)
    say_fullest(c, plan, fullest[0], fullest[1], fullest[2], where, n);
  return err;
}

/* Bytes that panels add to each rank of a replica; 0: they are not wanted there. */
static atoll_err panel_bytes(const composer *c, const atoll_plan *plan, atoll_plan_place at, atoll_policy *policy,
                             int64_t *out) {
  const atoll_plan_replica *r = &plan->pipeline[at.pipeline].stage[at.stage].replica[at.replica];
  atoll_stage_params sp;
  ATOLL_TRY(atoll_plan_stage_params(plan, at, &sp, policy));
  *out = 0;
  if (r->micro_batches < 2 ||
      atoll_stage_packs(c->problem->model, &sp) < (c->params->pack_weights == ATOLL_PACK_YES ? 1 : 2))
    return ATOLL_OK;
  return plan_panel_bytes(c->problem->model, &sp, out);
}

static atoll_err pack_stage(const composer *c, atoll_plan *plan, int p, int s, atoll_policy *policy) {
  atoll_plan_stage *stage = &plan->pipeline[p].stage[s];
  int64_t bytes = 0;
  for (int k = 0; k < stage->replicas; k++) {
    const atoll_plan_replica *r = &stage->replica[k];
    ATOLL_TRY(panel_bytes(c, plan, (atoll_plan_place){p, s, k, 0}, policy, &bytes));
    if (!bytes || (r->bytes_limit > 0 && r->bytes_peak + bytes > r->bytes_limit))
      return ATOLL_OK;
  }
  for (int k = 0; k < stage->replicas; k++) {
    atoll_plan_replica *r = &stage->replica[k];
    ATOLL_TRY(panel_bytes(c, plan, (atoll_plan_place){p, s, k, 0}, policy, &bytes));
    r->bytes[ATOLL_MEM_PARAMETER] += bytes;
    r->bytes_peak += bytes;
  }
  stage->packed = 1;
  return ATOLL_OK;
}

atoll_err build_packed(composer *c, atoll_plan *plan) {
  atoll_policy *policy = NULL;
  if (!c->problem->packs || c->params->pack_weights == ATOLL_PACK_NO)
    return ATOLL_OK;
  ATOLL_TRY(plan_alloc((size_t)c->layers, sizeof *policy, &policy));
  atoll_err err = ATOLL_OK;
  for (int p = 0; p < plan->pipelines && err == ATOLL_OK; p++)
    for (int s = 0; s < plan->pipeline[p].stages && err == ATOLL_OK; s++)
      err = pack_stage(c, plan, p, s, policy);
  free(policy);
  return err;
}

atoll_err build_times(composer *c, atoll_plan *plan, int final) {
  int stages = 0, ranks = 0;
  atoll_cost_source source = ATOLL_COST_MEASURED;
  for (int p = 0; p < plan->pipelines; p++) {
    stages += plan->pipeline[p].stages;
    for (int s = 0; s < plan->pipeline[p].stages; s++)
      for (int k = 0; k < plan->pipeline[p].stage[s].replicas; k++) {
        ATOLL_TRY(predict_times(c, plan, p, s, k, &source));
        ranks += plan->pipeline[p].stage[s].replica[k].ranks;
      }
    if (final)
      build_sends(c, plan, p);
  }
  snprintf(plan->cost_source, sizeof plan->cost_source, "%s", atoll_cost_source_name(source));

  double *end = NULL, last = 0, update = 0;
  int *node = NULL, nodes = 0;
  simulated with, without;
  atoll_err err;
  ATOLL_TRY_GOTO(err, done, plan_alloc((size_t)stages, sizeof *end, &end));
  ATOLL_TRY_GOTO(err, done, plan_alloc((size_t)ranks, sizeof *node, &node));
  ATOLL_TRY_GOTO(err, done, simulate_plan(c->cost, c->problem, plan, 1, end, &with));
  double *at = end;
  for (int p = 0; p < plan->pipelines; p++)
    for (int s = 0; s < plan->pipeline[p].stages; s++, at++) {
      double reduce;
      ATOLL_TRY_GOTO(err, done, sync_reduce(c->cost, c->problem, plan, p, s, &reduce));
      *at += reduce;
      last = *at > last ? *at : last;
      for (int k = 0; k < plan->pipeline[p].stage[s].replicas; k++) {
        atoll_plan_replica *r = &plan->pipeline[p].stage[s].replica[k];
        update = r->update_seconds > update ? r->update_seconds : update;
        r->update_seconds += reduce;
        for (int i = 0; i < r->ranks; i++)
          node[nodes++] = c->problem->topo->device[r->device[i]].node;
      }
    }
  last = build_tied_end(c, plan, end, last);
  plan->step_seconds = last + cost_finish(c->cost, node, nodes) + update;
  plan->bubble_fraction = with.pipeline > 0 ? 1 - with.busy / (with.replicas * with.pipeline) : 0;
  plan->bubble_fraction = plan->bubble_fraction < 0 ? 0 : plan->bubble_fraction;
  if (!final)
    goto done;
  ATOLL_TRY_GOTO(err, done, simulate_plan(c->cost, c->problem, plan, 0, NULL, &without));
  plan->communication_seconds = plan->step_seconds - without.pipeline - update;
  plan->communication_seconds = plan->communication_seconds < 0 ? 0 : plan->communication_seconds;
done:
  free(end);
  free(node);
  return err;
}
