/* Layer times of another program's measurements.
 *
 * The form is the neutral scorer's. Its optimizer times are one figure per stage, whatever the stage holds, and say
 * nothing of a layer: they are left to the model. A file may list the norm before the head by itself; ours is the
 * head's. Only what is known of the very model counts: parameters of every block and values between blocks must agree.
 */
#include "atoll/plan_import.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cost/cost.h"
#include "plan_impl.h"

#define PARAMETERS_OFF 0.01 /* relative: published counts leave out, or pad, a few */

typedef struct imported {
  const char *path;
  const atoll_model *model;
  const atoll_islands *islands;
  int64_t seq;
  int layers; /* of the file */
  int added;
  atoll_profile *profile;
} imported;

/* list[layer], a number of 0 or more. */
static atoll_err number_at(const imported *x, const char *where, const json_t *object, const char *key, int layer,
                           double *out) {
  const json_t *list = json_object_get(object, key), *v = json_array_get(list, (size_t)layer);
  if (json_array_size(list) != (size_t)x->layers)
    return atoll_fail(ATOLL_USAGE, "%s: %s.%s has %zu values, expected one for each of %d layers", x->path, where, key,
                      json_array_size(list), x->layers);
  *out = json_is_number(v) ? json_number_value(v) : NAN;
  if (!(*out >= 0) || !isfinite(*out))
    return atoll_fail(ATOLL_USAGE, "%s: %s.%s[%d] is not a number of 0 or more", x->path, where, key, layer);
  return ATOLL_OK;
}

static atoll_err check_model(const imported *x, const json_t *values) {
  int ours = atoll_model_layers(x->model);
  if (x->layers != ours && x->layers != ours + 1)
    return atoll_fail(ATOLL_MISMATCH, "%s is of another model: it has %d layers, this one %d", x->path, x->layers,
                      ours);
  for (int l = 1; l < ours - 1; l++) {
    double found, output, expected;
    int64_t gradient, boundary, element = (int64_t)atoll_dtype_bytes((atoll_dtype)atoll_model_config(x->model)->dtype);
    ATOLL_TRY(cost_gradient_bytes(x->model, l, l + 1, &gradient));
    ATOLL_TRY(cost_boundary_bytes(x->model, l, 1, x->seq, &boundary));
    expected = (double)gradient / 4;
    ATOLL_TRY(number_at(x, "values.1", values, "parameters", l, &found));
    if (fabs(found - expected) > PARAMETERS_OFF * expected)
      return atoll_fail(ATOLL_MISMATCH, "%s is of another model: layer %d has %.0f parameters, this one's %.0f",
                        x->path, l, found, expected);
    ATOLL_TRY(number_at(x, "values.1", values, "output", l, &output));
    if ((double)element * output != (double)boundary)
      return atoll_fail(ATOLL_MISMATCH,
                        "%s: layer %d gives %.0f values per sample, here %" PRId64
                        ": its samples had other than %" PRId64 " tokens, or the model another width",
                        x->path, l, output, boundary / element, x->seq);
  }
  return ATOLL_OK;
}

/* Mean over layers [first, last) of the file, or their sum. */
static atoll_err times_of(const imported *x, const char *where, const json_t *cell, int first, int last, int sum,
                          atoll_cost *out) {
  *out = (atoll_cost){.source = ATOLL_COST_IMPORTED};
  double share = sum ? 1 : 1.0 / (last - first);
  for (int l = first; l < last; l++) {
    double forward, backward;
    ATOLL_TRY(number_at(x, where, cell, "forward", l, &forward));
    ATOLL_TRY(number_at(x, where, cell, "backward", l, &backward));
    out->forward += share * forward;
    out->backward_input += share * backward;
  }
  return ATOLL_OK;
}

/* One micro-batch size on one island. */
static atoll_err add_cell(imported *x, int island, const char *where, const json_t *cell, int64_t B) {
  int head = atoll_model_layers(x->model) - 1;
  const struct { int first, last; } part[] = {{0, 1}, {1, head}, {head, x->layers}};
  char class_name[256];
  atoll_island_class(x->islands, island, class_name, sizeof class_name);
  for (int i = 0; i < 3; i++) {
    atoll_cost cost;
    if (part[i].last <= part[i].first)
      continue;
    ATOLL_TRY(times_of(x, where, cell, part[i].first, part[i].last, i != 1, &cost));
    const char *kind = atoll_layer_kind_name(atoll_model_layer_kind(x->model, part[i].first));
    if (!(cost.forward > 0)) /* too short for its clock: left to the model */
      continue;
    ATOLL_TRY(atoll_profile_add(x->profile, class_name, atoll_model_digest(x->model), kind,
                                atoll_policy_name((atoll_policy)0), x->seq, B, &cost));
    x->added++;
  }
  return ATOLL_OK;
}

static atoll_err add_island(imported *x, int island, const json_t *gpus) {
  const char *name = x->islands->island[island].model, *key;
  json_t *row, *seconds = json_object_get(json_object_get(gpus, name), "seconds");
  json_object_foreach(seconds, key, row) {
    char *end, where[160];
    long B = strtol(key, &end, 10);
    const json_t *cell = json_object_get(row, "1");
    if (B < 1 || *end)
      return atoll_fail(ATOLL_USAGE, "%s: gpus.%.60s.seconds: key '%.20s' is not a micro-batch size", x->path, name,
                        key);
    snprintf(where, sizeof where, "gpus.%.90s.seconds.%ld.1", name, B);
    if (cell)
      ATOLL_TRY(add_cell(x, island, where, cell, B));
  }
  return ATOLL_OK;
}

static atoll_err import_file(imported *x, const json_t *root) {
  const json_t *layers = json_object_get(root, "layers"), *gpus = json_object_get(root, "gpus"),
               *values = json_object_get(json_object_get(root, "values"), "1");
  if (!json_is_integer(layers) || json_integer_value(layers) < 3 || json_integer_value(layers) > 65536 ||
      !json_is_object(gpus) || !json_is_object(values))
    return atoll_fail(ATOLL_USAGE, "%s: expected layers (3 or more), gpus and values.1: the profile of a model",
                      x->path);
  x->layers = (int)json_integer_value(layers);
  ATOLL_TRY(check_model(x, values));
  for (int i = 0; i < x->islands->count; i++)
    ATOLL_TRY(add_island(x, i, gpus));
  if (x->added)
    return ATOLL_OK;
  char names[256] = "";
  const char *key;
  json_t *v;
  json_object_foreach((json_t *)(uintptr_t)gpus, key, v) {
    size_t at = strlen(names);
    snprintf(names + at, sizeof names - at, "%s%.40s", at ? ", " : "", key);
  }
  return atoll_fail(ATOLL_MISMATCH, "%s: it knows %s, and no device here has one of these names (island %s is %s)",
                    x->path, names, x->islands->count ? x->islands->island[0].name : "none",
                    x->islands->count ? x->islands->island[0].model : "");
}

atoll_err atoll_plan_import(const char *path, const atoll_model *model, const atoll_islands *islands, int64_t seq,
                            atoll_profile *profile) {
  json_t *root = NULL;
  imported x = {.path = path, .model = model, .islands = islands, .seq = seq};
  char *text = NULL;
  size_t bytes;
  ATOLL_TRY(plan_read_json(path, &root));
  atoll_err err = atoll_profile_create(&x.profile);
  if (err == ATOLL_OK)
    err = import_file(&x, root);
  if (err == ATOLL_OK)
    err = atoll_profile_pack(x.profile, &text, &bytes);
  if (err == ATOLL_OK)
    err = atoll_profile_unpack(profile, text, bytes);
  free(text);
  atoll_profile_destroy(&x.profile);
  json_decref(root);
  return err;
}
