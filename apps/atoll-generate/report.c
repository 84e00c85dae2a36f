/* What the ranks made comes together as JSON and is printed by rank 0. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/agree.h"
#include "atoll/log.h"
#include "generate.h"

/* Tokens as valid UTF-8; as numbers where there is no tokenizer. */
static atoll_err text_of(const atoll_tokenizer *t, const int32_t *token, int64_t n, int32_t previous, char **out) {
  size_t bytes = 0;
  FILE *f = open_memstream(out, &bytes);
  if (!f)
    return atoll_fail(ATOLL_NOMEM, "text of %lld tokens", (long long)n);
  atoll_err err = ATOLL_OK;
  atoll_decoder d;
  if (t) {
    atoll_decoder_init(&d, t);
    d.previous = previous;
  }
  for (int64_t i = 0; i <= n && err == ATOLL_OK; i++) {
    const char *shown = "";
    size_t k = 0;
    if (!t && i < n)
      fprintf(f, "%s%d", i ? " " : "", token[i]);
    else if (t && i < n && token[i] < atoll_tokenizer_vocab(t))
      err = atoll_decoder_push(&d, token[i], &shown, &k);
    else if (t && i == n)
      err = atoll_decoder_finish(&d, &shown, &k);
    fwrite(shown, 1, k, f);
  }
  if (t)
    atoll_decoder_free(&d);
  fclose(f);
  return err;
}

static atoll_err text_json(const report *r, const text *x, int64_t index, json_t **out) {
  char *prompt = NULL, *made = NULL;
  json_t *ids = json_array(), *tokens = json_array(), *probabilities = json_array();
  atoll_err err = text_of(r->tokenizer, x->token, x->prompt, -1, &prompt);
  if (err == ATOLL_OK)
    err = text_of(r->tokenizer, x->token + x->prompt, x->n - x->prompt, x->token[x->prompt - 1], &made);
  for (int64_t i = 0; i < x->n; i++) {
    json_array_append_new(i < x->prompt ? ids : tokens, json_integer(x->token[i]));
    if (i >= x->prompt)
      json_array_append_new(probabilities, json_real(x->probability[i - x->prompt]));
  }
  if (err == ATOLL_OK) {
    *out = json_pack("{s:I, s:I, s:s, s:O, s:s, s:O, s:O, s:s}", "index", (json_int_t)index, "prompt_index",
                     (json_int_t)(index / r->params->samples), "prompt", prompt, "prompt_tokens", ids, "text", made,
                     "tokens", tokens, "probabilities", probabilities, "end", x->ended ? "end of text" : "tokens");
    err = *out ? ATOLL_OK : atoll_fail(ATOLL_INTERNAL, "text %lld cannot be told as JSON", (long long)index);
  }
  json_decref(ids);
  json_decref(tokens);
  json_decref(probabilities);
  free(prompt);
  free(made);
  return err;
}

/* This rank's texts and counts. */
static atoll_err part_json(const report *r, const texts *t, const counts *c, char **out) {
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  json_t *made = json_array(), *bytes = json_object();
  atoll_err err = ATOLL_OK;
  for (int64_t i = rank; rank < r->makers && i < t->n && err == ATOLL_OK; i += r->makers) {
    json_t *one = NULL;
    err = text_json(r, &t->text[i], i, &one);
    json_array_append_new(made, one);
  }
  for (int k = 0; k < ATOLL_MEM_CATEGORIES; k++)
    if (r->bytes[k])
      json_object_set_new(bytes, atoll_mem_category_name((atoll_mem_category)k), json_integer(r->bytes[k]));
  json_t *part =
      json_pack("{s:o, s:o, s:I, s:I, s:I, s:f, s:f, s:f}", "texts", made, "bytes", bytes, "prompt_tokens",
                (json_int_t)c->prompt_tokens, "tokens", (json_int_t)c->tokens, "bytes_read", (json_int_t)c->bytes_read,
                "prompt_seconds", c->prompt_seconds, "seconds", c->seconds, "memory_rate", r->memory_rate);
  if (err == ATOLL_OK) {
    *out = json_dumps(part, JSON_COMPACT | JSON_REAL_PRECISION(17));
    err = *out ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "%lld texts", (long long)t->n);
  }
  json_decref(part);
  return err;
}

/* Texts in their order, each by the rank that made it. */
static json_t *in_order(json_t *const *part, int makers, int64_t n) {
  json_t *all = json_array();
  for (int64_t i = 0; i < n; i++)
    json_array_append(all, json_array_get(json_object_get(part[i % makers], "texts"), (size_t)(i / makers)));
  return all;
}

/* Ranks work at the same time: tokens add up, the slowest one's seconds count. */
static json_t *summary(const report *r, json_t *const *part, int size, int64_t n) {
  json_int_t tokens = 0, prompt_tokens = 0;
  double seconds = 0, prompt_seconds = 0, rate = 0, memory = 0;
  for (int i = 0; i < size; i++) {
    double s = json_real_value(json_object_get(part[i], "seconds"));
    double p = json_real_value(json_object_get(part[i], "prompt_seconds"));
    tokens += json_integer_value(json_object_get(part[i], "tokens"));
    prompt_tokens += json_integer_value(json_object_get(part[i], "prompt_tokens"));
    rate += s > 0 ? (double)json_integer_value(json_object_get(part[i], "bytes_read")) / s : 0;
    memory += json_real_value(json_object_get(part[i], "memory_rate"));
    seconds = s > seconds ? s : seconds;
    prompt_seconds = p > prompt_seconds ? p : prompt_seconds;
  }
  json_t *root =
      json_pack("{s:s, s:s, s:s, s:s, s:i, s:O, s:I, s:f, s:I, s:f, s:f, s:f, s:o}", "model", r->source->path, "format",
                r->source->format, "family", atoll_model_family_name(r->source->model), "tokenizer",
                r->tokenizer ? atoll_tokenizer_kind(r->tokenizer) : "ids", "ranks", size, "bytes_per_rank",
                json_object_get(part[0], "bytes"), "prompt_tokens", prompt_tokens, "prompt_seconds", prompt_seconds,
                "tokens", tokens, "seconds", seconds, "tokens_per_second", seconds > 0 ? (double)tokens / seconds : 0,
                "read_bytes_per_second", rate, "texts", in_order(part, r->makers, n));
  const team_report *team = r->team;
  if (root && team)
    json_object_set_new(root, "together",
                        json_pack("{s:i,s:i,s:i,s:i,s:i,s:f,s:f}", "ranks", team->ranks, "shapes", team->of.shapes,
                                  "shared", team->of.shared, "pipelined", team->of.pipelined, "remembered",
                                  team->of.remembered, "alone_seconds", team->of.alone, "chosen_seconds",
                                  team->of.chosen));
  if (root && memory > 0) {
    json_object_set_new(root, "memory_bytes_per_second", json_real(memory));
    json_object_set_new(root, "memory_fraction", json_real(rate / memory));
  }
  return root;
}

static void print_texts(json_t *root) {
  size_t i, n = json_array_size(json_object_get(root, "texts"));
  json_t *x;
  json_array_foreach(json_object_get(root, "texts"), i, x) {
    const char *prompt = json_string_value(json_object_get(x, "prompt"));
    const char *made = json_string_value(json_object_get(x, "text"));
    int numbers = !strcmp(json_string_value(json_object_get(root, "tokenizer")), "ids");
    if (n > 1)
      printf("%s--- text %zu\n", i ? "\n" : "", i);
    printf("%s%s%s\n", prompt, numbers ? " " : "", made);
  }
}

static atoll_err print(const report *r, json_t *root) {
  if (!root)
    return atoll_fail(ATOLL_NOMEM, "the report");
  if (r->json) {
    json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    putchar('\n');
  } else {
    print_texts(root);
  }
  fflush(stdout);
  atoll_say("%lld prompt tokens in %.2f s , %lld tokens in %.2f s : %.1f tokens/s",
            (long long)json_integer_value(json_object_get(root, "prompt_tokens")),
            json_real_value(json_object_get(root, "prompt_seconds")),
            (long long)json_integer_value(json_object_get(root, "tokens")),
            json_real_value(json_object_get(root, "seconds")),
            json_real_value(json_object_get(root, "tokens_per_second")));
  return ATOLL_OK;
}

atoll_err report_texts(const report *r, const texts *t, const counts *mine) {
  int rank, size;
  char *made = NULL;
  void *all = NULL;
  int64_t *offset = NULL;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  atoll_err err = atoll_agree(MPI_COMM_WORLD, part_json(r, t, mine, &made));
  if (err == ATOLL_OK)
    err = atoll_gather_bytes(MPI_COMM_WORLD, made, (int64_t)strlen(made), &all, &offset);
  free(made);
  ATOLL_TRY(err);
  json_t **part = rank == 0 ? calloc((size_t)size, sizeof *part) : NULL;
  if (rank == 0 && !part)
    err = atoll_fail(ATOLL_NOMEM, "parts of %d ranks", size);
  for (int i = 0; i < size && part; i++)
    part[i] = json_loadb((const char *)all + offset[i], (size_t)(offset[i + 1] - offset[i]), 0, NULL);
  if (part) {
    json_t *root = summary(r, part, size, t->n);
    err = print(r, root);
    json_decref(root);
  }
  for (int i = 0; i < size && part; i++)
    json_decref(part[i]);
  free(part);
  free(all);
  free(offset);
  return atoll_agree(MPI_COMM_WORLD, err);
}
