/* metrics, export and diff. JSON gives arrays by name. */
#include "inspect.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/file.h"

FILE *output_open(char **text, size_t *bytes) {
  *text = NULL;
  *bytes = 0;
  return open_memstream(text, bytes);
}

atoll_err output_close(FILE *f, char **text, size_t *bytes, const char *out) {
  atoll_err err = ATOLL_OK;
  if (fclose(f) != 0)
    err = atoll_fail(ATOLL_NOMEM, "output");
  else if (out)
    err = atoll_file_replace(out, *text, *bytes);
  else if (fwrite(*text, 1, *bytes, stdout) != *bytes || fflush(stdout) != 0)
    err = atoll_fail(ATOLL_IO, "write to standard output failed");
  free(*text);
  return err;
}

json_t *json_number(double v) { return isfinite(v) ? json_real(v) : json_null(); }

json_t *json_text(const char *s) {
  json_t *text = json_string(s);
  char *plain = text ? NULL : strdup(s);
  for (char *c = plain; c && *c; c++)
    if ((unsigned char)*c >= 0x80)
      *c = '?';
  if (plain)
    text = json_string(plain);
  free(plain);
  return text;
}

atoll_err json_print(const json_t *root, FILE *f) {
  char *text = json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
  if (!text)
    return atoll_fail(ATOLL_NOMEM, "JSON to print");
  fprintf(f, "%s\n", text);
  free(text);
  return ATOLL_OK;
}

static json_t *json_of(const column *c, int64_t rows) {
  json_t *a = json_array();
  for (int64_t i = 0; i < rows; i++) {
    double v = c->v[i];
    json_array_append_new(a, c->is_int && isfinite(v) ? json_integer((json_int_t)v) : json_number(v));
  }
  return a;
}

static atoll_err print_json(const run_table *t, FILE *f) {
  json_t *root = json_object();
  const table *tables[] = {&t->steps, &t->validations};
  for (int k = 0; k < 2; k++)
    for (int i = 0; i < tables[k]->columns; i++)
      json_object_set_new(root, tables[k]->column[i].name, json_of(&tables[k]->column[i], tables[k]->rows));
  atoll_err err = json_print(root, f);
  json_decref(root);
  return err;
}

static void print_cell(FILE *f, const column *c, int64_t i) {
  if (c->is_int)
    fprintf(f, "%lld", (long long)c->v[i]);
  else
    fprintf(f, "%.9g", c->v[i]);
}

/* Rows by step, for a long run has hundreds of thousands. */
typedef struct place {
  double step;
  int64_t row;
} place;

static int compare_places(const void *a, const void *b) {
  const place *x = a, *y = b;
  if (x->step != y->step)
    return x->step < y->step ? -1 : 1;
  return (x->row > y->row) - (x->row < y->row);
}

/* NULL without memory or without the column. */
static place *index_steps(const column *c, int64_t rows) {
  place *p = malloc((size_t)(rows ? rows : 1) * sizeof *p);
  for (int64_t i = 0; p && i < rows; i++)
    p[i] = (place){c->v[i], i};
  if (p)
    qsort(p, (size_t)rows, sizeof *p, compare_places);
  return p;
}

/* First row of a step, -1 none. */
static int64_t row_of(const place *p, int64_t rows, double step) {
  int64_t lo = 0, hi = rows;
  while (lo < hi) {
    int64_t mid = lo + (hi - lo) / 2;
    if (p[mid].step < step)
      lo = mid + 1;
    else
      hi = mid;
  }
  return p && lo < rows && p[lo].step == step ? p[lo].row : -1;
}

/* One table with the validations joined by step: spreadsheets want one. */
static void print_csv(const run_table *t, FILE *f) {
  const column *step = table_find(&t->steps, "step"), *vs = table_find(&t->validations, "validation_step"),
               *loss = table_find(&t->validations, "validation_loss"),
               *vl = loss ? loss : table_find(&t->validations, "validation_return");
  for (int c = 0; c < t->steps.columns; c++)
    fprintf(f, "%s%s", c ? "," : "", t->steps.column[c].name);
  fprintf(f, ",%s\n", vl ? vl->name : "validation_loss");
  place *held = index_steps(vs, t->validations.rows);
  for (int64_t i = 0; i < t->steps.rows; i++) {
    for (int c = 0; c < t->steps.columns; c++) {
      if (c)
        fputc(',', f);
      print_cell(f, &t->steps.column[c], i);
    }
    fputc(',', f);
    int64_t k = step && vl && held ? row_of(held, t->validations.rows, step->v[i]) : -1;
    if (k >= 0)
      fprintf(f, "%.9g", vl->v[k]);
    fputc('\n', f);
  }
  free(held);
}

static void print_table(const table *t, const char *const *names, int n, FILE *f) {
  for (int i = 0; i < n; i++)
    fprintf(f, "%18s", names[i]);
  fputc('\n', f);
  for (int64_t r = 0; r < t->rows; r++) {
    for (int i = 0; i < n; i++) {
      const column *c = table_find(t, names[i]);
      if (!c)
        fprintf(f, "%18s", "-");
      else if (c->is_int)
        fprintf(f, "%18lld", (long long)c->v[r]);
      else
        fprintf(f, "%18.6g", c->v[r]);
    }
    fputc('\n', f);
  }
}

/* What a run of atoll-train says, or of atoll-rl: the measure of its validations differs. */
static void print_text(const run_table *t, FILE *f) {
  static const char *const trained[] = {
      "step", "loss", "gradient_norm", "learning_rate", "tokens_per_second", "ceiling_fraction", "skipped", "attempt"};
  static const char *const acted[] = {"step",   "episodes", "mean_return",      "mean_length",
                                      "reward", "loss",     "steps_per_second", "attempt"};
  enum { COLUMNS = sizeof trained / sizeof *trained };
  int acts = table_find(&t->steps, "mean_return") != NULL;
  print_table(&t->steps, acts ? acted : trained, COLUMNS, f);
  const char *measure = acts ? "return" : "loss";
  char name[32];
  snprintf(name, sizeof name, "validation_%s", measure);
  const column *vs = table_find(&t->validations, "validation_step"), *v = table_find(&t->validations, name);
  for (int64_t r = 0; vs && v && r < t->validations.rows; r++)
    fprintf(f, "validation , step %lld , %s %.6g\n", (long long)vs->v[r], measure, v->v[r]);
}

static atoll_err show(const char *path, const inspect_options *o, const char *format) {
  run_table t;
  char *text;
  size_t bytes;
  ATOLL_TRY(table_load(path, !o->all, &t));
  FILE *f = output_open(&text, &bytes);
  atoll_err err = f ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "output");
  if (f) {
    if (!strcmp(format, "json"))
      err = print_json(&t, f);
    else if (!strcmp(format, "csv"))
      print_csv(&t, f);
    else
      print_text(&t, f);
    atoll_err closed = output_close(f, &text, &bytes, o->out);
    err = err != ATOLL_OK ? err : closed;
  }
  table_free(&t);
  return err;
}

atoll_err inspect_metrics(const char *path, const inspect_options *o) { return show(path, o, o->format); }

atoll_err inspect_export(const char *path, const inspect_options *o) {
  return show(path, o, !strcmp(o->format, "text") ? "csv" : o->format);
}

/* ---- diff ----------------------------------------------------------------------------------------------------------
 */

static int64_t count_common(const place *other, const table *a, const table *b, const column *step) {
  int64_t n = 0;
  for (int64_t i = 0; i < a->rows; i++)
    n += row_of(other, b->rows, step->v[i]) >= 0;
  return n;
}

/* Columns that describe the training, not the machine it ran on. A step that only one run has is a difference; a
 * validation that only one run made is not: it changes nothing. */
static atoll_err diff_tables(const table *a, const table *b, const char *key, const char *const *names,
                             double tolerance, int missing_counts, json_t *report, int *differences) {
  const column *step = table_find(a, key);
  const column *steps = table_find(b, key);
  if (!step || !steps)
    return atoll_fail(ATOLL_CORRUPT, "/metrics of the %s run has no %s column", step ? "second" : "first", key);
  place *other = index_steps(steps, b->rows);
  if (!other)
    return atoll_fail(ATOLL_NOMEM, "index of %lld rows", (long long)b->rows);
  const int64_t common = count_common(other, a, b, step), only_a = a->rows - common, only_b = b->rows - common;
  for (int k = 0; names[k]; k++) {
    const column *x = table_find(a, names[k]), *y = table_find(b, names[k]);
    double worst = 0, where = NAN;
    int64_t differ = 0;
    if (!x || !y)
      continue;
    for (int64_t i = 0; i < a->rows; i++) {
      int64_t j = row_of(other, b->rows, step->v[i]);
      if (j < 0)
        continue;
      double u = x->v[i], v = y->v[j];
      if (u == v || (isnan(u) && isnan(v)))
        continue;
      double scale = fmax(fabs(u), fabs(v)), d = scale > 0 ? fabs(u - v) / scale : 0;
      if (!(d <= tolerance))
        differ++;
      if (!(d <= worst)) {
        worst = d;
        where = step->v[i];
      }
    }
    if (report)
      json_object_set_new(report, names[k],
                          json_pack("{s:I,s:I,s:o,s:o}", "common", (json_int_t)common, "differ", (json_int_t)differ,
                                    "worst", json_number(worst), "step", json_number(where)));
    else if (differ)
      printf("%s differs in %lld of %lld common rows , worst %.3g relative at step %.0f\n", names[k], (long long)differ,
             (long long)common, worst, where);
    else
      printf("%s %s in %lld common rows\n", names[k],
             worst > 0 ? "agrees within the tolerance" : "is the same bit for bit", (long long)common);
    *differences += differ > 0;
  }
  free(other);
  if (report)
    json_object_set_new(report, key,
                        json_pack("{s:I,s:I,s:I}", "common", (json_int_t)common, "only_first", (json_int_t)only_a,
                                  "only_second", (json_int_t)only_b));
  else if (only_a || only_b)
    printf("%lld %s only in the first , %lld only in the second\n", (long long)only_a,
           missing_counts ? "rows" : "validations", (long long)only_b);
  if (only_a || only_b)
    *differences += missing_counts;
  return ATOLL_OK;
}

static atoll_err diff_text(const char *a, const char *b, const char *object, json_t *report) {
  char *x = NULL, *y = NULL;
  atoll_store *s = NULL;
  ATOLL_TRY(atoll_store_open(a, ATOLL_STORE_READ, &s));
  atoll_err err = atoll_store_read_text(s, object, &x);
  atoll_store_close(&s);
  if (err == ATOLL_OK)
    err = atoll_store_open(b, ATOLL_STORE_READ, &s);
  if (err == ATOLL_OK) {
    err = atoll_store_read_text(s, object, &y);
    atoll_store_close(&s);
  }
  if (err == ATOLL_OK && strcmp(x, y) != 0) {
    char *sx = NULL, *sy = NULL, *line_y = strtok_r(y, "\n", &sy);
    for (char *line = strtok_r(x, "\n", &sx); line || line_y; line = line ? strtok_r(NULL, "\n", &sx) : NULL) {
      if (line && line_y && !strcmp(line, line_y))
        ;
      else if (report)
        json_array_append_new(
            report, json_pack("[o,o]", line ? json_text(line) : json_null(), line_y ? json_text(line_y) : json_null()));
      else
        printf("option: %s | %s\n", line ? line : "-", line_y ? line_y : "-");
      line_y = line_y ? strtok_r(NULL, "\n", &sy) : NULL;
    }
  }
  free(x);
  free(y);
  return err;
}

atoll_err inspect_diff(const char *a, const char *b, const inspect_options *o, int *differences) {
  static const char *const steps[] = {"loss",    "gradient_norm", "learning_rate", "tokens",
                                      "skipped", "mean_return",   "reward",        NULL},
                           *const validations[] = {"validation_loss", "validation_return", NULL};
  run_table x = {0}, y = {0};
  char fa[1200], fb[1200];
  json_t *report = o->json ? json_object() : NULL, *options = o->json ? json_array() : NULL;
  *differences = 0;
  atoll_err err = table_load(a, 1, &x);
  if (err == ATOLL_OK)
    err = table_load(b, 1, &y);
  if (err == ATOLL_OK && x.steps.rows + y.steps.rows == 0) /* equal, but no evidence of anything */
    err = atoll_fail(ATOLL_NOINPUT, "neither %s nor %s has a step yet", a, b);
  if (err == ATOLL_OK)
    err = diff_tables(&x.steps, &y.steps, "step", steps, o->tolerance, 1, report, differences);
  if (err == ATOLL_OK)
    err = diff_tables(&x.validations, &y.validations, "validation_step", validations, o->tolerance, 0, report,
                      differences);
  table_free(&y);
  table_free(&x);
  if (err == ATOLL_OK && run_file(a, fa, sizeof fa) == ATOLL_OK && run_file(b, fb, sizeof fb) == ATOLL_OK)
    err = diff_text(fa, fb, "/provenance/options", options); /* they explain differences and are none themselves */
  if (err == ATOLL_OK && report) {
    json_object_set(report, "options", options);
    json_object_set_new(report, "same", json_boolean(*differences == 0));
    err = json_print(report, stdout);
  }
  json_decref(options);
  json_decref(report);
  if (err == ATOLL_OK) /* what was looked for in vain */
    atoll_err_clear();
  return err;
}
