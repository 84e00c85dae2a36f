/* Shared by the tests of this room. */
#ifndef ISLAND_TEST_H
#define ISLAND_TEST_H

#include <math.h>

#include "atoll/island.h"
#include "atoll/rng.h"
#include "unit_check.h"

static inline atoll_topo *load_topo(const char *synthetic) {
  atoll_topo_params p;
  atoll_topo_params_init(&p);
  assert_true(strlen(synthetic) < sizeof p.synthetic);
  strcpy(p.synthetic, synthetic);
  atoll_topo *t = NULL;
  if (atoll_topo_discover(NULL, &p, &t) != ATOLL_OK)
    fail_msg("%s", atoll_err_message());
  return t;
}

static inline atoll_islands *group(const atoll_topo *t) {
  atoll_island_params p;
  atoll_island_params_init(&p);
  atoll_islands *is = NULL;
  if (atoll_islands_group(t, &p, &is) != ATOLL_OK)
    fail_msg("%s", atoll_err_message());
  return is;
}

static inline double uniform(uint64_t seed, uint64_t *at) {
  atoll_rng_key key = {seed, 0, 0, 0, ATOLL_RNG_TEST};
  return atoll_rng_uniform(&key, (*at)++);
}

static inline double normal(uint64_t seed, uint64_t *at) {
  double u = uniform(seed, at), v = uniform(seed, at);
  return sqrt(-2 * log(1 - u)) * cos(6.283185307179586 * v);
}

static inline int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Ways a shared machine disturbs a rate. */
enum noise { GAUSS, HICCUPS, SLOW_START, NOISES };

static inline void measure(atoll_samples *s, double base, enum noise kind, double level, uint64_t seed, uint64_t *at) {
  s->n = ATOLL_TOPO_SAMPLES;
  for (int i = 0; i < s->n; i++) {
    double f = 1;
    if (kind == GAUSS)
      f = exp(level * normal(seed, at));
    if (kind == HICCUPS) /* now and then something else runs for a while */
      f = (uniform(seed, at) < level ? 0.3 + 0.5 * uniform(seed, at) : 1) * exp(0.01 * normal(seed, at));
    if (kind == SLOW_START) /* the first samples are slow, by a random number of them */
      f = (i < (int)(uniform(seed, at) * 4) ? 0.6 : 1) * exp(level * 0.1 * normal(seed, at));
    s->v[i] = base * f;
  }
  qsort(s->v, (size_t)s->n, sizeof s->v[0], ascending);
}

static inline void add_link(atoll_topo *t, int a, int b, double bandwidth) {
  t->link = realloc(t->link, sizeof *t->link * (size_t)(t->links + 1));
  atoll_topo_link *l = &t->link[t->links++];
  memset(l, 0, sizeof *l);
  l->a = a < b ? a : b;
  l->b = a < b ? b : a;
  l->bandwidth.n = l->latency.n = 1;
  l->bandwidth.v[0] = bandwidth;
  l->latency.v[0] = 1e-6;
}

#endif
