/* The machine's ceiling: the best GEMM rate of any library and shape of this run, all ranks at the same time with their
 * threads. */
#ifndef ATOLL_BENCH_CEILING_H
#define ATOLL_BENCH_CEILING_H

#include <jansson.h>
#include <mpi.h>

#include "atoll/err.h"

typedef struct ceiling {
  MPI_Comm comm;
  int threads;
  int bf16, by_units; /* products of bf16; by the processor's units for it */
  int next;           /* round robin over library and shape */
  double best[16];    /* GFLOP/s by library, sum over ranks */
  double peak;        /* FMA loop, sum over ranks */
} ceiling;

/* bf16: of bf16 products where the processor multiplies these, else of f32 ones, which stand for them. */
void ceiling_init(ceiling *c, MPI_Comm comm, int threads, int bf16);
/* Collective: one more measurement of one library and shape, to be interleaved with what is measured. */
atoll_err ceiling_sample(ceiling *c);
/* Measurements that cover every library and shape once. */
int ceiling_round(const ceiling *c);
/* Best rate, but never below 0.9 of the FMA loop's. */
double ceiling_gflops(const ceiling *c);
/* And of what products it is. */
void ceiling_report(const ceiling *c, json_t *out);

#endif
