/* Promise: what a decoder shows is always whole characters; one that tokens divide is held back until it is complete,
 * and what can become none is replaced. */
#include "token_test.h"

static void expect_shown(atoll_decoder *d, int32_t id, const char *want) {
  const char *text = NULL;
  size_t n = 0;
  assert_int_equal(atoll_decoder_push(d, id, &text, &n), ATOLL_OK);
  assert_string_equal(text, want);
  assert_int_equal(n, strlen(want));
}

static void divided_characters(void **state) {
  (void)state;
  atoll_tokenizer *t = test_gpt2("a b\n"); /* ids of bytes are the bytes */
  atoll_decoder d;
  const char *text;
  size_t n;
  atoll_decoder_init(&d, t);
  expect_shown(&d, 'a', "a");
  expect_shown(&d, 0xf0, "");
  expect_shown(&d, 0x9f, "");
  expect_shown(&d, 0x98, "");
  expect_shown(&d, 0x80, "\xf0\x9f\x98\x80");
  expect_shown(&d, 256, "ab");
  expect_shown(&d, 0xe6, "");
  expect_shown(&d, 'x', "\xef\xbf\xbdx"); /* cut off by another character */
  expect_shown(&d, 0xff, "\xef\xbf\xbd");
  expect_shown(&d, 0xe6, "");
  expect_shown(&d, 0xbc, "");
  assert_int_equal(atoll_decoder_finish(&d, &text, &n), ATOLL_OK);
  assert_string_equal(text, "\xef\xbf\xbd");
  assert_int_equal(atoll_decoder_finish(&d, &text, &n), ATOLL_OK);
  assert_int_equal(n, 0);
  expect_shown(&d, 'z', "z");
  test_refused(atoll_decoder_push(&d, 999, &text, &n), ATOLL_USAGE, "token 999");
  atoll_decoder_free(&d);
  atoll_tokenizer_close(&t);
}

static void space_after_begin_and_bytes(void **state) {
  (void)state;
  static const char *const piece[] = {" ", "a", " a", "\xe6\xbc\xa2"};
  static const float score[] = {-1, -2, -3, -4};
  size_t bytes = 0, n = 0;
  unsigned char *file = test_llama2c(piece, score, 4, &bytes);
  atoll_tokenizer *t = NULL;
  assert_int_equal(atoll_tokenizer_open_llama2c("tok.bin", file, bytes, &t), ATOLL_OK);
  free(file);
  atoll_decoder d;
  atoll_decoder_init(&d, t);
  expect_shown(&d, atoll_tokenizer_begin(t), "");
  expect_shown(&d, 261, "a"); /* " a" right after begin */
  expect_shown(&d, 261, " a");
  expect_shown(&d, 3 + 0xc3, "");
  expect_shown(&d, 3 + 0xa9, "\xc3\xa9");
  expect_shown(&d, atoll_tokenizer_end(t), "");
  atoll_decoder_free(&d);
  int32_t *ids = NULL;
  assert_int_equal(atoll_tokenizer_encode_all(t, "a\xe6\xbc\xa2\xc3\xa9\xff\n<s>", 11, &ids, &n), ATOLL_OK);
  static const int32_t want[] = {261, 262, 3 + 0xc3, 3 + 0xa9, 3 + 0xff, 3 + '\n', 3 + '<', 3 + 's', 3 + '>'};
  assert_int_equal(n, sizeof want / sizeof *want);
  assert_memory_equal(ids, want, sizeof want); /* and no text encodes to begin */
  free(ids);
  atoll_tokenizer_close(&t);
}

static void bytes_are_their_own_ids(void **state) {
  (void)state;
  atoll_tokenizer *t = NULL;
  atoll_decoder d;
  unsigned char text[3000];
  int32_t *ids = NULL;
  size_t n = 0;
  for (size_t i = 0; i < sizeof text; i++)
    text[i] = (unsigned char)(i * 7);
  assert_int_equal(atoll_tokenizer_open("bytes", &t), ATOLL_OK);
  assert_int_equal(atoll_tokenizer_vocab(t), 256);
  assert_int_equal(atoll_tokenizer_encode_all(t, text, sizeof text, &ids, &n), ATOLL_OK);
  assert_int_equal(n, sizeof text);
  for (size_t i = 0; i < n; i++)
    assert_int_equal(ids[i], text[i]);
  free(ids);
  atoll_decoder_init(&d, t);
  expect_shown(&d, 'a', "a");
  expect_shown(&d, 0xc3, "");
  expect_shown(&d, 0xa9, "\xc3\xa9");
  atoll_decoder_free(&d);
  atoll_tokenizer_close(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(bytes_are_their_own_ids), cmocka_unit_test(divided_characters),
                                     cmocka_unit_test(space_after_begin_and_bytes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
