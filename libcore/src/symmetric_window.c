/* Symmetric memory over MPI-3 shared windows.
 *
 * Segments are asked for as not contiguous, so that each starts on a page of its own and its owner's first touch places
 * it. Open MPI puts its own state in front of them, so the start is rounded up to a page: mappings are whole pages, and
 * the rounding is the same in every rank. It backs a window by a file in /dev/shm and does not look whether it fits: a
 * page that does not ends the process with SIGBUS much later. So the space is looked at first. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agree_impl.h"
#include "atoll/file.h"
#include "symmetric_impl.h"

#define PAGE ((uintptr_t)4096)

struct window {
  MPI_Win win;
};

static const char *backing_folder(void) {
  const char *set = getenv("OMPI_MCA_osc_sm_backing_directory");
  return set && *set ? set : "/dev/shm";
}

/* `bytes` of all ranks together. Local. */
static atoll_err check_space(const char *name, uint64_t bytes) {
  int64_t space = 0;
  if (!atoll_file_is_dir(backing_folder()))
    return ATOLL_OK; /* another MPI: it knows where */
  ATOLL_TRY(atoll_file_space(backing_folder(), &space));
  if (bytes > (uint64_t)space)
    return atoll_fail(ATOLL_NOMEM, "symmetric memory %s: %" PRIu64 " bytes asked by all ranks, %s has %" PRId64 " left",
                      name, bytes, backing_folder(), space);
  return ATOLL_OK;
}

static atoll_err window_create(MPI_Comm comm, atoll_device *device, const char *name, const uint64_t *bytes,
                               void **self, void **at) {
  int rank, size;
  uint64_t total = 0;
  void *mine = NULL;
  (void)device;
  ATOLL_TRY(mpi_check(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank"));
  ATOLL_TRY(mpi_check(MPI_Comm_size(comm, &size), "MPI_Comm_size"));
  for (int r = 0; r < size; r++)
    total = bytes[r] > UINT64_MAX - total ? UINT64_MAX : total + bytes[r];
  MPI_Aint asked = bytes[rank] ? (MPI_Aint)(bytes[rank] + PAGE - 1) : 0;
  ATOLL_TRY_ALL(comm, check_space(name, total));
  struct window *w = calloc(1, sizeof *w);
  ATOLL_TRY_ALL(comm, w ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "symmetric memory %s: %zu bytes", name, sizeof *w));
  MPI_Info info = MPI_INFO_NULL;
  w->win = MPI_WIN_NULL;
  (void)MPI_Info_create(&info);
  (void)MPI_Info_set(info, "alloc_shared_noncontig", "true");
  int rc = MPI_Win_allocate_shared(asked, 1, info, comm, &mine, &w->win);
  (void)MPI_Info_free(&info);
  atoll_err err = rc == MPI_SUCCESS ? ATOLL_OK
                                    : atoll_fail(ATOLL_NOMEM,
                                                 "symmetric memory %s: MPI_Win_allocate_shared refused %" PRIu64
                                                 " bytes (%" PRIu64 " over all ranks)",
                                                 name, bytes[rank], total);
  err = atoll_agree(comm, err);
  for (int r = 0; r < size && err == ATOLL_OK; r++) {
    MPI_Aint length;
    int unit;
    err = mpi_check(MPI_Win_shared_query(w->win, r, &length, &unit, &at[r]), "MPI_Win_shared_query");
    at[r] = (void *)(((uintptr_t)at[r] + PAGE - 1) / PAGE * PAGE);
  }
  if (err != ATOLL_OK) {
    if (w->win != MPI_WIN_NULL)
      (void)MPI_Win_free(&w->win);
    free(w);
    return err;
  }
  if (bytes[rank])
    memset(at[rank], 0, (size_t)bytes[rank]); /* first touch by the owner; zeros are promised */
  *self = w;
  return ATOLL_OK; /* the caller agrees, so nobody writes before all have zeroed */
}

static void window_destroy(void *self) {
  struct window *w = self;
  (void)MPI_Win_free(&w->win);
  free(w);
}

const atoll_symmetric_backend symmetric_window = {
    .name = "mpi shared window", .device = "host", .create = window_create, .destroy = window_destroy};
