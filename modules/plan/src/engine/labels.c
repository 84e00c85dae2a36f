/* The dynamic program. A label is a partial plan: the stages behind layer l, and how the stage that ends at l is
 * staffed; its first layer, and with it its width, are still open. One step closes that stage at layer f and staffs the
 * stage to the left, for every f and every choice. So sends, which need both neighbours, are known when the width is
 * chosen: the least one that keeps the bottleneck within the node's limit and the micro-batches in flight within
 * memory.
 *
 * Width. Of two widths that keep both limits the smaller is never worse: time per micro-batch and sends do not depend
 * on it, it leaves more devices, keeps fewer micro-batches in flight for the stages before, and sums gradients over
 * fewer replicas. (The last holds for any ring whose bandwidth does not fall with larger messages. Where counts are
 * enumerated nothing is assumed.)
 *
 * Dominance. Label x makes y superfluous when both are at the same layer with the same open choice, x has used no more
 * of any resource, has no more stages, replicas behind, sends and money, ends alike where that costs, and sum_x +
 * (bottleneck_x - bottleneck_y)+ + (sync_x - sync_y)+ + (extra_x - extra_y)+ <= sum_y: every completion of y completes
 * x, and as max(a, r) <= max(a', r)
 * + (a - a')+ the whole time of x is no more.
 *
 * Labels whose bound reaches the best plan known are dropped (bound.c). */
#include <stdlib.h>
#include <string.h>

#include "engine/search.h"

#define CROWDED    8       /* beams in a bucket before it is thinned early */
#define CLOSED     3       /* work of closing a stage; 1 is that of a bound */
#define LONGEST    2       /* stages closed in a first try */
#define COMPARED   6       /* comparisons that count as much as a bound */
#define LABELS_MAX 3000000 /* of a node: some 500 MB */

typedef struct outcome { /* a stage closed, the left neighbour's choice still open */
  double seconds, send, extra;
  int64_t width;
  uint16_t count[GROUPS];
} outcome;

typedef struct outcomes { /* labels but for next and act */
  label *o;
  int n, room;
} outcomes;

/* ---- sync and money -------------------------------------------------------------------------------------------- */

/* A stage [first, last) of choice c with these counts, the label's devices being used. */
static int stage_groups(const search *s, const label *before, const choice *c, const uint16_t *count,
                        engine_group *group, int room) {
  int n = 0;
  for (int g = 0; g < c->groups; g++) {
    int used = before->used[s->unit[s->kind[c->kind[g]].unit].dim];
    int more = space_place(s, c->kind[g], used, count[g], group + n, room - n);
    if (!more)
      return 0;
    n += more;
  }
  return n;
}

static double sync_of(search *s, const node *n, const label *l, const choice *c, int f, const outcome *o) {
  engine_group group[PLACED];
  const engine_costs *costs = &s->problem->costs;
  if (c->groups == 1 && s->unit[s->kind[c->kind[0]].unit].pools == 1)
    return space_sync(s, n->b, c->kind[0], f, l->layer, o->width);
  int groups = stage_groups(s, l, c, o->count, group, PLACED);
  return groups ? costs->sync(costs->context, n->b, &(engine_stage){f, l->layer, groups, group}) : INFINITY;
}

static double money_of(search *s, const node *n, const label *l, const choice *c, int f, const uint16_t *count) {
  engine_group group[PLACED], other[PLACED];
  const engine_costs *costs = &s->problem->costs;
  int groups = stage_groups(s, l, c, count, group, PLACED);
  if (!groups)
    return INFINITY;
  engine_stage stage = {f, l->layer, groups, group};
  double money = costs->stage_money ? costs->stage_money(costs->context, n->b, &stage) : 0;
  if (l->parent >= 0 && costs->send_money) {
    const label *parent = &s->label[l->parent];
    int others = stage_groups(s, parent, &s->choice[parent->next], l->count, other, PLACED);
    engine_stage right = {l->layer, parent->layer, others, other};
    money += costs->send_money(costs->context, n->b, &stage, &right);
  }
  return money;
}

/* ---- closing a stage --------------------------------------------------------------------------------------------- */

static int fits_resources(const search *s, const label *l, const choice *c, const uint16_t *count) {
  for (int d = 0; d < s->dims; d++) {
    int used = l->used[d];
    for (int g = 0; g < c->groups; g++)
      used += s->kind[c->kind[g]].use[d] * count[g];
    if (used > s->capacity[d])
      return 0;
  }
  return 1;
}

static int could_improve(const search *s, double bound) { return bound < s->best_value * (1 - ENGINE_EQUAL); }

/* The label with its open stage closed at layer f; sync and money are added later. */
static void advance(const search *s, const node *n, int32_t at, const outcome *o, int f, label *out) {
  const label *l = &s->label[at];
  const choice *c = &s->choice[l->next];
  double took = o->seconds + o->send;
  *out = *l;
  out->bottleneck = fmax(l->bottleneck, (double)(engine_rounds(s->problem, n->b, o->width) - 1) * took);
  out->sum += took;
  out->extra = s->problem->extra_hidden ? fmax(l->extra - took, o->extra) : fmax(l->extra, o->extra);
  out->parent = at;
  out->tail = l->stages ? l->tail : l->next;
  if (f == 0 && l->stages)
    out->extra += space_ends(s, l->next, l->tail);
  out->behind += (int32_t)o->width;
  out->stages++;
  out->layer = (int16_t)f;
  memcpy(out->count, o->count, sizeof o->count);
  for (int g = 0; g < c->groups; g++)
    for (int d = 0; d < s->dims; d++)
      out->used[d] = (uint16_t)(out->used[d] + s->kind[c->kind[g]].use[d] * o->count[g]);
}

static atoll_err add_outcome(search *s, const node *n, int32_t at, int f, const outcome *o, outcomes *out) {
  const label *l = &s->label[at];
  const choice *c = &s->choice[l->next];
  label next;
  s->work += CLOSED;
  if (o->width > UINT16_MAX || !fits_resources(s, l, c, o->count))
    return ATOLL_OK;
  advance(s, n, at, o, f, &next);
  next.next = -1;
  next.bound = bound_label(s, n, &next);
  if (!could_improve(s, next.bound))
    return ATOLL_OK;
  next.sync = fmax(l->sync, sync_of(s, n, l, c, f, o));
  if (!(next.sync <= n->sync_most * WITHIN))
    return ATOLL_OK;
  next.money += s->moves ? money_of(s, n, l, c, f, o->count) : 0;
  if (next.sync > l->sync || next.money > l->money) {
    next.bound = bound_label(s, n, &next);
    if (!could_improve(s, next.bound))
      return ATOLL_OK;
  }
  if (out->n == out->room) {
    int room = out->room ? 2 * out->room : 64;
    label *grown = realloc(out->o, (size_t)room * sizeof *grown);
    if (!grown)
      return atoll_fail(ATOLL_NOMEM, "plan: no memory for %d outcomes", room);
    out->o = grown;
    out->room = room;
  }
  out->o[out->n++] = next;
  return ATOLL_OK;
}

/* Micro-batches in flight of a stage of this width. */
static int64_t in_flight(const label *l, int64_t width) {
  int64_t held = (width + l->behind + width - 1) / width;
  return held > l->stages + 1 ? held : l->stages + 1;
}

static atoll_err close_single(search *s, const node *n, int32_t at, int f, double send, outcomes *out) {
  const label *l = &s->label[at];
  const choice *c = &s->choice[l->next];
  const engine_point *known;
  engine_point point[ENGINE_POINTS];
  int points = space_points(s, n->b, c->kind[0], f, l->layer, &known);
  memcpy(point, known, (size_t)points * sizeof *known);
  for (int i = 0; i < points; i++) {
    if (point[i].in_flight < l->stages + 1)
      continue;
    int64_t width = n->width ? n->width : least_width(s->problem, n->b, point[i].seconds + send, n->high);
    if (l->behind && point[i].in_flight > 1) { /* ceil((D + behind) / D) <= in_flight */
      int64_t least = (l->behind - 1) / (point[i].in_flight - 1) + 1;
      width = width > least ? width : least;
    }
    if (width > UINT16_MAX || in_flight(l, width) > point[i].in_flight ||
        (n->width &&
         (width != n->width ||
          (double)(engine_rounds(s->problem, n->b, width) - 1) * (point[i].seconds + send) > n->high * WITHIN)))
      continue;
    outcome o = {.seconds = point[i].seconds, .send = send, .extra = point[i].extra, .width = width};
    o.count[0] = (uint16_t)width;
    ATOLL_TRY(add_outcome(s, n, at, f, &o, out));
  }
  return ATOLL_OK;
}

/* Seconds of a stage of several kinds that holds `flight` micro-batches; INFINITY: some kind cannot. */
static double slowest(search *s, const node *n, const label *l, const choice *c, int f, int64_t flight, double *extra) {
  double seconds = 0;
  *extra = 0;
  for (int g = 0; g < c->groups; g++) {
    const engine_point *point;
    int points = space_points(s, n->b, c->kind[g], f, l->layer, &point), i = 0;
    while (i < points && point[i].in_flight < flight)
      i++;
    if (i == points)
      return INFINITY;
    seconds = fmax(seconds, point[i].seconds);
    *extra = fmax(*extra, point[i].extra);
  }
  return seconds;
}

static atoll_err close_counted(search *s, const node *n, int32_t at, int f, double send, outcomes *out) {
  const label *l = &s->label[at];
  const choice *c = &s->choice[l->next];
  outcome o = {.send = send, .width = c->width};
  o.seconds = slowest(s, n, l, c, f, in_flight(l, c->width), &o.extra);
  if ((n->width && n->width != c->width) ||
      !((double)(engine_rounds(s->problem, n->b, c->width) - 1) * (o.seconds + send) <= n->high * WITHIN) ||
      !(o.seconds < INFINITY))
    return ATOLL_OK;
  for (int g = 0; g < c->groups; g++)
    o.count[g] = (uint16_t)c->count[g];
  return add_outcome(s, n, at, f, &o, out);
}

static atoll_err close_stage(search *s, const node *n, int32_t at, int f, double send, outcomes *out) {
  out->n = 0;
  return s->choice[s->label[at].next].width ? close_counted(s, n, at, f, send, out)
                                            : close_single(s, n, at, f, send, out);
}

/* ---- labels ------------------------------------------------------------------------------------------------------ */

static int dominates(const rival *x, const rival *y) {
  int more = 0;
  for (int d = 0; d < DIMS; d++)
    more |= x->used[d] > y->used[d];
  if (more || x->tail != y->tail || x->act > y->act || x->stages > y->stages || x->behind > y->behind ||
      x->money > y->money)
    return 0;
  double above = x->sum;
  above += x->bottleneck > y->bottleneck ? x->bottleneck - y->bottleneck : 0;
  above += x->sync > y->sync ? x->sync - y->sync : 0;
  above += x->extra > y->extra ? x->extra - y->extra : 0;
  return above <= y->sum;
}

static atoll_err push(search *s, const label *l, int32_t *at) {
  if (s->labels == s->label_room) {
    int64_t room = s->label_room ? 2 * s->label_room : 1 << 14;
    label *grown = realloc(s->label, (size_t)room * sizeof *grown);
    if (!grown)
      return atoll_fail(ATOLL_NOMEM, "plan: no memory for %lld partial plans", (long long)room);
    s->label = grown;
    s->label_room = room;
  }
  s->label[s->labels] = *l;
  *at = (int32_t)s->labels++;
  return ATOLL_OK;
}

typedef struct ranked {
  double bound;
  rival label;
} ranked;

static int by_bound(const void *a, const void *b) {
  const ranked *x = a, *y = b;
  if (x->bound != y->bound)
    return x->bound < y->bound ? -1 : 1;
  return (x->label.label > y->label.label) - (x->label.label < y->label.label);
}

static int by_sum(const void *a, const void *b) {
  const rival *x = a, *y = b;
  if (x->sum != y->sum)
    return x->sum < y->sum ? -1 : 1;
  return (x->label > y->label) - (x->label < y->label);
}

/* Leaves the labels with the least bounds. */
static atoll_err thin(search *s, bucket *b, int beam) {
  ranked *r = malloc((size_t)b->n * sizeof *r);
  if (!r)
    return atoll_fail(ATOLL_NOMEM, "plan: no memory to rank %d partial plans", b->n);
  for (int i = 0; i < b->n; i++)
    r[i] = (ranked){s->label[b->label[i].label].bound, b->label[i]};
  qsort(r, (size_t)b->n, sizeof *r, by_bound);
  b->n = beam;
  for (int i = 0; i < beam; i++)
    b->label[i] = r[i].label;
  free(r);
  qsort(b->label, (size_t)beam, sizeof *b->label, by_sum);
  s->thinned = 1;
  return ATOLL_OK;
}

static atoll_err insert(search *s, const label *l) {
  bucket *b = &s->bucket[(size_t)l->layer * (size_t)s->choices + (size_t)l->next];
  rival r = {.sum = l->sum,
             .bottleneck = l->bottleneck,
             .sync = l->sync,
             .extra = l->extra,
             .act = l->act,
             .money = l->money,
             .behind = l->behind,
             .stages = l->stages,
             .tail = s->ends ? l->tail : 0};
  memcpy(r.used, l->used, sizeof r.used);
  int at = 0, kept;
  for (; at < b->n && b->label[at].sum <= r.sum; at++)
    if (dominates(&b->label[at], &r)) {
      s->work += at / COMPARED;
      return ATOLL_OK;
    }
  kept = at;
  for (int i = at; i < b->n; i++)
    if (!dominates(&r, &b->label[i])) {
      if (kept < i)
        b->label[kept] = b->label[i];
      kept++;
    }
  s->work += b->n / COMPARED;
  b->n = kept;
  if (b->n == b->room) {
    int room = b->room ? 2 * b->room : 8;
    rival *grown = realloc(b->label, (size_t)room * sizeof *grown);
    if (!grown)
      return atoll_fail(ATOLL_NOMEM, "plan: no memory for %d partial plans of a layer", room);
    b->label = grown;
    b->room = room;
  }
  ATOLL_TRY(push(s, l, &r.label));
  memmove(b->label + at + 1, b->label + at, (size_t)(b->n - at) * sizeof r);
  b->label[at] = r;
  b->n++;
  return s->beam && b->n > CROWDED * s->beam ? thin(s, b, CROWDED / 2 * s->beam) : ATOLL_OK;
}

/* Closes the label's stage at layer f > 0 and staffs the one to the left in every way; *closed counts labels. */
static atoll_err expand_at(search *s, const node *n, int32_t at, int f, outcomes *out, int *closed) {
  const engine_problem *p = s->problem;
  const label l = s->label[at];
  double known = NAN; /* sends of the outcomes at hand */
  *closed = 0;
  for (int c = 0; c < s->choices; c++) {
    double grad = space_send_choices(s, n->b, f, c, l.next, 1),
           send = l.layer == s->layers ? p->last_factor * grad : l.act + grad;
    if (!(send < INFINITY))
      continue;
    if (send != known) {
      ATOLL_TRY(close_stage(s, n, at, f, send, out));
      known = send;
    }
    for (int i = 0; i < out->n; i++) {
      label *next = &out->o[i];
      int room = 1;
      for (int d = 0; d < s->dims; d++)
        room &= next->used[d] + s->choice[c].need[d] <= s->capacity[d];
      if (!room || !could_improve(s, next->bound))
        continue;
      next->next = (int16_t)c;
      double bound = bound_label(s, n, next);
      if (!could_improve(s, bound))
        continue;
      label chosen = *next;
      chosen.bound = bound;
      chosen.act = space_send_choices(s, n->b, f, c, l.next, 0);
      ++*closed;
      ATOLL_TRY(insert(s, &chosen));
    }
  }
  return ATOLL_OK;
}

/* Every way to close a stage. With a beam on many buckets only the longest stages that can be closed: a bottleneck is
 * seldom met by shorter ones. */
static atoll_err expand(search *s, const node *n, int32_t at, outcomes *out, double *least) {
  const engine_problem *p = s->problem;
  const label l = s->label[at];
  const spent so_far = bound_spent(s, n, &l);
  int most = s->beam && s->layers * s->choices > BUCKETS_FEW ? LONGEST : s->layers;
  if (p->max_stages && l.stages >= p->max_stages)
    return ATOLL_OK;
  for (int f = 1; f < l.layer && most > 0; f++) {
    int closed;
    s->work++;
    if (!bound_closes(s, &so_far, &l, f))
      continue;
    ATOLL_TRY(expand_at(s, n, at, f, out, &closed));
    most -= closed > 0;
    s->thinned |= most == 0 && f + 1 < l.layer;
  }
  ATOLL_TRY(close_stage(s, n, at, 0, engine_exposed(p, l.stages + 1, 0, l.act, 0), out));
  for (int i = 0; i < out->n; i++)
    if (could_improve(s, out->o[i].bound)) {
      *least = fmin(*least, out->o[i].sum + out->o[i].sync + out->o[i].extra);
      ATOLL_TRY(search_offer(s, n, &out->o[i]));
    }
  return ATOLL_OK;
}

atoll_err labels_run(search *s, const node *n, int beam, double *least, int *whole) {
  outcomes out = {0};
  atoll_err err = ATOLL_OK;
  *least = INFINITY;
  s->beam = beam;
  s->thinned = 0;
  s->labels = 0;
  for (size_t i = 0; s->bucket[i].room >= 0; i++)
    s->bucket[i].n = 0;
  for (int c = 0; c < s->choices && err == ATOLL_OK; c++)
    err = insert(s, &(label){.parent = -1, .layer = (int16_t)s->layers, .next = (int16_t)c, .bound = n->bound});
  for (int l = s->layers; l > 0 && err == ATOLL_OK; l--)
    for (int c = 0; c < s->choices && err == ATOLL_OK; c++) {
      bucket *b = &s->bucket[(size_t)l * (size_t)s->choices + (size_t)c];
      if (beam && b->n > beam) {
        err = thin(s, b, beam);
      }
      for (int i = 0; i < b->n && err == ATOLL_OK; i++)
        if (could_improve(s, s->label[b->label[i].label].bound) && s->labels < LABELS_MAX && s->work <= s->work_limit)
          err = expand(s, n, b->label[i].label, &out, least);
      s->thinned |= s->labels >= LABELS_MAX || s->work > s->work_limit;
    }
  *whole = !s->thinned;
  free(out.o);
  return err;
}
