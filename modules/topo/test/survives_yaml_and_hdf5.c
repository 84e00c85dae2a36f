/* What is written reads back to the same digest, measurements included; an edited file is refused. */
#include "topo_test.h"

static void fill(atoll_samples *s, double base) {
  s->n = ATOLL_TOPO_SAMPLES;
  for (int i = 0; i < s->n; i++)
    s->v[i] = base * (1 + i / 30.0);
}

static atoll_topo *measured(void) {
  atoll_topo *t = load_topo(NULL, "3x(pack:2 core:4 memory=8GiB), core:2 gpus=2");
  snprintf(t->note, sizeof t->note, "a note: with \"quotes\" and # signs");
  for (int i = 0; i < t->devices; i++) {
    t->device[i].rank = i;
    fill(&t->device[i].gemm_f32, 100 + i / 7.0);
    if (i % 2)
      fill(&t->device[i].bandwidth, 11);
  }
  t->link = realloc(t->link, 2 * sizeof *t->link);
  t->links = 2;
  memset(t->link, 0, 2 * sizeof *t->link);
  t->link[1].a = 0;
  t->link[1].b = 2;
  fill(&t->link[0].latency, 1.1e-6);
  fill(&t->link[1].bandwidth, 3.3);
  return t;
}

static char *as_yaml(const atoll_topo *t) {
  atoll_yaml_out *o = NULL;
  const char *text = NULL;
  assert_int_equal(atoll_yaml_out_create(&o), ATOLL_OK);
  assert_int_equal(atoll_topo_to_yaml(t, o), ATOLL_OK);
  assert_int_equal(atoll_yaml_out_text(o, &text), ATOLL_OK);
  char *copy = strdup(text);
  atoll_yaml_out_destroy(&o);
  return copy;
}

static atoll_err from_yaml(const char *text, atoll_topo **t) {
  atoll_yaml *root = NULL;
  atoll_err err = atoll_yaml_parse("t.yaml", text, strlen(text), &root);
  if (err == ATOLL_OK)
    err = atoll_topo_from_yaml(root, t);
  if (err == ATOLL_OK)
    err = atoll_yaml_unknown(root);
  atoll_yaml_destroy(&root);
  return err;
}

static void yaml(void **state) {
  (void)state;
  atoll_topo *t = measured(), *back = NULL;
  char *text = as_yaml(t);
  if (from_yaml(text, &back) != ATOLL_OK)
    fail_msg("%s", atoll_err_message());
  assert_true(atoll_digest_equal(atoll_topo_digest(t), atoll_topo_digest(back)));
  assert_int_equal(atoll_topo_diff(t, back, NULL), 0);
  atoll_topo_destroy(&back);
  char *memory = strstr(text, "memory: 4294967296");
  assert_non_null(memory);
  memory[8] = '5'; /* somebody makes a device larger by hand */
  assert_int_equal(from_yaml(text, &back), ATOLL_CORRUPT);
  assert_non_null(strstr(atoll_err_message(), "identity"));
  memory[8] = '4';
  text[strstr(text, "version: 1") - text + 9] = '2';
  assert_int_equal(from_yaml(text, &back), ATOLL_UNSUPPORTED);
  free(text);
  atoll_topo_destroy(&t);
}

static void hdf5(void **state) {
  (void)state;
  atoll_topo *t = measured(), *back = NULL;
  atoll_store *s = NULL;
  void *bytes = NULL;
  size_t n = 0;
  assert_int_equal(atoll_store_open("t.h5", ATOLL_STORE_IMAGE, &s), ATOLL_OK);
  if (atoll_topo_to_store(t, s, "/topology") != ATOLL_OK)
    fail_msg("%s", atoll_err_message());
  assert_int_equal(atoll_store_image(s, &bytes, &n), ATOLL_OK);
  assert_int_equal(atoll_store_close(&s), ATOLL_OK);
  assert_int_equal(atoll_store_open_bytes("t.h5", bytes, n, &s), ATOLL_OK);
  if (atoll_topo_from_store(s, "/topology", &back) != ATOLL_OK)
    fail_msg("%s", atoll_err_message());
  assert_true(atoll_digest_equal(atoll_topo_digest(t), atoll_topo_digest(back)));
  double v[2][ATOLL_TOPO_SAMPLES];
  int64_t start[2] = {0, 0}, count[2] = {2, ATOLL_TOPO_SAMPLES};
  assert_int_equal(atoll_store_read(s, "/topology/devices/bandwidth", ATOLL_F64, start, count, v), ATOLL_OK);
  assert_true(v[0][0] != v[0][0]); /* not measured is NaN, not 0 */
  assert_true(v[1][0] == 11);
  assert_int_equal(atoll_store_close(&s), ATOLL_OK);
  free(bytes);
  atoll_topo_destroy(&back);
  atoll_topo_destroy(&t);
}

static void copies_are_equal(void **state) {
  (void)state;
  atoll_topo *t = measured(), *copy = NULL;
  assert_int_equal(atoll_topo_copy(t, &copy), ATOLL_OK);
  assert_true(atoll_digest_equal(atoll_topo_digest(t), atoll_topo_digest(copy)));
  atoll_topo_destroy(&t);
  assert_int_equal(copy->nodes, 4); /* lives on its own */
  atoll_topo_destroy(&copy);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(yaml), cmocka_unit_test(hdf5),
                                     cmocka_unit_test(copies_are_equal)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
