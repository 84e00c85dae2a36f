/* A paced device makes a compute task last pace times its CPU time, whatever else the machine does; copies are not
 * slowed. */
#include "atoll/clock.h"
#include "atoll/device.h"
#include "unit_check.h"

static atoll_err burn(void *args, void *stream) {
  (void)stream;
  double until = atoll_clock_process_cpu() + *(double *)args;
  while (atoll_clock_process_cpu() < until)
    ;
  return ATOLL_OK;
}

static double lasts(const char *kind, const char *role, double pace) {
  atoll_device_params p;
  atoll_device *d;
  atoll_queue *q;
  atoll_device_params_init(&p);
  p.pace = pace;
  assert_int_equal(atoll_device_open(kind, &p, &d), ATOLL_OK);
  assert_int_equal(atoll_queue_create(d, role, &q), ATOLL_OK);
  double cpu = 0.03, start = atoll_clock_now();
  assert_int_equal(atoll_queue_submit(q, burn, &cpu, sizeof cpu), ATOLL_OK);
  assert_int_equal(atoll_queue_sync(q), ATOLL_OK);
  double seconds = atoll_clock_now() - start;
  atoll_queue_destroy(&q);
  atoll_device_close(&d);
  return seconds;
}

static void compute_is_slowed(void **state) {
  (void)state;
  assert_true(lasts("cpu", "compute", 8) >= 0.24);
  assert_true(lasts("async", "compute", 8) >= 0.24);
}

static void other_work_is_not(void **state) {
  (void)state;
  /* The best of many: a busy machine may stretch most of them. */
  double best = 1e9;
  for (int i = 0; i < 100 && best >= 0.24; i++) {
    double s = lasts("cpu", "copy", 8);
    if (s < best)
      best = s;
  }
  assert_true(best < 0.24);
}

static void the_variable_sets_it(void **state) {
  (void)state;
  atoll_device_params p;
  setenv("ATOLL_TEST_PACE", "2.5", 1);
  atoll_device_params_init(&p);
  assert_true(p.pace == 2.5);
  unsetenv("ATOLL_TEST_PACE");
  atoll_device_params_init(&p);
  assert_true(p.pace == 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(compute_is_slowed), cmocka_unit_test(other_work_is_not),
                                     cmocka_unit_test(the_variable_sets_it)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
