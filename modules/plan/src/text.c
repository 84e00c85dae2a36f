/* The plan as YAML. Written in one order with every field, so that loading and saving again gives the same bytes; read
 * strictly: an unknown field may be one that changes what the plan means, so it is refused, not ignored.
 * Predictions (`predicted`) may be left out by somebody who writes a plan by hand. */
#include "atoll/plan.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/yaml.h"
#include "plan_impl.h"

#define MANY 1048576 /* ranks, layers, stages: what a file may ask us to allocate at most */

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static void put_pair(atoll_yaml_out *o, const char *key, int64_t a, int64_t b) {
  int64_t v[2] = {a, b};
  atoll_yaml_put_ints(o, key, v, 2);
}

static atoll_err put_list(atoll_yaml_out *o, const char *key, const int *list, int n) {
  int64_t *v = NULL;
  ATOLL_TRY(plan_alloc((size_t)n, sizeof *v, &v));
  for (int i = 0; i < n; i++)
    v[i] = list[i];
  atoll_yaml_put_ints(o, key, v, (size_t)n);
  free(v);
  return ATOLL_OK;
}

static atoll_err put_replica(atoll_yaml_out *o, const atoll_plan_replica *r) {
  atoll_yaml_open_map(o, NULL);
  atoll_yaml_put_int(o, "island", r->island);
  ATOLL_TRY(put_list(o, "ranks", r->rank, r->ranks));
  ATOLL_TRY(put_list(o, "devices", r->device, r->ranks));
  atoll_yaml_put_int(o, "tensor", r->tensor);
  atoll_yaml_put_int(o, "context", r->context);
  atoll_yaml_put_int(o, "expert", r->expert);
  atoll_yaml_put_bool(o, "sequence_parallel", r->sequence_parallel);
  atoll_yaml_put_int(o, "zero", r->zero);
  atoll_yaml_put_int(o, "micro_batch", r->micro_batch);
  atoll_yaml_put_int(o, "first_micro_batch", r->first_micro_batch);
  atoll_yaml_put_int(o, "micro_batches", r->micro_batches);
  atoll_yaml_open_map(o, "predicted");
  atoll_yaml_put_real(o, "forward_seconds", r->forward_seconds);
  atoll_yaml_put_real(o, "backward_seconds", r->backward_seconds);
  atoll_yaml_put_real(o, "send_seconds", r->send_seconds);
  atoll_yaml_put_real(o, "update_seconds", r->update_seconds);
  atoll_yaml_open_map(o, "bytes");
  for (int c = 0; c < ATOLL_MEM_CATEGORIES; c++)
    atoll_yaml_put_int(o, atoll_mem_category_name((atoll_mem_category)c), r->bytes[c]);
  atoll_yaml_close(o);
  atoll_yaml_put_int(o, "bytes_peak", r->bytes_peak);
  atoll_yaml_put_int(o, "bytes_limit", r->bytes_limit);
  atoll_yaml_close(o);
  atoll_yaml_close(o);
  return ATOLL_OK;
}

static atoll_err put_stage(atoll_yaml_out *o, const atoll_plan_stage *s) {
  atoll_yaml_open_map(o, NULL);
  atoll_yaml_open_list(o, "chunks");
  for (int c = 0; c < s->chunks; c++)
    put_pair(o, NULL, s->chunk[c].first, s->chunk[c].last);
  atoll_yaml_close(o);
  atoll_yaml_put_int(o, "in_flight", s->in_flight);
  if (s->packed)
    atoll_yaml_put_int(o, "packed", 1);
  atoll_yaml_open_list(o, "ranges");
  for (int i = 0; i < s->ranges; i++) {
    const atoll_plan_range *r = &s->range[i];
    atoll_yaml_open_map(o, NULL);
    put_pair(o, "layers", r->first, r->last);
    atoll_yaml_put_text(o, "policy", atoll_policy_name((atoll_policy)r->policy));
    atoll_yaml_put_int(o, "recompute", r->recompute);
    atoll_yaml_put_text(o, "mlp", r->mlp);
    atoll_yaml_put_real(o, "offload_weights", r->offload_weights);
    atoll_yaml_put_real(o, "offload_gradients", r->offload_gradients);
    atoll_yaml_put_real(o, "offload_optimizer", r->offload_optimizer);
    atoll_yaml_put_real(o, "offload_activations", r->offload_activations);
    atoll_yaml_close(o);
  }
  atoll_yaml_close(o);
  atoll_yaml_open_list(o, "replicas");
  for (int k = 0; k < s->replicas; k++)
    ATOLL_TRY(put_replica(o, &s->replica[k]));
  atoll_yaml_close(o);
  atoll_yaml_close(o);
  return ATOLL_OK;
}

static atoll_err put_plan(atoll_yaml_out *o, const atoll_plan *plan) {
  char hex[33];
  atoll_yaml_comment(o, "Atoll plan. Layer ranges are half-open; layer 0 is the embedding, the last one the head.");
  atoll_yaml_put_int(o, "version", plan->version);
  atoll_yaml_put_text(o, "schedule", plan->schedule);
  atoll_yaml_put_int(o, "world", plan->world);
  atoll_yaml_put_int(o, "seq", plan->seq);
  atoll_yaml_put_int(o, "global_batch", plan->global_batch);
  atoll_yaml_put_int(o, "micro_batches", plan->micro_batches);
  atoll_yaml_put_int(o, "sum_leaves", plan->sum_leaves);
  if (plan->dtype != ATOLL_F32) /* plans of releases that knew f32 alone have no such field */
    atoll_yaml_put_text(o, "dtype", atoll_dtype_name(plan->dtype));
  atoll_yaml_put_text(o, "model", atoll_digest_text(plan->model, hex));
  atoll_yaml_put_text(o, "islands", atoll_digest_text(plan->islands, hex));
  atoll_yaml_put_text(o, "source", plan->source);
  atoll_yaml_open_map(o, "predicted");
  atoll_yaml_put_real(o, "step_seconds", plan->step_seconds);
  atoll_yaml_put_real(o, "bubble_fraction", plan->bubble_fraction);
  atoll_yaml_put_real(o, "communication_seconds", plan->communication_seconds);
  atoll_yaml_put_bool(o, "optimal", plan->optimal);
  atoll_yaml_put_real(o, "gap", plan->gap);
  atoll_yaml_put_text(o, "cost_source", plan->cost_source);
  atoll_yaml_close(o);
  atoll_yaml_open_list(o, "pipelines");
  for (int p = 0; p < plan->pipelines; p++) {
    const atoll_plan_pipeline *pipe = &plan->pipeline[p];
    atoll_yaml_open_map(o, NULL);
    atoll_yaml_put_int(o, "first_micro_batch", pipe->first_micro_batch);
    atoll_yaml_put_int(o, "micro_batches", pipe->micro_batches);
    atoll_yaml_open_list(o, "stages");
    for (int s = 0; s < pipe->stages; s++)
      ATOLL_TRY(put_stage(o, &pipe->stage[s]));
    atoll_yaml_close(o);
    atoll_yaml_close(o);
  }
  atoll_yaml_close(o);
  atoll_yaml_open_list(o, "tied");
  for (int i = 0; i < plan->tied_count; i++) {
    const atoll_plan_tied *t = &plan->tied[i];
    atoll_yaml_open_map(o, NULL);
    atoll_yaml_put_int(o, "param", t->param);
    atoll_yaml_open_list(o, "uses");
    for (int u = 0; u < t->uses; u++) {
      atoll_yaml_open_map(o, NULL);
      atoll_yaml_put_int(o, "pipeline", t->pipeline[u]);
      atoll_yaml_put_int(o, "stage", t->stage[u]);
      atoll_yaml_put_int(o, "layer", t->layer[u]);
      atoll_yaml_close(o);
    }
    atoll_yaml_close(o);
    atoll_yaml_close(o);
  }
  atoll_yaml_close(o);
  return put_list(o, "idle", plan->idle, plan->idle_count);
}

atoll_err atoll_plan_to_text(const atoll_plan *plan, char **text, size_t *bytes) {
  atoll_yaml_out *o = NULL;
  const char *borrowed;
  ATOLL_TRY(atoll_yaml_out_create(&o));
  atoll_err err = put_plan(o, plan);
  if (err == ATOLL_OK)
    err = atoll_yaml_out_text(o, &borrowed);
  if (err == ATOLL_OK) {
    size_t n = strlen(borrowed);
    char *copy = malloc(n + 1);
    if (copy) {
      memcpy(copy, borrowed, n + 1);
      *text = copy;
      *bytes = n;
    } else {
      err = atoll_fail(ATOLL_NOMEM, "plan: no memory for %zu bytes of text", n);
    }
  }
  atoll_yaml_out_destroy(&o);
  return err;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static atoll_err get_int(atoll_yaml *map, const char *key, int64_t lo, int64_t hi, int *out) {
  int64_t v = *out;
  ATOLL_TRY(atoll_yaml_int(map, key, 1, lo, hi, &v));
  *out = (int)v;
  return ATOLL_OK;
}

static atoll_err scalar_int(atoll_yaml *node, int64_t lo, int64_t hi, const char *key, int64_t *out) {
  const char *text = atoll_yaml_text(node);
  int64_t v;
  if (!text || atoll_parse_int(text, &v) != 0 || v < lo || v > hi)
    return atoll_fail(ATOLL_USAGE, "%s:%d: %s holds %s, expected an integer in %" PRId64 "..%" PRId64,
                      atoll_yaml_file(node), atoll_yaml_line(node), key, text ? text : "a mapping or list", lo, hi);
  *out = v;
  return ATOLL_OK;
}

static atoll_err get_list(atoll_yaml *map, const char *key, int **out, int *n) {
  atoll_yaml *list;
  ATOLL_TRY(atoll_yaml_list(map, key, 1, &list));
  size_t count = atoll_yaml_count(list);
  if (count > MANY)
    return atoll_fail(ATOLL_USAGE, "%s:%d: %s has %zu entries, expected at most %d", atoll_yaml_file(list),
                      atoll_yaml_line(list), key, count, MANY);
  ATOLL_TRY(plan_alloc(count, sizeof **out, out));
  for (size_t i = 0; i < count; i++) {
    int64_t v;
    ATOLL_TRY(scalar_int(atoll_yaml_at(list, i), 0, MANY, key, &v));
    (*out)[i] = (int)v;
  }
  *n = (int)count;
  return ATOLL_OK;
}

static atoll_err get_pair(atoll_yaml *node, const char *key, int *a, int *b) {
  int64_t v[2];
  if (!node || !atoll_yaml_is_list(node) || atoll_yaml_count(node) != 2)
    return atoll_fail(ATOLL_USAGE, "%s:%d: %s is not a pair [first, last)", node ? atoll_yaml_file(node) : "plan",
                      node ? atoll_yaml_line(node) : 0, key);
  for (size_t i = 0; i < 2; i++)
    ATOLL_TRY(scalar_int(atoll_yaml_at(node, i), 0, MANY, key, &v[i]));
  *a = (int)v[0];
  *b = (int)v[1];
  return ATOLL_OK;
}

/* A list of mappings (or of pairs); `size` bytes an entry. */
static atoll_err get_entries(atoll_yaml *map, const char *key, size_t size, atoll_yaml **list, int *n, void *out) {
  ATOLL_TRY(atoll_yaml_list(map, key, 1, list));
  size_t count = atoll_yaml_count(*list);
  if (count > MANY)
    return atoll_fail(ATOLL_USAGE, "%s:%d: %s has %zu entries, expected at most %d", atoll_yaml_file(*list),
                      atoll_yaml_line(*list), key, count, MANY);
  ATOLL_TRY(plan_alloc(count, size, out));
  *n = (int)count;
  return ATOLL_OK;
}

static atoll_err entry_map(atoll_yaml *list, int i, const char *what, atoll_yaml **out) {
  *out = atoll_yaml_at(list, (size_t)i);
  if (!*out || !atoll_yaml_is_map(*out))
    return atoll_fail(ATOLL_USAGE, "%s:%d: entry %d of %s is not a mapping", atoll_yaml_file(list),
                      *out ? atoll_yaml_line(*out) : atoll_yaml_line(list), i, what);
  return ATOLL_OK;
}

static atoll_err get_digest(atoll_yaml *map, const char *key, atoll_digest *out) {
  char text[64];
  ATOLL_TRY(atoll_yaml_string(map, key, 1, text, sizeof text));
  if (atoll_digest_parse(text, out) != 0) {
    atoll_yaml *node = atoll_yaml_get(map, key);
    return atoll_fail(ATOLL_USAGE, "%s:%d: %s is '%s', expected a digest of 32 hexadecimal digits",
                      atoll_yaml_file(node), atoll_yaml_line(node), key, text);
  }
  return ATOLL_OK;
}

static atoll_err get_replica_predictions(atoll_yaml *map, atoll_plan_replica *r) {
  atoll_yaml *m = NULL, *b = NULL;
  ATOLL_TRY(atoll_yaml_map(map, "predicted", 0, &m));
  if (!m)
    return ATOLL_OK;
  ATOLL_TRY(atoll_yaml_real(m, "forward_seconds", 0, 0, INFINITY, &r->forward_seconds));
  ATOLL_TRY(atoll_yaml_real(m, "backward_seconds", 0, 0, INFINITY, &r->backward_seconds));
  ATOLL_TRY(atoll_yaml_real(m, "send_seconds", 0, 0, INFINITY, &r->send_seconds));
  ATOLL_TRY(atoll_yaml_real(m, "update_seconds", 0, 0, INFINITY, &r->update_seconds));
  ATOLL_TRY(atoll_yaml_map(m, "bytes", 0, &b));
  for (int c = 0; b && c < ATOLL_MEM_CATEGORIES; c++)
    ATOLL_TRY(atoll_yaml_int(b, atoll_mem_category_name((atoll_mem_category)c), 0, 0, INT64_MAX, &r->bytes[c]));
  ATOLL_TRY(atoll_yaml_int(m, "bytes_peak", 0, 0, INT64_MAX, &r->bytes_peak));
  return atoll_yaml_int(m, "bytes_limit", 0, 0, INT64_MAX, &r->bytes_limit);
}

static atoll_err get_replica(atoll_yaml *map, atoll_plan_replica *r) {
  int devices = 0;
  ATOLL_TRY(get_int(map, "island", 0, MANY, &r->island));
  ATOLL_TRY(get_list(map, "ranks", &r->rank, &r->ranks));
  ATOLL_TRY(get_list(map, "devices", &r->device, &devices));
  if (devices != r->ranks)
    return atoll_fail(ATOLL_USAGE, "%s:%d: %d devices for %d ranks", atoll_yaml_file(map), atoll_yaml_line(map),
                      devices, r->ranks);
  ATOLL_TRY(get_int(map, "tensor", 1, MANY, &r->tensor));
  ATOLL_TRY(get_int(map, "context", 1, MANY, &r->context));
  ATOLL_TRY(get_int(map, "expert", 1, MANY, &r->expert));
  ATOLL_TRY(atoll_yaml_bool(map, "sequence_parallel", 1, &r->sequence_parallel));
  ATOLL_TRY(get_int(map, "zero", 0, 3, &r->zero));
  ATOLL_TRY(atoll_yaml_int(map, "micro_batch", 1, 1, INT32_MAX, &r->micro_batch));
  ATOLL_TRY(atoll_yaml_int(map, "first_micro_batch", 1, 0, INT32_MAX, &r->first_micro_batch));
  ATOLL_TRY(atoll_yaml_int(map, "micro_batches", 1, 1, INT32_MAX, &r->micro_batches));
  return get_replica_predictions(map, r);
}

static atoll_err get_range(atoll_yaml *map, atoll_plan_range *r) {
  char name[32];
  ATOLL_TRY(get_pair(atoll_yaml_get(map, "layers"), "layers", &r->first, &r->last));
  ATOLL_TRY(atoll_yaml_string(map, "policy", 1, name, sizeof name));
  atoll_policy policy;
  if (atoll_policy_parse(name, &policy) != 0)
    return atoll_fail(ATOLL_USAGE, "%s:%d: policy is '%s', expected one of %s", atoll_yaml_file(map),
                      atoll_yaml_line(atoll_yaml_get(map, "policy")), name, atoll_policy_list());
  r->policy = (int)policy;
  int64_t recompute = 0; /* plans written before there was this field have none */
  ATOLL_TRY(atoll_yaml_int(map, "recompute", 0, 0, MANY, &recompute));
  r->recompute = (int)recompute;
  ATOLL_TRY(atoll_yaml_string(map, "mlp", 1, r->mlp, sizeof r->mlp));
  ATOLL_TRY(atoll_yaml_real(map, "offload_weights", 1, 0, 1, &r->offload_weights));
  ATOLL_TRY(atoll_yaml_real(map, "offload_gradients", 1, 0, 1, &r->offload_gradients));
  ATOLL_TRY(atoll_yaml_real(map, "offload_optimizer", 1, 0, 1, &r->offload_optimizer));
  return atoll_yaml_real(map, "offload_activations", 1, 0, 1, &r->offload_activations);
}

static atoll_err get_stage(atoll_yaml *map, atoll_plan_stage *s) {
  atoll_yaml *list, *entry;
  ATOLL_TRY(get_entries(map, "chunks", sizeof *s->chunk, &list, &s->chunks, &s->chunk));
  for (int c = 0; c < s->chunks; c++)
    ATOLL_TRY(get_pair(atoll_yaml_at(list, (size_t)c), "chunks", &s->chunk[c].first, &s->chunk[c].last));
  ATOLL_TRY(get_int(map, "in_flight", 1, MANY, &s->in_flight));
  int64_t packed = 0; /* written where it is 1 */
  ATOLL_TRY(atoll_yaml_int(map, "packed", 0, 0, 1, &packed));
  s->packed = (int)packed;
  ATOLL_TRY(get_entries(map, "ranges", sizeof *s->range, &list, &s->ranges, &s->range));
  for (int i = 0; i < s->ranges; i++) {
    ATOLL_TRY(entry_map(list, i, "ranges", &entry));
    ATOLL_TRY(get_range(entry, &s->range[i]));
  }
  ATOLL_TRY(get_entries(map, "replicas", sizeof *s->replica, &list, &s->replicas, &s->replica));
  for (int k = 0; k < s->replicas; k++) {
    ATOLL_TRY(entry_map(list, k, "replicas", &entry));
    ATOLL_TRY(get_replica(entry, &s->replica[k]));
  }
  return ATOLL_OK;
}

static atoll_err get_pipeline(atoll_yaml *map, atoll_plan_pipeline *p) {
  atoll_yaml *list, *entry;
  ATOLL_TRY(atoll_yaml_int(map, "first_micro_batch", 1, 0, INT32_MAX, &p->first_micro_batch));
  ATOLL_TRY(atoll_yaml_int(map, "micro_batches", 1, 1, INT32_MAX, &p->micro_batches));
  ATOLL_TRY(get_entries(map, "stages", sizeof *p->stage, &list, &p->stages, &p->stage));
  for (int s = 0; s < p->stages; s++) {
    ATOLL_TRY(entry_map(list, s, "stages", &entry));
    ATOLL_TRY(get_stage(entry, &p->stage[s]));
  }
  return ATOLL_OK;
}

static atoll_err get_tied(atoll_yaml *map, atoll_plan_tied *t) {
  atoll_yaml *list, *entry;
  ATOLL_TRY(get_int(map, "param", 0, INT32_MAX, &t->param));
  ATOLL_TRY(atoll_yaml_list(map, "uses", 1, &list));
  if (atoll_yaml_count(list) > 4)
    return atoll_fail(ATOLL_USAGE, "%s:%d: a tied tensor has %zu uses, expected at most 4", atoll_yaml_file(list),
                      atoll_yaml_line(list), atoll_yaml_count(list));
  t->uses = (int)atoll_yaml_count(list);
  for (int u = 0; u < t->uses; u++) {
    ATOLL_TRY(entry_map(list, u, "uses", &entry));
    ATOLL_TRY(get_int(entry, "pipeline", 0, MANY, &t->pipeline[u]));
    ATOLL_TRY(get_int(entry, "stage", 0, MANY, &t->stage[u]));
    ATOLL_TRY(get_int(entry, "layer", 0, MANY, &t->layer[u]));
  }
  return ATOLL_OK;
}

static atoll_err get_predictions(atoll_yaml *root, atoll_plan *plan) {
  atoll_yaml *m = NULL;
  plan->gap = 0;
  ATOLL_TRY(atoll_yaml_map(root, "predicted", 0, &m));
  if (!m)
    return ATOLL_OK;
  ATOLL_TRY(atoll_yaml_real(m, "step_seconds", 0, 0, INFINITY, &plan->step_seconds));
  ATOLL_TRY(atoll_yaml_real(m, "bubble_fraction", 0, 0, 1, &plan->bubble_fraction));
  ATOLL_TRY(atoll_yaml_real(m, "communication_seconds", 0, 0, INFINITY, &plan->communication_seconds));
  ATOLL_TRY(atoll_yaml_bool(m, "optimal", 0, &plan->optimal));
  ATOLL_TRY(atoll_yaml_real(m, "gap", 0, 0, INFINITY, &plan->gap));
  return atoll_yaml_string(m, "cost_source", 0, plan->cost_source, sizeof plan->cost_source);
}

static atoll_err get_dtype(atoll_yaml *root, atoll_dtype *out) {
  char name[16] = "f32";
  ATOLL_TRY(atoll_yaml_string(root, "dtype", 0, name, sizeof name));
  if (atoll_dtype_parse(name, out) != 0 || (*out != ATOLL_F32 && *out != ATOLL_BF16))
    return atoll_fail(ATOLL_USAGE, "%s:%d: dtype: found '%s', expected f32 or bf16", atoll_yaml_file(root),
                      atoll_yaml_line(atoll_yaml_get(root, "dtype")), name);
  return ATOLL_OK;
}

static atoll_err get_plan(atoll_yaml *root, atoll_plan *plan) {
  atoll_yaml *list, *entry;
  if (!atoll_yaml_is_map(root))
    return atoll_fail(ATOLL_USAGE, "%s: not a plan: the document is not a mapping", atoll_yaml_file(root));
  ATOLL_TRY(get_int(root, "version", INT32_MIN, INT32_MAX, &plan->version));
  if (plan->version != ATOLL_PLAN_VERSION)
    return atoll_fail(ATOLL_USAGE, "%s:%d: plan version %d, this program reads version %d", atoll_yaml_file(root),
                      atoll_yaml_line(atoll_yaml_get(root, "version")), plan->version, ATOLL_PLAN_VERSION);
  ATOLL_TRY(atoll_yaml_string(root, "schedule", 1, plan->schedule, sizeof plan->schedule));
  ATOLL_TRY(get_int(root, "world", 1, MANY, &plan->world));
  ATOLL_TRY(atoll_yaml_int(root, "seq", 1, 1, INT32_MAX, &plan->seq));
  ATOLL_TRY(atoll_yaml_int(root, "global_batch", 1, 1, INT32_MAX, &plan->global_batch));
  ATOLL_TRY(atoll_yaml_int(root, "micro_batches", 1, 1, INT32_MAX, &plan->micro_batches));
  ATOLL_TRY(atoll_yaml_int(root, "sum_leaves", 1, 1, INT32_MAX, &plan->sum_leaves));
  ATOLL_TRY(get_dtype(root, &plan->dtype));
  ATOLL_TRY(get_digest(root, "model", &plan->model));
  ATOLL_TRY(get_digest(root, "islands", &plan->islands));
  ATOLL_TRY(atoll_yaml_string(root, "source", 1, plan->source, sizeof plan->source));
  ATOLL_TRY(get_predictions(root, plan));
  free(plan->pipeline);
  plan->pipeline = NULL;
  ATOLL_TRY(get_entries(root, "pipelines", sizeof *plan->pipeline, &list, &plan->pipelines, &plan->pipeline));
  for (int p = 0; p < plan->pipelines; p++) {
    ATOLL_TRY(entry_map(list, p, "pipelines", &entry));
    ATOLL_TRY(get_pipeline(entry, &plan->pipeline[p]));
  }
  ATOLL_TRY(get_entries(root, "tied", sizeof *plan->tied, &list, &plan->tied_count, &plan->tied));
  for (int i = 0; i < plan->tied_count; i++) {
    ATOLL_TRY(entry_map(list, i, "tied", &entry));
    ATOLL_TRY(get_tied(entry, &plan->tied[i]));
  }
  ATOLL_TRY(get_list(root, "idle", &plan->idle, &plan->idle_count));
  return atoll_yaml_unknown(root);
}

atoll_err atoll_plan_from_text(const char *name, const char *text, size_t bytes, atoll_plan **out) {
  atoll_yaml *root = NULL;
  atoll_plan *plan = NULL;
  ATOLL_TRY(atoll_yaml_parse(name, text, bytes, &root));
  atoll_err err = plan_create(0, &plan);
  if (err == ATOLL_OK)
    err = get_plan(root, plan);
  if (err == ATOLL_OK)
    err = atoll_plan_check(plan, NULL);
  atoll_yaml_destroy(&root);
  if (err != ATOLL_OK)
    atoll_plan_destroy(&plan);
  else
    *out = plan;
  return err;
}
