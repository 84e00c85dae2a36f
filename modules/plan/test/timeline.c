/* Timelines and charts of simulated steps: alike replicas share a row, slices of a thread never overlap, names are
 * escaped, and what is left out is said. */
#include <jansson.h>

#include "sim_plan.h"

/* Stage 0: two equal replicas. Stage 1: one is slower. */
static atoll_plan *small(void) {
  atoll_plan *p = sim_plan(1, 2, 1, 8);
  sim_replicas(p, 0, 0, 2, 1e-3, 2e-3);
  sim_replicas(p, 0, 1, 2, 1e-3, 2e-3);
  p->pipeline[0].stage[1].replica[1].backward_seconds = 3e-3;
  for (int s = 0; s < 2; s++)
    for (int k = 0; k < 2; k++)
      p->pipeline[0].stage[s].replica[k].send_seconds = 2e-4;
  return p;
}

static json_t *load(const atoll_simulation *x, const atoll_plan *p, int64_t most, json_t **root) {
  json_error_t e;
  char *text = NULL;
  size_t n = 0;
  assert_ok(atoll_simulation_trace(x, p, NULL, most, &text, &n));
  *root = json_loadb(text, n, 0, &e);
  if (!*root)
    fail_msg("not JSON, line %d: %s", e.line, e.text);
  free(text);
  return json_object_get(*root, "traceEvents");
}

static int64_t whole(double microseconds) { return llround(microseconds * 1e3); }

/* Slices of each thread in the order of the file. */
static int threads_do_not_overlap(json_t *list) {
  int slices = 0;
  for (size_t i = 0; i < json_array_size(list); i++) {
    json_t *a = json_array_get(list, i);
    if (strcmp(json_string_value(json_object_get(a, "ph")), "X") != 0)
      continue;
    slices++;
    assert_true(json_number_value(json_object_get(a, "dur")) > 0);
    for (size_t k = i + 1; k < json_array_size(list); k++) {
      json_t *b = json_array_get(list, k);
      if (strcmp(json_string_value(json_object_get(b, "ph")), "X") != 0 ||
          json_integer_value(json_object_get(a, "pid")) != json_integer_value(json_object_get(b, "pid")) ||
          json_integer_value(json_object_get(a, "tid")) != json_integer_value(json_object_get(b, "tid")))
        continue;
      int64_t end =
          whole(json_number_value(json_object_get(a, "ts"))) + whole(json_number_value(json_object_get(a, "dur")));
      assert_true(whole(json_number_value(json_object_get(b, "ts"))) >= end);
      break;
    }
  }
  return slices;
}

static int processes(json_t *list, const char *part) {
  int n = 0;
  for (size_t i = 0; i < json_array_size(list); i++) {
    json_t *e = json_array_get(list, i);
    if (!strcmp(json_string_value(json_object_get(e, "name")), "process_name"))
      n += strstr(json_string_value(json_object_get(json_object_get(e, "args"), "name")), part) != NULL;
  }
  return n;
}

static void traces_open_in_a_viewer(void **state) {
  (void)state;
  atoll_plan *p = small();
  atoll_simulation *x = sim_run(p, NULL, NULL);
  json_t *root, *list = load(x, p, 0, &root);
  /* Replica 1 of stage 0 sends to the slow one, so its steps differ from those of replica 0. */
  assert_int_equal(processes(list, "rank"), 4);
  assert_int_equal(processes(list, "rank 3, stage 1 (layers 1-1)"), 1);
  assert_int_equal(threads_do_not_overlap(list), x->events);
  json_decref(root);
  /* Now they are alike, two and two. */
  atoll_simulation_destroy(&x);
  p->pipeline[0].stage[1].replica[1].backward_seconds = 2e-3;
  x = sim_run(p, NULL, NULL);
  list = load(x, p, 0, &root);
  assert_int_equal(processes(list, "doing the same"), 2);
  assert_int_equal(processes(list, "ranks 0-1 doing the same, stage 0"), 1);
  assert_int_equal(threads_do_not_overlap(list), x->events / 2);
  json_decref(root);
  list = load(x, p, 5, &root);
  assert_int_equal(threads_do_not_overlap(list), 5);
  const char *last = json_string_value(json_object_get(json_array_get(list, json_array_size(list) - 1), "name"));
  assert_non_null(strstr(last, "events left out: the limit was reached"));
  json_decref(root);
  /* Another update is another row. */
  atoll_simulation_destroy(&x);
  p->pipeline[0].stage[1].replica[0].update_seconds = 1e-3;
  p->pipeline[0].stage[1].replica[1].update_seconds = 2e-3;
  x = sim_run(p, NULL, NULL);
  list = load(x, p, 0, &root);
  assert_int_equal(processes(list, "rank"), 3);
  json_decref(root);
  atoll_simulation_destroy(&x);
  atoll_plan_destroy(&p);
}

static void overlapping_receives_get_threads(void **state) {
  (void)state;
  atoll_plan *p = sim_plan(1, 2, 1, 8);
  sim_replicas(p, 0, 0, 4, 1e-3, 2e-3);
  sim_replicas(p, 0, 1, 1, 1e-3, 2e-3);
  for (int k = 0; k < 4; k++)
    p->pipeline[0].stage[0].replica[k].send_seconds = 2e-3;
  atoll_simulation *x = sim_run(p, NULL, NULL);
  int overlaps = 0;
  for (int64_t i = 1; i < x->events; i++)
    for (int64_t k = 0; k < i; k++)
      overlaps += x->event[i].replica == 4 && x->event[k].replica == 4 && x->event[i].stream == ATOLL_SIM_RECEIVE &&
                  x->event[k].stream == ATOLL_SIM_RECEIVE && x->event[k].end > x->event[i].begin;
  assert_true(overlaps > 0);
  json_t *root, *list = load(x, p, 0, &root);
  assert_true(threads_do_not_overlap(list) > 0);
  json_decref(root);
  atoll_simulation_destroy(&x);
  atoll_plan_destroy(&p);
}

static int count(const char *text, const char *part) {
  int n = 0;
  for (const char *at = text; (at = strstr(at, part)) != NULL; at += strlen(part))
    n++;
  return n;
}

static void charts_have_a_row_per_group(void **state) {
  (void)state;
  const test_node node[] = {{"m", 2, 1, 1, 1}, {"k", 2, 1, 1, 1}};
  test_cluster c;
  test_cluster_make(&c, node, 2, 5, 1);
  strcpy(c.islands.island[1].name, "<b&c>");
  atoll_plan *p = small();
  for (int k = 0; k < 2; k++)
    p->pipeline[0].stage[1].replica[k].island = 1;
  atoll_simulation *x = sim_run(p, NULL, NULL);
  char *text = NULL;
  size_t n = 0;
  assert_ok(atoll_simulation_gantt(x, p, &c.islands, "a < b & c", &text, &n));
  assert_int_equal(n, strlen(text));
  assert_non_null(strstr(text, "a &lt; b &amp; c"));
  assert_non_null(strstr(text, "stage 1, layers 1-1, island &lt;b&amp;c&gt;"));
  assert_int_equal(count(text, "class=\"name\""), 4);
  assert_int_equal(count(text, "<rect class=\"k0\""), 16 + 1); /* forwards, and the legend */
  assert_int_equal(count(text, "<title>forward of micro-batch 3, at "), 2);
  assert_null(strstr(text, "rows: ranks that do the same"));
  free(text);
  atoll_simulation_destroy(&x);
  p->pipeline[0].stage[1].replica[1].backward_seconds = 2e-3;
  x = sim_run(p, NULL, NULL);
  assert_ok(atoll_simulation_gantt(x, p, &c.islands, "", &text, &n));
  assert_int_equal(count(text, "class=\"name\""), 2);
  assert_non_null(strstr(text, "4 ranks in 2 rows: ranks that do the same at the same times share one"));
  free(text);
  atoll_simulation_destroy(&x);
  atoll_plan_destroy(&p);
  test_cluster_free(&c);
}

/* Thousands of micro-batches and more rows than a page: the file stays small and says what it leaves out. */
static void large_charts_stay_small(void **state) {
  (void)state;
  atoll_plan *p = sim_plan(1, 200, 1, 2000);
  for (int s = 0; s < 200; s++)
    sim_replicas(p, 0, s, 1, 1e-3, 2e-3 + 1e-6 * s);
  atoll_simulation *x = sim_run(p, NULL, NULL);
  assert_int_equal(x->events, 2 * 200 * 2000);
  char *text = NULL;
  size_t n = 0;
  assert_ok(atoll_simulation_gantt(x, p, NULL, "large", &text, &n));
  assert_int_equal(count(text, "class=\"name\""), 128);
  assert_non_null(strstr(text, "the first 128 rows are drawn"));
  assert_true(n < 40 << 20);
  free(text);
  atoll_simulation_destroy(&x);
  atoll_plan_destroy(&p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(traces_open_in_a_viewer),
      cmocka_unit_test(overlapping_receives_get_threads),
      cmocka_unit_test(charts_have_a_row_per_group),
      cmocka_unit_test(large_charts_stay_small),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
