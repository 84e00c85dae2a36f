/* The CPU device: a task runs at once, in the calling thread. Only communication is left pending; a task waits for what
 * was pending on its queue, operations do not wait for each other. */
#include <stdlib.h>
#include <string.h>

#include "atoll/clock.h"
#include "device_impl.h"
#include "wait.h"

struct cpu_queue {
  host_device *device;
  int compute;
  pending_list ops;   /* posted here */
  pending_list waits; /* of other queues, to be done before whatever comes next */
  sticky failed;
};

static atoll_err cpu_open(const atoll_device_params *params, void **self) {
  host_device *d = calloc(1, sizeof *d);
  if (!d)
    return atoll_fail(ATOLL_NOMEM, "cpu device: %zu bytes", sizeof *d);
  d->threads = params->threads;
  d->pace = params->pace;
  d->seed = params->seed;
  host_omp_threads(d->threads);
  *self = d;
  return ATOLL_OK;
}

static atoll_err cpu_queue_create(void *self, const char *role, void **q) {
  struct cpu_queue *made = calloc(1, sizeof *made);
  if (!made)
    return atoll_fail(ATOLL_NOMEM, "cpu queue: %zu bytes", sizeof *made);
  made->device = self;
  made->compute = !strcmp(role, "compute");
  *q = made;
  return ATOLL_OK;
}

static void await(pending_list *l, sticky *failed) {
  if (pending_list_reap(l, failed))
    return;
  waiter w = wait_begin();
  while (!pending_list_reap(l, failed))
    wait_step(&w);
  wait_end(&w);
}

static atoll_err failure(struct cpu_queue *q) {
  if (q->failed.err)
    atoll_err_set_message(q->failed.message);
  return q->failed.err;
}

static atoll_err cpu_submit(void *queue, atoll_task task, const void *args, size_t bytes) {
  struct cpu_queue *q = queue;
  await(&q->waits, &q->failed);
  await(&q->ops, &q->failed);
  if (q->failed.err)
    return failure(q);
  _Alignas(max_align_t) unsigned char copy[ARGS_MAX];
  if (bytes)
    memcpy(copy, args, bytes);
  atoll_err err = q->compute ? host_run_paced(q->device, task, copy) : task(copy, NULL);
  sticky_set(&q->failed, err, atoll_err_message());
  return failure(q);
}

atoll_err cpu_post(void *queue, pending *p) {
  struct cpu_queue *q = queue;
  await(&q->waits, &q->failed);
  pending_list_reap(&q->ops, &q->failed);
  atoll_err err = q->failed.err ? q->failed.err : pending_list_add(&q->ops, p);
  if (err) {
    sticky_set(&q->failed, err, atoll_err_message());
    pending_skip(p, q->failed.err, q->failed.message);
  } else {
    err = pending_start(p);
    sticky_set(&q->failed, err, p->message);
  }
  return failure(q);
}

static atoll_err cpu_record(void *queue, void *e) {
  struct cpu_queue *q = queue;
  mark *m = mark_create();
  if (!m)
    return atoll_fail(ATOLL_NOMEM, "event: %zu bytes", sizeof *m);
  pending_list_reap(&q->waits, &q->failed);
  pending_list_reap(&q->ops, &q->failed);
  atoll_err err = pending_list_append(&m->ops, &q->waits);
  if (!err)
    err = pending_list_append(&m->ops, &q->ops);
  if (err) {
    mark_drop(m);
    return err;
  }
  m->failed = q->failed;
  atomic_store_explicit(&m->reached, 1, memory_order_release);
  host_event_set(e, m);
  return ATOLL_OK;
}

/* The operations are remembered and waited for by the next task, so that a queue that gets none does not block. */
static atoll_err cpu_wait(void *queue, void *e) {
  struct cpu_queue *q = queue;
  mark *m = host_event_mark(e);
  if (!m)
    return ATOLL_OK;
  if (!atomic_load_explicit(&m->reached, memory_order_acquire)) { /* of a queue with a thread of its own */
    waiter w = wait_begin();
    while (!atomic_load_explicit(&m->reached, memory_order_acquire))
      wait_step(&w);
    wait_end(&w);
  }
  sticky_set(&q->failed, m->failed.err, m->failed.message);
  atoll_err err = pending_list_append(&q->waits, &m->ops);
  mark_drop(m);
  return err ? err : failure(q);
}

static atoll_err cpu_sync(void *queue) {
  struct cpu_queue *q = queue;
  await(&q->waits, &q->failed);
  await(&q->ops, &q->failed);
  atoll_err err = failure(q);
  q->failed.err = ATOLL_OK;
  return err;
}

static void cpu_queue_destroy(void *queue) {
  struct cpu_queue *q = queue;
  cpu_sync(q);
  pending_list_clear(&q->waits);
  pending_list_clear(&q->ops);
  free(q);
}

const atoll_device_backend device_cpu = {
    .kind = "cpu",
    .priority = 0,
    .host_memory = 1,
    .open = cpu_open,
    .close = free,
    .queue_create = cpu_queue_create,
    .queue_destroy = cpu_queue_destroy,
    .submit = cpu_submit,
    .record = cpu_record,
    .wait = cpu_wait,
    .sync = cpu_sync,
    .event_create = host_event_create,
    .event_destroy = host_event_destroy,
    .event_sync = host_event_sync,
    .event_done = host_event_done,
};
