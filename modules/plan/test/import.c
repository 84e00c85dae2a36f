/* Another program's layer times plan a model of ours where they are of this very model, and are marked imported; of
 * another model, samples of another length or other devices they are refused; policies the file knows nothing of are
 * scaled by the model. */
#include "atoll/plan_import.h"
#include "plan_test.h"

enum { BLOCKS = 4, WIDTH = 64 };

typedef struct fixture {
  test_cluster cluster;
  atoll_model *model;
  atoll_plan_problem problem;
  atoll_profile *profile;
} fixture;

static void fixture_begin(fixture *x) {
  const test_node node[] = {{"A100-40", 2, INT64_C(1) << 30, 100, 20}};
  test_cluster_make(&x->cluster, node, 1, 5, 1);
  x->model = test_model(BLOCKS, WIDTH);
  x->problem = test_problem(x->model, &x->cluster, 16);
  assert_ok(atoll_profile_create(&x->profile));
}

static void fixture_end(fixture *x) {
  atoll_profile_destroy(&x->profile);
  atoll_model_destroy(&x->model);
  test_cluster_free(&x->cluster);
}

static void list(FILE *f, const char *key, int layers, double ends, double block) {
  fprintf(f, "\"%s\": [", key);
  for (int l = 0; l < layers; l++)
    fprintf(f, "%s%.9g", l ? ", " : "", l == 0 || l > BLOCKS ? ends : block);
  fprintf(f, "]");
}

static double block_values(const atoll_model *m) {
  int index[64], n = atoll_model_layer_params(m, 1, index, 64);
  double sum = 0;
  for (int i = 0; i < n; i++) {
    const atoll_model_param *p = atoll_model_param_at(m, index[i]);
    double k = 1;
    for (int d = 0; d < p->ndim; d++)
      k *= (double)p->shape[d];
    sum += k;
  }
  return sum;
}

/* layers + 1 of them have the norm by itself; seconds per block and sample: 1 forward, 2 backward. */
static void write_profile(const fixture *x, const char *path, const char *gpu, int layers, double parameters,
                          double seq) {
  FILE *f = fopen(path, "w");
  assert_non_null(f);
  fprintf(f, "{\"model\": \"T\", \"layers\": %d, \"values\": {\"1\": {", layers);
  list(f, "parameters", layers, 7, parameters * block_values(x->model));
  fprintf(f, ", ");
  list(f, "output", layers, seq * WIDTH, seq * WIDTH);
  fprintf(f, "}}, \"gpus\": {\"%s\": {\"memory_gib\": 40, \"seconds\": {", gpu);
  for (int b = 1; b <= 4; b *= 2) {
    fprintf(f, "%s\"%d\": {\"1\": {", b > 1 ? ", " : "", b);
    list(f, "forward", layers, 0.25 * b, b);
    fprintf(f, ", ");
    list(f, "backward", layers, 0.5 * b, 2 * b);
    fprintf(f, ", ");
    list(f, "update", layers, 9, 9);
    fprintf(f, "}}");
  }
  fprintf(f, "}}}}\n");
  assert_int_equal(fclose(f), 0);
}

static atoll_err import(fixture *x, const char *path) {
  return atoll_plan_import(path, x->model, &x->cluster.islands, x->problem.seq, x->profile);
}

static void times_are_those_of_the_file(void **state) {
  (void)state;
  for (int extra = 0; extra < 2; extra++) { /* with the last norm inside the head, and before it */
    fixture x;
    atoll_cost c;
    fixture_begin(&x);
    write_profile(&x, "import.json", "A100-40", BLOCKS + 2 + extra, 1.004, (double)x.problem.seq);
    assert_ok(import(&x, "import.json"));
    assert_int_equal(atoll_profile_count(x.profile), 9); /* three sizes of three kinds */
    const char *keeps_all = atoll_policy_name((atoll_policy)0), *class_key = x.cluster.islands.island[0].class_key;
    atoll_digest model = atoll_model_digest(x.model);
    assert_ok(atoll_profile_find(x.profile, class_key, model, "block", keeps_all, x.problem.seq, 2, &c));
    assert_true(c.forward == 2 && c.backward_input == 4 && c.backward_weight == 0 && c.update == 0);
    assert_int_equal(c.source, ATOLL_COST_IMPORTED);
    assert_ok(atoll_profile_find(x.profile, class_key, model, "head", keeps_all, x.problem.seq, 4, &c));
    assert_true(c.forward == (extra ? 2 : 1));
    assert_ok(atoll_profile_find(x.profile, class_key, model, "block", keeps_all, x.problem.seq, 3, &c));
    assert_int_equal(c.source, ATOLL_COST_IMPORTED); /* between sizes it stays the less certain of the two */
    fixture_end(&x);
  }
  remove("import.json");
}

static void plans_are_marked_imported(void **state) {
  (void)state;
  fixture x;
  double seconds[2];
  fixture_begin(&x);
  write_profile(&x, "import.json", "A100-40", BLOCKS + 2, 1, (double)x.problem.seq);
  assert_ok(import(&x, "import.json"));
  x.problem.profile = x.profile;
  for (int policy = 0; policy < 2; policy++) {
    atoll_plan_params params;
    atoll_plan *plan = NULL;
    atoll_plan_params_init(&params);
    params.micro_batch = 2;
    snprintf(params.policy, sizeof params.policy, "%s",
             atoll_policy_name((atoll_policy)(policy ? ATOLL_POLICIES - 1 : 0)));
    assert_ok(atoll_plan_make(&x.problem, &params, &plan, NULL));
    assert_string_equal(plan->cost_source, "imported");
    const atoll_plan_replica *r = &plan->pipeline[0].stage[0].replica[0];
    seconds[policy] = r->forward_seconds + r->backward_seconds;
    atoll_plan_destroy(&plan);
  }
  assert_true(seconds[0] >=
              BLOCKS * 6 / 2.0);        /* all blocks on one stage or on two: seconds, not analytic microseconds */
  assert_true(seconds[1] > seconds[0]); /* what keeps less computes again */
  fixture_end(&x);
  remove("import.json");
}

static void others_are_refused(void **state) {
  (void)state;
  fixture x;
  fixture_begin(&x);
  const struct {
    const char *gpu, *says;
    int layers;
    double parameters, seq;
  } bad[] = {{"A100-40", "it has 12 layers, this one 6", BLOCKS + 8, 1, 1},
             {"A100-40", "of another model: layer 1", BLOCKS + 2, 1.05, 1},
             {"A100-40", "its samples had other than", BLOCKS + 2, 1, 2},
             {"H100-80", "it knows H100-80", BLOCKS + 2, 1, 1}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    write_profile(&x, "import.json", bad[i].gpu, bad[i].layers, bad[i].parameters, bad[i].seq * (double)x.problem.seq);
    assert_int_equal(import(&x, "import.json"), ATOLL_MISMATCH);
    if (!strstr(atoll_err_message(), bad[i].says))
      fail_msg("'%s' lacks '%s'", atoll_err_message(), bad[i].says);
    assert_int_equal(atoll_profile_count(x.profile), 0); /* untouched */
  }
  FILE *f = fopen("import.json", "w");
  assert_non_null(f);
  fputs("{\"layers\": 6, \"gpus\": {}, \"values\": {\"1\": {\"parameters\": [1, 2]}}}", f);
  assert_int_equal(fclose(f), 0);
  assert_int_equal(import(&x, "import.json"), ATOLL_USAGE);
  assert_non_null(strstr(atoll_err_message(), "values.1.parameters has 2 values"));
  assert_int_equal(import(&x, "absent.json"), ATOLL_NOINPUT);
  fixture_end(&x);
  remove("import.json");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(times_are_those_of_the_file),
                                     cmocka_unit_test(plans_are_marked_imported), cmocka_unit_test(others_are_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
