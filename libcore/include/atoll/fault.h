/** Failure on purpose. ATOLL_FAULT holds rules separated by ';':
 *
 *    fail:CALL:NTH:ERRNO[:RANK]   the NTH call (1 = first) of a wrapped file operation fails with ERRNO (ENOSPC EIO
 *                                 EROFS ...); NTH '*' = every call. CALL is one of open read write fsync rename link
 *                                 mkdir unlink dirsync close stat, or '*' = any of them, counted together
 *    short:write:NTH[:RANK]       the NTH write writes half and then fails with ENOSPC
 *    kill:POINT[:NTH[:RANK]]      SIGKILL at the NTH passage of a named point
 *    stop:POINT[:NTH[:RANK]]      SIGSTOP there (a rank that falls silent)
 *    nan:POINT:NTH[:RANK]         atoll_fault_hit(POINT) answers 1 at that passage (the caller injects what the name
 *                                 says)
 *
 *  RANK defaults to every rank. Without the variable every check is one predictable branch. */
#ifndef ATOLL_FAULT_H
#define ATOLL_FAULT_H

#include "atoll/err.h"

ATOLL_BEGIN_C

/** Read ATOLL_FAULT for this rank; USAGE on a malformed rule. Call once after MPI_Init. Also usable in tests with
 *  explicit text. */
ATOLL_API atoll_err atoll_fault_init(int rank);
ATOLL_API atoll_err atoll_fault_set(const char *rules, int rank);
/** A named point, e.g. "ckpt.after_shard". May not return. */
ATOLL_API void atoll_fault_point(const char *point);
/** 1 when a `nan:` rule names this passage. */
ATOLL_API int atoll_fault_hit(const char *point);
/** Used by file.h wrappers: 0, or the errno to fail with. *half is set to 1 for a short write. */
ATOLL_API int atoll_fault_call(const char *call, int *half);

ATOLL_END_C
#endif
