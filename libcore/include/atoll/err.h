/** One list of errors: code, exit status, text. The exit status is interface (README, `--help`).
 *
 *  Whoever first knows what went wrong calls atoll_fail() with the value, the limit and errno; callers above only pass
 *  the code on. The message is kept per thread until the next atoll_fail(); atoll_agree() carries it to every rank and
 *  the program's main prints it once. Libraries print nothing themselves. */
#ifndef ATOLL_ERR_H
#define ATOLL_ERR_H

#include "atoll/api.h"

ATOLL_BEGIN_C

#define ATOLL_ERR_LIST(X)                                                                                              \
  X(OK, 0, "success")                                                                                                  \
  X(USAGE, 64, "the request itself is wrong")                                                                          \
  X(CORRUPT, 65, "stored data fails its own checks")                                                                   \
  X(NOINPUT, 66, "an input is missing or unreadable")                                                                  \
  X(UNSUPPORTED, 67, "this build or program cannot execute the plan")                                                  \
  X(UNAVAILABLE, 68, "a device or service is not there")                                                               \
  X(INFEASIBLE, 69, "no plan satisfies the limits")                                                                    \
  X(INTERNAL, 70, "a broken invariant")                                                                                \
  X(NOMEM, 71, "memory or its budget is exhausted")                                                                    \
  X(BUSY, 72, "another job uses the run directory")                                                                    \
  X(IO, 74, "the file system refused an operation")                                                                    \
  X(STOPPED, 75, "stopped early with a good checkpoint; requeue")                                                      \
  X(MISMATCH, 76, "ranks, plan, cluster or file disagree")                                                             \
  X(PEER_LOST, 77, "a rank died or fell silent")                                                                       \
  X(TIMEOUT, 78, "a phase passed its deadline")                                                                        \
  X(ABORTED, 79, "ended on a second signal or by MPI_Abort")                                                           \
  X(NONFINITE, 80, "too many steps with non-finite loss or gradient")

typedef enum atoll_err {
#define ATOLL_ERR_ENUM(name, status, text) ATOLL_##name = status,
  ATOLL_ERR_LIST(ATOLL_ERR_ENUM)
#undef ATOLL_ERR_ENUM
} atoll_err;

/** Record a message for this thread and return `code`. Called through atoll_fail(). */
ATOLL_API atoll_err atoll_err_record(atoll_err code, const char *file, int line, const char *fmt, ...)
    ATOLL_PRINTF(4, 5);
#define atoll_fail(code, ...) atoll_err_record((code), __FILE__, __LINE__, __VA_ARGS__)

/** "IO", "the file system refused an operation". Unknown codes give "UNKNOWN". Borrowed, static. */
ATOLL_API const char *atoll_err_name(atoll_err code);
ATOLL_API const char *atoll_err_text(atoll_err code);
/** Parse a name ("IO"); returns 0 and fills *code, or -1. */
ATOLL_API int atoll_err_parse(const char *name, atoll_err *code);
/** The i-th entry of the list (0 = OK); returns 0 past its end. For `--help`. */
ATOLL_API int atoll_err_entry(int i, atoll_err *code, const char **name, const char **text);

/** Bytes a message can take, its end included. */
#define ATOLL_MESSAGE_MAX 2048

/** Last message of this thread ("" when none); borrowed until the next atoll_fail() of the thread. */
ATOLL_API const char *atoll_err_message(void);
/** Source place "file.c:line" of the last message, for debug logs. */
ATOLL_API const char *atoll_err_where(void);
/** Replace the message of this thread, e.g. by the one another rank sent. */
ATOLL_API void atoll_err_set_message(const char *message);
ATOLL_API void atoll_err_clear(void);

#define ATOLL_TRY(expr)                                                                                                \
  do {                                                                                                                 \
    atoll_err atoll_try_err_ = (expr);                                                                                 \
    if (atoll_try_err_ != ATOLL_OK)                                                                                    \
      return atoll_try_err_;                                                                                           \
  } while (0)

/** Like ATOLL_TRY for functions that clean up: stores the code in `var` and jumps. */
#define ATOLL_TRY_GOTO(var, label, expr)                                                                               \
  do {                                                                                                                 \
    (var) = (expr);                                                                                                    \
    if ((var) != ATOLL_OK)                                                                                             \
      goto label;                                                                                                      \
  } while (0)

ATOLL_END_C
#endif
