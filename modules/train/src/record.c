/* Two files for one purpose. run.aN.h5 grows row by row and can be followed while the job runs; it is opened by one
 * writer, so that a kill leaves at worst a file without its last rows. run.h5 is rebuilt in memory from all attempts
 * and replaces its predecessor in one rename, so that it always opens plainly. Losing either never costs more than the
 * rows since the last publish. */
#include "record.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "atoll/file.h"
#include "atoll/log.h"
#include "atoll/store.h"

typedef struct validation_row {
  int64_t step, attempt;
  double loss;
  int superseded;
} validation_row;

typedef struct checkpoint_row {
  int64_t step, attempt;
  double seconds, bytes;
  char name[64];
} checkpoint_row;

struct record {
  char dir[512];
  int attempt;
  record_about about;
  record_row *row;
  size_t rows, row_room;
  validation_row *validation;
  size_t validations, validation_room;
  checkpoint_row *checkpoint;
  size_t checkpoints, checkpoint_room;
  record_rank *rank;
  int ranks;
  record_counters counters;
  double *counter_values;
  atoll_store *follow; /* NULL when the file system refused */
};

static atoll_err grow(void **array, size_t n, size_t *room, size_t size) {
  if (n < *room)
    return ATOLL_OK;
  size_t want = *room ? *room * 2 : 256;
  void *p = realloc(*array, want * size);
  if (!p)
    return atoll_fail(ATOLL_NOMEM, "metrics: %zu rows", want);
  *array = p;
  *room = want;
  return ATOLL_OK;
}

static atoll_err add_row(record *r, const record_row *row) {
  ATOLL_TRY(grow((void **)&r->row, r->rows, &r->row_room, sizeof *row));
  r->row[r->rows++] = *row;
  return ATOLL_OK;
}

static atoll_err add_validation(record *r, const validation_row *row) {
  ATOLL_TRY(grow((void **)&r->validation, r->validations, &r->validation_room, sizeof *row));
  r->validation[r->validations++] = *row;
  return ATOLL_OK;
}

static atoll_err add_checkpoint(record *r, const checkpoint_row *row) {
  ATOLL_TRY(grow((void **)&r->checkpoint, r->checkpoints, &r->checkpoint_room, sizeof *row));
  r->checkpoint[r->checkpoints++] = *row;
  return ATOLL_OK;
}

/* ---- reading what is there --------------------------------------------------------------------------------------- */

static atoll_err series_length(atoll_store *s, const char *path, int64_t *n) {
  atoll_dtype t;
  int ndim;
  int64_t shape[ATOLL_NDIM_MAX];
  ATOLL_TRY(atoll_store_shape(s, path, &t, &ndim, shape));
  if (ndim != 1)
    return atoll_fail(ATOLL_CORRUPT, "%s has %d dimensions, expected 1", path, ndim);
  *n = shape[0];
  return ATOLL_OK;
}

/* Rows of one file, for attempts the caller wants (0 = all). A writer that was killed may leave columns of unequal
 * length: the shortest counts. */
static atoll_err read_rows(record *r, const char *file, int64_t attempt, int64_t below) {
  atoll_store *s = NULL;
  ATOLL_TRY(atoll_store_open(file, ATOLL_STORE_READ, &s));
  atoll_err err = ATOLL_OK;
  int64_t n = -1, k;
  void *column[32] = {0};
  int c = 0;
#define LENGTH(name, ctype, dtype, units, text)                                                                        \
  ATOLL_TRY_GOTO(err, done, series_length(s, "/metrics/" #name, &k));                                                  \
  n = n < 0 || k < n ? k : n;
  RECORD_COLUMNS(LENGTH)
#undef LENGTH
  const int64_t start = 0;
#define READ(name, ctype, dtype, units, text)                                                                          \
  column[c] = malloc((size_t)(n ? n : 1) * sizeof(ctype));                                                             \
  if (!column[c])                                                                                                      \
    ATOLL_TRY_GOTO(err, done, atoll_fail(ATOLL_NOMEM, "metrics of %s", file));                                         \
  if (n > 0)                                                                                                           \
    ATOLL_TRY_GOTO(err, done, atoll_store_read(s, "/metrics/" #name, dtype, &start, &n, column[c]));                   \
  c++;
  RECORD_COLUMNS(READ)
#undef READ
  for (int64_t i = 0; i < n; i++) {
    record_row row;
    c = 0;
#define TAKE(name, ctype, dtype, units, text) row.name = ((ctype *)column[c++])[i];
    RECORD_COLUMNS(TAKE)
#undef TAKE
    if ((attempt == 0 || row.attempt == attempt) && row.attempt < below)
      ATOLL_TRY_GOTO(err, done, add_row(r, &row));
  }
  ATOLL_TRY_GOTO(err, done, series_length(s, "/metrics/validation_step", &n));
  ATOLL_TRY_GOTO(err, done, series_length(s, "/metrics/validation_loss", &k));
  n = k < n ? k : n;
  ATOLL_TRY_GOTO(err, done, series_length(s, "/metrics/validation_attempt", &k));
  n = k < n ? k : n;
  for (int64_t i = 0; i < n; i++) {
    validation_row v = {0};
    int64_t one = 1;
    ATOLL_TRY_GOTO(err, done, atoll_store_read(s, "/metrics/validation_step", ATOLL_I64, &i, &one, &v.step));
    ATOLL_TRY_GOTO(err, done, atoll_store_read(s, "/metrics/validation_loss", ATOLL_F64, &i, &one, &v.loss));
    ATOLL_TRY_GOTO(err, done, atoll_store_read(s, "/metrics/validation_attempt", ATOLL_I64, &i, &one, &v.attempt));
    if ((attempt == 0 || v.attempt == attempt) && v.attempt < below)
      ATOLL_TRY_GOTO(err, done, add_validation(r, &v));
  }
done:
  for (int i = 0; i < 32; i++)
    free(column[i]);
  atoll_store_close(&s);
  return err;
}

static void forget_attempt(record *r, int64_t attempt) {
  size_t k = 0;
  for (size_t i = 0; i < r->rows; i++)
    if (r->row[i].attempt != attempt)
      r->row[k++] = r->row[i];
  r->rows = k;
  k = 0;
  for (size_t i = 0; i < r->validations; i++)
    if (r->validation[i].attempt != attempt)
      r->validation[k++] = r->validation[i];
  r->validations = k;
}

static atoll_err read_past(record *r) {
  char path[640];
  snprintf(path, sizeof path, "%s/run.h5", r->dir);
  if (atoll_file_exists(path) && read_rows(r, path, 0, r->attempt) != ATOLL_OK)
    ATOLL_TRY(atoll_file_set_aside(path)); /* its accounts are nowhere else */
  for (int a = 1; a < r->attempt; a++) {   /* an attempt's own file is at least as complete as its last publish */
    snprintf(path, sizeof path, "%s/run.a%d.h5", r->dir, a);
    if (!atoll_file_exists(path))
      continue;
    record trial = *r;
    trial.row = NULL;
    trial.validation = NULL;
    trial.rows = trial.row_room = trial.validations = trial.validation_room = 0;
    if (read_rows(&trial, path, a, r->attempt) == ATOLL_OK) {
      forget_attempt(r, a);
      for (size_t i = 0; i < trial.rows; i++)
        if (add_row(r, &trial.row[i]) != ATOLL_OK)
          break;
      for (size_t i = 0; i < trial.validations; i++)
        if (add_validation(r, &trial.validation[i]) != ATOLL_OK)
          break;
    } else {
      atoll_debug("%s is not readable (%s): its rows come from run.h5", path, atoll_err_message());
    }
    free(trial.row);
    free(trial.validation);
  }
  atoll_err_clear();
  return ATOLL_OK;
}

static int compare_rows(const void *a, const void *b) {
  const record_row *x = a, *y = b;
  if (x->attempt != y->attempt)
    return x->attempt < y->attempt ? -1 : 1;
  return (x->step > y->step) - (x->step < y->step);
}

static int compare_validations(const void *a, const void *b) {
  const validation_row *x = a, *y = b;
  if (x->attempt != y->attempt)
    return x->attempt < y->attempt ? -1 : 1;
  return (x->step > y->step) - (x->step < y->step);
}

/* Rows that a resume at `step` runs again. A validation at the resumed step itself is repeated only if it comes again.
 */
static void supersede(record *r, int64_t step) {
  for (size_t i = 0; i < r->rows; i++)
    if (r->row[i].step > step)
      r->row[i].superseded = 1;
  for (size_t i = 0; i < r->validations; i++)
    if (r->validation[i].step > step)
      r->validation[i].superseded = 1;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static atoll_err make_series(atoll_store *s) {
#define SERIES(name, ctype, dtype, units, text) ATOLL_TRY(atoll_store_series(s, "/metrics/" #name, dtype, units, text));
  RECORD_COLUMNS(SERIES)
#undef SERIES
  ATOLL_TRY(atoll_store_series(s, "/metrics/validation_step", ATOLL_I64, "1", "steps done at a validation"));
  ATOLL_TRY(atoll_store_series(s, "/metrics/validation_loss", ATOLL_F64, "nat", "mean held-out loss per token"));
  ATOLL_TRY(atoll_store_series(s, "/metrics/validation_attempt", ATOLL_I64, "1", "attempt that validated"));
  ATOLL_TRY(atoll_store_series(s, "/metrics/validation_superseded", ATOLL_I64, "1",
                               "1 when a later attempt validated again"));
  return ATOLL_OK;
}

static atoll_err write_about(record *r, atoll_store *s) {
  const record_about *a = &r->about;
  ATOLL_TRY(atoll_store_stamp(s, "atoll-run", RECORD_VERSION));
  ATOLL_TRY(atoll_store_attr_int(s, "/", "attempt", r->attempt));
  ATOLL_TRY(atoll_store_attr_int(s, "/", "ranks", a->ranks));
  ATOLL_TRY(atoll_store_attr_text(s, "/", "model", a->model_name));
  ATOLL_TRY(atoll_store_attr_text(s, "/", "dtype", a->dtype));
  ATOLL_TRY(atoll_store_attr_text(s, "/", "topology_identity", a->identity));
  ATOLL_TRY(atoll_store_attr_text(s, "/", "plan_digest", a->plan_digest));
  ATOLL_TRY(atoll_store_attr_text(s, "/", "model_digest", a->model_digest));
  ATOLL_TRY(atoll_store_attr_text(s, "/", "data_digest", a->data_digest));
  ATOLL_TRY(atoll_store_write_text(s, "/provenance/options", a->options_yaml, "effective options, YAML"));
  ATOLL_TRY(atoll_store_write_text(s, "/provenance/origins", a->options_origin,
                                   "each option's value and where it came from"));
  ATOLL_TRY(atoll_store_write_text(s, "/provenance/command", a->command, "command line of rank 0"));
  ATOLL_TRY(
      atoll_store_write_text(s, "/provenance/kernels", a->kernels, "kernel backend, GEMM library and instruction set"));
  if (a->mlp && a->mlp[0])
    ATOLL_TRY(atoll_store_write_text(s, "/provenance/mlp", a->mlp, "ways that stages with mlp: auto have chosen"));
  ATOLL_TRY(atoll_topo_to_store(a->topo, s, "/topology"));
  ATOLL_TRY(atoll_islands_to_store(a->islands, s, "/islands"));
  ATOLL_TRY(atoll_plan_to_store(a->plan, s, "/plan"));
  if (a->profile)
    ATOLL_TRY(atoll_profile_to_store(a->profile, s, "/profile"));
  return ATOLL_OK;
}

static atoll_err open_follow(record *r) {
  char path[640];
  snprintf(path, sizeof path, "%s/run.a%d.h5", r->dir, r->attempt);
  ATOLL_TRY(atoll_store_open(path, ATOLL_STORE_FOLLOW, &r->follow));
  ATOLL_TRY(write_about(r, r->follow));
  ATOLL_TRY(make_series(r->follow));
  return atoll_store_start_following(r->follow);
}

static void stop_following(record *r) {
  atoll_warn("metrics file of attempt %d: %s; rows go to run.h5 only", r->attempt, atoll_err_message());
  atoll_store_close(&r->follow);
  r->follow = NULL;
}

atoll_err record_open(const char *dir, int attempt, int64_t resume_step, const record_about *about, record **out) {
  record *r = calloc(1, sizeof *r);
  if (!r)
    return atoll_fail(ATOLL_NOMEM, "run record");
  snprintf(r->dir, sizeof r->dir, "%s", dir);
  r->attempt = attempt;
  r->about = *about;
  atoll_err err = read_past(r);
  if (err != ATOLL_OK) {
    record_close(&r);
    return err;
  }
  supersede(r, resume_step);
  if (open_follow(r) != ATOLL_OK)
    stop_following(r);
  *out = r;
  return ATOLL_OK;
}

static atoll_err follow_row(record *r, const record_row *row) {
#define APPEND(name, ctype, dtype, units, text)                                                                        \
  ATOLL_TRY(atoll_store_append(r->follow, "/metrics/" #name, &row->name, 1));
  RECORD_COLUMNS(APPEND)
#undef APPEND
  return atoll_store_flush(r->follow);
}

void record_step(record *r, const record_row *row) {
  if (add_row(r, row) != ATOLL_OK)
    atoll_warn("%s", atoll_err_message());
  if (r->follow && follow_row(r, row) != ATOLL_OK)
    stop_following(r);
}

static atoll_err follow_validation(record *r, const validation_row *v) {
  int64_t live = 0;
  ATOLL_TRY(atoll_store_append(r->follow, "/metrics/validation_step", &v->step, 1));
  ATOLL_TRY(atoll_store_append(r->follow, "/metrics/validation_loss", &v->loss, 1));
  ATOLL_TRY(atoll_store_append(r->follow, "/metrics/validation_attempt", &v->attempt, 1));
  ATOLL_TRY(atoll_store_append(r->follow, "/metrics/validation_superseded", &live, 1));
  return atoll_store_flush(r->follow);
}

void record_validation(record *r, int64_t step, double loss) {
  validation_row v = {step, r->attempt, loss, 0};
  for (size_t i = 0; i < r->validations; i++)
    if (r->validation[i].step == step)
      r->validation[i].superseded = 1;
  if (add_validation(r, &v) != ATOLL_OK)
    atoll_warn("%s", atoll_err_message());
  if (r->follow && follow_validation(r, &v) != ATOLL_OK)
    stop_following(r);
}

void record_checkpoint(record *r, int64_t step, const char *name, double seconds, double bytes) {
  checkpoint_row c = {step, r->attempt, seconds, bytes, ""};
  snprintf(c.name, sizeof c.name, "%s", name);
  if (add_checkpoint(r, &c) != ATOLL_OK)
    atoll_warn("%s", atoll_err_message());
}

double record_best_validation(const record *r) {
  double best = NAN;
  for (size_t i = 0; i < r->validations; i++)
    if (!r->validation[i].superseded && !(r->validation[i].loss >= best))
      best = r->validation[i].loss;
  return best;
}

/* ---- run.h5 ------------------------------------------------------------------------------------------------------ */

static atoll_err write_metrics(record *r, atoll_store *s) {
  if (r->rows > 0)
    qsort(r->row, r->rows, sizeof *r->row, compare_rows);
  if (r->validations > 0)
    qsort(r->validation, r->validations, sizeof *r->validation, compare_validations);
  ATOLL_TRY(make_series(s));
  double *column = malloc((r->rows ? r->rows : 1) * sizeof *column); /* both element types have eight bytes */
  if (!column)
    return atoll_fail(ATOLL_NOMEM, "metrics of %zu rows", r->rows);
  atoll_err err = ATOLL_OK;
#define PUT(name, ctype, dtype, units, text)                                                                           \
  for (size_t i = 0; i < r->rows; i++)                                                                                 \
    memcpy(&column[i], &r->row[i].name, sizeof(ctype));                                                                \
  if (err == ATOLL_OK && r->rows > 0)                                                                                  \
    err = atoll_store_append(s, "/metrics/" #name, column, r->rows);
  RECORD_COLUMNS(PUT)
#undef PUT
  free(column);
  ATOLL_TRY(err);
  for (size_t i = 0; i < r->validations; i++) {
    int64_t old = r->validation[i].superseded;
    ATOLL_TRY(atoll_store_append(s, "/metrics/validation_step", &r->validation[i].step, 1));
    ATOLL_TRY(atoll_store_append(s, "/metrics/validation_loss", &r->validation[i].loss, 1));
    ATOLL_TRY(atoll_store_append(s, "/metrics/validation_attempt", &r->validation[i].attempt, 1));
    ATOLL_TRY(atoll_store_append(s, "/metrics/validation_superseded", &old, 1));
  }
  return ATOLL_OK;
}

static atoll_err write_column(atoll_store *s, const record *r, const char *path, size_t offset, int is_int,
                              const char *units, const char *text) {
  double *real = malloc((size_t)r->ranks * sizeof *real);
  int64_t *whole = malloc((size_t)r->ranks * sizeof *whole);
  if (!real || !whole) {
    free(real);
    free(whole);
    return atoll_fail(ATOLL_NOMEM, "%s", path);
  }
  for (int i = 0; i < r->ranks; i++) {
    const char *at = (const char *)&r->rank[i] + offset;
    if (is_int)
      memcpy(&whole[i], at, sizeof *whole);
    else
      memcpy(&real[i], at, sizeof *real);
  }
  int64_t n = r->ranks;
  atoll_err err = atoll_store_write(s, path, is_int ? ATOLL_I64 : ATOLL_F64, 1, &n,
                                    is_int ? (void *)whole : (void *)real, units, text);
  free(real);
  free(whole);
  return err;
}

static atoll_err write_ranks(record *r, atoll_store *s) {
  static const struct {
    const char *path;
    size_t offset;
    int is_int;
    const char *units, *text;
  } columns[] = {
#define C(path, field, is_int, units, text) {path, offsetof(record_rank, field), is_int, units, text}
      C("/ranks/rank", rank, 1, "1", "MPI rank"),
      C("/ranks/pipeline", pipeline, 1, "1", "pipeline of the plan; -1 idle"),
      C("/ranks/stage", stage, 1, "1", "stage of the pipeline; -1 idle"),
      C("/ranks/replica", replica, 1, "1", "replica of the stage"),
      C("/ranks/device", device, 1, "1", "index into /topology/devices"),
      C("/ranks/threads", threads, 1, "1", "OpenMP threads"),
      C("/ranks/forward_seconds", forward_seconds, 0, "s", "median over steps of one micro-batch's forward"),
      C("/ranks/backward_seconds", backward_seconds, 0, "s", "median over steps of one micro-batch's backward"),
      C("/ranks/update_seconds", update_seconds, 0, "s", "median over steps of reduction, clipping and optimizer"),
      C("/ranks/wait_seconds", wait_seconds, 0, "s", "median over steps of waiting for messages"),
      C("/ranks/predicted_forward_seconds", predicted_forward, 0, "s", "the plan's prediction"),
      C("/ranks/predicted_backward_seconds", predicted_backward, 0, "s", "the plan's prediction"),
      C("/ranks/predicted_update_seconds", predicted_update, 0, "s", "the plan's prediction"),
      C("/memory/predicted_peak", predicted_peak, 0, "bytes", "the plan's prediction of the accounted peak"),
      C("/memory/measured_peak", measured_peak, 0, "bytes", "accounted peak"),
      C("/memory/resident_peak", rss_peak, 0, "bytes", "peak resident set of the process"),
      C("/memory/limit", limit, 0, "bytes", "what the plan may use on the device"),
#undef C
  };
  for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
    ATOLL_TRY(
        write_column(s, r, columns[i].path, columns[i].offset, columns[i].is_int, columns[i].units, columns[i].text));
  const char *category[ATOLL_MEM_CATEGORIES], **host = calloc((size_t)r->ranks, sizeof *host);
  double *bytes = calloc((size_t)r->ranks * ATOLL_MEM_CATEGORIES, sizeof *bytes);
  atoll_err err = host && bytes ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "memory table of %d ranks", r->ranks);
  const int64_t shape[2] = {r->ranks, ATOLL_MEM_CATEGORIES};
  for (int which = 0; which < 2 && err == ATOLL_OK; which++) {
    for (int i = 0; i < r->ranks; i++)
      memcpy(bytes + (size_t)i * ATOLL_MEM_CATEGORIES, which ? r->rank[i].measured : r->rank[i].predicted,
             sizeof r->rank[i].measured);
    err = atoll_store_write(s, which ? "/memory/measured" : "/memory/predicted", ATOLL_F64, 2, shape, bytes, "bytes",
                            which ? "peak by rank and category, accounted"
                                  : "peak by rank and category, predicted by the plan");
  }
  for (int c = 0; c < ATOLL_MEM_CATEGORIES; c++)
    category[c] = atoll_mem_category_name((atoll_mem_category)c);
  if (err == ATOLL_OK)
    err = atoll_store_write_texts(s, "/memory/category", category, ATOLL_MEM_CATEGORIES,
                                  "second axis of predicted and measured");
  for (int i = 0; host && i < r->ranks; i++)
    host[i] = r->rank[i].host;
  if (err == ATOLL_OK)
    err = atoll_store_write_texts(s, "/ranks/host", host, (size_t)r->ranks, "host of each rank");
  free(host);
  free(bytes);
  return err;
}

static atoll_err write_counters(record *r, atoll_store *s) {
  const record_counters *c = &r->counters;
  const char *name[2 + ATOLL_PERF_COUNTERS_MAX], *unit[2 + ATOLL_PERF_COUNTERS_MAX],
      *source[2 + ATOLL_PERF_COUNTERS_MAX];
  const char *status[2 + ATOLL_PERF_COUNTERS_MAX], *reason[2 + ATOLL_PERF_COUNTERS_MAX];
  size_t n = (size_t)c->counters + 2;
  name[0] = "calls", unit[0] = "count", source[0] = "clock", status[0] = "ok", reason[0] = "";
  name[1] = "seconds", unit[1] = "s", source[1] = "clock", status[1] = "ok", reason[1] = "";
  for (int i = 0; i < c->counters; i++) {
    name[i + 2] = c->counter[i].name;
    unit[i + 2] = c->counter[i].unit;
    source[i + 2] = c->counter[i].source;
    status[i + 2] = c->counter[i].status == ATOLL_PERF_OK ? "ok" : "unavailable";
    reason[i + 2] = c->counter[i].reason;
  }
  const int64_t shape[3] = {r->ranks, c->regions, (int64_t)n};
  ATOLL_TRY(atoll_store_write(s, "/counters/values", ATOLL_F64, 3, shape, r->counter_values, NULL,
                              "by rank, region and counter; inclusive; NaN where a counter is unavailable"));
  ATOLL_TRY(atoll_store_write_texts(s, "/counters/region", c->region, (size_t)c->regions, "second axis of values"));
  ATOLL_TRY(atoll_store_write_texts(s, "/counters/name", name, n, "third axis of values"));
  ATOLL_TRY(atoll_store_write_texts(s, "/counters/unit", unit, n, "unit of each counter"));
  ATOLL_TRY(atoll_store_write_texts(s, "/counters/source", source, n, "papi, perf, rusage or clock"));
  ATOLL_TRY(atoll_store_write_texts(s, "/counters/status", status, n, "ok or unavailable"));
  return atoll_store_write_texts(s, "/counters/reason", reason, n, "why a counter is unavailable");
}

static atoll_err write_checkpoints(record *r, atoll_store *s) {
  static const char *const path[] = {"/checkpoints/step", "/checkpoints/attempt", "/checkpoints/seconds",
                                     "/checkpoints/bytes"};
  ATOLL_TRY(atoll_store_series(s, path[0], ATOLL_I64, "1", "step of a committed checkpoint of this attempt"));
  ATOLL_TRY(atoll_store_series(s, path[1], ATOLL_I64, "1", "attempt that wrote it"));
  ATOLL_TRY(atoll_store_series(s, path[2], ATOLL_F64, "s", "time it took"));
  ATOLL_TRY(atoll_store_series(s, path[3], ATOLL_F64, "bytes", "tensor bytes of all ranks"));
  for (size_t i = 0; i < r->checkpoints; i++) {
    ATOLL_TRY(atoll_store_append(s, path[0], &r->checkpoint[i].step, 1));
    ATOLL_TRY(atoll_store_append(s, path[1], &r->checkpoint[i].attempt, 1));
    ATOLL_TRY(atoll_store_append(s, path[2], &r->checkpoint[i].seconds, 1));
    ATOLL_TRY(atoll_store_append(s, path[3], &r->checkpoint[i].bytes, 1));
  }
  return ATOLL_OK;
}

static atoll_err keep_accounts(record *r, const record_rank *ranks, int n, const record_counters *counters) {
  if (ranks) {
    record_rank *copy = realloc(r->rank, (size_t)n * sizeof *copy);
    if (!copy)
      return atoll_fail(ATOLL_NOMEM, "accounts of %d ranks", n);
    memcpy(copy, ranks, (size_t)n * sizeof *copy);
    r->rank = copy;
    r->ranks = n;
  }
  if (counters) {
    size_t count = (size_t)r->ranks * (size_t)counters->regions * (size_t)(counters->counters + 2);
    double *copy = realloc(r->counter_values, (count ? count : 1) * sizeof *copy);
    if (!copy)
      return atoll_fail(ATOLL_NOMEM, "counters of %d ranks", r->ranks);
    memcpy(copy, counters->values, count * sizeof *copy);
    r->counter_values = copy;
    r->counters = *counters;
  }
  return ATOLL_OK;
}

atoll_err record_publish(record *r, const record_rank *ranks, int n, const record_counters *counters,
                         const char *state) {
  ATOLL_TRY(keep_accounts(r, ranks, n, counters));
  char path[640];
  snprintf(path, sizeof path, "%s/run.h5", r->dir);
  atoll_store *s = NULL;
  ATOLL_TRY(atoll_store_open(path, ATOLL_STORE_IMAGE, &s));
  atoll_err err;
  ATOLL_TRY_GOTO(err, done, write_about(r, s));
  ATOLL_TRY_GOTO(err, done, atoll_store_attr_text(s, "/", "state", state));
  ATOLL_TRY_GOTO(err, done, write_metrics(r, s));
  ATOLL_TRY_GOTO(err, done, write_checkpoints(r, s));
  if (r->ranks > 0)
    ATOLL_TRY_GOTO(err, done, write_ranks(r, s));
  if (r->counter_values)
    err = write_counters(r, s);
done:
  return atoll_store_publish(&s, err, path);
}

void record_close(record **address) {
  record *r = *address;
  if (!r)
    return;
  if (r->follow)
    atoll_store_close(&r->follow);
  free(r->row);
  free(r->validation);
  free(r->checkpoint);
  free(r->rank);
  free(r->counter_values);
  free(r);
  *address = NULL;
}
