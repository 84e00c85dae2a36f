/* Digests are stored in files: known answers, and a streaming form that equals the whole and ignores the machine's byte
 * order. */
#include "atoll/digest.h"
#include "unit_check.h"

static void known_answers(void **state) {
  (void)state;
  char text[33];
  /* XXH3_128bits of nothing, from the xxHash specification's reference implementation. */
  assert_string_equal(atoll_digest_text(atoll_digest_bytes("", 0), text), "99aa06d3014798d86001c324468d497f");
}

static void text_parses_back(void **state) {
  (void)state;
  char text[33];
  atoll_digest a = atoll_digest_bytes("atoll", 5), b = {0, 0};
  assert_int_equal(atoll_digest_parse(atoll_digest_text(a, text), &b), 0);
  assert_true(atoll_digest_equal(a, b));
  assert_int_equal(strlen(text), 32);
  assert_int_equal(atoll_digest_parse("99aa06d3014798d86001c324468d497", &b), -1);
  assert_int_equal(atoll_digest_parse("99aa06d3014798d86001c324468d497f0", &b), -1);
  assert_int_equal(atoll_digest_parse("99aa06d3014798d86001c324468d497g", &b), -1);
  assert_int_equal(atoll_digest_parse("", &b), -1);
  assert_true(atoll_digest_equal(a, b)); /* untouched by failures */
}

static void stream_equals_whole(void **state) {
  (void)state;
  unsigned char data[1000];
  atoll_digester *d = NULL;
  for (size_t i = 0; i < sizeof data; i++)
    data[i] = (unsigned char)(i * 7);
  assert_int_equal(atoll_digester_create(&d), ATOLL_OK);
  for (size_t i = 0; i < sizeof data; i += 125)
    atoll_digester_add(d, data + i, 125);
  assert_true(atoll_digest_equal(atoll_digester_value(d), atoll_digest_bytes(data, sizeof data)));
  atoll_digester_destroy(&d);
  assert_null(d);
  atoll_digester_destroy(&d);
}

static void typed_adders_write_little_endian(void **state) {
  (void)state;
  static const unsigned char expected[] = {0xFE, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, /* -2 */
                                           0,    0,    0,    0,    0,    0,    0xF8, 0x3F, /* 1.5 */
                                           2,    0,    0,    0,    0,    0,    0,    0,    'h', 'i'};
  atoll_digester *d = NULL;
  assert_int_equal(atoll_digester_create(&d), ATOLL_OK);
  atoll_digester_add_int(d, -2);
  atoll_digester_add_real(d, 1.5);
  atoll_digester_add_text(d, "hi");
  assert_true(atoll_digest_equal(atoll_digester_value(d), atoll_digest_bytes(expected, sizeof expected)));
  atoll_digester_destroy(&d);
}

static atoll_digest of_texts(const char *a, const char *b) {
  atoll_digester *d = NULL;
  assert_int_equal(atoll_digester_create(&d), ATOLL_OK);
  atoll_digester_add_text(d, a);
  atoll_digester_add_text(d, b);
  atoll_digest v = atoll_digester_value(d);
  atoll_digester_destroy(&d);
  return v;
}

static void texts_do_not_run_together(void **state) {
  (void)state;
  assert_false(atoll_digest_equal(of_texts("ab", "c"), of_texts("a", "bc")));
  assert_false(atoll_digest_equal(of_texts("", "x"), of_texts(NULL, "x")));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(known_answers),
      cmocka_unit_test(text_parses_back),
      cmocka_unit_test(stream_equals_whole),
      cmocka_unit_test(typed_adders_write_little_endian),
      cmocka_unit_test(texts_do_not_run_together),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
