/** Ranks leave together. All functions are collective on comm unless said otherwise. */
#ifndef ATOLL_AGREE_H
#define ATOLL_AGREE_H

#include <mpi.h>

#include "atoll/digest.h"
#include "atoll/err.h"

ATOLL_BEGIN_C

/** Every rank gives its own code; every rank gets the code and the message ("rank 3: ...") of the lowest rank that
 * failed, or OK. */
ATOLL_API atoll_err atoll_agree(MPI_Comm comm, atoll_err mine);

/** A failure of any rank becomes the group's before the next collective. */
#define ATOLL_TRY_ALL(comm, expr)                                                                                      \
  do {                                                                                                                 \
    atoll_err atoll_try_all_ = atoll_agree((comm), (expr));                                                            \
    if (atoll_try_all_ != ATOLL_OK)                                                                                    \
      return atoll_try_all_;                                                                                           \
  } while (0)

/** MISMATCH names `what` and the ranks whose digest differs from rank 0's (at most 8 listed). */
ATOLL_API atoll_err atoll_agree_digest(MPI_Comm comm, const char *what, atoll_digest mine);
/** Rank `root`'s bytes reach all; *data is owned: free(); on root a copy. Any size (pieces below 2^31). */
ATOLL_API atoll_err atoll_share_bytes(MPI_Comm comm, int root, const void *mine, int64_t bytes, void **data,
                                      int64_t *out_bytes);
/** Every rank's bytes reach all, concatenated in rank order; offsets has size+1 entries. Both owned: free(). */
ATOLL_API atoll_err atoll_gather_bytes(MPI_Comm comm, const void *mine, int64_t bytes, void **data, int64_t **offsets);
/** Local. The rank that the launcher gives this process, told before MPI is started; 0 where none does. */
ATOLL_API int atoll_launched_rank(void);
/** Highest MPI thread level wanted by Atoll (MULTIPLE) with a clear error when refused; also atoll_fault_init. Where
 * MPI does not come up within a quarter of an hour, the process ends with TIMEOUT. */
ATOLL_API atoll_err atoll_mpi_init(int *argc, char ***argv);
/** World size against SLURM_STEP_NUM_TASKS / SLURM_NTASKS / OMPI_COMM_WORLD_SIZE: MISMATCH when a launcher started N
 * singletons. */
ATOLL_API atoll_err atoll_mpi_check_world(MPI_Comm comm);

/** The watch: one thread per process that drives pending communication, sends heartbeats and enforces named deadlines.
 *
 *  A phase has a name and a limit. When a rank's phase passes its limit, or a rank's heartbeat stops for longer than
 *  `silence_seconds`, rank 0 (or, when rank 0 is the silent one, any rank that notices) prints the phase, the ranks
 * that never arrived and what they were last doing, calls the abort hook, and MPI_Abort()s with TIMEOUT or PEER_LOST.
 */
typedef struct atoll_watch atoll_watch;
typedef struct atoll_watch_params {
  double heartbeat_seconds; /* 0.5 */
  double silence_seconds;   /* 20 */
  double phase_seconds;     /* default limit of a phase; 600 */
} atoll_watch_params;
ATOLL_API void atoll_watch_params_init(atoll_watch_params *p);
ATOLL_API atoll_err atoll_watch_start(MPI_Comm comm, const atoll_watch_params *params, atoll_watch **out);
/** Collective; stops the thread. */
ATOLL_API void atoll_watch_stop(atoll_watch **watch);
/** Local. Phases nest; seconds <= 0 takes the default. `watch` may be NULL (no effect). Ranks' phases are matched by
 * name and how often the name was begun, so `name` (at most 63 bytes, copied) is a constant text such as "step",
 * without a number. */
ATOLL_API void atoll_watch_begin(atoll_watch *watch, const char *name, double seconds);
ATOLL_API void atoll_watch_end(atoll_watch *watch);
/** Local. Called once by the thread that aborts, before MPI_Abort: e.g. write the exit record. Must not use MPI. */
typedef void (*atoll_watch_hook)(void *arg, atoll_err code, const char *reason);
ATOLL_API void atoll_watch_on_abort(atoll_watch *watch, atoll_watch_hook hook, void *arg);
/** Local. The fatal path of a program: log this thread's message as an error (standard error), run the hook, flush the
 * log, MPI_Abort with the code. Ends the process within 10 s even when MPI_Abort hangs. `watch` may be NULL. Does not
 * return. */
ATOLL_API void atoll_abort(atoll_watch *watch, atoll_err code) __attribute__((noreturn));

ATOLL_END_C
#endif
