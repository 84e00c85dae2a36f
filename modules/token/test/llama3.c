/* Promise: a vocabulary of ranks in base64 divides text as Llama 3's published pattern does, merges as rescanning for
 * the lowest rank does, and is refused by line when it is damaged. */
#include "token_test.h"

static void base64(FILE *f, const char *s, size_t n) {
  static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < n; i += 3) {
    unsigned bits = 0;
    for (size_t k = 0; k < 3; k++)
      bits = bits << 8 | (i + k < n ? (unsigned char)s[i + k] : 0);
    for (size_t k = 0; k < 4; k++)
      fputc(i + k > n ? '=' : digit[bits >> (18 - 6 * k) & 63], f);
  }
}

/* The file of the 256 bytes, then the words. Owned. */
static char *file_of(const char *const *word, int words) {
  char *text = NULL;
  size_t bytes = 0;
  FILE *f = open_memstream(&text, &bytes);
  assert_non_null(f);
  for (int id = 0; id < 256 + words; id++) {
    char byte = (char)id;
    base64(f, id < 256 ? &byte : word[id - 256], id < 256 ? 1 : strlen(word[id - 256]));
    fprintf(f, " %d\n", id);
  }
  assert_int_equal(fclose(f), 0);
  return text;
}

static atoll_tokenizer *tokenizer_of(const char *const *word, int words) {
  char *text = file_of(word, words);
  atoll_tokenizer *t = NULL;
  if (atoll_tokenizer_open_llama3("tokenizer.model", text, strlen(text), &t) != ATOLL_OK)
    fail_msg("%s", atoll_err_message());
  free(text);
  return t;
}

/* ---- division: the sink is called once a piece ---- */

static void division(void **state) {
  (void)state;
  atoll_tokenizer *t = tokenizer_of(NULL, 0);
  EXPECT("Hello", ",", " world", "!");
  EXPECT("it", "'s", " WE", "'LL", " don", "'T", " o", "'clock"); /* of any case; else the sign goes with the word */
  EXPECT("x", "123", "456", "7", " ", "89");                      /* three digits; a space is never theirs */
  EXPECT("#include", " <", "stdio", ".h", ">\n\n", "int");        /* line ends stay with signs */
  EXPECT("a", "  ", " b", "\n", "c", "\n\n", "d");
  EXPECT("a", " \n\n", "   ", " b", "\r\n", "c"); /* space before line ends is theirs */
  EXPECT("a", "\tb", " ", "\tc", "  ");           /* a tab goes with the word like a space */
  EXPECT("naïve", " Ünï", "—русский", "。漢字");  /* any other character does */
  EXPECT("e", "\xcc\x81"
              "a");                              /* a combining accent is no letter */
  EXPECT("a", "\xc2\x85", "1", " \xe3\x80\x80"); /* NEL and the ideographic space are white */
  atoll_tokenizer_close(&t);
}

/* ---- merging ---- */

static void expect_ids(const atoll_tokenizer *t, const char *text, const int32_t *want, size_t n) {
  int32_t *ids = NULL;
  size_t got = 0;
  assert_int_equal(atoll_tokenizer_encode_all(t, text, strlen(text), &ids, &got), ATOLL_OK);
  assert_int_equal(got, n);
  assert_memory_equal(ids, want, n * sizeof *want);
  free(ids);
}

static void lowest_rank_first(void **state) {
  (void)state;
  static const char *const word[] = {"bc", "ab", "abcd", "qrs"};
  atoll_tokenizer *t = tokenizer_of(word, 4);
  const unsigned char *bytes;
  size_t n;
  assert_int_equal(atoll_tokenizer_vocab(t), 260 + 256);
  assert_int_equal(atoll_tokenizer_begin(t), 260);
  assert_int_equal(atoll_tokenizer_end(t), 261);
  expect_ids(t, "abc", (const int32_t[]){'a', 256}, 2);
  expect_ids(t, "aab", (const int32_t[]){'a', 257}, 2);
  expect_ids(t, "abcd", (const int32_t[]){258}, 1); /* a piece that is a token, whatever merging would give */
  expect_ids(t, "qrs", (const int32_t[]){259}, 1);
  expect_ids(t, " qrs", (const int32_t[]){' ', 'q', 'r', 's'}, 4);
  expect_ids(t, "<|begin_of_text|>",
             (const int32_t[]){'<', '|', 'b', 'e', 'g', 'i', 'n', '_', 'o', 'f', '_', 't', 'e', 'x', 't', '|', '>'},
             17);
  assert_int_equal(atoll_tokenizer_decode(t, -1, 260, &bytes, &n), ATOLL_OK);
  assert_int_equal(n, 0);
  assert_int_equal(atoll_tokenizer_decode(t, -1, 258, &bytes, &n), ATOLL_OK);
  assert_true(n == 4 && !memcmp(bytes, "abcd", 4));
  assert_int_equal(atoll_tokenizer_decode(t, -1, 516, &bytes, &n), ATOLL_USAGE);
  atoll_tokenizer_close(&t);
}

static uint32_t seed = 4711;
static uint32_t draw(uint32_t n) {
  seed = seed * 1664525 + 1013904223;
  return (seed >> 8) % n;
}

static int rank_of(char (*word)[12], int words, const char *s, size_t n) {
  for (int i = 0; i < words; i++)
    if (strlen(word[i]) == n && !memcmp(word[i], s, n))
      return 256 + i;
  return n == 1 ? (unsigned char)*s : -1;
}

/* Cuts of text[0, n] before each part; the neighbours of the lowest rank become one until there are none. */
static size_t rescan(char (*word)[12], int words, const char *text, size_t n, int32_t *ids) {
  size_t cut[64], parts = n;
  int whole = rank_of(word, words, text, n);
  for (size_t i = 0; i <= n; i++)
    cut[i] = i;
  for (size_t best = 0; whole < 0 && best != SIZE_MAX;) {
    int lowest = 1 << 20;
    best = SIZE_MAX;
    for (size_t i = 0; i + 1 < parts; i++) {
      int rank = rank_of(word, words, text + cut[i], cut[i + 2] - cut[i]);
      if (rank >= 0 && rank < lowest)
        lowest = rank, best = i;
    }
    if (best != SIZE_MAX)
      memmove(&cut[best + 1], &cut[best + 2], (parts-- - best) * sizeof *cut);
  }
  for (size_t i = 0; i < parts && whole < 0; i++)
    ids[i] = rank_of(word, words, text + cut[i], cut[i + 1] - cut[i]);
  if (whole >= 0)
    ids[0] = whole;
  return whole >= 0 ? 1 : parts;
}

static void as_rescanning_does(void **state) {
  (void)state;
  for (int round = 0; round < 100; round++) {
    char word[30][12];
    const char *list[30];
    int words = 0;
    while (words < 30) {
      size_t n = 2 + draw(3);
      for (size_t i = 0; i < n; i++)
        word[words][i] = "abc"[draw(3)];
      word[words][n] = 0;
      list[words] = word[words];
      words += rank_of(word, words, word[words], n) < 0;
    }
    atoll_tokenizer *t = tokenizer_of(list, words);
    for (int k = 0; k < 20; k++) {
      char text[41] = "";
      int32_t want[64];
      size_t n = 1 + draw(40);
      for (size_t i = 0; i < n; i++)
        text[i] = "abc"[draw(3)];
      expect_ids(t, text, want, rescan(word, words, text, n, want));
    }
    atoll_tokenizer_close(&t);
  }
}

/* ---- refusals ---- */

/* The file with `from` replaced by `to`. */
static void refused(const char *from, const char *to, const char *says) {
  static const char *const word[] = {"ab"};
  char *text = file_of(word, 1), *at = strstr(text, from), bad[4096];
  atoll_tokenizer *t = NULL;
  assert_non_null(at);
  snprintf(bad, sizeof bad, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
  test_refused(atoll_tokenizer_open_llama3("m", bad, strlen(bad), &t), ATOLL_CORRUPT, says);
  assert_null(t);
  free(text);
}

static void damaged_files(void **state) {
  (void)state;
  atoll_tokenizer *t = NULL;
  test_refused(atoll_tokenizer_open_llama3("m", "", 0, &t), ATOLL_CORRUPT,
               "m: found 0 lines, expected a token in each");
  refused("YWI= 256", "YWI= 257", "m:257: rank 257 is beyond the number of tokens");
  refused("YWI= 256", "YWI= 99999999999999999999", "m:257");
  refused("YWI= 256", "YWI= 7", "m:257: rank 7 is that of an earlier token");
  refused("YWI= 256", "YQ== 256", "m: ranks 97 and 256 are the same token");
  refused("YQ== 97", "YWE= 97", "m: no token for byte 97");
  refused("YWI= 256", "YWI 256", "m:257: found 'YWI 256', expected a token in base64 and its rank");
  refused("YWI= 256", "YW!= 256", "expected a token in base64");
  refused("YWI= 256", "==== 256", "expected a token in base64");
  refused("YWI= 256", " 256", "expected a token in base64");
  refused("YWI= 256", "YWI= ", "expected a token in base64");
  refused("YWI= 256", "YWI= -1", "expected a token in base64");
  refused("YWI= 256", "YWI=", "expected a token in base64");
  refused("YWI= 256\n", "YWI= 256\n\n", "m:258: found ''");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(division), cmocka_unit_test(lowest_rank_first),
                                     cmocka_unit_test(as_rescanning_does), cmocka_unit_test(damaged_files)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
