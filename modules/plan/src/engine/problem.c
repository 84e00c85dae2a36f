/* What a plan costs, exactly: the formulas of engine.h, term by term. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine_impl.h"

void engine_problem_init(engine_problem *problem) {
  memset(problem, 0, sizeof *problem);
  problem->max_seconds = problem->max_price = INFINITY;
  problem->last_factor = 1;
}

/* ---- plans ------------------------------------------------------------------------------------------------------- */

atoll_err engine_plan_create(int stages, int groups, engine_plan **out) {
  engine_plan *plan = calloc(1, sizeof *plan);
  engine_stage *stage = calloc((size_t)stages, sizeof *stage);
  engine_group *group = calloc((size_t)groups, sizeof *group);
  struct engine_stage_time *time = calloc((size_t)stages, sizeof *time);
  if (!plan || !stage || !group || !time) {
    free(plan);
    free(stage);
    free(group);
    free(time);
    return atoll_fail(ATOLL_NOMEM, "plan: no memory for a pipeline of %d stages", stages);
  }
  plan->stages = stages;
  plan->stage = stage;
  plan->time = time;
  stage[0].group = group; /* one block for all stages */
  plan->group = group;
  *out = plan;
  return ATOLL_OK;
}

void engine_plan_destroy(engine_plan **plan) {
  if (!*plan)
    return;
  free((*plan)->group);
  free((*plan)->stage);
  free((*plan)->time);
  free(*plan);
  *plan = NULL;
}

atoll_err engine_plan_copy(const engine_plan *plan, engine_plan **out) {
  int groups = 0;
  engine_plan *copy = NULL;
  for (int i = 0; i < plan->stages; i++)
    groups += plan->stage[i].groups;
  ATOLL_TRY(engine_plan_create(plan->stages, groups, &copy));
  engine_stage *stage = copy->stage;
  engine_group *group = copy->group;
  struct engine_stage_time *time = copy->time;
  *copy = *plan;
  copy->stage = stage;
  copy->group = group;
  copy->time = time;
  memcpy(time, plan->time, (size_t)plan->stages * sizeof *time);
  for (int i = 0, at = 0; i < plan->stages; i++) {
    stage[i] = plan->stage[i];
    stage[i].group = group + at;
    memcpy(group + at, plan->stage[i].group, (size_t)stage[i].groups * sizeof *group);
    at += stage[i].groups;
  }
  *out = copy;
  return ATOLL_OK;
}

int64_t engine_width(const engine_stage *stage) {
  int64_t width = 0;
  for (int g = 0; g < stage->groups; g++)
    width += stage->group[g].count;
  return width;
}

/* ---- who talks to whom ------------------------------------------------------------------------------------------- */

static int64_t greatest_common_divisor(int64_t a, int64_t b) {
  while (b) {
    int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

/* Micro-batch k goes from replica k mod D to replica k mod E: how many k show all pairs. */
static int64_t route_count(int64_t D, int64_t E, int64_t micro_batches) {
  if (D == E)
    return D;
  int64_t all = D / greatest_common_divisor(D, E) * E;
  int64_t n = all < micro_batches ? all : micro_batches, least = D > E ? D : E;
  return n > least ? n : least;
}

void engine_routes(const engine_stage *left, const engine_stage *right, int64_t micro_batches, unsigned char *talks) {
  int64_t D = engine_width(left), E = engine_width(right), n = route_count(D, E, micro_batches);
  memset(talks, 0, (size_t)left->groups * (size_t)right->groups);
  int found = 0, all = left->groups * right->groups, a = 0, b = 0;
  int64_t ra = 0, rb = 0; /* replicas of the group at hand that are behind */
  for (int64_t k = 0; k < n && found < all; k++) {
    unsigned char *t = &talks[a * right->groups + b];
    found += !*t;
    *t = 1;
    if (++ra == left->group[a].count)
      ra = 0, a = (a + 1) % left->groups;
    if (++rb == right->group[b].count)
      rb = 0, b = (b + 1) % right->groups;
  }
}

static atoll_err boundary(const engine_problem *problem, int b, const engine_stage *left, const engine_stage *right,
                          double *act, double *grad) {
  const engine_costs *costs = &problem->costs;
  unsigned char *talks = malloc((size_t)left->groups * (size_t)right->groups);
  if (!talks)
    return atoll_fail(ATOLL_NOMEM, "plan: no memory for the routes of %d x %d groups", left->groups, right->groups);
  engine_routes(left, right, engine_total(problem, b), talks);
  *act = *grad = 0;
  for (int i = 0; i < left->groups; i++)
    for (int j = 0; j < right->groups; j++)
      if (talks[i * right->groups + j]) {
        int from = left->group[i].kind, to = right->group[j].kind;
        *act = fmax(*act, costs->send(costs->context, b, right->first, from, to, 0));
        *grad = fmax(*grad, costs->send(costs->context, b, right->first, to, from, 1));
      }
  free(talks);
  return ATOLL_OK;
}

/* ---- devices ----------------------------------------------------------------------------------------------------- */

/* First fit, widest first: exact for widths that divide one another. counts[w]: replicas of w devices, w <= widest. */
int engine_packs(const engine_pool *pool, const int *counts, int widest) {
  int64_t wanted = 0;
  int whole = 1; /* every node is filled evenly by every width */
  for (int w = 1; w <= widest; w++)
    if (counts[w]) {
      wanted += (int64_t)w * counts[w];
      if (pool->per_node > 0 && w > pool->per_node)
        return 0;
      whole &= pool->per_node > 0 && pool->per_node % w == 0 && (w & (w - 1)) == 0;
    }
  if (wanted > pool->devices)
    return 0;
  if (pool->per_node <= 0 || (whole && pool->devices % pool->per_node == 0))
    return 1;
  int nodes = pool->devices / pool->per_node, rest = pool->devices % pool->per_node, fits = 1;
  int *free_of = malloc(((size_t)nodes + 1) * sizeof *free_of);
  if (!free_of)
    return 0;
  for (int i = 0; i < nodes; i++)
    free_of[i] = pool->per_node;
  free_of[nodes] = rest;
  for (int w = widest; w >= 1 && fits; w--)
    for (int i = 0, k = 0; i < counts[w] && fits; i++) { /* of one width: nodes before k are too full */
      while (k <= nodes && free_of[k] < w)
        k++;
      if (k > nodes)
        fits = 0;
      else
        free_of[k] -= w;
    }
  free(free_of);
  return fits;
}

static atoll_err check_devices(const engine_problem *problem, const engine_plan *plan) {
  int widest = 1;
  for (int k = 0; k < problem->kinds; k++)
    widest = problem->kind[k].devices > widest ? problem->kind[k].devices : widest;
  size_t row = (size_t)widest + 1;
  int *counts = calloc((size_t)problem->pools * row, sizeof *counts);
  if (!counts)
    return atoll_fail(ATOLL_NOMEM, "plan: no memory for %d pools", problem->pools);
  for (int i = 0; i < plan->stages; i++)
    for (int g = 0; g < plan->stage[i].groups; g++) {
      const engine_kind *kind = &problem->kind[plan->stage[i].group[g].kind];
      counts[(size_t)kind->pool * row + (size_t)kind->devices] += plan->stage[i].group[g].count;
    }
  atoll_err err = ATOLL_OK;
  for (int p = 0; p < problem->pools && err == ATOLL_OK; p++)
    if (!engine_packs(&problem->pool[p], counts + (size_t)p * row, widest))
      err = atoll_fail(ATOLL_INFEASIBLE, "the replicas on pool %d do not fit into its %d devices", p,
                       problem->pool[p].devices);
  free(counts);
  return err;
}

/* ---- evaluate ---------------------------------------------------------------------------------------------------- */

static atoll_err check_form(const engine_problem *problem, const engine_plan *plan) {
  if (plan->b < 0 || plan->b >= problem->batches || plan->stages < 1)
    return atoll_fail(ATOLL_USAGE, "a pipeline of %d stages with micro-batch size number %d", plan->stages, plan->b);
  int at = 0;
  for (int i = 0; i < plan->stages; i++) {
    const engine_stage *s = &plan->stage[i];
    if (s->first != at || s->last <= s->first || s->groups < 1)
      return atoll_fail(ATOLL_USAGE, "stage %d of a pipeline has layers [%d, %d) and %d groups after layer %d", i,
                        s->first, s->last, s->groups, at);
    for (int g = 0; g < s->groups; g++)
      if (s->group[g].kind < 0 || s->group[g].kind >= problem->kinds || s->group[g].count < 1)
        return atoll_fail(ATOLL_USAGE, "stage %d of a pipeline has %d replicas of kind %d", i, s->group[g].count,
                          s->group[g].kind);
    at = s->last;
  }
  return at == problem->layers ? ATOLL_OK
                               : atoll_fail(ATOLL_USAGE, "a pipeline ends at layer %d of %d", at, problem->layers);
}

/* Compute, extra and what fits of one stage that has to hold time->in_flight micro-batches. */
static atoll_err stage_compute(const engine_problem *problem, const engine_plan *plan, int i) {
  const engine_stage *s = &plan->stage[i];
  struct engine_stage_time *time = &plan->time[i];
  time->seconds = time->extra = 0;
  time->micro_batches = INT64_MAX;
  for (int g = 0; g < s->groups; g++) {
    engine_point point[ENGINE_POINTS];
    int n = problem->costs.slice(problem->costs.context, plan->b, s->group[g].kind, s->first, s->last, point), at = 0;
    while (at < n && point[at].in_flight < time->in_flight)
      at++;
    if (at == n)
      return atoll_fail(
          ATOLL_INFEASIBLE, "stage %d, layers [%d, %d): kind %d holds %lld micro-batches in flight, needs %lld", i,
          s->first, s->last, s->group[g].kind, (long long)(n ? point[n - 1].in_flight : 0), (long long)time->in_flight);
    time->seconds = fmax(time->seconds, point[at].seconds);
    time->extra = fmax(time->extra, point[at].extra);
    time->micro_batches = point[at].in_flight < time->micro_batches ? point[at].in_flight : time->micro_batches;
  }
  return ATOLL_OK;
}

static void sum_up(const engine_problem *problem, engine_plan *plan) {
  double sum = 0, extra = 0, sync = 0, rent = 0;
  plan->bottleneck = -1;
  for (int i = 0; i < plan->stages; i++) {
    const struct engine_stage_time *time = &plan->time[i];
    double steady = (double)(time->G - 1) * (time->seconds + time->send);
    if (steady > plan->bottleneck)
      plan->bottleneck = steady, plan->limiting = i;
    extra = fmax(extra, problem->extra_hidden ? time->extra - sum : time->extra);
    sync = fmax(sync, time->sync);
    sum += time->seconds + time->send;
    for (int g = 0; g < plan->stage[i].groups; g++) {
      const engine_kind *kind = &problem->kind[plan->stage[i].group[g].kind];
      rent += problem->pool[kind->pool].price * kind->devices * plan->stage[i].group[g].count;
    }
  }
  plan->extra = extra;
  plan->sync = sync;
  plan->ends =
      problem->costs.ends && plan->stages > 1
          ? problem->costs.ends(problem->costs.context, plan->b, &plan->stage[0], &plan->stage[plan->stages - 1])
          : 0;
  plan->seconds = plan->bottleneck + sum + extra + sync + plan->ends;
  plan->price = plan->seconds * rent + plan->transfer_price;
}

atoll_err engine_evaluate(const engine_problem *problem, engine_plan *plan) {
  const engine_costs *costs = &problem->costs;
  ATOLL_TRY(check_form(problem, plan));
  ATOLL_TRY(check_devices(problem, plan));
  int64_t after = 0;
  double act = 0, grad;
  for (int i = plan->stages - 1; i >= 0; i--) {
    struct engine_stage_time *time = &plan->time[i];
    const engine_stage *s = &plan->stage[i];
    int64_t D = engine_width(s), held;
    if (problem->width && D != problem->width)
      return atoll_fail(ATOLL_USAGE, "stage %d has %lld replicas, every one is to have %d", i, (long long)D,
                        problem->width);
    after += D;
    held = (after + D - 1) / D;
    time->G = engine_rounds(problem, plan->b, D);
    time->in_flight = held > plan->stages - i ? held : plan->stages - i;
    ATOLL_TRY(stage_compute(problem, plan, i));
    double ahead = act; /* of this stage to the next */
    act = grad = 0;
    if (i > 0)
      ATOLL_TRY(boundary(problem, plan->b, &plan->stage[i - 1], s, &act, &grad));
    time->send = engine_exposed(problem, plan->stages, i, ahead, grad);
    time->sync = costs->sync(costs->context, plan->b, s);
  }
  plan->transfer_price = costs->money ? costs->money(costs->context, plan->b, plan->stages, plan->stage) : 0;
  sum_up(problem, plan);
  return ATOLL_OK;
}
