/* From a graph to a tree. */
#ifndef RECURRENT_SCHEDULE_H
#define RECURRENT_SCHEDULE_H

#include "tree.h"

typedef struct rt_schedule_params {
  int64_t least[RT_DIMS]; /* bounds given at run are at least this: fewer guards for tiny ones; 0 means 1 */
  int offload;            /* bool: with statements that put values away between uses */
  unsigned long budget;   /* 0: shifted loops first; else isl first, with so many operations at most */
} rt_schedule_params;

typedef struct rt_schedule {
  rt_tree *tree;      /* owned */
  const char *method; /* "isl" or "shifts" */
} rt_schedule;

/* Wants rt_pass_domains() before it. Every order is checked against the dependences before it is used. */
atoll_err rt_schedule_create(const rt_graph *g, const rt_schedule_params *p, rt_schedule *out);
void rt_schedule_destroy(rt_schedule *s);

#endif
