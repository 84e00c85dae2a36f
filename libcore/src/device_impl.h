/* What the host devices (cpu, async) and comm share.
 *
 *  A `pending` is an operation that completes by being polled: comm makes them from MPI requests. It is started by the
 *  thread that runs the queue, and may be polled by anybody who waits for it and by the watch.
 *
 *  A `mark` is one recording of an event: the place in a queue was reached, and the operations pending there are done.
 *  Each recording makes a new mark, so who waits for an event waits for the recording it saw. */
#ifndef ATOLL_DEVICE_IMPL_H
#define ATOLL_DEVICE_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "atoll/device.h"
#include "atoll/plugin.h"

#define ARGS_MAX    512
#define PENDING_MSG 512

typedef struct pending pending;
struct pending {
  atomic_int refs;
  atomic_int state; /* PENDING_NEW, _STARTED, _DONE */
  pthread_mutex_t lock;
  atoll_err err; /* valid once done */
  char message[PENDING_MSG];
  atoll_err (*start)(pending *p);          /* post; called once */
  int (*test)(pending *p, atoll_err *err); /* under lock; 1 when complete */
  void (*destroy)(pending *p);             /* frees the holder */
};
enum { PENDING_NEW, PENDING_STARTED, PENDING_DONE };

void pending_init(pending *p); /* one reference; the holder sets the functions */
pending *pending_hold(pending *p);
void pending_drop(pending *p);
atoll_err pending_start(pending *p);
void pending_skip(pending *p, atoll_err err, const char *message); /* completes it unstarted */
int pending_test(pending *p);
atoll_err pending_wait(pending *p);

/* A list of references. */
typedef struct pending_list {
  pending **at;
  int n, cap;
} pending_list;
atoll_err pending_list_add(pending_list *l, pending *p);
atoll_err pending_list_append(pending_list *to, const pending_list *from);
void pending_list_clear(pending_list *l);

/* The first error of a queue, with its message. */
typedef struct sticky {
  atoll_err err;
  char message[PENDING_MSG];
} sticky;
void sticky_set(sticky *s, atoll_err err, const char *message); /* keeps the first */
/* Drops what is complete from the list, keeping errors; 1 when the list is empty. */
int pending_list_reap(pending_list *l, sticky *s);

typedef struct mark {
  atomic_int refs;
  atomic_int reached;
  pending_list ops; /* fixed once reached */
  sticky failed;    /* of the queue at that place */
} mark;
mark *mark_create(void);
mark *mark_hold(mark *m);
void mark_drop(mark *m);
int mark_done(mark *m);
/* The queue's error or the first failed operation's; for marks that are done. */
void mark_failure(mark *m, sticky *s);

/* Events of the host devices. */
typedef struct host_event {
  pthread_mutex_t lock;
  mark *m; /* NULL: never recorded */
} host_event;
atoll_err host_event_create(void *self, void **e);
void host_event_destroy(void *e);
atoll_err host_event_sync(void *e);
int host_event_done(void *e);
void host_event_set(host_event *e, mark *taken);
mark *host_event_mark(host_event *e); /* a reference, or NULL */

typedef struct host_device {
  int threads;
  double pace;
  uint64_t seed;
  atomic_int queues;
} host_device;
/* Runs a compute task as slowly as the device's pace asks. */
atoll_err host_run_paced(const host_device *d, atoll_task task, void *args);
void host_omp_threads(int threads); /* of the calling thread, where OpenMP is loaded */

extern const atoll_device_backend device_cpu, device_async;
atoll_err cpu_post(void *q, pending *p);
atoll_err async_post(void *q, pending *p);

/* comm: enqueue p (its reference is kept by the caller); `done` (may be NULL) fires when it completes. */
atoll_err queue_post(atoll_queue *queue, pending *p, atoll_event *done);
int queue_takes_pending(const atoll_queue *queue);

#endif
