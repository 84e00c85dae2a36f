/* Compiled with -mavx512f and friends; only entered where the CPU has them. */
#define W        16
#define VEC      cpu_vec_avx512
#define VEC_NAME "avx512"
#include "vec.inc"
