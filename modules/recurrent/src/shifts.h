/* An order of execution in time linear in the edges, from difference constraints. */
#ifndef RECURRENT_SHIFTS_H
#define RECURRENT_SHIFTS_H

#include <isl/union_map.h>
#include <isl/union_set.h>

#include "poly.h"

struct rt_order {
  isl_ctx *ctx;
  isl_set *context;
  rt_poly_known known;
  isl_union_set *domain;
  isl_union_map *needs; /* reader -> what it reads, all of it */
  isl_union_map *near;  /* the last of it */
};

/* *time: statement -> time, all of one space. INFEASIBLE when no loop nest of shifted dimensions orders the
 * dependences. */
atoll_err rt_shifts(const struct rt_order *o, const rt_graph *g, isl_union_map **time);

/* schedule.c: whether at these times, statement -> time, every reader comes strictly after what it reads. Both are
 * kept. */
isl_bool rt_is_legal(isl_union_map *needs, isl_union_map *time);

#endif
