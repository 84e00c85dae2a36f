/* Like devices with a slow link between them are two islands; an unmeasured pair says nothing; nearness is transitive.
 */
#include "island_test.h"

static int count(atoll_topo *t) {
  atoll_islands *is = group(t);
  int n = is->count;
  atoll_islands_destroy(&is);
  return n;
}

static void slow_between_two_halves(void **state) {
  (void)state;
  atoll_topo *t = load_topo("4x(core:4 memory=8GiB)");
  for (int a = 0; a < 4; a++)
    for (int b = a + 1; b < 4; b++)
      add_link(t, a, b, a / 2 == b / 2 ? 10 : 0.5);
  atoll_islands *is = group(t);
  assert_int_equal(is->count, 2);
  assert_int_equal(is->island_of[0], 0);
  assert_int_equal(is->island_of[1], 0);
  assert_int_equal(is->island_of[3], 1);
  assert_int_equal(is->island[0].class_id, is->island[1].class_id);
  assert_string_equal(is->island[0].class_key, is->island[1].class_key); /* the same costs, only elsewhere */
  assert_true(is->island[0].bandwidth_out == 10);
  int said = 0;
  for (int i = 0; i < is->why_count; i++)
    said |= strstr(is->why[i], "the link") && strstr(is->why[i], "carries 0.5 GB/s");
  assert_true(said);
  atoll_islands_destroy(&is);
  for (int i = 0; i < t->links; i++) /* 10 against 2 is not slow enough */
    if (t->link[i].bandwidth.v[0] < 1)
      t->link[i].bandwidth.v[0] = 2;
  assert_int_equal(count(t), 1);
  atoll_topo_destroy(&t);
}

static void nearness_is_transitive(void **state) {
  (void)state;
  atoll_topo *t = load_topo("4x(core:4 memory=8GiB)");
  add_link(t, 0, 1, 10);
  add_link(t, 1, 2, 10);
  add_link(t, 2, 3, 10);
  add_link(t, 0, 3, 0.1); /* slow directly, near through the others */
  assert_int_equal(count(t), 1);
  atoll_topo_destroy(&t);
}

static void silence_does_not_separate(void **state) {
  (void)state;
  atoll_topo *t = load_topo("6x(core:4 memory=8GiB)");
  assert_int_equal(count(t), 1);
  add_link(t, 0, 1, 10); /* 2..5 were not measured */
  assert_int_equal(count(t), 1);
  add_link(t, 0, 5, 0.1);
  add_link(t, 1, 5, 0.1);
  atoll_islands *is = group(t);
  assert_int_equal(is->count, 2);
  assert_int_equal(is->island[is->island_of[5]].devices, 1);
  atoll_islands_destroy(&is);
  atoll_topo_destroy(&t);
}

/* A slow link to other hardware is nobody's business here. */
static void other_classes_do_not_matter(void **state) {
  (void)state;
  atoll_topo *t = load_topo("2x(core:4 memory=8GiB), core:2 memory=8GiB");
  add_link(t, 0, 1, 1);
  add_link(t, 0, 2, 100);
  add_link(t, 1, 2, 100);
  assert_int_equal(count(t), 2);
  atoll_topo_destroy(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(slow_between_two_halves), cmocka_unit_test(nearness_is_transitive),
      cmocka_unit_test(silence_does_not_separate), cmocka_unit_test(other_classes_do_not_matter)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
