#include "tuner/tuner.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan_impl.h"

#define BLOCK 8192 /* candidates evaluated at once */

enum { ALLOWED, BYTES };

struct tuner {
  int axes, fixeds;
  tuner_expressions e;
  atoll_sym_program *size, *time; /* [allowed, bytes], [t, d] */
  int64_t *column;                /* [axes][BLOCK] */
  int64_t *kept;                  /* [axes][BLOCK]: of those that fit */
  int64_t *fixed_int;
  double *fixed_real;
  int64_t *allowed, *bytes, *kept_bytes;
  double *t, *d;
  uint8_t *status[2];
  atoll_sym_column *columns;
};

void tuner_destroy(tuner **address) {
  if (!address || !*address)
    return;
  tuner *u = *address;
  atoll_sym_program_destroy(&u->size);
  atoll_sym_program_destroy(&u->time);
  free(u->column);
  free(u->kept);
  free(u->fixed_int);
  free(u->fixed_real);
  free(u->allowed);
  free(u->bytes);
  free(u->kept_bytes);
  free(u->t);
  free(u->d);
  free(u->status[0]);
  free(u->status[1]);
  free(u->columns);
  free(u);
  *address = NULL;
}

static atoll_err compile(tuner *u, const tuner_axis *axes, const tuner_fixed *fixed) {
  int n = u->axes + u->fixeds;
  const char **name = NULL;
  atoll_sym_type *type = NULL;
  const atoll_sym *size[2] = {u->e.bytes, u->e.allowed}, *time[2] = {u->e.t, u->e.d};
  atoll_err err;
  ATOLL_TRY(plan_alloc((size_t)n + 1, sizeof *name, &name));
  ATOLL_TRY_GOTO(err, done, plan_alloc((size_t)n + 1, sizeof *type, &type));
  for (int i = 0; i < n; i++) {
    name[i] = i < u->axes ? axes[i].name : fixed[i - u->axes].name;
    type[i] = i < u->axes ? ATOLL_SYM_INT : fixed[i - u->axes].value.type;
  }
  ATOLL_TRY_GOTO(err, done, atoll_sym_compile(size, u->e.allowed ? 2 : 1, name, type, n, &u->size));
  err = u->e.t ? atoll_sym_compile(time, 2, name, type, n, &u->time) : ATOLL_OK;
done:
  free(name);
  free(type);
  return err;
}

atoll_err tuner_create(const tuner_expressions *e, const tuner_axis *axes, int n, const tuner_fixed *fixed, int fixeds,
                       tuner **out) {
  tuner *u = NULL;
  if (n < 1 || n > TUNER_AXES)
    return atoll_fail(ATOLL_INTERNAL, "a space of %d axes, expected 1..%d", n, TUNER_AXES);
  ATOLL_TRY(plan_alloc(1, sizeof *u, &u));
  u->axes = n;
  u->fixeds = fixeds;
  u->e = *e;
  atoll_err err;
  ATOLL_TRY_GOTO(err, fail, plan_alloc((size_t)n * BLOCK, sizeof *u->column, &u->column));
  ATOLL_TRY_GOTO(err, fail, plan_alloc((size_t)n * BLOCK, sizeof *u->kept, &u->kept));
  ATOLL_TRY_GOTO(err, fail, plan_alloc((size_t)fixeds + 1, sizeof *u->fixed_int, &u->fixed_int));
  ATOLL_TRY_GOTO(err, fail, plan_alloc((size_t)fixeds + 1, sizeof *u->fixed_real, &u->fixed_real));
  ATOLL_TRY_GOTO(err, fail, plan_alloc(BLOCK, sizeof *u->allowed, &u->allowed));
  ATOLL_TRY_GOTO(err, fail, plan_alloc(BLOCK, sizeof *u->bytes, &u->bytes));
  ATOLL_TRY_GOTO(err, fail, plan_alloc(BLOCK, sizeof *u->kept_bytes, &u->kept_bytes));
  ATOLL_TRY_GOTO(err, fail, plan_alloc(BLOCK, sizeof *u->t, &u->t));
  ATOLL_TRY_GOTO(err, fail, plan_alloc(BLOCK, sizeof *u->d, &u->d));
  ATOLL_TRY_GOTO(err, fail, plan_alloc(BLOCK, 1, &u->status[0]));
  ATOLL_TRY_GOTO(err, fail, plan_alloc(BLOCK, 1, &u->status[1]));
  ATOLL_TRY_GOTO(err, fail, plan_alloc((size_t)(n + fixeds) + 1, sizeof *u->columns, &u->columns));
  ATOLL_TRY_GOTO(err, fail, compile(u, axes, fixed));
  *out = u;
  return ATOLL_OK;
fail:
  tuner_destroy(&u);
  return err;
}

/* ---- frontier ---------------------------------------------------------------------------------------------------- */

void tuner_frontier_clear(tuner_frontier *f) {
  free(f->point);
  *f = (tuner_frontier){.least = INT64_MAX};
}

atoll_err tuner_frontier_add(tuner_frontier *f, const tuner_point *p) {
  /* The first with t above; the one before has the least d of all that are not slower. */
  int lo = 0, hi = f->count;
  while (lo < hi) {
    int mid = (lo + hi) / 2;
    if (f->point[mid].t <= p->t)
      lo = mid + 1;
    else
      hi = mid;
  }
  if (lo > 0) {
    tuner_point *q = &f->point[lo - 1];
    if (q->t == p->t && q->d == p->d) {
      if (p->bytes < q->bytes)
        *q = *p;
      return ATOLL_OK;
    }
    if (q->d <= p->d)
      return ATOLL_OK;
  }
  int from = lo > 0 && f->point[lo - 1].t == p->t ? lo - 1 : lo, to = from; /* [from, to) is dominated */
  while (to < f->count && f->point[to].d >= p->d)
    to++;
  if (from == to && f->count == f->room) {
    int room = f->room ? 2 * f->room : 32;
    tuner_point *grown = realloc(f->point, (size_t)room * sizeof *grown);
    if (!grown)
      return atoll_fail(ATOLL_NOMEM, "plan: no memory for %d points of a frontier", room);
    f->point = grown;
    f->room = room;
  }
  memmove(&f->point[from + 1], &f->point[to], (size_t)(f->count - to) * sizeof *f->point);
  f->point[from] = *p;
  f->count += 1 - (to - from);
  return ATOLL_OK;
}

/* How many points a factor leaves, greedily: from the fastest point not covered yet to the slowest that covers it. Each
 * kept point covers as many as any could, so no fewer do. keep may be NULL. */
static int thinned(const tuner_frontier *f, double factor, int *keep) {
  int n = 0;
  for (int i = 0; i < f->count; n++) {
    int q = i;
    while (q + 1 < f->count && f->point[q + 1].t <= factor * f->point[i].t)
      q++;
    if (keep)
      keep[n] = q;
    i = q + 1;
  }
  return n;
}

void tuner_thin(tuner_frontier *f, int cap, double *epsilon) {
  *epsilon = 0;
  if (f->count <= cap || cap < 1)
    return;
  /* The least factor is a ratio of two times of the frontier; bisection comes as near above it as reals allow. */
  double lo = 1, hi = f->point[f->count - 1].t / f->point[0].t * (1 + 1e-12);
  while (hi - lo > 1e-12 * hi) {
    double mid = (lo + hi) / 2;
    if (thinned(f, mid, NULL) <= cap)
      hi = mid;
    else
      lo = mid;
  }
  for (int i = 0, n = 0; i < f->count; n++) {
    int q = i;
    while (q + 1 < f->count && f->point[q + 1].t <= hi * f->point[i].t)
      q++;
    *epsilon = fmax(*epsilon, f->point[q].t / f->point[i].t - 1);
    i = q + 1;
    f->point[n] = f->point[q];
    if (i >= f->count) {
      f->count = n + 1;
      break;
    }
  }
}

/* ---- search ------------------------------------------------------------------------------------------------------ */

static void set_columns(tuner *u, const tuner_fixed *fixed, const int64_t *column) {
  for (int a = 0; a < u->axes; a++)
    u->columns[a] = (atoll_sym_column){column + (size_t)a * BLOCK, NULL, 0};
  for (int i = 0; i < u->fixeds; i++) {
    u->fixed_int[i] = fixed[i].value.i;
    u->fixed_real[i] = fixed[i].value.r;
    u->columns[u->axes + i] = (atoll_sym_column){&u->fixed_int[i], &u->fixed_real[i], 1};
  }
}

/* A failed lane is a mistake of the model, not a choice that does not fit. */
static atoll_err failed(const tuner *u, const atoll_sym_program *p, int output, size_t lane) {
  atoll_err err = atoll_sym_program_explain(p, u->columns, lane, output);
  return err != ATOLL_OK ? err : atoll_fail(ATOLL_INTERNAL, "plan: candidate %zu has no value", lane);
}

/* Bytes of `n` candidates in u->column; moves those that fit to u->kept. */
static atoll_err sizes(tuner *u, const tuner_fixed *fixed, size_t n, int64_t limit, int64_t *least, size_t *kept) {
  const atoll_sym_results out[2] = {{u->bytes, NULL, u->status[0]}, {u->allowed, NULL, u->status[1]}};
  set_columns(u, fixed, u->column);
  ATOLL_TRY(atoll_sym_program_run(u->size, u->columns, n, out));
  *kept = 0;
  for (size_t i = 0; i < n; i++) {
    if (u->e.allowed && u->status[1][i])
      return failed(u, u->size, 1, i);
    if (u->e.allowed && !u->allowed[i])
      continue;
    if (u->status[0][i])
      return failed(u, u->size, 0, i);
    *least = u->bytes[i] < *least ? u->bytes[i] : *least;
    if (u->bytes[i] > limit)
      continue;
    for (int a = 0; a < u->axes; a++)
      u->kept[(size_t)a * BLOCK + *kept] = u->column[(size_t)a * BLOCK + i];
    u->kept_bytes[(*kept)++] = u->bytes[i];
  }
  return ATOLL_OK;
}

static atoll_err times(tuner *u, const tuner_fixed *fixed, size_t n, int tag, tuner_frontier *f) {
  const atoll_sym_results out[2] = {{NULL, u->t, u->status[0]}, {NULL, u->d, u->status[1]}};
  set_columns(u, fixed, u->kept);
  ATOLL_TRY(atoll_sym_program_run(u->time, u->columns, n, out));
  for (size_t i = 0; i < n; i++) {
    if (u->status[0][i] || u->status[1][i])
      return failed(u, u->time, u->status[0][i] ? 0 : 1, i);
    tuner_point p = {.t = u->t[i], .d = fmax(u->d[i], 0), .bytes = u->kept_bytes[i], .tag = tag};
    for (int a = 0; a < u->axes; a++)
      p.choice[a] = u->kept[(size_t)a * BLOCK + i];
    ATOLL_TRY(tuner_frontier_add(f, &p));
  }
  return ATOLL_OK;
}

/* Fills columns with candidates from number `at`, the last axis fastest; returns how many. */
static size_t fill(tuner *u, const tuner_axis *axes, int64_t at, int64_t total) {
  size_t n = total - at < BLOCK ? (size_t)(total - at) : BLOCK;
  int64_t inner = 1;
  for (int a = u->axes - 1; a >= 0; a--) {
    int64_t *column = u->column + (size_t)a * BLOCK;
    for (size_t i = 0; i < n; i++)
      column[i] = axes[a].value[(at + (int64_t)i) / inner % axes[a].n];
    inner *= axes[a].n;
  }
  return n;
}

static int64_t count(const tuner *u, const tuner_axis *axes) {
  int64_t total = 1;
  for (int a = 0; a < u->axes; a++)
    total *= axes[a].n;
  return total;
}

atoll_err tuner_search(tuner *u, const tuner_axis *axes, const tuner_fixed *fixed, int64_t limit, int tag,
                       tuner_frontier *f) {
  int64_t total = count(u, axes);
  for (int64_t at = 0; at < total; at += BLOCK) {
    size_t n = fill(u, axes, at, total), kept;
    ATOLL_TRY(sizes(u, fixed, n, limit, &f->least, &kept));
    f->candidates += (int64_t)n;
    f->feasible += (int64_t)kept;
    if (kept > 0)
      ATOLL_TRY(times(u, fixed, kept, tag, f));
  }
  return ATOLL_OK;
}
