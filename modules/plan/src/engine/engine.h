/* The composition engine: which contiguous layers, on how many replicas of which devices, make the best pipeline. It
 * knows nothing of models, files or networks: a client describes pools of like devices and prices slices by callbacks.
 *
 * A plan has one micro-batch size b and S stages from the first layer to the last. Stage i has D_i replicas, each of
 * one kind (a pool and a way to use its devices); micro-batch k runs on replica k mod D_i, so the stage computes G_i =
 * ceil(B / (b D_i)) micro-batches one after the other, t_i seconds each (its slowest replica), and p_i seconds of sends
 * are exposed per micro-batch. It keeps F_i = max(S - i, ceil((D_i + ... + D_{S-1}) / D_i)) micro-batches in flight. A
 * step takes
 *
 *     T = max_i (G_i - 1)(t_i + p_i)  +  sum_i (t_i + p_i)  +  X  +  max_i sync_i
 *
 * where X = max_i extra_i, or max_i (extra_i - sum_{j<i} (t_j + p_j)) when earlier stages hide it (extra_hidden). It
 * costs T times the rent of the devices used, plus the money for what moves between zones.
 *
 * Replicas of a stage are grouped by kind, groups in the order of the list of kinds; place.c may order them anew once a
 * plan is found. Replicas of one pool in one stage are of one kind. Answers depend on the input alone, never on time.
 */
#ifndef ATOLL_PLAN_ENGINE_H
#define ATOLL_PLAN_ENGINE_H

#include <stddef.h>
#include <stdint.h>

#include "atoll/err.h"

#define ENGINE_POINTS    8    /* most points of a slice */
#define ENGINE_POOLS_MAX 1024 /* pools of a problem */

typedef struct engine_point { /* one way to run a slice on a replica; more micro-batches in flight cost more time */
  double seconds;             /* forward and backward of one micro-batch */
  double extra;               /* per step */
  int64_t in_flight;          /* most micro-batches in flight that fit; >= 1 */
} engine_point;

typedef struct engine_pool { /* like devices that reach each other alike */
  int devices;
  int per_node; /* devices of a node; 0: no limit. A replica stays inside a node */
  int zone;
  int like;     /* pools of equal `like` have the same kinds (same options and widths, in the same order) and the same
                   slices; they may still differ in zone, links and price */
  int links;    /* pools of equal `like` and `links` sum gradients inside alike */
  double price; /* $ per second of one device; NaN: not for sale, and a plan that uses it has no price */
} engine_pool;

typedef struct engine_kind { /* a way to make one replica */
  int pool;
  int devices; /* of one replica; >= 1 */
  int option;  /* the client's own number: tensor degree, policy, ... */
} engine_kind;

typedef struct engine_group { /* `count` replicas of one kind, neighbours in their stage */
  int kind, count;
} engine_group;

typedef struct engine_stage {
  int first, last; /* layers [first, last) */
  int groups;
  const engine_group *group; /* [groups] */
} engine_stage;

/* What the client knows. b is an index into problem.batch. All are pure: equal arguments, equal answers, and cheap
 * enough to be called some million times (slices are asked once per run-length class and remembered). */
typedef struct engine_costs {
  void *context; /* borrowed */
  /* The Pareto points of layers [first, last) on one replica, least seconds first; 0: none (no profile, or too large
   * with a single micro-batch in flight). */
  int (*slice)(void *context, int b, int kind, int first, int last, engine_point point[ENGINE_POINTS]);
  /* Seconds that one micro-batch takes over the boundary before `layer`, from a replica of kind `from`; backward: 1 for
   * gradients, which go from the later stage to the earlier. */
  double (*send)(void *context, int b, int layer, int from, int to, int backward);
  /* Seconds to sum the gradients of a stage after the pipeline, 0 for one replica; with more replicas than groups at
   * least what as many replicas of one of its kinds would take. */
  double (*sync)(void *context, int b, const engine_stage *stage);
  /* Seconds that come last in a pipeline of several stages, by its first and its last; NULL: none. */
  double (*ends)(void *context, int b, const engine_stage *first, const engine_stage *last);
  /* $ per step for what moves between zones, of a whole plan; NULL: free. The search adds up what stages (stage_money)
   * and boundaries (send_money) cost on their own, at most their part of the whole; either may be NULL. */
  double (*money)(void *context, int b, int stages, const engine_stage *stage);
  double (*stage_money)(void *context, int b, const engine_stage *stage);
  double (*send_money)(void *context, int b, const engine_stage *left, const engine_stage *right);
} engine_costs;

typedef enum engine_goal { ENGINE_FASTEST, ENGINE_CHEAPEST } engine_goal;

typedef enum engine_part { /* of the search */
                           ENGINE_WHOLE,
                           ENGINE_FIRST_PLANS, /* of width 1: some plan, quickly, and no bound */
                           ENGINE_FROM_START   /* what is left to do with a first plan, or the certainty that they were
                                                  looked for in vain */
} engine_part;

typedef struct engine_problem { /* all borrowed */
  int layers;
  const int *layer_class; /* [layers]: ranges with equal sequences of classes have equal slices; NULL: all differ */
  int pools;
  const engine_pool *pool;
  int kinds;
  const engine_kind *kind; /* grouped by pool, pools in order */
  int batches;
  const int64_t *batch; /* candidate micro-batch sizes */
  int64_t global_batch;
  engine_costs costs;
  engine_goal goal;
  double max_seconds; /* no slower plan; INFINITY */
  double max_price;   /* $ per step, no dearer plan; INFINITY */
  int extra_hidden;   /* 1: see X above */
  int width;          /* every stage has so many replicas; 0: each its own */
  int max_stages;     /* 0: no limit */
  engine_part part;
  const struct engine_plan *start; /* a plan to begin with, borrowed; NULL: none */
  /* p_i = act_i + grad_i (sends to i + 1 and to i - 1, the slowest pair that talks), but last_factor * grad on the last
   * stage and act on the first, twice that when there are more than double_after stages (0: never). */
  double last_factor;
  int double_after;
  int64_t work; /* units of work (about a bound looked at), the only limit; 0: the default, some 10 s */
} engine_problem;

void engine_problem_init(engine_problem *problem); /* zero, no limits, last_factor 1 */

typedef struct engine_plan {
  int b; /* index into batch */
  int stages;
  engine_stage *stage;
  engine_group *group; /* of all stages, one block */
  /* what engine_evaluate fills */
  double seconds, price; /* price NaN: a device without a price */
  double transfer_price; /* the part of price that is not rent */
  double bottleneck;     /* max (G - 1)(t + p) */
  double extra, sync;    /* X and max sync */
  double ends;           /* what comes last */
  int limiting;          /* the stage of the bottleneck */
  struct engine_stage_time {
    double seconds, send, extra, sync;   /* t_i, p_i */
    int64_t micro_batches, in_flight, G; /* in_flight: F_i; micro_batches: most in flight that fit; G: G_i */
  } * time;                              /* [stages] */
} engine_plan;

/* Room for `groups` groups in plan->group; which stage has which is the caller's to set. */
atoll_err engine_plan_create(int stages, int groups, engine_plan **out);
void engine_plan_destroy(engine_plan **plan);
atoll_err engine_plan_copy(const engine_plan *plan, engine_plan **out);

/* Exact time and price of a plan whose b and stages are set. INFEASIBLE: it does not fit, uses more devices than there
 * are or has a slice without points; USAGE: not a plan for this problem. */
atoll_err engine_evaluate(const engine_problem *problem, engine_plan *plan);

typedef struct engine_result {
  engine_plan *best;
  double bound;           /* no plan in the space is better: seconds, or $ for ENGINE_CHEAPEST */
  double gap;             /* (best - bound) / best; 0 when proved */
  int proved;             /* the best of all in the space named in search.c */
  int uniform;            /* none whose stages are of one kind each is better */
  int truncated;          /* the work limit cut the search short */
  int64_t labels, slices; /* units of work spent; slices asked for */
  int rejected;           /* best other plans, of different micro-batch, depth or devices; best first */
  engine_plan **reject;
} engine_result;

/* The best plan, owned: engine_result_destroy. INFEASIBLE when none meets the limits: then *out holds no plan but
 * says how many labels were tried, and whether the search was cut short. *out is set on OK and INFEASIBLE alone. */
atoll_err engine_search(const engine_problem *problem, engine_result **out);
void engine_result_destroy(engine_result **result);

#endif
