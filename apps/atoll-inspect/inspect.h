/* atoll-inspect: what a run is, where it stands and what it left, without MPI.
 *   table      the metrics of all attempts as columns
 *   show       metrics, export, diff
 *   accounts   counters and memory of the ranks
 *   plot       curves by gnuplot
 *   checks     ls, status, verify, stop */
#ifndef ATOLL_INSPECT_H
#define ATOLL_INSPECT_H

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

#include "atoll/err.h"
#include "atoll/store.h"

typedef struct column {
  char name[64], units[32], long_name[128];
  int is_int;
  double *v; /* [rows of its table]; integers up to 2^53 are exact */
} column;

typedef struct table {
  int columns;
  column *column;
  int64_t rows;
} table;

typedef struct run_table {
  table steps, validations;
  int64_t attempts; /* highest seen */
} run_table;

/* Everything below /metrics of a run directory or one file. live: drop superseded rows. */
atoll_err table_load(const char *path, int live, run_table *t);
void table_free(run_table *t);
const column *table_find(const table *t, const char *name);

typedef struct inspect_options {
  const char *out;    /* file, NULL = standard output */
  const char *format; /* "text", "json", "csv" */
  const char *svg, *png;
  int terminal, all, json; /* json: format is "json" */
  double tolerance;
} inspect_options;

atoll_err inspect_metrics(const char *path, const inspect_options *o);
atoll_err inspect_export(const char *path, const inspect_options *o);
atoll_err inspect_diff(const char *a, const char *b, const inspect_options *o, int *differences);
atoll_err inspect_counters(const char *path, const inspect_options *o);
atoll_err inspect_memory(const char *path, const inspect_options *o);
atoll_err inspect_plot(const char *path, const inspect_options *o);
atoll_err inspect_ls(const char *path, const inspect_options *o);
/* *verdict: what a job script acts on: OK finished, STOPPED requeue, else why not. */
atoll_err inspect_status(const char *path, const inspect_options *o, atoll_err *verdict);
atoll_err inspect_verify(const char *path, const inspect_options *o);
atoll_err inspect_stop(const char *path, const inspect_options *o);

/* path, or path/run.h5 when path is a directory. NOINPUT when there is none. */
atoll_err run_file(const char *path, char *buf, size_t n);
/* Opens a run file to read; CORRUPT when it is HDF5 but not a run's. */
atoll_err run_open(const char *file, atoll_store **store);
/* A real number; null when it is not finite, because JSON has no other word for it. */
json_t *json_number(double v);
/* A text; bytes beyond ASCII become ? where it is not UTF-8, as paths need not be. */
json_t *json_text(const char *s);
/* Prints root as the JSON of a command; root is borrowed. */
atoll_err json_print(const json_t *root, FILE *f);
/* Output of a command: standard output or o->out, written whole or not at all. */
FILE *output_open(char **text, size_t *bytes);
atoll_err output_close(FILE *f, char **text, size_t *bytes, const char *out);

#endif
