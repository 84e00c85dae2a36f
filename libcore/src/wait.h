/* How a thread waits for something it must poll: a short time by giving the core away, then by sleeping. Ranks may
 * outnumber the cores, so a waiting thread must never hold one that a working thread could use. */
#ifndef ATOLL_WAIT_H
#define ATOLL_WAIT_H

#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#include "atoll/clock.h"

/* Threads of this process that are polling now: the watch need not drive progress while there are any. */
extern atomic_int wait_threads;

typedef struct waiter {
  int rounds;
  struct timespec start;
} waiter;

static inline waiter wait_begin(void) {
  atomic_fetch_add_explicit(&wait_threads, 1, memory_order_relaxed);
  waiter w = {0, {0, 0}};
  clock_gettime(CLOCK_MONOTONIC, &w.start);
  return w;
}

/* Between two polls: yields for 50 us, then sleeps 50 us growing to 200 us. */
static inline void wait_step(waiter *w) {
  if (w->rounds == 0) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if ((now.tv_sec - w->start.tv_sec) * 1000000000L + (now.tv_nsec - w->start.tv_nsec) < 50000L) {
      sched_yield();
      return;
    }
  }
  long us = 50 + 5L * w->rounds;
  if (us > 200)
    us = 200;
  w->rounds++;
  struct timespec nap = {0, us * 1000};
  nanosleep(&nap, NULL);
}

static inline void wait_end(waiter *w) {
  (void)w;
  atomic_fetch_sub_explicit(&wait_threads, 1, memory_order_relaxed);
}

#endif
