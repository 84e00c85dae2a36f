/** Time. Replaceable in tests: a fake clock makes deadlines testable without waiting. */
#ifndef ATOLL_CLOCK_H
#define ATOLL_CLOCK_H

#include <stddef.h>
#include <stdint.h>

#include "atoll/api.h"

ATOLL_BEGIN_C

/** Monotonic seconds since an arbitrary start. */
ATOLL_API double atoll_clock_now(void);
/** Seconds since 1970-01-01 UTC. */
ATOLL_API double atoll_clock_wall(void);
/** CPU seconds of the calling thread and of the whole process. */
ATOLL_API double atoll_clock_thread_cpu(void);
ATOLL_API double atoll_clock_process_cpu(void);
/** Sleep; returns early on a signal. */
ATOLL_API void atoll_clock_sleep(double seconds);
/** ISO 8601 UTC of a wall time into buf (at least 32 bytes). */
ATOLL_API const char *atoll_clock_iso(double wall, char *buf, size_t n);
/** Test only: add `seconds` to what atoll_clock_now() and atoll_clock_wall() report. */
ATOLL_API void atoll_clock_advance(double seconds);

ATOLL_END_C
#endif
