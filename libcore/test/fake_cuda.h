/* CUDA's run time and NCCL on the host, for tests: streams are threads, device memory is shared memory that another
 * process opens by its handle. It holds the backends to what the originals demand and only sometimes notice: memory is
 * not freed while a peer has it open, and what is opened is closed.
 *
 * ATOLL_TEST_FAKE_CUDA, read at each call, says what fails: "NAME" (as in cuda_calls.h, e.g. "ipc_open"), "driver" for
 * a machine without one, "nccl=22605" for a library of that version, "no-nccl" for none. */
#ifndef ATOLL_FAKE_CUDA_H
#define ATOLL_FAKE_CUDA_H

#include "cuda_calls.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { FAKE_ERROR = 999 };

/* A kernel: runs in the stream's order, on the stream's thread. args are copied; at most 4096 bytes. */
void fake_launch(void *stream, void (*kernel)(void *args), const void *args, size_t bytes);
/* Allocations and mappings of this process that are still there, and how often a promise was broken. */
int fake_open(void);
int fake_wrong(void);

#ifdef __cplusplus
}
#endif
#endif
