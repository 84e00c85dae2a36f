/* First plans of pipelines whose stages are one replica each (engine_problem.width 1): chains of kinds.
 *
 * A bound on the bottleneck is swept upwards over the times that slices have. For each, a dynamic program from the last
 * layer to the first keeps at most BEAM partial chains per layer, those of least sum, whose stages hold the most layers
 * that the bound allows, or one fewer. The first chain under a coarse step is looked for again in fine ones; from there
 * the bound goes on in steps of STEP, until (n - 1) bound + the least possible sum reaches the best plan, n being the
 * micro-batches. Pools stay apart however many there are: so a plan is found where units of many pools would hide that
 * an island is full. It is a heuristic throughout; what it misses is the matter of the rounds that follow it.
 *
 * Devices of a pool are taken node by node: what is left of a node that cannot hold the next stage stays free. */
#include <stdlib.h>
#include <string.h>

#include "atoll/stats.h"
#include "engine/search.h"

#define STEP   1.03
#define COARSE 1.02
#define FINE   1.003
#define BEAM   48
#define POOLS  48 /* most pools whose use is told apart */

typedef struct chain { /* stages behind `layer` */
  double sum, extra, bottleneck, rent, money;
  int32_t parent;
  int16_t layer, stages, kind, tail; /* tail: kind of the last stage */
  uint16_t used[POOLS];              /* devices, in whole nodes first */
} chain;

typedef struct answer { /* points of a slice on a kind */
  int n;
  engine_point point[ENGINE_POINTS];
} answer;

typedef struct sweep {
  search *s;
  const engine_problem *p;
  int b, L;
  double n;           /* micro-batches but one */
  answer *answer;     /* [kinds][reps] */
  double *fastest;    /* [L + 1]: layers [0, l) at their least */
  double *least_ends; /* [kinds]: with the last stage on it */
  double *candidate;  /* of the bottleneck, ascending */
  int candidates;
  int *longest; /* [kinds]: layers of the longest inner slice under the bound at hand */
  double theta;
  chain *chain;
  int chains, room;
  int (*bucket)[BEAM], *filled; /* [L + 1] */
} sweep;

static const answer *answer_of(const sweep *w, int k, int first, int last) {
  return &w->answer[(size_t)k * (size_t)w->s->reps + (size_t)space_range(w->s, first, last)];
}

/* The fastest point that holds so many micro-batches, or -1. */
static int point_for(const answer *a, int64_t in_flight) {
  int i = 0;
  while (i < a->n && a->point[i].in_flight < in_flight)
    i++;
  return i < a->n ? i : -1;
}

/* Devices of a pool that are taken once one of its nodes has given `width` more; -1: none can. */
static int take(const engine_pool *pool, int used, int width) {
  int per_node = pool->per_node > 0 ? pool->per_node : pool->devices, inside = used % per_node;
  used += inside + width > per_node ? per_node - inside : 0;
  return used + width <= pool->devices ? used + width : -1;
}

/* Whether the devices left can hold so many layers, but for the first and the last, which are lighter or heavier. */
static int has_room(const sweep *w, const uint16_t *used, int layers) {
  double room = 0, most = 0;
  for (int k = 0; k < w->p->kinds; k++) {
    int pool = w->p->kind[k].pool;
    most = fmax(most, (double)(w->p->pool[pool].devices - used[pool]) / w->p->kind[k].devices * w->longest[k]);
    if (k + 1 == w->p->kinds || w->p->kind[k + 1].pool != pool) {
      room += most;
      most = 0;
    }
  }
  return room >= layers - 2;
}

static int dominates(const sweep *w, const chain *a, const chain *b) {
  if (a->kind != b->kind || a->stages > b->stages || a->sum > b->sum || a->extra > b->extra ||
      (w->p->costs.ends && a->tail != b->tail))
    return 0;
  if (w->s->priced && (a->rent > b->rent || a->money > b->money || a->bottleneck > b->bottleneck))
    return 0;
  for (int i = 0; i < w->p->pools; i++)
    if (a->used[i] > b->used[i])
      return 0;
  return 1;
}

static double ends_of(const sweep *w, int first, int last) {
  const engine_costs *c = &w->p->costs;
  engine_group a = {first, 1}, b = {last, 1};
  return c->ends ? c->ends(c->context, w->b, &(engine_stage){0, 1, 1, &a}, &(engine_stage){w->L - 1, w->L, 1, &b}) : 0;
}

/* What the least chain with these stages last is worth. */
static double value_of(const sweep *w, const chain *c) {
  double hidden = w->p->extra_hidden ? w->fastest[c->layer] : 0;
  double seconds = w->n * c->bottleneck + c->sum + w->fastest[c->layer] + fmax(c->extra - hidden, 0) +
                   (c->layer > 0 ? w->least_ends[c->tail] : 0); /* once it is complete, extra has it */
  return search_value(w->s, seconds, seconds * c->rent + c->money);
}

static atoll_err keep(sweep *w, const chain *c) {
  int *list = w->bucket[c->layer], kept = 0, n = w->filled[c->layer];
  for (int i = 0; i < n; i++)
    if (dominates(w, &w->chain[list[i]], c))
      return ATOLL_OK;
  for (int i = 0; i < n; i++)
    if (!dominates(w, c, &w->chain[list[i]]))
      list[kept++] = list[i];
  w->filled[c->layer] = kept;
  if (kept == BEAM) { /* the one of largest sum goes */
    int worst = 0;
    for (int i = 1; i < kept; i++)
      worst = w->chain[list[i]].sum > w->chain[list[worst]].sum ? i : worst;
    if (w->chain[list[worst]].sum <= c->sum)
      return ATOLL_OK;
    list[worst] = list[--kept];
  }
  if (w->chains == w->room) {
    int room = w->room ? 2 * w->room : 4096;
    chain *grown = realloc(w->chain, (size_t)room * sizeof *grown);
    if (!grown)
      return atoll_fail(ATOLL_NOMEM, "plan: no memory for %d partial chains", room);
    w->chain = grown;
    w->room = room;
  }
  w->chain[w->chains] = *c;
  list[kept] = w->chains++;
  w->filled[c->layer] = kept + 1;
  return ATOLL_OK;
}

/* Both sends over the boundary between stages of kinds a and b, and their money. */
static double send_between(const sweep *w, int layer, int a, int b, double *money) {
  const engine_costs *c = &w->p->costs;
  engine_group left = {a, 1}, right = {b, 1};
  if (w->s->priced && c->send_money)
    *money += c->send_money(c->context, w->b, &(engine_stage){layer - 1, layer, 1, &left},
                            &(engine_stage){layer, layer + 1, 1, &right});
  return c->send(c->context, w->b, layer, a, b, 0) + c->send(c->context, w->b, layer, b, a, 1);
}

/* One more stage in front of `from` (-1: the last one): layers [first, last) on kind k. */
static atoll_err extend(sweep *w, int32_t from, int k, int first, int last) {
  const engine_kind *kind = &w->p->kind[k];
  const answer *a = answer_of(w, k, first, last);
  chain c = {.tail = (int16_t)k};
  if (from >= 0)
    c = w->chain[from];
  w->s->work++;
  int used = take(&w->p->pool[kind->pool], c.used[kind->pool], kind->devices), i = point_for(a, ++c.stages);
  if (used < 0 || i < 0)
    return ATOLL_OK;
  double t = a->point[i].seconds + (from >= 0 ? send_between(w, last, k, c.kind, &c.money) : 0);
  if (t > w->theta * WITHIN)
    return ATOLL_OK;
  c.extra = fmax(a->point[i].extra, from >= 0 ? c.extra - (w->p->extra_hidden ? t : 0) : 0);
  c.sum += t;
  c.bottleneck = fmax(c.bottleneck, t);
  c.rent += w->s->priced ? w->p->pool[kind->pool].price * kind->devices : 0;
  c.used[kind->pool] = (uint16_t)used;
  c.layer = (int16_t)first;
  c.extra += first == 0 && from >= 0 ? ends_of(w, k, c.tail) : 0;
  c.kind = (int16_t)k;
  c.parent = from;
  if (!(value_of(w, &c) < w->s->best_value * (1 - ENGINE_EQUAL)) || !has_room(w, c.used, c.layer))
    return ATOLL_OK;
  return keep(w, &c);
}

/* The longest stages in front of what begins at layer l. */
static atoll_err extend_all(sweep *w, int32_t from, int l) {
  for (int k = 0; k < w->p->kinds; k++) {
    int most = w->longest[k] + (l == w->L) + 1, least = w->longest[k] > 2 ? w->longest[k] - 1 : 1;
    most = most < l ? most : l;
    for (int n = most; n >= least; n--)
      ATOLL_TRY(extend(w, from, k, l - n, l));
    if (l < least) /* the rest, when it is shorter */
      ATOLL_TRY(extend(w, from, k, 0, l));
  }
  return ATOLL_OK;
}

static void find_longest(sweep *w) {
  int first = w->L > 2;
  for (int k = 0; k < w->p->kinds; k++)
    for (w->longest[k] = 0; first + w->longest[k] + 1 < w->L || !w->longest[k]; w->longest[k]++) {
      const answer *a = answer_of(w, k, first, first + w->longest[k] + 1);
      if (!a->n || a->point[0].seconds > w->theta * WITHIN)
        break;
    }
}

static atoll_err offer(sweep *w, int32_t last) {
  int n = w->chain[last].stages, fits;
  engine_plan *plan = NULL;
  ATOLL_TRY(engine_plan_create(n, n, &plan));
  plan->b = w->b;
  for (int i = last, s = 0; s < n; i = w->chain[i].parent, s++) {
    plan->group[s] = (engine_group){w->chain[i].kind, 1};
    plan->stage[s] =
        (engine_stage){w->chain[i].layer, s + 1 < n ? w->chain[w->chain[i].parent].layer : w->L, 1, &plan->group[s]};
  }
  return search_take(w->s, &plan, &fits);
}

/* The program under the bound theta. */
static atoll_err run(sweep *w) {
  w->chains = 0;
  memset(w->filled, 0, ((size_t)w->L + 1) * sizeof *w->filled);
  find_longest(w);
  if (!has_room(w, (const uint16_t[POOLS]){0}, w->L))
    return ATOLL_OK;
  ATOLL_TRY(extend_all(w, -1, w->L));
  for (int l = w->L - 1; l > 0; l--)
    for (int i = 0; i < w->filled[l]; i++)
      ATOLL_TRY(extend_all(w, w->bucket[l][i], l));
  for (int i = 0; i < w->filled[0]; i++)
    if (value_of(w, &w->chain[w->bucket[0][i]]) < w->s->best_value * (1 - ENGINE_EQUAL))
      ATOLL_TRY(offer(w, w->bucket[0][i]));
  return ATOLL_OK;
}

/* Coarse steps up to the first chain, then fine ones from the step before it, then STEP. */
static atoll_err climb(sweep *w) {
  double step = 0, size = COARSE, first = INFINITY;
  int before = -1; /* the last candidate without a chain */
  for (int i = 0; i < w->candidates; i++) {
    double theta = w->candidate[i], least = w->n * theta + w->fastest[w->L], limit = w->p->max_seconds;
    if (least > (w->p->goal == ENGINE_FASTEST ? fmin(limit, w->s->best_value) : limit) * WITHIN)
      break;
    if (theta < step && i + 1 < w->candidates)
      continue;
    w->theta = theta;
    ATOLL_TRY(run(w));
    if (!w->s->best) {
      before = i;
    } else if (size == COARSE) {
      size = FINE;
      first = theta;
      i = before;
      step = before >= 0 ? w->candidate[before] * size : 0;
      continue;
    }
    size = size == FINE && theta >= first ? STEP : size;
    step = theta * size;
  }
  return ATOLL_OK;
}

static void tabulate(sweep *w) {
  int reps = w->s->reps, n = 0;
  for (int k = 0; k < w->p->kinds; k++)
    for (int r = 0; r < reps; r++) {
      answer *a = &w->answer[(size_t)k * (size_t)reps + (size_t)r];
      a->n = w->p->costs.slice(w->p->costs.context, w->b, k, w->s->range[r].first, w->s->range[r].last, a->point);
      for (int i = 0; i < a->n; i++)
        w->candidate[n++] = a->point[i].seconds;
    }
  atoll_sort(w->candidate, (size_t)n);
  w->candidates = 0;
  for (int i = 0; i < n; i++)
    if (!w->candidates || w->candidate[i] > w->candidate[w->candidates - 1] * WITHIN)
      w->candidate[w->candidates++] = w->candidate[i];
  for (int l = 1; l <= w->L; l++) {
    w->fastest[l] = INFINITY;
    for (int k = 0; k < w->p->kinds; k++)
      for (int f = 0; f < l; f++) {
        const answer *a = answer_of(w, k, f, l);
        if (a->n)
          w->fastest[l] = fmin(w->fastest[l], w->fastest[f] + a->point[0].seconds);
      }
  }
  for (int last = 0; last < w->p->kinds; last++) {
    w->least_ends[last] = INFINITY;
    for (int k = 0; k < w->p->kinds; k++)
      w->least_ends[last] = fmin(w->least_ends[last], ends_of(w, k, last));
  }
}

atoll_err sweep_chains(search *s) {
  const engine_problem *p = s->problem;
  size_t L1 = (size_t)p->layers + 1, kinds = (size_t)p->kinds, answers = kinds * (size_t)s->reps;
  sweep w = {.s = s, .p = p, .L = p->layers};
  if (p->pools > POOLS)
    return ATOLL_OK;
  w.answer = malloc(answers * sizeof *w.answer);
  w.candidate = malloc(answers * ENGINE_POINTS * sizeof *w.candidate);
  w.fastest = calloc(L1, sizeof *w.fastest);
  w.least_ends = calloc(kinds, sizeof *w.least_ends);
  w.longest = calloc(kinds, sizeof *w.longest);
  w.bucket = malloc(L1 * sizeof *w.bucket);
  w.filled = calloc(L1, sizeof *w.filled);
  atoll_err err = w.answer && w.candidate && w.fastest && w.least_ends && w.longest && w.bucket && w.filled
                      ? ATOLL_OK
                      : atoll_fail(ATOLL_NOMEM, "plan: no memory for chains of %d kinds", p->kinds);
  for (w.b = 0; w.b < p->batches && err == ATOLL_OK; w.b++) {
    w.n = (double)(engine_total(p, w.b) - 1);
    tabulate(&w);
    err = climb(&w);
  }
  free(w.answer);
  free(w.candidate);
  free(w.fastest);
  free(w.least_ends);
  free(w.longest);
  free(w.bucket);
  free(w.filled);
  free(w.chain);
  return err;
}
