/* Bytes and seconds of a stage as published systems train it: fp16 weights, gradients and activations, fp32 master
 * weights and two moments (12 bytes a parameter), a caching allocator. The bytes are Mist's sums (Zhu et al., EuroSys
 * 2025); what a layer keeps and needs at most is counted from its tensors (below, and in half.c), not measured.
 *
 *   state of kind X = W, G, O:  X_p = X / ranks that share it * (1 - share offloaded);  l layers, p more in flight
 *   buffers:  the largest layer, of W when it is gathered or offloaded, of G likewise, two of each
 *   forward:  buffers + O of one layer + l (W_p + G_p) + (l - 1) O_p + edges;   backward: l (W_p + G_p + O_p) instead
 *   saved:    p (c A1 + (l - c) A0) + what the other layers of this micro-batch have; A1 input, A0 everything
 *   peak:     state + saved + most of one layer or of the head + boundary buffers + scores without flash attention
 *   fits:     peak * fragmentation <= capacity
 *
 * A0 in units of b s h values: inputs of both norms, of q k v and of the MLP, q k v and the projection's input (both
 * cut over tensor ranks), twice the MLP's width (cut), and the probabilities without flash attention: b a s^2 (cut). */
#ifndef ATOLL_PLAN_HALF_H
#define ATOLL_PLAN_HALF_H

#include "cost/phase.h"

typedef struct half_shape {
  int64_t hidden, mlp, layers, heads, seq, vocab;
  int flash;
} half_shape;

typedef struct half_where { /* of a stage in its pipeline */
  int pre, post;            /* has the embedding, the head */
  int pipelined, middle;
} half_where;

/* Ints: b samples of a rank, data, tensor, wre, gre, ore (0, 1: weights, gradients, optimizer are shared out), layers,
 * redone, extra (micro-batches in flight besides the current one), ow, og, oo, oa (eighths in host memory).
 * Reals: seconds of one layer on a rank, as mesh and machine have them: forward, backward, inside (collectives, each
 * way), gather, scatter, reduce (of a layer's parameters), edge_gather, edge_scatter, edge_reduce, edge_forward,
 * edge_backward, send (per micro-batch and boundary, both ways together); in_rate, out_rate [B/s], in_latency,
 * out_latency [s] of the host link; capacity [B]. */
typedef struct half_stage {
  const atoll_sym *peak_forward, *peak_backward, *peak; /* int bytes */
  const atoll_sym *fragmentation;                       /* real factor */
  const atoll_sym *fits;
  const atoll_sym *t, *d; /* of a stage: all its replicas work in step */
} half_stage;

enum {
  HALF_B,
  HALF_DATA,
  HALF_TENSOR,
  HALF_EXTRA,
  HALF_LAYERS,
  HALF_INTS,
  HALF_FORWARD = HALF_INTS,
  HALF_BACKWARD,
  HALF_INSIDE,
  HALF_GATHER,
  HALF_SCATTER,
  HALF_REDUCE,
  HALF_EDGE_GATHER,
  HALF_EDGE_SCATTER,
  HALF_EDGE_REDUCE,
  HALF_EDGE_FORWARD,
  HALF_EDGE_BACKWARD,
  HALF_SEND,
  HALF_IN_RATE,
  HALF_OUT_RATE,
  HALF_IN_LATENCY,
  HALF_OUT_LATENCY,
  HALF_CAPACITY,
  HALF_FIXED
};
enum { HALF_WRE, HALF_GRE, HALF_ORE, HALF_REDONE, HALF_OW, HALF_OG, HALF_OO, HALF_OA, HALF_AXES };
extern const char *const half_fixed_name[HALF_FIXED], *const half_axis_name[HALF_AXES];

atoll_err half_stage_make(atoll_syms *pool, const half_shape *shape, half_where where, const interference *f,
                          half_stage *out);

/* Parameters of a block, of the embedding and of the head, whole. */
int64_t half_block_values(const half_shape *shape);
int64_t half_pre_values(const half_shape *shape);
int64_t half_post_values(const half_shape *shape);

#endif
