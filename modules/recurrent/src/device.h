/* Where the kernels of a program run, and the memory of its values, which host and device see. Kernels and copies are
 * carried out in order, some time before wait() returns. */
#ifndef RECURRENT_DEVICE_H
#define RECURRENT_DEVICE_H

#include "native.h"

typedef struct rt_device rt_device;
struct rt_device {
  int absent; /* kernels were compiled for a device that is not here: nothing below may be called but destroy() */
  atoll_err (*enter)(rt_device *d); /* first of all, by the thread that calls the others: any may run a program */
  void *(*alloc)(rt_device *d, int64_t bytes);
  void (*release)(rt_device *d, void *p);
  /* n arguments of eight bytes each */
  atoll_err (*launch)(rt_device *d, const char *kernel, int64_t threads, int n, const void *const *arguments);
  atoll_err (*copy)(rt_device *d, void *to, const void *from, int64_t bytes);
  atoll_err (*wait)(rt_device *d);
  void (*destroy)(rt_device *d);
};

/* "cuda", "cuda:sm_90", "async"; USAGE for another. source: the kernels, with the prelude; lib: the host's part
 * (borrowed), in which "async" finds kernels too. UNAVAILABLE: no NVRTC or no GPU, with what is missing. */
atoll_err rt_device_create(const char *kind, const char *source, size_t bytes, const rt_native *lib, rt_device **out);
/* Whether kernels are to be compiled with the host's part. */
int rt_device_is_async(const char *kind);
void rt_device_destroy(rt_device **d);

atoll_err rt_device_create_async(const rt_native *lib, rt_device **out);
/* arch: of another GPU, for which kernels are only compiled; 0: they are for the one here. */
atoll_err rt_device_create_cuda(const char *source, size_t bytes, int arch, rt_device **out);

#endif
