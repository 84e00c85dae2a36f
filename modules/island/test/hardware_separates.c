/* Devices are together when kind, model, cores, memory and declared rates agree, and apart when one of them differs. */
#include "island_test.h"

static void expect(const char *text, int islands) {
  atoll_topo *t = load_topo(text);
  atoll_islands *is = group(t);
  if (is->count != islands)
    fail_msg("%s: found %d islands, expected %d", text, is->count, islands);
  int members = 0;
  for (int k = 0; k < is->count; k++)
    for (int m = 0; m < is->island[k].devices; m++, members++) {
      assert_int_equal(is->island_of[is->island[k].device[m]], k);
      if (m)
        assert_true(is->island[k].device[m] > is->island[k].device[m - 1]);
    }
  assert_int_equal(members, t->devices);
  atoll_islands_destroy(&is);
  atoll_topo_destroy(&t);
}

static void each_property(void **state) {
  (void)state;
  expect("4x(core:4 memory=8GiB)", 1);
  expect("2x(core:4 memory=8GiB), 2x(core:4 memory=8GiB)", 1);
  expect("2x(core:4 memory=8GiB), 2x(core:2 memory=8GiB)", 2);
  expect("2x(core:4 memory=8GiB), 2x(core:4 memory=4GiB)", 2);
  expect("2x(core:4 memory=8GiB), 2x(core:4 memory=8100MiB)", 1); /* what kernels keep does not count */
  expect("2x(core:4 memory=8GiB), 2x(core:4 memory=8GiB model=Other)", 2);
  expect("2x(core:4 memory=8GiB kind=a), 2x(core:4 memory=8GiB kind=b)", 2);
  expect("2x(core:4 memory=8GiB isa=avx2), 2x(core:4 memory=8GiB isa=avx512)", 2);
  expect("2x(core:4 pu:2 memory=8GiB), 2x(core:4 memory=8GiB)", 2);
  expect("2x(core:4 memory=8GiB f32=100), 2x(core:4 memory=8GiB f32=100)", 1);
  expect("2x(core:4 memory=8GiB f32=100), 2x(core:4 memory=8GiB f32=95)", 1); /* below split_gap */
  expect("2x(core:4 memory=8GiB f32=100), 2x(core:4 memory=8GiB f32=50)", 2);
  expect("2x(core:4 memory=8GiB f32=100 bandwidth=50), 2x(core:4 memory=8GiB f32=100 bandwidth=20)", 2);
  expect("core:4, 2x(core:4 gpus=2)", 2);
  expect("core:1, core:2, core:3, core:4", 4);
}

static void profiles_get_one_key_per_speed(void **state) {
  (void)state;
  char a[224], b[224];
  atoll_topo *t = load_topo("2x(core:4 memory=8GiB f32=100 model=Epyc), 2x(core:4 memory=8GiB f32=50 model=Epyc), "
                            "core:4 memory=4GiB f32=50 model=Epyc");
  atoll_islands *is = group(t);
  assert_int_equal(is->count, 3);
  atoll_island_class(is, is->island_of[0], a, sizeof a);
  assert_string_equal(a, "Epyc/4c/a");
  atoll_island_class(is, is->island_of[2], a, sizeof a);
  assert_string_equal(a, "Epyc/4c/b");
  atoll_island_class(is, is->island_of[4], b, sizeof b); /* less memory, but as fast */
  assert_string_equal(a, b);
  atoll_island_class(is, 9, b, sizeof b);
  assert_string_equal(b, "");
  atoll_islands_destroy(&is);
  atoll_topo_destroy(&t);
}

static void rates_of_an_island_are_medians(void **state) {
  (void)state;
  atoll_topo *t = load_topo("3x(core:4 memory=8GiB f32=100 bandwidth=10), core:1 memory=1GiB f32=7");
  t->device[1].gemm_f32.v[0] = 104;
  t->device[2].gemm_f32.v[0] = 101;
  t->device[2].memory -= 1000;
  add_link(t, 0, 0, 50);
  add_link(t, 0, 1, 5);
  add_link(t, 1, 2, 4);
  add_link(t, 2, 3, 1);
  atoll_islands *is = group(t);
  assert_int_equal(is->count, 2);
  const atoll_island *i = &is->island[0];
  assert_true(i->gemm_f32 == 101 && i->bandwidth == 10 && i->gemm_bf16 == 0);
  assert_true(i->memory == ((int64_t)8 << 30) - 1000);          /* the smallest member's */
  assert_true(i->bandwidth_out == 4 && i->latency_out == 1e-6); /* links that leave the island do not count */
  assert_true(i->bandwidth_in == 0);                            /* one device a node */
  assert_int_equal(i->nodes, 3);
  atoll_islands_destroy(&is);
  atoll_topo_destroy(&t);
}

static void idle_devices_take_no_part(void **state) {
  (void)state;
  atoll_topo *t = load_topo("2x(core:4 gpus=3)");
  t->device[0].rank = 0;
  t->device[4].rank = 1;
  atoll_islands *is = group(t);
  assert_int_equal(is->count, 1);
  assert_int_equal(is->island[0].devices, 2);
  assert_int_equal(is->island_of[1], -1);
  assert_non_null(strstr(is->why[is->why_count - 1], "4 devices take no part"));
  atoll_islands_destroy(&is);
  atoll_topo_destroy(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(each_property), cmocka_unit_test(profiles_get_one_key_per_speed),
                                     cmocka_unit_test(rates_of_an_island_are_medians),
                                     cmocka_unit_test(idle_devices_take_no_part)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
