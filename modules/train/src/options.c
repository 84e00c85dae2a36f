/* The job's options: tables of train and run, and the checks that cut across modules. */
#include "atoll/train.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { TRAIN_F32, TRAIN_BF16 }; /* the values of train.dtype, in the order of its list */

#define T(field) offsetof(atoll_train_params, field)
static const atoll_opt_def train_defs[] = {
    {"seq", ATOLL_OPT_INT, T(seq), "256", "1..1048576", "tokens", "Tokens per sample."},
    {"global_batch", ATOLL_OPT_INT, T(global_batch), "8", "1..1048576", "samples", "Samples per step, over all ranks."},
    {"steps", ATOLL_OPT_INT, T(steps), "100", "0..1000000000000", "steps",
     "Steps to train in all, over every attempt."},
    {"seed", ATOLL_OPT_INT, T(seed), "1", "0..", "", "Seed of initial weights, sample order and dropout."},
    {"learning_rate", ATOLL_OPT_REAL, T(learning_rate), "3e-4", "0..", "", "Peak learning rate, after warm-up."},
    {"min_learning_rate", ATOLL_OPT_REAL, T(min_learning_rate), "3e-5", "0..", "", "Where the cosine ends."},
    {"warmup_steps", ATOLL_OPT_INT, T(warmup_steps), "10", "0..", "steps", "Steps of linear warm-up."},
    {"decay_steps", ATOLL_OPT_INT, T(decay_steps), "0", "0..", "steps",
     "Step at which the cosine ends; 0 = train.steps."},
    {"beta1", ATOLL_OPT_REAL, T(beta1), "0.9", "0..0.999999", "", "AdamW: decay of the first moment."},
    {"beta2", ATOLL_OPT_REAL, T(beta2), "0.95", "0..0.999999", "", "AdamW: decay of the second moment."},
    {"eps", ATOLL_OPT_REAL, T(eps), "1e-8", "0..1", "", "AdamW: added to the root of the second moment."},
    {"weight_decay", ATOLL_OPT_REAL, T(weight_decay), "0.1", "0..", "",
     "AdamW: decoupled decay of matrices and embeddings."},
    {"clip", ATOLL_OPT_REAL, T(clip), "1", "0..", "",
     "Global gradient norm above which gradients are scaled; 0 = off."},
    {"skip_limit", ATOLL_OPT_INT, T(skip_limit), "10", "1..", "steps",
     "Non-finite steps in a row that end the run; each is skipped, counted and logged, never applied."},
    {"validate_every", ATOLL_OPT_INT, T(validate_every), "0", "0..", "steps",
     "Steps between validations; 0 = only at the end."},
    {"validate_windows", ATOLL_OPT_INT, T(validate_windows), "0", "0..", "windows",
     "Held-out windows per validation; 0 = all."},
    {"log_every", ATOLL_OPT_INT, T(log_every), "1", "1..", "steps", "Steps between lines of the story."},
    {"dtype", ATOLL_OPT_ENUM, T(dtype), "f32", "f32|bf16", "",
     "Activations, their gradients and messages, and the weights that layers read: f32 or bf16. Sums, masters, "
     "gradients "
     "of weights, moments and checkpoints are f32 in both."},
    {"stochastic_rounding", ATOLL_OPT_BOOL, T(stochastic_rounding), "false", NULL, "",
     "Round bf16 weights up or down by chance, which depends on seed, update, parameter and element alone."},
    {"device", ATOLL_OPT_STRING, T(device), "auto", NULL, "",
     "Kind of device a rank computes on: auto, cpu, async or a plug-in's name."},
    {"kernels", ATOLL_OPT_STRING, T(kernels), "auto", NULL, "", "Kernel backend: auto, ref, cpu or a plug-in's."},
    {"threads", ATOLL_OPT_INT, T(threads), "0", "0..4096", "threads", "OpenMP threads of a rank; 0 = its cores."},
    {"calibrate", ATOLL_OPT_BOOL, T(calibrate), "true", NULL, "",
     "Measure layer times before planning; otherwise they are modelled from rates."},
    {NULL, ATOLL_OPT_BOOL, 0, NULL, NULL, NULL, NULL},
};
const atoll_opt_table atoll_train_options = {"train", train_defs};

#define R(field) offsetof(atoll_run_params, field)
static const atoll_opt_def run_defs[] = {
    {"dir", ATOLL_OPT_STRING, R(dir), "", NULL, "", "Run directory; empty = runs/ and the job file's name."},
    {"time_limit", ATOLL_OPT_SECONDS, R(time_limit), "0", "0..", "s",
     "Time this attempt may take; 0 = until SLURM_JOB_END_TIME when that is set, else none."},
    {"stop_margin", ATOLL_OPT_SECONDS, R(stop_margin), "10", "0..", "s",
     "Kept free before the limit, beyond a step and twice the last checkpoint's time."},
    {"silence", ATOLL_OPT_SECONDS, R(silence), "20", "1..", "s", "A rank without heartbeat for this long is lost."},
    {"phase_limit", ATOLL_OPT_SECONDS, R(phase_limit), "600", "1..", "s", "Longest time a named phase may take."},
    {"trace", ATOLL_OPT_BOOL, R(trace), "false", NULL, "", "Write trace.json, a timeline in Chrome's trace format."},
    {"counters", ATOLL_OPT_BOOL, R(counters), "true", NULL, "", "Read counters around the named regions."},
    {"events", ATOLL_OPT_STRING, R(events), "", NULL, "", "PAPI or perf events to try first, separated by commas."},
    {"requeue_ok", ATOLL_OPT_BOOL, R(requeue_ok), "true", NULL, "",
     "Leave with 75 (requeue me) when stopped early with a good checkpoint; otherwise with 0."},
    {NULL, ATOLL_OPT_BOOL, 0, NULL, NULL, NULL, NULL},
};
const atoll_opt_table atoll_run_options = {"run", run_defs};

atoll_err atoll_job_init(atoll_job *job, atoll_opts *opts) {
  memset(job, 0, sizeof *job);
  ATOLL_TRY(atoll_opts_add(opts, &atoll_run_options, &job->run));
  ATOLL_TRY(atoll_opts_add(opts, &atoll_model_options, &job->model));
  ATOLL_TRY(atoll_opts_add(opts, &atoll_data_options, &job->data));
  ATOLL_TRY(atoll_opts_add(opts, &atoll_train_options, &job->train));
  ATOLL_TRY(atoll_opts_add(opts, &atoll_topo_options, &job->topo));
  ATOLL_TRY(atoll_opts_add(opts, &atoll_island_options, &job->island));
  ATOLL_TRY(atoll_opts_add(opts, &atoll_plan_options, &job->plan));
  return atoll_opts_add(opts, &atoll_ckpt_options, &job->ckpt);
}

/* runs/quick for inputs/jobs/quick.yaml. */
static atoll_err default_dir(atoll_job *job) {
  const char *base = strrchr(job->file, '/');
  base = base ? base + 1 : job->file;
  const char *dot = strrchr(base, '.');
  int n = dot && dot != base ? (int)(dot - base) : (int)strlen(base);
  if (n == 0) {
    base = "job";
    n = 3;
  }
  if (snprintf(job->run.dir, sizeof job->run.dir, "runs/%.*s", n, base) >= (int)sizeof job->run.dir)
    return atoll_fail(ATOLL_USAGE, "job file name is too long for a run directory: give run.dir");
  return ATOLL_OK;
}

atoll_err atoll_job_check(atoll_job *job) {
  const atoll_train_params *t = &job->train;
  if (!job->run.dir[0])
    ATOLL_TRY(default_dir(job));
  if (t->min_learning_rate > t->learning_rate)
    return atoll_fail(ATOLL_USAGE, "train.min_learning_rate %g is above train.learning_rate %g", t->min_learning_rate,
                      t->learning_rate);
  if (job->plan.micro_batch > 0 && t->global_batch % job->plan.micro_batch != 0)
    return atoll_fail(ATOLL_USAGE, "train.global_batch %lld is not a multiple of plan.micro_batch %lld",
                      (long long)t->global_batch, (long long)job->plan.micro_batch);
  if (t->stochastic_rounding && t->dtype == TRAIN_F32)
    return atoll_fail(ATOLL_USAGE,
                      "train.stochastic_rounding is on, but train.dtype f32 rounds nothing: it needs bf16");
  job->model.dtype = t->dtype == TRAIN_F32 ? ATOLL_F32 : ATOLL_BF16;
  atoll_model *model = NULL;
  ATOLL_TRY(atoll_model_create(&job->model, &model));
  int64_t context = atoll_model_config(model)->context;
  atoll_model_destroy(&model);
  if (t->seq > context)
    return atoll_fail(ATOLL_USAGE, "train.seq %lld is beyond model.context %lld", (long long)t->seq,
                      (long long)context);
  return ATOLL_OK;
}
