/* Islands in HDF5 and YAML carry members, classes, rates with units, and the reasons. */
#include "island_test.h"

#include "atoll/store.h"
#include "atoll/yaml.h"

static void hdf5_and_yaml(void **state) {
  (void)state;
  atoll_topo *t = load_topo("2x(core:4 memory=8GiB f32=100), core:2 memory=4GiB f32=30");
  atoll_islands *is = group(t);
  atoll_store *s = NULL;
  void *bytes = NULL;
  size_t n = 0, why = 0;
  assert_int_equal(atoll_store_open("i.h5", ATOLL_STORE_IMAGE, &s), ATOLL_OK);
  if (atoll_islands_to_store(is, s, "/islands") != ATOLL_OK)
    fail_msg("%s", atoll_err_message());
  assert_int_equal(atoll_store_image(s, &bytes, &n), ATOLL_OK);
  assert_int_equal(atoll_store_close(&s), ATOLL_OK);
  assert_int_equal(atoll_store_open_bytes("i.h5", bytes, n, &s), ATOLL_OK);
  int64_t of[3];
  double rate[2], out[2];
  char **text = NULL;
  assert_int_equal(atoll_store_read(s, "/islands/island_of", ATOLL_I64, NULL, NULL, of), ATOLL_OK);
  assert_true(of[0] == 0 && of[1] == 0 && of[2] == 1);
  assert_int_equal(atoll_store_read(s, "/islands/gemm_f32", ATOLL_F64, NULL, NULL, rate), ATOLL_OK);
  assert_true(rate[0] == 100 && rate[1] == 30);
  assert_int_equal(atoll_store_read(s, "/islands/bandwidth_out", ATOLL_F64, NULL, NULL, out), ATOLL_OK);
  assert_true(out[0] != out[0]); /* unknown is not 0 */
  assert_int_equal(atoll_store_read_texts(s, "/islands/why", &text, &why), ATOLL_OK);
  assert_int_equal((int)why, is->why_count);
  atoll_store_texts_free(&text, why);
  assert_int_equal(atoll_store_close(&s), ATOLL_OK);
  free(bytes);

  atoll_yaml_out *o = NULL;
  const char *yaml = NULL;
  assert_int_equal(atoll_yaml_out_create(&o), ATOLL_OK);
  assert_int_equal(atoll_islands_to_yaml(is, o), ATOLL_OK);
  assert_int_equal(atoll_yaml_out_text(o, &yaml), ATOLL_OK);
  assert_non_null(strstr(yaml, "devices: [0, 1]"));
  atoll_yaml_out_destroy(&o);
  atoll_islands_destroy(&is);
  atoll_topo_destroy(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(hdf5_and_yaml)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
