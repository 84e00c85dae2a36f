/* tokenize: text to llm.c's token files, with memory for a piece of the text.
 *
 * File: 256 int32 (20240520, version 1, number of tokens modulo 2^32), then uint16 tokens. Texts are mapped, tokens
 * leave as they are found, and the number is put into the header at the end; the file has its name only when whole. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/clock.h"
#include "atoll/file.h"
#include "atoll/log.h"
#include "atoll/token.h"
#include "convert.h"

#define MAGIC        20240520
#define HEADER_BYTES 1024

typedef struct output {
  const char *path;
  atoll_file_writer *file;
  int64_t tokens;
} output;

typedef struct tokenizing {
  atoll_tokenizer *t;
  output all, held; /* held receives the first `hold` tokens */
  int64_t hold, documents, bytes;
} tokenizing;

static atoll_err open_output(output *o) {
  static const unsigned char header[HEADER_BYTES];
  ATOLL_TRY(atoll_file_writer_open(o->path, &o->file));
  return atoll_file_writer_add(o->file, header, sizeof header);
}

static atoll_err finish_output(output *o) {
  unsigned char header[12];
  const uint32_t word[] = {MAGIC, 1, (uint32_t)o->tokens};
  for (int i = 0; i < 12; i++)
    header[i] = (unsigned char)(word[i / 4] >> 8 * (i % 4));
  ATOLL_TRY(atoll_file_writer_put(o->file, 0, header, sizeof header));
  return atoll_file_writer_commit(&o->file);
}

static atoll_err put_tokens(output *o, const int32_t *ids, size_t n) {
  unsigned char piece[2048];
  o->tokens += (int64_t)n;
  while (n) {
    size_t k = n < sizeof piece / 2 ? n : sizeof piece / 2;
    for (size_t i = 0; i < k; i++) {
      piece[2 * i] = (unsigned char)ids[i];
      piece[2 * i + 1] = (unsigned char)(ids[i] >> 8);
    }
    ATOLL_TRY(atoll_file_writer_add(o->file, piece, 2 * k));
    ids += k;
    n -= k;
  }
  return ATOLL_OK;
}

static atoll_err sink(void *arg, const int32_t *ids, size_t n) {
  tokenizing *z = arg;
  int64_t room = z->hold - z->held.tokens;
  size_t first = room < (int64_t)n ? (size_t)room : n;
  if (first)
    ATOLL_TRY(put_tokens(&z->held, ids, first));
  return n > first ? put_tokens(&z->all, ids + first, n - first) : ATOLL_OK;
}

enum { WHOLE, FILES, BLANK, LINES };
static const char *const rules[] = {"none", "file", "blank", "line"};

/* Where the document that begins at `at` ends. */
static size_t document_end(const char *text, size_t n, size_t at, int rule) {
  const char *mark = rule == BLANK   ? memmem(text + at, n - at, "\n\n", 2)
                     : rule == LINES ? memchr(text + at, '\n', n - at)
                                     : NULL;
  return mark ? (size_t)(mark - text) + (rule == BLANK ? 2 : 1) : n;
}

static atoll_err tokenize_text(tokenizing *z, const char *name, const char *text, size_t n, int rule) {
  int32_t begin = atoll_tokenizer_begin(z->t);
  for (size_t at = 0; at < n;) {
    size_t end = document_end(text, n, at, rule), shown = end;
    if (rule == LINES && text[end - 1] == '\n') /* the mark stands for the line end */
      shown--;
    if (rule != WHOLE) {
      ATOLL_TRY(sink(z, &begin, 1));
      z->documents++;
    }
    ATOLL_TRY(atoll_tokenizer_encode(z->t, name, text + at, shown - at, sink, z));
    at = end;
  }
  z->bytes += (int64_t)n;
  return ATOLL_OK;
}

static atoll_err tokenize_files(const convert *c, tokenizing *z, int rule) {
  int last = atoll_cli_operand_count(c->cli) - 1;
  ATOLL_TRY(open_output(&z->all));
  if (z->held.path)
    ATOLL_TRY(open_output(&z->held));
  for (int i = 1; i < last; i++) {
    const void *text = NULL;
    size_t n = 0;
    ATOLL_TRY(atoll_file_map(atoll_cli_operand(c->cli, i), &text, &n));
    atoll_err err = tokenize_text(z, atoll_cli_operand(c->cli, i), text, n, rule);
    atoll_file_unmap(&text, n);
    ATOLL_TRY(err);
  }
  if (z->held.tokens < z->hold)
    return atoll_fail(ATOLL_USAGE, "--held-out %lld: the text has %lld tokens", (long long)z->hold,
                      (long long)z->held.tokens);
  if (z->held.path)
    ATOLL_TRY(finish_output(&z->held));
  return finish_output(&z->all);
}

static void report(const convert *c, const tokenizing *z, double seconds) {
  if (!c->json) {
    atoll_say("%s : %lld tokens of %lld bytes in %.2f s", z->all.path, (long long)z->all.tokens, (long long)z->bytes,
              seconds);
    if (z->held.path)
      atoll_say("%s : %lld tokens", z->held.path, (long long)z->held.tokens);
    return;
  }
  json_t *root = json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:f}", "output", z->all.path, "tokenizer",
                           atoll_tokenizer_kind(z->t), "vocab", (json_int_t)atoll_tokenizer_vocab(z->t), "tokens",
                           (json_int_t)z->all.tokens, "held_out", (json_int_t)z->held.tokens, "documents",
                           (json_int_t)z->documents, "bytes", (json_int_t)z->bytes, "seconds", seconds);
  char *text = json_dumps(root, JSON_INDENT(2));
  puts(text ? text : "{}");
  free(text);
  json_decref(root);
}

static atoll_err check_request(const convert *c, tokenizing *z, int *rule) {
  const char *spec = atoll_cli_value(c->cli, "tokenizer"), *documents = atoll_cli_value(c->cli, "documents");
  if (atoll_cli_operand_count(c->cli) < 3)
    return atoll_fail(ATOLL_USAGE, "tokenize takes one text or more, and the token file to write");
  if (!spec)
    return atoll_fail(ATOLL_USAGE, "tokenize needs --tokenizer gpt2:DIR, llama2c:FILE or bytes");
  for (*rule = WHOLE; documents && *rule <= LINES && strcmp(rules[*rule], documents) != 0;)
    (*rule)++;
  if (*rule > LINES)
    return atoll_fail(ATOLL_USAGE, "--documents '%s', expected none, file, blank or line", documents);
  ATOLL_TRY(convert_int_flag(c, "held-out", 1, &z->hold));
  z->held.path = atoll_cli_value(c->cli, "held-out-to");
  z->all.path = atoll_cli_operand(c->cli, atoll_cli_operand_count(c->cli) - 1);
  if ((z->hold > 0) != (z->held.path != NULL))
    return atoll_fail(ATOLL_USAGE, "--held-out N and --held-out-to FILE go together");
  if (z->held.path && !strcmp(z->held.path, z->all.path))
    return atoll_fail(ATOLL_USAGE, "--held-out-to %s is the token file itself", z->held.path);
  ATOLL_TRY(atoll_tokenizer_open(spec, &z->t));
  if (atoll_tokenizer_vocab(z->t) > 65536)
    return atoll_fail(ATOLL_UNSUPPORTED, "a vocabulary of %lld tokens does not fit the 16 bits of a token file",
                      (long long)atoll_tokenizer_vocab(z->t));
  if (*rule != WHOLE && atoll_tokenizer_begin(z->t) < 0)
    return atoll_fail(ATOLL_USAGE, "--documents %s: the vocabulary has no token that begins a document", documents);
  return ATOLL_OK;
}

atoll_err convert_tokenize(convert *c) {
  tokenizing z = {0};
  int rule = WHOLE;
  double began = atoll_clock_now();
  atoll_err err = check_request(c, &z, &rule);
  if (err == ATOLL_OK)
    err = tokenize_files(c, &z, rule);
  if (err == ATOLL_OK)
    report(c, &z, atoll_clock_now() - began);
  atoll_file_writer_discard(&z.all.file);
  atoll_file_writer_discard(&z.held.file);
  atoll_tokenizer_close(&z.t);
  return err;
}
