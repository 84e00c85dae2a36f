/* Inside of ctapipe: what one rank sees of a chain while it runs. Holds pointers into everybody's segments and no MPI,
 * so that a test can run the same code with threads for ranks.
 *
 * A chain of L layers is L + 1 steps: step 0 copies the rows of x into tiles, step s multiplies by layer s - 1. The
 * input of a layer is kept in tiles: panel p of `panel` rows, tile k of CTA_TILE columns, rows one CTA_TILE apart; the
 * last layer writes rows of its true width. What step s makes and when it is there are written into the memory of the
 * rank that owns step s + 1.
 *
 * Flags and claims carry the number of the run (epoch) and are never reset: a flag is set when it is not behind the
 * epoch, a claim word of an older epoch counts from zero. */
#ifndef ATOLL_CTA_VIEW_H
#define ATOLL_CTA_VIEW_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "atoll/ctapipe.h"
#include "atoll/kernel.h"
#include "micro.h"

#define CTA_LAYERS    ATOLL_CHAIN_LAYERS
#define CTA_STEPS     (CTA_LAYERS + 1)
#define CTA_RANKS     64
#define CTA_PANEL_MIN 8   /* rows */
#define CTA_GROUP     256 /* rows whose panels share a pass over the weights; also the largest panel */

/* A test builds the schedule with memory_order_relaxed in each place to see the race reported. */
#ifndef CTA_RELEASE
#define CTA_RELEASE memory_order_release
#endif
#ifndef CTA_ACQUIRE
#define CTA_ACQUIRE memory_order_acquire /* of tiles */
#endif
#ifndef CTA_ACQUIRE_MEETING
#define CTA_ACQUIRE_MEETING memory_order_acquire
#endif

/* One writer per line and value. 64 bytes, so that a poll does not take the line of another flag's writer. */
typedef struct cta_line {
  _Alignas(64) _Atomic uint32_t epoch;
} cta_line;

typedef struct cta_claim {
  _Alignas(64) _Atomic uint64_t word; /* epoch << 32 | items taken */
} cta_claim;

/* Rank 0's; the first rank that gives up fills it. */
typedef struct cta_abort {
  _Alignas(64) _Atomic uint32_t state; /* 0 none, 1 being written, 2 readable */
  char text[448];
} cta_abort;

/* COPY: rows of x into tiles. PRODUCT: tiles of the step before, times weights. WEIGHT: the gradient of weights, left^T
 * times the tiles of step `right`, summed over panels in order. */
enum cta_kind { CTA_COPY, CTA_PRODUCT, CTA_WEIGHT };

/* Who a rank is on this node; zeros until it has said so. */
typedef struct cta_process {
  _Alignas(64) _Atomic int64_t pid;
  _Atomic uint64_t space; /* of process ids: those of another one mean nothing here */
} cta_process;

struct cta_step {
  enum cta_kind kind;
  int64_t in, out; /* columns; a copy has in = out; a gradient is [in, out] */
  int64_t ks, nt;  /* tiles of the input, and of out; at least 1 */
  int owner;
  atoll_activation activation;
  const float *w, *bias; /* packed, see cta_weights_at(); bias NULL: none */
  float *tiles;          /* where the output goes; NULL in the last step, which writes `output` */
  cta_line *flag;        /* [panels, nt], beside tiles */
  cta_claim *claim;
  float *before;          /* tiles of what activation is applied to, kept for backward; NULL: not kept */
  atoll_activation slope; /* the product goes back through it at ... */
  const float *slope_at;  /* ... these tiles: inputs of a GELU or gate, results of a ReLU */
  const float *left;      /* WEIGHT: tiles of `in` columns */
  int right;              /* WEIGHT: the step whose tiles are the other factor */
  float *dw[2], *db;      /* WEIGHT: [out, in] for each tile that an item of the other factor has, [out]; of a call */
};

typedef struct cta_event {
  int step, panel, tile;
  double begin, end; /* s, of atoll_clock_now() */
} cta_event;

struct cta_trace {
  int64_t n, most;
  cta_event *event;
};

struct cta_view {
  int rank, ranks, steps;
  int products; /* steps before the gradients of weights */
  struct cta_step step[CTA_STEPS];
  cta_line *done[CTA_RANKS]; /* how often each rank met the others */
  uint32_t meetings;
  cta_process *process[CTA_RANKS]; /* NULL: not known */
  cta_abort *abort;
  int claims;     /* idle ranks take tiles of others' steps */
  int skip_waits; /* test only: the negative control */
  double timeout; /* s */
  uint32_t epoch;
  int64_t rows, panel;   /* of this run */
  int64_t panels, group; /* group: panels that share a pass over the weights */
  const void *x;
  int rounds;    /* x and dy are bf16, and values between operations are rounded to it */
  float *output; /* [rows, out of the last step] */
  const struct cta_micro *micro;
  const atoll_kernels *kernels; /* for activations; a queue that runs at once */
  atoll_queue *queue;
  float *scratch;          /* 2 x CTA_TILE x CTA_TILE, for gradients of weights and products of a gate */
  struct cta_trace *trace; /* NULL: none */
};

static inline int64_t cta_tiles(int64_t n) { return n > 0 ? (n + CTA_TILE - 1) / CTA_TILE : 1; }
static inline int64_t cta_least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t cta_panel_rows(const struct cta_view *v, int64_t p) {
  return cta_least(v->panel, v->rows - p * v->panel);
}
/* Columns of tile t of n. */
static inline int64_t cta_tile_cols(int64_t n, int64_t t) { return cta_least(CTA_TILE, n - t * CTA_TILE); }
/* A gate: an item of its step multiplies by V and by W, whose columns lie tile beside tile and whose products, kept or
 * not, do too; an item of its backward makes both gradients, tile beside tile, which the next step reads as twice as
 * many tiles of k. */
static inline int cta_factors(const struct cta_step *s) { return s->activation == ATOLL_ACTIVATION_SWIGLU ? 2 : 1; }
static inline int cta_made(const struct cta_step *s) { return s->slope == ATOLL_ACTIVATION_SWIGLU ? 2 : 1; }
/* The (first) tile of an item. */
static inline float *cta_tile_at(const struct cta_view *v, int step, int64_t p, int64_t t) {
  const struct cta_step *s = &v->step[step];
  return s->tiles + (p * s->nt + t) * cta_made(s) * v->panel * CTA_TILE;
}
/* Rows of W that tile k of the input meets, and where the weights of factor j for columns [c0, ...) of tile t begin. */
static inline int64_t cta_depth(const struct cta_view *v, int step, int64_t k) {
  return cta_tile_cols(v->step[step].in, k / cta_made(&v->step[step - 1]));
}
static inline int64_t cta_weights_at(const struct cta_view *v, int step, int64_t k, int64_t t, int j, int64_t c0) {
  const struct cta_step *s = &v->step[step];
  int64_t before = t * CTA_TILE * cta_factors(s) + j * cta_packed(v->micro, 1, cta_tile_cols(s->out, t)) + c0;
  return k * cta_packed(v->micro, CTA_TILE, s->out) * cta_factors(s) + before * cta_depth(v, step, k);
}
/* Elements of packed weights. */
static inline int64_t cta_weights_end(const struct cta_view *v, int step) {
  const struct cta_step *s = &v->step[step];
  return cta_weights_at(v, step, s->ks - 1, 0, 0, 0) +
         cta_factors(s) * cta_packed(v->micro, cta_depth(v, step, s->ks - 1), s->out);
}
/* Items of a step; those of a gradient lie in `in` (as panels) and `out`. */
static inline int64_t cta_items(const struct cta_view *v, int step) {
  const struct cta_step *s = &v->step[step];
  return (s->kind == CTA_WEIGHT ? s->ks : v->panels) * s->nt;
}
static inline cta_line *cta_flag_at(const struct cta_view *v, int step, int64_t p, int64_t t) {
  return &v->step[step].flag[p * v->step[step].nt + t];
}
static inline int cta_reached(cta_line *line, uint32_t epoch) {
  return (int32_t)(atomic_load_explicit(&line->epoch, CTA_ACQUIRE) - epoch) >= 0;
}
static inline int cta_arrived(cta_line *line, uint32_t meeting) {
  return (int32_t)(atomic_load_explicit(&line->epoch, CTA_ACQUIRE_MEETING) - meeting) >= 0;
}
static inline void cta_set(cta_line *line, uint32_t epoch) { atomic_store_explicit(&line->epoch, epoch, CTA_RELEASE); }

/* Row geometry of a run. */
void cta_begin(struct cta_view *v, int64_t rows, int64_t panel, const void *x, float *output);

/* A bounded wait: begin, then step until what is waited for is there or step fails. Gives the core away: ranks may
 * outnumber the cores. */
struct cta_wait {
  int rounds;
  double since;
  double asked; /* s of waiting after which processes were looked for */
};
/* what: "tile", "rank"; numbers that do not apply are -1. Fails with TIMEOUT after v->timeout, with PEER_LOST as soon
 * as a rank's process is seen to be gone, and makes every rank fail; PEER_LOST with the other's words when another rank
 * gave up. */
atoll_err cta_wait_step(struct cta_view *v, struct cta_wait *w, const char *what, int step, int64_t panel, int64_t tile,
                        int rank);
atoll_err cta_wait_tile(struct cta_view *v, int step, int64_t p, int64_t t);
/* Tells the others who this rank is. */
void cta_introduce(struct cta_view *v);
/* PEER_LOST with the report of a rank that gave up. */
atoll_err cta_check_others(struct cta_view *v);
/* All ranks have arrived. */
atoll_err cta_meet(struct cta_view *v);
/* Ends the run for everybody. Returns `code` with the report as its message. */
atoll_err cta_give_up(struct cta_view *v, atoll_err code, const char *report);

/* One tile of one step, k ascending. With flags, waits for each input tile and says when its own is there. */
atoll_err cta_tile(struct cta_view *v, int step, int64_t p, int64_t t, int flags);
/* Columns [c0, c1) of tile t over input tiles [k0, k1), to c; c0 begins a panel of packed weights. Bias and activation
 * belong to what begins with k0 = 0 and ends with the last. */
atoll_err cta_product(struct cta_view *v, int step, int64_t p, int64_t t, int64_t c0, int64_t c1, int64_t k0,
                      int64_t k1, float *c, int64_t ldc, int flags);

/* Schedules. */
struct cta_place {
  int64_t panel, tile;
};
/* Takes what this rank does next. 0: nothing can be begun; *left counts the steps that still have something. */
int cta_find(struct cta_view *v, int *left, int *step, struct cta_place *at);
/* Every rank calls; on return all tiles are made or taken. */
atoll_err cta_run_pipelined(struct cta_view *v);
/* Panels [p0, p1) through all products, without flags or waits. */
atoll_err cta_run_alone(struct cta_view *v, int64_t p0, int64_t p1);
/* The gradients of weights, likewise; of each step's tiles part `part` of so many. */
atoll_err cta_run_weights(struct cta_view *v, int part, int parts);

#endif
