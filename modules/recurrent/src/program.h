/* A compiled program: the transformed graph and its schedule. */
#ifndef RECURRENT_PROGRAM_H
#define RECURRENT_PROGRAM_H

#include "schedule.h"

struct atoll_rec_program {
  rt_graph *graph;
  rt_schedule schedule;
  int64_t memory; /* budget in bytes, 0: none */
};

#endif
