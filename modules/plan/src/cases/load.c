/* A case file and its data, checked key by key: what is wrong is named with file and key, and nothing is guessed. A
 * (gpu, micro-batch, degree) without a profile is no error: it is no candidate. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/file.h"
#include "cases/cases.h"
#include "plan_impl.h"

#define COUNT_MAX  1000000 /* devices of an entry, samples of a batch: more is a slip */
#define NUMBER_MAX 1e30    /* sums stay finite */
#define LAYERS_MAX 1024

static atoll_err read_json(const char *path, json_t **out) {
  json_t *root = NULL;
  ATOLL_TRY(plan_read_json(path, &root));
  if (!json_is_object(root)) {
    json_decref(root);
    return atoll_fail(ATOLL_USAGE, "%s: expected a JSON object", path);
  }
  *out = root;
  return ATOLL_OK;
}

static const char *shown(const json_t *v, char *buf, size_t n) {
  char *text = v ? json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
  snprintf(buf, n, "%s", text ? text : "missing");
  free(text);
  return buf;
}

#define WRONG(where, key, value, expected)                                                                             \
  atoll_fail(ATOLL_USAGE, "%s%s is %s, expected %s", where, key, shown(value, (char[48]){0}, 48), expected)

static atoll_err read_text(const char *where, const char *key, const json_t *v, char out[CASE_NAME]) {
  const char *text = json_string_value(v);
  if (!text || !text[0] || strlen(text) >= CASE_NAME)
    return WRONG(where, key, v, "a text of 1..63 characters");
  for (const char *p = text; *p; p++)
    if ((unsigned char)*p < ' ')
      return WRONG(where, key, v, "a text without control characters");
  strcpy(out, text);
  return ATOLL_OK;
}

static atoll_err read_whole(const char *where, const char *key, const json_t *v, int64_t most, int64_t *out) {
  if (!json_is_integer(v) || json_integer_value(v) < 1 || json_integer_value(v) > most)
    return atoll_fail(ATOLL_USAGE, "%s%s is %s, expected a whole number of 1..%" PRId64, where, key,
                      shown(v, (char[48]){0}, 48), most);
  *out = json_integer_value(v);
  return ATOLL_OK;
}

static atoll_err read_number(const char *where, const char *key, const json_t *v, int positive, double *out) {
  double x = json_is_number(v) ? json_number_value(v) : NAN;
  if (!(x < NUMBER_MAX) || x < 0 || (positive && x <= 0))
    return WRONG(where, key, v, positive ? "a number above 0 and below 1e30" : "a number of 0 or more, below 1e30");
  *out = x;
  return ATOLL_OK;
}

static atoll_err only_keys(const char *where, const json_t *object, const char *const *keys) {
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)(uintptr_t)object, key, value) {
    int known = 0;
    for (int i = 0; keys[i]; i++)
      known |= !strcmp(key, keys[i]);
    if (!known)
      return atoll_fail(ATOLL_USAGE, "%skey '%.40s' is unknown", where, key);
  }
  return ATOLL_OK;
}

/* ---- the case ---------------------------------------------------------------------------------------------------- */

static atoll_err read_objective(atoll_case *c, const json_t *o) {
  static const char *const faster[] = {"maximise", "max_price_per_iteration", NULL}, *const cheaper[] = {
                                                                                         "minimise",
                                                                                         "min_iterations_per_s", NULL};
  char where[600];
  snprintf(where, sizeof where, "%s: objective", c->path);
  if (!json_is_object(o))
    return WRONG(where, "", o, "an object with 'maximise' or 'minimise'");
  strcat(where, ": ");
  const char *most = json_string_value(json_object_get(o, "maximise")),
             *least = json_string_value(json_object_get(o, "minimise"));
  if (least && !strcmp(least, "price_per_iteration")) {
    json_t *floor_rate = json_object_get(o, "min_iterations_per_s");
    double rate = 0;
    c->goal = ENGINE_CHEAPEST;
    ATOLL_TRY(only_keys(where, o, cheaper));
    if (floor_rate) {
      ATOLL_TRY(read_number(where, "min_iterations_per_s", floor_rate, 0, &rate));
      c->max_seconds = rate > 0 ? 1 / rate : INFINITY;
    }
    return ATOLL_OK;
  }
  if (!most || strcmp(most, "iterations_per_s") != 0)
    return atoll_fail(ATOLL_USAGE,
                      "%sexpected \"maximise\": \"iterations_per_s\" or \"minimise\": \"price_per_iteration\"", where);
  ATOLL_TRY(only_keys(where, o, faster));
  json_t *cap = json_object_get(o, "max_price_per_iteration");
  return cap ? read_number(where, "max_price_per_iteration", cap, 1, &c->max_price) : ATOLL_OK;
}

static int zone_of(atoll_case *c, const char *name) {
  for (int i = 0; i < c->zones; i++)
    if (!strcmp(c->zone[i], name))
      return i;
  strcpy(c->zone[c->zones], name);
  return c->zones++;
}

static int gpu_of(atoll_case *c, const char *name) {
  for (int i = 0; i < c->gpus; i++)
    if (!strcmp(c->gpu[i].name, name))
      return i;
  strcpy(c->gpu[c->gpus].name, name);
  return c->gpus++;
}

static atoll_err read_entry(atoll_case *c, const json_t *e, int i) {
  static const char *const keys[] = {"gpu", "zone", "count", "gpus_per_node", NULL};
  char where[600], gpu[CASE_NAME], zone[CASE_NAME];
  case_pool *pool = &c->pool[i];
  int64_t count, per_node = 0;
  snprintf(where, sizeof where, "%s: cluster[%d]", c->path, i);
  if (!json_is_object(e))
    return WRONG(where, "", e, "an object");
  strcat(where, ".");
  ATOLL_TRY(only_keys(where, e, keys));
  ATOLL_TRY(read_text(where, "gpu", json_object_get(e, "gpu"), gpu));
  ATOLL_TRY(read_text(where, "zone", json_object_get(e, "zone"), zone));
  ATOLL_TRY(read_whole(where, "count", json_object_get(e, "count"), COUNT_MAX, &count));
  const json_t *nodes = json_object_get(e, "gpus_per_node");
  if (nodes && !json_is_null(nodes))
    ATOLL_TRY(read_whole(where, "gpus_per_node", nodes, COUNT_MAX, &per_node));
  *pool = (case_pool){gpu_of(c, gpu), zone_of(c, zone), (int)count, (int)per_node, NAN};
  for (int k = 0; k < i; k++)
    if (c->pool[k].gpu == pool->gpu && c->pool[k].zone == pool->zone)
      return atoll_fail(ATOLL_USAGE, "%sgpu: %s in %s is listed twice", where, gpu, zone);
  return ATOLL_OK;
}

/* One change, "GPU ZONE COUNT". */
static atoll_err change_pool(atoll_case *c, const char *text, int lost) {
  const char *what = lost ? "lose" : "add";
  char gpu[CASE_NAME], zone[CASE_NAME], end;
  int count, at = -1, like = -1;
  if (sscanf(text, " %63s %63s %d %c", gpu, zone, &count, &end) != 3 || count < 1 || count > COUNT_MAX)
    return atoll_fail(ATOLL_USAGE, "%s '%.100s': expected \"GPU ZONE COUNT\"", what, text);
  for (int i = 0; i < c->pools; i++)
    if (!strcmp(c->gpu[c->pool[i].gpu].name, gpu)) {
      like = i;
      if (!strcmp(c->zone[c->pool[i].zone], zone))
        at = i;
    }
  if (lost) {
    if (at < 0 || count > c->pool[at].count)
      return atoll_fail(ATOLL_USAGE, "lose '%.100s': the cluster has %d %s in %s", text, at < 0 ? 0 : c->pool[at].count,
                        gpu, zone);
    c->pool[at].count -= count;
    return ATOLL_OK;
  }
  if (at >= 0)
    c->pool[at].count += count;
  else
    c->pool[c->pools++] =
        (case_pool){gpu_of(c, gpu), zone_of(c, zone), count, like < 0 ? 0 : c->pool[like].per_node, NAN};
  return ATOLL_OK;
}

static atoll_err change_pools(atoll_case *c, const char *texts, int lost) {
  while (texts) {
    char one[200];
    const char *comma = strchr(texts, ',');
    size_t n = comma ? (size_t)(comma - texts) : strlen(texts);
    snprintf(one, sizeof one, "%.*s", (int)(n < sizeof one ? n : sizeof one - 1), texts);
    ATOLL_TRY(change_pool(c, one, lost));
    texts = comma ? comma + 1 : NULL;
  }
  return ATOLL_OK;
}

static int count_changes(const char *texts) {
  int n = texts != NULL;
  for (; texts && *texts; texts++)
    n += *texts == ',';
  return n;
}

static atoll_err change_cluster(atoll_case *c, const char *lose, const char *add) {
  ATOLL_TRY(change_pools(c, add, 0));
  ATOLL_TRY(change_pools(c, lose, 1));
  int kept = 0;
  for (int i = 0; i < c->pools; i++)
    if (c->pool[i].count)
      c->pool[kept++] = c->pool[i];
  c->pools = kept;
  return kept ? ATOLL_OK : atoll_fail(ATOLL_INFEASIBLE, "no device is left after losing '%s'", lose);
}

static atoll_err read_case(atoll_case *c, const json_t *root, const char *lose, const char *add) {
  static const char *const keys[] = {"name",      "model",    "global_batch",   "cluster",
                                     "objective", "recorded", "search_seconds", "best_known_iterations_per_s",
                                     "note",      NULL};
  char where[600];
  snprintf(where, sizeof where, "%s: ", c->path);
  const json_t *kind = json_object_get(root, "kind");
  if (kind)
    return atoll_fail(ATOLL_USAGE, "%skind is %s: a collection of facts, not a case to plan", where,
                      shown(kind, (char[48]){0}, 48));
  ATOLL_TRY(only_keys(where, root, keys));
  ATOLL_TRY(read_text(where, "name", json_object_get(root, "name"), c->name));
  ATOLL_TRY(read_text(where, "model", json_object_get(root, "model"), c->model));
  ATOLL_TRY(read_whole(where, "global_batch", json_object_get(root, "global_batch"), COUNT_MAX, &c->global_batch));
  ATOLL_TRY(read_objective(c, json_object_get(root, "objective")));
  const json_t *cluster = json_object_get(root, "cluster");
  size_t n = json_array_size(cluster);
  if (n < 1 || n > ENGINE_POOLS_MAX)
    return WRONG(where, "cluster", cluster, "a list of 1..1024 entries");
  size_t room = n + (size_t)count_changes(add);
  ATOLL_TRY(plan_alloc(room, sizeof *c->pool, &c->pool));
  ATOLL_TRY(plan_alloc(room, sizeof *c->gpu, &c->gpu));
  ATOLL_TRY(plan_alloc(room, sizeof *c->zone, &c->zone));
  c->pools = (int)n;
  for (int i = 0; i < c->pools; i++)
    ATOLL_TRY(read_entry(c, json_array_get(cluster, (size_t)i), i));
  return change_cluster(c, lose, add);
}

/* ---- profiles ---------------------------------------------------------------------------------------------------- */

/* Layer values of key `key`, each 0 or more; NULL when absent is not allowed. */
static atoll_err read_layers(const atoll_case *c, const char *where, const char *key, const json_t *v, double *out) {
  if (json_array_size(v) != (size_t)c->layers)
    return atoll_fail(ATOLL_USAGE, "%s: %s%s has %zu values, the model has %d layers", c->profile, where, key,
                      json_array_size(v), c->layers);
  for (int l = 0; l < c->layers; l++) {
    char at[400];
    snprintf(at, sizeof at, "%.200s: %.100s%.30s[%d]", c->profile, where, key, l);
    ATOLL_TRY(read_number(at, "", json_array_get(v, (size_t)l), 0, &out[l]));
  }
  return ATOLL_OK;
}

static void sums(double *x, int layers) { /* [layers] -> [layers + 1], of what comes before */
  double before = 0;
  for (int l = 0; l <= layers; l++) {
    double here = l < layers ? x[l] : 0;
    x[l] = before;
    before += here;
  }
}

static int key_number(const char *key) {
  char *end;
  long n = strtol(key, &end, 10);
  return *key >= '1' && *key <= '9' && !*end && n <= COUNT_MAX ? (int)n : 0;
}

static int by_value(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

/* All keys of `object`, as ascending numbers, added to list[*n]. */
static atoll_err add_numbers(const atoll_case *c, const char *where, const json_t *object, int64_t **list, int *n) {
  const char *key;
  json_t *value;
  if (!json_is_object(object))
    return atoll_fail(ATOLL_USAGE, "%s: %s is %s, expected an object", c->profile, where,
                      shown(object, (char[48]){0}, 48));
  json_object_foreach((json_t *)(uintptr_t)object, key, value) {
    int64_t x = key_number(key), *grown;
    if (!x)
      return atoll_fail(ATOLL_USAGE, "%s: %s: key '%.20s' is not a whole number of at least 1", c->profile, where, key);
    int have = 0;
    for (int i = 0; i < *n; i++)
      have |= (*list)[i] == x;
    if (have)
      continue;
    if (!(grown = realloc(*list, ((size_t)*n + 1) * sizeof *grown)))
      return atoll_fail(ATOLL_NOMEM, "no memory for %d profile keys", *n + 1);
    *list = grown;
    (*list)[(*n)++] = x;
  }
  qsort(*list, (size_t)*n, sizeof **list, by_value);
  return ATOLL_OK;
}

static json_t *numbered(const json_t *object, int64_t n) {
  char key[24];
  snprintf(key, sizeof key, "%" PRId64, n);
  return json_object_get(object, key);
}

static atoll_err read_values(atoll_case *c, const json_t *root) {
  static const char *const keys[] = {"parameters", "output", "activation", NULL};
  const json_t *values = json_object_get(root, "values");
  int64_t *degree = NULL;
  atoll_err err = add_numbers(c, "values", values, &degree, &c->degrees);
  if (err == ATOLL_OK)
    err = plan_alloc((size_t)c->degrees, sizeof *c->degree, &c->degree);
  for (int t = 0; err == ATOLL_OK && t < c->degrees; t++)
    c->degree[t] = (int)degree[t];
  free(degree);
  ATOLL_TRY(err);
  if (!c->degrees || c->degree[0] != 1)
    return atoll_fail(ATOLL_USAGE, "%s: values has no degree 1", c->profile);
  size_t n = (size_t)c->layers + 1;
  ATOLL_TRY(plan_alloc((size_t)c->degrees, sizeof *c->values, &c->values));
  ATOLL_TRY(plan_alloc(n, sizeof *c->output, &c->output));
  ATOLL_TRY(plan_alloc(n, sizeof *c->weight, &c->weight));
  for (int t = 0; t < c->degrees; t++) {
    const json_t *v = numbered(values, c->degree[t]);
    case_values *to = &c->values[t];
    char where[64];
    snprintf(where, sizeof where, "values.%d.", c->degree[t]);
    ATOLL_TRY(only_keys(where, v, keys));
    ATOLL_TRY(plan_alloc(n, sizeof *to->parameters, &to->parameters));
    ATOLL_TRY(plan_alloc(n, sizeof *to->activation, &to->activation));
    ATOLL_TRY(read_layers(c, where, "parameters", json_object_get(v, "parameters"), to->parameters));
    ATOLL_TRY(read_layers(c, where, "activation", json_object_get(v, "activation"), to->activation));
    if (t == 0) {
      ATOLL_TRY(read_layers(c, where, "output", json_object_get(v, "output"), c->output));
      for (int l = 0; l < c->layers; l++) {
        c->output[l] *= 4;
        c->weight[l] = 4 * to->parameters[l];
      }
      sums(c->weight, c->layers);
    }
    sums(to->parameters, c->layers);
    sums(to->activation, c->layers);
  }
  return ATOLL_OK;
}

static atoll_err read_table(const atoll_case *c, const char *where, const json_t *v, case_table *t) {
  static const char *const keys[] = {"forward", "backward", "update", NULL};
  size_t n = (size_t)c->layers + 1;
  double *backward = NULL;
  char named[300];
  snprintf(named, sizeof named, "%.200s: %.90s", c->profile, where);
  if (!json_is_object(v))
    return WRONG(named, "", v, "an object");
  ATOLL_TRY(only_keys(named, v, keys));
  ATOLL_TRY(plan_alloc(n, sizeof *t->seconds, &t->seconds));
  ATOLL_TRY(plan_alloc(n, sizeof *t->update, &t->update));
  ATOLL_TRY(plan_alloc(n, sizeof *backward, &backward));
  atoll_err err = read_layers(c, where, "forward", json_object_get(v, "forward"), t->seconds);
  if (err == ATOLL_OK)
    err = read_layers(c, where, "backward", json_object_get(v, "backward"), backward);
  if (err == ATOLL_OK)
    err = read_layers(c, where, "update", json_object_get(v, "update"), t->update);
  for (int l = 0; err == ATOLL_OK && l < c->layers; l++)
    t->seconds[l] += backward[l];
  free(backward);
  ATOLL_TRY(err);
  sums(t->seconds, c->layers);
  if (t->seconds[c->layers] <= 0)
    return atoll_fail(ATOLL_USAGE, "%s: %sforward and backward are zero for every layer", c->profile, where);
  t->known = 1;
  return ATOLL_OK;
}

static atoll_err read_gpu(atoll_case *c, case_gpu *gpu, const json_t *v) {
  static const char *const keys[] = {"memory_gib", "price_per_hour", "seconds", NULL};
  char where[300];
  snprintf(where, sizeof where, "%.200s: gpus.%s", c->profile, gpu->name);
  if (!json_is_object(v))
    return WRONG(where, "", v, "an object");
  strcat(where, ".");
  ATOLL_TRY(only_keys(where, v, keys));
  ATOLL_TRY(read_number(where, "memory_gib", json_object_get(v, "memory_gib"), 1, &gpu->memory));
  gpu->memory *= 1024.0 * 1024 * 1024;
  const json_t *prices = json_object_get(v, "price_per_hour"), *seconds = json_object_get(v, "seconds");
  if (prices && !json_is_object(prices))
    return WRONG(where, "price_per_hour", prices, "an object");
  for (int i = 0; i < c->pools; i++) {
    const json_t *price = &c->gpu[c->pool[i].gpu] == gpu ? json_object_get(prices, c->zone[c->pool[i].zone]) : NULL;
    if (price && !json_is_null(price))
      ATOLL_TRY(read_number(where, "price_per_hour", price, 1, &c->pool[i].hour));
  }
  ATOLL_TRY(plan_alloc((size_t)c->batches * (size_t)c->degrees, sizeof *gpu->table, &gpu->table));
  for (int b = 0; b < c->batches; b++) {
    const json_t *row = numbered(seconds, c->batch[b]);
    for (int t = 0; row && t < c->degrees; t++) {
      const json_t *cell = numbered(row, c->degree[t]);
      snprintf(where, sizeof where, "gpus.%s.seconds.%" PRId64 ".%d.", gpu->name, c->batch[b], c->degree[t]);
      if (cell)
        ATOLL_TRY(read_table(c, where, cell, &gpu->table[b * c->degrees + t]));
    }
  }
  gpu->profiled = 1;
  return ATOLL_OK;
}

/* Micro-batch sizes that any GPU of the cluster was profiled with, and that leave no sample out of the batch. */
static atoll_err read_batches(atoll_case *c, const json_t *gpus) {
  for (int g = 0; g < c->gpus; g++) {
    const json_t *gpu = json_object_get(gpus, c->gpu[g].name), *seconds = json_object_get(gpu, "seconds"), *row;
    const char *key;
    int64_t *ignored = NULL;
    int n = 0;
    char where[128];
    if (!gpu)
      continue;
    snprintf(where, sizeof where, "gpus.%s.seconds", c->gpu[g].name);
    ATOLL_TRY(add_numbers(c, where, seconds, &c->batch, &c->batches));
    json_object_foreach((json_t *)(uintptr_t)seconds, key, row) {
      atoll_err err = add_numbers(c, where, row, &ignored, &n);
      if (err != ATOLL_OK) {
        free(ignored);
        return err;
      }
    }
    free(ignored);
  }
  return ATOLL_OK;
}

static atoll_err class_layers(atoll_case *c) {
  ATOLL_TRY(plan_alloc((size_t)c->layers, sizeof *c->layer_class, &c->layer_class));
  int classes = 0;
  for (int l = 0; l < c->layers; l++) {
    int same = -1;
    for (int k = l - 1; k >= 0 && same < 0; k--) {
      int equal = c->output[k] == c->output[l];
      for (int t = 0; t < c->degrees && equal; t++)
        equal = c->values[t].parameters[k + 1] - c->values[t].parameters[k] ==
                    c->values[t].parameters[l + 1] - c->values[t].parameters[l] &&
                c->values[t].activation[k + 1] - c->values[t].activation[k] ==
                    c->values[t].activation[l + 1] - c->values[t].activation[l];
      for (int g = 0; g < c->gpus && equal; g++)
        for (int i = 0; i < c->batches * c->degrees && equal && c->gpu[g].profiled; i++) {
          const case_table *t = &c->gpu[g].table[i];
          equal = !t->known || (fabs((t->seconds[k + 1] - t->seconds[k]) - (t->seconds[l + 1] - t->seconds[l])) <=
                                    1e-13 * t->seconds[c->layers] &&
                                t->update[k] == t->update[l]);
        }
      same = equal ? k : -1;
    }
    c->layer_class[l] = same < 0 ? classes++ : c->layer_class[same];
  }
  return ATOLL_OK;
}

static atoll_err read_profile(atoll_case *c, const json_t *root) {
  static const char *const keys[] = {"model", "layers", "gpus", "values", NULL};
  char where[600], model[CASE_NAME];
  int64_t layers;
  snprintf(where, sizeof where, "%s: ", c->profile);
  ATOLL_TRY(only_keys(where, root, keys));
  ATOLL_TRY(read_text(where, "model", json_object_get(root, "model"), model));
  if (strcmp(model, c->model) != 0)
    return atoll_fail(ATOLL_USAGE, "%s: model is '%s', the case plans '%s'", c->profile, model, c->model);
  ATOLL_TRY(read_whole(where, "layers", json_object_get(root, "layers"), LAYERS_MAX, &layers));
  c->layers = (int)layers;
  const json_t *gpus = json_object_get(root, "gpus");
  if (!json_is_object(gpus))
    return WRONG(where, "gpus", gpus, "an object");
  ATOLL_TRY(read_values(c, root));
  ATOLL_TRY(read_batches(c, gpus));
  for (int g = 0; g < c->gpus; g++) {
    const json_t *gpu = json_object_get(gpus, c->gpu[g].name);
    if (gpu)
      ATOLL_TRY(read_gpu(c, &c->gpu[g], gpu));
  }
  return class_layers(c);
}

/* ---- network ----------------------------------------------------------------------------------------------------- */

static atoll_err read_transfer(atoll_case *c, const char *path, const json_t *root) {
  ATOLL_TRY(plan_alloc((size_t)c->zones * (size_t)c->zones, sizeof *c->transfer, &c->transfer));
  for (int a = 0; a < c->zones; a++)
    for (int b = 0; b < c->zones; b++) {
      const json_t *row = json_object_get(root, c->zone[a]), *v = json_object_get(row, c->zone[b]);
      char where[700];
      snprintf(where, sizeof where, "%.500s: %.60s.%.60s", path, c->zone[a], c->zone[b]);
      c->transfer[a * c->zones + b] = NAN;
      if (v)
        ATOLL_TRY(read_number(where, "", v, 0, &c->transfer[a * c->zones + b]));
    }
  return ATOLL_OK;
}

static atoll_err read_fit(const atoll_case *c, const char *path, const json_t *root, int a, int na, int b, int nb,
                          case_fit *fit) {
  const case_pool *from = &c->pool[a], *to = &c->pool[b];
  const json_t *v = json_object_get(root, c->zone[from->zone]);
  v = numbered(json_object_get(v, c->gpu[from->gpu].name), na);
  v = json_object_get(json_object_get(v, c->zone[to->zone]), c->gpu[to->gpu].name);
  v = numbered(v, nb);
  fit->terms = 0;
  if (!v || isnan(c->transfer[from->zone * c->zones + to->zone]) ||
      isnan(c->transfer[to->zone * c->zones + from->zone]))
    return ATOLL_OK; /* not known: no plan sends here */
  size_t n = json_array_size(v);
  if (n < 1 || n > CASE_FIT)
    return atoll_fail(ATOLL_USAGE, "%s: %s %s %d to %s %s %d has %zu coefficients, expected a list of 1..%d", path,
                      c->zone[from->zone], c->gpu[from->gpu].name, na, c->zone[to->zone], c->gpu[to->gpu].name, nb, n,
                      CASE_FIT);
  for (size_t i = 0; i < n; i++) {
    const json_t *x = json_array_get(v, i);
    if (!json_is_number(x) || !(fabs(json_number_value(x)) < NUMBER_MAX))
      return atoll_fail(ATOLL_USAGE, "%s: %s %s %d to %s %s %d: coefficient %zu is not a number", path,
                        c->zone[from->zone], c->gpu[from->gpu].name, na, c->zone[to->zone], c->gpu[to->gpu].name, nb,
                        i);
    fit->c[i] = json_number_value(x);
  }
  fit->terms = (int)n;
  return ATOLL_OK;
}

/* A kind needs the degree inside a node, a profile with some micro-batch, tensor sizes, and a zone with prices. */
static atoll_err make_kinds(atoll_case *c) {
  ATOLL_TRY(plan_alloc((size_t)c->pools * (size_t)c->degrees, sizeof *c->kind, &c->kind));
  for (int p = 0; p < c->pools; p++) {
    const case_pool *pool = &c->pool[p];
    const case_gpu *gpu = &c->gpu[pool->gpu];
    if (!gpu->profiled || isnan(c->transfer[pool->zone * c->zones + pool->zone]))
      continue;
    for (int t = 0; t < c->degrees; t++) {
      int known = 0;
      for (int b = 0; b < c->batches; b++)
        known |= gpu->table[b * c->degrees + t].known;
      if (known && (!pool->per_node || c->degree[t] <= pool->per_node) && c->degree[t] <= pool->count)
        c->kind[c->kinds++] = (engine_kind){p, c->degree[t], t};
    }
  }
  return ATOLL_OK;
}

static atoll_err read_network(atoll_case *c, const char *path, const json_t *root) {
  ATOLL_TRY(make_kinds(c));
  size_t n = (size_t)c->kinds, m = (size_t)c->pools;
  ATOLL_TRY(plan_alloc(n * n, sizeof *c->fit, &c->fit));
  ATOLL_TRY(plan_alloc(m * m, sizeof *c->single, &c->single));
  for (size_t a = 0; a < n; a++)
    for (size_t b = 0; b < n; b++)
      ATOLL_TRY(read_fit(c, path, root, c->kind[a].pool, c->kind[a].devices, c->kind[b].pool, c->kind[b].devices,
                         &c->fit[a * n + b]));
  for (size_t a = 0; a < m; a++)
    for (size_t b = 0; b < m; b++)
      ATOLL_TRY(read_fit(c, path, root, (int)a, 1, (int)b, 1, &c->single[a * m + b]));
  return ATOLL_OK;
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

void atoll_case_destroy(atoll_case **out) {
  atoll_case *c = out ? *out : NULL;
  if (!c)
    return;
  for (int g = 0; c->gpu && g < c->gpus; g++) {
    for (int i = 0; c->gpu[g].table && i < c->batches * c->degrees; i++) {
      free(c->gpu[g].table[i].seconds);
      free(c->gpu[g].table[i].update);
    }
    free(c->gpu[g].table);
  }
  for (int t = 0; c->values && t < c->degrees; t++) {
    free(c->values[t].parameters);
    free(c->values[t].activation);
  }
  void *const owned[] = {c->batch, c->degree,   c->values, c->output, c->weight, c->layer_class, c->gpu,
                         c->zone,  c->transfer, c->pool,   c->kind,   c->fit,    c->single,      c};
  for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
    free(owned[i]);
  *out = NULL;
}

static atoll_err load(atoll_case *c, const json_t *root_case, const char *data, const char *lose, const char *add) {
  char path[512];
  json_t *root = NULL;
  ATOLL_TRY(read_case(c, root_case, lose, add));
  if (strchr(c->model, '/') || snprintf(c->profile, sizeof c->profile, "%s/profiles/%s.json", data, c->model) >= 512)
    return atoll_fail(ATOLL_USAGE, "%s: model '%s' names no profile in %s", c->path, c->model, data);
  if (!atoll_file_exists(c->profile))
    return atoll_fail(ATOLL_NOINPUT, "no profile of model '%s': %s is missing", c->model, c->profile);
  ATOLL_TRY(read_json(c->profile, &root));
  atoll_err err = read_profile(c, root);
  json_decref(root);
  ATOLL_TRY(err);
  ATOLL_TRY(atoll_path_join(path, sizeof path, data, "transfer_price.json"));
  ATOLL_TRY(read_json(path, &root));
  err = read_transfer(c, path, root);
  json_decref(root);
  ATOLL_TRY(err);
  ATOLL_TRY(atoll_path_join(path, sizeof path, data, "network.json"));
  ATOLL_TRY(read_json(path, &root));
  err = read_network(c, path, root);
  json_decref(root);
  return err;
}

static atoll_err create(const char *path, const json_t *root, const char *data, const char *lose, const char *add,
                        atoll_case **out) {
  atoll_case *c = calloc(1, sizeof *c);
  if (!c)
    return atoll_fail(ATOLL_NOMEM, "no memory for a case");
  c->max_price = c->max_seconds = INFINITY;
  atoll_err err = strlen(path) < sizeof c->path && strlen(data) < 400
                      ? ATOLL_OK
                      : atoll_fail(ATOLL_USAGE, "the path of a case or its data is longer than 400 characters");
  if (err == ATOLL_OK) {
    strcpy(c->path, path);
    err = load(c, root, data, lose, add);
  }
  if (err != ATOLL_OK)
    atoll_case_destroy(&c);
  else
    *out = c;
  return err;
}

atoll_err case_from_json(const char *label, const json_t *root, const char *data, atoll_case **out) {
  return create(label, root, data, NULL, NULL, out);
}

atoll_err atoll_case_load(const char *path, const char *data, const char *lose, const char *add, atoll_case **out) {
  json_t *root = NULL;
  ATOLL_TRY(read_json(path, &root));
  atoll_err err = create(path, root, data, lose, add, out);
  json_decref(root);
  return err;
}
