/* Promise: text is divided as GPT-2's published pattern divides it, over Unicode's letters, numbers and white space,
 * and nothing depends on where the windows of a long text end. The sink is called once a piece, which shows them. */
#include "token_test.h"

static void words_numbers_signs_and_space(void **state) {
  (void)state;
  atoll_tokenizer *t = test_gpt2("x y\n");
  EXPECT("Hello", ",", " world", "!");
  EXPECT("it", "'s", " we", "'ll", " don", "'t", " o", "'", "clock", " I", "'", "D");
  EXPECT("a", "  ", " b");                                            /* the last space goes with the word */
  EXPECT("a", "\n", "\n", "b");                                       /* but not a line end */
  EXPECT("a", " \n ", "\t", "b", " ");                                /* space at the end */
  EXPECT("x", "12", " 34²½", " Ⅷ", " ٣");                             /* N: also fractions, Roman and Arabic-Indic */
  EXPECT("naïve", " Ünï", " русский", " 漢字かな", "。");             /* L of any script; the stop is neither */
  EXPECT("e", "\xcc\x81", "a");                                       /* a combining accent is M */
  EXPECT("a", "\xc2\x85", "b", "\xc2\xa0", "c", "\xe3\x80\x80", "d"); /* NEL, no-break and ideographic space */
  EXPECT("a", "\xe1\xa0\x8e", "b");                                   /* U+180E is no space ... */
  EXPECT("a", " \xe1\xa0\x8e!", "b");                                 /* ... so it joins a sign */
  EXPECT("a", "\x1c", "b");                                           /* nor is a file separator */
  EXPECT("\xf0\x9f\x98\x80\xf0\x9f\x98\x80", " \xf0\x9f\x98\x80");    /* beyond the basic plane */
  EXPECT("\xf0\x9d\x92\xb3y");                                        /* a mathematical letter is a letter */
  atoll_tokenizer_close(&t);
}

static void long_texts_are_divided_alike(void **state) {
  (void)state;
  atoll_tokenizer *t = test_gpt2("a a\n");
  const size_t run = (size_t)3 << 20, n = 2 * run + 9;
  char *text = malloc(n);
  assert_non_null(text);
  memset(text, 'a', run); /* one word of three windows, then as much space, then a word with the last space */
  memset(text + run, ' ', run + 1);
  memcpy(text + 2 * run + 1, "bbbb\n\n\n\n", 8);
  struct pieces p = {0};
  assert_int_equal(atoll_tokenizer_encode(t, "text", text, n, test_count_piece, &p), ATOLL_OK);
  assert_int_equal(p.n, 4);
  assert_int_equal(p.length[0], run / 2);
  assert_int_equal(p.length[1], run);
  assert_int_equal(p.length[2], 5);
  assert_int_equal(p.length[3], 4);
  /* Characters of three bytes across every window's end, one piece each. */
  for (size_t i = 0; i + 6 <= n; i += 6)
    memcpy(text + i, "\xe6\xbc\xa2\xe3\x80\x82", 6);
  p.n = 0;
  assert_int_equal(atoll_tokenizer_encode(t, "text", text, n / 6 * 6, test_count_piece, &p), ATOLL_OK);
  assert_int_equal(p.n, n / 6 * 2);
  free(text);
  atoll_tokenizer_close(&t);
}

static void bytes_that_are_not_utf8_are_named(void **state) {
  (void)state;
  atoll_tokenizer *t = test_gpt2("a a\n");
  struct pieces p = {0};
  test_refused(atoll_tokenizer_encode(t, "in.txt", "abc\xff", 4, test_count_piece, &p), ATOLL_CORRUPT,
               "in.txt: byte 0xFF at offset 3");
  test_refused(atoll_tokenizer_encode(t, "in.txt", "ab\xe6\xbc", 4, test_count_piece, &p), ATOLL_CORRUPT,
               "byte 0xE6 at offset 2 is not UTF-8: the character is cut short");
  test_refused(atoll_tokenizer_encode(t, "in.txt", "\xed\xa0\x80", 3, test_count_piece, &p), ATOLL_CORRUPT, "offset 0");
  test_refused(atoll_tokenizer_encode(t, "in.txt", "\xc0\x80", 2, test_count_piece, &p), ATOLL_CORRUPT, "offset 0");
  test_refused(atoll_tokenizer_encode(t, "in.txt", "\xf4\x90\x80\x80", 4, test_count_piece, &p), ATOLL_CORRUPT,
               "offset 0");
  assert_int_equal(atoll_tokenizer_encode(t, "in.txt", "", 0, test_count_piece, &p), ATOLL_OK);
  char *text = malloc((size_t)1 << 21);
  assert_non_null(text);
  memset(text, ' ', (size_t)1 << 21);
  text[1500000] = '\x80';
  test_refused(atoll_tokenizer_encode(t, "in.txt", text, (size_t)1 << 21, test_count_piece, &p), ATOLL_CORRUPT,
               "byte 0x80 at offset 1500000");
  free(text);
  atoll_tokenizer_close(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(words_numbers_signs_and_space),
                                     cmocka_unit_test(long_texts_are_divided_alike),
                                     cmocka_unit_test(bytes_that_are_not_utf8_are_named)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
