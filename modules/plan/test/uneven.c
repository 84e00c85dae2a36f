/* An island that lost a device: the other nodes keep the tensor degrees they had, and the node that lost it gets those
 * that its devices still hold. */
#include "plan_test.h"

enum { NODES = 3, DEVICES = 4 };

static atoll_plan *make(const atoll_model *m, int last_node, int64_t memory) {
  const test_node node[NODES] = {
      {"p", DEVICES, memory, 20, 10}, {"p", DEVICES, memory, 20, 10}, {"p", last_node, memory, 20, 10}};
  test_cluster c;
  atoll_plan_params params;
  atoll_plan *plan = NULL;
  test_cluster_make(&c, node, NODES, 20, 1);
  atoll_plan_params_init(&params);
  params.target = 1;
  params.min_throughput = 1; /* which only the search by parts of islands knows */
  atoll_plan_problem p = test_problem(m, &c, 32);
  atoll_err err = atoll_plan_make(&p, &params, &plan, NULL);
  if (err != ATOLL_INFEASIBLE)
    assert_ok(err);
  for (int s = 0; plan && s < plan->pipeline[0].stages; s++)
    for (int k = 0; k < plan->pipeline[0].stage[s].replicas; k++) {
      const atoll_plan_replica *r = &plan->pipeline[0].stage[s].replica[k];
      for (int i = 1; i < r->ranks; i++)
        assert_int_equal(c.topo.device[r->device[i]].node, c.topo.device[r->device[0]].node);
    }
  test_cluster_free(&c);
  return plan;
}

static int largest_degree(const atoll_plan *plan) {
  int most = 0;
  for (int s = 0; s < plan->pipeline[0].stages; s++)
    most = plan->pipeline[0].stage[s].replica[0].tensor > most ? plan->pipeline[0].stage[s].replica[0].tensor : most;
  return most;
}

static void a_lost_device_costs_little_more_than_itself(void **state) {
  (void)state;
  atoll_model *m = test_model(4, 128);
  int64_t memory = INT64_C(1) << 18;
  atoll_plan *whole = NULL;
  while (!(whole = make(m, DEVICES, memory))) /* so little that tensor parallelism is needed */
    memory += memory / 16;
  assert_true(largest_degree(whole) > 1);
  atoll_plan_destroy(&whole);
  memory += memory / 4;
  whole = make(m, DEVICES, memory);
  atoll_plan *rest = make(m, DEVICES - 1, memory), *less = make(m, DEVICES / 2, memory);
  assert_non_null(rest);
  assert_non_null(less);
  assert_true(largest_degree(rest) > 1);
  assert_true(rest->step_seconds >= whole->step_seconds * (1 - 1e-9));
  assert_true(rest->step_seconds <= less->step_seconds * (1 + 1e-9)); /* as fast as if it had lost one more */
  atoll_plan_destroy(&whole);
  atoll_plan_destroy(&rest);
  atoll_plan_destroy(&less);
  atoll_model_destroy(&m);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_lost_device_costs_little_more_than_itself)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
