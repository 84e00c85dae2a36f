/** One training step of a plan, event by event: what every rank computes, sends, receives, copies and sums, and when.
 *  The judge of plans, and the source of timelines and charts. Local, pure, deterministic.
 *
 *  A rank has streams that work at the same time, each in its own fixed order: compute; sends in either direction;
 *  receives; copies from and to host memory; collectives. Micro-batches go in one-forward-one-backward order, or
 *  interleaved when stages have several chunks. Ranks of one replica (tensor, context, expert) act as one. */
#ifndef ATOLL_SIMULATE_H
#define ATOLL_SIMULATE_H

#include "atoll/plan.h"

ATOLL_BEGIN_C

typedef enum atoll_sim_stream {
  ATOLL_SIM_COMPUTE,
  ATOLL_SIM_SEND, /* the ways forward and back are independent of each other */
  ATOLL_SIM_RECEIVE,
  ATOLL_SIM_HOST_IN,  /* host memory to device */
  ATOLL_SIM_HOST_OUT, /* device to host memory */
  ATOLL_SIM_COLLECTIVE
} atoll_sim_stream;
#define ATOLL_SIM_STREAMS 6

typedef enum atoll_sim_kind {
  ATOLL_SIM_FORWARD,
  ATOLL_SIM_BACKWARD,
  ATOLL_SIM_ACTIVATION, /* a message to the next stage, on the streams of both ends */
  ATOLL_SIM_GRADIENT,   /* a message to the stage before */
  ATOLL_SIM_COPY,
  ATOLL_SIM_REDUCE, /* sum of gradients over replicas */
  ATOLL_SIM_TIED,   /* sum of a tensor's gradients over its uses */
  ATOLL_SIM_FINISH, /* losses and gradient norms over all ranks */
  ATOLL_SIM_UPDATE  /* optimizer */
} atoll_sim_kind;
#define ATOLL_SIM_KINDS 9

/** "compute", "send", ...; "forward", "backward", "send activation", ... Borrowed. */
ATOLL_API const char *atoll_sim_stream_name(atoll_sim_stream stream);
ATOLL_API const char *atoll_sim_kind_name(atoll_sim_kind kind);

typedef struct atoll_sim_event {
  double begin, end;   /* s from the beginning of the step */
  int64_t micro_batch; /* global number; -1: of the whole step */
  int replica;         /* index into atoll_simulation.replica */
  int peer;            /* for messages: the other end's index; else -1 */
  int chunk;
  short stream, kind;
} atoll_sim_event;

typedef struct atoll_sim_replica { /* one replica, and the same of each of its ranks */
  int pipeline, stage, replica;
  int rank;       /* its first */
  int ranks;      /* how many */
  double compute; /* s of forward and backward */
  double update;
  double send, receive, copy, collective; /* s that a stream is busy, alongside compute or not */
  double bubble;                          /* s until the last backward in which nothing was computed */
  double last_backward;                   /* when it ended */
} atoll_sim_replica;

typedef struct atoll_simulation {
  double step_seconds;     /* until the last update */
  double pipeline_seconds; /* until the last backward */
  double bubble_fraction;  /* share of pipeline_seconds, over replicas */
  int replicas;
  atoll_sim_replica *replica; /* [replicas] pipeline by pipeline, stage by stage */
  int64_t events;
  atoll_sim_event *event; /* [events] by replica, then begin, then stream; NULL unless asked for */
} atoll_simulation;

/** Copies of one replica between host and device, per micro-batch, alongside its forward and its backward: they begin
 * with it, and the next computation waits for them. */
typedef struct atoll_sim_copies {
  double forward_in, forward_out, backward_in, backward_out; /* s */
} atoll_sim_copies;

typedef struct atoll_simulate_params {
  int events;                     /* bool: keep the list of events */
  int sends;                      /* bool: messages take time; 1 */
  const atoll_sim_copies *copies; /* [replicas of the plan, in order], borrowed; NULL: of what the plan keeps in
                                     host memory, when there is a problem to ask */
} atoll_simulate_params;
ATOLL_API void atoll_simulate_params_init(atoll_simulate_params *p);

/** Simulates a plan that atoll_plan_check() accepts and whose replicas have forward_seconds and backward_seconds.
 * `problem` gives the costs of messages and sums, as in planning; then step_seconds of a plan whose updates follow the
 * last sum is found again. NULL: send_seconds and update_seconds of the plan are taken as they are, and sums over
 * replicas are part of the update. *out is owned: atoll_simulation_destroy(); untouched on failure. USAGE    the plan
 * has no times: names pipeline, stage and replica CORRUPT  the plan's orders wait for each other in a circle: names
 * ranks and events MISMATCH a device or island of the plan is not in the problem Orders: Narayanan et al., PipeDream
 * (2019) for one chunk; Megatron-LM (2021), section 2.2, interleaved. */
ATOLL_API atoll_err atoll_simulate(const atoll_plan *plan, const atoll_plan_problem *problem,
                                   const atoll_simulate_params *params, atoll_simulation **out);
ATOLL_API void atoll_simulation_destroy(atoll_simulation **simulation);

/** The events as Chrome trace JSON, in the form of a run's trace.json: a process per rank, a thread per stream,
 * microseconds. Ranks that do the same at the same times are one process, and its name says so. At most `most` events
 * are written (0: all), then those of the first ranks, and the file says how many are left out. *text is owned: free().
 *  USAGE without events. */
ATOLL_API atoll_err atoll_simulation_trace(const atoll_simulation *simulation, const atoll_plan *plan,
                                           const atoll_islands *islands, int64_t most, char **text, size_t *bytes);
/** A chart of the step as SVG: a row per rank, or per group of ranks that do the same at the same times. *text is
 * owned: free(). USAGE without events. */
ATOLL_API atoll_err atoll_simulation_gantt(const atoll_simulation *simulation, const atoll_plan *plan,
                                           const atoll_islands *islands, const char *title, char **text, size_t *bytes);

ATOLL_END_C
#endif
