/* An exact dynamic program for the inter-stage objective.
 *
 * 1. One bound on the bottleneck. Let f(B) be the least  sum_i t_i + max_i (d_i - sum_{j<i} t_j)  over choices with all
 * t_i <= B. The optimum is  min over B of (G - 1) B + f(B),  and only values of some t need be tried for B: a best
 * choice with bottleneck m gives (G - 1) m + f(m) at most its own value; and at any B the choice behind f(B) has a
 * bottleneck of B or less, so (G - 1) B + f(B) is not below that choice's value.
 *
 * 2. f(B) needs one number per state, although the last term looks back over all sums. Let P be the sum of t over the
 * stages chosen so far, D the largest d_j - (sum before j), and E = P + D. Appending (t, d) gives
 *     P' = P + t,  D' = max(D, d - P),  so  E' = P + t + max(D, d - P) = t + max(E, d),
 * with E = -infinity before the first stage; and the final E is the whole term. P and D have cancelled: E' depends on E
 * alone and does not fall when E grows, so of all ways to be at (stage, layers done) the one with least E is never
 * worse than another. Likewise E' does not fall when t or d grows: options dominated in (t, d) can go. (A Pareto set of
 * (P, D) would be wrong to prune by "both smaller", as a larger P hides more of a later d; E is what that set comes
 * to.)
 *
 * 3. Which B. f never grows with B. Between a low bound l and a high one h of the sorted t, a bound strictly between
 * gives (G - 1) t_{l+1} + f(h) or more. So the interval is left out when that is no better than the best seen, or when
 * f(l) = f(h); else it is cut in two. The pass at B also tells its choice's true bottleneck m <= B, with f(m) = f(B),
 * so that everything from m to B is done. The least B that any choice allows comes from the same pass with max for +.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/stats.h"
#include "interstage/interstage.h"

typedef struct item { /* an option that is not dominated */
  double t, d;
  int first, layers, index;
} item;

typedef struct work {
  const interstage_problem *p;
  item *item;    /* stage after stage; by (first, t) */
  int *begin;    /* [stages][L + 2]: of stage i, those with first = -1, 0, ..., L - 1 */
  double *e;     /* [stages + 1][L + 1] */
  int *from;     /* [stages + 1][L + 1]: item that led there */
  double *bound; /* distinct t, ascending */
  int bounds;
  int *choice; /* of the best */
  double best;
  int64_t passes;
} work;

static int by_place(const void *x, const void *y) {
  const item *a = x, *b = y;
  if (a->first != b->first)
    return a->first < b->first ? -1 : 1;
  if (a->layers != b->layers)
    return a->layers < b->layers ? -1 : 1;
  if (a->t != b->t)
    return a->t < b->t ? -1 : 1;
  if (a->d != b->d)
    return a->d < b->d ? -1 : 1;
  return (a->index > b->index) - (a->index < b->index);
}

static int by_time(const void *x, const void *y) {
  const item *a = x, *b = y;
  if (a->first != b->first)
    return a->first < b->first ? -1 : 1;
  if (a->t != b->t)
    return a->t < b->t ? -1 : 1;
  return by_place(x, y);
}

/* Keeps what is not dominated among options for the same layers; returns how many. */
static int undominated(item *v, int n) {
  int kept = 0;
  qsort(v, (size_t)n, sizeof *v, by_place);
  for (int k = 0; k < n; k++) {
    const item *last = kept ? &v[kept - 1] : NULL;
    if (last && last->first == v[k].first && last->layers == v[k].layers && last->d <= v[k].d)
      continue;
    v[kept++] = v[k];
  }
  qsort(v, (size_t)kept, sizeof *v, by_time);
  return kept;
}

static atoll_err prepare(work *w) {
  const interstage_problem *p = w->p;
  int L = p->layers, S = p->stages;
  size_t n = 0, states = ((size_t)S + 1) * ((size_t)L + 1);
  for (int i = 0; i < S; i++)
    n += (size_t)p->stage[i].options;
  w->item = calloc(n + 1, sizeof *w->item);
  w->bound = calloc(n + 1, sizeof *w->bound);
  w->begin = calloc((size_t)S * ((size_t)L + 2), sizeof *w->begin);
  w->e = calloc(states, sizeof *w->e);
  w->from = calloc(states, sizeof *w->from);
  if (!w->item || !w->bound || !w->begin || !w->e || !w->from)
    return atoll_fail(ATOLL_NOMEM, "inter-stage: no memory for %zu options and %zu states", n, states);
  int at = 0;
  for (int i = 0; i < S; i++) {
    item *v = w->item + at;
    for (int k = 0; k < p->stage[i].options; k++) {
      const interstage_option *o = &p->stage[i].option[k];
      v[k] = (item){o->t, o->d, o->first, o->layers, k};
    }
    int kept = undominated(v, p->stage[i].options), k = 0;
    int *begin = w->begin + (size_t)i * ((size_t)L + 2);
    for (int a = -1; a < L; a++) {
      begin[a + 1] = at + k;
      while (k < kept && v[k].first == a)
        k++;
    }
    begin[L + 1] = at + kept;
    at += kept;
  }
  for (int k = 0; k < at; k++)
    w->bound[k] = w->item[k].t;
  atoll_sort(w->bound, (size_t)at);
  for (int k = 0; k < at; k++)
    if (w->bounds == 0 || w->bound[k] > w->bound[w->bounds - 1])
      w->bound[w->bounds++] = w->bound[k];
  return ATOLL_OK;
}

/* From E at a state over items [k, end), ascending t. minimax: the value of a way is its largest t. */
static void relax(const work *w, int k, int end, double B, int minimax, double E, int done, double *e, int *from) {
  for (; k < end && w->item[k].t <= B; k++) {
    const item *x = &w->item[k];
    if (done + x->layers > w->p->layers)
      continue;
    double v = minimax ? (E > x->t ? E : x->t) : x->t + (E > x->d ? E : x->d);
    if (v < e[done + x->layers]) {
      e[done + x->layers] = v;
      from[done + x->layers] = k;
    }
  }
}

/* f(B), or with minimax the least bottleneck of any choice; INFINITY when there is none. */
static double pass(work *w, double B, int minimax) {
  int L = w->p->layers, S = w->p->stages;
  size_t states = ((size_t)S + 1) * ((size_t)L + 1);
  w->passes++;
  for (size_t s = 0; s < states; s++)
    w->e[s] = INFINITY;
  w->e[0] = -INFINITY;
  for (int i = 0; i < S; i++) {
    const int *begin = w->begin + (size_t)i * ((size_t)L + 2);
    const double *e = w->e + (size_t)i * ((size_t)L + 1);
    double *next = w->e + ((size_t)i + 1) * ((size_t)L + 1);
    int *from = w->from + ((size_t)i + 1) * ((size_t)L + 1);
    for (int a = 0; a < L; a++) {
      if (e[a] == INFINITY)
        continue;
      relax(w, begin[0], begin[1], B, minimax, e[a], a, next, from);
      relax(w, begin[a + 1], begin[a + 2], B, minimax, e[a], a, next, from);
    }
  }
  return w->e[states - 1];
}

/* A pass at a bound; takes its choice when that is the best yet. *at: the bound that is the choice's bottleneck. */
static double try_bound(work *w, int index, int *at) {
  double f = pass(w, w->bound[index], 0);
  if (f == INFINITY)
    return f;
  double most = 0;
  for (int i = w->p->stages, a = w->p->layers; i > 0; i--) {
    const item *x = &w->item[w->from[(size_t)i * ((size_t)w->p->layers + 1) + (size_t)a]];
    most = x->t > most ? x->t : most;
    a -= x->layers;
  }
  while (w->bound[index] > most)
    index--;
  *at = index;
  double value = (double)(w->p->micro_batches - 1) * most + f;
  if (value < w->best) {
    w->best = value;
    for (int i = w->p->stages, a = w->p->layers; i > 0; i--) {
      const item *x = &w->item[w->from[(size_t)i * ((size_t)w->p->layers + 1) + (size_t)a]];
      w->choice[i - 1] = x->index;
      a -= x->layers;
    }
  }
  return f;
}

/* Bounds strictly between low and high, whose f are known. */
static void sweep(work *w, int low, double f_low, int high, double f_high) {
  while (high - low > 1 && f_low > f_high && (double)(w->p->micro_batches - 1) * w->bound[low + 1] + f_high < w->best) {
    int middle = low + (high - low) / 2, at = middle;
    double f = try_bound(w, middle, &at);
    /* Down to `at` everything equals f; the lower part is searched first: with many micro-batches it is the better. */
    if (at > low)
      sweep(w, low, f_low, at, f);
    low = middle;
    f_low = f;
  }
}

atoll_err interstage_dp(const interstage_problem *p, int *choice, interstage_answer *out) {
  work w = {.p = p, .choice = choice, .best = INFINITY};
  atoll_err err = prepare(&w);
  if (err != ATOLL_OK)
    goto done;
  double least = pass(&w, INFINITY, 1);
  int low = 0, high = w.bounds - 1;
  while (w.bound[low] < least)
    low++;
  double f_high = try_bound(&w, high, &high), f_low = f_high;
  if (high > low) {
    int same;
    f_low = try_bound(&w, low, &same);
  }
  sweep(&w, low, f_low, high, f_high);
  out->value = interstage_value(p, choice, &out->bottleneck, &out->sum);
  out->proved = 1;
  out->work = w.passes;
done:
  free(w.item);
  free(w.bound);
  free(w.begin);
  free(w.e);
  free(w.from);
  return err;
}
