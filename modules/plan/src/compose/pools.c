/* A cluster as pools, and stages on parts of islands.
 *
 * A stage is `data` replicas of `tensor` devices each, all on one island, and all stages have one data degree: the
 * parallelizer plans a slice on a part of an island and knows nothing of the rest (Tangram, 2026).
 *
 * Pools. Islands of one class of hardware, one size, one zone and one price, between which links are as those inside,
 * are one pool that is filled island by island: swapping two such islands changes no plan's time or price, so every
 * plan has an equal one in that order. Tensor degrees are the powers of two that divide the devices of every node of
 * the island, and that number itself: each divides the next, so whatever mixture the devices suffice for can be placed.
 *
 * Slices. Only the classes of a slice's layers matter; a repeated block has O(L) distinct slices. How many
 * micro-batches in flight fit is found by halving, since a larger number never allows more. */
#include "atoll/parallelizer_extern.h"
#include "compose/large.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SECONDS_PER_HOUR 3600.0
#define BYTES_PER_GB     1e9

/* ---- pools ------------------------------------------------------------------------------------------------------- */

static int greatest_common(int a, int b) {
  while (b) {
    int r = a % b;
    a = b;
    b = r;
  }
  return a;
}

static int node_at(const large *x, int island, int i) { return x->c->problem->topo->device[x->device[island][i]].node; }

/* Devices that every node of the island has a multiple of. */
static int node_share(const large *x, int island) {
  int share = 0, run = 0;
  for (int i = 0; i < x->devices[island]; i++) {
    run++;
    if (i + 1 == x->devices[island] || node_at(x, island, i + 1) != node_at(x, island, i)) {
      share = greatest_common(share, run);
      run = 0;
    }
  }
  return share;
}

static int same_links(const large *x, int a, int b) {
  const atoll_topo *t = x->c->problem->topo;
  const atoll_island *i = large_home(x, a), *j = large_home(x, b);
  double latency, bandwidth;
  if (i->latency_in != j->latency_in || i->bandwidth_in != j->bandwidth_in || i->latency_out != j->latency_out ||
      i->bandwidth_out != j->bandwidth_out)
    return 0;
  atoll_topo_reach(t, node_at(x, a, 0), node_at(x, b, 0), &latency, &bandwidth, NULL);
  return latency == i->latency_out && bandwidth == i->bandwidth_out;
}

/* Whether every other island sees no difference between a and b: asked of one node of each. */
static int seen_alike(const large *x, int a, int b) {
  const atoll_topo *t = x->c->problem->topo;
  for (int o = 0; o < x->islands; o++) {
    double one[3], two[3];
    if (o == a || o == b || !x->devices[o])
      continue;
    atoll_topo_reach(t, node_at(x, a, 0), node_at(x, o, 0), &one[0], &one[1], &one[2]);
    atoll_topo_reach(t, node_at(x, b, 0), node_at(x, o, 0), &two[0], &two[1], &two[2]);
    if (memcmp(one, two, sizeof one) != 0)
      return 0;
  }
  return 1;
}

static const atoll_topo_node *place_of(const large *x, int island) {
  return &x->c->problem->topo->node[node_at(x, island, 0)];
}

/* Hardware that costs the same. Without a profile a node's kind is only a name; with one it is part of the key. */
static int same_hardware(const large *x, int a, int b) {
  const atoll_island *i = large_home(x, a), *j = large_home(x, b);
  if (x->c->problem->profile ? i->class_id != j->class_id || i->speed_id != j->speed_id
                             : strcmp(i->model, j->model) != 0)
    return 0;
  return i->memory == j->memory && i->gemm_f32 == j->gemm_f32 && i->gemm_bf16 == j->gemm_bf16 &&
         i->bandwidth == j->bandwidth;
}

static int belongs(const large *x, const large_pool *p, int island, int share) {
  int first = p->island[0];
  return same_hardware(x, first, island) && p->per_island == x->devices[island] && p->per_node == share &&
         strcmp(place_of(x, first)->zone, place_of(x, island)->zone) == 0 &&
         place_of(x, first)->price == place_of(x, island)->price && same_links(x, first, island) &&
         seen_alike(x, first, island);
}

int pools_alike(const large *x, int p, int q) {
  const large_pool *a = &x->pool[p], *b = &x->pool[q];
  const atoll_island *i = large_home(x, a->island[0]), *j = large_home(x, b->island[0]);
  return same_hardware(x, a->island[0], b->island[0]) && a->per_island == b->per_island && a->per_node == b->per_node &&
         i->latency_in == j->latency_in && i->bandwidth_in == j->bandwidth_in;
}

static int pays(const large *x) {
  const atoll_plan_params *p = x->c->params;
  return p->objective == 1 || p->max_price > 0;
}

/* Powers of two and the whole share of a node, or what the user fixed; of an island of one node, any that it holds.
 * What a program proposes for train is one device a replica. */
static int worth_a_kind(const large *x, const large_pool *p, int tensor) {
  const composer *c = x->c;
  int fixed = (int)c->params->tensor_parallel;
  if ((p->per_node % tensor && p->per_node < p->per_island) || (tensor > 1 && !plan_divides(c->problem->model, tensor)))
    return 0;
  if (tensor > 1 && c->params->target != 1 && c->parallelizer == &atoll_parallelizer_extern)
    return 0;
  return fixed > 0 ? tensor == fixed : (tensor & (tensor - 1)) == 0 || tensor == p->per_node;
}

static atoll_err add_kinds(large *x) {
  int room = 0;
  for (int p = 0; p < x->pools; p++)
    room += 34;
  ATOLL_TRY(plan_alloc((size_t)room, sizeof *x->kind, &x->kind));
  for (int p = 0; p < x->pools; p++)
    for (int t = 1; t <= x->pool[p].per_node; t++)
      if (worth_a_kind(x, &x->pool[p], t))
        x->kind[x->kinds++] = (large_kind){.pool = p, .tensor = t, .rate = NAN};
  return ATOLL_OK;
}

atoll_err pools_find(large *x) {
  composer *c = x->c;
  ATOLL_TRY(plan_alloc((size_t)x->islands, sizeof *x->pool, &x->pool));
  for (int i = 0; i < x->islands; i++) {
    if (!x->devices[i])
      continue;
    int share = node_share(x, i), p = 0;
    while (p < x->pools && !belongs(x, &x->pool[p], i, share))
      p++;
    large_pool *pool = &x->pool[p];
    if (p == x->pools) {
      ATOLL_TRY(plan_alloc((size_t)x->islands, sizeof *pool->island, &pool->island));
      x->pools++;
      pool->per_island = x->devices[i];
      pool->per_node = share;
      pool->node = node_at(x, i, 0);
      double price = c->problem->topo->node[pool->node].price;
      pool->price = price > 0 ? price / SECONDS_PER_HOUR : NAN;
    }
    pool->island[pool->islands++] = i;
  }
  for (int p = 0; p < x->pools; p++) {
    if (pays(x) && isnan(x->pool[p].price))
      return atoll_fail(ATOLL_USAGE,
                        "plan.objective and plan.max_price need the price of every device: node %s declares none",
                        c->problem->topo->node[x->pool[p].node].name);
  }
  return add_kinds(x);
}

void pools_free(large *x) {
  for (int p = 0; x->pool && p < x->pools; p++)
    free(x->pool[p].island);
  for (int i = 0; x->combination && i < x->combinations; i++)
    engine_plan_destroy(&x->combination[i].plan);
  views_free(x);
  free(x->pool);
  free(x->kind);
  free(x->combination);
  if (x->state)
    x->c->parallelizer->end(&x->state);
}

/* ---- slices ------------------------------------------------------------------------------------------------------ */

/* `data` groups of `tensor` devices, as few nodes as divide them evenly. */
static atoll_island_shape shape_of(const large *x, int kind, int data) {
  const large_pool *p = &x->pool[x->kind[kind].pool];
  int devices = data * x->kind[kind].tensor, per_node = p->per_node < devices ? p->per_node : devices;
  while (devices % per_node || per_node % x->kind[kind].tensor)
    per_node--;
  return (atoll_island_shape){x->home[p->island[0]], devices / per_node, per_node};
}

atoll_err pools_ask(large *x, const combination *at, int kind, int first, int last, int64_t in_flight,
                    atoll_slice_plan *point, int *n) {
  atoll_slice_context context = {.in_flight = (int)in_flight,
                                 .partials = at->partials,
                                 .leaves = (int)((at->leaves + large_width(at) - 1) / large_width(at)),
                                 .micro_batch = at->b,
                                 .micro_batches = (at->G + x->copies - 1) / x->copies,
                                 .data = at->D};
  double epsilon = 0;
  int64_t missing = 0;
  char why[256] = "";
  atoll_slice_plan all[LARGE_POINTS];
  int found = 0, kept = 0;
  *n = 0;
  ATOLL_TRY(x->c->parallelizer->plan(x->state, (atoll_slice){first, last}, shape_of(x, kind, at->D), &context, all,
                                     LARGE_POINTS, &found, &epsilon, &missing, why, sizeof why));
  x->epsilon = fmax(x->epsilon, epsilon);
  double more = 0;
  if (found)
    ATOLL_TRY(copies_extra(x, at, &x->kind[kind], first, last, &more));
  for (int i = 0; i < found; i++)
    if (all[i].data == at->D) {
      point[kept] = all[i];
      point[kept++].d += more;
    }
  if (!kept && in_flight == 1 && missing > 0 && missing < x->missing) {
    x->missing = missing;
    memcpy(x->why, why, sizeof x->why);
  }
  *n = kept;
  return ATOLL_OK;
}

static double seconds_of(const atoll_slice_plan *p) { return p->forward + p->backward; }

static int fastest(const atoll_slice_plan *p, int n) {
  int best = 0;
  for (int i = 1; i < n; i++)
    if (seconds_of(&p[i]) < seconds_of(&p[best]) || (seconds_of(&p[i]) == seconds_of(&p[best]) && p[i].d < p[best].d))
      best = i;
  return best;
}

typedef struct answers {
  large *x;
  const combination *at;
  int kind, first, last, n, room;
  engine_point *out;
  atoll_err err;
} answers;

/* One probe; *fits 0 when nothing does. */
static int probe(answers *a, int64_t in_flight, engine_point *out) {
  atoll_slice_plan point[LARGE_POINTS];
  int n = 0;
  if (a->err == ATOLL_OK)
    a->err = pools_ask(a->x, a->at, a->kind, a->first, a->last, in_flight, point, &n);
  if (a->err != ATOLL_OK || n == 0)
    return 0;
  int at = fastest(point, n);
  *out = (engine_point){seconds_of(&point[at]), point[at].d, in_flight};
  return 1;
}

static int alike(const engine_point *p, const engine_point *q) {
  return p->seconds == q->seconds && p->extra == q->extra;
}

/* Points for lo .. hi micro-batches in flight, of which the ends are known; each stretch of one answer is one point,
 * and when room runs out the slower answer stands for the faster one, which wastes time but never memory. */
static void halve(answers *a, engine_point lo, engine_point hi, int hi_fits) {
  if (hi_fits && alike(&lo, &hi)) {
    if (a->n && alike(&a->out[a->n - 1], &hi))
      a->out[a->n - 1].in_flight = hi.in_flight;
    else if (a->n < a->room)
      a->out[a->n++] = hi;
    else
      a->out[a->n - 1] = hi;
    return;
  }
  if (hi.in_flight - lo.in_flight <= 1) {
    halve(a, lo, lo, 1);
    if (hi_fits)
      halve(a, hi, hi, 1);
    return;
  }
  engine_point mid;
  int64_t at = lo.in_flight + (hi.in_flight - lo.in_flight) / 2;
  int fits = probe(a, at, &mid);
  mid.in_flight = at;
  halve(a, lo, mid, fits);
  if (fits)
    halve(a, mid, hi, hi_fits);
}

/* Of `data` replicas each: nothing holds more micro-batches in flight than there can be stages. */
static int64_t stages_most(const large *x, int data) {
  int64_t n = 0;
  for (int p = 0; p < x->pools; p++)
    n += (int64_t)x->pool[p].islands * (x->pool[p].per_island / data);
  return n > 1 ? n : 1;
}

atoll_err pools_points(large *x, const combination *at, int kind, int first, int last, engine_point out[ENGINE_POINTS],
                       int *n) {
  answers a = {.x = x, .at = at, .kind = kind, .first = first, .last = last, .room = ENGINE_POINTS, .out = out};
  engine_point lo, hi;
  int64_t most = at->most < x->c->layers ? at->most : x->c->layers, stages = stages_most(x, at->D);
  most = stages < most ? stages : most;
  *n = 0;
  if (!probe(&a, 1, &lo))
    return a.err;
  int fits = probe(&a, most, &hi);
  hi.in_flight = most;
  halve(&a, lo, hi, fits);
  if (a.out[a.n - 1].in_flight == most)
    a.out[a.n - 1].in_flight = INT64_MAX;
  *n = a.n;
  return a.err;
}

/* ---- boundaries -------------------------------------------------------------------------------------------------- */

/* Boundaries are alike between any two layers. */
static atoll_err boundary_bytes(const large *x, const combination *at, int64_t *bytes) {
  return cost_boundary_bytes(x->c->problem->model, 0, at->b, x->c->problem->seq, bytes);
}

static int far_node(const large *x, int pool) {
  const large_pool *p = &x->pool[pool];
  int island = p->island[p->islands - 1];
  return node_at(x, island, x->devices[island] - 1);
}

atoll_err pools_send(const large *x, const combination *at, int p, int q, double *seconds) {
  int64_t bytes = 0;
  ATOLL_TRY(boundary_bytes(x, at, &bytes));
  *seconds = 2 * cost_send(x->c->cost, x->pool[p].node, p == q ? far_node(x, p) : x->pool[q].node, bytes);
  return ATOLL_OK;
}

double pools_hand_on(const large *x, int from, int to, int64_t bytes) {
  const large_kind *a = &x->kind[from], *b = &x->kind[to];
  return cost_hand_on(x->c->cost, x->pool[b->pool].node, a->tensor, b->tensor, bytes) +
         cost_hand_on(x->c->cost, x->pool[a->pool].node, b->tensor, a->tensor, bytes);
}

double pools_swap(const large *x, int p, int q) {
  const composer *c = x->c;
  double most = 0, bandwidth = fmin(cost_bandwidth(c->cost, x->home[x->pool[p].island[0]]),
                                    cost_bandwidth(c->cost, x->home[x->pool[q].island[0]]));
  for (int i = 0; i < atoll_model_params_count(c->problem->model); i++) {
    const atoll_model_param *mp = atoll_model_param_at(c->problem->model, i);
    int64_t bytes = 4;
    if (mp->layer != 0 || mp->tied_layer != c->layers - 1)
      continue;
    for (int d = 0; d < mp->ndim; d++)
      bytes *= mp->shape[d];
    most = fmax(most, cost_tied(c->cost, x->pool[p].node, p == q ? far_node(x, p) : x->pool[q].node, bytes, bandwidth));
  }
  return most;
}

double pools_money(const large *x, const combination *at, int p, int q) {
  int64_t bytes = 0;
  double price = 0;
  if (p != q)
    atoll_topo_reach(x->c->problem->topo, x->pool[p].node, x->pool[q].node, NULL, NULL, &price);
  if (!(price > 0) || boundary_bytes(x, at, &bytes) != ATOLL_OK)
    return 0;
  return 2 * (double)bytes * (double)at->G * price / BYTES_PER_GB;
}

double pools_transfer(const large *x, const combination *at, const engine_plan *plan) {
  double sum = copies_money(x, at);
  for (int i = 0; i + 1 < plan->stages; i++)
    sum +=
        pools_money(x, at, x->kind[plan->stage[i].group[0].kind].pool, x->kind[plan->stage[i + 1].group[0].kind].pool);
  return sum;
}
