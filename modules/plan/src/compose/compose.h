/* The composer's objects. Small clusters are searched device by device (space, search); large ones, and targets and
 * objectives beyond train's, by parts of islands (large.h).
 *
 *   space     which shapes there are: micro-batch, depth, and for every replica column its islands and its share
 *   search    the best layer split and policies of one shape
 *   build     a shape and a split as a plan, with its predictions
 *   compose   the walk over shapes; report and infeasibility */
#ifndef ATOLL_PLAN_COMPOSE_H
#define ATOLL_PLAN_COMPOSE_H

#include <mpi.h>

#include "cost/cost.h"
#include "plan_impl.h"
#include "simulate/flow.h"

/* ---- composer ---------------------------------------------------------------------------------------------------- */

#define POINT_MAX 4

typedef struct stage_place { /* what a replica of a stage stands on: `tensor` devices of one node of an island */
  int island, tensor;
  int degree; /* index of tensor among the composer's degrees */
} stage_place;

typedef struct slice_time {        /* a slice on one place, or why not */
  double forward, backward, extra; /* s; extra per step */
  int64_t over;                    /* bytes over the limit; <= 0 fits */
  atoll_cost_source source;
} slice_time;

typedef struct slice_table { /* all distinct slices in one context */
  int64_t b;
  int place, policy, slots, partials;
  slice_time *slice; /* [reps] */
} slice_table;

typedef struct column_type { /* places of a replica column, stage by stage */
  int stages;
  short *place; /* [stages] */
  int *count;   /* [places]: stages on it */
  int *used;    /* [islands]: devices */
} column_type;

typedef struct shape {
  double bound; /* no plan of this shape is faster */
  double best;  /* fastest found; INFINITY none yet */
  int64_t b, G, leaves;
  int S, D;
  int tensor;     /* largest degree of any stage */
  int relaxed;    /* the bound is search.c's */
  int solved;     /* 1 searched to the end, 2 stopped at the limit */
  int principal;  /* all columns alike */
  size_t columns; /* into composer.column: D pairs (type, leaves) */
} shape;

typedef struct note { /* an alternative, for the report */
  int S, D, tensor;
  int64_t b;
  double seconds; /* NaN: does not fit */
  char text[256];
} note;

typedef struct composer {
  const atoll_plan_problem *problem;
  const atoll_plan_params *params;
  const atoll_parallelizer *parallelizer;
  int monotone; /* longer slices take longer and need more, which bounds may use; unknown of programs */
  atoll_plan_params one_policy[ATOLL_POLICIES];
  void *state[ATOLL_POLICIES]; /* the parallelizer, asked for one policy at a time; NULL: policy not allowed */
  int only_policy;             /* 1 + the only one that stages may have; 0 any */
  cost_model *cost;
  int layers, islands, world;
  atoll_digest model_digest, islands_digest;
  int *devices;       /* [islands]: how many take part */
  int **device;       /* [islands][devices]: topology index, by node */
  int *rank_of;       /* [topology devices]: rank, or -1 */
  stage_place *place; /* by rising tensor degree */
  int places_known;   /* all there are */
  int places;         /* of these, what space enumerates */
  int *degree;        /* tensor degrees that any place has, ascending */
  int degrees;        /* that space enumerates */
  int reps;
  int *rep; /* [layers + 1][layers + 1] */
  int *rep_first, *rep_last;
  int64_t *rep_gradient; /* [degrees][reps]: bytes */
  int fullest_node;      /* most devices on one node */
  slice_table *table;
  int tables, table_room;
  int *bucket; /* [bucket_count]: hashed places of tables; -1 empty */
  size_t bucket_count;
  double *cheapest; /* [islands][islands] at cheapest_bytes; NaN not asked yet */
  int64_t cheapest_bytes;
  column_type *type;
  int types, type_room;
  int *column;
  size_t columns, column_room;
  shape *shape;
  int shapes, shape_room;
  int exact;      /* the search device by device has been made */
  int followed;   /* another search comes after this one, which may give up without a plan */
  double dropped; /* least bound among shapes that were not kept; INFINITY: all were kept */
  int *fixed_cut; /* [stages + 1] when plan.layers is given */
  int fixed_stages;
  /* incumbent */
  atoll_plan *best;
  double best_seconds;
  double alike; /* relative: plans this much slower were held to be as fast; 0 when the choice did not need it */
  /* accounts */
  int64_t work, considered, infeasible;
  note *notes;
  int note_count, note_room;
  int64_t extra; /* most that extra_bytes adds to a stage of a plan by parts of islands that does not fit with it */
  int64_t least_over; /* over the limit, of the plan nearest to fitting */
  char tightest[512];
} composer;

/* ---- space ------------------------------------------------------------------------------------------------------- */

/* Places, when devices are known. */
atoll_err space_places(composer *c);
/* The place of so many devices of an island, or -1. */
int space_find_place(const composer *c, int island, int tensor);
/* Checks plan.* against the cluster and the model: USAGE names the option. */
atoll_err space_check(composer *c);
/* Appends shapes: those whose columns are alike (principal 1), or the others (0). Shapes bounded by best are left out.
 */
atoll_err space_shapes(composer *c, int principal);
int64_t space_leaves(const composer *c, int64_t G, int D);

/* ---- search ------------------------------------------------------------------------------------------------------ */

/* Sharpens the bound of a shape and, unless bound_only, finds its best plan: into c->best when it beats it. May spend
 * `work` at most. */
atoll_err search_shape(composer *c, shape *s, int bound_only, int64_t work);

/* A slice of one policy on a place, by the parallelizer; over > 0: it does not fit. */
atoll_err search_slice(composer *c, int64_t b, int place, int policy, int slots, int partials, int first, int last,
                       slice_time *out);

/* ---- build ------------------------------------------------------------------------------------------------------- */

/* Columns of a shape. */
static inline const column_type *build_type(const composer *c, const shape *s, int column) {
  return &c->type[c->column[s->columns + 2 * (size_t)column]];
}
static inline const stage_place *build_place(const composer *c, const shape *s, int column, int stage) {
  return &c->place[build_type(c, s, column)->place[stage]];
}

/* Whether nodes have room for a shape, in either layout. */
atoll_err build_fits(composer *c, const shape *s, int *fits);
/* A plan of one pipeline whose stages are to be filled in. source: who planned its slices. */
atoll_err build_open(const composer *c, int stages, int64_t micro_batches, int64_t leaves, const char *source,
                     atoll_plan **out);
/* layout 0: neighbours in an island's list are stages of one column; 1: replicas of one stage. *out NULL: nodes have no
 * room for it. */
atoll_err build_plan(composer *c, const shape *s, const int *cut, const int *policy, int layout, atoll_plan **out);
/* Fills the predicted times; final adds what a search does not need: sends and the share of communication. */
atoll_err build_times(composer *c, atoll_plan *plan, int final);
/* Fills the predicted bytes; *over is the most that any replica has over its limit (<= 0: fits), then named in where.
 */
atoll_err build_bytes(composer *c, atoll_plan *plan, int64_t *over, char *where, size_t n);
/* Has stages keep panels of their weights where it helps and fits, in a plan whose bytes are filled in. */
atoll_err build_packed(composer *c, atoll_plan *plan);
/* Fills send_seconds of a pipeline. */
void build_sends(composer *c, atoll_plan *plan, int p);
/* `last` or, where later, the end of the swap of tied gradients; end[]: of each stage, pipeline-major. */
double build_tied_end(composer *c, const atoll_plan *plan, const double *end, double last);
/* "2 stages x 3, micro-batch 4, layers 0-5 | 6-13 on a | b" */
void build_describe(const composer *c, const shape *s, const int *cut, const int *policy, char *buf, size_t n);

/* ---- compose ----------------------------------------------------------------------------------------------------- */

/* "layer 5 (head) fits nowhere: ...", naming its bytes and the largest device; empty when every layer alone fits on
 * one. */
atoll_err compose_nowhere(const composer *c, char *text, size_t n);

/* When no plan with the micro-batch that was asked for fits (err: INFEASIBLE), the largest smaller one that does joins
 * the message. Local; returns err. */
atoll_err compose_say_batch(const atoll_plan_problem *problem, const atoll_plan_params *params, int world,
                            atoll_err err);

/* The largest tensor degree of the stages of a plan. */
int compose_tensor(const atoll_plan *plan);
void compose_note(composer *c, const shape *s, double seconds, const char *text);
#define COMPOSE_SLACK 1e-9 /* relative: closer than this is equal */

#define COMPOSE_EXACT_DEVICES  64 /* beyond, the search device by device finds little in its allowance */
#define COMPOSE_TENSOR_DEVICES 24 /* beyond, tensor degrees are left to the search by parts of islands */

/* atoll_plan_make with the number of ranks: world = 0 takes it from the topology. Collective on comm unless that is
 * MPI_COMM_NULL; then *out and *report are set on rank 0 alone. */
atoll_err compose_make(const atoll_plan_problem *problem, const atoll_plan_params *params, int world, MPI_Comm comm,
                       atoll_plan **out, atoll_plan_report **report);

#endif
