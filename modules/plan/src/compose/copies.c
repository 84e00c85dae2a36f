/* Several equal copies of a pipeline, each on islands of its own: data parallelism at the outermost level.
 *
 * Where links between islands are slow, activations that cross them for every micro-batch may cost more than gradients
 * that cross them once a step. So besides the whole cluster, parts of it are planned for: with n copies each class of
 * like islands is dealt out evenly, a copy getting neighbours in the order of zones. A pipeline is composed for the
 * first copy; the others are its image, island by island. n is any divisor of the greatest number that divides every
 * class, or, where classes have none in common, of the largest class; islands that do not divide stay idle.
 *
 * In the plan the copies are one pipeline: a stage's replicas stand on several islands, and replica k of a stage works
 * on the micro-batches of replica k of the next. Equal copies need no more than that; it is what several pipelines with
 * the same cuts would execute, whatever tensors are tied. The small search (space.c) has them as its columns.
 *
 * Sums. Gradients are summed once over the replicas of all copies. What that takes beyond the sum over the replicas of
 * one copy, which the parallelizer counts, is added to the extra time of a slice. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compose/large.h"

#define SECONDS_PER_HOUR 3600.0
#define BYTES_PER_GB     1e9

typedef struct classes { /* of like islands, each in the order of zones */
  int n;
  int *of; /* [pools] */
  int *count;
  int **island;
} classes;

static const char *zone_of(const large *x, int island) {
  const composer *c = x->c;
  return c->problem->topo->node[c->problem->topo->device[x->device[island][0]].node].zone;
}

/* Number of an island's zone, in the order of the first islands. */
static int zone_number(const large *x, int island) {
  int i = 0;
  while (!x->devices[i] || strcmp(zone_of(x, i), zone_of(x, island)) != 0)
    i++;
  return i;
}

static void classes_free(classes *k) {
  for (int i = 0; k->island && i < k->n; i++)
    free(k->island[i]);
  free(k->of);
  free(k->count);
  free(k->island);
}

static atoll_err find_classes(const large *x, classes *k) {
  size_t P = (size_t)x->pools;
  ATOLL_TRY(plan_alloc(P, sizeof *k->of, &k->of));
  ATOLL_TRY(plan_alloc(P, sizeof *k->count, &k->count));
  ATOLL_TRY(plan_alloc(P, sizeof *k->island, &k->island));
  for (int p = 0; p < x->pools; p++) {
    int q = 0;
    while (q < p && !pools_alike(x, q, p))
      q++;
    if (q == p)
      ATOLL_TRY(plan_alloc((size_t)x->islands, sizeof **k->island, &k->island[k->n]));
    k->of[p] = q == p ? k->n++ : k->of[q];
    for (int i = 0; i < x->pool[p].islands; i++) {
      int *list = k->island[k->of[p]], island = x->pool[p].island[i], at = k->count[k->of[p]]++;
      for (; at > 0 && (zone_number(x, list[at - 1]) > zone_number(x, island) ||
                        (zone_number(x, list[at - 1]) == zone_number(x, island) && list[at - 1] > island));
           at--)
        list[at] = list[at - 1];
      list[at] = island;
    }
  }
  return ATOLL_OK;
}

/* Rent per second of the k-th island of a class in all copies, per device. */
static double rent_of(const large *x, const classes *k, int class, int copies, int at) {
  int each = k->count[class] / copies;
  double sum = 0;
  for (int r = 0; r < copies; r++) {
    int island = k->island[class][r * each + at];
    double price = x->c->problem->topo->node[x->c->problem->topo->device[x->device[island][0]].node].price;
    sum += price > 0 ? price / SECONDS_PER_HOUR : NAN;
  }
  return sum;
}

/* The first copy's part of a pool, appended to the view. */
static atoll_err add_pool(const large *x, const classes *k, int p, large *view) {
  int class = k->of[p], each = k->count[class] / view->copies;
  large_pool *pool = &view->pool[view->pools];
  *pool = x->pool[p];
  pool->islands = 0;
  pool->island = NULL;
  pool->price = 0;
  ATOLL_TRY(plan_alloc((size_t)x->islands, sizeof *pool->island, &pool->island));
  for (int i = 0; i < each; i++) {
    int island = k->island[class][i], mine = 0;
    for (int j = 0; j < x->pool[p].islands; j++)
      mine |= x->pool[p].island[j] == island;
    if (!mine)
      continue;
    pool->island[pool->islands++] = island;
    pool->price += rent_of(x, k, class, view->copies, i);
    for (int r = 0; r < view->copies; r++)
      view->peer[r * x->islands + island] = k->island[class][r * each + i];
  }
  view->pools++; /* also when it is empty, so that it is freed */
  if (!pool->islands) {
    free(pool->island);
    view->pools--;
    return ATOLL_OK;
  }
  pool->price /= pool->islands;
  pool->node = x->c->problem->topo->device[x->device[pool->island[0]][0]].node;
  for (int i = 0; i < x->kinds; i++)
    if (x->kind[i].pool == p)
      view->kind[view->kinds++] = (large_kind){view->pools - 1, x->kind[i].tensor, NAN, NAN};
  return ATOLL_OK;
}

static atoll_err add_view(large *x, const classes *k, int copies) {
  large *view = &x->view[x->views++];
  *view = (large){.c = x->c,
                  .number = x->views,
                  .state = x->state,
                  .copies = copies,
                  .islands = x->islands,
                  .devices = x->devices,
                  .device = x->device,
                  .home = x->home,
                  .cheapest = x->cheapest,
                  .max_seconds = x->max_seconds,
                  .missing = INT64_MAX};
  ATOLL_TRY(plan_alloc((size_t)x->pools, sizeof *view->pool, &view->pool));
  ATOLL_TRY(plan_alloc((size_t)x->kinds, sizeof *view->kind, &view->kind));
  ATOLL_TRY(plan_alloc((size_t)copies * (size_t)x->islands, sizeof *view->peer, &view->peer));
  for (int p = 0; p < x->pools; p++)
    ATOLL_TRY(add_pool(x, k, p, view));
  return ATOLL_OK;
}

static int greatest_common(int a, int b) { return b ? greatest_common(b, a % b) : a; }

atoll_err copies_find(large *x) {
  classes k = {0};
  int common = 0, most = 0;
  atoll_err err = find_classes(x, &k);
  for (int i = 0; i < k.n && err == ATOLL_OK; i++) {
    common = greatest_common(common, k.count[i]);
    most = k.count[i] > most ? k.count[i] : most;
  }
  most = common > 1 ? common : most;
  for (int n = 2; n <= most && x->views < LARGE_COPIES && err == ATOLL_OK; n++)
    if (most % n == 0)
      err = add_view(x, &k, n);
  classes_free(&k);
  return err;
}

int copies_island(const large *x, int copy, int island) {
  return x->copies > 1 ? x->peer[copy * x->islands + island] : island;
}

/* ---- sums over all copies ---------------------------------------------------------------------------------------- */

static int end_node(const large *x, int island, int last) {
  const composer *c = x->c;
  return c->problem->topo->device[x->device[island][last ? x->devices[island] - 1 : 0]].node;
}

/* Slowest link that sums may pass: between first and last nodes of a pool's islands in all copies. */
static atoll_err find_link(const large *x, large_kind *kind) {
  const large_pool *p = &x->pool[kind->pool];
  int *node = NULL, n = 0;
  ATOLL_TRY(plan_alloc(2 * (size_t)p->islands * (size_t)x->copies, sizeof *node, &node));
  for (int i = 0; i < p->islands; i++)
    for (int r = 0; r < x->copies; r++)
      for (int last = 0; last < 2; last++)
        node[n++] = end_node(x, copies_island(x, r, p->island[i]), last);
  cost_slowest(x->c->cost, node, n, &kind->latency, &kind->rate);
  free(node);
  return ATOLL_OK;
}

atoll_err copies_extra(const large *x, const combination *at, large_kind *kind, int first, int last, double *seconds) {
  const cost_model *cost = x->c->cost;
  *seconds = 0;
  if (x->copies == 1)
    return ATOLL_OK;
  if (isnan(kind->rate))
    ATOLL_TRY(find_link(x, kind));
  const large_pool *p = &x->pool[kind->pool];
  int64_t bytes = cost_gradient_share(cost, first, last, kind->tensor);
  int alone = at->D, all = at->D * x->copies;
  double bandwidth = cost_bandwidth(cost, x->home[p->island[0]]), latency, rate;
  const int node[] = {end_node(x, p->island[0], 0),
                      alone * kind->tensor > p->per_node ? end_node(x, p->island[0], 1) : end_node(x, p->island[0], 0)};
  cost_slowest(cost, node, 2, &latency, &rate);
  *seconds = cost_reduce_over(all, bytes, all * at->partials, at->partials, bandwidth, kind->latency, kind->rate) -
             cost_reduce_over(alone, bytes, alone * at->partials, at->partials, bandwidth, latency, rate);
  *seconds = fmax(*seconds, 0);
  return ATOLL_OK;
}

/* Of two copies a and b, each element is summed in b with probability 1 / copies: then what the D replicas of a hold of
 * it goes there, and the sum comes back to them. */
double copies_money(const large *x, const combination *at) {
  const atoll_topo *topo = x->c->problem->topo;
  int64_t bytes = 0;
  double sum = 0, price;
  if (x->copies == 1 || cost_gradient_bytes(x->c->problem->model, 0, x->c->layers, &bytes) != ATOLL_OK)
    return 0;
  for (int a = 0; a < x->copies; a++)
    for (int b = 0; b < x->copies; b++) {
      int island = x->pool[0].island[0];
      price = 0;
      if (a != b)
        atoll_topo_reach(topo, end_node(x, copies_island(x, a, island), 0), end_node(x, copies_island(x, b, island), 0),
                         NULL, NULL, &price);
      sum += price > 0 ? price * at->D * (at->partials + 1) / x->copies * (double)bytes : 0;
    }
  return sum / BYTES_PER_GB;
}
