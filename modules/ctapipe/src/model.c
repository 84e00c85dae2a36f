/* How long a run would take if every rank had a core to itself.
 *
 * CTA: a discrete-event simulation. Every rank is a view with its own number over common flags and claims, as in a run,
 * and asks the run's own scheduler what to do next; only the tiles are not computed. A tile ends when each of its
 * inputs has been there in the order of k, and its multiply-adds are done. When nothing can be begun the rank looks
 * again at the next end of a tile. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "chain_impl.h"

struct worker {
  struct cta_view view;
  int busy; /* with a tile whose end is known or not yet */
  int step;
  struct cta_place at;
  double begin, end; /* s; end is INFINITY while an input has not been begun */
};

struct model {
  const struct atoll_chain *c;
  struct worker *worker;
  double *end[CTA_STEPS]; /* of each tile [panels, nt]; INFINITY: not begun */
  double unit;            /* s a multiply-add */
};

static double multiply_adds(const struct cta_view *v) {
  double sum = 0;
  for (int i = 1; i < v->products; i++)
    sum += (double)v->rows * (double)v->step[i].in * (double)v->step[i].out * cta_factors(&v->step[i]);
  return sum;
}

/* INFINITY while the end of an input is not known. */
static double end_of(const struct model *m, const struct worker *w) {
  const struct cta_view *v = &w->view;
  const struct cta_step *s = &v->step[w->step];
  double t = w->begin,
         columns = (double)(cta_panel_rows(v, w->at.panel) * cta_tile_cols(s->out, w->at.tile) * cta_factors(s));
  for (int64_t k = 0; s->kind == CTA_PRODUCT && k < s->ks; k++)
    t = fmax(t, m->end[w->step - 1][w->at.panel * s->ks + k]) + columns * (double)cta_tile_cols(s->in, k) * m->unit;
  return t;
}

static double *tile_end(const struct model *m, const struct worker *w) {
  return &m->end[w->step][w->at.panel * w->view.step[w->step].nt + w->at.tile];
}

static void begin_tile(const struct model *m, struct worker *w, double now) {
  int left;
  w->busy = cta_find(&w->view, &left, &w->step, &w->at);
  if (!w->busy)
    return;
  w->begin = now;
  w->end = *tile_end(m, w) = end_of(m, w);
}

static void end_tile(struct worker *w) {
  struct cta_view *v = &w->view;
  if (v->step[w->step].flag)
    cta_set(cta_flag_at(v, w->step, w->at.panel, w->at.tile), v->epoch);
  w->busy = 0;
}

/* What waits for tiles that have been begun since. 1: an end became known. */
static int settle(const struct model *m) {
  int changed = 0;
  for (int r = 0; r < m->c->view.ranks; r++) {
    struct worker *w = &m->worker[r];
    if (!w->busy || isfinite(w->end))
      continue;
    w->end = *tile_end(m, w) = end_of(m, w);
    changed |= isfinite(w->end);
  }
  return changed;
}

static atoll_err simulate(const struct model *m, double *seconds) {
  int ranks = m->c->view.ranks;
  double now = 0;
  for (;;) {
    double next = INFINITY;
    for (int r = 0; r < ranks; r++)
      if (!m->worker[r].busy)
        begin_tile(m, &m->worker[r], now);
    while (settle(m))
      ;
    for (int r = 0; r < ranks; r++)
      next = m->worker[r].busy ? fmin(next, m->worker[r].end) : next;
    int busy = 0;
    for (int r = 0; r < ranks; r++) {
      busy += m->worker[r].busy;
      if (m->worker[r].busy && m->worker[r].end <= next && isfinite(next))
        end_tile(&m->worker[r]);
    }
    if (!busy)
      break;
    if (!isfinite(next))
      return atoll_fail(ATOLL_INTERNAL, "model of a chain: %d ranks wait for tiles that nobody begins", busy);
    now = next;
  }
  *seconds = now;
  return ATOLL_OK;
}

/* Flags, claims and ends of the model's own; what a tile waits for is looked up by step as in a run. */
static atoll_err prepare(struct model *m, const struct cta_view *v) {
  m->worker = calloc((size_t)v->ranks, sizeof *m->worker);
  if (!m->worker)
    return atoll_fail(ATOLL_NOMEM, "model of a chain over %d ranks", v->ranks);
  struct cta_view shared = *v;
  for (int i = 0; i < v->steps; i++) {
    struct cta_step *s = &shared.step[i];
    int64_t n = v->panels * s->nt + 1;
    s->flag = s->flag ? aligned_alloc(64, (size_t)n * sizeof *s->flag) : NULL;
    s->claim = aligned_alloc(64, sizeof *s->claim);
    m->end[i] = malloc((size_t)n * sizeof *m->end[i]);
    m->worker[0].view.step[i] = *s; /* for release() */
    if ((v->step[i].flag && !s->flag) || !s->claim || !m->end[i])
      return atoll_fail(ATOLL_NOMEM, "model of a chain: %lld tiles", (long long)n);
    memset(s->claim, 0, sizeof *s->claim);
    if (s->flag)
      memset(s->flag, 0, (size_t)n * sizeof *s->flag);
    for (int64_t k = 0; k < n; k++)
      m->end[i][k] = INFINITY;
  }
  shared.epoch = 1;
  for (int r = 0; r < v->ranks; r++) {
    m->worker[r].view = shared;
    m->worker[r].view.rank = r;
  }
  return ATOLL_OK;
}

static void release(struct model *m) {
  for (int i = 0; m->worker && i < m->c->view.steps; i++) {
    free(m->worker[0].view.step[i].flag);
    free(m->worker[0].view.step[i].claim);
    free(m->end[i]);
  }
  free(m->worker);
}

/* A stage begins a chunk when it is free and the stage before has made it. */
static double micro_batches(const struct cta_view *v, int64_t chunks, double unit) {
  double free_at[CTA_RANKS] = {0}, end = 0;
  for (int64_t i = 0; i < chunks; i++) {
    double there = 0;
    int64_t p0 = v->panels * i / chunks, p1 = v->panels * (i + 1) / chunks;
    double rows = (double)(cta_least(v->rows, p1 * v->panel) - p0 * v->panel);
    for (int s = 1; s < v->steps; s++) {
      double *at = &free_at[v->step[s].owner];
      *at = there =
          fmax(*at, there) + rows * (double)v->step[s].in * (double)v->step[s].out * cta_factors(&v->step[s]) * unit;
    }
    end = there;
  }
  return end;
}

atoll_err atoll_chain_model(const atoll_chain *chain, atoll_chain_way way, const atoll_chain_cut *cut, int64_t rows,
                            double sequential, double *seconds) {
  struct cta_view v = chain->view;
  struct model m = {.c = chain};
  if (cta_is_on_device(chain) || (way != ATOLL_CHAIN_CTA && way != ATOLL_CHAIN_MICROBATCH))
    return atoll_fail(ATOLL_UNSUPPORTED, "model of a chain: cta and microbatch on the host, not %s of %s",
                      atoll_chain_way_name(way), atoll_chain_vectors(chain));
  if (rows < 0 || rows > chain->params.rows)
    return atoll_fail(ATOLL_USAGE, "model of %lld rows, made for 0..%lld", (long long)rows,
                      (long long)chain->params.rows);
  cta_begin(&v, rows, cta_panel(chain, cut, rows), NULL, NULL);
  double work = multiply_adds(&v);
  m.unit = work > 0 ? sequential / work : 0;
  if (way == ATOLL_CHAIN_MICROBATCH) {
    *seconds = micro_batches(&v, cta_least(cut && cut->chunks > 0 ? cut->chunks : 8, v.panels), m.unit);
    return ATOLL_OK;
  }
  atoll_err err = prepare(&m, &v);
  if (err == ATOLL_OK)
    err = simulate(&m, seconds);
  release(&m);
  return err;
}
