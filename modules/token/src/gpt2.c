/* Byte-level byte-pair encoding as GPT-2 published it (Radford et al. 2019; encoder.json, vocab.bpe).
 *
 * The files write bytes as printable characters: the 188 bytes that Latin-1 prints stand for themselves, the other 68
 * are U+0100 and up, in order. Text is first divided into pieces by a regular expression over Unicode letters, numbers
 * and white space; merging never crosses a piece. PCRE2 knows the properties; white space is spelled out because
 * PCRE2's \s has U+180E, which Unicode took out of White_Space.
 *
 * Text is matched in windows. A match that touches the end of a window might have been longer: PCRE2 reports it as
 * partial and the window is extended, so no result depends on where windows end and memory stays that of a window. */
#include "token_impl.h"

#include <stdlib.h>
#include <string.h>

#include <jansson.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#define WINDOW_BYTES ((size_t)1 << 20)

static const char division[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}++| ?\\p{N}++| ?[^" TOKEN_SPACE
                               "\\p{L}\\p{N}]++|[" TOKEN_SPACE "]+(?![^" TOKEN_SPACE "])|[" TOKEN_SPACE "]+";

/* ---- files ---- */

/* The byte that code point c stands for, or -1. */
static int unprinted(unsigned c) {
  if ((c >= 33 && c <= 126) || (c >= 161 && c <= 172) || (c >= 174 && c <= 255))
    return (int)c;
  if (c < 256 || c > 256 + 67)
    return -1;
  return c < 256 + 33 ? (int)(c - 256) : c < 256 + 67 ? (int)(c - 256 - 33 + 127) : 173;
}

/* Bytes that a printed word stands for, to `to` (as long as the word at most). Returns how many, or -1. */
static long unprint(const char *word, size_t n, unsigned char *to) {
  long count = 0;
  for (size_t i = 0; i < n;) {
    unsigned c = (unsigned char)word[i++];
    if (c >= 0xc0 && i < n)
      c = c < 0xe0 ? (c & 0x1f) << 6 | ((unsigned char)word[i++] & 0x3f) : 0xffff;
    int byte = unprinted(c);
    if (byte < 0)
      return -1;
    to[count++] = (unsigned char)byte;
  }
  return count;
}

static atoll_err read_vocabulary(const char *name, json_t *root, atoll_tokenizer *t) {
  const char *key;
  json_t *value;
  size_t at = 0;
  json_object_foreach(root, key, value) {
    json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
    if (id < 0 || id >= t->vocab)
      return atoll_fail(ATOLL_CORRUPT, "%s: the id of '%s' is not an integer of 0..%d", name, key, t->vocab - 1);
    if (t->string[id].bytes)
      return atoll_fail(ATOLL_CORRUPT, "%s: '%s' has id %d, which another token has", name, key, (int)id);
    long n = unprint(key, strlen(key), t->pool + at);
    if (n < 1)
      return atoll_fail(ATOLL_CORRUPT, "%s: '%s' (id %d) is not written in the 256 characters that stand for bytes",
                        name, key, (int)id);
    t->string[id] = (token_string){t->pool + at, (size_t)n};
    at += (size_t)n;
  }
  ATOLL_TRY(token_index_bytes(t, name));
  t->begin = token_find(t, (const unsigned char *)"<|endoftext|>", 13);
  t->end = t->begin;
  if (t->begin < 0) { /* RoBERTa's */
    t->begin = token_find(t, (const unsigned char *)"<s>", 3);
    t->end = token_find(t, (const unsigned char *)"</s>", 4);
  }
  return ATOLL_OK;
}

/* One line "LEFT RIGHT". made: tokens that exist so far, so that merging best first is what was published. */
static atoll_err read_merge(const char *name, int line, const char *s, size_t n, int32_t rank, atoll_tokenizer *t,
                            unsigned char *made, unsigned char *bytes) {
  const char *gap = memchr(s, ' ', n);
  size_t left = gap ? (size_t)(gap - s) : 0, right = gap ? n - left - 1 : 0;
  if (!left || !right || memchr(gap + 1, ' ', right))
    return atoll_fail(ATOLL_CORRUPT, "%s:%d: found '%.*s', expected two words", name, line, (int)(n < 80 ? n : 80), s);
  long nl = unprint(s, left, bytes), nr = nl < 0 ? -1 : unprint(gap + 1, right, bytes + nl);
  int32_t a = nr < 0 ? -1 : token_find(t, bytes, (size_t)nl), b = nr < 0 ? -1 : token_find(t, bytes + nl, (size_t)nr);
  int32_t c = nr < 0 ? -1 : token_find(t, bytes, (size_t)(nl + nr));
  if (a < 0 || b < 0 || c < 0)
    return atoll_fail(ATOLL_CORRUPT, "%s:%d: '%.*s' names or makes a token that the vocabulary lacks", name, line,
                      (int)(n < 80 ? n : 80), s);
  if (!made[a] || !made[b] || made[c])
    return atoll_fail(ATOLL_CORRUPT, "%s:%d: '%.*s' %s", name, line, (int)(n < 80 ? n : 80), s,
                      made[c] ? "makes what an earlier line made" : "uses a token that no earlier line made");
  made[c] = 1;
  return merge_add(&t->merges, a, b, c, -(double)rank);
}

static atoll_err read_merges(const char *name, const char *text, size_t bytes, atoll_tokenizer *t) {
  unsigned char *made = calloc((size_t)t->vocab, 1), *scratch = malloc(bytes + 1);
  atoll_err err = made && scratch ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "merges of %s", name);
  for (unsigned b = 0; b < 256 && err == ATOLL_OK; b++)
    made[t->byte_id[b]] = 1;
  int line = 0;
  int32_t rank = 0;
  for (size_t at = 0; at < bytes && err == ATOLL_OK;) {
    const char *s = text + at, *end = memchr(s, '\n', bytes - at);
    size_t n = end ? (size_t)(end - s) : bytes - at;
    at += n + 1;
    line++;
    if (n && s[n - 1] == '\r')
      n--;
    if (n && !(line == 1 && s[0] == '#'))
      err = read_merge(name, line, s, n, rank++, t, made, scratch);
  }
  free(made);
  free(scratch);
  if (err == ATOLL_OK && rank == 0)
    err = atoll_fail(ATOLL_CORRUPT, "%s holds no merges", name);
  return err;
}

atoll_err divided_open(atoll_tokenizer *t, const char *pattern) {
  int code = 0;
  PCRE2_SIZE at = 0;
  pcre2_code *p = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &code, &at, NULL);
  pcre2_match_context *c = pcre2_match_context_create(NULL);
  t->pattern = p;
  t->context = c;
  if (!p || !c)
    return atoll_fail(p ? ATOLL_NOMEM : ATOLL_UNSUPPORTED,
                      "PCRE2 cannot compile the division into words (error %d at %zu): it needs Unicode support", code,
                      (size_t)at);
  (void)pcre2_set_match_limit(c, UINT32_MAX);
  (void)pcre2_jit_compile(p, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD); /* without it the interpreter matches */
  return ATOLL_OK;
}

static const token_kind gpt2;

atoll_err atoll_tokenizer_open_gpt2(const char *json_name, const char *json, size_t json_bytes, const char *merges_name,
                                    const char *merges, size_t merges_bytes, atoll_tokenizer **out) {
  json_error_t e;
  json_t *root = json_loadb(json, json_bytes, JSON_REJECT_DUPLICATES, &e);
  if (!root)
    return atoll_fail(ATOLL_CORRUPT, "%s:%d:%d: %s", json_name, e.line, e.column, e.text);
  atoll_tokenizer *t = NULL;
  atoll_err err = ATOLL_OK;
  size_t n = json_object_size(root);
  if (n < 256 || n > 1 << 24)
    err = atoll_fail(ATOLL_CORRUPT, "%s: found %s of %zu tokens, expected an object of 256 at least", json_name,
                     json_is_object(root) ? "an object" : "no object", n);
  if (err == ATOLL_OK)
    err = token_create(&gpt2, (int32_t)n, json_bytes, &t);
  if (err == ATOLL_OK)
    err = read_vocabulary(json_name, root, t);
  if (err == ATOLL_OK)
    err = read_merges(merges_name, merges, merges_bytes, t);
  if (err == ATOLL_OK)
    err = divided_open(t, division);
  json_decref(root);
  if (err != ATOLL_OK)
    atoll_tokenizer_close(&t);
  else
    *out = t;
  return err;
}

void divided_free(atoll_tokenizer *t) {
  pcre2_code_free(t->pattern);
  pcre2_match_context_free(t->context);
}

/* ---- encoding ---- */

typedef struct encoding {
  const atoll_tokenizer *t;
  const char *name;
  const unsigned char *text;
  size_t bytes, checked;
  atoll_token_sink sink;
  void *arg;
  pcre2_match_data *match;
  merge_work work;
} encoding;

static atoll_err check_utf8(encoding *e, size_t end) {
  while (e->checked < end) {
    int n = token_utf8(e->text + e->checked, e->bytes - e->checked);
    if (n <= 0)
      return atoll_fail(ATOLL_CORRUPT, "%s: byte 0x%02X at offset %zu is not UTF-8%s", e->name, e->text[e->checked],
                        e->checked, n < 0 ? ": the character is cut short" : "");
    e->checked += (size_t)n;
  }
  return ATOLL_OK;
}

static atoll_err encode_piece(encoding *e, const unsigned char *piece, size_t bytes) {
  size_t n;
  int32_t whole = e->t->whole_pieces ? token_find(e->t, piece, bytes) : -1;
  if (whole >= 0)
    return e->sink(e->arg, &whole, 1);
  for (size_t i = 0; i < bytes; i++)
    ATOLL_TRY(merge_push(&e->work, e->t->byte_id[piece[i]]));
  ATOLL_TRY(merge_run(&e->t->merges, &e->work, &n));
  return e->sink(e->arg, e->work.ids, n);
}

/* Pieces of text[start, end). *done: where the first one begins that may reach beyond. */
static atoll_err encode_window(encoding *e, size_t start, size_t end, size_t *done) {
  const unsigned char *window = e->text + start;
  size_t at = 0, bytes = end - start;
  uint32_t options = PCRE2_NO_UTF_CHECK | (end < e->bytes ? PCRE2_PARTIAL_HARD : 0);
  while (at < bytes) {
    int rc = pcre2_match(e->t->pattern, window, bytes, at, options, e->match, e->t->context);
    if (rc == PCRE2_ERROR_PARTIAL)
      break;
    const PCRE2_SIZE *found = pcre2_get_ovector_pointer(e->match);
    if (rc < 0 || found[0] != at || found[1] <= at)
      return atoll_fail(rc == PCRE2_ERROR_NOMEMORY ? ATOLL_NOMEM : ATOLL_INTERNAL,
                        "%s: the division into words fails at offset %zu (PCRE2 %d)", e->name, start + at, rc);
    ATOLL_TRY(encode_piece(e, window + at, found[1] - at));
    at = found[1];
  }
  *done = start + at;
  return ATOLL_OK;
}

atoll_err divided_encode(const atoll_tokenizer *t, const char *name, const unsigned char *text, size_t bytes,
                         atoll_token_sink sink, void *arg) {
  encoding e = {.t = t, .name = name, .text = text, .bytes = bytes, .sink = sink, .arg = arg};
  e.match = pcre2_match_data_create(1, NULL);
  atoll_err err = e.match ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "matching %s", name);
  size_t window = WINDOW_BYTES;
  for (size_t at = 0, done; at < bytes && err == ATOLL_OK; at = done) {
    size_t end = bytes - at > window ? at + window : bytes;
    for (int back = 0; back < 3 && end < bytes && (text[end] & 0xc0) == 0x80; back++)
      end--;
    done = at;
    err = check_utf8(&e, end);
    if (err == ATOLL_OK)
      err = encode_window(&e, at, end, &done);
    window = done > at ? WINDOW_BYTES : 2 * window;
  }
  merge_work_free(&e.work);
  pcre2_match_data_free(e.match);
  return err;
}

static const token_kind gpt2 = {"gpt2", divided_encode, divided_free};
