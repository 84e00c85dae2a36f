/* Numbers, sizes, times and near words: exact, independent of the locale, strict about everything else. */
#include "opt_test.h"

#include <locale.h>

static void integers(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int64_t v;
  } good[] = {{"0", 0},
              {"-0", 0},
              {"+7", 7},
              {"007", 7},
              {"9223372036854775807", INT64_MAX},
              {"-9223372036854775808", INT64_MIN}};
  static const char *const bad[] = {
      "",        "-", "+", " 1", "1 ", "1.0", "1e3", "0x1", "1_0", "--1", "9223372036854775808", "-9223372036854775809",
      "\xD9\xA1"};
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    int64_t v = 1;
    assert_int_equal(atoll_parse_int(good[i].text, &v), 0);
    assert_true(v == good[i].v);
  }
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    int64_t v = 55;
    assert_int_equal(atoll_parse_int(bad[i], &v), -1);
    assert_true(v == 55);
  }
}

static void reals(void **state) {
  (void)state;
  static const struct {
    const char *text;
    double v;
  } good[] = {{"0", 0},         {"-1.5", -1.5}, {".5", .5},
              {"5.", 5},        {"1e3", 1000},  {"1E-3", 1e-3},
              {"+2.5e+2", 250}, {"1e-999", 0},  {"1.7976931348623157e308", 1.7976931348623157e308},
              {"0.1", 0.1}};
  static const char *const bad[] = {"",      ".",   "-",   "e5",    "1e",       "1e+",   "1,5",   " 1", "1 ",
                                    "0x1p3", "nan", "inf", "-.inf", "infinity", "1e999", "1.2.3", "1f", "nan(1)"};
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    double v = -77;
    assert_int_equal(atoll_parse_real(good[i].text, &v), 0);
    assert_true(v == good[i].v);
  }
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    double v = 55;
    assert_int_equal(atoll_parse_real(bad[i], &v), -1);
    assert_true(v == 55);
  }
}

static void sizes(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int64_t v;
  } good[] = {{"0", 0},
              {"17", 17},
              {"17B", 17},
              {"1kB", 1000},
              {"1KiB", 1024},
              {"2 MiB", 2 << 20},
              {"1.5GiB", INT64_C(3) << 29},
              {"0.3GB", 300000000},
              {"0.1KiB", 102},
              {"3TB", INT64_C(3000000000000)},
              {"8191PiB", INT64_C(8191) << 50},
              {"9223372036854775807", INT64_MAX}};
  static const char *const bad[] = {"",
                                    "B",
                                    "-1",
                                    "+1",
                                    "1K",
                                    "1k",
                                    "1G",
                                    "1gib",
                                    "1KB",
                                    "1 kB ",
                                    "1  kB",
                                    ".5GiB",
                                    "1.GiB",
                                    "8192PiB",
                                    "9223372036854775808",
                                    "1e3",
                                    "1.0123456789GiB",
                                    "9223372036854775807.5"};
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    int64_t v = -1;
    assert_int_equal(atoll_parse_bytes(good[i].text, &v), 0);
    assert_true(v == good[i].v);
  }
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    int64_t v = 55;
    assert_int_equal(atoll_parse_bytes(bad[i], &v), -1);
    assert_true(v == 55);
  }
}

static void times(void **state) {
  (void)state;
  static const struct {
    const char *text;
    double v;
  } good[] = {{"0", 0},       {"90", 90},         {"1.5h", 5400},         {"30ms", 0.03},        {"9ms", 0.009},
              {"30 s", 30},   {"2min", 120},      {"1d", 86400},          {"-5s", -5},           {"1e3s", 1000},
              {"1E-3", 1e-3}, {"01:02:03", 3723}, {"1-12:00:00", 129600}, {"100:00:00", 360000}, {"00:00:30", 30}};
  static const char *const bad[] = {"",
                                    "s",
                                    "1 ",
                                    "5m",
                                    "5M",
                                    "1:00",
                                    "1-24:00:00",
                                    "00:60:00",
                                    "00:00:60",
                                    "1-00:00",
                                    "::",
                                    "-1:00:00",
                                    "00:00:00s",
                                    "1h30min",
                                    "inf",
                                    "nan",
                                    "1e308d",
                                    "1-1-00:00:00",
                                    "0000000000001:00:00"};
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    double v = -77;
    if (atoll_parse_seconds(good[i].text, &v) || v != good[i].v)
      fail_msg("'%s' gave %g", good[i].text, v);
  }
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    double v = 55;
    if (!atoll_parse_seconds(bad[i], &v) || v != 55)
      fail_msg("'%s' gave %g", bad[i], v);
  }
}

static void nearest_words(void **state) {
  (void)state;
  static const char *const words[] = {"every_steps", "every_seconds", "keep", "dir", NULL, "", "verify"};
  const size_t n = sizeof words / sizeof *words;
  assert_string_equal(atoll_nearest("evry_steps", words, n), "every_steps");
  assert_string_equal(atoll_nearest("Every-Steps", words, n), "every_steps");
  assert_string_equal(atoll_nearest("every_second", words, n), "every_seconds");
  assert_string_equal(atoll_nearest("kepe", words, n), "keep"); /* neighbours swapped */
  assert_string_equal(atoll_nearest("ver", words, n), "verify");
  assert_null(atoll_nearest("every", words, n)); /* two begin so */
  assert_null(atoll_nearest("x", words, n));
  assert_null(atoll_nearest("abc", words, n));
  assert_null(atoll_nearest("", words, n));
  assert_null(atoll_nearest("word", words, 0));
  char *big = calloc(1, 1 << 20);
  assert_non_null(big);
  memset(big, 'a', (1 << 20) - 1);
  assert_null(atoll_nearest(big, words, n));
  free(big);
}

static void locale_does_not_matter(void **state) {
  (void)state;
  struct sample s;
  char value[64];
  double v = 0;
  int comma = setlocale(LC_ALL, "de_DE.UTF-8") && *localeconv()->decimal_point == ',';
  if (!comma && !system("mkdir -p locales && localedef -i de_DE -f UTF-8 ./locales/de_DE.UTF-8 2>/dev/null")) {
    setenv("LOCPATH", "./locales", 1);
    comma = setlocale(LC_ALL, "de_DE.UTF-8") && *localeconv()->decimal_point == ',';
  }
  if (!comma)
    print_message("no locale with a decimal comma can be had: only the C locale was tried\n");
  sample_open(&s);
  assert_int_equal(atoll_parse_real("1.5", &v), 0);
  assert_true(v == 1.5);
  assert_int_equal(atoll_parse_real("1,5", &v), -1);
  assert_string_equal(atoll_opts_value(s.opts, atoll_opts_find(s.opts, "ckpt.ratio"), value, sizeof value), "0.5");
  setlocale(LC_ALL, "C");
  sample_close(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(integers), cmocka_unit_test(reals),         cmocka_unit_test(sizes),
      cmocka_unit_test(times),    cmocka_unit_test(nearest_words), cmocka_unit_test(locale_does_not_matter),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
