/* A noisy machine does not change the islands: thousands of random measurements of equal devices never split them, and
 * of devices that are really twice as fast always do, with the same names and identity. */
#include "island_test.h"

static void equal_devices_stay_together(void **state) {
  (void)state;
  atoll_topo *t = load_topo("8x(pack:2 core:4 memory=16GiB)");
  atoll_islands *quiet = group(t);
  assert_int_equal(quiet->count, 1);
  atoll_digest want = atoll_islands_identity(quiet);
  atoll_islands_destroy(&quiet);
  for (int draw = 0; draw < 4000; draw++) {
    uint64_t at = 0, seed = 1000 + (uint64_t)draw;
    enum noise kind = (enum noise)(draw % NOISES);
    double level = kind == HICCUPS ? 0.25 * uniform(seed, &at) : 0.3 * uniform(seed, &at);
    for (int i = 0; i < t->devices; i++) {
      measure(&t->device[i].gemm_f32, 500, kind, level, seed, &at);
      measure(&t->device[i].gemm_bf16, 900, kind, level, seed, &at);
      measure(&t->device[i].bandwidth, 60, kind, level, seed, &at);
    }
    atoll_islands *is = group(t);
    if (is->count != 1 || !atoll_digest_equal(want, atoll_islands_identity(is)))
      fail_msg("draw %d (noise %d, level %.2f) made %d islands: %s", draw, kind, level, is->count,
               is->why_count > 2 ? is->why[is->why_count - 1] : "");
    atoll_islands_destroy(&is);
  }
  atoll_topo_destroy(&t);
}

static void different_devices_stay_apart(void **state) {
  (void)state;
  atoll_topo *t = load_topo("6x(core:4 memory=16GiB)");
  char identity[33] = "";
  for (int draw = 0; draw < 4000; draw++) {
    uint64_t at = 0, seed = 77000 + (uint64_t)draw;
    double level = 0.04 * uniform(seed, &at);
    for (int i = 0; i < t->devices; i++)
      measure(&t->device[i].gemm_f32, i % 3 == 0 ? 250 : 500, GAUSS, level, seed, &at);
    atoll_islands *is = group(t);
    char hex[33];
    atoll_digest_text(atoll_islands_identity(is), hex);
    if (is->count != 2 || is->island[0].devices != 4 || is->island_of[0] != 1 ||
        (identity[0] && strcmp(hex, identity) != 0))
      fail_msg("draw %d (level %.3f) made %d islands", draw, level, is->count);
    strcpy(identity, hex);
    assert_string_equal(is->island[0].name, "a");
    assert_int_equal(is->island[0].class_id, is->island[1].class_id);
    assert_int_equal(is->island[0].speed_id, 0);
    assert_int_equal(is->island[1].speed_id, 1);
    atoll_islands_destroy(&is);
  }
  atoll_topo_destroy(&t);
}

/* Four samples may all have met the same disturbance. */
static void few_samples_never_split(void **state) {
  (void)state;
  atoll_topo *t = load_topo("2x(core:4 memory=16GiB)");
  for (int n = 1; n <= 5; n++) {
    for (int i = 0; i < 2; i++) {
      t->device[i].gemm_f32.n = n;
      for (int k = 0; k < n; k++)
        t->device[i].gemm_f32.v[k] = i ? 50 : 100;
    }
    atoll_islands *is = group(t);
    assert_int_equal(is->count, n < 5 ? 1 : 2);
    atoll_islands_destroy(&is);
  }
  atoll_topo_destroy(&t);
}

/* Two kinds of hardware of about the same total rate: noise must not swap their names, because plans refer to islands
 * by index. */
static void names_do_not_swap(void **state) {
  (void)state;
  atoll_topo *t = load_topo("2x(core:4 memory=16GiB), 4x(core:2 memory=8GiB)");
  char identity[33] = "";
  for (int draw = 0; draw < 2000; draw++) {
    uint64_t at = 0, seed = 5000 + (uint64_t)draw;
    for (int i = 0; i < t->devices; i++)
      measure(&t->device[i].gemm_f32, i < 2 ? 400 : 224, GAUSS, 0.05, seed, &at);
    atoll_islands *is = group(t);
    char hex[33];
    assert_int_equal(is->count, 2);
    atoll_digest_text(atoll_islands_identity(is), hex);
    if (identity[0])
      assert_string_equal(hex, identity);
    strcpy(identity, hex);
    atoll_islands_destroy(&is);
  }
  atoll_topo_destroy(&t);
}

/* Another job occupies one core of a node during the whole probe: calm samples, far apart, and yet not another kind of
 * core. Two nodes that differ as a whole still do. */
static void a_busy_neighbour_makes_no_island(void **state) {
  (void)state;
  atoll_topo *t = load_topo("1x(pack:1 core:4 memory=8GiB devices=2)");
  uint64_t at = 0;
  assert_int_equal(t->devices, 2);
  measure(&t->device[0].gemm_f32, 134.9, GAUSS, 0.01, 5, &at);
  measure(&t->device[1].gemm_f32, 41.19, GAUSS, 0.01, 5, &at);
  atoll_islands *is = group(t);
  assert_int_equal(is->count, 1);
  atoll_islands_destroy(&is);
  atoll_topo_destroy(&t);

  t = load_topo("2x(pack:1 core:4 memory=8GiB devices=2)");
  assert_int_equal(t->devices, 4);
  for (int i = 0; i < 4; i++)
    measure(&t->device[i].gemm_f32, t->device[i].node == 0 ? 134.9 : 41.19, GAUSS, 0.01, 5, &at);
  is = group(t);
  assert_int_equal(is->count, 2);
  atoll_islands_destroy(&is);
  atoll_topo_destroy(&t);
}

/* What a cluster file says of like nodes outweighs what a probe on a busy machine adds; where the file says nothing of
 * f32 rates, measured ones count. */
static void declared_rates_outweigh_measured_ones(void **state) {
  (void)state;
  atoll_topo *t = load_topo("2x(core:4 memory=8GiB f32=100 bandwidth=16)");
  uint64_t at = 0;
  for (int i = 0; i < 2; i++)
    measure(&t->device[i].gemm_bf16, i ? 40 : 90, GAUSS, 0.01, 5, &at);
  atoll_islands *is = group(t);
  assert_int_equal(is->count, 1);
  atoll_islands_destroy(&is);
  atoll_topo_destroy(&t);

  t = load_topo("2x(core:4 memory=8GiB bandwidth=16)");
  for (int i = 0; i < 2; i++)
    measure(&t->device[i].gemm_f32, i ? 40 : 90, GAUSS, 0.01, 5, &at);
  is = group(t);
  assert_int_equal(is->count, 2);
  atoll_islands_destroy(&is);
  atoll_topo_destroy(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_busy_neighbour_makes_no_island), cmocka_unit_test(declared_rates_outweigh_measured_ones),
      cmocka_unit_test(equal_devices_stay_together),      cmocka_unit_test(different_devices_stay_apart),
      cmocka_unit_test(few_samples_never_split),          cmocka_unit_test(names_do_not_swap)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
