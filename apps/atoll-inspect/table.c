/* Metrics as columns. run.h5 holds every attempt up to its last publish; the followable file of an attempt may hold
 * more rows, also while the job runs. A row is superseded when a later attempt ran the same step, which is worked out
 * anew here because the newest attempt may not have published yet. */
#include "inspect.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/file.h"

atoll_err run_file(const char *path, char *buf, size_t n) {
  if (!atoll_file_exists(path))
    return atoll_fail(ATOLL_NOINPUT, "%s does not exist", path);
  if (!atoll_file_is_dir(path)) {
    if (snprintf(buf, n, "%s", path) >= (int)n)
      return atoll_fail(ATOLL_USAGE, "path %s is too long", path);
    return ATOLL_OK;
  }
  ATOLL_TRY(atoll_path_join(buf, n, path, "run.h5"));
  if (!atoll_file_exists(buf))
    return atoll_fail(ATOLL_NOINPUT, "%s has no run.h5 yet", path);
  return ATOLL_OK;
}

atoll_err run_open(const char *file, atoll_store **store) {
  char format[64] = "";
  atoll_store *s = NULL;
  ATOLL_TRY(atoll_store_open(file, ATOLL_STORE_READ, &s));
  atoll_err err = ATOLL_OK;
  if (atoll_store_has_attr(s, "/", "format"))
    err = atoll_store_get_attr_text(s, "/", "format", format, sizeof format);
  if (err == ATOLL_OK && strcmp(format, "atoll-run") != 0)
    err = atoll_fail(ATOLL_CORRUPT, "%s is not a run file: its format is '%s', expected 'atoll-run'", file, format);
  if (err == ATOLL_OK)
    *store = s;
  else
    atoll_store_close(&s);
  return err;
}

const column *table_find(const table *t, const char *name) {
  for (int i = 0; i < t->columns; i++)
    if (!strcmp(t->column[i].name, name))
      return &t->column[i];
  return NULL;
}

static void free_one(table *t) {
  for (int i = 0; i < t->columns; i++)
    free(t->column[i].v);
  free(t->column);
  memset(t, 0, sizeof *t);
}

void table_free(run_table *t) {
  free_one(&t->steps);
  free_one(&t->validations);
}

typedef struct loader {
  atoll_store *store;
  run_table *t;
} loader;

static atoll_err load_column(void *arg, const char *path, int is_dataset) {
  loader *l = arg;
  const char *name = strrchr(path, '/') + 1;
  if (!is_dataset)
    return ATOLL_OK;
  table *t = strncmp(name, "validation_", 11) ? &l->t->steps : &l->t->validations;
  atoll_dtype dtype;
  int ndim;
  int64_t shape[ATOLL_NDIM_MAX], start = 0;
  ATOLL_TRY(atoll_store_shape(l->store, path, &dtype, &ndim, shape));
  if (ndim != 1)
    return ATOLL_OK;
  column *grown = realloc(t->column, (size_t)(t->columns + 1) * sizeof *grown);
  if (!grown)
    return atoll_fail(ATOLL_NOMEM, "metrics");
  t->column = grown;
  column *c = &grown[t->columns];
  memset(c, 0, sizeof *c);
  snprintf(c->name, sizeof c->name, "%s", name);
  c->is_int = dtype != ATOLL_F32 && dtype != ATOLL_F64;
  if (atoll_store_has_attr(l->store, path, "units"))
    ATOLL_TRY(atoll_store_get_attr_text(l->store, path, "units", c->units, sizeof c->units));
  if (atoll_store_has_attr(l->store, path, "long_name"))
    ATOLL_TRY(atoll_store_get_attr_text(l->store, path, "long_name", c->long_name, sizeof c->long_name));
  c->v = malloc((size_t)(shape[0] ? shape[0] : 1) * sizeof *c->v);
  if (!c->v)
    return atoll_fail(ATOLL_NOMEM, "metrics of %lld rows", (long long)shape[0]);
  t->columns++;
  if (shape[0] > 0)
    ATOLL_TRY(atoll_store_read(l->store, path, ATOLL_F64, &start, &shape[0], c->v));
  /* Columns of a file that is being written may differ by a row: the shortest counts. */
  t->rows = t->columns == 1 || shape[0] < t->rows ? shape[0] : t->rows;
  return ATOLL_OK;
}

static atoll_err load_file(const char *path, run_table *t) {
  loader l = {.t = t};
  memset(t, 0, sizeof *t);
  ATOLL_TRY(run_open(path, &l.store));
  atoll_err err = atoll_store_has(l.store, "/metrics")
                      ? atoll_store_visit(l.store, "/metrics", load_column, &l)
                      : atoll_fail(ATOLL_CORRUPT, "%s has no /metrics: not a run file", path);
  if (err == ATOLL_OK && !table_find(&t->steps, "attempt"))
    err = atoll_fail(ATOLL_CORRUPT, "%s: /metrics has no attempt column", path);
  atoll_store_close(&l.store);
  if (err != ATOLL_OK)
    table_free(t);
  return err;
}

/* ---- merging -------------------------------------------------------------------------------------------------------
 */

static double at(const table *t, const char *name, int64_t row) {
  const column *c = table_find(t, name);
  return c && row < t->rows ? c->v[row] : NAN;
}

static atoll_err append_row(table *to, const table *from, int64_t row) {
  for (int i = 0; i < to->columns; i++) {
    double *grown = realloc(to->column[i].v, (size_t)(to->rows + 1) * sizeof *grown);
    if (!grown)
      return atoll_fail(ATOLL_NOMEM, "metrics");
    to->column[i].v = grown;
    grown[to->rows] = at(from, to->column[i].name, row);
  }
  to->rows++;
  return ATOLL_OK;
}

/* Adds the rows of one attempt's file that come after what is there of that attempt. */
static atoll_err merge_table(table *to, const table *from, const char *step, const char *attempt) {
  double last = -INFINITY, a = from->rows ? at(from, attempt, 0) : NAN;
  for (int64_t i = 0; i < to->rows; i++)
    if (at(to, attempt, i) == a && at(to, step, i) > last)
      last = at(to, step, i);
  for (int64_t i = 0; i < from->rows; i++)
    if (at(from, step, i) > last)
      ATOLL_TRY(append_row(to, from, i));
  return ATOLL_OK;
}

static atoll_err merge(run_table *to, const run_table *from) {
  ATOLL_TRY(merge_table(&to->steps, &from->steps, "step", "attempt"));
  return merge_table(&to->validations, &from->validations, "validation_step", "validation_attempt");
}

/* A row is superseded when a later attempt has its step. */
static void mark_superseded(table *t, const char *step, const char *attempt, const char *mark) {
  const column *s = table_find(t, step), *a = table_find(t, attempt);
  column *m = (column *)(uintptr_t)table_find(t, mark);
  if (!s || !a || !m)
    return;
  double lowest = INFINITY,
         current = INFINITY; /* lowest step of attempts after the one at hand; rows are grouped by attempt */
  double low_here = INFINITY;
  for (int64_t i = t->rows; i-- > 0;) {
    if (a->v[i] != current) {
      lowest = low_here < lowest ? low_here : lowest;
      low_here = INFINITY;
      current = a->v[i];
    }
    if (s->v[i] >= lowest)
      m->v[i] = 1;
    low_here = s->v[i] < low_here ? s->v[i] : low_here;
  }
}

static void drop_superseded(table *t, const char *mark) {
  const column *m = table_find(t, mark);
  int64_t k = 0;
  if (!m)
    return;
  char *keep = malloc((size_t)(t->rows ? t->rows : 1));
  if (!keep)
    return;
  for (int64_t i = 0; i < t->rows; i++)
    keep[i] = m->v[i] == 0;
  for (int c = 0; c < t->columns; c++) {
    k = 0;
    for (int64_t i = 0; i < t->rows; i++)
      if (keep[i])
        t->column[c].v[k++] = t->column[c].v[i];
  }
  t->rows = k;
  free(keep);
}

/* run.aN.h5 files of a directory in ascending N. */
static atoll_err merge_attempts(const char *dir, int have_run, run_table *t) {
  char path[1200], name[32];
  int64_t n = 0;
  for (int64_t a = 1, missing = 0; missing < 1000; a++) {
    snprintf(name, sizeof name, "run.a%lld.h5", (long long)a);
    ATOLL_TRY(atoll_path_join(path, sizeof path, dir, name));
    if (!atoll_file_exists(path)) {
      missing++;
      continue;
    }
    missing = 0;
    t->attempts = a;
    run_table one;
    if (load_file(path, &one) != ATOLL_OK) /* of a killed writer: run.h5 has its rows up to the last publish */
      continue;
    if (!have_run && n == 0) {
      t->steps = one.steps;
      t->validations = one.validations;
    } else {
      atoll_err err = merge(t, &one);
      table_free(&one);
      ATOLL_TRY(err);
    }
    n++;
  }
  if (!have_run && n == 0)
    return atoll_fail(ATOLL_NOINPUT, "%s has neither run.h5 nor a readable run.aN.h5", dir);
  atoll_err_clear();
  return ATOLL_OK;
}

atoll_err table_load(const char *path, int live, run_table *t) {
  memset(t, 0, sizeof *t);
  char file[1200];
  if (!atoll_file_exists(path))
    return atoll_fail(ATOLL_NOINPUT, "%s does not exist", path);
  atoll_err err;
  if (atoll_file_is_dir(path)) {
    ATOLL_TRY(atoll_path_join(file, sizeof file, path, "run.h5"));
    int have = atoll_file_exists(file);
    err = have ? load_file(file, t) : ATOLL_OK;
    if (err == ATOLL_OK)
      err = merge_attempts(path, have, t);
  } else {
    err = load_file(path, t);
  }
  if (err != ATOLL_OK) {
    table_free(t);
    return err;
  }
  mark_superseded(&t->steps, "step", "attempt", "superseded");
  mark_superseded(&t->validations, "validation_step", "validation_attempt", "validation_superseded");
  if (live) {
    drop_superseded(&t->steps, "superseded");
    drop_superseded(&t->validations, "validation_superseded");
  }
  return ATOLL_OK;
}
