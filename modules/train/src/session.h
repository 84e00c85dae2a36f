/* Everything one rank holds while a job runs, in the order in which it is made. */
#ifndef ATOLL_TRAIN_SESSION_H
#define ATOLL_TRAIN_SESSION_H

#include "record.h"
#include "train_impl.h"

/* Named regions, the same on every rank, in this order. */
#define SESSION_REGIONS(X)                                                                                             \
  X(SETUP, "setup")                                                                                                    \
  X(STEP, "step")                                                                                                      \
  X(PIPELINE, "pipeline")                                                                                              \
  X(REDUCE, "reduce")                                                                                                  \
  X(UPDATE, "update")                                                                                                  \
  X(VALIDATE, "validate")                                                                                              \
  X(CHECKPOINT, "checkpoint")                                                                                          \
  X(RECORD, "record")

typedef enum session_region {
#define SESSION_ENUM(name, text) REGION_##name,
  SESSION_REGIONS(SESSION_ENUM)
#undef SESSION_ENUM
      SESSION_REGION_COUNT
} session_region;

/* One duration per step, the last ones; the median is what a run reports. */
enum { DURATIONS_MAX = 4096 };

typedef struct durations {
  double *v;
  size_t n, next;
} durations;

typedef struct session {
  atoll_job *job;
  const atoll_opts *opts;
  MPI_Comm mpi;
  int rank, size;
  int bare; /* no run directory, no story */
  atoll_watch *watch;
  atoll_comm *world;
  atoll_rundir *dir; /* rank 0 */
  int attempt;
  char run_dir[ATOLL_OPT_STRING_MAX], ckpt_dir[ATOLL_OPT_STRING_MAX + 8], job_folder[ATOLL_OPT_STRING_MAX];
  atoll_perf *perf;
  int region[SESSION_REGION_COUNT];
  atoll_topo *topo;
  int my_device, threads;
  atoll_device *device, *host;
  const atoll_kernels *kernels;
  atoll_islands *islands;
  atoll_model *model;
  atoll_data *train, *validation;
  atoll_profile *profile;
  atoll_plan *plan;
  atoll_plan_place place;
  atoll_mem *mem;
  atoll_queue *compute, *messages; /* of the device */
  atoll_queue *out;                /* of the host: small agreements */
  atoll_exec exec;
  atoll_stage *stage;
  int partials;       /* gradient buffers of the stage */
  atoll_comm *tensor; /* the ranks of this one's replica, NULL when it is alone */
  team team;
  int team_made;
  flow *flow;
  record *record;
  char *options_yaml, *origins, *command;
  char *mlp_choices; /* of stages with mlp: auto, a line each */
  char identity[33], plan_digest[33], model_digest[33], data_digest[33];
  double ceiling;            /* FLOP/s of all ranks' devices, NaN when not measured */
  double *by_param, *shared; /* [params]; [params x largest tensor degree + G] */

  /* State that a checkpoint carries. */
  int64_t step, tokens, skipped, skipped_in_row;
  int finite;
  double last_loss, validation_loss, best_validation;

  int64_t saved_step; /* of the newest committed checkpoint, -1 none */
  char saved_dir[1024];
  double save_seconds, saved_at, step_seconds;
  int save_failed;
  durations forward, backward, update, wait;
} session;

/* setup.c: from options to a stage ready to step. Collective; every rank returns the same code. */
atoll_err session_open(MPI_Comm comm, atoll_job *job, const atoll_opts *opts, int bare, session *s);
/* Measures again what the plan in use rests on, and prices it by that alone. Collective. */
atoll_err session_predict(session *s, double seconds, double *step_seconds);
/* Collective when every rank got past session_open; otherwise local clean-up. */
void session_close(session *s);

/* save.c */
atoll_err session_save(session *s, const char *reason);
atoll_err session_restore(session *s, const char *dir);

/* step.c */
/* How this step's update rounds weights; of the last one, when a checkpoint was just read. */
atoll_rounding session_rounding(const session *s, int64_t updates);
/* Makes the weights that layers read, from masters that were just initialised or read. */
atoll_err session_refresh(session *s);
atoll_err session_step(session *s, record_row *row, atoll_step_report *report);
atoll_err session_validate(session *s, double *loss);

/* exit.c */
void session_write_exit(const session *s, atoll_err code, const char *reason);
void session_on_abort(void *session_of_rank, atoll_err code, const char *reason); /* an atoll_watch_hook */
/* The way out for a failure that this rank alone met in the middle of a step. Returns only what all ranks
 * share. */
atoll_err session_leave_alone(session *s, atoll_err err);

/* account.c: gathers every rank's account and replaces run.h5. Collective. */
atoll_err session_publish(session *s, const char *state);
void durations_add(durations *d, double v);
double durations_median(const durations *d);

#endif
