/* A composition as a plan.
 *
 * Islands of a pool are filled in the order of the pipeline, wide stages first where widths differ, so that whatever
 * the pool's devices suffice for finds room (widths on one pool divide one another). Inside an island stages of larger
 * tensor degree come first, so that each group stays inside a node.
 *
 * The chain took the fastest treatment of each slice that fits. With the devices of all stages fixed, the inter-stage
 * program looks again at slices up to REACH layers shorter or longer and at all Pareto points of each, where less extra
 * time per step may be worth more time per micro-batch. The simulator then judges. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compose/large.h"
#include "interstage/interstage.h"

#define REACH            2
#define SECONDS_PER_HOUR 3600.0

typedef struct realized {                /* one stage */
  int kind, first, last, island, device; /* device: place in the island's list */
  int64_t in_flight;
  atoll_slice_plan point;
} realized;

/* ---- treatment --------------------------------------------------------------------------------------------------- */

/* Whether only the length of a slice matters between the first and the last layer. */
static int one_class(const composer *c) {
  for (int l = 2; l + 1 < c->layers; l++)
    if (cost_layer_class(c->cost, l) != cost_layer_class(c->cost, 1))
      return 0;
  return c->layers > 2;
}

typedef struct treated { /* what an option of the inter-stage program stands for */
  int layers;
  atoll_slice_plan point;
} treated;

static atoll_err list_options(large *x, const combination *at, const realized *r, int stages, int i,
                              interstage_option **option, treated **as, int *count) {
  int L = x->c->layers, length = r[i].last - r[i].first, n = 0;
  int room = (2 * REACH + 1) * LARGE_POINTS;
  double sends = 0;
  if (i + 1 < stages) {
    int64_t boundary;
    ATOLL_TRY(cost_boundary_bytes(x->c->problem->model, 0, at->b, x->c->problem->seq, &boundary));
    ATOLL_TRY(pools_send(x, at, x->kind[r[i].kind].pool, x->kind[r[i + 1].kind].pool, &sends));
    sends += pools_hand_on(x, r[i].kind, r[i + 1].kind, boundary);
  }
  ATOLL_TRY(plan_alloc((size_t)room, sizeof **option, option));
  ATOLL_TRY(plan_alloc((size_t)room, sizeof **as, as));
  for (int k = length - REACH < 1 ? 1 : length - REACH; k <= length + REACH && k <= L; k++) {
    int first = i == 0 ? 0 : i + 1 == stages ? L - k : 1, last = first + k, points;
    atoll_slice_plan point[LARGE_POINTS];
    if (stages > 1 && ((i > 0 && first < 1) || (i + 1 < stages && last > L - 1)))
      continue;
    if (stages == 1 && k != L)
      continue;
    ATOLL_TRY(pools_ask(x, at, r[i].kind, first, last, r[i].in_flight, point, &points));
    for (int p = 0; p < points; p++) {
      (*option)[n] = (interstage_option){-1, k, point[p].forward + point[p].backward + sends, point[p].d};
      (*as)[n++] = (treated){k, point[p]};
    }
  }
  *count = n;
  return ATOLL_OK;
}

static atoll_err polish(large *x, const combination *at, realized *r, int stages) {
  interstage_problem p = {.stages = stages, .layers = x->c->layers, .micro_batches = at->most};
  interstage_option **option = NULL;
  interstage_stage *stage = NULL;
  treated **as = NULL;
  int *choice = NULL;
  interstage_answer answer;
  atoll_err err;
  ATOLL_TRY_GOTO(err, done, plan_alloc((size_t)stages, sizeof *option, &option));
  ATOLL_TRY_GOTO(err, done, plan_alloc((size_t)stages, sizeof *as, &as));
  ATOLL_TRY_GOTO(err, done, plan_alloc((size_t)stages, sizeof *stage, &stage));
  ATOLL_TRY_GOTO(err, done, plan_alloc((size_t)stages, sizeof *choice, &choice));
  for (int i = 0; i < stages; i++) {
    ATOLL_TRY_GOTO(err, done, list_options(x, at, r, stages, i, &option[i], &as[i], &stage[i].options));
    stage[i].option = option[i];
  }
  p.stage = stage;
  err = interstage_solve(&p, (interstage_solver)x->c->params->interstage, choice, &answer);
  for (int i = 0, at_layer = 0; i < stages && err == ATOLL_OK; i++) {
    r[i].first = at_layer;
    at_layer = r[i].last = at_layer + as[i][choice[i]].layers;
    r[i].point = as[i][choice[i]].point;
  }
done:
  for (int i = 0; i < stages; i++) {
    if (option)
      free(option[i]);
    if (as)
      free(as[i]);
  }
  free(option);
  free(as);
  free(stage);
  free(choice);
  return err;
}

/* The fastest treatment of the slices as they are. */
static atoll_err treat(large *x, const combination *at, realized *r, int stages) {
  for (int i = 0; i < stages; i++) {
    atoll_slice_plan point[LARGE_POINTS];
    int n, best = 0;
    ATOLL_TRY(pools_ask(x, at, r[i].kind, r[i].first, r[i].last, r[i].in_flight, point, &n));
    if (!n)
      return atoll_fail(ATOLL_INTERNAL, "plan: layers %d-%d fitted with fewer micro-batches in flight only", r[i].first,
                        r[i].last - 1);
    for (int k = 1; k < n; k++)
      if (point[k].forward + point[k].backward < point[best].forward + point[best].backward)
        best = k;
    r[i].point = point[best];
  }
  return ATOLL_OK;
}

/* ---- places ------------------------------------------------------------------------------------------------------ */

static int width_of(const large *x, const combination *at, const realized *r) {
  return at->D * x->kind[r->kind].tensor;
}

/* Stages in order of falling width, else as they are. */
static void by_width(const large *x, const combination *at, const realized *r, int stages, int *order) {
  for (int i = 0; i < stages; i++) {
    int k = i;
    for (; k > 0 && width_of(x, at, &r[order[k - 1]]) < width_of(x, at, &r[i]); k--)
      order[k] = order[k - 1];
    order[k] = i;
  }
}

static atoll_err place_stages(large *x, const combination *at, realized *r, int stages) {
  int *used = NULL, *order = NULL;
  atoll_err err;
  ATOLL_TRY_GOTO(err, done, plan_alloc((size_t)x->islands, sizeof *used, &used));
  ATOLL_TRY_GOTO(err, done, plan_alloc((size_t)stages, sizeof *order, &order));
  by_width(x, at, r, stages, order);
  for (int k = 0; k < stages; k++) {
    realized *s = &r[order[k]];
    const large_pool *p = &x->pool[x->kind[s->kind].pool];
    int width = width_of(x, at, s), i = 0;
    while (i < p->islands && used[p->island[i]] + width > p->per_island)
      i++;
    if (i == p->islands) {
      err = atoll_fail(ATOLL_INTERNAL, "plan: no room for a stage of %d devices", width);
      goto done;
    }
    s->island = p->island[i];
    s->device = used[s->island];
    used[s->island] += width;
  }
done:
  free(used);
  free(order);
  return err;
}

/* ---- the plan ---------------------------------------------------------------------------------------------------- */

static atoll_err fill_replica(large *x, const combination *at, const realized *s, int k, atoll_plan_replica *r) {
  const composer *c = x->c;
  const atoll_slice_plan *p = &s->point;
  int T = x->kind[s->kind].tensor;
  int columns = large_width(at), island = copies_island(x, k / at->D, s->island);
  int64_t leaf = at->leaves / columns * k + (k < at->leaves % columns ? k : at->leaves % columns);
  int64_t share = at->leaves / columns + (k < at->leaves % columns);
  ATOLL_TRY(plan_alloc((size_t)T, sizeof *r->rank, &r->rank));
  ATOLL_TRY(plan_alloc((size_t)T, sizeof *r->device, &r->device));
  r->ranks = T;
  r->island = x->home[island];
  for (int i = 0; i < T; i++) {
    r->device[i] = x->device[island][s->device + k % at->D * T + i];
    r->rank[i] = c->rank_of[r->device[i]];
  }
  r->tensor = p->tensor;
  r->context = p->context;
  r->expert = p->expert;
  r->sequence_parallel = p->sequence_parallel;
  r->zero = p->zero;
  r->micro_batch = at->b;
  r->first_micro_batch = plan_leaf_first(at->leaves, at->G, leaf);
  r->micro_batches = plan_leaf_first(at->leaves, at->G, leaf + share) - r->first_micro_batch;
  r->forward_seconds = p->forward;
  r->backward_seconds = p->backward;
  r->update_seconds = p->d > 0 ? p->d : 0;
  memcpy(r->bytes, p->bytes, sizeof r->bytes);
  r->bytes_peak = p->bytes_peak;
  r->bytes_limit = p->bytes_limit < INT64_MAX ? p->bytes_limit + c->problem->reserve : 0;
  return ATOLL_OK;
}

static atoll_err fill_stage(large *x, const combination *at, const realized *s, atoll_plan_stage *stage) {
  stage->in_flight = (int)s->in_flight;
  stage->chunks = stage->ranges = 1;
  ATOLL_TRY(plan_alloc(1, sizeof *stage->chunk, &stage->chunk));
  ATOLL_TRY(plan_alloc(1, sizeof *stage->range, &stage->range));
  ATOLL_TRY(plan_alloc((size_t)large_width(at), sizeof *stage->replica, &stage->replica));
  stage->replicas = large_width(at);
  stage->chunk[0] = (atoll_plan_chunk){s->first, s->last};
  stage->range[0] = (atoll_plan_range){.first = s->first,
                                       .last = s->last,
                                       .policy = s->point.policy,
                                       .recompute = s->point.recompute,
                                       .offload_weights = s->point.offload_weights,
                                       .offload_gradients = s->point.offload_gradients,
                                       .offload_optimizer = s->point.offload_optimizer,
                                       .offload_activations = s->point.offload_activations,
                                       .mlp = "plain"};
  if (x->c->params->mlp && s->point.tensor > 1)
    snprintf(stage->range[0].mlp, sizeof stage->range[0].mlp, "%s", atoll_mlp_name((atoll_mlp)x->c->params->mlp));
  if (x->c->params->experts > 0) /* experts, and how many of them a token visits */
    snprintf(stage->range[0].mlp, sizeof stage->range[0].mlp, "moe-%d-%d", (int)x->c->params->experts,
             (int)x->c->params->expert_top);
  for (int k = 0; k < stage->replicas; k++)
    ATOLL_TRY(fill_replica(x, at, s, k, &stage->replica[k]));
  return ATOLL_OK;
}

static atoll_err fill_idle(const composer *c, atoll_plan *plan) {
  unsigned char *taken = NULL;
  ATOLL_TRY(plan_alloc((size_t)plan->world, 1, &taken));
  for (int s = 0; s < plan->pipeline[0].stages; s++)
    for (int k = 0; k < plan->pipeline[0].stage[s].replicas; k++)
      for (int i = 0; i < plan->pipeline[0].stage[s].replica[k].ranks; i++)
        taken[plan->pipeline[0].stage[s].replica[k].rank[i]] = 1;
  atoll_err err = plan_alloc((size_t)plan->world, sizeof *plan->idle, &plan->idle);
  for (int r = 0; err == ATOLL_OK && r < c->world; r++)
    if (!taken[r])
      plan->idle[plan->idle_count++] = r;
  free(taken);
  return err;
}

/* Whether train executes what the parallelizer proposes: then the composer prices it, layer by layer. */
static int executed(const large *x) {
  return x->c->params->target != 1 || x->c->parallelizer == &atoll_parallelizer_grid;
}

/* What the executor adds, asked for one replica of each stage: replicas of a stage differ in numbers alone. Of what it
 * does not execute nothing is known. */
static atoll_err add_extra(large *x, atoll_plan *plan) {
  const atoll_plan_problem *problem = x->c->problem;
  if (!problem->extra_bytes || !executed(x))
    return ATOLL_OK;
  for (int s = 0; s < plan->pipeline[0].stages; s++) {
    atoll_plan_stage *stage = &plan->pipeline[0].stage[s];
    atoll_plan_replica *r = &stage->replica[0];
    int64_t without = cost_sum_bytes(r->bytes);
    ATOLL_TRY(problem->extra_bytes(problem->model, plan, 0, s, 0, r->bytes));
    r->bytes_peak = cost_sum_bytes(r->bytes);
    if (r->bytes_limit > 0 && r->bytes_peak > r->bytes_limit) {
      char a[32], b[32];
      int64_t extra = r->bytes_peak - without;
      x->c->extra = extra > x->c->extra ? extra : x->c->extra;
      return atoll_fail(ATOLL_INFEASIBLE, "plan: stage %d needs %s of %s with what train adds", s,
                        plan_bytes_text(r->bytes_peak, a, sizeof a), plan_bytes_text(r->bytes_limit, b, sizeof b));
    }
    for (int k = 1; k < stage->replicas; k++) {
      memcpy(stage->replica[k].bytes, r->bytes, sizeof r->bytes);
      stage->replica[k].bytes_peak = r->bytes_peak;
    }
  }
  return ATOLL_OK;
}

static atoll_err predict(large *x, atoll_plan *plan, const realized *r) {
  composer *c = x->c;
  if (executed(x))
    return build_times(c, plan, 1);
  atoll_plan_pipeline *pipe = &plan->pipeline[0];
  const atoll_topo *topo = c->problem->topo;
  double *end = NULL, last = 0, update = 0, latency, rate;
  int *node = NULL, *list = NULL, nodes = 0, ranks = 0;
  atoll_cost_source source = ATOLL_COST_MEASURED;
  simulated with, without;
  atoll_err err;
  ATOLL_TRY_GOTO(err, done, plan_alloc((size_t)pipe->stages, sizeof *end, &end));
  ATOLL_TRY_GOTO(err, done, plan_alloc((size_t)topo->nodes, sizeof *node, &node));
  ATOLL_TRY_GOTO(err, done, plan_alloc(2 * (size_t)topo->nodes, sizeof *list, &list));
  build_sends(c, plan, 0);
  ATOLL_TRY_GOTO(err, done, simulate_plan(c->cost, c->problem, plan, 1, end, &with));
  for (int s = 0; s < pipe->stages; s++) { /* extra time holds the sums; what is left of it waits for all of them */
    double d = fmax(r[s].point.d, 0), sum;
    ATOLL_TRY_GOTO(err, done, sync_reduce(c->cost, c->problem, plan, 0, s, &sum));
    sum = fmin(sum, d);
    end[s] += sum;
    last = end[s] > last ? end[s] : last;
    update = fmax(update, d - sum);
    source = r[s].point.source > source ? r[s].point.source : source;
    for (int k = 0; k < pipe->stage[s].replicas; k++) {
      node[topo->device[pipe->stage[s].replica[k].device[0]].node] += pipe->stage[s].replica[k].ranks;
      ranks += pipe->stage[s].replica[k].ranks;
    }
  }
  for (int i = 0; i < topo->nodes; i++)
    for (int k = 0; k < node[i] && k < 2; k++) /* two of a node show the link inside it */
      list[nodes++] = i;
  last = build_tied_end(c, plan, end, last);
  cost_slowest(c->cost, list, nodes, &latency, &rate);
  plan->step_seconds = last + 2 * latency * ceil(log2(ranks)) + update; /* cost_finish() of all ranks */
  plan->bubble_fraction = with.pipeline > 0 ? fmax(1 - with.busy / (with.replicas * with.pipeline), 0) : 0;
  ATOLL_TRY_GOTO(err, done, simulate_plan(c->cost, c->problem, plan, 0, NULL, &without));
  plan->communication_seconds = fmax(plan->step_seconds - without.pipeline - update, 0);
  snprintf(plan->cost_source, sizeof plan->cost_source, "%s", atoll_cost_source_name(source));
done:
  free(end);
  free(node);
  free(list);
  return err;
}

static double price_of(const large *x, const combination *at, const atoll_plan *plan, const engine_plan *composition) {
  const atoll_topo *topo = x->c->problem->topo;
  double rent = 0;
  for (int s = 0; s < plan->pipeline[0].stages; s++)
    for (int k = 0; k < plan->pipeline[0].stage[s].replicas; k++) {
      const atoll_plan_replica *r = &plan->pipeline[0].stage[s].replica[k];
      double price = topo->node[topo->device[r->device[0]].node].price;
      rent += price > 0 ? price / SECONDS_PER_HOUR * r->ranks : NAN;
    }
  return plan->step_seconds * rent + pools_transfer(x, at, composition);
}

atoll_err realize(const combination *at, const engine_plan *composition, atoll_plan **out, double *price) {
  large *x = at->x;
  composer *c = x->c;
  int S = composition->stages;
  realized *r = NULL;
  atoll_plan *plan = NULL;
  atoll_err err;
  ATOLL_TRY_GOTO(err, done, plan_alloc((size_t)S, sizeof *r, &r));
  for (int i = 0; i < S; i++)
    r[i] = (realized){.kind = composition->stage[i].group[0].kind,
                      .first = composition->stage[i].first,
                      .last = composition->stage[i].last,
                      .in_flight = S - i < at->most ? S - i : at->most};
  ATOLL_TRY_GOTO(err, done, one_class(c) && S > 1 ? polish(x, at, r, S) : treat(x, at, r, S));
  ATOLL_TRY_GOTO(err, done, place_stages(x, at, r, S));
  const char *source = c->parallelizer->source ? c->parallelizer->source(x->state) : c->parallelizer->name;
  ATOLL_TRY_GOTO(err, done, build_open(c, S, at->G, at->leaves, source, &plan));
  atoll_plan_pipeline *pipe = &plan->pipeline[0];
  for (int i = 0; i < S; i++)
    ATOLL_TRY_GOTO(err, done, fill_stage(x, at, &r[i], &pipe->stage[i]));
  ATOLL_TRY_GOTO(err, done, fill_idle(c, plan));
  ATOLL_TRY_GOTO(err, done, plan_fill_tied(plan, c->problem->model));
  ATOLL_TRY_GOTO(err, done, add_extra(x, plan));
  ATOLL_TRY_GOTO(err, done, predict(x, plan, r));
  *price = price_of(x, at, plan, composition);
  *out = plan;
  plan = NULL;
done:
  atoll_plan_destroy(&plan);
  free(r);
  return err;
}

/* ---- idle devices ------------------------------------------------------------------------------------------------ */

/* Seconds of one micro-batch to the nearest pool in use and back; 0 when this one is in use itself. */
static atoll_err nearest(large *x, const combination *at, const atoll_plan *plan, int pool, double *seconds) {
  *seconds = INFINITY;
  for (int s = 0; s < plan->pipeline[0].stages; s++) {
    int island = parts_of(x, &plan->pipeline[0].stage[s].replica[0]);
    for (int q = 0; q < x->pools; q++)
      for (int i = 0; i < x->pool[q].islands; i++)
        if (x->pool[q].island[i] == island) {
          double one = 0;
          if (q != pool)
            ATOLL_TRY(pools_send(x, at, pool, q, &one));
          *seconds = fmin(*seconds, one);
        }
  }
  return ATOLL_OK;
}

static atoll_err why_idle(large *x, const combination *at, const atoll_plan *plan, int pool, char *text, size_t n) {
  const large_pool *p = &x->pool[pool];
  int narrowest = INT32_MAX, points = 0;
  double least = INFINITY, slowest = 0, far;
  char a[32], b[32];
  for (int s = 0; s < plan->pipeline[0].stages; s++) {
    const atoll_plan_replica *r = &plan->pipeline[0].stage[s].replica[0];
    slowest = fmax(slowest, r->forward_seconds + r->backward_seconds);
  }
  ATOLL_TRY(nearest(x, at, plan, pool, &far));
  for (int k = 0; k < x->kinds; k++) {
    atoll_slice_plan point[LARGE_POINTS];
    int width = at->D * x->kind[k].tensor, found = 0;
    if (x->kind[k].pool != pool)
      continue;
    narrowest = width < narrowest ? width : narrowest;
    if (width <= p->per_island)
      ATOLL_TRY(pools_ask(x, at, k, 1, x->c->layers > 2 ? 2 : 1, 1, point, &found));
    for (int i = 0; i < found; i++)
      least = fmin(least, point[i].forward + point[i].backward);
    points += found;
  }
  if (narrowest > p->per_island)
    snprintf(text, n, "a stage of this plan has %d replicas, more than its %d devices", at->D, p->per_island);
  else if (!points)
    snprintf(text, n, "not even one block of the model fits its memory");
  else if (least > slowest)
    snprintf(text, n, "one block takes it %s, the slowest stage of this plan %s: it would set the pace",
             plan_seconds_text(least, a, sizeof a), plan_seconds_text(slowest, b, sizeof b));
  else if (far > 0.25 * slowest)
    snprintf(
        text, n,
        "a micro-batch takes %s there and back over its link to the devices in use, next to %s in the slowest stage",
        plan_seconds_text(far, a, sizeof a), plan_seconds_text(slowest, b, sizeof b));
  else if (x->cheapest)
    snprintf(text, n, "another stage on it would cost more rent than the time it saves");
  else
    snprintf(text, n,
             "every way found to give it layers lengthens the pipeline by more than it shortens the slowest stage "
             "(%s)",
             plan_seconds_text(slowest, b, sizeof b));
  return ATOLL_OK;
}

atoll_err realize_idle(large *x, const combination *at, const atoll_plan *plan, large_choice *out) {
  int *used = NULL;
  atoll_err err;
  ATOLL_TRY_GOTO(err, done, plan_alloc((size_t)x->islands, sizeof *used, &used));
  ATOLL_TRY_GOTO(err, done, plan_alloc((size_t)x->pools, sizeof *out->idle, &out->idle));
  for (int s = 0; s < plan->pipeline[0].stages; s++)
    for (int k = 0; k < plan->pipeline[0].stage[s].replicas; k++)
      used[parts_of(x, &plan->pipeline[0].stage[s].replica[k])] += plan->pipeline[0].stage[s].replica[k].ranks;
  for (int p = 0; p < x->pools; p++) {
    char names[96] = "", why[176];
    int idle = 0, shown = 0, islands = 0;
    for (int i = 0; i < x->pool[p].islands; i++) {
      int island = x->pool[p].island[i], here = x->devices[island] - used[island];
      size_t len = strlen(names);
      idle += here;
      islands += here > 0;
      if (here > 0 && shown++ < 6)
        snprintf(names + len, sizeof names - len, "%s%s", len ? " " : "", large_home(x, island)->name);
    }
    if (!idle)
      continue;
    ATOLL_TRY_GOTO(err, done, why_idle(x, at, plan, p, why, sizeof why));
    snprintf(out->idle[out->idle_count++], sizeof *out->idle, "%d device%s of island%s %s%s: %s", idle,
             idle == 1 ? "" : "s", islands == 1 ? "" : "s", names, islands > 6 ? " ..." : "", why);
  }
done:
  free(used);
  return err;
}
