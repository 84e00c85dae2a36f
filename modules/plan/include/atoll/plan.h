/** A plan: which ranks run which layers, with what micro-batches, policies and degrees. A value: computed once,
 * immutable, printable, hashed, saved and loaded. Planning needs no devices; executing never re-decides.
 *
 *  Structure: pipelines -> stages -> layer chunks and replicas. Global micro-batches are numbered 0 .. G-1 over the
 * whole step; replica r of a stage owns a contiguous range (first_micro_batch, micro_batches). In one pipeline all
 * stages together cover all layers, and the ranges of a stage's replicas cover the pipeline's micro-batches. */
#ifndef ATOLL_PLAN_H
#define ATOLL_PLAN_H

#include "atoll/island.h"
#include "atoll/layer.h"
#include "atoll/mem.h"
#include "atoll/model.h"
#include "atoll/profile.h"

ATOLL_BEGIN_C

#define ATOLL_PLAN_VERSION 1

typedef struct atoll_plan_range { /* layers [first, last) with one treatment */
  int first, last;
  int policy;    /* atoll_policy */
  int recompute; /* the first so many of these layers keep their input only; backward runs their forward again */
  double offload_weights, offload_gradients, offload_optimizer, offload_activations; /* fractions 0..1 */
  char mlp[16]; /* "plain"; "cta", "cta_own", "auto": over tensor ranks of a node (atoll_mlp); others are for later */
} atoll_plan_range;

typedef struct atoll_plan_chunk { /* contiguous layers of a stage; more than one when interleaved */
  int first, last;
} atoll_plan_chunk;

typedef struct atoll_plan_replica {
  int island;                  /* index into the islands the plan was made for */
  int ranks;                   /* ranks of this replica: tensor * context * expert degree */
  int *rank;                   /* [ranks] explicit map, tensor fastest, then context, then expert */
  int *device;                 /* [ranks] topology device index */
  int tensor, context, expert; /* degrees */
  int sequence_parallel;       /* bool */
  int zero;                    /* ZeRO stage 0..3 over the data group */
  int64_t micro_batch;         /* samples per micro-batch */
  int64_t micro_batches;       /* how many per step */
  int64_t first_micro_batch;
  /* predictions */
  double forward_seconds, backward_seconds; /* one micro-batch */
  double send_seconds;                      /* one boundary, one way */
  double update_seconds;                    /* optimizer and reduction, per step */
  int64_t bytes[ATOLL_MEM_CATEGORIES];      /* per rank */
  int64_t bytes_peak, bytes_limit;
} atoll_plan_replica;

typedef struct atoll_plan_stage {
  int chunks;
  atoll_plan_chunk *chunk;
  int ranges;
  atoll_plan_range *range;
  int replicas;
  atoll_plan_replica *replica;
  int in_flight; /* micro-batches held at once by a replica, from the schedule */
  int packed;    /* bool: panels of weights (packed.h) are kept from one micro-batch to the next */
} atoll_plan_stage;

typedef struct atoll_plan_pipeline {
  int stages;
  atoll_plan_stage *stage;
  int64_t first_micro_batch, micro_batches;
} atoll_plan_pipeline;

typedef struct atoll_plan_tied { /* a tensor used by several stages: every owner keeps a copy, gradients are summed in
                                    this order */
  int param;                     /* model parameter index */
  int uses;
  int pipeline[4], stage[4], layer[4];
} atoll_plan_tied;

typedef struct atoll_plan {
  int version;
  char schedule[16];         /* "1f1b" */
  int world;                 /* ranks */
  int64_t seq, global_batch; /* tokens per sample, samples per step */
  int64_t micro_batches;     /* G */
  int64_t sum_leaves; /* leaves of the gradient summation tree; leaf i = micro-batches [i*G/leaves, (i+1)*G/leaves);
                          replicas begin and end on leaves */
  atoll_dtype dtype;  /* of activations: what the model computes in */
  atoll_digest model, islands; /* islands: atoll_islands_identity */
  char source[64];             /* "grid+compose", "user", ... */
  int pipelines;
  atoll_plan_pipeline *pipeline;
  int tied_count;
  atoll_plan_tied *tied;
  int idle_count; /* ranks left idle, and why */
  int *idle;
  /* predictions */
  double step_seconds, bubble_fraction, communication_seconds;
  int optimal; /* 1: proved within the searched space; else gap */
  double gap;
  char cost_source[16]; /* "measured", "interpolated", "analytic" */
} atoll_plan;

enum { ATOLL_PACK_AUTO, ATOLL_PACK_YES, ATOLL_PACK_NO };

/** Options `plan.*`. Zero = chosen by the planner. */
typedef struct atoll_plan_params {
  int64_t micro_batch;                       /* samples per micro-batch */
  int64_t stages;                            /* pipeline depth */
  int64_t data_parallel;                     /* replicas of each stage */
  int64_t tensor_parallel;                   /* tensor ranks of each replica; 1 = none */
  atoll_opt_ints layers;                     /* layers per stage by hand (blocks; embedding and head go to the ends) */
  char policy[ATOLL_OPT_STRING_MAX];         /* "auto", "eager", "exact" */
  int64_t memory;                            /* bytes per rank; 0 = the device's */
  double memory_share;                       /* share of a device's memory that may be planned; 0.9 */
  int64_t sum_leaves;                        /* 0 = 8, more when there are more replicas, at most the micro-batches */
  int parallelizer;                          /* enum grid|extern|mist */
  char extern_program[ATOLL_OPT_STRING_MAX]; /* plan.extern: program and arguments, see parallelizer_extern.h */
  double extern_limit;                       /* seconds it may take for an answer */
  int extern_fallback;                       /* enum none|grid: what plans a slice when it fails */
  int interstage;                            /* enum dp|cbc|both */
  int target;                                /* enum train|any: only axes train executes, or all */
  int64_t experts;                           /* every block's MLP as so many experts; 0 = plain. Planned, not trained */
  int64_t expert_top;                        /* of them that a token visits */
  int mlp;                                   /* enum atoll_mlp: of stages on several tensor ranks */
  int pack_weights;                /* ATOLL_PACK_*: panels of weights are kept where they pay, serve, or not */
  int objective;                   /* enum throughput|price */
  double max_price;                /* of a step; 0 = no limit */
  double min_throughput;           /* tokens/s; 0 = no limit */
  char load[ATOLL_OPT_STRING_MAX]; /* path of a plan to use instead of planning */
} atoll_plan_params;
extern ATOLL_API const atoll_opt_table atoll_plan_options;
ATOLL_API void atoll_plan_params_init(atoll_plan_params *p);

/** What is to be planned. All borrowed. */
typedef struct atoll_plan_problem {
  const atoll_model *model;
  const atoll_topo *topo;
  const atoll_islands *islands;
  const atoll_profile *profile; /* may be NULL: analytic costs */
  int64_t seq, global_batch;
  int64_t checkpoint_bytes; /* bound of image buffers per rank */
  int64_t fixed_bytes;      /* what every rank takes besides: libraries, data */
  int64_t reserve;          /* of a device's memory, not given to slices because extra_bytes will need it */
  int packs;                /* whether products of all ranks use panels that are kept (atoll_packed_serves()) */
  /** Extra bytes per rank that train takes for a stage (receive buffers etc.), stated by the executor; NULL = none. */
  atoll_err (*extra_bytes)(const atoll_model *model, const struct atoll_plan *plan, int pipeline, int stage,
                           int replica, int64_t bytes[ATOLL_MEM_CATEGORIES]);
} atoll_plan_problem;

typedef struct atoll_plan_rejected { /* for --explain */
  char text[256];                    /* "3 stages x 1, micro-batch 8: stage 2 needs 3.1 GiB of 2.0 GiB on island b" */
  double step_seconds;               /* NaN when infeasible */
} atoll_plan_rejected;
typedef struct atoll_plan_report {
  int count;
  atoll_plan_rejected *rejected; /* best first; at most 32 */
  int64_t considered, infeasible;
  double alike; /* spread of measured times within which a fixed order chose, not time; 0: it was not needed */
  double
      composed; /* s, or price for plan.objective=price, of the best chain of stages on parts of islands by the formula
                   of src/compose/chain.c, before simulation; NaN when there is none or nobody searched for one */
  double price, transfer_price; /* of a step; the second is the part for what moves between zones. NaN unknown */
  int copies; /* of the pipeline, equal ones on islands of their own, in the order of replicas; 0 and 1: one */
  int idle_count;
  char (*idle)[384]; /* which devices are left idle, and why */
} atoll_plan_report;
ATOLL_API void atoll_plan_report_destroy(atoll_plan_report **report);

/** Local and deterministic: the fastest plan in the spaces of src/compose/space.c (few devices) and pools.c (large
 * clusters, plan.target=any, prices), by the simulated time of its schedule, under the memory of every device. Searched
 * to the end the plan says optimal; otherwise its gap is what could be missed. INFEASIBLE names the tightest stage and
 * the bytes missing; USAGE an option of plan.* that contradicts cluster, model or batch. *report may be NULL. Untouched
 * on failure, except *report. Method: slices on islands behind a narrow interface, composed (Tangram, 2026); 1F1B
 * (Narayanan et al., 2019). */
ATOLL_API atoll_err atoll_plan_make(const atoll_plan_problem *problem, const atoll_plan_params *params,
                                    atoll_plan **out, atoll_plan_report **report);
/** Collective. Rank 0 plans, or reads plan.load; all get identical plans, checked against their own model and islands.
 *  MISMATCH when ranks differ in model, islands, profile or batch, or when a loaded plan does not fit. *report (may be
 *  NULL) is filled on rank 0 and NULL elsewhere. */
ATOLL_API atoll_err atoll_plan_agree(atoll_comm *comm, const atoll_plan_problem *problem,
                                     const atoll_plan_params *params, atoll_plan **out, atoll_plan_report **report);
/** The same for a cluster that is only described: every device of the islands is planned for, whatever the number of
 * ranks, and these only share the search. The plan does not depend on how many there are. */
ATOLL_API atoll_err atoll_plan_search(atoll_comm *comm, const atoll_plan_problem *problem,
                                      const atoll_plan_params *params, atoll_plan **out, atoll_plan_report **report);
ATOLL_API void atoll_plan_destroy(atoll_plan **plan);

/** Structure, cover, ranges, ranks used once, fields in range: CORRUPT names pipeline, stage and field. */
ATOLL_API atoll_err atoll_plan_check(const atoll_plan *plan, const atoll_model *model);
/** Against a cluster: MISMATCH when made for other islands or another model, or for more or fewer ranks than there are.
 */
ATOLL_API atoll_err atoll_plan_fits(const atoll_plan *plan, const atoll_model *model, const atoll_islands *islands,
                                    int world);
/** Of everything that execution depends on (predictions excluded). */
ATOLL_API atoll_digest atoll_plan_digest(const atoll_plan *plan);
/** YAML for people (byte-stable: load then save gives the same bytes); *text owned: free(). Unknown fields are refused
 * on load. */
ATOLL_API atoll_err atoll_plan_to_text(const atoll_plan *plan, char **text, size_t *bytes);
ATOLL_API atoll_err atoll_plan_from_text(const char *name, const char *text, size_t bytes, atoll_plan **out);
ATOLL_API atoll_err atoll_plan_to_store(const atoll_plan *plan, atoll_store *store, const char *group);
ATOLL_API atoll_err atoll_plan_from_store(atoll_store *store, const char *group, atoll_plan **out);
/** The judge's form (JSON); UNSUPPORTED names a feature that form lacks. `model` is the name the judge knows it by; a
 * node's kind is its zone. *text owned: free(). */
ATOLL_API atoll_err atoll_plan_to_judge(const atoll_plan *plan, const char *model, const atoll_topo *topo, char **text,
                                        size_t *bytes);
/** A table of stages; explain adds bytes and time by cause, bubble, traffic, what was rejected and why. */
ATOLL_API void atoll_plan_print(const atoll_plan *plan, const atoll_islands *islands, FILE *f);
ATOLL_API void atoll_plan_explain(const atoll_plan *plan, const atoll_plan_problem *problem,
                                  const atoll_plan_report *report, FILE *f);

/** Where a rank stands. stage = -1 when idle. */
typedef struct atoll_plan_place {
  int pipeline, stage, replica, slot; /* slot: position in replica.rank */
} atoll_plan_place;
ATOLL_API atoll_plan_place atoll_plan_find(const atoll_plan *plan, int rank);
/** Replica of `stage` in `pipeline` that owns global micro-batch g, or -1. */
ATOLL_API int atoll_plan_owner(const atoll_plan *plan, int pipeline, int stage, int64_t g);
/** Stage parameters (for atoll_stage_create / _bytes) of a place; policy has room for the stage's layers. UNSUPPORTED
 * for several chunks. */
ATOLL_API atoll_err atoll_plan_stage_params(const atoll_plan *plan, atoll_plan_place place, atoll_stage_params *p,
                                            atoll_policy *policy);
/** Its stages keep no packed weights, and its bytes count none: for jobs whose products would not use them. Errors as
 * of atoll_plan_stage_params() and atoll_stage_bytes(). */
ATOLL_API atoll_err atoll_plan_unpack(atoll_plan *plan, const atoll_model *model);
/** Gradient buffers a replica needs for its leaves' tree nodes while accumulating in order. */
ATOLL_API int atoll_plan_partials(const atoll_plan *plan, int64_t first_micro_batch, int64_t micro_batches);

ATOLL_END_C
#endif
