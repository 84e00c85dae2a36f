/* Small changes to good plans, as long as one helps: what the shortest paths of stages of one kind leave out, such as
 * replicas of two pools in one stage, the order of pools in a stage, or a few devices that are over.
 *
 * Changes: a boundary moves; a stage gets more or fewer replicas of a kind, or its first of one; a group is used
 * another way (other degree), or a stage of one replica elsewhere; neighbours of a stage's list swap; two stages become
 * one; the micro-batch changes. They are tried alone and in pairs, in a fixed order; one that makes the plan better is
 * taken at once. Every plan is evaluated exactly (problem.c).
 */
#include <stdlib.h>
#include <string.h>

#include "engine/search.h"

#define GROUPS_MOST 12 /* of a stage here */
#define STAGES_MOST 64
#define TRIES       30000 /* plans evaluated from one start */

enum { BOUNDARY, COUNT, KIND, PLACE, SWAP, MERGE, BATCH };

typedef struct change {
  int what, stage, group, by; /* group: for COUNT the kind */
} change;

typedef struct draft {
  int b, stages;
  int first[STAGES_MOST + 1], groups[STAGES_MOST];
  engine_group group[STAGES_MOST][GROUPS_MOST];
} draft;

static int load(const engine_problem *p, const engine_plan *plan, draft *d) {
  if (plan->stages > STAGES_MOST)
    return 0;
  d->b = plan->b;
  d->stages = plan->stages;
  for (int i = 0; i < plan->stages; i++) {
    if (plan->stage[i].groups > GROUPS_MOST)
      return 0;
    d->first[i] = plan->stage[i].first;
    d->groups[i] = plan->stage[i].groups;
    memcpy(d->group[i], plan->stage[i].group, (size_t)plan->stage[i].groups * sizeof *plan->stage[i].group);
  }
  d->first[plan->stages] = p->layers;
  return 1;
}

static int change_count(draft *d, int i, int kind, int by) {
  int at = 0;
  while (at < d->groups[i] && d->group[i][at].kind != kind)
    at++;
  if (at == d->groups[i]) {
    if (by < 1 || at == GROUPS_MOST)
      return 0;
    for (at = 0; at < d->groups[i] && d->group[i][at].kind < kind; at++)
      ;
    memmove(&d->group[i][at + 1], &d->group[i][at], (size_t)(d->groups[i]++ - at) * sizeof d->group[i][at]);
    d->group[i][at] = (engine_group){kind, by};
    return 1;
  }
  d->group[i][at].count += by;
  if (d->group[i][at].count > 0)
    return 1;
  memmove(&d->group[i][at], &d->group[i][at + 1], (size_t)(--d->groups[i] - at) * sizeof d->group[i][at]);
  return d->groups[i] > 0;
}

/* Stage i takes the layers of the next, and its replicas unless the width is fixed. */
static int merge(const engine_problem *p, draft *d, int i) {
  if (i + 1 >= d->stages)
    return 0;
  for (int g = 0; g < d->groups[i + 1] && !p->width; g++)
    if (!change_count(d, i, d->group[i + 1][g].kind, d->group[i + 1][g].count))
      return 0;
  d->stages--;
  for (int k = i + 1; k < d->stages; k++) {
    d->first[k] = d->first[k + 1];
    d->groups[k] = d->groups[k + 1];
    memcpy(d->group[k], d->group[k + 1], sizeof d->group[k]);
  }
  d->first[d->stages] = d->first[d->stages + 1];
  return 1;
}

static int apply(const engine_problem *p, draft *d, const change *c) {
  if (c->stage >= d->stages)
    return 0;
  switch (c->what) {
  case BOUNDARY:
    d->first[c->stage] += c->by;
    return d->first[c->stage] > d->first[c->stage - 1] && d->first[c->stage] < d->first[c->stage + 1];
  case COUNT:
    return change_count(d, c->stage, c->group, c->by);
  case KIND: {
    if (c->group >= d->groups[c->stage])
      return 0;
    engine_group *g = &d->group[c->stage][c->group];
    int to = g->kind + c->by;
    if (to < 0 || to >= p->kinds || p->kind[to].pool != p->kind[g->kind].pool)
      return 0;
    int devices = g->count * p->kind[g->kind].devices;
    *g = (engine_group){to, devices / p->kind[to].devices};
    return g->count > 0;
  }
  case PLACE:
    if (c->group >= d->groups[c->stage] || d->group[c->stage][c->group].kind == c->by)
      return 0;
    d->group[c->stage][c->group].kind = c->by;
    return 1;
  case SWAP: {
    if (c->group + c->by >= d->groups[c->stage])
      return 0;
    engine_group *g = d->group[c->stage], was = g[c->group];
    g[c->group] = g[c->group + c->by];
    g[c->group + c->by] = was;
    return 1;
  }
  case MERGE:
    return merge(p, d, c->stage);
  default:
    d->b += c->by;
    return d->b >= 0 && d->b < p->batches;
  }
}

/* Devices at most what the pools have, so that no error is made for what is plainly too much. */
static int affordable(const engine_problem *p, const draft *d, int *used) {
  memset(used, 0, (size_t)p->pools * sizeof *used);
  for (int i = 0; i < d->stages; i++)
    for (int g = 0; g < d->groups[i]; g++) {
      int pool = p->kind[d->group[i][g].kind].pool;
      used[pool] += d->group[i][g].count * p->kind[d->group[i][g].kind].devices;
      if (used[pool] > p->pool[pool].devices)
        return 0;
    }
  return 1;
}

static int list_changes(const engine_problem *p, const draft *d, change *list, int room) {
  static const int shifts[] = {1, -1, 2, -2, 3, -3}, counts[] = {1, -1, 2, -2, 3, -3, 4, -4, 6, 8, -8, 12, 16, -16};
  int n = 0;
#define ADD(...)                                                                                                       \
  do {                                                                                                                 \
    if (n < room)                                                                                                      \
      list[n++] = (change){__VA_ARGS__};                                                                               \
  } while (0)
  for (int i = 0; i < d->stages; i++) {
    for (size_t k = 0; i && k < sizeof shifts / sizeof *shifts; k++)
      ADD(BOUNDARY, i, 0, shifts[k]);
    for (int kind = 0; kind < p->kinds && p->width != 1; kind++)
      for (size_t k = 0; k < sizeof counts / sizeof *counts; k++)
        ADD(COUNT, i, kind, counts[k]);
    for (int kind = 0; kind < p->kinds && p->width == 1; kind++)
      ADD(PLACE, i, 0, kind);
    if (i + 1 < d->stages)
      ADD(MERGE, i, 0, 0);
    for (int g = 0; g < d->groups[i]; g++) {
      for (int by = 1; g + by < d->groups[i]; by++)
        ADD(SWAP, i, g, by);
      for (int by = -3; by <= 3; by++)
        if (by)
          ADD(KIND, i, g, by);
    }
  }
  ADD(BATCH, 0, 0, 1);
  ADD(BATCH, 0, 0, -1);
#undef ADD
  return n;
}

static atoll_err evaluate(search *s, const draft *d, double *value) {
  engine_plan *plan = NULL;
  int groups = 0;
  *value = INFINITY;
  for (int i = 0; i < d->stages; i++)
    groups += d->groups[i];
  ATOLL_TRY(engine_plan_create(d->stages, groups, &plan));
  plan->b = d->b;
  for (int i = 0, at = 0; i < d->stages; at += d->groups[i++]) {
    plan->stage[i] = (engine_stage){d->first[i], d->first[i + 1], d->groups[i], plan->group + at};
    memcpy(plan->group + at, d->group[i], (size_t)d->groups[i] * sizeof *plan->group);
  }
  atoll_err err = engine_evaluate(s->problem, plan);
  s->work += EVALUATED;
  if (err == ATOLL_OK) {
    *value = search_plan_value(s, plan);
    search_keep(s, &plan);
  } else if (err == ATOLL_INFEASIBLE || err == ATOLL_USAGE) { /* a change too far */
    atoll_err_clear();
    err = ATOLL_OK;
  }
  engine_plan_destroy(&plan);
  return err;
}

/* Tries a change or two; *better 1: they were taken. */
static atoll_err attempt(search *s, draft *d, double *value, int *used, const change *one, const change *two,
                         int64_t *tries, int *better) {
  const engine_problem *p = s->problem;
  draft next = *d;
  double now;
  if (!apply(p, &next, one) || (two && !apply(p, &next, two)) || !affordable(p, &next, used))
    return ATOLL_OK;
  ++*tries;
  ATOLL_TRY(evaluate(s, &next, &now));
  if (now < *value * (1 - ENGINE_EQUAL)) {
    *d = next;
    *value = now;
    *better = 1;
  }
  return ATOLL_OK;
}

/* Single changes round and round, until none has helped for a whole round; then pairs, and back to single ones after
 * the first that helps. */
static atoll_err climb(search *s, draft *d, double *value, int *used, change *list, int room) {
  int n = list_changes(s->problem, d, list, room), at = 0, idle = 0, better;
  int64_t tries = 0;
  while (idle < n && tries < TRIES) {
    better = 0;
    ATOLL_TRY(attempt(s, d, value, used, &list[at], NULL, &tries, &better));
    if (better) {
      n = list_changes(s->problem, d, list, room);
      at = at < n ? at : 0; /* the same again */
      idle = 0;
      continue;
    }
    at = at + 1 < n ? at + 1 : 0;
    if (++idle < n)
      continue;
    for (int second = 1; second < n && !better; second++)
      for (int first = 0; first < second && !better && tries < TRIES; first++)
        ATOLL_TRY(attempt(s, d, value, used, &list[first], &list[second], &tries, &better));
    if (better) {
      n = list_changes(s->problem, d, list, room);
      at = idle = 0;
    }
  }
  return ATOLL_OK;
}

#define CHANGES_MOST 4000
#define STARTS       4

atoll_err improve_plans(search *s) {
  draft start[STARTS];
  double value[STARTS];
  int starts = 0;
  for (int i = -1; i < s->rejects && starts < STARTS && s->best; i++) {
    const engine_plan *plan = i < 0 ? s->best : s->reject[i];
    if (load(s->problem, plan, &start[starts]))
      value[starts++] = search_plan_value(s, plan);
  }
  int *used = malloc((size_t)s->problem->pools * sizeof *used);
  change *list = malloc(CHANGES_MOST * sizeof *list);
  atoll_err err = used && list ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "plan: no memory to improve a plan");
  for (int i = 0; i < starts && err == ATOLL_OK; i++)
    err = climb(s, &start[i], &value[i], used, list, CHANGES_MOST);
  free(used);
  free(list);
  return err;
}
