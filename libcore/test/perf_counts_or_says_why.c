/* A counter counts, or is unavailable with a reason and reads NaN, never 0; regions nest and keep time whatever the
 * counters do; the timeline is JSON that holds what was recorded. */
#include "atoll/perf.h"

#include <sys/mman.h>

#include "unit_check.h"

#include <jansson.h>
#include <math.h>

#include "atoll/clock.h"

static atoll_perf *make(const char *hook, int counters, const char *events) {
  atoll_perf_params params;
  atoll_perf *p = NULL;
  if (hook)
    setenv("ATOLL_TEST_PERF", hook, 1);
  else
    unsetenv("ATOLL_TEST_PERF");
  atoll_perf_params_init(&params);
  params.counters = counters;
  params.events = events;
  assert_int_equal(atoll_perf_create(&params, &p), ATOLL_OK);
  return p;
}

/* 3000 fresh pages and 60 ms of computing, half of them in a region inside. */
static volatile double sink;
static void compute(double seconds) {
  for (double end = atoll_clock_thread_cpu() + seconds; atoll_clock_thread_cpu() < end;)
    for (int i = 0; i < 1000; i++)
      sink += i;
}

static void work(atoll_perf *p) {
  int outer = atoll_perf_region(p, "outer"), inner = atoll_perf_region(p, "inner");
  atoll_perf_begin(p, outer);
  size_t n = 3000 * 4096;
  char *pages = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_ptr_not_equal(pages, MAP_FAILED);
  (void)madvise(pages, n, MADV_NOHUGEPAGE);
  for (size_t i = 0; i < n; i += 4096)
    pages[i] = 1;
  (void)munmap(pages, n);
  compute(0.03);
  for (int i = 0; i < 2; i++) {
    atoll_perf_begin(p, inner);
    atoll_perf_begin(p, outer); /* a region inside itself counts once */
    compute(0.015);
    atoll_perf_end(p, outer);
    atoll_perf_end(p, inner);
  }
  atoll_perf_end(p, outer);
}

static const atoll_perf_counter *find(const atoll_perf *p, const char *name, int *at) {
  for (int i = 0; i < atoll_perf_counter_count(p); i++)
    if (!strcmp(atoll_perf_counter_at(p, i)->name, name)) {
      *at = i;
      return atoll_perf_counter_at(p, i);
    }
  return NULL;
}

/* The promise itself, whatever this machine allows. */
static void check_all(atoll_perf *p) {
  atoll_perf_value outer, inner;
  work(p);
  atoll_perf_read(p, atoll_perf_region(p, "outer"), &outer);
  atoll_perf_read(p, atoll_perf_region(p, "inner"), &inner);
  assert_string_equal(outer.region, "outer");
  assert_int_equal(outer.calls, 1);
  assert_int_equal(inner.calls, 2);
  assert_true(outer.seconds >= 0.06 && inner.seconds >= 0.03 && inner.seconds < outer.seconds);
  for (int i = 0; i < atoll_perf_counter_count(p); i++) {
    const atoll_perf_counter *c = atoll_perf_counter_at(p, i);
    print_message("  %-18s %-6s %-6s %s %g %s\n", c->name, c->unit, c->source,
                  c->status == ATOLL_PERF_OK ? "ok" : "unavailable", outer.counter[i], c->reason);
    if (c->status == ATOLL_PERF_UNAVAILABLE) {
      assert_true(isnan(outer.counter[i]) && isnan(inner.counter[i]));
      assert_true(strlen(c->reason) > 5);
    } else {
      assert_true(outer.counter[i] >= inner.counter[i] && inner.counter[i] >= 0);
    }
  }
  for (int i = atoll_perf_counter_count(p); i < ATOLL_PERF_COUNTERS_MAX; i++)
    assert_true(isnan(outer.counter[i]));
  int at;
  const atoll_perf_counter *c = find(p, "task_clock", &at);
  if (c && c->status == ATOLL_PERF_OK)
    assert_true(outer.counter[at] > 0.04 && outer.counter[at] < 10 * outer.seconds + 0.1);
  c = find(p, "page_faults", &at);
  if (c && c->status == ATOLL_PERF_OK)
    assert_true(outer.counter[at] >= 3000);
  c = find(p, "PAPI_TOT_INS", &at);
  if (c && c->status == ATOLL_PERF_OK)
    assert_true(outer.counter[at] > 1e5);
}

static void as_the_machine_allows(void **state) {
  (void)state;
  atoll_perf *p = make(NULL, 1, NULL);
  assert_true(atoll_perf_counter_count(p) >= 6);
  check_all(p);
  atoll_perf_destroy(&p);
  assert_null(p);
}

static void forbidden_events_fall_back(void **state) {
  (void)state;
  int at;
  atoll_perf *p = make("rusage", 1, NULL);
  check_all(p);
  const atoll_perf_counter *c = find(p, "page_faults", &at);
  assert_non_null(c);
  assert_string_equal(c->source, "rusage");
  assert_int_equal(c->status, ATOLL_PERF_OK);
  assert_non_null(strstr(c->reason, "Permission denied"));
  c = find(p, "cpu_migrations", &at);
  assert_int_equal(c->status, ATOLL_PERF_UNAVAILABLE);
  c = find(p, "PAPI_TOT_CYC", &at);
  assert_int_equal(c->status, ATOLL_PERF_UNAVAILABLE);
  atoll_perf_destroy(&p);
}

static void nothing_at_all(void **state) {
  (void)state;
  atoll_perf *p = make("none", 1, NULL);
  for (int i = 0; i < atoll_perf_counter_count(p); i++)
    assert_int_equal(atoll_perf_counter_at(p, i)->status, ATOLL_PERF_UNAVAILABLE);
  check_all(p);
  atoll_perf_destroy(&p);
}

static void off_means_time_only(void **state) {
  (void)state;
  atoll_perf *p = make(NULL, 0, NULL);
  assert_int_equal(atoll_perf_counter_count(p), 0);
  check_all(p);
  atoll_perf_destroy(&p);
}

static void wanted_events_come_first(void **state) {
  (void)state;
  int at;
  atoll_perf *p = make(NULL, 1, "page_faults, PAPI_NO_SUCH,cycles,PAPI_NO_SUCH");
  const atoll_perf_counter *c = find(p, "PAPI_NO_SUCH", &at);
  assert_non_null(c);
  assert_int_equal(c->status, ATOLL_PERF_UNAVAILABLE);
  assert_string_equal(atoll_perf_counter_at(p, 0)->name, "page_faults");
  c = find(p, "cycles", &at);
  assert_string_equal(c->source, "perf");
  assert_int_equal(atoll_perf_counter_count(p), 3 + 3); /* each once, and the other software events */
  check_all(p);
  atoll_perf_destroy(&p);
  atoll_perf_params params = {1, "a,b,c,d,e,f,g,h,i,j,k,l,m"};
  assert_int_equal(atoll_perf_create(&params, &p), ATOLL_USAGE);
  params.events = "a_name_that_is_much_longer_than_any_counter_could_ever_have";
  assert_int_equal(atoll_perf_create(&params, &p), ATOLL_USAGE);
  assert_null(p);
}

static void regions_are_robust(void **state) {
  (void)state;
  atoll_perf *p = make(NULL, 0, NULL);
  char name[100];
  atoll_perf_value v;
  memset(name, 'n', 99);
  name[99] = '\0';
  assert_int_equal(atoll_perf_region(p, name), atoll_perf_region(p, name));
  for (int i = 0; i < 200; i++) {
    sprintf(name, "r%d", i);
    int r = atoll_perf_region(p, name);
    atoll_perf_begin(p, r);
    atoll_perf_end(p, r);
    atoll_perf_end(p, r); /* one too many */
  }
  atoll_perf_begin(NULL, atoll_perf_region(NULL, "x"));
  atoll_perf_end(NULL, 0);
  atoll_perf_read(p, 10000, &v);
  assert_int_equal(v.calls, 0);
  int r = atoll_perf_region(p, "r0");
  atoll_perf_begin(p, r);
  atoll_clock_advance(100);
  atoll_perf_reset(p); /* what is open begins anew */
  atoll_perf_end(p, r);
  atoll_perf_read(p, r, &v);
  assert_int_equal(v.calls, 1);
  assert_true(v.seconds < 50);
  atoll_perf_destroy(&p);
  atoll_perf_destroy(&p);
  atoll_perf_destroy(NULL);
}

static void the_timeline_is_json(void **state) {
  (void)state;
  atoll_perf *p = make(NULL, 0, NULL);
  char *text = NULL, *whole;
  size_t n = 0;
  assert_int_equal(atoll_perf_trace(p, 1, 0), ATOLL_USAGE);
  int quoted = atoll_perf_region(p, "say \"hi\"\n\\");
  atoll_perf_begin(p, quoted);
  atoll_perf_end(p, quoted); /* before the timeline is on */
  assert_int_equal(atoll_perf_trace(p, 1, 4), ATOLL_OK);
  for (int i = 0; i < 6; i++) {
    atoll_perf_begin(p, quoted);
    atoll_clock_advance(0.5);
    atoll_perf_end(p, quoted);
  }
  assert_int_equal(atoll_perf_trace_json(p, 3, &text, &n), ATOLL_OK);
  whole = malloc(n + 3);
  sprintf(whole, "[%s]", text);
  json_error_t why;
  json_t *root = json_loads(whole, 0, &why);
  if (!root)
    fail_msg("%s: %s", why.text, whole);
  int spans = 0, lost = 0;
  for (size_t i = 0; i < json_array_size(root); i++) {
    json_t *e = json_array_get(root, i);
    const char *phase = json_string_value(json_object_get(e, "ph"));
    assert_int_equal(json_integer_value(json_object_get(e, "pid")), 3);
    lost += !strcmp(phase, "i");
    if (strcmp(phase, "X") != 0)
      continue;
    spans++;
    assert_string_equal(json_string_value(json_object_get(e, "name")), "say \"hi\"\n\\");
    double us = json_number_value(json_object_get(e, "dur"));
    assert_true(us >= 5e5 && us < 60e6);
  }
  assert_int_equal(spans, 4);
  assert_int_equal(lost, 1);
  json_decref(root);
  free(whole);
  free(text);
  atoll_perf_destroy(&p);
}

static void memory_is_known(void **state) {
  (void)state;
  size_t n = 64 << 20;
  int64_t before = atoll_perf_rss();
  char *block = malloc(n);
  assert_non_null(block);
  memset(block, 1, n);
  int64_t during = atoll_perf_rss(), peak = atoll_perf_peak_rss();
  assert_true(block[n / 2] == 1);
  free(block);
  assert_true(before > 0 && during >= before + (60 << 20) && peak >= during - (1 << 20));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(as_the_machine_allows),    cmocka_unit_test(forbidden_events_fall_back),
      cmocka_unit_test(nothing_at_all),           cmocka_unit_test(off_means_time_only),
      cmocka_unit_test(wanted_events_come_first), cmocka_unit_test(regions_are_robust),
      cmocka_unit_test(the_timeline_is_json),     cmocka_unit_test(memory_is_known),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
