/* The kinds of operations: what backward needs of each, and the kernels that do it. */
#include "atoll/kernel_keep.h"
#include "atoll/packed.h"
#include "schedule.h"

static const void *weight_of(const op_run *r, int i) { return i < 0 ? NULL : r->l->b->weight[i]; }

static const void *panels_of(const op_run *r, int i, int back) { return r->l->b->panels[i][back]; }

static float *grad_of(const op_run *r, int i) { return i < 0 ? NULL : r->l->b->grad[i]; }

static void *in_of(const op_run *r, int i) { return r->at[r->op->in[i]]; }

static void *out_of(const op_run *r) { return r->at[r->op->out]; }

static void *extra_of(const op_run *r, int i) { return r->at[r->op->extra[i]]; }

static void *d_in(const op_run *r, int i) { return r->at[GRAD(r->op->in[i])]; }

static void *d_out(const op_run *r) { return r->at[GRAD(r->op->out)]; }

static int64_t width(const op_run *r, int value) { return r->b->p.value[value].width; }

static atoll_drop drop_here(const op_run *r) {
  atoll_drop none = {0};
  return r->op->drops ? layer_drop(r->l, r->op->site) : none;
}

#define KERNELS (r->l->e->kernels)
#define QUEUE   (r->l->e->compute)

/* ---- norm ---- */

static layer_norm norm_of(const op_run *r) {
  return (layer_norm){r->l,
                      weight_of(r, r->op->weight),
                      weight_of(r, r->op->bias),
                      r->op->extra[0] == NO_VALUE ? NULL : extra_of(r, 0),
                      extra_of(r, 1),
                      r->l->R,
                      width(r, r->op->out)};
}

static atoll_err norm_forward(const op_run *r) {
  layer_norm n = norm_of(r);
  if (r->s != &r->b->call[STEP_FORWARD]) /* made again: its statistics are kept */
    return layer_norm_apply(&n, in_of(r, 0), out_of(r));
  return layer_norm_forward(&n, in_of(r, 0), out_of(r));
}

static atoll_err norm_input(const op_run *r) {
  layer_norm n = norm_of(r);
  return layer_norm_input(&n, d_out(r), in_of(r, 0), d_in(r, 0), r->step->add[0]);
}

static atoll_err norm_weight(const op_run *r) {
  layer_norm n = norm_of(r);
  return layer_norm_weight(&n, d_out(r), in_of(r, 0), grad_of(r, r->op->weight), grad_of(r, r->op->bias));
}

/* ---- linear ---- */

/* Whether the product's gradient is the first (last) part of its input's gradient that comes from products cut in
 * columns; backward goes through operations in reverse. */
static int first_columns(const op_run *r) {
  const program *p = &r->b->p;
  for (int i = r->step->op + 1; i < p->ops; i++)
    if (p->op[i].split == SPLIT_COLUMNS && p->op[i].in[0] == r->op->in[0])
      return 0;
  return 1;
}

static int last_columns(const op_run *r) {
  const program *p = &r->b->p;
  for (int i = 0; i < r->step->op; i++)
    if (p->op[i].split == SPLIT_COLUMNS && p->op[i].in[0] == r->op->in[0])
      return 0;
  return 1;
}

/* Generating, behind the prompt: each row is a token at a position of its own. */
static int single_tokens(const op_run *r) { return r->l->cache && r->l->cache->single; }

/* Turns what the product gave, or its gradient back: in place, and the weight gradient then reads that. */
static atoll_err turn(const op_run *r, void *at, int back) {
  const atoll_model_params *c = r->l->config;
  const atoll_rope rope = {c->rope_theta, c->rope_factor, c->rope_low, c->rope_high, c->rope_context};
  if (!r->op->turned_heads)
    return ATOLL_OK;
  if (single_tokens(r))
    return KERNELS->decode->rope(QUEUE, at, &rope, r->op->turned_heads, c->width / c->heads, r->l->cache->at, r->l->R);
  return KERNELS->rope(QUEUE, at, r->l->c->B, r->l->c->S, r->op->turned_heads, c->width / c->heads, &rope, back);
}

static atoll_err linear_forward(const op_run *r) {
  const void *w = weight_of(r, r->op->weight), *bias = weight_of(r, r->op->bias);
  int64_t I = width(r, r->op->in[0]), O = width(r, r->op->out);
  if (r->op->split == SPLIT_ROWS && tensor_sums_apart(r->l)) {
    ATOLL_TRY(tensor_product(r->l, 0, in_of(r, 0), I, w, bias, out_of(r), 0));
    return turn(r, out_of(r), 0);
  }
  if (r->op->split == SPLIT_ROWS && layer_rank(r->l->e) > 0)
    bias = NULL; /* once in the sum */
  if (single_tokens(r))
    ATOLL_TRY(KERNELS->decode->linear(QUEUE, in_of(r, 0), w, bias, out_of(r), r->l->R, I, O));
  else
    ATOLL_TRY(atoll_packed_forward(KERNELS, QUEUE, in_of(r, 0), w, panels_of(r, r->op->weight, 0), bias, out_of(r),
                                   r->l->R, I, O));
  if (r->op->split == SPLIT_ROWS)
    ATOLL_TRY(tensor_sum(r->l, out_of(r)));
  return turn(r, out_of(r), 0);
}

/* Tensor ranks have a part each of what columns give to the input's gradient. These are added up where they arise, and
 * over ranks after the last; what the gradient holds before the first is the same on all ranks, so one brings it. Parts
 * that would be rounded are summed over ranks one by one instead. */
static atoll_err linear_input(const op_run *r) {
  int columns = r->op->split == SPLIT_COLUMNS, add = r->step->add[0];
  if (columns && layer_rank(r->l->e) > 0 && first_columns(r))
    add = 0;
  ATOLL_TRY(turn(r, r->at[GRAD(r->op->out)], 1));
  if (columns && tensor_sums_apart(r->l))
    return tensor_product(r->l, 1, d_out(r), width(r, r->op->out), weight_of(r, r->op->weight), NULL, d_in(r, 0),
                          r->step->add[0]);
  ATOLL_TRY(atoll_packed_backward_input(KERNELS, QUEUE, d_out(r), weight_of(r, r->op->weight),
                                        panels_of(r, r->op->weight, 1), d_in(r, 0), r->l->R, width(r, r->op->in[0]),
                                        width(r, r->op->out), add));
  return columns && last_columns(r) ? tensor_sum(r->l, d_in(r, 0)) : ATOLL_OK;
}

static atoll_err linear_weight(const op_run *r) {
  return KERNELS->linear_backward_weight(QUEUE, d_out(r), in_of(r, 0), grad_of(r, r->op->weight),
                                         grad_of(r, r->op->bias), r->l->R, width(r, r->op->in[0]), width(r, r->op->out),
                                         !r->l->b->fresh);
}

/* ---- attention ---- */

static atoll_attention_shape shape_of(const op_run *r) {
  const atoll_model_params *c = r->l->config;
  int64_t D = c->width / c->heads;
  return (atoll_attention_shape){.B = r->l->c->B,
                                 .S = r->l->c->S,
                                 .heads = c->heads / r->b->p.way.tensor,
                                 .head_dim = D,
                                 .scale = (float)(1 / __builtin_sqrt((double)D)),
                                 .kv_heads = c->kv_heads / r->b->p.way.tensor,
                                 .q_row = width(r, r->op->in[0]),
                                 .kv_row = width(r, r->op->in[r->op->in[1] == NO_VALUE ? 0 : 1]),
                                 .both_ways = !atoll_model_causal(r->l->m),
                                 .lengths = r->l->c->lengths,
                                 .first_head = layer_rank(r->l->e) * (c->heads / r->b->p.way.tensor)};
}

/* Queries (0), keys or values; at the value's place or (grad) its gradient's. They have places of their own, or lie
 * beside each other in each row. */
static void *part_of(const op_run *r, int i, int grad) {
  int apart = r->op->in[1] != NO_VALUE, value = r->op->in[apart ? i : 0];
  char *at = r->at[grad ? GRAD(value) : value];
  return apart ? at : at + (size_t)(i * width(r, r->op->out)) * atoll_dtype_bytes(KERNELS->dtype);
}

/* Generating: what this call makes joins the cache. */
static atoll_err attention_store(const op_run *r, const atoll_cache *c) {
  return KERNELS->decode->store(QUEUE, part_of(r, 1, 0), part_of(r, 2, 0), c, r->l->cache->slot, r->l->cache->at,
                                r->l->R);
}

static atoll_err attention_forward(const op_run *r) {
  atoll_attention_shape shape = shape_of(r);
  if (r->l->cache) {
    atoll_cache c = r->l->cache->c;
    c.scale = shape.scale, c.q_row = shape.q_row, c.kv_row = shape.kv_row;
    ATOLL_TRY(attention_store(r, &c));
    if (single_tokens(r) || (c.window && r->l->R > c.window))
      return KERNELS->decode->attention(QUEUE, part_of(r, 0, 0), out_of(r), &c, r->l->cache->slot, r->l->cache->at,
                                        r->l->R);
  }
  atoll_drop drop = drop_here(r);
  return KERNELS->attention_forward(QUEUE, part_of(r, 0, 0), part_of(r, 1, 0), part_of(r, 2, 0), out_of(r),
                                    extra_of(r, 0), &shape, &drop);
}

static atoll_err attention_input(const op_run *r) {
  atoll_attention_shape shape = shape_of(r);
  atoll_drop drop = drop_here(r);
  return KERNELS->attention_backward(QUEUE, part_of(r, 0, 0), part_of(r, 1, 0), part_of(r, 2, 0), out_of(r),
                                     extra_of(r, 0), d_out(r), part_of(r, 0, 1), part_of(r, 1, 1), part_of(r, 2, 1),
                                     r->at[r->op->scratch], &shape, &drop);
}

/* ---- activation ---- */

static atoll_err activation_forward(const op_run *r) {
  return (r->op->erf ? KERNELS->gelu_erf_forward : KERNELS->gelu_forward)(QUEUE, in_of(r, 0), out_of(r),
                                                                          r->l->R * width(r, r->op->out));
}

static atoll_err activation_input(const op_run *r) {
  return (r->op->erf ? KERNELS->gelu_erf_backward : KERNELS->gelu_backward)(QUEUE, d_out(r), in_of(r, 0), d_in(r, 0),
                                                                            r->l->R * width(r, r->op->out));
}

static atoll_err gate_forward(const op_run *r) {
  return KERNELS->swiglu_forward(QUEUE, in_of(r, 0), in_of(r, 1), out_of(r), r->l->R * width(r, r->op->out));
}

static atoll_err gate_input(const op_run *r) {
  return KERNELS->swiglu_backward(QUEUE, d_out(r), in_of(r, 0), in_of(r, 1), d_in(r, 0), d_in(r, 1),
                                  r->l->R * width(r, r->op->out));
}

/* ---- dropout alone: its own gradient ---- */

static atoll_err drop_forward(const op_run *r) {
  atoll_drop drop = drop_here(r);
  return KERNELS->drop_backward(QUEUE, in_of(r, 0), out_of(r), r->l->c->B, r->l->c->S * width(r, r->op->out), &drop);
}

static atoll_err drop_input(const op_run *r) {
  atoll_drop drop = drop_here(r);
  return KERNELS->drop_backward(QUEUE, d_out(r), d_in(r, 0), r->l->c->B, r->l->c->S * width(r, r->op->out), &drop);
}

/* ---- MLP whole: pipelined, or of single tokens ---- */

static atoll_err mlp_op_forward(const op_run *r) {
  if (!single_tokens(r))
    return mlp_forward(r->l, in_of(r, 0), out_of(r));
  const atoll_decode_mlp m = {.x = in_of(r, 0),
                              .w = weight_of(r, r->op->weight),
                              .b = weight_of(r, r->op->bias),
                              .gate = weight_of(r, r->op->gate_weight),
                              .w2 = weight_of(r, r->op->second_weight),
                              .b2 = weight_of(r, r->op->second_bias),
                              .y = out_of(r),
                              .R = r->l->R,
                              .C = width(r, r->op->in[0]),
                              .H = r->l->config->ffn,
                              .erf = r->l->config->family != ATOLL_FAMILY_GPT2};
  return KERNELS->decode->mlp(QUEUE, &m);
}

static atoll_err mlp_op_input(const op_run *r) {
  return mlp_input(r->l, in_of(r, 0), d_out(r), d_in(r, 0), r->step->add[0]);
}

/* ---- residual ---- */

static atoll_err residual_forward(const op_run *r) {
  atoll_drop drop = drop_here(r);
  return KERNELS->residual_forward(QUEUE, in_of(r, 0), in_of(r, 1), out_of(r), r->l->c->B,
                                   r->l->c->S * width(r, r->op->out), &drop);
}

/* The branch first: the stream's gradient may lie where that of the sum does. */
static atoll_err residual_input(const op_run *r) {
  atoll_drop drop = drop_here(r), none = {0};
  int64_t inner = r->l->c->S * width(r, r->op->out);
  if (d_in(r, 1) != d_out(r))
    ATOLL_TRY(KERNELS->drop_backward(QUEUE, d_out(r), d_in(r, 1), r->l->c->B, inner, &drop));
  if (d_in(r, 0) != d_out(r))
    ATOLL_TRY(KERNELS->drop_backward(QUEUE, d_out(r), d_in(r, 0), r->l->c->B, inner, &none)); /* a copy */
  return ATOLL_OK;
}

/* ---- what policies keep in place of these (kernel_keep.h) ---- */

#define KEEP (r->l->e->kernels->keep)

static atoll_err affine(const op_run *r, const void *hat) {
  return KEEP->affine(QUEUE, hat, weight_of(r, r->op->weight), weight_of(r, r->op->bias), out_of(r), r->l->R,
                      width(r, r->op->out), r->op->bias < 0);
}

static atoll_err affine_forward(const op_run *r) { return affine(r, in_of(r, 0)); }

static atoll_err hat_forward(const op_run *r) {
  ATOLL_TRY(KEEP->normalize(QUEUE, in_of(r, 0), extra_of(r, 0), extra_of(r, 1), r->l->R, width(r, r->op->out),
                            (float)r->l->config->norm_eps, r->op->bias < 0));
  return affine(r, extra_of(r, 0));
}

static atoll_err hat_input(const op_run *r) {
  return KEEP->norm_backward_input(QUEUE, d_out(r), extra_of(r, 0), extra_of(r, 1), weight_of(r, r->op->weight),
                                   d_in(r, 0), r->l->R, width(r, r->op->out), r->op->bias < 0, r->step->add[0]);
}

static atoll_err hat_weight(const op_run *r) {
  return KEEP->norm_backward_weight(QUEUE, d_out(r), extra_of(r, 0), grad_of(r, r->op->weight), grad_of(r, r->op->bias),
                                    r->l->R, width(r, r->op->out), r->op->bias < 0);
}

static atoll_attention_kept kept_of(const op_run *r) {
  int masks = r->op->extra[2] != NO_VALUE;
  return (atoll_attention_kept){
      .p = extra_of(r, 1), .dropped = masks ? extra_of(r, 2) : NULL, .mask = masks ? extra_of(r, 3) : NULL};
}

static atoll_err attention_kept_forward(const op_run *r) {
  atoll_attention_shape shape = shape_of(r);
  atoll_drop drop = drop_here(r);
  atoll_attention_kept kept = kept_of(r);
  ATOLL_TRY(attention_forward(r));
  if (!r->l->c->train)
    return ATOLL_OK;
  return KEEP->attention_keep(QUEUE, part_of(r, 0, 0), part_of(r, 1, 0), extra_of(r, 0), &kept, &shape, &drop);
}

static atoll_err attention_from(const op_run *r, atoll_attention_kept kept) {
  atoll_attention_shape shape = shape_of(r);
  atoll_drop drop = drop_here(r);
  return KEEP->attention_backward(QUEUE, part_of(r, 0, 0), part_of(r, 1, 0), part_of(r, 2, 0), out_of(r), &kept,
                                  d_out(r), part_of(r, 0, 1), part_of(r, 1, 1), part_of(r, 2, 1), r->at[r->op->scratch],
                                  &shape, &drop);
}

static atoll_err attention_kept_input(const op_run *r) { return attention_from(r, kept_of(r)); }

static atoll_attention_kept codes_of(const op_run *r) {
  return (atoll_attention_kept){.code = extra_of(r, 1), .unit = extra_of(r, 0)};
}

static atoll_err attention_coded_forward(const op_run *r) {
  atoll_attention_shape shape = shape_of(r);
  atoll_drop drop = drop_here(r);
  atoll_attention_kept kept = codes_of(r);
  if (!r->l->c->train)
    return attention_forward(r);
  return KEEP->attention_coded(QUEUE, part_of(r, 0, 0), part_of(r, 1, 0), part_of(r, 2, 0), out_of(r), &kept, &shape,
                               &drop);
}

static atoll_err attention_coded_input(const op_run *r) { return attention_from(r, codes_of(r)); }

/* Values lie alone, or behind queries and keys in each row. */
static atoll_err attention_again_forward(const op_run *r) {
  atoll_attention_shape shape = shape_of(r);
  atoll_drop drop = drop_here(r);
  int64_t row = width(r, r->op->in[2]), H = width(r, r->op->out);
  const char *values = in_of(r, 2);
  if (row > H)
    values += (size_t)(2 * H) * atoll_dtype_bytes(KERNELS->dtype);
  shape.kv_row = row;
  atoll_attention_kept kept = {.code = r->at[r->op->in[0]], .unit = r->at[r->op->in[1]]};
  return KEEP->attention_of_kept(QUEUE, values, &kept, out_of(r), &shape, &drop);
}

static atoll_err root_forward(const op_run *r) {
  ATOLL_TRY(KEEP->gelu_root(QUEUE, in_of(r, 0), extra_of(r, 0), r->l->R * width(r, r->op->out), r->op->erf));
  return activation_forward(r);
}

static atoll_err root_input(const op_run *r) {
  return KEEP->gelu_root_backward(QUEUE, d_out(r), extra_of(r, 0), d_in(r, 0), r->l->R * width(r, r->op->out),
                                  r->op->erf);
}

static atoll_err square_forward(const op_run *r) {
  return KEEP->gelu_of_root(QUEUE, in_of(r, 0), out_of(r), r->l->R * width(r, r->op->out), r->op->erf);
}

static atoll_err residual_mask_forward(const op_run *r) {
  atoll_drop drop = drop_here(r);
  if (r->l->c->train)
    ATOLL_TRY(KEEP->drop_mask(QUEUE, extra_of(r, 0), r->l->c->B, r->l->c->S * width(r, r->op->out), &drop));
  return residual_forward(r);
}

static atoll_err residual_mask_input(const op_run *r) {
  atoll_drop drop = drop_here(r), none = {0};
  int64_t n = r->l->R * width(r, r->op->out);
  ATOLL_TRY(KEEP->drop_backward(QUEUE, d_out(r), extra_of(r, 0), d_in(r, 1), n, drop.p));
  if (d_in(r, 0) != d_out(r))
    ATOLL_TRY(KERNELS->drop_backward(QUEUE, d_out(r), d_in(r, 0), 1, n, &none)); /* a copy */
  return ATOLL_OK;
}

static atoll_err pack_forward(const op_run *r) {
  return KEEP->pack8(QUEUE, in_of(r, 0), out_of(r), extra_of(r, 0), r->l->R, width(r, r->op->out));
}

static atoll_err unpack_forward(const op_run *r) {
  return KEEP->unpack8(QUEUE, in_of(r, 0), in_of(r, 1), out_of(r), r->l->R, width(r, r->op->out));
}

/* ---- a product and what follows it at once ---- */

/* Whether n bytes from a and m from b lie apart. */
static int lie_apart(const void *a, int64_t n, const void *b, int64_t m) {
  uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
  return x + (uintptr_t)n <= y || y + (uintptr_t)m <= x;
}

/* What `next` does to the result of this product, if that can be done to a piece of it while others are made: nothing
 * comes between them (turns, sums over tensor ranks, a gradient's other parts), and what is written lies apart from
 * what the product reads. */
static int then_of(const op_run *r, const step *next, atoll_linear_then *out) {
  const program_op *o = r->op, *n = &r->b->p.op[next->op];
  int forward = r->step->kind == STEP_FORWARD;
  if (o->kind != OP_LINEAR || next->kind != r->step->kind || r->step->kind == STEP_WEIGHT || o->turned_heads ||
      single_tokens(r) || layer_degree(r->l->e) > 1 || r->step->add[0])
    return 0;
  *out = (atoll_linear_then){.B = r->l->c->B};
  if (n->kind == OP_ACTIVATION && forward && n->in[0] == o->out) {
    out->kind = n->erf ? ATOLL_THEN_GELU_ERF : ATOLL_THEN_GELU;
    out->y = r->at[n->out];
  } else if (n->kind == OP_ACTIVATION && !forward && n->out == o->in[0]) {
    out->kind = n->erf ? ATOLL_THEN_GELU_ERF_BACKWARD : ATOLL_THEN_GELU_BACKWARD;
    out->x = r->at[n->in[0]], out->y = r->at[GRAD(n->in[0])];
  } else if (n->kind == OP_RESIDUAL && forward && n->in[1] == o->out) {
    out->kind = ATOLL_THEN_RESIDUAL;
    out->x = r->at[n->in[0]], out->y = r->at[n->out];
    if (n->drops)
      out->drop = layer_drop(r->l, n->site);
  } else {
    return 0;
  }
  const int64_t row = layer_element(r->l->m) * r->l->R;
  int made = forward ? o->out : o->in[0], read = forward ? o->in[0] : o->out;
  return lie_apart(out->y, row * width(r, made), forward ? r->at[read] : r->at[GRAD(read)], row * width(r, read));
}

atoll_err op_join(const op_run *r, const step *next, int *joined) {
  atoll_linear_then then;
  *joined = then_of(r, next, &then);
  if (!*joined)
    return ATOLL_OK;
  int64_t I = width(r, r->op->in[0]), O = width(r, r->op->out);
  if (r->step->kind == STEP_FORWARD)
    return atoll_packed_forward_then(KERNELS, QUEUE, in_of(r, 0), weight_of(r, r->op->weight),
                                     panels_of(r, r->op->weight, 0), weight_of(r, r->op->bias), out_of(r), r->l->R, I,
                                     O, &then);
  return atoll_packed_backward_input_then(KERNELS, QUEUE, d_out(r), weight_of(r, r->op->weight),
                                          panels_of(r, r->op->weight, 1), d_in(r, 0), r->l->R, I, O, &then);
}

/* A residual counts as costly because of the matrix product that makes its branch, which shares its place. */
const op_type op_types[OP_KINDS] = {
    [OP_NORM] = {0, 0, NEED_IN | NEED_EXTRA, NEED_IN | NEED_EXTRA, norm_forward, norm_input, norm_weight},
    [OP_LINEAR] = {1, 0, 0, NEED_IN, linear_forward, linear_input, linear_weight},
    [OP_ATTENTION] = {1, 0, NEED_IN | NEED_OUT | NEED_EXTRA, 0, attention_forward, attention_input, NULL},
    [OP_ACTIVATION] = {0, 1, NEED_IN, 0, activation_forward, activation_input, NULL},
    [OP_GATE] = {0, 1, NEED_IN, 0, gate_forward, gate_input, NULL},
    [OP_DROP] = {0, 1, 0, 0, drop_forward, drop_input, NULL},
    [OP_RESIDUAL] = {1, 0, 0, 0, residual_forward, residual_input, NULL},
    [OP_MLP] = {1, 0, NEED_IN, 0, mlp_op_forward, mlp_op_input, NULL},
    [OP_NORM_HAT] = {0, 0, NEED_EXTRA, NEED_EXTRA, hat_forward, hat_input, hat_weight},
    [OP_AFFINE] = {0, 0, 0, 0, affine_forward, NULL, NULL},
    [OP_ATTENTION_KEPT] = {1, 0, NEED_IN | NEED_OUT | NEED_EXTRA, 0, attention_kept_forward, attention_kept_input,
                           NULL},
    [OP_ATTENTION_CODED] = {1, 0, NEED_IN | NEED_OUT | NEED_EXTRA, 0, attention_coded_forward, attention_coded_input,
                            NULL},
    [OP_ATTENTION_AGAIN] = {1, 0, 0, 0, attention_again_forward, NULL, NULL},
    [OP_GELU_ROOT] = {0, 1, NEED_EXTRA, 0, root_forward, root_input, NULL},
    [OP_SQUARE] = {0, 0, 0, 0, square_forward, NULL, NULL},
    [OP_RESIDUAL_MASK] = {1, 0, NEED_EXTRA, 0, residual_mask_forward, residual_mask_input, NULL},
    [OP_PACK] = {0, 0, 0, 0, pack_forward, NULL, NULL},
    [OP_UNPACK] = {0, 0, 0, 0, unpack_forward, NULL, NULL},
};
