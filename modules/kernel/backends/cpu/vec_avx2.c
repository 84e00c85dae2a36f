/* Compiled with -mavx2 -mfma; only entered where the CPU has both. */
#define W        8
#define VEC      cpu_vec_avx2
#define VEC_NAME "avx2"
#include "vec.inc"
