/* cluster.yaml says what its file format says, and a mistake names file, line, what was found and what was expected. */
#include "topo_test.h"

static const struct {
  const char *yaml, *word;
  atoll_err code;
} bad[] = {
    {"", "cluster.yaml", ATOLL_USAGE},
    {"nodes: []\n", "'nodes' is empty", ATOLL_USAGE},
    {"nodes: 3\n", "nodes", ATOLL_USAGE},
    {"nodes:\n  - n0\n", "cluster.yaml:2", ATOLL_USAGE},
    {"nodes:\n  - {file: good.xml}\n", "name", ATOLL_USAGE},
    {"nodes:\n  - {name: a}\n", "neither 'file' nor 'synthetic'", ATOLL_USAGE},
    {"nodes:\n  - {name: a, file: good.xml, synthetic: 'core:2'}\n", "both 'file' and 'synthetic'", ATOLL_USAGE},
    {"nodes:\n  - {name: a, file: absent.xml}\n", "absent.xml, which does not exist", ATOLL_NOINPUT},
    {"nodes:\n  - {name: a, file: bad.xml}\n", "bad.xml", ATOLL_CORRUPT},
    {"nodes:\n  - {name: a, file: good.xml, count: 0}\n", "count", ATOLL_USAGE},
    {"nodes:\n  - {name: a, file: good.xml, gemm_f32: fast}\n", "gemm_f32", ATOLL_USAGE},
    {"nodes:\n  - {name: a, file: good.xml, gemm_f32: -1}\n", "gemm_f32", ATOLL_USAGE},
    {"nodes:\n  - {name: a, file: good.xml, gemm_f32: 0}\n", "gemm_f32: found '0'", ATOLL_USAGE},
    {"nodes:\n  - {name: a, file: good.xml, bandwidth: 0}\n", "bandwidth: found '0'", ATOLL_USAGE},
    {"nodes:\n  - {name: a, file: good.xml, bandwidth: nan}\n", "bandwidth: found 'nan'", ATOLL_USAGE},
    {"nodes:\n  - {name: a, file: good.xml, memory: 0}\n", "memory: found '0'", ATOLL_USAGE},
    {"nodes:\n  - {name: a, synthetic: 'core:2 gpus=1', gpu: {gemm_bf16: 0}}\n", "gemm_bf16: found '0'", ATOLL_USAGE},
    {"nodes:\n  - {name: a, synthetic: 'core:2 gpus=1', gpu: {memory: 0}}\n", "memory: found '0'", ATOLL_USAGE},
    {"nodes:\n  - {name: a, file: good.xml, price: -2}\n", "price", ATOLL_USAGE},
    {"nodes:\n  - {name: a, file: good.xml, memory: 4 parsecs}\n", "memory", ATOLL_USAGE},
    {"nodes:\n  - {name: a, file: good.xml, devices: 99}\n", "devices", ATOLL_USAGE},
    {"nodes:\n  - {name: a, file: good.xml, gemm_fp32: 1}\n", "gemm_fp32", ATOLL_USAGE},
    {"nodes:\n  - {name: a, file: good.xml, gpu: {memory: 1GiB}}\n", "has no GPU", ATOLL_USAGE},
    {"nodes:\n  - {name: a, file: good.xml}\n  - {name: a, file: good.xml}\n", "'a' is taken", ATOLL_USAGE},
    {"nodes:\n  - {name: a, count: 2, file: good.xml}\n  - {name: a1, file: good.xml}\n", "'a1' is taken", ATOLL_USAGE},
    {"nodes:\n  - {name: a, synthetic: 'corn:2'}\n", "hwloc does not understand", ATOLL_USAGE},
    {"nodes:\n  - {name: a, file: good.xml}\nlinks: {between: {latency: 1e-6}}\n", "bandwidth", ATOLL_USAGE},
    {"nodes:\n  - {name: a, file: good.xml}\nlinks: {between: {bandwidth: 0}}\n", "bandwidth", ATOLL_USAGE},
    {"nodes:\n  - {name: a, file: good.xml}\nlinks: {pairs: [{a: a, b: z, bandwidth: 1}]}\n", "b: found 'z'",
     ATOLL_USAGE},
    {"nodes:\n  - {name: a, file: good.xml}\nlink: {between: {bandwidth: 1}}\n", "link", ATOLL_USAGE},
};

static char folder[512];

static void mistakes_are_named(void **state) {
  (void)state;
  char *text;
  size_t bytes;
  scratch("cluster", folder, sizeof folder);
  assert_int_equal(atoll_file_read(DATA "fakecpukinds.xml", &text, &bytes), ATOLL_OK);
  write_file(folder, "good.xml", text, bytes);
  write_file(folder, "bad.xml", text, bytes / 2);
  free(text);
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    write_file(folder, "cluster.yaml", bad[i].yaml, strlen(bad[i].yaml));
    refuses(folder, NULL, bad[i].code, bad[i].word);
  }
}

static void declarations_are_taken(void **state) {
  (void)state;
  static const char yaml[] =
      "nodes:\n"
      "  - {name: f, count: 2, kind: fast, synthetic: 'pack:2 core:4', devices: 1, memory: 8GiB, gemm_f32: 500, "
      "gemm_bf16: 900, bandwidth: 90}\n"
      "  - {name: s, kind: slow, file: good.xml, isa: x86-64 avx2}\n"
      "  - {name: g, synthetic: 'core:2 gpus=2', gpu: {model: A100, memory: 40GiB, isa: sm_80, gemm_f32: 16000}}\n"
      "links:\n  in_node: {latency: 1e-6, bandwidth: 10}\n  between: {latency: 2e-6, bandwidth: 5}\n"
      "  pairs:\n    - {a: fast, b: slow, bandwidth: 1}\n    - {a: f0, b: f0, bandwidth: 99}\n";
  write_file(folder, "cluster.yaml", yaml, strlen(yaml));
  atoll_topo *t = load_topo(folder, NULL);
  assert_int_equal(t->nodes, 4);
  assert_string_equal(t->node[0].name, "f0");
  assert_string_equal(t->node[1].name, "f1");
  assert_string_equal(t->node[1].kind, "fast");
  assert_int_equal(t->devices, 5);
  const atoll_topo_device *d = &t->device[1], *s = &t->device[2], *g = &t->device[4];
  assert_true(d->declared && atoll_samples_median(&d->gemm_f32) == 500 && atoll_samples_median(&d->gemm_bf16) == 900 &&
              atoll_samples_median(&d->bandwidth) == 90);
  assert_true(d->ncores == 8 && d->memory == (int64_t)8 << 30);
  assert_string_equal(d->memory_limit, "declared");
  assert_true(!s->declared && s->gemm_f32.n == 0);
  assert_string_equal(s->isa, "x86-64 avx2");
  assert_int_equal(g->kind, ATOLL_TOPO_GPU);
  assert_string_equal(g->model, "A100");
  assert_string_equal(g->isa, "sm_80");
  assert_true(g->memory == (int64_t)40 << 30 && atoll_samples_median(&g->gemm_f32) == 16000);
  assert_true(atoll_samples_median(&atoll_topo_link_of(t, 0, 0)->bandwidth) == 99);
  assert_true(atoll_samples_median(&atoll_topo_link_of(t, 1, 1)->bandwidth) == 10);
  assert_true(atoll_samples_median(&atoll_topo_link_of(t, 0, 1)->bandwidth) == 5);
  assert_true(atoll_samples_median(&atoll_topo_link_of(t, 2, 1)->bandwidth) == 1);
  assert_true(atoll_samples_median(&atoll_topo_link_of(t, 3, 2)->bandwidth) == 5);
  atoll_topo_destroy(&t);
}

static void expect_reach(const atoll_topo *t, int a, int b, double latency, double bandwidth, double price) {
  double got[3];
  atoll_topo_reach(t, a, b, &got[0], &got[1], &got[2]);
  if (got[0] != latency || got[1] != bandwidth || got[2] != price)
    fail_msg("%d to %d: %g s, %g GB/s, %g per GB", a, b, got[0], got[1], got[2]);
  atoll_topo_reach(t, b, a, &got[0], &got[1], &got[2]);
  assert_true(got[0] == latency && got[1] == bandwidth && got[2] == price);
}

/* On clusters too large for a link per pair the same words become routes between groups. */
static void large_clusters_declare_routes(void **state) {
  (void)state;
  const char *yaml =
      "nodes:\n"
      "  - {name: e, count: 40, kind: fast, zone: east, price: 3.5, synthetic: 'core:4', in_node: {bandwidth: 200}}\n"
      "  - {name: w, count: 40, kind: slow, zone: west, price: 1.25, synthetic: 'core:2'}\n"
      "links:\n  in_node: {bandwidth: 10}\n  between: {latency: 2e-6, bandwidth: 12}\n"
      "  pairs:\n    - {a: east, b: west, latency: 3e-2, bandwidth: 0.5, price: 0.02}\n"
      "    - {a: e0, b: w0, latency: 1e-2, bandwidth: 4}\n";
  write_file(folder, "cluster.yaml", yaml, strlen(yaml));
  atoll_topo *t = load_topo(folder, NULL);
  assert_int_equal(t->nodes, 80);
  assert_string_equal(t->node[79].zone, "west");
  assert_true(t->node[0].price == 3.5 && t->node[79].price == 1.25);
  expect_reach(t, 0, 0, 0, 200, 0);
  expect_reach(t, 79, 79, 0, 10, 0);
  expect_reach(t, 0, 39, 2e-6, 12, 0);
  expect_reach(t, 40, 41, 2e-6, 12, 0);
  expect_reach(t, 1, 40, 3e-2, 0.5, 0.02);
  expect_reach(t, 0, 40, 1e-2, 4, 0.02);
  atoll_yaml_out *o = NULL;
  const char *text = NULL;
  atoll_yaml *root = NULL;
  atoll_topo *back = NULL, *copy = NULL;
  assert_int_equal(atoll_yaml_out_create(&o), ATOLL_OK);
  assert_int_equal(atoll_topo_to_yaml(t, o), ATOLL_OK);
  assert_int_equal(atoll_yaml_out_text(o, &text), ATOLL_OK);
  assert_int_equal(atoll_yaml_parse("t.yaml", text, strlen(text), &root), ATOLL_OK);
  assert_int_equal(atoll_topo_from_yaml(root, &back), ATOLL_OK);
  assert_int_equal(atoll_topo_copy(back, &copy), ATOLL_OK);
  assert_true(atoll_digest_equal(atoll_topo_digest(t), atoll_topo_digest(copy)));
  expect_reach(copy, 1, 40, 3e-2, 0.5, 0.02);
  copy->route[1].price = 0.03;
  assert_false(atoll_digest_equal(atoll_topo_digest(t), atoll_topo_digest(copy)));
  atoll_yaml_destroy(&root);
  atoll_yaml_out_destroy(&o);
  atoll_topo_destroy(&copy);
  atoll_topo_destroy(&back);
  atoll_topo_destroy(&t);
}

/* Without cluster.yaml a folder's XML files are its nodes, by name with numbers in order. */
static void plain_folders_are_clusters(void **state) {
  (void)state;
  char plain[512], *text;
  size_t bytes;
  scratch("plain", plain, sizeof plain);
  assert_int_equal(atoll_file_read(DATA "fakecpukinds.xml", &text, &bytes), ATOLL_OK);
  write_file(plain, "n10.xml", text, bytes);
  write_file(plain, "n9.xml", text, bytes);
  write_file(plain, "notes.txt", "x", 1);
  free(text);
  atoll_topo *t = load_topo(plain, NULL);
  assert_int_equal(t->nodes, 2);
  assert_string_equal(t->node[0].name, "n9");
  assert_string_equal(t->node[1].name, "n10");
  atoll_topo_destroy(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(mistakes_are_named), cmocka_unit_test(declarations_are_taken),
                                     cmocka_unit_test(large_clusters_declare_routes),
                                     cmocka_unit_test(plain_folders_are_clusters)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
