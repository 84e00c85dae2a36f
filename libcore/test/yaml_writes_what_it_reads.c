/* The writer's text is what it should look like, and reads back to what was put. */
#include "atoll/yaml.h"

#include <math.h>

#include "opt_test.h"

static void text_is_readable(void **state) {
  (void)state;
  const int64_t layers[] = {0, 5};
  const char *text = NULL;
  atoll_yaml_out *o = NULL;
  assert_ok(atoll_yaml_out_create(&o));
  atoll_yaml_comment(o, "plan of %d\nranks", 2);
  atoll_yaml_put_int(o, "version", 1);
  atoll_yaml_put_text(o, "name", "quick");
  atoll_yaml_open_list(o, "stages");
  atoll_yaml_open_map(o, NULL);
  atoll_yaml_put_int(o, "island", 0);
  atoll_yaml_put_ints(o, "layers", layers, 2);
  atoll_yaml_open_map(o, "axes");
  atoll_yaml_close(o);
  atoll_yaml_close(o);
  atoll_yaml_open_map(o, NULL);
  atoll_yaml_comment(o, "the slow one");
  atoll_yaml_put_real(o, "share", 1e-05);
  atoll_yaml_open_list(o, "none");
  atoll_yaml_close(o);
  atoll_yaml_close(o);
  atoll_yaml_open_list(o, NULL);
  atoll_yaml_put_text(o, NULL, "no");
  atoll_yaml_close(o);
  atoll_yaml_close(o);
  atoll_yaml_open_map(o, "end");
  atoll_yaml_comment(o, "empty");
  atoll_yaml_close(o);
  assert_ok(atoll_yaml_out_text(o, &text));
  assert_string_equal(text, "# plan of 2\n# ranks\nversion: 1\nname: quick\nstages:\n"
                            "  - island: 0\n    layers: [0, 5]\n    axes: {}\n"
                            "  -\n    # the slow one\n    share: 1.0e-05\n    none: []\n"
                            "  - - \"no\"\n"
                            "end:\n  # empty\n  {}\n");
  atoll_yaml *root = NULL, *stages = NULL;
  double share = 0;
  assert_ok(atoll_yaml_parse("w", text, strlen(text), &root));
  assert_ok(atoll_yaml_list(root, "stages", 1, &stages));
  assert_int_equal(atoll_yaml_count(stages), 3);
  assert_ok(atoll_yaml_real(atoll_yaml_at(stages, 1), "share", 1, 0, 1, &share));
  assert_true(share == 1e-05);
  assert_true(atoll_yaml_is_map(atoll_yaml_get(root, "end")));
  atoll_yaml_destroy(&root);
  atoll_yaml_out_destroy(&o);
  assert_null(o);
}

static void reals_read_back_exactly(void **state) {
  (void)state;
  static const double values[] = {0,
                                  1,
                                  -1,
                                  0.1,
                                  1.0 / 3,
                                  1e22,
                                  123456789.125,
                                  5e-324,
                                  1.7976931348623157e308,
                                  2.2250738585072014e-308,
                                  1e15,
                                  1e16,
                                  INFINITY,
                                  -INFINITY};
  for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
    atoll_yaml_out *o = NULL;
    atoll_yaml *root = NULL;
    const char *text = NULL;
    double back = 77;
    assert_ok(atoll_yaml_out_create(&o));
    atoll_yaml_put_real(o, "v", values[i]);
    assert_ok(atoll_yaml_out_text(o, &text));
    assert_true(!isfinite(values[i]) || strchr(text, '.')); /* a number to every YAML reader */
    assert_ok(atoll_yaml_parse("w", text, strlen(text), &root));
    assert_ok(atoll_yaml_real(root, "v", 1, -INFINITY, INFINITY, &back));
    assert_true(back == values[i]);
    atoll_yaml_destroy(&root);
    atoll_yaml_out_destroy(&o);
  }
}

static void texts_and_keys_read_back(void **state) {
  (void)state;
  static const char *const words[] = {"",
                                      "a",
                                      "yes",
                                      "No",
                                      "null",
                                      "~",
                                      "12",
                                      "-",
                                      "- a",
                                      "a: b",
                                      "a #b",
                                      "'",
                                      "\"",
                                      "\\",
                                      "a\nb\n",
                                      "\t",
                                      "{",
                                      "[x]",
                                      "&a",
                                      "*a",
                                      "!t",
                                      "%x",
                                      "@",
                                      "`",
                                      "?",
                                      ":",
                                      "|",
                                      ">",
                                      "=",
                                      "<<",
                                      ".5",
                                      "\xC3\xA9",
                                      "\xC2\x85\xE2\x80\xA8\xE2\x80\xA9",
                                      "\xEF\xBB\xBF",
                                      "\xEF\xBF\xBF",
                                      "\x1F\x7F",
                                      "\xF0\x9F\x8C\xB4",
                                      "   ",
                                      "---",
                                      "..."};
  const size_t n = sizeof words / sizeof *words;
  atoll_yaml_out *o = NULL;
  atoll_yaml *root = NULL, *list = NULL;
  const char *text = NULL;
  assert_ok(atoll_yaml_out_create(&o));
  for (size_t i = 0; i < n; i++)
    atoll_yaml_put_text(o, words[i], words[n - 1 - i]);
  atoll_yaml_open_list(o, "the list");
  for (size_t i = 0; i < n; i++)
    atoll_yaml_put_text(o, NULL, words[i]);
  atoll_yaml_close(o);
  assert_ok(atoll_yaml_out_text(o, &text));
  assert_ok(atoll_yaml_parse("w", text, strlen(text), &root));
  for (size_t i = 0; i < n; i++) {
    assert_string_equal(atoll_yaml_key(root, i), words[i]);
    assert_string_equal(atoll_yaml_text(atoll_yaml_at(root, i)), words[n - 1 - i]);
  }
  assert_ok(atoll_yaml_list(root, "the list", 1, &list));
  for (size_t i = 0; i < n; i++)
    assert_string_equal(atoll_yaml_text(atoll_yaml_at(list, i)), words[i]);
  atoll_yaml_destroy(&root);
  atoll_yaml_out_destroy(&o);
}

static atoll_err misuse(int which) {
  atoll_yaml_out *o = NULL;
  const char *text = NULL;
  assert_ok(atoll_yaml_out_create(&o));
  switch (which) {
  case 0:
    atoll_yaml_open_map(o, "a");
    break;
  case 1:
    atoll_yaml_close(o);
    break;
  case 2:
    atoll_yaml_put_int(o, NULL, 1);
    break;
  case 3:
    atoll_yaml_open_list(o, "a");
    atoll_yaml_put_int(o, "key", 1);
    atoll_yaml_close(o);
    break;
  case 4:
    for (int i = 0; i < 80; i++)
      atoll_yaml_open_map(o, "a");
    break;
  default:
    atoll_yaml_put_text(o, "a", "\xFF");
  }
  atoll_err err = atoll_yaml_out_text(o, &text);
  assert_null(text);
  atoll_yaml_out_destroy(&o);
  return err;
}

static void misuse_is_reported(void **state) {
  (void)state;
  assert_refused_naming(misuse(0), ATOLL_INTERNAL, "still open");
  assert_refused_naming(misuse(1), ATOLL_INTERNAL, "more closed than opened");
  assert_refused_naming(misuse(2), ATOLL_INTERNAL, "without a key");
  assert_refused_naming(misuse(3), ATOLL_INTERNAL, "a key inside a list");
  assert_refused_naming(misuse(4), ATOLL_INTERNAL, "nested deeper");
  assert_refused_naming(misuse(5), ATOLL_USAGE, "not valid UTF-8");
}

static void nothing_is_an_empty_text(void **state) {
  (void)state;
  atoll_yaml_out *o = NULL;
  const char *text = NULL;
  assert_ok(atoll_yaml_out_create(&o));
  assert_ok(atoll_yaml_out_text(o, &text));
  assert_string_equal(text, "");
  atoll_yaml_out_destroy(&o);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(text_is_readable),         cmocka_unit_test(reals_read_back_exactly),
      cmocka_unit_test(texts_and_keys_read_back), cmocka_unit_test(misuse_is_reported),
      cmocka_unit_test(nothing_is_an_empty_text),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
