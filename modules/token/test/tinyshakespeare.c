/* Promise: GPT-2's tokens of tinyshakespeare are the published ones, token by token, whole and as documents; and both
 * tokenizers give back every byte of it. */
#include "token_test.h"

static char folder[2048];

static const char *in_folder(const char *name) {
  static char path[3][2100];
  static int next;
  char *p = path[next++ % 3];
  snprintf(p, sizeof path[0], "%s/%s", folder, name);
  return p;
}

struct tokens {
  int32_t *ids;
  size_t n;
};

static atoll_err add(void *arg, const int32_t *ids, size_t n) {
  struct tokens *t = arg;
  memcpy(t->ids + t->n, ids, n * sizeof *ids);
  t->n += n;
  return ATOLL_OK;
}

static size_t compare(const char *file, const int32_t *ids, size_t first, size_t all) {
  char *data = NULL;
  size_t bytes = 0;
  assert_int_equal(atoll_file_read(file, &data, &bytes), ATOLL_OK);
  size_t n = (bytes - 1024) / 2;
  assert_true(first + n <= all);
  for (size_t i = 0; i < n; i++) {
    uint16_t want;
    memcpy(&want, data + 1024 + 2 * i, 2);
    if (ids[first + i] != want)
      fail_msg("%s: token %zu is %d, published is %d", file, i, ids[first + i], want);
  }
  free(data);
  return n;
}

static void gpt2_matches_token_by_token(void **state) {
  (void)state;
  atoll_tokenizer *t = NULL;
  char *text = NULL, spec[2100];
  size_t bytes = 0, n = 0, back = 0;
  int32_t *ids = NULL;
  snprintf(spec, sizeof spec, "gpt2:%s", folder);
  assert_int_equal(atoll_tokenizer_open(spec, &t), ATOLL_OK);
  assert_int_equal(atoll_tokenizer_vocab(t), 50257);
  assert_int_equal(atoll_tokenizer_begin(t), 50256);
  assert_int_equal(atoll_file_read(in_folder("tinyshakespeare.txt"), &text, &bytes), ATOLL_OK);
  assert_int_equal(atoll_tokenizer_encode_all(t, text, bytes, &ids, &n), ATOLL_OK);
  assert_int_equal(n, 338025);
  unsigned char *again = test_decode(t, -1, ids, n, &back);
  assert_int_equal(back, bytes);
  assert_memory_equal(again, text, bytes);
  free(again);
  free(ids);
  /* A mark before each document, which ends behind an empty line; the first 32,768 tokens are held out. */
  struct tokens all = {malloc(bytes * sizeof(int32_t)), 0};
  assert_non_null(all.ids);
  for (size_t at = 0; at < bytes;) {
    const char *gap = memmem(text + at, bytes - at, "\n\n", 2);
    size_t end = gap ? (size_t)(gap - text) + 2 : bytes;
    int32_t mark = atoll_tokenizer_begin(t);
    add(&all, &mark, 1);
    assert_int_equal(atoll_tokenizer_encode(t, "document", text + at, end - at, add, &all), ATOLL_OK);
    at = end;
  }
  assert_int_equal(all.n, 305260 + 32768);
  assert_int_equal(compare(in_folder("tiny_shakespeare_val.bin"), all.ids, 0, all.n), 32768);
  assert_int_equal(compare(in_folder("tiny_shakespeare_train.bin"), all.ids, 32768, all.n), 305260);
  free(all.ids);
  free(text);
  atoll_tokenizer_close(&t);
}

static void llama2c_gives_every_byte_back(void **state) {
  (void)state;
  atoll_tokenizer *t = NULL;
  char *text = NULL, spec[2100];
  size_t bytes = 0, n = 0, back = 0;
  int32_t *ids = NULL;
  snprintf(spec, sizeof spec, "llama2c:%s", in_folder("tok512.bin"));
  assert_int_equal(atoll_tokenizer_open(spec, &t), ATOLL_OK);
  assert_int_equal(atoll_tokenizer_vocab(t), 512);
  assert_int_equal(atoll_file_read(in_folder("tinyshakespeare.txt"), &text, &bytes), ATOLL_OK);
  assert_int_equal(atoll_tokenizer_encode_all(t, text, bytes, &ids, &n), ATOLL_OK);
  unsigned char *again = test_decode(t, atoll_tokenizer_begin(t), ids, n, &back);
  assert_int_equal(back, bytes);
  assert_memory_equal(again, text, bytes);
  free(again);
  free(ids);
  free(text);
  /* The first tokens of the model's own greedy text: "Once upon a time, there was a little girl". */
  static const int32_t golden[] = {403, 407, 261, 378, 432, 383, 286, 261, 376, 298};
  unsigned char *said = test_decode(t, 1, golden, 10, &back);
  assert_int_equal(atoll_tokenizer_encode_all(t, said, back, &ids, &n), ATOLL_OK);
  assert_int_equal(n, 10);
  assert_memory_equal(ids, golden, sizeof golden);
  assert_memory_equal(said, "Once upon a time", 16);
  free(said);
  free(ids);
  atoll_tokenizer_close(&t);
}

int main(void) {
  const char *shared = getenv("ATOLL_SHARED");
  snprintf(folder, sizeof folder, "%s/data", shared ? shared : ATOLL_SOURCE_DIR "/../shared");
  if (!atoll_file_exists(in_folder("tinyshakespeare.txt"))) {
    printf("SKIPPED: no %s/tinyshakespeare.txt; set ATOLL_SHARED\n", folder);
    return 77;
  }
  const struct CMUnitTest tests[] = {cmocka_unit_test(gpt2_matches_token_by_token),
                                     cmocka_unit_test(llama2c_gives_every_byte_back)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
