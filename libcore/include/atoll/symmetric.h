/** Memory that the ranks of one node share: each rank owns a segment, every rank reads and writes all of them through
 * plain pointers. A producer stores straight into its consumer's input, and flags live where they are waited for.
 *
 *  The backend follows the device: MPI-3 shared windows (MPI 3.1, section 11.2.3) where host code may dereference the
 * memory; libatoll_cuda.so supplies "cuda ipc" and "nccl window" for device kind cuda, through plugin.h. Where several
 * are willing ATOLL_SYMMETRIC names the one to use. Ordering is the user's: release stores
 * and acquire loads of C11 atomics on the host, system-scope ones on a GPU. */
#ifndef ATOLL_SYMMETRIC_H
#define ATOLL_SYMMETRIC_H

#include "atoll/comm.h"
#include "atoll/mem.h"

ATOLL_BEGIN_C

typedef struct atoll_symmetric atoll_symmetric;

/** Collective on comm, whose ranks must share a node. `bytes` may differ between ranks and be 0. Segments start on a
 * page, are zeroed by their owners, and live until all ranks have called destroy.
 *
 *  comm, device   borrowed until destroy
 *  mem, category  own segment and nothing else is charged there, as it is what this rank exposes; mem may be NULL
 *  name           for messages, copied
 *  out            owned; untouched on failure
 *
 *  UNSUPPORTED: the ranks are on several nodes (their hosts are named), or no backend serves the device on every rank
 * (each gives its reason). NOMEM: the
 * budget, or the file system behind the segments, does not hold the bytes; both are named. */
ATOLL_API atoll_err atoll_symmetric_create(atoll_comm *comm, atoll_device *device, atoll_mem *mem,
                                           atoll_mem_category category, size_t bytes, const char *name,
                                           atoll_symmetric **out);
/** Collective; accepts NULL. */
ATOLL_API void atoll_symmetric_destroy(atoll_symmetric **s);
/** Start of a rank's segment as this rank addresses it. */
ATOLL_API void *atoll_symmetric_at(const atoll_symmetric *s, int rank);
ATOLL_API size_t atoll_symmetric_bytes(const atoll_symmetric *s, int rank);
/** "mpi shared window", or what a plug-in calls its own; static. */
ATOLL_API const char *atoll_symmetric_transport(const atoll_symmetric *s);

ATOLL_END_C
#endif
