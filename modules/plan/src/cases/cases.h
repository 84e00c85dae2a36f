/* What the files of cases/ share.
 *   load     CASE.json and the data it needs, checked key by key
 *   costs    the cost formulas, as the engine's callbacks
 *   case     plan, score, change; the scorer's form
 *   explain  words for people */
#ifndef ATOLL_PLAN_CASES_H
#define ATOLL_PLAN_CASES_H

#include <jansson.h>

#include "atoll/case.h"
#include "engine/engine.h"

#define CASE_NAME 64
#define CASE_FIT  8 /* most coefficients of a bandwidth fit */

typedef struct case_table { /* seconds of one (gpu, micro-batch, degree), summed over the layers before */
  int known;
  double *seconds; /* [layers + 1]: forward and backward */
  double *update;  /* [layers] */
} case_table;

typedef struct case_gpu {
  char name[CASE_NAME];
  int profiled;
  double memory;     /* bytes */
  case_table *table; /* [batches][degrees] */
} case_gpu;

typedef struct case_values { /* of one degree, summed over the layers before */
  double *parameters;        /* [layers + 1] */
  double *activation;        /* [layers + 1] */
} case_values;

typedef struct case_fit { /* GB/s as a polynomial in log2 of megabytes, highest power first */
  int terms;              /* 0: none */
  double c[CASE_FIT];
} case_fit;

typedef struct case_pool {
  int gpu, zone; /* into gpus and zone */
  int count, per_node;
  double hour; /* $ of a device; NaN: no price */
} case_pool;

struct atoll_case {
  char path[512], name[CASE_NAME], model[CASE_NAME], profile[512];
  int64_t global_batch;
  engine_goal goal;
  double max_price, max_seconds;
  int layers, batches, degrees;
  int64_t *batch;      /* [batches] ascending */
  int *degree;         /* [degrees] ascending */
  case_values *values; /* [degrees] */
  double *output;      /* [layers]: bytes of a sample */
  double *weight;      /* [layers + 1]: bytes of the layers before, unsharded */
  int *layer_class;    /* [layers] */
  int gpus;
  case_gpu *gpu;
  int zones;
  char (*zone)[CASE_NAME];
  double *transfer; /* [zones][zones]: $ per GB; NaN: not known */
  int pools;
  case_pool *pool;
  /* kinds: (pool, degree) that can be scored */
  int kinds;
  engine_kind *kind; /* option: index into degree */
  case_fit *fit;     /* [kinds][kinds] */
  case_fit *single;  /* [pools][pools]: one GPU on each side */
  int ignore_memory; /* for scores of plans that do not fit */
};

struct atoll_case_plan {
  const atoll_case *c;
  engine_result *result;
  case_pool *pool; /* [c->pools] as they were */
};

/* A case without a file of its own: `root` has a case's keys, `label` stands for the path in messages. */
atoll_err case_from_json(const char *label, const json_t *root, const char *data, atoll_case **out);
/* A plan in the scorer's form; `name` is for messages. Devices are not counted. */
atoll_err case_read_plan(const atoll_case *c, const char *name, const json_t *root, engine_plan **out);
/* Seconds for `bytes` from a replica of kind `from` to one of kind `to`. */
double case_transfer_seconds(const atoll_case *c, int from, int to, double bytes);
void case_costs(const atoll_case *c, engine_costs *out);
/* Bytes of one device of a replica. */
double case_bytes(const atoll_case *c, int b, int kind, int first, int last, int64_t in_flight);
typedef struct case_problem_parts {
  engine_problem problem;
  engine_pool *pool; /* owned: free */
} case_problem_parts;
atoll_err case_problem(const atoll_case *c, case_problem_parts *out);

#endif
