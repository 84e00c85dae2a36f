/* Time by kernel. Kernels are many microseconds long, so a lock around a short list costs nothing that shows. */
#include "atoll/kernel.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/clock.h"
#include "kernel_impl.h"

enum { MOST = 256 }; /* further ones are not counted; a model has a few dozen */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int counting;
static atoll_kernel_time entries[MOST];
static int used;

double kernel_profile_begin(void) { return counting ? atoll_clock_now() : -1; }

static int same(const atoll_kernel_time *e, const char *name, int64_t rows, int64_t inner, int64_t columns) {
  return e->rows == rows && e->inner == inner && e->columns == columns && !strcmp(e->name, name);
}

void kernel_profile_end(double began, const char *name, int64_t rows, int64_t inner, int64_t columns) {
  if (began < 0)
    return;
  double seconds = atoll_clock_now() - began;
  (void)pthread_mutex_lock(&lock);
  int i = 0;
  while (i < used && !same(&entries[i], name, rows, inner, columns))
    i++;
  if (i == used && used < MOST)
    entries[used++] = (atoll_kernel_time){name, rows, inner, columns, 0, 0};
  if (i < used) {
    entries[i].calls++;
    entries[i].seconds += seconds;
  }
  (void)pthread_mutex_unlock(&lock);
}

static int longest_first(const void *a, const void *b) {
  double x = ((const atoll_kernel_time *)a)->seconds, y = ((const atoll_kernel_time *)b)->seconds;
  return (x < y) - (x > y);
}

void atoll_kernels_profile(int on) {
  (void)pthread_mutex_lock(&lock);
  if (on)
    used = 0;
  else
    qsort(entries, (size_t)used, sizeof *entries, longest_first);
  counting = on;
  (void)pthread_mutex_unlock(&lock);
}

int atoll_kernels_profile_entry(int i, atoll_kernel_time *out) {
  (void)pthread_mutex_lock(&lock);
  int there = i >= 0 && i < used;
  if (there)
    *out = entries[i];
  (void)pthread_mutex_unlock(&lock);
  return there;
}
