/* One step at a time, without a run directory: what benchmarks and tests drive. */
#include "session.h"

#include <stdlib.h>

struct atoll_trainer {
  session s;
};

atoll_err atoll_trainer_open(MPI_Comm comm, atoll_job *job, const atoll_opts *opts, atoll_trainer **out) {
  atoll_trainer *t = calloc(1, sizeof *t);
  ATOLL_TRY_ALL(comm, t ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "trainer"));
  atoll_err err = session_open(comm, job, opts, 1, &t->s);
  if (err != ATOLL_OK)
    atoll_trainer_close(&t);
  *out = t;
  return err;
}

atoll_err atoll_trainer_step(atoll_trainer *t, atoll_step_report *report) {
  record_row row;
  atoll_watch_begin(t->s.watch, "step", 0);
  atoll_err err = session_leave_alone(&t->s, session_step(&t->s, &row, report));
  atoll_watch_end(t->s.watch);
  return err;
}

atoll_err atoll_trainer_validate(atoll_trainer *t, double *loss) {
  if (!t->s.validation)
    return atoll_fail(ATOLL_NOINPUT, "the job has no held-out data");
  atoll_watch_begin(t->s.watch, "validate", 0);
  atoll_err err = session_leave_alone(&t->s, session_validate(&t->s, loss));
  atoll_watch_end(t->s.watch);
  return err;
}

atoll_err atoll_trainer_predict(atoll_trainer *t, double seconds, double *step_seconds) {
  return session_leave_alone(&t->s, session_predict(&t->s, seconds, step_seconds));
}

const atoll_plan *atoll_trainer_plan(const atoll_trainer *t) { return t->s.plan; }
const atoll_model *atoll_trainer_model(const atoll_trainer *t) { return t->s.model; }
int atoll_trainer_threads(const atoll_trainer *t) { return t->s.threads; }
const atoll_mem *atoll_trainer_mem(const atoll_trainer *t) { return t->s.mem; }

atoll_err atoll_trainer_tensors(atoll_trainer *t, atoll_stage_what what, const atoll_tensor **tensors, int *n) {
  const int *index;
  *n = 0;
  return t->s.stage ? atoll_stage_tensors(t->s.stage, what, tensors, &index, n) : ATOLL_OK;
}

void atoll_trainer_close(atoll_trainer **t) {
  if (!t || !*t)
    return;
  session_close(&(*t)->s);
  free(*t);
  *t = NULL;
}
