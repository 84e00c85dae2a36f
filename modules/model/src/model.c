#include "atoll/model.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_impl.h"

/* By atoll_family. */
static const struct model_family *const families[] = {NULL, &model_gpt2, &model_llama, &model_bert, &model_roberta};
#define FAMILIES ((int)(sizeof families / sizeof families[0]))

static const struct model_family *family_of(const atoll_model *m) { return families[m->config.family]; }

static void take(int64_t *size, int64_t preset) {
  if (*size == 0)
    *size = preset;
}

static void take_real(double *value, double preset) {
  if (*value == 0)
    *value = preset;
}

static atoll_err apply_preset(atoll_model_params *c) {
  const struct model_preset *p = model_preset_find(c->preset);
  if (!p) {
    const char *names[32];
    size_t n = 0;
    for (const struct model_preset *q; n < 32 && (q = model_preset_at((int)n)); n++)
      names[n] = q->name;
    const char *near = atoll_nearest(c->preset, names, n);
    return atoll_fail(ATOLL_USAGE, "model.preset is '%s', which is unknown; nearest is %s", c->preset,
                      near ? near : names[0]);
  }
  if (c->family != ATOLL_FAMILY_AUTO && c->family != p->family)
    return atoll_fail(ATOLL_USAGE, "model.preset %s is of family %s, model.family is %s", c->preset,
                      families[p->family]->name, families[c->family]->name);
  c->family = p->family;
  /* A width of the user's own does not want the preset's MLP width, nor heads of one's own its key heads. */
  if (c->width == 0 || c->width == p->width)
    take(&c->ffn, p->ffn);
  if (c->heads == 0 || c->heads == p->heads)
    take(&c->kv_heads, p->kv_heads);
  take(&c->layers, p->layers);
  take(&c->width, p->width);
  take(&c->heads, p->heads);
  take(&c->context, p->context);
  take(&c->vocab, p->vocab);
  take_real(&c->rope_theta, p->rope_theta);
  take_real(&c->rope_factor, p->rope_factor);
  take_real(&c->rope_low, p->rope_low);
  take_real(&c->rope_high, p->rope_high);
  take(&c->rope_context, p->rope_context);
  return ATOLL_OK;
}

static void apply_defaults(atoll_model_params *c) {
  const struct model_family *f = families[c->family];
  int llama = c->family == ATOLL_FAMILY_LLAMA;
  take(&c->kv_heads, c->heads);
  take(&c->ffn, llama ? (8 * c->width / 3 + 31) / 32 * 32 : 4 * c->width);
  take(&c->types, f->types);
  take_real(&c->norm_eps, f->norm_eps);
  if (llama)
    take_real(&c->rope_theta, 10000);
}

static atoll_err check_sizes(const atoll_model_params *c) {
  const struct {
    const char *key;
    int64_t value, max;
  } sizes[] = {{"layers", c->layers, 65000},
               {"width", c->width, 1048576},
               {"heads", c->heads, 65536},
               {"context", c->context, 16777216},
               {"vocab", c->vocab, 16777216}};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
    if (sizes[i].value < 1 || sizes[i].value > sizes[i].max)
      return atoll_fail(ATOLL_USAGE, "model.%s is %lld, expected 1..%lld%s", sizes[i].key, (long long)sizes[i].value,
                        (long long)sizes[i].max, sizes[i].value ? "" : " (or set model.preset)");
  if (c->width % c->heads)
    return atoll_fail(ATOLL_USAGE, "model.width is %lld, not a multiple of model.heads %lld", (long long)c->width,
                      (long long)c->heads);
  return ATOLL_OK;
}

/* Whether the family knows what was asked for. */
static atoll_err check_family(const atoll_model_params *c) {
  const char *name = families[c->family]->name;
  int64_t D = c->width / c->heads;
  int llama = c->family == ATOLL_FAMILY_LLAMA;
  if (llama && (c->kv_heads < 1 || c->heads % c->kv_heads))
    return atoll_fail(ATOLL_USAGE, "model.heads is %lld, not a multiple of model.kv_heads %lld", (long long)c->heads,
                      (long long)c->kv_heads);
  if (!llama && c->kv_heads != c->heads)
    return atoll_fail(ATOLL_USAGE, "model.kv_heads is %lld, in family %s there are as many as model.heads (%lld)",
                      (long long)c->kv_heads, name, (long long)c->heads);
  if (llama && D % 2)
    return atoll_fail(ATOLL_USAGE, "model.width %lld over model.heads %lld is %lld, rotary positions need an even size",
                      (long long)c->width, (long long)c->heads, (long long)D);
  if (!llama && (c->untied || c->rope_theta != 0 || c->rope_factor != 0))
    return atoll_fail(ATOLL_USAGE, "model.%s is set, family %s has none; only llama has",
                      c->untied            ? "untied"
                      : c->rope_theta != 0 ? "rope_theta"
                                           : "rope_factor",
                      name);
  if (llama && c->rope_factor != 0 && !(c->rope_low > 0 && c->rope_high > c->rope_low && c->rope_context > 0))
    return atoll_fail(ATOLL_USAGE,
                      "model.rope_factor is %g, then rope_high %g > rope_low %g > 0 and rope_context %lld > 0 are "
                      "needed",
                      c->rope_factor, c->rope_high, c->rope_low, (long long)c->rope_context);
  if (c->types < 0 || c->types > 1024 || (c->types > 0 && !families[c->family]->types))
    return atoll_fail(ATOLL_USAGE, "model.types is %lld, expected 0%s", (long long)c->types,
                      families[c->family]->types ? "..1024" : ": only bert and roberta have token types");
  return ATOLL_OK;
}

/* Preset sizes for the zeros of the config, then checks in the order a reader would want them. */
static atoll_err resolve(const atoll_model_params *in, atoll_model_params *c) {
  *c = *in;
  if (c->family < 0 || c->family >= FAMILIES)
    return atoll_fail(ATOLL_USAGE, "model.family is %d, expected gpt2, llama, bert or roberta", c->family);
  if (c->preset[0])
    ATOLL_TRY(apply_preset(c));
  if (c->family == ATOLL_FAMILY_AUTO)
    c->family = ATOLL_FAMILY_GPT2;
  ATOLL_TRY(check_sizes(c));
  apply_defaults(c);
  if (c->ffn < 1 || c->ffn > 4194304)
    return atoll_fail(ATOLL_USAGE, "model.ffn is %lld, expected 1..4194304 (0 for the family's)", (long long)c->ffn);
  ATOLL_TRY(check_family(c));
  if (c->dtype != ATOLL_F32 && c->dtype != ATOLL_BF16)
    return atoll_fail(ATOLL_USAGE, "models compute in f32 or bf16, not in %s", atoll_dtype_name((atoll_dtype)c->dtype));
  if (!(c->dropout >= 0 && c->dropout <= 0.99))
    return atoll_fail(ATOLL_USAGE, "model.dropout is %g, expected 0..0.99", c->dropout);
  if (!(c->init_std >= 0 && c->init_std <= 10))
    return atoll_fail(ATOLL_USAGE, "model.init_std is %g, expected 0..10", c->init_std);
  if (!(c->norm_eps > 0 && c->norm_eps <= 1))
    return atoll_fail(ATOLL_USAGE, "model.norm_eps is %g, expected 0..1", c->norm_eps);
  return ATOLL_OK;
}

/* ---- tensors of a table ---- */

static int64_t extent(const atoll_model *m, model_extent e) {
  const atoll_model_params *c = &m->config;
  switch (e) {
  case EXTENT_TWO:
    return 2;
  case EXTENT_WIDTH:
    return c->width;
  case EXTENT_WIDTH3:
    return 3 * c->width;
  case EXTENT_KEYS:
    return c->kv_heads * (c->width / c->heads);
  case EXTENT_FFN:
    return c->ffn;
  case EXTENT_VOCAB:
    return c->vocab;
  case EXTENT_POSITIONS:
    return c->context + family_of(m)->position_offset;
  case EXTENT_TYPES:
    return c->types;
  default:
    return 0;
  }
}

/* Whether a row of the table stands for something in this model: one of the two heads does not. */
static int present(const atoll_model *m, const model_tensor *t) {
  return !(t->flags & (m->config.untied ? TENSOR_TIED : TENSOR_UNTIED));
}

/* Rows of a kind of layer that are parameters of their own. */
static int own_params(const atoll_model *m, atoll_layer_kind place) {
  int n = 0;
  for (const model_tensor *t = family_of(m)->tensor; t->name; t++)
    n += t->place == place && present(m, t) && !(t->flags & TENSOR_TIED);
  return n;
}

/* Global index of the first parameter of a layer. */
static int first_param(const atoll_model *m, int layer) {
  int L = (int)m->config.layers, blocks = layer - 1 < L ? layer - 1 : L;
  return layer == 0 ? 0 : own_params(m, ATOLL_LAYER_EMBED) + blocks * own_params(m, ATOLL_LAYER_BLOCK);
}

static void put(atoll_model *m, int layer, const model_tensor *t, atoll_model_param *p) {
  const atoll_model_params *c = &m->config;
  int block = t->flags & TENSOR_PREVIOUS ? layer - 2 : layer - 1;
  const char *name = block < 0 && t->first ? t->first : t->name, *number = strstr(name, "%d");
  if (number)
    snprintf(p->name, sizeof p->name, "%.*s%d%s", (int)(number - name), name, block, number + 2);
  else
    snprintf(p->name, sizeof p->name, "%s", name);
  p->layer = layer;
  p->shape[0] = extent(m, t->rows);
  p->shape[1] = extent(m, t->cols);
  p->ndim = t->cols == EXTENT_NONE ? 1 : 2;
  p->init = t->init;
  if (t->init == ATOLL_INIT_NORMAL)
    p->init_std = t->flags & TENSOR_RESIDUAL ? c->init_std / sqrt(2.0 * (double)c->layers) : c->init_std;
  p->decay = p->ndim == 2;
  p->tied_layer = -1;
}

static void fill(atoll_model *m) {
  int n = 0;
  for (int layer = 0; layer < m->layers; layer++)
    for (const model_tensor *t = family_of(m)->tensor; t->name; t++) {
      if (t->place != atoll_model_layer_kind(m, layer) || !present(m, t))
        continue;
      if (t->flags & TENSOR_TIED)
        m->params[0].tied_layer = layer;
      else
        put(m, layer, t, &m->params[n++]);
    }
}

atoll_err atoll_model_create(const atoll_model_params *params, atoll_model **out) {
  if (!params || !out)
    return atoll_fail(ATOLL_USAGE, "model without parameters or result");
  atoll_model *m = calloc(1, sizeof *m);
  if (!m)
    return atoll_fail(ATOLL_NOMEM, "no memory for a model (%zu bytes)", sizeof *m);
  atoll_err err;
  ATOLL_TRY_GOTO(err, free_model, resolve(params, &m->config));
  m->layers = (int)m->config.layers + 2;
  m->nparams = first_param(m, m->layers - 1) + own_params(m, ATOLL_LAYER_HEAD);
  m->params = calloc((size_t)m->nparams, sizeof *m->params);
  if (!m->params) {
    err = atoll_fail(ATOLL_NOMEM, "no memory for %d parameter descriptions", m->nparams);
    goto free_model;
  }
  fill(m);
  *out = m;
  return ATOLL_OK;
free_model:
  atoll_model_destroy(&m);
  return err;
}

void atoll_model_destroy(atoll_model **model) {
  if (!model || !*model)
    return;
  free((*model)->params);
  free(*model);
  *model = NULL;
}

const atoll_model_params *atoll_model_config(const atoll_model *model) { return &model->config; }

const char *atoll_model_family_name(const atoll_model *model) { return family_of(model)->name; }

int atoll_model_causal(const atoll_model *model) { return family_of(model)->causal; }

int64_t atoll_model_position_offset(const atoll_model *model) { return family_of(model)->position_offset; }

int atoll_model_layers(const atoll_model *model) { return model->layers; }

atoll_layer_kind atoll_model_layer_kind(const atoll_model *model, int layer) {
  if (layer <= 0)
    return ATOLL_LAYER_EMBED;
  return layer < model->layers - 1 ? ATOLL_LAYER_BLOCK : ATOLL_LAYER_HEAD;
}

const char *atoll_layer_kind_name(atoll_layer_kind k) {
  static const char *const names[] = {"embed", "block", "head"};
  return (unsigned)k < ATOLL_LAYER_KINDS ? names[k] : "unknown";
}

int atoll_model_params_count(const atoll_model *model) { return model->nparams; }

const atoll_model_param *atoll_model_param_at(const atoll_model *model, int i) {
  return i >= 0 && i < model->nparams ? &model->params[i] : NULL;
}

int atoll_model_param_find(const atoll_model *model, const char *name) {
  for (int i = 0; name && i < model->nparams; i++)
    if (!strcmp(model->params[i].name, name))
      return i;
  return -1;
}

int atoll_model_layer_params(const atoll_model *model, int layer, int *index, int cap) {
  if (layer < 0 || layer >= model->layers)
    return 0;
  atoll_layer_kind kind = atoll_model_layer_kind(model, layer);
  int n = 0, next = first_param(model, layer);
  for (const model_tensor *t = family_of(model)->tensor; t->name; t++) {
    if (t->place != kind || !present(model, t))
      continue;
    int i = t->flags & TENSOR_TIED ? 0 : next++;
    if (n < cap)
      index[n] = i;
    n++;
  }
  return n;
}

static int64_t elements(const atoll_model_param *p) {
  int64_t n = 1;
  for (int d = 0; d < p->ndim; d++)
    n *= p->shape[d];
  return n;
}

int64_t atoll_model_elements(const atoll_model *model) {
  int64_t n = 0;
  for (int i = 0; i < model->nparams; i++)
    n += elements(&model->params[i]);
  return n;
}

/* Elements of the matrices of a kind of layer that multiply every token, or (sample) one row of each sample. */
static int64_t matrices(const atoll_model *m, atoll_layer_kind place, int sample) {
  int64_t n = 0;
  for (const model_tensor *t = family_of(m)->tensor; t->name; t++)
    if (t->place == place && present(m, t) && !!(t->flags & TENSOR_SAMPLE) == sample)
      n += extent(m, t->rows) * extent(m, t->cols);
  return n;
}

/* Of 100 tokens 15 are predicted where words are masked, as published (Devlin et al. 2019): the head works on these. */
enum { PREDICTED = 3, PREDICTED_OF = 20 };

int64_t atoll_model_matmul_elements(const atoll_model *model) {
  int64_t head = matrices(model, ATOLL_LAYER_HEAD, 0);
  if (!family_of(model)->causal)
    head = (head * PREDICTED + PREDICTED_OF - 1) / PREDICTED_OF;
  return model->config.layers * matrices(model, ATOLL_LAYER_BLOCK, 0) + head;
}

/* What GPT-2 as published has no choice of; the digest of such a model is that of the releases which knew no other. */
static void add_variant(atoll_digester *d, const atoll_model_params *c) {
  if (c->family == ATOLL_FAMILY_GPT2 && c->norm_eps == model_gpt2.norm_eps)
    return;
  const int64_t sizes[] = {c->kv_heads, c->types, !!c->untied, c->rope_context};
  const double reals[] = {c->norm_eps, c->rope_theta, c->rope_factor, c->rope_low, c->rope_high};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
    atoll_digester_add_int(d, sizes[i]);
  for (size_t i = 0; i < sizeof reals / sizeof reals[0]; i++)
    atoll_digester_add_real(d, reals[i]);
}

/* What two ranks, or a run and a checkpoint, must agree on: everything that changes shapes or the function computed.
 * The preset's name is not part of it: the sizes are. f32 adds nothing, as in the releases that knew no other. */
static atoll_digest digest_with(const atoll_model *model, int dtype) {
  atoll_digester *d = NULL;
  atoll_digest zero = {0, 0};
  if (atoll_digester_create(&d) != ATOLL_OK)
    return zero;
  const atoll_model_params *c = &model->config;
  atoll_digester_add_text(d, "atoll model 1");
  atoll_digester_add_text(d, atoll_model_family_name(model));
  const int64_t sizes[] = {c->layers, c->width, c->heads, c->ffn, c->context, c->vocab};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
    atoll_digester_add_int(d, sizes[i]);
  atoll_digester_add_real(d, c->dropout);
  atoll_digester_add_real(d, c->init_std);
  add_variant(d, c);
  for (int i = 0; i < model->nparams; i++) {
    const atoll_model_param *p = &model->params[i];
    atoll_digester_add_text(d, p->name);
    for (int k = 0; k < p->ndim; k++)
      atoll_digester_add_int(d, p->shape[k]);
  }
  if (dtype != ATOLL_F32)
    atoll_digester_add_text(d, atoll_dtype_name((atoll_dtype)dtype));
  atoll_digest value = atoll_digester_value(d);
  atoll_digester_destroy(&d);
  return value;
}

atoll_digest atoll_model_digest(const atoll_model *model) { return digest_with(model, model->config.dtype); }

atoll_digest atoll_model_weights_digest(const atoll_model *model) { return digest_with(model, ATOLL_F32); }

/* Tokens that the head's matrices multiply. */
static const atoll_sym *head_tokens(const atoll_model *m, atoll_syms *pool, const atoll_sym *tokens) {
  if (family_of(m)->causal)
    return tokens;
  return atoll_sym_ceildiv(pool, atoll_sym_mul(pool, tokens, atoll_sym_int(pool, PREDICTED)),
                           atoll_sym_int(pool, PREDICTED_OF));
}

/* Matrices: 2 per multiply-add, the same again for each half of backward. Attention: scores and values over S x S are
 * 4 S^2 H, and half of that when causal; its backward redoes the scores and has four products more, 2.5 times. */
static const atoll_sym *flops(const atoll_model *m, atoll_syms *pool, int layer, int backward) {
  if (layer < 0 || layer >= m->layers)
    return NULL;
  const atoll_sym *B = atoll_sym_var(pool, "B", ATOLL_SYM_INT), *S = atoll_sym_var(pool, "S", ATOLL_SYM_INT);
  const atoll_sym *tokens = atoll_sym_mul(pool, B, S);
  atoll_layer_kind kind = atoll_model_layer_kind(m, layer);
  int64_t each = backward ? 4 : 2, both = family_of(m)->causal ? 1 : 2;
  int64_t all = kind == ATOLL_LAYER_EMBED ? 0 : matrices(m, kind, 0), sample = matrices(m, kind, 1);
  const atoll_sym *multiplied = kind == ATOLL_LAYER_HEAD ? head_tokens(m, pool, tokens) : tokens;
  const atoll_sym *f = atoll_sym_mul(pool, multiplied, atoll_sym_int(pool, each * all));
  if (sample)
    f = atoll_sym_add(pool, f, atoll_sym_mul(pool, B, atoll_sym_int(pool, each * sample)));
  if (kind == ATOLL_LAYER_BLOCK)
    f = atoll_sym_add(pool, f,
                      atoll_sym_mul(pool, atoll_sym_mul(pool, tokens, S),
                                    atoll_sym_int(pool, (backward ? 5 : 2) * both * m->config.width)));
  return f;
}

const atoll_sym *atoll_model_layer_flops(const atoll_model *model, atoll_syms *pool, int layer) {
  return flops(model, pool, layer, 0);
}

const atoll_sym *atoll_model_layer_backward_flops(const atoll_model *model, atoll_syms *pool, int layer) {
  return flops(model, pool, layer, 1);
}

const atoll_sym *atoll_model_boundary_elements(const atoll_model *model, atoll_syms *pool, int layer) {
  if (layer < 0 || layer >= model->layers)
    return NULL;
  if (layer == model->layers - 1)
    return atoll_sym_int(pool, 0); /* nothing follows the head */
  const atoll_sym *B = atoll_sym_var(pool, "B", ATOLL_SYM_INT), *S = atoll_sym_var(pool, "S", ATOLL_SYM_INT);
  return atoll_sym_mul(pool, atoll_sym_mul(pool, B, S), atoll_sym_int(pool, model->config.width));
}
