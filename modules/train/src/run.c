/* The loop over steps, and the ways out of it.
 *
 * A failure that every rank sees alike (agreed, or computed from the same numbers) ends the run in order: no rank waits
 * for another. A failure that one rank alone meets in the middle of a step would leave its peers waiting for messages,
 * so that rank reports it, writes the exit record and aborts all. Either way the last committed checkpoint is
 * untouched. */
#include "session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "atoll/clock.h"
#include "atoll/fault.h"
#include "atoll/file.h"
#include "atoll/log.h"

/* ---- the story ----------------------------------------------------------------------------------------------------
 */

static void format_left(double seconds, char *buf, size_t n) {
  long s = seconds > 0 ? (long)(seconds + 0.5) : 0;
  if (s >= 3600)
    snprintf(buf, n, "%ldh%02ldm", s / 3600, s / 60 % 60);
  else
    snprintf(buf, n, "%ldm%02lds", s / 60, s % 60);
}

/* Time left by the median of the last steps. All of them would take ever longer to sort, and tell less. */
enum { RECENT = 32 };

typedef struct recent_steps {
  double v[RECENT];
  int64_t n;
} recent_steps;

static double recent_median(const recent_steps *r) {
  double v[RECENT];
  memcpy(v, r->v, sizeof v);
  return durations_median(&(durations){.v = v, .n = (size_t)(r->n < RECENT ? r->n : RECENT)});
}

static void tell_step(const session *s, const record_row *row, const recent_steps *seconds) {
  const atoll_train_params *t = &s->job->train;
  char left[32], share[32] = "";
  int due = s->step % t->log_every == 0 || s->step == t->steps || row->skipped;
  if (!due && !atoll_log_interactive())
    return;
  format_left(recent_median(seconds) * (double)(t->steps - s->step), left, sizeof left);
  if (isfinite(row->ceiling_fraction))
    snprintf(share, sizeof share, " , %.0f %% of ceiling", 100 * row->ceiling_fraction);
  atoll_progress("step %lld / %lld , loss %.4f , norm %.3f , lr %.2e , %.0f tokens/s%s , left %s", (long long)s->step,
                 (long long)t->steps, row->loss, row->gradient_norm, row->learning_rate, row->tokens_per_second, share,
                 left);
}

/* ---- periodic work ------------------------------------------------------------------------------------------------
 */

static atoll_err validate(session *s) {
  if (!s->validation)
    return ATOLL_OK;
  atoll_watch_begin(s->watch, "validate", 0);
  atoll_err err = session_leave_alone(s, session_validate(s, &s->validation_loss));
  atoll_watch_end(s->watch);
  ATOLL_TRY(err);
  if (!(s->validation_loss >= s->best_validation))
    s->best_validation = s->validation_loss;
  if (s->rank == 0) {
    record_validation(s->record, s->step, s->validation_loss);
    atoll_say("validation , step %lld , loss %.4f nat/token , best %.4f", (long long)s->step, s->validation_loss,
              s->best_validation);
  }
  return ATOLL_OK;
}

/* A periodic checkpoint that the file system refuses is reported and the training goes on: the previous one is intact,
 * and space may come back. At the end, or when stopping, the refusal is the run's result; so it is when the run
 * directory has become another job's. */
static atoll_err save(session *s, const char *reason, int must) {
  if (s->saved_step == s->step)
    return ATOLL_OK;
  atoll_watch_begin(s->watch, "checkpoint", 0);
  atoll_err err = session_save(s, reason);
  atoll_watch_end(s->watch);
  s->save_failed = err != ATOLL_OK;
  if (err == ATOLL_OK || must || err == ATOLL_BUSY)
    return err;
  s->saved_at = atoll_clock_now();
  char kept[64] = "no step is committed yet";
  if (s->saved_step >= 0)
    snprintf(kept, sizeof kept, "step %lld is still good", (long long)s->saved_step);
  if (s->rank == 0)
    atoll_warn("checkpoint at step %lld failed, training goes on, %s: %s", (long long)s->step, kept,
               atoll_err_message());
  atoll_err_clear();
  return ATOLL_OK;
}

/* Every rank must answer alike, so the clock that decides is rank 0's. */
static atoll_err save_due(session *s, int *due) {
  const atoll_ckpt_params *c = &s->job->ckpt;
  *due = c->every_steps > 0 && s->step % c->every_steps == 0;
  if (c->every_seconds <= 0)
    return ATOLL_OK;
  double late = s->rank == 0 && atoll_clock_now() - s->saved_at >= c->every_seconds ? 1 : 0;
  ATOLL_TRY(atoll_comm_broadcast(s->world, s->out, &late, 1, ATOLL_F64, 0, NULL));
  ATOLL_TRY(atoll_queue_sync(s->out));
  *due |= late > 0;
  return ATOLL_OK;
}

/* ---- the loop -----------------------------------------------------------------------------------------------------
 */

static atoll_err train_steps(session *s, atoll_stop_reason *stopped, char *why, size_t n) {
  const atoll_train_params *t = &s->job->train;
  recent_steps seconds = {{0}, 0};
  atoll_err err = ATOLL_OK;
  *stopped = ATOLL_STOP_NONE;
  while (s->step < t->steps) {
    atoll_stop_set_margin(s->job->run.stop_margin + 2 * s->save_seconds + 1.5 * s->step_seconds);
    ATOLL_TRY_GOTO(err, done, atoll_stop_poll(s->mpi, stopped, why, n));
    if (*stopped != ATOLL_STOP_NONE)
      break;
    record_row row;
    atoll_step_report report;
    atoll_fault_point("train.step");
    atoll_watch_begin(s->watch, "step", 0);
    err = session_leave_alone(s, session_step(s, &row, &report));
    atoll_watch_end(s->watch);
    if (s->rank == 0 && (err == ATOLL_OK || err == ATOLL_NONFINITE)) {
      atoll_perf_begin(s->perf, s->region[REGION_RECORD]);
      seconds.v[seconds.n++ % RECENT] = row.step_seconds;
      record_step(s->record, &row);
      tell_step(s, &row, &seconds);
      atoll_perf_end(s->perf, s->region[REGION_RECORD]);
    }
    if (err != ATOLL_OK)
      goto done;
    int due;
    if (t->validate_every > 0 && s->step % t->validate_every == 0 && s->step < t->steps)
      ATOLL_TRY_GOTO(err, done, validate(s));
    ATOLL_TRY_GOTO(err, done, save_due(s, &due));
    if (due && s->step < t->steps) {
      ATOLL_TRY_GOTO(err, done, save(s, "periodic", 0));
      ATOLL_TRY_GOTO(err, done, session_publish(s, "running"));
    }
  }
done:
  return err;
}

static atoll_err write_trace(session *s) {
  char *mine = NULL;
  size_t bytes = 0;
  void *all = NULL;
  int64_t *offset = NULL;
  ATOLL_TRY_ALL(s->mpi, atoll_perf_trace_json(s->perf, s->rank, &mine, &bytes));
  atoll_err err = atoll_gather_bytes(s->mpi, mine, (int64_t)bytes, &all, &offset);
  free(mine);
  if (err == ATOLL_OK && s->rank == 0) {
    char path[ATOLL_OPT_STRING_MAX + 16], *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    if (!f) {
      err = atoll_fail(ATOLL_NOMEM, "trace of %d ranks", s->size);
    } else {
      int some = 0;
      fputs("{\"traceEvents\": [\n", f);
      for (int r = 0; r < s->size; r++) {
        int64_t k = offset[r + 1] - offset[r];
        if (k == 0)
          continue;
        if (some++)
          fputs(",\n", f);
        fwrite((char *)all + offset[r], 1, (size_t)k, f);
      }
      fputs("\n]}\n", f);
      fclose(f);
      snprintf(path, sizeof path, "%s/trace.json", s->run_dir);
      err = atoll_file_replace(path, text, n);
      free(text);
    }
  }
  free(all);
  free(offset);
  return atoll_agree(s->mpi, err);
}

static atoll_err train_loop(session *s, atoll_train_result *result) {
  atoll_stop_reason stopped = ATOLL_STOP_NONE;
  char why[sizeof result->reason] = "";
  if (s->rank == 0 && s->step >= s->job->train.steps)
    atoll_say("nothing to train: step %lld of %lld", (long long)s->step, (long long)s->job->train.steps);
  atoll_err err = train_steps(s, &stopped, why, sizeof why);
  if (err == ATOLL_OK && stopped == ATOLL_STOP_NONE)
    err = validate(s);
  if (err == ATOLL_OK)
    err = save(s, stopped == ATOLL_STOP_NONE ? "final" : "stop", 1);
  if (err == ATOLL_OK && s->job->run.trace && write_trace(s) != ATOLL_OK && s->rank == 0)
    atoll_warn("trace not written: %s", atoll_err_message());
  if (err == ATOLL_OK && stopped != ATOLL_STOP_NONE && s->job->run.requeue_ok)
    err = atoll_fail(ATOLL_STOPPED, "%s", why);
  snprintf(result->reason, sizeof result->reason, "%s",
           err == ATOLL_OK && stopped == ATOLL_STOP_NONE ? "finished"
           : err == ATOLL_OK                             ? why
                                                         : atoll_err_message());
  char message[ATOLL_MESSAGE_MAX];
  snprintf(message, sizeof message, "%s", atoll_err_message());
  /* Ranks agree here, so the accounts can still be gathered after an agreed failure. */
  atoll_err published = session_publish(s, err == ATOLL_OK ? "finished" : err == ATOLL_STOPPED ? "stopped" : "failed");
  if (err == ATOLL_OK)
    return published;
  atoll_err_set_message(message);
  return err;
}

atoll_err atoll_train_run(MPI_Comm comm, atoll_job *job, const atoll_opts *opts, atoll_train_result *result) {
  session s;
  memset(result, 0, sizeof *result);
  result->loss = result->validation_loss = NAN;
  char message[ATOLL_MESSAGE_MAX];
  ATOLL_TRY_ALL(comm, atoll_stop_init_run(job->run.dir, job->run.time_limit, job->run.stop_margin));
  atoll_err err = session_open(comm, job, opts, 0, &s);
  if (err == ATOLL_OK) {
    err = train_loop(&s, result);
  } else {
    snprintf(result->reason, sizeof result->reason, "%s", atoll_err_message());
  }
  snprintf(message, sizeof message, "%s", atoll_err_message());
  result->steps_done = s.step;
  result->skipped = s.skipped;
  result->loss = s.last_loss;
  result->validation_loss = s.validation_loss;
  snprintf(result->checkpoint, sizeof result->checkpoint, "%s", s.saved_dir);
  if (s.rank == 0 && s.dir && atoll_rundir_keep(s.dir) == ATOLL_OK)
    session_write_exit(&s, err, result->reason);
  session_close(&s);
  atoll_stop_finish();
  if (err != ATOLL_OK)
    atoll_err_set_message(message);
  return err;
}
