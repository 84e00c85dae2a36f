/* Any CPU: vectors of four floats, on bf16. */
#define CPU_BF16
#include "vec_plain.c"
