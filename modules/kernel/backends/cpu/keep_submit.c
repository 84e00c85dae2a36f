/* The cpu table's kernels of memory policies, enqueued. */
#include "atoll/kernel_keep.h"

#include "keep_impl.h"
#include "kernel_impl.h"

#define K(name)    keep_##name
#define KEEP_TABLE keep_cpu
#include "submit_keep.inc"
