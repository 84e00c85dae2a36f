/* The neutral scorer's form says what the plan says, and a feature it lacks is refused by name. */
#include "plan_made.h"

static void test(void **state) {
  (void)state;
  made x;
  made_begin(&x);
  atoll_plan_destroy(&x.plan);
  snprintf(x.params.policy, sizeof x.params.policy, "eager_flash");
  x.params.sum_leaves = 2; /* both replicas get half */
  assert_ok(atoll_plan_make(&x.problem, &x.params, &x.plan, NULL));
  char *text = NULL;
  size_t n = 0;
  strcpy(x.cluster.topo.node[0].kind, "zone-1");
  assert_ok(atoll_plan_to_judge(x.plan, "OPT-350", &x.cluster.topo, &text, &n));
  assert_int_equal(strlen(text), n);
  assert_non_null(strstr(text, "\"model\": \"OPT-350\""));
  assert_non_null(strstr(text, "\"global_batch\": 16"));
  assert_non_null(strstr(text, "\"micro_batch\": 2"));
  assert_non_null(strstr(text, "\"zone\": \"zone-1\""));
  assert_non_null(strstr(text, "\"count\": 2"));
  free(text);
  text = NULL;
  atoll_plan_stage *s = &x.plan->pipeline[0].stage[1];
#define LACKS(part, place, value)                                                                                      \
  do {                                                                                                                 \
    __typeof__(place) kept = (place);                                                                                  \
    (place) = (value);                                                                                                 \
    assert_refused(ATOLL_UNSUPPORTED, part, atoll_plan_to_judge(x.plan, "m", &x.cluster.topo, &text, &n));             \
    assert_null(text);                                                                                                 \
    (place) = kept;                                                                                                    \
  } while (0)
  LACKS("stage 1 uses policy exact20", s->range[0].policy, ATOLL_POLICY_EXACT20);
  LACKS("keeps packed weights", s->packed, 1);
  LACKS("recomputes", s->range[0].recompute, 1);
  LACKS("offload", s->range[0].offload_activations, 0.5);
  LACKS("MLP algorithm", s->range[0].mlp[0], 'c');
  LACKS("interleaving", s->chunks, 2);
  LACKS("context degree 2", s->replica[1].context, 2);
  LACKS("ZeRO stage 1", s->replica[0].zero, 1);
  LACKS("sequence parallelism", s->replica[0].sequence_parallel, 1);
  LACKS("deals them out evenly", s->replica[1].micro_batches, 7);
  LACKS("pipelines", x.plan->pipelines, 2);
  made_end(&x);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
