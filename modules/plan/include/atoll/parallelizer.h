/** The narrow API between the composer and a parallelizer that plans one model slice on one homogeneous island (Tangram, 2026): enumerate
 *  slice/island pairs, get Pareto points. For people who add a parallelizer. */
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
  int in_flight;            /* micro-batches held at once */
  int64_t micro_batch;      /* samples per micro-batch of the pipeline: the slice's replicas share them */
  int64_t micro_batches;    /* per step, over the whole slice */
  int64_t leaves;           /* of the summation tree */
} atoll_slice_context;

typedef struct atoll_slice_plan { /* one Pareto point */
  int data, tensor, context, expert, zero;
  int policy;
  double t;                 /* steady seconds per micro-batch (of the slice as a whole: replicas divide it) */
  double forward, backward; /* of t, on one replica */
  double d;                 /* extra seconds per step: first and last micro-batch, reduction, update */
  int64_t bytes[ATOLL_MEM_CATEGORIES], bytes_peak;
} atoll_slice_plan;

typedef struct atoll_parallelizer {
  const char *name;
  /** Fills at most cap points, ascending t, none dominated in (t, d, bytes). *n = 0 with OK: nothing fits; then *missing is the fewest bytes
   *  over the limit and `why` (n bytes) names layer and category. epsilon: proved thinning error added to the composer's gap. */
  atoll_err (*plan)(const atoll_plan_problem *problem, const atoll_plan_params *params, atoll_slice slice, atoll_island_shape shape,
                    const atoll_slice_context *context, atoll_slice_plan *out, int cap, int *n, double *epsilon, int64_t *missing, char *why, size_t why_bytes);
} atoll_parallelizer;

extern ATOLL_API const atoll_parallelizer atoll_parallelizer_grid;

ATOLL_END_C
#endif
