/* MPI calls that wait without holding a core, for agree, comm and stop. */
#ifndef ATOLL_AGREE_IMPL_H
#define ATOLL_AGREE_IMPL_H

#include <mpi.h>

#include "atoll/agree.h"

/* Turns an MPI return code into an error that names the call. */
atoll_err mpi_check(int rc, const char *call);
/* Waits for one request by polling with sleeps; `rc` is what started it. */
atoll_err mpi_finish(int rc, MPI_Request *request, const char *call);
atoll_err mpi_finish_all(int n, MPI_Request *requests, const char *call);
/* No single operation moves more than this many bytes (ATOLL_TEST_COMM_LIMIT, else 1 GiB): counts stay far below 2^31.
 */
int64_t comm_limit_bytes(void);

#endif
