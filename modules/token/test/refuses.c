/* Promise: a vocabulary that is damaged, incomplete or of another kind is refused by file and place. */
#include "token_test.h"

static atoll_err open_with(const char *json, const char *merges) {
  atoll_tokenizer *t = NULL;
  atoll_err err =
      atoll_tokenizer_open_gpt2("encoder.json", json, strlen(json), "vocab.bpe", merges, strlen(merges), &t);
  assert_true((err == ATOLL_OK) == (t != NULL));
  atoll_tokenizer_close(&t);
  return err;
}

/* json with `from` replaced by `to`, owned. */
static char *edited(const char *json, const char *from, const char *to) {
  const char *at = strstr(json, from);
  assert_non_null(at);
  size_t n = strlen(json) + strlen(to) + 1;
  char *text = malloc(n);
  assert_non_null(text);
  snprintf(text, n, "%.*s%s%s", (int)(at - json), json, to, at + strlen(from));
  return text;
}

static void byte_level_files(void **state) {
  (void)state;
  static const char merges[] = "#version: 0.2\na b\nab c\n";
  char *json = test_gpt2_json(merges);
  assert_int_equal(open_with(json, merges), ATOLL_OK);
  test_refused(open_with("", merges), ATOLL_CORRUPT, "encoder.json:1");
  test_refused(open_with("[1, 2]", merges), ATOLL_CORRUPT, "no object");
  test_refused(open_with("{\"a\": 0}", merges), ATOLL_CORRUPT, "of 1 tokens, expected an object of 256");
  static const struct {
    const char *from, *to, *says;
  } defect[] = {{"\"abc\": 257", "\"abc\": 256", "has id 256, which another token has"},
                {"\"abc\": 257", "\"abc\": 259", "not an integer of 0..258"},
                {"\"abc\": 257", "\"abc\": -1", "not an integer"},
                {"\"abc\": 257", "\"abc\": \"257\"", "not an integer"},
                {"\"abc\": 257", "\"ab\": 257", "duplicate"},
                {"\"abc\": 257", "\"a\\u4e00\": 257", "not written in the 256 characters"},
                {"\"abc\": 257", "\"\": 257", "not written in the 256 characters"},
                {"\\u0041", "AA", "no token for byte 65"},
                {"\"<|endoftext|>\": 258}", "", "encoder.json:"}};
  for (size_t i = 0; i < sizeof defect / sizeof *defect; i++) {
    char *bad = edited(json, defect[i].from, defect[i].to);
    test_refused(open_with(bad, merges), ATOLL_CORRUPT, defect[i].says);
    free(bad);
  }
  test_refused(open_with(json, ""), ATOLL_CORRUPT, "vocab.bpe holds no merges");
  test_refused(open_with(json, "a b\nab\n"), ATOLL_CORRUPT, "vocab.bpe:2: found 'ab', expected two words");
  test_refused(open_with(json, "a b c\n"), ATOLL_CORRUPT, "vocab.bpe:1");
  test_refused(open_with(json, "a b\na d\n"), ATOLL_CORRUPT, "vocab.bpe:2: 'a d' names or makes a token");
  test_refused(open_with(json, "ab c\na b\n"), ATOLL_CORRUPT, "vocab.bpe:1: 'ab c' uses a token that no earlier line");
  test_refused(open_with(json, "a b\r\na b\r\n"), ATOLL_CORRUPT, "vocab.bpe:2: 'a b' makes what an earlier line made");
  free(json);
}

static void scored_files(void **state) {
  (void)state;
  static const char *const piece[] = {" ", "a", "aa"};
  static const float score[] = {-1, -2, -3};
  size_t bytes = 0;
  unsigned char *file = test_llama2c(piece, score, 3, &bytes);
  atoll_tokenizer *t = NULL;
  assert_int_equal(atoll_tokenizer_open_llama2c("tok.bin", file, bytes, &t), ATOLL_OK);
  assert_int_equal(atoll_tokenizer_vocab(t), 262);
  atoll_tokenizer_close(&t);
  test_refused(atoll_tokenizer_open_llama2c("tok.bin", file, 3, &t), ATOLL_CORRUPT, "tok.bin: 3 bytes");
  test_refused(atoll_tokenizer_open_llama2c("tok.bin", file, bytes - 1, &t), ATOLL_CORRUPT,
               "token 261 at offset 3646: length 2, 9 bytes left");
  test_refused(atoll_tokenizer_open_llama2c("tok.bin", file, 17, &t), ATOLL_CORRUPT, "1 tokens, expected 259");
  unsigned char saved = file[8];
  file[8] = 200; /* length of the first token */
  test_refused(atoll_tokenizer_open_llama2c("tok.bin", file, bytes, &t), ATOLL_CORRUPT,
               "token 0 at offset 4: length 200");
  file[8] = saved;
  const float nan = 0.0f / 0.0f;
  memcpy(file + 4, &nan, 4);
  test_refused(atoll_tokenizer_open_llama2c("tok.bin", file, bytes, &t), ATOLL_CORRUPT, "has the score");
  memset(file + 4, 0, 4);
  unsigned char *byte = memmem(file, bytes, "<0x41>", 6);
  assert_non_null(byte);
  byte[3] = '5';
  test_refused(atoll_tokenizer_open_llama2c("tok.bin", file, bytes, &t), ATOLL_CORRUPT,
               "token 68 is '<0x51>', expected '<0x41>'");
  assert_null(t);
  free(file);
}

static void specs_and_ids(void **state) {
  (void)state;
  atoll_tokenizer *t = NULL;
  test_refused(atoll_tokenizer_open("bert:x", &t), ATOLL_USAGE, "tokenizer 'bert:x'");
  test_refused(atoll_tokenizer_open("gpt2:nowhere", &t), ATOLL_NOINPUT, "nowhere holds neither");
  test_refused(atoll_tokenizer_open("gpt2:a.json,b.bpe", &t), ATOLL_NOINPUT, "a.json");
  test_refused(atoll_tokenizer_open("llama2c:absent.bin", &t), ATOLL_NOINPUT, "absent.bin");
  assert_null(t);
  t = test_gpt2("a b\n");
  const unsigned char *s;
  size_t n;
  test_refused(atoll_tokenizer_decode(t, -1, 258, &s, &n), ATOLL_USAGE, "token 258, the vocabulary ends at 257");
  test_refused(atoll_tokenizer_decode(t, -1, -1, &s, &n), ATOLL_USAGE, "token -1");
  atoll_tokenizer_close(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(byte_level_files), cmocka_unit_test(scored_files),
                                     cmocka_unit_test(specs_and_ids)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
