/* Ways out: the exit record, and the path of a failure that one rank alone met. */
#include "session.h"

#include "atoll/log.h"

void session_write_exit(const session *s, atoll_err code, const char *reason) {
  atoll_exit_record r = {.code = code, .last_step = s->saved_step, .attempt = s->attempt};
  snprintf(r.reason, sizeof r.reason, "%s", reason);
  if (s->run_dir[0] && atoll_rundir_write_exit(s->run_dir, &r) != ATOLL_OK)
    atoll_warn("exit record not written: %s", atoll_err_message());
}

void session_on_abort(void *session_of_rank, atoll_err code, const char *reason) {
  session_write_exit(session_of_rank, code, reason);
}

atoll_err session_leave_alone(session *s, atoll_err err) {
  if (err == ATOLL_OK || err == ATOLL_NONFINITE || s->size == 1)
    return err;
  atoll_abort(s->watch, err);
}
