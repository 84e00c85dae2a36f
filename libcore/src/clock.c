#include "atoll/clock.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

/* What tests added, in nanoseconds: threads that watch a deadline read it while the test advances it. */
static _Atomic int64_t advanced_ns;

static double read_clock(clockid_t id) {
  struct timespec t = {0, 0};
  clock_gettime(id, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double advanced(void) { return 1e-9 * (double)atomic_load(&advanced_ns); }

double atoll_clock_now(void) { return read_clock(CLOCK_MONOTONIC) + advanced(); }
double atoll_clock_wall(void) { return read_clock(CLOCK_REALTIME) + advanced(); }
double atoll_clock_thread_cpu(void) { return read_clock(CLOCK_THREAD_CPUTIME_ID); }
double atoll_clock_process_cpu(void) { return read_clock(CLOCK_PROCESS_CPUTIME_ID); }

void atoll_clock_sleep(double seconds) {
  if (!(seconds > 0))
    return;
  if (seconds > 1e9)
    seconds = 1e9;
  double whole = floor(seconds);
  struct timespec t = {(time_t)whole, (long)((seconds - whole) * 1e9)};
  if (t.tv_nsec > 999999999L)
    t.tv_nsec = 999999999L;
  nanosleep(&t, NULL);
}

const char *atoll_clock_iso(double wall, char *buf, size_t n) {
  time_t t = (time_t)floor(wall);
  struct tm tm;
  if (!n)
    return buf;
  buf[0] = 0;
  if (gmtime_r(&t, &tm))
    strftime(buf, n, "%Y-%m-%dT%H:%M:%SZ", &tm);
  return buf;
}

void atoll_clock_advance(double seconds) { atomic_fetch_add(&advanced_ns, (int64_t)llround(seconds * 1e9)); }
