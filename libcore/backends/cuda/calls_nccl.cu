/* The table of cuda_calls.h over NCCL, which is looked for when somebody wants a window. */
#include "cuda_calls.h"

#if ATOLL_HAVE_NCCL
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <nccl.h>
#include <nccl_device.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static_assert(sizeof(nccl_id) == sizeof(ncclUniqueId), "ids travel as they are");

static void *library;
static struct nccl_calls loaded;

static int init_rank(void **comm, int size, nccl_id id, int rank) {
  static int (*call)(void **, int, ncclUniqueId, int);
  ncclUniqueId own;
  if (!call)
    *(void **)&call = dlsym(library, "ncclCommInitRank");
  memcpy(&own, &id, sizeof own);
  return call(comm, size, own, rank);
}

static int window_register(void *comm, void *p, size_t bytes, void **window) {
  static int (*call)(void *, void *, size_t, void **, int);
  if (!call)
    *(void **)&call = dlsym(library, "ncclCommWindowRegister");
  return call(comm, p, bytes, window, NCCL_WIN_COLL_SYMMETRIC);
}

__global__ void tell_peer(ncclWindow_t window, int peer, void **out) { *out = ncclGetLsaPointer(window, 0, peer); }

/* The address is known to device code only. */
static int peer_pointer(void *window, int peer, void **p) {
  void **there = NULL;
  cudaError_t rc = cudaMalloc((void **)&there, sizeof *there);
  if (rc == cudaSuccess) {
    tell_peer<<<1, 1>>>((ncclWindow_t)window, peer, there);
    rc = cudaMemcpy(p, there, sizeof *p, cudaMemcpyDeviceToHost);
    (void)cudaFree(there);
  }
  return rc == cudaSuccess ? 0 : (int)ncclUnhandledCudaError;
}

static const char *load(void) {
  static char why[256];
  const struct {
    const char *name;
    void *to;
  } all[] = {{"ncclGetErrorString", &loaded.text},
             {"ncclGetVersion", &loaded.get_version},
             {"ncclGetUniqueId", &loaded.get_unique_id},
             {"ncclCommDestroy", &loaded.comm_destroy},
             {"ncclMemAlloc", &loaded.mem_alloc},
             {"ncclMemFree", &loaded.mem_free},
             {"ncclCommWindowDeregister", &loaded.window_deregister}};
  library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    snprintf(why, sizeof why, "%s", dlerror());
    return why;
  }
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    if (!(*(void **)all[i].to = dlsym(library, all[i].name))) {
      snprintf(why, sizeof why, "this NCCL has no %s: at least 2.28 is needed", all[i].name);
      return why;
    }
  loaded.comm_init_rank = init_rank;
  loaded.window_register = window_register;
  loaded.peer_pointer = peer_pointer;
  return NULL;
}

extern "C" const struct nccl_calls *nccl_load(const char **why_not) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static int tried;
  static const char *why;
  pthread_mutex_lock(&lock);
  if (!tried)
    why = load();
  tried = 1;
  pthread_mutex_unlock(&lock);
  *why_not = why;
  return why ? NULL : &loaded;
}

#else

extern "C" const struct nccl_calls *nccl_load(const char **why_not) {
  *why_not = "this plug-in was built without NCCL";
  return NULL;
}

#endif
