/* Nearness. Devices of one node are near. Nodes are near when a known link between them has at least near_ratio of the
 * best bandwidth known between nodes of the group; being near is transitive (union-find). A pair that was not measured
 * says nothing: parts are kept apart only by a link that is known to be slow. */
#include "island_impl.h"

#include <stdlib.h>
#include <string.h>

static int find(int *up, int i) {
  while (up[i] != i)
    i = up[i] = up[up[i]];
  return i;
}

static void join(int *up, int a, int b) {
  a = find(up, a);
  b = find(up, b);
  if (a < b)
    up[b] = a;
  else
    up[a] = b;
}

static _Thread_local const atoll_topo *order_topo; /* qsort has no context */
static int by_node_name(const void *a, const void *b) {
  int x = *(const int *)a, y = *(const int *)b;
  int c = atoll_topo_compare_names(order_topo->node[x].name, order_topo->node[y].name);
  return c ? c : (x > y) - (x < y);
}

atoll_err island_near(const atoll_topo *topo, const atoll_island_params *params, const island_members *g, int *near) {
  int n = topo->nodes, used = 0;
  int *up = malloc(sizeof *up * (size_t)(n + 1)), *in = calloc((size_t)n + 1, sizeof *in),
      *list = malloc(sizeof *list * (size_t)(n + 1));
  if (!up || !in || !list) {
    free(up);
    free(in);
    free(list);
    return atoll_fail(ATOLL_NOMEM, "no memory to group %d nodes", n);
  }
  for (int i = 0; i < n; i++)
    up[i] = i;
  for (int i = 0; i < g->n; i++)
    in[topo->device[g->device[i]].node] = 1;
  double best = 0;
  for (int i = 0; i < topo->links; i++) {
    const atoll_topo_link *l = &topo->link[i];
    double bandwidth = atoll_samples_median(&l->bandwidth);
    if (l->a != l->b && in[l->a] && in[l->b] && bandwidth > best)
      best = bandwidth;
  }
  for (int i = 0; i < topo->links; i++) {
    const atoll_topo_link *l = &topo->link[i];
    if (l->a != l->b && in[l->a] && in[l->b] && atoll_samples_median(&l->bandwidth) >= params->near_ratio * best)
      join(up, l->a, l->b);
  }
  /* Parts between which nothing slow is known belong together. By name, so that the order of nodes does not matter. */
  for (int i = 0; i < n; i++)
    if (in[i] && find(up, i) == i)
      list[used++] = i;
  order_topo = topo;
  qsort(list, (size_t)used, sizeof *list, by_node_name);
  for (int k = 1; k < used; k++)
    for (int j = 0; j < k; j++) {
      int a = find(up, list[j]), b = find(up, list[k]), slow = 0;
      if (a == b)
        break;
      for (int i = 0; i < topo->links && !slow; i++) {
        const atoll_topo_link *l = &topo->link[i];
        if (l->a == l->b || !in[l->a] || !in[l->b] || !l->bandwidth.n)
          continue;
        int x = find(up, l->a), y = find(up, l->b);
        slow = (x == a && y == b) || (x == b && y == a);
      }
      if (!slow) {
        join(up, a, b);
        break;
      }
    }
  for (int i = 0; i < g->n; i++)
    near[i] = find(up, topo->device[g->device[i]].node);
  free(up);
  free(in);
  free(list);
  return ATOLL_OK;
}
