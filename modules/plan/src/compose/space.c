/* Which plans there are.
 *
 * A shape fixes everything but where the layers are cut and how they are treated: samples per micro-batch b (a divisor
 * of the batch), depth S, and D replica columns. A column is one place per stage, that is a sequence of S islands and
 * tensor degrees (devices of one node each), and a run of whole leaves of the summation tree; all columns share the
 * cuts and the degrees. So a stage's replicas may stand on different islands and take unequal numbers of micro-batches,
 * and a pipeline may run through islands in any order.
 *
 * All sequences of degrees are tried while there are at most DEGREES_MAX of them, then one degree for all stages. All
 * sequences of islands are tried while there are at most SEQUENCES_MAX of them, then those in which an island's
 * stages are neighbours, the first RUNS_MAX of a depth and TYPES_MAX in all. All multisets of sequences are tried while
 * there are at most MIXTURES_MAX, then columns that stay on one island each. All ways of sharing the leaves are tried
 * while there are at most SHARES_MAX, then the one that balances. Within these bounds the search is exact; DESIGN's
 * larger clusters need the bounds.
 *
 * Bound of a shape. Let w be the seconds of all layers for one micro-batch on place 0 and v_i at least the speed of
 * stage i's device relative to it, on the layer that flatters it most. In 1F1B stage i cannot begin before one forward
 * of every earlier stage, nor can the step end before one backward of each after its last, so with stage times t_j T >=
 * t_0 + .. + t_{i-1} + n t_i   for every i. The most work w that stages can do within T is (T / n) sum_i v_(i) (1 -
 * 1/n)^i with v sorted descending: each t_i at its limit shrinks the later limits by the factor (1 - 1/n), and
 * exchanging two neighbours so that the faster comes first never lessens the sum. Hence T >= n w / sum_i v_(i) (1 -
 * 1/n)^i.
 *
 * Nor can a stage end before the sum of its gradients: T >= n t_i + g_i with g_i at least its share of the time g to
 * sum all gradients over D replicas on the best link. Weighted with v_i and added up, T >= (n w + min(v) g) / sum(v).
 *
 * Layers do not divide. Of the most frequent kind of layer, with m of them and u_i seconds each on stage i's device, a
 * stage of t seconds holds at most floor(t / u_i): the slowest stage takes at least the least t for which these add up
 * to m. And a step takes one whole trip through all stages besides (n - 1) t_i - (W_i - 1) f_i of any stage (see
 * search.c), with f_i at most the share phi of t_i. */
#include "atoll/parallelizer_extern.h"
#include "compose/compose.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DEGREES_MAX   100
#define SEQUENCES_MAX 256
#define RUNS_MAX      20000  /* of one depth and degrees */
#define TYPES_MAX     300000 /* of all: some 150 MB */
#define MIXTURES_MAX  400
#define SHARES_MAX    64
#define SHAPES_MAX    400000

/* ---- places ------------------------------------------------------------------------------------------------------ */

int space_find_place(const composer *c, int island, int tensor) {
  for (int i = 0; i < c->places; i++)
    if (c->place[i].island == island && c->place[i].tensor == tensor)
      return i;
  return -1;
}

/* Most devices that take part on one node of the island. */
static int fullest_node(const composer *c, int island) {
  int most = 0, run = 0, last = -1;
  for (int i = 0; i < c->devices[island]; i++) {
    int node = c->problem->topo->device[c->device[island][i]].node;
    run = node == last ? run + 1 : 1;
    last = node;
    most = run > most ? run : most;
  }
  return most;
}

/* What a program of its own proposes for train is one device a replica. */
static int allowed(const composer *c, int tensor) {
  if (c->params->tensor_parallel > 0 && tensor != c->params->tensor_parallel)
    return 0;
  if (tensor == 1)
    return 1;
  int divides =
      c->parallelizer != &atoll_parallelizer_extern && atoll_layer_check_tensor(c->problem->model, tensor) == ATOLL_OK;
  atoll_err_clear();
  return divides;
}

atoll_err space_places(composer *c) {
  int room = 0;
  for (int x = 0; x < c->islands; x++)
    room += fullest_node(c, x);
  ATOLL_TRY(plan_alloc((size_t)room, sizeof *c->place, &c->place));
  ATOLL_TRY(plan_alloc((size_t)c->fullest_node, sizeof *c->degree, &c->degree));
  int devices = 0, fixed = c->params->stages > 0 || c->params->layers.n > 0;
  for (int x = 0; x < c->islands; x++)
    devices += c->devices[x];
  for (int t = 1; t <= c->fullest_node; t++) {
    int before = c->places_known;
    for (int x = 0; x < c->islands && allowed(c, t); x++)
      if (t <= fullest_node(c, x))
        c->place[c->places_known++] = (stage_place){x, t, c->degrees};
    if (c->places_known == before || (c->degrees > 0 && devices > COMPOSE_TENSOR_DEVICES && !fixed))
      continue;
    c->degree[c->degrees++] = t;
    c->places = c->places_known;
  }
  return ATOLL_OK;
}

/* ---- what the user fixed ----------------------------------------------------------------------------------------- */

static atoll_err check_layers(composer *c) {
  const atoll_plan_params *p = c->params;
  int blocks = c->layers - 2;
  int64_t sum = 0;
  if (p->layers.n == 0)
    return ATOLL_OK;
  for (int64_t i = 0; i < p->layers.n; i++) {
    int ends = (i == 0) + (i == p->layers.n - 1);
    if (p->layers.v[i] < (ends ? 0 : 1) || p->layers.v[i] > blocks)
      return atoll_fail(ATOLL_USAGE, "plan.layers: entry %" PRId64 " is %" PRId64 ", expected %d..%d blocks", i + 1,
                        p->layers.v[i], ends ? 0 : 1, blocks);
    sum += p->layers.v[i];
  }
  if (sum != blocks)
    return atoll_fail(ATOLL_USAGE, "plan.layers: the entries add up to %" PRId64 " blocks, the model has %d", sum,
                      blocks);
  if (p->stages > 0 && p->stages != p->layers.n)
    return atoll_fail(ATOLL_USAGE, "plan.layers has %" PRId64 " entries, plan.stages is %" PRId64, p->layers.n,
                      p->stages);
  c->fixed_stages = (int)p->layers.n;
  ATOLL_TRY(plan_alloc((size_t)c->fixed_stages + 1, sizeof *c->fixed_cut, &c->fixed_cut));
  int at = 1;
  for (int i = 0; i + 1 < c->fixed_stages; i++) {
    at += (int)p->layers.v[i];
    c->fixed_cut[i + 1] = at;
  }
  c->fixed_cut[c->fixed_stages] = c->layers;
  return ATOLL_OK;
}

static atoll_err check_tensor(const composer *c) {
  int64_t degree = c->params->tensor_parallel;
  if (degree <= 1)
    return ATOLL_OK;
  if (degree > c->fullest_node)
    return atoll_fail(ATOLL_USAGE, "plan.tensor_parallel is %" PRId64 ", no node has more than %d device%s", degree,
                      c->fullest_node, c->fullest_node == 1 ? "" : "s");
  return atoll_layer_check_tensor(c->problem->model, (int)degree);
}

atoll_err space_check(composer *c) {
  const atoll_plan_params *p = c->params;
  int devices = 0;
  for (int x = 0; x < c->islands; x++)
    devices += c->devices[x];
  if (devices == 0)
    return atoll_fail(ATOLL_UNAVAILABLE, "plan: no device takes part; the topology has %d", c->problem->topo->devices);
  if (c->problem->seq < 1 || c->problem->global_batch < 1)
    return atoll_fail(ATOLL_USAGE,
                      "plan: train.seq is %" PRId64 " and train.global_batch %" PRId64 ", expected 1 or more",
                      c->problem->seq, c->problem->global_batch);
  if (c->problem->seq > atoll_model_config(c->problem->model)->context)
    return atoll_fail(ATOLL_USAGE, "train.seq %" PRId64 " is beyond model.context %" PRId64, c->problem->seq,
                      atoll_model_config(c->problem->model)->context);
  if (p->experts > 0 && (p->target != 1 || c->parallelizer != &atoll_parallelizer_mist))
    return atoll_fail(ATOLL_USAGE,
                      "plan.experts is %" PRId64 "; only plan.parallelizer=mist with plan.target=any plans experts",
                      p->experts);
  if (p->micro_batch > 0 && c->problem->global_batch % p->micro_batch)
    return atoll_fail(ATOLL_USAGE, "plan.micro_batch %" PRId64 " does not divide train.global_batch %" PRId64,
                      p->micro_batch, c->problem->global_batch);
  ATOLL_TRY(check_layers(c));
  ATOLL_TRY(check_tensor(c));
  int64_t stages = c->fixed_stages ? c->fixed_stages : p->stages;
  if (stages > c->layers)
    return atoll_fail(ATOLL_USAGE, "plan.stages is %" PRId64 ", the model has %d layers (embedding, %d blocks, head)",
                      stages, c->layers, c->layers - 2);
  if ((stages > 0 ? stages : 1) > devices / (p->data_parallel > 0 ? p->data_parallel : 1))
    return atoll_fail(
        ATOLL_USAGE, "plan.stages %" PRId64 " x plan.data_parallel %" PRId64 " needs %" PRId64 " devices, there are %d",
        stages > 0 ? stages : 1, p->data_parallel > 0 ? p->data_parallel : 1,
        (stages > 0 ? stages : 1) * (p->data_parallel > 0 ? p->data_parallel : 1), devices);
  int64_t most = c->problem->global_batch / (p->micro_batch > 0 ? p->micro_batch : 1);
  if (p->data_parallel > most)
    return atoll_fail(ATOLL_USAGE, "plan.data_parallel is %" PRId64 ", there are at most %" PRId64 " micro-batches",
                      p->data_parallel, most);
  if (p->sum_leaves > 0 && p->data_parallel > p->sum_leaves)
    return atoll_fail(ATOLL_USAGE,
                      "plan.data_parallel is %" PRId64 ", plan.sum_leaves %" PRId64
                      ": a replica needs a leaf of its own",
                      p->data_parallel, p->sum_leaves);
  return ATOLL_OK;
}

int64_t space_leaves(const composer *c, int64_t G, int D) {
  int64_t leaves = c->params->sum_leaves;
  if (leaves <= 0)
    for (leaves = 8; leaves < D; leaves *= 2)
      ;
  return leaves < G ? leaves : G;
}

/* ---- speeds at one micro-batch size ------------------------------------------------------------------------------ */

typedef struct speeds {
  int64_t b;
  double work;           /* s of all layers on place 0 */
  double *speed;         /* [places]: upper bound relative to place 0 */
  double reduce;         /* s to sum all gradients over the width at hand, at least */
  double forward_share;  /* phi: most forward / (forward + backward) of any layer anywhere */
  int classes, frequent; /* classes of layers, and the most frequent one */
  int *times;            /* [classes]: how many layers */
  double *seconds;       /* [places][classes]: least of a layer */
} speeds;

/* The seconds of `speeds` are the cost model's, and add up. A parallelizer that says otherwise may be faster: the
 * bounds hold again when they shrink by its best ratio for any slice. (Times do not depend on what a replica holds, so
 * the smallest context shows all.) */
static atoll_err shrink_speeds(composer *c, speeds *v) {
  double ratio = 1;
  for (int x = 0; x < c->places; x++)
    for (int p = 0; p < ATOLL_POLICIES; p++)
      for (int r = 0; r < c->reps && c->state[p]; r++) {
        slice_time said;
        cost_slice own;
        ATOLL_TRY(search_slice(c, v->b, x, p, 1, 1, c->rep_first[r], c->rep_last[r], &said));
        if (said.over > 0)
          continue;
        ATOLL_TRY(cost_of_slice(c->cost, c->place[x].island, c->place[x].tensor, (atoll_mlp)c->params->mlp,
                                c->rep_first[r], c->rep_last[r], (atoll_policy)p, v->b, &own));
        ratio = fmin(ratio, (said.forward + said.backward) / (own.forward + own.backward));
      }
  for (int i = 0; i < c->places * c->layers; i++)
    v->seconds[i] *= ratio;
  v->work *= ratio;
  v->forward_share = 1;
  return ATOLL_OK;
}

static atoll_err find_speeds(composer *c, int64_t b, speeds *v) {
  v->b = b;
  v->work = v->forward_share = 0;
  v->classes = v->frequent = 0;
  for (int x = 0; x < c->places; x++)
    v->speed[x] = 0;
  for (int l = 0; l < c->layers; l++) {
    int k = cost_layer_class(c->cost, l); /* numbered in order of appearance */
    if (k == v->classes) {
      v->times[v->classes++] = 0;
      for (int x = 0; x < c->places; x++) {
        double least = INFINITY;
        for (int p = 0; p < ATOLL_POLICIES; p++) {
          if (!c->state[p])
            continue;
          cost_slice t;
          ATOLL_TRY(cost_of_slice(c->cost, c->place[x].island, c->place[x].tensor, (atoll_mlp)c->params->mlp, l, l + 1,
                                  (atoll_policy)p, b, &t));
          double sum = t.forward + t.backward, share = sum > 0 ? t.forward / sum : 0;
          least = sum < least ? sum : least;
          v->forward_share = share > v->forward_share ? share : v->forward_share;
        }
        v->seconds[x * c->layers + k] = least;
        double here = v->seconds[k], ratio = least > 0 ? here / least : here > 0 ? INFINITY : 0;
        v->speed[x] = ratio > v->speed[x] ? ratio : v->speed[x];
      }
    }
    v->work += v->seconds[k];
    v->times[k]++;
    v->frequent = v->times[k] > v->times[v->frequent] ? k : v->frequent;
  }
  return c->parallelizer == &atoll_parallelizer_grid ? ATOLL_OK : shrink_speeds(c, v);
}

/* Least seconds of the slowest stage, since the most frequent layers do not divide. */
static double slowest_stage(const composer *c, const speeds *v, const column_type *t) {
  const double *u = v->seconds + v->frequent;
  double rate = 0, at;
  for (int x = 0; x < c->places; x++)
    rate += t->count[x] ? t->count[x] / u[x * c->layers] : 0;
  if (!(rate > 0 && rate < INFINITY))
    return 0;
  at = v->times[v->frequent] / rate;
  for (int round = 0; round < 1000; round++) {
    double next = INFINITY, room = 0;
    for (int x = 0; x < c->places; x++) {
      if (!t->count[x])
        continue;
      double k = floor(at / u[x * c->layers] + 1e-9);
      room += t->count[x] * k;
      next = fmin(next, (k + 1) * u[x * c->layers]);
    }
    if (room >= v->times[v->frequent])
      return at;
    at = next;
  }
  return at;
}

static double whole_trip(const composer *c, const speeds *v, const column_type *t) {
  double sum = 0;
  for (int k = 0; k < v->classes; k++) {
    double least = INFINITY;
    for (int x = 0; x < c->places; x++)
      if (t->count[x] && v->seconds[x * c->layers + k] < least)
        least = v->seconds[x * c->layers + k];
    sum += v->times[k] * least;
  }
  return sum;
}

static double column_bound(const composer *c, const speeds *v, const column_type *t, double n) {
  double sum = 0, factor = 1, all = 0, least = INFINITY, last = INFINITY;
  for (;;) { /* places by falling speed; equal ones together */
    double next = -1;
    int count = 0;
    for (int x = 0; x < c->places; x++)
      if (t->count[x] && v->speed[x] < last && v->speed[x] > next)
        next = v->speed[x];
    if (next < 0)
      break;
    for (int x = 0; x < c->places; x++)
      count += v->speed[x] == next ? t->count[x] : 0;
    double shrink = pow(1 - 1 / n, count);
    sum += next * factor * n * (1 - shrink); /* (1 - q^count) / (1 - q), q = 1 - 1 / n */
    factor *= shrink;
    all += next * count;
    least = last = next;
  }
  if (!(all > 0 && all < INFINITY))
    return 0;
  double bound = fmax(n * v->work / sum, (n * v->work + least * v->reduce) / all);
  double most = slowest_stage(c, v, t) * (1 - 1e-9), held = fmin(t->stages, n);
  bound = fmax(bound, n * most);
  return fmax(bound, whole_trip(c, v, t) + most * (n - 1 - (held - 1) * v->forward_share));
}

/* ---- columns ----------------------------------------------------------------------------------------------------- */

static void free_type(column_type *t) {
  free(t->place);
  free(t->count);
  free(t->used);
}

static atoll_err add_type(composer *c, const short *place, int S) {
  if (c->types == c->type_room) {
    int room = c->type_room ? 2 * c->type_room : 64;
    column_type *grown = realloc(c->type, (size_t)room * sizeof *grown);
    if (!grown)
      return atoll_fail(ATOLL_NOMEM, "plan: no memory for %d island sequences", room);
    c->type = grown;
    c->type_room = room;
  }
  column_type *t = &c->type[c->types];
  *t = (column_type){.stages = S};
  atoll_err err = plan_alloc((size_t)S, sizeof *t->place, &t->place);
  err = err == ATOLL_OK ? plan_alloc((size_t)c->places, sizeof *t->count, &t->count) : err;
  err = err == ATOLL_OK ? plan_alloc((size_t)c->islands, sizeof *t->used, &t->used) : err;
  int fits = err == ATOLL_OK;
  for (int i = 0; i < S && fits; i++) {
    const stage_place *at = &c->place[place[i]];
    t->place[i] = place[i];
    t->count[place[i]]++;
    t->used[at->island] += at->tensor;
    fits = t->used[at->island] <= c->devices[at->island];
  }
  if (fits)
    c->types++;
  else
    free_type(t);
  return err;
}

/* Every sequence of islands for stages of these degrees, in order. */
static atoll_err add_sequences(composer *c, const int *tensor, short *place, int i, int S) {
  if (i == S)
    return add_type(c, place, S);
  for (int x = 0; x < c->islands; x++) {
    int at = space_find_place(c, x, tensor[i]);
    place[i] = (short)at;
    if (at >= 0)
      ATOLL_TRY(add_sequences(c, tensor, place, i + 1, S));
  }
  return ATOLL_OK;
}

/* Sequences in which each island has one run, until there are `most` types. */
static atoll_err add_runs(composer *c, const int *tensor, short *place, int i, int S, unsigned char *used, int most) {
  if (c->types >= most)
    return ATOLL_OK;
  if (i == S)
    return add_type(c, place, S);
  for (int x = 0; x < c->islands; x++) {
    if (used[x])
      continue;
    used[x] = 1;
    for (int n = 0, devices = 0; n < S - i;) {
      int at = space_find_place(c, x, tensor[i + n]);
      devices += tensor[i + n];
      if (at < 0 || devices > c->devices[x])
        break;
      place[i + n++] = (short)at;
      ATOLL_TRY(add_runs(c, tensor, place, i + n, S, used, most));
    }
    used[x] = 0;
  }
  return ATOLL_OK;
}

static int has_degrees(const composer *c, const column_type *t, const int *tensor, int S) {
  for (int i = 0; i < S; i++)
    if (t->stages != S || c->place[t->place[i]].tensor != tensor[i])
      return 0;
  return 1;
}

/* Types of depth S and these degrees, [*first, *last). */
static atoll_err types_of_depth(composer *c, const int *tensor, int S, int *first, int *last) {
  for (int t = 0; t < c->types; t++)
    if (has_degrees(c, &c->type[t], tensor, S)) {
      *first = *last = t;
      while (*last < c->types && has_degrees(c, &c->type[*last], tensor, S))
        ++*last;
      return ATOLL_OK;
    }
  *first = c->types;
  int most = c->types + RUNS_MAX < TYPES_MAX ? c->types + RUNS_MAX : TYPES_MAX;
  short *place = NULL;
  unsigned char *used = NULL;
  ATOLL_TRY(plan_alloc((size_t)S, sizeof *place, &place));
  ATOLL_TRY(plan_alloc((size_t)c->islands, 1, &used));
  atoll_err err = pow(c->islands, S) <= SEQUENCES_MAX ? add_sequences(c, tensor, place, 0, S)
                                                      : add_runs(c, tensor, place, 0, S, used, most);
  free(place);
  free(used);
  *last = c->types;
  return err;
}

/* ---- shapes ------------------------------------------------------------------------------------------------------ */

typedef struct walk { /* what is being enumerated */
  composer *c;
  const speeds *v;
  int64_t b, G, leaves;
  int S, D, principal;
  int *tensor;    /* [S] degrees */
  int *type;      /* [D] */
  int64_t *share; /* [D] leaves */
  double *pace;   /* [D]: bound of one micro-batch in the steady state */
} walk;

static atoll_err push(walk *w) {
  composer *c = w->c;
  double bound = 0;
  int64_t leaf = 0, n = 0;
  for (int k = 0; k < w->D; k++) {
    int64_t before = n;
    n = plan_leaf_first(w->leaves, w->G, leaf + w->share[k]) - plan_leaf_first(w->leaves, w->G, leaf);
    leaf += w->share[k];
    if (k > 0 && w->type[k] == w->type[k - 1] && n <= before)
      continue;
    bound = fmax(bound, column_bound(c, w->v, &c->type[w->type[k]], (double)n));
  }
  c->considered++;
  if (bound >= c->best_seconds * (1 + COMPOSE_SLACK))
    return ATOLL_OK;
  if (c->shapes >= SHAPES_MAX) {
    c->dropped = bound < c->dropped ? bound : c->dropped;
    return ATOLL_OK;
  }
  if (c->shapes == c->shape_room) {
    int room = c->shape_room ? 2 * c->shape_room : 256;
    shape *grown = realloc(c->shape, (size_t)room * sizeof *grown);
    if (!grown)
      return atoll_fail(ATOLL_NOMEM, "plan: no memory for %d shapes", room);
    c->shape = grown;
    c->shape_room = room;
  }
  if (c->columns + 2 * (size_t)w->D > c->column_room) {
    size_t room = 2 * (c->column_room + (size_t)w->D) + 1024;
    int *grown = realloc(c->column, room * sizeof *grown);
    if (!grown)
      return atoll_fail(ATOLL_NOMEM, "plan: no memory for %zu columns", room);
    c->column = grown;
    c->column_room = room;
  }
  int tensor = 1;
  for (int i = 0; i < w->S; i++)
    tensor = w->tensor[i] > tensor ? w->tensor[i] : tensor;
  c->shape[c->shapes++] = (shape){.bound = bound,
                                  .best = INFINITY,
                                  .b = w->b,
                                  .G = w->G,
                                  .leaves = w->leaves,
                                  .S = w->S,
                                  .D = w->D,
                                  .tensor = tensor,
                                  .principal = w->principal,
                                  .columns = c->columns};
  for (int k = 0; k < w->D; k++) {
    c->column[c->columns++] = w->type[k];
    c->column[c->columns++] = (int)w->share[k];
  }
  return ATOLL_OK;
}

/* Leaves to columns so that the slowest is least: one each, then one by one where it hurts least. */
static void balance(walk *w) {
  for (int k = 0; k < w->D; k++) {
    w->share[k] = 1;
    w->pace[k] = k > 0 && w->type[k] == w->type[k - 1]
                     ? w->pace[k - 1] /* so many that nothing but the steady state counts */
                     : column_bound(w->c, w->v, &w->c->type[w->type[k]], 1e9) / 1e9;
  }
  if (w->type[0] == w->type[w->D - 1]) { /* all alike, as types ascend */
    for (int k = 0; k < w->D; k++)
      w->share[k] = w->leaves / w->D + (k < w->leaves % w->D);
    return;
  }
  for (int64_t left = w->leaves - w->D; left > 0; left--) {
    int at = 0;
    for (int k = 1; k < w->D; k++)
      if ((double)(w->share[k] + 1) * w->pace[k] < (double)(w->share[at] + 1) * w->pace[at] * (1 - 1e-12))
        at = k;
    w->share[at]++;
  }
}

/* C(n, k), saturating. */
static double choose(int64_t n, int64_t k) {
  double x = 1;
  for (int64_t i = 0; i < k && x < 1e12; i++)
    x *= (double)(n - i) / (double)(i + 1);
  return x;
}

static atoll_err all_shares(walk *w, int k, int64_t left) {
  if (k == w->D - 1) {
    w->share[k] = left;
    return push(w);
  }
  for (int64_t n = left - (w->D - 1 - k); n >= 1; n--) {
    w->share[k] = n;
    ATOLL_TRY(all_shares(w, k + 1, left - n));
  }
  return ATOLL_OK;
}

static atoll_err share_out(walk *w) {
  int alike = 1;
  for (int k = 1; k < w->D; k++)
    alike = alike && w->type[k] == w->type[0];
  if (w->principal) {
    balance(w);
    return push(w);
  }
  if (choose(w->leaves - 1, w->D - 1) <= SHARES_MAX)
    return w->D > 1 ? all_shares(w, 0, w->leaves) : ATOLL_OK; /* repeats the principal shape, which does no harm */
  if (alike)
    return ATOLL_OK;
  balance(w);
  return push(w);
}

/* Multisets of D types from [type, last) with the devices left. */
static atoll_err all_mixtures(walk *w, int k, int type, int last, int *left) {
  if (k == w->D)
    return share_out(w);
  for (int t = type; t < last; t++) {
    int fits = 1;
    for (int x = 0; x < w->c->islands; x++)
      fits = fits && w->c->type[t].used[x] <= left[x];
    if (!fits)
      continue;
    for (int x = 0; x < w->c->islands; x++)
      left[x] -= w->c->type[t].used[x];
    w->type[k] = t;
    ATOLL_TRY(all_mixtures(w, k + 1, t, last, left));
    for (int x = 0; x < w->c->islands; x++)
      left[x] += w->c->type[t].used[x];
  }
  return ATOLL_OK;
}

/* Columns on one island each. only[x]: the type that stays on island x, or -1. */
static atoll_err single_islands(walk *w, int k, int x, const int *only) {
  if (k == w->D)
    return share_out(w);
  if (x == w->c->islands)
    return ATOLL_OK;
  int most = only[x] >= 0 ? w->c->devices[x] / w->c->type[only[x]].used[x] : 0;
  for (int n = most < w->D - k ? most : w->D - k; n >= 0; n--) {
    for (int i = 0; i < n; i++)
      w->type[k + i] = only[x];
    ATOLL_TRY(single_islands(w, k + n, x + 1, only));
  }
  return ATOLL_OK;
}

static atoll_err columns_of(walk *w) {
  composer *c = w->c;
  int first, last;
  ATOLL_TRY(types_of_depth(c, w->tensor, w->S, &first, &last));
  if (w->principal) {
    for (int t = first; t < last; t++) {
      int fits = 1;
      for (int x = 0; x < c->islands; x++)
        fits = fits && c->type[t].used[x] * w->D <= c->devices[x];
      for (int k = 0; k < w->D; k++)
        w->type[k] = t;
      if (fits)
        ATOLL_TRY(share_out(w));
    }
    return ATOLL_OK;
  }
  if (w->D == 1)
    return ATOLL_OK;
  int *left = NULL;
  ATOLL_TRY(plan_alloc((size_t)c->islands, sizeof *left, &left));
  atoll_err err;
  if (choose(last - first + w->D - 1, w->D) <= MIXTURES_MAX) {
    memcpy(left, c->devices, (size_t)c->islands * sizeof *left);
    err = all_mixtures(w, 0, first, last, left);
  } else {
    for (int x = 0; x < c->islands; x++)
      left[x] = -1;
    for (int t = first; t < last; t++) {
      int x = c->place[c->type[t].place[0]].island, all = 0;
      for (int i = 0; i < w->S; i++)
        all += w->tensor[i];
      if (c->type[t].used[x] == all)
        left[x] = t;
    }
    err = c->islands > 1 ? single_islands(w, 0, 0, left) : ATOLL_OK;
  }
  free(left);
  return err;
}

/* Whether stage i may have so many tensor ranks, of `devices` for it and the stages after it. */
static int has_room(const walk *w, int i, int devices, int tensor) {
  return (tensor + (w->S - 1 - i) * w->c->degree[0]) * w->D <= devices;
}

/* Sequences of degrees for the stages from i on, up to DEGREES_MAX + 1 of them. */
static int count_degrees(const walk *w, int i, int devices) {
  int n = 0;
  if (i == w->S)
    return 1;
  for (int k = 0; k < w->c->degrees && n <= DEGREES_MAX; k++)
    if (has_room(w, i, devices, w->c->degree[k]))
      n += count_degrees(w, i + 1, devices - w->c->degree[k] * w->D);
  return n;
}

/* uniform: stages have the degree of the first. */
static atoll_err over_degrees(walk *w, int i, int devices, int uniform) {
  if (i == w->S)
    return columns_of(w);
  for (int k = 0; k < w->c->degrees; k++) {
    w->tensor[i] = w->c->degree[k];
    if (has_room(w, i, devices, w->tensor[i]) && !(uniform && w->tensor[i] != w->tensor[0]))
      ATOLL_TRY(over_degrees(w, i + 1, devices - w->tensor[i] * w->D, uniform));
  }
  return ATOLL_OK;
}

atoll_err space_shapes(composer *c, int principal) {
  const atoll_plan_params *p = c->params;
  int64_t batch = c->problem->global_batch;
  int devices = 0;
  for (int x = 0; x < c->islands; x++)
    devices += c->devices[x];
  walk w = {.c = c, .principal = principal};
  speeds v = {0};
  atoll_err err;
  ATOLL_TRY_GOTO(err, done, plan_alloc((size_t)devices, sizeof *w.type, &w.type));
  ATOLL_TRY_GOTO(err, done, plan_alloc((size_t)devices, sizeof *w.share, &w.share));
  ATOLL_TRY_GOTO(err, done, plan_alloc((size_t)devices, sizeof *w.pace, &w.pace));
  ATOLL_TRY_GOTO(err, done, plan_alloc((size_t)devices, sizeof *w.tensor, &w.tensor));
  ATOLL_TRY_GOTO(err, done, plan_alloc((size_t)c->places, sizeof *v.speed, &v.speed));
  ATOLL_TRY_GOTO(err, done, plan_alloc((size_t)c->layers, sizeof *v.times, &v.times));
  ATOLL_TRY_GOTO(err, done, plan_alloc((size_t)c->places * (size_t)c->layers, sizeof *v.seconds, &v.seconds));
  w.v = &v;
  for (int64_t b = 1; b <= batch; b++) {
    if (batch % b || (p->micro_batch > 0 && b != p->micro_batch))
      continue;
    ATOLL_TRY_GOTO(err, done, find_speeds(c, b, &v));
    w.b = b;
    w.G = batch / b;
    for (w.S = 1; w.S <= devices && w.S <= c->layers; w.S++) {
      if ((p->stages > 0 && w.S != p->stages) || (c->fixed_stages && w.S != c->fixed_stages))
        continue;
      for (w.D = 1; w.D <= devices / w.S; w.D++) {
        if (p->data_parallel > 0 && w.D != p->data_parallel)
          continue;
        v.reduce = 0; /* latency and adding left out, so that stages' shares add up; of the most tensor ranks */
        if (w.D > 1 && c->degrees > 0)
          v.reduce = 2.0 * (w.D - 1) / w.D *
                     (double)cost_gradient_share(c->cost, 0, c->layers, c->degree[c->degrees - 1]) /
                     cost_most_rate(c->cost, w.D <= c->fullest_node);
        w.leaves = space_leaves(c, w.G, w.D);
        if (w.D <= w.leaves)
          ATOLL_TRY_GOTO(err, done, over_degrees(&w, 0, devices, count_degrees(&w, 0, devices) > DEGREES_MAX));
      }
    }
  }
done:
  free(w.type);
  free(w.share);
  free(w.tensor);
  free(w.pace);
  free(v.speed);
  free(v.times);
  free(v.seconds);
  return err;
}
