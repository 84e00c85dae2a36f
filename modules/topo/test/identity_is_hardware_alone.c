/* Names, ranks, cores chosen and measurements leave the identity alone; hardware does not. */
#include "topo_test.h"
#include "topo_impl.h"

static int same(const atoll_topo *a, const atoll_topo *b) {
  return atoll_digest_equal(atoll_topo_identity(a), atoll_topo_identity(b));
}

static void what_does_not_count(void **state) {
  (void)state;
  atoll_topo *a = load_topo(NULL, "2x(pack:2 core:4 memory=64GiB)"),
             *b = load_topo(NULL, "2x(pack:2 core:4 memory=64GiB)");
  assert_true(same(a, b));
  assert_true(atoll_digest_equal(a->node[0].identity, a->node[1].identity));
  strcpy(b->node[1].name, "elsewhere");
  strcpy(b->device[2].cores, "1-4");
  b->device[0].rank = 7;
  b->device[0].gemm_f32.n = 1;
  b->device[0].gemm_f32.v[0] = 3;
  strcpy(b->note, "noise");
  b->device[1].memory -= 100 << 20; /* a kernel that keeps a little more for itself */
  assert_true(same(a, b));
  assert_false(atoll_digest_equal(atoll_topo_digest(a), atoll_topo_digest(b)));
  atoll_topo_destroy(&a);
  atoll_topo_destroy(&b);
}

static void what_counts(void **state) {
  (void)state;
  static const char *const other[] = {"3x(pack:2 core:4 memory=64GiB)",        "2x(pack:2 core:5 memory=64GiB)",
                                      "2x(pack:1 core:8 memory=64GiB)",        "2x(pack:2 core:4 memory=32GiB)",
                                      "2x(pack:2 core:4 pu:2 memory=64GiB)",   "2x(pack:2 core:4 memory=64GiB model=X)",
                                      "2x(pack:2 core:4 memory=64GiB kind=k)", "2x(pack:2 core:4 memory=64GiB gpus=1)"};
  atoll_topo *a = load_topo(NULL, "2x(pack:2 core:4 memory=64GiB)");
  for (size_t i = 0; i < sizeof other / sizeof other[0]; i++) {
    atoll_topo *b = load_topo(NULL, other[i]);
    if (same(a, b))
      fail_msg("%s has the same identity", other[i]);
    atoll_topo_destroy(&b);
  }
  atoll_topo_destroy(&a);
}

static void memory_is_what_was_installed(void **state) {
  (void)state;
  const int64_t GiB = 1 << 30;
  assert_true(atoll_topo_installed_memory(64 * GiB) == 64 * GiB);
  assert_true(atoll_topo_installed_memory(63 * GiB + GiB / 3) == 64 * GiB);
  assert_true(atoll_topo_installed_memory(96 * GiB - GiB / 2) == 96 * GiB);
  assert_true(atoll_topo_installed_memory(0) == 0);
  assert_true(atoll_topo_installed_memory(3) == 3);
}

static void this_machine_twice(void **state) {
  (void)state;
  atoll_topo *a = load_topo(NULL, NULL), *b = load_topo(NULL, NULL);
  assert_string_equal(a->backend, "live");
  assert_true(a->devices >= 1 && a->device[0].memory > 0 && a->device[0].memory_limit[0]);
  assert_int_equal(a->node[0].bindable, 1);
  assert_true(same(a, b));
  atoll_topo_destroy(&a);
  atoll_topo_destroy(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(what_does_not_count), cmocka_unit_test(what_counts),
                                     cmocka_unit_test(memory_is_what_was_installed),
                                     cmocka_unit_test(this_machine_twice)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
