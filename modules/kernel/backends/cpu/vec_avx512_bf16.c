/* Compiled with -mavx512f and friends; only entered where the CPU has them. On bf16. */
#define CPU_BF16
#include "vec_avx512.c"
