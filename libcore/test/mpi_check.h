/* Checks for tests on several ranks: the first broken promise ends the job. */
#ifndef ATOLL_MPI_CHECK_H
#define ATOLL_MPI_CHECK_H

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/agree.h"

static int check_rank, check_size;

#define CHECK(condition)                                                                                               \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      fprintf(stderr, "rank %d: %s:%d: not so: %s (last message: %s)\n", check_rank, __FILE__, __LINE__, #condition,   \
              atoll_err_message());                                                                                    \
      MPI_Abort(MPI_COMM_WORLD, 1);                                                                                    \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)

#define CHECK_OK(call) CHECK((call) == ATOLL_OK)

static inline void check_begin(int *argc, char ***argv) {
  if (atoll_mpi_init(argc, argv) != ATOLL_OK) {
    fprintf(stderr, "%s\n", atoll_err_message());
    exit(1);
  }
  MPI_Comm_rank(MPI_COMM_WORLD, &check_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &check_size);
}

static inline int check_end(void) {
  MPI_Finalize();
  return 0;
}

#endif
