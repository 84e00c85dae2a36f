/* The heart of the simulator: micro-batches through one pipeline. What follows after it (sums, update) is in sync.c;
 * results for others in simulate.c, trace.c and gantt.c. */
#ifndef ATOLL_PLAN_SIMULATE_FLOW_H
#define ATOLL_PLAN_SIMULATE_FLOW_H

#include "atoll/simulate.h"
#include "cost/cost.h"
#include "plan_impl.h"

/* Where events go. */
typedef struct flow_record {
  int64_t events, room;
  atoll_sim_event *event;
} flow_record;
atoll_err flow_add(flow_record *record, const atoll_sim_event *event);

typedef struct flow_params {
  const cost_model *cost;            /* of messages; NULL: by send_seconds of the plan */
  cost_model *slices;                /* divides a replica's times over its chunks; NULL: by number of layers */
  const atoll_plan_problem *problem; /* NULL exactly when cost is */
  const atoll_plan *plan;
  int sends;                      /* 0: messages take no time */
  int unit;                       /* 1: every forward and backward takes a second, only the order is of interest */
  const atoll_sim_copies *copies; /* of the pipeline's replicas, in order; NULL: none */
  flow_record *record;            /* NULL: no events */
  int first_replica;              /* index of the pipeline's first replica, for events */
} flow_params;

/* Forwards of a pipeline, most that are simulated. */
#define FLOW_ACTIONS_MOST (INT64_C(1) << 28)

/* The pipeline's step until its last backward. finish [replicas of the pipeline]: when each replica's last backward
 * ends. CORRUPT: the orders wait for each other in a circle. */
atoll_err flow_run(const flow_params *params, int pipeline, double *finish);

/* ---- for the composer -------------------------------------------------------------------------------------------- */

typedef struct simulated {
  double pipeline; /* s until the last backward */
  double busy;     /* s of compute, summed over replicas */
  int replicas;
} simulated;

/* All pipelines of a plan whose forward_seconds and backward_seconds are set. sends: 0 leaves them out. finish[p][s]
 * (flat, pipeline-major; may be NULL) receives the end of the last backward of each stage. */
atoll_err simulate_plan(const cost_model *cost, const atoll_plan_problem *problem, const atoll_plan *plan, int sends,
                        double *finish, simulated *out);

/* Copies of every replica of a plan, in order, in seconds per micro-batch; *out stays as it is when nothing
 * is in host memory. Owned, also on failure: free(). */
atoll_err copies_of_plan(cost_model *cost, const atoll_plan *plan, int replicas, atoll_sim_copies **out);

/* ---- after the pipeline ------------------------------------------------------------------------------------------ */

/* Seconds in which the replicas of stages add the gradients of layers that all of them hold leaf by leaf and over each
 * other; each of a replica's tensor ranks has its part. */
atoll_err sync_sum(const cost_model *cost, const atoll_plan_problem *problem, const atoll_plan *plan,
                   const atoll_plan_stage *const *stage, int stages, const atoll_plan_chunk *layers, int chunks,
                   double *seconds);
/* The same of all layers of one stage. */
atoll_err sync_reduce(const cost_model *cost, const atoll_plan_problem *problem, const atoll_plan *plan, int p, int s,
                      double *seconds);
/* Seconds in which uses `use` and `use` + 1 of a tied tensor are summed; 0 when one stage has both. */
double sync_tied(const cost_model *cost, const atoll_plan_problem *problem, const atoll_plan *plan, int tied, int use);

/* ---- replicas that do the same ----------------------------------------------------------------------------------- */

typedef struct sim_group {
  int replicas;      /* how many */
  const int *member; /* [replicas] indices; the first one's events stand for all */
  int ranks;         /* of all */
  int64_t at, count; /* its events: event[at .. at + count) */
  char name[96];     /* "rank 3", "ranks 0-3 8-11" */
  char islands[96];  /* "a", "a b" */
} sim_group;

/* Replicas of one stage whose events agree in time, in the order of their first; owned: free(). islands may be NULL.
 * USAGE: the simulation kept no events. */
atoll_err sim_groups(const atoll_simulation *simulation, const atoll_plan *plan, const atoll_islands *islands,
                     sim_group **out, int *n);
/* The layers of a stage: "0-5", "0-2 6-8". */
const char *sim_layers(const atoll_plan_stage *stage, char *buf, size_t n);

#endif
