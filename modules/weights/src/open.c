/* Finding out what a path is, and showing its tensors as logical ones. */
#include "weights_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- raw tensors ---- */

atoll_err weights_add_raw(atoll_weights *w, const weights_raw *raw) {
  if ((w->raws & (w->raws - 1)) == 0) { /* room doubles at powers of two */
    size_t room = w->raws ? 2 * (size_t)w->raws : 1;
    weights_raw *grown = realloc(w->raw, room * sizeof *grown);
    if (!grown)
      return atoll_fail(ATOLL_NOMEM, "list of %zu tensors", room);
    w->raw = grown;
    char **names = realloc(w->names, room * sizeof *names);
    if (!names)
      return atoll_fail(ATOLL_NOMEM, "list of %zu tensors", room);
    w->names = names;
  }
  w->names[w->raws] = NULL;
  w->raw[w->raws++] = *raw;
  return ATOLL_OK;
}

atoll_err weights_add_named(atoll_weights *w, const char *pattern, int layer, weights_type type, int ndim, int64_t rows,
                            int64_t cols, const unsigned char *data) {
  char name[96];
  ATOLL_TRY(weights_rule_name(pattern, layer, name, sizeof name));
  weights_raw raw = {.type = type, .type_name = type == TYPE_F32 ? "F32" : "BF16", .ndim = ndim, .data = data};
  raw.shape[0] = rows;
  raw.shape[1] = cols;
  ATOLL_TRY(weights_add_raw(w, &raw));
  char *copy = strdup(name);
  if (!copy)
    return atoll_fail(ATOLL_NOMEM, "tensor %s", name);
  w->names[w->raws - 1] = copy;
  w->raw[w->raws - 1].name = copy;
  return ATOLL_OK;
}

/* ---- parts ---- */

static atoll_err add_part(atoll_weights *w, const char *path, const void *bytes, size_t n) {
  weights_part *grown = realloc(w->part, ((size_t)w->parts + 1) * sizeof *grown);
  char *copy = strdup(path);
  if (grown)
    w->part = grown;
  if (!grown || !copy) {
    free(copy);
    return atoll_fail(ATOLL_NOMEM, "%s", path);
  }
  weights_part *p = &w->part[w->parts++];
  *p = (weights_part){.path = copy, .map = bytes, .bytes = n, .borrowed = 1};
  if (bytes || n)
    return ATOLL_OK;
  atoll_err err = atoll_file_map(path, &p->map, &p->bytes);
  p->borrowed = err != ATOLL_OK;
  return err;
}

static atoll_err read_part(atoll_weights *w, weights_part *p) {
  const unsigned char *d = p->map;
  size_t n = strlen(p->path), suffix = strlen(".safetensors");
  int named = n >= suffix && !strcmp(p->path + n - suffix, ".safetensors");
  if (named || (p->bytes > 8 && d[8] == '{' && weights_u64(d) <= p->bytes))
    return weights_read_safetensors(w, p);
  uint32_t magic = p->bytes >= 4 ? weights_u32(d) : 0;
  if (magic == WEIGHTS_LLMC_MAGIC)
    return weights_read_llmc(w, p);
  if (weights_is_llama2c(d, p->bytes))
    return weights_read_llama2c(w, p);
  if (magic == 0x04034b50 || (p->bytes > 2 && d[0] == 0x80 && d[1] <= 5))
    return atoll_fail(ATOLL_UNSUPPORTED, "%s is a pickled PyTorch file, which may run code: save it as safetensors",
                      p->path);
  return atoll_fail(ATOLL_CORRUPT,
                    "%s: %zu bytes beginning with %u: neither safetensors, nor llm.c's model (%d), nor "
                    "llama2.c's (sizes that add up to the file's)",
                    p->path, p->bytes, magic, WEIGHTS_LLMC_MAGIC);
}

/* The files that model.safetensors.index.json names; each tensor must be in the file it says. */
static atoll_err read_index(atoll_weights *w, const char *folder, const char *index) {
  json_error_t e;
  char *text = NULL, path[4096];
  size_t n = 0;
  ATOLL_TRY(atoll_file_read(index, &text, &n));
  json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &e), *map = json_object_get(root, "weight_map"), *file;
  free(text);
  atoll_err err = ATOLL_OK;
  if (!root)
    err = atoll_fail(ATOLL_CORRUPT, "%s:%d:%d: %s", index, e.line, e.column, e.text);
  else if (!json_is_object(map) || json_object_size(map) == 0)
    err = atoll_fail(ATOLL_CORRUPT, "%s has no weight_map", index);
  const char *tensor;
  json_object_foreach(map, tensor, file) {
    const char *name = json_string_value(file);
    if (err == ATOLL_OK && (!name || !name[0] || strchr(name, '/')))
      err = atoll_fail(ATOLL_CORRUPT, "%s: tensor %s: the file is not a name in this folder", index, tensor);
    if (err == ATOLL_OK)
      err = atoll_path_join(path, sizeof path, folder, name);
    int known = 0;
    for (int i = 0; i < w->parts && err == ATOLL_OK; i++)
      known |= !strcmp(w->part[i].path, path);
    if (err == ATOLL_OK && !known)
      err = add_part(w, path, NULL, 0);
    if (err == ATOLL_OK && !known)
      err = weights_read_safetensors(w, &w->part[w->parts - 1]);
    int found = 0;
    for (int i = 0; i < w->raws && err == ATOLL_OK; i++)
      found |= !strcmp(w->raw[i].name, tensor);
    if (err == ATOLL_OK && !found)
      err = atoll_fail(ATOLL_CORRUPT, "%s: tensor %s is not in %s", index, tensor, path);
    if (err != ATOLL_OK)
      break;
  }
  json_decref(root);
  return err;
}

static atoll_err read_config(const char *path, atoll_weights_config *c) {
  json_error_t e;
  char *text = NULL;
  size_t n = 0;
  ATOLL_TRY(atoll_file_read(path, &text, &n));
  json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &e);
  free(text);
  if (!root)
    return atoll_fail(ATOLL_CORRUPT, "%s:%d:%d: %s", path, e.line, e.column, e.text);
  atoll_err err = weights_config_read(path, root, c);
  json_decref(root);
  return err;
}

static atoll_err read_folder(atoll_weights *w, const char *folder) {
  char path[4096];
  ATOLL_TRY(atoll_path_join(path, sizeof path, folder, "config.json"));
  if (atoll_file_exists(path))
    ATOLL_TRY(read_config(path, &w->config));
  ATOLL_TRY(atoll_path_join(path, sizeof path, folder, "model.safetensors"));
  if (atoll_file_exists(path)) {
    ATOLL_TRY(add_part(w, path, NULL, 0));
    return weights_read_safetensors(w, &w->part[0]);
  }
  ATOLL_TRY(atoll_path_join(path, sizeof path, folder, "model.safetensors.index.json"));
  if (atoll_file_exists(path))
    return read_index(w, folder, path);
  return atoll_fail(ATOLL_NOINPUT, "%s holds neither model.safetensors nor model.safetensors.index.json", folder);
}

static atoll_err read_path(atoll_weights *w, const char *path) {
  if (atoll_file_is_dir(path))
    return read_folder(w, path);
  const char *base = strrchr(path, '/');
  char config[4096];
  base = base ? base + 1 : path;
  if (!strcmp(base, "model.safetensors") && (size_t)(base - path) + 12 < sizeof config) {
    snprintf(config, sizeof config, "%.*sconfig.json", (int)(base - path), path);
    if (atoll_file_exists(config))
      ATOLL_TRY(read_config(config, &w->config));
  }
  ATOLL_TRY(add_part(w, path, NULL, 0));
  return read_part(w, &w->part[0]);
}

/* ---- logical tensors ---- */

static int compare_names(const void *a, const void *b) {
  return strcmp((*(const weights_raw *const *)a)->name, (*(const weights_raw *const *)b)->name);
}

/* Two parts of an index may not hold one tensor. */
static atoll_err refuse_repeated(const atoll_weights *w, const char *path) {
  const weights_raw **by_name = malloc((size_t)(w->raws ? w->raws : 1) * sizeof *by_name);
  if (!by_name)
    return atoll_fail(ATOLL_NOMEM, "list of %d tensors", w->raws);
  for (int i = 0; i < w->raws; i++)
    by_name[i] = &w->raw[i];
  qsort(by_name, (size_t)w->raws, sizeof *by_name, compare_names);
  atoll_err err = ATOLL_OK;
  for (int i = 1; i < w->raws && err == ATOLL_OK; i++)
    if (!strcmp(by_name[i]->name, by_name[i - 1]->name))
      err = atoll_fail(ATOLL_CORRUPT, "%s: tensor %s is in two files", path, by_name[i]->name);
  free(by_name);
  return err;
}

static const weights_family *tell_family(const atoll_weights *w) {
  const weights_family *f;
  for (int k = 0; (f = weights_family_at(k)); k++)
    for (int i = 0; i < w->raws; i++) {
      size_t skip = strlen(f->prefix);
      const char *name = w->raw[i].name;
      if (!strncmp(name, f->prefix, skip) && !strcmp(name + skip, f->probe))
        return f;
    }
  for (int k = 0; (f = weights_family_at(k)); k++) /* without prefix bert and roberta look alike */
    for (int i = 0; i < w->raws; i++)
      if (!strcmp(w->raw[i].name, f->probe) && strcmp(f->name, "bert") != 0 && strcmp(f->name, "roberta") != 0)
        return f;
  return NULL;
}

static atoll_err settle_family(atoll_weights *w, const char *path, const char *family, const weights_family **out) {
  const char *told = w->config.family;
  if (family && !weights_family_find(family))
    return atoll_fail(ATOLL_USAGE, "family '%s', expected gpt2, llama, bert or roberta", family);
  if (family && told[0] && strcmp(family, told) != 0)
    return atoll_fail(ATOLL_MISMATCH, "%s is of family %s, asked for %s", path, told, family);
  *out = family ? weights_family_find(family) : told[0] ? weights_family_find(told) : tell_family(w);
  if (!*out)
    return atoll_fail(ATOLL_UNSUPPORTED,
                      "%s: the tensors (%s, ...) are of no known architecture: expected gpt2, llama, bert or roberta",
                      path, w->raws ? w->raw[0].name : "none");
  snprintf(w->config.family, sizeof w->config.family, "%s", (*out)->name);
  return ATOLL_OK;
}

static int raw_format(const atoll_weights *w) { return strcmp(w->format, "safetensors") != 0; }

static atoll_err add_item(atoll_weights *w, const weights_raw *raw, const weights_rule *rule, int layer) {
  char shape[160];
  weights_turn turn = raw_format(w) ? rule->raw_turn : rule->turn;
  if (raw->type == TYPE_OTHER)
    return atoll_fail(ATOLL_CORRUPT, "tensor %s has type %s, expected F32, F16 or BF16", raw->name, raw->type_name);
  if (raw->ndim < 1 || raw->ndim > (turn == TURN_NONE ? ATOLL_NDIM_MAX : 2) || (turn != TURN_NONE && raw->ndim != 2))
    return atoll_fail(ATOLL_MISMATCH, "tensor %s is %s, expected %s", raw->name,
                      weights_shape_text(raw->ndim, raw->shape, shape, sizeof shape),
                      turn == TURN_NONE ? "1 to 4 dimensions" : "a matrix");
  atoll_weights_item *t = &w->item[w->items];
  memset(t, 0, sizeof *t);
  ATOLL_TRY(weights_rule_name(rule->model, layer, t->name, sizeof t->name));
  t->ndim = raw->ndim;
  for (int i = 0; i < raw->ndim; i++)
    t->shape[i] = raw->shape[turn == TURN_TRANSPOSE ? raw->ndim - 1 - i : i];
  for (int i = 0; i < w->items; i++)
    if (!strcmp(w->item[i].name, t->name))
      return atoll_fail(ATOLL_CORRUPT, "tensors %s and %s are both the parameter %s", w->raw[w->entry[i].raw].name,
                        raw->name, t->name);
  w->entry[w->items++] = (weights_entry){(int)(raw - w->raw), turn};
  return ATOLL_OK;
}

/* A tensor that repeats another one: equal in every bit, or, for a head of its own, a parameter. */
static atoll_err add_repeated(atoll_weights *w, const weights_raw *raw, const weights_rule *rule,
                              const weights_family *f) {
  int i = atoll_weights_find(w, rule->role == ROLE_HEAD ? f->probe : rule->model);
  const weights_raw *first = i < 0 ? NULL : &w->raw[w->entry[i].raw];
  int same = first && first->type == raw->type && first->ndim == raw->ndim &&
             !memcmp(first->shape, raw->shape, sizeof raw->shape) &&
             (!first->data || !raw->data ||
              !memcmp(first->data, raw->data,
                      (size_t)weights_elements(raw->ndim, raw->shape) * weights_type_bytes(raw->type)));
  if (rule->role == ROLE_HEAD && !same) {
    w->config.untied = 1;
    return add_item(w, raw, rule, 0);
  }
  if (!same)
    return atoll_fail(ATOLL_MISMATCH, "tensor %s differs from %s, to which it is tied in family %s", raw->name,
                      rule->model, f->name);
  return ATOLL_OK;
}

static atoll_err make_items(atoll_weights *w, const char *path, const weights_family *f) {
  w->item = calloc((size_t)(w->raws ? w->raws : 1), sizeof *w->item);
  w->entry = calloc((size_t)(w->raws ? w->raws : 1), sizeof *w->entry);
  if (!w->item || !w->entry)
    return atoll_fail(ATOLL_NOMEM, "list of %d tensors", w->raws);
  for (int pass = 0; pass < 2; pass++) /* what repeats others comes after them */
    for (int i = 0; i < w->raws; i++) {
      int layer = 0, unused;
      const weights_raw *raw = &w->raw[i];
      const weights_rule *rule =
          raw_format(w) ? weights_rule_of_model(f, raw->name, &layer) : weights_rule_find(f, raw->name, &unused);
      if (!rule)
        return atoll_fail(ATOLL_MISMATCH, "%s: tensor %s has no place in family %s", path, raw->name, f->name);
      if (!raw_format(w))
        layer = unused;
      if (rule->role <= ROLE_EXTRA && pass == 0)
        ATOLL_TRY(add_item(w, raw, rule, layer));
      if ((rule->role == ROLE_HEAD || rule->role == ROLE_SAME) && pass == 1)
        ATOLL_TRY(add_repeated(w, raw, rule, f));
    }
  return ATOLL_OK;
}

static atoll_err finish_open(atoll_weights *w, const char *path, const char *family) {
  const weights_family *f = NULL;
  ATOLL_TRY(refuse_repeated(w, path));
  ATOLL_TRY(settle_family(w, path, family, &f));
  ATOLL_TRY(make_items(w, path, f));
  return weights_config_infer(w, path);
}

static atoll_err open_either(const char *path, const void *bytes, size_t n, const char *family, atoll_weights **out) {
  atoll_weights *w = calloc(1, sizeof *w);
  if (!w)
    return atoll_fail(ATOLL_NOMEM, "%s", path);
  atoll_err err = ATOLL_OK;
  if (!bytes) {
    err = read_path(w, path);
  } else {
    err = add_part(w, path, bytes, n);
    if (err == ATOLL_OK)
      err = read_part(w, &w->part[0]);
  }
  if (err == ATOLL_OK)
    err = finish_open(w, path, family);
  if (err != ATOLL_OK)
    atoll_weights_close(&w);
  else
    *out = w;
  return err;
}

atoll_err atoll_weights_open(const char *path, const char *family, atoll_weights **out) {
  return open_either(path, NULL, 0, family, out);
}

atoll_err atoll_weights_open_bytes(const char *name, const void *bytes, size_t n, const char *family,
                                   atoll_weights **out) {
  return open_either(name, bytes, n, family, out);
}

void atoll_weights_close(atoll_weights **weights) {
  if (!weights || !*weights)
    return;
  atoll_weights *w = *weights;
  for (int i = 0; i < w->parts; i++) {
    if (!w->part[i].borrowed)
      atoll_file_unmap(&w->part[i].map, w->part[i].bytes);
    json_decref(w->part[i].header);
    free(w->part[i].path);
  }
  for (int i = 0; i < w->raws; i++)
    free(w->names[i]);
  free(w->names);
  free(w->part);
  free(w->raw);
  free(w->item);
  free(w->entry);
  free(w);
  *weights = NULL;
}

/* ---- what it holds ---- */

const char *atoll_weights_format(const atoll_weights *w) { return w->format; }

const atoll_weights_config *atoll_weights_config_of(const atoll_weights *w) { return &w->config; }

int atoll_weights_count(const atoll_weights *w) { return w->items; }

const atoll_weights_item *atoll_weights_at(const atoll_weights *w, int i) {
  return i >= 0 && i < w->items ? &w->item[i] : NULL;
}

int atoll_weights_find(const atoll_weights *w, const char *name) {
  for (int i = 0; i < w->items; i++)
    if (!strcmp(w->item[i].name, name))
      return i;
  return -1;
}

void atoll_weights_stored(const atoll_weights *w, int i, const char **name, const char **type) {
  *name = w->raw[w->entry[i].raw].name;
  *type = w->raw[w->entry[i].raw].type_name;
}

atoll_err atoll_weights_set_heads(atoll_weights *w, int64_t heads) {
  if (heads < 1 || w->config.width % heads)
    return atoll_fail(ATOLL_USAGE, "%lld heads do not divide the width %lld", (long long)heads,
                      (long long)w->config.width);
  w->config.heads = heads;
  w->config.kv_heads = 0;
  ATOLL_TRY(weights_config_keys(w, w->part[0].path));
  if (!w->config.kv_heads)
    w->config.kv_heads = heads;
  return ATOLL_OK;
}

atoll_err atoll_weights_read(atoll_weights *w, int i, float *out) {
  const weights_raw *raw = &w->raw[w->entry[i].raw];
  weights_turn turn = w->entry[i].turn;
  int64_t n = weights_elements(raw->ndim, raw->shape);
  if (turn == TURN_NONE || n == 0) { /* one extent of an empty tensor may be huge: nothing may loop over it */
    weights_decode(raw->type, raw->data, n, out);
    return ATOLL_OK;
  }
  const int64_t *shape = w->item[i].shape;
  int64_t heads = weights_turn_heads(turn, &w->config);
  if (turn != TURN_TRANSPOSE && (heads < 1 || shape[0] % heads || shape[0] / heads % 2))
    return atoll_fail(ATOLL_USAGE, "tensor %s: %lld rows, %lld heads: rotary order needs an even size of head",
                      raw->name, (long long)shape[0], (long long)heads);
  float *stored = malloc((size_t)(n ? n : 1) * sizeof *stored);
  if (!stored)
    return atoll_fail(ATOLL_NOMEM, "tensor %s, %lld elements", raw->name, (long long)n);
  weights_decode(raw->type, raw->data, n, stored);
  weights_turn_values(turn, 0, shape[0], shape[1], heads, stored, out);
  free(stored);
  return ATOLL_OK;
}

static atoll_err read_own(void *arg, int i, float *out) { return atoll_weights_read(arg, i, out); }

atoll_weights_source atoll_weights_as_source(atoll_weights *w) {
  return (atoll_weights_source){w->item, w->items, read_own, w};
}

atoll_err atoll_weights_check(const atoll_weights *w, const atoll_model *model) {
  char have[160], want[160];
  for (int i = 0; i < atoll_model_params_count(model); i++) {
    const atoll_model_param *p = atoll_model_param_at(model, i);
    int k = atoll_weights_find(w, p->name);
    if (k < 0)
      return atoll_fail(ATOLL_MISMATCH, "the model's tensor %s (%s) is not in %s", p->name,
                        weights_shape_text(p->ndim, p->shape, want, sizeof want), w->part[0].path);
    const weights_raw *raw = &w->raw[w->entry[k].raw];
    if (p->ndim != w->item[k].ndim || memcmp(p->shape, w->item[k].shape, (size_t)p->ndim * sizeof *p->shape) != 0)
      return atoll_fail(ATOLL_MISMATCH, "tensor %s: %s has %s%s, the model %s", raw->name, w->part[0].path,
                        weights_shape_text(raw->ndim, raw->shape, have, sizeof have),
                        w->entry[k].turn == TURN_TRANSPOSE ? " (transposed)" : "",
                        weights_shape_text(p->ndim, p->shape, want, sizeof want));
  }
  const weights_family *f = weights_family_find(w->config.family);
  for (int k = 0, layer; k < w->items; k++)
    if (atoll_model_param_find(model, w->item[k].name) < 0 &&
        weights_rule_of_model(f, w->item[k].name, &layer)->role != ROLE_EXTRA)
      return atoll_fail(ATOLL_MISMATCH, "tensor %s of %s is no parameter of the model", w->raw[w->entry[k].raw].name,
                        w->part[0].path);
  return ATOLL_OK;
}
