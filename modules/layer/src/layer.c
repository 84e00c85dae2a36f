#include "atoll/layer.h"

#include "schedule.h"

/* A layer's call with its arguments checked. */
static atoll_err begin(layer_call *l, const atoll_model *m, int layer, atoll_policy p, const atoll_exec *e,
                       const atoll_call *c, const atoll_layer_buffers *b) {
  if (!m || !e || !e->compute || !e->kernels || !e->work || !c || !b)
    return atoll_fail(ATOLL_USAGE, "layer %d: model, context, call or buffers missing", layer);
  const atoll_model_params *config = atoll_model_config(m);
  if (layer < 0 || layer >= atoll_model_layers(m))
    return atoll_fail(ATOLL_USAGE, "layer %d of a model with %d layers", layer, atoll_model_layers(m));
  if ((unsigned)p >= ATOLL_POLICIES)
    return atoll_fail(ATOLL_USAGE, "layer %d: memory policy %d is unknown", layer, (int)p);
  if (c->B < 1 || c->S < 1)
    return atoll_fail(ATOLL_USAGE, "layer %d: micro-batch of %lld samples of %lld tokens", layer, (long long)c->B,
                      (long long)c->S);
  if (c->S > config->context)
    return atoll_fail(ATOLL_USAGE, "layer %d: samples of %lld tokens, the model's context is %lld", layer,
                      (long long)c->S, (long long)config->context);
  if ((int)e->kernels->dtype != config->dtype)
    return atoll_fail(ATOLL_USAGE, "layer %d: the model computes in %s, kernels '%s' in %s", layer,
                      atoll_dtype_name((atoll_dtype)config->dtype), e->kernels->name,
                      atoll_dtype_name(e->kernels->dtype));
  *l = (layer_call){m, config, layer, p, e, c, b, c->B * c->S, config->width, NULL};
  return ATOLL_OK;
}

atoll_drop layer_drop(const layer_call *l, atoll_rng_site site) {
  atoll_drop d = {0};
  if (!l->c->train)
    return d;
  d.p = (float)l->config->dropout;
  d.key = (atoll_rng_key){
      .seed = l->c->seed, .step = l->c->step, .sample = l->c->first_sample, .layer = (uint32_t)l->layer, .site = site};
  return d;
}

const void *layer_at(const layer_call *l, const void *base, int64_t i) {
  return (const char *)base + (size_t)i * atoll_dtype_bytes(l->e->kernels->dtype);
}

void *layer_place(const layer_call *l, void *base, int64_t i) {
  return (char *)base + (size_t)i * atoll_dtype_bytes(l->e->kernels->dtype);
}

static atoll_err missing(int layer, const char *what) {
  return atoll_fail(ATOLL_USAGE, "layer %d: %s missing", layer, what);
}

atoll_err atoll_layer_forward(const atoll_model *m, int layer, atoll_policy p, const atoll_exec *e, const atoll_call *c,
                              const atoll_layer_buffers *b, const void *x, const int32_t *tokens,
                              const int32_t *targets, void *y, float *loss) {
  layer_call l;
  ATOLL_TRY(begin(&l, m, layer, p, e, c, b));
  switch (atoll_model_layer_kind(m, layer)) {
  case ATOLL_LAYER_EMBED:
    if (!tokens || !y)
      return missing(layer, "tokens or output");
    return embed_forward(&l, tokens, y);
  case ATOLL_LAYER_HEAD:
    if (!x || !targets || !loss)
      return missing(layer, "input, targets or loss");
    return (atoll_model_causal(m) ? head_forward : masked_forward)(&l, x, targets, y, loss);
  default:
    if (!x || !y || x == y || !b->saved)
      return missing(layer, "input, output (two different buffers) or room for saved activations");
    return block_run(&l, STEP_FORWARD, x, y, NULL, NULL);
  }
}

/* Both halves of a layer that is no block: the head did all in forward. */
static atoll_err ends_backward(const layer_call *l, const int32_t *tokens, const void *dy, void *dx) {
  atoll_drop none = {0};
  if (atoll_model_layer_kind(l->m, l->layer) == ATOLL_LAYER_EMBED) {
    if (!tokens || !dy)
      return missing(l->layer, "tokens or gradient");
    return l->b->grad[0] ? embed_backward(l, tokens, dy) : ATOLL_OK;
  }
  if (!dy || !dx)
    return missing(l->layer, "gradient");
  return l->e->kernels->drop_backward(l->e->compute, dy, dx, l->c->B, l->c->S * l->H, &none); /* a copy, or nothing */
}

atoll_err atoll_layer_backward_input(const atoll_model *m, int layer, atoll_policy p, const atoll_exec *e,
                                     const atoll_call *c, const atoll_layer_buffers *b, const void *x, const void *dy,
                                     void *dx) {
  layer_call l;
  ATOLL_TRY(begin(&l, m, layer, p, e, c, b));
  switch (atoll_model_layer_kind(m, layer)) {
  case ATOLL_LAYER_EMBED:
    return ATOLL_OK;
  case ATOLL_LAYER_HEAD:
    return ends_backward(&l, NULL, dy, dx);
  default:
    if (!dy || !dx || dx == dy || !b->saved || !b->carried)
      return missing(layer, "gradients (two different buffers), saved or carried bytes");
    return block_run(&l, STEP_INPUT, x, NULL, dy, dx);
  }
}

atoll_err atoll_layer_backward(const atoll_model *m, int layer, atoll_policy p, const atoll_exec *e,
                               const atoll_call *c, const atoll_layer_buffers *b, const void *x, const int32_t *tokens,
                               const void *dy, void *dx) {
  layer_call l;
  ATOLL_TRY(begin(&l, m, layer, p, e, c, b));
  if (atoll_model_layer_kind(m, layer) != ATOLL_LAYER_BLOCK)
    return ends_backward(&l, tokens, dy, dx);
  if (!dy || !dx || dx == dy || !b->saved)
    return missing(layer, "gradients (two different buffers) or saved bytes");
  return block_run(&l, CALL_BACKWARD, x, NULL, dy, dx);
}

atoll_err atoll_layer_backward_weight(const atoll_model *m, int layer, atoll_policy p, const atoll_exec *e,
                                      const atoll_call *c, const atoll_layer_buffers *b, const void *x,
                                      const int32_t *tokens, const void *dy) {
  layer_call l;
  ATOLL_TRY(begin(&l, m, layer, p, e, c, b));
  switch (atoll_model_layer_kind(m, layer)) {
  case ATOLL_LAYER_EMBED:
    return ends_backward(&l, tokens, dy, NULL);
  case ATOLL_LAYER_HEAD:
    return ATOLL_OK;
  default:
    if (!dy || !b->saved || !b->carried)
      return missing(layer, "gradient, saved or carried bytes");
    return block_run(&l, STEP_WEIGHT, x, NULL, dy, NULL);
  }
}
