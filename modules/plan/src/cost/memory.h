/* Bytes of a rank that runs layers [first, last), as int expressions. With one rank per replica, no sharding, no
 * offload and nothing done again they are, category by category, what atoll_stage_bytes() counts: the same pieces are
 * added up, from layer's own expressions. The other axes generalise that:
 *
 *   tensor    matrices of blocks and the activations between them are cut; norms, embedding, head and the residual
 *             stream are whole (with sequence_parallel the residual stream is cut too)
 *   context   every sequence is cut;   expert: a replica's samples are, and its experts are dealt out
 *   zero      optimizer (1), gradients (2), parameters (3) are dealt out over the ranks with equal ones: data x context
 *             (x expert, outside the experts); what is gathered or reduced needs two buffers of the largest layer
 * (COMM) offload   eighths of each kind are in host memory; the largest layer's optimizer state and saved bytes come
 * back for their turn recompute the first layers keep their input; one of them at a time has its saved bytes again
 * (WORKSPACE)
 *
 * Arenas are sized exactly and hold no caching allocator, so there is no fragmentation term; plan.memory_share leaves
 * room for what is not counted. */
#ifndef ATOLL_PLAN_MEMORY_H
#define ATOLL_PLAN_MEMORY_H

#include "atoll/layer.h"
#include "atoll/mem.h"

typedef struct memory_moe { /* every block's MLP as experts; experts 0: a plain MLP */
  int64_t experts, top_k;
} memory_moe;

/* Variables of the expressions, all int: B samples of a micro-batch, S tokens, slots (micro-batches in flight),
 * partials (gradient buffers), data, tensor, context, expert, zero, sequence_parallel (0, 1), recompute (blocks done
 * again), offload_weights, offload_gradients, offload_optimizer, offload_activations (eighths). */
typedef struct memory_model {
  const atoll_sym *bytes[ATOLL_MEM_CATEGORIES], *peak, *host;
  /* Of one rank, for times: parameters of all layers as if ZeRO dealt none out, their parts that are experts and
   * outside the blocks; saved bytes per block, [1] when it is done again. */
  const atoll_sym *parameters, *expert_parameters, *edge_parameters, *saved[2];
  int blocks; /* of the slice */
} memory_model;

atoll_err memory_model_make(const atoll_model *model, atoll_syms *pool, int first, int last, atoll_policy policy,
                            memory_moe moe, memory_model *out);

#endif
