/* Print, help, YAML copy and digest all come from the table and agree with the values: the copy read back gives the
 * same digest. */
#include "opt_test.h"

#include <unistd.h>

static char *capture(const atoll_opts *opts, void (*show)(const atoll_opts *, FILE *)) {
  char *text = NULL;
  size_t n = 0;
  FILE *f = open_memstream(&text, &n);
  assert_non_null(f);
  show(opts, f);
  fclose(f);
  return text;
}

static void print_names_source_default_and_range(void **state) {
  (void)state;
  struct sample s;
  sample_open(&s);
  assert_ok(atoll_opts_set(s.opts, "ckpt.every_steps=50"));
  assert_ok(sample_text(&s, "ckpt:\n  dir: a b\n"));
  char *text = capture(s.opts, atoll_opts_print);
  assert_non_null(strstr(text, "ckpt.every_steps 50 "));
  assert_non_null(strstr(text, " # command line; default 100; 1..1000000000 steps\n"));
  assert_non_null(strstr(text, "ckpt.dir \"a b\" "));
  assert_non_null(strstr(text, " # job.yaml:2; default \"\"\n"));
  assert_non_null(strstr(text, "ckpt.format hdf5 "));
  assert_non_null(strstr(text, "; hdf5|safetensors|raw\n"));
  assert_non_null(strstr(text, "ckpt.budget 67108864 "));
  assert_non_null(strstr(text, "ckpt.sizes 1,2 "));
  free(text);
  sample_close(&s);
}

static void help_lists_every_key(void **state) {
  (void)state;
  struct sample s;
  sample_open(&s);
  char *text = capture(s.opts, atoll_opts_help);
  for (int i = 0; i < atoll_opts_count(s.opts); i++)
    assert_non_null(strstr(text, atoll_opts_key(s.opts, i)));
  assert_non_null(strstr(text, "Save after so many steps."));
  assert_non_null(strstr(text, "\nplan.tuner\n"));
  free(text);
  sample_close(&s);
}

static void copy_reads_back_to_the_same_values(void **state) {
  (void)state;
  static const char *const dirs[] = {"",
                                     "plain",
                                     "no",
                                     "~",
                                     "1e3",
                                     "a: b # c",
                                     "\"quoted\" \\ 'x'",
                                     "line\nbreak\ttab",
                                     " blank ",
                                     "- x",
                                     "{a}",
                                     "\xC3\xA9\xE2\x80\xA8\xC2\x85\xEF\xBB\xBF\xF0\x9F\x8C\xB4",
                                     "\x01\x7F",
                                     "%",
                                     "*a",
                                     "&a",
                                     "!x"};
  static const char *const reals[] = {"0.1", "1e-300", "0.30000000000000004", "1", "0", "5e-324"};
  for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++) {
    struct sample a, b;
    char word[256], *text = NULL;
    sample_open(&a);
    sample_open(&b);
    snprintf(word, sizeof word, "ckpt.dir=%s", dirs[i]);
    assert_ok(atoll_opts_set(a.opts, word));
    snprintf(word, sizeof word, "ckpt.ratio=%s", reals[i % 6]);
    assert_ok(atoll_opts_set(a.opts, word));
    assert_ok(atoll_opts_set(a.opts, "ckpt.scale=inf"));
    assert_ok(atoll_opts_set(a.opts, "ckpt.timeout=30ms"));
    assert_ok(atoll_opts_set(a.opts, i % 2 ? "ckpt.sizes=" : "ckpt.sizes=64,1"));
    assert_ok(atoll_opts_set(a.opts, "ckpt.format=raw"));
    assert_ok(atoll_opts_yaml(a.opts, &text));
    assert_ok(sample_text(&b, text));
    assert_memory_equal(&a.ckpt, &b.ckpt, sizeof a.ckpt);
    assert_memory_equal(&a.tuner, &b.tuner, sizeof a.tuner);
    assert_true(atoll_digest_equal(atoll_opts_digest(a.opts, NULL), atoll_opts_digest(b.opts, NULL)));
    free(text);
    sample_close(&a);
    sample_close(&b);
  }
}

static void digest_follows_values_not_sources(void **state) {
  (void)state;
  struct sample a, b;
  const char *const ckpt[] = {"ckpt", NULL}, *const plan[] = {"plan.tuner", NULL};
  sample_open(&a);
  memset(&b, 0, sizeof b); /* registered in the other order */
  assert_ok(atoll_opts_create(&b.opts));
  assert_ok(atoll_opts_add(b.opts, &tuner_table, &b.tuner));
  assert_ok(atoll_opts_add(b.opts, &ckpt_table, &b.ckpt));
  atoll_digest plan_before = atoll_opts_digest(a.opts, plan);
  assert_true(atoll_digest_equal(atoll_opts_digest(a.opts, NULL), atoll_opts_digest(b.opts, NULL)));
  assert_ok(atoll_opts_set(a.opts, "ckpt.budget=1GiB"));
  assert_false(atoll_digest_equal(atoll_opts_digest(a.opts, NULL), atoll_opts_digest(b.opts, NULL)));
  assert_false(atoll_digest_equal(atoll_opts_digest(a.opts, ckpt), atoll_opts_digest(b.opts, ckpt)));
  assert_true(atoll_digest_equal(atoll_opts_digest(a.opts, plan), plan_before));
  assert_ok(sample_text(&b, "ckpt.budget: 1024 MiB\n"));
  assert_true(atoll_digest_equal(atoll_opts_digest(a.opts, NULL), atoll_opts_digest(b.opts, NULL)));
  sample_close(&a);
  sample_close(&b);
}

static void lookup_by_key(void **state) {
  (void)state;
  struct sample s;
  char value[64];
  sample_open(&s);
  assert_int_equal(atoll_opts_count(s.opts), 11);
  assert_true(atoll_opts_find(s.opts, "ckpt") < 0);
  assert_string_equal(atoll_opts_value(s.opts, atoll_opts_find(s.opts, "ckpt.timeout"), value, sizeof value), "120");
  assert_string_equal(atoll_opts_value(s.opts, atoll_opts_find(s.opts, "ckpt.verify"), value, sizeof value), "true");
  assert_string_equal(atoll_opts_value(s.opts, atoll_opts_find(s.opts, "ckpt.budget"), value, 4), "671");
  sample_close(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(print_names_source_default_and_range),
      cmocka_unit_test(help_lists_every_key),
      cmocka_unit_test(copy_reads_back_to_the_same_values),
      cmocka_unit_test(digest_follows_values_not_sources),
      cmocka_unit_test(lookup_by_key),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
