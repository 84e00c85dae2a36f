/* run.h5 of atoll-rl: rebuilt in memory from all attempts' rows and put in place by one rename, so that it always opens
 * plainly and can be looked at while the run goes on. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/file.h"
#include "atoll/log.h"
#include "atoll/store.h"
#include "run.h"

enum { VERSION = 1 };

typedef struct field {
  const char *name;
  atoll_dtype dtype;
  const char *units, *text;
  size_t offset;
} field;

/* Rows of eight-byte numbers. */
typedef struct rows {
  const field *fields;
  int columns;
  size_t bytes; /* of a row */
  char *data;
  int64_t n, room;
} rows;

struct record {
  char dir[ATOLL_OPT_STRING_MAX];
  int attempt;
  char *options;
  rows steps, evaluations;
};

#define FIELD(name, ctype, dtype, units, text) {#name, dtype, units, text, offsetof(record_row, name)},
static const field step_fields[] = {RECORD_COLUMNS(FIELD)};
#undef FIELD
#define FIELD(name, ctype, dtype, units, text) {#name, dtype, units, text, offsetof(record_evaluation, name)},
static const field evaluation_fields[] = {RECORD_EVALUATIONS(FIELD)};
#undef FIELD

static atoll_err add(rows *t, const void *row) {
  if (t->n == t->room) {
    int64_t room = t->room ? 2 * t->room : 256;
    char *data = realloc(t->data, (size_t)room * t->bytes);
    if (!data)
      return atoll_fail(ATOLL_NOMEM, "metrics of %lld rows", (long long)room);
    t->data = data;
    t->room = room;
  }
  memcpy(t->data + (size_t)t->n++ * t->bytes, row, t->bytes);
  return ATOLL_OK;
}

/* ---- reading ---- */

static atoll_err read_rows(atoll_store *s, rows *t) {
  atoll_dtype dtype;
  int ndim;
  int64_t shape[ATOLL_NDIM_MAX], n = -1;
  char path[80];
  for (int c = 0; c < t->columns; c++) {
    (void)snprintf(path, sizeof path, "/metrics/%s", t->fields[c].name);
    ATOLL_TRY(atoll_store_shape(s, path, &dtype, &ndim, shape));
    if (ndim != 1)
      return atoll_fail(ATOLL_CORRUPT, "%s has %d dimensions, expected 1", path, ndim);
    n = n < 0 || shape[0] < n ? shape[0] : n;
  }
  char *column = malloc((size_t)n * 8 + 8), *data = calloc((size_t)n + 1, t->bytes);
  atoll_err err = column && data ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "metrics of %lld rows", (long long)n);
  for (int c = 0; c < t->columns && n > 0 && err == ATOLL_OK; c++) {
    (void)snprintf(path, sizeof path, "/metrics/%s", t->fields[c].name);
    err = atoll_store_read(s, path, t->fields[c].dtype, NULL, &n, column);
    for (int64_t i = 0; i < n && err == ATOLL_OK; i++)
      memcpy(data + (size_t)i * t->bytes + t->fields[c].offset, column + i * 8, 8);
  }
  free(column);
  if (err != ATOLL_OK) {
    free(data);
    return err;
  }
  t->data = data;
  t->n = t->room = n;
  return ATOLL_OK;
}

/* Metrics that cannot be read are no reason to stop, what a run goes on from is its checkpoint, nor to write over them.
 */
static atoll_err read_past(record *r) {
  char path[ATOLL_OPT_STRING_MAX + 16];
  atoll_store *s = NULL;
  (void)snprintf(path, sizeof path, "%s/run.h5", r->dir);
  if (!atoll_file_exists(path))
    return ATOLL_OK;
  atoll_err err = atoll_store_open(path, ATOLL_STORE_READ, &s);
  if (err == ATOLL_OK)
    err = read_rows(s, &r->steps);
  if (err == ATOLL_OK)
    err = read_rows(s, &r->evaluations);
  atoll_store_close(&s);
  if (err != ATOLL_OK)
    ATOLL_TRY(atoll_file_set_aside(path));
  atoll_err_clear();
  return ATOLL_OK;
}

atoll_err record_open(const char *dir, int attempt, int64_t resume_step, const char *options_yaml, record **out) {
  record *r = calloc(1, sizeof *r);
  if (!r || !(r->options = strdup(options_yaml))) {
    free(r);
    return atoll_fail(ATOLL_NOMEM, "run record");
  }
  (void)snprintf(r->dir, sizeof r->dir, "%s", dir);
  r->attempt = attempt;
  r->steps = (rows){step_fields, sizeof step_fields / sizeof *step_fields, sizeof(record_row), NULL, 0, 0};
  r->evaluations = (rows){
      evaluation_fields, sizeof evaluation_fields / sizeof *evaluation_fields, sizeof(record_evaluation), NULL, 0, 0};
  atoll_err err = read_past(r);
  if (err != ATOLL_OK) {
    record_close(&r);
    return err;
  }
  record_row *row = (record_row *)(void *)r->steps.data;
  for (int64_t i = 0; i < r->steps.n; i++)
    row[i].superseded |= row[i].step > resume_step;
  record_evaluation *e = (record_evaluation *)(void *)r->evaluations.data;
  for (int64_t i = 0; i < r->evaluations.n; i++)
    e[i].validation_superseded |= e[i].validation_step > resume_step;
  *out = r;
  return ATOLL_OK;
}

/* ---- writing ---- */

atoll_err record_add(record *r, const record_row *row) { return add(&r->steps, row); }
atoll_err record_add_evaluation(record *r, const record_evaluation *e) {
  record_evaluation *all = (record_evaluation *)(void *)r->evaluations.data;
  for (int64_t i = 0; i < r->evaluations.n; i++)
    all[i].validation_superseded |= all[i].validation_step == e->validation_step;
  return add(&r->evaluations, e);
}

static atoll_err write_rows(atoll_store *s, const rows *t) {
  char path[80], *column = malloc((size_t)t->n * 8 + 8);
  atoll_err err = column ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "metrics of %lld rows", (long long)t->n);
  for (int c = 0; c < t->columns && err == ATOLL_OK; c++) {
    const field *f = &t->fields[c];
    (void)snprintf(path, sizeof path, "/metrics/%s", f->name);
    for (int64_t i = 0; i < t->n; i++)
      memcpy(column + i * 8, t->data + (size_t)i * t->bytes + f->offset, 8);
    err = atoll_store_series(s, path, f->dtype, f->units, f->text);
    if (err == ATOLL_OK && t->n > 0)
      err = atoll_store_append(s, path, column, (size_t)t->n);
  }
  free(column);
  return err;
}

atoll_err record_publish(const record *r, const char *state) {
  char path[ATOLL_OPT_STRING_MAX + 16];
  atoll_store *s = NULL;
  (void)snprintf(path, sizeof path, "%s/run.h5", r->dir);
  ATOLL_TRY(atoll_store_open(path, ATOLL_STORE_IMAGE, &s));
  atoll_err err = atoll_store_stamp(s, "atoll-run", VERSION);
  if (err == ATOLL_OK)
    err = atoll_store_attr_text(s, "/", "state", state);
  if (err == ATOLL_OK)
    err = atoll_store_attr_int(s, "/", "attempt", r->attempt);
  if (err == ATOLL_OK)
    err = atoll_store_write_text(s, "/provenance/options", r->options, "effective options, YAML");
  if (err == ATOLL_OK)
    err = write_rows(s, &r->steps);
  if (err == ATOLL_OK)
    err = write_rows(s, &r->evaluations);
  return atoll_store_publish(&s, err, path);
}

void record_close(record **address) {
  record *r = *address;
  if (!r)
    return;
  free(r->options);
  free(r->steps.data);
  free(r->evaluations.data);
  free(r);
  *address = NULL;
}
