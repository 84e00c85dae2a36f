/* Stopping early, together.
 *
 *  A handler may only set flags: what it may call is little, and MPI is not among it. The first signal is remembered
 * and agreed on at the next poll. Launchers deliver the same signal twice (to the step and by forwarding), so a second
 * one counts only when more than a second has passed; then the watch, or the next poll, ends the job by MPI_Abort.
 * Should neither run, an alarm set by the handler ends this process with the same status five seconds later, and the
 * launcher ends the others. */
#include "atoll/stop.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agree_impl.h"
#include "atoll/clock.h"
#include "watch_impl.h"

#define ABORT_SECONDS 5
#define WHY_MAX       256

static const int signals[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP};
static const char *const signal_names[] = {"TERM", "INT", "USR1", "USR2", "HUP"};
#define SIGNALS ((int)(sizeof signals / sizeof signals[0]))

static atomic_int asked_signal, abort_signal, requested;
static atomic_llong asked_ns; /* monotonic time of the first signal */
static struct sigaction previous[SIGNALS];
static int installed;
static double end_now, end_wall; /* 0: none */
static _Atomic double margin;
static char halt_file[4096];
static char why[WHY_MAX]; /* written once, before `requested` is 2 */

int stop_abort_signal(void) { return atomic_load(&abort_signal); }

const char *stop_signal_name(int signal) {
  for (int i = 0; i < SIGNALS; i++)
    if (signals[i] == signal)
      return signal_names[i];
  return "?";
}

static void on_alarm(int signal) {
  static const char text[] = "ABORTED: a second signal; the job did not end by MPI_Abort in time\n";
  (void)signal;
  ssize_t ignored = write(STDERR_FILENO, text, sizeof text - 1);
  (void)ignored;
  _exit(ATOLL_ABORTED);
}

static void on_signal(int signal) {
  int saved = errno;
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  long long now = t.tv_sec * 1000000000LL + t.tv_nsec, first = 0;
  int none = 0;
  if (atomic_compare_exchange_strong(&asked_ns, &first, now)) {
    atomic_store(&asked_signal, signal);
  } else if (now - first > 1000000000LL && atomic_compare_exchange_strong(&abort_signal, &none, signal)) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_alarm;
    sigaction(SIGALRM, &action, NULL);
    alarm(ABORT_SECONDS);
  }
  errno = saved;
}

void atoll_stop_params_init(atoll_stop_params *p) { *p = (atoll_stop_params){.margin = 30}; }

atoll_err atoll_stop_init(const atoll_stop_params *params) {
  if (installed)
    return atoll_fail(ATOLL_USAGE, "atoll_stop_init was called before");
  if (!(params->time_limit >= 0) || !(params->margin >= 0))
    return atoll_fail(ATOLL_USAGE, "time limit %g s, margin %g s: both must be at least 0", params->time_limit,
                      params->margin);
  if (params->halt_file && strlen(params->halt_file) >= sizeof halt_file)
    return atoll_fail(ATOLL_USAGE, "halt file: a path of %zu bytes, at most %zu", strlen(params->halt_file),
                      sizeof halt_file - 1);
  double wall = 0;
  const char *end = getenv("SLURM_JOB_END_TIME");
  if (params->time_limit == 0 && end && *end) {
    char *rest;
    wall = strtod(end, &rest);
    if (*rest || !(wall > 0))
      return atoll_fail(ATOLL_USAGE, "SLURM_JOB_END_TIME is '%s', expected seconds since 1970", end);
  }
  snprintf(halt_file, sizeof halt_file, "%s", params->halt_file ? params->halt_file : "");
  end_now = params->time_limit > 0 ? atoll_clock_now() + params->time_limit : 0;
  end_wall = wall;
  atomic_store(&margin, params->margin);
  atomic_store(&asked_signal, 0);
  atomic_store(&abort_signal, 0);
  atomic_store(&asked_ns, 0);
  atomic_store(&requested, 0);
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (int i = 0; i < SIGNALS; i++)
    if (sigaction(signals[i], &action, &previous[i]) != 0) {
      int failed = errno;
      while (--i >= 0)
        sigaction(signals[i], &previous[i], NULL);
      return atoll_fail(ATOLL_INTERNAL, "signal handlers: %s", strerror(failed));
    }
  /* A write beyond RLIMIT_FSIZE (EFBIG), or to a reader of the story that has gone (EPIPE), is an error to report, not
   * the death of the run. Stays so after atoll_stop_finish(). */
  signal(SIGXFSZ, SIG_IGN);
  signal(SIGPIPE, SIG_IGN);
  installed = 1;
  return ATOLL_OK;
}

atoll_err atoll_stop_init_run(const char *dir, double time_limit, double stop_margin) {
  char halt[sizeof halt_file + 8];
  if (time_limit > 0 && time_limit <= stop_margin)
    return atoll_fail(ATOLL_USAGE, "run.time_limit %g s is no more than run.stop_margin %g s: there is no time to run",
                      time_limit, stop_margin);
  snprintf(halt, sizeof halt, "%s/halt", dir);
  return atoll_stop_init(&(atoll_stop_params){time_limit, stop_margin, halt});
}

void atoll_stop_finish(void) {
  if (!installed)
    return;
  for (int i = 0; i < SIGNALS; i++)
    sigaction(signals[i], &previous[i], NULL);
  installed = 0;
}

void atoll_stop_set_margin(double seconds) {
  if (seconds >= 0)
    atomic_store(&margin, seconds);
}

void atoll_stop_request(const char *reason) {
  int none = 0;
  if (!atomic_compare_exchange_strong(&requested, &none, 1))
    return;
  snprintf(why, sizeof why, "%s", reason ? reason : "asked by the program");
  atomic_store(&requested, 2);
}

static int deadline_reached(void) {
  double m = atomic_load(&margin);
  return (end_now > 0 && atoll_clock_now() >= end_now - m) || (end_wall > 0 && atoll_clock_wall() >= end_wall - m);
}

/* The reasons known without looking at the file system. */
static atoll_stop_reason own_reason(void) {
  if (atomic_load(&asked_signal))
    return ATOLL_STOP_SIGNAL;
  if (deadline_reached())
    return ATOLL_STOP_DEADLINE;
  if (atomic_load(&requested) == 2)
    return ATOLL_STOP_REQUEST;
  return ATOLL_STOP_NONE;
}

int atoll_stop_pending(void) { return own_reason() != ATOLL_STOP_NONE; }

atoll_err atoll_stop_poll(MPI_Comm comm, atoll_stop_reason *reason, char *text, size_t n) {
  int rank;
  ATOLL_TRY(mpi_check(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank"));
  int again = atomic_load(&abort_signal);
  if (again) {
    atoll_fail(ATOLL_ABORTED, "a second signal, %s, on rank %d", stop_signal_name(again), rank);
    atoll_abort(watch_current(), ATOLL_ABORTED);
  }
  atoll_stop_reason mine = own_reason();
  if ((mine == ATOLL_STOP_NONE || mine == ATOLL_STOP_REQUEST) && rank == 0 && halt_file[0] &&
      access(halt_file, F_OK) == 0)
    mine = ATOLL_STOP_HALT_FILE;
  /* One number carries everything: the reason that comes first in the list, the signal, the lowest rank. */
  int64_t key = 0, most = 0;
  if (mine != ATOLL_STOP_NONE)
    key = (int64_t)(ATOLL_STOP_REQUEST + 1 - mine) << 48 |
          (int64_t)(mine == ATOLL_STOP_SIGNAL ? atomic_load(&asked_signal) : 0) << 32 | (INT_MAX - rank);
  MPI_Request request;
  int rc = MPI_Iallreduce(&key, &most, 1, MPI_INT64_T, MPI_MAX, comm, &request);
  ATOLL_TRY(mpi_finish(rc, &request, "MPI_Iallreduce"));
  if (n)
    text[0] = 0;
  if (!most) {
    *reason = ATOLL_STOP_NONE;
    return ATOLL_OK;
  }
  atoll_stop_reason agreed = (atoll_stop_reason)(ATOLL_STOP_REQUEST + 1 - (int)(most >> 48));
  int signal = (int)(most >> 32 & 0xffff), who = INT_MAX - (int)(most & INT_MAX);
  char told[WHY_MAX] = "";
  if (agreed == ATOLL_STOP_REQUEST) {
    if (rank == who)
      memcpy(told, why, sizeof told);
    rc = MPI_Ibcast(told, (int)sizeof told, MPI_BYTE, who, comm, &request);
    ATOLL_TRY(mpi_finish(rc, &request, "MPI_Ibcast"));
    told[sizeof told - 1] = 0;
  }
  switch (agreed) {
  case ATOLL_STOP_SIGNAL:
    snprintf(text, n, "signal %s on rank %d", stop_signal_name(signal), who);
    break;
  case ATOLL_STOP_DEADLINE:
    snprintf(text, n, "time limit, seen by rank %d", who);
    break;
  case ATOLL_STOP_HALT_FILE:
    snprintf(text, n, "halt file %s", halt_file);
    break;
  default:
    snprintf(text, n, "%s (rank %d)", told, who);
  }
  *reason = agreed;
  return ATOLL_OK;
}
