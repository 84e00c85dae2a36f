#include "atoll/symmetric.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agree_impl.h"
#include "symmetric_impl.h"

#define BACKENDS_MAX 8

struct atoll_symmetric {
  atoll_comm *comm;
  const atoll_symmetric_backend *backend;
  void *self; /* the backend's */
  void **at;
  uint64_t *bytes; /* both by rank */
  atoll_mem *mem;
  void *charge;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const atoll_symmetric_backend *registered[BACKENDS_MAX];
static int registered_count;

atoll_err atoll_symmetric_backend_register(const atoll_symmetric_backend *backend) {
  if (!backend || !backend->name || !backend->device || !backend->create || !backend->destroy)
    return atoll_fail(ATOLL_USAGE, "symmetric memory backend without name, device or functions");
  pthread_mutex_lock(&lock);
  int full = registered_count == BACKENDS_MAX;
  if (!full)
    registered[registered_count++] = backend;
  pthread_mutex_unlock(&lock);
  return full ? atoll_fail(ATOLL_USAGE, "symmetric memory backend %s: more than %d", backend->name, BACKENDS_MAX)
              : ATOLL_OK;
}

/* The i-th backend that serves the device, in an order that is the same on every rank; NULL past the end. */
static const atoll_symmetric_backend *candidate(const atoll_device *device, int i) {
  const atoll_symmetric_backend *found = NULL;
  if (atoll_device_host_memory(device) && i-- == 0)
    return &symmetric_window;
  pthread_mutex_lock(&lock);
  for (int k = 0; k < registered_count && !found; k++)
    if (!strcmp(registered[k]->device, atoll_device_kind(device)) && i-- == 0)
      found = registered[k];
  pthread_mutex_unlock(&lock);
  return found;
}

/* A bit for each willing candidate, and the reasons of the others as text. */
static unsigned willing(const atoll_device *device, char *reasons, size_t n) {
  const char *named = getenv("ATOLL_SYMMETRIC");
  const atoll_symmetric_backend *b;
  unsigned mask = 0;
  size_t at = 0;
  *reasons = 0;
  for (int i = 0; (b = candidate(device, i)); i++) {
    const char *why = NULL;
    if (named && *named && strcmp(named, b->name))
      why = "ATOLL_SYMMETRIC names another";
    else if (!b->probe || b->probe(&why) == ATOLL_OK)
      mask |= 1U << i;
    else if (!why)
      why = "its probe gave no reason";
    if (!(mask >> i & 1) && at < n)
      at += (size_t)snprintf(reasons + at, n - at, "; %s: %s", b->name, why);
  }
  return mask;
}

/* Collective. The first among equals: window before plug-ins, these as they were loaded. */
static atoll_err choose(atoll_comm *comm, const atoll_device *device, const char *name,
                        const atoll_symmetric_backend **out) {
  char reasons[512];
  unsigned mask = willing(device, reasons, sizeof reasons), all = 0;
  const atoll_symmetric_backend *b, *best = NULL;
  MPI_Request request;
  int rc = MPI_Iallreduce(&mask, &all, 1, MPI_UNSIGNED, MPI_BAND, atoll_comm_mpi(comm), &request);
  ATOLL_TRY(mpi_finish(rc, &request, "MPI_Iallreduce"));
  for (int i = 0; (b = candidate(device, i)); i++)
    if ((all >> i & 1) && (!best || b->priority > best->priority))
      best = b;
  if (!best)
    return atoll_fail(ATOLL_UNSUPPORTED, "symmetric memory %s: no backend for device %s on every rank%s", name,
                      atoll_device_kind(device), reasons);
  *out = best;
  return ATOLL_OK;
}

/* Names the first host that is not rank 0's. */
static atoll_err refuse_nodes(atoll_comm *comm, const char *name) {
  char host[MPI_MAX_PROCESSOR_NAME] = "", *all = NULL;
  int length = 0, size = atoll_comm_size(comm), other = 0;
  int64_t *offsets = NULL;
  (void)MPI_Get_processor_name(host, &length);
  ATOLL_TRY(atoll_gather_bytes(atoll_comm_mpi(comm), host, (int64_t)strlen(host) + 1, (void **)&all, &offsets));
  for (int r = 1; r < size && !other; r++)
    other = strcmp(all + offsets[r], all) ? r : 0;
  atoll_err err = other
                      ? atoll_fail(ATOLL_UNSUPPORTED,
                                   "symmetric memory %s needs ranks of one node: rank 0 of %s is on %s, rank %d on %s",
                                   name, atoll_comm_name(comm), all, other, all + offsets[other])
                      : atoll_fail(ATOLL_UNSUPPORTED, "symmetric memory %s: the ranks of %s on %s share no memory",
                                   name, atoll_comm_name(comm), all);
  free(all);
  free(offsets);
  return err;
}

static atoll_err check_node(atoll_comm *comm, const char *name) {
  MPI_Comm node = MPI_COMM_NULL;
  int here = 0;
  ATOLL_TRY_ALL(atoll_comm_mpi(comm), mpi_check(MPI_Comm_split_type(atoll_comm_mpi(comm), MPI_COMM_TYPE_SHARED,
                                                                    atoll_comm_rank(comm), MPI_INFO_NULL, &node),
                                                "MPI_Comm_split_type"));
  (void)MPI_Comm_size(node, &here);
  (void)MPI_Comm_free(&node);
  int apart = here != atoll_comm_size(comm), any = 0;
  MPI_Request request;
  int rc = MPI_Iallreduce(&apart, &any, 1, MPI_INT, MPI_MAX, atoll_comm_mpi(comm), &request);
  ATOLL_TRY(mpi_finish(rc, &request, "MPI_Iallreduce"));
  return any ? refuse_nodes(comm, name) : ATOLL_OK;
}

static void symmetric_free(atoll_symmetric *s) {
  if (!s)
    return;
  if (s->charge)
    atoll_mem_discharge(s->mem, &s->charge);
  free(s->at);
  free(s->bytes);
  free(s);
}

/* Local: the object, its lists and the charge. */
static atoll_err prepare(atoll_comm *comm, const atoll_symmetric_backend *backend, atoll_mem *mem,
                         atoll_mem_category category, size_t bytes, const char *name, atoll_symmetric **out) {
  size_t size = (size_t)atoll_comm_size(comm);
  atoll_symmetric *s = calloc(1, sizeof *s);
  if (!s)
    return atoll_fail(ATOLL_NOMEM, "symmetric memory %s: %zu bytes", name, sizeof *s);
  *out = s;
  s->comm = comm;
  s->mem = mem;
  s->backend = backend;
  s->at = calloc(size, sizeof *s->at);
  s->bytes = calloc(size, sizeof *s->bytes);
  if (!s->at || !s->bytes)
    return atoll_fail(ATOLL_NOMEM, "symmetric memory %s: lists of %zu ranks", name, size);
  return mem ? atoll_mem_charge(mem, category, bytes, &s->charge) : ATOLL_OK;
}

atoll_err atoll_symmetric_create(atoll_comm *comm, atoll_device *device, atoll_mem *mem, atoll_mem_category category,
                                 size_t bytes, const char *name, atoll_symmetric **out) {
  atoll_symmetric *s = NULL;
  const atoll_symmetric_backend *backend = NULL;
  MPI_Comm mpi = atoll_comm_mpi(comm);
  ATOLL_TRY(check_node(comm, name));
  ATOLL_TRY_ALL(mpi, choose(comm, device, name, &backend));
  atoll_err err = atoll_agree(mpi, prepare(comm, backend, mem, category, bytes, name, &s));
  if (err == ATOLL_OK) {
    uint64_t mine = bytes;
    MPI_Request request;
    int rc = MPI_Iallgather(&mine, 1, MPI_UINT64_T, s->bytes, 1, MPI_UINT64_T, mpi, &request);
    err = mpi_finish(rc, &request, "MPI_Iallgather");
  }
  if (err == ATOLL_OK)
    err = atoll_agree(mpi, s->backend->create(mpi, device, name, s->bytes, &s->self, s->at));
  if (err != ATOLL_OK) {
    if (s && s->self)
      s->backend->destroy(s->self);
    symmetric_free(s);
    return err;
  }
  *out = s;
  return ATOLL_OK;
}

void atoll_symmetric_destroy(atoll_symmetric **s) {
  if (!s || !*s)
    return;
  (*s)->backend->destroy((*s)->self);
  symmetric_free(*s);
  *s = NULL;
}

void *atoll_symmetric_at(const atoll_symmetric *s, int rank) { return s->at[rank]; }
size_t atoll_symmetric_bytes(const atoll_symmetric *s, int rank) { return (size_t)s->bytes[rank]; }
const char *atoll_symmetric_transport(const atoll_symmetric *s) { return s->backend->name; }
