/* Compiled with -mavx2 -mfma; only entered where the CPU has both. On bf16. */
#define CPU_BF16
#include "vec_avx2.c"
