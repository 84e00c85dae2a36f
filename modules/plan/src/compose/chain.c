/* The best chain of stages for one micro-batch size and data degree.
 *
 * Every stage is `data` replicas on one island. With t_i seconds of one micro-batch in stage i, s_i seconds of both its
 * sends over the boundary behind it, extra seconds d_i and n micro-batches in the busiest column, a step takes
 *
 *   T = (n - 1) max_i (t_i + s_i)  +  sum_i (t_i + s_i)  +  max_i (d_i - sum_{j<i} (t_j + s_j))  +  w,
 *
 * where w is the swap of the gradients of a tensor that the first and the last stage share.
 *
 * Sends count as if nothing hid them: a stage that holds W micro-batches waits for the round trip of one through all
 * later stages once in W micro-batches, and in 1F1B W is the number of these stages.
 *
 * Method. A bound on the bottleneck is swept upwards over the values it can have. For each, a dynamic program from the
 * last layer to the first keeps partial chains, and stops when (n - 1) bound + the least possible sum reaches the best
 * chain known. Stages are counted from the end, so what a stage must hold in flight is known when it is added.
 *
 * A partial chain is dropped, and no best chain with it, when
 *   room       what is left of the pools cannot hold the layers in front of it: at most floor(free / width) stages of a
 *              kind, of at most the longest slice under the bound each, the best kind of each pool, added up as reals
 *   value      (n - 1) times its own bottleneck, its sum, the layers in front at their fastest and its extra reach the
 *              best chain, or the limit
 *   dominance  another one begins at the same layer on the same kind, ends on the same pool (or swaps cost the same
 *              from everywhere) and has no more stages, no more of any pool used, no larger sum, extra, and (where
 * money matters) rent and transfer money: any completion of the first completes the second, with no more in flight
 *
 * Beyond EXACT_DEVICES devices the sweep takes steps of STEP, a layer keeps at most BEAM partial chains (those of least
 * sum), and stages hold the most layers that the bound allows, or one fewer. What that may miss is in the gap: it
 * compares with (n - 1) times the least bound under which the pools have room for all layers, memory included, plus the
 * least possible sum. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compose/large.h"

#define EXACT_DEVICES 24
#define STEP          1.03
#define COARSE        1.02
#define FINE          1.003
#define BEAM          48
#define POOLS         48 /* most pools whose use is told apart */
#define WITHIN        (1 + 1e-12)

typedef struct label {
  double sum, extra, bottleneck, rent, money;
  int32_t parent;
  int16_t layer, stages, kind, tail; /* tail: pool of the last stage */
  uint16_t used[POOLS];              /* devices, in whole islands first */
} label;

typedef struct memo { /* points of a slice on a kind; n = -1: not asked */
  int n;
  engine_point point[ENGINE_POINTS];
} memo;

typedef struct chain {
  large *x;
  combination *at;
  int L, kinds, *kind; /* of large, those with room */
  int exact, paid;
  memo *memo;         /* [kinds][reps] */
  double *send;       /* [pools][pools]: both ways */
  double *swap;       /* [pools][pools]: of tied gradients, first stage and last */
  double *least_swap; /* [pools]: with the last stage on it */
  int swaps_differ;
  double *fastest; /* [L + 1]: layers [0, l) at their least */
  double *sweep;   /* candidates of the bottleneck, ascending */
  int candidates;
  int *longest; /* [kinds]: layers of the longest inner slice under the bound at hand */
  label *label;
  int labels, room;
  int **bucket, *filled, *bucket_room; /* [L + 1] */
  double theta, limit, best;
  double least; /* seconds; no chain takes less */
  int64_t work;
  engine_plan *plan;
} chain;

static int width_of(const chain *c, int k) { return c->at->D * c->x->kind[c->kind[k]].tensor; }
static int pool_of(const chain *c, int k) { return c->x->kind[c->kind[k]].pool; }

static atoll_err points_of(chain *c, int k, int first, int last, const memo **out) {
  composer *co = c->x->c;
  memo *m = &c->memo[(size_t)k * (size_t)co->reps + (size_t)co->rep[first * (c->L + 1) + last]];
  if (m->n < 0)
    ATOLL_TRY(pools_points(c->x, c->at, c->kind[k], first, last, m->point, &m->n));
  *out = m;
  return ATOLL_OK;
}

/* The fastest that holds so many micro-batches, or -1. */
static int point_for(const memo *m, int64_t in_flight) {
  for (int i = 0; i < m->n; i++)
    if (m->point[i].in_flight >= in_flight)
      return i;
  return -1;
}

/* Devices of a pool that are taken once `width` more are: parts of an island are not joined over its end. */
static int take(const large_pool *p, int used, int width) {
  int inside = used % p->per_island;
  if (inside + width > p->per_island)
    used += p->per_island - inside;
  return used + width <= p->islands * p->per_island ? used + width : -1;
}

static int has_room(const chain *c, const uint16_t *used, int layers) {
  double room = 0;
  for (int p = 0; p < c->x->pools && room < layers; p++) {
    const large_pool *pool = &c->x->pool[p];
    double most = 0;
    for (int k = 0; k < c->kinds; k++)
      if (pool_of(c, k) == p)
        most = fmax(most, (double)(pool->islands * pool->per_island - used[p]) / width_of(c, k) * c->longest[k]);
    room += most;
  }
  return room >= layers - 2; /* the first and last layer are lighter or heavier than inner ones */
}

static int dominates(const chain *c, const label *a, const label *b) {
  if (c->swaps_differ && a->tail != b->tail)
    return 0;
  if (a->kind != b->kind || a->stages > b->stages || a->sum > b->sum || a->extra > b->extra)
    return 0;
  if (c->paid && (a->rent > b->rent || a->money > b->money))
    return 0;
  if (a->bottleneck > b->bottleneck && c->paid) /* what it costs depends on its own time, not on the bound's */
    return 0;
  for (int p = 0; p < c->x->pools; p++)
    if (a->used[p] > b->used[p])
      return 0;
  return 1;
}

static double seconds_of(const chain *c, const label *l) {
  return (double)(c->at->most - 1) * l->bottleneck + l->sum + c->fastest[l->layer] +
         fmax(l->extra - c->fastest[l->layer], 0) +
         (l->layer > 0 ? c->least_swap[l->tail] : 0); /* once the chain is complete, extra has it */
}

static int hopeless(const chain *c, const label *l) {
  double seconds = seconds_of(c, l);
  if (seconds > c->x->max_seconds * WITHIN)
    return 1;
  if (!c->paid)
    return seconds > c->limit * WITHIN || seconds >= c->best * (1 - 1e-12);
  double price = seconds * l->rent + l->money;
  if (c->x->c->params->max_price > 0 && price > c->x->c->params->max_price * WITHIN)
    return 1;
  double value = c->x->cheapest ? price : seconds;
  return value > c->limit * WITHIN || value >= c->best * (1 - 1e-12);
}

static double ranking(const chain *c, const label *l) {
  return l->sum + (l->layer > 0 ? c->least_swap[l->tail] : l->extra);
}

static atoll_err keep(chain *c, const label *l) {
  int at = l->layer, kept = 0;
  int *list = c->bucket[at];
  for (int i = 0; i < c->filled[at]; i++)
    if (dominates(c, &c->label[list[i]], l))
      return ATOLL_OK;
  for (int i = 0; i < c->filled[at]; i++)
    if (!dominates(c, l, &c->label[list[i]]))
      list[kept++] = list[i];
  c->filled[at] = kept;
  if (!c->exact && kept >= BEAM) { /* the one of largest sum goes */
    int worst = 0;
    for (int i = 1; i < kept; i++)
      worst = ranking(c, &c->label[list[i]]) > ranking(c, &c->label[list[worst]]) ? i : worst;
    if (ranking(c, &c->label[list[worst]]) <= ranking(c, l))
      return ATOLL_OK;
    list[worst] = list[--kept];
    c->filled[at] = kept;
  }
  if (kept == c->bucket_room[at]) {
    int room = kept ? 2 * kept : 16, *grown = realloc(list, (size_t)room * sizeof *grown);
    if (!grown)
      return atoll_fail(ATOLL_NOMEM, "plan: no memory for %d partial chains", room);
    c->bucket[at] = grown;
    c->bucket_room[at] = room;
  }
  if (c->labels == c->room) {
    int room = c->room ? 2 * c->room : 4096;
    label *grown = realloc(c->label, (size_t)room * sizeof *grown);
    if (!grown)
      return atoll_fail(ATOLL_NOMEM, "plan: no memory for %d partial chains", room);
    c->label = grown;
    c->room = room;
  }
  c->label[c->labels] = *l;
  c->bucket[at][c->filled[at]++] = c->labels++;
  return ATOLL_OK;
}

static atoll_err save(chain *c, int32_t last) {
  int n = c->label[last].stages;
  engine_plan *plan = NULL;
  ATOLL_TRY(engine_plan_create(n, n, &plan));
  for (int32_t i = last, s = 0; s < n; i = c->label[i].parent, s++) {
    plan->group[s] = (engine_group){c->kind[c->label[i].kind], 1};
    plan->stage[s] =
        (engine_stage){c->label[i].layer, s + 1 < n ? c->label[c->label[i].parent].layer : c->L, 1, &plan->group[s]};
  }
  engine_plan_destroy(&c->plan);
  c->plan = plan;
  return ATOLL_OK;
}

/* One more stage in front of `from` (-1: the last one): layers [first, last) on kind k. */
static atoll_err extend(chain *c, int32_t from, int k, int first, int last) {
  label l = {0};
  const memo *m;
  int p = pool_of(c, k), next = -1;
  if (from >= 0) {
    l = c->label[from];
    next = pool_of(c, l.kind);
  }
  c->work++;
  int used = take(&c->x->pool[p], l.used[p], width_of(c, k));
  if (used < 0)
    return ATOLL_OK;
  ATOLL_TRY(points_of(c, k, first, last, &m));
  l.stages++;
  int i = point_for(m, l.stages < c->at->most ? l.stages : c->at->most);
  if (i < 0)
    return ATOLL_OK;
  double t = m->point[i].seconds + (next >= 0 ? c->send[p * c->x->pools + next] : 0);
  if (t > c->theta * WITHIN)
    return ATOLL_OK;
  l.extra = from >= 0 ? fmax(m->point[i].extra, l.extra - t) : m->point[i].extra;
  l.sum += t;
  l.bottleneck = fmax(l.bottleneck, t);
  l.rent += c->x->pool[p].price * width_of(c, k);
  l.money += next >= 0 ? pools_money(c->x, c->at, p, next) : 0;
  l.used[p] = (uint16_t)used;
  l.layer = (int16_t)first;
  l.tail = (int16_t)(from >= 0 ? l.tail : p);
  if (first == 0 && from >= 0)
    l.extra += c->swap[p * c->x->pools + l.tail];
  l.kind = (int16_t)k;
  l.parent = from;
  if (hopeless(c, &l) || !has_room(c, l.used, l.layer))
    return ATOLL_OK;
  return keep(c, &l);
}

/* All ways to put a stage in front of what begins at layer l. */
static atoll_err extend_all(chain *c, int32_t from, int l) {
  for (int k = 0; k < c->kinds; k++) {
    int most = c->longest[k] + (l == c->L) + 1, least = c->exact ? 1 : c->longest[k] - 1;
    most = most < l ? most : l;
    least = least > 1 ? least : 1;
    for (int n = most; n >= least; n--)
      ATOLL_TRY(extend(c, from, k, l - n, l));
    if (!c->exact && l < least) /* the rest, when it is shorter */
      ATOLL_TRY(extend(c, from, k, 0, l));
  }
  return ATOLL_OK;
}

static atoll_err find_longest(chain *c) {
  for (int k = 0; k < c->kinds; k++) {
    c->longest[k] = 0;
    for (int n = 1; n <= c->L - 2 || n == 1; n++) {
      const memo *m;
      ATOLL_TRY(points_of(c, k, c->L > 2 ? 1 : 0, (c->L > 2 ? 1 : 0) + n, &m));
      int i = point_for(m, 1);
      if (i < 0 || m->point[i].seconds > c->theta * WITHIN)
        break;
      c->longest[k] = n;
    }
  }
  return ATOLL_OK;
}

/* The program under the bound c->theta. */
static atoll_err run(chain *c) {
  c->labels = 0;
  memset(c->filled, 0, (size_t)(c->L + 1) * sizeof *c->filled);
  ATOLL_TRY(extend_all(c, -1, c->L));
  for (int l = c->L - 1; l > 0; l--)
    for (int i = 0; i < c->filled[l]; i++)
      ATOLL_TRY(extend_all(c, c->bucket[l][i], l));
  int32_t found = -1;
  for (int i = 0; i < c->filled[0]; i++) {
    const label *l = &c->label[c->bucket[0][i]];
    double seconds = (double)(c->at->most - 1) * l->bottleneck + l->sum + l->extra;
    double value = c->x->cheapest ? seconds * l->rent + l->money : seconds;
    int allowed = seconds <= c->x->max_seconds * WITHIN && value <= c->limit * WITHIN;
    if (c->x->c->params->max_price > 0)
      allowed = allowed && seconds * l->rent + l->money <= c->x->c->params->max_price * WITHIN;
    if (allowed && value < c->best * (1 - 1e-12)) {
      c->best = value;
      found = c->bucket[0][i];
    }
  }
  return found >= 0 ? save(c, found) : ATOLL_OK;
}

/* ---- the sweep --------------------------------------------------------------------------------------------------- */

static int by_real(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* What the bottleneck may be: every slice's time on every kind, with every send behind it. */
static atoll_err find_candidates(chain *c) {
  int P = c->x->pools, n = 0, distinct = 0;
  size_t room = (size_t)c->kinds * (size_t)c->x->c->reps * ENGINE_POINTS * (size_t)(c->exact ? P + 1 : 1);
  ATOLL_TRY(plan_alloc(room, sizeof *c->sweep, &c->sweep));
  for (int k = 0; k < c->kinds; k++)
    for (int r = 0; r < c->x->c->reps; r++) {
      const memo *m;
      ATOLL_TRY(points_of(c, k, c->x->c->rep_first[r], c->x->c->rep_last[r], &m));
      for (int i = 0; i < m->n; i++) {
        c->sweep[n++] = m->point[i].seconds;
        for (int q = 0; q < P && c->exact; q++)
          c->sweep[n++] = m->point[i].seconds + c->send[pool_of(c, k) * P + q];
      }
    }
  qsort(c->sweep, (size_t)n, sizeof *c->sweep, by_real);
  for (int i = 0; i < n; i++)
    if (!distinct || c->sweep[i] > c->sweep[distinct - 1] * WITHIN)
      c->sweep[distinct++] = c->sweep[i];
  c->candidates = distinct;
  return ATOLL_OK;
}

/* Layers [0, l) at the fastest of any kind, slices of one. */
static atoll_err find_fastest(chain *c) {
  for (int l = 0; l < c->L; l++) {
    double least = INFINITY;
    for (int k = 0; k < c->kinds; k++) {
      const memo *m;
      ATOLL_TRY(points_of(c, k, l, l + 1, &m));
      if (m->n > 0)
        least = fmin(least, m->point[0].seconds);
    }
    c->fastest[l + 1] = c->fastest[l] + (least < INFINITY ? least : 0);
  }
  /* Slices need not take the sum of their layers' times, nor more: that is known of the cost model alone. */
  for (int l = 1; l <= c->L && !c->x->c->monotone; l++)
    c->fastest[l] = 0;
  return ATOLL_OK;
}

/* Beyond few devices in steps: coarse ones up to the first chain, then fine ones from the step before it, then STEP. */
static atoll_err sweep(chain *c) {
  static const uint16_t nothing_used[POOLS];
  double n = (double)(c->at->most - 1), step = 0, size = COARSE, first = INFINITY;
  int before = -1; /* the last one without a chain */
  for (int i = 0; i < c->candidates; i++) {
    double theta = c->sweep[i], least = n * theta + c->fastest[c->L];
    if (c->x->cheapest ? least > c->x->max_seconds * WITHIN : fmin(fmin(c->best, c->limit), c->x->max_seconds) < least)
      break;
    if (!c->exact && theta < step && i + 1 < c->candidates)
      continue;
    c->theta = theta;
    ATOLL_TRY(find_longest(c));
    if (!has_room(c, nothing_used, c->L))
      continue;
    c->least = fmin(c->least, least);
    ATOLL_TRY(run(c));
    if (c->best == INFINITY) {
      before = i;
    } else if (size == COARSE && !c->exact) {
      size = FINE;
      first = theta;
      i = before;
      step = before >= 0 ? c->sweep[before] * size : 0;
      continue;
    }
    size = size == FINE && theta >= first ? STEP : size;
    step = theta * size;
  }
  return ATOLL_OK;
}

static void chain_free(chain *c) {
  for (int l = 0; c->bucket && l <= c->L; l++)
    free(c->bucket[l]);
  free(c->kind);
  free(c->memo);
  free(c->send);
  free(c->swap);
  free(c->least_swap);
  free(c->fastest);
  free(c->sweep);
  free(c->longest);
  free(c->label);
  free(c->bucket);
  free(c->filled);
  free(c->bucket_room);
  engine_plan_destroy(&c->plan);
}

static atoll_err find_swaps(chain *c) {
  int P = c->x->pools;
  ATOLL_TRY(plan_alloc((size_t)(P * P), sizeof *c->swap, &c->swap));
  ATOLL_TRY(plan_alloc((size_t)P, sizeof *c->least_swap, &c->least_swap));
  for (int q = 0; q < P; q++) {
    c->least_swap[q] = INFINITY;
    for (int p = 0; p < P; p++) {
      c->swap[p * P + q] = pools_swap(c->x, p, q);
      c->least_swap[q] = fmin(c->least_swap[q], c->swap[p * P + q]);
      c->swaps_differ |= c->swap[p * P + q] != c->swap[0];
    }
    c->least_swap[q] = c->least_swap[q] < INFINITY ? c->least_swap[q] : 0;
  }
  return ATOLL_OK;
}

static atoll_err chain_find(chain *c) {
  large *x = c->x;
  size_t n = (size_t)c->L + 1, reps = (size_t)x->c->reps;
  ATOLL_TRY(plan_alloc((size_t)x->kinds, sizeof *c->kind, &c->kind));
  for (int k = 0; k < x->kinds; k++)
    if (c->at->D * x->kind[k].tensor <= x->pool[x->kind[k].pool].per_island)
      c->kind[c->kinds++] = k;
  if (!c->kinds)
    return ATOLL_OK;
  ATOLL_TRY(plan_alloc((size_t)c->kinds * reps, sizeof *c->memo, &c->memo));
  for (size_t i = 0; i < (size_t)c->kinds * reps; i++)
    c->memo[i].n = -1;
  ATOLL_TRY(plan_alloc((size_t)(x->pools * x->pools), sizeof *c->send, &c->send));
  for (int p = 0; p < x->pools; p++)
    for (int q = 0; q < x->pools; q++)
      ATOLL_TRY(pools_send(x, c->at, p, q, &c->send[p * x->pools + q]));
  ATOLL_TRY(find_swaps(c));
  ATOLL_TRY(plan_alloc(n, sizeof *c->fastest, &c->fastest));
  ATOLL_TRY(plan_alloc((size_t)c->kinds, sizeof *c->longest, &c->longest));
  ATOLL_TRY(plan_alloc(n, sizeof *c->bucket, &c->bucket));
  ATOLL_TRY(plan_alloc(n, sizeof *c->filled, &c->filled));
  ATOLL_TRY(plan_alloc(n, sizeof *c->bucket_room, &c->bucket_room));
  ATOLL_TRY(find_candidates(c));
  ATOLL_TRY(find_fastest(c));
  return sweep(c);
}

atoll_err chain_solve(large *x, combination *at, double limit) {
  int devices = 0;
  for (int p = 0; p < x->pools; p++)
    devices += x->pool[p].islands * x->pool[p].per_island;
  chain c = {.x = x,
             .at = at,
             .L = x->c->layers,
             .exact = devices <= EXACT_DEVICES,
             .paid = x->cheapest || x->c->params->max_price > 0,
             .limit = limit,
             .best = INFINITY,
             .least = INFINITY};
  if (x->pools > POOLS)
    return atoll_fail(ATOLL_UNSUPPORTED, "plan: the islands are of %d different sorts, at most %d are told apart",
                      x->pools, POOLS);
  atoll_err err = chain_find(&c);
  x->c->considered += c.work;
  x->c->infeasible += err == ATOLL_OK && !c.plan;
  if (err == ATOLL_OK) {
    at->value = c.best;
    double relaxed = fmax(c.least, at->seconds); /* INFINITY when nothing below the limit has room */
    at->least = c.exact ? c.best : fmin(x->cheapest ? at->bound : relaxed, c.best);
    at->solved = 1;
    at->plan = c.plan;
    c.plan = NULL;
  }
  chain_free(&c);
  return err;
}
