/* The mist parallelizer (Zhu et al., Mist, EuroSys 2025): data, tensor, context and expert degree, ZeRO stage, layers
 * done again and offloaded shares of one slice, chosen together under the memory of a device. It answers with the
 * Pareto frontier (t, d) less the points that no step wants (below), thinned with a proved epsilon when there is less
 * room than points.
 *
 * For every mesh (degrees whose product is the shape) the times that do not depend on the other axes are numbers; the
 * rest is an expression of those axes, evaluated over all their values at once (tuner/tuner.h).
 *
 * A ZeRO stage of a mesh that fits with nothing offloaded and nothing done again is not searched further, when streams
 * do not disturb each other. A phase then takes the longest of its streams, so whatever else fits has steady time u1 >=
 * u0 and special time s1 >= s0 (first forward and last backward), where d = s - u. Its d may be less than d0, but no
 * step is shorter for it: a composition counts (G - 1) max u + sum u + max_i (d_i - sum_{j<i} u_j); going back to the
 * point with u0, the sum falls by u1 - u0 and no term of the last maximum grows by more than that (its own by d0 - d1
 * <= u1 - u0, later ones by u1 - u0). Other interference factors give no such guarantee, and there everything is
 * evaluated.
 *
 * With plan.target=train it proposes what train executes and nothing else, priced as `grid` prices it. */
#include "parallelizers/mist/mist.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "plan_impl.h"

/* Blocks up to which shares in host memory are as fine as quarters. */
#define FEW_BLOCKS 4

typedef struct mist_state {
  const atoll_plan_problem *problem;
  const atoll_plan_params *params;
  cost_model *cost;
  void *grid; /* target=train */
  int policy; /* fixed by plan.policy, or -1 */
  memory_moe moe;
  interference streams;
  mist_slice **slice;
  int slices, room;
} mist_state;

static void mist_end(void **address) {
  mist_state *m = *address;
  if (!m)
    return;
  if (m->grid)
    atoll_parallelizer_grid.end(&m->grid);
  for (int i = 0; i < m->slices; i++)
    mist_slice_destroy(&m->slice[i]);
  free(m->slice);
  cost_destroy(&m->cost);
  free(m);
  *address = NULL;
}

static atoll_err mist_begin(const atoll_plan_problem *problem, const atoll_plan_params *params, void **state) {
  mist_state *m = NULL;
  int policy;
  ATOLL_TRY(plan_policy(params, &policy));
  if (params->experts > 0 && params->target != 1)
    return atoll_fail(ATOLL_USAGE, "plan.experts is %" PRId64 ", which train does not execute; set plan.target=any",
                      params->experts);
  if (params->experts > 0 && params->expert_top > params->experts)
    return atoll_fail(ATOLL_USAGE, "plan.expert_top is %" PRId64 " of plan.experts %" PRId64, params->expert_top,
                      params->experts);
  ATOLL_TRY(plan_alloc(1, sizeof *m, &m));
  void *made = m;
  m->problem = problem;
  m->params = params;
  m->policy = policy;
  m->moe = (memory_moe){params->experts, params->expert_top};
  interference_neutral(&m->streams);
  atoll_err err =
      params->target == 1 ? cost_create(problem, &m->cost) : atoll_parallelizer_grid.begin(problem, params, &m->grid);
  if (err != ATOLL_OK)
    mist_end(&made);
  else
    *state = m;
  return err;
}

/* Equal sequences of layer classes are one slice. */
static atoll_err find_slice(mist_state *m, atoll_slice slice, int policy, mist_slice **out) {
  int first = cost_range_first(m->cost, slice.first, slice.last), last = slice.last - (slice.first - first);
  for (int i = 0; i < m->slices; i++)
    if (m->slice[i]->first == first && m->slice[i]->last == last && m->slice[i]->policy == policy) {
      *out = m->slice[i];
      return ATOLL_OK;
    }
  if (m->slices == m->room) {
    int room = m->room ? 2 * m->room : 64;
    mist_slice **grown = realloc(m->slice, (size_t)room * sizeof *grown);
    if (!grown)
      return atoll_fail(ATOLL_NOMEM, "plan: no memory for %d slices", room);
    m->slice = grown;
    m->room = room;
  }
  ATOLL_TRY(
      mist_slice_make(m->problem->model, first, last, (atoll_policy)policy, m->moe, &m->streams, &m->slice[m->slices]));
  *out = m->slice[m->slices++];
  return ATOLL_OK;
}

/* ---- one request ------------------------------------------------------------------------------------------------- */

typedef struct request {
  mist_state *m;
  atoll_slice slice;
  const atoll_slice_context *x;
  mist_place place;
  int64_t limit; /* bytes of the device, without what every rank takes */
  int *node;
  mist_mesh *mesh; /* one of each degrees and policy that was tried; tag = index */
  mist_slice **of; /* its slice */
  int meshes, room;
  tuner_frontier frontier;
  int64_t *recompute; /* 0 .. blocks */
} request;

static int64_t limit_of(const mist_state *m, int island) {
  int64_t fixed = m->problem->checkpoint_bytes + m->problem->fixed_bytes + m->problem->reserve;
  int64_t memory = m->problem->islands->island[island].memory;
  if (m->params->memory > 0)
    return m->params->memory - fixed;
  return memory > 0 ? (int64_t)((double)memory * m->params->memory_share) - fixed : INT64_MAX;
}

/* A device that computes in the node's memory has no other to offload to. */
static void host_memory(const mist_state *m, int island, mist_place *p) {
  const atoll_topo *t = m->problem->topo;
  const atoll_topo_device *d = &t->device[m->problem->islands->island[island].device[0]];
  p->host_rate = COST_HOST_RATE;
  if (d->kind == ATOLL_TOPO_GPU && t->node[d->node].memory > 0)
    p->host = (int64_t)((double)t->node[d->node].memory * m->params->memory_share / t->node[d->node].devices);
}

static atoll_err list_nodes(request *r, atoll_island_shape shape) {
  const atoll_island *is = &r->m->problem->islands->island[shape.island];
  int n = 0, of_node = 0, nodes = 0, last = -1;
  ATOLL_TRY(plan_alloc((size_t)is->devices, sizeof *r->node, &r->node));
  for (int i = 0; i < is->devices; i++) {
    int here = r->m->problem->topo->device[is->device[i]].node;
    if (here != last) {
      nodes++;
      of_node = 0;
      last = here;
    }
    if (nodes <= shape.nodes && of_node < shape.per_node) {
      r->node[n++] = here;
      of_node++;
    }
  }
  /* A composer may ask for a shape that stands for devices packed otherwise: the island's first ones, then. */
  int wanted = shape.nodes * shape.per_node;
  if (n != wanted && wanted > is->devices)
    return atoll_fail(ATOLL_USAGE, "mist: island %s has no %d nodes of %d devices", is->name, shape.nodes,
                      shape.per_node);
  for (int i = 0; n != wanted && i < wanted; i++)
    r->node[i] = r->m->problem->topo->device[is->device[i]].node;
  r->place.node = r->node;
  return ATOLL_OK;
}

/* All of one ZeRO stage. Shares in host memory are halves, and quarters of optimizer state and activations for slices
 * of few blocks, so that a request has some thousand candidates a mesh at most: a composer asks thousands of times. */
static atoll_err search_zero(request *r, const mist_slice *s, const mist_mesh *mesh, int64_t zero) {
  static const int64_t none[] = {0}, halves[] = {0, 4, 8}, quarters[] = {0, 2, 4, 6, 8};
  const tuner_axis still = {NULL, 1, none};
  tuner_axis axes[MIST_AXES] = {{NULL, 1, &zero}, still, still, still, still, still};
  int64_t before = r->frontier.feasible;
  ATOLL_TRY(tuner_search(s->tuner, axes, mesh->fixed, r->limit, r->meshes - 1, &r->frontier));
  if (r->frontier.feasible > before && r->m->streams.neutral)
    return ATOLL_OK;
  int few = s->memory.blocks <= FEW_BLOCKS;
  axes[AXIS_RECOMPUTE] = (tuner_axis){NULL, s->memory.blocks + 1, r->recompute};
  if (r->place.host > 0) {
    axes[AXIS_WEIGHTS] = axes[AXIS_GRADIENTS] = (tuner_axis){NULL, 3, halves};
    axes[AXIS_OPTIMIZER] = axes[AXIS_ACTIVATIONS] = (tuner_axis){NULL, few ? 5 : 3, few ? quarters : halves};
  }
  return tuner_search(s->tuner, axes, mesh->fixed, r->limit, r->meshes - 1, &r->frontier);
}

static atoll_err search_mesh(request *r, mist_slice *s, mist_mesh degrees) {
  if (r->meshes == r->room) {
    int room = r->room ? 2 * r->room : 16;
    mist_mesh *mesh = realloc(r->mesh, (size_t)room * sizeof *mesh);
    r->mesh = mesh ? mesh : r->mesh;
    mist_slice **of = mesh ? realloc(r->of, (size_t)room * sizeof *of) : NULL;
    if (!of)
      return atoll_fail(ATOLL_NOMEM, "plan: no memory for %d meshes", room);
    r->of = of;
    r->room = room;
  }
  mist_mesh *mesh = &r->mesh[r->meshes];
  *mesh = degrees;
  ATOLL_TRY(mist_mesh_price(&r->place, s, r->x, mesh));
  r->of[r->meshes++] = s;
  int stages = mesh->data * mesh->context * mesh->expert > 1 ? 3 : 0;
  for (int64_t zero = 0; zero <= stages; zero++)
    ATOLL_TRY(search_zero(r, s, mesh, zero));
  return ATOLL_OK;
}

/* Tensor ranks share a node and divide the blocks, context ranks the tokens, expert ranks the samples and experts. */
static atoll_err search_degrees(request *r, mist_slice *s) {
  const atoll_island_shape *shape = &r->place.shape;
  int devices = shape->nodes * shape->per_node;
  int experts = r->m->moe.experts > 0 ? (int)(r->m->moe.experts < devices ? r->m->moe.experts : devices) : 1;
  for (int T = 1; T <= shape->per_node; T++) {
    if (shape->per_node % T || !plan_divides(r->m->problem->model, T))
      continue;
    for (int C = 1; C <= devices / T; C *= 2) {
      if (devices % (T * C) || r->m->problem->seq % C)
        continue;
      for (int E = 1; E <= experts && E <= devices / (T * C); E++) {
        int data = devices / (T * C * E);
        if (devices % (T * C * E) || (E > 1 && (r->m->moe.experts % E || r->x->micro_batch % E)) ||
            data > r->x->micro_batches || (r->x->data > 0 && data != r->x->data))
          continue;
        ATOLL_TRY(search_mesh(r, s, (mist_mesh){.data = data, .tensor = T, .context = C, .expert = E}));
      }
    }
  }
  return ATOLL_OK;
}

static atoll_err seconds_at(const atoll_sym *e, const atoll_sym_binding *b, double *out) {
  atoll_sym_value v;
  ATOLL_TRY(atoll_sym_eval(e, b, MIST_FIXED + MIST_AXES, &v));
  *out = v.r;
  return ATOLL_OK;
}

static atoll_err bytes_at(const atoll_sym *e, const atoll_sym_binding *b, int64_t *out) {
  atoll_sym_value v;
  ATOLL_TRY(atoll_sym_eval(e, b, MIST_FIXED + MIST_AXES, &v));
  *out = v.i;
  return ATOLL_OK;
}

static atoll_err describe(const request *r, const tuner_point *p, atoll_slice_plan *out) {
  const mist_mesh *mesh = &r->mesh[p->tag];
  const mist_slice *s = r->of[p->tag];
  const atoll_plan_problem *problem = r->m->problem;
  atoll_sym_binding b[MIST_FIXED + MIST_AXES];
  for (int i = 0; i < MIST_FIXED; i++)
    b[i] = (atoll_sym_binding){mist_fixed_name[i], mesh->fixed[i].value};
  for (int i = 0; i < MIST_AXES; i++)
    b[MIST_FIXED + i] = (atoll_sym_binding){mist_axis_name[i], {ATOLL_SYM_INT, p->choice[i], 0}};
  *out = (atoll_slice_plan){.data = mesh->data,
                            .tensor = mesh->tensor,
                            .context = mesh->context,
                            .expert = mesh->expert,
                            .zero = (int)p->choice[AXIS_ZERO],
                            .sequence_parallel = (int)mesh->fixed[FIX_SEQUENCE].value.i,
                            .policy = s->policy,
                            .offload_weights = (double)p->choice[AXIS_WEIGHTS] / 8,
                            .offload_gradients = (double)p->choice[AXIS_GRADIENTS] / 8,
                            .offload_optimizer = (double)p->choice[AXIS_OPTIMIZER] / 8,
                            .offload_activations = (double)p->choice[AXIS_ACTIVATIONS] / 8,
                            .t = p->t,
                            .d = p->d,
                            .source = mesh->source};
  if (out->offload_weights + out->offload_gradients + out->offload_optimizer + out->offload_activations > 0)
    out->source = ATOLL_COST_ANALYTIC; /* host links are assumed, not measured: COST_HOST_RATE */
  /* Blocks are counted; layers are what a plan states, and an embedding in front has nothing to do again. */
  int embeds = atoll_model_layer_kind(problem->model, r->slice.first) == ATOLL_LAYER_EMBED;
  out->recompute = p->choice[AXIS_RECOMPUTE] > 0 ? (int)p->choice[AXIS_RECOMPUTE] + embeds : 0;
  ATOLL_TRY(seconds_at(s->phase.forward, b, &out->forward));
  ATOLL_TRY(seconds_at(s->phase.backward, b, &out->backward));
  for (int c = 0; c < ATOLL_MEM_CATEGORIES; c++)
    ATOLL_TRY(bytes_at(s->memory.bytes[c], b, &out->bytes[c]));
  ATOLL_TRY(bytes_at(s->memory.host, b, &out->bytes_host));
  out->bytes[ATOLL_MEM_CHECKPOINT] += problem->checkpoint_bytes;
  out->bytes[ATOLL_MEM_DATA] += problem->fixed_bytes;
  out->bytes_peak = cost_sum_bytes(out->bytes);
  out->bytes_limit = r->limit == INT64_MAX ? INT64_MAX : r->limit + problem->checkpoint_bytes + problem->fixed_bytes;
  return ATOLL_OK;
}

static void say_why(const request *r, int64_t *missing, char *why, size_t why_bytes) {
  char a[32], b[32];
  int64_t fixed = r->m->problem->checkpoint_bytes + r->m->problem->fixed_bytes;
  if (r->frontier.least == INT64_MAX)
    return;
  *missing = r->frontier.least - r->limit;
  if (why)
    snprintf(why, why_bytes, "layers %d-%d on island %s need %s of %s, whatever is sharded, offloaded or done again",
             r->slice.first, r->slice.last - 1, r->m->problem->islands->island[r->place.shape.island].name,
             plan_bytes_text(r->frontier.least + fixed, a, sizeof a), plan_bytes_text(r->limit + fixed, b, sizeof b));
}

static atoll_err answer(request *r, atoll_slice_plan *out, int cap, int *n, double *epsilon) {
  tuner_thin(&r->frontier, cap, epsilon);
  for (int i = 0; i < r->frontier.count; i++)
    ATOLL_TRY(describe(r, &r->frontier.point[i], &out[i]));
  *n = r->frontier.count;
  return ATOLL_OK;
}

static void request_free(request *r) {
  free(r->node);
  free(r->mesh);
  free(r->of);
  free(r->recompute);
  tuner_frontier_clear(&r->frontier);
}

static atoll_err mist_plan(void *state, atoll_slice slice, atoll_island_shape shape, const atoll_slice_context *x,
                           atoll_slice_plan *out, int cap, int *n, double *epsilon, int64_t *missing, char *why,
                           size_t why_bytes) {
  mist_state *m = state;
  if (m->grid)
    return atoll_parallelizer_grid.plan(m->grid, slice, shape, x, out, cap, n, epsilon, missing, why, why_bytes);
  *n = 0;
  *epsilon = 0;
  *missing = INT64_MAX;
  if (shape.nodes < 1 || shape.per_node < 1 || cap < 1)
    return atoll_fail(ATOLL_USAGE, "mist: %d x %d devices, room for %d points", shape.nodes, shape.per_node, cap);
  request r = {.m = m, .slice = slice, .x = x, .limit = limit_of(m, shape.island), .frontier = {.least = INT64_MAX}};
  r.place = (mist_place){.problem = m->problem, .cost = m->cost, .shape = shape, .moe = m->moe};
  r.place.mlp = m->moe.experts > 0 ? ATOLL_MLP_PLAIN : (atoll_mlp)m->params->mlp;
  host_memory(m, shape.island, &r.place);
  atoll_err err;
  ATOLL_TRY_GOTO(err, done, list_nodes(&r, shape));
  ATOLL_TRY_GOTO(err, done, plan_alloc((size_t)(slice.last - slice.first) + 1, sizeof *r.recompute, &r.recompute));
  for (int i = 0; i <= slice.last - slice.first; i++)
    r.recompute[i] = i;
  for (int p = 0; p < ATOLL_POLICIES; p++) {
    mist_slice *s = NULL;
    if (!plan_tries_policy(m->policy, p))
      continue;
    ATOLL_TRY_GOTO(err, done, find_slice(m, slice, p, &s));
    ATOLL_TRY_GOTO(err, done, search_degrees(&r, s));
  }
  if (r.frontier.count > 0)
    err = answer(&r, out, cap, n, epsilon);
  else
    say_why(&r, missing, why, why_bytes);
done:
  request_free(&r);
  return err;
}

const atoll_parallelizer atoll_parallelizer_mist = {
    .name = "mist", .begin = mist_begin, .plan = mist_plan, .end = mist_end};
