/* When do two devices of the same hardware count as different?
 *
 * Measurements on a shared machine are noisy, and a plan must not depend on the noise. A group of like devices, sorted
 * by the median of a rate, is cut between two neighbours only when all of these hold:
 *
 *   1. the medians are further apart than split_gap (10 %) of the faster one;
 *   2. the gap exceeds spread_factor (4) combined spreads, where a device's spread is at least the group's typical one
 *      (nine samples may look calm by chance, a whole group does not);
 *   3. even the slower device's best sample stays below the faster one's median by split_gap: a busy machine makes
 *      samples slow, it never makes them fast, so a device that was once fast is fast;
 *   4. there are at least five samples on each side. Declared rates are one value each and only face rule 1;
 *   5. devices whose f32 rates are declared are told apart by declared rates alone, not by what a probe added;
 *   6. like core sets of one node are never cut: they share its caches, memory and load, so what tells them apart is
 *      who else was running. Each counts as fast as the fastest of them.
 *
 * Cutting between neighbours is transitive by construction and independent of the order of devices. Quantities are
 * looked at in turn: f32 rate, bf16 rate, memory bandwidth; each refines the parts of the one before. */
#include "island_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/stats.h"

#define QUANTITIES 3

static const atoll_samples *quantity(const atoll_topo_device *d, int q) {
  return q == 0 ? &d->gemm_f32 : q == 1 ? &d->gemm_bf16 : &d->bandwidth;
}

/* What is held against other devices: a core set's fastest like neighbour on its node (rule 6), a GPU itself. */
static const atoll_samples *fair(const atoll_topo *topo, const atoll_topo_device *d, int q) {
  const atoll_samples *best = quantity(d, q);
  if (d->kind != ATOLL_TOPO_CPU || d->declared)
    return best;
  const atoll_topo_node *node = &topo->node[d->node];
  for (int i = node->first_device; i < node->first_device + node->devices; i++) {
    const atoll_topo_device *e = &topo->device[i];
    if (e->kind == ATOLL_TOPO_CPU && e->ncores == d->ncores && e->nthreads == d->nthreads &&
        !strcmp(e->model, d->model) && atoll_samples_median(quantity(e, q)) > atoll_samples_median(best))
      best = quantity(e, q);
  }
  return best;
}

/* Neither side measured it: a user wrote it into the cluster file. */
static int is_declared(const atoll_topo_device *a, const atoll_topo_device *b, int q) {
  return a->declared && b->declared && quantity(a, q)->n == 1 && quantity(b, q)->n == 1;
}

int island_apart(const atoll_island_params *params, const atoll_samples *fast, const atoll_samples *slow, double pooled,
                 int declared) {
  double f = atoll_samples_median(fast), s = atoll_samples_median(slow);
  if (!(f > 0) || !(s > 0) || !(f - s > params->split_gap * f))
    return 0;
  if (declared)
    return 1;
  if (fast->n < ISLAND_SAMPLES_MIN || slow->n < ISLAND_SAMPLES_MIN)
    return 0;
  double a = fmax(atoll_samples_spread(fast), pooled) * f, b = fmax(atoll_samples_spread(slow), pooled) * s;
  if (!(f - s > params->spread_factor * sqrt(a * a + b * b)))
    return 0;
  return f - slow->v[slow->n - 1] > params->split_gap * f;
}

typedef struct item {
  double median;
  int member;
} item;

static int by_median(const void *a,
                     const void *b) { /* falling; unknown last; ties have no gap, so their order is without effect */
  const item *x = a, *y = b;
  return x->median != y->median ? (x->median < y->median) - (x->median > y->median)
                                : (x->member > y->member) - (x->member < y->member);
}

int island_split(const atoll_topo *topo, const atoll_island_params *params, const island_members *g, int *speed) {
  item *items = malloc(sizeof *items * (size_t)(g->n + 1));
  double *spread = malloc(sizeof *spread * (size_t)(g->n + 1));
  int *next = malloc(sizeof *next * (size_t)(g->n + 1));
  int parts = 1;
  for (int i = 0; i < g->n; i++)
    speed[i] = 0;
  if (!items || !spread || !next)
    parts = -1;
  for (int q = 0; q < QUANTITIES && parts > 0; q++) {
    int made = 0;
    for (int p = 0; p < parts; p++) {
      int n = 0, m = 0;
      for (int i = 0; i < g->n; i++)
        if (speed[i] == p) {
          const atoll_samples *s = fair(topo, &topo->device[g->device[i]], q);
          items[n++] = (item){atoll_samples_median(s), i};
          if (s->n >= ISLAND_SAMPLES_MIN)
            spread[m++] = atoll_samples_spread(s);
        }
      qsort(items, (size_t)n, sizeof *items, by_median);
      atoll_sort(spread, (size_t)m);
      double pooled = m ? spread[m / 2] : 0;
      for (int k = 0; k < n; k++) {
        const atoll_topo_device *d = &topo->device[g->device[items[k].member]];
        if (k > 0) {
          const atoll_topo_device *before = &topo->device[g->device[items[k - 1].member]];
          int declared = is_declared(before, d, q);
          if (declared || !is_declared(before, d, 0))
            made += island_apart(params, fair(topo, before, q), fair(topo, d, q), pooled, declared);
        }
        next[items[k].member] = made;
      }
      made++;
    }
    for (int i = 0; i < g->n; i++)
      speed[i] = next[i];
    parts = made;
  }
  free(items);
  free(spread);
  free(next);
  return parts;
}
