/* The MLP of a block on the ranks of one node, pipelined by tiles (ctapipe.h; Liu, Andoorveedu, Das et al.,
 * 2607.07862).
 *
 * Each of its two matrices is whole on one rank. The chain keeps in shared memory what its backward needs of one run,
 * the last; when another micro-batch, or a validation, came between, backward runs the forward again, which gives the
 * same bits. Every rank sees the same calls, so all decide alike. Weights and their gradients lie there as [in, out],
 * parameters are [out, in]. */
#include <stdlib.h>
#include <string.h>

#include "atoll/ctapipe.h"
#include "program.h"

enum { FIRST, SECOND, GATE, MATRICES };

struct layer_mlp {
  atoll_chain *chain;
  int rank;
  int64_t in, hidden;
  int weight[MATRICES], bias[2]; /* where a layer's buffers have them; -1: there is none */
  atoll_call holds;              /* whose tiles the chain has */
  int known;                     /* it has any */
  atoll_chain_gradients gradients;
};

const char *atoll_mlp_name(atoll_mlp mlp) { return mlp == ATOLL_MLP_CTA ? "cta" : "plain"; }

int atoll_mlp_parse(const char *name, atoll_mlp *mlp) {
  if (strcmp(name, "plain") != 0 && strcmp(name, "cta") != 0)
    return -1;
  *mlp = !strcmp(name, "cta") ? ATOLL_MLP_CTA : ATOLL_MLP_PLAIN;
  return 0;
}

static atoll_chain_params params_of(const atoll_model *m, int64_t rows) {
  const atoll_model_params *c = atoll_model_config(m);
  atoll_chain_params p;
  atoll_chain_params_init(&p);
  p.rows = rows;
  p.layers = 2;
  int gate = c->family == ATOLL_FAMILY_LLAMA;
  atoll_activation gelu = c->family == ATOLL_FAMILY_GPT2 ? ATOLL_ACTIVATION_GELU : ATOLL_ACTIVATION_GELU_ERF;
  p.layer[0] = (atoll_chain_layer){c->width, c->ffn, gate ? ATOLL_ACTIVATION_SWIGLU : gelu, !gate};
  p.layer[1] = (atoll_chain_layer){c->ffn, c->width, ATOLL_ACTIVATION_NONE, !gate};
  p.backward = 1;
  return p;
}

atoll_err mlp_check(const atoll_model *m, int tensor) {
  if (tensor < 2)
    return atoll_fail(ATOLL_USAGE, "an MLP pipelined over tensor ranks (cta), of which there is one");
  if (atoll_model_config(m)->dtype != ATOLL_F32)
    return atoll_fail(ATOLL_UNSUPPORTED, "an MLP pipelined over tensor ranks (cta) in %s: it computes in f32",
                      atoll_dtype_name((atoll_dtype)atoll_model_config(m)->dtype));
  return ATOLL_OK;
}

atoll_err mlp_bytes(const atoll_model *m, int64_t rows, int rank, int tensor, int64_t *bytes) {
  atoll_chain_params p = params_of(m, rows);
  size_t n = 0;
  ATOLL_TRY(atoll_chain_measure(&p, rank, tensor, &n));
  *bytes = (int64_t)n;
  return ATOLL_OK;
}

/* Where the parameters stand, by the block's program. */
static atoll_err find_weights(const atoll_model *m, int layer, int tensor, layer_mlp *mlp) {
  program p;
  ATOLL_TRY(program_make(m, layer, ATOLL_POLICY_EXACT2, (layer_way){tensor, ATOLL_MLP_CTA}, &p));
  for (int i = 0; i < p.ops; i++)
    if (p.op[i].kind == OP_MLP) {
      mlp->weight[FIRST] = p.op[i].weight, mlp->weight[SECOND] = p.op[i].second_weight;
      mlp->weight[GATE] = p.op[i].gate_weight;
      mlp->bias[0] = p.op[i].bias, mlp->bias[1] = p.op[i].second_bias;
    }
  return ATOLL_OK;
}

atoll_err mlp_create(const atoll_model *m, int layer, int64_t rows, const atoll_exec *e, layer_mlp **out) {
  atoll_chain_params p = params_of(m, rows);
  layer_mlp *mlp = calloc(1, sizeof *mlp);
  atoll_err err = mlp ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "no memory for %zu bytes", sizeof *mlp);
  if (err == ATOLL_OK && (e->kernels->dtype != ATOLL_F32 || !atoll_device_host_memory(e->device)))
    err = atoll_fail(ATOLL_UNSUPPORTED, "an MLP pipelined over tensor ranks (cta) with kernels '%s'", e->kernels->name);
  if (err == ATOLL_OK)
    err = find_weights(m, layer, layer_degree(e), mlp);
  err = atoll_agree(atoll_comm_mpi(e->tensor), err);
  if (err == ATOLL_OK)
    err = atoll_chain_create(e->tensor, e->mem, &p, &mlp->chain);
  if (err != ATOLL_OK) {
    free(mlp);
    return err;
  }
  mlp->rank = layer_rank(e);
  mlp->in = p.layer[0].in;
  mlp->hidden = p.layer[0].out;
  *out = mlp;
  return ATOLL_OK;
}

void mlp_destroy(layer_mlp **mlp) {
  if (!*mlp)
    return;
  atoll_chain_destroy(&(*mlp)->chain);
  free(*mlp);
  *mlp = NULL;
}

/* ---- tasks ---- */

typedef struct mlp_args {
  layer_mlp *mlp;
  atoll_call call;
  const float *x, *dy;
  float *to;
  int64_t rows;
  int add;
  const float *w[MATRICES], *bias[2]; /* NULL: the MLP has none, here and below */
  float *dw[MATRICES], *db[2];
} mlp_args;

static atoll_err set_task(void *args, void *stream) {
  const mlp_args *a = args;
  layer_mlp *m = a->mlp;
  (void)stream;
  m->known = 0;
  ATOLL_TRY(atoll_chain_set_layer(m->chain, 0, a->w[0], 1, m->in, a->bias[0]));
  ATOLL_TRY(atoll_chain_set_layer(m->chain, 1, a->w[1], 1, m->hidden, a->bias[1]));
  return a->w[GATE] ? atoll_chain_set_gate(m->chain, 0, a->w[GATE], 1, m->in) : ATOLL_OK;
}

static atoll_err run(const mlp_args *a, const float **y) {
  layer_mlp *m = a->mlp;
  m->known = 0;
  ATOLL_TRY(atoll_chain_run(m->chain, ATOLL_CHAIN_CTA, NULL, a->rows, a->x, y));
  m->known = 1;
  m->holds = a->call;
  return ATOLL_OK;
}

static atoll_err forward_task(void *args, void *stream) {
  const mlp_args *a = args;
  const float *y = NULL;
  (void)stream;
  ATOLL_TRY(run(a, &y));
  memcpy(a->to, y, (size_t)(a->rows * a->mlp->in) * sizeof *y);
  return ATOLL_OK;
}

static int holds(const layer_mlp *m, const atoll_call *c) {
  return m->known && m->holds.train == c->train && m->holds.step == c->step &&
         m->holds.first_sample == c->first_sample && m->holds.B == c->B && m->holds.S == c->S;
}

static atoll_err input_task(void *args, void *stream) {
  const mlp_args *a = args;
  layer_mlp *m = a->mlp;
  const float *y = NULL;
  int64_t n = a->rows * m->in;
  (void)stream;
  if (!holds(m, &a->call))
    ATOLL_TRY(run(a, &y));
  ATOLL_TRY(atoll_chain_backward(m->chain, ATOLL_CHAIN_CTA, a->dy, &m->gradients));
  if (!a->add)
    memcpy(a->to, m->gradients.dx, (size_t)n * sizeof *a->to);
  for (int64_t i = 0; a->add && i < n; i++)
    a->to[i] += m->gradients.dx[i];
  return ATOLL_OK;
}

/* to [out, in] += from [in, out], by squares that stay in the first cache. */
static void add_turned(float *to, const float *from, int64_t in, int64_t out) {
  enum { SQUARE = 32 };
  for (int64_t o0 = 0; o0 < out; o0 += SQUARE)
    for (int64_t i0 = 0; i0 < in; i0 += SQUARE)
      for (int64_t o = o0; o < out && o < o0 + SQUARE; o++)
        for (int64_t i = i0; i < in && i < i0 + SQUARE; i++)
          to[o * in + i] += from[i * out + o];
}

static atoll_err weight_task(void *args, void *stream) {
  const mlp_args *a = args;
  layer_mlp *m = a->mlp;
  (void)stream;
  for (int l = 0; l < 2; l++) {
    int64_t in = l ? m->hidden : m->in, out = l ? m->in : m->hidden;
    if (atoll_chain_owner(m->chain, l) != m->rank)
      continue;
    add_turned(a->dw[l], m->gradients.dw[l], in, out);
    if (l == 0 && a->dw[GATE])
      add_turned(a->dw[GATE], m->gradients.dgate, in, out);
    for (int64_t o = 0; a->db[l] && o < out; o++)
      a->db[l][o] += m->gradients.db[l][o];
  }
  return ATOLL_OK;
}

static atoll_err submit(const atoll_exec *e, atoll_task task, const mlp_args *a) {
  return atoll_queue_submit(e->compute, task, a, sizeof *a);
}

atoll_err mlp_set(const atoll_layer_buffers *b, const atoll_exec *e) {
  layer_mlp *m = b->mlp;
  mlp_args a = {.mlp = m};
  for (int i = 0; i < MATRICES; i++)
    a.w[i] = m->weight[i] < 0 ? NULL : b->weight[m->weight[i]];
  for (int l = 0; l < 2; l++)
    a.bias[l] = m->bias[l] < 0 ? NULL : b->weight[m->bias[l]];
  return submit(e, set_task, &a);
}

atoll_err mlp_forward(const layer_call *l, const void *x, void *y) {
  mlp_args a = {.mlp = l->b->mlp, .call = *l->c, .x = x, .to = y, .rows = l->R};
  return submit(l->e, forward_task, &a);
}

atoll_err mlp_input(const layer_call *l, const void *x, const void *dy, void *dx, int add) {
  mlp_args a = {.mlp = l->b->mlp, .call = *l->c, .x = x, .dy = dy, .to = dx, .rows = l->R, .add = add};
  return submit(l->e, input_task, &a);
}

atoll_err mlp_weight(const layer_call *l) {
  layer_mlp *m = l->b->mlp;
  mlp_args a = {.mlp = m};
  for (int i = 0; i < MATRICES; i++)
    a.dw[i] = m->weight[i] < 0 ? NULL : l->b->grad[m->weight[i]];
  for (int i = 0; i < 2; i++)
    a.db[i] = m->bias[i] < 0 ? NULL : l->b->grad[m->bias[i]];
  return submit(l->e, weight_task, &a);
}
