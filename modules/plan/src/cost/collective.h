/* Seconds of collectives over a hierarchy: ranks of a node, nodes of a zone, zones. For people who price plans.
 *
 * A group is size[0] ranks on each of size[1] nodes in each of size[2] zones. The operations run level by level and
 * each level is the bandwidth-optimal one: reduce-scatter by recursive halving, all-gather by recursive doubling,
 * all-reduce as one after the other (Thakur, Rabenseifner, Gropp, 2005): (m - 1) / m of the data and ceil(log2 m)
 * messages for m parts. Inner levels cut the data that outer ones carry: after the scatter inside a node each of its
 * ranks sends only its share, together once the data. */
#ifndef ATOLL_PLAN_COLLECTIVE_H
#define ATOLL_PLAN_COLLECTIVE_H

#include <stdint.h>

#include "atoll/profile.h"
#include "atoll/topo.h"

enum { COLLECTIVE_NODE, COLLECTIVE_ZONE, COLLECTIVE_WORLD, COLLECTIVE_LEVELS };

typedef enum collective_op {
  COLLECTIVE_ALL_GATHER,
  COLLECTIVE_REDUCE_SCATTER,
  COLLECTIVE_ALL_REDUCE,
  COLLECTIVE_ALL_TO_ALL,
  COLLECTIVE_POINT_TO_POINT, /* over the group's farthest link */
  COLLECTIVE_OPS
} collective_op;

typedef struct collective_level {
  int size;       /* parts joined at this level; 1: none */
  double latency; /* s per message */
  double rate;    /* B/s: of a rank inside its node; of a node's link beyond */
} collective_level;

typedef struct collective_net {
  collective_level level[COLLECTIVE_LEVELS];
  /* A fit of whole operations, where one was imported: seconds = scale[op] * (bytes / rate * (n - 1) / n + latency).
   * rate 0: none, the levels decide. */
  double fit_rate, fit_latency, fit_scale[COLLECTIVE_OPS];
  atoll_cost_source source;
} collective_net;

int collective_ranks(const collective_net *net);

/* bytes: all-gather: of the whole result; reduce-scatter and all-reduce: of each rank's operand; all-to-all: that each
 * rank hands out, its own share included; point to point: of the message. 0 for one rank or no bytes. */
double collective_seconds(const collective_net *net, collective_op op, double bytes);

/* The group of `ranks` devices on these nodes (one entry a device), by what is known of the links. `sharing` groups
 * like this one use a node's outer link at the same time. Where nothing is known: 2 us and 5 GB/s inside a node, 30 us
 * and 1.1 GB/s between nodes. */
void collective_of_nodes(const atoll_topo *topo, const int *node, int ranks, int sharing, collective_net *net);

#endif
