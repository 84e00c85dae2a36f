#include "cost/collective.h"

#include <math.h>
#include <string.h>

/* Links nobody measured or declared: shared memory between processes, 10 Gbit/s Ethernet (as cost.c has them). */
#define LATENCY_IN  2e-6
#define RATE_IN     5e9
#define LATENCY_OUT 30e-6
#define RATE_OUT    1.1e9

int collective_ranks(const collective_net *net) {
  int n = 1;
  for (int l = 0; l < COLLECTIVE_LEVELS; l++)
    n *= net->level[l].size;
  return n;
}

/* One way through the levels, scatter or gather: the data that a level's parts have left is whole at the innermost and
 * divided by every level inside. A node's link carries the shares of all its ranks, which are that data once. */
static double one_way(const collective_net *net, double bytes) {
  double seconds = 0, rest = bytes;
  for (int l = 0; l < COLLECTIVE_LEVELS; l++) {
    const collective_level *v = &net->level[l];
    if (v->size <= 1)
      continue;
    seconds += rest * (v->size - 1) / v->size / v->rate + v->latency * ceil(log2(v->size));
    if (l > 0) /* ranks of one node send together, so dividing by them does not relieve the node's link */
      rest /= v->size;
  }
  return seconds;
}

/* Every rank has bytes / n for each of the others; what leaves a node leaves it for all its ranks. The levels have
 * links of their own and work at the same time, so the slowest counts, and each part is a message. */
static double exchange(const collective_net *net, double bytes) {
  double n = collective_ranks(net), inside = 1, seconds = 0, latency = 0;
  for (int l = 0; l < COLLECTIVE_LEVELS; l++) {
    const collective_level *v = &net->level[l];
    if (v->size <= 1)
      continue;
    double partners = inside * (v->size - 1), senders = l == COLLECTIVE_NODE ? 1 : net->level[COLLECTIVE_NODE].size;
    seconds = fmax(seconds, senders * bytes * partners / n / v->rate);
    latency += v->latency * partners;
    inside *= v->size;
  }
  return seconds + latency;
}

static double farthest(const collective_net *net, double bytes) {
  int l = COLLECTIVE_LEVELS - 1;
  while (l > 0 && net->level[l].size <= 1)
    l--;
  return net->level[l].latency + bytes / net->level[l].rate;
}

double collective_seconds(const collective_net *net, collective_op op, double bytes) {
  int n = collective_ranks(net);
  if (n <= 1 || !(bytes > 0))
    return 0;
  if (net->fit_rate > 0) {
    double share = op == COLLECTIVE_POINT_TO_POINT ? 1 : (double)(n - 1) / n;
    double latency = op == COLLECTIVE_POINT_TO_POINT ? 0 : net->fit_latency;
    return net->fit_scale[op] * (bytes / net->fit_rate * share + latency);
  }
  switch (op) {
  case COLLECTIVE_ALL_GATHER:
  case COLLECTIVE_REDUCE_SCATTER:
    return one_way(net, bytes);
  case COLLECTIVE_ALL_REDUCE:
    return 2 * one_way(net, bytes);
  case COLLECTIVE_ALL_TO_ALL:
    return exchange(net, bytes);
  default:
    return farthest(net, bytes);
  }
}

static void slower(collective_level *level, const atoll_topo *topo, int a, int b) {
  double latency, bandwidth;
  atoll_topo_reach(topo, a, b, &latency, &bandwidth, NULL);
  latency = latency > 0 ? latency : a == b ? LATENCY_IN : LATENCY_OUT;
  bandwidth = bandwidth > 0 ? 1e9 * bandwidth : a == b ? RATE_IN : RATE_OUT;
  level->latency = fmax(level->latency, latency);
  level->rate = fmin(level->rate, bandwidth);
}

void collective_of_nodes(const atoll_topo *topo, const int *node, int ranks, int sharing, collective_net *net) {
  int nodes = 0, zones = 0, most = 0, zone_most = 0, first[64], of_zone[64];
  memset(net, 0, sizeof *net);
  net->source = ATOLL_COST_ANALYTIC;
  for (int l = 0; l < COLLECTIVE_LEVELS; l++)
    net->level[l] = (collective_level){1, 0, INFINITY};
  /* Runs of equal nodes are one node; the first of every zone stands for it, up to 64 zones. */
  for (int i = 0, run; i < ranks; i += run) {
    for (run = 1; i + run < ranks && node[i + run] == node[i]; run++)
      ;
    most = run > most ? run : most;
    nodes++;
    if (run > 1)
      slower(&net->level[COLLECTIVE_NODE], topo, node[i], node[i]);
    int z = 0;
    while (z < zones && strcmp(topo->node[first[z]].zone, topo->node[node[i]].zone) != 0)
      z++;
    if (z < zones) {
      slower(&net->level[COLLECTIVE_ZONE], topo, first[z], node[i]);
    } else if (zones < 64) {
      for (int k = 0; k < zones; k++)
        slower(&net->level[COLLECTIVE_WORLD], topo, first[k], node[i]);
      first[zones] = node[i];
      of_zone[zones++] = 0;
    } else {
      z = 63;
    }
    of_zone[z]++;
    zone_most = of_zone[z] > zone_most ? of_zone[z] : zone_most;
  }
  net->level[COLLECTIVE_NODE].size = most > 0 ? most : 1;
  net->level[COLLECTIVE_ZONE].size = zone_most > 0 ? zone_most : 1;
  net->level[COLLECTIVE_WORLD].size = zones > 0 ? zones : 1;
  for (int l = 1; l < COLLECTIVE_LEVELS; l++)
    net->level[l].rate /= sharing > 1 ? sharing : 1;
}
