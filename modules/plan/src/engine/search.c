/* The search over pipelines.
 *
 * Problem. Split L layers into stages, staff each stage with replicas from the pools, choose the micro-batch, so that
 * T = max_i (G_i - 1)(t_i + p_i) + sum_i (t_i + p_i) + X + max_i sync_i, or the price, is least (engine.h).
 *
 * Method. For a given bound `high` of the bottleneck the width of every stage follows from its staff and layers, and
 * what is left is a shortest path over (layer, devices used) with a few more coordinates (labels.c). The search is a
 * branch and bound over intervals (low, high] of the bottleneck of one micro-batch size, a node each. A node's program
 * yields whole plans, and V, the least sum + X + sync in it. Every plan of the node takes at least low + V, and more
 * than the best plan known when its bottleneck is above best - V; so what is left of the node is (low, best - V]. Where
 * price matters too the node is halved instead. Nodes are tried best bound first; a node is closed when its bound
 * reaches the best plan. What is left open when the work limit ends the search is the gap.
 *
 * Rounds, each with what the former found as its limit:
 *   1. a few labels per layer, for a first plan;
 *   2. stages of one kind, all labels: exact;
 *   3. stages of several kinds. With few devices every staffing is listed by its counts, and routes between replicas
 * are exact: the answer is the optimum over contiguous splits, widths, kinds and mixes, groups in the order of kinds.
 *      With many, small changes are made to the best plans (improve.c), before round 2 and after it; then the gap says
 *      what mixes could still bring, by the bounds of nodes alone.
 *
 * Rules that discard, and why none discards the optimum:
 *   bound      a partial plan or node whose lower bound reaches the best plan (proofs: bound.c)
 *   dominance  a partial plan that another one makes superfluous (proof: labels.c)
 *   width      the least width that keeps bottleneck and memory (proof: labels.c)
 *   one kind   at most one kind per pool in a stage: of two kinds of a pool in one stage the replicas with more devices
 * can be replaced by ones of the other kind, which fits the stage already, is waited for already, and takes fewer
 *   unused     a plan may leave any device idle: nothing forces its use
 * Pools that are alike are one unit when there are many (space.c): that keeps the answer real but no longer proved. */
#include <stdlib.h>
#include <string.h>

#include "engine/search.h"

#define WORK_DEFAULT  60000000 /* some 10 s */
#define FEW_STAFFINGS 800
#define FEW_DEVICES   16
#define BEAM          16
#define NARROW        1e-9  /* relative width of a node that is not split any more */
#define NARROW_ROUGH  1e-3  /* the same when labels only estimate money or sync: splitting would not end */
#define FIRST_SHARE   4     /* part of the work for first plans */
#define ROUGH_BOUND   0.008 /* share of the time that a node may span whose bound is the last word */
#define BOUND_NODES   400   /* halved for a bound by nodes alone */

double search_value(const search *s, double seconds, double price) {
  const engine_problem *p = s->problem;
  if (!(seconds <= p->max_seconds * WITHIN) || (p->max_price < INFINITY && !(price <= p->max_price * WITHIN)))
    return INFINITY;
  return p->goal == ENGINE_CHEAPEST ? price : seconds;
}

double search_plan_value(const search *s, const engine_plan *plan) {
  const engine_problem *p = s->problem;
  if (!(plan->seconds <= p->max_seconds) || (p->max_price < INFINITY && !(plan->price <= p->max_price)))
    return INFINITY;
  double value = p->goal == ENGINE_CHEAPEST ? plan->price : plan->seconds;
  return value < INFINITY ? value : INFINITY;
}

/* ---- plans ------------------------------------------------------------------------------------------------------- */

static atoll_err build(const search *s, const node *n, const label *final, engine_plan **out) {
  engine_group group[PLACED];
  int total = 0, ok = 1, stages = final->stages;
  engine_plan *plan = NULL;
  for (int pass = 0; pass < 2; pass++) { /* count groups, then fill them */
    const label *l = final;
    int at = 0;
    for (int i = 0; i < stages; i++) {
      const label *before = &s->label[l->parent];
      const choice *c = &s->choice[before->next];
      int groups = 0;
      for (int g = 0; g < c->groups; g++) {
        int used = before->used[s->unit[s->kind[c->kind[g]].unit].dim];
        int more = space_place(s, c->kind[g], used, l->count[g], group + groups, PLACED - groups);
        ok &= more > 0;
        groups += more;
      }
      if (pass) {
        memcpy(plan->group + at, group, (size_t)groups * sizeof *group);
        plan->stage[i] = (engine_stage){l->layer, before->layer, groups, plan->group + at};
      }
      at += groups;
      l = before;
    }
    total = at;
    if (!ok)
      return ATOLL_OK; /* cannot be placed: *out stays NULL */
    if (!pass)
      ATOLL_TRY(engine_plan_create(stages, total, &plan));
  }
  plan->b = n->b;
  *out = plan;
  return ATOLL_OK;
}

/* Of different micro-batch, depth or devices per pool. */
static int differs(const engine_problem *p, const engine_plan *a, const engine_plan *b) {
  if (a->b != b->b || a->stages != b->stages)
    return 1;
  for (int i = 0; i < a->stages; i++) {
    if (a->stage[i].groups != b->stage[i].groups || engine_width(&a->stage[i]) != engine_width(&b->stage[i]))
      return 1;
    for (int g = 0; g < a->stage[i].groups; g++)
      if (p->kind[a->stage[i].group[g].kind].pool != p->kind[b->stage[i].group[g].kind].pool)
        return 1;
  }
  return 0;
}

/* Takes the plan. */
static void reject(search *s, engine_plan **plan) {
  int at = 0;
  double value = search_plan_value(s, *plan);
  for (; at < s->rejects && search_plan_value(s, s->reject[at]) <= value; at++)
    if (!differs(s->problem, s->reject[at], *plan)) {
      engine_plan_destroy(plan);
      return;
    }
  for (int i = at; i < s->rejects; i++)
    if (!differs(s->problem, s->reject[i], *plan)) { /* worse of its like */
      engine_plan_destroy(&s->reject[i]);
      memmove(&s->reject[i], &s->reject[i + 1], (size_t)(s->rejects - i - 1) * sizeof *s->reject);
      s->rejects--;
      break;
    }
  if (at == REJECTED_KEPT || !(value < INFINITY)) {
    engine_plan_destroy(plan);
    return;
  }
  if (s->rejects == REJECTED_KEPT)
    engine_plan_destroy(&s->reject[--s->rejects]);
  memmove(&s->reject[at + 1], &s->reject[at], (size_t)(s->rejects - at) * sizeof *s->reject);
  s->reject[at] = *plan;
  s->rejects++;
  *plan = NULL;
}

void search_keep(search *s, engine_plan **plan) {
  double value = search_plan_value(s, *plan);
  if (value < s->best_value * (1 - ENGINE_EQUAL)) {
    engine_plan *was = s->best;
    s->best = *plan;
    s->best_value = value;
    *plan = NULL;
    if (was && differs(s->problem, was, s->best))
      reject(s, &was);
    else
      engine_plan_destroy(&was);
  } else {
    reject(s, plan);
  }
}

atoll_err search_take(search *s, engine_plan **plan, int *fits) {
  atoll_err err = engine_evaluate(s->problem, *plan);
  s->work += EVALUATED;
  *fits = err == ATOLL_OK;
  if (err == ATOLL_OK) {
    search_keep(s, plan);
  } else if (err == ATOLL_INFEASIBLE) {
    atoll_err_clear();
    err = ATOLL_OK;
  }
  engine_plan_destroy(plan);
  return err;
}

atoll_err search_offer(search *s, const node *n, const label *final) {
  engine_plan *plan = NULL;
  int fits = 0;
  ATOLL_TRY(build(s, n, final, &plan));
  atoll_err err = plan ? search_take(s, &plan, &fits) : ATOLL_OK;
  s->misplaced += !fits;
  return err;
}

/* Bounds a node and takes the path that it came across, if any. */
static atoll_err look(search *s, node *n) {
  engine_group group[PLACED];
  int used[DIMS] = {0}, total = 0, fits;
  engine_plan *plan = NULL;
  bound_node(s, n);
  for (int pass = 0; pass < 2 && s->path_stages; pass++) { /* count groups, then fill them */
    memset(used, 0, sizeof used);
    for (int i = 0, at = 0; i < s->path_stages; i++) {
      const path_stage *p = &s->path[i];
      const unit_kind *kind = &s->kind[p->kind];
      int groups = space_place(s, p->kind, used[kind->unit], p->width, group, PLACED);
      if (!groups) {
        engine_plan_destroy(&plan);
        return ATOLL_OK;
      }
      used[kind->unit] += kind->devices * p->width;
      if (pass) {
        memcpy(plan->group + at, group, (size_t)groups * sizeof *group);
        plan->stage[i] = (engine_stage){p->first, p->last, groups, plan->group + at};
      }
      at += groups;
      total = at;
    }
    if (!pass)
      ATOLL_TRY(engine_plan_create(s->path_stages, total, &plan));
  }
  if (!plan)
    return ATOLL_OK;
  plan->b = n->b;
  return search_take(s, &plan, &fits);
}

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

typedef struct heap {
  node *node;
  int n, room;
} heap;

static int before(const node *a, const node *b) {
  if (a->bound != b->bound)
    return a->bound < b->bound;
  if (a->b != b->b)
    return a->b > b->b;
  return a->width != b->width ? a->width < b->width : a->low < b->low;
}

static atoll_err add_node(heap *h, node n) {
  if (h->n == h->room) {
    int room = h->room ? 2 * h->room : 64;
    node *grown = realloc(h->node, (size_t)room * sizeof *grown);
    if (!grown)
      return atoll_fail(ATOLL_NOMEM, "plan: no memory for %d nodes", room);
    h->node = grown;
    h->room = room;
  }
  int i = h->n++;
  for (; i && before(&n, &h->node[(i - 1) / 2]); i = (i - 1) / 2)
    h->node[i] = h->node[(i - 1) / 2];
  h->node[i] = n;
  return ATOLL_OK;
}

static node first_node(heap *h) {
  node first = h->node[0], last = h->node[--h->n];
  int i = 0;
  for (int child; (child = 2 * i + 1) < h->n; i = child) {
    child += child + 1 < h->n && before(&h->node[child + 1], &h->node[child]);
    if (!before(&h->node[child], &last))
      break;
    h->node[i] = h->node[child];
  }
  h->node[i] = last;
  return first;
}

static int open(const search *s, const node *n) { return n->bound < s->best_value * (1 - ENGINE_EQUAL); }

/* No bottleneck is longer: all micro-batches through the slowest single replica, sends included. */
static double longest(search *s, int b) {
  double most = 0;
  for (int k = 0; k < s->unit_kinds; k++)
    for (int f = 0; f < s->layers; f++)
      for (int l = f + 1; l <= s->layers; l++) {
        const engine_point *point;
        int n = space_points(s, b, k, f, l, &point);
        for (int i = 0; i < n; i++)
          most = fmax(most, point[i].seconds);
      }
  double send = 0;
  for (int l = 1; l < s->layers; l++)
    for (int i = 0; i < s->unit_kinds; i++)
      for (int j = 0; j < s->unit_kinds; j++)
        for (int back = 0; back < 2; back++) {
          double one = space_send(s, b, l, i, j, back);
          if (one < INFINITY)
            send = fmax(send, one);
        }
  return (double)engine_total(s->problem, b) * (most + 2 * fmax(1, s->problem->last_factor) * send);
}

static int widest(const search *s) {
  int n = 0;
  for (int u = 0; u < s->units; u++) {
    int least = UINT16_MAX;
    for (int k = s->unit[u].first_kind; k < s->unit[u].first_kind + s->unit[u].kinds; k++)
      least = s->kind[k].devices < least ? s->kind[k].devices : least;
    n += s->capacity[s->unit[u].dim] / least;
  }
  return n;
}

/* All plans of one micro-batch size (and width) that can still win. */
static atoll_err add_range(search *s, heap *h, int b, int width) {
  double most = longest(s, b), low = bound_least_bottleneck(s, b, width, most);
  if (s->problem->goal == ENGINE_FASTEST && s->best_value < most)
    most = s->best_value;
  if (s->problem->max_seconds < most)
    most = s->problem->max_seconds;
  node n = {.b = b, .width = width, .low = low, .high = most, .sync_most = INFINITY};
  if (!(low <= most))
    return ATOLL_OK;
  ATOLL_TRY(look(s, &n));
  return open(s, &n) ? add_node(h, n) : ATOLL_OK;
}

/* Share of the best plan's time that a node may span: bounds of few devices cost more than programs. */
static double rough(const search *s) {
  return s->bounding && s->problem->width ? ROUGH_BOUND : s->devices <= FEW_DEVICES ? 0.25 : s->priced ? 0.08 : 0.04;
}

/* Halves a node that spans more than that, in bottleneck or in sync, as its bound
 * takes the least of both; *halved 0: it does not. What cannot be in a better plan is cut off first: of bottleneck and
 * sync what is above the least by more than the best plan, or the limit, is above the bound. */
static atoll_err halve(search *s, heap *h, node *tight, int *halved) {
  node n = *tight;
  double scale = s->best ? s->best->seconds : n.seconds, limit = s->problem->max_seconds,
         spare = (s->problem->goal == ENGINE_FASTEST ? fmin(limit, s->best_value) : limit) * WITHIN - n.seconds;
  n.high = fmin(n.high, n.low + spare);
  n.sync_most = fmin(n.sync_most, n.sync_least + spare);
  double steady = n.high - n.low, sync = fmin(n.sync_most, fmax(scale / 2, n.sync_least)) - n.sync_least;
  *halved = fmax(steady, s->best ? sync : 0) > rough(s) * scale;
  *tight = n;
  if (!*halved)
    return ATOLL_OK;
  node part[2] = {n, n};
  if (!s->best || steady > sync)
    part[0].high = part[1].low = n.low > 0 && n.high > 2 * n.low ? sqrt(n.low * n.high) : n.low + steady / 2;
  else
    part[0].sync_most = part[1].sync_least = n.sync_least + sync / 2;
  for (int i = 0; i < 2; i++) {
    double was = part[i].bound;
    ATOLL_TRY(look(s, &part[i]));
    part[i].bound = fmax(part[i].bound, was);
    if (open(s, &part[i]))
      ATOLL_TRY(add_node(h, part[i]));
  }
  return ATOLL_OK;
}

static atoll_err add_ranges(search *s, heap *h) {
  for (int b = 0; b < s->problem->batches; b++)
    ATOLL_TRY(add_range(s, h, b, s->problem->width));
  return ATOLL_OK;
}

/* What is left of a node whose program found V. */
static atoll_err split(search *s, heap *h, node n, double V) {
  if (n.low + V >= s->best_value && s->problem->goal == ENGINE_FASTEST)
    return ATOLL_OK;
  if (s->problem->goal == ENGINE_FASTEST && s->problem->max_price == INFINITY) {
    double high = (s->best_value - V) * (1 - ENGINE_EQUAL);
    if (high < n.high) {
      n.high = high;
      if (n.high <= n.low)
        return ATOLL_OK;
      n.bound = fmax(n.bound, n.low + V);
      return add_node(h, n);
    }
  }
  if (n.high - n.low <= (s->merged || s->moves ? NARROW_ROUGH : NARROW) * n.high)
    return ATOLL_OK;
  node lower = n, upper = n;
  lower.high = upper.low = n.low > 0 ? n.low + (n.high - n.low) / 2 : n.high / 2;
  ATOLL_TRY(add_node(h, lower));
  return add_node(h, upper);
}

/* All stages equally wide, any bottleneck: one node for each width that saves a micro-batch. The layers spread over at
 * most as many stages as there are devices for, so one of them takes its share of the least sum. */
static atoll_err add_even(search *s, heap *h, int b, double most) {
  int64_t rounds = 0;
  for (int width = 1, top = widest(s); width <= top; width++) {
    node n = {.b = b, .width = width, .high = most, .sync_most = INFINITY};
    if (engine_rounds(s->problem, b, width) == rounds)
      continue;
    rounds = engine_rounds(s->problem, b, width);
    ATOLL_TRY(look(s, &n));
    double sum = bound_sum(s);
    n.low = (double)(rounds - 1) * sum / (top / width);
    n.bound = fmax(n.bound, s->problem->goal == ENGINE_FASTEST ? n.low + sum : 0);
    if (open(s, &n))
      ATOLL_TRY(add_node(h, n));
  }
  return ATOLL_OK;
}

/* Labels of a bucket in a first try: fewer where there are more buckets. */
static int beam_of(const search *s) {
  int64_t buckets = (int64_t)s->layers * s->choices;
  int beam = (int)(BUCKETS_FEW * BEAM / (buckets > BUCKETS_FEW ? buckets : BUCKETS_FEW));
  return beam > 3 ? beam : 3;
}

/* First plans: few labels per layer, with equal widths and at some bottlenecks above the least, best bound first, until
 * a share of the work is spent. */
static atoll_err first_plans(search *s) {
  static const double above[] = {1.02, 1.06, 1.12, 1.2, 1.32, 1.5, 1.8, 2.4, 3.5, 6, 12, 30, 100};
  heap even = {0}, free_widths = {0};
  atoll_err err = ATOLL_OK;
  for (int b = 0; b < s->problem->batches && err == ATOLL_OK; b++) {
    int width = s->problem->width;
    double most = longest(s, b), low = bound_least_bottleneck(s, b, width, most);
    for (size_t i = 0; i < sizeof above / sizeof *above && low < INFINITY; i++) {
      node n = {.b = b, .width = width, .high = fmin(low * above[i], most), .sync_most = INFINITY};
      n.bound = s->problem->goal == ENGINE_FASTEST ? n.high : above[i]; /* the order to try them in */
      ATOLL_TRY_GOTO(err, done, add_node(&free_widths, n));
    }
    if (!width)
      ATOLL_TRY_GOTO(err, done, add_even(s, &even, b, most));
  }
  while ((even.n && open(s, &even.node[0])) || free_widths.n) { /* in turn */
    for (int i = 0; i < 2; i++) {
      heap *h = i ? &free_widths : &even;
      double V;
      int whole;
      if (s->work > s->work_limit / (s->best ? FIRST_SHARE : 2))
        goto done;
      if (!h->n || (!i && !open(s, &h->node[0])))
        continue;
      node n = first_node(h);
      bound_node(s, &n);
      if (!open(s, &n))
        continue;
      bound_prepare(s);
      ATOLL_TRY_GOTO(err, done, labels_run(s, &n, beam_of(s), &V, &whole));
    }
  }
done:
  free(even.node);
  free(free_widths.node);
  return err;
}

/* Works off the heap; with a beam, nodes that it cut short are left in `later`. */
static atoll_err work_off(search *s, heap *h, int beam, heap *later, double *lost) {
  while (h->n && open(s, &h->node[0])) {
    node n = first_node(h);
    double V;
    int whole;
    if (s->work > s->work_limit) {
      *lost = fmin(*lost, n.bound);
      s->truncated = 1;
      break;
    }
    int halved;
    ATOLL_TRY(halve(s, h, &n, &halved));
    if (halved)
      continue;
    bound_node(s, &n);
    if (!open(s, &n))
      continue;
    bound_prepare(s);
    ATOLL_TRY(labels_run(s, &n, beam, &V, &whole));
    if (!whole && beam) {
      ATOLL_TRY(add_node(later, n));
    } else if (!whole) {
      s->truncated = 1;
      *lost = fmin(*lost, n.bound);
    } else if (V < INFINITY && !n.width && !s->mixed) { /* with given widths the program has seen the whole node */
      ATOLL_TRY(split(s, h, n, V));
    }
  }
  return ATOLL_OK;
}

/* Wide nodes are tried with few labels first: good plans found early save labels later. */
static atoll_err branch(search *s, double *bound) {
  const int beams[] = {beam_of(s), 10 * beam_of(s), 0};
  heap h[4] = {{0}};
  double lost = INFINITY;
  atoll_err err = add_ranges(s, &h[0]);
  for (int i = 0; i < 3 && err == ATOLL_OK; i++)
    err = work_off(s, &h[i], beams[i], &h[i + 1], &lost);
  *bound = fmin(s->best_value, lost);
  for (int i = 0; i < 4; i++)
    free(h[i].node);
  return err;
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

static atoll_err check(const engine_problem *p) {
  if (p->layers < 1 || p->layers > INT16_MAX - 1 || p->pools < 1 || p->pools > ENGINE_POOLS_MAX || p->batches < 1 ||
      p->global_batch < 1 || p->kinds < 0)
    return atoll_fail(ATOLL_USAGE, "a pipeline of %d layers on %d pools with %d micro-batch sizes", p->layers, p->pools,
                      p->batches);
  for (int k = 0; k < p->kinds; k++)
    if (p->kind[k].pool < 0 || p->kind[k].pool >= p->pools || p->kind[k].devices < 1 ||
        (k && p->kind[k].pool < p->kind[k - 1].pool))
      return atoll_fail(ATOLL_USAGE, "kind %d of a pipeline search is on pool %d with %d devices", k, p->kind[k].pool,
                        p->kind[k].devices);
  return ATOLL_OK;
}

/* What no plan beats, by the bounds of nodes alone; of stages of several kinds where s->mixed is set. */
static atoll_err nodes_bound(search *s, double *bound) {
  heap h = {0};
  atoll_err err = add_ranges(s, &h);
  for (int i = 0, halved = 1; h.n && halved && i < BOUND_NODES && err == ATOLL_OK; i++) {
    node n = first_node(&h);
    err = halve(s, &h, &n, &halved);
    if (err == ATOLL_OK && !halved)
      err = add_node(&h, n);
  }
  *bound = h.n ? fmin(s->best_value, h.node[0].bound) : s->best_value; /* of all plans, so also of what was cut short */
  free(h.node);
  return err;
}

/* The plan to begin with, or first ones. */
static atoll_err begin(search *s) {
  const engine_problem *p = s->problem;
  engine_plan *start = NULL;
  int fits;
  if (p->start) {
    ATOLL_TRY(engine_plan_copy(p->start, &start));
    ATOLL_TRY(search_take(s, &start, &fits));
  }
  if (p->width == 1 && p->part != ENGINE_FROM_START)
    ATOLL_TRY(sweep_chains(s));
  return p->start || p->part == ENGINE_FIRST_PLANS ? ATOLL_OK : first_plans(s);
}

static atoll_err run(search *s, double *bound) {
  int listed = 0;
  ATOLL_TRY(space_create(s));
  *bound = INFINITY;
  if (!s->units)
    return ATOLL_OK;
  ATOLL_TRY(space_choices(s));
  ATOLL_TRY(begin(s));
  if (s->problem->part == ENGINE_FIRST_PLANS) {
    *bound = 0;
    return ATOLL_OK;
  }
  int alone = s->problem->width == 1, few = s->devices <= FEW_DEVICES, /* alone: no stage can be of several kinds */
      mixes = !alone && (s->units > 1 || s->merged);
  if (!few)
    ATOLL_TRY(improve_plans(s));
  double first = s->best_value;
  ATOLL_TRY(branch(s, bound));
  if (few && mixes)
    ATOLL_TRY(space_enumerate(s, FEW_STAFFINGS, &listed));
  if (listed)
    return branch(s, bound);
  if (s->best_value < first)
    ATOLL_TRY(improve_plans(s));
  if (!mixes && !s->merged && !s->truncated)
    return ATOLL_OK;
  s->mixed = mixes;
  s->bounding = 1;
  return nodes_bound(s, bound);
}

atoll_err engine_search(const engine_problem *problem, engine_result **out) {
  ATOLL_TRY(check(problem));
  search s = {.problem = problem, .best_value = INFINITY};
  s.work_limit = problem->work ? problem->work : WORK_DEFAULT;
  double bound = 0;
  atoll_err err = run(&s, &bound);
  engine_result *r = err == ATOLL_OK ? calloc(1, sizeof *r) : NULL;
  if (r) {
    r->best = s.best;
    r->bound = bound;
    r->gap = s.best ? fmax(0, 1 - bound / s.best_value) : INFINITY;
    r->truncated = s.truncated;
    r->proved = s.best && r->gap <= 1e-9 && !s.merged && !s.truncated && !s.misplaced &&
                (s.units == 1 || s.mixed || problem->width == 1);
    r->uniform = s.best && !s.merged && !s.truncated && !s.misplaced && !s.moves;
    r->labels = s.work;
    r->slices = s.points;
    r->reject = s.rejects ? malloc((size_t)s.rejects * sizeof *r->reject) : NULL;
    for (int i = 0; i < s.rejects; i++)
      if (r->reject && (!s.best || differs(problem, s.best, s.reject[i])))
        r->reject[r->rejected++] = s.reject[i];
      else
        engine_plan_destroy(&s.reject[i]);
    s.best = NULL;
    s.rejects = 0;
  } else if (err == ATOLL_OK) {
    err = atoll_fail(ATOLL_NOMEM, "plan: no memory for the result of a search");
  }
  engine_plan_destroy(&s.best);
  for (int i = 0; i < s.rejects; i++)
    engine_plan_destroy(&s.reject[i]);
  space_destroy(&s);
  if (r) {
    *out = r;
    if (!r->best)
      err = atoll_fail(ATOLL_INFEASIBLE, "no pipeline meets the limits");
  }
  return err;
}

void engine_result_destroy(engine_result **result) {
  engine_result *r = result ? *result : NULL;
  if (!r)
    return;
  engine_plan_destroy(&r->best);
  for (int i = 0; i < r->rejected; i++)
    engine_plan_destroy(&r->reject[i]);
  free(r->reject);
  free(r);
  *result = NULL;
}
