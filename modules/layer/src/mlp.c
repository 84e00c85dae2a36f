/* The MLP of a block on the ranks of one node, pipelined by tiles (ctapipe.h; Liu, Andoorveedu, Das et al.,
 * 2607.07862).
 *
 * Each of its two matrices is whole on one rank. The chain keeps in shared memory what its backward needs of one run,
 * the last; when another micro-batch, or a validation, came between, backward runs the forward again, which gives the
 * same bits. Every rank sees the same calls, so all decide alike. Gradients of weights are added where their owner has
 * them, by whichever rank has the time: the stage's gradients lie in symmetric memory. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/bf16.h"
#include "atoll/ctapipe.h"
#include "program.h"

enum { FIRST, SECOND, GATE, FIRST_BIAS, SECOND_BIAS, PARAMS };

struct layer_mlp {
  atoll_chain *chain;
  int rank;
  int64_t in, hidden;
  int param[PARAMS];     /* where a layer's buffers have them; -1: there is none */
  float *grad[PARAMS];   /* of its owner's first buffer of gradients */
  int64_t apart[PARAMS]; /* elements from there to the owner's next buffer */
  atoll_chain_setting how;
  char choice[96];  /* what was chosen, in words; "" where there was no choice */
  atoll_call holds; /* whose tiles the chain has */
  int known;        /* it has any */
};

static const char *const names[] = {"plain", "cta", "cta_own", "auto"};

const char *atoll_mlp_name(atoll_mlp mlp) { return names[mlp]; }

int atoll_mlp_parse(const char *name, atoll_mlp *mlp) {
  for (int i = 0; i <= ATOLL_MLP_AUTO; i++)
    if (!strcmp(name, names[i])) {
      *mlp = (atoll_mlp)i;
      return 0;
    }
  return -1;
}

static atoll_chain_params params_of(const atoll_model *m, int64_t rows, int train, atoll_mlp mlp) {
  const atoll_model_params *c = atoll_model_config(m);
  atoll_chain_params p;
  atoll_chain_params_init(&p);
  p.rows = rows;
  p.layers = 2;
  int gate = c->family == ATOLL_FAMILY_LLAMA;
  atoll_activation gelu = c->family == ATOLL_FAMILY_GPT2 ? ATOLL_ACTIVATION_GELU : ATOLL_ACTIVATION_GELU_ERF;
  p.layer[0] = (atoll_chain_layer){c->width, c->ffn, gate ? ATOLL_ACTIVATION_SWIGLU : gelu, !gate};
  p.layer[1] = (atoll_chain_layer){c->ffn, c->width, ATOLL_ACTIVATION_NONE, !gate};
  p.backward = train;
  p.claims = mlp != ATOLL_MLP_CTA_OWN;
  p.dtype = (atoll_dtype)c->dtype;
  return p;
}

atoll_err mlp_check(int tensor) {
  if (tensor < 2)
    return atoll_fail(ATOLL_USAGE, "an MLP pipelined over tensor ranks (cta), of which there is one");
  return ATOLL_OK;
}

atoll_err mlp_bytes(const atoll_model *m, int64_t rows, int train, int rank, int tensor, int64_t *bytes) {
  atoll_chain_params p = params_of(m, rows, train, ATOLL_MLP_CTA); /* claims need no room */
  size_t n = 0;
  ATOLL_TRY(atoll_chain_measure(&p, rank, tensor, &n));
  *bytes = (int64_t)n;
  return ATOLL_OK;
}

enum { TRAINING, SAME_BITS, ANY_BITS, CHOICES }; /* the nearer to what a stage does, the earlier */

static int look_up(const atoll_model *m, const atoll_chain_choices *choices, int which, atoll_mlp_seconds *s) {
  const atoll_chain_params p = params_of(m, s->rows, 0, ATOLL_MLP_CTA);
  atoll_chain_choice known;
  if (!(which == TRAINING ? atoll_chain_remembered_training(choices, &p, s->ranks, s->rows, &known)
                          : atoll_chain_remembered(choices, &p, s->ranks, s->rows, which == SAME_BITS, &known)))
    return 0;
  double by_rows = known.seconds[ATOLL_CHAIN_ROW_SPLIT], by_columns = known.seconds[ATOLL_CHAIN_COLUMN_SHARED];
  s->pipelined = known.seconds[ATOLL_CHAIN_CTA];
  s->even = by_rows > 0 && (by_rows < by_columns || by_columns == 0) ? by_rows : by_columns;
  return s->pipelined > 0 && s->even > 0;
}

int atoll_mlp_remembered(const atoll_model *m, const char *path, atoll_mlp_seconds *of, int n) {
  atoll_chain_choices *choices = NULL;
  int known = 0;
  if (atoll_chain_choices_open(path, &choices) != ATOLL_OK)
    atoll_err_clear(); /* the chooser says so when it measures again */
  for (int i = 0; i < n; i++) {
    int found = 0;
    for (int which = 0; which < CHOICES && choices && !found; which++)
      found = look_up(m, choices, which, &of[i]);
    known += found;
    if (!found)
      of[i].pipelined = of[i].even = 0;
  }
  atoll_chain_choices_close(&choices);
  return known;
}

/* Where the parameters stand, by the block's program. */
static atoll_err find_weights(const atoll_model *m, int layer, int tensor, layer_mlp *mlp) {
  program p;
  ATOLL_TRY(program_make(m, layer, ATOLL_POLICY_EXACT2, (layer_way){tensor, ATOLL_MLP_CTA}, &p));
  for (int i = 0; i < p.ops; i++)
    if (p.op[i].kind == OP_MLP) {
      mlp->param[FIRST] = p.op[i].weight, mlp->param[SECOND] = p.op[i].second_weight;
      mlp->param[GATE] = p.op[i].gate_weight;
      mlp->param[FIRST_BIAS] = p.op[i].bias, mlp->param[SECOND_BIAS] = p.op[i].second_bias;
    }
  return ATOLL_OK;
}

static int layer_of(int param) { return param == SECOND || param == SECOND_BIAS; }

/* Everybody learns where the owners have their gradients. */
static atoll_err find_gradients(layer_mlp *mlp, const atoll_exec *e, const mlp_gradients *g) {
  int64_t mine[1 + PARAMS] = {g->apart}, (*all)[1 + PARAMS] = malloc((size_t)layer_degree(e) * sizeof *all);
  MPI_Comm comm = atoll_comm_mpi(e->tensor);
  atoll_err err = all ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "places of gradients on %d ranks", layer_degree(e));
  for (int i = 0; i < PARAMS; i++)
    mine[1 + i] = mlp->param[i] < 0 ? 0 : g->at[mlp->param[i]];
  err = atoll_agree(comm, err);
  if (err == ATOLL_OK)
    MPI_Allgather(mine, 1 + PARAMS, MPI_INT64_T, all, 1 + PARAMS, MPI_INT64_T, comm);
  for (int i = 0; i < PARAMS && err == ATOLL_OK; i++) {
    int owner = atoll_chain_owner(mlp->chain, layer_of(i));
    mlp->grad[i] = mlp->param[i] < 0 ? NULL : (float *)atoll_symmetric_at(g->memory, owner) + all[owner][1 + i];
    mlp->apart[i] = all[owner][0];
  }
  free(all);
  return err;
}

static float *grad_of(const layer_mlp *m, int param, int partial) {
  return m->grad[param] ? m->grad[param] + partial * m->apart[param] : NULL;
}

static atoll_chain_gradients gradients_of(const layer_mlp *m, int partial) {
  return (atoll_chain_gradients){{grad_of(m, FIRST, partial), grad_of(m, SECOND, partial)},
                                 {grad_of(m, FIRST_BIAS, partial), grad_of(m, SECOND_BIAS, partial)},
                                 grad_of(m, GATE, partial)};
}

const char *mlp_choice(const layer_mlp *mlp) { return mlp->choice; }

/* Collective. Matrices and gradients are zeros as yet; the times of products do not go by that. */
static atoll_err choose(layer_mlp *mlp, int64_t rows, const layer_mlp *like) {
  atoll_chain_choice found;
  if (like) {
    mlp->how = like->how;
    memcpy(mlp->choice, like->choice, sizeof mlp->choice);
    return ATOLL_OK;
  }
  const atoll_chain_gradients to = gradients_of(mlp, 0);
  ATOLL_TRY(atoll_chain_choose_training(mlp->chain, rows, &to, NULL, &found));
  mlp->how = found.setting;
  snprintf(mlp->choice, sizeof mlp->choice, "%s in panels of %lld rows%s", atoll_chain_way_name(found.setting.way),
           (long long)found.setting.cut.panel, found.remembered ? " (remembered)" : "");
  return ATOLL_OK;
}

atoll_err mlp_create(const atoll_model *m, int layer, int64_t rows, atoll_mlp way, const atoll_exec *e,
                     const mlp_gradients *gradients, const layer_mlp *like, layer_mlp **out) {
  atoll_chain_params p = params_of(m, rows, gradients->memory != NULL, way);
  layer_mlp *mlp = calloc(1, sizeof *mlp);
  atoll_err err = mlp ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "no memory for %zu bytes", sizeof *mlp);
  if (err == ATOLL_OK && (e->kernels->dtype != p.dtype || !atoll_device_host_memory(e->device)))
    err = atoll_fail(ATOLL_UNSUPPORTED, "an MLP pipelined over tensor ranks (cta) with kernels '%s'", e->kernels->name);
  if (err == ATOLL_OK)
    err = find_weights(m, layer, layer_degree(e), mlp);
  err = atoll_agree(atoll_comm_mpi(e->tensor), err);
  if (err == ATOLL_OK)
    err = atoll_chain_create(e->tensor, e->mem, &p, &mlp->chain);
  if (err == ATOLL_OK && gradients->memory)
    err = find_gradients(mlp, e, gradients);
  if (err == ATOLL_OK)
    mlp->how.way = ATOLL_CHAIN_CTA;
  if (err == ATOLL_OK && way == ATOLL_MLP_AUTO && gradients->memory)
    err = choose(mlp, rows, like);
  if (err != ATOLL_OK) {
    if (mlp)
      mlp_destroy(&mlp);
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
  if ((*mlp)->chain)
    atoll_chain_destroy(&(*mlp)->chain);
  free(*mlp);
  *mlp = NULL;
}

/* ---- tasks ---- */

typedef struct mlp_args {
  layer_mlp *mlp;
  atoll_call call;
  const void *x, *dy;
  void *y, *dx;
  int64_t rows;
  int add, rounds;           /* rounds: values are bf16 */
  const void *param[PARAMS]; /* NULL: the MLP has none */
  atoll_chain_gradients to;
} mlp_args;

static atoll_err set_task(void *args, void *stream) {
  const mlp_args *a = args;
  layer_mlp *m = a->mlp;
  (void)stream;
  m->known = 0;
  ATOLL_TRY(atoll_chain_set_layer(m->chain, 0, a->param[FIRST], 1, m->in, a->param[FIRST_BIAS]));
  ATOLL_TRY(atoll_chain_set_layer(m->chain, 1, a->param[SECOND], 1, m->hidden, a->param[SECOND_BIAS]));
  return a->param[GATE] ? atoll_chain_set_gate(m->chain, 0, a->param[GATE], 1, m->in) : ATOLL_OK;
}

static atoll_err run(const mlp_args *a, const float **y) {
  layer_mlp *m = a->mlp;
  m->known = 0;
  ATOLL_TRY(atoll_chain_run(m->chain, m->how.way, &m->how.cut, a->rows, a->x, y));
  m->known = 1;
  m->holds = a->call;
  return ATOLL_OK;
}

/* Sums of the chain to where they are stored, rounded once if at all. */
static void store(const mlp_args *a, const float *sum, void *to, int add) {
  int64_t n = a->rows * a->mlp->in;
  uint16_t *half = to;
  float *whole = to;
  if (!a->rounds && !add)
    memcpy(to, sum, (size_t)n * sizeof *sum);
  for (int64_t i = 0; !a->rounds && add && i < n; i++)
    whole[i] += sum[i];
  for (int64_t i = 0; a->rounds && i < n; i++)
    half[i] = atoll_bf16_of(add ? atoll_bf16_float(half[i]) + sum[i] : sum[i]);
}

static atoll_err forward_task(void *args, void *stream) {
  const mlp_args *a = args;
  const float *y = NULL;
  (void)stream;
  ATOLL_TRY(run(a, &y));
  store(a, y, a->y, 0);
  return ATOLL_OK;
}

static int holds(const layer_mlp *m, const atoll_call *c) {
  return m->known && m->holds.train == c->train && m->holds.step == c->step &&
         m->holds.first_sample == c->first_sample && m->holds.B == c->B && m->holds.S == c->S;
}

static atoll_err input_task(void *args, void *stream) {
  const mlp_args *a = args;
  layer_mlp *m = a->mlp;
  const float *y = NULL, *dx = NULL;
  (void)stream;
  if (!holds(m, &a->call))
    ATOLL_TRY(run(a, &y));
  ATOLL_TRY(atoll_chain_backward(m->chain, m->how.way, a->dy, &a->to, &dx));
  store(a, dx, a->dx, a->add);
  return ATOLL_OK;
}

static atoll_err submit(const atoll_exec *e, atoll_task task, const mlp_args *a) {
  return atoll_queue_submit(e->compute, task, a, sizeof *a);
}

atoll_err mlp_set(const atoll_layer_buffers *b, const atoll_exec *e) {
  layer_mlp *m = b->mlp;
  mlp_args a = {.mlp = m};
  for (int i = 0; i < PARAMS; i++)
    a.param[i] = m->param[i] < 0 ? NULL : b->weight[m->param[i]];
  return submit(e, set_task, &a);
}

atoll_err mlp_forward(const layer_call *l, const void *x, void *y) {
  mlp_args a = {
      .mlp = l->b->mlp, .call = *l->c, .x = x, .y = y, .rows = l->R, .rounds = l->e->kernels->dtype == ATOLL_BF16};
  return submit(l->e, forward_task, &a);
}

atoll_err mlp_input(const layer_call *l, const void *x, const void *dy, void *dx, int add) {
  const layer_mlp *m = l->b->mlp;
  mlp_args a = {.mlp = l->b->mlp,
                .call = *l->c,
                .x = x,
                .dy = dy,
                .dx = dx,
                .rows = l->R,
                .add = add,
                .rounds = l->e->kernels->dtype == ATOLL_BF16,
                .to = gradients_of(m, l->b->partial)};
  return submit(l->e, input_task, &a);
}
