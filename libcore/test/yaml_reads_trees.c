/* Data files: lines, typed children with clear refusals, and no key that nobody asked for goes unnoticed. */
#include "atoll/yaml.h"

#include <math.h>

#include "opt_test.h"

static const char plan[] = "version: 1\n"
                           "name: \"two words\"\n"
                           "stages:\n"
                           "  - island: 0\n"
                           "    layers: [0, 5]\n"
                           "    share: 2.5e-1\n"
                           "  - island: 1\n"
                           "    layers:\n"
                           "      - 5\n"
                           "      - 12\n"
                           "    tied: yes\n"
                           "    bytes: 2GiB\n"
                           "    policy: recompute\n";

static atoll_yaml *parse(const char *text) {
  atoll_yaml *root = NULL;
  assert_ok(atoll_yaml_parse("plan.yaml", text, strlen(text), &root));
  return root;
}

static void values_and_lines(void **state) {
  (void)state;
  static const char *const policies[] = {"keep", "recompute", NULL};
  atoll_yaml *root = parse(plan), *stages = NULL, *layers = NULL;
  int64_t v = 0, untouched = 9;
  double real = 0;
  int flag = 0, policy = -1;
  char name[16];
  assert_true(atoll_yaml_is_map(root));
  assert_string_equal(atoll_yaml_file(root), "plan.yaml");
  assert_ok(atoll_yaml_int(root, "version", 1, 1, 1, &v));
  assert_int_equal(v, 1);
  assert_ok(atoll_yaml_string(root, "name", 1, name, sizeof name));
  assert_string_equal(name, "two words");
  assert_ok(atoll_yaml_list(root, "stages", 1, &stages));
  assert_int_equal(atoll_yaml_count(stages), 2);
  atoll_yaml *second = atoll_yaml_at(stages, 1);
  assert_int_equal(atoll_yaml_line(second), 7);
  assert_null(atoll_yaml_at(stages, 2));
  assert_ok(atoll_yaml_list(second, "layers", 1, &layers));
  assert_true(atoll_yaml_is_list(layers));
  assert_int_equal(atoll_yaml_line(layers), 8);
  assert_string_equal(atoll_yaml_text(atoll_yaml_at(layers, 1)), "12");
  assert_null(atoll_yaml_text(layers));
  assert_ok(atoll_yaml_bool(second, "tied", 1, &flag));
  assert_int_equal(flag, 1);
  assert_ok(atoll_yaml_bytes(second, "bytes", 1, &v));
  assert_true(v == INT64_C(2) << 30);
  assert_ok(atoll_yaml_enum(second, "policy", 1, policies, &policy));
  assert_int_equal(policy, 1);
  assert_ok(atoll_yaml_real(atoll_yaml_at(stages, 0), "share", 1, 0, 1, &real));
  assert_true(real == 0.25);
  assert_ok(atoll_yaml_int(root, "absent", 0, 0, 1, &untouched));
  assert_int_equal(untouched, 9);
  assert_null(atoll_yaml_get(stages, "x")); /* not a map */
  assert_string_equal(atoll_yaml_key(second, 2), "tied");
  assert_null(atoll_yaml_key(second, 9));
  atoll_yaml_destroy(&root);
  assert_null(root);
}

static void unread_keys_are_refused_at_any_depth(void **state) {
  (void)state;
  atoll_yaml *root = parse(plan), *stages = NULL;
  int64_t v;
  assert_refused_naming(atoll_yaml_unknown(root), ATOLL_USAGE, "plan.yaml:1: unknown key 'version'");
  atoll_yaml_get(root, "version");
  atoll_yaml_get(root, "name");
  assert_ok(atoll_yaml_list(root, "stages", 1, &stages));
  for (size_t i = 0; i < 2; i++) {
    atoll_yaml *stage = atoll_yaml_at(stages, i);
    static const char *const keys[] = {"island", "layers", "share", "bytes", "policy"};
    for (size_t k = 0; k < 5; k++)
      atoll_yaml_get(stage, keys[k]);
    assert_ok(atoll_yaml_int(stage, "tiad", 0, 0, 1, &v));
  }
  assert_refused_naming(atoll_yaml_unknown(root), ATOLL_USAGE,
                        "plan.yaml:11: unknown key 'stages[1].tied'; did you mean 'tiad'?");
  atoll_yaml_get(atoll_yaml_at(stages, 1), "tied");
  assert_ok(atoll_yaml_unknown(root));
  atoll_yaml_destroy(&root);
}

static void wrong_children_are_named(void **state) {
  (void)state;
  static const char *const policies[] = {"keep", "recompute", NULL};
  atoll_yaml *root = parse(
                 "a:\n  layrs: 5\n  half: 0.5\n  word: recomput\n  none:\n  list: [1]\n  nan: nan\n  inf: .inf\n"),
             *a = NULL, *node = NULL;
  int64_t v = 3;
  double real = 3;
  int flag = 3;
  char name[4] = "abc";
  assert_ok(atoll_yaml_map(root, "a", 1, &a));
  assert_refused_naming(atoll_yaml_int(a, "layers", 1, 0, 9, &v), ATOLL_USAGE,
                        "plan.yaml:1: the key 'a.layers' is missing, expected an integer in 0..9; line 2 has 'layrs'");
  assert_refused_naming(atoll_yaml_int(a, "half", 1, INT64_MIN, INT64_MAX, &v), ATOLL_USAGE,
                        "plan.yaml:3: a.half: found '0.5', expected an integer");
  assert_refused_naming(atoll_yaml_int(a, "layrs", 1, 6, 9, &v), ATOLL_USAGE,
                        "a.layrs: found '5', expected an integer in 6..9");
  assert_refused_naming(atoll_yaml_int(a, "layrs", 1, 6, INT64_MAX, &v), ATOLL_USAGE, "expected an integer in 6..");
  assert_refused_naming(atoll_yaml_real(a, "half", 1, 0.75, 1, &real), ATOLL_USAGE,
                        "found '0.5', expected a number in 0.75..1");
  assert_refused_naming(atoll_yaml_real(a, "nan", 1, -INFINITY, INFINITY, &real), ATOLL_USAGE, "a.nan: found 'nan'");
  assert_refused_naming(atoll_yaml_real(a, "inf", 1, 0, 1e300, &real), ATOLL_USAGE,
                        "a.inf: found '.inf', expected a number in 0..");
  assert_ok(atoll_yaml_real(a, "inf", 1, 0, INFINITY, &real));
  assert_refused_naming(atoll_yaml_bool(a, "word", 1, &flag), ATOLL_USAGE,
                        "a.word: found 'recomput', expected true or false");
  assert_refused_naming(atoll_yaml_bytes(a, "word", 1, &v), ATOLL_USAGE, "expected a size such as 8GiB");
  assert_refused_naming(atoll_yaml_string(a, "word", 1, name, sizeof name), ATOLL_USAGE,
                        "expected text of at most 3 bytes");
  assert_string_equal(name, "abc");
  assert_refused_naming(atoll_yaml_string(a, "list", 1, name, sizeof name), ATOLL_USAGE,
                        "a.list: found a list, expected text");
  assert_refused_naming(atoll_yaml_enum(a, "word", 1, policies, &flag), ATOLL_USAGE,
                        "a.word: found 'recomput', expected one of keep|recompute; did you mean 'recompute'?");
  assert_refused_naming(atoll_yaml_enum(a, "list", 1, policies, &flag), ATOLL_USAGE,
                        "a.list: found a list, expected one of keep|recompute");
  assert_refused_naming(atoll_yaml_map(a, "list", 1, &node), ATOLL_USAGE, "a.list: found a list, expected a mapping");
  assert_refused_naming(atoll_yaml_list(a, "none", 1, &node), ATOLL_USAGE,
                        "plan.yaml:5: a.none: found nothing, expected a list");
  assert_refused_naming(atoll_yaml_int(atoll_yaml_get(a, "list"), "x", 0, 0, 1, &v), ATOLL_USAGE,
                        "plan.yaml:6: a.list: found a list, expected a mapping with the key 'x'");
  assert_null(node);
  assert_int_equal(v, 3);
  assert_int_equal(flag, 3);
  atoll_yaml_destroy(&root);
}

static void refusals(void **state) {
  (void)state;
  static const struct {
    const char *text, *fragments;
  } bad[] = {
      {"a: 1\nb: 2\na: 3\n", "plan.yaml:3: a is given again, first at line 1"},
      {"x:\n  - a: 1\n    a: 2\n", "plan.yaml:3: x[0].a is given again, first at line 2"},
      {"{a: 1, \"a\": 2}", "plan.yaml:1: a is given again, first at line 1"},
      {"a: &b 1\n", "plan.yaml:1: found the anchor 'b'"},
      {"a: &b [1]\n", "found the anchor 'b'"},
      {"<<: *b\n", "found the alias 'b'"},
      {"a: !!float 1\n", "found the tag 'tag:yaml.org,2002:float'"},
      {"a\n---\nb\n", "plan.yaml:2: found a second document"},
      {"{[1]: 2}", "found a list as a key"},
      {"? {a: 1}\n: 2\n", "found a mapping as a key"},
      {"a: [1, 2\nb: 3\n", "not YAML"},
      {"a: }\n", "plan.yaml:1: not YAML"},
      {"%YAML 3.0\n---\na: 1\n", "plan.yaml:1: not YAML"},
  };
  atoll_yaml *root = NULL;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    assert_refused_naming(atoll_yaml_parse("plan.yaml", bad[i].text, strlen(bad[i].text), &root), ATOLL_USAGE,
                          bad[i].fragments);
  assert_refused_naming(atoll_yaml_parse("plan.yaml", "a: 1\nb: \0\n", 10, &root), ATOLL_USAGE,
                        "plan.yaml:2: found a NUL byte (byte 8)");
  assert_refused_naming(atoll_yaml_load("none.yaml", &root), ATOLL_NOINPUT, "open none.yaml: No such file");
  assert_null(root);
}

static void depth_size_and_keys_are_bounded(void **state) {
  (void)state;
  atoll_yaml *root = NULL;
  char text[400] = {0};
  memset(text, '[', 64);
  memset(text + 64, ']', 64);
  assert_ok(atoll_yaml_parse("f", text, 128, &root));
  atoll_yaml_destroy(&root);
  memset(text, '[', 65);
  memset(text + 65, ']', 65);
  assert_refused_naming(atoll_yaml_parse("f", text, 130, &root), ATOLL_USAGE, "f:1: nested deeper than 64 levels");
  memset(text, 'k', 256);
  memcpy(text + 256, ": 1\n", 5);
  assert_refused_naming(atoll_yaml_parse("f", text, 260, &root), ATOLL_USAGE,
                        "found the key 'kkk~of 256 bytes, expected at most 255");
  size_t limit = (size_t)16 << 20;
  char *big = malloc(limit + 1);
  assert_non_null(big);
  memset(big, '#', limit + 1);
  assert_refused_naming(atoll_yaml_parse("f", big, limit + 1, &root), ATOLL_USAGE,
                        "has 16777217 bytes, expected at most 16777216");
  /* Many values: refused before they cost gigabytes. */
  for (size_t i = 0; i < limit; i += 2)
    memcpy(big + i, "a,", 2);
  big[0] = '[';
  big[1] = 'a';
  big[2] = ',';
  big[3] = 'a';
  assert_refused_naming(atoll_yaml_parse("f", big, limit, &root), ATOLL_USAGE, "more than 2097152 values");
  FILE *f = fopen("big.yaml", "w");
  assert_non_null(f);
  memset(big, '#', limit + 1);
  assert_int_equal(fwrite(big, 1, limit + 1, f), limit + 1);
  fclose(f);
  assert_refused_naming(atoll_yaml_load("big.yaml", &root), ATOLL_USAGE, "big.yaml: has more than 16777216 bytes");
  remove("big.yaml");
  free(big);
  assert_null(root);
}

static void empty_is_a_mapping_without_keys(void **state) {
  (void)state;
  static const char *const texts[] = {"", "# nothing\n", "---\n"};
  for (size_t i = 0; i < 3; i++) {
    atoll_yaml *root = parse(texts[i]);
    int64_t v;
    assert_true(atoll_yaml_is_map(root));
    assert_refused_naming(atoll_yaml_int(root, "version", 1, 1, 1, &v), ATOLL_USAGE,
                          "plan.yaml:1: the key 'version' is missing, expected an integer in 1..1");
    atoll_yaml_destroy(&root);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(values_and_lines),
      cmocka_unit_test(unread_keys_are_refused_at_any_depth),
      cmocka_unit_test(wrong_children_are_named),
      cmocka_unit_test(refusals),
      cmocka_unit_test(depth_size_and_keys_are_bounded),
      cmocka_unit_test(empty_is_a_mapping_without_keys),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
