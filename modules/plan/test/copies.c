/* Two islands joined by a slow link: a pipeline for each, with one sum of gradients over both, beats one pipeline that
 * sends every micro-batch over the link, as long as the model fits into each. */
#include "plan_test.h"

#include "atoll/simulate.h"

enum { ISLANDS = 2, DEVICES = 4 };

/* Like islands that are told apart, of one node each. */
static void make_cluster(test_cluster *c, int islands, int64_t memory, double between) {
  static const char *const name[] = {"p", "q"};
  test_node node[ISLANDS];
  for (int i = 0; i < islands; i++)
    node[i] = (test_node){name[i], DEVICES, memory, 20, 10};
  test_cluster_make(c, node, islands, 20, between);
  for (int i = 0; i < islands; i++)
    strcpy(c->islands.island[i].model, "p");
}

static atoll_plan *make_plan(const atoll_plan_problem *p, atoll_plan_report **report) {
  atoll_plan_params params;
  atoll_plan *plan = NULL;
  atoll_plan_params_init(&params);
  params.target = 1;
  params.min_throughput = 1; /* which only the search by parts of islands knows */
  assert_ok(atoll_plan_make(p, &params, &plan, report));
  assert_ok(atoll_plan_check(plan, p->model));
  return plan;
}

static void assert_simulated(const atoll_plan *plan, const atoll_plan_problem *p) {
  atoll_simulate_params params;
  atoll_simulation *s = NULL;
  atoll_simulate_params_init(&params);
  assert_ok(atoll_simulate(plan, p, &params, &s));
  if (!(fabs(s->step_seconds / plan->step_seconds - 1) < 1e-9))
    fail_msg("predicted %.12g s, simulated %.12g s", plan->step_seconds, s->step_seconds);
  atoll_simulation_destroy(&s);
}

static void assert_told(const atoll_plan *plan, const atoll_plan_problem *p, const atoll_plan_report *report) {
  char *text = NULL;
  size_t n = 0;
  FILE *f = open_memstream(&text, &n);
  atoll_plan_explain(plan, p, report, f);
  fclose(f);
  char half[128];
  snprintf(half, sizeof half, "copy 1: micro-batches %" PRId64 "-%" PRId64 ", islands b\n", plan->micro_batches / 2,
           plan->micro_batches - 1);
  if (!strstr(text, "2 equal copies of the pipeline") || !strstr(text, half))
    fail_msg("'%s' is not in:\n%s", half, text);
  free(text);
}

static void copies_stay_on_their_islands(void **state) {
  (void)state;
  test_cluster both, one;
  atoll_model *m = test_model(6, 128);
  make_cluster(&both, ISLANDS, INT64_C(1) << 30, 0.01);
  make_cluster(&one, 1, INT64_C(1) << 30, 0.01);
  atoll_plan_problem of_both = test_problem(m, &both, 256), of_one = test_problem(m, &one, 256);
  atoll_plan_report *report = NULL;
  atoll_plan *plan = make_plan(&of_both, &report), *alone = make_plan(&of_one, NULL);
  assert_int_equal(report->copies, 2);
  assert_int_equal(plan->idle_count, 0);
  assert_simulated(plan, &of_both);
  assert_true(plan->step_seconds < 0.9 * alone->step_seconds);
  for (int s = 0; s < plan->pipeline[0].stages; s++) {
    const atoll_plan_stage *stage = &plan->pipeline[0].stage[s];
    assert_int_equal(stage->replicas % 2, 0);
    for (int k = 0; k < stage->replicas; k++)
      assert_int_equal(stage->replica[k].island, k >= stage->replicas / 2);
  }
  assert_told(plan, &of_both, report);
  atoll_plan_report_destroy(&report);
  atoll_plan_destroy(&plan);
  atoll_plan_destroy(&alone);
  atoll_model_destroy(&m);
  test_cluster_free(&both);
  test_cluster_free(&one);
}

/* A model that one island cannot hold has to cross the link. */
static void one_pipeline_where_no_island_holds_the_model(void **state) {
  (void)state;
  test_cluster c, one;
  atoll_model *m = test_model(6, 128);
  int64_t memory = INT64_C(4) << 20, tries = 0;
  atoll_plan_params params;
  atoll_plan *plan = NULL;
  atoll_plan_params_init(&params);
  params.target = 1;
  params.min_throughput = 1;
  for (int found = 0; !found; memory += memory / 8, tries++) { /* the least that both together have */
    make_cluster(&c, ISLANDS, memory, 0.01);
    atoll_plan_problem p = test_problem(m, &c, 16);
    found = atoll_plan_make(&p, &params, &plan, NULL) == ATOLL_OK;
    atoll_plan_destroy(&plan);
    test_cluster_free(&c);
  }
  assert_true(tries > 1); /* what it began with was too little */
  memory = memory / 9 * 8;
  make_cluster(&c, ISLANDS, memory + 16, 0.01);
  make_cluster(&one, 1, memory + 16, 0.01);
  atoll_plan_problem p = test_problem(m, &c, 16), alone = test_problem(m, &one, 16);
  assert_int_equal(atoll_plan_make(&alone, &params, &plan, NULL), ATOLL_INFEASIBLE);
  atoll_plan_report *report = NULL;
  plan = make_plan(&p, &report);
  assert_int_equal(report->copies, 1);
  assert_simulated(plan, &p);
  atoll_plan_report_destroy(&report);
  atoll_plan_destroy(&plan);
  atoll_model_destroy(&m);
  test_cluster_free(&c);
  test_cluster_free(&one);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(copies_stay_on_their_islands),
                                     cmocka_unit_test(one_pipeline_where_no_island_holds_the_model)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
