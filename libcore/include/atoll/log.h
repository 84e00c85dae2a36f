/** The story of a run (rank 0, standard output), warnings (standard error, once) and per-rank files.
 *
 *  A library is silent when all is well: only programs call atoll_say(). Warnings and debug lines go to the rank's file
 *  `rank-00000.a1.log` (appended) once atoll_log_open() was called; levels are filtered by
 * ATOLL_LOG=error|warn|info|debug. */
#ifndef ATOLL_LOG_H
#define ATOLL_LOG_H

#include "atoll/err.h"

ATOLL_BEGIN_C

typedef enum atoll_log_level { ATOLL_LOG_ERROR, ATOLL_LOG_WARN, ATOLL_LOG_INFO, ATOLL_LOG_DEBUG } atoll_log_level;

/** Local. Tell the log which rank this is; before that, rank 0 is assumed. */
ATOLL_API void atoll_log_set_rank(int rank);
/** Local. Open `dir/rank-RRRRR.aN.log` for appending; the directory must exist. IO on failure. */
ATOLL_API atoll_err atoll_log_open(const char *dir, int rank, int attempt);
ATOLL_API void atoll_log_close(void);
ATOLL_API void atoll_log_flush(void);
/** Only this level and more severe ones are written to the file (default info). */
ATOLL_API void atoll_log_set_level(atoll_log_level level);

/** Rank 0: one line to standard output and to the log file. Other ranks: their log file only. */
ATOLL_API void atoll_say(const char *fmt, ...) ATOLL_PRINTF(1, 2);
/** Progress: on a terminal rewrites the current line, otherwise (plain) prints a line. Rank 0 only. */
ATOLL_API void atoll_progress(const char *fmt, ...) ATOLL_PRINTF(1, 2);
/** Local: 1 when the story goes to a terminal that a person watches. */
ATOLL_API int atoll_log_interactive(void);
/** A line to the rank's file; WARN and ERROR also to standard error, on every rank, prefixed with the rank if not 0. */
ATOLL_API void atoll_log(atoll_log_level level, const char *fmt, ...) ATOLL_PRINTF(2, 3);
#define atoll_warn(...)  atoll_log(ATOLL_LOG_WARN, __VA_ARGS__)
#define atoll_debug(...) atoll_log(ATOLL_LOG_DEBUG, __VA_ARGS__)
/** Programs that print JSON on standard output move the story to standard error. */
ATOLL_API void atoll_log_story_to_stderr(int yes);

ATOLL_END_C
#endif
