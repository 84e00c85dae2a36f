/* An external parallelizer's answer, from JSON text to slice plans. Every key is known and every number has a range:
 * what comes from outside is checked here once, and nowhere trusted before. */
#include "atoll/parallelizer_extern.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

/* Longest time and most bytes that make sense: a year, an exabyte. Sums of them stay finite and within int64. */
#define SECONDS_MAX 3.2e7
#define BYTES_MAX   (INT64_C(1) << 60)
#define DEGREE_MAX  (1 << 20)

typedef struct reading {
  const char *program;
  char quote[121]; /* beginning of the line, printable */
  const char *place;
  int index; /* of the point, or -1 */
} reading;

static atoll_err wrong(const reading *r, const char *key, const char *found, const char *expected) {
  char at[48] = "";
  if (r->index >= 0)
    snprintf(at, sizeof at, "point %d: ", r->index);
  return atoll_fail(ATOLL_CORRUPT, "plan.extern: %s: %s%s%s%s is %s, expected %s, in: %s", r->program, at, r->place,
                    r->place[0] ? "." : "", key, found, expected, r->quote);
}

/* "-3", "\"abc\"", "a list": what a message needs. */
static const char *shown(const json_t *v, char *buf, size_t n) {
  if (json_is_integer(v))
    snprintf(buf, n, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
  else if (json_is_real(v))
    snprintf(buf, n, "%g", json_real_value(v));
  else if (json_is_string(v))
    snprintf(buf, n, "'%.40s'", json_string_value(v));
  else
    snprintf(buf, n, "%s",
             !v                 ? "absent"
             : json_is_null(v)  ? "null"
             : json_is_array(v) ? "a list"
             : json_is_true(v)  ? "true"
             : json_is_false(v) ? "false"
                                : "an object");
  return buf;
}

static atoll_err whole(const reading *r, const json_t *map, const char *key, int required, int64_t lo, int64_t hi,
                       int64_t *out) {
  const json_t *v = json_object_get(map, key);
  char found[64], expected[80];
  if (!v && !required)
    return ATOLL_OK;
  snprintf(expected, sizeof expected, "a whole number in %" PRId64 "..%" PRId64, lo, hi);
  /* Languages with one kind of number write 4.0; beyond 2^53 it would not be exact. */
  double x = json_is_real(v) ? json_real_value(v) : 0;
  int64_t i = json_is_integer(v) ? (int64_t)json_integer_value(v) : fabs(x) <= 9007199254740992.0 ? (int64_t)x : -1;
  if (!json_is_number(v) || (json_is_real(v) && x != (double)i) || i < lo || i > hi)
    return wrong(r, key, shown(v, found, sizeof found), expected);
  *out = i;
  return ATOLL_OK;
}

static atoll_err degree(const reading *r, const json_t *map, const char *key, int required, int lo, int hi, int *out) {
  int64_t v = *out;
  ATOLL_TRY(whole(r, map, key, required, lo, hi, &v));
  *out = (int)v;
  return ATOLL_OK;
}

static atoll_err real(const reading *r, const json_t *map, const char *key, int required, double lo, double hi,
                      double *out) {
  const json_t *v = json_object_get(map, key);
  char found[64], expected[80];
  if (!v && !required)
    return ATOLL_OK;
  double x = json_is_number(v) ? json_number_value(v) : NAN;
  if (!(x >= lo && x <= hi)) {
    snprintf(expected, sizeof expected, "a number in %g..%g", lo, hi);
    return wrong(r, key, shown(v, found, sizeof found), expected);
  }
  *out = x;
  return ATOLL_OK;
}

static atoll_err text(const reading *r, const json_t *map, const char *key, char *out, size_t n) {
  const json_t *v = json_object_get(map, key);
  char found[64];
  if (!v)
    return ATOLL_OK;
  if (!json_is_string(v))
    return wrong(r, key, shown(v, found, sizeof found), "a text");
  snprintf(out, n, "%s", json_string_value(v));
  for (char *c = out; *c; c++)
    if ((unsigned char)*c < 32 || *c == 127)
      *c = ' ';
  return ATOLL_OK;
}

/* Refuses a key that is not in the list; it ends with NULL. */
static atoll_err known(const reading *r, json_t *map, const char *const *keys) {
  const char *key;
  json_t *value;
  json_object_foreach(map, key, value) {
    int found = 0;
    for (int i = 0; keys[i]; i++)
      found = found || strcmp(key, keys[i]) == 0;
    if (!found) {
      char name[64];
      snprintf(name, sizeof name, "%.60s", key);
      for (char *c = name; *c; c++)
        if ((unsigned char)*c < 32 || *c == 127)
          *c = ' ';
      return wrong(r, name, "there", "no such key");
    }
  }
  return ATOLL_OK;
}

static atoll_err read_offload(reading *r, const json_t *map, atoll_slice_plan *p) {
  static const char *const keys[] = {"weights", "gradients", "optimizer", "activations", NULL};
  double *const out[] = {&p->offload_weights, &p->offload_gradients, &p->offload_optimizer, &p->offload_activations};
  json_t *offload = json_object_get(map, "offload");
  char found[64];
  if (!offload)
    return ATOLL_OK;
  if (!json_is_object(offload))
    return wrong(r, "offload", shown(offload, found, sizeof found), "an object");
  r->place = "offload";
  atoll_err err = known(r, offload, keys);
  for (int i = 0; keys[i] && err == ATOLL_OK; i++)
    err = real(r, offload, keys[i], 0, 0, 1, out[i]);
  r->place = "";
  return err;
}

static atoll_err read_bytes(reading *r, const json_t *map, atoll_slice_plan *p, int *by_category) {
  json_t *bytes = json_object_get(map, "bytes");
  *by_category = json_is_object(bytes);
  if (!*by_category)
    return whole(r, map, "bytes", 1, 0, BYTES_MAX, &p->bytes_peak);
  const char *keys[ATOLL_MEM_CATEGORIES + 1] = {NULL};
  for (int c = 0; c < ATOLL_MEM_CATEGORIES; c++)
    keys[c] = atoll_mem_category_name((atoll_mem_category)c);
  r->place = "bytes";
  atoll_err err = known(r, bytes, keys);
  p->bytes_peak = 0;
  for (int c = 0; c < ATOLL_MEM_CATEGORIES && err == ATOLL_OK; c++) {
    err = whole(r, bytes, keys[c], 0, 0, BYTES_MAX / ATOLL_MEM_CATEGORIES, &p->bytes[c]);
    p->bytes_peak += p->bytes[c];
  }
  r->place = "";
  return err;
}

static atoll_err read_point(reading *r, json_t *map, atoll_slice_plan *p, int *by_category) {
  static const char *const keys[] = {
      "policy",     "data",    "tensor",  "context",  "expert", "zero", "sequence_parallel",
      "recompute",  "offload", "forward", "backward", "t",      "d",    "bytes",
      "bytes_host", "source",  NULL};
  char name[64] = "", found[64];
  atoll_policy policy;
  if (!json_is_object(map))
    return wrong(r, "point", shown(map, found, sizeof found), "an object");
  ATOLL_TRY(known(r, map, keys));
  *p = (atoll_slice_plan){.tensor = 1, .context = 1, .expert = 1, .source = ATOLL_COST_ANALYTIC};
  ATOLL_TRY(text(r, map, "policy", name, sizeof name));
  if (!name[0] || atoll_policy_parse(name, &policy) != 0)
    return wrong(r, "policy", shown(json_object_get(map, "policy"), found, sizeof found), atoll_policy_list());
  p->policy = (int)policy;
  ATOLL_TRY(degree(r, map, "data", 1, 1, DEGREE_MAX, &p->data));
  ATOLL_TRY(degree(r, map, "tensor", 0, 1, DEGREE_MAX, &p->tensor));
  ATOLL_TRY(degree(r, map, "context", 0, 1, DEGREE_MAX, &p->context));
  ATOLL_TRY(degree(r, map, "expert", 0, 1, DEGREE_MAX, &p->expert));
  ATOLL_TRY(degree(r, map, "zero", 0, 0, 3, &p->zero));
  ATOLL_TRY(degree(r, map, "recompute", 0, 0, DEGREE_MAX, &p->recompute));
  const json_t *sp = json_object_get(map, "sequence_parallel");
  if (sp && !json_is_boolean(sp))
    return wrong(r, "sequence_parallel", shown(sp, found, sizeof found), "true or false");
  p->sequence_parallel = json_is_true(sp);
  ATOLL_TRY(read_offload(r, map, p));
  /* Nothing takes no time: a time of zero would make a slice free. */
  ATOLL_TRY(real(r, map, "t", 1, 1e-12, SECONDS_MAX, &p->t));
  ATOLL_TRY(real(r, map, "d", 1, 0, SECONDS_MAX, &p->d));
  p->forward = p->t * p->data / 3;
  p->backward = p->t * p->data - p->forward;
  ATOLL_TRY(real(r, map, "forward", 0, 1e-12, SECONDS_MAX, &p->forward));
  ATOLL_TRY(real(r, map, "backward", 0, 1e-12, SECONDS_MAX, &p->backward));
  ATOLL_TRY(read_bytes(r, map, p, by_category));
  ATOLL_TRY(whole(r, map, "bytes_host", 0, 0, BYTES_MAX, &p->bytes_host));
  if (json_object_get(map, "source")) {
    int s = 0;
    ATOLL_TRY(text(r, map, "source", name, sizeof name));
    while (s <= ATOLL_COST_ANALYTIC && strcmp(name, atoll_cost_source_name((atoll_cost_source)s)) != 0)
      s++;
    if (s > ATOLL_COST_ANALYTIC)
      return wrong(r, "source", shown(json_object_get(map, "source"), found, sizeof found),
                   "measured, interpolated or analytic");
    p->source = (atoll_cost_source)s;
  }
  return ATOLL_OK;
}

static atoll_err read_answer(reading *r, json_t *map, atoll_extern_answer *out) {
  static const char *const keys[] = {"id", "points", "missing", "why", "error", NULL};
  char found[64];
  if (!json_is_object(map))
    return wrong(r, "answer", shown(map, found, sizeof found), "an object");
  ATOLL_TRY(whole(r, map, "id", 1, 0, INT64_MAX, &out->id));
  ATOLL_TRY(known(r, map, keys));
  ATOLL_TRY(text(r, map, "error", out->error, sizeof out->error));
  ATOLL_TRY(text(r, map, "why", out->why, sizeof out->why));
  ATOLL_TRY(whole(r, map, "missing", 0, 0, BYTES_MAX, &out->missing));
  json_t *points = json_object_get(map, "points");
  if (json_object_get(map, "error")) {
    if (points)
      return wrong(r, "points", shown(points, found, sizeof found), "nothing beside error");
    if (!out->error[0])
      snprintf(out->error, sizeof out->error, "no reason given");
    return ATOLL_OK;
  }
  if (!json_is_array(points))
    return wrong(r, "points", shown(points, found, sizeof found), "a list");
  size_t n = json_array_size(points);
  if (n > ATOLL_EXTERN_POINTS) {
    snprintf(found, sizeof found, "a list of %zu", n);
    return wrong(r, "points", found, "at most 64 points");
  }
  for (size_t i = 0; i < n; i++) {
    r->index = (int)i;
    ATOLL_TRY(read_point(r, json_array_get(points, i), &out->point[i], &out->by_category[i]));
    out->count = (int)i + 1;
  }
  return ATOLL_OK;
}

atoll_err atoll_extern_parse(const char *program, const char *line, size_t bytes, atoll_extern_answer *out) {
  reading r = {.program = program, .place = "", .index = -1};
  json_error_t e;
  size_t n = bytes < sizeof r.quote - 1 ? bytes : sizeof r.quote - 1;
  memset(out, 0, sizeof *out);
  out->id = -1;
  out->missing = INT64_MAX;
  for (size_t i = 0; i < n; i++)
    r.quote[i] = (unsigned char)line[i] < 32 || line[i] == 127 ? ' ' : line[i];
  json_t *map = json_loadb(line, bytes, JSON_REJECT_DUPLICATES, &e);
  if (!map)
    return atoll_fail(ATOLL_CORRUPT, "plan.extern: %s wrote a line that is not JSON (%s, column %d): %s", program,
                      e.text, e.column, r.quote);
  atoll_err err = read_answer(&r, map, out);
  json_decref(map);
  return err;
}
