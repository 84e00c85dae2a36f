/* Slices of `atoll-bench mlp`, measured at different times, put together: every shape's runs beside each other, and
 * medians over shapes of the mean of their runs. */
#include <stdio.h>
#include <string.h>

#include "atoll/log.h"
#include "lists.h"
#include "mlp.h"

enum { SHAPES = 256, RUNS = 16 };

/* Of one run of a shape: the median over turns of the pipelined way's time over another's. */
typedef struct figure {
  const char *name;
  const char *over; /* key of a row's `cta_over` */
  int gain;         /* told as per cent below; 0: as the ratio */
} figure;

static const figure figures[] = {
    {"cta of the ideal", "ideal", 0},
    {"below micro-batches", "microbatch", 1},
    {"below micro-batches by BLAS", "microbatch_blas", 1},
    {"below tensor parallel with all-reduce", "tp_allreduce", 1},
    {"below tensor parallel with flags", "tp_flags", 1},
    {"below the row split", "row_split", 1},
    {"below the column split", "column_shared", 1},
};
enum { FIGURES = sizeof figures / sizeof *figures };

static int same_shape(const json_t *a, const json_t *b) {
  static const char *const keys[] = {"M", "widths", "ranks", "dtype", "gated"};
  int same = 1;
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    const json_t *x = json_object_get(a, keys[i]), *y = json_object_get(b, keys[i]);
    same &= json_equal(x, y) || (!x && !y); /* files of before there were others name neither dtype nor gates */
  }
  return same;
}

/* 0: the row has no such figure. */
static int value_of(const json_t *row, const figure *f, double *out) {
  double ratio =
      json_number_value(json_object_get(json_object_get(json_object_get(row, "cta_over"), f->over), "median"));
  *out = f->gain ? 100 * (1 - ratio) : ratio;
  return ratio > 0;
}

static void name_of(const json_t *row, char *text, size_t n) {
  size_t at = (size_t)snprintf(text, n, "%lld", (long long)json_integer_value(json_object_get(row, "M"))), i;
  const json_t *width;
  const char *dtype = json_string_value(json_object_get(row, "dtype"));
  json_array_foreach(json_object_get(row, "widths"), i, width) if (at < n) at +=
      (size_t)snprintf(text + at, n - at, " x %lld", (long long)json_integer_value(width));
  if (at < n)
    snprintf(text + at, n - at, "%s%s on %lld ranks", json_is_true(json_object_get(row, "gated")) ? " gated" : "",
             dtype && !strcmp(dtype, "bf16") ? " in bf16" : "",
             (long long)json_integer_value(json_object_get(row, "ranks")));
}

/* Of all rows of the shape of row `first`: least and largest, and the mean; how many there are. */
static int spread(const json_t *rows, const json_t *first, const figure *f, double *least, double *most, double *mean) {
  const json_t *row;
  size_t i;
  int n = 0;
  *mean = 0;
  json_array_foreach(rows, i, row) {
    double v;
    if (!same_shape(row, first) || !value_of(row, f, &v))
      continue;
    *least = n == 0 || v < *least ? v : *least;
    *most = n == 0 || v > *most ? v : *most;
    *mean = (*mean * n + v) / (n + 1);
    n++;
  }
  return n;
}

static int seen_before(const json_t *rows, size_t at) {
  for (size_t i = 0; i < at; i++)
    if (same_shape(json_array_get(rows, i), json_array_get(rows, at)))
      return 1;
  return 0;
}

static void tell_choices(const json_t *rows, const json_t *first) {
  const json_t *row;
  size_t i;
  json_array_foreach(rows, i, row) if (same_shape(row, first))
      atoll_say("  the chooser takes %s: %.1f %% over the best way", json_string_value(json_object_get(row, "chosen")),
                100 * (json_number_value(json_object_get(row, "chosen_over_best")) - 1));
}

atoll_err mlp_merge(const atoll_cli *cli, json_t *out) {
  static double means[FIGURES][SHAPES];
  int n[FIGURES] = {0}, identical = 1;
  json_t *rows = NULL, *row;
  size_t i;
  ATOLL_TRY(bench_rows(cli, "merge", &rows));
  json_object_set_new(out, "rows", rows);
  json_array_foreach(rows, i, row) {
    char text[256];
    identical &= json_is_true(json_object_get(row, "bit_identical"));
    if (seen_before(rows, i))
      continue;
    name_of(row, text, sizeof text);
    atoll_say("%s", text);
    for (int f = 0; f < FIGURES; f++) {
      double least = 0, most = 0, mean;
      int runs = spread(rows, row, &figures[f], &least, &most, &mean);
      if (!runs)
        continue;
      atoll_say(figures[f].gain ? "  %s %.1f .. %.1f %% ( %d runs )" : "  %s %.3f .. %.3f ( %d runs )", figures[f].name,
                least, most, runs);
      if (n[f] < SHAPES)
        means[f][n[f]++] = mean;
    }
    tell_choices(rows, row);
  }
  for (int f = 0; f < FIGURES; f++)
    if (n[f])
      atoll_say(figures[f].gain ? "median of %d shapes: %s %.1f %%" : "median of %d shapes: %s %.3f", n[f],
                figures[f].name, atoll_median(means[f], (size_t)n[f]));
  json_object_set_new(out, "bit_identical", json_boolean(identical));
  return ATOLL_OK;
}
