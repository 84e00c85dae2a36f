/* Unequal islands get unequal work, a device that only slows things down is left idle, profiles decide over rates, and
 * the explanation says so in words. */
#include "plan_made.h"

static char *explained(const made *x, const atoll_plan_report *report) {
  char *text = NULL;
  size_t n = 0;
  FILE *f = open_memstream(&text, &n);
  atoll_plan_explain(x->plan, &x->problem, report, f);
  fclose(f);
  return text;
}

static void has(const char *text, const char *part) {
  if (!strstr(text, part))
    fail_msg("'%s' is not in:\n%s", part, text);
}

static int blocks(const atoll_plan *p, int stage) {
  return p->pipeline[0].stage[stage].chunk[0].last - p->pipeline[0].stage[stage].chunk[0].first;
}

static void begin(made *x, const test_node *node, int nodes, double link, int64_t batch) {
  memset(x, 0, sizeof *x);
  test_cluster_make(&x->cluster, node, nodes, link, link);
  x->model = test_model(12, 128);
  x->problem = test_problem(x->model, &x->cluster, batch);
  atoll_plan_params_init(&x->params);
}

static void uneven_split(void **state) {
  (void)state;
  made x;
  const test_node node[] = {{"fast", 1, INT64_C(1) << 30, 90, 45}, {"slow", 1, INT64_C(1) << 30, 30, 15}};
  begin(&x, node, 2, 10, 32);
  x.params.stages = 2;
  atoll_plan_report *report = NULL;
  assert_ok(atoll_plan_make(&x.problem, &x.params, &x.plan, &report));
  int fast = x.plan->pipeline[0].stage[0].replica[0].island == 0 ? 0 : 1;
  assert_true(blocks(x.plan, fast) >= 2 * blocks(x.plan, 1 - fast)); /* about 3 to 1 */
  assert_true(report->count > 0);
  has(report->rejected[0].text, "even split");
  assert_true(report->rejected[0].step_seconds > 1.2 * x.plan->step_seconds);
  char *text = explained(&x, report);
  has(text, "island");
  has(text, "parameter");
  has(text, "waiting");
  has(text, "Costs are analytic");
  has(text, "Runners-up");
  has(text, "wte.weight is used by stages 0 and 1");
  free(text);
  atoll_plan_report_destroy(&report);
  made_end(&x);
}

static void uneven_batches(void **state) {
  (void)state;
  made x;
  const test_node node[] = {{"fast", 1, INT64_C(1) << 30, 90, 45}, {"slow", 1, INT64_C(1) << 30, 30, 15}};
  begin(&x, node, 2, 10, 32);
  x.params.stages = 1;
  x.params.data_parallel = 2;
  assert_ok(atoll_plan_make(&x.problem, &x.params, &x.plan, NULL));
  const atoll_plan_stage *s = &x.plan->pipeline[0].stage[0];
  assert_int_equal(s->replica[0].island, 0);
  assert_int_equal(s->replica[0].micro_batches * 1, 3 * s->replica[1].micro_batches); /* 6 and 2 of 8 leaves */
  made_end(&x);
}

static void idle(void **state) {
  (void)state;
  made x;
  const test_node node[] = {{"fast", 2, INT64_C(1) << 30, 90, 45}, {"snail", 1, INT64_C(1) << 30, 0.05, 0.05}};
  begin(&x, node, 2, 10, 32);
  atoll_plan_report *report = NULL;
  assert_ok(atoll_plan_make(&x.problem, &x.params, &x.plan, &report));
  assert_int_equal(x.plan->idle_count, 1);
  assert_int_equal(x.plan->idle[0], 2);
  char *text = explained(&x, report);
  has(text, "Idle\n  rank 2: every plan considered that uses it is predicted to be slower");
  free(text);
  atoll_plan_report_destroy(&report);
  made_end(&x);
}

/* A profile that contradicts the rates: the "slow" device is measured as the faster one. */
static void profile_decides(void **state) {
  (void)state;
  made x;
  const test_node node[] = {{"fast", 1, INT64_C(1) << 30, 90, 45}, {"slow", 1, INT64_C(1) << 30, 30, 15}};
  begin(&x, node, 2, 10, 32);
  atoll_profile *p = NULL;
  assert_ok(atoll_profile_create(&p));
  static const char *const kinds[] = {"embed", "block", "head"};
  for (int island = 0; island < 2; island++)
    for (int k = 0; k < 3; k++)
      for (int policy = 0; policy < ATOLL_POLICIES; policy++)
        for (int64_t b = 1; b <= 32; b *= 2) {
          double t = (double)b * (island ? 1e-3 : 3e-3) * (k == 0 ? 0.1 : 1);
          atoll_cost c = {.forward = t, .backward_input = t, .backward_weight = t, .update = 1e-3};
          char class_key[256];
          atoll_island_class(&x.cluster.islands, island, class_key, sizeof class_key);
          assert_ok(atoll_profile_add(p, class_key, atoll_model_digest(x.model), kinds[k],
                                      atoll_policy_name((atoll_policy)policy), 64, b, &c));
        }
  x.problem.profile = p;
  x.params.stages = 2;
  assert_ok(atoll_plan_make(&x.problem, &x.params, &x.plan, NULL));
  assert_string_equal(x.plan->cost_source, "measured");
  int fast = x.plan->pipeline[0].stage[0].replica[0].island == 0 ? 0 : 1;
  assert_true(blocks(x.plan, 1 - fast) > blocks(x.plan, fast));
  const atoll_plan_replica *r = &x.plan->pipeline[0].stage[1 - fast].replica[0];
  int n = blocks(x.plan, 1 - fast);
  double per = (double)r->micro_batch * 1e-3,
         want = 1 - fast == 0 ? (n - 0.9) * per : n * per; /* the embedding is a tenth */
  assert_float_equal(r->forward_seconds, want, 1e-9);
  assert_float_equal(r->backward_seconds, 2 * want, 1e-9);
  atoll_profile_destroy(&p);
  made_end(&x);
}

/* Times of a calibration that found micro-batches of one size a hundredth faster per sample than others; its samples
 * lie `spread` around their median. */
static atoll_profile *calibration(const made *x, int64_t favoured, double spread) {
  static const char *const kinds[] = {"embed", "block", "head"};
  atoll_profile *p = NULL;
  char class_key[256];
  atoll_island_class(&x->cluster.islands, 0, class_key, sizeof class_key);
  assert_ok(atoll_profile_create(&p));
  for (int i = 0; i < 3 * ATOLL_POLICIES * 6 * 5; i++) {
    int64_t b = INT64_C(1) << i / 5 % 6;
    double t = (double)b * 1e-3 * (b == favoured ? 0.99 : 1) * (1 + (i % 5 - 2) * spread);
    atoll_cost c = {.forward = t, .backward_input = t, .backward_weight = t, .update = 1e-6};
    assert_ok(atoll_profile_add(p, class_key, atoll_model_digest(x->model), kinds[i / 30 % 3],
                                atoll_policy_name((atoll_policy)(i / 90)), 64, b, &c));
  }
  return p;
}

static int64_t chosen_size(made *x, int64_t favoured, double spread, atoll_digest *digest) {
  atoll_profile *p = calibration(x, favoured, spread);
  atoll_plan_report *report = NULL;
  x->problem.profile = p;
  assert_ok(atoll_plan_make(&x->problem, &x->params, &x->plan, &report));
  int64_t b = x->plan->pipeline[0].stage[0].replica[0].micro_batch;
  *digest = atoll_plan_digest(x->plan);
  if (b == favoured)
    assert_true(report->alike == 0);
  else
    assert_float_equal(report->alike, spread, 1e-9);
  atoll_plan_report_destroy(&report);
  atoll_plan_destroy(&x->plan);
  atoll_profile_destroy(&p);
  return b;
}

/* What measurements cannot tell apart is decided by a fixed order: fewer stages, larger micro-batches, first policy. */
static void choice_outlives_a_calibration(void **state) {
  (void)state;
  made x;
  const test_node node[] = {{"a", 2, INT64_C(1) << 30, 90, 45}};
  atoll_digest one, other, sure;
  begin(&x, node, 1, 10, 32);
  assert_int_equal(chosen_size(&x, 2, 0, &one), 2); /* samples that agree are believed */
  assert_int_equal(chosen_size(&x, 4, 0, &other), 4);
  assert_false(atoll_digest_equal(one, other));
  assert_int_equal(chosen_size(&x, 2, 0.03, &one), 16);
  assert_int_equal(chosen_size(&x, 4, 0.03, &other), 16);
  assert_true(atoll_digest_equal(one, other));
  assert_int_equal(chosen_size(&x, 16, 0.003, &sure), 16); /* and it is the plan of who measured that one fastest */
  assert_true(atoll_digest_equal(one, sure));
  made_end(&x);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(uneven_split), cmocka_unit_test(uneven_batches),
                                     cmocka_unit_test(idle), cmocka_unit_test(profile_decides),
                                     cmocka_unit_test(choice_outlives_a_calibration)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
