/* Any CPU: vectors of four floats, which the compiler lowers to what there is. */
#define W        4
#define VEC      cpu_vec_plain
#define VEC_NAME "plain"
#include "vec.inc"
