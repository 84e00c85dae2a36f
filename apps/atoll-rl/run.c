/* The walk: environment, learner, the newest good checkpoint, iterations by chunks, and the ways out. What stops a run
 * is agreed between chunks, so that ranks leave together. */
#include "run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/clock.h"
#include "atoll/digest.h"
#include "atoll/fault.h"
#include "atoll/file.h"
#include "atoll/log.h"
#include "atoll/rundir.h"
#include "atoll/stop.h"

#define R(field) offsetof(run_params, field)
static const atoll_opt_def run_defs[] = {
    {"dir", ATOLL_OPT_STRING, R(dir), "", NULL, "", "Run directory; empty = runs/ and the job file's name."},
    {"time_limit", ATOLL_OPT_SECONDS, R(time_limit), "0", "0..", "s",
     "Time this attempt may take; 0 = until SLURM_JOB_END_TIME when that is set, else none."},
    {"stop_margin", ATOLL_OPT_SECONDS, R(stop_margin), "10", "0..", "s", "Kept free before the limit."},
    {"silence", ATOLL_OPT_SECONDS, R(silence), "20", "1..", "s", "A rank without heartbeat for this long is lost."},
    {"phase_limit", ATOLL_OPT_SECONDS, R(phase_limit), "600", "1..", "s", "Longest time a named phase may take."},
    {"requeue_ok", ATOLL_OPT_BOOL, R(requeue_ok), "true", NULL, "",
     "Leave with 75 (requeue me) when stopped early with a good checkpoint; otherwise with 0."},
    {NULL, ATOLL_OPT_BOOL, 0, NULL, NULL, NULL, NULL},
};
static const atoll_opt_table run_options = {"run", run_defs};

atoll_err job_init(rl_job *job, atoll_opts *opts) {
  memset(job, 0, sizeof *job);
  ATOLL_TRY(atoll_opts_add(opts, &run_options, &job->run));
  ATOLL_TRY(atoll_opts_add(opts, &atoll_rl_options, &job->rl));
  return atoll_opts_add(opts, &atoll_ckpt_options, &job->ckpt);
}

/* ---- options that count for nothing ---- */

/* Options of one algorithm. */
static const struct {
  const char *key;
  int algorithm;
} of_one[] = {
    {"rl.n", ATOLL_RL_REINFORCE}, {"rl.baseline", ATOLL_RL_REINFORCE}, {"rl.epochs", ATOLL_RL_PPO},
    {"rl.lambda", ATOLL_RL_PPO},  {"rl.clip", ATOLL_RL_PPO},           {"rl.entropy", ATOLL_RL_PPO},
    {"rl.value", ATOLL_RL_PPO},   {"rl.normalize", ATOLL_RL_PPO},
};

/* Whether the option has been given another value than its default; origin: by what. */
static int is_changed(const atoll_opts *opts, const atoll_opts *defaults, const char *key, const char **origin) {
  char value[ATOLL_OPT_STRING_MAX], before[ATOLL_OPT_STRING_MAX];
  const int k = atoll_opts_find(opts, key), d = atoll_opts_find(defaults, key);
  *origin = atoll_opts_origin(opts, k);
  return strcmp(atoll_opts_value(opts, k, value, sizeof value), atoll_opts_value(defaults, d, before, sizeof before)) !=
         0;
}

static atoll_err check_changed(const rl_job *job, const atoll_opts *opts, const atoll_opts *defaults) {
  const char *origin;
  for (size_t k = 0; k < sizeof of_one / sizeof *of_one; k++)
    if (of_one[k].algorithm != job->rl.algorithm && is_changed(opts, defaults, of_one[k].key, &origin))
      return atoll_fail(ATOLL_USAGE, "%s (%s) counts for nothing with rl.algorithm %s", of_one[k].key, origin,
                        job->rl.algorithm == ATOLL_RL_PPO ? "ppo" : "reinforce");
  if (strcmp(job->rl.environment, "free") != 0 && is_changed(opts, defaults, "rl.observation", &origin))
    return atoll_fail(ATOLL_USAGE, "rl.observation (%s) counts for nothing with rl.environment %s", origin,
                      job->rl.environment);
  if (job->rl.evaluate == 0 && is_changed(opts, defaults, "rl.evaluate_every", &origin))
    return atoll_fail(ATOLL_USAGE, "rl.evaluate_every (%s) counts for nothing with rl.evaluate 0", origin);
  return ATOLL_OK;
}

/* Refused rather than ignored. */
static atoll_err check_given(const rl_job *job, const atoll_opts *opts) {
  atoll_opts *defaults = NULL;
  rl_job unchanged;
  ATOLL_TRY(atoll_opts_create(&defaults));
  atoll_err err = job_init(&unchanged, defaults);
  if (err == ATOLL_OK)
    err = check_changed(job, opts, defaults);
  atoll_opts_destroy(&defaults);
  return err;
}

typedef struct session {
  rl_job *job;
  int rank, size, attempt;
  atoll_watch *watch;
  atoll_rundir *dir; /* rank 0 */
  char ckpt_dir[ATOLL_OPT_STRING_MAX + 8], about[256];
  char *options;
  const atoll_rl_env *env;
  atoll_rl *rl;
  record *record; /* rank 0 */
  atoll_rl_report *report;
  int64_t saved; /* iteration of the newest checkpoint, -1 none */
  char saved_dir[1024];
  double saved_at, last_loss, last_return;
} session;

/* ---- setting out ---- */

static atoll_err name_dir(rl_job *job) {
  const char *base = strrchr(job->file, '/');
  base = base ? base + 1 : job->file;
  int n = (int)strcspn(base, ".");
  if (job->run.dir[0])
    return ATOLL_OK;
  if (snprintf(job->run.dir, sizeof job->run.dir, "runs/%.*s", n ? n : 2, n ? base : "rl") >= (int)sizeof job->run.dir)
    return atoll_fail(ATOLL_USAGE, "job file name is too long for a run directory: give run.dir");
  return ATOLL_OK;
}

static atoll_err open_dir(session *s) {
  char log[ATOLL_OPT_STRING_MAX + 8];
  const char *dir = s->job->run.dir;
  atoll_err err = s->rank == 0 ? atoll_rundir_open(dir, &s->dir) : ATOLL_OK;
  if (s->dir)
    s->attempt = atoll_rundir_attempt(s->dir);
  ATOLL_TRY_ALL(MPI_COMM_WORLD, err);
  MPI_Bcast(&s->attempt, 1, MPI_INT, 0, MPI_COMM_WORLD);
  (void)snprintf(s->ckpt_dir, sizeof s->ckpt_dir, "%s/ckpt", dir);
  (void)snprintf(log, sizeof log, "%s/log", dir);
  ATOLL_TRY_ALL(MPI_COMM_WORLD, atoll_log_open(log, s->rank, s->attempt));
  return ATOLL_OK;
}

/* What a checkpoint must have been made for. */
static void describe(session *s) {
  const atoll_rl_params *p = &s->job->rl;
  (void)snprintf(s->about, sizeof s->about,
                 "%s, environment %s, observation %lld, seed %lld, hidden %lld, environments %lld",
                 p->algorithm == ATOLL_RL_PPO ? "ppo" : "reinforce", s->env->name, (long long)s->env->observation,
                 (long long)p->seed, (long long)p->hidden, (long long)p->environments);
}

static void digest_text(const session *s, char hex[33]) {
  (void)atoll_digest_text(atoll_digest_bytes(s->about, strlen(s->about)), hex);
}

static atoll_err find_checkpoint(session *s, char *dir, size_t n) {
  const char *resume = s->job->ckpt.resume;
  char *report = NULL;
  dir[0] = 0;
  if (!strcmp(resume, "none"))
    return ATOLL_OK;
  if (strcmp(resume, "auto") != 0) {
    (void)snprintf(dir, n, "%s", resume);
    ATOLL_TRY_ALL(MPI_COMM_WORLD, s->rank == 0 ? atoll_ckpt_verify(dir) : ATOLL_OK);
    return ATOLL_OK;
  }
  atoll_err err = atoll_ckpt_find(MPI_COMM_WORLD, s->ckpt_dir, dir, n, &report);
  if (s->rank == 0 && report && report[0] && err != ATOLL_IO)
    atoll_warn("%s", report);
  free(report);
  if (err != ATOLL_NOINPUT)
    return err;
  dir[0] = 0;
  atoll_err_clear();
  return ATOLL_OK;
}

/* Parameters are the same on all ranks: rank 0 saves them. */
static atoll_err list_tensors(const session *s, int to_save, atoll_tensor **out, int *n) {
  int all;
  const atoll_tensor *t = atoll_rl_tensors(s->rl, &all);
  *n = 0;
  *out = malloc((size_t)all * sizeof **out);
  if (!*out)
    return atoll_fail(ATOLL_NOMEM, "list of %d tensors", all);
  for (int k = 0; k < all; k++)
    if (!to_save || s->rank == 0 || !strncmp(t[k].name, "environment/", 12))
      (*out)[(*n)++] = t[k];
  return ATOLL_OK;
}

static atoll_err load_checkpoint(session *s, const char *dir) {
  atoll_ckpt_meta meta = {0};
  atoll_tensor *t = NULL;
  char digest[33];
  int n;
  digest_text(s, digest);
  ATOLL_TRY_ALL(MPI_COMM_WORLD, atoll_ckpt_read_meta(dir, &meta));
  int64_t iteration = meta.step;
  atoll_err err = ATOLL_OK;
  if (strcmp(meta.model_digest, digest) != 0)
    err = atoll_fail(ATOLL_MISMATCH, "checkpoint %s is not of %s: change run.dir, or give ckpt.resume=none", dir,
                     s->about);
  s->last_loss = meta.last_loss;
  atoll_ckpt_meta_free(&meta);
  ATOLL_TRY_ALL(MPI_COMM_WORLD, err);
  ATOLL_TRY_ALL(MPI_COMM_WORLD, list_tensors(s, 0, &t, &n));
  err = atoll_ckpt_load(MPI_COMM_WORLD, dir, t, n);
  free(t);
  ATOLL_TRY(err);
  atoll_rl_set_iteration(s->rl, iteration);
  s->saved = iteration;
  (void)snprintf(s->saved_dir, sizeof s->saved_dir, "%s", dir);
  if (s->rank == 0)
    atoll_say("resumed %s : iteration %lld", dir, (long long)iteration);
  return ATOLL_OK;
}

/* Told before the run, of which it is no part any more. */
static atoll_err check_trace(FILE *trace) {
  if (!trace || (fflush(trace) == 0 && !ferror(trace)))
    return ATOLL_OK;
  return atoll_fail(ATOLL_IO, "the file of --trace cannot be written to its end");
}

static atoll_err set_out(session *s, const atoll_opts *opts, FILE *trace) {
  char dir[1024];
  ATOLL_TRY_ALL(MPI_COMM_WORLD, name_dir(s->job));
  ATOLL_TRY_ALL(MPI_COMM_WORLD, atoll_stop_init_run(s->job->run.dir, s->job->run.time_limit, s->job->run.stop_margin));
  ATOLL_TRY_ALL(MPI_COMM_WORLD, atoll_opts_yaml(opts, &s->options));
  ATOLL_TRY_ALL(MPI_COMM_WORLD, atoll_rl_params_check(&s->job->rl, s->size));
  ATOLL_TRY_ALL(MPI_COMM_WORLD, check_given(s->job, opts));
  ATOLL_TRY_ALL(MPI_COMM_WORLD, atoll_rl_env_open(s->job->rl.environment, s->job->rl.observation, &s->env));
  describe(s);
  s->report = calloc((size_t)s->job->rl.chunk, sizeof *s->report);
  ATOLL_TRY_ALL(MPI_COMM_WORLD, s->report ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "reports of a chunk"));
  ATOLL_TRY(open_dir(s));
  double began = atoll_clock_now();
  ATOLL_TRY(atoll_rl_create(MPI_COMM_WORLD, s->env, &s->job->rl, s->rank == 0 ? trace : NULL, &s->rl));
  ATOLL_TRY_ALL(MPI_COMM_WORLD, check_trace(trace));
  int64_t peak;
  ATOLL_TRY_ALL(MPI_COMM_WORLD, atoll_rl_peak_bytes(s->rl, &peak));
  if (s->rank == 0)
    atoll_say("%s on %s , %lld environments , program in %.2f s , values take %.2f MB",
              s->job->rl.algorithm ? "ppo" : "reinforce", s->env->name, (long long)s->job->rl.environments,
              atoll_clock_now() - began, (double)peak / 1e6);
  ATOLL_TRY(find_checkpoint(s, dir, sizeof dir));
  if (dir[0])
    ATOLL_TRY(load_checkpoint(s, dir));
  ATOLL_TRY_ALL(MPI_COMM_WORLD, s->rank == 0 ? record_open(s->job->run.dir, s->attempt, atoll_rl_iteration(s->rl),
                                                           s->options, &s->record)
                                             : ATOLL_OK);
  return ATOLL_OK;
}

/* ---- on the way ---- */

static atoll_err save(session *s, const char *reason) {
  atoll_tensor *t = NULL;
  int n;
  if (s->saved == atoll_rl_iteration(s->rl))
    return ATOLL_OK;
  ATOLL_TRY_ALL(MPI_COMM_WORLD, s->dir ? atoll_rundir_keep(s->dir) : ATOLL_OK);
  ATOLL_TRY_ALL(MPI_COMM_WORLD, list_tensors(s, 1, &t, &n));
  atoll_ckpt_meta meta = {.step = atoll_rl_iteration(s->rl),
                          .attempt = s->attempt,
                          .seed = (uint64_t)s->job->rl.seed,
                          .last_loss = s->last_loss,
                          .best_validation = NAN,
                          .finite = 1,
                          .config = s->options};
  digest_text(s, meta.model_digest);
  (void)snprintf(meta.reason, sizeof meta.reason, "%s", reason);
  atoll_watch_begin(s->watch, "checkpoint", 0);
  atoll_err err = atoll_ckpt_save(MPI_COMM_WORLD, s->watch, NULL, s->ckpt_dir, &s->job->ckpt, &meta, t, n, s->saved_dir,
                                  sizeof s->saved_dir);
  atoll_watch_end(s->watch);
  free(t);
  ATOLL_TRY(err);
  s->saved = meta.step;
  s->saved_at = atoll_clock_now();
  if (atoll_ckpt_retain(MPI_COMM_WORLD, s->ckpt_dir, s->job->ckpt.keep, s->attempt) != ATOLL_OK && s->rank == 0)
    atoll_warn("old checkpoints stay: %s", atoll_err_message());
  return ATOLL_OK;
}

/* A clock decides for all: that of rank 0. */
static int save_due(const session *s, int64_t before) {
  const atoll_ckpt_params *c = &s->job->ckpt;
  int due = c->every_seconds > 0 && atoll_clock_now() - s->saved_at >= c->every_seconds;
  MPI_Bcast(&due, 1, MPI_INT, 0, MPI_COMM_WORLD);
  return due || (c->every_steps > 0 && before / c->every_steps != atoll_rl_iteration(s->rl) / c->every_steps);
}

static atoll_err keep_rows(session *s, int64_t k, double seconds) {
  const int64_t per = s->job->rl.environments * s->job->rl.steps;
  for (int64_t i = 0; i < k; i++) {
    const atoll_rl_report *r = &s->report[i];
    const record_row row = {.step = r->iteration,
                            .environment_steps = r->iteration * per,
                            .episodes = r->episodes,
                            .mean_return = r->mean_return,
                            .mean_length = r->mean_length,
                            .reward = r->reward,
                            .loss = r->loss,
                            .gradient_norm = r->gradient_norm,
                            .step_seconds = seconds / (double)k,
                            .steps_per_second = (double)(per * k) / seconds,
                            .attempt = s->attempt};
    ATOLL_TRY(record_add(s->record, &row));
  }
  ATOLL_TRY(atoll_rundir_keep(s->dir));
  return record_publish(s->record, "running");
}

static void tell(session *s, int64_t k, double seconds) {
  const atoll_rl_params *p = &s->job->rl;
  double sum = 0, episodes = 0, reward = 0;
  for (int64_t i = 0; i < k; i++) {
    episodes += (double)s->report[i].episodes;
    sum += s->report[i].episodes ? s->report[i].mean_return * (double)s->report[i].episodes : 0;
    reward += s->report[i].reward / (double)k;
  }
  s->last_loss = s->report[k - 1].loss;
  if (s->rank != 0)
    return;
  char returns[64] = "";
  if (episodes > 0)
    (void)snprintf(returns, sizeof returns, " , return %.2f over %.0f episodes", sum / episodes, episodes);
  atoll_progress("iteration %lld / %lld , reward %.4f%s , %.0f steps/s", (long long)s->report[k - 1].iteration,
                 (long long)p->iterations, reward, returns, (double)(k * p->steps * p->environments) / seconds);
}

/* The loss or its gradient is no number any more: parameters are lost from there on. */
static atoll_err check_finite(const session *s, int64_t k) {
  char checkpoint[64] = "there is no checkpoint";
  if (s->saved >= 0)
    (void)snprintf(checkpoint, sizeof checkpoint, "the last checkpoint is of iteration %lld", (long long)s->saved);
  for (int64_t i = 0; i < k; i++)
    if (!isfinite(s->report[i].loss) || !isfinite(s->report[i].gradient_norm))
      return atoll_fail(ATOLL_NONFINITE, "iteration %lld: loss %g, gradient norm %g; %s",
                        (long long)s->report[i].iteration, s->report[i].loss, s->report[i].gradient_norm, checkpoint);
  return ATOLL_OK;
}

static atoll_err learn_chunk(session *s) {
  const atoll_rl_params *p = &s->job->rl;
  int64_t left = p->iterations - atoll_rl_iteration(s->rl), k = left < p->chunk ? left : p->chunk;
  double began = atoll_clock_now();
  atoll_fault_point("rl.chunk");
  atoll_watch_begin(s->watch, "learn", 0);
  atoll_err err = atoll_rl_learn(s->rl, k, s->report);
  atoll_watch_end(s->watch);
  ATOLL_TRY(atoll_rl_leave_alone(s->rl, s->watch, err));
  ATOLL_TRY(check_finite(s, k));
  double seconds = atoll_clock_now() - began;
  tell(s, k, seconds);
  if (s->rank == 0 && keep_rows(s, k, seconds) != ATOLL_OK)
    atoll_warn("run.h5: %s", atoll_err_message());
  return ATOLL_OK;
}

static atoll_err evaluate(session *s) {
  if (s->job->rl.evaluate == 0)
    return ATOLL_OK;
  record_evaluation e = {.validation_step = atoll_rl_iteration(s->rl), .validation_attempt = s->attempt};
  atoll_watch_begin(s->watch, "evaluate", 0);
  atoll_err err = atoll_rl_evaluate(s->rl, s->job->rl.evaluate, &e.validation_return);
  atoll_watch_end(s->watch);
  ATOLL_TRY(err);
  s->last_return = e.validation_return;
  if (s->rank != 0)
    return ATOLL_OK;
  atoll_say("evaluation , iteration %lld , mean return %.2f over %lld episodes", (long long)e.validation_step,
            e.validation_return, (long long)s->job->rl.evaluate);
  return record_add_evaluation(s->record, &e);
}

static int crossed(int64_t every, int64_t before, int64_t now) { return every > 0 && before / every != now / every; }

static atoll_err learn(session *s, atoll_stop_reason *stopped, char *why, size_t n) {
  const atoll_rl_params *p = &s->job->rl;
  *stopped = ATOLL_STOP_NONE;
  while (atoll_rl_iteration(s->rl) < p->iterations) {
    int64_t before = atoll_rl_iteration(s->rl);
    ATOLL_TRY(atoll_stop_poll(MPI_COMM_WORLD, stopped, why, n));
    if (*stopped != ATOLL_STOP_NONE)
      return ATOLL_OK;
    ATOLL_TRY(learn_chunk(s));
    int64_t now = atoll_rl_iteration(s->rl);
    if (crossed(p->evaluate_every, before, now) && now < p->iterations)
      ATOLL_TRY_ALL(MPI_COMM_WORLD, evaluate(s));
    if (save_due(s, before) && now < p->iterations)
      ATOLL_TRY(save(s, "periodic"));
  }
  return ATOLL_OK;
}

static atoll_err walk(session *s, char *why, size_t n) {
  atoll_stop_reason stopped = ATOLL_STOP_NONE;
  atoll_err err = learn(s, &stopped, why, n);
  if (err == ATOLL_OK && stopped == ATOLL_STOP_NONE)
    err = atoll_agree(MPI_COMM_WORLD, evaluate(s));
  if (err == ATOLL_OK)
    err = save(s, stopped == ATOLL_STOP_NONE ? "final" : "stop");
  if (err == ATOLL_OK && stopped != ATOLL_STOP_NONE && s->job->run.requeue_ok)
    err = atoll_fail(ATOLL_STOPPED, "%s", why);
  if (err == ATOLL_OK && stopped == ATOLL_STOP_NONE)
    (void)snprintf(why, n, "finished");
  return err;
}

/* ---- the ways out ---- */

static void write_exit(const session *s, atoll_err code, const char *reason) {
  atoll_exit_record r = {.code = code, .last_step = s->saved, .attempt = s->attempt};
  (void)snprintf(r.reason, sizeof r.reason, "%s", reason);
  if (s->attempt > 0 && atoll_rundir_write_exit(s->job->run.dir, &r) != ATOLL_OK)
    atoll_warn("exit record not written: %s", atoll_err_message());
}

static void on_abort(void *arg, atoll_err code, const char *reason) { write_exit(arg, code, reason); }

static void leave(session *s, atoll_err err, const char *reason) {
  const int ours = s->dir && atoll_rundir_keep(s->dir) == ATOLL_OK;
  if (ours && s->record &&
      record_publish(s->record, err == ATOLL_OK        ? "finished"
                                : err == ATOLL_STOPPED ? "stopped"
                                                       : "failed"))
    atoll_warn("run.h5: %s", atoll_err_message());
  if (ours)
    write_exit(s, err, reason);
  record_close(&s->record);
  atoll_rl_destroy(&s->rl);
  atoll_rl_env_close(&s->env);
  atoll_rundir_close(&s->dir);
  free(s->report);
  free(s->options);
}

atoll_err job_run(rl_job *job, const atoll_opts *opts, FILE *trace) {
  session s = {.job = job, .saved = -1, .saved_at = atoll_clock_now(), .last_loss = NAN, .last_return = NAN};
  atoll_watch_params w;
  char why[256] = "", message[ATOLL_MESSAGE_MAX];
  MPI_Comm_rank(MPI_COMM_WORLD, &s.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &s.size);
  atoll_watch_params_init(&w);
  w.silence_seconds = job->run.silence;
  w.phase_seconds = job->run.phase_limit;
  ATOLL_TRY_ALL(MPI_COMM_WORLD, atoll_watch_start(MPI_COMM_WORLD, &w, &s.watch));
  atoll_watch_on_abort(s.watch, on_abort, &s);
  atoll_watch_begin(s.watch, "start", 0);
  atoll_err err = set_out(&s, opts, trace);
  atoll_watch_end(s.watch);
  if (err == ATOLL_OK)
    err = walk(&s, why, sizeof why);
  (void)snprintf(message, sizeof message, "%s", atoll_err_message());
  if (s.rank == 0 && (err == ATOLL_OK || err == ATOLL_STOPPED)) {
    atoll_say("%s : iteration %lld%s", why, (long long)atoll_rl_iteration(s.rl),
              err == ATOLL_STOPPED ? " , requeue to continue" : "");
    atoll_say("results in %s/run.h5 , checkpoint %s", job->run.dir, s.saved_dir[0] ? s.saved_dir : "none");
  }
  leave(&s, err, err == ATOLL_OK || err == ATOLL_STOPPED ? why : message);
  atoll_watch_stop(&s.watch);
  atoll_stop_finish();
  if (err != ATOLL_OK)
    atoll_err_set_message(message);
  return err;
}
