/** The narrow API between the composer and a parallelizer that plans one model slice on one homogeneous island
 * (Tangram, 2026): enumerate slice/island pairs, get Pareto points. For people who add a parallelizer. */
#ifndef ATOLL_PARALLELIZER_H
#define ATOLL_PARALLELIZER_H

#include "atoll/plan.h"

ATOLL_BEGIN_C

typedef struct atoll_slice {
  int first, last; /* layers */
} atoll_slice;

typedef struct atoll_island_shape { /* a part of an island: `nodes` nodes of `per_node` devices */
  int island;
  int nodes, per_node;
} atoll_island_shape;

typedef struct atoll_slice_context {
  int in_flight;         /* micro-batches held at once by a replica */
  int partials;          /* gradient buffers of a replica for the summation tree, most of any */
  int leaves;            /* of that tree, most of any replica; each is cleared and added; 0: left out of d */
  int64_t micro_batch;   /* samples per micro-batch of the pipeline */
  int64_t micro_batches; /* per step, over the whole slice: its replicas share them */
  int data;              /* 0: any; else only points of this data degree, because the neighbours need it */
} atoll_slice_context;

/** One Pareto point. The devices of the shape are data * tensor * context * expert, in that sense: `data` replicas,
 * each of tensor * context * expert ranks that work on one micro-batch together. Inside a replica tensor ranks hold
 * parts of every matrix, context ranks parts of every sequence, expert ranks parts of the samples and of the experts. A
 * slice without experts has expert 1. */
typedef struct atoll_slice_plan {
  int data, tensor, context, expert;
  int zero;              /* ZeRO stage 0..3 over the ranks that hold equal parameters */
  int sequence_parallel; /* bool; activations outside the matrices are cut over tensor ranks too */
  int policy;            /* atoll_policy of every layer */
  int recompute;         /* the first so many layers of the slice keep their input only and run forward again */
  /* Shares kept in host memory, 0..1. */
  double offload_weights, offload_gradients, offload_optimizer, offload_activations;
  double t;                 /* steady seconds per micro-batch (of the slice as a whole: replicas divide it) */
  double forward, backward; /* of one micro-batch on one replica */
  double d;                 /* extra seconds per step: what the first forward and last backward of a step take beyond
                               steady ones (reduction among replicas, update, transfers of its state) */
  int64_t bytes[ATOLL_MEM_CATEGORIES], bytes_peak, bytes_limit; /* per rank */
  int64_t bytes_host;                                           /* of its shares in host memory, per rank */
  atoll_cost_source source;                                     /* of the times */
} atoll_slice_plan;

/** An implementation. `begin` is called once per search and borrows problem and params until `end`; state is the
 * implementation's. */
typedef struct atoll_parallelizer {
  const char *name;
  atoll_err (*begin)(const atoll_plan_problem *problem, const atoll_plan_params *params, void **state);
  /** Fills at most cap points, ascending t, none dominated in (t, d, bytes). *n = 0 with OK: nothing fits; then
   * *missing is the fewest bytes over the limit and `why` (why_bytes) names layers and the largest category. *epsilon:
   * proved thinning error, added to the composer's gap. */
  atoll_err (*plan)(void *state, atoll_slice slice, atoll_island_shape shape, const atoll_slice_context *context,
                    atoll_slice_plan *out, int cap, int *n, double *epsilon, int64_t *missing, char *why,
                    size_t why_bytes);
  void (*end)(void **state);
  /** May be NULL. These slices will be asked for next: who waits for somebody else's answers asks for all at once. */
  atoll_err (*prepare)(void *state, const atoll_slice *slice, int slices, atoll_island_shape shape,
                       const atoll_slice_context *context);
  /** May be NULL. Who planned so far, for the plan's source, when that is not just `name`; borrowed from state. */
  const char *(*source)(const void *state);
} atoll_parallelizer;

/** Uniform degrees: one data-parallel degree over the shape's devices, one policy per slice. */
extern ATOLL_API const atoll_parallelizer atoll_parallelizer_grid;
/** Data, tensor, context and expert degree, ZeRO stage, layers done again and offloaded shares together (Zhu et al.,
 * Mist, EuroSys 2025); for plan.target=train what grid proposes. Options plan.experts and plan.expert_top make every
 * block's MLP a mixture of experts. */
extern ATOLL_API const atoll_parallelizer atoll_parallelizer_mist;

ATOLL_END_C
#endif
