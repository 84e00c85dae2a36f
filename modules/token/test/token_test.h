/* Small vocabularies made in memory. */
#ifndef TOKEN_TEST_H
#define TOKEN_TEST_H

#include "atoll/file.h"
#include "atoll/token.h"
#include "unit_check.h"

/* encoder.json of the 256 bytes, then the joined words of the merges ("a b\n..."), then <|endoftext|>. Owned. */
static inline char *test_gpt2_json(const char *merges) {
  char *text = NULL;
  size_t bytes = 0;
  FILE *f = open_memstream(&text, &bytes);
  assert_non_null(f);
  fputc('{', f);
  for (unsigned b = 0, other = 256; b < 256; b++) {
    unsigned c = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174 ? b : other++;
    fprintf(f, "\"\\u%04x\": %u, ", c, b);
  }
  int id = 256;
  for (const char *s = merges; *s;) {
    size_t n = strcspn(s, "\n");
    const char *gap = memchr(s, ' ', n);
    if (gap && s[0] != '#')
      fprintf(f, "\"%.*s%.*s\": %d, ", (int)(gap - s), s, (int)(s + n - gap - 1), gap + 1, id++);
    s += n + (s[n] == '\n');
  }
  fprintf(f, "\"<|endoftext|>\": %d}", id);
  assert_int_equal(fclose(f), 0);
  return text;
}

static inline atoll_tokenizer *test_gpt2(const char *merges) {
  atoll_tokenizer *t = NULL;
  char *json = test_gpt2_json(merges);
  atoll_err err =
      atoll_tokenizer_open_gpt2("encoder.json", json, strlen(json), "vocab.bpe", merges, strlen(merges), &t);
  if (err != ATOLL_OK)
    fail_msg("%s", atoll_err_message());
  free(json);
  return t;
}

/* llama2.c's file: unknown, begin, end, 256 bytes and the given pieces with scores. Owned. */
static inline unsigned char *test_llama2c(const char *const *piece, const float *score, int pieces, size_t *bytes) {
  char *text = NULL;
  FILE *f = open_memstream(&text, bytes);
  assert_non_null(f);
  int32_t longest = 16;
  fwrite(&longest, 4, 1, f);
  for (int id = 0; id < 259 + pieces; id++) {
    char name[16];
    const char *s = name;
    float v = 0;
    if (id < 3)
      s = id == 0 ? "<unk>" : id == 1 ? "\n<s>\n" : "\n</s>\n";
    else if (id < 259)
      snprintf(name, sizeof name, "<0x%02X>", (unsigned)(id - 3));
    else
      s = piece[id - 259], v = score[id - 259];
    int32_t n = (int32_t)strlen(s);
    fwrite(&v, 4, 1, f);
    fwrite(&n, 4, 1, f);
    fwrite(s, 1, (size_t)n, f);
  }
  assert_int_equal(fclose(f), 0);
  return (unsigned char *)text;
}

/* Whole text decoded, owned. */
static inline unsigned char *test_decode(const atoll_tokenizer *t, int32_t previous, const int32_t *ids, size_t n,
                                         size_t *bytes) {
  size_t room = 64;
  unsigned char *text = malloc(room);
  *bytes = 0;
  for (size_t i = 0; i < n; i++) {
    const unsigned char *s;
    size_t k;
    assert_int_equal(atoll_tokenizer_decode(t, previous, ids[i], &s, &k), ATOLL_OK);
    if (*bytes + k > room)
      text = realloc(text, room = 2 * (*bytes + k));
    assert_non_null(text);
    if (k)
      memcpy(text + *bytes, s, k);
    *bytes += k;
    previous = ids[i];
  }
  return text;
}

static inline void test_refused(atoll_err got, atoll_err want, const char *fragment) {
  if (got != want || !strstr(atoll_err_message(), fragment))
    fail_msg("got %s '%s', wanted %s with '%s'", atoll_err_name(got), atoll_err_message(), atoll_err_name(want),
             fragment);
}

/* What an encoder's sink has been called with. */
struct pieces {
  size_t n, length[64];
};

static inline atoll_err test_count_piece(void *arg, const int32_t *ids, size_t n) {
  struct pieces *p = arg;
  (void)ids;
  if (p->n < 64)
    p->length[p->n] = n; /* no merges: a token a byte */
  p->n++;
  return ATOLL_OK;
}

/* The parts joined are the text; parts are what it must be divided into. */
static inline void test_expect_parts(const atoll_tokenizer *t, const char *const *part, size_t parts) {
  char text[512] = "";
  struct pieces p = {0};
  for (size_t i = 0; i < parts; i++)
    strcat(text, part[i]);
  assert_int_equal(atoll_tokenizer_encode(t, "text", text, strlen(text), test_count_piece, &p), ATOLL_OK);
  for (size_t i = 0, at = 0; i < parts && i < p.n; at += p.length[i++])
    if (p.length[i] != strlen(part[i]))
      fail_msg("'%s': piece %zu is '%.*s', expected '%s'", text, i, (int)p.length[i], text + at, part[i]);
  assert_int_equal(p.n, parts);
}
#define EXPECT(...)                                                                                                    \
  do {                                                                                                                 \
    const char *const part_[] = {__VA_ARGS__};                                                                         \
    test_expect_parts(t, part_, sizeof part_ / sizeof *part_);                                                         \
  } while (0)

#endif
