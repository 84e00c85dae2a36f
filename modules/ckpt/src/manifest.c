/* COMMIT: the only thing that makes a checkpoint exist.
 *
 * A YAML text whose last line is a comment with the digest of everything before it. It lists every file with length and
 * digest, every block of every tensor with its place, and the state that is not a tensor. A truncated, edited or stale
 * COMMIT fails its own digest or that of a file. */
#include "ckpt_impl.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/file.h"
#include "atoll/yaml.h"

#define TRAILER "# digest "

void atoll_ckpt_meta_free(atoll_ckpt_meta *meta) {
  free(meta->plan);
  free(meta->config);
  meta->plan = meta->config = NULL;
}

void manifest_free(manifest *m) {
  for (int i = 0; i < m->files; i++)
    free(m->file[i].block);
  free(m->file);
  atoll_ckpt_meta_free(&m->meta);
  memset(m, 0, sizeof *m);
}

atoll_err manifest_add_file(manifest *m, const char *name, int64_t bytes, atoll_digest digest, manifest_file **file) {
  manifest_file *grown = realloc(m->file, (size_t)(m->files + 1) * sizeof *grown);
  if (!grown)
    return atoll_fail(ATOLL_NOMEM, "checkpoint of %d files", m->files + 1);
  m->file = grown;
  manifest_file *f = &grown[m->files++];
  memset(f, 0, sizeof *f);
  snprintf(f->name, sizeof f->name, "%s", name);
  f->bytes = bytes;
  f->digest = digest;
  if (file)
    *file = f;
  return ATOLL_OK;
}

atoll_err manifest_add_block(manifest_file *f, const manifest_block *block) {
  manifest_block *grown = realloc(f->block, (size_t)(f->blocks + 1) * sizeof *grown);
  if (!grown)
    return atoll_fail(ATOLL_NOMEM, "checkpoint file of %d blocks", f->blocks + 1);
  f->block = grown;
  grown[f->blocks++] = *block;
  return ATOLL_OK;
}

/* ---- out -----------------------------------------------------------------------------------------------------------
 */

static void put_files(const manifest *m, atoll_yaml_out *o) {
  char hex[33];
  atoll_yaml_open_list(o, "files");
  for (int i = 0; i < m->files; i++) {
    const manifest_file *f = &m->file[i];
    atoll_yaml_open_map(o, NULL);
    atoll_yaml_put_text(o, "name", f->name);
    atoll_yaml_put_int(o, "bytes", f->bytes);
    atoll_yaml_put_text(o, "digest", atoll_digest_text(f->digest, hex));
    atoll_yaml_open_list(o, "blocks");
    for (int k = 0; k < f->blocks; k++) {
      const manifest_block *b = &f->block[k];
      atoll_yaml_open_map(o, NULL);
      atoll_yaml_put_text(o, "tensor", b->name);
      atoll_yaml_put_text(o, "dtype", atoll_dtype_name(b->dtype));
      atoll_yaml_put_ints(o, "global", b->global, (size_t)b->ndim);
      atoll_yaml_put_ints(o, "start", b->start, (size_t)b->ndim);
      atoll_yaml_put_ints(o, "count", b->count, (size_t)b->ndim);
      atoll_yaml_close(o);
    }
    atoll_yaml_close(o);
    atoll_yaml_close(o);
  }
  atoll_yaml_close(o);
}

static atoll_err take_text(atoll_yaml_out **o, char **text, size_t *bytes) {
  const char *whole;
  atoll_err err = atoll_yaml_out_text(*o, &whole);
  if (err == ATOLL_OK) {
    *text = strdup(whole);
    *bytes = strlen(whole);
    if (!*text)
      err = atoll_fail(ATOLL_NOMEM, "checkpoint manifest of %zu bytes", *bytes);
  }
  atoll_yaml_out_destroy(o);
  return err;
}

atoll_err manifest_pack_files(const manifest *m, char **text, size_t *bytes) {
  atoll_yaml_out *o;
  ATOLL_TRY(atoll_yaml_out_create(&o));
  put_files(m, o);
  return take_text(&o, text, bytes);
}

/* Reals as text: a loss may be NaN, which YAML readers spell in several ways. */
static void put_real(atoll_yaml_out *o, const char *key, double v) {
  char text[40];
  snprintf(text, sizeof text, "%.17g", v);
  atoll_yaml_put_text(o, key, text);
}

atoll_err manifest_to_commit(const manifest *m, char **text, size_t *bytes) {
  const atoll_ckpt_meta *x = &m->meta;
  char seed[24];
  atoll_yaml_out *o;
  ATOLL_TRY(atoll_yaml_out_create(&o));
  atoll_yaml_put_text(o, "format", "atoll-checkpoint");
  atoll_yaml_put_int(o, "version", ATOLL_CKPT_VERSION);
  atoll_yaml_put_int(o, "step", x->step);
  atoll_yaml_put_int(o, "attempt", x->attempt);
  snprintf(seed, sizeof seed, "%llu", (unsigned long long)x->seed);
  atoll_yaml_put_text(o, "seed", seed);
  atoll_yaml_put_int(o, "tokens", x->tokens);
  atoll_yaml_put_int(o, "skipped", x->skipped);
  atoll_yaml_put_int(o, "skipped_in_row", x->skipped_in_row);
  atoll_yaml_put_bool(o, "finite", x->finite);
  put_real(o, "last_loss", x->last_loss);
  put_real(o, "best_validation", x->best_validation);
  atoll_yaml_put_text(o, "model_digest", x->model_digest);
  atoll_yaml_put_text(o, "data_digest", x->data_digest);
  atoll_yaml_put_text(o, "plan_digest", x->plan_digest);
  atoll_yaml_put_text(o, "identity_digest", x->identity_digest);
  atoll_yaml_put_text(o, "reason", x->reason);
  put_files(m, o);
  char *body = NULL, hex[33];
  size_t n = 0;
  ATOLL_TRY(take_text(&o, &body, &n));
  size_t room = n + sizeof TRAILER + 40;
  char *whole = malloc(room);
  if (!whole) {
    free(body);
    return atoll_fail(ATOLL_NOMEM, "COMMIT of %zu bytes", room);
  }
  *bytes =
      (size_t)snprintf(whole, room, "%s" TRAILER "%s\n", body, atoll_digest_text(atoll_digest_bytes(body, n), hex));
  *text = whole;
  free(body);
  return ATOLL_OK;
}

/* ---- in ------------------------------------------------------------------------------------------------------------
 */

static atoll_err get_ints(atoll_yaml *map, const char *key, int ndim, int64_t *out) {
  atoll_yaml *list;
  ATOLL_TRY(atoll_yaml_list(map, key, 1, &list));
  if (atoll_yaml_count(list) != (size_t)ndim)
    return atoll_fail(ATOLL_CORRUPT, "%s:%d: %s has %zu entries, expected %d", atoll_yaml_file(list),
                      atoll_yaml_line(list), key, atoll_yaml_count(list), ndim);
  for (int i = 0; i < ndim; i++) {
    const char *text = atoll_yaml_text(atoll_yaml_at(list, (size_t)i));
    char *end = NULL;
    errno = 0;
    out[i] = text ? strtoll(text, &end, 10) : 0;
    if (!text || errno || end == text || *end || out[i] < 0)
      return atoll_fail(ATOLL_CORRUPT, "%s:%d: %s holds '%s', expected a count", atoll_yaml_file(list),
                        atoll_yaml_line(list), key, text ? text : "no scalar");
  }
  return ATOLL_OK;
}

static atoll_err get_block(atoll_yaml *map, manifest_file *f) {
  manifest_block b = {0};
  char dtype[16];
  atoll_yaml *list;
  ATOLL_TRY(atoll_yaml_string(map, "tensor", 1, b.name, sizeof b.name));
  ATOLL_TRY(atoll_yaml_string(map, "dtype", 1, dtype, sizeof dtype));
  if (atoll_dtype_parse(dtype, &b.dtype) != 0)
    return atoll_fail(ATOLL_CORRUPT, "%s:%d: dtype '%s' is unknown", atoll_yaml_file(map), atoll_yaml_line(map), dtype);
  ATOLL_TRY(atoll_yaml_list(map, "global", 1, &list));
  if (atoll_yaml_count(list) > ATOLL_NDIM_MAX)
    return atoll_fail(ATOLL_CORRUPT, "%s:%d: tensor %s has %zu dimensions, at most %d", atoll_yaml_file(map),
                      atoll_yaml_line(map), b.name, atoll_yaml_count(list), ATOLL_NDIM_MAX);
  b.ndim = (int)atoll_yaml_count(list);
  ATOLL_TRY(get_ints(map, "global", b.ndim, b.global));
  ATOLL_TRY(get_ints(map, "start", b.ndim, b.start));
  ATOLL_TRY(get_ints(map, "count", b.ndim, b.count));
  for (int i = 0; i < b.ndim; i++)
    if (b.start[i] > b.global[i] || b.count[i] > b.global[i] - b.start[i])
      return atoll_fail(ATOLL_CORRUPT, "%s:%d: block of %s leaves the tensor in dimension %d", atoll_yaml_file(map),
                        atoll_yaml_line(map), b.name, i);
  return manifest_add_block(f, &b);
}

static atoll_err get_files(atoll_yaml *root, manifest *m) {
  atoll_yaml *files;
  ATOLL_TRY(atoll_yaml_list(root, "files", 1, &files));
  for (size_t i = 0; i < atoll_yaml_count(files); i++) {
    atoll_yaml *map = atoll_yaml_at(files, i), *blocks;
    char name[64], hex[40];
    int64_t bytes;
    atoll_digest digest;
    manifest_file *f;
    ATOLL_TRY(atoll_yaml_string(map, "name", 1, name, sizeof name));
    if (strchr(name, '/') || name[0] == '.' || !name[0])
      return atoll_fail(ATOLL_CORRUPT, "%s:%d: '%s' is no name of a shard", atoll_yaml_file(map), atoll_yaml_line(map),
                        name);
    ATOLL_TRY(atoll_yaml_int(map, "bytes", 1, 0, INT64_MAX, &bytes));
    ATOLL_TRY(atoll_yaml_string(map, "digest", 1, hex, sizeof hex));
    if (atoll_digest_parse(hex, &digest) != 0)
      return atoll_fail(ATOLL_CORRUPT, "%s:%d: '%s' is no digest", atoll_yaml_file(map), atoll_yaml_line(map), hex);
    ATOLL_TRY(manifest_add_file(m, name, bytes, digest, &f));
    ATOLL_TRY(atoll_yaml_list(map, "blocks", 1, &blocks));
    for (size_t k = 0; k < atoll_yaml_count(blocks); k++)
      ATOLL_TRY(get_block(atoll_yaml_at(blocks, k), f));
  }
  return ATOLL_OK;
}

/* A reader's complaint about stored data is damage, not misuse. */
static atoll_err as_corrupt(atoll_err err) {
  if (err != ATOLL_USAGE)
    return err;
  return atoll_fail(ATOLL_CORRUPT, "%s", atoll_err_message());
}

atoll_err manifest_unpack_files(manifest *m, const char *name, const char *text, size_t bytes) {
  atoll_yaml *root = NULL;
  atoll_err err = atoll_yaml_parse(name, text, bytes, &root);
  if (err == ATOLL_OK)
    err = get_files(root, m);
  atoll_yaml_destroy(&root);
  return as_corrupt(err);
}

static atoll_err get_real(atoll_yaml *root, const char *key, double *out) {
  char text[64], *end;
  ATOLL_TRY(atoll_yaml_string(root, key, 1, text, sizeof text));
  *out = strtod(text, &end);
  if (end == text || *end)
    return atoll_fail(ATOLL_CORRUPT, "%s: %s is '%s', expected a number", atoll_yaml_file(root), key, text);
  return ATOLL_OK;
}

static atoll_err get_meta(atoll_yaml *root, atoll_ckpt_meta *x) {
  char format[64], seed[32], *end;
  int64_t version, attempt;
  ATOLL_TRY(atoll_yaml_string(root, "format", 1, format, sizeof format));
  ATOLL_TRY(atoll_yaml_int(root, "version", 1, 0, INT64_MAX, &version));
  if (strcmp(format, "atoll-checkpoint") != 0 || version != ATOLL_CKPT_VERSION)
    return atoll_fail(ATOLL_CORRUPT, "%s: format %s version %lld, expected atoll-checkpoint version %d",
                      atoll_yaml_file(root), format, (long long)version, ATOLL_CKPT_VERSION);
  ATOLL_TRY(atoll_yaml_int(root, "step", 1, 0, INT64_MAX, &x->step));
  ATOLL_TRY(atoll_yaml_int(root, "attempt", 1, 0, INT32_MAX, &attempt));
  x->attempt = (int)attempt;
  ATOLL_TRY(atoll_yaml_string(root, "seed", 1, seed, sizeof seed));
  x->seed = strtoull(seed, &end, 10);
  ATOLL_TRY(atoll_yaml_int(root, "tokens", 1, 0, INT64_MAX, &x->tokens));
  ATOLL_TRY(atoll_yaml_int(root, "skipped", 1, 0, INT64_MAX, &x->skipped));
  ATOLL_TRY(atoll_yaml_int(root, "skipped_in_row", 1, 0, INT64_MAX, &x->skipped_in_row));
  ATOLL_TRY(atoll_yaml_bool(root, "finite", 1, &x->finite));
  ATOLL_TRY(get_real(root, "last_loss", &x->last_loss));
  ATOLL_TRY(get_real(root, "best_validation", &x->best_validation));
  ATOLL_TRY(atoll_yaml_string(root, "model_digest", 1, x->model_digest, sizeof x->model_digest));
  ATOLL_TRY(atoll_yaml_string(root, "data_digest", 1, x->data_digest, sizeof x->data_digest));
  ATOLL_TRY(atoll_yaml_string(root, "plan_digest", 1, x->plan_digest, sizeof x->plan_digest));
  ATOLL_TRY(atoll_yaml_string(root, "identity_digest", 1, x->identity_digest, sizeof x->identity_digest));
  return atoll_yaml_string(root, "reason", 1, x->reason, sizeof x->reason);
}

atoll_err manifest_from_commit(const char *path, const char *text, size_t bytes, manifest *m) {
  memset(m, 0, sizeof *m);
  const size_t trailer = sizeof TRAILER - 1 + 32 + 1;
  atoll_digest said;
  char hex[33] = "";
  if (bytes < trailer || memcmp(text + bytes - trailer, TRAILER, sizeof TRAILER - 1) != 0 || text[bytes - 1] != '\n')
    return atoll_fail(ATOLL_CORRUPT, "%s: %zu bytes without a digest in the last line: truncated or not a COMMIT", path,
                      bytes);
  memcpy(hex, text + bytes - 33, 32);
  if (atoll_digest_parse(hex, &said) != 0 || !atoll_digest_equal(said, atoll_digest_bytes(text, bytes - trailer)))
    return atoll_fail(ATOLL_CORRUPT, "%s: its digest does not match its content", path);
  atoll_yaml *root = NULL;
  atoll_err err = atoll_yaml_parse(path, text, bytes - trailer, &root);
  if (err == ATOLL_OK)
    err = get_meta(root, &m->meta);
  if (err == ATOLL_OK)
    err = get_files(root, m);
  if (err == ATOLL_OK)
    err = atoll_yaml_unknown(root);
  atoll_yaml_destroy(&root);
  if (err != ATOLL_OK)
    manifest_free(m);
  return as_corrupt(err);
}

atoll_err manifest_read(const char *dir, manifest *m) {
  char path[1100], *text = NULL;
  size_t bytes = 0;
  memset(m, 0, sizeof *m);
  ATOLL_TRY(atoll_path_join(path, sizeof path, dir, "COMMIT"));
  ATOLL_TRY(atoll_file_read(path, &text, &bytes));
  atoll_err err = manifest_from_commit(path, text, bytes, m);
  free(text);
  return err;
}

/* ---- cover ---------------------------------------------------------------------------------------------------------
 */

static int compare_blocks(const void *a, const void *b) {
  return strcmp((*(const manifest_block *const *)a)->name, (*(const manifest_block *const *)b)->name);
}

static int overlap(const manifest_block *a, const manifest_block *b) {
  for (int i = 0; i < a->ndim; i++)
    if (a->start[i] + a->count[i] <= b->start[i] || b->start[i] + b->count[i] <= a->start[i])
      return 0;
  return 1;
}

static int64_t product(const int64_t *v, int n) {
  int64_t p = 1;
  for (int i = 0; i < n; i++)
    p *= v[i];
  return p;
}

static atoll_err check_tensor(const manifest_block *const *b, int n) {
  int64_t covered = 0;
  for (int i = 0; i < n; i++) {
    if (b[i]->ndim != b[0]->ndim || b[i]->dtype != b[0]->dtype ||
        memcmp(b[i]->global, b[0]->global, sizeof b[0]->global) != 0)
      return atoll_fail(ATOLL_INTERNAL, "checkpoint: blocks of %s disagree on its shape or dtype", b[0]->name);
    int64_t k = product(b[i]->count, b[i]->ndim);
    covered += k;
    for (int j = 0; k > 0 && j < i; j++)
      if (product(b[j]->count, b[j]->ndim) > 0 && overlap(b[i], b[j]))
        return atoll_fail(ATOLL_INTERNAL, "checkpoint: two ranks give the same part of %s", b[0]->name);
  }
  int64_t all = product(b[0]->global, b[0]->ndim);
  if (covered != all)
    return atoll_fail(ATOLL_INTERNAL, "checkpoint: blocks cover %lld of %lld elements of %s", (long long)covered,
                      (long long)all, b[0]->name);
  return ATOLL_OK;
}

atoll_err manifest_check_cover(const manifest *m) {
  int n = 0;
  for (int i = 0; i < m->files; i++)
    n += m->file[i].blocks;
  const manifest_block **all = malloc((size_t)(n ? n : 1) * sizeof *all);
  if (!all)
    return atoll_fail(ATOLL_NOMEM, "checkpoint of %d blocks", n);
  int k = 0;
  for (int i = 0; i < m->files; i++)
    for (int j = 0; j < m->file[i].blocks; j++)
      all[k++] = &m->file[i].block[j];
  qsort(all, (size_t)n, sizeof *all, compare_blocks);
  atoll_err err = ATOLL_OK;
  for (int a = 0, b; a < n && err == ATOLL_OK; a = b) {
    for (b = a + 1; b < n && !strcmp(all[a]->name, all[b]->name); b++)
      ;
    err = check_tensor(all + a, b - a);
  }
  free(all);
  return err;
}
