/* One-forward-one-backward: each micro-batch once forward and later once backward, backwards in ascending order, never
 * more in flight than allowed, and as many as allowed before the first backward. The learning rate warms up, peaks
 * once, and ends at its minimum. */
#include "atoll/train.h"
#include "unit_check.h"

static void order_of_every_small_replica(void **unused) {
  (void)unused;
  atoll_action a[64];
  for (int in_flight = 1; in_flight <= 8; in_flight++)
    for (int64_t count = 1; count <= 20; count++) {
      int64_t f = 0, b = 0, most = 0;
      atoll_schedule_1f1b(in_flight, 100, count, a);
      for (int64_t i = 0; i < 2 * count; i++) {
        if (a[i].backward) {
          assert_int_equal(a[i].micro_batch, 100 + b++);
          assert_true(b <= f);
        } else {
          assert_int_equal(a[i].micro_batch, 100 + f++);
        }
        most = f - b > most ? f - b : most;
        if (b == 0 && i + 1 < 2 * count && a[i + 1].backward)
          assert_int_equal(f, in_flight < count ? in_flight : count);
      }
      assert_int_equal(f, count);
      assert_int_equal(b, count);
      assert_int_equal(most, in_flight < count ? in_flight : count);
    }
}

static void learning_rate_shape(void **unused) {
  (void)unused;
  atoll_train_params p = {.steps = 100, .learning_rate = 1, .min_learning_rate = 0.1, .warmup_steps = 10};
  assert_float_equal(atoll_learning_rate(&p, 0), 0.1, 1e-12);
  assert_float_equal(atoll_learning_rate(&p, 9), 1, 1e-12);
  assert_float_equal(atoll_learning_rate(&p, 10), 1, 1e-12);
  assert_float_equal(atoll_learning_rate(&p, 55), 0.55, 1e-12); /* half-way */
  assert_float_equal(atoll_learning_rate(&p, 100), 0.1, 1e-12);
  assert_float_equal(atoll_learning_rate(&p, 1000), 0.1, 1e-12);
  for (int64_t s = 10; s < 110; s++)
    assert_true(atoll_learning_rate(&p, s + 1) <= atoll_learning_rate(&p, s));
  p.warmup_steps = 0;
  assert_float_equal(atoll_learning_rate(&p, 0), 1, 1e-12);
  p.decay_steps = 50;
  assert_float_equal(atoll_learning_rate(&p, 50), 0.1, 1e-12);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(order_of_every_small_replica),
      cmocka_unit_test(learning_rate_shape),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
