/* 64 devices of three kinds and 50 layers: a plan, its gap stated, in seconds; and the same plan every time. */
#include "plan_test.h"

#include "atoll/clock.h"

static void test(void **state) {
  (void)state;
  test_node node[16];
  for (int i = 0; i < 16; i++)
    node[i] = i < 6    ? (test_node){"A", 4, INT64_C(16) << 30, 9000, 900}
              : i < 12 ? (test_node){"B", 4, INT64_C(8) << 30, 5000, 500}
                       : (test_node){"C", 4, INT64_C(6) << 30, 2000, 300};
  test_cluster c;
  test_cluster_make(&c, node, 16, 20, 2);
  atoll_model *m = test_model(48, 1600);
  atoll_plan_problem p = test_problem(m, &c, 512);
  atoll_plan_params params;
  atoll_plan_params_init(&params);
  atoll_plan *plan[2] = {NULL, NULL};
  double began = atoll_clock_process_cpu();
  for (int i = 0; i < 2; i++)
    assert_ok(atoll_plan_make(&p, &params, &plan[i], NULL));
  double took = (atoll_clock_process_cpu() - began) / 2;
  print_message("planned in %.2f s of CPU: step %.3f s, gap %.1f %%\n", took, plan[0]->step_seconds,
                100 * plan[0]->gap);
  assert_true(atoll_digest_equal(atoll_plan_digest(plan[0]), atoll_plan_digest(plan[1])));
  assert_true(plan[0]->optimal || plan[0]->gap > 0);
  /* No plan beats all devices at full rate without communication or bubble: 6 nodes of 9, 6 of 5 and 4 of 2 TFLOP/s. */
  double flops = 6.0 * (double)atoll_model_matmul_elements(m) * 512 * 64, rate = 0.85 * 4e12 * (6 * 9 + 6 * 5 + 4 * 2);
  assert_true(plan[0]->step_seconds > flops / rate);
  assert_true(plan[0]->step_seconds < 2.5 * flops / rate);
  assert_true(took < 60); /* many times what it takes, for sanitizers and busy machines */
  for (int i = 0; i < 2; i++)
    atoll_plan_destroy(&plan[i]);
  atoll_model_destroy(&m);
  test_cluster_free(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
