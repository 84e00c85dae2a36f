#include "lists.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/log.h"

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

/* The first of the keys whose values differ, or the number of keys. */
static int first_difference(const json_t *a, const json_t *b, const char *const *keys) {
  int k = 0;
  for (; keys[k]; k++) {
    const json_t *x = json_object_get(a, keys[k]), *y = json_object_get(b, keys[k]);
    if ((x || y) && !json_equal(x, y))
      break;
  }
  return k;
}

/* A peer keeps by itself what it has in common with the nearest row: the keys before `depth`. */
static const char depth_key[] = "atoll_depth", differs_key[] = "atoll_differs";

static void keep_nearest(json_t *peer, const json_t *row, int depth, const char *key) {
  const json_t *before = json_object_get(peer, depth_key);
  char text[96], *theirs, *ours;
  if (before && json_integer_value(before) >= depth)
    return;
  json_object_set_new(peer, depth_key, json_integer(depth));
  theirs = json_dumps(json_object_get(peer, key), JSON_ENCODE_ANY);
  ours = json_dumps(json_object_get(row, key), JSON_ENCODE_ANY);
  (void)snprintf(text, sizeof text, "%s %.24s instead of %.24s", key, theirs ? theirs : "none", ours ? ours : "none");
  json_object_set_new(peer, differs_key, json_string(text));
  free(theirs);
  free(ours);
}

void bench_tell_unmatched(const json_t *peers) {
  size_t i, unmatched = 0;
  const char *why = "no row was measured";
  json_t *p;
  json_array_foreach(peers, i, p) {
    const json_t *differs = json_object_get(p, differs_key);
    if (json_is_null(differs))
      continue;
    if (unmatched++ == 0 && differs)
      why = json_string_value(differs);
  }
  if (unmatched)
    atoll_say("%zu of %zu peer rows matched no row; the first has %s", unmatched, json_array_size(peers), why);
}

int bench_sees_the_same(const bench_list *windows, int w, int64_t length) {
  const int64_t *v = windows->v;
  for (int k = 0; k < w; k++)
    if ((!v[k] || v[k] >= length) && (!v[w] || v[w] >= length))
      return 1;
  return 0;
}

double bench_compare(json_t *row, json_t *peers, const char *const *keys, const char *measure, int more) {
  json_t *found = json_object(), *p;
  double best = NAN;
  size_t i;
  json_array_foreach(peers, i, p) {
    const json_t *v = json_object_get(p, measure);
    const int named = json_is_string(json_object_get(p, "program")), k = first_difference(row, p, keys);
    if (!json_is_number(v) || !named || keys[k]) {
      keep_nearest(p, row, keys[k] ? k : 0, keys[k] ? keys[k] : named ? measure : "program");
      continue;
    }
    json_object_set_new(p, depth_key, json_integer(INT_MAX));
    json_object_set_new(p, differs_key, json_null()); /* it found its row */
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
