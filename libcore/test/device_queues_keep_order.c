/* On every host device: a queue runs its tasks in order, an event orders two queues, a failed task makes the queue's
 * error stick until sync, and it spreads to queues that wait for the failed one. */
#include "atoll/device.h"
#include "unit_check.h"

static const char *kinds[] = {"cpu", "async"};

struct step {
  int *log, *n, value;
  atoll_err err;
};

static atoll_err step(void *args, void *stream) {
  struct step *s = args;
  assert_null(stream);
  if (s->err)
    return atoll_fail(s->err, "step %d refuses", s->value);
  s->log[(*s->n)++] = s->value;
  return ATOLL_OK;
}

static atoll_device *open_device(const char *kind, uint64_t seed) {
  atoll_device_params p;
  atoll_device *d = NULL;
  atoll_device_params_init(&p);
  p.seed = seed;
  assert_int_equal(atoll_device_open(kind, &p, &d), ATOLL_OK);
  return d;
}

static void tasks_run_in_order(void **state) {
  (void)state;
  for (int k = 0; k < 2; k++) {
    atoll_device *d = open_device(kinds[k], 5);
    atoll_queue *q;
    assert_int_equal(atoll_queue_create(d, "compute", &q), ATOLL_OK);
    assert_ptr_equal(atoll_queue_device(q), d);
    int log[100], n = 0;
    for (int i = 0; i < 100; i++) {
      struct step s = {log, &n, i, ATOLL_OK};
      assert_int_equal(atoll_queue_submit(q, step, &s, sizeof s), ATOLL_OK);
    }
    assert_int_equal(atoll_queue_sync(q), ATOLL_OK);
    assert_int_equal(n, 100);
    for (int i = 0; i < 100; i++)
      assert_int_equal(log[i], i);
    char big[513] = "";
    assert_int_equal(atoll_queue_submit(q, step, big, sizeof big), ATOLL_USAGE);
    atoll_queue_destroy(&q);
    assert_null(q);
    atoll_device_close(&d);
  }
}

static void events_order_queues(void **state) {
  (void)state;
  for (int k = 0; k < 2; k++)
    for (uint64_t seed = 1; seed <= 20; seed++) {
      atoll_device *d = open_device(kinds[k], seed);
      atoll_queue *a, *b;
      atoll_event *e, *never;
      assert_int_equal(atoll_queue_create(d, "compute", &a), ATOLL_OK);
      assert_int_equal(atoll_queue_create(d, "copy", &b), ATOLL_OK);
      assert_int_equal(atoll_event_create(&e), ATOLL_OK);
      assert_int_equal(atoll_event_create(&never), ATOLL_OK);
      assert_true(atoll_event_done(never));
      assert_int_equal(atoll_queue_wait(b, never), ATOLL_OK);
      char from[64], middle[64], to[64];
      memset(from, 'x', sizeof from);
      memset(middle, '.', sizeof middle);
      memset(to, '.', sizeof to);
      for (int round = 0; round < 3; round++) { /* the event is recorded again each time */
        memset(from, 'a' + round, sizeof from);
        atoll_queue_zero(a, middle, sizeof middle);
        atoll_queue_copy(a, middle, from, sizeof from);
        atoll_queue_record(a, e);
        atoll_queue_wait(b, e);
        atoll_queue_copy(b, to, middle, sizeof middle);
        atoll_queue_record(b, e);
        assert_int_equal(atoll_event_sync(e), ATOLL_OK);
        assert_true(atoll_event_done(e));
        assert_memory_equal(to, from, sizeof from);
      }
      atoll_event_destroy(&e);
      atoll_event_destroy(&never);
      atoll_queue_destroy(&a);
      atoll_queue_destroy(&b);
      atoll_device_close(&d);
    }
}

static void errors_stick_until_sync(void **state) {
  (void)state;
  for (int k = 0; k < 2; k++) {
    atoll_device *d = open_device(kinds[k], 9);
    atoll_queue *q, *other;
    atoll_event *e;
    assert_int_equal(atoll_queue_create(d, "compute", &q), ATOLL_OK);
    assert_int_equal(atoll_queue_create(d, "copy", &other), ATOLL_OK);
    assert_int_equal(atoll_event_create(&e), ATOLL_OK);
    int log[8], n = 0, m = 0, log2[8];
    struct step good = {log, &n, 1, ATOLL_OK}, bad = {log, &n, 2, ATOLL_NONFINITE}, worse = {log, &n, 3, ATOLL_IO},
                dependent = {log2, &m, 4, ATOLL_OK};
    atoll_queue_submit(q, step, &good, sizeof good);
    atoll_queue_submit(q, step, &bad, sizeof bad);
    atoll_queue_submit(q, step, &worse, sizeof worse);
    atoll_queue_submit(q, step, &good, sizeof good);
    atoll_queue_record(q, e);
    atoll_queue_wait(other, e);
    atoll_queue_submit(other, step, &dependent, sizeof dependent);
    atoll_err_clear();
    assert_int_equal(atoll_queue_sync(q), ATOLL_NONFINITE);
    assert_string_equal(atoll_err_message(), "step 2 refuses");
    assert_int_equal(n, 1);
    assert_int_equal(atoll_event_sync(e), ATOLL_NONFINITE);
    assert_int_equal(atoll_queue_sync(other), ATOLL_NONFINITE);
    assert_int_equal(m, 0);
    /* and are cleared by it */
    assert_int_equal(atoll_queue_submit(q, step, &good, sizeof good), ATOLL_OK);
    assert_int_equal(atoll_queue_sync(q), ATOLL_OK);
    assert_int_equal(n, 2);
    atoll_event_destroy(&e);
    atoll_queue_destroy(&q);
    atoll_queue_destroy(&other);
    atoll_device_close(&d);
  }
}

static void an_event_may_cross_devices(void **state) {
  (void)state;
  atoll_device *cpu = open_device("cpu", 1), *async = open_device("async", 3);
  atoll_queue *a, *c;
  atoll_event *e;
  assert_int_equal(atoll_queue_create(async, "compute", &a), ATOLL_OK);
  assert_int_equal(atoll_queue_create(cpu, "compute", &c), ATOLL_OK);
  assert_int_equal(atoll_event_create(&e), ATOLL_OK);
  int log[64], n = 0;
  for (int i = 0; i < 30; i++) {
    struct step s = {log, &n, 2 * i, ATOLL_OK}, t = {log, &n, 2 * i + 1, ATOLL_OK};
    atoll_queue_submit(a, step, &s, sizeof s);
    atoll_queue_record(a, e);
    atoll_queue_wait(c, e);
    atoll_queue_submit(c, step, &t, sizeof t);
    atoll_queue_record(c, e);
    atoll_queue_wait(a, e);
  }
  assert_int_equal(atoll_queue_sync(a), ATOLL_OK);
  for (int i = 0; i < 60; i++)
    assert_int_equal(log[i], i);
  atoll_event_destroy(&e);
  atoll_queue_destroy(&a);
  atoll_queue_destroy(&c);
  atoll_device_close(&cpu);
  atoll_device_close(&async);
}

static void kinds_are_checked(void **state) {
  (void)state;
  atoll_device *d = NULL;
  atoll_queue *q = NULL;
  assert_int_equal(atoll_device_open("gpu", NULL, &d), ATOLL_USAGE);
  assert_non_null(strstr(atoll_err_message(), "cpu async"));
  assert_null(d);
  d = open_device("auto", 1);
  assert_string_equal(atoll_device_kind(d), "cpu");
  assert_true(atoll_device_threads(d) >= 1 && atoll_device_host_memory(d));
  assert_int_equal(atoll_queue_create(d, "compote", &q), ATOLL_USAGE);
  void *p = NULL;
  assert_int_equal(atoll_device_alloc(d, 1000, &p), ATOLL_OK);
  assert_int_equal((uintptr_t)p % 64, 0);
  memset(p, 1, 1000);
  atoll_device_free(d, p);
  atoll_device_close(&d);
  static const atoll_rate_probe probe = {.kind = "cpu"};
  assert_null(atoll_device_probe("cpu"));
  atoll_device_register_probe(&probe);
  assert_ptr_equal(atoll_device_probe("cpu"), &probe);
  assert_null(atoll_device_probe("async"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(tasks_run_in_order), cmocka_unit_test(events_order_queues),
                                     cmocka_unit_test(errors_stick_until_sync),
                                     cmocka_unit_test(an_event_may_cross_devices), cmocka_unit_test(kinds_are_checked)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
