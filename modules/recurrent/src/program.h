/* A compiled program: the transformed graph and its schedule. */
#ifndef RECURRENT_PROGRAM_H
#define RECURRENT_PROGRAM_H

#include "device.h"
#include "native.h"
#include "schedule.h"

struct atoll_rec_program {
  rt_graph *graph;
  rt_schedule schedule;
  int threads;
  int64_t memory;    /* budget in bytes, 0: none */
  char *offload;     /* folder for what the budget has no room for; NULL: none */
  rt_native *native; /* NULL: interpreted */
  rt_entry entry;
  rt_device *device;      /* where its kernels run; NULL: it has none */
  int agreed;             /* bool: its ranks have the same sums over them */
  int64_t last_peak;      /* -1: it has not run */
  char *away;             /* per node: what a run with these bounds puts away; NULL: not known */
  int64_t bound[RT_DIMS]; /* of `away` */
  char engine[768];
};

#endif
