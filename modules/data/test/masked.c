/* Samples with masked words are a pure function of (seed, step, sample): their layout, how many words are predicted and
 * what those show, which masks come again, and how often the second piece follows the first. */
#include "unit_check.h"

#include <math.h>
#include <unistd.h>

#include "atoll/data.h"

enum { SEQ = 40, TEXT = 4003, VOCAB = 260, MANY = 400 };
enum { PAD = 256, CLS, SEP, MASK };
static const char file[] = "masked.tmp.txt";

/* Byte i is 1 + i % 251: a word tells its place. */
static int setup(void **state) {
  (void)state;
  FILE *f = fopen(file, "wb");
  for (int i = 0; i < TEXT; i++)
    fputc(1 + i % 251, f);
  return fclose(f);
}

static int teardown(void **state) {
  (void)state;
  return unlink(file);
}

static atoll_data_params params(void) {
  atoll_data_params p;
  atoll_data_params_init(&p);
  strcpy(p.train, file);
  p.validation_share = 0;
  return p;
}

static atoll_data *make(atoll_data_task task, const atoll_data_params *p) {
  atoll_data *d = NULL;
  assert_int_equal(atoll_data_open(p, NULL, SEQ, VOCAB, &d, NULL), ATOLL_OK);
  assert_int_equal(atoll_data_mask(d, p, task), ATOLL_OK);
  return d;
}

typedef struct sample {
  int32_t tokens[SEQ], targets[SEQ], types[SEQ], length, next;
} sample;

static sample get(const atoll_data *d, uint64_t seed, int64_t position) {
  sample s;
  atoll_batch to = {s.tokens, s.targets, s.types, &s.length, &s.next};
  assert_int_equal(atoll_data_batch(d, seed, position, 1, 0, 1, &to), ATOLL_OK);
  return s;
}

/* Words of a sample as they were before masking. */
static int word(const sample *s, int i) { return s->targets[i] >= 0 ? s->targets[i] : s->tokens[i]; }

static int after(int w) { return w % 251 + 1; }

/* [cls] A [sep] (B [sep]) padding; types 1 in B; A and B unbroken text. Returns whether B follows A, or -1. */
static int check_layout(const sample *s, int pairs) {
  int seps = 0, end = s->length, first = 0;
  assert_in_range(end, pairs ? 5 : 3, SEQ);
  assert_int_equal(s->tokens[0], CLS);
  assert_int_equal(s->tokens[end - 1], SEP);
  for (int i = 0; i < SEQ; i++) {
    if (i >= end)
      assert_true(s->tokens[i] == PAD && s->targets[i] == -1);
    if (s->tokens[i] == SEP && s->targets[i] < 0 && ++seps == 1)
      first = i;
    assert_int_equal(s->types[i], pairs && first && i > first && i < end);
  }
  assert_int_equal(seps, pairs ? 2 : 1);
  for (int i = 2; i < end - 1; i++)
    if (i != first && i != first + 1)
      assert_int_equal(word(s, i), after(word(s, i - 1)));
  return pairs ? word(s, first + 1) == after(word(s, first - 1)) : -1;
}

static void layout(void **state) {
  (void)state;
  for (int pairs = 0; pairs < 2; pairs++) {
    atoll_data_params p = params();
    p.short_share = 0.3;
    atoll_data *d = make(pairs ? ATOLL_DATA_PAIRS : ATOLL_DATA_SENTENCES, &p);
    int follows = 0, full = 0, agree = 0;
    for (int i = 0; i < MANY; i++) {
      sample s = get(d, 5, i);
      int f = check_layout(&s, pairs);
      assert_true(pairs ? s.next == 0 || s.next == 1 : s.next == -1);
      agree += pairs && f == !s.next; /* text repeats every 251 bytes, so chance follows at times */
      assert_true(!pairs || s.next == 1 || f == 1);
      follows += s.next == 0;
      full += s.length == SEQ;
    }
    if (pairs) {
      assert_in_range(follows, 160, 240);
      assert_in_range(agree, 380, 400);
    }
    assert_in_range(full, 250, 330); /* 0.7, and short ones that are drawn full */
    atoll_data_close(&d);
  }
}

/* 15 % of the words, rounded, at least one; 80, 10 and 10 % of those the mask, a random word and themselves. */
static void shares(void **state) {
  (void)state;
  atoll_data_params p = params();
  p.short_share = 0.5;
  atoll_data *d = make(ATOLL_DATA_PAIRS, &p);
  int chosen = 0, masked = 0, same = 0, most = 0, at[SEQ] = {0};
  for (int i = 0; i < 10 * MANY; i++) {
    sample s = get(d, 6, i);
    int n = 0, words = s.length - 3, want = (int)(0.15 * words + 0.5);
    for (int k = 0; k < SEQ; k++)
      if (s.targets[k] >= 0) {
        n++;
        at[k]++;
        masked += s.tokens[k] == MASK;
        same += s.tokens[k] == s.targets[k];
      }
    assert_int_equal(n, want < 1 ? 1 : want);
    assert_int_equal(atoll_data_targets(d, 6, i, 1), n);
    chosen += n;
    most = n > most ? n : most;
  }
  assert_int_equal(atoll_data_most_targets(d), most);
  assert_true(fabs((double)masked / chosen - 0.8) < 0.02);
  assert_true(fabs((double)same / chosen - 0.1) < 0.02);
  assert_true(at[0] == 0);
  for (int k = 1; k < 20; k++) /* no place is spared */
    assert_true(at[k] > 100);
  int64_t sum = 0;
  for (int i = 0; i < 12; i++) {
    sample s = get(d, 6, 24 + i);
    for (int k = 0; k < SEQ; k++)
      sum += s.targets[k] >= 0;
  }
  assert_int_equal(atoll_data_targets(d, 6, 2, 12), sum);
  atoll_data_close(&d);
}

/* Samples do not depend on which others are asked for, nor with what. */
static void pure(void **state) {
  (void)state;
  atoll_data_params p = params();
  atoll_data *d = make(ATOLL_DATA_PAIRS, &p);
  enum { G = 12 };
  static int32_t tokens[G * SEQ], targets[G * SEQ], types[G * SEQ], part[5 * SEQ], other[5 * SEQ];
  int32_t lengths[G], next[G], few[5];
  atoll_batch all = {tokens, targets, types, lengths, next};
  assert_int_equal(atoll_data_batch(d, 3, 17, G, 0, G, &all), ATOLL_OK);
  assert_int_equal(atoll_data_batch(d, 3, 17, G, 7, 5, &(atoll_batch){.tokens = part, .targets = other}), ATOLL_OK);
  assert_memory_equal(part, tokens + 7 * SEQ, sizeof part);
  assert_memory_equal(other, targets + 7 * SEQ, sizeof other);
  assert_int_equal(atoll_data_batch(d, 3, 17, G, 7, 5, &(atoll_batch){.types = part, .lengths = few}), ATOLL_OK);
  assert_memory_equal(part, types + 7 * SEQ, sizeof part);
  assert_memory_equal(few, lengths + 7, sizeof few);
  sample a = get(d, 3, 17 * G + 7), b = get(d, 4, 17 * G + 7);
  assert_memory_equal(a.tokens, tokens + 7 * SEQ, sizeof a.tokens);
  assert_memory_not_equal(a.tokens, b.tokens, sizeof a.tokens);
  atoll_data_close(&d);
}

/* Finds the sample that begins with the first words of window w in an epoch. */
static sample of_window(const atoll_data *d, int64_t epoch, int first) {
  int64_t n = atoll_data_windows(d);
  sample s = {0};
  for (int64_t i = 0; i < n; i++) {
    s = get(d, 8, epoch * n + i);
    if (word(&s, 1) == first)
      return s;
  }
  fail_msg("no window begins with %d", first);
  return s;
}

static void repeats(void **state) {
  (void)state;
  for (int dynamic = 0; dynamic < 2; dynamic++) {
    atoll_data_params p = params();
    p.mask_copies = 3, p.short_share = 0;
    atoll_data *d = make(dynamic ? ATOLL_DATA_SENTENCES : ATOLL_DATA_PAIRS, &p);
    sample s[7];
    for (int e = 0; e < 7; e++)
      s[e] = of_window(d, e, 1);
    for (int e = 1; e < 7; e++) {
      int same = !memcmp(s[e].tokens, s[0].tokens, sizeof s[0].tokens);
      assert_int_equal(same, !dynamic && e % 3 == 0);
    }
    atoll_data_close(&d);
  }
}

static void validation(void **state) {
  (void)state;
  atoll_data_params p = params();
  atoll_data *d = make(ATOLL_DATA_PAIRS, &p);
  sample a, b;
  atoll_batch to_a = {a.tokens, a.targets, a.types, &a.length, &a.next},
              to_b = {b.tokens, b.targets, b.types, &b.length, &b.next};
  int64_t sum = 0, n = atoll_data_windows(d);
  assert_int_equal(n, TEXT / (SEQ - 3));
  for (int64_t w = 0; w < n; w++) {
    assert_int_equal(atoll_data_windows_at(d, w, 1, &to_a), ATOLL_OK);
    assert_int_equal(word(&a, 1), 1 + w * (SEQ - 3) % 251);
    for (int k = 0; k < SEQ; k++)
      sum += a.targets[k] >= 0;
  }
  assert_int_equal(atoll_data_window_targets(d, n), sum);
  assert_int_equal(atoll_data_windows_at(d, n - 1, 1, &to_b), ATOLL_OK);
  assert_memory_equal(a.tokens, b.tokens, sizeof a.tokens);
  assert_int_equal(atoll_data_windows_at(d, n, 1, &to_b), ATOLL_OK);
  for (int k = 0; k < SEQ; k++)
    assert_int_equal(b.targets[k], -1);
  assert_true(b.next == -1 && b.length >= 1);
  atoll_data_close(&d);
}

static void refused(void **state) {
  (void)state;
  atoll_data_params p = params();
  atoll_data *d = NULL;
  assert_int_equal(atoll_data_open(&p, NULL, 4, VOCAB, &d, NULL), ATOLL_OK);
  assert_int_equal(atoll_data_mask(d, &p, ATOLL_DATA_PAIRS), ATOLL_USAGE);
  assert_non_null(strstr(atoll_err_message(), "train.seq is 4"));
  atoll_data_close(&d);
  assert_int_equal(atoll_data_open(&p, NULL, SEQ, 256, &d, NULL), ATOLL_OK);
  assert_int_equal(atoll_data_mask(d, &p, ATOLL_DATA_PAIRS), ATOLL_USAGE);
  assert_non_null(strstr(atoll_err_message(), "data.pad_id is 256"));
  assert_non_null(strstr(atoll_err_message(), "model.vocab of 257"));
  atoll_data_close(&d);
  p.mask_id = 258;
  assert_int_equal(atoll_data_open(&p, NULL, SEQ, VOCAB, &d, NULL), ATOLL_OK);
  assert_int_equal(atoll_data_mask(d, &p, ATOLL_DATA_PAIRS), ATOLL_USAGE);
  assert_non_null(strstr(atoll_err_message(), "data.mask_id is 258"));
  atoll_data_close(&d);
  p.mask_id = -1;
  atoll_data *a = make(ATOLL_DATA_PAIRS, &p);
  p.mask_share = 0.2;
  atoll_data *b = make(ATOLL_DATA_PAIRS, &p);
  assert_false(atoll_digest_equal(atoll_data_digest(a), atoll_data_digest(b)));
  atoll_data_close(&a);
  atoll_data_close(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(layout),     cmocka_unit_test(shares),
                                     cmocka_unit_test(pure),       cmocka_unit_test(repeats),
                                     cmocka_unit_test(validation), cmocka_unit_test(refused)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
