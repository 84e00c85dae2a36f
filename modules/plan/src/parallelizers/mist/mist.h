/* What mist knows of a slice and of the ways to lay it over devices. Shared by its files. */
#ifndef ATOLL_PLAN_MIST_H
#define ATOLL_PLAN_MIST_H

#include "atoll/parallelizer.h"
#include "cost/collective.h"
#include "cost/cost.h"
#include "cost/memory.h"
#include "cost/phase.h"
#include "tuner/tuner.h"

/* Axes of the tuner, in its order; the last is fastest. */
enum { AXIS_ZERO, AXIS_RECOMPUTE, AXIS_WEIGHTS, AXIS_GRADIENTS, AXIS_OPTIMIZER, AXIS_ACTIVATIONS, MIST_AXES };

/* What is fixed while these vary. Ints first, for bytes; then seconds, of one block unless they say edge, which are of
 * embedding and head together. */
enum {
  FIX_B,
  FIX_S,
  FIX_SLOTS,
  FIX_PARTIALS,
  FIX_DATA,
  FIX_TENSOR,
  FIX_CONTEXT,
  FIX_EXPERT,
  FIX_SEQUENCE,
  FIX_HOST_LIMIT,
  FIX_MLP_BYTES, /* of pipelined MLPs beyond plain ones */
  MIST_INTS,
  FIX_FORWARD = MIST_INTS,
  FIX_BACKWARD,
  FIX_UPDATE,
  FIX_PACK, /* weights of a pipelined MLP, by every rank once a step */
  FIX_FORWARD_INSIDE,
  FIX_BACKWARD_INSIDE,
  FIX_GATHER,
  FIX_SCATTER,
  FIX_REDUCE,
  FIX_IN_WEIGHTS, /* whole, of parameters as they are on one rank without ZeRO */
  FIX_IN_SAVED,
  FIX_IN_INPUT,
  FIX_OUT_SHARE, /* seconds out over seconds in */
  FIX_EDGE_FORWARD,
  FIX_EDGE_BACKWARD,
  FIX_EDGE_UPDATE,
  FIX_EDGE_GATHER,
  FIX_EDGE_SCATTER,
  FIX_EDGE_REDUCE,
  MIST_FIXED
};

extern const char *const mist_axis_name[MIST_AXES], *const mist_fixed_name[MIST_FIXED];

typedef struct mist_slice { /* expressions of one distinct slice and policy */
  int first, last, policy;
  atoll_syms *pool;
  memory_model memory;
  phase_times phase;      /* of the blocks and the edges */
  const atoll_sym *t, *d; /* t: of the slice as a whole, its replicas divide it */
  tuner *tuner;
} mist_slice;

atoll_err mist_slice_make(const atoll_model *model, int first, int last, atoll_policy policy, memory_moe moe,
                          const interference *f, mist_slice **out);
void mist_slice_destroy(mist_slice **slice);

typedef struct mist_mesh { /* degrees, in device order: tensor fastest, then context, expert, data */
  int data, tensor, context, expert;
  tuner_fixed fixed[MIST_FIXED];
  atoll_cost_source source;
} mist_mesh;

typedef struct mist_place { /* where a mesh stands */
  const atoll_plan_problem *problem;
  cost_model *cost;
  atoll_island_shape shape;
  const int *node;  /* [devices]: topology node of each */
  int64_t host;     /* bytes of host memory per device; 0: it is the device's own */
  double host_rate; /* B/s each way */
  memory_moe moe;
  atoll_mlp mlp; /* of blocks on tensor ranks, without experts */
} mist_place;

/* Fills mesh->fixed for degrees that are set. */
atoll_err mist_mesh_price(const mist_place *place, const mist_slice *slice, const atoll_slice_context *x,
                          mist_mesh *mesh);

#endif
