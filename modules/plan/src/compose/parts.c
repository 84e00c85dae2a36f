/* Islands whose nodes have unequal numbers of devices, as after the loss of one.
 *
 * Tensor ranks share a node. Where every node of an island has a multiple of 8 devices, any stage of 1, 2, 4 or 8
 * tensor ranks finds room wherever as many devices are left, so pools count devices alone (pools.c); one node of 7
 * would leave the whole island nothing but single devices. So such a cluster is seen in two ways: whole islands, whose
 * stages may be as wide as they are, and, in a view of its own, islands cut into parts of nodes that are equal. A part
 * of one node takes any tensor degree that fits. */
#include <stdlib.h>

#include "compose/large.h"

atoll_err parts_whole(large *x) {
  const composer *c = x->c;
  x->islands = c->islands;
  x->devices = c->devices;
  x->device = c->device;
  ATOLL_TRY(plan_alloc((size_t)c->islands, sizeof *x->home, &x->home));
  for (int i = 0; i < c->islands; i++)
    x->home[i] = i;
  return plan_alloc(LARGE_VIEWS, sizeof *x->view, &x->view);
}

/* Devices of the node of an island's i-th device: they are neighbours in its list. */
static int on_node(const composer *c, int island, int i) {
  const atoll_topo *t = c->problem->topo;
  int n = 0, node = t->device[c->device[island][i]].node;
  while (i + n < c->devices[island] && t->device[c->device[island][i + n]].node == node)
    n++;
  return n;
}

/* The part of an island whose nodes have n devices; a new one if there is none yet. */
static atoll_err part_for(large *view, const int *each, int island, int n, int *part) {
  int p = 0;
  while (p < view->islands && (view->home[p] != island || each[p] != n))
    p++;
  if (p == view->islands) {
    ATOLL_TRY(plan_alloc((size_t)view->c->devices[island], sizeof **view->device, &view->device[p]));
    view->home[p] = island;
    view->islands++;
  }
  *part = p;
  return ATOLL_OK;
}

static atoll_err cut(large *view, int *each) {
  const composer *c = view->c;
  for (int x = 0; x < c->islands; x++)
    for (int i = 0, n; i < c->devices[x]; i += n) {
      int p;
      n = on_node(c, x, i);
      ATOLL_TRY(part_for(view, each, x, n, &p));
      each[p] = n;
      for (int k = 0; k < n; k++)
        view->device[p][view->devices[p]++] = c->device[x][i + k];
    }
  return ATOLL_OK;
}

atoll_err parts_find(large *x) {
  const composer *c = x->c;
  int uneven = 0, nodes = 0, *each = NULL;
  for (int k = 0; k < c->islands; k++)
    for (int i = 0; i < c->devices[k]; i += on_node(c, k, i), nodes++)
      uneven |= on_node(c, k, i) != on_node(c, k, 0);
  if (!uneven || c->exact)
    return ATOLL_OK;
  large *view = &x->view[x->views++];
  *view = (large){.c = x->c,
                  .number = x->views,
                  .state = x->state,
                  .copies = 1,
                  .cheapest = x->cheapest,
                  .max_seconds = x->max_seconds,
                  .missing = INT64_MAX};
  ATOLL_TRY(plan_alloc((size_t)nodes, sizeof *view->home, &view->home));
  ATOLL_TRY(plan_alloc((size_t)nodes, sizeof *view->devices, &view->devices));
  ATOLL_TRY(plan_alloc((size_t)nodes, sizeof *view->device, &view->device));
  ATOLL_TRY(plan_alloc((size_t)nodes, sizeof *each, &each));
  atoll_err err = cut(view, each);
  free(each);
  return err == ATOLL_OK ? pools_find(view) : err;
}

int parts_of(const large *x, const atoll_plan_replica *r) {
  for (int p = 0; p < x->islands; p++)
    for (int i = 0; i < x->devices[p] && x->home[p] == r->island; i++)
      if (x->device[p][i] == r->device[0])
        return p;
  return 0;
}

static void free_view(const large *x, large *view) {
  for (int p = 0; view->pool && p < view->pools; p++)
    free(view->pool[p].island);
  free(view->pool);
  free(view->kind);
  free(view->peer);
  if (view->device == x->device)
    return;
  for (int p = 0; view->device && p < view->islands; p++)
    free(view->device[p]);
  free(view->device);
  free(view->devices);
  free(view->home);
}

void views_free(large *x) {
  for (int v = 0; x->view && v < x->views; v++)
    free_view(x, &x->view[v]);
  free(x->view);
  free(x->home);
}
