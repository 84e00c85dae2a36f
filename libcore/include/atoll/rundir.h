/** The run directory: names, attempts, the lock and the exit record. Shared by train, the inspector and job scripts.
 *
 *    RUN/run.aN.h5  run.h5  ckpt/  log/  trace.json  exit.json  lock  attempts/aN
 *
 *  All functions are local: rank 0 calls them and shares the outcome. An attempt's number is taken by creating
 * attempts/aN and is never used again. One job at a time holds the lock (BUSY names the holder). exit.json is written
 * before MPI is finalized, by one rank; launchers lose exit codes. */
#ifndef ATOLL_RUNDIR_H
#define ATOLL_RUNDIR_H

#include <stdint.h>

#include "atoll/err.h"

ATOLL_BEGIN_C

typedef struct atoll_rundir atoll_rundir;

/** Makes the directory and its folders, takes the lock, takes the next attempt number, and removes the exit record of
 * the attempt before. BUSY, IO (read-only or full file system: names path and errno). */
ATOLL_API atoll_err atoll_rundir_open(const char *dir, atoll_rundir **out);
ATOLL_API int atoll_rundir_attempt(const atoll_rundir *run);
ATOLL_API const char *atoll_rundir_path(const atoll_rundir *run);
/** Before something is saved: the directory is still this attempt's. One that was removed under way is made again; BUSY
 * when another job has it now, or had: nothing may be written into it any more, and every later call says so too. */
ATOLL_API atoll_err atoll_rundir_keep(atoll_rundir *run);
/** Releases the lock. */
ATOLL_API void atoll_rundir_close(atoll_rundir **run);

typedef struct atoll_exit_record {
  atoll_err code;
  char reason[256];  /* "finished", "signal USR1 on rank 1", or the error's message */
  int64_t last_step; /* last committed step, -1 none */
  int attempt;
  double wall;  /* seconds since 1970 */
  char job[64]; /* Slurm job id and restart, or "" */
  char host[64];
} atoll_exit_record;

/** Writes DIR/exit.json durably; fills wall, job and host. Any rank may call it on the abort path; the first of an
 * attempt wins. */
ATOLL_API atoll_err atoll_rundir_write_exit(const char *dir, const atoll_exit_record *record);

typedef enum atoll_run_state {
  ATOLL_RUN_ABSENT,
  ATOLL_RUN_RUNNING,
  ATOLL_RUN_FINISHED,
  ATOLL_RUN_STOPPED,
  ATOLL_RUN_FAILED,
  ATOLL_RUN_DEAD
} atoll_run_state;
ATOLL_API const char *atoll_run_state_name(atoll_run_state s);
/** Where the run stands. dead: an attempt began and left neither exit record nor live lock (killed, node lost). *record
 * is valid for finished, stopped and failed; its attempt always. CORRUPT when exit.json is damaged. */
ATOLL_API atoll_err atoll_rundir_status(const char *dir, atoll_run_state *state, atoll_exit_record *record);

ATOLL_END_C
#endif
