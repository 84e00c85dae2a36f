/** The execution context handed to every layer call: where work is enqueued, who takes part, and what memory it may
 * use. All members are borrowed. Groups that are not used are NULL (width 1). */
#ifndef ATOLL_EXEC_H
#define ATOLL_EXEC_H

#include "atoll/comm.h"
#include "atoll/device.h"
#include "atoll/mem.h"
#include "atoll/perf.h"

ATOLL_BEGIN_C

struct atoll_kernels;

typedef struct atoll_exec {
  atoll_device *device;
  atoll_queue *compute, *copy, *comm;
  atoll_comm *tensor, *context, *expert, *data;
  atoll_mem *mem;
  atoll_arena *work;                   /* workspace; a layer marks and releases it */
  const struct atoll_kernels *kernels; /* of the device's kind */
  atoll_perf *perf;                    /* may be NULL */
} atoll_exec;

ATOLL_END_C
#endif
