/* Training of an MLP-heavy stage, for the benchmark mlp. */
#ifndef ATOLL_BENCH_MLP_STAGE_H
#define ATOLL_BENCH_MLP_STAGE_H

#include "bench.h"

/* Collective, two ranks. text: WIDTHxROWS. Adds "training" to out (rank 0, else NULL) and tells it. */
atoll_err mlp_stage(atoll_comm *comm, const char *text, int repeats, json_t *out);

#endif
