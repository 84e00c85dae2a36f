/* What the files of plan share. One file, one object:
 *   value      the struct: allocation, places, owners, stage parameters, the summation tree seen from a replica
 *   check      what makes a plan well formed, and whether it fits a cluster; digest
 *   text       YAML;  file: HDF5;  judge: JSON for the neutral scorer;  print: tables and explanations
 *   cost/      seconds and bytes of a slice on a device class
 *   parallelizers/grid   plans one slice on one island;  extern: asks a program that does
 *   compose/   splits the model over islands
 *   simulate/  predicts a step, event by event */
#ifndef ATOLL_PLAN_IMPL_H
#define ATOLL_PLAN_IMPL_H

#include "atoll/parallelizer.h"
#include "atoll/plan.h"

#define PLAN_NAME_MAX 64

/* Calloc that fails loudly; n may be 0 (a pointer that can be freed). */
atoll_err plan_alloc(size_t n, size_t size, void *out_address);
atoll_err plan_create(int pipelines, atoll_plan **out);

/* First micro-batch of a leaf; leaf == leaves gives G. */
int64_t plan_leaf_first(int64_t leaves, int64_t micro_batches, int64_t leaf);
/* Leaf that begins at micro-batch g, or -1 when g is inside one. g == G gives `leaves`. */
int64_t plan_leaf_at(int64_t leaves, int64_t micro_batches, int64_t g);
/* Accumulating leaves [first, first + n) in order: most subtree sums alive at once, and those left at the end. */
void plan_tree_walk(int64_t leaves, int64_t first, int64_t n, int *most, int *left);

/* The one that plan.parallelizer names. */
const atoll_parallelizer *plan_parallelizer(const atoll_plan_params *params);

/* The memory policy that plan.policy names, or -1 for "auto"; USAGE names the known ones. */
atoll_err plan_policy(const atoll_plan_params *params, int *policy);
/* Whether to try p: the one named, or with -1 any that planners may choose by themselves. */
int plan_tries_policy(int named, int p);

/* Whether so many tensor ranks divide a model's blocks evenly, and the least degree beyond 1 that does; 1: none. */
static inline int plan_divides(const atoll_model *model, int tensor) {
  const atoll_model_params *c = atoll_model_config(model);
  return c->heads % tensor == 0 && c->kv_heads % tensor == 0 && c->ffn % tensor == 0;
}
static inline int plan_least_degree(const atoll_model *model) {
  for (int t = 2; t <= atoll_model_config(model)->heads; t++)
    if (plan_divides(model, t))
      return t;
  return 1;
}

/* Tied list of a plan whose stages are set. */
atoll_err plan_fill_tied(atoll_plan *plan, const atoll_model *model);
/* What panels of its weights add to a stage's parameters; 0: it cannot keep any. */
atoll_err plan_panel_bytes(const atoll_model *model, const atoll_stage_params *of, int64_t *out);
/* Stage of a pipeline that holds a layer, or -1. */
int plan_stage_of(const atoll_plan_pipeline *p, int layer);

/* A JSON file, *root owned: json_decref. USAGE names file and line. */
struct json_t;
atoll_err plan_read_json(const char *path, struct json_t **root);

/* "3.1 GiB": four significant characters; returns buf. */
const char *plan_bytes_text(int64_t bytes, char *buf, size_t n);
/* "12.3 ms"; returns buf. */
const char *plan_seconds_text(double seconds, char *buf, size_t n);

#endif
