#include "cost/interference.h"

#include <math.h>

static const struct {
  int n, stream[STREAMS], first; /* first: of its factors */
} sets[INTERFERENCE_SETS] = {
    {4, {0, 1, 2, 3}, 0},  {3, {0, 1, 2, 0}, 4},  {3, {0, 1, 3, 0}, 7},  {3, {0, 2, 3, 0}, 10},
    {3, {1, 2, 3, 0}, 13}, {2, {0, 1, 0, 0}, 16}, {2, {0, 2, 0, 0}, 18}, {2, {0, 3, 0, 0}, 20},
    {2, {1, 2, 0, 0}, 22}, {2, {1, 3, 0, 0}, 24}, {2, {2, 3, 0, 0}, 26},
};

void interference_neutral(interference *f) {
  for (int i = 0; i < INTERFERENCE_FACTORS; i++)
    f->factor[i] = 1;
  f->neutral = 1;
}

atoll_err interference_set(interference *f, const double factor[INTERFERENCE_FACTORS]) {
  interference made = {.neutral = 1};
  for (int i = 0; i < INTERFERENCE_FACTORS; i++) {
    if (!(factor[i] > 0) || !isfinite(factor[i]))
      return atoll_fail(ATOLL_USAGE, "interference factor %d is %g, expected a positive number", i, factor[i]);
    made.factor[i] = factor[i];
    made.neutral = made.neutral && factor[i] == 1;
  }
  *f = made;
  return ATOLL_OK;
}

/* A set with an empty stream has delta 0, so sets need no test whether they are active, and expressions no branch. */
double interference_seconds(const interference *f, const double streams[STREAMS]) {
  double x[STREAMS] = {streams[0], streams[1], streams[2], streams[3]}, total = 0;
  for (int s = 0; s < INTERFERENCE_SETS; s++) {
    const double *g = f->factor + sets[s].first;
    double delta = INFINITY;
    for (int i = 0; i < sets[s].n; i++)
      delta = fmin(delta, x[sets[s].stream[i]] * g[i]);
    total += delta;
    for (int i = 0; i < sets[s].n; i++)
      x[sets[s].stream[i]] = fmax(x[sets[s].stream[i]] - delta / g[i], 0);
  }
  return total + x[0] + x[1] + x[2] + x[3];
}

static const atoll_sym *scaled(atoll_syms *pool, atoll_sym_op op, const atoll_sym *e, double by) {
  return by == 1 ? e : atoll_sym_binary(pool, op, e, atoll_sym_real(pool, by));
}

const atoll_sym *interference_sym(atoll_syms *pool, const interference *f, const atoll_sym *const streams[STREAMS]) {
  const atoll_sym *x[STREAMS], *zero = atoll_sym_real(pool, 0), *total = NULL;
  for (int i = 0; i < STREAMS; i++)
    x[i] = streams[i];
  if (f->neutral) {
    for (int i = 0; i < STREAMS; i++)
      if (x[i])
        total = total ? atoll_sym_max(pool, total, x[i]) : x[i];
    return total ? total : zero;
  }
  for (int s = 0; s < INTERFERENCE_SETS; s++) {
    const double *g = f->factor + sets[s].first;
    const atoll_sym *delta = NULL;
    int active = 1;
    for (int i = 0; i < sets[s].n; i++)
      active = active && x[sets[s].stream[i]];
    if (!active)
      continue;
    for (int i = 0; i < sets[s].n; i++) {
      const atoll_sym *y = scaled(pool, ATOLL_SYM_MUL, x[sets[s].stream[i]], g[i]);
      delta = delta ? atoll_sym_binary(pool, ATOLL_SYM_MIN, delta, y) : y;
    }
    total = total ? atoll_sym_add(pool, total, delta) : delta;
    for (int i = 0; i < sets[s].n; i++) {
      int k = sets[s].stream[i];
      x[k] = atoll_sym_max(pool, atoll_sym_sub(pool, x[k], scaled(pool, ATOLL_SYM_DIV, delta, g[i])), zero);
    }
  }
  for (int i = 0; i < STREAMS; i++)
    if (x[i])
      total = total ? atoll_sym_add(pool, total, x[i]) : x[i];
  return total ? total : zero;
}
