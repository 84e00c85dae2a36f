/* What a search chooses from.
 *
 * Units. Pools whose kinds, slices and links are alike count as one unit when there are too many to be told apart; its
 * devices are then taken pool after pool. A unit of one pool is the pool.
 *
 * Resources. A partial plan uses up devices. Widths that are powers of two fill nodes of n devices as far as, for every
 * width x, the replicas of at least x devices take no more than the nodes hold of x: sum of floor(n / x) x. Where that
 * is less than all devices the width gets a resource of its own. */
#include <stdlib.h>
#include <string.h>

#include "engine/search.h"

static atoll_err take(size_t n, size_t size, void *out) {
  void *p = calloc(n ? n : 1, size);
  if (!p)
    return atoll_fail(ATOLL_NOMEM, "plan: no memory for %zu objects of the search", n);
  memcpy(out, &p, sizeof p);
  return ATOLL_OK;
}

/* ---- units ------------------------------------------------------------------------------------------------------- */

static int kinds_of(const engine_problem *p, int pool, int *first) {
  int n = 0;
  for (int k = 0; k < p->kinds; k++)
    if (p->kind[k].pool == pool && !n++)
      *first = k;
  return n;
}

static int same_kinds(const engine_problem *p, int a, int b) {
  int fa = 0, fb = 0, n = kinds_of(p, a, &fa);
  if (p->pool[a].like != p->pool[b].like || n != kinds_of(p, b, &fb))
    return 0;
  for (int k = 0; k < n; k++)
    if (p->kind[fa + k].devices != p->kind[fb + k].devices || p->kind[fa + k].option != p->kind[fb + k].option)
      return 0;
  return 1;
}

#define NEAR 1.15 /* links between pools of a unit are at most this much slower than inside */

static int near(const engine_problem *p, int a, int b) {
  int fa = 0, fb = 0;
  kinds_of(p, b, &fb);
  const engine_costs *c = &p->costs;
  for (int k = 0, n = kinds_of(p, a, &fa); k < n; k++) {
    int layer = p->layers > 1 ? p->layers / 2 : 0, i = fa + k, j = fb + k;
    engine_group own = {i, 2}, both[] = {{i, 1}, {j, 1}};
    engine_stage alone = {0, p->layers, 1, &own}, across = {0, p->layers, 2, both};
    if (layer && c->send(c->context, 0, layer, i, j, 0) > NEAR * c->send(c->context, 0, layer, i, i, 0))
      return 0;
    if (c->sync(c->context, 0, &across) > NEAR * c->sync(c->context, 0, &alone))
      return 0;
  }
  return 1;
}

/* Seconds to sum the gradients of all layers over a unit's pools in their order, as many replicas of kind `slot` as
 * they hold. */
static double ring_seconds(const search *s, const unit *u, int slot) {
  engine_group group[PLACED];
  for (int i = 0; i < u->pools; i++) {
    int first = 0;
    kinds_of(s->problem, u->pool[i], &first);
    int count = s->problem->pool[u->pool[i]].devices / s->problem->kind[first + slot].devices;
    group[i] = (engine_group){first + slot, count > 0 ? count : 1};
  }
  const engine_costs *c = &s->problem->costs;
  return c->sync(c->context, 0, &(engine_stage){0, s->layers, u->pools, group});
}

/* Links between pools are not all alike: swaps of two pools while they make the ring faster. */
static void order_pools(const search *s, unit *u) {
  int first = 0, slot = kinds_of(s->problem, u->pool[0], &first) - 1; /* the widest, as wide stages span pools */
  if (u->pools > PLACED)
    return;
  double best = ring_seconds(s, u, slot);
  for (int better = 1; better;) {
    better = 0;
    for (int i = 0; i < u->pools; i++)
      for (int j = i + 1; j < u->pools; j++) {
        int was = u->pool[i];
        u->pool[i] = u->pool[j];
        u->pool[j] = was;
        double now = ring_seconds(s, u, slot);
        if (now < best * (1 - ENGINE_EQUAL)) {
          best = now;
          better = 1;
        } else {
          u->pool[j] = u->pool[i];
          u->pool[i] = was;
        }
      }
  }
}

enum { ALONE, IF_NEAR, IF_LIKE };

/* unit_of[pool], in the order of their first pools; -1: not used. Returns how many. */
static int assign_units(const search *s, int merge, int *unit_of) {
  const engine_problem *p = s->problem;
  int units = 0;
  for (int i = 0; i < p->pools; i++) {
    int first = 0;
    unit_of[i] = -1;
    if (!kinds_of(p, i, &first) || (s->priced && isnan(p->pool[i].price)))
      continue;
    for (int j = 0; j < i && merge != ALONE && unit_of[i] < 0; j++) { /* with the first pool of a unit */
      int leads = unit_of[j] >= 0;
      for (int k = 0; k < j && leads; k++)
        leads = unit_of[k] != unit_of[j];
      if (leads && same_kinds(p, j, i) && (merge == IF_LIKE || near(p, j, i)))
        unit_of[i] = unit_of[j];
    }
    if (unit_of[i] < 0)
      unit_of[i] = units++;
  }
  return units;
}

#define UNITS_FEW 5 /* with more, pools are merged even if links between them are slow */

static atoll_err make_units(search *s) {
  const engine_problem *p = s->problem;
  int64_t devices = 0;
  int *unit_of = NULL;
  ATOLL_TRY(take((size_t)p->pools, sizeof *s->unit, &s->unit));
  ATOLL_TRY(take((size_t)p->pools, sizeof *unit_of, &unit_of));
  for (int i = 0; i < p->pools; i++)
    devices += p->pool[i].devices;
  int merge = p->pools > DIMS || (p->pools > 2 && devices > 16) ? IF_NEAR : ALONE;
  if (assign_units(s, merge, unit_of) > UNITS_FEW && merge != ALONE)
    assign_units(s, IF_LIKE, unit_of);
  atoll_err err = ATOLL_OK;
  for (int i = 0; i < p->pools && err == ATOLL_OK; i++) {
    unit *u = &s->unit[unit_of[i] < 0 ? 0 : unit_of[i]];
    if (unit_of[i] >= DIMS) /* no room for more: the rest stays idle */
      s->truncated = 1;
    if (unit_of[i] < 0 || unit_of[i] >= DIMS)
      continue;
    if (unit_of[i] >= s->units) {
      s->units = unit_of[i] + 1;
      u->price = INFINITY;
      err = take((size_t)p->pools, sizeof *u->pool, &u->pool);
    }
    if (err != ATOLL_OK)
      break;
    u->pool[u->pools++] = i;
    s->all_pools++;
    s->devices += p->pool[i].devices;
    u->devices += p->pool[i].devices;
    u->price = fmin(u->price, p->pool[i].price);
    s->merged |= u->pools > 1;
  }
  free(unit_of);
  ATOLL_TRY(err);
  for (int u = 0; u < s->units; u++)
    order_pools(s, &s->unit[u]);
  return ATOLL_OK;
}

/* What the nodes of a unit hold of replicas of x devices. */
static int holds(const search *s, const unit *u, int x) {
  int64_t n = 0;
  for (int i = 0; i < u->pools; i++) {
    const engine_pool *pool = &s->problem->pool[u->pool[i]];
    int per_node = pool->per_node > 0 ? pool->per_node : pool->devices;
    n += (int64_t)(pool->devices / per_node) * (per_node / x * x) + pool->devices % per_node / x * x;
  }
  return (int)(n < UINT16_MAX ? n : UINT16_MAX);
}

static atoll_err make_kinds(search *s) {
  const engine_problem *p = s->problem;
  ATOLL_TRY(take((size_t)p->kinds, sizeof *s->kind, &s->kind));
  for (int u = 0; u < s->units; u++) {
    unit *at = &s->unit[u];
    int first = 0, widths[16], n_widths = 0;
    at->kinds = kinds_of(p, at->pool[0], &first);
    at->first_kind = s->unit_kinds;
    at->dim = s->dims;
    s->capacity[s->dims++] = holds(s, at, 1);
    for (int k = 0; k < at->kinds; k++) {
      unit_kind *kind = &s->kind[s->unit_kinds++];
      kind->unit = u;
      kind->kind = first + k;
      kind->devices = p->kind[first + k].devices;
      int known = 0;
      for (int w = 0; w < n_widths; w++)
        known |= widths[w] == kind->devices;
      if (!known && n_widths < 16 && kind->devices > 1)
        widths[n_widths++] = kind->devices;
      kind->like_kind = -1;
      for (int j = 0; j < s->unit_kinds - 1 && kind->like_kind < 0; j++)
        if (p->pool[p->kind[s->kind[j].kind].pool].like == p->pool[at->pool[0]].like &&
            same_kinds(p, p->kind[s->kind[j].kind].pool, at->pool[0]) &&
            p->kind[s->kind[j].kind].option == p->kind[kind->kind].option &&
            p->kind[s->kind[j].kind].devices == kind->devices)
          kind->like_kind = s->kind[j].like_kind;
      if (kind->like_kind < 0)
        kind->like_kind = s->like_kinds++;
    }
    for (int w = 0; w < n_widths && s->dims + s->units - u - 1 < DIMS; w++) { /* every unit to come needs one */
      int tight = holds(s, at, widths[w]);
      if (tight / widths[w] < s->capacity[at->dim] / widths[w]) {
        s->capacity[s->dims] = tight;
        for (int k = at->first_kind; k < s->unit_kinds; k++)
          if (s->kind[k].devices >= widths[w])
            s->kind[k].use[s->dims] = s->kind[k].devices;
        s->dims++;
      }
    }
    for (int k = at->first_kind; k < s->unit_kinds; k++)
      s->kind[k].use[at->dim] = s->kind[k].devices;
  }
  return ATOLL_OK;
}

int space_place(const search *s, int kind, int used, int count, engine_group *group, int room) {
  const unit *u = &s->unit[s->kind[kind].unit];
  int w = s->kind[kind].devices, groups = 0, slot = kind - u->first_kind;
  for (int i = 0; i < u->pools && count > 0; i++) {
    const engine_pool *pool = &s->problem->pool[u->pool[i]];
    int first = s->pool_kind[u->pool[i]], have = pool->devices;
    if (u->pools == 1) {
      group[0] = (engine_group){first + slot, count};
      return 1;
    }
    int taken = used < have ? used : have, fit = (have - (taken + w - 1) / w * w) / w;
    used -= taken;
    if (fit <= 0)
      continue;
    if (groups == room)
      return 0;
    group[groups++] = (engine_group){first + slot, fit < count ? fit : count};
    count -= group[groups - 1].count;
  }
  return count > 0 ? 0 : groups;
}

/* ---- slices and sends -------------------------------------------------------------------------------------------- */

/* Ranges with equal sequences of classes share a number, but for those at either end of the model, which send on one
 * side alone. */
static atoll_err make_ranges(search *s) {
  const engine_problem *p = s->problem;
  int L = s->layers, L1 = L + 1;
  ATOLL_TRY(take((size_t)L1 * (size_t)L1, sizeof *s->rep, &s->rep));
  ATOLL_TRY(take((size_t)L1 * (size_t)L1, sizeof *s->range, &s->range));
  for (int n = 1; n <= L; n++) {
    int begin = s->reps;
    for (int f = 0; f + n <= L; f++) {
      int r = begin;
      for (; p->layer_class && f > 0 && f + n < L && r < s->reps; r++)
        if (s->range[r].first > 0 &&
            !memcmp(p->layer_class + s->range[r].first, p->layer_class + f, (size_t)n * sizeof *p->layer_class))
          break;
      if (!p->layer_class || f == 0 || f + n == L || r == s->reps) {
        r = s->reps++;
        s->range[r] = (layer_range){f, f + n};
      }
      s->rep[(f + n) * L1 + f] = r;
    }
  }
  return ATOLL_OK;
}

int space_points(search *s, int b, int kind, int first, int last, const engine_point **points) {
  const unit_kind *k = &s->kind[kind];
  slice_entry *e = &s->slice[((size_t)b * (size_t)s->like_kinds + (size_t)k->like_kind) * (size_t)s->reps +
                             (size_t)space_range(s, first, last)];
  if (e->n < 0) {
    if (s->points + ENGINE_POINTS > s->point_room) {
      int room = s->point_room ? 2 * s->point_room : 4096;
      engine_point *grown = realloc(s->point, (size_t)room * sizeof *grown);
      if (!grown)
        return 0;
      s->point = grown;
      s->point_room = room;
    }
    e->at = s->points;
    e->n = s->problem->costs.slice(s->problem->costs.context, b, k->kind, first, last, s->point + s->points);
    s->points += e->n;
  }
  *points = s->point + e->at;
  return e->n;
}

double space_send(search *s, int b, int layer, int left, int right, int backward) {
  size_t K = (size_t)s->unit_kinds, n = 2 * (size_t)s->layers * K * K;
  if (s->send_b != b) {
    for (size_t i = 0; i < n; i++)
      s->send[i] = NAN;
    s->send_b = b;
  }
  double *v = &s->send[(((size_t)backward * (size_t)s->layers + (size_t)layer) * K + (size_t)left) * K + (size_t)right];
  if (isnan(*v)) {
    const engine_costs *c = &s->problem->costs;
    int from = s->kind[left].kind, to = s->kind[right].kind;
    *v = backward ? c->send(c->context, b, layer, to, from, 1) : c->send(c->context, b, layer, from, to, 0);
  }
  return *v;
}

/* Between the pools of two units that are nearest. */
static double least_of_units(const search *s, int first, int last) {
  const engine_costs *c = &s->problem->costs;
  const unit *u = &s->unit[s->kind[first].unit], *v = &s->unit[s->kind[last].unit];
  double least = INFINITY;
  for (int i = 0; i < u->pools; i++)
    for (int j = 0; j < v->pools; j++) {
      engine_group a = {s->pool_kind[u->pool[i]] + first - u->first_kind, 1},
                   b = {s->pool_kind[v->pool[j]] + last - v->first_kind, 1};
      least = fmin(least, c->ends(c->context, 0, &(engine_stage){0, 1, 1, &a}, &(engine_stage){1, 2, 1, &b}));
    }
  return least;
}

static atoll_err make_ends(search *s) {
  size_t K = (size_t)s->unit_kinds;
  if (!s->problem->costs.ends)
    return ATOLL_OK;
  ATOLL_TRY(take(K * K, sizeof *s->ends, &s->ends));
  ATOLL_TRY(take(K, sizeof *s->least_ends, &s->least_ends));
  for (size_t last = 0; last < K; last++) {
    s->least_ends[last] = INFINITY;
    for (size_t first = 0; first < K; first++) {
      s->ends[first * K + last] = least_of_units(s, (int)first, (int)last);
      s->least_ends[last] = fmin(s->least_ends[last], s->ends[first * K + last]);
    }
  }
  return ATOLL_OK;
}

double space_ends(const search *s, int first, int tail) {
  double least = INFINITY;
  if (!s->ends)
    return 0;
  const choice *l = &s->choice[tail], *f = first < 0 ? NULL : &s->choice[first];
  for (int j = 0; j < l->groups; j++)
    for (int i = 0; i < (f ? f->groups : 1); i++)
      least = fmin(least, f ? s->ends[(size_t)f->kind[i] * (size_t)s->unit_kinds + (size_t)l->kind[j]]
                            : s->least_ends[l->kind[j]]);
  return least;
}

double space_send_choices(search *s, int b, int layer, int left, int right, int backward) {
  const choice *l = &s->choice[left], *r = &s->choice[right];
  unsigned mask = s->routes
                      ? s->routes[((size_t)b * (size_t)s->choices + (size_t)left) * (size_t)s->choices + (size_t)right]
                      : 0xffffu;
  double most = 0;
  for (int i = 0; i < l->groups; i++)
    for (int j = 0; j < r->groups; j++)
      if (mask >> (i * GROUPS + j) & 1u)
        most = fmax(most, space_send(s, b, layer, l->kind[i], r->kind[j], backward));
  return most;
}

static sync_memo *remembered(search *s, int b, int kind, int first, int last, int64_t width, int inside,
                             uint64_t *key) {
  *key = ((uint64_t)b * (uint64_t)s->unit_kinds + (uint64_t)kind) * (uint64_t)s->reps +
         (uint64_t)space_range(s, first, last);
  *key = 2 * (*key * (UINT16_MAX + 1u) + (uint64_t)width + 1) + (uint64_t)inside;
  return &s->memo[(*key * UINT64_C(0x9e3779b97f4a7c15)) >> (64 - SYNC_MEMO_BITS)];
}

double space_sync(search *s, int b, int kind, int first, int last, int64_t width) {
  engine_group group[PLACED];
  const engine_costs *costs = &s->problem->costs;
  uint64_t key;
  sync_memo *memo = remembered(s, b, kind, first, last, width, 0, &key);
  if (memo->key != key) {
    int groups = space_place(s, kind, 0, (int)width, group, PLACED);
    *memo = (sync_memo){key, groups ? costs->sync(costs->context, b, &(engine_stage){first, last, groups, group})
                                    : INFINITY};
  }
  return memo->seconds;
}

double space_sync_inside(search *s, int b, int kind, int first, int last, int64_t width) {
  const engine_costs *costs = &s->problem->costs;
  const unit *u = &s->unit[s->kind[kind].unit];
  uint64_t key;
  sync_memo *memo = remembered(s, b, kind, first, last, width, 1, &key);
  if (memo->key != key) {
    double least = INFINITY;
    for (int i = 0; i < u->pools; i++) {
      int known = 0;
      for (int j = 0; j < i; j++)
        known |= s->problem->pool[u->pool[j]].links == s->problem->pool[u->pool[i]].links;
      engine_group group = {s->pool_kind[u->pool[i]] + kind - u->first_kind, (int)width};
      if (!known)
        least = fmin(least, costs->sync(costs->context, b, &(engine_stage){first, last, 1, &group}));
    }
    *memo = (sync_memo){key, least};
  }
  return memo->seconds;
}

/* ---- choices ----------------------------------------------------------------------------------------------------- */

static atoll_err add_choice(search *s, int *room, const choice *c) {
  if (s->choices == *room) {
    int more = *room ? 2 * *room : 64;
    choice *grown = realloc(s->choice, (size_t)more * sizeof *grown);
    if (!grown)
      return atoll_fail(ATOLL_NOMEM, "plan: no memory for %d choices", more);
    s->choice = grown;
    *room = more;
  }
  choice *added = &s->choice[s->choices++];
  *added = *c;
  for (int g = 0; g < c->groups; g++)
    for (int d = 0; d < s->dims; d++)
      added->need[d] += s->kind[c->kind[g]].use[d] * (c->count[g] ? c->count[g] : 1);
  return ATOLL_OK;
}

static atoll_err make_buckets(search *s) {
  for (size_t i = 0; s->bucket && s->bucket[i].room >= 0; i++)
    free(s->bucket[i].label);
  free(s->bucket);
  s->bucket = NULL;
  size_t n = (size_t)(s->layers + 1) * (size_t)s->choices;
  ATOLL_TRY(take(n + 1, sizeof *s->bucket, &s->bucket));
  s->bucket[n].room = -1; /* the end */
  return ATOLL_OK;
}

atoll_err space_choices(search *s) {
  int room = 0;
  free(s->choice);
  free(s->routes);
  s->choice = NULL;
  s->routes = NULL;
  s->choices = 0;
  for (int k = 0; k < s->unit_kinds; k++)
    ATOLL_TRY(add_choice(s, &room, &(choice){.groups = 1, .kind = {k}}));
  return make_buckets(s);
}

/* All staffings by count from unit u on, added to what c has. */
static atoll_err staff(search *s, int u, choice *c, int *room, int most) {
  if (s->choices > most)
    return ATOLL_OK;
  if (u == s->units)
    return c->groups ? add_choice(s, room, c) : ATOLL_OK;
  ATOLL_TRY(staff(s, u + 1, c, room, most));
  if (c->groups == GROUPS)
    return ATOLL_OK;
  for (int k = s->unit[u].first_kind; k < s->unit[u].first_kind + s->unit[u].kinds; k++)
    for (int n = 1; n * s->kind[k].devices <= s->unit[u].devices; n++) {
      choice more = *c;
      more.kind[more.groups] = k;
      more.count[more.groups++] = n;
      more.width += n;
      ATOLL_TRY(staff(s, u + 1, &more, room, most));
    }
  return ATOLL_OK;
}

static void make_routes(search *s, int64_t total, uint16_t *routes) {
  size_t n = (size_t)s->choices;
  for (size_t a = 0; a < n; a++)
    for (size_t b = 0; b < n; b++) {
      const choice *l = &s->choice[a], *r = &s->choice[b];
      engine_group lg[GROUPS], rg[GROUPS];
      unsigned char talks[GROUPS * GROUPS];
      for (int i = 0; i < l->groups; i++)
        lg[i] = (engine_group){l->kind[i], l->count[i]};
      for (int j = 0; j < r->groups; j++)
        rg[j] = (engine_group){r->kind[j], r->count[j]};
      engine_routes(&(engine_stage){0, 1, l->groups, lg}, &(engine_stage){0, 1, r->groups, rg}, total, talks);
      unsigned mask = 0;
      for (int i = 0; i < l->groups; i++)
        for (int j = 0; j < r->groups; j++)
          if (talks[i * r->groups + j])
            mask |= 1u << (i * GROUPS + j);
      routes[a * n + b] = (uint16_t)mask;
    }
}

atoll_err space_enumerate(search *s, int most, int *done) {
  int room = 0;
  choice none = {0};
  *done = 0;
  if (s->units > GROUPS || s->merged)
    return ATOLL_OK;
  free(s->choice);
  free(s->routes);
  s->choice = NULL;
  s->routes = NULL;
  s->choices = 0;
  ATOLL_TRY(staff(s, 0, &none, &room, most));
  if (s->choices > most)
    return space_choices(s);
  s->mixed = 1;
  *done = 1;
  size_t pairs = (size_t)s->choices * (size_t)s->choices;
  ATOLL_TRY(take(pairs * (size_t)s->problem->batches, sizeof *s->routes, &s->routes));
  for (int b = 0; b < s->problem->batches; b++)
    make_routes(s, engine_total(s->problem, b), s->routes + (size_t)b * pairs);
  return make_buckets(s);
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

atoll_err space_create(search *s) {
  const engine_problem *p = s->problem;
  s->layers = p->layers;
  s->send_b = s->cost_b = -1;
  s->priced = p->goal == ENGINE_CHEAPEST || p->max_price < INFINITY;
  ATOLL_TRY(take((size_t)p->pools, sizeof *s->pool_kind, &s->pool_kind));
  for (int i = 0; i < p->pools; i++)
    kinds_of(p, i, &s->pool_kind[i]);
  ATOLL_TRY(make_units(s));
  ATOLL_TRY(make_kinds(s));
  ATOLL_TRY(make_ranges(s));
  ATOLL_TRY(make_ends(s));
  for (int i = 1; i < p->pools; i++)
    s->moves |= s->priced && p->costs.money && p->pool[i].zone != p->pool[0].zone;
  size_t n = (size_t)s->layers + 1, K = (size_t)s->unit_kinds,
         slices = (size_t)p->batches * (size_t)s->like_kinds * (size_t)s->reps;
  ATOLL_TRY(take(slices, sizeof *s->slice, &s->slice));
  for (size_t i = 0; i < slices; i++)
    s->slice[i].n = -1;
  ATOLL_TRY(take(2 * n * K * K, sizeof *s->send, &s->send));
  ATOLL_TRY(take(FLIGHTS * (K + 1) * n, sizeof *s->least_sum, &s->least_sum));
  ATOLL_TRY(take((K + 1) * n, sizeof *s->least_rent, &s->least_rent));
  ATOLL_TRY(take((K + 1) * n, sizeof *s->scratch, &s->scratch));
  ATOLL_TRY(take((size_t)1 << SYNC_MEMO_BITS, sizeof *s->memo, &s->memo));
  size_t ranges = K * (size_t)s->reps;
  ATOLL_TRY(take(FLIGHTS * ranges, sizeof *s->cost_seconds, &s->cost_seconds));
  ATOLL_TRY(take(ranges, sizeof *s->cost_width, &s->cost_width));
  ATOLL_TRY(take(ranges, sizeof *s->cost_flight, &s->cost_flight));
  ATOLL_TRY(take(FLIGHTS * ranges, sizeof *s->cost, &s->cost));
  ATOLL_TRY(take(n, sizeof *s->split, &s->split));
  ATOLL_TRY(take(n, sizeof *s->behind, &s->behind));
  ATOLL_TRY(take(n, sizeof *s->path, &s->path));
  ATOLL_TRY(take(n, sizeof *s->trial, &s->trial));
  for (int i = 0; i < KEPT; i++) {
    ATOLL_TRY(take(FLIGHTS * (K + 1) * n, sizeof *s->pair_value[i], &s->pair_value[i]));
    ATOLL_TRY(take((K + 1) * n, sizeof *s->price_value[i], &s->price_value[i]));
  }
  return ATOLL_OK;
}

void space_destroy(search *s) {
  for (int u = 0; s->unit && u < s->problem->pools; u++)
    free(s->unit[u].pool);
  for (size_t i = 0; s->bucket && s->bucket[i].room >= 0; i++)
    free(s->bucket[i].label);
  for (int i = 0; i < KEPT; i++) {
    free(s->pair_value[i]);
    free(s->price_value[i]);
  }
  void *const owned[] = {s->behind,     s->unit,    s->kind,         s->choice,     s->routes,      s->rep,
                         s->slice,      s->range,   s->cost,         s->split,      s->path,        s->trial,
                         s->pool_kind,  s->ends,    s->least_ends,   s->point,      s->send,        s->least_sum,
                         s->least_rent, s->scratch, s->cost_seconds, s->cost_width, s->cost_flight, s->memo,
                         s->label,      s->bucket};
  for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
    free(owned[i]);
}
