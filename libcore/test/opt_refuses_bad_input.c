/* Every malformed file or word names its place, what was found, what was expected and, where there is one, the nearest
 * right word; and leaves the options as they were. */
#include "opt_test.h"

#include <unistd.h>

static const struct {
  const char *text, *fragments; /* fragments of the message, separated by ~ */
} files[] = {
    /* unknown keys */
    {"ckpt:\n  evry_steps: 5\n", "job.yaml:2: unknown key 'ckpt.evry_steps'~did you mean 'ckpt.every_steps'?"},
    {"ckpt.every_step: 5\n", "job.yaml:1: unknown key 'ckpt.every_step'~did you mean 'ckpt.every_steps'?"},
    {"\n\nevery_steps: 5\n", "job.yaml:3: unknown key 'every_steps'~did you mean 'ckpt.every_steps'?"},
    {"chpt:\n  every_steps: 5\n", "job.yaml:1: unknown key 'chpt'~did you mean 'ckpt'?"},
    {"plan:\n  tunner:\n    depth: 1\n", "job.yaml:2: unknown key 'plan.tunner'~did you mean 'plan.tuner'?"},
    {"zzzzzzzzzzzz: 5\n", "job.yaml:1: unknown key 'zzzzzzzzzzzz', expected one that --help lists"},
    {"CKPT.EVERY_STEPS: 5\n", "did you mean 'ckpt.every_steps'?"},
    {"ckpt.include: x\n", "unknown key 'ckpt.include'"},
    {"'': 5\n", "job.yaml:1: unknown key ''"},
    /* repeated keys */
    {"ckpt:\n  every_steps: 5\n  verify: no\n  every_steps: 6\n",
     "job.yaml:4: ckpt.every_steps is given again, first at line 2"},
    {"ckpt:\n  every_steps: 5\nckpt.every_steps: 6\n", "job.yaml:3: ckpt.every_steps is given again, first at line 2"},
    {"ckpt: {every_steps: 5}\nckpt: {verify: no}\n", "job.yaml:2: ckpt is given again, first at line 1"},
    {"plan.tuner: {depth: 1}\nplan:\n  tuner:\n    depth: 1\n",
     "job.yaml:4: plan.tuner.depth is given again, first at line 1"},
    {"include: a\ninclude: b\n", "job.yaml:2: include is given again, first at line 1"},
    /* types, units, ranges */
    {"ckpt.every_steps: ten\n",
     "job.yaml:1: ckpt.every_steps: found 'ten', expected an integer in 1..1000000000 steps"},
    {"ckpt.every_steps: 0\n", "found '0', expected an integer in 1..1000000000 steps"},
    {"ckpt.every_steps: 1e3\n", "found '1e3', expected an integer"},
    {"ckpt.every_steps: 1_000\n", "found '1_000', expected an integer"},
    {"ckpt.every_steps: 0x10\n", "found '0x10'"},
    {"ckpt.every_steps: 5.0\n", "found '5.0'"},
    {"ckpt.every_steps: 99999999999999999999\n", "found '99999999999999999999'"},
    {"ckpt.every_steps: 50min\n", "found '50min'~the unit 'min' is not accepted here"},
    {"ckpt.every_steps:\n", "job.yaml:1: ckpt.every_steps: found nothing, expected an integer"},
    {"ckpt.every_steps: [1]\n", "ckpt.every_steps: found a list, expected an integer"},
    {"ckpt.every_steps: {a: 1}\n", "ckpt.every_steps: found a mapping, expected an integer"},
    {"ckpt.budget: 8GB2\n", "found '8GB2', expected a size such as 8GiB"},
    {"ckpt.budget: 8Gib\n", "found '8Gib'~unknown unit 'Gib', did you mean 'GiB'?"},
    {"ckpt.budget: 12s\n", "found '12s'~unknown unit 's'"},
    {"ckpt.budget: -1\n", "found '-1'"},
    {"ckpt.budget: 12B\n", "found '12B', expected~in 1KiB.."},
    {"ckpt.budget: 99999999TiB\n", "found '99999999TiB'"},
    {"ckpt.timeout: 5 minutes\n", "found '5 minutes'~unknown unit 'minutes', did you mean 'min'?"},
    {"ckpt.timeout: 5m\n", "unknown unit 'm', did you mean 'min'?"},
    {"ckpt.timeout: 5 hours\n", "unknown unit 'hours', did you mean 'h'?"},
    {"ckpt.timeout: 5GiB\n", "found '5GiB', expected a time such as 90~unknown unit 'GiB'"},
    {"ckpt.timeout: 00:61:00\n", "found '00:61:00'"},
    {"ckpt.timeout: 2d\n", "found '2d', expected~in 0..1d"},
    {"ckpt.timeout: -3\n", "found '-3'"},
    {"ckpt.timeout: inf\n", "found 'inf'"},
    {"ckpt.ratio: 1.5\n", "ckpt.ratio: found '1.5', expected a number in 0..1"},
    {"ckpt.ratio: nan\n", "found 'nan'"},
    {"ckpt.ratio: 0,5\n", "found '0,5'"},
    {"ckpt.ratio: 0x1p-1\n", "found '0x1p-1'"},
    {"ckpt.scale: .nan\n", "found '.nan'"},
    {"ckpt.scale: 1e999\n", "found '1e999'"},
    {"ckpt.verify: maybe\n", "found 'maybe', expected true or false"},
    {"ckpt.format: hdf\n", "found 'hdf', expected one of hdf5|safetensors|raw; did you mean 'hdf5'?"},
    {"ckpt.format: 0\n", "found '0', expected one of hdf5|safetensors|raw"},
    {"ckpt.sizes: [1, 65]\n",
     "ckpt.sizes: found '1,65', expected a list of integers such as [1, 2, 4], each in 1..64 ranks"},
    {"ckpt.sizes:\n  - 1\n  - [2]\n", "job.yaml:3: ckpt.sizes: found a list in the list"},
    {"ckpt.sizes: [1, '2,3']\n", "found '2,3' in the list"},
    {"ckpt.sizes: 1;2\n", "found '1;2'"},
    {"ckpt.sizes: '1,,2'\n", "found '1,,2'"},
    {"ckpt.dir: [a]\n", "ckpt.dir: found a list, expected text"},
    /* shape of the file */
    {"ckpt: 5\n", "job.yaml:1: ckpt: found '5', expected a section"},
    {"ckpt: []\n", "ckpt: found a list, expected a section"},
    {"- ckpt\n", "job.yaml:1: found a list, expected a mapping of options"},
    {"just words\n", "job.yaml:1: found 'just words', expected a mapping of options"},
    {"ckpt:\n\tevery_steps: 5\n", "job.yaml:2: not YAML~indented by a tab"},
    {"ckpt:\n  every_steps: 5\n verify: no\n", "job.yaml:3: not YAML"},
    {"ckpt: {every_steps: 5\n", "not YAML"},
    {"ckpt.dir: \"open\n", "not YAML"},
    {"a: &x 5\nb: *x\n", "job.yaml:1: found the anchor 'x'"},
    {"ckpt.dir: *x\n", "job.yaml:1: found the alias 'x'"},
    {"ckpt.every_steps: !!int 5\n", "job.yaml:1: found the tag 'tag:yaml.org,2002:int'"},
    {"ckpt: !!map {}\n", "found the tag"},
    {"ckpt.dir: !local x\n", "found the tag '!local'"},
    {"ckpt.every_steps: 5\n---\nckpt.verify: no\n", "job.yaml:2: found a second document"},
    {"? [a]\n: b\n", "found a list as a key"},
    {"ckpt.dir: \"a\\0b\"\n", "job.yaml:1: found a NUL character in a value"},
    {"ckpt.every_steps: 5\nckpt.dir: \xFF\n", "job.yaml:2: ~expected UTF-8 text"},
    {"ckpt.dir: a\x01\n", "control characters"},
    {"\xFF\xFE"
     "c",
     "expected UTF-8 text"},
};

static void files_are_refused_with_their_place(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    struct sample s;
    sample_open(&s);
    ckpt_sample before = s.ckpt;
    assert_refused_naming(sample_text(&s, files[i].text), ATOLL_USAGE, files[i].fragments);
    assert_memory_equal(&before, &s.ckpt, sizeof before);
    sample_close(&s);
  }
}

static void nothing_is_applied_before_all_is_checked(void **state) {
  (void)state;
  struct sample s;
  sample_open(&s);
  assert_refused_naming(sample_text(&s, "ckpt.every_steps: 5\nckpt.verify: no\nckpt.ratio: 9\n"), ATOLL_USAGE,
                        "job.yaml:3");
  assert_int_equal(s.ckpt.every_steps, 100);
  assert_int_equal(s.ckpt.verify, 1);
  sample_close(&s);
}

static void words_are_refused(void **state) {
  (void)state;
  static const struct {
    const char *word, *fragments;
  } words[] = {
      {"ckpt.every_steps", "command line: found 'ckpt.every_steps', expected key=value"},
      {"=5", "expected key=value"},
      {"", "expected key=value"},
      {"ckpt.evry_steps=5", "command line: unknown key 'ckpt.evry_steps'; did you mean 'ckpt.every_steps'?"},
      {"ckpt.every_steps=", "command line: ckpt.every_steps: found nothing, expected an integer"},
      {"ckpt.every_steps= 5", "found ' 5'"},
      {"ckpt.dir=\xC3", "it is not UTF-8"},
      {"ckpt.sizes=1,2,", "found '1,2,'"},
  };
  struct sample s;
  sample_open(&s);
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    assert_refused_naming(atoll_opts_set(s.opts, words[i].word), ATOLL_USAGE, words[i].fragments);
  assert_ok(atoll_opts_set(s.opts, "ckpt.every_steps=5"));
  assert_refused_naming(atoll_opts_set(s.opts, "ckpt.every_steps=6"), ATOLL_USAGE,
                        "command line: ckpt.every_steps is given again");
  assert_int_equal(s.ckpt.every_steps, 5);
  sample_close(&s);
}

static void limits_are_limits(void **state) {
  (void)state;
  struct sample s;
  char text[1200];
  sample_open(&s);
  memset(text, 'd', sizeof text);
  memcpy(text, "ckpt.dir=", 9);
  text[9 + ATOLL_OPT_STRING_MAX - 1] = 0;
  assert_ok(atoll_opts_set(s.opts, text));
  assert_int_equal(strlen(s.ckpt.dir), ATOLL_OPT_STRING_MAX - 1);
  sample_close(&s);
  sample_open(&s);
  text[9 + ATOLL_OPT_STRING_MAX - 1] = 'd';
  text[9 + ATOLL_OPT_STRING_MAX] = 0;
  assert_refused_naming(atoll_opts_set(s.opts, text), ATOLL_USAGE, "expected text of at most 511 bytes; it has 512");
  size_t used = (size_t)snprintf(text, sizeof text, "ckpt.sizes=1");
  for (int i = 1; i < ATOLL_OPT_INTS_MAX; i++)
    used += (size_t)snprintf(text + used, sizeof text - used, ",%d", i);
  snprintf(text + used, sizeof text - used, ",7");
  assert_refused_naming(atoll_opts_set(s.opts, text), ATOLL_USAGE, "at most 64 of them");
  text[used] = 0;
  assert_ok(atoll_opts_set(s.opts, text));
  assert_int_equal(s.ckpt.sizes.n, 64);
  sample_close(&s);
}

static void empty_files_change_nothing(void **state) {
  (void)state;
  static const char *const texts[] = {
      "", "\n", "# only a comment\n", "---\n", "{}\n", "ckpt:\n", "ckpt:\n  # keep: 5\nplan:\n  tuner:\n"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    struct sample s;
    sample_open(&s);
    assert_ok(sample_text(&s, texts[i]));
    assert_int_equal(s.ckpt.every_steps, 100);
    sample_close(&s);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(files_are_refused_with_their_place),
      cmocka_unit_test(nothing_is_applied_before_all_is_checked),
      cmocka_unit_test(words_are_refused),
      cmocka_unit_test(limits_are_limits),
      cmocka_unit_test(empty_files_change_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
