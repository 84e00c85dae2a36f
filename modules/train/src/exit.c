/* Ways out: the exit record, and the path of a failure that one rank alone met. */
#include "session.h"

#include <stdlib.h>

#include "atoll/log.h"

/* An attempt that failed before it found its checkpoint leaves those of the attempts before it as good as they were. */
static int64_t newest_step(const char *ckpt_dir) {
  char **dirs;
  int64_t *steps, newest;
  size_t n;
  if (atoll_ckpt_list(ckpt_dir, &dirs, &steps, &n) != ATOLL_OK) {
    atoll_err_clear();
    return -1;
  }
  newest = n > 0 ? steps[n - 1] : -1;
  for (size_t i = 0; i < n; i++)
    free(dirs[i]);
  free(dirs);
  free(steps);
  return newest;
}

void session_write_exit(const session *s, atoll_err code, const char *reason) {
  atoll_exit_record r = {.code = code, .last_step = s->saved_step, .attempt = s->attempt};
  if (r.last_step < 0 && s->ckpt_dir[0])
    r.last_step = newest_step(s->ckpt_dir);
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
