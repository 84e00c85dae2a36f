#include "atoll/model.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "model_impl.h"

static const struct model_family *const families[] = {&model_gpt2};

static const struct model_family *family_of(const atoll_model *m) { return families[m->config.family]; }

/* Preset sizes for the zeros of the config, then checks in the order a reader would want them. */
static atoll_err resolve(const atoll_model_params *in, atoll_model_params *c) {
  *c = *in;
  if (c->family < 0 || c->family >= (int)(sizeof families / sizeof families[0]))
    return atoll_fail(ATOLL_USAGE, "model.family is %d, expected gpt2", c->family);
  if (c->preset[0]) {
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
    c->family = p->family;
    /* A width of the user's own does not want the preset's MLP width. */
    if (c->ffn == 0 && (c->width == 0 || c->width == p->width))
      c->ffn = p->ffn;
    if (c->layers == 0)
      c->layers = p->layers;
    if (c->width == 0)
      c->width = p->width;
    if (c->heads == 0)
      c->heads = p->heads;
    if (c->context == 0)
      c->context = p->context;
    if (c->vocab == 0)
      c->vocab = p->vocab;
  }
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
  if (c->ffn == 0)
    c->ffn = 4 * c->width;
  if (c->ffn < 1 || c->ffn > 4194304)
    return atoll_fail(ATOLL_USAGE, "model.ffn is %lld, expected 1..4194304 (0 for 4 x width)", (long long)c->ffn);
  if (!(c->dropout >= 0 && c->dropout <= 0.99))
    return atoll_fail(ATOLL_USAGE, "model.dropout is %g, expected 0..0.99", c->dropout);
  if (!(c->init_std >= 0 && c->init_std <= 10))
    return atoll_fail(ATOLL_USAGE, "model.init_std is %g, expected 0..10", c->init_std);
  return ATOLL_OK;
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
  int64_t n = family_of(m)->count(&m->config);
  m->params = calloc((size_t)n, sizeof *m->params);
  if (!m->params) {
    err = atoll_fail(ATOLL_NOMEM, "no memory for %lld parameter descriptions", (long long)n);
    goto free_model;
  }
  m->nparams = (int)n;
  ATOLL_TRY_GOTO(err, free_model, family_of(m)->fill(m));
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
  return family_of(model)->layer_params(model, layer, index, cap);
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

int64_t atoll_model_matmul_elements(const atoll_model *model) { return family_of(model)->matmul_elements(model); }

/* What two ranks, or a run and a checkpoint, must agree on: everything that changes shapes or the function computed.
 * The preset's name is not part of it: the sizes are. */
atoll_digest atoll_model_digest(const atoll_model *model) {
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
  for (int i = 0; i < model->nparams; i++) {
    const atoll_model_param *p = &model->params[i];
    atoll_digester_add_text(d, p->name);
    for (int k = 0; k < p->ndim; k++)
      atoll_digester_add_int(d, p->shape[k]);
  }
  atoll_digest value = atoll_digester_value(d);
  atoll_digester_destroy(&d);
  return value;
}

const atoll_sym *atoll_model_layer_flops(const atoll_model *model, atoll_syms *pool, int layer) {
  return layer < 0 || layer >= model->layers ? NULL : family_of(model)->flops(model, pool, layer, 0);
}

const atoll_sym *atoll_model_layer_backward_flops(const atoll_model *model, atoll_syms *pool, int layer) {
  return layer < 0 || layer >= model->layers ? NULL : family_of(model)->flops(model, pool, layer, 1);
}

const atoll_sym *atoll_model_boundary_elements(const atoll_model *model, atoll_syms *pool, int layer) {
  if (layer < 0 || layer >= model->layers)
    return NULL;
  if (layer == model->layers - 1)
    return atoll_sym_int(pool, 0); /* nothing follows the head */
  const atoll_sym *B = atoll_sym_var(pool, "B", ATOLL_SYM_INT), *S = atoll_sym_var(pool, "S", ATOLL_SYM_INT);
  return atoll_sym_mul(pool, atoll_sym_mul(pool, B, S), atoll_sym_int(pool, model->config.width));
}
