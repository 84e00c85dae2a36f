/* Plans recorded with the neutral scorer's figures get the same ones here, to 1e-9; malformed cases and plans are
 * refused with file and key. Recorded figures are those of the published simulator, which counts micro-batches by the
 * first stage: plans with stages of unequal width are left out. */
#include <jansson.h>
#include <math.h>
#include <unistd.h>

#include "atoll/case.h"
#include "atoll/file.h"
#include "unit_check.h"

static char judge[300], folder[64];

static int present(void) {
  const char *shared = getenv("ATOLL_SHARED");
  snprintf(judge, sizeof judge, "%s/judge", shared ? shared : ATOLL_SOURCE_DIR "/../shared");
  if (atoll_file_is_dir(judge))
    return 1;
  print_message("skipped: no %s\n", judge);
  return 0;
}

static json_t *read_shared(const char *name) {
  char path[1024];
  json_error_t why;
  snprintf(path, sizeof path, "%s/%s", judge, name);
  json_t *root = json_load_file(path, 0, &why);
  assert_non_null(root);
  return root;
}

static int width(const json_t *stage) {
  size_t i;
  json_t *r;
  int n = 0;
  json_array_foreach(json_object_get(stage, "replicas"), i, r) {
    const json_t *count = json_object_get(r, "count");
    n += count ? (int)json_integer_value(count) : 1;
  }
  return n;
}

/* A cluster with room for the plan. */
static json_t *cluster_for(const json_t *plan, int *equal) {
  json_t *cluster = json_array(), *stages = json_object_get(plan, "stages"), *stage, *r, *e;
  size_t i, j, k;
  *equal = 1;
  json_array_foreach(stages, i, stage) {
    *equal &= width(stage) == width(json_array_get(stages, 0));
    json_array_foreach(json_object_get(stage, "replicas"), j, r) {
      int known = 0;
      json_array_foreach(cluster, k, e) known |= json_equal(json_object_get(e, "gpu"), json_object_get(r, "gpu")) &&
                                                 json_equal(json_object_get(e, "zone"), json_object_get(r, "zone"));
      if (!known)
        json_array_append_new(cluster, json_pack("{s:O,s:O,s:i,s:i}", "gpu", json_object_get(r, "gpu"), "zone",
                                                 json_object_get(r, "zone"), "count", 4096, "gpus_per_node", 8));
    }
  }
  return cluster;
}

static atoll_err score(const json_t *plan, json_t *cluster, atoll_case_score *out) {
  char path[128], data[400];
  atoll_case *c = NULL;
  json_t *root =
      json_pack("{s:s,s:O,s:O,s:o,s:{s:s}}", "name", "test", "model", json_object_get(plan, "model"), "global_batch",
                json_object_get(plan, "global_batch"), "cluster", cluster, "objective", "maximise", "iterations_per_s");
  char *text = json_dumps(root, 0), *plan_text = json_dumps(plan, 0);
  snprintf(path, sizeof path, "%s/case.json", folder);
  snprintf(data, sizeof data, "%s/data", judge);
  assert_int_equal(atoll_file_publish(path, text, strlen(text)), ATOLL_OK);
  atoll_err err = atoll_case_load(path, data, NULL, NULL, &c);
  if (err == ATOLL_OK)
    err = atoll_case_score_text(c, "plan", plan_text, strlen(plan_text), out);
  atoll_case_destroy(&c);
  json_decref(root);
  free(text);
  free(plan_text);
  return err;
}

static void near(const char *what, double got, const json_t *want, double within) {
  if (!json_is_number(want))
    return;
  double x = json_number_value(want);
  if (!(fabs(got - x) <= within * fabs(x)))
    print_error("%s: %.17g, recorded %.17g\n", what, got, x);
  assert_true(fabs(got - x) <= within * fabs(x));
}

static void examples(void **state) {
  (void)state;
  if (!present())
    skip();
  json_t *list = read_shared("examples.json"), *e;
  size_t i;
  int compared = 0;
  json_array_foreach(list, i, e) {
    atoll_case_score s;
    int equal;
    json_t *plan = json_object_get(e, "plan"), *cluster = cluster_for(plan, &equal);
    atoll_err err = score(plan, cluster, &s);
    if (err != ATOLL_OK)
      print_error("example %zu: %s\n", i, atoll_err_message());
    assert_int_equal(err, ATOLL_OK);
    if (!equal)
      continue;
    near("seconds", s.iteration_seconds, json_object_get(e, "iteration_time_s"), 1e-9);
    near("transfers", s.transfer_price, json_object_get(e, "transfer_price"), 1e-9);
    assert_int_equal(s.fits, json_is_true(json_object_get(e, "fits")));
    compared++;
  }
  assert_true(compared >= 25);
  json_decref(list);
}

static void recorded(void **state) {
  char cases[500];
  char **name = NULL;
  size_t files = 0;
  int compared = 0;
  (void)state;
  if (!present())
    skip();
  snprintf(cases, sizeof cases, "%s/cases", judge);
  assert_int_equal(atoll_file_list(cases, &name, &files), ATOLL_OK);
  for (size_t f = 0; f < files; f++) {
    char at[600];
    snprintf(at, sizeof at, "cases/%.80s", name[f]);
    json_t *root = read_shared(at), *r;
    size_t i;
    json_array_foreach(json_object_get(root, "recorded"), i, r) {
      json_t *plan = json_object_get(r, "plan"), *rate = json_object_get(r, "iterations_per_s");
      atoll_case_score s;
      int equal;
      if (!json_object_get(root, "cluster") || !plan)
        continue;
      atoll_err err = score(plan, cluster_for(plan, &equal), &s);
      assert_int_equal(err, ATOLL_OK);
      if (!equal)
        continue;
      near("iterations per s", 1 / s.iteration_seconds, rate, 1e-9);
      near("price", s.price_per_iteration, json_object_get(r, "price_per_iteration"), 1e-9);
      compared++;
    }
    json_decref(root);
  }
  atoll_file_list_free(&name, files);
  assert_true(compared >= 10);
}

static void measured(void **state) {
  static const char *const files[] = {"measured/opt-350m-gh200.json", "measured/gpt-neo-2.7b-gh200.json"};
  (void)state;
  if (!present())
    skip();
  for (int f = 0; f < 2; f++) {
    json_t *list = read_shared(files[f]), *e;
    size_t i;
    json_array_foreach(list, i, e) {
      atoll_case_score s;
      int equal;
      json_t *plan = json_object_get(e, "plan");
      assert_int_equal(score(plan, cluster_for(plan, &equal), &s), ATOLL_OK);
      near("seconds", s.iteration_seconds, json_object_get(e, "judge_iteration_time_s"), 1e-5);
    }
    json_decref(list);
  }
}

/* ---- refusals ---------------------------------------------------------------------------------------------------- */

#define CASE(objective, cluster)                                                                                       \
  "{\"name\":\"t\",\"model\":\"M\",\"global_batch\":8,\"objective\":" objective ",\"cluster\":[" cluster "]}"
#define FASTEST   "{\"maximise\":\"iterations_per_s\"}"
#define GPU(rest) "{\"gpu\":\"G\",\"zone\":\"z\"," rest "}"
#define TABLE(values)                                                                                                  \
  "{\"model\":\"M\",\"layers\":2,\"gpus\":{\"G\":{\"memory_gib\":8,\"price_per_hour\":{\"z\":1},\"seconds\":{\"1\":{"  \
  "\"1\":{\"forward\":" values ",\"backward\":[0.2,0.2],\"update\":[0.01,0.01]}}}}},\"values\":{\"1\":{"               \
  "\"parameters\":[1000,1000],\"output\":[10,10],\"activation\":[100,100]}}}"

static void put(const char *name, const char *text) {
  char path[128];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  assert_int_equal(atoll_file_publish(path, text, strlen(text)), ATOLL_OK);
}

static void loads(atoll_err want, const char *says, const char *text, const char *profile, const char *lose) {
  char path[128];
  atoll_case *c = NULL;
  put("case.json", text);
  put("profiles/M.json", profile);
  snprintf(path, sizeof path, "%s/case.json", folder);
  atoll_err err = atoll_case_load(path, folder, lose, NULL, &c);
  if (err != want || (says && !strstr(atoll_err_message(), says)))
    print_error("%s: %d '%s', expected %d '%s'\n", text, err, atoll_err_message(), want, says ? says : "");
  assert_int_equal(err, want);
  assert_true(!says || strstr(atoll_err_message(), says));
  atoll_case_destroy(&c);
}

static void refuses(void **state) {
  const char *good = TABLE("[0.1,0.1]");
  const char *one = CASE(FASTEST, GPU("\"count\":4,\"gpus_per_node\":4"));
  (void)state;
  put("network.json", "{\"z\":{\"G\":{\"1\":{\"z\":{\"G\":{\"1\":[0.1,1.0]}}}}}}");
  put("transfer_price.json", "{\"z\":{\"z\":0}}");
  loads(ATOLL_OK, NULL, one, good, NULL);
  loads(ATOLL_USAGE, "cluster[0].count is 0", CASE(FASTEST, GPU("\"count\":0")), good, NULL);
  loads(ATOLL_USAGE, "cluster[0].count is -4", CASE(FASTEST, GPU("\"count\":-4")), good, NULL);
  loads(ATOLL_USAGE, "cluster[0].count is missing", CASE(FASTEST, GPU("\"gpus_per_node\":4")), good, NULL);
  loads(ATOLL_USAGE, "cluster[0].key 'color' is unknown", CASE(FASTEST, GPU("\"count\":4,\"color\":1")), good, NULL);
  loads(ATOLL_USAGE, "listed twice", CASE(FASTEST, GPU("\"count\":4") "," GPU("\"count\":4")), good, NULL);
  loads(ATOLL_USAGE, "cluster is []", CASE(FASTEST, ""), good, NULL);
  loads(ATOLL_USAGE, "objective", CASE("{\"maximise\":\"fun\"}", GPU("\"count\":4")), good, NULL);
  loads(ATOLL_USAGE, "max_price_per_iteration is -1",
        CASE("{\"maximise\":\"iterations_per_s\",\"max_price_per_iteration\":-1}", GPU("\"count\":4")), good, NULL);
  loads(ATOLL_USAGE, "key 'min_iterations_per_s' is unknown",
        CASE("{\"maximise\":\"iterations_per_s\",\"min_iterations_per_s\":1}", GPU("\"count\":4")), good, NULL);
  loads(ATOLL_USAGE, "case.json:1", "{\"name\":", good, NULL);
  loads(ATOLL_USAGE, "forward[1] is -0.1", one, TABLE("[0.1,-0.1]"), NULL);
  loads(ATOLL_USAGE, "forward has 1 values", one, TABLE("[0.1]"), NULL);
  loads(ATOLL_USAGE, "model is 'N', the case plans 'M'", one,
        "{\"model\":\"N\",\"layers\":2,\"gpus\":{},\"values\":{}}", NULL);
  loads(ATOLL_USAGE, "the cluster has 4 G in z", one, good, "G z 5");
  loads(ATOLL_USAGE, "expected \"GPU ZONE COUNT\"", one, good, "G z");
  loads(ATOLL_INFEASIBLE, "no device is left", one, good, "G z 4");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(examples), cmocka_unit_test(recorded), cmocka_unit_test(measured),
                                     cmocka_unit_test(refuses)};
  char profiles[128];
  snprintf(folder, sizeof folder, "/tmp/atoll-case-XXXXXX");
  if (!mkdtemp(folder))
    return 1;
  snprintf(profiles, sizeof profiles, "%s/profiles", folder);
  int failed = atoll_file_mkdirs(profiles) != ATOLL_OK || cmocka_run_group_tests(tests, NULL, NULL);
  atoll_err removed = atoll_file_remove_tree(folder);
  return failed || removed != ATOLL_OK;
}
