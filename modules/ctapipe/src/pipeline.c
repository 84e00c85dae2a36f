/* The CTA-pipelined schedule.
 *
 * Each step's tiles are taken one by one from its claim word, in grouped order: the panels of a group share a pass over
 * the weights. A rank looks for a tile whose inputs are all there, first in its own steps, the deepest first, then, if
 * claims are allowed, in the others'. When there is none it takes one whose inputs are being made and waits for them
 * inside the loop over k.
 *
 * Why nobody waits for ever: with claims, a tile is taken early only when all its inputs have been taken, by ranks that
 * do nothing else until they are done; tiles of step 0 wait for nothing; so, by induction over steps, every taken tile
 * is finished. Without claims a rank waits only for lower steps of others; as the products of a rank are neighbours,
 * the lowest unfinished step is always worked on. */
#include "view.h"

static struct cta_place place_of(const struct cta_view *v, int step, int64_t item) {
  if (v->step[step].kind == CTA_WEIGHT) /* columns of one tile of the right factor together */
    return (struct cta_place){item % v->step[step].ks, item / v->step[step].ks};
  int64_t nt = v->step[step].nt, first = item / (v->group * nt) * v->group, rest = item - first * nt;
  int64_t size = cta_least(v->group, v->panels - first);
  return (struct cta_place){first + rest % size, rest / size};
}

/* Items of a step up to the last tile of panel p. */
static int64_t items_through(const struct cta_view *v, int step, int64_t p) {
  int64_t nt = v->step[step].nt, first = p / v->group * v->group, size = cta_least(v->group, v->panels - first);
  return first * nt + (nt - 1) * size + p - first + 1;
}

static int64_t taken(const struct cta_view *v, int step) {
  uint64_t word = atomic_load_explicit(&v->step[step].claim->word, memory_order_relaxed);
  return word >> 32 == v->epoch ? (int64_t)(word & UINT32_MAX) : 0;
}

/* Takes item `item`, if it is still the next. What it needs is ordered by the flags, not by the claim. */
static int take(struct cta_view *v, int step, int64_t item) {
  cta_claim *claim = v->step[step].claim;
  uint64_t word = atomic_load_explicit(&claim->word, memory_order_relaxed);
  int64_t now = word >> 32 == v->epoch ? (int64_t)(word & UINT32_MAX) : 0;
  return now == item &&
         atomic_compare_exchange_strong_explicit(&claim->word, &word, (uint64_t)v->epoch << 32 | (uint64_t)(item + 1),
                                                 memory_order_relaxed, memory_order_relaxed);
}

static int inputs_there(const struct cta_view *v, int step, struct cta_place at) {
  const struct cta_step *s = &v->step[step];
  for (int64_t k = 0; s->kind == CTA_PRODUCT && k < s->ks; k++)
    if (!cta_reached(cta_flag_at(v, step - 1, at.panel, k / cta_made(s - 1)), v->epoch))
      return 0;
  for (int64_t p = 0; s->kind == CTA_WEIGHT && p < v->panels; p++)
    if (!cta_reached(cta_flag_at(v, s->right, p, at.tile), v->epoch))
      return 0;
  return 1;
}

static int inputs_coming(const struct cta_view *v, int step, struct cta_place at) {
  const struct cta_step *s = &v->step[step];
  int from = s->kind == CTA_WEIGHT ? s->right : step - 1;
  if (s->kind == CTA_COPY)
    return 0; /* needs nothing: it is there */
  if (!v->claims)
    return v->step[from].owner != v->rank;
  return taken(v, from) >= (s->kind == CTA_WEIGHT ? cta_items(v, from) : items_through(v, from, at.panel));
}

/* 1: an item was taken. *left counts the steps that still have any. */
static int find(struct cta_view *v, int own, int early, int *left, int *step, struct cta_place *at) {
  for (int i = 0; i < v->steps; i++) {
    int s = i < v->products ? v->products - 1 - i : i; /* gradients of weights last: nobody waits for them */
    if ((v->step[s].owner == v->rank) != own)
      continue;
    int64_t item = taken(v, s);
    if (item >= cta_items(v, s))
      continue;
    ++*left;
    *at = place_of(v, s, item);
    if ((early ? inputs_coming(v, s, *at) : inputs_there(v, s, *at)) && take(v, s, item)) {
      *step = s;
      return 1;
    }
  }
  return 0;
}

int cta_find(struct cta_view *v, int *left, int *step, struct cta_place *at) {
  int found = 0;
  *left = 0;
  for (int early = 0; early < 2 && !found; early++) {
    found = find(v, 1, early, left, step, at);
    if (!found && v->claims)
      found = find(v, 0, early, left, step, at);
  }
  return found;
}

atoll_err cta_run_pipelined(struct cta_view *v) {
  struct cta_wait w = {0};
  for (;;) {
    int left, step = 0;
    struct cta_place at;
    if (cta_find(v, &left, &step, &at)) {
      w = (struct cta_wait){0};
      ATOLL_TRY(cta_tile(v, step, at.panel, at.tile, 1));
    } else if (left) {
      ATOLL_TRY(cta_wait_step(v, &w, "work", 0, -1, -1, v->rank));
    } else {
      break;
    }
  }
  return ATOLL_OK;
}

atoll_err cta_run_alone(struct cta_view *v, int64_t p0, int64_t p1) {
  for (int64_t g = p0; g < p1; g += v->group)
    for (int s = 0; s < v->products; s++)
      for (int64_t t = 0; t < v->step[s].nt; t++)
        for (int64_t p = g; p < p1 && p < g + v->group; p++)
          ATOLL_TRY(cta_tile(v, s, p, t, 0));
  return ATOLL_OK;
}

atoll_err cta_run_weights(struct cta_view *v, int part, int parts) {
  for (int s = v->products; s < v->steps; s++) {
    int64_t n = cta_items(v, s);
    for (int64_t item = n * part / parts; item < n * (part + 1) / parts; item++) {
      struct cta_place at = place_of(v, s, item);
      ATOLL_TRY(cta_tile(v, s, at.panel, at.tile, 0));
    }
  }
  return ATOLL_OK;
}
