/* What Atoll's CUDA backends ask of CUDA's run time and of NCCL, as two tables without their headers: calls.cu fills
 * them, and a test puts calls of its own in their place, so that the code around them runs where no GPU is.
 *
 * Every function returns 0, or a code that `text` explains. Names, arguments and order are the originals'. */
#ifndef ATOLL_CUDA_CALLS_H
#define ATOLL_CUDA_CALLS_H

#include <stddef.h>

#include "atoll/plugin.h"

ATOLL_BEGIN_C

enum { CUDA_NOT_READY = 600 }; /* cudaErrorNotReady */

typedef struct cuda_ipc_handle {
  char bytes[64];
} cuda_ipc_handle;

struct cuda_calls {
  const char *(*text)(int code);
  int (*device_count)(int *n);
  int (*device_by_pci)(int *device, const char *pci);
  int (*set_device)(int device);
  int (*malloc)(void **p, size_t bytes);
  int (*free)(void *p);
  int (*memcpy_async)(void *to, const void *from, size_t bytes, void *stream); /* direction from the pointers */
  int (*memset_async)(void *p, int value, size_t bytes, void *stream);
  int (*stream_create)(void **stream); /* that does not wait for the default one */
  int (*stream_destroy)(void *stream);
  int (*stream_sync)(void *stream);
  int (*stream_wait_event)(void *stream, void *event);
  int (*event_create)(void **event); /* without timing */
  int (*event_destroy)(void *event);
  int (*event_record)(void *event, void *stream);
  int (*event_sync)(void *event);
  int (*event_query)(void *event); /* 0 or CUDA_NOT_READY */
  int (*ipc_get)(cuda_ipc_handle *handle, void *p);
  int (*ipc_open)(void **p, cuda_ipc_handle handle); /* with peer access */
  int (*ipc_close)(void *p);
};
extern const struct cuda_calls cuda_rt;

typedef struct nccl_id {
  char bytes[128];
} nccl_id;

enum { NCCL_LEAST = 22800 }; /* windows came with 2.27, the addresses of peers in them with 2.28 */

struct nccl_calls {
  const char *(*text)(int code);
  int (*get_version)(int *version);
  int (*get_unique_id)(nccl_id *id);
  int (*comm_init_rank)(void **comm, int size, nccl_id id, int rank);
  int (*comm_destroy)(void *comm);
  int (*mem_alloc)(void **p, size_t bytes);
  int (*mem_free)(void *p);
  int (*window_register)(void *comm, void *p, size_t bytes, void **window); /* symmetric; collective */
  int (*window_deregister)(void *comm, void *window);
  int (*peer_pointer)(void *window, int peer, void **p); /* of the window's start in rank `peer` of the node */
};
/* NULL, with the reason, where the library is not there. */
const struct nccl_calls *nccl_load(const char **why_not);

/* 0 becomes OK, anything else `code` with the call's name, what it was for, and CUDA's words. */
atoll_err cuda_check(int rc, atoll_err code, const char *call, const char *what);

/* The device whose ordinal every call of this object's threads is for. */
struct cuda_device {
  int ordinal;
};
atoll_err cuda_use(const struct cuda_device *d);
/* As atoll_device_backend.probe. */
atoll_err cuda_probe(const char **why_not);

extern const atoll_device_backend cuda_device;
extern const atoll_symmetric_backend cuda_ipc, nccl_window;

ATOLL_END_C

#endif
