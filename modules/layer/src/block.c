/* A GPT-2 block:
 *
 *   ln1 = LN(x)   qkv = ln1 Wqkv + b   o = attention(qkv)   r1 = x + drop(o Wo + b)
 *   ln2 = LN(r1)  f = ln2 Wfc + b      g = gelu(f)          y  = r1 + drop(g Wp + b)
 *
 * ln1, ln2 and g are cheap functions of what is kept anyway. Policy `eager` keeps them all the same, `exact` makes them
 * again for the weight gradients, by the same kernels from the same numbers, and so gets the same bits.
 *
 * Gradients: dz2 = drop'(dy), df = gelu'(f) (dz2 Wp^T), dln2 = df Wfc^T, dr1 = dy + LN'(dln2), dz = drop'(dr1), dqkv
 * from attention of dz Wo^T, dln1 = dqkv Wqkv^T, dx = dr1 + LN'(dln1). Dropout masks are never stored: they are
 * functions of (seed, step, sample, layer, site). */
#include "atoll/layer.h"

#include "layer_impl.h"

/* Order of atoll_model_layer_params(). */
enum { LN1_W, LN1_B, QKV_W, QKV_B, PROJ_W, PROJ_B, LN2_W, LN2_B, FC_W, FC_B, OUT_W, OUT_B };

typedef struct block {
  float *qkv, *o, *r1, *f, *mean1, *rstd1, *mean2, *rstd2, *lse;
  float *ln1, *ln2, *g; /* NULL when made again */
} block;

static block saved_of(const layer_call *l) {
  layer_pieces p;
  layer_saved_pieces(l->m, l->layer, l->policy, &p);
  float *at[PIECES_MAX] = {0};
  for (int i = 0; i < p.n; i++)
    at[i] = piece(&p, l->b->saved, i, l->c->B, l->c->S);
  return (block){at[SAVED_QKV],   at[SAVED_O],     at[SAVED_R1],  at[SAVED_F],   at[SAVED_MEAN1], at[SAVED_RSTD1],
                 at[SAVED_MEAN2], at[SAVED_RSTD2], at[SAVED_LSE], at[SAVED_LN1], at[SAVED_LN2],   at[SAVED_G]};
}

typedef struct carried {
  float *df, *dln2, *dz, *dqkv, *dln1, *dz2;
} carried;

static carried carried_of(const layer_call *l) {
  layer_pieces p;
  layer_carried_pieces(l->m, l->layer, l->policy, &p);
  float *at[PIECES_MAX] = {0};
  for (int i = 0; i < p.n; i++)
    at[i] = piece(&p, l->b->carried, i, l->c->B, l->c->S);
  return (carried){at[CARRIED_DF],   at[CARRIED_DLN2], at[CARRIED_DZ],
                   at[CARRIED_DQKV], at[CARRIED_DLN1], at[CARRIED_DZ2]};
}

static atoll_attention_shape shape_of(const layer_call *l) {
  int64_t D = l->H / l->config->heads;
  return (atoll_attention_shape){l->c->B, l->c->S, l->config->heads, D, (float)(1 / __builtin_sqrt((double)D))};
}

static atoll_err scratch(const layer_call *l, int64_t per_row, float **out) {
  void *p = NULL;
  ATOLL_TRY(atoll_arena_push(l->e->work, (size_t)(4 * per_row * l->R), &p));
  *out = p;
  return ATOLL_OK;
}

/* Scratch is released when the call that uses it is enqueued: later users are behind it in the same queue. */
atoll_err block_forward(const layer_call *l, const float *x, float *y) {
  const atoll_kernels *k = l->e->kernels;
  atoll_queue *q = l->e->compute;
  const void *const *w = l->b->weight;
  int64_t R = l->R, H = l->H, F = l->config->ffn, B = l->c->B, inner = l->c->S * H;
  block s = saved_of(l);
  atoll_attention_shape shape = shape_of(l);
  atoll_drop drop_attention = layer_drop(l, ATOLL_RNG_DROP_ATTENTION), drop_proj = layer_drop(l, ATOLL_RNG_DROP_PROJ);
  atoll_drop drop_mlp = layer_drop(l, ATOLL_RNG_DROP_MLP);
  size_t mark = atoll_arena_mark(l->e->work);

  float *ln = s.ln1;
  if (!ln)
    ATOLL_TRY(scratch(l, H, &ln));
  ATOLL_TRY(k->layernorm_forward(q, x, w[LN1_W], w[LN1_B], ln, s.mean1, s.rstd1, R, H));
  ATOLL_TRY(k->linear_forward(q, ln, w[QKV_W], w[QKV_B], s.qkv, R, H, 3 * H));
  ATOLL_TRY(k->attention_forward(q, s.qkv, s.o, s.lse, &shape, &drop_attention));
  ATOLL_TRY(k->linear_forward(q, s.o, w[PROJ_W], w[PROJ_B], y, R, H, H)); /* y is free until the end */
  ATOLL_TRY(k->residual_forward(q, x, y, s.r1, B, inner, &drop_proj));
  if (s.ln2)
    ln = s.ln2;
  ATOLL_TRY(k->layernorm_forward(q, s.r1, w[LN2_W], w[LN2_B], ln, s.mean2, s.rstd2, R, H));
  ATOLL_TRY(k->linear_forward(q, ln, w[FC_W], w[FC_B], s.f, R, H, F));
  atoll_arena_release(l->e->work, mark);
  float *g = s.g;
  if (!g)
    ATOLL_TRY(scratch(l, F, &g));
  ATOLL_TRY(k->gelu_forward(q, s.f, g, R * F));
  ATOLL_TRY(k->linear_forward(q, g, w[OUT_W], w[OUT_B], y, R, F, H));
  ATOLL_TRY(k->residual_forward(q, s.r1, y, y, B, inner, &drop_mlp));
  atoll_arena_release(l->e->work, mark);
  return ATOLL_OK;
}

atoll_err block_backward_input(const layer_call *l, const float *x, const float *dy, float *dx) {
  const atoll_kernels *k = l->e->kernels;
  atoll_queue *q = l->e->compute;
  const void *const *w = l->b->weight;
  int64_t R = l->R, H = l->H, F = l->config->ffn, B = l->c->B, inner = l->c->S * H;
  block s = saved_of(l);
  carried d = carried_of(l);
  atoll_attention_shape shape = shape_of(l);
  atoll_drop drop_attention = layer_drop(l, ATOLL_RNG_DROP_ATTENTION), drop_proj = layer_drop(l, ATOLL_RNG_DROP_PROJ);
  atoll_drop drop_mlp = layer_drop(l, ATOLL_RNG_DROP_MLP), none = {0};
  size_t mark = atoll_arena_mark(l->e->work);

  const float *dz2 = dy;
  if (d.dz2) {
    ATOLL_TRY(k->drop_backward(q, dy, d.dz2, B, inner, &drop_mlp));
    dz2 = d.dz2;
  }
  ATOLL_TRY(k->linear_backward_input(q, dz2, w[OUT_W], d.df, R, F, H, 0));
  ATOLL_TRY(k->gelu_backward(q, d.df, s.f, d.df, R * F));
  ATOLL_TRY(k->linear_backward_input(q, d.df, w[FC_W], d.dln2, R, H, F, 0));
  ATOLL_TRY(k->drop_backward(q, dy, dx, B, inner, &none)); /* a copy */
  ATOLL_TRY(k->layernorm_backward_input(q, d.dln2, s.r1, s.mean2, s.rstd2, w[LN2_W], dx, R, H, 1));
  ATOLL_TRY(k->drop_backward(q, dx, d.dz, B, inner, &drop_proj)); /* dx is dr1 here */
  float *d_o = d.dln1, *delta = NULL;                             /* dln1 is made after d_o was used */
  ATOLL_TRY(scratch(l, l->config->heads, &delta));
  ATOLL_TRY(k->linear_backward_input(q, d.dz, w[PROJ_W], d_o, R, H, H, 0));
  ATOLL_TRY(k->attention_backward(q, s.qkv, s.o, s.lse, d_o, d.dqkv, delta, &shape, &drop_attention));
  ATOLL_TRY(k->linear_backward_input(q, d.dqkv, w[QKV_W], d.dln1, R, H, 3 * H, 0));
  ATOLL_TRY(k->layernorm_backward_input(q, d.dln1, x, s.mean1, s.rstd1, w[LN1_W], dx, R, H, 1));
  atoll_arena_release(l->e->work, mark);
  return ATOLL_OK;
}

atoll_err block_backward_weight(const layer_call *l, const float *x, const float *dy) {
  const atoll_kernels *k = l->e->kernels;
  atoll_queue *q = l->e->compute;
  const void *const *w = l->b->weight;
  float *const *g = l->b->grad;
  int64_t R = l->R, H = l->H, F = l->config->ffn;
  block s = saved_of(l);
  carried d = carried_of(l);
  size_t mark = atoll_arena_mark(l->e->work);

  if (g[OUT_W]) {
    float *gelu = s.g;
    if (!gelu) {
      ATOLL_TRY(scratch(l, F, &gelu));
      ATOLL_TRY(k->gelu_forward(q, s.f, gelu, R * F));
    }
    ATOLL_TRY(k->linear_backward_weight(q, d.dz2 ? d.dz2 : dy, gelu, g[OUT_W], g[OUT_B], R, F, H));
    atoll_arena_release(l->e->work, mark);
  }
  if (g[FC_W]) {
    float *ln = s.ln2;
    if (!ln) {
      ATOLL_TRY(scratch(l, H, &ln));
      ATOLL_TRY(k->layernorm_apply(q, s.r1, s.mean2, s.rstd2, w[LN2_W], w[LN2_B], ln, R, H));
    }
    ATOLL_TRY(k->linear_backward_weight(q, d.df, ln, g[FC_W], g[FC_B], R, H, F));
    atoll_arena_release(l->e->work, mark);
  }
  if (g[LN2_W])
    ATOLL_TRY(k->layernorm_backward_weight(q, d.dln2, s.r1, s.mean2, s.rstd2, g[LN2_W], g[LN2_B], R, H));
  if (g[PROJ_W])
    ATOLL_TRY(k->linear_backward_weight(q, d.dz, s.o, g[PROJ_W], g[PROJ_B], R, H, H));
  if (g[QKV_W]) {
    float *ln = s.ln1;
    if (!ln) {
      ATOLL_TRY(scratch(l, H, &ln));
      ATOLL_TRY(k->layernorm_apply(q, x, s.mean1, s.rstd1, w[LN1_W], w[LN1_B], ln, R, H));
    }
    ATOLL_TRY(k->linear_backward_weight(q, d.dqkv, ln, g[QKV_W], g[QKV_B], R, H, 3 * H));
    atoll_arena_release(l->e->work, mark);
  }
  if (g[LN1_W])
    ATOLL_TRY(k->layernorm_backward_weight(q, d.dln1, x, s.mean1, s.rstd1, g[LN1_W], g[LN1_B], R, H));
  return ATOLL_OK;
}
