/* Symmetric memory by CUDA IPC: each rank allocates its segment and the others map it (CUDA run time API,
 * "cudaIpcGetMemHandle", "cudaIpcOpenMemHandle"). Ranks of one node, on the same GPU or on GPUs with peer access.
 *
 * A handle opens the whole block that an allocation was cut from. Segments are asked for in multiples of BLOCK, so that
 * each is a block of its own: the pointer that a peer gets is the segment's start, and nothing else of this process is
 * exposed. A peer's mapping must be closed before its owner frees the memory, so destroy closes, meets the others, and
 * frees. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "atoll/agree.h"
#include "cuda_calls.h"

static const uint64_t BLOCK = UINT64_C(2) << 20;

struct ipc {
  MPI_Comm comm; /* borrowed, as the caller's is until destroy */
  atoll_device *device;
  int rank, size;
  void **at; /* own segment, and mappings of the others' */
};

/* Local: own segment, zeroed, and its handle. */
static atoll_err make_segment(struct ipc *s, const char *name, uint64_t bytes, cuda_ipc_handle *handle) {
  atoll_queue *queue = NULL;
  char what[128];
  snprintf(what, sizeof what, "of %" PRIu64 " bytes of symmetric memory %s", bytes, name);
  if (bytes == 0)
    return ATOLL_OK;
  ATOLL_TRY(atoll_device_alloc(s->device, (size_t)((bytes + BLOCK - 1) / BLOCK * BLOCK), &s->at[s->rank]));
  ATOLL_TRY(atoll_queue_create(s->device, "copy", &queue));
  atoll_err err = atoll_queue_zero(queue, s->at[s->rank], (size_t)bytes);
  if (err == ATOLL_OK)
    err = atoll_queue_sync(queue);
  atoll_queue_destroy(&queue);
  if (err == ATOLL_OK)
    err = cuda_check(cuda_rt.ipc_get(handle, s->at[s->rank]), ATOLL_UNSUPPORTED, "cudaIpcGetMemHandle", what);
  return err;
}

/* Local. */
static atoll_err map_others(struct ipc *s, const char *name, const uint64_t *bytes, const cuda_ipc_handle *handle) {
  for (int r = 0; r < s->size; r++) {
    char what[128];
    snprintf(what, sizeof what, "of symmetric memory %s of rank %d, which may be on a GPU without peer access", name,
             r);
    if (r != s->rank && bytes[r] > 0)
      ATOLL_TRY(cuda_check(cuda_rt.ipc_open(&s->at[r], handle[r]), ATOLL_UNSUPPORTED, "cudaIpcOpenMemHandle", what));
  }
  return ATOLL_OK;
}

static void ipc_destroy(void *self) {
  struct ipc *s = self;
  for (int r = 0; r < s->size; r++)
    if (r != s->rank && s->at[r])
      (void)cuda_rt.ipc_close(s->at[r]);
  (void)MPI_Barrier(s->comm);
  atoll_device_free(s->device, s->at[s->rank]);
  free(s->at);
  free(s);
}

/* Local. */
static atoll_err prepare(MPI_Comm comm, atoll_device *device, const char *name, struct ipc **out,
                         cuda_ipc_handle **handle) {
  struct ipc *s = calloc(1, sizeof *s);
  *out = s;
  if (!s)
    return atoll_fail(ATOLL_NOMEM, "symmetric memory %s: %zu bytes", name, sizeof *s);
  s->comm = comm;
  s->device = device;
  MPI_Comm_rank(comm, &s->rank);
  MPI_Comm_size(comm, &s->size);
  s->at = calloc((size_t)s->size, sizeof *s->at);
  *handle = calloc((size_t)s->size, sizeof **handle);
  return s->at && *handle ? ATOLL_OK
                          : atoll_fail(ATOLL_NOMEM, "symmetric memory %s: handles of %d ranks", name, s->size);
}

static atoll_err ipc_create(MPI_Comm comm, atoll_device *device, const char *name, const uint64_t *bytes, void **self,
                            void **at) {
  struct ipc *s = NULL;
  cuda_ipc_handle *handle = NULL;
  atoll_err err = atoll_agree(comm, prepare(comm, device, name, &s, &handle));
  if (err != ATOLL_OK) {
    free(handle);
    free(s ? s->at : NULL);
    free(s);
    return err;
  }
  err = atoll_agree(comm, make_segment(s, name, bytes[s->rank], &handle[s->rank]));
  if (err == ATOLL_OK &&
      MPI_Allgather(MPI_IN_PLACE, 0, MPI_BYTE, handle, sizeof *handle, MPI_BYTE, comm) != MPI_SUCCESS)
    err = atoll_fail(ATOLL_IO, "symmetric memory %s: MPI_Allgather of handles failed", name);
  if (err == ATOLL_OK)
    err = atoll_agree(comm, map_others(s, name, bytes, handle));
  free(handle);
  for (int r = 0; r < s->size && err == ATOLL_OK; r++)
    at[r] = s->at[r];
  *self = s; /* destroyed by the caller, on every rank, where the code is an error */
  return err;
}

const atoll_symmetric_backend cuda_ipc = {.name = "cuda ipc",
                                          .device = "cuda",
                                          .priority = 10,
                                          .probe = cuda_probe,
                                          .create = ipc_create,
                                          .destroy = ipc_destroy};
