/* The cpu backend's kernels of memory policies on bf16 activations and weights. */
#define CPU_BF16
#include "keep.c"
