/* A plan to try things on: two stages of two replicas on two islands, one rank idle. */
#ifndef PLAN_MADE_H
#define PLAN_MADE_H

#include "plan_test.h"

typedef struct made {
  test_cluster cluster;
  atoll_model *model;
  atoll_plan_problem problem;
  atoll_plan_params params;
  atoll_plan *plan;
} made;

static inline void made_begin(made *x) {
  const test_node node[] = {{"fast", 2, INT64_C(1) << 30, 100, 20}, {"slow", 3, INT64_C(1) << 30, 40, 10}};
  test_cluster_make(&x->cluster, node, 2, 5, 1);
  x->model = test_model(6, 64);
  x->problem = test_problem(x->model, &x->cluster, 16);
  atoll_plan_params_init(&x->params);
  x->params.stages = 2;
  x->params.data_parallel = 2;
  x->params.micro_batch = 2;
  x->plan = NULL;
  assert_ok(atoll_plan_make(&x->problem, &x->params, &x->plan, NULL));
  assert_int_equal(x->plan->idle_count, 1);
}

static inline void made_end(made *x) {
  atoll_plan_destroy(&x->plan);
  atoll_model_destroy(&x->model);
  test_cluster_free(&x->cluster);
}

#endif
