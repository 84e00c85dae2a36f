/* What the files of atoll-rl share.
 *   run        the walk: environment, learner, checkpoints, the loop over iterations
 *   record     run.h5: what atoll-inspect reads */
#ifndef RL_RUN_H
#define RL_RUN_H

#include <mpi.h>

#include "atoll/ckpt.h"
#include "atoll/rl.h"

/* Options `run.*`. */
typedef struct run_params {
  char dir[ATOLL_OPT_STRING_MAX];
  double time_limit, stop_margin, silence, phase_limit;
  int requeue_ok;
} run_params;

typedef struct rl_job {
  char file[ATOLL_OPT_STRING_MAX]; /* of options, "" when none */
  run_params run;
  atoll_rl_params rl;
  atoll_ckpt_params ckpt;
} rl_job;

atoll_err job_init(rl_job *job, atoll_opts *opts);
/* Collective: OK, STOPPED, or the agreed failure. */
atoll_err job_run(rl_job *job, const atoll_opts *opts, FILE *trace);

/* ---- run.h5, rank 0 only ---- */

/* One row of /metrics: name, type, unit, long_name. */
#define RECORD_COLUMNS(X)                                                                                              \
  X(step, int64_t, ATOLL_I64, "1", "iterations done after this one")                                                   \
  X(environment_steps, int64_t, ATOLL_I64, "1", "steps of all environments so far")                                    \
  X(episodes, int64_t, ATOLL_I64, "1", "episodes that ended in the iteration")                                         \
  X(mean_return, double, ATOLL_F64, "1", "mean return of those; NaN when there are none")                              \
  X(mean_length, double, ATOLL_F64, "1", "mean length of those")                                                       \
  X(reward, double, ATOLL_F64, "1", "mean reward of a step")                                                           \
  X(loss, double, ATOLL_F64, "1", "loss of the last update")                                                           \
  X(gradient_norm, double, ATOLL_F64, "1", "norm of its gradient")                                                     \
  X(step_seconds, double, ATOLL_F64, "s", "wall time of the iteration")                                                \
  X(steps_per_second, double, ATOLL_F64, "1/s", "steps of all environments over that time")                            \
  X(attempt, int64_t, ATOLL_I64, "1", "attempt that ran the iteration")                                                \
  X(superseded, int64_t, ATOLL_I64, "1", "1 when a later attempt ran the iteration again")

#define RECORD_EVALUATIONS(X)                                                                                          \
  X(validation_step, int64_t, ATOLL_I64, "1", "iterations done before the evaluation")                                 \
  X(validation_return, double, ATOLL_F64, "1", "mean return with the likeliest actions")                               \
  X(validation_attempt, int64_t, ATOLL_I64, "1", "attempt that evaluated")                                             \
  X(validation_superseded, int64_t, ATOLL_I64, "1", "1 when a later attempt evaluated again")

#define RECORD_FIELD(name, ctype, dtype, units, text) ctype name;
typedef struct record_row {
  RECORD_COLUMNS(RECORD_FIELD)
} record_row;
typedef struct record_evaluation {
  RECORD_EVALUATIONS(RECORD_FIELD)
} record_evaluation;
#undef RECORD_FIELD

typedef struct record record;

/* Reads what earlier attempts have published, where it can be read, and marks rows beyond resume_step as superseded. */
atoll_err record_open(const char *dir, int attempt, int64_t resume_step, const char *options_yaml, record **out);
atoll_err record_add(record *r, const record_row *row);
atoll_err record_add_evaluation(record *r, const record_evaluation *e);
/* Replaces run.h5. */
atoll_err record_publish(const record *r, const char *state);
void record_close(record **r);

#endif
