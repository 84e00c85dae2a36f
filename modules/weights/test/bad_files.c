/* Promise: llm.c and llama2.c files that are cut, of another version or with senseless sizes are refused, and so is
 * what is no file of weights. */
#include "weights_test.h"

static atoll_err open_bytes(const void *file, size_t n) {
  atoll_weights *w = NULL;
  atoll_err err = atoll_weights_open_bytes("w.bin", file, n, NULL, &w);
  assert_true((err == ATOLL_OK) == (w != NULL));
  atoll_weights_close(&w);
  return err;
}

static void put(char *file, size_t word, int32_t v) { memcpy(file + 4 * word, &v, 4); }

static void llmc(void **state) {
  (void)state;
  test_set s;
  atoll_weights_config c;
  atoll_model *m = test_gpt2(&s, &c);
  atoll_weights_source source = test_source(&s);
  char *file = NULL;
  size_t n = 0;
  assert_int_equal(atoll_weights_write_llmc("bad.tmp.bin", &c, &source, ATOLL_F32), ATOLL_OK);
  assert_int_equal(atoll_file_read("bad.tmp.bin", &file, &n), ATOLL_OK);
  unlink("bad.tmp.bin");
  assert_int_equal(open_bytes(file, n), ATOLL_OK);
  test_refused(open_bytes(file, n - 4), ATOLL_CORRUPT, "truncated or overlong");
  test_refused(open_bytes(file, n + 1), ATOLL_CORRUPT, "truncated or overlong"); /* the NUL behind a read file */
  test_refused(open_bytes(file, 1000), ATOLL_CORRUPT, "1000 bytes, a header alone has 1024");
  static const struct {
    int word, value;
    const char *says;
  } bad[] = {{1, 1, "version 1, expected 3"},
             {2, 0, "positions 0"},
             {3, -1, "vocabulary -1"},
             {4, 70000, "layers 70000"},
             {5, 5, "width 32 of 5 heads"},
             {6, 1 << 30, "width 1073741824"},
             {7, 63, "vocabulary 64 padded to 63"},
             {4, 3, "truncated"},
             {1, 5, "truncated or overlong"}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    int32_t was;
    memcpy(&was, file + 4 * bad[i].word, 4);
    put(file, (size_t)bad[i].word, bad[i].value);
    test_refused(open_bytes(file, n), ATOLL_CORRUPT, bad[i].says);
    put(file, (size_t)bad[i].word, was);
  }
  free(file);
  test_set_free(&s);
  atoll_model_destroy(&m);
}

static void llama2c(void **state) {
  (void)state;
  test_set s;
  atoll_weights_config c;
  test_llama(&s, &c, 1);
  atoll_weights_source source = test_source(&s);
  char *file = NULL;
  size_t n = 0;
  assert_int_equal(atoll_weights_write_llama2c("bad.tmp.bin", &c, &source), ATOLL_OK);
  assert_int_equal(atoll_file_read("bad.tmp.bin", &file, &n), ATOLL_OK);
  unlink("bad.tmp.bin");
  assert_int_equal(open_bytes(file, n), ATOLL_OK);
  test_refused(open_bytes(file, n - 4), ATOLL_CORRUPT,
               "neither safetensors, nor llm.c's model (20240326), nor llama2.c");
  for (size_t word = 0; word < 7; word++)
    for (int k = 0; k < 3; k++) {
      static const int32_t odd[] = {0, INT32_MIN, INT32_MAX};
      int32_t was;
      memcpy(&was, file + 4 * word, 4);
      put(file, word, odd[k]);
      test_refused(open_bytes(file, n), ATOLL_CORRUPT, "neither");
      put(file, word, was);
    }
  free(file);
  c.heads = 5;
  test_refused(atoll_weights_write_llama2c("bad.tmp.bin", &c, &source), ATOLL_USAGE, "width 24, heads 5");
  c.heads = 4;
  c.rope_theta = 500000;
  test_refused(atoll_weights_write_llama2c("bad.tmp.bin", &c, &source), ATOLL_UNSUPPORTED, "theta 10000");
  c.rope_theta = 10000;
  c.vocab = 31;
  test_refused(atoll_weights_write_llama2c("bad.tmp.bin", &c, &source), ATOLL_MISMATCH,
               "embed_tokens.weight is 30 x 24, the sizes say 31 x 24");
  snprintf(c.family, sizeof c.family, "gpt2");
  test_refused(atoll_weights_write_llama2c("bad.tmp.bin", &c, &source), ATOLL_UNSUPPORTED, "holds llama, not gpt2");
  test_set_free(&s);
}

static void others(void **state) {
  (void)state;
  atoll_weights *w = NULL;
  test_refused(open_bytes("PK\3\4 and so on", 14), ATOLL_UNSUPPORTED, "pickled PyTorch file");
  test_refused(open_bytes("\x80\x02}q", 4), ATOLL_UNSUPPORTED, "pickled PyTorch file");
  test_refused(open_bytes("hello", 5), ATOLL_CORRUPT, "neither safetensors");
  test_refused(atoll_weights_open("absent.bin", NULL, &w), ATOLL_NOINPUT, "absent.bin");
  assert_int_equal(atoll_file_replace("empty.tmp.bin", "", 0), ATOLL_OK);
  test_refused(atoll_weights_open("empty.tmp.bin", NULL, &w), ATOLL_CORRUPT, "0 bytes");
  unlink("empty.tmp.bin");
  assert_null(w);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(llmc), cmocka_unit_test(llama2c), cmocka_unit_test(others)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
