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
  int next;        /* round robin over library and shape */
  double best[16]; /* GFLOP/s by library, sum over ranks */
  double peak;     /* FMA loop, sum over ranks */
} ceiling;

void ceiling_init(ceiling *c, MPI_Comm comm, int threads);
/* Collective: one more measurement of one library and shape, to be interleaved with what is measured. */
atoll_err ceiling_sample(ceiling *c);
/* Measurements that cover every library and shape once. */
int ceiling_round(void);
/* Best rate, but never below 0.9 of the FMA loop's. */
double ceiling_gflops(const ceiling *c);
/* And, of bf16, why it is the ceiling of f32. */
void ceiling_report(const ceiling *c, int bf16, json_t *out);

#endif
