/* Default < included file < file < environment < command line, whatever the order of the calls, and the winner is
 * named. */
#include "opt_test.h"

#include <sys/stat.h>
#include <unistd.h>

static void defaults_fill_the_struct(void **state) {
  (void)state;
  struct sample s;
  ckpt_sample alone;
  sample_open(&s);
  assert_int_equal(s.ckpt.every_steps, 100);
  assert_int_equal(s.ckpt.budget, 64 << 20);
  assert_int_equal(s.ckpt.verify, 1);
  assert_int_equal(s.ckpt.format, 0);
  assert_true(s.ckpt.timeout == 120 && s.ckpt.ratio == 0.5 && s.ckpt.scale == 1);
  assert_string_equal(s.ckpt.dir, "");
  assert_int_equal(s.ckpt.sizes.n, 2);
  assert_int_equal(s.ckpt.sizes.v[1], 2);
  memset(&alone, 0xFF, sizeof alone);
  assert_ok(atoll_opt_defaults(&ckpt_table, &alone));
  assert_int_equal(alone.every_steps, 100);
  assert_string_equal(origin_of(&s, "ckpt.dir"), "default");
  assert_int_equal(atoll_opts_source(s.opts, 0), ATOLL_FROM_DEFAULT);
  sample_close(&s);
}

static void nested_and_dotted_keys_are_the_same(void **state) {
  (void)state;
  static const char *const texts[] = {
      "ckpt:\n  every_steps: 7\nplan:\n  tuner:\n    depth: 3\n",
      "ckpt.every_steps: 7\nplan.tuner.depth: 3\n",
      "ckpt: {every_steps: 7}\nplan:\n  tuner.depth: 3\n",
      "ckpt: {\"every_steps\": '7'}\nplan.tuner: {depth: +3}\n",
      "\xEF\xBB\xBF# a comment\nckpt:\n  every_steps: !!str 7   # here\nplan.tuner:\n    depth: 03\n",
      "---\nckpt:\n  every_steps: 7\nckpt.dir: x\nplan:\n  tuner: {depth: 3}\n...\n"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    struct sample s;
    sample_open(&s);
    assert_ok(sample_text(&s, texts[i]));
    assert_int_equal(s.ckpt.every_steps, 7);
    assert_int_equal(s.tuner.depth, 3);
    sample_close(&s);
  }
}

static void every_type_is_read(void **state) {
  (void)state;
  struct sample s;
  sample_open(&s);
  assert_ok(sample_text(&s,
                        "ckpt:\n  budget: 1.5 GiB\n  verify: No\n  format: raw\n  timeout: 01:30:00\n  ratio: 2.5e-1\n"
                        "  scale: .inf\n  dir: \"a \\u00e9 \\\"b\\\"\"\n  sizes: [4, 8,16]\n"));
  assert_int_equal(s.ckpt.budget, INT64_C(3) << 29);
  assert_int_equal(s.ckpt.verify, 0);
  assert_int_equal(s.ckpt.format, 2);
  assert_true(s.ckpt.timeout == 5400 && s.ckpt.ratio == 0.25 && s.ckpt.scale > 1e308);
  assert_string_equal(s.ckpt.dir, "a \xC3\xA9 \"b\"");
  assert_int_equal(s.ckpt.sizes.n, 3);
  assert_int_equal(s.ckpt.sizes.v[2], 16);
  assert_ok(atoll_opts_set(s.opts, "ckpt.sizes=3,5"));
  assert_int_equal(s.ckpt.sizes.n, 2);
  assert_int_equal(s.ckpt.sizes.v[1], 5);
  assert_ok(atoll_opts_set(s.opts, "ckpt.dir=a=b c"));
  assert_string_equal(s.ckpt.dir, "a=b c");
  sample_close(&s);
}

static void stronger_sources_win_in_any_order(void **state) {
  (void)state;
  for (int order = 0; order < 6; order++) {
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    struct sample s;
    sample_open(&s);
    setenv("ATOLL_CKPT_EVERY_STEPS", "20", 1);
    setenv("ATOLL_PLAN_TUNER_DEPTH", "2", 1);
    for (int i = 0; i < 3; i++) {
      if (orders[order][i] == 0)
        assert_ok(sample_text(&s, "ckpt.every_steps: 10\nckpt.ratio: 0.125\n\nplan.tuner.depth: 1\n"));
      if (orders[order][i] == 1)
        assert_ok(atoll_opts_load_env(s.opts));
      if (orders[order][i] == 2)
        assert_ok(atoll_opts_set(s.opts, "ckpt.every_steps=30"));
    }
    assert_int_equal(s.ckpt.every_steps, 30);
    assert_string_equal(origin_of(&s, "ckpt.every_steps"), "command line");
    assert_int_equal(s.tuner.depth, 2);
    assert_string_equal(origin_of(&s, "plan.tuner.depth"), "ATOLL_PLAN_TUNER_DEPTH");
    assert_true(s.ckpt.ratio == 0.125);
    assert_string_equal(origin_of(&s, "ckpt.ratio"), "job.yaml:2");
    assert_int_equal(atoll_opts_source(s.opts, atoll_opts_find(s.opts, "ckpt.ratio")), ATOLL_FROM_FILE);
    unsetenv("ATOLL_CKPT_EVERY_STEPS");
    unsetenv("ATOLL_PLAN_TUNER_DEPTH");
    sample_close(&s);
  }
}

static void environment_knows_its_own(void **state) {
  (void)state;
  struct sample s;
  sample_open(&s);
  static const atoll_opt_def test_defs[] = {{"x", ATOLL_OPT_INT, 0, "5", "", "", ""}, {0}};
  static const atoll_opt_table test_table = {"test", test_defs};
  int64_t field;
  assert_ok(atoll_opts_add(s.opts, &test_table, &field));
  setenv("ATOLL_LOG", "debug", 1);
  setenv("ATOLL_TEST_ANYTHING", "x", 1);
  setenv("ATOLL_ELSEWHERE_THING", "x", 1);
  setenv("ATOLL_CKPTX", "x", 1);
  assert_ok(atoll_opts_load_env(s.opts));
  setenv("ATOLL_CKPT_EVERY_STEP", "5", 1);
  assert_refused_naming(atoll_opts_load_env(s.opts), ATOLL_USAGE,
                        "'ATOLL_CKPT_EVERY_STEP'~did you mean 'ATOLL_CKPT_EVERY_STEPS'");
  unsetenv("ATOLL_CKPT_EVERY_STEP");
  setenv("ATOLL_CKPT_RATIO", "3", 1);
  setenv("ATOLL_CKPT_DIR", "d", 1);
  assert_refused_naming(atoll_opts_load_env(s.opts), ATOLL_USAGE,
                        "ATOLL_CKPT_RATIO: ckpt.ratio: found '3', expected a number in 0..1");
  assert_string_equal(s.ckpt.dir, ""); /* all or nothing */
  unsetenv("ATOLL_CKPT_RATIO");
  unsetenv("ATOLL_CKPT_DIR");
  sample_close(&s);
}

static void bad_tables_are_internal_errors(void **state) {
  (void)state;
  static const atoll_opt_def bad_default[] = {{"x", ATOLL_OPT_INT, 0, "ten", "", "", ""}, {0}};
  static const atoll_opt_def out_of_range[] = {{"x", ATOLL_OPT_INT, 0, "5", "6..", "", ""}, {0}};
  static const atoll_opt_def bad_range[] = {{"x", ATOLL_OPT_INT, 0, "5", "6", "", ""}, {0}};
  static const atoll_opt_def same_env[] = {{"tuner_depth", ATOLL_OPT_INT, 0, "5", "", "", ""}, {0}};
  static const atoll_opt_def taken[] = {{"include", ATOLL_OPT_INT, 0, "5", "", "", ""}, {0}};
  const atoll_opt_table tables[] = {
      {"a", bad_default}, {"b", out_of_range}, {"c", bad_range}, {"plan", same_env}, {"", taken}};
  struct sample s;
  int64_t field = 77;
  sample_open(&s);
  int before = atoll_opts_count(s.opts);
  for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
    assert_refused_naming(atoll_opts_add(s.opts, &tables[i], &field), ATOLL_INTERNAL, "option table");
    assert_int_equal(atoll_opts_count(s.opts), before);
  }
  assert_int_equal(field, 77);
  sample_close(&s);
}

/* ---- includes ---- */

static char folder[] = "opt-XXXXXX";

static const char *path_of(const char *name) {
  static char path[300];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

static void write_file(const char *name, const char *text) {
  FILE *f = fopen(path_of(name), "w");
  assert_non_null(f);
  fputs(text, f);
  fclose(f);
}

static void including_file_overrides(void **state) {
  (void)state;
  struct sample s;
  char origin[300];
  mkdir(path_of("models"), 0777);
  write_file("models/deep.yaml", "plan.tuner.depth: 1\nckpt.every_steps: 1\nckpt.ratio: 0.125\n");
  write_file("models/base.yaml", "include: deep.yaml\nplan.tuner.depth: 2\nckpt.every_steps: 2\n");
  write_file("other.yaml", "ckpt.every_steps: 3\nckpt.budget: 3MiB\n");
  write_file("job.yaml", "ckpt:\n  budget: 4MiB\ninclude: [models/base.yaml, other.yaml]\n");
  sample_open(&s);
  assert_ok(atoll_opts_load_file(s.opts, path_of("job.yaml")));
  assert_true(s.ckpt.ratio == 0.125);
  assert_int_equal(s.tuner.depth, 2);
  assert_int_equal(s.ckpt.every_steps, 3); /* the later include */
  assert_int_equal(s.ckpt.budget, 4 << 20);
  snprintf(origin, sizeof origin, "%s/models/deep.yaml:3", folder);
  assert_string_equal(origin_of(&s, "ckpt.ratio"), origin);
  assert_int_equal(atoll_opts_source(s.opts, atoll_opts_find(s.opts, "ckpt.ratio")), ATOLL_FROM_INCLUDE);
  sample_close(&s);
}

static void bad_includes_name_their_place(void **state) {
  (void)state;
  struct sample s;
  sample_open(&s);
  write_file("a.yaml", "ckpt.every_steps: 5\ninclude: b.yaml\n");
  write_file("b.yaml", "include:\n  - a.yaml\n");
  assert_refused_naming(atoll_opts_load_file(s.opts, path_of("a.yaml")), ATOLL_USAGE,
                        "b.yaml:2: include of~a.yaml~each other");
  write_file("c.yaml", "\ninclude: gone.yaml\n");
  assert_refused_naming(atoll_opts_load_file(s.opts, path_of("c.yaml")), ATOLL_NOINPUT,
                        "c.yaml:2: include: open~gone.yaml: No such file");
  write_file("d.yaml", "include: {x: y}\n");
  assert_refused_naming(atoll_opts_load_file(s.opts, path_of("d.yaml")), ATOLL_USAGE,
                        "d.yaml:1: include: found a mapping, expected a path");
  write_file("e.yaml", "include: f.yaml\n");
  write_file("f.yaml", "ckpt.every_steps: 5\n\nckpt.evry_steps: 5\n");
  assert_refused_naming(atoll_opts_load_file(s.opts, path_of("e.yaml")), ATOLL_USAGE,
                        "f.yaml:3: unknown key 'ckpt.evry_steps'~did you mean 'ckpt.every_steps'");
  assert_refused_naming(atoll_opts_load_file(s.opts, folder), ATOLL_NOINPUT, "Is a directory");
  assert_refused_naming(atoll_opts_load_file(s.opts, "none.yaml"), ATOLL_NOINPUT, "open none.yaml: No such file");
  assert_int_equal(s.ckpt.every_steps, 100);
  for (int i = 0; i < 20; i++) {
    char name[32], text[64];
    snprintf(name, sizeof name, "chain%d.yaml", i);
    snprintf(text, sizeof text, i == 19 ? "ckpt.every_steps: 5\n" : "include: chain%d.yaml\n", i + 1);
    write_file(name, text);
  }
  assert_refused_naming(atoll_opts_load_file(s.opts, path_of("chain0.yaml")), ATOLL_USAGE, "nested deeper than 16");
  assert_ok(atoll_opts_load_file(s.opts, path_of("chain10.yaml")));
  assert_int_equal(s.ckpt.every_steps, 5);
  sample_close(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(defaults_fill_the_struct),  cmocka_unit_test(nested_and_dotted_keys_are_the_same),
      cmocka_unit_test(every_type_is_read),        cmocka_unit_test(stronger_sources_win_in_any_order),
      cmocka_unit_test(environment_knows_its_own), cmocka_unit_test(bad_tables_are_internal_errors),
      cmocka_unit_test(including_file_overrides),  cmocka_unit_test(bad_includes_name_their_place),
  };
  if (!mkdtemp(folder))
    return 1;
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  char command[300];
  snprintf(command, sizeof command, "rm -r %s", folder);
  return system(command) || failed;
}
