/** Stopping early, together, at a step boundary.
 *
 *  TERM, INT, USR1, USR2 and HUP ask; so do a deadline and a halt file. One rank that was asked is enough:
 * atoll_stop_poll() agrees. A second signal after the first (more than a second later) aborts with ABORTED: the handler
 * only sets a flag, the watch or the next poll ends the job, and an alarm ends this process by _exit(79) five seconds
 * later should neither run. */
#ifndef ATOLL_STOP_H
#define ATOLL_STOP_H

#include <mpi.h>

#include "atoll/err.h"

ATOLL_BEGIN_C

typedef enum atoll_stop_reason {
  ATOLL_STOP_NONE,
  ATOLL_STOP_SIGNAL,
  ATOLL_STOP_DEADLINE,
  ATOLL_STOP_HALT_FILE,
  ATOLL_STOP_REQUEST
} atoll_stop_reason;

typedef struct atoll_stop_params {
  double time_limit; /* seconds this attempt may run from now; 0 = none */
  double margin; /* stop this many seconds before the limit (checkpoint time and safety); the caller may raise it later;
                    30 */
  const char *halt_file; /* path that stops the run when it exists; NULL = none; looked at by rank 0 only */
} atoll_stop_params;
ATOLL_API void atoll_stop_params_init(atoll_stop_params *p);

/** Local; installs handlers, and ignores SIGXFSZ and SIGPIPE so that a file-size limit and a closed pipe show as write
 * errors. Time limit zero: the end is read from SLURM_JOB_END_TIME when set. */
ATOLL_API atoll_err atoll_stop_init(const atoll_stop_params *params);
/** The same for a run: `halt` in its directory is the file that stops it. Called before the set-up, so that a signal
 * that comes during it stops the run at its first step. USAGE: a limit that is no more than its margin, which would
 * stop every attempt before its first step. */
ATOLL_API atoll_err atoll_stop_init_run(const char *dir, double time_limit, double margin);
ATOLL_API void atoll_stop_set_margin(double seconds);
/** Local: ask from code. */
ATOLL_API void atoll_stop_request(const char *why);
/** Collective (one small reduction). *reason is the same everywhere; `text` (n bytes) says e.g. "signal USR1 on rank
 * 3". */
ATOLL_API atoll_err atoll_stop_poll(MPI_Comm comm, atoll_stop_reason *reason, char *text, size_t n);
/** Local: 1 when this rank has been asked (no agreement). */
ATOLL_API int atoll_stop_pending(void);
/** Restores the previous handlers. */
ATOLL_API void atoll_stop_finish(void);

ATOLL_END_C
#endif
