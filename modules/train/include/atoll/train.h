/** The main job: executes a plan. Every rank executes only its part and never re-decides. */
#ifndef ATOLL_TRAIN_H
#define ATOLL_TRAIN_H

#include <mpi.h>

#include "atoll/ckpt.h"
#include "atoll/data.h"
#include "atoll/island.h"
#include "atoll/model.h"
#include "atoll/opt.h"
#include "atoll/plan.h"
#include "atoll/topo.h"

ATOLL_BEGIN_C

/** Options `train.*`. */
typedef struct atoll_train_params {
  int64_t seq;          /* tokens per sample */
  int64_t global_batch; /* samples per step */
  int64_t steps;
  int64_t seed;
  double learning_rate, min_learning_rate;
  int64_t warmup_steps;
  int64_t decay_steps; /* cosine to min_learning_rate at this step; 0 = steps */
  double beta1, beta2, eps, weight_decay;
  double clip;              /* global norm; 0 = off */
  int64_t skip_limit;       /* this many non-finite steps in a row end the run with NONFINITE */
  int64_t validate_every;   /* steps; 0 = only at the end */
  int64_t validate_windows; /* windows per validation; 0 = all */
  int64_t log_every;
  int dtype;               /* enum f32|bf16: of activations and of the weights that layers read; the rest stays f32 */
  int stochastic_rounding; /* bool: bf16 weights are rounded by chance */
  char device[ATOLL_OPT_STRING_MAX];  /* auto cpu async cuda */
  char kernels[ATOLL_OPT_STRING_MAX]; /* auto ref cpu */
  int64_t threads;                    /* OpenMP threads of a rank; 0 = its cores */
  int calibrate;                      /* bool: measure layer times before planning */
} atoll_train_params;
extern ATOLL_API const atoll_opt_table atoll_train_options;

/** Options `run.*`. */
typedef struct atoll_run_params {
  char dir[ATOLL_OPT_STRING_MAX]; /* "" = runs/<job file's name without suffix> */
  double time_limit;              /* seconds; 0 = from Slurm when known */
  double stop_margin;             /* extra seconds kept before the limit */
  double silence;                 /* seconds without a heartbeat before a rank counts as lost */
  double phase_limit;             /* default limit of a named phase */
  int trace;                      /* bool: write trace.json */
  int counters;                   /* bool */
  char events[ATOLL_OPT_STRING_MAX];
  int requeue_ok; /* bool: exit 75 when stopped early */
} atoll_run_params;
extern ATOLL_API const atoll_opt_table atoll_run_options;

/** All options of a job, one member per module. */
typedef struct atoll_job {
  char file[ATOLL_OPT_STRING_MAX]; /* path of the job file, "" when none */
  atoll_model_params model;
  atoll_topo_params topo;
  atoll_island_params island;
  atoll_plan_params plan;
  atoll_data_params data;
  atoll_ckpt_params ckpt;
  atoll_train_params train;
  atoll_run_params run;
} atoll_job;

/** Registers every table on opts, with defaults. */
ATOLL_API atoll_err atoll_job_init(atoll_job *job, atoll_opts *opts);
/** Checks that cut across modules (seq <= context, batch divisible, run.dir default): USAGE. Call after all values are
 * set. */
ATOLL_API atoll_err atoll_job_check(atoll_job *job);

/** Extra bytes of a rank that train takes for a replica besides its stage: boundary buffers, tree-sum workspace,
 * tokens. For atoll_plan_problem. */
ATOLL_API atoll_err atoll_train_extra_bytes(const atoll_model *model, const atoll_plan *plan, int pipeline, int stage,
                                            int replica, int64_t bytes[ATOLL_MEM_CATEGORIES]);
/** Axes that train executes: pipeline, data (with unequal micro-batch counts), tensor (one degree per layer).
 * UNSUPPORTED names the first other axis and its stage. */
ATOLL_API atoll_err atoll_train_accepts(const atoll_plan *plan);

/** Collective. Adds to profile the layer times of this model on each rank's device, shared by all: at the micro-batch
 * sizes and policies planning may use, or, with a plan as `focus` (NULL none), at those it uses alone. Takes about
 * `seconds`, or what one sample of everything takes. All ranks measure at once; a class has the samples of its slowest
 * rank. */
ATOLL_API atoll_err atoll_train_calibrate(atoll_comm *comm, const atoll_job *job, const atoll_model *model,
                                          atoll_device *device, const atoll_islands *islands, const atoll_topo *topo,
                                          const atoll_plan *focus, double seconds, atoll_profile *profile);

typedef struct atoll_train_result {
  int64_t steps_done, skipped;
  double loss, validation_loss;
  char reason[128];      /* "finished", "signal USR1 on rank 1", ... */
  char checkpoint[1024]; /* last committed */
} atoll_train_result;

/** Collective on comm: the whole walk of the main job, from topology to exit record. Returns OK, STOPPED, or the agreed
 * failure. `opts` gives provenance. */
ATOLL_API atoll_err atoll_train_run(MPI_Comm comm, atoll_job *job, const atoll_opts *opts, atoll_train_result *result);

/** The same machinery one step at a time, for benchmarks and tests: topology to weights without a run directory;
 * nothing is written, nothing is resumed, the story is silent. */
typedef struct atoll_trainer atoll_trainer;

typedef struct atoll_step_report {
  int64_t step; /* steps done */
  double loss, gradient_norm;
  double seconds; /* wall time of the step on this rank */
  double pipeline, reduce, tied, update,
      wait; /* of it: schedule; sums over ranks; tied tensors within reduce; update; waiting for messages */
  double forward, backward; /* seconds per micro-batch on this rank */
  int skipped;
} atoll_step_report;

/** Collective. job and opts are borrowed until close. *out owned: atoll_trainer_close(). */
ATOLL_API atoll_err atoll_trainer_open(MPI_Comm comm, atoll_job *job, const atoll_opts *opts, atoll_trainer **out);
/** Collective. A failure of one rank alone aborts all (see atoll_abort). */
ATOLL_API atoll_err atoll_trainer_step(atoll_trainer *t, atoll_step_report *report);
/** Collective: mean held-out loss; NOINPUT when the job has no held-out data. */
ATOLL_API atoll_err atoll_trainer_validate(atoll_trainer *t, double *loss);
/** Collective: measures again, for about `seconds`, the layers that the plan in use rests on, and tells the seconds of
 * a step that planning would predict from this alone. UNSUPPORTED: options cannot name this plan. */
ATOLL_API atoll_err atoll_trainer_predict(atoll_trainer *t, double seconds, double *step_seconds);
/** Borrowed. */
ATOLL_API const atoll_plan *atoll_trainer_plan(const atoll_trainer *t);
ATOLL_API const atoll_model *atoll_trainer_model(const atoll_trainer *t);
/** OpenMP threads of this rank. */
ATOLL_API int atoll_trainer_threads(const atoll_trainer *t);
/** This rank's exact account. */
ATOLL_API const atoll_mem *atoll_trainer_mem(const atoll_trainer *t);
/** This rank's logical tensors (what as in layer.h), valid until close; n = 0 when idle. */
ATOLL_API atoll_err atoll_trainer_tensors(atoll_trainer *t, atoll_stage_what what, const atoll_tensor **tensors,
                                          int *n);
ATOLL_API void atoll_trainer_close(atoll_trainer **t); /* collective */

/** The schedule of one replica: one-forward-one-backward (Narayanan et al., 2019), as a list of actions, shared with
 * the planner's simulator and tests. */
typedef struct atoll_action {
  int backward;        /* 0 forward, 1 backward */
  int64_t micro_batch; /* global index */
} atoll_action;
/** Fills 2 * count actions for a replica whose stage holds `in_flight` micro-batches; order of backwards is ascending.
 */
ATOLL_API void atoll_schedule_1f1b(int in_flight, int64_t first_micro_batch, int64_t count, atoll_action *out);

/** Warm-up then cosine (Loshchilov and Hutter 2017), step counted from 0. */
ATOLL_API double atoll_learning_rate(const atoll_train_params *p, int64_t step);

ATOLL_END_C
#endif
