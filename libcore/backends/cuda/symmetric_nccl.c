/* Symmetric memory by NCCL windows: memory of ncclMemAlloc registered with ncclCommWindowRegister, where NCCL maps the
 * ranks of a node into each other's address space (NCCL user guide, "Window registration" and "Device API"). Unlike
 * CUDA IPC it also reaches GPUs over NVLink fabrics, and it refuses two ranks on one GPU.
 *
 * A window has one size on all ranks: the largest. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "atoll/agree.h"
#include "cuda_calls.h"

struct window {
  const struct nccl_calls *nccl;
  atoll_device *device;
  int rank, size;
  void *comm, *memory, *window;
};

static atoll_err check(const struct nccl_calls *nccl, int rc, atoll_err code, const char *call, const char *name) {
  return rc == 0 ? ATOLL_OK
                 : atoll_fail(code, "%s of symmetric memory %s: %s (error %d)", call, name, nccl->text(rc), rc);
}

static atoll_err nccl_probe(const char **why_not) {
  static _Thread_local char text[160];
  int version = 0;
  ATOLL_TRY(cuda_probe(why_not));
  const struct nccl_calls *nccl = nccl_load(why_not);
  if (!nccl)
    return ATOLL_UNAVAILABLE;
  if (nccl->get_version(&version) == 0 && version >= NCCL_LEAST)
    return ATOLL_OK;
  snprintf(text, sizeof text, "NCCL %d.%d.%d is too old: %d.%d tells where the windows of other ranks are",
           version / 10000, version / 100 % 100, version % 100, NCCL_LEAST / 10000, NCCL_LEAST / 100 % 100);
  *why_not = text;
  return ATOLL_UNAVAILABLE;
}

/* Local: own memory, zeroed. */
static atoll_err make_memory(struct window *w, const char *name, uint64_t bytes) {
  atoll_queue *queue = NULL;
  ATOLL_TRY(check(w->nccl, w->nccl->mem_alloc(&w->memory, (size_t)bytes), ATOLL_NOMEM, "ncclMemAlloc", name));
  ATOLL_TRY(atoll_queue_create(w->device, "copy", &queue));
  atoll_err err = atoll_queue_zero(queue, w->memory, (size_t)bytes);
  if (err == ATOLL_OK)
    err = atoll_queue_sync(queue);
  atoll_queue_destroy(&queue);
  return err;
}

static atoll_err find_peers(const struct window *w, const char *name, const uint64_t *bytes, void **at) {
  for (int r = 0; r < w->size; r++) {
    if (bytes[r] == 0)
      continue;
    ATOLL_TRY(
        check(w->nccl, w->nccl->peer_pointer(w->window, r, &at[r]), ATOLL_UNSUPPORTED, "ncclGetLsaPointer", name));
    if (!at[r])
      return atoll_fail(ATOLL_UNSUPPORTED, "symmetric memory %s: NCCL maps no window of rank %d", name, r);
  }
  return ATOLL_OK;
}

static void window_destroy(void *self) {
  struct window *w = self;
  if (w->window)
    (void)w->nccl->window_deregister(w->comm, w->window);
  if (w->memory)
    (void)w->nccl->mem_free(w->memory);
  if (w->comm)
    (void)w->nccl->comm_destroy(w->comm);
  free(w);
}

/* Collective: a communicator of NCCL's over the same ranks. */
static atoll_err open_comm(MPI_Comm comm, struct window *w, const char *name) {
  nccl_id id = {{0}};
  ATOLL_TRY_ALL(comm, w->rank == 0
                          ? check(w->nccl, w->nccl->get_unique_id(&id), ATOLL_UNAVAILABLE, "ncclGetUniqueId", name)
                          : ATOLL_OK);
  if (MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, comm) != MPI_SUCCESS)
    return atoll_fail(ATOLL_IO, "symmetric memory %s: MPI_Bcast of NCCL's id failed", name);
  ATOLL_TRY_ALL(comm, check(w->nccl, w->nccl->comm_init_rank(&w->comm, w->size, id, w->rank), ATOLL_UNAVAILABLE,
                            "ncclCommInitRank", name));
  return ATOLL_OK;
}

static atoll_err window_create(MPI_Comm comm, atoll_device *device, const char *name, const uint64_t *bytes,
                               void **self, void **at) {
  const char *why = NULL;
  uint64_t most = 1;
  struct window *w = calloc(1, sizeof *w);
  const struct nccl_calls *nccl = nccl_load(&why);
  atoll_err err = w && nccl ? ATOLL_OK
                            : atoll_fail(w ? ATOLL_UNAVAILABLE : ATOLL_NOMEM, "symmetric memory %s: %s", name,
                                         w ? why : "no memory for its description");
  err = atoll_agree(comm, err);
  if (err != ATOLL_OK) {
    free(w);
    return err;
  }
  *self = w;
  w->nccl = nccl;
  w->device = device;
  MPI_Comm_rank(comm, &w->rank);
  MPI_Comm_size(comm, &w->size);
  for (int r = 0; r < w->size; r++)
    most = bytes[r] > most ? bytes[r] : most;
  ATOLL_TRY(open_comm(comm, w, name));
  ATOLL_TRY_ALL(comm, make_memory(w, name, most));
  ATOLL_TRY_ALL(comm, check(nccl, nccl->window_register(w->comm, w->memory, (size_t)most, &w->window),
                            ATOLL_UNSUPPORTED, "ncclCommWindowRegister", name));
  return find_peers(w, name, bytes, at);
}

const atoll_symmetric_backend nccl_window = {.name = "nccl window",
                                             .device = "cuda",
                                             .priority = 5,
                                             .probe = nccl_probe,
                                             .create = window_create,
                                             .destroy = window_destroy};
