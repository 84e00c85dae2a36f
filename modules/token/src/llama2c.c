/* SentencePiece byte-pair vocabularies as llama2.c writes them.
 *
 * File, little-endian: int32 length of the longest piece; then for each token a float score, an int32 length and the
 * bytes. Ids 0 1 2 are unknown, begin and end; 3 .. 258 are the bytes "<0x00>" .. "<0xFF>".
 *
 * Encoding, as run.c does it: a space is put before the text; each character is its token, or its bytes; then the pair
 * of neighbours whose joined string has the highest score is merged, leftmost first, until no pair is a token. Which
 * pairs join to a token is found once, by cutting every token at every place.
 *
 * A space behind another character ends a word. Where no token has such a space inside, nothing merges across it, so
 * words are merged one by one with the same result and long texts need no more memory than their longest word. */
#include "token_impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_BYTE  3
#define FIRST_PIECE (FIRST_BYTE + 256)

static uint32_t read_u32(const unsigned char *p) {
  return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static float read_f32(const unsigned char *p) {
  uint32_t bits = read_u32(p);
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* Walk the entries. With t NULL only counts and checks. */
static atoll_err walk(const char *name, const unsigned char *data, size_t bytes, atoll_tokenizer *t, int64_t *count,
                      float *scores) {
  int32_t longest = bytes >= 4 ? (int32_t)read_u32(data) : -1;
  if (longest < 1 || longest > 1 << 20)
    return atoll_fail(ATOLL_CORRUPT, "%s: %zu bytes, longest piece %d; expected a llama2.c tokenizer", name, bytes,
                      longest);
  size_t at = 4, pool = 0;
  int64_t id = 0;
  for (; at < bytes; id++) {
    size_t left = bytes - at;
    int32_t n = left >= 8 ? (int32_t)read_u32(data + at + 4) : 0;
    if (left < 8 || n < 0 || n > longest || (size_t)n > left - 8)
      return atoll_fail(ATOLL_CORRUPT, "%s: token %lld at offset %zu: length %d, %zu bytes left, longest piece %d",
                        name, (long long)id, at, n, left, longest);
    float score = read_f32(data + at);
    if (!isfinite(score))
      return atoll_fail(ATOLL_CORRUPT, "%s: token %lld at offset %zu has the score %g", name, (long long)id, at, score);
    if (t) {
      memcpy(t->pool + pool, data + at + 8, (size_t)n);
      t->string[id] = (token_string){t->pool + pool, (size_t)n};
      scores[id] = score;
      pool += (size_t)n;
    }
    at += 8 + (size_t)n;
  }
  if (id < FIRST_PIECE || id > 1 << 24)
    return atoll_fail(ATOLL_CORRUPT, "%s: %lld tokens, expected %d at least", name, (long long)id, FIRST_PIECE);
  *count = id;
  return ATOLL_OK;
}

static atoll_err check_bytes(const char *name, atoll_tokenizer *t) {
  for (int b = 0; b < 256; b++) {
    char want[8];
    const token_string *s = &t->string[FIRST_BYTE + b];
    snprintf(want, sizeof want, "<0x%02X>", (unsigned)b);
    if (s->n != 6 || memcmp(s->bytes, want, 6) != 0)
      return atoll_fail(ATOLL_CORRUPT, "%s: token %d is '%.*s', expected '%s'", name, FIRST_BYTE + b, (int)s->n,
                        (const char *)s->bytes, want);
    t->byte_id[b] = FIRST_BYTE + b;
  }
  return ATOLL_OK;
}

static atoll_err find_pairs(atoll_tokenizer *t, const float *scores) {
  for (int32_t id = FIRST_PIECE; id < t->vocab; id++) {
    const token_string *s = &t->string[id];
    if (token_find(t, s->bytes, s->n) != id)
      continue;
    for (size_t cut = 1; cut < s->n; cut++) {
      t->inner_spaces |= s->bytes[cut] == ' ' && s->bytes[cut - 1] != ' ';
      int32_t a = token_find(t, s->bytes, cut), b = token_find(t, s->bytes + cut, s->n - cut);
      if (a >= FIRST_PIECE && b >= FIRST_PIECE)
        ATOLL_TRY(merge_add(&t->merges, a, b, id, scores[id]));
    }
  }
  return ATOLL_OK;
}

/* Byte tokens decode to their byte, begin and end to nothing; their names served only to check the file. */
static void strings_as_decoded(atoll_tokenizer *t, unsigned char *byte) {
  for (int b = 0; b < 256; b++) {
    byte[b] = (unsigned char)b;
    t->string[FIRST_BYTE + b] = (token_string){&byte[b], 1};
  }
  t->string[1].n = t->string[2].n = 0;
}

static const token_kind llama2c;

atoll_err atoll_tokenizer_open_llama2c(const char *name, const void *data, size_t bytes, atoll_tokenizer **out) {
  int64_t count = 0;
  ATOLL_TRY(walk(name, data, bytes, NULL, &count, NULL));
  atoll_tokenizer *t = NULL;
  float *scores = malloc((size_t)count * sizeof *scores);
  atoll_err err = scores ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "%lld scores of %s", (long long)count, name);
  if (err == ATOLL_OK)
    err = token_create(&llama2c, (int32_t)count, bytes + 256, &t);
  if (err == ATOLL_OK)
    err = walk(name, data, bytes, t, &count, scores);
  if (err == ATOLL_OK)
    err = check_bytes(name, t);
  if (err == ATOLL_OK)
    err = token_index_strings(t, FIRST_PIECE);
  if (err == ATOLL_OK)
    err = find_pairs(t, scores);
  free(scores);
  if (err != ATOLL_OK) {
    atoll_tokenizer_close(&t);
    return err;
  }
  strings_as_decoded(t, t->pool + bytes);
  t->begin = 1;
  t->end = 2;
  *out = t;
  return ATOLL_OK;
}

/* Bytes of the character at p as run.c divides them: a lead and up to three that continue it, valid or not. */
static size_t character(const unsigned char *p, size_t n) {
  size_t k = 1;
  while (k < n && k < 4 && (p[k] & 0xc0) == 0x80)
    k++;
  return k;
}

static atoll_err encode(const atoll_tokenizer *t, const char *name, const unsigned char *text, size_t bytes,
                        atoll_token_sink sink, void *arg) {
  merge_work work = {0};
  size_t n;
  (void)name;
  int32_t space = token_find(t, (const unsigned char *)" ", 1);
  atoll_err err = merge_push(&work, space >= FIRST_PIECE ? space : t->byte_id[' ']);
  for (size_t at = 0; at < bytes && err == ATOLL_OK;) {
    size_t k = character(text + at, bytes - at);
    if (at && text[at] == ' ' && text[at - 1] != ' ' && !t->inner_spaces) {
      err = merge_run(&t->merges, &work, &n);
      if (err == ATOLL_OK)
        err = sink(arg, work.ids, n);
    }
    int32_t id = token_find(t, text + at, k);
    if (err == ATOLL_OK && id >= FIRST_PIECE)
      err = merge_push(&work, id);
    for (size_t i = 0; i < k && err == ATOLL_OK && id < FIRST_PIECE; i++)
      err = merge_push(&work, t->byte_id[text[at + i]]);
    at += k;
  }
  if (err == ATOLL_OK)
    err = merge_run(&t->merges, &work, &n);
  if (err == ATOLL_OK)
    err = sink(arg, work.ids, n);
  merge_work_free(&work);
  return err;
}

static const token_kind llama2c = {"llama2c", encode, NULL};
