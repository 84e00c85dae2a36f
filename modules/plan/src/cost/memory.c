#include "cost/memory.h"

#include <string.h>

#include "plan_impl.h"

#define PARAMS_MAX 64
#define LINE       16 /* elements; tensors are padded to it, as in layer's flat buffers */

typedef struct builder {
  const atoll_model *m;
  atoll_syms *pool;
  int first, last;
  atoll_policy policy;
  memory_moe moe;
  const atoll_sym *B, *S, *slots, *partials, *data, *tensor, *context, *expert, *zero, *sequence, *recompute, *off[4];
  const atoll_sym *nought;
  int64_t element; /* bytes of an activation, and of a weight as layers read it */
  int degree;      /* the least tensor degree of the model's blocks beyond 1; 1: there is none */
} builder;

static const atoll_sym *integer(const builder *k, int64_t v) { return atoll_sym_int(k->pool, v); }
static const atoll_sym *add(const builder *k, const atoll_sym *a, const atoll_sym *b) {
  return atoll_sym_add(k->pool, a, b);
}
static const atoll_sym *mul(const builder *k, const atoll_sym *a, const atoll_sym *b) {
  return atoll_sym_mul(k->pool, a, b);
}
static const atoll_sym *sub(const builder *k, const atoll_sym *a, const atoll_sym *b) {
  return atoll_sym_sub(k->pool, a, b);
}
static const atoll_sym *most(const builder *k, const atoll_sym *a, const atoll_sym *b) {
  return atoll_sym_max(k->pool, a, b);
}
static const atoll_sym *shared(const builder *k, const atoll_sym *a, const atoll_sym *by) {
  return atoll_sym_ceildiv(k->pool, a, by);
}
static const atoll_sym *at_least(const builder *k, const atoll_sym *a, int64_t v) {
  return atoll_sym_binary(k->pool, ATOLL_SYM_LE, integer(k, v), a);
}
static const atoll_sym *when(const builder *k, const atoll_sym *c, const atoll_sym *a, const atoll_sym *b) {
  return atoll_sym_select(k->pool, c, a, b);
}

/* What stays on the device of x when o eighths are in host memory. */
static const atoll_sym *kept(const builder *k, const atoll_sym *x, const atoll_sym *o) {
  return sub(k, x, atoll_sym_binary(k->pool, ATOLL_SYM_FLOORDIV, mul(k, x, o), integer(k, 8)));
}

/* ---- parameters -------------------------------------------------------------------------------------------------- */

static int64_t elements(const atoll_model_param *p) {
  int64_t n = 1;
  for (int d = 0; d < p->ndim; d++)
    n *= p->shape[d];
  return n;
}

/* Elements of a parameter on one of k->degree tensor ranks. */
static atoll_err divided_elements(const builder *k, int param, int64_t *n) {
  atoll_tensor block[ATOLL_LAYER_BLOCKS];
  int blocks = 0;
  ATOLL_TRY(atoll_layer_blocks(k->m, param, 0, k->degree, ATOLL_MLP_PLAIN, block, &blocks));
  *n = 0;
  for (int i = 0; i < blocks; i++)
    *n += atoll_tensor_local_count(&block[i]);
  return ATOLL_OK;
}

/* Bytes of one tensor in f32 on one rank. What tensor ranks share is layer's to say. Of experts a rank has its share,
 * each of the plain MLP's size. */
static atoll_err tensor_bytes(const builder *k, int param, int *is_expert, const atoll_sym **bytes) {
  const atoll_model_param *p = atoll_model_param_at(k->m, param);
  const atoll_sym *n = integer(k, elements(p));
  int64_t divided;
  ATOLL_TRY(divided_elements(k, param, &divided));
  if (divided < elements(p))
    n = shared(k, n, k->tensor);
  *is_expert = k->moe.experts > 0 && strstr(p->name, ".mlp.") != NULL;
  if (*is_expert)
    n = mul(k, n, shared(k, integer(k, k->moe.experts), k->expert));
  *bytes = mul(k, integer(k, 4 * LINE), shared(k, n, integer(k, LINE)));
  return ATOLL_OK;
}

typedef struct params {
  const atoll_sym *dense, *experts; /* bytes of all layers */
  const atoll_sym *edges;           /* outside the blocks */
  const atoll_sym *second;          /* of the second use of a tied tensor in this slice */
  const atoll_sym *layer[2];        /* the largest layer: dense, experts */
} params;

static atoll_err sum_params(const builder *k, params *out) {
  int seen[PARAMS_MAX * 64], n = 0;
  *out = (params){k->nought, k->nought, k->nought, k->nought, {k->nought, k->nought}};
  for (int l = k->first; l < k->last; l++) {
    int list[PARAMS_MAX], count = atoll_model_layer_params(k->m, l, list, PARAMS_MAX);
    const atoll_sym *layer[2] = {k->nought, k->nought};
    if (count > PARAMS_MAX)
      return atoll_fail(ATOLL_INTERNAL, "layer %d has %d parameters, at most %d are handled", l, count, PARAMS_MAX);
    for (int i = 0; i < count; i++) {
      const atoll_model_param *p = atoll_model_param_at(k->m, list[i]);
      int is_expert, known = 0;
      const atoll_sym *bytes;
      ATOLL_TRY(tensor_bytes(k, list[i], &is_expert, &bytes));
      for (int s = 0; s < n && p->tied_layer >= 0; s++)
        known = known || seen[s] == list[i];
      layer[is_expert] = add(k, layer[is_expert], bytes);
      if (known) {
        out->second = bytes;
        continue;
      }
      if (p->tied_layer >= 0 && n < (int)(sizeof seen / sizeof *seen))
        seen[n++] = list[i];
      if (is_expert)
        out->experts = add(k, out->experts, bytes);
      else
        out->dense = add(k, out->dense, bytes);
      if (atoll_model_layer_kind(k->m, l) != ATOLL_LAYER_BLOCK)
        out->edges = add(k, out->edges, bytes);
    }
    for (int e = 0; e < 2; e++)
      out->layer[e] = most(k, out->layer[e], layer[e]);
  }
  return ATOLL_OK;
}

/* ---- activations ------------------------------------------------------------------------------------------------- */

/* Layer's expression for this rank's samples and tokens. */
static const atoll_sym *mine(const builder *k, const atoll_sym *e) {
  const atoll_sym *B = atoll_sym_var(k->pool, "B", ATOLL_SYM_INT), *S = atoll_sym_var(k->pool, "S", ATOLL_SYM_INT);
  e = e && B ? atoll_sym_substitute(k->pool, e, B, k->B) : NULL;
  return e && S ? atoll_sym_substitute(k->pool, e, S, k->S) : NULL;
}

typedef const atoll_sym *(*layer_bytes)(const atoll_model *m, atoll_syms *pool, int layer, atoll_policy p, int tensor);

/* What a rank has of a layer: what tensor ranks divide shows in the difference between one rank and one of k->degree;
 * the rest is divided with sequence parallelism only. `more` elements per token are divided besides. */
static const atoll_sym *cut_bytes(const builder *k, int layer, layer_bytes of, int64_t more) {
  const atoll_sym *whole = mine(k, of(k->m, k->pool, layer, k->policy, 1)), *part = k->nought, *rest = whole;
  if (k->degree > 1) {
    const atoll_sym *less = sub(k, whole, mine(k, of(k->m, k->pool, layer, k->policy, k->degree)));
    part = shared(k, mul(k, integer(k, k->degree), less), integer(k, k->degree - 1));
    rest = sub(k, whole, part);
  }
  rest = when(k, at_least(k, k->sequence, 1), shared(k, rest, k->tensor), rest);
  part = add(k, part, mul(k, integer(k, k->element * more), mul(k, k->B, k->S)));
  return add(k, rest, shared(k, part, k->tensor));
}

static const atoll_sym *input_bytes(const builder *k) {
  const atoll_sym *bytes = mul(k, integer(k, k->element * atoll_model_config(k->m)->width), mul(k, k->B, k->S));
  bytes = mul(k, integer(k, 64), shared(k, bytes, integer(k, 64)));
  return when(k, at_least(k, k->sequence, 1), shared(k, bytes, k->tensor), bytes);
}

/* Saved by a layer. A token visits top_k experts, so their part of a block's MLP is that many times as large. */
static const atoll_sym *saved_bytes(const builder *k, int layer) {
  if (atoll_model_layer_kind(k->m, layer) != ATOLL_LAYER_BLOCK)
    return mine(k, atoll_layer_saved_bytes(k->m, k->pool, layer, k->policy, 1));
  int64_t whole, attention, mlp, more = k->moe.experts > 0 ? k->moe.top_k - 1 : 0;
  atoll_layer_kept(k->m, layer, k->policy, &whole, &attention, &mlp);
  return cut_bytes(k, layer, atoll_layer_saved_bytes, more * mlp);
}

typedef struct activations {
  const atoll_sym *slot, *saved[2], *again, *carried, *work, *pass;
  int blocks;
} activations;

static void sum_activations(const builder *k, activations *out) {
  const atoll_model_params *c = atoll_model_config(k->m);
  *out = (activations){k->nought, {k->nought, k->nought}, k->nought, k->nought, k->nought, k->nought, 0};
  const atoll_sym *block = k->nought, *input = input_bytes(k), *others = k->nought;
  for (int l = k->first; l < k->last; l++) {
    const atoll_sym *saved = saved_bytes(k, l), *carried, *work;
    int halves = k->first > 0 && l == k->first; /* of backward: the stage before waits for the first one's result */
    layer_bytes needed = halves ? atoll_layer_half_bytes : atoll_layer_work_bytes;
    if (atoll_model_layer_kind(k->m, l) == ATOLL_LAYER_BLOCK) {
      out->blocks++;
      block = saved;
      carried = cut_bytes(k, l, atoll_layer_carried_bytes, 0);
      work = cut_bytes(k, l, needed, 0);
    } else {
      others = add(k, others, saved);
      carried = mine(k, atoll_layer_carried_bytes(k->m, k->pool, l, k->policy, 1));
      work = mine(k, needed(k->m, k->pool, l, k->policy, 1));
    }
    if (halves)
      out->carried = carried;
    out->work = most(k, out->work, work);
  }
  const atoll_sym *redone = atoll_sym_binary(k->pool, ATOLL_SYM_MIN, k->recompute, integer(k, out->blocks));
  out->saved[0] = block;
  out->saved[1] = input;
  out->slot = add(k, others, mul(k, block, sub(k, integer(k, out->blocks), redone)));
  out->slot = add(k, out->slot, mul(k, input, redone));
  if (k->first > 0 && atoll_layer_keeps_input(k->m, k->first, k->policy)) /* it belongs to the caller */
    out->slot = sub(k, out->slot, input);
  if (out->blocks > 0)
    out->again = when(k, at_least(k, redone, 1),
                      atoll_layer_keeps_input(k->m, 1, k->policy) ? sub(k, block, input) : block, k->nought);
  int passes = k->last - k->first - 1 < 2 ? k->last - k->first - 1 : 2;
  out->pass = mul(k, integer(k, k->element * c->width * passes), mul(k, k->B, k->S));
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

static const atoll_sym *integer_var(atoll_syms *pool, const char *name) {
  return atoll_sym_var(pool, name, ATOLL_SYM_INT);
}

static void states(const builder *k, const params *p, memory_model *out) {
  const atoll_sym *equal = mul(k, k->data, k->context), *dense = mul(k, equal, k->expert);
  const atoll_sym *all = add(k, p->dense, p->experts);
  const atoll_sym *dealt = add(k, shared(k, p->dense, dense), shared(k, p->experts, equal));
  const atoll_sym *largest = add(k, p->layer[0], p->layer[1]);
  int apart = k->element != 4; /* then f32 masters lie with the moments */
  const atoll_sym *weights = when(k, at_least(k, k->zero, 3), dealt, all);
  if (apart)
    weights = atoll_sym_binary(k->pool, ATOLL_SYM_FLOORDIV, weights, integer(k, 4 / k->element));
  const atoll_sym *gradients = add(k, when(k, at_least(k, k->zero, 2), dealt, all), p->second);
  const atoll_sym *moments = mul(k, integer(k, 2 + apart), when(k, at_least(k, k->zero, 1), dealt, all));
  const atoll_sym *turn = mul(k, integer(k, 2), add(k, shared(k, p->layer[0], dense), shared(k, p->layer[1], equal)));
  turn = when(k, at_least(k, k->zero, 1), turn, mul(k, integer(k, 2), largest));
  const atoll_sym *optimizer = add(k, kept(k, moments, k->off[2]), kept(k, turn, sub(k, integer(k, 8), k->off[2])));
  optimizer = when(k, at_least(k, k->off[2], 1), atoll_sym_binary(k->pool, ATOLL_SYM_MIN, optimizer, moments), moments);
  out->parameters = all;
  out->expert_parameters = p->experts;
  out->edge_parameters = p->edges;
  out->bytes[ATOLL_MEM_PARAMETER] = kept(k, weights, k->off[0]);
  out->bytes[ATOLL_MEM_GRADIENT] = mul(k, k->partials, kept(k, gradients, k->off[1]));
  out->bytes[ATOLL_MEM_OPTIMIZER] = optimizer;
  const atoll_sym *buffer = mul(k, integer(k, 2), largest);
  const atoll_sym *gather = atoll_sym_binary(k->pool, ATOLL_SYM_OR, at_least(k, k->zero, 3), at_least(k, k->off[0], 1));
  const atoll_sym *scatter =
      atoll_sym_binary(k->pool, ATOLL_SYM_OR, at_least(k, k->zero, 2), at_least(k, k->off[1], 1));
  out->bytes[ATOLL_MEM_COMM] = add(k, when(k, gather, buffer, k->nought), when(k, scatter, buffer, k->nought));
  const atoll_sym *host = sub(k, weights, kept(k, weights, k->off[0]));
  host = add(k, host, mul(k, k->partials, sub(k, gradients, kept(k, gradients, k->off[1]))));
  out->host = add(k, host, sub(k, moments, kept(k, moments, k->off[2])));
}

atoll_err memory_model_make(const atoll_model *model, atoll_syms *pool, int first, int last, atoll_policy policy,
                            memory_moe moe, memory_model *out) {
  static const char *const shares[] = {"offload_weights", "offload_gradients", "offload_optimizer",
                                       "offload_activations"};
  builder made = {.m = model,
                  .pool = pool,
                  .first = first,
                  .last = last,
                  .policy = policy,
                  .moe = moe,
                  .element = (int64_t)atoll_dtype_bytes((atoll_dtype)atoll_model_config(model)->dtype)},
          *k = &made;
  params p;
  activations a;
  k->nought = integer(k, 0);
  k->degree = plan_least_degree(model);
  k->slots = integer_var(pool, "slots");
  k->partials = integer_var(pool, "partials");
  k->data = integer_var(pool, "data");
  k->tensor = integer_var(pool, "tensor");
  k->context = integer_var(pool, "context");
  k->expert = integer_var(pool, "expert");
  k->zero = integer_var(pool, "zero");
  k->sequence = integer_var(pool, "sequence_parallel");
  k->recompute = integer_var(pool, "recompute");
  for (int i = 0; i < 4; i++)
    k->off[i] = integer_var(pool, shares[i]);
  k->B = shared(k, integer_var(pool, "B"), k->expert);
  k->S = shared(k, integer_var(pool, "S"), k->context);
  memset(out, 0, sizeof *out);
  for (int c = 0; c < ATOLL_MEM_CATEGORIES; c++)
    out->bytes[c] = k->nought;
  ATOLL_TRY(sum_params(k, &p));
  states(k, &p, out);
  sum_activations(k, &a);
  const atoll_sym *slots = mul(k, k->slots, a.slot), *largest = most(k, a.saved[0], a.saved[1]);
  out->bytes[ATOLL_MEM_ACTIVATION] =
      add(k, kept(k, slots, k->off[3]), sub(k, largest, kept(k, largest, k->off[3]))); /* one layer's turn */
  out->bytes[ATOLL_MEM_WORKSPACE] = add(k, add(k, a.carried, a.again), add(k, a.pass, a.work));
  out->host = add(k, out->host, sub(k, slots, kept(k, slots, k->off[3])));
  out->saved[0] = a.saved[0];
  out->saved[1] = a.saved[1];
  out->blocks = a.blocks;
  out->peak = k->nought;
  for (int c = 0; c < ATOLL_MEM_CATEGORIES; c++)
    out->peak = add(k, out->peak, out->bytes[c]);
  if (!out->peak || !out->host)
    return atoll_syms_error(pool) != ATOLL_OK ? ATOLL_INTERNAL
                                              : atoll_fail(ATOLL_INTERNAL, "plan: layers without byte expressions");
  return ATOLL_OK;
}
