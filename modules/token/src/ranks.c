/* Byte-level byte-pair encoding from a list of ranks, as Llama 3 publishes its vocabulary (tokenizer.model): each line
 * is the bytes of a token in base64 (RFC 4648) and its rank, which is its id.
 *
 * There is no list of merges: two neighbours merge when together they are a token, that of the lowest rank first. Which
 * pairs join to a token is found once, by cutting every token at every place. A piece of text that is itself a token is
 * that token.
 *
 * Behind the ranks come 256 ids for tokens that no text encodes to: begin of text, end of text, and the end of a turn
 * are the first, the second and the tenth. */
#include "token_impl.h"

#include <stdlib.h>
#include <string.h>

enum { SPECIAL_IDS = 256, SPECIAL_BEGIN = 0, SPECIAL_END = 1 };

/* Llama 3's division into pieces; that of GPT-2, but words take one other character along, numbers are cut after three
 * digits, and line ends stay with what is before them. White space as in gpt2.c. */
static const char division[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}++|\\p{N}{1,3}+| ?[^" TOKEN_SPACE
    "\\p{L}\\p{N}]++[\\r\\n]*+|[" TOKEN_SPACE "]*[\\r\\n]+|[" TOKEN_SPACE "]+(?![^" TOKEN_SPACE "])|[" TOKEN_SPACE "]+";

static int sextet(char c) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const char *at = c ? strchr(digits, c) : NULL;
  return at ? (int)(at - digits) : -1;
}

/* Bytes of n characters of base64 to `to`; how many, or -1. */
static long from_base64(const char *s, size_t n, unsigned char *to) {
  long count = 0;
  if (n % 4)
    return -1;
  for (size_t i = 0; i < n; i += 4) {
    int end = i + 4 == n, pad = end && s[i + 3] == '=' ? 1 + (s[i + 2] == '=') : 0, v[4] = {0};
    for (int k = 0; k < 4 - pad; k++)
      if ((v[k] = sextet(s[i + (size_t)k])) < 0)
        return -1;
    unsigned bits = (unsigned)(v[0] << 18 | v[1] << 12 | v[2] << 6 | v[3]);
    for (int k = 0; k < 3 - pad; k++)
      to[count++] = (unsigned char)(bits >> (16 - 8 * k));
  }
  return count;
}

static size_t lines_of(const char *text, size_t bytes) {
  size_t n = bytes && text[bytes - 1] != '\n';
  for (size_t i = 0; i < bytes; i++)
    n += text[i] == '\n';
  return n;
}

/* Line `line` (from 1), "BASE64 RANK", to the pool from *at on. */
static atoll_err read_line(const char *name, size_t line, const char *s, size_t n, int32_t ranks, atoll_tokenizer *t,
                           size_t *at) {
  const char *gap = memchr(s, ' ', n);
  long bytes = gap ? from_base64(s, (size_t)(gap - s), t->pool + *at) : -1;
  int64_t rank = gap && gap + 1 < s + n ? 0 : -1;
  for (const char *p = gap ? gap + 1 : s + n; p < s + n && rank >= 0 && rank < ranks; p++)
    rank = *p >= '0' && *p <= '9' ? 10 * rank + (*p - '0') : -1;
  if (bytes < 1 || rank < 0)
    return atoll_fail(ATOLL_CORRUPT, "%s:%zu: found '%.*s', expected a token in base64 and its rank", name, line,
                      (int)(n < 80 ? n : 80), s);
  if (rank >= ranks || t->string[rank].bytes)
    return atoll_fail(ATOLL_CORRUPT, "%s:%zu: rank %lld %s", name, line, (long long)rank,
                      rank >= ranks ? "is beyond the number of tokens" : "is that of an earlier token");
  t->string[rank] = (token_string){t->pool + *at, (size_t)bytes};
  *at += (size_t)bytes;
  return ATOLL_OK;
}

static atoll_err read_ranks(const char *name, const char *text, size_t bytes, int32_t ranks, atoll_tokenizer *t) {
  size_t at = 0, line = 0;
  for (size_t from = 0; from < bytes;) {
    const char *s = text + from, *end = memchr(s, '\n', bytes - from);
    size_t n = end ? (size_t)(end - s) : bytes - from;
    from += n + 1;
    ATOLL_TRY(read_line(name, ++line, s, n && s[n - 1] == '\r' ? n - 1 : n, ranks, t, &at));
  }
  for (int32_t id = ranks; id < t->vocab; id++)
    t->string[id] = (token_string){t->pool, 0};
  return token_index_bytes(t, name);
}

static atoll_err find_pairs(const char *name, int32_t ranks, atoll_tokenizer *t) {
  for (int32_t id = 0; id < ranks; id++) {
    const token_string *s = &t->string[id];
    if (token_find(t, s->bytes, s->n) != id)
      return atoll_fail(ATOLL_CORRUPT, "%s: ranks %d and %d are the same token", name, token_find(t, s->bytes, s->n),
                        id);
    for (size_t cut = 1; cut < s->n; cut++) {
      int32_t a = token_find(t, s->bytes, cut), b = token_find(t, s->bytes + cut, s->n - cut);
      if (a >= 0 && b >= 0)
        ATOLL_TRY(merge_add(&t->merges, a, b, id, -(double)id));
    }
  }
  return ATOLL_OK;
}

static const token_kind llama3;

atoll_err atoll_tokenizer_open_llama3(const char *name, const char *text, size_t bytes, atoll_tokenizer **out) {
  size_t ranks = lines_of(text, bytes);
  atoll_tokenizer *t = NULL;
  if (ranks < 256 || ranks > 1 << 24)
    return atoll_fail(ATOLL_CORRUPT, "%s: found %zu lines, expected a token in each, 256 at least", name, ranks);
  ATOLL_TRY(token_create(&llama3, (int32_t)ranks + SPECIAL_IDS, bytes, &t));
  t->whole_pieces = 1;
  t->begin = (int32_t)ranks + SPECIAL_BEGIN;
  t->end = (int32_t)ranks + SPECIAL_END;
  atoll_err err;
  ATOLL_TRY_GOTO(err, close, read_ranks(name, text, bytes, (int32_t)ranks, t));
  ATOLL_TRY_GOTO(err, close, find_pairs(name, (int32_t)ranks, t));
  ATOLL_TRY_GOTO(err, close, divided_open(t, division));
  *out = t;
  return ATOLL_OK;
close:
  atoll_tokenizer_close(&t);
  return err;
}

static const token_kind llama3 = {"llama3", divided_encode, divided_free};
