/* What train adds to a plan has to fit with it. Slices are planned without it, so the search by parts of islands may
 * have to begin again with as much set aside: over a range of memories, what is found fits, more memory never takes a
 * plan away, and it finds one wherever the exact search does. */
#include "plan_test.h"

enum { STEPS = 24, DEVICES = 3 };

/* The first stage gets more than the others, each by its own number of layers. */
static atoll_err add_extra(const atoll_model *model, const atoll_plan *plan, int pipeline, int stage, int replica,
                           int64_t bytes[ATOLL_MEM_CATEGORIES]) {
  const atoll_plan_chunk *c = &plan->pipeline[pipeline].stage[stage].chunk[0];
  (void)model, (void)replica;
  bytes[ATOLL_MEM_COMM] += (stage == 0 ? 48 : 8) * 1024 + (c->last - c->first + 1) * 4096;
  return ATOLL_OK;
}

/* 1: a plan was found, and it fits. */
static int fits(const atoll_model *m, int64_t memory, double min_throughput) {
  const test_node node[] = {{"p", DEVICES, memory, 20, 10}};
  test_cluster c;
  atoll_plan_params params;
  atoll_plan *plan = NULL;
  test_cluster_make(&c, node, 1, 20, 1);
  atoll_plan_params_init(&params);
  params.min_throughput = min_throughput;
  atoll_plan_problem p = test_problem(m, &c, 12);
  p.extra_bytes = add_extra;
  atoll_err err = atoll_plan_make(&p, &params, &plan, NULL);
  if (err != ATOLL_INFEASIBLE)
    assert_ok(err);
  for (int s = 0; plan && s < plan->pipeline[0].stages; s++)
    for (int k = 0; k < plan->pipeline[0].stage[s].replicas; k++) {
      const atoll_plan_replica *r = &plan->pipeline[0].stage[s].replica[k];
      int64_t bytes[ATOLL_MEM_CATEGORIES] = {0};
      assert_ok(add_extra(m, plan, 0, s, k, bytes));
      assert_true(r->bytes[ATOLL_MEM_COMM] >= bytes[ATOLL_MEM_COMM]);
      assert_true(r->bytes_peak <= r->bytes_limit && r->bytes_limit <= memory);
    }
  atoll_plan_destroy(&plan);
  test_cluster_free(&c);
  return err == ATOLL_OK;
}

static void what_train_adds_is_set_aside(void **state) {
  (void)state;
  atoll_model *m = test_model(4, 64);
  int64_t memory = INT64_C(1) << 18;
  while (!fits(m, 2 * memory, 0)) /* the least that holds a plan lies within a factor of two above */
    memory *= 2;
  int found = 0;
  for (int i = 0; i <= STEPS; i++) {
    int64_t at = memory + memory * i / STEPS;
    int exact = fits(m, at, 0), parts = fits(m, at, 1);
    if (exact != parts || parts < found)
      fail_msg("with %" PRId64 " bytes: exact %d, by parts of islands %d, by parts with less %d", at, exact, parts,
               found);
    found = parts;
  }
  assert_true(found);
  atoll_model_destroy(&m);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(what_train_adds_is_set_aside)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
