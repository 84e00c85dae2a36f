#include "atoll/device.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/clock.h"
#include "device_impl.h"
#include "wait.h"

#define BACKENDS_MAX 16

struct atoll_device {
  const atoll_device_backend *backend;
  void *self;
  int threads;
};

struct atoll_queue {
  atoll_device *device;
  const atoll_device_backend *backend;
  void *q;
};

struct atoll_event {
  const atoll_device_backend *backend; /* of the device it was last recorded on; NULL before */
  void *e;
};

atomic_int wait_threads;

/* --- registries ------------------------------------------------------------------------------------------------- */

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static const atoll_device_backend *backends[BACKENDS_MAX] = {&device_cpu, &device_async};
static int backend_count = 2;
static const atoll_rate_probe *probes[BACKENDS_MAX];
static int probe_count;

static const atoll_device_backend *backend_at(int i) {
  pthread_mutex_lock(&registry_lock);
  const atoll_device_backend *b = i >= 0 && i < backend_count ? backends[i] : NULL;
  pthread_mutex_unlock(&registry_lock);
  return b;
}

atoll_err atoll_device_backend_register(const atoll_device_backend *backend) {
  if (!backend || !backend->kind || !*backend->kind || !backend->open || !backend->queue_create || !backend->submit)
    return atoll_fail(ATOLL_USAGE, "a device backend needs kind, open, queue_create and submit");
  atoll_err err = ATOLL_OK;
  pthread_mutex_lock(&registry_lock);
  for (int i = 0; i < backend_count; i++)
    if (!strcmp(backends[i]->kind, backend->kind))
      err = atoll_fail(ATOLL_USAGE, "device kind %s is already registered", backend->kind);
  if (!err && backend_count == BACKENDS_MAX)
    err = atoll_fail(ATOLL_USAGE, "device kind %s: %d kinds are registered already", backend->kind, BACKENDS_MAX);
  if (!err)
    backends[backend_count++] = backend;
  pthread_mutex_unlock(&registry_lock);
  return err;
}

static int backend_willing(const atoll_device_backend *b, const char **why_not) {
  *why_not = NULL;
  if (!b->probe || b->probe(why_not) == ATOLL_OK) {
    *why_not = NULL;
    return 1;
  }
  if (!*why_not)
    *why_not = "its probe gave no reason";
  return 0;
}

int atoll_device_entry(int i, const char **kind, const char **why_not) {
  const atoll_device_backend *b = backend_at(i);
  if (!b)
    return 0;
  *kind = b->kind;
  backend_willing(b, why_not);
  return 1;
}

int atoll_device_automatic(const char *kind) {
  const atoll_device_backend *b;
  for (int i = 0; (b = backend_at(i)); i++)
    if (!strcmp(b->kind, kind))
      return b->priority >= 0;
  return 0;
}

void atoll_device_register_probe(const atoll_rate_probe *probe) {
  pthread_mutex_lock(&registry_lock);
  int i = 0;
  while (i < probe_count && strcmp(probes[i]->kind, probe->kind))
    i++;
  if (i < BACKENDS_MAX) { /* the latest of a kind wins */
    probes[i] = probe;
    if (i == probe_count)
      probe_count++;
  }
  pthread_mutex_unlock(&registry_lock);
}

const atoll_rate_probe *atoll_device_probe(const char *kind) {
  const atoll_rate_probe *found = NULL;
  pthread_mutex_lock(&registry_lock);
  for (int i = 0; i < probe_count; i++)
    if (!strcmp(probes[i]->kind, kind))
      found = probes[i];
  pthread_mutex_unlock(&registry_lock);
  return found;
}

/* --- devices ---------------------------------------------------------------------------------------------------- */

void atoll_device_params_init(atoll_device_params *p) {
  *p = (atoll_device_params){.seed = 1};
  const char *pace = getenv("ATOLL_TEST_PACE");
  if (pace) {
    char *end;
    double value = strtod(pace, &end);
    if (end != pace && !*end && value > 0)
      p->pace = value;
  }
}

/* OpenMP is a matter of the kernels; libcore asks it only where the program has it. */
void host_omp_threads(int threads) {
  void (*set)(int) = NULL;
  *(void **)&set = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
  if (set && threads > 0)
    set(threads);
}

static int default_threads(void) {
  int (*get)(void) = NULL;
  *(void **)&get = dlsym(RTLD_DEFAULT, "omp_get_max_threads");
  if (get)
    return get();
  const char *text = getenv("OMP_NUM_THREADS");
  int n = text ? atoi(text) : 0;
  if (n > 0)
    return n;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
    return CPU_COUNT(&set);
  return 1;
}

static const atoll_device_backend *backend_find(const char *kind) {
  const atoll_device_backend *b, *best = NULL;
  const char *why_not;
  int automatic = !strcmp(kind, "auto");
  for (int i = 0; (b = backend_at(i)); i++) {
    if (!automatic && !strcmp(b->kind, kind))
      return b;
    if (automatic && b->priority >= 0 && (!best || b->priority > best->priority) && backend_willing(b, &why_not))
      best = b;
  }
  return best;
}

atoll_err atoll_device_open(const char *kind, const atoll_device_params *params, atoll_device **out) {
  atoll_device_params defaults;
  if (!params) {
    atoll_device_params_init(&defaults);
    params = &defaults;
  }
  if (params->threads < 0 || !(params->pace >= 0))
    return atoll_fail(ATOLL_USAGE, "device %s: threads %d, pace %g: both must be at least 0", kind, params->threads,
                      params->pace);
  const atoll_device_backend *b = backend_find(kind);
  if (!b) {
    char known[512] = "";
    size_t n = 0;
    for (int i = 0; (b = backend_at(i)) && n < sizeof known; i++)
      n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", i ? " " : "", b->kind);
    return atoll_fail(ATOLL_USAGE, "unknown device kind '%s'; known: %s", kind, known);
  }
  const char *why_not;
  if (!backend_willing(b, &why_not))
    return atoll_fail(ATOLL_UNAVAILABLE, "device kind %s: %s", b->kind, why_not);
  atoll_device *d = calloc(1, sizeof *d);
  if (!d)
    return atoll_fail(ATOLL_NOMEM, "device %s: %zu bytes", kind, sizeof *d);
  d->backend = b;
  d->threads = params->threads > 0 ? params->threads : default_threads();
  atoll_err err = b->open(params, &d->self);
  if (err) {
    free(d);
    return err;
  }
  *out = d;
  return ATOLL_OK;
}

void atoll_device_close(atoll_device **device) {
  atoll_device *d = *device;
  if (!d)
    return;
  *device = NULL;
  if (d->backend->close)
    d->backend->close(d->self);
  free(d);
}

const char *atoll_device_kind(const atoll_device *device) { return device->backend->kind; }
int atoll_device_threads(const atoll_device *device) { return device->threads; }
int atoll_device_host_memory(const atoll_device *device) { return device->backend->host_memory; }

atoll_err atoll_device_alloc(atoll_device *device, size_t bytes, void **out) {
  if (device->backend->alloc)
    return device->backend->alloc(device->self, bytes ? bytes : 1, out);
  if (bytes > SIZE_MAX - 63)
    return atoll_fail(ATOLL_NOMEM, "device %s: %zu bytes", device->backend->kind, bytes);
  void *p = aligned_alloc(64, bytes ? (bytes + 63) / 64 * 64 : 64);
  if (!p)
    return atoll_fail(ATOLL_NOMEM, "device %s: %zu bytes", device->backend->kind, bytes);
  *out = p;
  return ATOLL_OK;
}

void atoll_device_free(atoll_device *device, void *p) {
  if (!p)
    return;
  if (device->backend->free)
    device->backend->free(device->self, p);
  else
    free(p);
}

/* --- queues ----------------------------------------------------------------------------------------------------- */

atoll_err atoll_queue_create(atoll_device *device, const char *role, atoll_queue **out) {
  if (!role || (strcmp(role, "compute") && strcmp(role, "copy") && strcmp(role, "comm")))
    return atoll_fail(ATOLL_USAGE, "queue role '%s', expected compute, copy or comm", role ? role : "(null)");
  atoll_queue *queue = calloc(1, sizeof *queue);
  if (!queue)
    return atoll_fail(ATOLL_NOMEM, "queue: %zu bytes", sizeof *queue);
  queue->device = device;
  queue->backend = device->backend;
  atoll_err err = device->backend->queue_create(device->self, role, &queue->q);
  if (err) {
    free(queue);
    return err;
  }
  *out = queue;
  return ATOLL_OK;
}

void atoll_queue_destroy(atoll_queue **queue) {
  if (!*queue)
    return;
  (*queue)->backend->queue_destroy((*queue)->q);
  free(*queue);
  *queue = NULL;
}

atoll_device *atoll_queue_device(const atoll_queue *queue) { return queue->device; }

atoll_err atoll_queue_submit(atoll_queue *queue, atoll_task task, const void *args, size_t bytes) {
  if (bytes > ARGS_MAX)
    return atoll_fail(ATOLL_USAGE, "task arguments of %zu bytes, at most %d", bytes, ARGS_MAX);
  return queue->backend->submit(queue->q, task, args, bytes);
}

struct copy_args {
  void *to;
  const void *from;
  size_t bytes;
};

static atoll_err copy_task(void *args, void *stream) {
  (void)stream;
  struct copy_args *a = args;
  if (a->from)
    memmove(a->to, a->from, a->bytes);
  else
    memset(a->to, 0, a->bytes);
  return ATOLL_OK;
}

atoll_err atoll_queue_copy(atoll_queue *queue, void *to, const void *from, size_t bytes) {
  if (!bytes)
    return ATOLL_OK;
  if (queue->backend->copy)
    return queue->backend->copy(queue->q, to, from, bytes);
  struct copy_args a = {to, from, bytes};
  return queue->backend->submit(queue->q, copy_task, &a, sizeof a);
}

atoll_err atoll_queue_zero(atoll_queue *queue, void *to, size_t bytes) {
  if (!bytes)
    return ATOLL_OK;
  if (queue->backend->zero)
    return queue->backend->zero(queue->q, to, bytes);
  if (!queue->backend->host_memory)
    return atoll_fail(ATOLL_UNSUPPORTED, "device %s cannot zero memory", queue->backend->kind);
  struct copy_args a = {to, NULL, bytes};
  return queue->backend->submit(queue->q, copy_task, &a, sizeof a);
}

/* Backends whose events are one kind order each other's queues without blocking the caller. */
static int same_events(const atoll_device_backend *a, const atoll_device_backend *b) {
  return a == b || (a->event_done == host_event_done && b->event_done == host_event_done);
}

static void event_unbind(atoll_event *event) {
  if (event->backend)
    event->backend->event_destroy(event->e);
  event->backend = NULL;
  event->e = NULL;
}

static atoll_err event_bind(atoll_event *event, atoll_queue *queue) {
  if (event->backend && same_events(event->backend, queue->backend))
    return ATOLL_OK;
  void *e;
  ATOLL_TRY(queue->backend->event_create(queue->device->self, &e));
  event_unbind(event);
  event->backend = queue->backend;
  event->e = e;
  return ATOLL_OK;
}

atoll_err atoll_queue_record(atoll_queue *queue, atoll_event *event) {
  ATOLL_TRY(event_bind(event, queue));
  return queue->backend->record(queue->q, event->e);
}

atoll_err atoll_queue_wait(atoll_queue *queue, atoll_event *event) {
  if (!event->backend)
    return ATOLL_OK;
  if (same_events(event->backend, queue->backend))
    return queue->backend->wait(queue->q, event->e);
  return event->backend->event_sync(event->e);
}

atoll_err atoll_queue_sync(atoll_queue *queue) { return queue->backend->sync(queue->q); }

int queue_takes_pending(const atoll_queue *queue) {
  return queue->backend == &device_cpu || queue->backend == &device_async;
}

atoll_err queue_post(atoll_queue *queue, pending *p, atoll_event *done) {
  if (done) {
    mark *m = mark_create();
    if (!m)
      return atoll_fail(ATOLL_NOMEM, "event: %zu bytes", sizeof *m);
    atoll_err err = pending_list_add(&m->ops, p);
    if (!err)
      err = event_bind(done, queue);
    if (err) {
      mark_drop(m);
      return err;
    }
    atomic_store(&m->reached, 1);
    host_event_set(done->e, m);
  }
  return queue->backend == &device_cpu ? cpu_post(queue->q, p) : async_post(queue->q, p);
}

/* --- events ----------------------------------------------------------------------------------------------------- */

atoll_err atoll_event_create(atoll_event **out) {
  atoll_event *event = calloc(1, sizeof *event);
  if (!event)
    return atoll_fail(ATOLL_NOMEM, "event: %zu bytes", sizeof *event);
  *out = event;
  return ATOLL_OK;
}

void atoll_event_destroy(atoll_event **event) {
  if (!*event)
    return;
  event_unbind(*event);
  free(*event);
  *event = NULL;
}

atoll_err atoll_event_sync(atoll_event *event) {
  return event->backend ? event->backend->event_sync(event->e) : ATOLL_OK;
}

int atoll_event_done(atoll_event *event) { return event->backend ? event->backend->event_done(event->e) : 1; }
