/* safetensors: 8 bytes with the header's length, a JSON object, then the data.
 *
 * The header gives each tensor its type, shape and a range of the data; together the ranges cover the data exactly, in
 * whatever order. Nothing of it is believed: lengths, ranges, products and names are checked before a byte of data is
 * used. Format: huggingface/safetensors, README ("Format"); its limit of 100 MB for a header is kept. */
#include "weights_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEADER_MOST (UINT64_C(100) * 1000 * 1000)

static const struct {
  const char *name;
  int bytes;
  weights_type type;
} types[] = {{"F32", 4, TYPE_F32},      {"F16", 2, TYPE_F16},       {"BF16", 2, TYPE_BF16},     {"F64", 8, TYPE_OTHER},
             {"I64", 8, TYPE_OTHER},    {"I32", 4, TYPE_OTHER},     {"I16", 2, TYPE_OTHER},     {"I8", 1, TYPE_OTHER},
             {"U64", 8, TYPE_OTHER},    {"U32", 4, TYPE_OTHER},     {"U16", 2, TYPE_OTHER},     {"U8", 1, TYPE_OTHER},
             {"BOOL", 1, TYPE_OTHER},   {"F8_E4M3", 1, TYPE_OTHER}, {"F8_E5M2", 1, TYPE_OTHER}, {"C64", 8, TYPE_OTHER},
             {"F8_E8M0", 1, TYPE_OTHER}};

/* A non-negative integer of the header. */
static int whole(const json_t *v, uint64_t *out) {
  if (!json_is_integer(v) || json_integer_value(v) < 0)
    return 0;
  *out = (uint64_t)json_integer_value(v);
  return 1;
}

static atoll_err read_entry(const char *path, const char *name, json_t *entry, uint64_t data_bytes, weights_raw *raw) {
  const char *type = json_string_value(json_object_get(entry, "dtype"));
  json_t *shape = json_object_get(entry, "shape"), *range = json_object_get(entry, "data_offsets");
  *raw = (weights_raw){.name = name, .type_name = type};
  if (!type || !json_is_array(shape) || !json_is_array(range) || json_array_size(range) != 2 ||
      !whole(json_array_get(range, 0), &raw->begin) || !whole(json_array_get(range, 1), &raw->end))
    return atoll_fail(ATOLL_CORRUPT, "%s: tensor %s: expected dtype, shape and two data_offsets", path, name);
  size_t t = 0, n = sizeof types / sizeof *types;
  while (t < n && strcmp(types[t].name, type) != 0)
    t++;
  if (t == n)
    return atoll_fail(ATOLL_CORRUPT, "%s: tensor %s has the unknown type '%.40s'", path, name, type);
  if (json_array_size(shape) > WEIGHTS_NDIM_MAX)
    return atoll_fail(ATOLL_UNSUPPORTED, "%s: tensor %s has %zu dimensions, at most %d are read", path, name,
                      json_array_size(shape), WEIGHTS_NDIM_MAX);
  raw->type = types[t].type;
  raw->ndim = (int)json_array_size(shape);
  uint64_t bytes = (uint64_t)types[t].bytes, extent;
  for (int i = 0; i < raw->ndim; i++) {
    if (!whole(json_array_get(shape, (size_t)i), &extent) || __builtin_mul_overflow(bytes, extent, &bytes) ||
        bytes > INT64_MAX)
      return atoll_fail(ATOLL_CORRUPT, "%s: tensor %s: extent %d is no size, or the whole exceeds 2^63 bytes", path,
                        name, i);
    raw->shape[i] = (int64_t)extent;
  }
  if (raw->end < raw->begin || raw->end > data_bytes)
    return atoll_fail(ATOLL_CORRUPT,
                      "%s: truncated or damaged: tensor %s lies at %llu..%llu, the file has %llu bytes "
                      "of data",
                      path, name, (unsigned long long)raw->begin, (unsigned long long)raw->end,
                      (unsigned long long)data_bytes);
  if (raw->end - raw->begin != bytes) {
    char text[160];
    return atoll_fail(ATOLL_CORRUPT, "%s: tensor %s: %s of %s are %llu bytes, data_offsets say %llu", path, name,
                      weights_shape_text(raw->ndim, raw->shape, text, sizeof text), type, (unsigned long long)bytes,
                      (unsigned long long)(raw->end - raw->begin));
  }
  return ATOLL_OK;
}

static int compare_ranges(const void *a, const void *b) {
  const weights_raw *x = *(const weights_raw *const *)a, *y = *(const weights_raw *const *)b;
  if (x->begin != y->begin)
    return x->begin < y->begin ? -1 : 1;
  return (x->end > y->end) - (x->end < y->end);
}

/* Ranges of tensors first .. end, which must cover the data without gap or overlap. */
static atoll_err check_cover(const char *path, const atoll_weights *w, int first, uint64_t data_bytes) {
  int n = w->raws - first;
  const weights_raw **order = malloc((size_t)(n ? n : 1) * sizeof *order);
  if (!order)
    return atoll_fail(ATOLL_NOMEM, "list of %d tensors", n);
  for (int i = 0; i < n; i++)
    order[i] = &w->raw[first + i];
  qsort(order, (size_t)n, sizeof *order, compare_ranges);
  atoll_err err = ATOLL_OK;
  uint64_t at = 0;
  for (int i = 0; i < n && err == ATOLL_OK; at = order[i++]->end)
    if (order[i]->begin < at)
      err = atoll_fail(ATOLL_CORRUPT, "%s: tensors %s and %s overlap at byte %llu of the data", path,
                       order[i - 1]->name, order[i]->name, (unsigned long long)order[i]->begin);
    else if (order[i]->begin > at)
      err = atoll_fail(ATOLL_CORRUPT, "%s: gap of %llu bytes before tensor %s", path,
                       (unsigned long long)(order[i]->begin - at), order[i]->name);
  if (err == ATOLL_OK && at != data_bytes)
    err = atoll_fail(ATOLL_CORRUPT, "%s: %llu bytes of data, the header describes %llu", path,
                     (unsigned long long)data_bytes, (unsigned long long)at);
  free(order);
  return err;
}

/* Sizes that a file of Atoll's carries. */
static atoll_err read_metadata(atoll_weights *w, const char *path, json_t *meta) {
  const char *key;
  json_t *value;
  if (!json_is_object(meta))
    return atoll_fail(ATOLL_CORRUPT, "%s: __metadata__ is no object", path);
  json_object_foreach(meta, key, value) if (!json_is_string(value)) return atoll_fail(
      ATOLL_CORRUPT, "%s: __metadata__.%s is no text", path, key);
  const char *text = json_string_value(json_object_get(meta, "atoll.config"));
  if (!text || w->config.family[0])
    return ATOLL_OK;
  json_error_t e;
  json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &e);
  if (!root)
    return atoll_fail(ATOLL_CORRUPT, "%s: __metadata__.atoll.config: %s", path, e.text);
  atoll_err err = weights_config_read(path, root, &w->config);
  json_decref(root);
  return err;
}

atoll_err weights_read_safetensors(atoll_weights *w, weights_part *p) {
  const unsigned char *d = p->map;
  w->format = "safetensors";
  if (p->bytes < 8)
    return atoll_fail(ATOLL_CORRUPT, "%s: %zu bytes, a safetensors file has 10 at least", p->path, p->bytes);
  uint64_t header = weights_u64(d), behind = p->bytes - 8;
  if (header > behind || header > HEADER_MOST)
    return atoll_fail(ATOLL_CORRUPT, "%s: a header of %llu bytes, %llu follow, at most %llu are read", p->path,
                      (unsigned long long)header, (unsigned long long)behind, (unsigned long long)HEADER_MOST);
  json_error_t e;
  p->header = json_loadb((const char *)d + 8, (size_t)header, JSON_REJECT_DUPLICATES, &e);
  if (!p->header)
    return atoll_fail(ATOLL_CORRUPT, "%s: header byte %d: %s", p->path, e.position, e.text);
  if (!json_is_object(p->header))
    return atoll_fail(ATOLL_CORRUPT, "%s: the header is no JSON object", p->path);
  uint64_t data_bytes = behind - header;
  int first = w->raws;
  const char *name;
  json_t *entry;
  json_object_foreach(p->header, name, entry) {
    weights_raw raw;
    if (!strcmp(name, "__metadata__")) {
      ATOLL_TRY(read_metadata(w, p->path, entry));
      continue;
    }
    ATOLL_TRY(read_entry(p->path, name, entry, data_bytes, &raw));
    raw.data = d + 8 + header + raw.begin;
    ATOLL_TRY(weights_add_raw(w, &raw));
  }
  return check_cover(p->path, w, first, data_bytes);
}

/* ---- writing ---- */

/* Shape in the file. */
static void stored_shape(const atoll_weights_item *t, weights_turn turn, int64_t shape[ATOLL_NDIM_MAX]) {
  for (int i = 0; i < t->ndim; i++)
    shape[i] = t->shape[turn == TURN_TRANSPOSE ? t->ndim - 1 - i : i];
}

static json_t *describe(const atoll_weights_item *t, weights_turn turn, const char *type, int64_t begin, int64_t end) {
  int64_t extent[ATOLL_NDIM_MAX] = {0};
  stored_shape(t, turn, extent);
  json_t *shape = json_array();
  for (int i = 0; i < t->ndim; i++)
    (void)json_array_append_new(shape, json_integer(extent[i]));
  return json_pack("{s:s, s:o, s:[I, I]}", "dtype", type, "shape", shape, "data_offsets", (json_int_t)begin,
                   (json_int_t)end);
}

static atoll_err describe_all(const atoll_weights_config *config, const atoll_weights_source *s,
                              const weights_family *f, atoll_dtype dtype, json_t *root) {
  json_t *sizes = weights_config_object(config);
  char *text = sizes ? json_dumps(sizes, JSON_COMPACT) : NULL;
  json_decref(sizes);
  int bad = !text || json_object_set_new(root, "__metadata__",
                                         json_pack("{s:s, s:s}", "format", "pt", "atoll.config", text)) != 0;
  free(text);
  int64_t at = 0, width = dtype == ATOLL_BF16 ? 2 : 4;
  for (int i = 0; i < s->n && !bad; i++) {
    int layer = 0;
    char name[160];
    const weights_rule *r = weights_rule_of_model(f, s->item[i].name, &layer);
    if (!r)
      return atoll_fail(ATOLL_MISMATCH, "tensor %s has no place in family %s", s->item[i].name, f->name);
    ATOLL_TRY(weights_rule_name(r->file, layer, name, sizeof name));
    int64_t end = at + width * weights_elements(s->item[i].ndim, s->item[i].shape);
    bad = json_object_set_new(root, name, describe(&s->item[i], r->turn, width == 2 ? "BF16" : "F32", at, end)) != 0;
    at = end;
  }
  return bad ? atoll_fail(ATOLL_NOMEM, "header of %d tensors", s->n) : ATOLL_OK;
}

static atoll_err put_header(atoll_file_writer *file, json_t *root) {
  char *text = json_dumps(root, JSON_COMPACT);
  if (!text)
    return atoll_fail(ATOLL_NOMEM, "header of %zu tensors", json_object_size(root));
  size_t n = strlen(text), pad = (8 - n % 8) % 8; /* data begin aligned */
  unsigned char length[8] = {0};
  weights_put_u32(length, (uint32_t)(n + pad));
  atoll_err err = n + pad > HEADER_MOST
                      ? atoll_fail(ATOLL_UNSUPPORTED, "a header of %zu bytes, the format's limit is %llu", n,
                                   (unsigned long long)HEADER_MOST)
                      : atoll_file_writer_add(file, length, 8);
  if (err == ATOLL_OK)
    err = atoll_file_writer_add(file, text, n);
  if (err == ATOLL_OK)
    err = atoll_file_writer_add(file, "       ", pad);
  free(text);
  return err;
}

static atoll_err put_tensor(atoll_file_writer *file, const atoll_weights_config *config, const atoll_weights_source *s,
                            const weights_family *f, int i, atoll_dtype dtype) {
  int layer;
  const atoll_weights_item *t = &s->item[i];
  weights_turn turn = weights_rule_of_model(f, t->name, &layer)->turn;
  int64_t n = weights_elements(t->ndim, t->shape);
  float *v = malloc((size_t)(n ? n : 1) * sizeof *v);
  float *turned = turn == TURN_NONE ? v : malloc((size_t)(n ? n : 1) * sizeof *v);
  atoll_err err =
      v && turned ? s->read(s->arg, i, v) : atoll_fail(ATOLL_NOMEM, "tensor %s, %lld elements", t->name, (long long)n);
  if (err == ATOLL_OK && turn != TURN_NONE && n > 0)
    weights_turn_values(turn, 1, t->shape[0], t->shape[1], weights_turn_heads(turn, config), v, turned);
  if (err == ATOLL_OK)
    err = weights_put_values(file, turned, n, dtype);
  if (turned != v)
    free(turned);
  free(v);
  return err;
}

atoll_err atoll_weights_write_safetensors(const char *path, const atoll_weights_config *config,
                                          const atoll_weights_source *source, atoll_dtype dtype) {
  const weights_family *f = weights_family_find(config->family);
  if (!f)
    return atoll_fail(ATOLL_UNSUPPORTED, "family '%s', expected gpt2, llama, bert or roberta", config->family);
  if (dtype != ATOLL_F32 && dtype != ATOLL_BF16)
    return atoll_fail(ATOLL_USAGE, "type %s, expected f32 or bf16", atoll_dtype_name(dtype));
  atoll_file_writer *file = NULL;
  json_t *root = json_object();
  atoll_err err = root ? describe_all(config, source, f, dtype, root) : atoll_fail(ATOLL_NOMEM, "header of %s", path);
  if (err == ATOLL_OK)
    err = atoll_file_writer_open(path, &file);
  if (err == ATOLL_OK)
    err = put_header(file, root);
  for (int i = 0; i < source->n && err == ATOLL_OK; i++)
    err = put_tensor(file, config, source, f, i, dtype);
  json_decref(root);
  if (err == ATOLL_OK)
    return atoll_file_writer_commit(&file);
  atoll_file_writer_discard(&file);
  return err;
}
