/* One line of text describes a cluster, and a mistake in it names its group. */
#include "topo_test.h"

static void groups_make_nodes(void **state) {
  (void)state;
  atoll_topo *t = load_topo(NULL, "4x(pack:2 core:8), 2x(core:4)");
  assert_string_equal(t->backend, "synthetic");
  assert_int_equal(t->nodes, 6);
  assert_int_equal(t->devices, 4 * 2 + 2);
  assert_int_equal(t->node[3].cores, 16);
  assert_int_equal(t->node[4].cores, 4);
  assert_string_equal(t->node[5].name, "n5");
  atoll_topo_destroy(&t);
  t = load_topo(NULL, "pack:1 core:2 pu:2 memory=4GiB f32=100 kind=old");
  assert_int_equal(t->nodes, 1);
  assert_int_equal(t->device[0].nthreads, 4);
  assert_true(t->device[0].memory == (int64_t)4 << 30 && t->device[0].declared);
  assert_string_equal(t->node[0].kind, "old");
  atoll_topo_destroy(&t);
  t = load_topo(NULL, "2x(core:4 gpus=2 gpu_model=A100 gpu_memory=40GiB gpu_f32=16000)");
  assert_int_equal(t->devices, 4);
  assert_int_equal(t->device[3].kind, ATOLL_TOPO_GPU);
  assert_int_equal(t->device[3].node, 1);
  atoll_topo_destroy(&t);
}

static void mistakes_name_their_group(void **state) {
  (void)state;
  static const char *const bad[][2] = {{"4x(pack:2 core:8", "group 1: '(' is not closed"},
                                       {"core:2, 2x(corn:4)", "group 2"},
                                       {"0x(core:2)", "0 nodes"},
                                       {"core:2, pack:65536 core:65536", "4294967296 hardware threads"},
                                       {"l3:65536 core:65536", "4294967296 hardware threads"},
                                       {"65536 65536", "4294967296 hardware threads"},
                                       {"core:-1", "18446744073709551616 hardware threads"},
                                       {"core:2,", "nothing follows"},
                                       {"(core:2) core:3", "expected ','"},
                                       {"memory=4GiB", "says no cores"},
                                       {"core:2 memery=4GiB", "did you mean 'memory='"},
                                       {"core:2 memory=lots", "expected a size"},
                                       {"core:2 f32=-4", "expected a rate above 0"},
                                       {"core:2 gpus=0", "expected 1..64"}};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
    refuses(NULL, bad[i][0], ATOLL_USAGE, bad[i][1]);
  refuses("x.xml", "core:2", ATOLL_USAGE, "both set");
}

static void a_named_backend_needs_its_source(void **state) {
  (void)state;
  atoll_topo_params p = params_of(NULL, NULL);
  atoll_topo *t = NULL;
  p.backend = 2;
  assert_int_equal(atoll_topo_discover(NULL, &p, &t), ATOLL_USAGE);
  assert_non_null(strstr(atoll_err_message(), "topo.path is not set"));
  p.backend = 3;
  assert_int_equal(atoll_topo_discover(NULL, &p, &t), ATOLL_USAGE);
  assert_non_null(strstr(atoll_err_message(), "topo.synthetic is not set"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(groups_make_nodes), cmocka_unit_test(mistakes_name_their_group),
                                     cmocka_unit_test(a_named_backend_needs_its_source)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
