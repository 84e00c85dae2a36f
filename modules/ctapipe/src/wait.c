/* Waiting that ends: a rank that waits too long, or sees that another one's process is gone, writes a report where all
 * look, and everybody leaves with it.
 *
 * Ranks of a chain share a node, so a process can be asked for by its id. That finds who was killed and buried, long
 * before the bound; it cannot find who hangs, nor one that its parent has not waited for, which the bound is for. Ids
 * of another space (a container of its own) are not asked for. */
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "atoll/clock.h"
#include "view.h"

atoll_err cta_give_up(struct cta_view *v, atoll_err code, const char *report) {
  uint32_t none = 0;
  if (atomic_compare_exchange_strong(&v->abort->state, &none, 1)) {
    snprintf(v->abort->text, sizeof v->abort->text, "%s", report);
    atomic_store_explicit(&v->abort->state, 2, memory_order_release);
  } else if (code == ATOLL_TIMEOUT || code == ATOLL_PEER_LOST) {
    return cta_check_others(v); /* somebody was quicker: one report for all */
  }
  return atoll_fail(code, "%s", report);
}

atoll_err cta_check_others(struct cta_view *v) {
  if (!atomic_load_explicit(&v->abort->state, memory_order_relaxed))
    return ATOLL_OK;
  for (int i = 0; i < 1000 && atomic_load_explicit(&v->abort->state, memory_order_acquire) != 2; i++)
    atoll_clock_sleep(1e-4); /* its writer may have died between the two stores */
  int whole = atomic_load_explicit(&v->abort->state, memory_order_acquire) == 2;
  return atoll_fail(ATOLL_PEER_LOST, "another rank gave up: %s", whole ? v->abort->text : "(no report)");
}

static const double ask_every = 0.25; /* s */

static uint64_t space_of_ids(void) {
  struct stat s;
  return stat("/proc/self/ns/pid", &s) == 0 ? (uint64_t)s.st_ino : 0;
}

void cta_introduce(struct cta_view *v) {
  atomic_store_explicit(&v->process[v->rank]->space, space_of_ids(), memory_order_relaxed);
  atomic_store_explicit(&v->process[v->rank]->pid, getpid(), memory_order_release);
}

/* A rank whose process is gone, or -1. */
static int rank_gone(const struct cta_view *v, int64_t *pid) {
  for (int r = 0; r < v->ranks && v->process[v->rank]; r++) {
    *pid = atomic_load_explicit(&v->process[r]->pid, memory_order_acquire);
    if (*pid > 0 &&
        atomic_load_explicit(&v->process[r]->space, memory_order_relaxed) ==
            atomic_load_explicit(&v->process[v->rank]->space, memory_order_relaxed) &&
        kill((pid_t)*pid, 0) != 0 && errno == ESRCH)
      return r;
  }
  return -1;
}

/* Whose tiles a step makes. Backward is a chain of the layers turned, from dy. */
static int name_step(const struct cta_view *v, int step, char *text, size_t n) {
  int back = v->products < v->steps;
  if (step == 0)
    return snprintf(text, n, "%s", back ? "dy" : "x");
  return snprintf(text, n, "layer %d%s", back ? v->products - 1 - step : step - 1, back ? " turned" : "");
}

atoll_err cta_wait_step(struct cta_view *v, struct cta_wait *w, const char *what, int step, int64_t panel, int64_t tile,
                        int rank) {
  char report[sizeof v->abort->text];
  int n, gone = -1;
  int64_t pid = 0;
  if (++w->rounds < 64) /* most waits are shorter than a call of the scheduler */
    return ATOLL_OK;
  if (w->rounds == 64)
    w->since = atoll_clock_now();
  (void)sched_yield();
  if (w->rounds % 16)
    return ATOLL_OK;
  ATOLL_TRY(cta_check_others(v));
  double waited = atoll_clock_now() - w->since;
  if (waited >= w->asked + ask_every) {
    w->asked = waited;
    gone = rank_gone(v, &pid);
  }
  if (waited < v->timeout && gone < 0)
    return ATOLL_OK;
  n = snprintf(report, sizeof report, "rank %d waited %g s for %s", v->rank,
               gone < 0 ? v->timeout : (double)(int64_t)(100 * waited) / 100, what);
  if (tile >= 0) {
    n += snprintf(report + n, sizeof report - (size_t)n, " %" PRId64 " of panel %" PRId64 " of ", tile, panel);
    n += name_step(v, step, report + n, sizeof report - (size_t)n);
  }
  n += snprintf(report + n, sizeof report - (size_t)n, " of rank %d in epoch %" PRIu32, rank, v->epoch);
  if (gone >= 0)
    snprintf(report + n, sizeof report - (size_t)n, "; rank %d, process %" PRId64 ", is gone", gone, pid);
  return cta_give_up(v, gone < 0 ? ATOLL_TIMEOUT : ATOLL_PEER_LOST, report);
}

atoll_err cta_wait_tile(struct cta_view *v, int step, int64_t p, int64_t t) {
  struct cta_wait w = {0};
  cta_line *flag = cta_flag_at(v, step, p, t);
  while (!cta_reached(flag, v->epoch) && !v->skip_waits)
    ATOLL_TRY(cta_wait_step(v, &w, "tile", step, p, t, v->step[step].owner));
  return ATOLL_OK;
}

atoll_err cta_meet(struct cta_view *v) {
  cta_set(v->done[v->rank], ++v->meetings);
  for (int r = 0; r < v->ranks; r++) {
    struct cta_wait w = {0};
    while (!cta_arrived(v->done[r], v->meetings))
      ATOLL_TRY(cta_wait_step(v, &w, "the arrival", 0, -1, -1, r));
  }
  return cta_check_others(v); /* a rank that came too late need not have waited for anybody */
}
