/* The best layer split and policies of one shape: branch and bound over stages from the first to the last.
 *
 * Bound. Two things limit a stage i of a column with n micro-batches. It needs n t_i for its own work. And it holds at most
 * W_i = min(S - i, n) of them: micro-batch m + W_i goes forward only after m came back, so of the round trips
 *     r_i = t_i + sum over j > i of (s_{j-1} + t_j)          (s_j: both sends over the boundary after j)
 * at least c_i = floor((n - 1) / W_i) + 1 follow one another. Before either, the first micro-batch passed the earlier
 * stages forward, and after it the last one passes them backward. With the stages before i decided and P the time of one
 * micro-batch down and up through them, a step therefore takes at least P + Q[i][l], where l is the next layer and
 *     R[i][l] = min over l' of  t_i + s_i + R[i + 1][l']
 *     Q[i][l] = min over l' of  max( n t_i,  c_i (t_i + s_i + R[i + 1][l']),  t_i + s_i + Q[i + 1][l'] ).
 * Each term is a bound for every split of the rest, and each grows with what follows, so taking the least of each is one
 * too. t_i is the least over the policies that fit every replica of the stage; s_i is the cheapest link between the
 * islands. The largest update of the decided stages comes on top, as no update starts before all sums are done.
 *
 * A leaf of the search is a complete plan: it is built, simulated and its bytes counted exactly, for both ways to place
 * columns on nodes. The bound never exceeds a leaf's time, so what is cut off cannot be better. */
#include "compose/compose.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

atoll_err search_table(composer *c, int64_t b, int island, int policy, int slots, int partials, const slice_time **out) {
  for (int i = c->last_table, k = 0; k < c->tables; k++, i = (i + 1) % c->tables) {
    const slice_table *t = &c->table[i];
    if (t->b == b && t->island == island && t->policy == policy && t->slots == slots && t->partials == partials) {
      c->last_table = i;
      *out = t->slice;
      return ATOLL_OK;
    }
  }
  if (c->tables == c->table_room) {
    int room = c->table_room ? 2 * c->table_room : 64;
    slice_table *grown = realloc(c->table, (size_t)room * sizeof *grown);
    if (!grown)
      return atoll_fail(ATOLL_NOMEM, "plan: no memory for %d slice tables", room);
    c->table = grown;
    c->table_room = room;
  }
  slice_table t = {.b = b, .island = island, .policy = policy, .slots = slots, .partials = partials};
  ATOLL_TRY(plan_alloc((size_t)c->reps, sizeof *t.slice, &t.slice));
  atoll_slice_context context = {.in_flight = slots, .partials = partials, .micro_batch = b,
                                 .micro_batches = c->problem->global_batch / b};
  for (int r = 0; r < c->reps; r++) {
    atoll_slice_plan point[POINT_MAX];
    int n;
    double epsilon;
    int64_t missing;
    atoll_err err = c->parallelizer->plan(c->state[policy], (atoll_slice){c->rep_first[r], c->rep_last[r]},
                                          (atoll_island_shape){island, 1, 1}, &context, point, POINT_MAX, &n, &epsilon,
                                          &missing, NULL, 0);
    if (err != ATOLL_OK) {
      free(t.slice);
      return err;
    }
    t.slice[r] = n > 0 ? (slice_time){point[0].forward, point[0].backward, point[0].d, point[0].bytes_peak - point[0].bytes_limit}
                       : (slice_time){INFINITY, INFINITY, 0, missing > 0 ? missing : 1};
  }
  c->work += c->reps;
  c->last_table = c->tables;
  c->table[c->tables++] = t;
  *out = t.slice;
  return ATOLL_OK;
}

/* ---- one shape --------------------------------------------------------------------------------------------------- */

typedef struct kind { /* columns of one type; the one with most micro-batches is the slowest */
  int type;
  double n;
  double *send;           /* [S]: least seconds there and back over the boundary after stage i */
  double *q, *r;          /* [S + 1][layers + 1] */
  double *trips;          /* [S]: c_i */
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
  int *fits;   /* [S] */
  fit **fit;   /* [S][fits] */
  double **t;  /* [kinds * S]: [reps] least t over policies that fit everywhere, INFINITY where none does */
  unsigned char **allowed; /* [S][reps]: bit per policy */
  int *cut, *policy;
  double *prefix; /* [S + 1][kinds] */
  double *extra;  /* [S + 1]: largest update so far */
  int64_t limit;  /* of c->work */
  int stopped;
} search;

static int rep_of(const search *x, int first, int last) { return x->c->rep[first * (x->L + 1) + last]; }

static int type_at(const search *x, int column) { return x->c->column[x->s->columns + 2 * (size_t)column]; }

static double cheapest(const composer *c, int a, int b, int64_t bytes) {
  double best = INFINITY;
  for (int i = 0; i < c->devices[a]; i++) {
    int na = c->problem->topo->device[c->device[a][i]].node;
    if (i > 1 && na == c->problem->topo->device[c->device[a][i - 1]].node &&
        na == c->problem->topo->device[c->device[a][i - 2]].node)
      continue;
    for (int k = 0; k < c->devices[b]; k++) {
      int nb = c->problem->topo->device[c->device[b][k]].node;
      if ((a == b && i == k) || (k > 1 && nb == c->problem->topo->device[c->device[b][k - 1]].node &&
                                 nb == c->problem->topo->device[c->device[b][k - 2]].node))
        continue;
      double t = cost_send(c->cost, na, nb, bytes);
      best = t < best ? t : best;
    }
  }
  return best < INFINITY ? best : 0;
}

static void search_free(search *x) {
  for (int k = 0; x->kind && k < x->kinds; k++) {
    free(x->kind[k].send);
    free(x->kind[k].q);
    free(x->kind[k].r);
    free(x->kind[k].trips);
    free(x->kind[k].time);
  }
  for (int i = 0; x->fit && i < x->S; i++)
    free(x->fit[i]);
  for (int i = 0; x->t && i < x->kinds * x->S; i++)
    free(x->t[i]);
  for (int i = 0; x->allowed && i < x->S; i++)
    free(x->allowed[i]);
  free(x->kind);
  free(x->fits);
  free(x->fit);
  free(x->t);
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
      ATOLL_TRY(plan_alloc(S, sizeof(double), &x->kind[k].trips));
      ATOLL_TRY(plan_alloc(S * ATOLL_POLICIES, sizeof *x->kind[k].time, &x->kind[k].time));
      for (int i = 0; i + 1 < x->S; i++)
        x->kind[k].send[i] = 2 * cheapest(c, c->type[type].island[i], c->type[type].island[i + 1], bytes);
    }
    x->kind[k].n = (double)n > x->kind[k].n ? (double)n : x->kind[k].n;
    for (int i = 0; i < x->S; i++) {
      fit f = {{NULL}};
      int slots = x->S - i < n ? x->S - i : (int)n, seen = 0;
      for (int p = 0; p < ATOLL_POLICIES; p++)
        if (c->state[p]) {
          ATOLL_TRY(search_table(c, s->b, c->type[type].island[i], p, slots, most, &f.slice[p]));
          x->kind[k].time[i * ATOLL_POLICIES + p] = f.slice[p];
        }
      for (int e = 0; e < x->fits[i]; e++)
        seen = seen || !memcmp(&x->fit[i][e], &f, sizeof f);
      if (!seen)
        x->fit[i][x->fits[i]++] = f;
    }
  }
  return plan_alloc((S + 1) * (size_t)x->kinds, sizeof *x->prefix, &x->prefix);
}

/* Policies that fit every replica, and least times among them. */
static atoll_err tabulate(search *x) {
  composer *c = x->c;
  ATOLL_TRY(plan_alloc((size_t)(x->kinds * x->S), sizeof *x->t, &x->t));
  for (int i = 0; i < x->S; i++) {
    ATOLL_TRY(plan_alloc((size_t)c->reps, 1, &x->allowed[i]));
    for (int r = 0; r < c->reps; r++)
      for (int p = 0; p < ATOLL_POLICIES; p++) {
        int fits = c->state[p] != NULL;
        for (int e = 0; e < x->fits[i] && fits; e++)
          fits = x->fit[i][e].slice[p][r].over <= 0;
        x->allowed[i][r] |= (unsigned char)(fits << p);
      }
    for (int k = 0; k < x->kinds; k++) {
      double **t = &x->t[k * x->S + i];
      ATOLL_TRY(plan_alloc((size_t)c->reps, sizeof **t, t));
      for (int r = 0; r < c->reps; r++) {
        (*t)[r] = INFINITY;
        for (int p = 0; p < ATOLL_POLICIES; p++)
          if (x->allowed[i][r] >> p & 1) {
            const slice_time *a = &x->kind[k].time[i * ATOLL_POLICIES + p][r];
            double sum = a->forward + a->backward;
            (*t)[r] = sum < (*t)[r] ? sum : (*t)[r];
          }
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
      const double *t = x->t[k * x->S + i], *q = kd->q + (i + 1) * (x->L + 1), *r = kd->r + (i + 1) * (x->L + 1);
      int64_t n = (int64_t)kd->n, held = x->S - i < n ? x->S - i : n;
      kd->trips[i] = (double)((n - 1) / held + 1);
      for (int l = x->L; l >= 0; l--) {
        double best = INFINITY, round = INFINITY;
        int lo, hi;
        choices(x, i, l, &lo, &hi);
        if (lo <= l || l < i)
          hi = -1;
        for (int e = lo; e <= hi; e++) {
          double a = t[rep_of(x, l, e)], own = kd->n * a, trip = a + kd->send[i] + r[e];
          if (own >= best && a >= round)
            break; /* longer slices take longer; INFINITY when they do not fit */
          double rest = a + kd->send[i] + q[e], wait = kd->trips[i] * trip;
          own = rest > own ? rest : own;
          own = wait > own ? wait : own;
          best = own < best ? own : best;
          round = trip < round ? trip : round;
        }
        kd->q[i * (x->L + 1) + l] = best;
        kd->r[i * (x->L + 1) + l] = round;
      }
    }
  }
  x->c->work += (int64_t)x->kinds * x->S * x->L * x->L / 4;
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
    c->work += 40 * (int64_t)x->S * x->s->D + 6 * x->s->G * x->S;
    atoll_err err = build_predict(c, plan, 0, &over, where, sizeof where);
    if (err == ATOLL_OK && over > 0 && over < c->least_over) {
      c->least_over = over;
      snprintf(c->tightest, sizeof c->tightest, "%s", where);
    }
    if (err == ATOLL_OK && over <= 0) {
      double t = plan->step_seconds;
      if (t < x->s->best) {
        char text[256];
        x->s->best = t;
        build_describe(c, x->s, x->cut, x->policy, text, sizeof text);
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

static double child_bound(search *x, int i, int r, int e, int p, double floor_bound, double *extra) {
  double bound = floor_bound;
  *extra = x->extra[i];
  for (int k = 0; k < x->kinds; k++) {
    const kind *kd = &x->kind[k];
    const slice_time *a = &kd->time[i * ATOLL_POLICIES + p][r];
    int next = (i + 1) * (x->L + 1) + e;
    double t = a->forward + a->backward, before = x->prefix[i * x->kinds + k], trip = t + kd->send[i] + kd->r[next];
    double own = kd->n * t, rest = t + kd->send[i] + kd->q[next], wait = kd->trips[i] * trip;
    own = rest > own ? rest : own;
    own = before + (wait > own ? wait : own);
    wait = kd->trips[0] * (before + trip); /* the first stage's round trip grew, too */
    bound = own > bound ? own : bound;
    bound = wait > bound ? wait : bound;
    *extra = a->extra > *extra ? a->extra : *extra;
  }
  return bound;
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
    x->cut[i + 1] = list[j].last;
    x->policy[i] = list[j].policy;
    x->extra[i + 1] = extra;
    for (int k = 0; k < x->kinds; k++) {
      const slice_time *a = &x->kind[k].time[i * ATOLL_POLICIES + list[j].policy][r];
      x->prefix[(i + 1) * x->kinds + k] =
          x->prefix[i * x->kinds + k] + a->forward + a->backward + (i + 1 < x->S ? x->kind[k].send[i] : 0);
    }
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
    err = build_predict(c, plan, 0, &over, where, sizeof where);
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

atoll_err search_shape(composer *c, shape *s, int bound_only, int64_t work) {
  search x = {.c = c, .s = s, .L = c->layers, .S = s->S, .limit = c->work + work};
  atoll_err err;
  ATOLL_TRY_GOTO(err, done, prepare(&x));
  ATOLL_TRY_GOTO(err, done, tabulate(&x));
  relax(&x);
  double bound = s->bound;
  for (int k = 0; k < x.kinds; k++)
    bound = x.kind[k].q[0] > bound ? x.kind[k].q[0] : bound;
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
    strcat(text, ", at least");
    compose_note(c, s, bound, text);
  } else if (!bound_only) {
    err = descend(&x, 0, 0, 0);
    s->solved = x.stopped ? 2 : 1;
  }
done:
  search_free(&x);
  return err;
}
