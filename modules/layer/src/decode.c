/* Logits of the next token, with a cache of keys and values.
 *
 * Blocks run the forward schedule that training runs (walk.c); only attention knows of the cache (ops.c). A prompt is
 * one sample of n rows (which attend by way of the cache when the window is shorter); then a call has one row per text,
 * each at its own position. Matrix products of the latter go to kernels that are bound by reading the weights and whose
 * rows do not depend on each other, so a text comes out the same whatever is generated beside it.
 *
 * Bytes: the weights; the cache, [blocks, 2, slots, key heads, room, head size]; and the activations of one block for
 * the larger of a prompt and a row per slot, which layer after layer uses. */
#include "atoll/decode.h"

#include <stdlib.h>
#include <string.h>

#include "schedule.h"

struct atoll_decode {
  const atoll_model *m;
  const atoll_model_params *config;
  atoll_exec e;
  atoll_decode_params p;
  int64_t rows; /* of activations */
  char *param, *cache, *scratch, *x[2];
  void *norm; /* of the head: [slots, width] */
  float *stat, *logits;
  int32_t *token, *slot, *at; /* [rows], of the call under way */
  atoll_tensor *tensor;
  int64_t *length; /* [slots] */
};

static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

static int64_t line(int64_t bytes) { return (bytes + 63) / 64 * 64; }

static int64_t head_dim(const atoll_model_params *c) { return c->width / c->heads; }

/* Keys, or values, of one block. */
static int64_t half_bytes(const atoll_model_params *c, const atoll_decode_params *p, atoll_dtype dtype) {
  return p->slots * c->kv_heads * p->room * head_dim(c) * (int64_t)atoll_dtype_bytes(dtype);
}

int64_t atoll_decode_cache_bytes(const atoll_model *m, const atoll_decode_params *p, atoll_dtype dtype) {
  const atoll_model_params *c = atoll_model_config(m);
  return c->layers * 2 * half_bytes(c, p, dtype);
}

static atoll_err check(const atoll_model *m, const atoll_decode_params *p, const atoll_kernels *k) {
  if (!m || !p || !k)
    return atoll_fail(ATOLL_USAGE, "generating without model, sizes or kernels");
  const atoll_model_params *c = atoll_model_config(m);
  if (!atoll_model_causal(m))
    return atoll_fail(ATOLL_UNSUPPORTED, "family %s fills gaps; it does not predict the next token",
                      atoll_model_family_name(m));
  if (!k->decode)
    return atoll_fail(ATOLL_UNSUPPORTED, "kernels '%s' cannot generate", k->name);
  if (p->slots < 1 || p->slots > INT32_MAX || p->prompt < 1 || p->room < p->prompt || p->window < 0)
    return atoll_fail(ATOLL_USAGE,
                      "%lld texts of %lld tokens, prompts of %lld: at least 1 of each, and a prompt is part "
                      "of its text",
                      (long long)p->slots, (long long)p->room, (long long)p->prompt);
  if (p->room > c->context)
    return atoll_fail(ATOLL_USAGE, "texts of %lld tokens, the model's context is %lld", (long long)p->room,
                      (long long)c->context);
  return ATOLL_OK;
}

static int64_t count_of(const atoll_model_param *p) {
  int64_t n = 1;
  for (int i = 0; i < p->ndim; i++)
    n *= p->shape[i];
  return n;
}

/* Each tensor begins on a line. */
static int64_t param_bytes(const atoll_decode *d, int upto) {
  int64_t bytes = 0;
  for (int i = 0; i < upto; i++)
    bytes += line(count_of(atoll_model_param_at(d->m, i)) * (int64_t)atoll_dtype_bytes(d->e.kernels->dtype));
  return bytes;
}

/* The larger of the two kinds of call. */
static int64_t either(const atoll_decode *d, const layer_pieces *p) {
  return most(pieces_bytes(p, 1, d->p.prompt), pieces_bytes(p, d->p.slots, 1));
}

static atoll_err take(atoll_mem *mem, atoll_mem_category c, int64_t bytes, void *out) {
  void *p = NULL;
  ATOLL_TRY(atoll_mem_alloc(mem, c, (size_t)bytes, &p));
  memcpy(out, &p, sizeof p);
  return ATOLL_OK;
}

/* Scratch of a block's calls, by operations or with its MLP whole where the kernels have that. */
static atoll_err block_room(const atoll_decode *d, int64_t *saved, int64_t *work) {
  int whole = d->e.kernels->decode->mlp != NULL;
  *saved = *work = 0;
  for (int i = 0; i <= whole; i++) {
    block_plan b;
    ATOLL_TRY(block_make(d->m, 1, ATOLL_POLICY_EXACT2, (layer_way){1, i ? ATOLL_MLP_CTA : ATOLL_MLP_PLAIN}, &b));
    *saved = most(*saved, either(d, &b.saved));
    *work = most(*work, either(d, &b.call[STEP_FORWARD].work));
  }
  return ATOLL_OK;
}

/* Every byte is taken here, for a real one and for atoll_decode_bytes() alike. */
static atoll_err allocate(atoll_decode *d, atoll_mem *mem) {
  const atoll_model_params *c = d->config;
  int64_t each = (int64_t)atoll_dtype_bytes(d->e.kernels->dtype), slots = d->p.slots;
  int64_t saved, work;
  ATOLL_TRY(block_room(d, &saved, &work));
  ATOLL_TRY(take(mem, ATOLL_MEM_PARAMETER, param_bytes(d, atoll_model_params_count(d->m)), &d->param));
  ATOLL_TRY(take(mem, ATOLL_MEM_ACTIVATION, atoll_decode_cache_bytes(d->m, &d->p, d->e.kernels->dtype), &d->cache));
  for (int i = 0; i < 2; i++)
    ATOLL_TRY(take(mem, ATOLL_MEM_WORKSPACE, d->rows * c->width * each, &d->x[i]));
  ATOLL_TRY(take(mem, ATOLL_MEM_WORKSPACE, saved, &d->scratch));
  ATOLL_TRY(take(mem, ATOLL_MEM_WORKSPACE, slots * c->width * each, &d->norm));
  ATOLL_TRY(take(mem, ATOLL_MEM_WORKSPACE, 2 * slots * (int64_t)sizeof *d->stat, &d->stat));
  ATOLL_TRY(take(mem, ATOLL_MEM_WORKSPACE, slots * c->vocab * (int64_t)sizeof *d->logits, &d->logits));
  ATOLL_TRY(take(mem, ATOLL_MEM_WORKSPACE, 3 * d->rows * (int64_t)sizeof *d->token, &d->token));
  d->slot = d->token + d->rows;
  d->at = d->slot + d->rows;
  return atoll_arena_create(mem, ATOLL_MEM_WORKSPACE, (size_t)work, &d->e.work);
}

static void release(atoll_decode *d, atoll_mem *mem) {
  atoll_arena_destroy(&d->e.work);
  atoll_mem_free(mem, &d->token);
  atoll_mem_free(mem, &d->logits);
  atoll_mem_free(mem, &d->stat);
  atoll_mem_free(mem, &d->norm);
  atoll_mem_free(mem, &d->scratch);
  for (int i = 0; i < 2; i++)
    atoll_mem_free(mem, &d->x[i]);
  atoll_mem_free(mem, &d->cache);
  atoll_mem_free(mem, &d->param);
  free(d->tensor);
  free(d->length);
  free(d);
}

static atoll_err begin(const atoll_model *m, const atoll_decode_params *p, const atoll_kernels *k, atoll_decode **out) {
  ATOLL_TRY(check(m, p, k));
  atoll_decode *d = calloc(1, sizeof *d);
  if (!d)
    return atoll_fail(ATOLL_NOMEM, "no memory for %zu bytes", sizeof *d);
  d->m = m;
  d->config = atoll_model_config(m);
  d->e.kernels = k;
  d->p = *p;
  d->rows = most(p->prompt, p->slots);
  *out = d;
  return ATOLL_OK;
}

atoll_err atoll_decode_bytes(const atoll_model *m, const atoll_decode_params *p, const atoll_kernels *kernels,
                             int64_t bytes[ATOLL_MEM_CATEGORIES]) {
  atoll_decode *d = NULL;
  atoll_mem *mem = NULL;
  ATOLL_TRY(begin(m, p, kernels, &d));
  atoll_err err;
  ATOLL_TRY_GOTO(err, done, atoll_mem_create(0, 1, &mem));
  ATOLL_TRY_GOTO(err, done, allocate(d, mem));
  for (int c = 0; c < ATOLL_MEM_CATEGORIES; c++)
    bytes[c] = atoll_mem_current(mem, (atoll_mem_category)c);
done:
  release(d, mem);
  atoll_mem_destroy(&mem, NULL);
  return err;
}

static atoll_err views(atoll_decode *d) {
  int n = atoll_model_params_count(d->m);
  d->tensor = calloc((size_t)n, sizeof *d->tensor);
  d->length = calloc((size_t)d->p.slots, sizeof *d->length);
  if (!d->tensor || !d->length)
    return atoll_fail(ATOLL_NOMEM, "lists of %d tensors and %lld texts", n, (long long)d->p.slots);
  for (int i = 0; i < n; i++) {
    const atoll_model_param *p = atoll_model_param_at(d->m, i);
    ATOLL_TRY(atoll_tensor_init(&d->tensor[i], p->name, d->e.kernels->dtype, p->ndim, p->shape,
                                d->param + param_bytes(d, i)));
    d->tensor[i].device = d->e.device;
  }
  return ATOLL_OK;
}

atoll_err atoll_decode_create(const atoll_model *m, const atoll_decode_params *p, const atoll_exec *e,
                              atoll_decode **out) {
  if (!e || !e->mem || !e->compute || !out)
    return atoll_fail(ATOLL_USAGE, "generating without memory, compute queue or result");
  if (e->tensor)
    return atoll_fail(ATOLL_UNSUPPORTED, "generating on tensor ranks");
  atoll_decode *d = NULL;
  ATOLL_TRY(begin(m, p, e->kernels, &d));
  d->e = *e;
  d->e.work = NULL;
  atoll_err err;
  ATOLL_TRY_GOTO(err, undo, allocate(d, e->mem));
  ATOLL_TRY_GOTO(err, undo, views(d));
  *out = d;
  return ATOLL_OK;
undo:
  release(d, e->mem);
  return err;
}

void atoll_decode_destroy(atoll_decode **d) {
  if (!d || !*d)
    return;
  release(*d, (*d)->e.mem);
  *d = NULL;
}

atoll_tensor *atoll_decode_weights(atoll_decode *d) { return d->tensor; }

int64_t atoll_decode_length(const atoll_decode *d, int slot) { return d->length[slot]; }

int64_t atoll_decode_bytes_read(const atoll_decode *d, const int *slot, int64_t n) {
  int64_t each = (int64_t)atoll_dtype_bytes(d->e.kernels->dtype), tokens = 0;
  for (int64_t i = 0; i < n; i++)
    tokens += d->p.window && d->length[slot[i]] >= d->p.window ? d->p.window : d->length[slot[i]] + 1;
  return each * (atoll_model_matmul_elements(d->m) +
                 2 * tokens * d->config->layers * d->config->kv_heads * head_dim(d->config));
}

/* ---- running ---- */

static atoll_err enter(const atoll_decode *d, const layer_cache *cache, const atoll_call *call, int layer,
                       atoll_layer_buffers *b, layer_call *l) {
  int list[16], n = atoll_model_layer_params(d->m, layer, list, 16);
  *b = (atoll_layer_buffers){.saved = d->scratch};
  if (n > 16)
    return atoll_fail(ATOLL_INTERNAL, "layer %d has %d parameters, at most 16 are handled", layer, n);
  for (int i = 0; i < n; i++)
    b->weight[i] = d->tensor[list[i]].data;
  *l = (layer_call){d->m, d->config, layer, ATOLL_POLICY_EXACT2, &d->e, call, b, call->B * call->S, d->config->width,
                    cache};
  return ATOLL_OK;
}

/* Norm and logits of n rows from x. */
static atoll_err head(const atoll_decode *d, const layer_call *l, const void *x, int64_t n) {
  enum { MATRIX, NORM_W, NORM_B };
  const void *const *w = l->b->weight;
  layer_norm norm = {l, w[NORM_W], w[NORM_B], d->stat, d->stat + n, n, l->H}; /* no bias: RMSNorm */
  ATOLL_TRY(layer_norm_forward(&norm, x, d->norm));
  return d->e.kernels->decode->linear(d->e.compute, d->norm, w[MATRIX], NULL, d->logits, n, l->H, d->config->vocab);
}

/* The tokens of d->token through all layers: R texts of one token, or one text of R. Logits of the last n. */
static atoll_err run(atoll_decode *d, int single, int64_t R, int64_t n) {
  const atoll_model_params *c = d->config;
  size_t half = (size_t)half_bytes(c, &d->p, d->e.kernels->dtype);
  atoll_call call = {.B = single ? R : 1, .S = single ? 1 : R};
  layer_cache cache = {.c = {.heads = c->heads,
                             .kv_heads = c->kv_heads,
                             .room = d->p.room,
                             .head_dim = head_dim(c),
                             .window = d->p.window},
                       .slot = d->slot,
                       .at = d->at,
                       .single = single};
  atoll_layer_buffers b;
  layer_call l;
  ATOLL_TRY(enter(d, &cache, &call, 0, &b, &l));
  ATOLL_TRY(embed_forward(&l, d->token, d->x[0]));
  for (int i = 0; i < c->layers; i++) {
    cache.c.keys = d->cache + (size_t)i * 2 * half;
    cache.c.values = d->cache + (size_t)i * 2 * half + half;
    ATOLL_TRY(enter(d, &cache, &call, i + 1, &b, &l));
    ATOLL_TRY(block_run(&l, STEP_FORWARD, d->x[i % 2], d->x[1 - i % 2], NULL, NULL));
  }
  ATOLL_TRY(enter(d, &cache, &call, (int)c->layers + 1, &b, &l));
  return head(d, &l, layer_at(&l, d->x[c->layers % 2], (R - n) * c->width), n);
}

/* Waits also when something could not be enqueued: tasks read the arrays of the call. */
static atoll_err finish(atoll_decode *d, atoll_err err, const float **logits) {
  atoll_err ran = atoll_queue_sync(d->e.compute);
  if (err == ATOLL_OK)
    err = ran;
  if (err == ATOLL_OK)
    *logits = d->logits;
  return err;
}

atoll_err atoll_decode_prompt(atoll_decode *d, int slot, const int32_t *tokens, int64_t n, const float **logits) {
  if (slot < 0 || slot >= d->p.slots)
    return atoll_fail(ATOLL_USAGE, "text %d of %lld", slot, (long long)d->p.slots);
  if (n < 1 || n > d->p.prompt)
    return atoll_fail(ATOLL_USAGE, "a prompt of %lld tokens, expected 1 to %lld", (long long)n, (long long)d->p.prompt);
  for (int64_t i = 0; i < n; i++) {
    d->token[i] = tokens[i];
    d->slot[i] = slot;
    d->at[i] = (int32_t)i;
  }
  d->length[slot] = 0;
  ATOLL_TRY(finish(d, run(d, 0, n, 1), logits));
  d->length[slot] = n;
  return ATOLL_OK;
}

atoll_err atoll_decode_next(atoll_decode *d, const int *slot, const int32_t *token, int64_t n, const float **logits) {
  if (n < 1 || n > d->p.slots)
    return atoll_fail(ATOLL_USAGE, "a call for %lld texts, expected 1 to %lld", (long long)n, (long long)d->p.slots);
  for (int64_t i = 0; i < n; i++) {
    if (slot[i] < 0 || slot[i] >= d->p.slots || d->length[slot[i]] < 1)
      return atoll_fail(ATOLL_USAGE, "text %d has no prompt", slot[i]);
    if (d->length[slot[i]] >= d->p.room)
      return atoll_fail(ATOLL_USAGE, "text %d is full: %lld tokens", slot[i], (long long)d->p.room);
    for (int64_t k = 0; k < i; k++)
      if (slot[k] == slot[i])
        return atoll_fail(ATOLL_USAGE, "text %d twice in a call", slot[i]);
    d->token[i] = token[i];
    d->slot[i] = slot[i];
    d->at[i] = (int32_t)d->length[slot[i]];
  }
  ATOLL_TRY(finish(d, run(d, 1, n, n), logits));
  for (int64_t i = 0; i < n; i++)
    d->length[slot[i]]++;
  return ATOLL_OK;
}
