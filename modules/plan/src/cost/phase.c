#include "cost/phase.h"

/* Builds over one pool. NULL stands for an empty stream (zero seconds) everywhere. */
typedef struct builder {
  atoll_syms *pool;
  const interference *f;
} builder;

static const atoll_sym *plus(const builder *k, const atoll_sym *a, const atoll_sym *b) {
  return !a ? b : !b ? a : atoll_sym_add(k->pool, a, b);
}

static const atoll_sym *or_zero(const builder *k, const atoll_sym *a) { return a ? a : atoll_sym_real(k->pool, 0); }

static const atoll_sym *streams(const builder *k, const atoll_sym *compute, const atoll_sym *peers, const atoll_sym *in,
                                const atoll_sym *out) {
  const atoll_sym *x[STREAMS] = {compute, peers, in, out};
  return interference_sym(k->pool, k->f, x);
}

/* c ? a : b, either of them empty. */
static const atoll_sym *choose(const builder *k, const atoll_sym *c, const atoll_sym *a, const atoll_sym *b) {
  return !a && !b ? NULL : atoll_sym_select(k->pool, c, or_zero(k, a), or_zero(k, b));
}

static const atoll_sym *count(const builder *k, const atoll_sym *n, const atoll_sym *seconds) {
  return atoll_sym_mul(k->pool, atoll_sym_to_real(k->pool, n), seconds);
}

static const atoll_sym *integer(const builder *k, int64_t v) { return atoll_sym_int(k->pool, v); }

static const atoll_sym *at_least(const builder *k, const atoll_sym *a, const atoll_sym *b) {
  return atoll_sym_binary(k->pool, ATOLL_SYM_LE, b, a);
}

/* Forward through l layers: load, [compute + load], (l - 2) x [compute + load + drain], [compute + drain], drain. The
 * drains before layer i are those of layer i - 1, done again when i - 1 < c. */
static const atoll_sym *forward(const builder *k, const atoll_sym *compute, const atoll_sym *peers, const atoll_sym *in,
                                const atoll_sym *out_state, const atoll_sym *const saved[2], const atoll_sym *l,
                                const atoll_sym *c) {
  const atoll_sym *out[2] = {plus(k, out_state, saved[0]), plus(k, out_state, saved[1])};
  const atoll_sym *inner = atoll_sym_sub(k->pool, l, integer(k, 2));
  const atoll_sym *redone = atoll_sym_binary(k->pool, ATOLL_SYM_MIN, c, inner);
  const atoll_sym *kept = atoll_sym_sub(k->pool, inner, redone);
  const atoll_sym *many = streams(k, compute, peers, in, NULL);
  many = atoll_sym_add(k->pool, many, count(k, redone, streams(k, compute, peers, in, out[1])));
  many = atoll_sym_add(k->pool, many, count(k, kept, streams(k, compute, peers, in, out[0])));
  const atoll_sym *before_last = at_least(k, c, atoll_sym_sub(k->pool, l, integer(k, 1)));
  many = atoll_sym_add(k->pool, many, streams(k, compute, NULL, NULL, choose(k, before_last, out[1], out[0])));
  const atoll_sym *sum = atoll_sym_select(k->pool, at_least(k, l, integer(k, 2)), many, or_zero(k, compute));
  sum = atoll_sym_add(k->pool, sum, streams(k, NULL, peers, in, NULL));
  return atoll_sym_add(k->pool, sum, streams(k, NULL, NULL, NULL, choose(k, at_least(k, c, l), out[1], out[0])));
}

/* Backward from layer l - 1 to 0. Layer i computes longer when i < c and meanwhile loads what layer i - 1 saved. Of the
 * layers 1 .. l - 2: c - 1 are redone and so is the next; one (i = c) is not but the next is; the rest are neither. */
static const atoll_sym *backward(const builder *k, const atoll_sym *const compute[2], const atoll_sym *gather,
                                 const atoll_sym *scatter, const atoll_sym *in_state, const atoll_sym *const saved[2],
                                 const atoll_sym *out, const atoll_sym *l, const atoll_sym *c) {
  const atoll_sym *in[2] = {plus(k, in_state, saved[0]), plus(k, in_state, saved[1])};
  const atoll_sym *peers = plus(k, gather, scatter), *one = integer(k, 1), *zero = integer(k, 0);
  const atoll_sym *inner = atoll_sym_sub(k->pool, l, integer(k, 2)), *short_of = atoll_sym_sub(k->pool, l, one);
  const atoll_sym *both =
      atoll_sym_max(k->pool, zero, atoll_sym_binary(k->pool, ATOLL_SYM_MIN, atoll_sym_sub(k->pool, c, one), inner));
  const atoll_sym *border = atoll_sym_select(
      k->pool, atoll_sym_binary(k->pool, ATOLL_SYM_AND, at_least(k, c, one), at_least(k, inner, c)), one, zero);
  const atoll_sym *neither = atoll_sym_sub(k->pool, atoll_sym_sub(k->pool, inner, both), border);
  const atoll_sym *all = at_least(k, c, l), *all_but_last = at_least(k, c, short_of), *some = at_least(k, c, one);
  const atoll_sym *many =
      streams(k, choose(k, all, compute[1], compute[0]), gather, choose(k, all_but_last, in[1], in[0]), NULL);
  many = atoll_sym_add(k->pool, many, count(k, both, streams(k, compute[1], peers, in[1], out)));
  many = atoll_sym_add(k->pool, many, count(k, border, streams(k, compute[0], peers, in[1], out)));
  many = atoll_sym_add(k->pool, many, count(k, neither, streams(k, compute[0], peers, in[0], out)));
  many = atoll_sym_add(k->pool, many, streams(k, choose(k, some, compute[1], compute[0]), scatter, NULL, out));
  const atoll_sym *sum = atoll_sym_select(k->pool, at_least(k, l, integer(k, 2)), many,
                                          or_zero(k, choose(k, some, compute[1], compute[0])));
  sum = atoll_sym_add(k->pool, sum, streams(k, NULL, gather, choose(k, all, in[1], in[0]), NULL));
  return atoll_sym_add(k->pool, sum, streams(k, NULL, scatter, NULL, out));
}

void phase_stage(atoll_syms *pool, const interference *f, const phase_layer *y, const atoll_sym *l, const atoll_sym *c,
                 phase_times *out) {
  const builder made = {pool, f}, *k = &made;
  const atoll_sym *back[2] = {y->backward, plus(k, y->backward, y->forward)};
  const atoll_sym *in = plus(k, y->in_weights, y->in_gradients);
  const atoll_sym *inside = count(k, l, or_zero(k, y->forward_inside));
  const atoll_sym *inside_back =
      atoll_sym_add(pool, count(k, l, or_zero(k, y->backward_inside)), count(k, c, or_zero(k, y->forward_inside)));
  out->forward = plus(k, forward(k, y->forward, y->gather_steady, y->in_weights, NULL, y->out_saved, l, c), inside);
  out->first =
      plus(k,
           forward(k, plus(k, y->forward, y->update), y->gather_updated, plus(k, y->in_optimizer, y->in_gradients),
                   plus(k, y->out_optimizer, y->out_weights), y->out_saved, l, c),
           inside);
  out->backward = plus(
      k, backward(k, back, y->gather_steady, y->scatter_steady, in, y->in_saved, y->out_gradients, l, c), inside_back);
  out->last = plus(k, backward(k, back, y->gather_steady, y->reduce_last, in, y->in_saved, y->out_gradients, l, c),
                   inside_back);
}
