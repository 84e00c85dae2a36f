/* The texts to continue: --prompt, a file, lines of a file, or standard input. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/agree.h"
#include "atoll/file.h"
#include "generate.h"

static atoll_err read_stream(FILE *f, char **bytes, size_t *n) {
  size_t room = 4096, have = 0, got;
  char *all = malloc(room);
  while (all && (got = fread(all + have, 1, room - have, f)) > 0) {
    have += got;
    if (have == room) {
      char *grown = realloc(all, room *= 2);
      if (!grown)
        free(all);
      all = grown;
    }
  }
  if (!all)
    return atoll_fail(ATOLL_NOMEM, "%zu bytes of standard input", room);
  if (ferror(f)) {
    free(all);
    return atoll_fail(ATOLL_NOINPUT, "standard input cannot be read");
  }
  *bytes = all;
  *n = have;
  return ATOLL_OK;
}

static atoll_err read_input(const atoll_cli *cli, char **bytes, size_t *n) {
  static const char *const flags[] = {"prompt", "prompt-file", "prompts"};
  const char *value = NULL, *flag = NULL;
  for (size_t i = 0; i < 3; i++) {
    const char *v = atoll_cli_value(cli, flags[i]);
    if (v && flag)
      return atoll_fail(ATOLL_USAGE, "--%s and --%s: one of them", flag, flags[i]);
    if (v) {
      flag = flags[i];
      value = v;
    }
  }
  if (!flag)
    return read_stream(stdin, bytes, n);
  if (strcmp(flag, "prompt") != 0)
    return atoll_file_read(value, bytes, n);
  *bytes = strdup(value);
  *n = strlen(value);
  return *bytes ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "prompt of %zu bytes", *n);
}

/* Token ids, written as numbers. */
static atoll_err parse_ids(const char *bytes, size_t n, int32_t **ids, size_t *count) {
  int32_t *out = malloc((n / 2 + 1) * sizeof *out);
  if (!out)
    return atoll_fail(ATOLL_NOMEM, "prompt of %zu bytes", n);
  size_t have = 0;
  for (size_t at = 0; at < n;) {
    char word[32];
    int64_t id = -1;
    size_t k = strcspn(bytes + at, " \t\r\n,");
    if (k == 0) {
      at++;
      continue;
    }
    snprintf(word, sizeof word, "%.*s", (int)(k < 31 ? k : 31), bytes + at);
    if (atoll_parse_int(word, &id) != 0 || id < 0 || id > INT32_MAX) {
      free(out);
      return atoll_fail(ATOLL_USAGE, "--ids: '%s' is not a token id", word);
    }
    out[have++] = (int32_t)id;
    at += k;
  }
  *ids = out;
  *count = have;
  return ATOLL_OK;
}

/* A text begins with the mark of its vocabulary: always where texts are trained to (llama), and else when it would be
 * empty. */
static atoll_err encode(const atoll_tokenizer *t, const char *bytes, size_t n, int32_t **ids, size_t *count) {
  if (!t)
    return parse_ids(bytes, n, ids, count);
  int32_t begin = atoll_tokenizer_begin(t);
  ATOLL_TRY(atoll_tokenizer_encode_all(t, bytes, n, ids, count));
  if (begin < 0 || (*count && strncmp(atoll_tokenizer_kind(t), "llama", 5) != 0))
    return ATOLL_OK;
  int32_t *longer = malloc((*count + 1) * sizeof *longer);
  if (longer) {
    longer[0] = begin;
    memcpy(longer + 1, *ids, *count * sizeof **ids);
  }
  free(*ids);
  *ids = longer;
  ++*count;
  return longer ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "%zu tokens", *count);
}

static atoll_err add(const atoll_tokenizer *t, const generate_params *p, const char *bytes, size_t n, texts *out) {
  int32_t *ids = NULL;
  size_t count = 0;
  ATOLL_TRY(encode(t, bytes, n, &ids, &count));
  atoll_err err = ATOLL_OK;
  text *grown = realloc(out->text, (size_t)(out->n + p->samples) * sizeof *grown);
  if (!grown)
    err = atoll_fail(ATOLL_NOMEM, "%lld texts", (long long)(out->n + p->samples));
  else
    out->text = grown;
  for (int64_t i = 0; i < p->samples && err == ATOLL_OK; i++) {
    text *x = &out->text[out->n++];
    *x = (text){.prompt = (int64_t)count, .n = (int64_t)count};
    x->token = malloc((count + (size_t)p->tokens + 1) * sizeof *x->token);
    x->probability = calloc((size_t)p->tokens + 1, sizeof *x->probability);
    if (x->token && x->probability)
      memcpy(x->token, ids, count * sizeof *ids);
    else
      err = atoll_fail(ATOLL_NOMEM, "a text of %zu tokens", count + (size_t)p->tokens);
  }
  free(ids);
  return err;
}

atoll_err texts_read(const atoll_cli *cli, const atoll_tokenizer *t, const generate_params *p, texts *out) {
  int rank, lines = atoll_cli_value(cli, "prompts") != NULL;
  char *mine = NULL;
  size_t n = 0;
  void *all = NULL;
  int64_t bytes = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  atoll_err err = rank == 0 ? read_input(cli, &mine, &n) : ATOLL_OK;
  err = atoll_agree(MPI_COMM_WORLD, err);
  if (err == ATOLL_OK)
    err = atoll_share_bytes(MPI_COMM_WORLD, 0, mine, (int64_t)n, &all, &bytes);
  free(mine);
  ATOLL_TRY(err);
  const char *at = all, *end = at + bytes;
  if (!lines)
    err = add(t, p, at, (size_t)bytes, out);
  while (lines && at < end && err == ATOLL_OK) {
    const char *line = memchr(at, '\n', (size_t)(end - at));
    size_t length = (size_t)((line ? line : end) - at);
    if (length)
      err = add(t, p, at, length, out);
    at += length + 1;
  }
  free(all);
  return err;
}

void texts_free(texts *t) {
  for (int64_t i = 0; i < t->n; i++) {
    free(t->text[i].token);
    free(t->text[i].probability);
  }
  free(t->text);
  *t = (texts){0};
}

atoll_err texts_check(const texts *t, const generate_params *p, const atoll_model *m, int64_t *longest) {
  const atoll_model_params *c = atoll_model_config(m);
  *longest = 0;
  if (t->n == 0)
    return atoll_fail(ATOLL_USAGE, "there is no prompt");
  for (int64_t i = 0; i < t->n; i++) {
    const text *x = &t->text[i];
    if (x->prompt == 0)
      return atoll_fail(ATOLL_USAGE, "prompt %lld is empty, and the vocabulary has no mark to begin with",
                        (long long)(i / p->samples));
    if (x->prompt + p->tokens > c->context)
      return atoll_fail(ATOLL_USAGE,
                        "prompt %lld has %lld tokens; with generate.tokens %lld that is beyond the model's context of "
                        "%lld",
                        (long long)(i / p->samples), (long long)x->prompt, (long long)p->tokens, (long long)c->context);
    for (int64_t k = 0; k < x->prompt; k++)
      if (x->token[k] >= c->vocab)
        return atoll_fail(ATOLL_MISMATCH, "prompt %lld: token %d, the model has 0..%lld", (long long)(i / p->samples),
                          x->token[k], (long long)(c->vocab - 1));
    *longest = x->prompt > *longest ? x->prompt : *longest;
  }
  return ATOLL_OK;
}
