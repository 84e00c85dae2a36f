/* What the files of train share. One file, one object:
 *   team      who owns what: groups that sum gradients, partners of tied tensors, who counts which norm
 *   partials  the gradient summation tree while micro-batches are accumulated
 *   flow      one replica's forward and backward of a step, and of a validation, with its messages
 *   record    run.h5 and its attempts
 *   run       the walk of the job and the loop over steps */
#ifndef ATOLL_TRAIN_IMPL_H
#define ATOLL_TRAIN_IMPL_H

#include "atoll/train.h"

#include "atoll/exec.h"
#include "atoll/rundir.h"
#include "atoll/stop.h"

/* Elements of one piece of a tree sum or tied exchange: 4 MiB of f32, so that workspace stays small beside a stage. */
#define TRAIN_PIECE (INT64_C(1) << 20)

/* Tensors a checkpoint holds of each parameter: itself and two moments. */
#define STAGE_STORED 3

/* The kernels that train.kernels names for a device, in the model's dtype. */
atoll_err train_kernels(const atoll_job *job, const atoll_device *device, const atoll_kernels **out);
/* Collective. Whether panels of weights may be kept: plan.pack_weights lets them, and products of all ranks use them.
 */
int train_packs(MPI_Comm comm, const atoll_job *job, const atoll_device *device);

/* ---- partials ---------------------------------------------------------------------------------------------------- */

/* Sums of summation-tree nodes held by this rank, left to right. A node is a range of leaves; each lives in one
 * gradient buffer of the stage. See atoll_comm_tree_sum for the tree. */
typedef struct partial_node {
  int64_t first, count; /* leaves */
  int buffer;           /* gradient buffer of the stage */
} partial_node;

typedef struct partials {
  int64_t leaves, micro_batches;
  int buffers;
  int depth;
  partial_node node[64];
  unsigned char used[64];
} partials;

atoll_err partials_begin(partials *p, int64_t leaves, int64_t micro_batches, int buffers);
/* Buffer that micro-batch g adds to; opens a leaf (zeroing its buffer) when g starts one. Micro-batches come in
 * ascending order. */
atoll_err partials_target(partials *p, atoll_stage *stage, int64_t g, int *buffer);
/* After the backward of g: closes the leaf when g ends it, and merges siblings. */
atoll_err partials_close(partials *p, atoll_stage *stage, const atoll_exec *exec, int64_t g);

/* ---- team -------------------------------------------------------------------------------------------------------- */

typedef struct team_range {
  int64_t offset, count; /* elements of the flat gradient */
} team_range;

#define TEAM_RANGES 8

typedef struct team_segment { /* layers whose set of owners is the same */
  int first, last;
  atoll_comm *comm; /* its owners of this tensor rank; NULL when this rank is not one, or the only one */
  team_range range[TEAM_RANGES];
  int ranges;
} team_segment;

/* A rank's share of a parameter among those who hold the same of it: all owners, or where tensor ranks divide it those
 * of one tensor rank. */
typedef struct team_part {
  int part, parts; /* parts 0: no owner */
  int divided;
} team_part;

typedef struct team {
  int rank, size;
  int segments;
  team_segment *segment;
  team_part *share; /* per model parameter: in writing a checkpoint; part 0 tells the norm */
  /* Tied tensor whose other use lives elsewhere. */
  int tied_from;             /* rank that sends the other use's sum here, or -1 */
  int tied_to[64], tied_tos; /* ranks that take a sum from this one */
  int tied_use[64];          /* what they want: 1 the second use (head), 0 the first (embedding) */
  float *work;               /* tree-sum workspace */
  int64_t work_elements;
} team;

/* Collective on world. */
atoll_err team_create(atoll_comm *world, const atoll_plan *plan, const atoll_model *model, atoll_stage *stage,
                      const atoll_exec *exec, team *t);
void team_destroy(team *t, const atoll_exec *exec);
/* Collective: sums gradients over all owners; the result lies in gradient buffer *buffer. */
atoll_err team_reduce(team *t, atoll_comm *world, const atoll_exec *exec, atoll_stage *stage, partials *p, int *buffer,
                      double *tied_seconds);
/* Elements of tree-sum workspace that a replica's rank takes. */
int64_t team_work_elements(const atoll_plan *plan, int pipeline, int stage);
int team_holds(const atoll_plan_stage *stage, int layer);
/* Ranks that own a layer, of one tensor rank or (-1) of all. Fills at most cap, returns how many there are. */
int team_owners(const atoll_plan *plan, int layer, int tensor_rank, int *ranks, int cap);
/* Largest tensor degree of a replica that holds the layer; of any replica when layer < 0. */
int team_degree(const atoll_plan *plan, int layer);
atoll_mlp team_mlp(const atoll_plan *plan, int layer);
/* owners: scratch of cap entries. */
atoll_err team_share(const atoll_plan *plan, const atoll_model *model, int param, int rank, int *owners, int cap,
                     team_part *out);

/* ---- flow -------------------------------------------------------------------------------------------------------- */

typedef struct flow flow;

typedef struct flow_params {
  const atoll_plan *plan;
  atoll_plan_place place;
  const atoll_model *model;
  atoll_stage *stage;
  atoll_exec exec;
  atoll_comm *world;
  const atoll_data *train, *validation;
  uint64_t seed;
} flow_params;

typedef struct flow_times {
  double forward, backward, wait, data; /* s, summed over the step */
  int64_t forwards, backwards;
} flow_times;

atoll_err flow_create(const flow_params *p, flow **out);
void flow_destroy(flow **address);
/* One step's micro-batches; losses[g] receives the sum over the micro-batch's tokens where this rank holds the head. */
atoll_err flow_step(flow *x, int64_t step, partials *sums, double *losses, flow_times *times);
/* Validation windows [0, windows): loss_sum and token counts of the micro-batches this rank's head saw, by round and
 * micro-batch. */
atoll_err flow_validate(flow *x, int64_t rounds, int64_t windows, double *losses, double *tokens);
/* Bytes by category for a place, as flow_create takes them. */
atoll_err flow_bytes(const atoll_plan *plan, const atoll_model *model, int pipeline, int stage, int replica,
                     int64_t bytes[ATOLL_MEM_CATEGORIES]);

#endif
