/* The walk: shapes in order of their bounds, the most promising first, until no bound is below the best plan found.
 *
 * Work is counted, not timed, so that the same inputs give the same plan on any machine and any number of ranks. When
 * the allowance runs out, the least bound of what was not finished gives the gap that the plan states. */
#include "atoll/parallelizer_extern.h"
#include "compose/compose.h"
#include "compose/large.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/agree.h"

/* Units of search.c and space.c, a few nanoseconds each: about two seconds of one core. */
#define WORK_MAX      INT64_C(200000000)
#define WORK_OF_SHAPE (WORK_MAX / 16)
#define REPORT_MAX    32

/* ---- the report -------------------------------------------------------------------------------------------------- */

/* The best of each (depth, width, largest tensor degree, micro-batch). */
void compose_note(composer *c, const shape *s, double seconds, const char *text) {
  note *n = NULL;
  for (int i = 0; i < c->note_count && !n; i++)
    if (c->notes[i].S == s->S && c->notes[i].D == s->D && c->notes[i].tensor == s->tensor && c->notes[i].b == s->b)
      n = &c->notes[i];
  if (n && (isnan(seconds) || (!isnan(n->seconds) && n->seconds <= seconds)))
    return;
  if (!n) {
    if (c->note_count == c->note_room) {
      int room = c->note_room ? 2 * c->note_room : 64;
      note *grown = realloc(c->notes, (size_t)room * sizeof *grown);
      if (!grown)
        return; /* a line of the report, not of the plan */
      c->notes = grown;
      c->note_room = room;
    }
    n = &c->notes[c->note_count++];
  }
  *n = (note){.S = s->S, .D = s->D, .tensor = s->tensor, .b = s->b, .seconds = seconds};
  snprintf(n->text, sizeof n->text, "%s", text);
}

static int compare_notes(const void *a, const void *b) {
  const note *x = a, *y = b;
  int nx = isnan(x->seconds), ny = isnan(y->seconds);
  if (nx != ny)
    return nx - ny;
  if (!nx && x->seconds != y->seconds)
    return x->seconds < y->seconds ? -1 : 1;
  if (x->S != y->S)
    return x->S - y->S;
  if (x->D != y->D)
    return x->D - y->D;
  if (x->tensor != y->tensor)
    return x->tensor - y->tensor;
  return (x->b > y->b) - (x->b < y->b);
}

int compose_tensor(const atoll_plan *p) {
  int most = 1;
  for (int s = 0; s < p->pipeline[0].stages; s++)
    if (p->pipeline[0].stage[s].replica[0].tensor > most)
      most = p->pipeline[0].stage[s].replica[0].tensor;
  return most;
}

static int is_plan(const note *n, const atoll_plan *p) {
  return n->S == p->pipeline[0].stages && n->D == p->pipeline[0].stage[0].replicas && n->tensor == compose_tensor(p) &&
         n->b == p->pipeline[0].stage[0].replica[0].micro_batch;
}

static atoll_err make_report(composer *c, atoll_plan_report **out) {
  atoll_plan_report *r = NULL;
  ATOLL_TRY(plan_alloc(1, sizeof *r, &r));
  if (plan_alloc(REPORT_MAX, sizeof *r->rejected, &r->rejected) != ATOLL_OK) {
    free(r);
    return ATOLL_NOMEM;
  }
  r->alike = c->alike;
  r->considered = c->considered;
  r->infeasible = c->infeasible;
  if (c->note_count)
    qsort(c->notes, (size_t)c->note_count, sizeof *c->notes, compare_notes);
  int infeasible = 0;
  for (int i = 0; i < c->note_count && r->count < REPORT_MAX; i++) {
    const note *n = &c->notes[i];
    const atoll_plan *p = c->best;
    if (p && is_plan(n, p))
      continue;
    if (isnan(n->seconds) && infeasible++ >= 8)
      break;
    if (!isnan(n->seconds) && p && r->count >= REPORT_MAX - 8)
      continue;
    r->rejected[r->count].step_seconds = n->seconds;
    snprintf(r->rejected[r->count++].text, sizeof r->rejected->text, "%s", n->text);
  }
  *out = r;
  return ATOLL_OK;
}

/* What the same stages would do with the blocks split evenly: the answer to "why not simply even?". */
static atoll_err note_even_split(composer *c, atoll_plan_report *report) {
  const atoll_plan_pipeline *pipe = &c->best->pipeline[0];
  int S = pipe->stages, blocks = c->layers - 2, same = 1, at = 1;
  if (S < 2 || blocks < S || report->count == REPORT_MAX)
    return ATOLL_OK;
  atoll_plan *plan = NULL;
  char *text = NULL, where[512] = "";
  size_t n;
  int64_t over;
  ATOLL_TRY(atoll_plan_to_text(c->best, &text, &n));
  atoll_err err = atoll_plan_from_text("plan", text, n, &plan);
  free(text);
  ATOLL_TRY(err);
  for (int s = 0; s < S; s++) {
    atoll_plan_stage *stage = &plan->pipeline[0].stage[s];
    int first = s == 0 ? 0 : at;
    at += blocks / S + (s < blocks % S);
    int last = s == S - 1 ? c->layers : at;
    same = same && stage->chunk[0].first == first && stage->chunk[0].last == last;
    stage->chunk[0] = (atoll_plan_chunk){first, last};
    stage->range[0].first = first;
    stage->range[0].last = last;
  }
  err = same ? ATOLL_OK : plan_fill_tied(plan, c->problem->model);
  if (err == ATOLL_OK && !same)
    err = build_times(c, plan, 0);
  if (err == ATOLL_OK && !same)
    err = build_bytes(c, plan, &over, where, sizeof where);
  if (err == ATOLL_OK && !same) {
    memmove(&report->rejected[1], &report->rejected[0], (size_t)report->count * sizeof *report->rejected);
    report->count++;
    report->rejected[0].step_seconds = over > 0 ? NAN : plan->step_seconds;
    char seconds[32];
    if (over > 0)
      snprintf(report->rejected[0].text, sizeof report->rejected->text, "the same stages with an even split: %.200s",
               where);
    else
      snprintf(report->rejected[0].text, sizeof report->rejected->text,
               "the same stages with an even split of the blocks, step %s",
               plan_seconds_text(plan->step_seconds, seconds, sizeof seconds));
  }
  atoll_plan_destroy(&plan);
  return err;
}

/* ---- the composer ------------------------------------------------------------------------------------------------ */

static void composer_free(composer *c) {
  for (int p = 0; p < ATOLL_POLICIES; p++)
    if (c->state[p])
      c->parallelizer->end(&c->state[p]);
  cost_destroy(&c->cost);
  for (int x = 0; c->device && x < c->islands; x++)
    free(c->device[x]);
  for (int i = 0; i < c->tables; i++)
    free(c->table[i].slice);
  for (int i = 0; i < c->types; i++) {
    free(c->type[i].place);
    free(c->type[i].count);
    free(c->type[i].used);
  }
  free(c->devices);
  free(c->device);
  free(c->rank_of);
  free(c->place);
  free(c->degree);
  free(c->rep);
  free(c->rep_first);
  free(c->rep_last);
  free(c->rep_gradient);
  free(c->table);
  free(c->bucket);
  free(c->cheapest);
  free(c->type);
  free(c->column);
  free(c->shape);
  free(c->fixed_cut);
  free(c->notes);
  atoll_plan_destroy(&c->best);
}

/* Who takes part: devices with a rank where ranks are known, else all that stand on an island, numbered in order. */
static atoll_err find_devices(composer *c, int world) {
  const atoll_topo *topo = c->problem->topo;
  const atoll_islands *islands = c->problem->islands;
  int known = 0, next = 0;
  for (int i = 0; i < topo->devices; i++)
    known = known || topo->device[i].rank >= 0;
  ATOLL_TRY(plan_alloc((size_t)topo->devices, sizeof *c->rank_of, &c->rank_of));
  ATOLL_TRY(plan_alloc((size_t)c->islands, sizeof *c->devices, &c->devices));
  ATOLL_TRY(plan_alloc((size_t)c->islands, sizeof *c->device, &c->device));
  for (int i = 0; i < topo->devices; i++) {
    c->rank_of[i] = known ? topo->device[i].rank : islands->island_of[i] >= 0 ? next++ : -1;
    if (known && topo->device[i].rank >= next)
      next = topo->device[i].rank + 1;
  }
  c->world = world > 0 ? world : next;
  for (int i = 0; i < topo->nodes; i++) {
    int here = 0;
    for (int k = 0; k < topo->node[i].devices; k++)
      here += c->rank_of[topo->node[i].first_device + k] >= 0;
    c->fullest_node = here > c->fullest_node ? here : c->fullest_node;
  }
  for (int x = 0; x < c->islands; x++) {
    const atoll_island *is = &islands->island[x];
    ATOLL_TRY(plan_alloc((size_t)is->devices, sizeof **c->device, &c->device[x]));
    for (int i = 0; i < is->devices; i++)
      if (c->rank_of[is->device[i]] >= 0 && c->rank_of[is->device[i]] < c->world)
        c->device[x][c->devices[x]++] = is->device[i];
  }
  return ATOLL_OK;
}

static atoll_err find_slices(composer *c) {
  int n = c->layers + 1;
  ATOLL_TRY(plan_alloc((size_t)n * (size_t)n, sizeof *c->rep, &c->rep));
  ATOLL_TRY(plan_alloc((size_t)n * (size_t)n, sizeof *c->rep_first, &c->rep_first));
  ATOLL_TRY(plan_alloc((size_t)n * (size_t)n, sizeof *c->rep_last, &c->rep_last));
  for (int a = 0; a < c->layers; a++) /* representatives begin no later, so they are numbered first */
    for (int b = a + 1; b <= c->layers; b++) {
      int first = cost_range_first(c->cost, a, b);
      if (first == a) {
        c->rep_first[c->reps] = a;
        c->rep_last[c->reps] = b;
        c->rep[a * n + b] = c->reps++;
      } else {
        c->rep[a * n + b] = c->rep[first * n + b - (a - first)];
      }
    }
  ATOLL_TRY(plan_alloc((size_t)c->degrees * (size_t)c->reps, sizeof *c->rep_gradient, &c->rep_gradient));
  for (int k = 0; k < c->degrees; k++)
    for (int r = 0; r < c->reps; r++)
      c->rep_gradient[k * c->reps + r] = cost_gradient_share(c->cost, c->rep_first[r], c->rep_last[r], c->degree[k]);
  return ATOLL_OK;
}

/* One state of the parallelizer per policy: a stage's policy is shared by its replicas, which may stand on different
 * islands, so the composer asks for one policy at a time and joins the answers. */
static atoll_err begin_policies(composer *c) {
  int named;
  ATOLL_TRY(plan_policy(c->params, &named));
  for (int p = 0; p < ATOLL_POLICIES; p++) {
    if (!plan_tries_policy(named, p))
      continue;
    c->one_policy[p] = *c->params;
    c->one_policy[p].target = 0; /* a shape has the axes that train executes */
    snprintf(c->one_policy[p].policy, sizeof c->one_policy[p].policy, "%s", atoll_policy_name((atoll_policy)p));
    ATOLL_TRY(c->parallelizer->begin(c->problem, &c->one_policy[p], &c->state[p]));
  }
  return ATOLL_OK;
}

/* A heap of shapes, the least bound on top; equal ones in order of enumeration. */
static int before(const composer *c, int a, int b) {
  const shape *x = &c->shape[a], *y = &c->shape[b];
  return x->bound != y->bound ? x->bound < y->bound : a < b;
}

static void sift(const composer *c, int *heap, int n, int i) {
  for (;;) {
    int least = i;
    for (int k = 2 * i + 1; k <= 2 * i + 2 && k < n; k++)
      least = before(c, heap[k], heap[least]) ? k : least;
    if (least == i)
      return;
    int t = heap[i];
    heap[i] = heap[least];
    heap[least] = t;
    i = least;
  }
}

/* Best first: a shape whose quick bound is least gets its sharper one and goes back; when it is on top again it is
 * searched. Ends when nothing can win, after `most` searches, or at the work limit; *left is the least bound
 * unfinished. */
static atoll_err solve(composer *c, int most, int64_t limit, double *left) {
  int *heap = NULL, n = 0;
  ATOLL_TRY(plan_alloc((size_t)c->shapes, sizeof *heap, &heap));
  for (int i = 0; i < c->shapes; i++)
    if (!c->shape[i].solved)
      heap[n++] = i;
  for (int i = n / 2 - 1; i >= 0; i--)
    sift(c, heap, n, i);
  *left = INFINITY;
  atoll_err err = ATOLL_OK;
  for (int done = 0; n > 0 && err == ATOLL_OK;) {
    shape *s = &c->shape[heap[0]];
    if (s->bound * (1 - 1e-12) >= c->best_seconds)
      break;
    if (done >= most || (c->work > limit && (c->best || c->followed))) {
      *left = s->bound;
      break;
    }
    done += s->relaxed;
    err = search_shape(c, s, !s->relaxed, WORK_OF_SHAPE);
    if (s->solved)
      heap[0] = heap[--n];
    sift(c, heap, n, 0);
  }
  free(heap);
  for (int i = 0; i < c->shapes; i++)
    if (c->shape[i].solved == 2 && c->shape[i].bound < *left)
      *left = c->shape[i].bound;
  *left = c->dropped < *left ? c->dropped : *left;
  return err;
}

static atoll_err run(composer *c, double *left) {
  ATOLL_TRY(begin_policies(c));
  ATOLL_TRY(space_shapes(c, 1));
  ATOLL_TRY(solve(c, 16, WORK_MAX / 4, left)); /* a good incumbent before the many mixtures are weighed */
  ATOLL_TRY(space_shapes(c, 0));
  return solve(c, INT32_MAX, WORK_MAX, left);
}

/* Who planned, as far as any state of the parallelizer knows better than its name. */
static void name_source(composer *c) {
  const char *who = c->parallelizer->name;
  for (int p = 0; p < ATOLL_POLICIES && c->parallelizer->source; p++) {
    const char *by = c->state[p] ? c->parallelizer->source(c->state[p]) : who;
    who = strcmp(by, c->parallelizer->name) != 0 ? by : who;
  }
  snprintf(c->best->source, sizeof c->best->source, "%s+compose", who);
}

static atoll_err no_plan(const composer *c) {
  if (c->shapes == 0 && c->least_over == INT64_MAX)
    return atoll_fail(ATOLL_INFEASIBLE,
                      "no plan: plan.* and the batch of %" PRId64 " samples leave nothing to choose for %d ranks",
                      c->problem->global_batch, c->world);
  char nowhere[512];
  ATOLL_TRY(compose_nowhere(c, nowhere, sizeof nowhere));
  return atoll_fail(ATOLL_INFEASIBLE, "no plan fits: %s%snearest is %s", nowhere, nowhere[0] ? "; " : "", c->tightest);
}

typedef struct preferred {
  int tensor, S, index;
  int64_t b;
} preferred;

/* Fewer tensor ranks, whose times nobody measured, fewer stages, larger micro-batches, then the order of enumeration.
 */
static int compare_preferred(const void *x, const void *y) {
  const preferred *a = x, *b = y;
  if (a->tensor != b->tensor)
    return a->tensor - b->tensor;
  if (a->S != b->S)
    return a->S - b->S;
  if (a->b != b->b)
    return a->b > b->b ? -1 : 1;
  return a->index - b->index;
}

/* The best plan of one shape whose stages all have this policy, into c->best, when it takes less than best_seconds. */
static atoll_err search_uniform(composer *c, int index, int policy) {
  shape s = c->shape[index];
  int64_t infeasible = c->infeasible;
  s.best = INFINITY;
  s.relaxed = s.solved = 0;
  c->only_policy = 1 + policy;
  atoll_err err = search_shape(c, &s, 0, WORK_OF_SHAPE);
  c->only_policy = 0;
  c->infeasible = infeasible;
  return err;
}

/* Measured times that differ by less than their own spread do not tell plans apart, and the least of them would be
 * another with every calibration. Of the plans that are as fast as the fastest within it, the first in a fixed order is
 * taken: fewer tensor ranks and stages, larger micro-batches, the first policy that all stages can have. */
static atoll_err prefer(composer *c) {
  double spread = cost_spread(c->cost), fastest = c->best_seconds, limit = fastest * (1 + spread);
  atoll_plan *best = c->best;
  preferred *order = NULL;
  if (!(spread > 0))
    return ATOLL_OK;
  ATOLL_TRY(plan_alloc((size_t)c->shapes, sizeof *order, &order));
  for (int i = 0; i < c->shapes; i++)
    order[i] = (preferred){c->shape[i].tensor, c->shape[i].S, i, c->shape[i].b};
  qsort(order, (size_t)c->shapes, sizeof *order, compare_preferred);
  atoll_err err = ATOLL_OK;
  c->best = NULL;
  c->best_seconds = limit;
  for (int i = 0; i < c->shapes && !c->best && err == ATOLL_OK; i++)
    for (int p = 0; p < ATOLL_POLICIES && !c->best && err == ATOLL_OK; p++)
      if (c->state[p] && c->shape[order[i].index].bound < limit)
        err = search_uniform(c, order[i].index, p);
  free(order);
  if (err == ATOLL_OK && c->best) {
    c->alike = c->best_seconds > fastest * (1 + COMPOSE_SLACK) ? spread : 0;
    atoll_plan_destroy(&best);
    return ATOLL_OK;
  }
  atoll_plan_destroy(&c->best);
  c->best = best;
  c->best_seconds = fastest;
  return err;
}

/* Device by device: c->best with its predictions, or NULL. */
static atoll_err make_exact(composer *c) {
  double left = INFINITY;
  ATOLL_TRY(run(c, &left));
  if (!c->best)
    return ATOLL_OK;
  double fastest = c->best_seconds;
  ATOLL_TRY(prefer(c));
  left = c->alike > 0 ? fmin(left, fastest) : left;
  ATOLL_TRY(build_times(c, c->best, 1));
  c->best->optimal = !(left * (1 - 1e-12) < c->best->step_seconds);
  c->best->gap = c->best->optimal ? 0 : c->best->step_seconds / left - 1;
  name_source(c);
  return ATOLL_OK;
}

static int device_count(const composer *c) {
  int n = 0;
  for (int x = 0; x < c->islands; x++)
    n += c->devices[x];
  return n;
}

/* Both searches where both can: the faster plan wins, the small search's when they are equal. *chosen holds what is
 * known of the large search's plan when that is the one in c->best. */
static atoll_err make_best(composer *c, MPI_Comm comm, large_choice *chosen) {
  const atoll_plan_params *p = c->params;
  int other = p->objective == 1 || p->max_price > 0 || p->min_throughput > 0 || p->experts > 0, few, rank = 0;
  ATOLL_TRY(cost_create(c->problem, &c->cost));
  ATOLL_TRY(find_slices(c));
  int fixed = p->stages > 0 || p->layers.n > 0; /* which the other search does not know */
  few = fixed || device_count(c) <= COMPOSE_EXACT_DEVICES;
  /* What the other search does not know, or would ask a program all over again for, is this one's alone. */
  c->followed = !fixed && !(c->parallelizer == &atoll_parallelizer_extern && p->target != 1);
  if (comm != MPI_COMM_NULL)
    MPI_Comm_rank(comm, &rank);
  atoll_err err = few && !other && rank == 0 ? make_exact(c) : ATOLL_OK;
  ATOLL_TRY(comm == MPI_COMM_NULL ? err : atoll_agree(comm, err));
  c->exact = few && !other;
  if (c->exact && !c->followed)
    return ATOLL_OK;
  err = large_make(c, comm, chosen);
  if (err == ATOLL_INFEASIBLE && c->exact) {
    atoll_err_clear();
    return ATOLL_OK;
  }
  ATOLL_TRY(err);
  double least = c->best ? c->best->step_seconds / (1 + cost_spread(c->cost)) : INFINITY; /* else it is as fast */
  if (c->best && !(chosen->plan->step_seconds < least * (1 - COMPOSE_SLACK))) {
    atoll_plan_destroy(&chosen->plan);
    return ATOLL_OK;
  }
  atoll_plan_destroy(&c->best);
  c->best = chosen->plan;
  return ATOLL_OK;
}

static void report_choice(atoll_plan_report *r, large_choice *chosen) {
  r->price = r->transfer_price = NAN;
  r->composed = chosen->composed;
  if (!chosen->plan)
    return;
  r->copies = chosen->copies;
  r->price = chosen->price;
  r->transfer_price = chosen->transfer_price;
  r->idle_count = chosen->idle_count;
  r->idle = chosen->idle;
  chosen->idle = NULL;
}

atoll_err compose_make(const atoll_plan_problem *problem, const atoll_plan_params *params, int world, MPI_Comm comm,
                       atoll_plan **out, atoll_plan_report **report) {
  composer c = {.problem = problem,
                .params = params,
                .parallelizer = plan_parallelizer(params),
                .monotone = plan_parallelizer(params) != &atoll_parallelizer_extern,
                .layers = atoll_model_layers(problem->model),
                .islands = problem->islands->count,
                .dropped = INFINITY,
                .best_seconds = INFINITY,
                .least_over = INT64_MAX,
                .model_digest = atoll_model_digest(problem->model),
                .islands_digest = atoll_islands_identity(problem->islands)};
  large_choice chosen = {.price = NAN, .transfer_price = NAN, .composed = NAN};
  atoll_plan_report *r = NULL;
  int rank = 0;
  if (comm != MPI_COMM_NULL)
    MPI_Comm_rank(comm, &rank);
  atoll_err err = find_devices(&c, world);
  err = err == ATOLL_OK ? space_places(&c) : err;
  err = err == ATOLL_OK ? space_check(&c) : err;
  err = comm == MPI_COMM_NULL ? err : atoll_agree(comm, err);
  err = err == ATOLL_OK ? make_best(&c, comm, &chosen) : err;
  if (err == ATOLL_OK && c.best && rank == 0 && params->target != 1) /* what train executes */
    err = build_packed(&c, c.best);
  if (report && rank == 0 && (err == ATOLL_OK || c.note_count)) {
    char message[ATOLL_MESSAGE_MAX];
    snprintf(message, sizeof message, "%s", atoll_err_message());
    atoll_err made = make_report(&c, &r);
    if (made == ATOLL_OK && err == ATOLL_OK && c.best && !chosen.plan)
      made = note_even_split(&c, r);
    if (made == ATOLL_OK)
      report_choice(r, &chosen);
    if (err == ATOLL_OK)
      err = made;
    else
      atoll_err_set_message(message);
  }
  if (err == ATOLL_OK && !c.best && rank == 0)
    err = no_plan(&c);
  if (err == ATOLL_OK && rank == 0)
    err = atoll_plan_check(c.best, problem->model);
  if (err == ATOLL_OK && rank == 0) {
    *out = c.best;
    c.best = NULL;
  }
  if (report && r)
    *report = r;
  else
    atoll_plan_report_destroy(&r);
  free(chosen.idle);
  composer_free(&c);
  return err;
}

atoll_err atoll_plan_make(const atoll_plan_problem *problem, const atoll_plan_params *params, atoll_plan **out,
                          atoll_plan_report **report) {
  return compose_say_batch(problem, params, 0, compose_make(problem, params, 0, MPI_COMM_NULL, out, report));
}
