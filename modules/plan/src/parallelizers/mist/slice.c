/* A slice's bytes and times as expressions of the tuner's axes. */
#include "parallelizers/mist/mist.h"

#include <stdlib.h>

#include "plan_impl.h"

const char *const mist_axis_name[MIST_AXES] = {
    "zero", "recompute", "offload_weights", "offload_gradients", "offload_optimizer", "offload_activations"};

const char *const mist_fixed_name[MIST_FIXED] = {"B",
                                                 "S",
                                                 "slots",
                                                 "partials",
                                                 "data",
                                                 "tensor",
                                                 "context",
                                                 "expert",
                                                 "sequence_parallel",
                                                 "host_limit",
                                                 "mlp_bytes",
                                                 "forward",
                                                 "backward",
                                                 "update",
                                                 "pack",
                                                 "forward_inside",
                                                 "backward_inside",
                                                 "gather",
                                                 "scatter",
                                                 "reduce",
                                                 "in_weights",
                                                 "in_saved",
                                                 "in_input",
                                                 "out_share",
                                                 "edge_forward",
                                                 "edge_backward",
                                                 "edge_update",
                                                 "edge_gather",
                                                 "edge_scatter",
                                                 "edge_reduce"};

typedef struct builder {
  atoll_syms *pool;
  const atoll_sym *ranks; /* with equal parameters, as a real */
} builder;

static const atoll_sym *axis(const builder *k, int i) {
  return atoll_sym_var(k->pool, mist_axis_name[i], ATOLL_SYM_INT);
}
static const atoll_sym *fixed_int(const builder *k, int i) {
  return atoll_sym_var(k->pool, mist_fixed_name[i], ATOLL_SYM_INT);
}
static const atoll_sym *seconds(const builder *k, int i) {
  return atoll_sym_var(k->pool, mist_fixed_name[i], ATOLL_SYM_REAL);
}
static const atoll_sym *real(const builder *k, double v) { return atoll_sym_real(k->pool, v); }
static const atoll_sym *plus(const builder *k, const atoll_sym *a, const atoll_sym *b) {
  return atoll_sym_add(k->pool, a, b);
}
static const atoll_sym *times(const builder *k, const atoll_sym *a, const atoll_sym *b) {
  return atoll_sym_mul(k->pool, a, b);
}

static const atoll_sym *zero_from(const builder *k, int stage) {
  return atoll_sym_binary(k->pool, ATOLL_SYM_LE, atoll_sym_int(k->pool, stage), axis(k, AXIS_ZERO));
}

static const atoll_sym *when(const builder *k, const atoll_sym *c, const atoll_sym *a, const atoll_sym *b) {
  return atoll_sym_select(k->pool, c, a, b);
}

/* x over the ranks that share it from this ZeRO stage on. */
static const atoll_sym *dealt(const builder *k, int stage, const atoll_sym *x) {
  return when(k, zero_from(k, stage), atoll_sym_binary(k->pool, ATOLL_SYM_DIV, x, k->ranks), x);
}

static const atoll_sym *share(const builder *k, int i) { /* eighths as a real */
  return times(k, atoll_sym_to_real(k->pool, axis(k, i)), real(k, 0.125));
}

/* The streams of a block. Optimizer state is twice the parameters' bytes, gradients are as many. */
static void block_phases(const builder *k, phase_layer *y) {
  const atoll_sym *nought = real(k, 0), *weights = seconds(k, FIX_IN_WEIGHTS), *out = seconds(k, FIX_OUT_SHARE);
  *y = (phase_layer){.forward = seconds(k, FIX_FORWARD),
                     .backward = seconds(k, FIX_BACKWARD),
                     .forward_inside = seconds(k, FIX_FORWARD_INSIDE),
                     .backward_inside = seconds(k, FIX_BACKWARD_INSIDE),
                     .update = plus(k, dealt(k, 1, seconds(k, FIX_UPDATE)), seconds(k, FIX_PACK)),
                     .gather_steady = when(k, zero_from(k, 3), seconds(k, FIX_GATHER), nought),
                     .gather_updated = when(k, zero_from(k, 1), seconds(k, FIX_GATHER), nought),
                     .scatter_steady = when(k, zero_from(k, 2), seconds(k, FIX_SCATTER), nought),
                     .reduce_last = when(k, zero_from(k, 1), seconds(k, FIX_SCATTER), seconds(k, FIX_REDUCE)),
                     .in_weights = times(k, share(k, AXIS_WEIGHTS), dealt(k, 3, weights)),
                     .in_gradients = times(k, share(k, AXIS_GRADIENTS), dealt(k, 2, weights)),
                     .in_optimizer = times(k, share(k, AXIS_OPTIMIZER), dealt(k, 1, plus(k, weights, weights))),
                     .in_saved = {times(k, share(k, AXIS_ACTIVATIONS), seconds(k, FIX_IN_SAVED)),
                                  times(k, share(k, AXIS_ACTIVATIONS), seconds(k, FIX_IN_INPUT))}};
  y->out_weights = times(k, y->in_weights, out);
  y->out_gradients = times(k, y->in_gradients, out);
  y->out_optimizer = times(k, y->in_optimizer, out);
  for (int i = 0; i < 2; i++)
    y->out_saved[i] = times(k, y->in_saved[i], out);
}

/* Embedding and head compute between the blocks, and their collectives hide behind nothing. */
static void add_edges(const builder *k, phase_times *p) {
  const atoll_sym *nought = real(k, 0), *gather = seconds(k, FIX_EDGE_GATHER), *scatter = seconds(k, FIX_EDGE_SCATTER);
  const atoll_sym *always = when(k, zero_from(k, 3), gather, nought);
  const atoll_sym *f = plus(k, seconds(k, FIX_EDGE_FORWARD), always), *b = seconds(k, FIX_EDGE_BACKWARD);
  p->forward = plus(k, p->forward, f);
  p->backward = plus(k, p->backward, plus(k, plus(k, b, always), when(k, zero_from(k, 2), scatter, nought)));
  p->first = plus(k, p->first, seconds(k, FIX_EDGE_FORWARD));
  p->first = plus(k, p->first, dealt(k, 1, seconds(k, FIX_EDGE_UPDATE)));
  p->first = plus(k, p->first, when(k, zero_from(k, 1), gather, nought));
  p->last = plus(k, p->last, plus(k, b, always));
  p->last = plus(k, p->last, when(k, zero_from(k, 1), scatter, seconds(k, FIX_EDGE_REDUCE)));
}

static void add_mlp_bytes(const builder *k, memory_model *m) {
  const atoll_sym *more = fixed_int(k, FIX_MLP_BYTES);
  m->bytes[ATOLL_MEM_COMM] = plus(k, m->bytes[ATOLL_MEM_COMM], more);
  m->peak = plus(k, m->peak, more);
}

static atoll_err make_tuner(const builder *k, mist_slice *s) {
  tuner_axis axes[MIST_AXES];
  tuner_fixed fixed[MIST_FIXED];
  for (int i = 0; i < MIST_AXES; i++)
    axes[i] = (tuner_axis){mist_axis_name[i], 0, NULL};
  for (int i = 0; i < MIST_FIXED; i++)
    fixed[i] = (tuner_fixed){mist_fixed_name[i], {i < MIST_INTS ? ATOLL_SYM_INT : ATOLL_SYM_REAL, 0, 0}};
  /* Weights that are in host memory come with their gradients there (as in Mist): they are used together. */
  const atoll_sym *none = atoll_sym_int(k->pool, 0);
  const atoll_sym *apart =
      atoll_sym_binary(k->pool, ATOLL_SYM_AND, atoll_sym_binary(k->pool, ATOLL_SYM_LT, none, axis(k, AXIS_WEIGHTS)),
                       atoll_sym_binary(k->pool, ATOLL_SYM_EQ, axis(k, AXIS_GRADIENTS), none));
  const atoll_sym *room = atoll_sym_binary(k->pool, ATOLL_SYM_LE, s->memory.host, fixed_int(k, FIX_HOST_LIMIT));
  const tuner_expressions e = {.allowed = atoll_sym_binary(k->pool, ATOLL_SYM_AND, atoll_sym_not(k->pool, apart), room),
                               .bytes = s->memory.peak,
                               .t = s->t,
                               .d = s->d};
  if (!e.allowed || !e.t || !e.d)
    return atoll_syms_error(k->pool) != ATOLL_OK ? ATOLL_INTERNAL
                                                 : atoll_fail(ATOLL_INTERNAL, "plan: a slice without time expressions");
  return tuner_create(&e, axes, MIST_AXES, fixed, MIST_FIXED, &s->tuner);
}

void mist_slice_destroy(mist_slice **address) {
  if (!address || !*address)
    return;
  tuner_destroy(&(*address)->tuner);
  atoll_syms_destroy(&(*address)->pool);
  free(*address);
  *address = NULL;
}

atoll_err mist_slice_make(const atoll_model *model, int first, int last, atoll_policy policy, memory_moe moe,
                          const interference *f, mist_slice **out) {
  mist_slice *s = NULL;
  ATOLL_TRY(plan_alloc(1, sizeof *s, &s));
  s->first = first;
  s->last = last;
  s->policy = (int)policy;
  atoll_err err;
  ATOLL_TRY_GOTO(err, fail, atoll_syms_create(&s->pool));
  ATOLL_TRY_GOTO(err, fail, memory_model_make(model, s->pool, first, last, policy, moe, &s->memory));
  builder made = {.pool = s->pool}, *k = &made;
  add_mlp_bytes(k, &s->memory);
  k->ranks = atoll_sym_to_real(
      s->pool, atoll_sym_mul(s->pool, atoll_sym_mul(s->pool, fixed_int(k, FIX_DATA), fixed_int(k, FIX_CONTEXT)),
                             fixed_int(k, FIX_EXPERT)));
  if (s->memory.blocks > 0) {
    phase_layer layer;
    block_phases(k, &layer);
    phase_stage(s->pool, f, &layer, atoll_sym_int(s->pool, s->memory.blocks), axis(k, AXIS_RECOMPUTE), &s->phase);
  } else {
    const atoll_sym *nought = real(k, 0);
    s->phase = (phase_times){nought, nought, nought, nought};
  }
  add_edges(k, &s->phase);
  const atoll_sym *steady = plus(k, s->phase.forward, s->phase.backward);
  s->t = atoll_sym_binary(s->pool, ATOLL_SYM_DIV, steady, atoll_sym_to_real(s->pool, fixed_int(k, FIX_DATA)));
  s->d = atoll_sym_sub(s->pool, plus(k, s->phase.first, s->phase.last), steady);
  ATOLL_TRY_GOTO(err, fail, make_tuner(k, s));
  *out = s;
  return ATOLL_OK;
fail:
  mist_slice_destroy(&s);
  return err;
}
