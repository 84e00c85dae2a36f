/* The inside of a communicator, for comm.c and tree_sum.c. */
#ifndef ATOLL_COMM_IMPL_H
#define ATOLL_COMM_IMPL_H

#include "agree_impl.h"
#include "atoll/comm.h"
#include "device_impl.h"
#include "watch_impl.h"

struct tree_layout;

struct atoll_comm {
  MPI_Comm mpi;    /* the callers': agree, store */
  MPI_Comm queued; /* the queues': a worker's operation and a caller's agreement may not meet on one communicator */
  int rank, size;
  int tag_top; /* tags below it are the callers', itself is tree_sum's */
  atoll_watch *watch;
  struct tree_layout *layout; /* of the last tree_sum; the same on every rank */
  char name[64];
};

void tree_layout_destroy(struct tree_layout *layout);

#endif
