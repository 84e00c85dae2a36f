/* The best layer split and policies of one shape: branch and bound over stages from the first to the last.
 *
 * Bound. Two things limit a stage i of a column with n micro-batches. It needs n t_i for its own work. And it holds at
 * most W_i = min(S - i, n) of them: micro-batch m + W_i goes forward only after m came back, so of the round trips r_i
 * = t_i + sum over j > i of (s_{j-1} + t_j)          (s_j: both sends over the boundary after j) at least c_i =
 * floor((n - 1) / W_i) + 1 follow one another. Before either, the first micro-batch passed the earlier stages forward,
 * and after it the last one passes them backward. Also, until the first micro-batch is back at stage i, one trip after
 * it came, i can have done W_i forwards and nothing else: n b_i + (n - W_i) f_i of its work come later. With the stages
 * before i decided and P the time of one micro-batch down and up through them, a step therefore takes at least P +
 * Q[i][l], where l is the next layer and R[i][l] = min over l' of  t_i + s_i + R[i + 1][l'] Q[i][l] = min over l' of
 * max( n t_i,  n t_i - (W_i - 1) f_i + s_i + R[i + 1][l'], c_i (t_i + s_i + R[i + 1][l']),  t_i + s_i + Q[i + 1][l'] ).
 * Each term is a bound for every split of the rest, and each grows with what follows, so taking the least of each is
 * one too. t_i is the least over the policies that fit every replica of the stage; s_i is the cheapest link between the
 * islands.
 *
 * A stage ends with the sum of its gradients, g_i, at least by the best link there is. The first stage ends last, so
 * g_0 comes on top of Q[0]; for the others, with F forward only, E[i][l] = min over l' of  max( n t_i + g_i,  f_i + s_i
 * / 2 + E[i + 1][l'] ),   T >= F + E[i][l]. No update starts before all sums are done: the largest one, U[i][l] at
 * least, comes on top of everything.
 *
 * A leaf of the search is a complete plan: it is built, simulated and its bytes counted exactly, for both ways to place
 * columns on nodes. The bound never exceeds a leaf's time, so what is cut off cannot be better. */
#include "compose/compose.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static size_t table_slot(const composer *c, int64_t b, int place, int policy, int slots, int partials) {
  uint64_t h = (uint64_t)b;
  const int key[] = {place, policy, slots, partials};
  for (int i = 0; i < 4; i++)
    h = (h ^ (uint64_t)key[i]) * UINT64_C(0x9e3779b97f4a7c15);
  size_t at = (size_t)(h >> 20) & (c->bucket_count - 1);
  for (; c->bucket[at] >= 0; at = (at + 1) & (c->bucket_count - 1)) {
    const slice_table *t = &c->table[c->bucket[at]];
    if (t->b == b && t->place == place && t->policy == policy && t->slots == slots && t->partials == partials)
      break;
  }
  return at;
}

/* Room for one more table, with half of the buckets free. */
static atoll_err grow_tables(composer *c) {
  if (c->tables < c->table_room)
    return ATOLL_OK;
  int room = c->table_room ? 2 * c->table_room : 64, *bucket;
  slice_table *grown = realloc(c->table, (size_t)room * sizeof *grown);
  if (!grown)
    return atoll_fail(ATOLL_NOMEM, "plan: no memory for %d slice tables", room);
  c->table = grown;
  c->table_room = room;
  ATOLL_TRY(plan_alloc(2 * (size_t)room, sizeof *bucket, &bucket));
  free(c->bucket);
  c->bucket = bucket;
  c->bucket_count = 2 * (size_t)room;
  for (size_t i = 0; i < c->bucket_count; i++)
    c->bucket[i] = -1;
  for (int i = 0; i < c->tables; i++) {
    const slice_table *t = &c->table[i];
    c->bucket[table_slot(c, t->b, t->place, t->policy, t->slots, t->partials)] = i;
  }
  return ATOLL_OK;
}

/* Tells the parallelizer which slices a table is about to ask for. */
static atoll_err prepare_table(composer *c, atoll_island_shape where, int policy, const atoll_slice_context *context) {
  atoll_slice *slice = NULL;
  ATOLL_TRY(plan_alloc((size_t)c->reps, sizeof *slice, &slice));
  for (int r = 0; r < c->reps; r++)
    slice[r] = (atoll_slice){c->rep_first[r], c->rep_last[r]};
  atoll_err err = c->parallelizer->prepare(c->state[policy], slice, c->reps, where, context);
  free(slice);
  return err;
}

/* The parallelizer's answers for every distinct slice in one context. */
static atoll_err search_table(composer *c, int64_t b, int place, int policy, int slots, int partials,
                              const slice_time **out) {
  ATOLL_TRY(grow_tables(c));
  size_t at = table_slot(c, b, place, policy, slots, partials);
  if (c->bucket[at] >= 0) {
    *out = c->table[c->bucket[at]].slice;
    return ATOLL_OK;
  }
  slice_table t = {.b = b, .place = place, .policy = policy, .slots = slots, .partials = partials};
  ATOLL_TRY(plan_alloc((size_t)c->reps, sizeof *t.slice, &t.slice));
  const atoll_island_shape where = {c->place[place].island, 1, c->place[place].tensor};
  atoll_slice_context context = {.in_flight = slots,
                                 .partials = partials,
                                 .micro_batch = b,
                                 .micro_batches = c->problem->global_batch / b,
                                 .data = where.per_node > 1};
  atoll_err err = c->parallelizer->prepare ? prepare_table(c, where, policy, &context) : ATOLL_OK;
  for (int r = 0; r < c->reps && err == ATOLL_OK; r++) {
    atoll_slice_plan point[POINT_MAX];
    int n;
    double epsilon;
    int64_t missing;
    err = c->parallelizer->plan(c->state[policy], (atoll_slice){c->rep_first[r], c->rep_last[r]}, where, &context,
                                point, POINT_MAX, &n, &epsilon, &missing, NULL, 0);
    if (err != ATOLL_OK)
      break;
    t.slice[r] = n > 0 ? (slice_time){point[0].forward, point[0].backward, point[0].d,
                                      point[0].bytes_peak - point[0].bytes_limit, point[0].source}
                       : (slice_time){INFINITY, INFINITY, 0, missing > 0 ? missing : 1, ATOLL_COST_ANALYTIC};
  }
  if (err != ATOLL_OK) {
    free(t.slice);
    return err;
  }
  c->work += c->reps;
  c->bucket[at] = c->tables;
  c->table[c->tables++] = t;
  *out = t.slice;
  return ATOLL_OK;
}

atoll_err search_slice(composer *c, int64_t b, int place, int policy, int slots, int partials, int first, int last,
                       slice_time *out) {
  const slice_time *table;
  ATOLL_TRY(search_table(c, b, place, policy, slots, partials, &table));
  *out = table[c->rep[first * (c->layers + 1) + last]];
  return ATOLL_OK;
}

/* ---- one shape --------------------------------------------------------------------------------------------------- */

typedef struct kind { /* columns of one type; the one with most micro-batches is the slowest */
  int type;
  double n;
  double *send;            /* [S]: least seconds there and back over the boundary after stage i */
  double *q, *r, *e;       /* [S + 1][layers + 1] */
  double *trips, *held;    /* [S]: c_i, W_i */
  const slice_time **time; /* [S][ATOLL_POLICIES]: at the fewest slots, for times only */
} kind;

typedef struct fit { /* a distinct demand on memory at one stage */
  const slice_time *slice[ATOLL_POLICIES];
} fit;

typedef struct search {
  composer *c;
  shape *s;
  int L, S, kinds;
  kind *kind;
  int *fits;          /* [S] */
  fit **fit;          /* [S][fits] */
  double **t;         /* [kinds * S]: [reps] least t over policies that fit everywhere, INFINITY where none does */
  double **f;         /* [kinds * S]: [reps] least forward of the same */
  double **h;         /* [kinds * S]: [reps] least n t - (W - 1) f of the same */
  double **g;         /* [S]: [reps] seconds to sum the gradients, at least */
  double **u;         /* [S]: [reps] largest update of any replica, at least */
  double *update;     /* [S + 1][layers + 1]: U */
  uint32_t **allowed; /* [S][reps]: bit per policy */
  int *cut, *policy;
  double *prefix;   /* [S + 1][kinds] */
  double *forward;  /* [S + 1][kinds] */
  double *slack;    /* [S + 1][kinds]: most (n - 1) t_j - (W_j - 1) f_j of the decided stages */
  double *extra;    /* [S + 1]: largest update so far */
  double first_sum; /* g_0, once decided */
  int64_t limit;    /* of c->work */
  int stopped;
} search;

static int rep_of(const search *x, int first, int last) { return x->c->rep[first * (x->L + 1) + last]; }

static int type_at(const search *x, int column) { return x->c->column[x->s->columns + 2 * (size_t)column]; }

/* Least seconds for `bytes` between a device of island a and another of island b. */
static atoll_err cheapest(composer *c, int a, int b, int64_t bytes, double *seconds) {
  size_t n = (size_t)c->islands;
  if (!c->cheapest)
    ATOLL_TRY(plan_alloc(n * n, sizeof *c->cheapest, &c->cheapest));
  if (c->cheapest_bytes != bytes) {
    c->cheapest_bytes = bytes;
    for (size_t i = 0; i < n * n; i++)
      c->cheapest[i] = NAN;
  }
  double *best = &c->cheapest[(size_t)a * n + (size_t)b];
  if (!isnan(*best)) {
    *seconds = *best;
    return ATOLL_OK;
  }
  *best = INFINITY;
  const atoll_topo_device *d = c->problem->topo->device;
  for (int i = 0; i < c->devices[a]; i++) {
    int na = d[c->device[a][i]].node; /* devices come node by node: two of a node show all there is to see */
    if (i > 1 && na == d[c->device[a][i - 2]].node)
      continue;
    for (int k = 0; k < c->devices[b]; k++) {
      int nb = d[c->device[b][k]].node;
      if ((a == b && i == k) || (k > 1 && nb == d[c->device[b][k - 2]].node))
        continue;
      *best = fmin(*best, cost_send(c->cost, na, nb, bytes));
    }
  }
  if (!(*best < INFINITY))
    *best = 0;
  *seconds = *best;
  return ATOLL_OK;
}

static void search_free(search *x) {
  for (int k = 0; x->kind && k < x->kinds; k++) {
    free(x->kind[k].send);
    free(x->kind[k].q);
    free(x->kind[k].r);
    free(x->kind[k].e);
    free(x->kind[k].trips);
    free(x->kind[k].held);
    free(x->kind[k].time);
  }
  for (int i = 0; x->fit && i < x->S; i++)
    free(x->fit[i]);
  for (int i = 0; x->h && i < x->kinds * x->S; i++) {
    free(x->t[i]);
    free(x->f[i]);
    free(x->h[i]);
  }
  for (int i = 0; x->u && i < x->S; i++) {
    free(x->g[i]);
    free(x->u[i]);
  }
  for (int i = 0; x->allowed && i < x->S; i++)
    free(x->allowed[i]);
  free(x->kind);
  free(x->fits);
  free(x->fit);
  free(x->t);
  free(x->f);
  free(x->h);
  free(x->g);
  free(x->u);
  free(x->update);
  free(x->forward);
  free(x->slack);
  free(x->allowed);
  free(x->cut);
  free(x->policy);
  free(x->prefix);
  free(x->extra);
}

/* Columns of a shape as kinds, and the demands on memory of every stage. */
static atoll_err prepare(search *x) {
  composer *c = x->c;
  const shape *s = x->s;
  size_t S = (size_t)x->S;
  ATOLL_TRY(plan_alloc((size_t)s->D, sizeof *x->kind, &x->kind));
  ATOLL_TRY(plan_alloc(S, sizeof *x->fits, &x->fits));
  ATOLL_TRY(plan_alloc(S, sizeof *x->fit, &x->fit));
  ATOLL_TRY(plan_alloc(S, sizeof *x->allowed, &x->allowed));
  ATOLL_TRY(plan_alloc(S + 1, sizeof *x->cut, &x->cut));
  ATOLL_TRY(plan_alloc(S, sizeof *x->policy, &x->policy));
  ATOLL_TRY(plan_alloc(S + 1, sizeof *x->extra, &x->extra));
  for (size_t i = 0; i < S; i++)
    ATOLL_TRY(plan_alloc((size_t)s->D, sizeof **x->fit, &x->fit[i]));
  int64_t leaf = 0, bytes;
  ATOLL_TRY(cost_boundary_bytes(c->problem->model, 0, s->b, c->problem->seq, &bytes));
  for (int d = 0; d < s->D; d++) {
    int type = type_at(x, d), share = c->column[s->columns + 2 * (size_t)d + 1], most, left, k = 0;
    int64_t first = plan_leaf_first(s->leaves, s->G, leaf), n = plan_leaf_first(s->leaves, s->G, leaf + share) - first;
    plan_tree_walk(s->leaves, leaf, share, &most, &left);
    leaf += share;
    while (k < x->kinds && x->kind[k].type != type)
      k++;
    if (k == x->kinds) {
      x->kind[x->kinds++].type = type;
      ATOLL_TRY(plan_alloc(S, sizeof(double), &x->kind[k].send));
      ATOLL_TRY(plan_alloc((S + 1) * (size_t)(x->L + 1), sizeof(double), &x->kind[k].q));
      ATOLL_TRY(plan_alloc((S + 1) * (size_t)(x->L + 1), sizeof(double), &x->kind[k].r));
      ATOLL_TRY(plan_alloc((S + 1) * (size_t)(x->L + 1), sizeof(double), &x->kind[k].e));
      ATOLL_TRY(plan_alloc(S, sizeof(double), &x->kind[k].trips));
      ATOLL_TRY(plan_alloc(S, sizeof(double), &x->kind[k].held));
      ATOLL_TRY(plan_alloc(S * ATOLL_POLICIES, sizeof *x->kind[k].time, &x->kind[k].time));
      for (int i = 0; i + 1 < x->S; i++) {
        int from = build_place(c, s, d, i)->island, to = build_place(c, s, d, i + 1)->island;
        ATOLL_TRY(cheapest(c, from, to, bytes, &x->kind[k].send[i]));
        x->kind[k].send[i] *= 2;
      }
    }
    x->kind[k].n = (double)n > x->kind[k].n ? (double)n : x->kind[k].n;
    for (int i = 0; i < x->S; i++) {
      fit f = {{NULL}};
      int slots = x->S - i < n ? x->S - i : (int)n, seen = 0;
      for (int p = 0; p < ATOLL_POLICIES; p++)
        if (c->state[p]) {
          ATOLL_TRY(search_table(c, s->b, c->type[type].place[i], p, slots, most, &f.slice[p]));
          x->kind[k].time[i * ATOLL_POLICIES + p] = f.slice[p];
        }
      for (int e = 0; e < x->fits[i]; e++)
        seen = seen || !memcmp(&x->fit[i][e], &f, sizeof f);
      if (!seen)
        x->fit[i][x->fits[i]++] = f;
    }
  }
  ATOLL_TRY(plan_alloc((S + 1) * (size_t)(x->L + 1), sizeof *x->update, &x->update));
  ATOLL_TRY(plan_alloc((S + 1) * (size_t)x->kinds, sizeof *x->forward, &x->forward));
  ATOLL_TRY(plan_alloc((S + 1) * (size_t)x->kinds, sizeof *x->slack, &x->slack));
  return plan_alloc((S + 1) * (size_t)x->kinds, sizeof *x->prefix, &x->prefix);
}

/* What the sum of each slice's gradients takes at stage i, at least. */
static void tabulate_sums(search *x, int i) {
  composer *c = x->c;
  const shape *s = x->s;
  int64_t leaf = 0;
  int parts = 0, most_parts = 1;
  double bandwidth = INFINITY;
  const int64_t *gradient = c->rep_gradient + (size_t)build_place(c, s, 0, i)->degree * (size_t)c->reps;
  for (int d = 0; d < s->D; d++) {
    int share = c->column[s->columns + 2 * (size_t)d + 1], most, left;
    plan_tree_walk(s->leaves, leaf, share, &most, &left);
    leaf += share;
    parts += left;
    most_parts = left > most_parts ? left : most_parts;
    bandwidth = fmin(bandwidth, cost_bandwidth(c->cost, build_place(c, s, d, i)->island));
  }
  for (int r = 0; r < c->reps; r++) {
    double own = 0; /* what each replica adds leaf by leaf */
    for (int d = 0; d < s->D; d++)
      own = fmax(own, c->column[s->columns + 2 * (size_t)d + 1] *
                          cost_leaf(c->cost, build_place(c, s, d, i)->island, gradient[r]));
    x->g[i][r] =
        own + cost_reduce_least(c->cost, s->D, s->D <= c->fullest_node, gradient[r], parts, most_parts, bandwidth);
  }
}

/* Whether slice r at stage i takes under policy p nowhere longer than under q, and not the same everywhere unless p
 * comes first. */
static int at_least_as_fast(const search *x, int i, int r, int p, int q) {
  int same = 1;
  for (int k = 0; k < x->kinds; k++) {
    const slice_time *a = &x->kind[k].time[i * ATOLL_POLICIES + p][r], *b = &x->kind[k].time[i * ATOLL_POLICIES + q][r];
    if (a->forward > b->forward || a->backward > b->backward || a->extra > b->extra)
      return 0;
    same = same && a->forward == b->forward && a->backward == b->backward && a->extra == b->extra;
  }
  return !same || p < q;
}

/* Of the policies that fit, those that another one that fits is not at least as fast as: bytes no longer matter. */
static uint32_t undominated(const search *x, int i, int r) {
  uint32_t fitting = x->allowed[i][r], left = fitting;
  for (int p = 0; p < ATOLL_POLICIES; p++)
    for (int q = 0; q < ATOLL_POLICIES; q++)
      if (p != q && fitting >> p & 1 && fitting >> q & 1 && at_least_as_fast(x, i, r, p, q))
        left &= ~(UINT32_C(1) << q);
  return left;
}

/* Policies that fit every replica, without dominated ones, and least times among them. */
static atoll_err tabulate(search *x) {
  composer *c = x->c;
  ATOLL_TRY(plan_alloc((size_t)(x->kinds * x->S), sizeof *x->t, &x->t));
  ATOLL_TRY(plan_alloc((size_t)(x->kinds * x->S), sizeof *x->f, &x->f));
  ATOLL_TRY(plan_alloc((size_t)(x->kinds * x->S), sizeof *x->h, &x->h));
  ATOLL_TRY(plan_alloc((size_t)x->S, sizeof *x->g, &x->g));
  ATOLL_TRY(plan_alloc((size_t)x->S, sizeof *x->u, &x->u));
  for (int i = 0; i < x->S; i++) {
    ATOLL_TRY(plan_alloc((size_t)c->reps, sizeof **x->allowed, &x->allowed[i]));
    for (int r = 0; r < c->reps; r++)
      for (int p = 0; p < ATOLL_POLICIES; p++) {
        int fits = c->state[p] != NULL && (!c->only_policy || p == c->only_policy - 1);
        for (int e = 0; e < x->fits[i] && fits; e++)
          fits = x->fit[i][e].slice[p][r].over <= 0;
        x->allowed[i][r] |= (uint32_t)fits << p;
      }
    for (int r = 0; r < c->reps; r++)
      x->allowed[i][r] = undominated(x, i, r);
    ATOLL_TRY(plan_alloc((size_t)c->reps, sizeof **x->g, &x->g[i]));
    ATOLL_TRY(plan_alloc((size_t)c->reps, sizeof **x->u, &x->u[i]));
    tabulate_sums(x, i);
    for (int k = 0; k < x->kinds; k++) {
      double **t = &x->t[k * x->S + i], **f = &x->f[k * x->S + i], **h = &x->h[k * x->S + i], n = x->kind[k].n;
      double held = x->kind[k].held[i] = fmin(x->S - i, n);
      x->kind[k].trips[i] = floor((n - 1) / held) + 1;
      ATOLL_TRY(plan_alloc((size_t)c->reps, sizeof **h, h));
      ATOLL_TRY(plan_alloc((size_t)c->reps, sizeof **t, t));
      ATOLL_TRY(plan_alloc((size_t)c->reps, sizeof **f, f));
      for (int r = 0; r < c->reps; r++) {
        double update = INFINITY;
        (*t)[r] = (*f)[r] = (*h)[r] = INFINITY;
        for (int p = 0; p < ATOLL_POLICIES; p++)
          if (x->allowed[i][r] >> p & 1) {
            const slice_time *a = &x->kind[k].time[i * ATOLL_POLICIES + p][r];
            double sum = a->forward + a->backward;
            (*t)[r] = sum < (*t)[r] ? sum : (*t)[r];
            (*f)[r] = a->forward < (*f)[r] ? a->forward : (*f)[r];
            sum = n * sum - (held - 1) * a->forward;
            (*h)[r] = sum < (*h)[r] ? sum : (*h)[r];
            update = a->extra < update ? a->extra : update;
          }
        if (update < INFINITY && update > x->u[i][r])
          x->u[i][r] = update;
      }
    }
  }
  c->work += (int64_t)x->S * c->reps * (1 + x->kinds);
  return ATOLL_OK;
}

/* Stage i takes layers [l, l'): the range of l'. */
static void choices(const search *x, int i, int l, int *lo, int *hi) {
  *lo = l + 1;
  *hi = x->L - (x->S - 1 - i);
  if (i == x->S - 1)
    *lo = x->L;
  if (x->c->fixed_cut)
    *lo = *hi = x->c->fixed_cut[i + 1];
}

static void relax(search *x) {
  for (int k = 0; k < x->kinds; k++) {
    kind *kd = &x->kind[k];
    for (int i = x->S - 1; i >= 0; i--) {
      const double *t = x->t[k * x->S + i], *f = x->f[k * x->S + i], *h = x->h[k * x->S + i], *g = x->g[i];
      size_t next = (size_t)(i + 1) * (size_t)(x->L + 1);
      const double *q = kd->q + next, *r = kd->r + next, *ends = kd->e + next;
      for (int l = x->L; l >= 0; l--) {
        double best = INFINITY, round = INFINITY, end = INFINITY;
        int lo, hi;
        choices(x, i, l, &lo, &hi);
        if (lo <= l || l < i)
          hi = -1;
        for (int e = lo; e <= hi; e++) {
          int rep = rep_of(x, l, e);
          double a = t[rep], own = kd->n * a, trip = a + kd->send[i] + r[e];
          if (x->c->monotone && own >= best && own >= end && a >= round)
            break; /* longer slices take longer; INFINITY when they do not fit */
          double rest = a + kd->send[i] + q[e], wait = kd->trips[i] * trip, last = own + g[rep];
          double start = h[rep] + kd->send[i] + r[e];
          wait = start > wait ? start : wait;
          double later = f[rep] + 0.5 * kd->send[i] + ends[e];
          own = rest > own ? rest : own;
          own = wait > own ? wait : own;
          own += i == 0 ? g[rep] : 0;
          last = later > last ? later : last;
          best = own < best ? own : best;
          end = last < end ? last : end;
          round = trip < round ? trip : round;
        }
        kd->e[i * (x->L + 1) + l] = end;
        kd->q[i * (x->L + 1) + l] = best;
        kd->r[i * (x->L + 1) + l] = round;
      }
    }
  }
  for (int i = x->S - 1; i >= 0; i--)
    for (int l = x->L; l >= 0; l--) {
      double best = INFINITY;
      int lo, hi;
      choices(x, i, l, &lo, &hi);
      for (int e = lo > l ? lo : l + 1; e <= hi; e++) {
        double a = x->u[i][rep_of(x, l, e)], rest = x->update[(i + 1) * (x->L + 1) + e];
        best = fmin(best, a > rest ? a : rest);
      }
      x->update[i * (x->L + 1) + l] = best < INFINITY ? best : 0;
    }
  x->c->work += (int64_t)(x->kinds + 1) * x->S * x->L * x->L / 4;
}

static atoll_err leaf(search *x) {
  composer *c = x->c;
  for (int layout = 0; layout < 2; layout++) {
    if (layout && (x->s->D == 1 || x->S == 1 || c->problem->topo->nodes == 1))
      continue;
    atoll_plan *plan = NULL;
    int64_t over;
    char where[512] = "";
    ATOLL_TRY(build_plan(c, x->s, x->cut, x->policy, layout, &plan));
    if (!plan)
      continue;
    c->work += 40 * (int64_t)x->S * x->s->D + 6 * x->s->G * x->S;
    atoll_err err = build_times(c, plan, 0);
    if (err == ATOLL_OK && plan->step_seconds >= x->s->best) {
      atoll_plan_destroy(&plan);
      continue; /* bytes take longer than times, and a slower plan needs none */
    }
    c->work += 20 * (int64_t)x->S * x->s->D * x->L;
    if (err == ATOLL_OK)
      err = build_bytes(c, plan, &over, where, sizeof where);
    if (err == ATOLL_OK && over > 0 && over < c->least_over) {
      c->least_over = over;
      snprintf(c->tightest, sizeof c->tightest, "%s", where);
    }
    if (err == ATOLL_OK && over <= 0) {
      double t = plan->step_seconds;
      if (t < x->s->best) {
        char text[256];
        x->s->best = t;
        build_describe(c, x->s, x->cut, x->policy, text, sizeof text - 24);
        snprintf(text + strlen(text), 24, ", bubble %.0f %%", 100 * plan->bubble_fraction);
        compose_note(c, x->s, t, text);
      }
      int better = t < c->best_seconds * (1 - COMPOSE_SLACK);
      if (!better && c->best && t <= c->best_seconds * (1 + COMPOSE_SLACK))
        better = plan->idle_count < c->best->idle_count;
      if (better) {
        atoll_plan *old = c->best;
        c->best = plan;
        plan = old;
        c->best_seconds = t < c->best_seconds ? t : c->best_seconds;
      }
    }
    atoll_plan_destroy(&plan);
    ATOLL_TRY(err);
  }
  return ATOLL_OK;
}

typedef struct child {
  double bound;
  int last, policy;
} child;

static int compare_children(const void *a, const void *b) {
  const child *x = a, *y = b;
  if (x->bound != y->bound)
    return x->bound < y->bound ? -1 : 1;
  return x->last != y->last ? x->last - y->last : x->policy - y->policy;
}

/* Bound of the decided stages and this choice, without updates; floor_bound is the parent's. */
static double child_bound(search *x, int i, int r, int e, int p, double floor_bound, double *extra) {
  double bound = floor_bound;
  int next = (i + 1) * (x->L + 1) + e;
  *extra = x->extra[i] > x->update[next] ? x->extra[i] : x->update[next];
  for (int k = 0; k < x->kinds; k++) {
    const kind *kd = &x->kind[k];
    const slice_time *a = &kd->time[i * ATOLL_POLICIES + p][r];
    double t = a->forward + a->backward, before = x->prefix[i * x->kinds + k], trip = t + kd->send[i] + kd->r[next];
    double own = kd->n * t, rest = t + kd->send[i] + kd->q[next], wait = kd->trips[i] * trip;
    double last = own + x->g[i][r], later = a->forward + 0.5 * kd->send[i] + kd->e[next];
    double start = kd->n * t - (kd->held[i] - 1) * a->forward + kd->send[i] + kd->r[next];
    own = rest > own ? rest : own;
    own = start > own ? start : own;
    own = before + (wait > own ? wait : own);
    /* The trip through all stages is known better now: what the decided ones make of it. */
    wait = kd->trips[0] * (before + trip);
    start = before + trip + x->slack[i * x->kinds + k];
    own = wait > own ? wait : own;
    own = start > own ? start : own;
    own += i == 0 ? x->g[0][r] : x->first_sum;
    last = x->forward[i * x->kinds + k] + (later > last ? later : last);
    bound = own > bound ? own : bound;
    bound = last > bound ? last : bound;
    *extra = a->extra > *extra ? a->extra : *extra;
  }
  return bound;
}

/* Decides stage i: layers [l, last) under a policy. */
static void choose_child(search *x, int i, int l, int last, int policy) {
  int r = rep_of(x, l, last);
  x->cut[i + 1] = last;
  x->policy[i] = policy;
  x->extra[i + 1] = x->extra[i];
  x->first_sum = i == 0 ? x->g[0][r] : x->first_sum;
  for (int k = 0; k < x->kinds; k++) {
    const slice_time *a = &x->kind[k].time[i * ATOLL_POLICIES + policy][r];
    double send = i + 1 < x->S ? x->kind[k].send[i] : 0;
    int here = i * x->kinds + k, next = here + x->kinds;
    x->extra[i + 1] = a->extra > x->extra[i + 1] ? a->extra : x->extra[i + 1];
    x->forward[next] = x->forward[here] + a->forward + 0.5 * send;
    x->prefix[next] = x->prefix[here] + a->forward + a->backward + send;
    const kind *kd = &x->kind[k];
    x->slack[next] = fmax(x->slack[here], (kd->n - 1) * (a->forward + a->backward) - (kd->held[i] - 1) * a->forward);
  }
}

static atoll_err descend(search *x, int i, int l, double floor_bound) {
  if (i == x->S)
    return leaf(x);
  composer *c = x->c;
  int lo, hi, n = 0;
  choices(x, i, l, &lo, &hi);
  child *list = NULL;
  if (hi < lo || lo <= l)
    return ATOLL_OK;
  ATOLL_TRY(plan_alloc((size_t)(hi - lo + 1) * ATOLL_POLICIES, sizeof *list, &list));
  for (int e = lo; e <= hi; e++) {
    int r = rep_of(x, l, e);
    for (int p = 0; p < ATOLL_POLICIES; p++) {
      double extra;
      if (!(x->allowed[i][r] >> p & 1))
        continue;
      double bound = child_bound(x, i, r, e, p, floor_bound, &extra);
      if ((bound + extra) * (1 - 1e-12) < c->best_seconds)
        list[n++] = (child){bound, e, p};
    }
  }
  c->work += (hi - lo + 1) * x->kinds;
  qsort(list, (size_t)n, sizeof *list, compare_children);
  atoll_err err = ATOLL_OK;
  for (int j = 0; j < n && err == ATOLL_OK; j++) {
    int r = rep_of(x, l, list[j].last);
    double extra, bound = child_bound(x, i, r, list[j].last, list[j].policy, floor_bound, &extra);
    if ((bound + extra) * (1 - 1e-12) >= c->best_seconds)
      continue; /* the incumbent has improved */
    if (c->work > x->limit) {
      x->stopped = 1;
      break;
    }
    choose_child(x, i, l, list[j].last, list[j].policy);
    err = descend(x, i + 1, list[j].last, bound);
  }
  free(list);
  return err;
}

/* When no split fits: the one whose fullest stage is least over, for the message. */
static atoll_err find_tightest(search *x) {
  composer *c = x->c;
  int n = x->L + 1, *to = NULL, *pick = NULL, lo, hi;
  double *r = NULL; /* [S + 1][n]: least over of the fullest stage of the rest */
  atoll_err err;
  ATOLL_TRY_GOTO(err, done, plan_alloc((size_t)((x->S + 1) * n), sizeof *r, &r));
  ATOLL_TRY_GOTO(err, done, plan_alloc((size_t)(x->S * n), sizeof *to, &to));
  ATOLL_TRY_GOTO(err, done, plan_alloc((size_t)(x->S * n), sizeof *pick, &pick));
  for (int l = 0; l < n; l++)
    r[x->S * n + l] = l == x->L ? -INFINITY : INFINITY;
  for (int i = x->S - 1; i >= 0; i--)
    for (int l = 0; l < n; l++) {
      r[i * n + l] = INFINITY;
      choices(x, i, l, &lo, &hi);
      for (int e = lo > l ? lo : l + 1; e <= hi; e++)
        for (int p = 0; p < ATOLL_POLICIES; p++) {
          if (!c->state[p])
            continue;
          double over = -INFINITY;
          for (int f = 0; f < x->fits[i]; f++) {
            double o = (double)x->fit[i][f].slice[p][rep_of(x, l, e)].over;
            over = o > over ? o : over;
          }
          double rest = r[(i + 1) * n + e], worst = over > rest ? over : rest;
          if (worst < r[i * n + l]) {
            r[i * n + l] = worst;
            to[i * n + l] = e;
            pick[i * n + l] = p;
          }
        }
    }
  c->work += (int64_t)x->S * n * n;
  if (r[0] < INFINITY) {
    for (int i = 0, l = 0; i < x->S; i++) {
      x->policy[i] = pick[i * n + l];
      l = x->cut[i + 1] = to[i * n + l];
    }
    atoll_plan *plan = NULL;
    int64_t over;
    char where[512] = "", text[256], head[96];
    ATOLL_TRY_GOTO(err, done, build_plan(c, x->s, x->cut, x->policy, 0, &plan));
    if (!plan)
      ATOLL_TRY_GOTO(err, done, build_plan(c, x->s, x->cut, x->policy, 1, &plan));
    err = build_bytes(c, plan, &over, where, sizeof where);
    atoll_plan_destroy(&plan);
    if (err == ATOLL_OK && over > 0 && over < c->least_over) {
      c->least_over = over;
      snprintf(c->tightest, sizeof c->tightest, "%s", where);
    }
    where[strcspn(where, ":")] = 0; /* without the categories */
    snprintf(head, sizeof head, "%d stage%s x %d, micro-batch %" PRId64, x->S, x->S == 1 ? "" : "s", x->s->D, x->s->b);
    snprintf(text, sizeof text, "%.80s: %.160s", head, where);
    compose_note(c, x->s, NAN, text);
  }
done:
  free(r);
  free(to);
  free(pick);
  return err;
}

/* One plan of the shape, each stage the choice of least bound: an incumbent early is worth more than any bound. */
static atoll_err probe(search *x) {
  int l = 0;
  double bound = 0;
  for (int i = 0; i < x->S; i++) {
    double best = INFINITY, extra;
    int lo, hi, to = -1, policy = 0;
    choices(x, i, l, &lo, &hi);
    for (int e = lo > l ? lo : l + 1; e <= hi; e++)
      for (int p = 0; p < ATOLL_POLICIES; p++) {
        int r = rep_of(x, l, e);
        if (!(x->allowed[i][r] >> p & 1))
          continue;
        double b = child_bound(x, i, r, e, p, bound, &extra) + extra;
        if (b < best) {
          best = b;
          to = e;
          policy = p;
        }
      }
    if (to < 0)
      return ATOLL_OK; /* a dead end of memory: the search proper will look around it */
    bound = child_bound(x, i, rep_of(x, l, to), to, policy, bound, &extra);
    choose_child(x, i, l, to, policy);
    l = to;
  }
  return leaf(x);
}

atoll_err search_shape(composer *c, shape *s, int bound_only, int64_t work) {
  search x = {.c = c, .s = s, .L = c->layers, .S = s->S, .limit = c->work + work};
  int fits;
  atoll_err err;
  ATOLL_TRY_GOTO(err, done, build_fits(c, s, &fits));
  s->solved = !fits;
  if (!fits)
    goto done;
  ATOLL_TRY_GOTO(err, done, prepare(&x));
  ATOLL_TRY_GOTO(err, done, tabulate(&x));
  relax(&x);
  double bound = s->bound;
  for (int k = 0; k < x.kinds; k++)
    bound = fmax(bound, fmax(x.kind[k].q[0], x.kind[k].e[0]) + x.update[0]);
  s->bound = bound;
  s->relaxed = 1;
  if (bound == INFINITY) {
    s->solved = 1;
    c->infeasible++;
    err = find_tightest(&x);
  } else if (bound * (1 - 1e-12) >= c->best_seconds) {
    char text[256];
    s->solved = 1;
    build_describe(c, s, NULL, NULL, text, sizeof text - 24);
    strcat(text, " ( at least )");
    compose_note(c, s, bound, text);
  } else if (bound_only) {
    err = probe(&x);
  } else {
    err = descend(&x, 0, 0, 0);
    s->solved = x.stopped ? 2 : 1;
  }
done:
  search_free(&x);
  return err;
}
