/* The asynchronous test device: host memory, but every queue is a thread that runs its tasks after seeded delays. Code
 * that forgets an event gets wrong numbers here (or a report of the thread sanitizer), as it would on a GPU.
 *
 *  The worker takes entries in order. A communication operation is started and left in `ops`, so that a receive does
 * not hold up the send behind it; any other task first waits for `ops`. While the worker waits, for entries or for an
 *  event, it polls `ops`. `busy` counts entries not yet run plus operations not yet complete; sync waits for zero. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "atoll/clock.h"
#include "device_impl.h"
#include "wait.h"

enum entry_kind { RUN, POST, RECORD, WAIT };

struct entry {
  struct entry *next;
  enum entry_kind kind;
  atoll_task task;
  pending *op;
  mark *m;
  _Alignas(max_align_t) unsigned char args[];
};

struct async_queue {
  host_device *device;
  int compute;
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t more, idle;
  struct entry *head, **tail;
  int64_t busy;
  int quit;
  sticky failed;    /* under lock */
  pending_list ops; /* the worker's */
  uint64_t random;  /* the worker's */
};

static atoll_err async_open(const atoll_device_params *params, void **self) {
  host_device *d = calloc(1, sizeof *d);
  if (!d)
    return atoll_fail(ATOLL_NOMEM, "async device: %zu bytes", sizeof *d);
  d->threads = params->threads;
  d->pace = params->pace;
  d->seed = params->seed;
  *self = d;
  return ATOLL_OK;
}

/* splitmix64 */
static uint64_t next_random(uint64_t *state) {
  uint64_t z = *state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

/* Half of the entries start at once, most others within 0.2 ms, one in ten within 1 ms. */
static void delay(struct async_queue *q) {
  uint64_t r = next_random(&q->random), which = r % 10;
  if (which < 5)
    return;
  long us = (long)((r >> 32) % (which == 9 ? 1000 : 200));
  struct timespec t = {0, us * 1000};
  nanosleep(&t, NULL);
}

/* Drops completed operations, keeping their errors; 1 when none is left. */
static int reap(struct async_queue *q) {
  if (!q->ops.n)
    return 1;
  int before = q->ops.n;
  sticky failed = {ATOLL_OK, ""};
  int empty = pending_list_reap(&q->ops, &failed);
  if (q->ops.n != before) {
    pthread_mutex_lock(&q->lock);
    sticky_set(&q->failed, failed.err, failed.message);
    q->busy -= before - q->ops.n;
    if (!q->busy)
      pthread_cond_broadcast(&q->idle);
    pthread_mutex_unlock(&q->lock);
  }
  return empty;
}

static void drain(struct async_queue *q) {
  if (reap(q))
    return;
  waiter w = wait_begin();
  while (!reap(q))
    wait_step(&w);
  wait_end(&w);
}

static sticky current_failure(struct async_queue *q) {
  pthread_mutex_lock(&q->lock);
  sticky s = q->failed;
  pthread_mutex_unlock(&q->lock);
  return s;
}

static void set_failure(struct async_queue *q, atoll_err err, const char *message) {
  pthread_mutex_lock(&q->lock);
  sticky_set(&q->failed, err, message);
  pthread_mutex_unlock(&q->lock);
}

static void execute(struct async_queue *q, struct entry *e) {
  sticky failed;
  atoll_err err;
  switch (e->kind) {
  case RUN:
    drain(q);
    failed = current_failure(q);
    if (!failed.err) {
      err = q->compute ? host_run_paced(q->device, e->task, e->args) : e->task(e->args, NULL);
      set_failure(q, err, atoll_err_message());
    }
    break;
  case POST:
    reap(q);
    failed = current_failure(q);
    if (failed.err) {
      pending_skip(e->op, failed.err, failed.message);
    } else if ((err = pending_list_add(&q->ops, e->op)) != ATOLL_OK) {
      set_failure(q, err, atoll_err_message());
      pending_skip(e->op, err, atoll_err_message());
    } else {
      pthread_mutex_lock(&q->lock);
      q->busy++;
      pthread_mutex_unlock(&q->lock);
      pending_start(e->op); /* a refusal completes it; reap finds the error */
    }
    pending_drop(e->op);
    break;
  case RECORD:
    reap(q);
    if (pending_list_append(&e->m->ops, &q->ops) != ATOLL_OK)
      drain(q);
    e->m->failed = current_failure(q);
    atomic_store_explicit(&e->m->reached, 1, memory_order_release);
    mark_drop(e->m);
    break;
  case WAIT:
    if (!mark_done(e->m)) {
      waiter w = wait_begin();
      while (!mark_done(e->m)) {
        reap(q);
        wait_step(&w);
      }
      wait_end(&w);
    }
    failed = (sticky){ATOLL_OK, ""};
    mark_failure(e->m, &failed);
    set_failure(q, failed.err, failed.message);
    mark_drop(e->m);
    break;
  }
}

static struct entry *take(struct async_queue *q) {
  pthread_mutex_lock(&q->lock);
  while (!q->head && !q->quit) {
    if (!q->ops.n) {
      pthread_cond_wait(&q->more, &q->lock);
      continue;
    }
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 200000;
    if (until.tv_nsec >= 1000000000L) {
      until.tv_sec++;
      until.tv_nsec -= 1000000000L;
    }
    pthread_cond_timedwait(&q->more, &q->lock, &until);
    pthread_mutex_unlock(&q->lock);
    reap(q);
    pthread_mutex_lock(&q->lock);
  }
  struct entry *e = q->head;
  if (e) {
    q->head = e->next;
    if (!q->head)
      q->tail = &q->head;
  }
  pthread_mutex_unlock(&q->lock);
  return e;
}

static void *worker(void *queue) {
  struct async_queue *q = queue;
  struct entry *e;
  host_omp_threads(q->device->threads);
  while ((e = take(q))) {
    delay(q);
    execute(q, e);
    free(e);
    pthread_mutex_lock(&q->lock);
    if (!--q->busy)
      pthread_cond_broadcast(&q->idle);
    pthread_mutex_unlock(&q->lock);
  }
  return NULL;
}

static atoll_err async_queue_create(void *self, const char *role, void **out) {
  host_device *d = self;
  struct async_queue *q = calloc(1, sizeof *q);
  if (!q)
    return atoll_fail(ATOLL_NOMEM, "async queue: %zu bytes", sizeof *q);
  q->device = d;
  q->compute = !strcmp(role, "compute");
  q->random = d->seed * 0x9e3779b97f4a7c15u + (uint64_t)atomic_fetch_add(&d->queues, 1);
  q->tail = &q->head;
  pthread_mutex_init(&q->lock, NULL);
  pthread_cond_init(&q->more, NULL);
  pthread_cond_init(&q->idle, NULL);
  /* Signals are the main thread's. */
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  int rc = pthread_create(&q->thread, NULL, worker, q);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  if (rc) {
    pthread_cond_destroy(&q->idle);
    pthread_cond_destroy(&q->more);
    pthread_mutex_destroy(&q->lock);
    free(q);
    return atoll_fail(ATOLL_UNAVAILABLE, "async queue: no thread: %s", strerror(rc));
  }
  *out = q;
  return ATOLL_OK;
}

static struct entry *make(enum entry_kind kind, size_t bytes) {
  struct entry *e = calloc(1, sizeof *e + bytes);
  if (!e)
    atoll_fail(ATOLL_NOMEM, "queue entry: %zu bytes", sizeof *e + bytes);
  else
    e->kind = kind;
  return e;
}

/* Takes e; answers the queue's error so far. */
static atoll_err enqueue(struct async_queue *q, struct entry *e) {
  pthread_mutex_lock(&q->lock);
  *q->tail = e;
  q->tail = &e->next;
  q->busy++;
  sticky s = q->failed;
  pthread_cond_signal(&q->more);
  pthread_mutex_unlock(&q->lock);
  if (s.err)
    atoll_err_set_message(s.message);
  return s.err;
}

static atoll_err async_submit(void *q, atoll_task task, const void *args, size_t bytes) {
  struct entry *e = make(RUN, bytes);
  if (!e)
    return ATOLL_NOMEM;
  e->task = task;
  if (bytes)
    memcpy(e->args, args, bytes);
  return enqueue(q, e);
}

atoll_err async_post(void *q, pending *p) {
  struct entry *e = make(POST, 0);
  if (!e) {
    pending_skip(p, ATOLL_NOMEM, atoll_err_message());
    return ATOLL_NOMEM;
  }
  e->op = pending_hold(p);
  return enqueue(q, e);
}

static atoll_err async_record(void *q, void *event) {
  mark *m = mark_create();
  if (!m)
    return atoll_fail(ATOLL_NOMEM, "event: %zu bytes", sizeof *m);
  struct entry *e = make(RECORD, 0);
  if (!e) {
    mark_drop(m);
    return ATOLL_NOMEM;
  }
  e->m = mark_hold(m);
  host_event_set(event, m);
  enqueue(q, e);
  return ATOLL_OK;
}

static atoll_err async_wait(void *q, void *event) {
  mark *m = host_event_mark(event);
  if (!m)
    return ATOLL_OK;
  struct entry *e = make(WAIT, 0);
  if (!e) {
    mark_drop(m);
    return ATOLL_NOMEM;
  }
  e->m = m;
  return enqueue(q, e);
}

static atoll_err async_sync(void *queue) {
  struct async_queue *q = queue;
  pthread_mutex_lock(&q->lock);
  while (q->busy)
    pthread_cond_wait(&q->idle, &q->lock);
  sticky s = q->failed;
  q->failed.err = ATOLL_OK;
  pthread_mutex_unlock(&q->lock);
  if (s.err)
    atoll_err_set_message(s.message);
  return s.err;
}

static void async_queue_destroy(void *queue) {
  struct async_queue *q = queue;
  async_sync(q);
  pthread_mutex_lock(&q->lock);
  q->quit = 1;
  pthread_cond_signal(&q->more);
  pthread_mutex_unlock(&q->lock);
  pthread_join(q->thread, NULL);
  pending_list_clear(&q->ops);
  pthread_cond_destroy(&q->idle);
  pthread_cond_destroy(&q->more);
  pthread_mutex_destroy(&q->lock);
  free(q);
}

const atoll_device_backend device_async = {
    .kind = "async",
    .priority = -100, /* a test device: never chosen by "auto" */
    .host_memory = 1,
    .open = async_open,
    .close = free,
    .queue_create = async_queue_create,
    .queue_destroy = async_queue_destroy,
    .submit = async_submit,
    .record = async_record,
    .wait = async_wait,
    .sync = async_sync,
    .event_create = host_event_create,
    .event_destroy = host_event_destroy,
    .event_sync = host_event_sync,
    .event_done = host_event_done,
};
