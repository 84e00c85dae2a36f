/* run.h5 and its attempts: what a stranger needs to understand a run, and what atoll-inspect reads. Rank 0 only; see
 * RUN_H5.md for the schema. */
#ifndef ATOLL_TRAIN_RECORD_H
#define ATOLL_TRAIN_RECORD_H

#include "atoll/island.h"
#include "atoll/perf.h"
#include "atoll/plan.h"
#include "atoll/profile.h"
#include "atoll/topo.h"

#define RECORD_VERSION 1

/* One row of /metrics: name, type, unit, long_name. The order is the order of struct record_row. */
#define RECORD_COLUMNS(X)                                                                                              \
  X(step, int64_t, ATOLL_I64, "1", "steps done after this one")                                                        \
  X(loss, double, ATOLL_F64, "nat", "mean training loss per token of the step")                                        \
  X(learning_rate, double, ATOLL_F64, "1", "learning rate of the step")                                                \
  X(gradient_norm, double, ATOLL_F64, "1", "global gradient norm before clipping")                                     \
  X(tokens, int64_t, ATOLL_I64, "1", "tokens trained so far")                                                          \
  X(step_seconds, double, ATOLL_F64, "s", "wall time of the step")                                                     \
  X(tokens_per_second, double, ATOLL_F64, "1/s", "tokens of the step over its wall time")                              \
  X(ceiling_fraction, double, ATOLL_F64, "1", "matrix FLOP rate over the devices' measured GEMM rate")                 \
  X(skipped, int64_t, ATOLL_I64, "1", "1 when the step was not applied because loss or norm was not finite")           \
  X(attempt, int64_t, ATOLL_I64, "1", "attempt that ran the step")                                                     \
  X(superseded, int64_t, ATOLL_I64, "1", "1 when a later attempt ran the step again")

typedef struct record_row {
#define RECORD_FIELD(name, ctype, dtype, units, text) ctype name;
  RECORD_COLUMNS(RECORD_FIELD)
#undef RECORD_FIELD
} record_row;

/* One rank's account at a publish, fixed layout so that it can be gathered. */
typedef struct record_rank {
  char host[64];
  int64_t rank, pipeline, stage, replica, device, threads;
  double forward_seconds, backward_seconds, update_seconds, wait_seconds; /* median per micro-batch; per step */
  double predicted_forward, predicted_backward, predicted_update;
  double predicted[ATOLL_MEM_CATEGORIES], measured[ATOLL_MEM_CATEGORIES]; /* bytes */
  double predicted_peak, measured_peak, rss_peak, limit;
} record_rank;

typedef struct record_counters { /* of one rank, gathered: [ranks, regions, 2 + counters] = calls, seconds, counters */
  int regions, counters;
  const char *const *region;
  const atoll_perf_counter *counter;
  const double *values;
} record_counters;

typedef struct record_about { /* borrowed for the record's life */
  const char *options_yaml, *options_origin, *command, *model_name;
  const atoll_topo *topo;
  const atoll_islands *islands;
  const atoll_plan *plan;
  const atoll_profile *profile;
  const char *kernels;
  const char *mlp;   /* what stages with mlp: auto have chosen, a line each; "": there are none */
  const char *dtype; /* of activations */
  const char *identity, *plan_digest, *model_digest, *data_digest;
  int ranks;
} record_about;

typedef struct record record;

/* Reads what earlier attempts left (the followable files first, else run.h5), marks rows beyond resume_step as
 * superseded, and opens this attempt's file. */
atoll_err record_open(const char *dir, int attempt, int64_t resume_step, const record_about *about, record **out);
/* Appends to the attempt's file. A file system that refuses is reported once and the run goes on. */
void record_step(record *r, const record_row *row);
void record_validation(record *r, int64_t step, double loss);
void record_checkpoint(record *r, int64_t step, const char *name, double seconds, double bytes);
/* Replaces run.h5 by all attempts' rows and the latest accounts (ranks and counters may be NULL: the last given are
 * kept). */
atoll_err record_publish(record *r, const record_rank *ranks, int n, const record_counters *counters,
                         const char *state);
/* Lowest validation loss of live rows; NaN when there is none. */
double record_best_validation(const record *r);
void record_close(record **r);

#endif
