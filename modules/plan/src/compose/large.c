/* The walk over micro-batch sizes and data degrees.
 *
 * For each the best chain of stages on parts of islands is found (chain.c). Combinations are taken by rising bounds, so
 * that those that cannot win are never composed:
 *
 *   Bound. A stage on kind k (pool p, g devices a replica) does at least u_k seconds per micro-batch for each of the n
 *   most frequent layers it holds. With D replicas of every stage, pool p has room for floor(devices_p / (D g)) such
 *   stages, so if no stage takes longer than t, the n layers need  sum over p of max over k of floor(devices_p / (D
 *   g_k)) floor(t / u_k) >= n.  (Giving a pool's devices to the best of its kinds alone is a relaxation: floor(a / g) r
 *   is at most (a / g) r, and mixtures lie between.) The least t that satisfies it is at most the bottleneck, and the
 *   first micro-batch passes every layer at its fastest:  T >= (G - 1) t + w.  To keep it a bound for mixtures, devices
 *   are divided without rounding.
 *
 *   Rent. A device is paid for at least as long as it computes, so a step costs at least G times what each layer costs
 *   on the kind where seconds times price of its devices is least. That is the bound for plan.objective=price.
 *
 *   Limit. First plans are looked for in the PILOTS combinations of least bound without a limit, then in twice as many
 *   under the limit of the best so far, and so on until no bound is below it. Then the same again for better plans and
 *   sharper bounds. The limit does not fall within a round, so the answer does not depend on the order in a round, nor
 *   on how ranks share it.
 *
 * Up to ALL_WIDTHS devices every data degree is tried with grid, whose answers are cheap. Beyond, those that are 1, 3
 * or 5 times a power of two and those that divide an island: a data degree between two of them leaves devices of every
 * island over, or is at most a fifth from one that is tried. What lies outside is not part of the gap that a plan
 * states.
 *
 * Copies (copies.c) of degree D on parts of the cluster are much like one pipeline of degree copies x D on all of it:
 * stages are as many and as long, and only cross fewer islands. They are tried where no island holds that degree, or
 * where a crossing takes CROSSING of the slowest stage's time; this too is not part of the gap.
 *
 * The FINALISTS of least composed time are built and simulated, and the simulator has the last word. */
#include "compose/large.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/agree.h"

#define PILOTS           4
#define ROUNDS_FOR_EXTRA 4
#define FINALISTS        6
#define ALL_WIDTHS       64
#define CROSSING         0.1  /* of the time of the slowest stage: sends between islands that take less are no matter */
#define WORK             4000 /* of the engine, for each layer and kind */
#define PICKED           2
#define SKETCHES         30 /* parts of it for a first look at a combination */

/* ---- combinations ------------------------------------------------------------------------------------------------ */

static int64_t leaves_of(const composer *c, int64_t G, int D) {
  if (c->params->sum_leaves > 0)
    return space_leaves(c, G, D);
  int64_t leaves = D;
  while (leaves < 8)
    leaves += D;
  return leaves < G ? leaves : G;
}

static int worth_trying(const large *x, int D) {
  int odd = D, devices = 0;
  for (int p = 0; p < x->pools; p++)
    devices += x->pool[p].islands * x->pool[p].per_island;
  if (x->c->params->data_parallel > 0)
    return D * x->copies == x->c->params->data_parallel;
  if (devices <= ALL_WIDTHS && x->c->parallelizer == &atoll_parallelizer_grid)
    return 1;
  while (odd % 2 == 0)
    odd /= 2;
  int found = odd == 1 || odd == 3 || odd == 5;
  for (int p = 0; p < x->pools && !found; p++)
    found = x->pool[p].per_island % D == 0;
  return found;
}

static double least_steady(const large *x, const double *u, int D, int n) {
  double t = 0;
  for (int round = 0; round < 100000; round++) {
    double room = 0, next = INFINITY;
    for (int p = 0; p < x->pools; p++) {
      double most = 0;
      for (int k = 0; k < x->kinds; k++) {
        if (x->kind[k].pool != p || !(u[k] < INFINITY) || D * x->kind[k].tensor > x->pool[p].per_island)
          continue;
        double held = floor(t / u[k] + 1e-9);
        double stages = (double)x->pool[p].islands * x->pool[p].per_island / ((double)D * x->kind[k].tensor);
        most = fmax(most, stages * held);
        next = fmin(next, (held + 1) * u[k]);
      }
      room += most;
    }
    if (room >= n || !(next < INFINITY))
      return room >= n ? t : INFINITY;
    t = next;
  }
  return t;
}

/* Least seconds of each class of layers on each kind, and the most frequent class. */
static atoll_err layer_times(large *x, int64_t b, double *u, double *whole, double *rent, int *frequent) {
  composer *c = x->c;
  int classes = 0, most = 0, *times = NULL, *of = NULL;
  double *least = NULL, *paid = NULL;
  atoll_err err;
  ATOLL_TRY_GOTO(err, done, plan_alloc((size_t)c->layers, sizeof *times, &times));
  ATOLL_TRY_GOTO(err, done, plan_alloc((size_t)c->layers, sizeof *of, &of));
  for (int l = 0; l < c->layers; l++) {
    int k = cost_layer_class(c->cost, l);
    if (k == classes)
      of[classes++] = l;
    times[k]++;
    most = times[k] > times[most] ? k : most;
  }
  ATOLL_TRY_GOTO(err, done, plan_alloc((size_t)classes, sizeof *least, &least));
  ATOLL_TRY_GOTO(err, done, plan_alloc((size_t)classes, sizeof *paid, &paid));
  for (int i = 0; i < classes; i++)
    least[i] = paid[i] = INFINITY;
  for (int k = 0; k < x->kinds; k++)
    for (int i = 0; i < classes; i++) {
      double best = INFINITY;
      for (int p = 0; p < ATOLL_POLICIES; p++) {
        cost_slice t;
        ATOLL_TRY_GOTO(err, done,
                       cost_of_slice(c->cost, x->home[x->pool[x->kind[k].pool].island[0]], x->kind[k].tensor,
                                     (atoll_mlp)c->params->mlp, of[i], of[i] + 1, (atoll_policy)p, b, &t));
        best = fmin(best, t.forward + t.backward);
      }
      least[i] = fmin(least[i], best);
      paid[i] = fmin(paid[i], best * x->kind[k].tensor * x->pool[x->kind[k].pool].price);
      if (i == most)
        u[k] = best;
    }
  *whole = *rent = 0;
  for (int i = 0; i < classes; i++) {
    *whole += times[i] * least[i];
    *rent += times[i] * paid[i];
  }
  *frequent = times[most];
done:
  free(times);
  free(of);
  free(least);
  free(paid);
  return err;
}

static void fill_combination(const composer *c, combination *k) {
  int64_t leaf = 0;
  int columns = large_width(k);
  k->leaves = leaves_of(c, k->G, columns);
  k->most = 0;
  k->partials = 1;
  k->value = INFINITY;
  for (int d = 0; d < columns; d++) {
    int64_t share = k->leaves / columns + (d < k->leaves % columns);
    int64_t n = plan_leaf_first(k->leaves, k->G, leaf + share) - plan_leaf_first(k->leaves, k->G, leaf);
    int most, left;
    plan_tree_walk(k->leaves, leaf, share, &most, &left);
    k->most = n > k->most ? n : k->most;
    k->partials = most > k->partials ? most : k->partials;
    leaf += share;
  }
}

static int by_bound(const void *a, const void *b) {
  const combination *x = a, *y = b;
  if (x->bound != y->bound)
    return x->bound < y->bound ? -1 : 1;
  if (x->b != y->b)
    return x->b < y->b ? -1 : 1;
  if (x->x->copies != y->x->copies)
    return x->x->copies - y->x->copies;
  return x->D != y->D ? x->D - y->D : x->x->number - y->x->number;
}

/* Seconds of a micro-batch there and back over the slowest boundary of two pools, or of two islands of one. */
static atoll_err slowest_send(const large *x, const combination *at, double *most) {
  *most = 0;
  for (int p = 0; p < x->pools; p++)
    for (int q = 0; q < x->pools; q++) {
      double one;
      ATOLL_TRY(pools_send(x, at, p, q, &one));
      *most = fmax(*most, one);
    }
  return ATOLL_OK;
}

/* Data degrees of one view of the cluster for micro-batches of b samples. */
static atoll_err add_combinations(large *x, large *view, int64_t b, double *u, int *room) {
  composer *c = x->c;
  int64_t G = c->problem->global_batch / b;
  int widest = 0, frequent = 0;
  double whole = 0, rent = 0;
  for (int p = 0; p < view->pools; p++)
    widest = view->pool[p].per_island > widest ? view->pool[p].per_island : widest;
  double send, steady;
  ATOLL_TRY(layer_times(view, b, u, &whole, &rent, &frequent));
  ATOLL_TRY(slowest_send(x, &(combination){.x = x, .b = b}, &send));
  for (int D = 1; D <= widest && D * view->copies <= G; D++) {
    if (!worth_trying(view, D) || leaves_of(c, G, D * view->copies) < D * view->copies)
      continue;
    steady = least_steady(view, u, D, frequent);
    if (view->copies > 1 && D * view->copies <= widest && send < CROSSING * steady)
      continue;
    if (x->combinations == *room) {
      *room = *room ? 2 * *room : 64;
      combination *grown = realloc(x->combination, (size_t)*room * sizeof *grown);
      if (!grown)
        return atoll_fail(ATOLL_NOMEM, "plan: no memory for %d combinations", *room);
      x->combination = grown;
    }
    combination *k = &x->combination[x->combinations++];
    *k = (combination){.x = view, .b = b, .G = G, .D = D, .in_turn = 1};
    fill_combination(c, k);
    k->seconds = whole + (double)(k->most - 1) * steady;
    k->bound = x->cheapest ? rent * (double)G / view->copies : k->seconds; /* rent is of all copies */
    k->least = c->monotone ? k->bound : 0; /* of other programs' times nothing is known before they are asked */
  }
  return ATOLL_OK;
}

static atoll_err list_combinations(large *x) {
  const composer *c = x->c;
  int64_t batch = c->problem->global_batch;
  int room = 0;
  double *u = NULL;
  int kinds = x->kinds;
  for (int v = 0; v < x->views; v++)
    kinds = x->view[v].kinds > kinds ? x->view[v].kinds : kinds;
  ATOLL_TRY(plan_alloc((size_t)kinds, sizeof *u, &u));
  atoll_err err = ATOLL_OK;
  for (int64_t b = 1; b <= batch && err == ATOLL_OK; b++)
    for (int v = -1; v < x->views && err == ATOLL_OK; v++)
      if (batch % b == 0 && (c->params->micro_batch == 0 || b == c->params->micro_batch))
        err = add_combinations(x, v < 0 ? x : &x->view[v], b, u, &room);
  free(u);
  if (x->combinations)
    qsort(x->combination, (size_t)x->combinations, sizeof *x->combination, by_bound);
  return err;
}

/* ---- ranks ------------------------------------------------------------------------------------------------------- */

static int rank_of(MPI_Comm comm) {
  int rank = 0;
  if (comm != MPI_COMM_NULL)
    MPI_Comm_rank(comm, &rank);
  return rank;
}

static int size_of(MPI_Comm comm) {
  int size = 1;
  if (comm != MPI_COMM_NULL)
    MPI_Comm_size(comm, &size);
  return size;
}

static atoll_err together(MPI_Comm comm, atoll_err err) { return comm == MPI_COMM_NULL ? err : atoll_agree(comm, err); }

static int open(const combination *k, double limit) { return k->in_turn && k->least * (1 - 1e-12) < limit; }

/* Those of the combinations [first, last) that can still win, each on one rank; afterwards all know all values. */
static atoll_err solve(large *x, MPI_Comm comm, engine_part part, int64_t work, int first, int last, double limit) {
  int rank = rank_of(comm), size = size_of(comm);
  atoll_err err = ATOLL_OK;
  for (int i = first; i < last && err == ATOLL_OK; i++)
    if (i % size == rank && open(&x->combination[i], limit))
      err = chain_solve(&x->combination[i], limit, part, work);
  ATOLL_TRY(together(comm, err));
  if (size == 1)
    return ATOLL_OK;
  double *all = NULL;
  int n = last - first;
  err = plan_alloc(2 * (size_t)n, sizeof *all, &all);
  for (int i = 0; i < n && err == ATOLL_OK; i++) {
    all[2 * i] = x->combination[first + i].value;
    all[2 * i + 1] = -x->combination[first + i].least; /* who looked at it knows the greatest */
  }
  err = together(comm, err);
  if (err == ATOLL_OK && n > 0)
    MPI_Allreduce(MPI_IN_PLACE, all, 2 * n, MPI_DOUBLE, MPI_MIN, comm);
  for (int i = 0; i < n && err == ATOLL_OK; i++) {
    x->combination[first + i].value = all[2 * i];
    x->combination[first + i].least = -all[2 * i + 1];
  }
  free(all);
  return err;
}

/* Those that can still win, by rising bounds: PILOTS of them, then twice as many under the best value so far, and on.
 */
static atoll_err rounds(large *x, MPI_Comm comm, engine_part part, int64_t work, double *limit) {
  for (int first = 0, end = 0, round = PILOTS; first < x->combinations; round *= 2) {
    for (int found = 0; end < x->combinations && found < round; end++)
      found += open(&x->combination[end], *limit);
    ATOLL_TRY(solve(x, comm, part, work, first, end, *limit));
    for (; first < end; first++)
      *limit = fmin(*limit, x->combination[first].value);
  }
  return ATOLL_OK;
}

/* Leaves in turn those open ones that more work may help most: of least value for better plans, of least bound for the
 * gap. Returns how many. */
static int pick(large *x, double limit) {
  combination *picked[2 * PICKED];
  int n = 0;
  for (int i = 0; i < 2 * PICKED; i++) {
    combination *best = NULL;
    for (int c = 0; c < x->combinations; c++) {
      combination *k = &x->combination[c];
      if (open(k, limit) && (!best || (i < PICKED ? k->value < best->value : k->least < best->least)))
        best = k;
    }
    if (!best)
      break;
    best->in_turn = 0;
    picked[n++] = best;
  }
  for (int c = 0; c < x->combinations; c++)
    x->combination[c].in_turn = 0;
  for (int i = 0; i < n; i++)
    picked[i]->in_turn = 1;
  return n;
}

/* First plans; then a little work for each combination that is left, which closes most; then the whole allowance for
 * some of what remains, in equal parts. */
static atoll_err search(large *x, MPI_Comm comm) {
  int64_t work = WORK * x->c->layers * x->kinds;
  double limit = INFINITY;
  ATOLL_TRY(rounds(x, comm, ENGINE_FIRST_PLANS, 0, &limit));
  ATOLL_TRY(rounds(x, comm, ENGINE_FROM_START, work / SKETCHES, &limit));
  int left = pick(x, limit);
  return left ? rounds(x, comm, ENGINE_FROM_START, work / left, &limit) : ATOLL_OK;
}

/* The composition of a combination, from the rank that has it, without its times. */
static atoll_err share_plan(MPI_Comm comm, int i, combination *k) {
  int rank = rank_of(comm), size = size_of(comm), owner = i % size, stages = rank == owner ? k->plan->stages : 0;
  int *flat = NULL;
  if (size == 1)
    return ATOLL_OK;
  MPI_Bcast(&stages, 1, MPI_INT, owner, comm);
  atoll_err err = plan_alloc((size_t)stages, 2 * sizeof *flat, &flat);
  if (err == ATOLL_OK && rank != owner)
    err = engine_plan_create(stages, stages, &k->plan);
  ATOLL_TRY_ALL(comm, err);
  for (int s = 0; s < stages && rank == owner; s++) {
    flat[2 * s] = k->plan->stage[s].last;
    flat[2 * s + 1] = k->plan->stage[s].group[0].kind;
  }
  MPI_Bcast(flat, 2 * stages, MPI_INT, owner, comm);
  for (int s = 0, first = 0; s < stages && rank != owner; s++) {
    k->plan->group[s] = (engine_group){flat[2 * s + 1], 1};
    k->plan->stage[s] = (engine_stage){first, flat[2 * s], 1, &k->plan->group[s]};
    first = flat[2 * s];
  }
  free(flat);
  return ATOLL_OK;
}

/* ---- the choice -------------------------------------------------------------------------------------------------- */

static void describe(const large *x, const combination *k, const atoll_plan *plan, char *text, size_t n) {
  const atoll_plan_pipeline *pipe = &plan->pipeline[0];
  size_t at = 0;
  if (k->x->copies > 1)
    at = (size_t)snprintf(text, n, "%d copies of ", k->x->copies);
  at += (size_t)snprintf(text + at, n - at, "%d stage%s x %d, micro-batch %" PRId64, pipe->stages,
                         pipe->stages == 1 ? "" : "s", k->D, k->b);
  for (int s = 0; s < pipe->stages && at < n;) { /* runs of like stages */
    const atoll_plan_replica *r = &pipe->stage[s].replica[0];
    int e = s + 1, first = pipe->stage[s].chunk[0].first;
    while (e < pipe->stages && pipe->stage[e].replica[0].ranks == r->ranks &&
           strcmp(x->c->problem->islands->island[pipe->stage[e].replica[0].island].model,
                  x->c->problem->islands->island[r->island].model) == 0)
      e++;
    int layers = pipe->stage[e - 1].chunk[0].last - first;
    at += (size_t)snprintf(text + at, n - at, "%s %d layer%s in %d on %.24s", s ? "," : ":", layers,
                           layers == 1 ? "" : "s", e - s, x->c->problem->islands->island[r->island].model);
    if (at < n && r->ranks > 1)
      at += (size_t)snprintf(text + at, n - at, " tensor %d", r->ranks);
    s = e;
  }
}

static int acceptable(const large *x, const atoll_plan *plan, double price) {
  const atoll_plan_params *p = x->c->params;
  return plan->step_seconds <= x->max_seconds * (1 + COMPOSE_SLACK) &&
         !(p->max_price > 0 && price > p->max_price * (1 + COMPOSE_SLACK));
}

static int by_value(const combination *const *list, int n, const combination *k) {
  int at = n;
  while (at > 0 && list[at - 1]->value > k->value)
    at--;
  return at;
}

/* The finalists, best composed first. */
static int finalists(large *x, combination *list[FINALISTS]) {
  int n = 0;
  for (int i = 0; i < x->combinations; i++) {
    combination *k = &x->combination[i];
    if (!(k->value < INFINITY))
      continue;
    int at = by_value((const combination *const *)list, n, k);
    if (at == FINALISTS)
      continue;
    n = n < FINALISTS ? n + 1 : n;
    memmove(&list[at + 1], &list[at], (size_t)(n - 1 - at) * sizeof *list);
    list[at] = k;
  }
  return n;
}

static atoll_err choose(large *x, combination **list, int n, large_choice *out) {
  composer *c = x->c;
  double best = INFINITY;
  for (int i = 0; i < n; i++) {
    atoll_plan *plan = NULL;
    double price = NAN;
    atoll_err err = realize(list[i], list[i]->plan, &plan, &price);
    if (err == ATOLL_INFEASIBLE) {
      snprintf(c->tightest, sizeof c->tightest, "%s", atoll_err_message());
      atoll_err_clear();
      continue;
    }
    ATOLL_TRY(err);
    char text[256];
    const shape key = {
        .S = plan->pipeline[0].stages, .D = large_width(list[i]), .tensor = compose_tensor(plan), .b = list[i]->b};
    describe(x, list[i], plan, text, sizeof text);
    compose_note(c, &key, plan->step_seconds, text);
    double value = x->cheapest ? price : plan->step_seconds;
    if (acceptable(x, plan, price) && value < best * (1 - COMPOSE_SLACK)) {
      atoll_plan_destroy(&out->plan);
      out->plan = plan;
      out->price = price;
      out->at = list[i];
      best = value;
      continue;
    }
    atoll_plan_destroy(&plan);
  }
  return ATOLL_OK;
}

/* Least value that anything in the space can have. */
static double least_of_all(const large *x) {
  double least = INFINITY;
  for (int i = 0; i < x->combinations; i++)
    least = fmin(least, x->combination[i].least);
  return least;
}

/* What was learnt on the way. */
static void take_from_views(large *x) {
  for (int v = 0; v < x->views; v++) {
    const large *view = &x->view[v];
    x->epsilon = fmax(x->epsilon, view->epsilon);
    if (view->missing < x->missing) {
      x->missing = view->missing;
      memcpy(x->why, view->why, sizeof x->why);
    }
  }
}

static atoll_err nothing(const large *x) {
  const composer *c = x->c;
  const atoll_plan_params *p = c->params;
  if (!x->combinations)
    return atoll_fail(ATOLL_INFEASIBLE,
                      "no plan: plan.* and the batch of %" PRId64 " samples leave nothing to choose for %d ranks",
                      c->problem->global_batch, c->world);
  char nowhere[512] = "";
  if (p->target == 0) /* else a layer may be cut by axes of the parallelizer's own */
    ATOLL_TRY(compose_nowhere(c, nowhere, sizeof nowhere));
  if (x->missing < INT64_MAX && x->why[0])
    return atoll_fail(ATOLL_INFEASIBLE, "no plan fits: %s%snearest is %s", nowhere, nowhere[0] ? "; " : "", x->why);
  if (p->max_price > 0 || p->min_throughput > 0)
    return atoll_fail(ATOLL_INFEASIBLE,
                      "no plan meets plan.max_price and plan.min_throughput (0 = none): they are %g and %g tokens/s",
                      p->max_price, p->min_throughput);
  return atoll_fail(ATOLL_INFEASIBLE, "no plan fits: %s", c->tightest[0] ? c->tightest : "no slice does");
}

static atoll_err check_fixed(const composer *c) {
  if (c->params->stages > 0 || c->params->layers.n > 0)
    return atoll_fail(ATOLL_UNSUPPORTED,
                      "plan.stages and plan.layers do not go together with plan.objective=price, plan.max_price, "
                      "plan.min_throughput and plan.experts");
  return ATOLL_OK;
}

static atoll_err make_once(composer *c, MPI_Comm comm, large_choice *out) {
  large x = {.c = c, .copies = 1, .cheapest = c->params->objective == 1, .max_seconds = INFINITY, .missing = INT64_MAX};
  const atoll_plan_problem *problem = c->problem;
  combination *list[FINALISTS + 1];
  if (c->params->min_throughput > 0)
    x.max_seconds = (double)problem->global_batch * (double)problem->seq / c->params->min_throughput;
  atoll_err err;
  ATOLL_TRY_GOTO(err, done, together(comm, check_fixed(c)));
  ATOLL_TRY_GOTO(err, done, together(comm, c->parallelizer->begin(problem, c->params, &x.state)));
  ATOLL_TRY_GOTO(err, done, together(comm, parts_whole(&x)));
  ATOLL_TRY_GOTO(err, done, together(comm, pools_find(&x)));
  ATOLL_TRY_GOTO(err, done, together(comm, parts_find(&x)));
  ATOLL_TRY_GOTO(err, done, together(comm, copies_find(&x)));
  ATOLL_TRY_GOTO(err, done, together(comm, list_combinations(&x)));
  ATOLL_TRY_GOTO(err, done, search(&x, comm));
  take_from_views(&x);
  int n = finalists(&x, list);
  out->composed = n ? list[0]->value : NAN;
  for (int i = 0; i < n; i++)
    ATOLL_TRY_GOTO(err, done, share_plan(comm, (int)(list[i] - x.combination), list[i]));
  err = together(comm, choose(&x, list, n, out));
  if (err != ATOLL_OK)
    goto done;
  if (!out->plan) {
    err = nothing(&x);
    goto done;
  }
  double least = least_of_all(&x);
  out->plan->gap = fmax(out->at->value / least - 1, 0) + x.epsilon;
  out->plan->optimal = out->plan->gap <= COMPOSE_SLACK;
  out->plan->gap = out->plan->optimal ? 0 : out->plan->gap;
  out->transfer_price = pools_transfer(out->at->x, out->at, out->at->plan);
  out->copies = out->at->x->copies;
  err = realize_idle(&x, out->at, out->plan, out);
done:
  out->at = NULL;
  if (err != ATOLL_OK)
    atoll_plan_destroy(&out->plan);
  pools_free(&x);
  return err;
}

/* Slices are planned without what train adds to a plan. Where that takes every finalist beyond a limit, the search
 * begins again with as much set aside as train adds to any of their stages that does not fit with it: what leaves so
 * much room fits unless more is added to it. */
atoll_err large_make(composer *c, MPI_Comm comm, large_choice *out) {
  const atoll_plan_problem *given = c->problem;
  atoll_plan_problem problem = *given;
  atoll_err err = ATOLL_INFEASIBLE;
  c->problem = &problem;
  for (int round = 0; round < ROUNDS_FOR_EXTRA && err == ATOLL_INFEASIBLE; round++) {
    problem.reserve = given->reserve + c->extra;
    c->extra = 0;
    err = make_once(c, comm, out);
    if (c->extra == 0)
      break;
  }
  c->problem = given;
  return err;
}
