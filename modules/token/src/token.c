/* The interface of tokenizers, the strings of their tokens, and decoding to valid UTF-8. */
#include "atoll/token.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/digest.h"
#include "atoll/file.h"
#include "token_impl.h"

/* ---- strings ---- */

atoll_err token_create(const token_kind *kind, int32_t vocab, size_t bytes, atoll_tokenizer **out) {
  atoll_tokenizer *t = calloc(1, sizeof *t);
  if (t) {
    t->kind = kind;
    t->vocab = vocab;
    t->begin = t->end = -1;
    t->string = calloc((size_t)vocab, sizeof *t->string);
    t->pool = malloc(bytes ? bytes : 1);
  }
  if (!t || !t->string || !t->pool) {
    atoll_tokenizer_close(&t);
    return atoll_fail(ATOLL_NOMEM, "a vocabulary of %d tokens, %zu bytes", vocab, bytes);
  }
  *out = t;
  return ATOLL_OK;
}

static int32_t *index_slot(const atoll_tokenizer *t, const unsigned char *bytes, size_t n) {
  size_t mask = t->index.slots - 1, i = (size_t)atoll_digest_bytes(bytes, n).lo & mask;
  for (; t->index.slot[i] >= 0; i = (i + 1) & mask) {
    const token_string *s = &t->string[t->index.slot[i]];
    if (s->n == n && memcmp(s->bytes, bytes, n) == 0)
      break;
  }
  return &t->index.slot[i];
}

atoll_err token_index_strings(atoll_tokenizer *t, int32_t first) {
  size_t slots = 1024;
  while (slots < 2 * (size_t)t->vocab)
    slots *= 2;
  t->index.slot = malloc(slots * sizeof *t->index.slot);
  if (!t->index.slot)
    return atoll_fail(ATOLL_NOMEM, "index of %d tokens", t->vocab);
  t->index.slots = slots;
  for (size_t i = 0; i < slots; i++)
    t->index.slot[i] = -1;
  for (int32_t id = first; id < t->vocab; id++) {
    int32_t *slot = index_slot(t, t->string[id].bytes, t->string[id].n);
    if (*slot < 0)
      *slot = id;
  }
  return ATOLL_OK;
}

atoll_err token_index_bytes(atoll_tokenizer *t, const char *name) {
  ATOLL_TRY(token_index_strings(t, 0));
  for (unsigned b = 0; b < 256; b++) {
    unsigned char byte = (unsigned char)b;
    t->byte_id[b] = token_find(t, &byte, 1);
    if (t->byte_id[b] < 0)
      return atoll_fail(ATOLL_CORRUPT, "%s: no token for byte %u; expected all 256", name, b);
  }
  return ATOLL_OK;
}

int32_t token_find(const atoll_tokenizer *t, const unsigned char *bytes, size_t n) { return *index_slot(t, bytes, n); }

/* ---- opening ---- */

/* Names under which the two files of a byte-level vocabulary are published. */
static const char *const gpt2_names[][2] = {
    {"encoder.json", "vocab.bpe"}, {"vocab.json", "merges.txt"}, {"gpt2_encoder.json", "gpt2_vocab.bpe"}};

static atoll_err open_gpt2_files(const char *json, const char *merges, atoll_tokenizer **out) {
  char *j = NULL, *m = NULL;
  size_t nj = 0, nm = 0;
  atoll_err err = atoll_file_read(json, &j, &nj);
  if (err == ATOLL_OK)
    err = atoll_file_read(merges, &m, &nm);
  if (err == ATOLL_OK)
    err = atoll_tokenizer_open_gpt2(json, j, nj, merges, m, nm, out);
  free(j);
  free(m);
  return err;
}

static atoll_err open_gpt2(const char *where, atoll_tokenizer **out) {
  char json[4096], merges[4096];
  const char *comma = strchr(where, ',');
  if (comma && !atoll_file_is_dir(where)) {
    if ((size_t)(comma - where) >= sizeof json)
      return atoll_fail(ATOLL_USAGE, "gpt2:%.60s...: the path is too long", where);
    snprintf(json, sizeof json, "%.*s", (int)(comma - where), where);
    return open_gpt2_files(json, comma + 1, out);
  }
  for (size_t i = 0; i < sizeof gpt2_names / sizeof *gpt2_names; i++) {
    ATOLL_TRY(atoll_path_join(json, sizeof json, where, gpt2_names[i][0]));
    ATOLL_TRY(atoll_path_join(merges, sizeof merges, where, gpt2_names[i][1]));
    if (atoll_file_exists(json) && atoll_file_exists(merges))
      return open_gpt2_files(json, merges, out);
  }
  return atoll_fail(ATOLL_NOINPUT, "%s holds neither encoder.json and vocab.bpe nor vocab.json and merges.txt", where);
}

static atoll_err open_llama2c(const char *path, atoll_tokenizer **out) {
  const void *data = NULL;
  size_t n = 0;
  ATOLL_TRY(atoll_file_map(path, &data, &n));
  atoll_err err = atoll_tokenizer_open_llama2c(path, data, n, out);
  atoll_file_unmap(&data, n);
  return err;
}

static atoll_err open_llama3(const char *path, atoll_tokenizer **out) {
  char *text = NULL;
  size_t n = 0;
  ATOLL_TRY(atoll_file_read(path, &text, &n));
  atoll_err err = atoll_tokenizer_open_llama3(path, text, n, out);
  free(text);
  return err;
}

atoll_err atoll_tokenizer_open(const char *spec, atoll_tokenizer **out) {
  if (!strncmp(spec, "gpt2:", 5))
    return open_gpt2(spec + 5, out);
  if (!strncmp(spec, "llama2c:", 8))
    return open_llama2c(spec + 8, out);
  if (!strncmp(spec, "llama3:", 7))
    return open_llama3(spec + 7, out);
  if (!strcmp(spec, "bytes"))
    return token_open_bytes(out);
  return atoll_fail(
      ATOLL_USAGE, "tokenizer '%s': expected gpt2:DIR, gpt2:ENCODER.json,VOCAB.bpe, llama2c:FILE, llama3:FILE or bytes",
      spec);
}

void atoll_tokenizer_close(atoll_tokenizer **tokenizer) {
  if (!tokenizer || !*tokenizer)
    return;
  atoll_tokenizer *t = *tokenizer;
  if (t->kind->free_kind)
    t->kind->free_kind(t);
  merge_free(&t->merges);
  free(t->index.slot);
  free(t->string);
  free(t->pool);
  free(t);
  *tokenizer = NULL;
}

const char *atoll_tokenizer_kind(const atoll_tokenizer *t) { return t->kind->name; }

int64_t atoll_tokenizer_vocab(const atoll_tokenizer *t) { return t->vocab; }

int32_t atoll_tokenizer_begin(const atoll_tokenizer *t) { return t->begin; }

int32_t atoll_tokenizer_end(const atoll_tokenizer *t) { return t->end; }

/* ---- encoding ---- */

atoll_err atoll_tokenizer_encode(const atoll_tokenizer *t, const char *name, const void *text, size_t bytes,
                                 atoll_token_sink sink, void *arg) {
  return bytes ? t->kind->encode(t, name, text, bytes, sink, arg) : ATOLL_OK;
}

struct collected {
  int32_t *ids;
  size_t n, room;
};

static atoll_err collect(void *arg, const int32_t *ids, size_t n) {
  struct collected *c = arg;
  if (c->n + n > c->room) {
    size_t room = 2 * (c->n + n);
    int32_t *grown = realloc(c->ids, room * sizeof *grown);
    if (!grown)
      return atoll_fail(ATOLL_NOMEM, "%zu tokens", room);
    c->ids = grown;
    c->room = room;
  }
  memcpy(c->ids + c->n, ids, n * sizeof *ids);
  c->n += n;
  return ATOLL_OK;
}

atoll_err atoll_tokenizer_encode_all(const atoll_tokenizer *t, const void *text, size_t bytes, int32_t **ids,
                                     size_t *n) {
  struct collected c = {.room = 64};
  c.ids = malloc(c.room * sizeof *c.ids);
  atoll_err err = c.ids ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "tokens of %zu bytes", bytes);
  if (err == ATOLL_OK)
    err = atoll_tokenizer_encode(t, "text", text, bytes, collect, &c);
  if (err != ATOLL_OK) {
    free(c.ids);
    return err;
  }
  *ids = c.ids;
  *n = c.n;
  return ATOLL_OK;
}

/* ---- decoding ---- */

atoll_err atoll_tokenizer_decode(const atoll_tokenizer *t, int32_t previous, int32_t id, const unsigned char **bytes,
                                 size_t *n) {
  if (id < 0 || id >= t->vocab)
    return atoll_fail(ATOLL_USAGE, "token %d, the vocabulary ends at %d", id, t->vocab - 1);
  const token_string *s = &t->string[id];
  int drop = t->begin != t->end && previous == t->begin && previous >= 0 && s->n > 0 && s->bytes[0] == ' ';
  *bytes = s->bytes + drop;
  *n = s->n - (size_t)drop;
  return ATOLL_OK;
}

int token_utf8(const unsigned char *p, size_t n) {
  if (p[0] < 0x80)
    return 1;
  int want = p[0] >= 0xc2 && p[0] <= 0xdf ? 2 : (p[0] & 0xf0) == 0xe0 ? 3 : p[0] >= 0xf0 && p[0] <= 0xf4 ? 4 : 0;
  for (int i = 1; i < want; i++) {
    if ((size_t)i >= n)
      return -1;
    /* The second byte excludes overlong forms, surrogates and what lies beyond U+10FFFF. */
    unsigned char low = i > 1 ? 0x80 : p[0] == 0xe0 ? 0xa0 : p[0] == 0xf0 ? 0x90 : 0x80;
    unsigned char high = i > 1 ? 0xbf : p[0] == 0xed ? 0x9f : p[0] == 0xf4 ? 0x8f : 0xbf;
    if (p[i] < low || p[i] > high)
      return 0;
  }
  return want;
}

void atoll_decoder_init(atoll_decoder *d, const atoll_tokenizer *t) {
  memset(d, 0, sizeof *d);
  d->tokenizer = t;
  d->previous = -1;
}

void atoll_decoder_free(atoll_decoder *d) {
  free(d->text);
  atoll_decoder_init(d, d->tokenizer);
}

static const char replacement[] = "\xef\xbf\xbd";

static atoll_err reserve(atoll_decoder *d, size_t bytes) {
  if (bytes <= d->capacity)
    return ATOLL_OK;
  char *grown = realloc(d->text, 2 * bytes);
  if (!grown)
    return atoll_fail(ATOLL_NOMEM, "text of a token, %zu bytes", bytes);
  d->text = grown;
  d->capacity = 2 * bytes;
  return ATOLL_OK;
}

atoll_err atoll_decoder_push(atoll_decoder *d, int32_t id, const char **text, size_t *n) {
  const unsigned char *bytes;
  size_t count, out = 0;
  ATOLL_TRY(atoll_tokenizer_decode(d->tokenizer, d->previous, id, &bytes, &count));
  ATOLL_TRY(reserve(d, 3 * (count + sizeof d->held) + 1)); /* each byte becomes three at most */
  d->previous = id;
  for (size_t i = 0; i < count; i++) {
    d->held[d->n++] = bytes[i];
    for (int length; d->n && (length = token_utf8(d->held, d->n)) >= 0;) {
      size_t used = length ? (size_t)length : 1;
      memcpy(d->text + out, length ? (const char *)d->held : replacement, length ? used : 3);
      out += length ? used : 3;
      d->n -= used;
      memmove(d->held, d->held + used, d->n);
    }
  }
  d->text[out] = '\0';
  *text = d->text;
  *n = out;
  return ATOLL_OK;
}

atoll_err atoll_decoder_finish(atoll_decoder *d, const char **text, size_t *n) {
  ATOLL_TRY(reserve(d, 4));
  *n = d->n ? 3 : 0;
  memcpy(d->text, replacement, *n);
  d->text[*n] = '\0';
  *text = d->text;
  d->n = 0;
  d->previous = -1;
  return ATOLL_OK;
}
