/* Waiting that ends: a rank that waits too long writes a report where all look, and everybody leaves with it. */
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "atoll/clock.h"
#include "view.h"

atoll_err cta_give_up(struct cta_view *v, atoll_err code, const char *report) {
  uint32_t none = 0;
  if (atomic_compare_exchange_strong(&v->abort->state, &none, 1)) {
    snprintf(v->abort->text, sizeof v->abort->text, "%s", report);
    atomic_store_explicit(&v->abort->state, 2, memory_order_release);
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

atoll_err cta_wait_step(struct cta_view *v, struct cta_wait *w, const char *what, int step, int64_t panel, int64_t tile,
                        int rank) {
  char report[sizeof v->abort->text];
  int n;
  if (++w->rounds < 64) /* most waits are shorter than a call of the scheduler */
    return ATOLL_OK;
  if (w->rounds == 64)
    w->since = atoll_clock_now();
  (void)sched_yield();
  if (w->rounds % 16)
    return ATOLL_OK;
  ATOLL_TRY(cta_check_others(v));
  if (atoll_clock_now() - w->since < v->timeout)
    return ATOLL_OK;
  n = snprintf(report, sizeof report, "rank %d waited %g s for %s", v->rank, v->timeout, what);
  if (tile >= 0)
    n += snprintf(report + n, sizeof report - (size_t)n, " %" PRId64 " of panel %" PRId64 " of layer %d", tile, panel,
                  step - 1);
  snprintf(report + n, sizeof report - (size_t)n, " of rank %d in epoch %" PRIu32, rank, v->epoch);
  return cta_give_up(v, ATOLL_TIMEOUT, report);
}

atoll_err cta_wait_tile(struct cta_view *v, int step, int64_t p, int64_t t) {
  struct cta_wait w = {0, 0};
  cta_line *flag = cta_flag_at(v, step, p, t);
  while (!cta_reached(flag, v->epoch) && !v->skip_waits)
    ATOLL_TRY(cta_wait_step(v, &w, "tile", step, p, t, v->step[step].owner));
  return ATOLL_OK;
}

atoll_err cta_meet(struct cta_view *v) {
  cta_set(v->done[v->rank], ++v->meetings);
  for (int r = 0; r < v->ranks; r++) {
    struct cta_wait w = {0, 0};
    while (!cta_arrived(v->done[r], v->meetings))
      ATOLL_TRY(cta_wait_step(v, &w, "the arrival", 0, -1, -1, r));
  }
  return cta_check_others(v); /* a rank that came too late need not have waited for anybody */
}
