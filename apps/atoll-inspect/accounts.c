/* What the ranks used: counters by region with their spread over ranks, and memory predicted against measured. */
#include "inspect.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct names {
  char **v;
  size_t n;
} names;

static atoll_err read_names(atoll_store *s, const char *path, names *out) {
  return atoll_store_read_texts(s, path, &out->v, &out->n);
}

static void free_names(names *n) { atoll_store_texts_free(&n->v, n->n); }

static atoll_err read_array(atoll_store *s, const char *path, int ndim, int64_t *shape, double **v) {
  atoll_dtype t;
  int n;
  int64_t all[ATOLL_NDIM_MAX], start[ATOLL_NDIM_MAX] = {0}, count = 1;
  ATOLL_TRY(atoll_store_shape(s, path, &t, &n, all));
  if (n != ndim)
    return atoll_fail(ATOLL_CORRUPT, "%s has %d dimensions, expected %d", path, n, ndim);
  for (int i = 0; i < ndim; i++) {
    shape[i] = all[i];
    count *= all[i];
  }
  *v = malloc((size_t)(count ? count : 1) * sizeof **v);
  if (!*v)
    return atoll_fail(ATOLL_NOMEM, "%s", path);
  return count ? atoll_store_read(s, path, ATOLL_F64, start, all, *v) : ATOLL_OK;
}

/* ---- counters ------------------------------------------------------------------------------------------------------
 */

typedef struct spread {
  double min, mean, max;
} spread;

static spread over_ranks(const double *v, int64_t ranks, int64_t stride) {
  spread s = {INFINITY, 0, -INFINITY};
  for (int64_t r = 0; r < ranks; r++) {
    double x = v[r * stride];
    s.min = isnan(x) ? NAN : fmin(s.min, x);
    s.max = isnan(x) ? NAN : fmax(s.max, x);
    s.mean += x / (double)ranks;
  }
  return s;
}

static atoll_err show_counters(atoll_store *s, int json, FILE *f) {
  names region = {0}, name = {0}, unit = {0}, source = {0}, status = {0}, reason = {0};
  int64_t shape[3];
  double *v = NULL;
  json_t *root = json_object(), *regions = json_object(), *about = json_object();
  atoll_err err;
  ATOLL_TRY_GOTO(err, done, read_array(s, "/counters/values", 3, shape, &v));
  ATOLL_TRY_GOTO(err, done, read_names(s, "/counters/region", &region));
  ATOLL_TRY_GOTO(err, done, read_names(s, "/counters/name", &name));
  ATOLL_TRY_GOTO(err, done, read_names(s, "/counters/unit", &unit));
  ATOLL_TRY_GOTO(err, done, read_names(s, "/counters/source", &source));
  ATOLL_TRY_GOTO(err, done, read_names(s, "/counters/status", &status));
  ATOLL_TRY_GOTO(err, done, read_names(s, "/counters/reason", &reason));
  if ((int64_t)region.n != shape[1] || (int64_t)name.n != shape[2] || unit.n != name.n || source.n != name.n ||
      status.n != name.n || reason.n != name.n)
    ATOLL_TRY_GOTO(err, done, atoll_fail(ATOLL_CORRUPT, "/counters: names and values differ in number"));
  int64_t stride = shape[1] * shape[2];
  if (!json)
    fprintf(f, "%-12s %-24s %-8s %14s %14s %14s %10s\n", "region", "counter", "unit", "min", "mean", "max",
            "imbalance");
  for (int64_t g = 0; g < shape[1]; g++) {
    json_t *entry = json_object();
    for (int64_t c = 0; c < shape[2]; c++) {
      if (strcmp(status.v[c], "ok") != 0)
        continue;
      spread x = over_ranks(v + g * shape[2] + c, shape[0], stride);
      double imbalance = x.mean > 0 ? x.max / x.mean : NAN; /* 1 = even */
      if (json)
        json_object_set_new(entry, name.v[c],
                            json_pack("{s:o,s:o,s:o,s:o}", "min", json_number(x.min), "mean", json_number(x.mean),
                                      "max", json_number(x.max), "imbalance", json_number(imbalance)));
      else
        fprintf(f, "%-12s %-24s %-8s %14.6g %14.6g %14.6g %10.3f\n", region.v[g], name.v[c], unit.v[c], x.min, x.mean,
                x.max, imbalance);
    }
    json_object_set_new(regions, region.v[g], entry);
  }
  for (int64_t c = 0; c < shape[2]; c++) {
    int ok = !strcmp(status.v[c], "ok");
    json_object_set_new(about, name.v[c],
                        json_pack("{s:s,s:s,s:s,s:s}", "unit", unit.v[c], "source", source.v[c], "status", status.v[c],
                                  "reason", reason.v[c]));
    if (!json && !ok)
      fprintf(f, "%s is unavailable: %s\n", name.v[c], reason.v[c]);
  }
  if (json) {
    json_object_set_new(root, "ranks", json_integer((json_int_t)shape[0]));
    json_object_set(root, "regions", regions);
    json_object_set(root, "counters", about);
    err = json_print(root, f);
  }
done:
  json_decref(root);
  json_decref(regions);
  json_decref(about);
  free(v);
  free_names(&region), free_names(&name), free_names(&unit), free_names(&source), free_names(&status),
      free_names(&reason);
  return err;
}

/* ---- memory --------------------------------------------------------------------------------------------------------
 */

static atoll_err show_memory(atoll_store *s, int json, FILE *f) {
  names category = {0}, host = {0};
  int64_t shape[2], n;
  double *predicted = NULL, *measured = NULL, *one[4] = {0};
  static const char *const whole[] = {"predicted_peak", "measured_peak", "resident_peak", "limit"};
  json_t *ranks = json_array();
  atoll_err err;
  ATOLL_TRY_GOTO(err, done, read_array(s, "/memory/predicted", 2, shape, &predicted));
  ATOLL_TRY_GOTO(err, done, read_array(s, "/memory/measured", 2, shape, &measured));
  ATOLL_TRY_GOTO(err, done, read_names(s, "/memory/category", &category));
  ATOLL_TRY_GOTO(err, done, read_names(s, "/ranks/host", &host));
  for (int i = 0; i < 4; i++) {
    char path[64];
    snprintf(path, sizeof path, "/memory/%s", whole[i]);
    ATOLL_TRY_GOTO(err, done, read_array(s, path, 1, &n, &one[i]));
  }
  if ((int64_t)category.n != shape[1] || (int64_t)host.n != shape[0] || n != shape[0])
    ATOLL_TRY_GOTO(err, done, atoll_fail(ATOLL_CORRUPT, "/memory: names and values differ in number"));
  for (int64_t r = 0; r < shape[0]; r++) {
    json_t *p = json_object(), *m = json_object();
    if (!json)
      fprintf(f, "rank %lld on %s\n", (long long)r, host.v[r]);
    for (int64_t c = 0; c < shape[1]; c++) {
      double x = predicted[r * shape[1] + c], y = measured[r * shape[1] + c];
      json_object_set_new(p, category.v[c], json_number(x));
      json_object_set_new(m, category.v[c], json_number(y));
      if (!json && (x > 0 || y > 0))
        fprintf(f, "  %-12s predicted %16.0f  measured %16.0f bytes  %+.2f %%\n", category.v[c], x, y,
                x > 0 ? 100 * (y - x) / x : NAN);
    }
    if (!json) {
      fprintf(f, "  %-12s predicted %16.0f  measured %16.0f bytes , resident %.0f , limit %.0f\n", "peak", one[0][r],
              one[1][r], one[2][r], one[3][r]);
      json_decref(p);
      json_decref(m);
      continue;
    }
    json_t *entry =
        json_pack("{s:I,s:s,s:o,s:o}", "rank", (json_int_t)r, "host", host.v[r], "predicted", p, "measured", m);
    for (int i = 0; i < 4; i++)
      json_object_set_new(entry, whole[i], json_number(one[i][r]));
    json_array_append_new(ranks, entry);
  }
  if (json)
    err = json_print(ranks, f);
done:
  json_decref(ranks);
  free(predicted);
  free(measured);
  for (int i = 0; i < 4; i++)
    free(one[i]);
  free_names(&category), free_names(&host);
  return err;
}

static atoll_err show(const char *path, const inspect_options *o, atoll_err (*body)(atoll_store *, int, FILE *),
                      const char *group) {
  char file[1200], *text;
  size_t bytes;
  atoll_store *s = NULL;
  ATOLL_TRY(run_file(path, file, sizeof file));
  ATOLL_TRY(run_open(file, &s));
  FILE *f = output_open(&text, &bytes);
  atoll_err err = f ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "output");
  if (f) {
    err = atoll_store_has(s, group)
              ? body(s, o->json, f)
              : atoll_fail(ATOLL_NOINPUT, "%s has no %s yet: it comes with the first checkpoint", file, group);
    atoll_err closed = output_close(f, &text, &bytes, o->out);
    err = err != ATOLL_OK ? err : closed;
  }
  atoll_store_close(&s);
  return err;
}

atoll_err inspect_counters(const char *path, const inspect_options *o) {
  return show(path, o, show_counters, "/counters");
}
atoll_err inspect_memory(const char *path, const inspect_options *o) { return show(path, o, show_memory, "/memory"); }
