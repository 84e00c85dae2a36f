/* What the files of `atoll-bench mlp` share. */
#ifndef ATOLL_BENCH_MLP_H
#define ATOLL_BENCH_MLP_H

#include "atoll/ctapipe.h"
#include "atoll/symmetric.h"
#include "bench.h"

enum { WIDTHS = ATOLL_CHAIN_LAYERS + 1 };

typedef struct shape {
  int layers;
  int64_t M, width[WIDTHS];
} shape;

/* Collective: one pipelined run, recorded; rank 0 writes it as Chrome trace to `trace` and as a picture to `svg` (NULL:
 * not wanted). x as atoll_chain_run(). */
atoll_err timeline_write(atoll_comm *comm, atoll_chain *chain, const atoll_chain_cut *cut, const shape *s,
                         const void *x, const char *trace, const char *svg);

/* Collective: s that a flag takes from rank 0 to rank 1 and back, the least of a few; 0 on one rank. Every rank has
 * flag_bytes() in `memory` (zeros at first), and *count begins as 0. TIMEOUT: it did not come back. */
size_t flag_bytes(void);
atoll_err flag_round_trip(atoll_comm *comm, const atoll_symmetric *memory, uint32_t *count, double *seconds);

/* Local: the rows of the files of --merge to `out`, and a line for each shape with what its runs found. */
atoll_err mlp_merge(const atoll_cli *cli, json_t *out);

#endif
