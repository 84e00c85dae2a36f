/* The programs of the families, and what each policy keeps of them. */
#include "program.h"

#include <stdio.h>
#include <string.h>

/* ---- building ---- */

static int put_value(program *p, value_role role, value_type type, int64_t width) {
  p->value[p->values] = (program_value){.role = role, .type = type, .width = width};
  p->maker[p->values] = p->again[p->values] = p->ops - 1; /* the operation just put, or the block's input */
  return p->values++;
}

static program_op *put_op(program *p, op_kind kind, int in0, int in1) {
  program_op *o = &p->op[p->ops++];
  *o = (program_op){.kind = kind, .in = {in0, in1, NO_VALUE}, .scratch = NO_VALUE};
  for (int i = 0; i < OP_EXTRAS; i++)
    o->extra[i] = NO_VALUE;
  o->weight = o->bias = -1;
  return o;
}

/* Value `out` is made again by an operation of this kind from `in` (and `in1`). */
static void put_again(program *p, int out, op_kind kind, int in, int in1) {
  program_op *o = &p->op[PROGRAM_OPS - ++p->agains];
  *o = p->op[p->maker[out]];
  o->kind = kind;
  o->in[0] = in, o->in[1] = in1;
  for (int i = 0; i < OP_EXTRAS; i++)
    o->extra[i] = NO_VALUE;
  p->again[out] = PROGRAM_OPS - p->agains;
}

static int put_norm(program *p, int in, int weight, int bias) {
  program_op *o = put_op(p, p->style & STYLE_HAT ? OP_NORM_HAT : OP_NORM, in, NO_VALUE);
  o->weight = weight, o->bias = bias;
  o->out = put_value(p, ROLE_NORM, VALUE_MODEL, p->value[in].width);
  if (p->style & STYLE_HAT)
    o->extra[0] = put_value(p, ROLE_KEPT, VALUE_MODEL, p->value[in].width);
  else if (bias >= 0) /* an RMSNorm has no mean */
    o->extra[0] = put_value(p, ROLE_STAT, VALUE_FLOAT, 1);
  o->extra[1] = put_value(p, ROLE_STAT, VALUE_FLOAT, 1);
  if (p->style & STYLE_HAT)
    put_again(p, o->out, OP_AFFINE, o->extra[0], NO_VALUE);
  return o->out;
}

/* Eight bits of `value` for backward, which reads these instead. */
static void put_pack(program *p, int value) {
  program_op *o = put_op(p, OP_PACK, value, NO_VALUE);
  o->out = put_value(p, ROLE_KEPT, VALUE_BYTE, p->value[value].width);
  o->extra[0] = put_value(p, ROLE_KEPT, VALUE_FLOAT, 1);
  put_again(p, value, OP_UNPACK, o->out, o->extra[0]);
}

/* A product of `width` columns, of which each tensor rank has its share. */
static int put_columns(program *p, int in, int weight, int bias, value_role role, int64_t width) {
  program_op *o = put_op(p, OP_LINEAR, in, NO_VALUE);
  o->weight = weight, o->bias = bias;
  o->split = SPLIT_COLUMNS, o->parts = 1;
  o->out = put_value(p, role, VALUE_MODEL, width / p->way.tensor);
  if (role == ROLE_F && p->style & STYLE_PACK)
    put_pack(p, o->out);
  return o->out;
}

/* A product of values that are divided among tensor ranks: the sum of what each makes of its own. */
static int put_rows(program *p, int in, int weight, int bias, int64_t width) {
  program_op *o = put_op(p, OP_LINEAR, in, NO_VALUE);
  o->weight = weight, o->bias = bias;
  o->split = SPLIT_ROWS;
  return o->out = put_value(p, ROLE_PASSING, VALUE_MODEL, width);
}

static int put_square(program *p, value_type type, int64_t heads) { /* [B, heads, S, S] */
  int v = put_value(p, ROLE_KEPT, type, 0);
  p->value[v].width_s = heads;
  return v;
}

static int put_mlp(program *p, int in, int weight, int bias, int second_weight, int second_bias, int gate) {
  program_op *o = put_op(p, OP_MLP, in, NO_VALUE);
  o->weight = weight, o->bias = bias;
  o->second_weight = second_weight, o->second_bias = second_bias;
  o->gate_weight = gate;
  return o->out = put_value(p, ROLE_PASSING, VALUE_MODEL, p->value[in].width);
}

/* By heads: each tensor rank has its share of them. k and v may be in q. */
static int put_attention(program *p, int q, int k, int v, int64_t heads, int64_t width, int drops) {
  int coded = p->style & STYLE_CODES;
  program_op *o = put_op(p,
                         coded                      ? OP_ATTENTION_CODED
                         : p->style & STYLE_SOFTMAX ? OP_ATTENTION_KEPT
                                                    : OP_ATTENTION,
                         q, k);
  heads /= p->way.tensor, width /= p->way.tensor;
  o->in[2] = v;
  o->site = ATOLL_RNG_DROP_ATTENTION, o->drops = drops;
  o->out = put_value(p, ROLE_O, VALUE_MODEL, width);
  o->extra[0] = put_value(p, coded ? ROLE_KEPT : ROLE_STAT, VALUE_FLOAT, heads);
  if (p->style & STYLE_SOFTMAX)
    o->extra[1] = put_square(p, VALUE_MODEL, heads);
  if (coded) {
    o->extra[1] = put_square(p, VALUE_CODE, heads);
    put_again(p, o->out, OP_ATTENTION_AGAIN, o->extra[1], o->extra[0]);
    p->op[p->again[o->out]].in[2] = v == NO_VALUE ? q : v;
  }
  if (p->style & STYLE_MASKS && drops) {
    o->extra[2] = put_square(p, VALUE_MODEL, heads);
    o->extra[3] = put_square(p, VALUE_BYTE, heads);
  }
  o->scratch = put_value(p, ROLE_PASSING, VALUE_FLOAT, heads);
  return o->out;
}

static int put_activation(program *p, int in, int erf) {
  program_op *o = put_op(p, p->style & STYLE_ROOT ? OP_GELU_ROOT : OP_ACTIVATION, in, NO_VALUE);
  o->erf = erf;
  o->out = put_value(p, ROLE_G, VALUE_MODEL, p->value[in].width);
  if (p->style & STYLE_ROOT) {
    o->extra[0] = put_value(p, ROLE_KEPT, VALUE_MODEL, p->value[in].width);
    put_again(p, o->out, OP_SQUARE, o->extra[0], NO_VALUE);
  }
  return o->out;
}

static int put_residual(program *p, int stream, int branch, atoll_rng_site site, int drops) {
  int masks = p->style & STYLE_MASKS && drops;
  program_op *o = put_op(p, masks ? OP_RESIDUAL_MASK : OP_RESIDUAL, stream, branch);
  o->site = site, o->drops = drops;
  o->out = put_value(p, ROLE_STREAM, VALUE_MODEL, p->value[stream].width);
  if (masks) {
    o->extra[0] = put_value(p, ROLE_KEPT, VALUE_BYTE, p->value[stream].width);
  }
  return o->out;
}

/* ---- families ---- */

/* GPT-2 (Radford et al. 2019), norm before each part:
 *
 *   ln1 = LN(x)   qkv = ln1 Wqkv + b   o = attention(qkv)   r1 = x + drop(o Wo + b)
 *   ln2 = LN(r1)  f = ln2 Wfc + b      g = gelu(f)          y  = r1 + drop(g Wp + b)
 *
 * A family with its norms behind (BERT: y = LN(r + ...)) is best cut before its norms: a block begins with the norm
 * that ends the layer before (x = r2 of that layer, h = LN(x), r1 = h + ..., n = LN(r1), y = n + ...), and the last
 * norm belongs to the head. Then its blocks have the values of this one, at the same bytes per policy. */
static void gpt2(const atoll_model_params *c, program *p) {
  enum { LN1_W, LN1_B, QKV_W, QKV_B, PROJ_W, PROJ_B, LN2_W, LN2_B, FC_W, FC_B, OUT_W, OUT_B };
  int64_t H = c->width;
  int drops = c->dropout > 0;
  int x = put_value(p, ROLE_X, VALUE_MODEL, H);
  int ln1 = put_norm(p, x, LN1_W, LN1_B);
  int qkv = put_columns(p, ln1, QKV_W, QKV_B, ROLE_QKV, 3 * H);
  p->op[p->ops - 1].parts = 3;
  int o = put_attention(p, qkv, NO_VALUE, NO_VALUE, c->heads, H, drops);
  int z1 = put_rows(p, o, PROJ_W, PROJ_B, H);
  int r1 = put_residual(p, x, z1, ATOLL_RNG_DROP_PROJ, drops);
  int ln2 = put_norm(p, r1, LN2_W, LN2_B);
  int z2;
  if (atoll_mlp_pipelined(p->way.mlp)) {
    z2 = put_mlp(p, ln2, FC_W, FC_B, OUT_W, OUT_B, -1);
  } else {
    int f = put_columns(p, ln2, FC_W, FC_B, ROLE_F, c->ffn);
    int g = put_activation(p, f, 0);
    z2 = put_rows(p, g, OUT_W, OUT_B, H);
  }
  (void)put_residual(p, r1, z2, ATOLL_RNG_DROP_MLP, drops);
}

/* Queries, keys and values by matrices of their own, weight[i] and bias[i] (-1: none), and attention over them. */
static int put_heads(program *p, const atoll_model_params *c, int in, const int *weight, const int *bias, int turned) {
  int64_t D = c->width / c->heads, heads[] = {c->heads, c->kv_heads, c->kv_heads};
  int part[3];
  for (int i = 0; i < 3; i++) {
    part[i] = put_columns(p, in, weight[i], bias[i], ROLE_QKV, heads[i] * D);
    p->op[p->ops - 1].turned_heads = turned && i < 2 ? heads[i] / p->way.tensor : 0;
  }
  return put_attention(p, part[0], part[1], part[2], c->heads, c->width, c->dropout > 0);
}

/* Has no inverse, so where GELU would keep its root this keeps both inputs. */
static int put_gate(program *p, int in, int by) {
  if (p->style & STYLE_ROOT)
    p->value[in].role = p->value[by].role = ROLE_KEPT;
  program_op *o = put_op(p, OP_GATE, in, by);
  return o->out = put_value(p, ROLE_G, VALUE_MODEL, p->value[in].width);
}

/* Llama (Touvron et al. 2023): as GPT-2, with RMSNorm, rotary positions, fewer key heads, SwiGLU and no biases:
 *
 *   n1 = RMS(x)   q = turn(n1 Wq)   k = turn(n1 Wk)   v = n1 Wv   o = attention(q, k, v)   r1 = x + drop(o Wo)
 *   n2 = RMS(r1)  f = n2 Wgate      u = n2 Wup        g = silu(f) u                        y  = r1 + drop(g Wdown) */
static void llama(const atoll_model_params *c, program *p) {
  enum { N1, Q, K, V, O, N2, GATE, UP, DOWN };
  static const int qkv[] = {Q, K, V}, no_bias[] = {-1, -1, -1};
  int drops = c->dropout > 0;
  int x = put_value(p, ROLE_X, VALUE_MODEL, c->width);
  int n1 = put_norm(p, x, N1, -1);
  int o = put_heads(p, c, n1, qkv, no_bias, 1);
  int z1 = put_rows(p, o, O, -1, c->width);
  int r1 = put_residual(p, x, z1, ATOLL_RNG_DROP_PROJ, drops);
  int n2 = put_norm(p, r1, N2, -1);
  int z2;
  if (atoll_mlp_pipelined(p->way.mlp)) {
    z2 = put_mlp(p, n2, UP, -1, DOWN, -1, GATE);
  } else {
    int f = put_columns(p, n2, GATE, -1, ROLE_F, c->ffn);
    int u = put_columns(p, n2, UP, -1, ROLE_F, c->ffn);
    int g = put_gate(p, f, u);
    z2 = put_rows(p, g, DOWN, -1, c->width);
  }
  (void)put_residual(p, r1, z2, ATOLL_RNG_DROP_MLP, drops);
}

/* BERT (Devlin et al. 2019) and RoBERTa, cut before their norms (see above). What the first block norms is the sum of
 * embeddings, whose dropout follows the norm:
 *
 *   h = LN(x)   q, k, v = h Wq + b, ...   o = attention(q, k, v)   r1 = h + drop(o Wo + b)
 *   n = LN(r1)  f = n Wi + b              g = gelu(f)              y  = n + drop(g Wo' + b) */
static void bert(const atoll_model_params *c, int layer, program *p) {
  enum { LN1_W, LN1_B, Q_W, Q_B, K_W, K_B, V_W, V_B, O_W, O_B, LN2_W, LN2_B, FC_W, FC_B, OUT_W, OUT_B };
  static const int weight[] = {Q_W, K_W, V_W}, bias[] = {Q_B, K_B, V_B};
  int drops = c->dropout > 0;
  int x = put_value(p, ROLE_X, VALUE_MODEL, c->width);
  int h = put_norm(p, x, LN1_W, LN1_B);
  if (layer == 1 && drops) {
    p->value[h].role = ROLE_PASSING;
    program_op *o = put_op(p, OP_DROP, h, NO_VALUE);
    o->site = ATOLL_RNG_DROP_EMBED, o->drops = 1;
    h = o->out = put_value(p, ROLE_NORM, VALUE_MODEL, c->width);
  }
  int o = put_heads(p, c, h, weight, bias, 0);
  int z1 = put_rows(p, o, O_W, O_B, c->width);
  int r1 = put_residual(p, h, z1, ATOLL_RNG_DROP_PROJ, drops);
  int n = put_norm(p, r1, LN2_W, LN2_B);
  int z2;
  if (atoll_mlp_pipelined(p->way.mlp)) {
    z2 = put_mlp(p, n, FC_W, FC_B, OUT_W, OUT_B, -1);
  } else {
    int f = put_columns(p, n, FC_W, FC_B, ROLE_F, c->ffn);
    int g = put_activation(p, f, 1);
    z2 = put_rows(p, g, OUT_W, OUT_B, c->width);
  }
  (void)put_residual(p, n, z2, ATOLL_RNG_DROP_MLP, drops);
}

/* ---- policies ---- */

#define KEEP(role) (1u << ROLE_##role)
#define KEEP_ALL   (KEEP(X) | KEEP(NORM) | KEEP(QKV) | KEEP(O) | KEEP(STREAM) | KEEP(F) | KEEP(G))

static const struct policy {
  const char *name;
  unsigned keeps; /* roles */
  int automatic;  /* planners left free try it */
  unsigned style;
} policies[ATOLL_POLICIES] = {
    [ATOLL_POLICY_EAGER] = {"eager", KEEP_ALL, 0, STYLE_SOFTMAX | STYLE_MASKS},
    [ATOLL_POLICY_EAGER_FLASH] = {"eager_flash", KEEP_ALL, 1, 0},
    [ATOLL_POLICY_TEMPO] = {"tempo", KEEP(QKV), 0, STYLE_HAT | STYLE_ROOT | STYLE_CODES},
    [ATOLL_POLICY_TEMPO_FLASH] = {"tempo_flash", KEEP(QKV) | KEEP(O), 0, STYLE_HAT | STYLE_ROOT},
    [ATOLL_POLICY_EXACT20] = {"exact20", KEEP(X) | KEEP(QKV) | KEEP(O) | KEEP(STREAM) | KEEP(F), 1, 0},
    [ATOLL_POLICY_EXACT18] = {"exact18", KEEP(X) | KEEP(QKV) | KEEP(O) | KEEP(F), 0, 0},
    [ATOLL_POLICY_EXACT16_LOSSY] = {"exact16_lossy", KEEP(X) | KEEP(QKV) | KEEP(O) | KEEP(STREAM), 0, STYLE_PACK},
    [ATOLL_POLICY_EXACT12] = {"exact12", KEEP(X) | KEEP(QKV) | KEEP(O) | KEEP(STREAM), 0, 0},
    [ATOLL_POLICY_EXACT10] = {"exact10", KEEP(X) | KEEP(QKV) | KEEP(O), 0, 0},
    [ATOLL_POLICY_EXACT6] = {"exact6", KEEP(X) | KEEP(O) | KEEP(STREAM), 0, 0},
    [ATOLL_POLICY_EXACT4] = {"exact4", KEEP(X) | KEEP(O), 1, 0},
    [ATOLL_POLICY_EXACT2] = {"exact2", KEEP(X), 0, 0},
};

static const struct {
  const char *name;
  atoll_policy means;
} aliases[] = {{"exact", ATOLL_POLICY_EXACT20}};

const char *atoll_policy_name(atoll_policy p) { return (unsigned)p < ATOLL_POLICIES ? policies[p].name : "unknown"; }

int atoll_policy_parse(const char *name, atoll_policy *p) {
  for (size_t i = 0; name && i < sizeof aliases / sizeof *aliases; i++)
    if (!strcmp(aliases[i].name, name))
      return *p = aliases[i].means, 0;
  for (int i = 0; name && i < ATOLL_POLICIES; i++)
    if (!strcmp(policies[i].name, name))
      return *p = (atoll_policy)i, 0;
  return -1;
}

const char *atoll_policy_list(void) {
  static _Thread_local char text[256];
  size_t at = 0;
  for (int i = 0; i < ATOLL_POLICIES; i++)
    at += (size_t)snprintf(text + at, sizeof text - at, "%s%s", i ? ", " : "", policies[i].name);
  return text;
}

int atoll_policy_automatic(atoll_policy p) { return (unsigned)p < ATOLL_POLICIES && policies[p].automatic; }

/* Statistics of a norm are always kept: they are small, and its output is then made again in one pass. Those of
 * attention are written by it, so they are kept with its output. */
static int keeps(const program *p, int v, unsigned roles) {
  if (v == program_y(p))
    return 0;
  if (p->value[v].role == ROLE_KEPT)
    return 1;
  if (p->value[v].role != ROLE_STAT)
    return !!(roles & 1u << p->value[v].role);
  const program_op *maker = &p->op[p->maker[v]];
  return maker->kind == OP_NORM || maker->kind == OP_NORM_HAT || keeps(p, maker->out, roles);
}

atoll_err program_make(const atoll_model *m, int layer, atoll_policy policy, layer_way way, program *out) {
  const atoll_model_params *c = atoll_model_config(m);
  memset(out, 0, sizeof *out);
  out->style = policies[policy].style;
  out->way = way;
  out->element = (int64_t)atoll_dtype_bytes((atoll_dtype)c->dtype);
  switch (c->family) {
  case ATOLL_FAMILY_GPT2:
    gpt2(c, out);
    break;
  case ATOLL_FAMILY_LLAMA:
    llama(c, out);
    break;
  case ATOLL_FAMILY_BERT:
  case ATOLL_FAMILY_ROBERTA:
    bert(c, layer, out);
    break;
  default:
    return atoll_fail(ATOLL_INTERNAL, "layer %d: family %s has no program", layer, atoll_model_family_name(m));
  }
  for (int v = 0; v < out->values; v++)
    out->kept[v] = keeps(out, v, policies[policy].keeps);
  return ATOLL_OK;
}

void atoll_layer_kept(const atoll_model *m, int layer, atoll_policy policy, int64_t *whole, int64_t *attention,
                      int64_t *mlp) {
  program p;
  *whole = *attention = *mlp = 0;
  if (atoll_model_layer_kind(m, layer) != ATOLL_LAYER_BLOCK ||
      program_make(m, layer, policy, layer_alone, &p) != ATOLL_OK)
    return;
  for (int v = 0; v < p.values; v++) {
    value_role role = p.value[v].role;
    op_kind kind = p.maker[v] < 0 ? OP_KINDS : p.op[p.maker[v]].kind;
    if (!p.kept[v])
      continue;
    if (role == ROLE_QKV || kind == OP_ATTENTION || kind == OP_ATTENTION_KEPT || kind == OP_ATTENTION_CODED)
      *attention += p.value[v].width;
    else if (role == ROLE_F || role == ROLE_G || kind == OP_GELU_ROOT || kind == OP_LINEAR)
      *mlp += p.value[v].width;
    else if (role != ROLE_STAT)
      *whole += p.value[v].width;
  }
}

int layer_matrices(const atoll_model *m, int layer, layer_way way, int list[LAYER_PARAMS]) {
  program p;
  int n = 0;
  if (atoll_model_layer_kind(m, layer) == ATOLL_LAYER_HEAD)
    list[n++] = 0; /* the embedding; those of masked heads have few rows */
  if (atoll_model_layer_kind(m, layer) == ATOLL_LAYER_BLOCK &&
      program_make(m, layer, ATOLL_POLICY_EXACT2, way, &p) == ATOLL_OK)
    for (int i = 0; i < p.ops; i++)
      if (p.op[i].kind == OP_LINEAR)
        list[n++] = p.op[i].weight;
  return n;
}

int layer_overwrites(const atoll_model *m, int layer, layer_way way, int i) {
  int list[LAYER_PARAMS], n = layer_matrices(m, layer, way, list), any = 0;
  for (int k = 0; k < n; k++)
    any |= list[k] == i;
  return any && (atoll_model_layer_kind(m, layer) == ATOLL_LAYER_BLOCK || atoll_model_causal(m));
}

int atoll_layer_keeps_input(const atoll_model *m, int layer, atoll_policy policy) {
  program p;
  if (atoll_model_layer_kind(m, layer) != ATOLL_LAYER_BLOCK)
    return atoll_model_layer_kind(m, layer) == ATOLL_LAYER_HEAD;
  return program_make(m, layer, policy, layer_alone, &p) == ATOLL_OK && p.kept[PROGRAM_X];
}
