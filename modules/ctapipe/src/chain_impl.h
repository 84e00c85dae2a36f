/* The inside of a chain, for chain.c, ways.c and device_chain.c. */
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
  size_t bytes, weight_bytes;   /* of this rank's segment */
  struct cta_device *on_device; /* NULL: the host computes */
  size_t device_bytes;          /* of this rank's segment there */
  struct cta_view view, back;   /* back: dy to dx through the same layers turned, and the gradients of weights */
  float *dx;
  int kept;  /* the last run left its tiles as backward needs them */
  int apart; /* the last run was sharded: others may still be in it */
  int parity;
  float *output[2];           /* taken in turn, so that a result outlives the start of the next run on a faster rank */
  float *partial[CTA_RANKS];  /* [rows, out] of each rank: sums over its share of k; NULL unless two layers */
  cta_line *there[CTA_RANKS]; /* in each rank's memory [ranks, panels]: a rank's sums of a panel are there */
  float *send;                /* micro-batching: tiles on their way to the next stage; made when first needed */
  struct cta_trace trace;
  atoll_chain_event *events;
  char broken[256]; /* the report that ended its use, "" while it is whole */
};

/* Places in symmetric memory. Called twice with the same sequence: without a segment it adds up, with one it hands out.
 */
struct cta_layout {
  size_t used[CTA_RANKS];
  const atoll_symmetric *symmetric;
};
void *cta_lay(struct cta_layout *l, int rank, size_t bytes, size_t align);

/* A chain without memory, of which to ask what follows from its shape; free(). */
atoll_err cta_sketch(const atoll_chain_params *params, int rank, int ranks, atoll_chain **out);

/* On the device of a plug-in (device_chain.c); open and run are collective. */
static inline int cta_is_on_device(const struct atoll_chain *c) {
  return c->params.device && !atoll_device_host_memory(c->params.device);
}
atoll_err cta_device_open(atoll_chain *c);
void cta_device_close(atoll_chain *c);
/* which: 0 for V of a gate, 1 for the layer's other matrix. */
atoll_err cta_device_set_layer(atoll_chain *c, int layer, int which, const float *w, int64_t in_stride,
                               int64_t out_stride, const float *bias);
atoll_err cta_device_run(atoll_chain *c, atoll_chain_way way, int64_t chunks, const float *x, const float **y);
atoll_err cta_device_backward(atoll_chain *c, atoll_chain_way way, const float *dy, const atoll_chain_gradients *to);
const char *cta_device_transport(const atoll_chain *c);
double cta_device_seconds(const atoll_chain *c);

/* Rows of a tile in a run: the caller's wish or one from the shape, but no more than there are. */
int64_t cta_panel(const struct atoll_chain *c, const atoll_chain_cut *cut, int64_t rows);

/* Of all panels' tiles, nt to a panel. */
size_t cta_tile_bytes(const struct atoll_chain *c, int64_t nt);

/* What was found fastest, by key in a file of choices (choose.c); local. `path` as that of atoll_chain_choose(). */
void cta_choices_file(const char *path, char *file, size_t n);
int cta_recall(const char *file, const char *key, atoll_chain_choice *out);
/* Warns when it cannot. */
void cta_remember(const char *file, const char *key, const atoll_chain_choice *choice);

/* One run of `way` on v, which is set up; *y is the result. Every rank calls. Sets c->apart where ranks do not meet at
 * the end of a sharded one. */
atoll_err cta_run_way(struct atoll_chain *c, atoll_chain_way way, int64_t chunks, int sharded, const float **y);
/* Whether backward can follow a run of that way, and be of it; and then the steps of `back`, between two meetings. */
int cta_goes_back(const struct atoll_chain *c, atoll_chain_way way);
atoll_err cta_run_back(struct atoll_chain *c, atoll_chain_way way);

/* [begin, end) of a run's panels that fall to a rank. */
struct cta_share {
  int64_t begin, end;
};
struct cta_share cta_panels_of(int64_t panels, int rank, int ranks);

#endif
