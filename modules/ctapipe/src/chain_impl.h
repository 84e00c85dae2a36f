/* The inside of a chain, for chain.c and ways.c. */
#ifndef ATOLL_CTA_CHAIN_IMPL_H
#define ATOLL_CTA_CHAIN_IMPL_H

#include "atoll/symmetric.h"
#include "view.h"

struct atoll_chain {
  atoll_comm *comm;
  atoll_mem *mem;
  atoll_device *device;
  atoll_symmetric *symmetric;
  atoll_chain_params params;
  size_t bytes, weight_bytes; /* of this rank's segment */
  struct cta_view view, back; /* back: dy to dx through the same layers turned, and the gradients of weights */
  float *dx;
  int kept; /* the last run left its tiles as backward needs them */
  int parity;
  float *output[2];           /* taken in turn, so that a result outlives the start of the next run on a faster rank */
  float *partial[CTA_RANKS];  /* [rows, out] of each rank: sums over its share of k; NULL unless two layers */
  cta_line *there[CTA_RANKS]; /* in each rank's memory [ranks, panels]: a rank's sums of a panel are there */
  float *send;                /* micro-batching: tiles on their way to the next stage; made when first needed */
  struct cta_trace trace;
  atoll_chain_event *events;
  char broken[256]; /* the report that ended its use, "" while it is whole */
};

/* Of all panels' tiles, nt to a panel. */
size_t cta_tile_bytes(const struct atoll_chain *c, int64_t nt);

/* One run of `way` on v, which is set up; *y is the result. Every rank calls. */
atoll_err cta_run_way(struct atoll_chain *c, atoll_chain_way way, int64_t chunks, const float **y);

#endif
