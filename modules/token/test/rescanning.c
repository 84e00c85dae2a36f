/* Promise: merging with a heap gives what the published method gives, which rescans the whole text after each merge;
 * over random texts and vocabularies, with equal scores among them. */
#include "token_test.h"

static uint32_t seed = 12345;
static uint32_t draw(uint32_t n) {
  seed = seed * 1664525 + 1013904223;
  return (seed >> 8) % n;
}

/* Strings of a text's symbols, merged by rescanning. */
struct naive {
  char s[128][20];
  int n;
};

static void join(struct naive *x, int i) {
  size_t a = strlen(x->s[i]), b = strlen(x->s[i + 1]);
  assert_true(a + b < sizeof x->s[0]);
  memcpy(x->s[i] + a, x->s[i + 1], b + 1);
  memmove(x->s[i + 1], x->s[i + 2], sizeof x->s[0] * (size_t)(x->n - i - 2));
  x->n--;
}

/* gpt2: the lowest-ranked pair, all its occurrences from the left. */
static void rescan_ranks(struct naive *x, char (*left)[20], char (*right)[20], int merges) {
  for (int m = 0, again; m < merges; m += !again) {
    again = 0;
    for (int i = 0; i + 1 < x->n; i++)
      if (!strcmp(x->s[i], left[m]) && !strcmp(x->s[i + 1], right[m]))
        join(x, i), again = 1;
    if (again)
      m = 0;
  }
}

static void ranks(void **state) {
  (void)state;
  for (int round = 0; round < 200; round++) {
    char left[40][20], right[40][20], made[44][20], merges[4000] = "#version: 0.2\n";
    int n = 0, tokens = 4;
    for (int i = 0; i < 4; i++)
      snprintf(made[i], sizeof made[i], "%c", "abcd"[i]);
    for (int tries = 0; tries < 60 && n < 40; tries++) {
      const char *a = made[draw((uint32_t)tokens)], *b = made[draw((uint32_t)tokens)];
      char both[40];
      snprintf(both, sizeof both, "%s%s", a, b);
      int known = strlen(both) > 16;
      for (int i = 0; i < tokens; i++)
        known |= !strcmp(made[i], both);
      if (known)
        continue;
      snprintf(left[n], sizeof left[n], "%s", a);
      snprintf(right[n], sizeof right[n], "%s", b);
      memcpy(made[tokens++], both, strlen(both) + 1);
      snprintf(merges + strlen(merges), 64, "%s %s\n", left[n], right[n]);
      n++;
    }
    atoll_tokenizer *t = test_gpt2(merges);
    for (int k = 0; k < 20; k++) {
      struct naive x = {.n = (int)draw(100) + 1};
      char text[128] = "";
      for (int i = 0; i < x.n; i++) {
        x.s[i][0] = text[i] = "abcd"[draw(4)];
      }
      rescan_ranks(&x, left, right, n);
      int32_t *ids = NULL;
      size_t count = 0;
      assert_int_equal(atoll_tokenizer_encode_all(t, text, strlen(text), &ids, &count), ATOLL_OK);
      assert_int_equal(count, x.n);
      for (size_t i = 0; i < count; i++) {
        const unsigned char *s;
        size_t bytes;
        assert_int_equal(atoll_tokenizer_decode(t, -1, ids[i], &s, &bytes), ATOLL_OK);
        assert_int_equal(bytes, strlen(x.s[i]));
        assert_memory_equal(s, x.s[i], bytes);
      }
      free(ids);
    }
    atoll_tokenizer_close(&t);
  }
}

/* llama2c: the best score of all pairs, the leftmost of equals. */
static void rescan_scores(struct naive *x, const char *const *piece, const float *score, int pieces) {
  for (int best = 0; best >= 0;) {
    float top = -1e30f;
    best = -1;
    for (int i = 0; i + 1 < x->n; i++)
      for (int p = 0; p < pieces; p++) {
        size_t a = strlen(x->s[i]), b = strlen(x->s[i + 1]);
        if (strlen(piece[p]) == a + b && !memcmp(piece[p], x->s[i], a) && !memcmp(piece[p] + a, x->s[i + 1], b) &&
            score[p] > top)
          top = score[p], best = i;
      }
    if (best >= 0)
      join(x, best);
  }
}

static void scores(void **state) {
  (void)state;
  for (int round = 0; round < 200; round++) {
    char made[44][20];
    const char *piece[44];
    float score[44];
    int n = 4, inner = round & 1;
    for (int i = 0; i < 4; i++)
      snprintf(made[i], sizeof made[i], "%c", " abc"[i]);
    for (int tries = 0; tries < 80 && n < 44; tries++) {
      const char *a = made[draw((uint32_t)n)], *b = made[draw((uint32_t)n)];
      char both[40];
      snprintf(both, sizeof both, "%s%s", a, b);
      int known = strlen(both) > 12;
      for (int i = 0; i < n; i++)
        known |= !strcmp(made[i], both);
      for (size_t i = 1; both[i] && !inner; i++) /* odd rounds have words with spaces inside */
        known |= both[i] == ' ' && both[i - 1] != ' ';
      if (!known)
        memcpy(made[n++], both, strlen(both) + 1);
    }
    for (int i = 0; i < n; i++) {
      piece[i] = made[i];
      score[i] = -(float)draw(8); /* many equal ones */
    }
    size_t bytes = 0, count = 0, back = 0;
    unsigned char *file = test_llama2c(piece, score, n, &bytes);
    atoll_tokenizer *t = NULL;
    assert_int_equal(atoll_tokenizer_open_llama2c("tokens", file, bytes, &t), ATOLL_OK);
    for (int k = 0; k < 20; k++) {
      struct naive x = {.n = (int)draw(100) + 2};
      char text[128] = "";
      x.s[0][0] = ' ';
      for (int i = 1; i < x.n; i++)
        x.s[i][0] = text[i - 1] = " abcz"[draw(5)]; /* z is no piece: a byte */
      rescan_scores(&x, piece, score, n);
      int32_t *ids = NULL;
      assert_int_equal(atoll_tokenizer_encode_all(t, text, strlen(text), &ids, &count), ATOLL_OK);
      assert_int_equal(count, x.n);
      for (size_t i = 0; i < count; i++) {
        const unsigned char *s;
        assert_int_equal(atoll_tokenizer_decode(t, -1, ids[i], &s, &back), ATOLL_OK);
        assert_int_equal(back, strlen(x.s[i]));
        assert_memory_equal(s, x.s[i], back);
      }
      free(ids);
    }
    atoll_tokenizer_close(&t);
    free(file);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(ranks), cmocka_unit_test(scores)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
