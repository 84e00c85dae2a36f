/** For people who add a backend in a shared object, e.g. libatoll_cuda.so.
 *
 *  The object exports `const atoll_plugin *atoll_plugin_v1(void)`. It is loaded from ATOLL_PLUGIN_PATH or the library
 * directory, once, by atoll_plugins_load(); a plug-in that cannot run here says so through probe and is listed with
 * that reason. */
#ifndef ATOLL_PLUGIN_H
#define ATOLL_PLUGIN_H

#include <mpi.h>

#include "atoll/device.h"

ATOLL_BEGIN_C

#define ATOLL_PLUGIN_VERSION 3

/** What a device kind must supply. `self` is the backend's device state, `q` its queue state, `e` its event state.
 * Entries marked optional may be NULL. */
typedef struct atoll_device_backend {
  const char *kind;
  int priority;                             /* higher is preferred when the user says "auto"; below 0: by name only */
  int host_memory;                          /* host code may dereference its allocations */
  atoll_err (*probe)(const char **why_not); /* optional: NULL is always willing */
  atoll_err (*open)(const atoll_device_params *params, void **self);
  void (*close)(void *self);
  atoll_err (*alloc)(void *self, size_t bytes, void **p); /* optional when host_memory */
  void (*free)(void *self, void *p);                      /* optional when host_memory */
  atoll_err (*queue_create)(void *self, const char *role, void **q);
  void (*queue_destroy)(void *q);
  atoll_err (*submit)(void *q, atoll_task task, const void *args, size_t bytes);
  atoll_err (*copy)(void *q, void *to, const void *from, size_t bytes); /* optional when host_memory */
  atoll_err (*zero)(void *q, void *to, size_t bytes);                   /* optional when host_memory */
  atoll_err (*record)(void *q, void *e);
  atoll_err (*wait)(void *q, void *e);
  atoll_err (*sync)(void *q);
  atoll_err (*event_create)(void *self, void **e); /* e is made lazily, at the first record */
  void (*event_destroy)(void *e);
  atoll_err (*event_sync)(void *e);
  int (*event_done)(void *e);
} atoll_device_backend;

/** Symmetric memory (symmetric.h) of a device kind. Of the backends that are willing on every rank the one of highest
 * priority serves, or the one that ATOLL_SYMMETRIC names. create is collective on comm, whose ranks share a node:
 * bytes[size] are the segments' sizes, at[size] receives where this rank finds each; own segment zeroed. The caller
 * agrees on the outcome and calls destroy (collective) on every rank that has a self. */
typedef struct atoll_symmetric_backend {
  const char *name, *device;
  int priority;
  atoll_err (*probe)(const char **why_not); /* optional: NULL is always willing */
  atoll_err (*create)(MPI_Comm comm, atoll_device *device, const char *name, const uint64_t *bytes, void **self,
                      void **at);
  void (*destroy)(void *self);
} atoll_symmetric_backend;

typedef struct atoll_plugin {
  int version; /* ATOLL_PLUGIN_VERSION; others are refused by name */
  const char *name;
  const atoll_device_backend *device;              /* optional */
  const void *comm;                                /* optional; reserved for comm backends */
  const void *kernels;                             /* optional; an atoll_kernels table */
  const atoll_symmetric_backend *const *symmetric; /* optional; ends with NULL */
  const void *chain;                               /* optional; an atoll_chain_device table (ctapipe_device.h) */
} atoll_plugin;

ATOLL_API atoll_err atoll_plugins_load(void);
ATOLL_API int atoll_plugin_entry(int i, const atoll_plugin **plugin, const char **path,
                                 const char **why_not);                                       /* 0 past the end */
ATOLL_API atoll_err atoll_device_backend_register(const atoll_device_backend *backend);       /* borrowed for ever */
ATOLL_API atoll_err atoll_symmetric_backend_register(const atoll_symmetric_backend *backend); /* borrowed for ever */

ATOLL_END_C
#endif
