/* The grid parallelizer: what somebody would set by hand. The shape's devices are data x tensor degree (context and
 * expert degree 1), one policy treats all layers of the slice, and every combination that fits and is not worse in both
 * time and bytes is a point. Tensor degrees above 1 are those that layer accepts and that divide the devices of a node.
 */
#include "atoll/parallelizer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cost/cost.h"
#include "plan_impl.h"

typedef struct grid_state {
  const atoll_plan_problem *problem;
  const atoll_plan_params *params;
  cost_model *cost;
  int policy; /* fixed by plan.policy, or -1 */
  /* the slowest link among the replicas of the last shape */
  atoll_island_shape shape;
  int shape_tensor;
  double latency, rate;
} grid_state;

static void grid_end(void **address) {
  grid_state *g = *address;
  if (!g)
    return;
  cost_destroy(&g->cost);
  free(g);
  *address = NULL;
}

static atoll_err grid_begin(const atoll_plan_problem *problem, const atoll_plan_params *params, void **state) {
  grid_state *g = NULL;
  int policy;
  ATOLL_TRY(plan_policy(params, &policy));
  ATOLL_TRY(plan_alloc(1, sizeof *g, &g));
  g->problem = problem;
  g->params = params;
  g->policy = policy;
  atoll_err err = cost_create(problem, &g->cost);
  if (err != ATOLL_OK)
    free(g);
  else
    *state = g;
  return err;
}

/* Bytes a plan may use on a device of an island; INT64_MAX when nothing limits it. */
static int64_t limit_of(const grid_state *g, int island) {
  if (g->params->memory > 0)
    return g->params->memory - g->problem->reserve;
  int64_t memory = g->problem->islands->island[island].memory;
  return memory > 0 ? (int64_t)((double)memory * g->params->memory_share) - g->problem->reserve : INT64_MAX;
}

static int largest(const int64_t bytes[ATOLL_MEM_CATEGORIES]) {
  int most = 0;
  for (int c = 1; c < ATOLL_MEM_CATEGORIES; c++)
    most = bytes[c] > bytes[most] ? c : most;
  return most;
}

/* Nodes of the shape's devices, in the island's order: `per_node` of each of its first `nodes` nodes. */
static int shape_nodes(const grid_state *g, atoll_island_shape shape, int *node) {
  const atoll_island *is = &g->problem->islands->island[shape.island];
  int n = 0, of_node = 0, nodes = 0, last = -1;
  for (int i = 0; i < is->devices; i++) {
    int here = g->problem->topo->device[is->device[i]].node;
    if (here != last) {
      nodes++;
      of_node = 0;
      last = here;
    }
    if (nodes <= shape.nodes && of_node < shape.per_node) {
      node[n++] = here;
      of_node++;
    }
  }
  return n;
}

/* Of each replica's first device. */
static atoll_err find_link(grid_state *g, atoll_island_shape shape, int tensor) {
  if (!memcmp(&shape, &g->shape, sizeof shape) && g->shape_tensor == tensor)
    return ATOLL_OK;
  int *node = NULL, n = 0;
  ATOLL_TRY(plan_alloc((size_t)g->problem->islands->island[shape.island].devices, sizeof *node, &node));
  for (int i = 0, all = shape_nodes(g, shape, node); i < all; i += tensor)
    node[n++] = node[i];
  cost_slowest(g->cost, node, n, &g->latency, &g->rate);
  free(node);
  g->shape = shape;
  g->shape_tensor = tensor;
  return ATOLL_OK;
}

/* Whether the shape can have this tensor degree, with the data degree that the neighbours need. */
static int degree_allowed(const grid_state *g, atoll_island_shape shape, const atoll_slice_context *x, int tensor) {
  int devices = shape.nodes * shape.per_node, data = devices / tensor;
  if (shape.per_node % tensor || data > x->micro_batches || (x->data > 0 && data != x->data))
    return 0;
  if (tensor == 1)
    return 1;
  int divides = atoll_layer_check_tensor(g->problem->model, tensor) == ATOLL_OK;
  atoll_err_clear();
  return divides;
}

static atoll_err grid_point(grid_state *g, atoll_slice slice, atoll_island_shape shape, const atoll_slice_context *x,
                            int tensor, atoll_policy policy, atoll_slice_plan *out) {
  cost_slice c;
  int data = shape.nodes * shape.per_node / tensor;
  ATOLL_TRY(cost_of_slice(g->cost, shape.island, tensor, (atoll_mlp)g->params->mlp, slice.first, slice.last, policy,
                          x->micro_batch, &c));
  *out = (atoll_slice_plan){.data = data,
                            .tensor = tensor,
                            .context = 1,
                            .expert = 1,
                            .policy = (int)policy,
                            .t = (c.forward + c.backward) / data,
                            .forward = c.forward,
                            .backward = c.backward,
                            .d = c.update,
                            .bytes_limit = limit_of(g, shape.island),
                            .source = c.source};
  const cost_stage stage = {slice.first,  slice.last,  policy, x->micro_batch,
                            x->in_flight, x->partials, tensor, (atoll_mlp)g->params->mlp};
  ATOLL_TRY(cost_stage_bytes(g->cost, &stage, out->bytes));
  out->bytes_peak = cost_sum_bytes(out->bytes);
  int64_t gradient = cost_gradient_share(g->cost, slice.first, slice.last, tensor);
  out->d += x->leaves * cost_leaf(g->cost, shape.island, gradient);
  if (data > 1) {
    ATOLL_TRY(find_link(g, shape, tensor));
    out->d += cost_reduce_over(data, gradient, data * x->partials, x->partials, cost_bandwidth(g->cost, shape.island),
                               g->latency, g->rate);
  }
  return ATOLL_OK;
}

static int dominated(const atoll_slice_plan *a, const atoll_slice_plan *by) {
  return by->t <= a->t && by->d <= a->d && by->bytes_peak <= a->bytes_peak;
}

static atoll_err grid_plan(void *state, atoll_slice slice, atoll_island_shape shape, const atoll_slice_context *x,
                           atoll_slice_plan *out, int cap, int *n, double *epsilon, int64_t *missing, char *why,
                           size_t why_bytes) {
  grid_state *g = state;
  *n = 0;
  *epsilon = 0;
  *missing = INT64_MAX;
  if (shape.nodes < 1 || shape.per_node < 1 || (!x->data && shape.nodes * shape.per_node > x->micro_batches))
    return atoll_fail(ATOLL_USAGE, "grid: %d x %d devices for %" PRId64 " micro-batches", shape.nodes, shape.per_node,
                      x->micro_batches);
  for (int i = 0; i < shape.per_node * ATOLL_POLICIES; i++) {
    int tensor = 1 + i / ATOLL_POLICIES, p = i % ATOLL_POLICIES;
    atoll_slice_plan point;
    if (!plan_tries_policy(g->policy, p) || !degree_allowed(g, shape, x, tensor))
      continue;
    ATOLL_TRY(grid_point(g, slice, shape, x, tensor, (atoll_policy)p, &point));
    int64_t over = point.bytes_peak - point.bytes_limit;
    if (over > 0) {
      if (over < *missing) {
        char a[32], b[32], c[32];
        int most = largest(point.bytes);
        *missing = over;
        if (why)
          snprintf(why, why_bytes, "layers %d-%d on island %s need %s of %s, %s of it %s", slice.first, slice.last - 1,
                   g->problem->islands->island[shape.island].name, plan_bytes_text(point.bytes_peak, a, sizeof a),
                   plan_bytes_text(point.bytes_limit, b, sizeof b), plan_bytes_text(point.bytes[most], c, sizeof c),
                   atoll_mem_category_name((atoll_mem_category)most));
      }
      continue;
    }
    int keep = 1, k = 0;
    for (int j = 0; j < *n; j++)
      keep = keep && !dominated(&point, &out[j]);
    if (!keep)
      continue;
    for (int j = 0; j < *n; j++)
      if (!dominated(&out[j], &point))
        out[k++] = out[j];
    if (k == cap)
      return atoll_fail(ATOLL_USAGE, "grid: room for %d points is too little", cap);
    int at = k;
    while (at > 0 && out[at - 1].t > point.t) {
      out[at] = out[at - 1];
      at--;
    }
    out[at] = point;
    *n = k + 1;
  }
  return ATOLL_OK;
}

const atoll_parallelizer atoll_parallelizer_grid = {
    .name = "grid", .begin = grid_begin, .plan = grid_plan, .end = grid_end};
