/** Devices, queues and events.
 *
 *  Work is enqueued on a queue and ordered by events; a queue runs its tasks in order, different queues run
 * concurrently unless an event orders them. Communication (comm.h) is special: an operation starts after the tasks
 * before it but not after the operations before it, so a receive does not hold up the send behind it; a task starts
 * after both. The CPU device runs a task at once, in the calling thread; the `async` device runs every queue in a
 * worker thread of its own with seeded delays, so that a missing event shows as wrong numbers or a sanitizer report
 * without a GPU; CUDA registers itself as a plug-in (plugin.h). Callers are written for the asynchronous case: buffers
 * live until the tasks that use them are known to be done.
 *
 *  A task that fails makes the queue's error sticky: later tasks are skipped, and sync returns the first error, its
 * message set. A queue that waits for an event of a failed queue or operation fails too. A queue or event is used by
 * one thread at a time. */
#ifndef ATOLL_DEVICE_H
#define ATOLL_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include "atoll/err.h"

ATOLL_BEGIN_C

typedef struct atoll_device atoll_device;
typedef struct atoll_queue atoll_queue;
typedef struct atoll_event atoll_event;

/** `stream` is the backend's native queue (cudaStream_t) or NULL. args is the queue's private copy. */
typedef atoll_err (*atoll_task)(void *args, void *stream);

typedef struct atoll_device_params {
  int threads; /* OpenMP threads of compute tasks; 0 = what OpenMP says */
  double pace; /* test only: every compute task takes `pace` times its CPU seconds (sleeping the rest); 0 or 1 = off */
  uint64_t seed;   /* async: delays */
  const char *pci; /* GPU: PCI address "0000:41:00.0"; NULL = the only or nearest one */
} atoll_device_params;
/** Defaults; pace from ATOLL_TEST_PACE. */
ATOLL_API void atoll_device_params_init(atoll_device_params *p);

/** kind: "cpu", "async", a plug-in's name, or "auto" (the willing kind of highest priority). UNAVAILABLE says why a
 * backend refuses; USAGE for an unknown name lists the known. */
ATOLL_API atoll_err atoll_device_open(const char *kind, const atoll_device_params *params, atoll_device **out);
ATOLL_API void atoll_device_close(atoll_device **device);
ATOLL_API const char *atoll_device_kind(const atoll_device *device);
ATOLL_API int atoll_device_threads(const atoll_device *device);
/** 1 when host code may dereference the device's memory. */
ATOLL_API int atoll_device_host_memory(const atoll_device *device);
/** Memory of the device, 64-byte aligned, uninitialised; not accounted (mem.h accounts host memory). NOMEM names the
 * bytes. */
ATOLL_API atoll_err atoll_device_alloc(atoll_device *device, size_t bytes, void **out);
ATOLL_API void atoll_device_free(atoll_device *device, void *p); /* accepts NULL */
/** 1 when "auto" may take the kind: a plug-in may offer one that does not yet do everything, for use by name. */
ATOLL_API int atoll_device_automatic(const char *kind);
/** The i-th registered kind with its probe's answer (NULL = willing); 0 past the end. */
ATOLL_API int atoll_device_entry(int i, const char **kind, const char **why_not);

/** role: "compute", "copy" or "comm"; only compute tasks are paced and counted by perf. */
ATOLL_API atoll_err atoll_queue_create(atoll_device *device, const char *role, atoll_queue **out);
/** Waits for its tasks. */
ATOLL_API void atoll_queue_destroy(atoll_queue **queue);
ATOLL_API atoll_device *atoll_queue_device(const atoll_queue *queue);
/** Enqueue; args (at most 512 bytes) are copied. Returns the sticky error, if any, else OK. */
ATOLL_API atoll_err atoll_queue_submit(atoll_queue *queue, atoll_task task, const void *args, size_t bytes);
/** Enqueue a copy between host and device memory (memcpy where they are one). */
ATOLL_API atoll_err atoll_queue_copy(atoll_queue *queue, void *to, const void *from, size_t bytes);
ATOLL_API atoll_err atoll_queue_zero(atoll_queue *queue, void *to, size_t bytes);
/** The event fires when everything enqueued on the queue so far is done. May be recorded again. */
ATOLL_API atoll_err atoll_queue_record(atoll_queue *queue, atoll_event *event);
/** Later tasks of the queue start after the event fired (an event never recorded counts as fired). */
ATOLL_API atoll_err atoll_queue_wait(atoll_queue *queue, atoll_event *event);
/** Block the caller until the queue is empty; returns and clears the sticky error. */
ATOLL_API atoll_err atoll_queue_sync(atoll_queue *queue);

ATOLL_API atoll_err atoll_event_create(atoll_event **out);
ATOLL_API void atoll_event_destroy(atoll_event **event);
ATOLL_API atoll_err atoll_event_sync(atoll_event *event);
ATOLL_API int atoll_event_done(atoll_event *event);

/** Hook by which kernel backends lend their rate probes to topo, which must not know kernel. `kind` is the device kind.
 *  gemm: one repetition of an M=N=K=n multiply of dtype, returns seconds through *seconds; memory: one pass of `bytes`
 * read and written. Both run on the calling thread's device with its threads. */
typedef struct atoll_rate_probe {
  const char *kind;
  atoll_err (*gemm)(atoll_device *device, int dtype, int64_t n, double *seconds, double *flop);
  atoll_err (*memory)(atoll_device *device, int64_t bytes, double *seconds, double *moved);
} atoll_rate_probe;
ATOLL_API void atoll_device_register_probe(const atoll_rate_probe *probe); /* borrowed for ever */
ATOLL_API const atoll_rate_probe *atoll_device_probe(const char *kind);    /* NULL when none */

ATOLL_END_C
#endif
