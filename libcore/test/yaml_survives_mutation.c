/* Thousands of damaged texts, the same in every run: each is accepted or refused with a message that names the file,
 * within bounded time, and a refused one changes no option. Memory errors are the sanitizer preset's to find. */
#include "atoll/clock.h"
#include "atoll/yaml.h"

#include "opt_test.h"

#define ROUNDS   6000
#define TEXT_MAX 4096

static const char *const seeds[] = {
    "ckpt:\n  every_steps: 50   # often\n  budget: 1.5GiB\n  verify: no\n  format: raw\n  timeout: 1-02:03:04\n  "
    "ratio: 0.25\n"
    "  sizes: [1, 2, 4]\n  dir: \"a \\u00e9 \\x41 b\"\nplan.tuner:\n  depth: 3\n",
    "ckpt: {every_steps: 7, sizes: '1,2', dir: 'it''s'}\nplan:\n  tuner: {depth: 1, name: x}\n",
    "version: 1\nstages:\n  - island: 0\n    layers: [0, 5]\n  - {island: 1, layers: [5, 12], text: |\n      block\n   "
    "   of text\n    }\n",
    "%YAML 1.1\n---\n? a\n: - b\n  - c\n  - ? d\n    : >-\n      folded\n      text\n...\n",
    "a: &x !!str 1\nb: *x\n<<: {c: [d, {e: f}, [[[g]]]]}\n"};
static const char *const pieces[] = {"\n",
                                     "  ",
                                     "\t",
                                     ": ",
                                     "- ",
                                     "[",
                                     "]",
                                     "{",
                                     "}",
                                     "\"",
                                     "'",
                                     "#",
                                     "&a",
                                     "*a",
                                     "!!int ",
                                     "!<",
                                     "%TAG ",
                                     "---\n",
                                     "...\n",
                                     "|\n",
                                     ">\n",
                                     "? ",
                                     ",",
                                     "\\x0",
                                     "\\u",
                                     "\xFF",
                                     "\xC3",
                                     "\xEF\xBB\xBF",
                                     "\r",
                                     "\r\n",
                                     "[[[[[[[[[[[[[[[[[[[[",
                                     "{a: {a: {a: {a: {a: {a: {a: ",
                                     "ckpt.every_steps: 1\n",
                                     "include: gone.yaml\n",
                                     "99999999999999999999",
                                     "1e999",
                                     "\x01",
                                     "\xE2\x80\xA8"};

static uint64_t random_state = 0x9E3779B97F4A7C15u;
static uint32_t random_below(uint32_t n) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return (uint32_t)(random_state >> 32) % n;
}

static size_t replace(char *text, size_t n, size_t at, size_t cut, const char *with, size_t length) {
  if (n - cut + length >= TEXT_MAX)
    return n;
  memmove(text + at + length, text + at + cut, n - at - cut);
  memcpy(text + at, with, length);
  return n - cut + length;
}

static size_t mutate(char *text, size_t n) {
  size_t at = random_below((uint32_t)n + 1), cut = random_below(12);
  if (cut > n - at)
    cut = n - at;
  char byte = (char)random_below(256);
  switch (random_below(6)) {
  case 0:
    return replace(text, n, at, cut, "", 0);
  case 1:
    return replace(text, n, at, at < n, &byte, 1);
  case 2: { /* a stretch of the text, again elsewhere */
    char copy[64];
    size_t from = random_below((uint32_t)n + 1), length = random_below(sizeof copy);
    if (length > n - from)
      length = n - from;
    memcpy(copy, text + from, length);
    return replace(text, n, at, 0, copy, length);
  }
  case 3:
    return at; /* cut off */
  default: {
    const char *piece = pieces[random_below(sizeof pieces / sizeof *pieces)];
    return replace(text, n, at, random_below(2) ? cut : 0, piece, strlen(piece));
  }
  }
}

/* Ask for everything, as a loader would. */
static void visit(atoll_yaml *node, int depth) {
  int64_t v;
  double r;
  assert_true(depth <= 64);
  assert_true(atoll_yaml_line(node) >= 1);
  for (size_t i = 0; i < atoll_yaml_count(node); i++) {
    if (atoll_yaml_is_map(node)) {
      assert_ptr_equal(atoll_yaml_get(node, atoll_yaml_key(node, i)), atoll_yaml_at(node, i));
      (void)atoll_yaml_int(node, atoll_yaml_key(node, i), 1, 0, 9, &v);
      (void)atoll_yaml_real(node, atoll_yaml_key(node, i), 1, 0, 9, &r);
      (void)atoll_yaml_bytes(node, "other", 0, &v);
    }
    visit(atoll_yaml_at(node, i), depth + 1);
  }
}

static void no_mutation_breaks_the_readers(void **state) {
  (void)state;
  int accepted = 0, refused = 0, options_accepted = 0;
  double began = atoll_clock_process_cpu(), slowest = 0;
  for (int round = 0; round < ROUNDS; round++) {
    /* A heap block of the exact size, so that a read beyond the end is seen. */
    char work[TEXT_MAX];
    const char *seed = seeds[round % (int)(sizeof seeds / sizeof *seeds)];
    size_t n = strlen(seed);
    memcpy(work, seed, n);
    for (uint32_t i = 0, times = 1 + random_below(8); i < times; i++)
      n = mutate(work, n);
    char *text = malloc(n ? n : 1);
    assert_non_null(text);
    memcpy(text, work, n);
    double start = atoll_clock_process_cpu();
    atoll_yaml *root = NULL;
    atoll_err err = atoll_yaml_parse("mutant", text, n, &root);
    if (err == ATOLL_OK) {
      accepted++;
      visit(root, 1);
      assert_ok(atoll_yaml_unknown(root)); /* everything was asked for */
      atoll_yaml_destroy(&root);
    } else {
      refused++;
      assert_int_equal(err, ATOLL_USAGE);
      assert_int_equal(strncmp(atoll_err_message(), "mutant:", 7), 0);
      assert_null(root);
    }
    struct sample s;
    sample_open(&s);
    ckpt_sample before = s.ckpt;
    err = atoll_opts_load_text(s.opts, "mutant", text, n);
    if (err == ATOLL_OK)
      options_accepted++;
    else {
      assert_true(err == ATOLL_USAGE || err == ATOLL_NOINPUT);
      assert_memory_equal(&before, &s.ckpt, sizeof before);
    }
    sample_close(&s);
    free(text);
    double took = atoll_clock_process_cpu() - start;
    slowest = took > slowest ? took : slowest;
  }
  print_message("%d accepted, %d refused, %d as options; slowest %.1f ms, all %.1f s\n", accepted, refused,
                options_accepted, 1e3 * slowest, atoll_clock_process_cpu() - began);
  /* Both outcomes must occur often, or the mutations test little. */
  assert_true(accepted > ROUNDS / 50 && refused > ROUNDS / 4 && options_accepted > ROUNDS / 100);
  assert_true(slowest < 1.0);
}

/* Shapes known to make YAML readers slow, near the size limit of what is sensible by hand. */
static void hostile_shapes_stay_cheap(void **state) {
  (void)state;
  static const char *const shapes[] = {"[",  "{", "{a: ", "- ",   "? ",  "a:\n",      "a: b\n", "[a, ",
                                       "\"", "'", "#",    "|\n ", ": ",  "&a ",       "!a ",    ",",
                                       "\n", " ", "a ",   "- - ", "{? ", "%TAG ! a\n"};
  enum { BYTES = 400000 };
  char *text = malloc(BYTES);
  assert_non_null(text);
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    size_t length = strlen(shapes[i]);
    for (size_t at = 0; at < BYTES; at++)
      text[at] = shapes[i][at % length];
    atoll_yaml *root = NULL;
    double start = atoll_clock_process_cpu();
    (void)atoll_yaml_parse("shape", text, BYTES, &root);
    atoll_yaml_destroy(&root);
    double took = atoll_clock_process_cpu() - start;
    if (took > 5)
      fail_msg("shape '%s' took %.1f s", shapes[i], took);
  }
  free(text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(no_mutation_breaks_the_readers),
      cmocka_unit_test(hostile_shapes_stay_cheap),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
