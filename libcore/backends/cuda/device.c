/* Device kind "cuda": a queue is a stream, an event a CUDA event. A task runs at once on the calling thread and
 * enqueues its work on the stream it is given; what CUDA finds wrong later shows when the queue is synchronised. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_calls.h"

enum { TEXT = 512, ARGS_MOST = 512 };

struct queue {
  struct cuda_device *device;
  void *stream;
  atoll_err failed; /* the first error, told until sync */
  char text[TEXT];
};

struct event {
  struct cuda_device *device;
  void *event;
};

atoll_err cuda_check(int rc, atoll_err code, const char *call, const char *what) {
  return rc == 0 ? ATOLL_OK : atoll_fail(code, "%s %s: %s (error %d)", call, what, cuda_rt.text(rc), rc);
}

atoll_err cuda_use(const struct cuda_device *d) {
  char what[32];
  snprintf(what, sizeof what, "to GPU %d", d->ordinal);
  return cuda_check(cuda_rt.set_device(d->ordinal), ATOLL_UNAVAILABLE, "cudaSetDevice", what);
}

atoll_err cuda_probe(const char **why_not) {
  static _Thread_local char text[TEXT];
  int n = 0, rc = cuda_rt.device_count(&n);
  if (rc == 0 && n > 0)
    return ATOLL_OK;
  /* Without a driver the run time says that the driver's version is insufficient: both are the same to the user. */
  snprintf(text, sizeof text, "no GPU here: %s", rc ? cuda_rt.text(rc) : "the driver counts none");
  *why_not = text;
  return ATOLL_UNAVAILABLE;
}

/* Without an address, ranks of a node take the GPUs in turn. */
static int local_rank(void) {
  static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (getenv(names[i]))
      return atoi(getenv(names[i]));
  return 0;
}

static atoll_err device_open(const atoll_device_params *params, void **self) {
  int n = 0, ordinal = 0;
  ATOLL_TRY(cuda_check(cuda_rt.device_count(&n), ATOLL_UNAVAILABLE, "cudaGetDeviceCount", "at the start"));
  if (params->pci)
    ATOLL_TRY(cuda_check(cuda_rt.device_by_pci(&ordinal, params->pci), ATOLL_UNAVAILABLE, "cudaDeviceGetByPCIBusId",
                         params->pci));
  else
    ordinal = n > 0 ? local_rank() % n : 0;
  struct cuda_device *d = calloc(1, sizeof *d);
  if (!d)
    return atoll_fail(ATOLL_NOMEM, "cuda device: %zu bytes", sizeof *d);
  d->ordinal = ordinal;
  atoll_err err = cuda_use(d);
  if (err != ATOLL_OK) {
    free(d);
    return err;
  }
  *self = d;
  return ATOLL_OK;
}

static atoll_err device_alloc(void *self, size_t bytes, void **p) {
  char what[64];
  ATOLL_TRY(cuda_use(self));
  snprintf(what, sizeof what, "of %zu bytes on GPU %d", bytes, ((struct cuda_device *)self)->ordinal);
  return cuda_check(cuda_rt.malloc(p, bytes), ATOLL_NOMEM, "cudaMalloc", what);
}

static void device_free(void *self, void *p) {
  if (cuda_use(self) == ATOLL_OK)
    (void)cuda_rt.free(p);
}

/* --- queues ------------------------------------------------------------------------------------------------------- */

static atoll_err queue_create(void *self, const char *role, void **out) {
  ATOLL_TRY(cuda_use(self));
  struct queue *q = calloc(1, sizeof *q);
  if (!q)
    return atoll_fail(ATOLL_NOMEM, "cuda queue: %zu bytes", sizeof *q);
  q->device = self;
  atoll_err err = cuda_check(cuda_rt.stream_create(&q->stream), ATOLL_UNAVAILABLE, "cudaStreamCreate for role", role);
  if (err != ATOLL_OK) {
    free(q);
    return err;
  }
  *out = q;
  return ATOLL_OK;
}

static void queue_destroy(void *queue) {
  struct queue *q = queue;
  if (cuda_use(q->device) == ATOLL_OK) {
    (void)cuda_rt.stream_sync(q->stream);
    (void)cuda_rt.stream_destroy(q->stream);
  }
  free(q);
}

/* Keeps the first error. */
static atoll_err keep(struct queue *q, atoll_err err) {
  if (err != ATOLL_OK && q->failed == ATOLL_OK) {
    q->failed = err;
    snprintf(q->text, sizeof q->text, "%s", atoll_err_message());
  }
  return err;
}

/* Before each operation: the queue's error, or its GPU made the thread's. */
static atoll_err ready(struct queue *q) {
  if (q->failed == ATOLL_OK)
    return keep(q, cuda_use(q->device));
  atoll_err_set_message(q->text);
  return q->failed;
}

static atoll_err queue_submit(void *queue, atoll_task task, const void *args, size_t bytes) {
  struct queue *q = queue;
  _Alignas(max_align_t) unsigned char copy[ARGS_MOST];
  ATOLL_TRY(ready(q));
  if (bytes)
    memcpy(copy, args, bytes);
  return keep(q, task(copy, q->stream));
}

static atoll_err queue_copy(void *queue, void *to, const void *from, size_t bytes) {
  struct queue *q = queue;
  ATOLL_TRY(ready(q));
  return keep(q,
              cuda_check(cuda_rt.memcpy_async(to, from, bytes, q->stream), ATOLL_IO, "cudaMemcpyAsync", "on a queue"));
}

static atoll_err queue_zero(void *queue, void *to, size_t bytes) {
  struct queue *q = queue;
  ATOLL_TRY(ready(q));
  return keep(q, cuda_check(cuda_rt.memset_async(to, 0, bytes, q->stream), ATOLL_IO, "cudaMemsetAsync", "on a queue"));
}

static atoll_err queue_record(void *queue, void *event) {
  struct queue *q = queue;
  struct event *e = event;
  ATOLL_TRY(ready(q));
  return keep(q, cuda_check(cuda_rt.event_record(e->event, q->stream), ATOLL_IO, "cudaEventRecord", "on a queue"));
}

static atoll_err queue_wait(void *queue, void *event) {
  struct queue *q = queue;
  struct event *e = event;
  ATOLL_TRY(ready(q));
  return keep(
      q, cuda_check(cuda_rt.stream_wait_event(q->stream, e->event), ATOLL_IO, "cudaStreamWaitEvent", "on a queue"));
}

static atoll_err queue_sync(void *queue) {
  struct queue *q = queue;
  atoll_err err = ready(q);
  int rc = cuda_rt.stream_sync(q->stream);
  if (err == ATOLL_OK)
    err = cuda_check(rc, ATOLL_IO, "cudaStreamSynchronize", "of a queue");
  q->failed = ATOLL_OK;
  return err;
}

/* --- events ------------------------------------------------------------------------------------------------------- */

static atoll_err event_create(void *self, void **out) {
  ATOLL_TRY(cuda_use(self));
  struct event *e = calloc(1, sizeof *e);
  if (!e)
    return atoll_fail(ATOLL_NOMEM, "cuda event: %zu bytes", sizeof *e);
  e->device = self;
  atoll_err err = cuda_check(cuda_rt.event_create(&e->event), ATOLL_UNAVAILABLE, "cudaEventCreate", "for a queue");
  if (err != ATOLL_OK) {
    free(e);
    return err;
  }
  *out = e;
  return ATOLL_OK;
}

static void event_destroy(void *event) {
  struct event *e = event;
  if (cuda_use(e->device) == ATOLL_OK)
    (void)cuda_rt.event_destroy(e->event);
  free(e);
}

static atoll_err event_sync(void *event) {
  struct event *e = event;
  ATOLL_TRY(cuda_use(e->device));
  return cuda_check(cuda_rt.event_sync(e->event), ATOLL_IO, "cudaEventSynchronize", "of a queue");
}

/* An event that failed will not come any more: who waits for it asks the queue next and hears why. */
static int event_done(void *event) {
  struct event *e = event;
  return cuda_use(e->device) != ATOLL_OK || cuda_rt.event_query(e->event) != CUDA_NOT_READY;
}

const atoll_device_backend cuda_device = {
    .kind = "cuda",
    .priority = -1, /* by name only: there are kernels for chains of GEMMs, not for layers */
    .probe = cuda_probe,
    .open = device_open,
    .close = free,
    .alloc = device_alloc,
    .free = device_free,
    .queue_create = queue_create,
    .queue_destroy = queue_destroy,
    .submit = queue_submit,
    .copy = queue_copy,
    .zero = queue_zero,
    .record = queue_record,
    .wait = queue_wait,
    .sync = queue_sync,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_sync = event_sync,
    .event_done = event_done,
};
