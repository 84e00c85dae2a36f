/* The cpu backend on bf16 activations and weights. */
#define CPU_BF16
#include "cpu.c"
