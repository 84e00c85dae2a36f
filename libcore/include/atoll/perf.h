/** Named regions and counters.
 *
 *  Sources in order: PAPI; else perf software events (task clock, page faults, context switches, migrations); else
 * getrusage and clock. Each counter has a status and a reason; what cannot be had is unavailable with the reason, never
 * zero. A source is accepted only after it was started, read and stopped once. Regions are named in the code once, may
 * nest, and cost two clock reads when counters are off. Local. */
#ifndef ATOLL_PERF_H
#define ATOLL_PERF_H

#include <stddef.h>
#include <stdint.h>

#include "atoll/err.h"

ATOLL_BEGIN_C

typedef struct atoll_perf atoll_perf;

typedef enum atoll_perf_status { ATOLL_PERF_OK, ATOLL_PERF_UNAVAILABLE } atoll_perf_status;

typedef struct atoll_perf_counter {
  char name[48];   /* "PAPI_TOT_CYC", "task_clock", "page_faults", "voluntary_switches" ... */
  char unit[16];   /* "count", "s", "bytes" */
  char source[16]; /* "papi", "perf", "rusage", "clock" */
  atoll_perf_status status;
  char reason[160]; /* why unavailable */
} atoll_perf_counter;

#define ATOLL_PERF_COUNTERS_MAX 16

typedef struct atoll_perf_params {
  int counters;       /* 0: regions time only, no counters */
  const char *events; /* comma-separated PAPI or perf names ("cycles", "cache_misses") to try first; NULL or "" = the
                         default set */
} atoll_perf_params;
ATOLL_API void atoll_perf_params_init(atoll_perf_params *p);

/** Counters that cannot be had are no error. USAGE: more names than there is room for, or one too long. */
ATOLL_API atoll_err atoll_perf_create(const atoll_perf_params *params, atoll_perf **out);
ATOLL_API void atoll_perf_destroy(atoll_perf **perf);
ATOLL_API int atoll_perf_counter_count(const atoll_perf *perf);
ATOLL_API const atoll_perf_counter *atoll_perf_counter_at(const atoll_perf *perf, int i);

/** Region by name (made at first use; the first 47 bytes count; -1, which begin and end ignore, when 64 exist);
 * begin/end pairs nest; `perf` may be NULL. Only the thread that created perf calls these. */
ATOLL_API int atoll_perf_region(atoll_perf *perf, const char *name);
ATOLL_API void atoll_perf_begin(atoll_perf *perf, int region);
ATOLL_API void atoll_perf_end(atoll_perf *perf, int region);

typedef struct atoll_perf_value {
  const char *region;
  int64_t calls;
  double seconds;                          /* inclusive wall time */
  double counter[ATOLL_PERF_COUNTERS_MAX]; /* inclusive; NaN when unavailable */
} atoll_perf_value;
ATOLL_API int atoll_perf_region_count(const atoll_perf *perf);
ATOLL_API void atoll_perf_read(const atoll_perf *perf, int region, atoll_perf_value *out);
ATOLL_API void atoll_perf_reset(atoll_perf *perf);
/** Resident set of the process, now and at most, in bytes; -1 when unknown. */
ATOLL_API int64_t atoll_perf_rss(void);
ATOLL_API int64_t atoll_perf_peak_rss(void);

/** Timeline: spans recorded by begin/end when on, written as Chrome trace events ("X" phases; pid = rank). */
ATOLL_API atoll_err atoll_perf_trace(atoll_perf *perf, int on, int64_t max_spans);
/** JSON array elements (no brackets) of this rank; *text owned: free(). */
ATOLL_API atoll_err atoll_perf_trace_json(const atoll_perf *perf, int rank, char **text, size_t *bytes);

ATOLL_END_C
#endif
