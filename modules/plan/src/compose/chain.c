/* The best chain of stages for one micro-batch size and data degree, by the composition engine.
 *
 * A stage is `data` replicas of `tensor` devices on one island. To the engine it is a single replica of data * tensor
 * devices that has to stay inside a "node", an island; the n micro-batches of the busiest column are its global batch.
 * With t_i seconds of one micro-batch in stage i, p_i those of both sends over the boundary behind it and d_i extra
 * seconds per step, a step takes
 *
 *   T = (n - 1) max_i (t_i + p_i)  +  sum_i (t_i + p_i)  +  max_i (d_i - sum_{j<i} (t_j + p_j))  +  w,
 *
 * where w is the swap of the gradients of a tensor that the first and the last stage share.
 *
 * Sends count as if nothing hid them: a stage that holds W micro-batches waits for the round trip of one through all
 * later stages once in W micro-batches, and in 1F1B W is the number of these stages.
 *
 * The engine is asked for a first plan, by which most combinations are discarded unseen, and then for better plans and
 * bounds with a counted allowance: up to EXACT_DEVICES devices its own, which nearly always ends in a proof, beyond
 * what large.c allots. The gap says what that may miss. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compose/large.h"

#define EXACT_DEVICES 24

typedef struct memo { /* points of a slice on a kind; n = -1: not asked */
  int n;
  engine_point point[ENGINE_POINTS];
} memo;

typedef struct chain {
  large *x;
  const combination *at;
  int kinds;
  engine_kind *kind; /* those with room; option: the tensor degree */
  int *of_large;     /* [kinds]: their numbers there */
  engine_pool *pool;
  int *layer_class;
  memo *memo;   /* [kinds][reps] */
  double *send; /* [kinds][kinds]: there and back */
  double *swap; /* [pools][pools]: of tied gradients, first stage and last */
  engine_plan *start;
  atoll_err err; /* of a callback */
} chain;

static const memo *points_of(chain *c, int kind, int first, int last) {
  const composer *co = c->x->c;
  memo *m = &c->memo[(size_t)kind * (size_t)co->reps + (size_t)co->rep[first * (co->layers + 1) + last]];
  if (m->n < 0 && c->err == ATOLL_OK)
    c->err = pools_points(c->x, c->at, c->of_large[kind], first, last, m->point, &m->n);
  return m;
}

static int slice(void *context, int b, int kind, int first, int last, engine_point point[ENGINE_POINTS]) {
  chain *c = context;
  const memo *m = points_of(c, kind, first, last);
  (void)b;
  if (c->err != ATOLL_OK)
    return 0;
  memcpy(point, m->point, (size_t)m->n * sizeof *point);
  return m->n;
}

/* There and back: who sends forward waits for what comes back. */
static double send(void *context, int b, int layer, int from, int to, int backward) {
  const chain *c = context;
  (void)b;
  (void)layer;
  return backward ? 0 : c->send[from * c->kinds + to];
}

static double ends(void *context, int b, const engine_stage *first, const engine_stage *last) {
  const chain *c = context;
  (void)b;
  return c->swap[c->kind[first->group[0].kind].pool * c->x->pools + c->kind[last->group[0].kind].pool];
}

static double no_sync(void *context, int b, const engine_stage *stage) { /* part of what a slice takes extra */
  (void)context;
  (void)b;
  (void)stage;
  return 0;
}

static double send_money(void *context, int b, const engine_stage *left, const engine_stage *right) {
  const chain *c = context;
  (void)b;
  return pools_money(c->x, c->at, c->kind[left->group[0].kind].pool, c->kind[right->group[0].kind].pool);
}

static double money(void *context, int b, int stages, const engine_stage *stage) {
  const chain *c = context;
  double sum = copies_money(c->x, c->at);
  for (int i = 0; i + 1 < stages; i++)
    sum += send_money(context, b, &stage[i], &stage[i + 1]);
  return sum;
}

/* Pools whose islands are of one class and size have the same slices, wherever they stand. */
static int like_of(const large *x, int pool) {
  for (int i = 0; i < pool; i++)
    if (pools_alike(x, i, pool))
      return i;
  return pool;
}

static int zone_of(const large *x, int pool) {
  const atoll_topo_node *node = x->c->problem->topo->node;
  for (int i = 0; i < pool; i++)
    if (strcmp(node[x->pool[i].node].zone, node[x->pool[pool].node].zone) == 0)
      return i;
  return pool;
}

static atoll_err tabulate_sends(chain *c) {
  int64_t boundary;
  ATOLL_TRY(cost_boundary_bytes(c->x->c->problem->model, 0, c->at->b, c->x->c->problem->seq, &boundary));
  ATOLL_TRY(plan_alloc((size_t)c->kinds * (size_t)c->kinds, sizeof *c->send, &c->send));
  for (int from = 0; from < c->kinds; from++)
    for (int to = 0; to < c->kinds; to++) {
      double *seconds = &c->send[from * c->kinds + to];
      ATOLL_TRY(pools_send(c->x, c->at, c->kind[from].pool, c->kind[to].pool, seconds));
      *seconds += pools_hand_on(c->x, c->of_large[from], c->of_large[to], boundary);
    }
  return ATOLL_OK;
}

static atoll_err describe(chain *c) {
  const large *x = c->x;
  size_t P = (size_t)x->pools, L = (size_t)x->c->layers;
  ATOLL_TRY(plan_alloc(P, sizeof *c->pool, &c->pool));
  ATOLL_TRY(plan_alloc((size_t)x->kinds, sizeof *c->kind, &c->kind));
  ATOLL_TRY(plan_alloc((size_t)x->kinds, sizeof *c->of_large, &c->of_large));
  ATOLL_TRY(plan_alloc(P * P, sizeof *c->swap, &c->swap));
  ATOLL_TRY(plan_alloc(L, sizeof *c->layer_class, &c->layer_class));
  for (int p = 0; p < x->pools; p++) {
    const large_pool *pool = &x->pool[p];
    c->pool[p] = (engine_pool){.devices = pool->islands * pool->per_island,
                               .per_node = pool->per_island,
                               .zone = zone_of(x, p),
                               .like = like_of(x, p),
                               .links = p,
                               .price = pool->price};
    for (int q = 0; q < x->pools; q++)
      c->swap[p * x->pools + q] = pools_swap(x, p, q);
  }
  for (int k = 0; k < x->kinds; k++) {
    int width = c->at->D * x->kind[k].tensor;
    if (width > x->pool[x->kind[k].pool].per_island)
      continue;
    c->of_large[c->kinds] = k;
    c->kind[c->kinds++] = (engine_kind){x->kind[k].pool, width, x->kind[k].tensor};
  }
  ATOLL_TRY(tabulate_sends(c));
  for (int l = 0; l < x->c->layers; l++)
    c->layer_class[l] = cost_layer_class(x->c->cost, l);
  size_t memos = (size_t)c->kinds * (size_t)x->c->reps;
  ATOLL_TRY(plan_alloc(memos, sizeof *c->memo, &c->memo));
  for (size_t i = 0; i < memos; i++)
    c->memo[i].n = -1;
  return ATOLL_OK;
}

static void pose(chain *c, double limit, engine_part part, int64_t work, engine_problem *p) {
  const large *x = c->x;
  static const int64_t one = 1;
  int devices = 0;
  for (int i = 0; i < x->pools; i++)
    devices += c->pool[i].devices;
  engine_problem_init(p);
  p->layers = x->c->layers;
  p->layer_class = c->layer_class;
  p->pools = x->pools;
  p->pool = c->pool;
  p->kinds = c->kinds;
  p->kind = c->kind;
  p->batches = 1;
  p->batch = &one;
  p->global_batch = c->at->most;
  p->costs = (engine_costs){.context = c,
                            .slice = slice,
                            .send = send,
                            .sync = no_sync,
                            .ends = ends,
                            .money = money,
                            .send_money = send_money};
  p->goal = x->cheapest ? ENGINE_CHEAPEST : ENGINE_FASTEST;
  p->max_seconds = x->cheapest ? x->max_seconds : fmin(x->max_seconds, limit);
  if (x->c->params->max_price > 0)
    p->max_price = x->c->params->max_price;
  p->max_price = x->cheapest ? fmin(p->max_price, limit) : p->max_price;
  p->extra_hidden = 1;
  p->width = 1;
  p->part = part;
  p->start = part == ENGINE_FROM_START ? c->start : NULL;
  p->work = devices * x->copies <= EXACT_DEVICES ? 0 : work;
}

/* The combination's plan by the kinds of this problem. */
static atoll_err take_start(chain *c) {
  if (!c->at->plan)
    return ATOLL_OK;
  ATOLL_TRY(engine_plan_copy(c->at->plan, &c->start));
  c->start->b = 0;
  for (int i = 0; i < c->start->stages; i++)
    for (int k = 0; k < c->kinds; k++)
      if (c->of_large[k] == c->at->plan->stage[i].group[0].kind)
        c->start->group[i].kind = k;
  return ATOLL_OK;
}

static atoll_err solve(chain *c, combination *at, double limit, engine_part part, int64_t work) {
  engine_problem problem;
  engine_result *r = NULL;
  ATOLL_TRY(describe(c));
  if (!c->kinds) { /* no island has room for a stage */
    at->least = limit;
    return ATOLL_OK;
  }
  ATOLL_TRY(take_start(c));
  pose(c, limit, part, work, &problem);
  atoll_err err = engine_search(&problem, &r);
  if (c->err == ATOLL_OK && err == ATOLL_INFEASIBLE) {
    atoll_err_clear();
    err = ATOLL_OK;
    c->x->c->infeasible += part == ENGINE_FIRST_PLANS;
  }
  if (r) {
    c->x->c->considered += r->labels;
    at->least = fmax(at->least, fmin(r->bound, limit));
  }
  if (r && r->best) {
    engine_plan_destroy(&at->plan);
    at->plan = r->best;
    r->best = NULL;
    at->value = c->x->cheapest ? at->plan->price : at->plan->seconds;
    for (int i = 0; i < at->plan->stages; i++)
      at->plan->group[i].kind = c->of_large[at->plan->group[i].kind];
  }
  at->least = fmin(at->least, at->value);
  engine_result_destroy(&r);
  return c->err != ATOLL_OK ? c->err : err;
}

atoll_err chain_solve(combination *at, double limit, engine_part part, int64_t work) {
  chain c = {.x = at->x, .at = at};
  atoll_err err = solve(&c, at, limit, part, work);
  engine_plan_destroy(&c.start);
  free(c.kind);
  free(c.of_large);
  free(c.pool);
  free(c.layer_class);
  free(c.memo);
  free(c.send);
  free(c.swap);
  return err;
}
