/* Large clusters and targets beyond train: plans whose stages stand on parts of islands.
 *
 *   pools   islands that are alike as one pool, ways to make a stage of them, slices through the parallelizer
 *   parts   islands of unequal nodes, cut into parts of equal ones
 *   copies  parts of the cluster that are alike, for several copies of a pipeline
 *   chain   the best chain of stages of one micro-batch size and data degree, by the engine
 *   large   the walk over micro-batch sizes and data degrees, shared by ranks
 *   realize a composition as a plan, with its simulated time; price; why devices are idle */
#ifndef ATOLL_PLAN_LARGE_H
#define ATOLL_PLAN_LARGE_H

#include "compose/compose.h"
#include "engine/engine.h"

#define LARGE_POINTS 64 /* most points taken from a parallelizer */
#define LARGE_COPIES 8  /* most numbers of copies that are tried */
#define LARGE_VIEWS  (LARGE_COPIES + 1)

typedef struct large_pool { /* islands that are alike: class, size, links, zone, price */
  int islands, *island;     /* [islands] */
  int per_island, per_node; /* devices; of a node: the greatest number that divides every node's */
  int node;                 /* one of its nodes */
  double price;             /* per second and device; NaN unknown */
} large_pool;

typedef struct large_kind { /* a stage: `data` replicas of `tensor` devices on one island of the pool */
  int pool, tensor;
  double latency, rate; /* of sums over all copies [s, bytes/s]; rate NaN: not known yet */
} large_kind;

typedef struct combination { /* copies of the pipeline, samples per micro-batch and data degree of every stage */
  struct large *x;           /* the part of the cluster for one copy */
  int64_t b, G, leaves;
  int64_t most;    /* micro-batches of the busiest column */
  int D, partials; /* of a copy; most gradient buffers of any column */
  double seconds;  /* no plan is faster */
  double bound;    /* no plan has less value: seconds, or the rent of what computes while it computes */
  double value;    /* s or price of the best plan found; INFINITY none */
  double least;    /* proved bound of the value */
  int in_turn;     /* 0: no more work is spent on it */
  engine_plan *plan;
} combination;

typedef struct large {
  composer *c;
  void *state;           /* of the parallelizer */
  int copies;            /* of the pipeline; with several, pools hold what the first copy may use */
  int *peer;             /* [copies][islands]: of the first copy's islands, their images */
  int islands, *devices; /* the cluster's, or parts of them (parts.c): [islands] */
  int **device;          /* [islands][devices], by node */
  int *home;             /* [islands]: the cluster's island that holds this one */
  int number;            /* 0: the cluster, 1 ...: a view of it */
  int views;             /* other ways to see the cluster: same fields, no combinations of their own */
  struct large *view;    /* [LARGE_VIEWS] */
  int pools;
  large_pool *pool;
  int kinds;
  large_kind *kind; /* grouped by pool */
  int combinations;
  combination *combination; /* by rising bound */
  int cheapest;             /* plan.objective=price */
  double max_seconds;       /* of plan.min_throughput */
  int64_t missing;          /* fewest bytes over the limit of a slice that does not fit, and which */
  double epsilon;           /* most that any frontier was thinned by, relative */
  char why[256];
} large;

typedef struct large_choice {
  atoll_plan *plan;
  const combination *at;
  double composed;              /* least value by the formula of chain.c, before simulation; NaN none */
  double price, transfer_price; /* NaN unknown */
  int idle_count;
  char (*idle)[384]; /* free() */
  int copies;
} large_choice;

/* Collective when comm is not MPI_COMM_NULL: ranks share the combinations and all choose the same plan. */
atoll_err large_make(composer *c, MPI_Comm comm, large_choice *out);

atoll_err pools_find(large *x);
void pools_free(large *x);
static inline const atoll_island *large_home(const large *x, int island) {
  return &x->c->problem->islands->island[x->home[island]];
}
/* Replicas of a stage, of all copies. */
static inline int large_width(const combination *at) { return at->D * at->x->copies; }
/* Whether the islands of two pools have the same slices. */
int pools_alike(const large *x, int p, int q);
/* The parallelizer's answer for a stage that holds in_flight micro-batches; *n = 0: nothing fits. */
atoll_err pools_ask(large *x, const combination *at, int kind, int first, int last, int64_t in_flight,
                    atoll_slice_plan *point, int *n);
/* The fastest answers, each with the most micro-batches in flight that it holds, least seconds first. */
atoll_err pools_points(large *x, const combination *at, int kind, int first, int last, engine_point out[ENGINE_POINTS],
                       int *n);
/* Seconds of one micro-batch of a column over the boundary between stages on two pools, there and back. */
atoll_err pools_send(const large *x, const combination *at, int p, int q, double *seconds);
/* What stages of unequal tensor degrees add to both ways of such a boundary of so many bytes. */
double pools_hand_on(const large *x, int from, int to, int64_t bytes);
/* Seconds to swap the gradients of tensors that the first stage, on p, and the last, on q, share. */
double pools_swap(const large *x, int p, int q);
/* Money for what one step moves between stages on two pools, and of a whole chain. */
double pools_money(const large *x, const combination *at, int p, int q);
double pools_transfer(const large *x, const combination *at, const engine_plan *plan);

/* The cluster's islands as they are; and, as one more view, cut into parts of equal nodes where nodes are unequal. */
atoll_err parts_whole(large *x);
atoll_err parts_find(large *x);
/* The part or island that holds a replica. */
int parts_of(const large *x, const atoll_plan_replica *r);
/* Views of the cluster for several copies. */
atoll_err copies_find(large *x);
void views_free(large *x);
/* Where a copy has what the first has on this island. */
int copies_island(const large *x, int copy, int island);
/* What the sum of a slice's gradients over all copies takes beyond that over one. */
atoll_err copies_extra(const large *x, const combination *at, large_kind *kind, int first, int last, double *seconds);
/* Money for what these sums move between zones in a step. */
double copies_money(const large *x, const combination *at);

/* A good chain of stages of one combination whose value is at most limit, into at->plan where it beats what that holds;
 * and, unless first plans alone are asked for, what no chain beats, or the limit: at->least. */
atoll_err chain_solve(combination *at, double limit, engine_part part, int64_t work);

/* The plan of a composition; step_seconds by simulation. price NaN when unknown. */
atoll_err realize(const combination *at, const engine_plan *composition, atoll_plan **out, double *price);
/* Sentences on islands that are not used whole. */
atoll_err realize_idle(large *x, const combination *at, const atoll_plan *plan, large_choice *out);

#endif
