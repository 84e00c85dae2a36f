/* Deadlines are testable without waiting, and times are written as ISO 8601 UTC. */
#include "atoll/clock.h"

#include <time.h>

#include "unit_check.h"

static void advance_moves_both_clocks(void **state) {
  (void)state;
  double now = atoll_clock_now(), wall = atoll_clock_wall();
  atoll_clock_advance(3600.5);
  assert_true(atoll_clock_now() - now >= 3600.5 && atoll_clock_now() - now < 3660);
  assert_true(atoll_clock_wall() - wall >= 3600.4 && atoll_clock_wall() - wall < 3660);
  atoll_clock_advance(-3600.5);
  assert_true(atoll_clock_now() - now >= 0 && atoll_clock_now() - now < 60);
}

static void wall_is_the_time_of_day(void **state) {
  (void)state;
  assert_true(atoll_clock_wall() - (double)time(NULL) > -1.1 && atoll_clock_wall() - (double)time(NULL) < 1.1);
}

static void iso_is_utc(void **state) {
  (void)state;
  char buf[32];
  assert_string_equal(atoll_clock_iso(0, buf, sizeof buf), "1970-01-01T00:00:00Z");
  assert_string_equal(atoll_clock_iso(1709210096.75, buf, sizeof buf), "2024-02-29T12:34:56Z");
}

static void sleep_sleeps_and_costs_no_cpu(void **state) {
  (void)state;
  double now = atoll_clock_now(), cpu = atoll_clock_process_cpu();
  atoll_clock_sleep(0.02);
  assert_true(atoll_clock_now() - now >= 0.019);
  assert_true(atoll_clock_process_cpu() - cpu < 0.02);
  atoll_clock_sleep(0);
  atoll_clock_sleep(-1);
  assert_true(atoll_clock_thread_cpu() > 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(advance_moves_both_clocks),
      cmocka_unit_test(wall_is_the_time_of_day),
      cmocka_unit_test(iso_is_utc),
      cmocka_unit_test(sleep_sleeps_and_costs_no_cpu),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
