/* Causal language models as recurrent programs: GPT-2 and Llama.
 *
 * Weights of a block are inputs over l, so those of all blocks lie one behind the other; a model's parameters are views
 * of that memory. */
#include "atoll/recurrent_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/kernel.h"
#include "atoll/mem.h"

enum { PLACES = 3, ROLES = 16 }; /* before, in and after the blocks; parameters of a place at most */
enum { EMBED, BLOCK, HEAD };
enum { BINDINGS = PLACES * ROLES + 2 }; /* weights, frequencies and the length */
enum { TILE = 128 };                    /* positions that are dealt out together */

typedef struct role { /* a parameter of a place, for all of its layers */
  int64_t count;      /* elements in one layer */
  float *data;        /* [layers, count]; of a tied parameter: that of the embedding */
  int owned;
  char name[16];
  atoll_rt *x;
} role;

struct atoll_rec_model {
  const atoll_model *m;
  const atoll_model_params *config;
  atoll_rec_model_params p;
  atoll_rec_choose choose;
  void *user;
  atoll_mem *mem; /* of weights: where they are large, in huge pages */
  role role[PLACES][ROLES];
  int roles[PLACES];
  atoll_tensor *weight; /* of the model, by index */
  float *frequency;     /* [head / 2] of rotary positions; NULL: there are none */
  atoll_rec *c;
  atoll_rec_program *program;
};

/* ---- weights ---- */

static int layers_of(const atoll_rec_model *r, int place) { return place == BLOCK ? (int)r->config->layers : 1; }
static int first_layer(const atoll_rec_model *r, int place) {
  return place == EMBED ? 0 : place == BLOCK ? 1 : (int)r->config->layers + 1;
}

static int64_t count_of(const atoll_model_param *p) {
  int64_t n = 1;
  for (int k = 0; k < p->ndim; k++)
    n *= p->shape[k];
  return n;
}

static int64_t weight_bytes(const atoll_model *m) {
  int64_t bytes = 0;
  for (int k = 0; k < atoll_model_params_count(m); k++)
    bytes += count_of(atoll_model_param_at(m, k)) * (int64_t)sizeof(float);
  return bytes;
}

/* Memory for the k-th parameter of a place, unless another place has it. */
static atoll_err place_role(atoll_rec_model *r, int place, int k, const int *index) {
  static const char *const prefix[PLACES] = {"embed", "block", "head"};
  const atoll_model_param *p = atoll_model_param_at(r->m, index[k]);
  role *o = &r->role[place][k];
  (void)snprintf(o->name, sizeof o->name, "%s%d", prefix[place], k);
  o->count = count_of(p);
  if (r->weight[index[k]].data) {
    o->data = r->weight[index[k]].data;
    return ATOLL_OK;
  }
  o->owned = 1;
  const size_t bytes = (size_t)(o->count * layers_of(r, place)) * sizeof *o->data;
  return atoll_mem_calloc(r->mem, ATOLL_MEM_PARAMETER, bytes, (void **)&o->data);
}

static atoll_err place_weights(atoll_rec_model *r) {
  int index[ROLES], n = atoll_model_params_count(r->m);
  r->weight = calloc((size_t)n, sizeof *r->weight);
  if (!r->weight)
    return atoll_fail(ATOLL_NOMEM, "list of %d weights", n);
  for (int place = 0; place < PLACES; place++)
    for (int l = 0; l < layers_of(r, place); l++) {
      r->roles[place] = atoll_model_layer_params(r->m, first_layer(r, place) + l, index, ROLES);
      if (r->roles[place] > ROLES)
        return atoll_fail(ATOLL_INTERNAL, "a layer has %d parameters, at most %d are handled", r->roles[place], ROLES);
      for (int k = 0; k < r->roles[place]; k++) {
        if (l == 0)
          ATOLL_TRY(place_role(r, place, k, index));
        const atoll_model_param *p = atoll_model_param_at(r->m, index[k]);
        ATOLL_TRY(atoll_tensor_init(&r->weight[index[k]], p->name, ATOLL_F32, p->ndim, p->shape,
                                    r->role[place][k].data + l * r->role[place][k].count));
      }
    }
  return ATOLL_OK;
}

/* What the kernels turn by, Llama 3's scaling with it. */
static atoll_err place_frequencies(atoll_rec_model *r) {
  const atoll_model_params *c = r->config;
  const atoll_rope rope = {c->rope_theta, c->rope_factor, c->rope_low, c->rope_high, c->rope_context};
  const int64_t head = c->width / c->heads;
  if (c->family != ATOLL_FAMILY_LLAMA)
    return ATOLL_OK;
  r->frequency = calloc((size_t)head, sizeof *r->frequency);
  if (!r->frequency)
    return atoll_fail(ATOLL_NOMEM, "frequencies of %lld pairs", (long long)head / 2);
  for (int64_t i = 0; i < head / 2; i++)
    r->frequency[i] = (float)atoll_rope_frequency(&rope, i, head);
  return ATOLL_OK;
}

/* ---- the program ---- */

/* One input for each memory: a tied parameter is the embedding's. */
static atoll_rt *input(atoll_rec_model *r, int place, int k) {
  int index[ROLES];
  role *o = &r->role[place][k];
  if (!o->owned)
    for (int e = 0; e < r->roles[EMBED]; e++)
      if (r->role[EMBED][e].data == o->data)
        return r->role[EMBED][e].x;
  (void)atoll_model_layer_params(r->m, first_layer(r, place), index, ROLES);
  const atoll_model_param *p = atoll_model_param_at(r->m, index[k]);
  atoll_rt_shape shape = {.n = p->ndim};
  memcpy(shape.extent, p->shape, sizeof p->shape);
  return o->x = atoll_rec_input(r->c, o->name, ATOLL_F32, place == BLOCK ? "l" : "", shape);
}

static atoll_rt *weight(const atoll_rec_model *r, int place, int k) { return r->role[place][k].x; }

/* W x + b */
static atoll_rt *affine(const atoll_rec_model *r, int k, atoll_rt *x) {
  return atoll_rt_add(atoll_rt_mv(weight(r, BLOCK, k), x), weight(r, BLOCK, k + 1));
}

/* What a token attends to: [kv, group, Dh] of queries, [kv, Dh] of keys and values, to [H Dh]. */
static atoll_rt *attention(const atoll_rec_model *r, atoll_rt *q, atoll_rt *k, atoll_rt *v) {
  const atoll_model_params *c = r->config;
  const int64_t head = c->width / c->heads;
  char index[64] = "t=0:t+1";
  if (r->p.window)
    (void)snprintf(index, sizeof index, "t=max(0,t-%lld):t+1", (long long)r->p.window - 1);
  k = atoll_rt_at(atoll_rt_name(k, "keys"), index);
  v = atoll_rt_at(atoll_rt_name(v, "values"), index);
  atoll_rt *scores = atoll_rt_scale(atoll_rt_einsum("kgd,nkd->kgn", q, k), 1 / sqrt((double)head));
  atoll_rt *y = atoll_rt_einsum("kgn,nkd->kgd", atoll_rt_softmax(scores, -1), v);
  return atoll_rt_reshape(y, ATOLL_SHAPE(c->width));
}

/* ln1, attention and its projection, ln2, two layers with GELU between */
static atoll_rt *block_gpt2(const atoll_rec_model *r, atoll_rt *x) {
  enum { LN1, QKV = 2, PROJECTION = 4, LN2 = 6, UP = 8, DOWN = 10 };
  const atoll_model_params *c = r->config;
  const int64_t w = c->width, h = c->heads, head = w / h;
  atoll_rt *n = atoll_rt_layernorm(x, weight(r, BLOCK, LN1), weight(r, BLOCK, LN1 + 1), c->norm_eps);
  atoll_rt *qkv = affine(r, QKV, n), *part[3];
  for (int k = 0; k < 3; k++)
    part[k] = atoll_rt_reshape(atoll_rt_slice(qkv, 0, k * w, w), k ? ATOLL_SHAPE(h, head) : ATOLL_SHAPE(h, 1, head));
  atoll_rt *y = atoll_rt_add(x, affine(r, PROJECTION, attention(r, part[0], part[1], part[2])));
  n = atoll_rt_layernorm(y, weight(r, BLOCK, LN2), weight(r, BLOCK, LN2 + 1), c->norm_eps);
  return atoll_rt_add(y, affine(r, DOWN, atoll_rt_gelu_tanh(affine(r, UP, n))));
}

/* RMSNorm, attention with rotary positions, RMSNorm, SwiGLU */
static atoll_rt *block_llama(const atoll_rec_model *r, atoll_rt *x, atoll_rt *position) {
  enum { NORM1, QUERY, KEY, VALUE, PROJECTION, NORM2, GATE, UP, DOWN };
  const atoll_model_params *c = r->config;
  const int64_t kv = c->kv_heads, head = c->width / c->heads;
  atoll_rt *w[DOWN + 1];
  for (int k = 0; k <= DOWN; k++)
    w[k] = weight(r, BLOCK, k);
  atoll_rt *n = atoll_rt_rmsnorm(x, w[NORM1], c->norm_eps);
  atoll_rt *q = atoll_rt_reshape(atoll_rt_mv(w[QUERY], n), ATOLL_SHAPE(kv, c->heads / kv, head));
  atoll_rt *k = atoll_rt_reshape(atoll_rt_mv(w[KEY], n), ATOLL_SHAPE(kv, head));
  atoll_rt *v = atoll_rt_reshape(atoll_rt_mv(w[VALUE], n), ATOLL_SHAPE(kv, head));
  atoll_rt *frequency = atoll_rec_input(r->c, "frequency", ATOLL_F32, "", ATOLL_SHAPE(head / 2));
  q = atoll_rt_rotate(q, position, frequency);
  k = atoll_rt_rotate(k, position, frequency);
  atoll_rt *y = atoll_rt_add(x, atoll_rt_mv(w[PROJECTION], attention(r, q, k, v)));
  n = atoll_rt_rmsnorm(y, w[NORM2], c->norm_eps);
  atoll_rt *gated = atoll_rt_mul(atoll_rt_silu(atoll_rt_mv(w[GATE], n)), atoll_rt_mv(w[UP], n));
  return atoll_rt_add(y, atoll_rt_mv(w[DOWN], gated));
}

static atoll_rt *embedding(const atoll_rec_model *r, atoll_rt *token, atoll_rt *position) {
  atoll_rt *x = atoll_rt_take(weight(r, EMBED, 0), token);
  return r->roles[EMBED] > 1 ? atoll_rt_add(x, atoll_rt_take(weight(r, EMBED, 1), position)) : x;
}

static atoll_rt *logits(const atoll_rec_model *r, atoll_rt *x) {
  enum { MATRIX, NORM, NORM_BIAS };
  atoll_rt *w = weight(r, HEAD, NORM);
  if (r->roles[HEAD] > NORM_BIAS)
    x = atoll_rt_layernorm(x, w, weight(r, HEAD, NORM_BIAS), r->config->norm_eps);
  else
    x = atoll_rt_rmsnorm(x, w, r->config->norm_eps);
  return atoll_rt_name(atoll_rt_mv(weight(r, HEAD, MATRIX), x), "logits");
}

static atoll_err choose_first(void *user, const int64_t *point, const atoll_rt_view *in, const atoll_rt_view *out) {
  atoll_rec_model *r = user;
  (void)in;
  return r->choose(r->user, point[0], 0, NULL, out->data);
}

/* At a point there are logits; the token is that of the position after. */
static atoll_err choose_next(void *user, const int64_t *point, const atoll_rt_view *in, const atoll_rt_view *out) {
  atoll_rec_model *r = user;
  return r->choose(r->user, point[0], point[1] + 1, in[0].data, out->data);
}

static atoll_err ignore(void *user, const int64_t *point, const atoll_rt_view *in, const atoll_rt_view *out) {
  (void)user;
  (void)point;
  (void)in;
  (void)out;
  return ATOLL_OK;
}

static void build(atoll_rec_model *r) {
  atoll_rec *c = r->c;
  atoll_rec_dim(c, "b", r->p.texts);
  atoll_rec_dim(c, "t", 0);
  atoll_rec_dim(c, "l", r->config->layers);
  for (int place = 0; place < PLACES; place++)
    for (int k = 0; k < r->roles[place]; k++)
      r->role[place][k].x = input(r, place, k);
  atoll_rt *token = atoll_rec_tensor(c, "token", ATOLL_I32, "b,t", ATOLL_SCALAR);
  atoll_rt *x = atoll_rec_tensor(c, "x", ATOLL_F32, "b,t,l", ATOLL_SHAPE(r->config->width));
  atoll_rt *position = atoll_rec_expr(c, ATOLL_I32, "t");
  atoll_rt *y = r->config->family == ATOLL_FAMILY_GPT2 ? block_gpt2(r, x) : block_llama(r, x, position);
  atoll_rt_def(x, "l==0", embedding(r, token, position));
  atoll_rt_def(x, "true", atoll_rt_at(y, "l=l-1"));
  atoll_rt *scores = logits(r, atoll_rt_at(y, "l=L-1"));
  atoll_rt_def(token, "t==0", atoll_rec_call(c, "first token", choose_first, r, "b", ATOLL_I32, ATOLL_SCALAR, 0, NULL));
  atoll_rt *next = atoll_rec_call(c, "next token", choose_next, r, "b,t", ATOLL_I32, ATOLL_SCALAR, 1, &scores);
  atoll_rt_def(token, "true", atoll_rt_at(next, "t=t-1"));
  atoll_rt_sink(token, "token", ignore, NULL);
}

/* ---- life ---- */

static atoll_err check(const atoll_model *m, const atoll_rec_model_params *p) {
  const atoll_model_params *c = atoll_model_config(m);
  if (c->family != ATOLL_FAMILY_GPT2 && c->family != ATOLL_FAMILY_LLAMA)
    return atoll_fail(ATOLL_UNSUPPORTED, "family %s has no recurrent program; gpt2 and llama have",
                      atoll_model_family_name(m));
  if (p->texts < 1 || p->window < 0 || p->block < 0)
    return atoll_fail(ATOLL_USAGE, "%lld texts, a window of %lld tokens, blocks of %lld", (long long)p->texts,
                      (long long)p->window, (long long)p->block);
  const int64_t weights = weight_bytes(m);
  if (p->memory && weights >= p->memory)
    return atoll_fail(ATOLL_NOMEM, "recurrent model: weights (parameter) take %lld bytes, the budget is %lld",
                      (long long)weights, (long long)p->memory);
  return ATOLL_OK;
}

static atoll_err compile(atoll_rec_model *r) {
  atoll_rec_params p;
  atoll_rec_params_init(&p);
  p.vectorize = r->p.texts > 1 ? "b" : NULL;
  p.block = r->p.block;
  if (r->p.comm) {
    p.tile = r->p.block ? r->p.block : TILE;
    p.place = "t";
    p.comm = r->p.comm;
  }
  p.threads = r->p.threads;
  p.device = r->p.device;
  p.trace = r->p.trace;
  if (r->p.memory) {
    p.memory = r->p.memory - weight_bytes(r->m);
    p.offload = r->p.offload;
  }
  p.compiler = r->p.interpreted ? "" : NULL;
  ATOLL_TRY(atoll_rec_create(1, &r->c));
  build(r);
  return atoll_rec_compile(r->c, &p, &r->program);
}

atoll_err atoll_rec_model_create(const atoll_model *m, const atoll_rec_model_params *params, atoll_rec_choose choose,
                                 void *user, atoll_rec_model **out) {
  ATOLL_TRY(check(m, params));
  atoll_rec_model *r = calloc(1, sizeof *r);
  if (!r)
    return atoll_fail(ATOLL_NOMEM, "recurrent model");
  r->m = m;
  r->config = atoll_model_config(m);
  r->p = *params;
  r->choose = choose;
  r->user = user;
  atoll_err err = atoll_mem_create(0, 0, &r->mem);
  if (err == ATOLL_OK)
    err = place_weights(r);
  if (err == ATOLL_OK)
    err = place_frequencies(r);
  if (err == ATOLL_OK)
    err = compile(r);
  if (err == ATOLL_OK)
    *out = r;
  else
    atoll_rec_model_destroy(&r);
  return err;
}

void atoll_rec_model_destroy(atoll_rec_model **address) {
  atoll_rec_model *r = *address;
  if (!r)
    return;
  atoll_rec_program_destroy(&r->program);
  atoll_rec_destroy(&r->c);
  for (int place = 0; place < PLACES; place++)
    for (int k = 0; k < ROLES; k++)
      if (r->role[place][k].owned)
        atoll_mem_free(r->mem, &r->role[place][k].data);
  atoll_mem_destroy(&r->mem, NULL);
  free(r->weight);
  free(r->frequency);
  free(r);
  *address = NULL;
}

atoll_tensor *atoll_rec_model_weights(atoll_rec_model *r) { return r->weight; }
const atoll_rec_program *atoll_rec_model_program(const atoll_rec_model *r) { return r->program; }

static int bindings(const atoll_rec_model *r, int64_t length, atoll_rec_binding b[BINDINGS]) {
  int n = 0;
  for (int place = 0; place < PLACES; place++)
    for (int k = 0; k < r->roles[place]; k++)
      if (r->role[place][k].owned)
        b[n++] = (atoll_rec_binding){r->role[place][k].name, 0, r->role[place][k].data};
  if (r->frequency)
    b[n++] = (atoll_rec_binding){"frequency", 0, r->frequency};
  b[n++] = (atoll_rec_binding){"T", length, NULL};
  return n;
}

atoll_err atoll_rec_model_run(atoll_rec_model *r, int64_t length) {
  atoll_rec_binding b[BINDINGS];
  int n = bindings(r, length, b);
  return atoll_rec_run(r->program, b, n);
}

atoll_err atoll_rec_model_bytes(const atoll_rec_model *r, int64_t length, int64_t *peak, int64_t *weights) {
  atoll_rec_binding b[BINDINGS];
  int n = bindings(r, length, b);
  *weights = weight_bytes(r->m);
  return atoll_rec_peak_bytes(r->program, b, n, peak);
}
