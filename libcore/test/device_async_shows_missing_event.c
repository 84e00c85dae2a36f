/* The asynchronous device finds what it is for: two queues without the event between them give wrong numbers, with the
 * event they never do. */
#include "atoll/device.h"

#include <stdatomic.h>

#include "unit_check.h"

/* Atomic, so that the wrong order is not a data race as well; the order is what is watched here. */
struct args {
  atomic_int *from, *to;
};

static atoll_err add_one(void *args, void *stream) {
  (void)stream;
  struct args *a = args;
  atomic_store(a->to, atomic_load(a->from) + 1);
  return ATOLL_OK;
}

/* 1 + ... over a chain that hops between two queues; right answer: length. */
static int chain(uint64_t seed, int with_events) {
  enum { LENGTH = 8 };
  static atomic_int cell[LENGTH + 1];
  atoll_device_params p;
  atoll_device *d;
  atoll_queue *q[2];
  atoll_event *e;
  atoll_device_params_init(&p);
  p.seed = seed;
  assert_int_equal(atoll_device_open("async", &p, &d), ATOLL_OK);
  assert_int_equal(atoll_queue_create(d, "compute", &q[0]), ATOLL_OK);
  assert_int_equal(atoll_queue_create(d, "copy", &q[1]), ATOLL_OK);
  assert_int_equal(atoll_event_create(&e), ATOLL_OK);
  for (int i = 0; i <= LENGTH; i++)
    atomic_store(&cell[i], 0);
  for (int i = 0; i < LENGTH; i++) {
    struct args a = {&cell[i], &cell[i + 1]};
    if (with_events)
      atoll_queue_wait(q[i % 2], e);
    atoll_queue_submit(q[i % 2], add_one, &a, sizeof a);
    if (with_events)
      atoll_queue_record(q[i % 2], e);
  }
  assert_int_equal(atoll_queue_sync(q[0]), ATOLL_OK);
  assert_int_equal(atoll_queue_sync(q[1]), ATOLL_OK);
  int result = atomic_load(&cell[LENGTH]);
  atoll_event_destroy(&e);
  atoll_queue_destroy(&q[0]);
  atoll_queue_destroy(&q[1]);
  atoll_device_close(&d);
  return result == LENGTH;
}

static void with_the_event_it_is_right(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= 50; seed++)
    assert_true(chain(seed, 1));
}

static void without_the_event_it_shows(void **state) {
  (void)state;
  int wrong = 0;
  for (uint64_t seed = 1; seed <= 50; seed++)
    wrong += !chain(seed, 0);
  assert_true(wrong >= 25);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(with_the_event_it_is_right),
                                     cmocka_unit_test(without_the_event_it_shows)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
