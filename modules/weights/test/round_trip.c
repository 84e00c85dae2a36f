/* Promise: what is written in any format is read back bit for bit in float32, in the shapes and order that the format's
 * other readers expect; and a write that fails leaves nothing. */
#include "weights_test.h"

static const char path[] = "round-trip.tmp.safetensors", raw[] = "round-trip.tmp.bin";

static void gpt2_as_safetensors(void **state) {
  (void)state;
  test_set s;
  atoll_weights_config c;
  atoll_model *m = test_gpt2(&s, &c);
  atoll_weights_source source = test_source(&s);
  assert_int_equal(atoll_weights_write_safetensors(path, &c, &source, ATOLL_F32), ATOLL_OK);
  atoll_weights *w = NULL;
  assert_int_equal(atoll_weights_open(path, NULL, &w), ATOLL_OK);
  assert_string_equal(atoll_weights_format(w), "safetensors");
  assert_memory_equal(atoll_weights_config_of(w), &c, sizeof c);
  test_same(w, &s, 0);
  assert_int_equal(atoll_weights_check(w, m), ATOLL_OK);
  atoll_weights_close(&w);
  /* Conv1D: [in, out] in the file. c_fc of layer 0 stands there as 32 x 128. */
  char *file = NULL;
  size_t n = 0;
  assert_int_equal(atoll_file_read(path, &file, &n), ATOLL_OK);
  const char *at = strstr(file + 8, "\"transformer.h.0.mlp.c_fc.weight\":{\"dtype\":\"F32\",\"shape\":[32,128],");
  assert_non_null(at);
  long long begin = 0;
  assert_int_equal(sscanf(strstr(at, "data_offsets"), "data_offsets\":[%lld", &begin), 1);
  uint64_t header = 0;
  memcpy(&header, file, 8);
  assert_int_equal((8 + header) % 8, 0);
  float v;
  memcpy(&v, file + 8 + header + begin + 4 * (5 * 128 + 77), 4); /* in 5, out 77 */
  int k = atoll_model_param_find(m, "h.0.mlp.c_fc.weight");
  assert_memory_equal(&v, &s.value[k][77 * 32 + 5], 4);
  assert_null(strstr(file + 8, "lm_head"));
  free(file);
  /* bfloat16, twice: the second write changes nothing. */
  assert_int_equal(atoll_weights_write_safetensors(path, &c, &source, ATOLL_BF16), ATOLL_OK);
  assert_int_equal(atoll_weights_open(path, "gpt2", &w), ATOLL_OK);
  test_same(w, &s, 1);
  char again[] = "round-trip-2.tmp.safetensors", *a = NULL, *b = NULL;
  size_t na = 0, nb = 0;
  atoll_weights_source file_source = atoll_weights_as_source(w);
  assert_int_equal(atoll_weights_write_safetensors(again, &c, &file_source, ATOLL_BF16), ATOLL_OK);
  assert_int_equal(atoll_file_read(path, &a, &na), ATOLL_OK);
  assert_int_equal(atoll_file_read(again, &b, &nb), ATOLL_OK);
  assert_int_equal(na, nb);
  assert_memory_equal(a, b, na);
  free(a);
  free(b);
  unlink(again);
  unlink(path);
  atoll_weights_close(&w);
  test_set_free(&s);
  atoll_model_destroy(&m);
}

static void gpt2_as_llmc(void **state) {
  (void)state;
  test_set s;
  atoll_weights_config c;
  atoll_model *m = test_gpt2(&s, &c);
  atoll_weights_source source = test_source(&s);
  atoll_weights *w = NULL;
  for (int bf16 = 0; bf16 < 2; bf16++) {
    assert_int_equal(atoll_weights_write_llmc(raw, &c, &source, bf16 ? ATOLL_BF16 : ATOLL_F32), ATOLL_OK);
    char *file = NULL;
    size_t n = 0;
    assert_int_equal(atoll_file_read(raw, &file, &n), ATOLL_OK);
    /* vocabulary 64 padded to 128 rows of 32 */
    assert_int_equal(n, 1024 + (bf16 ? 2 : 4) * (atoll_model_elements(m) + 64 * 32));
    int32_t header[8];
    memcpy(header, file, sizeof header);
    const int32_t want[8] = {20240326, bf16 ? 5 : 3, 32, 64, 2, 2, 32, 128};
    assert_memory_equal(header, want, sizeof want);
    for (size_t i = 1024 + (bf16 ? 2 : 4) * 64 * 32; i < 1024 + (bf16 ? 2u : 4u) * 128 * 32; i++)
      assert_int_equal(file[i], 0);
    if (!bf16) { /* wpe follows, then the first norm of every layer */
      assert_memory_equal(file + 1024 + 4 * 128 * 32, s.value[1], 4 * 32 * 32);
      assert_memory_equal(file + 1024 + 4 * (128 + 32) * 32, s.value[2], 4 * 32);
      assert_memory_equal(file + 1024 + 4 * (128 + 32) * 32 + 4 * 32, s.value[2 + 12], 4 * 32);
    }
    free(file);
    assert_int_equal(atoll_weights_open(raw, NULL, &w), ATOLL_OK);
    assert_string_equal(atoll_weights_format(w), "llm.c");
    assert_memory_equal(atoll_weights_config_of(w), &c, sizeof c);
    test_same(w, &s, bf16);
    assert_int_equal(atoll_weights_check(w, m), ATOLL_OK);
    atoll_weights_close(&w);
  }
  c.ffn = 100;
  test_refused(atoll_weights_write_llmc(raw, &c, &source, ATOLL_F32), ATOLL_UNSUPPORTED, "MLP of 4 x width");
  unlink(raw);
  test_set_free(&s);
  atoll_model_destroy(&m);
}

static void llama_both_ways(void **state) {
  (void)state;
  for (int untied = 0; untied < 2; untied++) {
    test_set s;
    atoll_weights_config c;
    test_llama(&s, &c, untied);
    atoll_weights_source source = test_source(&s);
    atoll_weights *w = NULL;
    assert_int_equal(atoll_weights_write_llama2c(raw, &c, &source), ATOLL_OK);
    assert_int_equal(atoll_weights_open(raw, NULL, &w), ATOLL_OK);
    assert_string_equal(atoll_weights_format(w), "llama2.c");
    assert_memory_equal(atoll_weights_config_of(w), &c, sizeof c);
    test_same(w, &s, 0);
    /* Through safetensors and back. */
    atoll_weights_source first = atoll_weights_as_source(w);
    assert_int_equal(atoll_weights_write_safetensors(path, &c, &first, ATOLL_F32), ATOLL_OK);
    atoll_weights_close(&w);
    assert_int_equal(atoll_weights_open(path, NULL, &w), ATOLL_OK);
    assert_memory_equal(atoll_weights_config_of(w), &c, sizeof c);
    test_same(w, &s, 0);
    atoll_weights_close(&w);
    /* Pairs: row 2 i + 1 of head 1 in the file is row 3 + i of that head here. */
    char *file = NULL;
    size_t n = 0;
    assert_int_equal(atoll_file_read(raw, &file, &n), ATOLL_OK);
    size_t q = 28 + 4 * (30 * 24 + 2 * 24);
    assert_memory_equal(file + q + 4 * 24 * (6 + 2 * 2 + 1), s.value[2] + 24 * (6 + 3 + 2), 4 * 24);
    assert_memory_equal(file + q + 4 * 24 * (6 + 2 * 2), s.value[2] + 24 * (6 + 2), 4 * 24);
    free(file);
    test_set_free(&s);
  }
  unlink(raw);
  unlink(path);
}

static void a_failed_write_leaves_nothing(void **state) {
  (void)state;
  test_set s;
  atoll_weights_config c;
  atoll_model *m = test_gpt2(&s, &c);
  atoll_weights_source source = test_source(&s);
  assert_int_equal(atoll_fault_set("fail:write:1:ENOSPC", 0), ATOLL_OK);
  test_refused(atoll_weights_write_safetensors(path, &c, &source, ATOLL_F32), ATOLL_IO, "No space left");
  assert_int_equal(atoll_fault_set("fail:fsync:1:EIO", 0), ATOLL_OK);
  test_refused(atoll_weights_write_llmc(raw, &c, &source, ATOLL_F32), ATOLL_IO, "sync");
  assert_int_equal(atoll_fault_set(NULL, 0), ATOLL_OK);
  snprintf(s.item[3].name, sizeof s.item[3].name, "h.0.ln_1.gamma");
  test_refused(atoll_weights_write_safetensors(path, &c, &source, ATOLL_F32), ATOLL_MISMATCH,
               "h.0.ln_1.gamma has no place in family gpt2");
  test_refused(atoll_weights_write_llmc(raw, &c, &source, ATOLL_F32), ATOLL_MISMATCH, "h.0.ln_1.bias is missing");
  assert_false(atoll_file_exists(path));
  assert_false(atoll_file_exists(raw));
  char tmp[128];
  snprintf(tmp, sizeof tmp, "%s.tmp-%ld", path, (long)getpid());
  assert_false(atoll_file_exists(tmp));
  test_set_free(&s);
  atoll_model_destroy(&m);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(gpt2_as_safetensors), cmocka_unit_test(gpt2_as_llmc),
                                     cmocka_unit_test(llama_both_ways),
                                     cmocka_unit_test(a_failed_write_leaves_nothing)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
