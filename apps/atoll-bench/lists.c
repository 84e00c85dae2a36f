#include "lists.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

atoll_err bench_numbers(const atoll_cli *cli, const char *flag, const char *otherwise, int64_t lo, int64_t hi,
                        bench_list *out) {
  const char *text = atoll_cli_value(cli, flag), *at = text ? text : otherwise;
  out->n = 0;
  while (*at) {
    char word[24];
    size_t k = strcspn(at, ",");
    (void)snprintf(word, sizeof word, "%.*s", (int)(k < sizeof word ? k : sizeof word - 1), at);
    if (out->n == LIST_MOST || atoll_parse_int(word, &out->v[out->n]) != 0 || out->v[out->n] < lo ||
        out->v[out->n] > hi)
      return atoll_fail(ATOLL_USAGE, "--%s: '%s' is not a list of at most %d whole numbers in %lld..%lld", flag,
                        text ? text : otherwise, LIST_MOST, (long long)lo, (long long)hi);
    out->n++;
    at += k + (at[k] == ',');
  }
  return ATOLL_OK;
}

static atoll_err read_rows(const char *path, json_t *all) {
  json_error_t e;
  json_t *root = json_load_file(path, 0, &e), *rows = json_object_get(root, "rows");
  atoll_err err = ATOLL_OK;
  if (!root)
    err = atoll_fail(ATOLL_NOINPUT, "%s: %s", path, e.text);
  else if (!json_is_array(rows) || json_array_extend(all, rows) != 0)
    err = atoll_fail(ATOLL_CORRUPT, "%s has no array 'rows'", path);
  json_decref(root);
  return err;
}

atoll_err bench_rows(const atoll_cli *cli, const char *flag, json_t **rows) {
  const char *at = atoll_cli_value(cli, flag);
  *rows = json_array();
  while (at && *at) {
    char path[4096];
    size_t k = strcspn(at, ",");
    (void)snprintf(path, sizeof path, "%.*s", (int)k, at);
    atoll_err err = read_rows(path, *rows);
    if (err != ATOLL_OK) {
      json_decref(*rows);
      *rows = NULL;
      return err;
    }
    at += k + (at[k] == ',');
  }
  return ATOLL_OK;
}

static int same(const json_t *a, const json_t *b, const char *const *keys) {
  for (int k = 0; keys[k]; k++) {
    const json_t *x = json_object_get(a, keys[k]), *y = json_object_get(b, keys[k]);
    if ((x || y) && !json_equal(x, y))
      return 0;
  }
  return 1;
}

double bench_compare(json_t *row, json_t *peers, const char *const *keys, const char *measure, int more) {
  json_t *found = json_object(), *p;
  double best = NAN;
  size_t i;
  json_array_foreach(peers, i, p) {
    const json_t *v = json_object_get(p, measure);
    if (!json_is_number(v) || !json_is_string(json_object_get(p, "program")) || !same(row, p, keys))
      continue;
    double x = json_number_value(v);
    json_object_set_new(found, json_string_value(json_object_get(p, "program")), json_real(x));
    best = isnan(best) || (more ? x > best : x < best) ? x : best;
  }
  json_object_set_new(row, "peers", found);
  return best;
}

const char *bench_against(double ratio, char text[48]) {
  text[0] = '\0';
  if (isfinite(ratio))
    (void)snprintf(text, 48, " , %.2f x the best peer", ratio);
  return text;
}
