/* Seconds of one block, and of embedding and head, on a mesh of devices: everything that does not depend on the tuner's
 * axes. */
#include "parallelizers/mist/mist.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan_impl.h"

typedef struct groups { /* that a rank belongs to */
  collective_net tensor, context, expert;
  collective_net dense, experts; /* ranks with equal parameters: outside the experts, and of them */
} groups;

static int later(int a, int b) { return a > b ? a : b; }

/* A group of ranks i + j * stride ... as a list of nodes; `inner` neighbours of each stride apart, `outer` of them. */
static void net_of(const mist_place *p, int *node, int inner, int inner_stride, int outer, int outer_stride,
                   collective_net *net) {
  int n = 0, stride = inner > 1 ? inner_stride : outer_stride;
  for (int o = 0; o < outer; o++)
    for (int i = 0; i < inner; i++)
      node[n++] = p->node[o * outer_stride + i * inner_stride];
  int sharing = stride < p->shape.per_node ? stride : p->shape.per_node;
  collective_of_nodes(p->problem->topo, node, n, later(sharing, 1), net);
}

static atoll_err find_groups(const mist_place *p, const mist_mesh *m, groups *g) {
  int devices = p->shape.nodes * p->shape.per_node, T = m->tensor, C = m->context, E = m->expert, *node = NULL;
  ATOLL_TRY(plan_alloc((size_t)devices, sizeof *node, &node));
  net_of(p, node, T, 1, 1, 1, &g->tensor);
  net_of(p, node, C, T, 1, 1, &g->context);
  net_of(p, node, E, T * C, 1, 1, &g->expert);
  net_of(p, node, devices / T, T, 1, 1, &g->dense);
  net_of(p, node, C, T, m->data, T * C * E, &g->experts);
  free(node);
  return ATOLL_OK;
}

static atoll_err evaluate(const mist_mesh *m, const atoll_sym *e, double *out) {
  atoll_sym_binding b[MIST_FIXED + MIST_AXES];
  atoll_sym_value v;
  for (int i = 0; i < MIST_FIXED; i++)
    b[i] = (atoll_sym_binding){mist_fixed_name[i], m->fixed[i].value};
  for (int i = 0; i < MIST_AXES; i++)
    b[MIST_FIXED + i] = (atoll_sym_binding){mist_axis_name[i], {ATOLL_SYM_INT, 0, 0}};
  ATOLL_TRY(atoll_sym_eval(e, b, MIST_FIXED + MIST_AXES, &v));
  *out = (double)v.i;
  return ATOLL_OK;
}

/* Of activations, and of weights as layers read them. */
static double element_bytes(const mist_place *p) {
  return (double)atoll_dtype_bytes((atoll_dtype)atoll_model_config(p->problem->model)->dtype);
}

/* Share of a block's forward products that the MLP has. */
static double mlp_share(const atoll_model *model, int64_t seq) {
  const atoll_model_params *c = atoll_model_config(model);
  double h = (double)c->width, mlp = 4.0 * h * (double)c->ffn;
  return mlp / (mlp + 8.0 * h * h + 2.0 * h * (double)seq); /* causal attention: half of 4 h s */
}

typedef struct layer_seconds {
  double forward, backward, update, pack;
} layer_seconds;

/* One layer on one rank of the mesh. Kernels shrink with what is cut, which for tensor ranks are those of blocks; the
 * samples of an expert rank are fewer. */
static atoll_err layer_of(const mist_place *p, const mist_slice *s, const atoll_slice_context *x, const mist_mesh *m,
                          int layer, layer_seconds *out, atoll_cost_source *source) {
  cost_slice c;
  int64_t b = (x->micro_batch + m->expert - 1) / m->expert;
  ATOLL_TRY(
      cost_of_slice(p->cost, p->shape.island, 1, ATOLL_MLP_PLAIN, layer, layer + 1, (atoll_policy)s->policy, b, &c));
  int is_block = atoll_model_layer_kind(p->problem->model, layer) == ATOLL_LAYER_BLOCK;
  int tensor = is_block ? m->tensor : 1;
  double parts = (double)tensor * m->context, more = 1, held = 1;
  if (is_block && p->moe.experts > 0) {
    more = 1 + (double)(p->moe.top_k - 1) * mlp_share(p->problem->model, p->problem->seq);
    held = 1 + ((double)p->moe.experts / m->expert - 1) * 2.0 / 3; /* 8 of a block's 12 h^2 values are its MLP */
  }
  *out = (layer_seconds){c.forward * more / parts, c.backward * more / parts, c.update * held / tensor, 0};
  if (tensor > 1) {
    cost_slice share = {.forward = out->forward, .backward = out->backward};
    ATOLL_TRY(cost_pipeline_mlp(p->cost, p->shape.island, layer, tensor, p->mlp, b, &share));
    *out = (layer_seconds){share.forward, share.backward, out->update, share.update};
  }
  *source = later((int)*source, (int)c.source);
  if (parts > 1 || more > 1)
    *source = later((int)*source, ATOLL_COST_INTERPOLATED);
  return ATOLL_OK;
}

static void set(mist_mesh *m, int i, double v) { m->fixed[i].value.r = v; }

/* Collectives inside a block: a tensor group sums its output twice each way, once where its MLP is pipelined; a context
 * group gathers keys and values, and scatters their gradients; an expert group exchanges tokens before and after the
 * experts. */
static void inside(const mist_place *p, const groups *g, const atoll_slice_context *x, mist_mesh *m) {
  double b = ceil((double)x->micro_batch / m->expert), s = ceil((double)p->problem->seq / m->context);
  double stream = element_bytes(p) * b * s * (double)atoll_model_config(p->problem->model)->width,
         kv = 2 * stream * m->context;
  double sum = (atoll_mlp_pipelined(p->mlp) ? 1 : 2) * collective_seconds(&g->tensor, COLLECTIVE_ALL_REDUCE, stream);
  double gather = collective_seconds(&g->context, COLLECTIVE_ALL_GATHER, kv / m->tensor);
  double scatter = collective_seconds(&g->context, COLLECTIVE_REDUCE_SCATTER, kv / m->tensor);
  double tokens = p->moe.experts > 0 ? stream * (double)p->moe.top_k / m->tensor : 0;
  double swap = 2 * collective_seconds(&g->expert, COLLECTIVE_ALL_TO_ALL, tokens);
  set(m, FIX_FORWARD_INSIDE, sum + gather + swap);
  set(m, FIX_BACKWARD_INSIDE, sum + gather + scatter + swap);
}

static void sync(const groups *g, double dense, double experts, mist_mesh *m, int gather, int scatter, int reduce) {
  const collective_net *a = &g->dense, *e = &g->experts;
  set(m, gather,
      collective_seconds(a, COLLECTIVE_ALL_GATHER, dense) + collective_seconds(e, COLLECTIVE_ALL_GATHER, experts));
  set(m, scatter,
      collective_seconds(a, COLLECTIVE_REDUCE_SCATTER, dense) +
          collective_seconds(e, COLLECTIVE_REDUCE_SCATTER, experts));
  set(m, reduce,
      collective_seconds(a, COLLECTIVE_ALL_REDUCE, dense) + collective_seconds(e, COLLECTIVE_ALL_REDUCE, experts));
}

static void set_ints(const mist_place *p, const atoll_slice_context *x, mist_mesh *m) {
  const int64_t v[MIST_INTS] = {x->micro_batch,
                                p->problem->seq,
                                x->in_flight,
                                x->partials,
                                m->data,
                                m->tensor,
                                m->context,
                                m->expert,
                                m->tensor > 1 && p->problem->seq % ((int64_t)m->tensor * m->context) == 0,
                                p->host,
                                0};
  for (int i = 0; i < MIST_FIXED; i++)
    m->fixed[i] = (tuner_fixed){mist_fixed_name[i],
                                {i < MIST_INTS ? ATOLL_SYM_INT : ATOLL_SYM_REAL, i < MIST_INTS ? v[i] : 0, 0}};
}

/* What pipelined MLPs take on the fullest tensor rank, as grid counts it, beyond plain ones, which the expressions are
 * of: packed weights, shared tiles, and matrices that are whole on two of the ranks. What plain ones save for backward
 * and these do not is no credit, and nothing of it is dealt out or offloaded: mist may refuse what would fit, but not
 * accept what does not. */
static atoll_err mlp_bytes(const mist_place *p, const mist_slice *s, const atoll_slice_context *x, const mist_mesh *m,
                           int64_t *more) {
  int64_t plain[ATOLL_MEM_CATEGORIES], pipelined[ATOLL_MEM_CATEGORIES];
  cost_stage stage = {.first = s->first,
                      .last = s->last,
                      .policy = (atoll_policy)s->policy,
                      .b = (x->micro_batch + m->context - 1) / m->context,
                      .slots = x->in_flight,
                      .partials = x->partials,
                      .tensor = m->tensor};
  *more = 0;
  if (m->tensor < 2 || !atoll_mlp_pipelined(p->mlp))
    return ATOLL_OK;
  ATOLL_TRY(cost_stage_bytes(p->cost, &stage, plain));
  stage.mlp = p->mlp;
  ATOLL_TRY(cost_stage_bytes(p->cost, &stage, pipelined));
  for (int c = 0; c < ATOLL_MEM_CATEGORIES; c++)
    *more += pipelined[c] > plain[c] ? pipelined[c] - plain[c] : 0;
  return ATOLL_OK;
}

atoll_err mist_mesh_price(const mist_place *p, const mist_slice *s, const atoll_slice_context *x, mist_mesh *m) {
  groups g;
  double all, experts, saved, input;
  layer_seconds edge = {0, 0, 0, 0}, block = {0, 0, 0, 0};
  int block_layer = -1;
  m->source = ATOLL_COST_MEASURED;
  set_ints(p, x, m);
  ATOLL_TRY(mlp_bytes(p, s, x, m, &m->fixed[FIX_MLP_BYTES].value.i));
  ATOLL_TRY(find_groups(p, m, &g));
  for (int l = s->first; l < s->last; l++) {
    layer_seconds one;
    if (atoll_model_layer_kind(p->problem->model, l) == ATOLL_LAYER_BLOCK) {
      if (block_layer < 0)
        ATOLL_TRY(layer_of(p, s, x, m, l, &block, &m->source));
      block_layer = l;
      continue;
    }
    ATOLL_TRY(layer_of(p, s, x, m, l, &one, &m->source));
    edge = (layer_seconds){edge.forward + one.forward, edge.backward + one.backward, edge.update + one.update, 0};
  }
  set(m, FIX_EDGE_FORWARD, edge.forward);
  set(m, FIX_EDGE_BACKWARD, edge.backward);
  set(m, FIX_EDGE_UPDATE, edge.update);
  set(m, FIX_FORWARD, block.forward);
  set(m, FIX_BACKWARD, block.backward);
  set(m, FIX_UPDATE, block.update);
  set(m, FIX_PACK, block.pack);
  inside(p, &g, x, m);
  /* Bytes per block by taking the edges' parameters, which have no experts, from all: blocks are alike. */
  ATOLL_TRY(evaluate(m, s->memory.parameters, &all));
  ATOLL_TRY(evaluate(m, s->memory.expert_parameters, &experts));
  ATOLL_TRY(evaluate(m, s->memory.saved[0], &saved));
  ATOLL_TRY(evaluate(m, s->memory.saved[1], &input));
  double blocks = later(s->memory.blocks, 1), edges = all;
  if (s->memory.blocks > 0)
    ATOLL_TRY(evaluate(m, s->memory.edge_parameters, &edges));
  double dense = (all - experts - edges) / blocks;
  sync(&g, dense, experts / blocks, m, FIX_GATHER, FIX_SCATTER, FIX_REDUCE);
  sync(&g, edges, 0, m, FIX_EDGE_GATHER, FIX_EDGE_SCATTER, FIX_EDGE_REDUCE);
  double rate = p->host_rate > 0 ? p->host_rate : INFINITY;
  set(m, FIX_IN_WEIGHTS, (dense + experts / blocks) / rate);
  set(m, FIX_IN_SAVED, saved / rate);
  set(m, FIX_IN_INPUT, input / rate);
  set(m, FIX_OUT_SHARE, 1);
  return ATOLL_OK;
}
