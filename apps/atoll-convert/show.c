/* show: what a file of weights, a checkpoint, a tokenizer or a token file holds. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/ckpt.h"
#include "atoll/file.h"
#include "atoll/token.h"
#include "convert.h"

#define TOKENS_MAGIC 20240520

static uint32_t word(const unsigned char *p) {
  return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void print(const convert *c, json_t *root) {
  const char *key;
  json_t *value;
  if (c->json) {
    char *text = json_dumps(root, JSON_INDENT(2));
    puts(text ? text : "{}");
    free(text);
    return;
  }
  json_object_foreach(root, key, value) {
    if (json_is_array(value))
      continue;
    char *text = json_is_string(value) ? NULL : json_dumps(value, JSON_ENCODE_ANY);
    printf("%-12s %s\n", key, text ? text : json_string_value(value));
    free(text);
  }
  size_t i;
  json_array_foreach(json_object_get(root, "tensors"), i, value) {
    char *shape = json_dumps(json_object_get(value, "shape"), JSON_COMPACT);
    printf("  %-48s %-5s %-16s %s\n", json_string_value(json_object_get(value, "name")),
           json_string_value(json_object_get(value, "type")), shape ? shape : "",
           json_string_value(json_object_get(value, "stored")));
    free(shape);
  }
}

static json_t *sizes(const char *path, const char *format, const atoll_weights_config *config) {
  return json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "path", path, "format", format, "family",
                   config->family, "layers", (json_int_t)config->layers, "width", (json_int_t)config->width, "heads",
                   (json_int_t)config->heads, "kv_heads", (json_int_t)config->kv_heads, "ffn", (json_int_t)config->ffn,
                   "context", (json_int_t)config->context, "vocab", (json_int_t)config->vocab);
}

static int64_t add_tensor(json_t *list, const atoll_weights_item *t, const char *type, const char *stored) {
  json_t *shape = json_array();
  int64_t n = 1;
  for (int i = 0; i < t->ndim; i++) {
    (void)json_array_append_new(shape, json_integer(t->shape[i]));
    n *= t->shape[i];
  }
  (void)json_array_append_new(
      list, json_pack("{s:s, s:s, s:o, s:s}", "name", t->name, "type", type, "shape", shape, "stored", stored));
  return n;
}

static atoll_err show_checkpoint(const convert *c, const char *dir) {
  checkpoint k;
  atoll_err err = checkpoint_read(dir, 0, &k);
  if (err == ATOLL_OK) {
    json_t *root = sizes(dir, "checkpoint", &k.config), *list = json_array();
    int64_t elements = 0;
    for (int i = 0; i < k.n; i++)
      elements += add_tensor(list, &k.item[i], "F32", "param/");
    (void)json_object_set_new(root, "step", json_integer(k.step));
    (void)json_object_set_new(root, "parameters", json_integer(elements));
    (void)json_object_set_new(root, "tensors", list);
    print(c, root);
    json_decref(root);
  }
  checkpoint_free(&k);
  return err;
}

static atoll_err show_weights(const convert *c, const char *path) {
  atoll_weights *w = NULL;
  ATOLL_TRY(atoll_weights_open(path, atoll_cli_value(c->cli, "family"), &w));
  json_t *root = sizes(path, atoll_weights_format(w), atoll_weights_config_of(w)), *list = json_array();
  int64_t elements = 0;
  for (int i = 0; i < atoll_weights_count(w); i++) {
    const char *name, *type;
    atoll_weights_stored(w, i, &name, &type);
    elements += add_tensor(list, atoll_weights_at(w, i), type, name);
  }
  (void)json_object_set_new(root, "parameters", json_integer(elements));
  (void)json_object_set_new(root, "tensors", list);
  print(c, root);
  json_decref(root);
  atoll_weights_close(&w);
  return ATOLL_OK;
}

static atoll_err show_tokens(const convert *c, const char *path, const unsigned char *d, size_t n) {
  if (n < 1024 || word(d + 4) != 1 || (uint32_t)((n - 1024) / 2) != word(d + 8) || n % 2)
    return atoll_fail(ATOLL_CORRUPT, "%s: a token file of version %u and %u tokens, found %zu bytes", path,
                      n >= 8 ? word(d + 4) : 0, n >= 12 ? word(d + 8) : 0, n);
  int64_t largest = -1;
  for (size_t i = 1024; i < n; i += 2) {
    int64_t v = d[i] | d[i + 1] << 8;
    largest = v > largest ? v : largest;
  }
  json_t *root = json_pack("{s:s, s:s, s:I, s:I}", "path", path, "format", "llm.c tokens", "tokens",
                           (json_int_t)((n - 1024) / 2), "largest", (json_int_t)largest);
  print(c, root);
  json_decref(root);
  return ATOLL_OK;
}

static atoll_err show_tokenizer(const convert *c, const char *spec) {
  atoll_tokenizer *t = NULL;
  ATOLL_TRY(atoll_tokenizer_open(spec, &t));
  json_t *root =
      json_pack("{s:s, s:s, s:I, s:i, s:i}", "path", spec, "format", atoll_tokenizer_kind(t), "vocab",
                (json_int_t)atoll_tokenizer_vocab(t), "begin", atoll_tokenizer_begin(t), "end", atoll_tokenizer_end(t));
  print(c, root);
  json_decref(root);
  atoll_tokenizer_close(&t);
  return ATOLL_OK;
}

atoll_err convert_show(convert *c) {
  const char *path = atoll_cli_operand(c->cli, 1);
  char dir[4096];
  if (atoll_cli_operand_count(c->cli) != 2)
    return atoll_fail(ATOLL_USAGE, "show takes one path, or gpt2:DIR, llama2c:FILE or llama3:FILE for a tokenizer");
  if (!strncmp(path, "gpt2:", 5) || !strncmp(path, "llama2c:", 8) || !strncmp(path, "llama3:", 7))
    return show_tokenizer(c, path);
  if (atoll_ckpt_locate(path, dir, sizeof dir))
    return show_checkpoint(c, dir);
  if (!atoll_file_is_dir(path)) {
    const void *map = NULL;
    size_t n = 0;
    ATOLL_TRY(atoll_file_map(path, &map, &n));
    int tokens = n >= 4 && word(map) == TOKENS_MAGIC;
    atoll_err err = tokens ? show_tokens(c, path, map, n) : ATOLL_OK;
    atoll_file_unmap(&map, n);
    if (tokens)
      return err;
  }
  return show_weights(c, path);
}
