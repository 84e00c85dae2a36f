/* Replicas that do the same at the same times: one row of a chart, one process of a timeline. */
#include "simulate/flow.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ALIKE 1e-9 /* of the step */

static const atoll_plan_stage *stage_of(const atoll_simulation *x, const atoll_plan *plan, int replica) {
  return &plan->pipeline[x->replica[replica].pipeline].stage[x->replica[replica].stage];
}

static const atoll_plan_replica *replica_of(const atoll_simulation *x, const atoll_plan *plan, int replica) {
  return &stage_of(x, plan, replica)->replica[x->replica[replica].replica];
}

/* Events of two replicas of one stage; micro-batches are counted from each replica's first. */
static int alike(const atoll_simulation *x, const atoll_plan *plan, int a, const int64_t *begin, int b) {
  int64_t n = begin[a + 1] - begin[a];
  if (x->replica[a].pipeline != x->replica[b].pipeline || x->replica[a].stage != x->replica[b].stage ||
      n != begin[b + 1] - begin[b])
    return 0;
  int64_t shift = replica_of(x, plan, b)->first_micro_batch - replica_of(x, plan, a)->first_micro_batch;
  double slack = ALIKE * x->step_seconds;
  for (int64_t i = 0; i < n; i++) {
    const atoll_sim_event *p = &x->event[begin[a] + i], *q = &x->event[begin[b] + i];
    if (p->stream != q->stream || p->kind != q->kind || p->chunk != q->chunk || fabs(p->begin - q->begin) > slack ||
        fabs(p->end - q->end) > slack || q->micro_batch != (p->micro_batch < 0 ? -1 : p->micro_batch + shift))
      return 0;
  }
  return 1;
}

static int by_number(const void *x, const void *y) {
  int a = *(const int *)x, b = *(const int *)y;
  return (a > b) - (a < b);
}

/* "ranks 0-3 8-11"; what does not fit is counted. */
static void name_ranks(int *rank, int n, char *buf, size_t size) {
  qsort(rank, (size_t)n, sizeof *rank, by_number);
  size_t at = (size_t)snprintf(buf, size, "%s", n == 1 ? "rank" : "ranks");
  for (int i = 0, k; i < n; i = k) {
    for (k = i + 1; k < n && rank[k] == rank[k - 1] + 1;)
      k++;
    if (at + 40 > size) {
      snprintf(buf + at, size - at, " and %d more", n - i);
      return;
    }
    at += (size_t)snprintf(buf + at, size - at, k - i > 1 ? " %d-%d" : " %d", rank[i], rank[k - 1]);
  }
}

static atoll_err describe(const atoll_simulation *x, const atoll_plan *plan, const atoll_islands *islands,
                          sim_group *g) {
  int *rank = NULL, n = 0;
  size_t at = 0;
  for (int i = 0; i < g->replicas; i++)
    g->ranks += replica_of(x, plan, g->member[i])->ranks;
  ATOLL_TRY(plan_alloc((size_t)g->ranks, sizeof *rank, &rank));
  for (int i = 0; i < g->replicas; i++) {
    const atoll_plan_replica *r = replica_of(x, plan, g->member[i]);
    for (int k = 0; k < r->ranks; k++)
      rank[n++] = r->rank[k];
    int seen = !islands || r->island < 0 || r->island >= islands->count;
    for (int k = 0; k < i && !seen; k++)
      seen = replica_of(x, plan, g->member[k])->island == r->island;
    if (!seen && at < sizeof g->islands)
      at += (size_t)snprintf(g->islands + at, sizeof g->islands - at, "%s%s", at ? " " : "",
                             islands->island[r->island].name);
  }
  name_ranks(rank, n, g->name, sizeof g->name);
  free(rank);
  return ATOLL_OK;
}

atoll_err sim_groups(const atoll_simulation *x, const atoll_plan *plan, const atoll_islands *islands, sim_group **out,
                     int *count) {
  if (!x->event)
    return atoll_fail(ATOLL_USAGE, "simulate: the simulation kept no events to draw");
  size_t n = (size_t)x->replicas;
  int64_t *begin = NULL;
  int *group_of = NULL, groups = 0;
  sim_group *group = NULL;
  atoll_err err;
  ATOLL_TRY_GOTO(err, done, plan_alloc(n + 1, sizeof *begin, &begin));
  ATOLL_TRY_GOTO(err, done, plan_alloc(n, sizeof *group_of, &group_of));
  ATOLL_TRY_GOTO(err, done, plan_alloc(n * (sizeof *group + sizeof(int)), 1, &group)); /* members behind the groups */
  for (int64_t i = 0; i < x->events; i++)
    begin[x->event[i].replica + 1] = i + 1;
  for (size_t k = 0; k < n; k++)
    begin[k + 1] = begin[k + 1] > begin[k] ? begin[k + 1] : begin[k];
  for (int k = 0; k < x->replicas; k++) {
    int g = 0;
    while (g < groups && !alike(x, plan, group[g].member[0], begin, k))
      g++;
    group_of[k] = g;
    if (g == groups) {
      group[groups].at = begin[k];
      group[groups].count = begin[k + 1] - begin[k];
      int *first = (int *)(group + n) + groups++; /* where comparisons find it; members follow below */
      *first = k;
      group[g].member = first;
    }
    group[g].replicas++;
  }
  int *next = (int *)(group + n);
  for (int g = 0; g < groups; g++) {
    group[g].member = next;
    for (int k = 0; k < x->replicas; k++)
      if (group_of[k] == g)
        *next++ = k;
    ATOLL_TRY_GOTO(err, done, describe(x, plan, islands, &group[g]));
  }
  *out = group;
  *count = groups;
  group = NULL;
done:
  free(begin);
  free(group_of);
  free(group);
  return err;
}

const char *sim_layers(const atoll_plan_stage *stage, char *buf, size_t n) {
  size_t at = 0;
  buf[0] = 0;
  for (int c = 0; c < stage->chunks && at < n; c++)
    at += (size_t)snprintf(buf + at, n - at, "%s%d-%d", c ? " " : "", stage->chunk[c].first, stage->chunk[c].last - 1);
  return buf;
}
