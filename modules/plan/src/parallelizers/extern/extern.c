/* The parallelizer `extern`: asks a program of somebody else (atoll/parallelizer_extern.h has the protocol).
 *
 * Every request has an entry, found again by its number and by what it asks, so that nothing is asked twice, answers
 * may come in any order, and a late one is known for what it is. An entry is waiting, answered or failed. A failed one
 * is an error, or with plan.extern_fallback=grid that slice is planned by grid, and the count of such slices ends up in
 * the plan's source. */
#include "atoll/parallelizer_extern.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/clock.h"
#include "atoll/log.h"
#include "atoll/sym.h"
#include "child.h"
#include "cost/cost.h"
#include "cost/memory.h"
#include "plan_impl.h"

#define FAILURES_MAX 3   /* in a row */
#define WARNINGS_MAX 5   /* of one search */
#define GRACE        2.0 /* s to leave when its input ends */

typedef struct request {
  atoll_slice slice;
  atoll_island_shape shape;
  atoll_slice_context context;
} request;

typedef enum entry_state { WAITING, ANSWERED, FAILED } entry_state;

typedef struct entry { /* its number is its index */
  request r;
  entry_state state;
  atoll_err code; /* FAILED */
  char *message;  /* FAILED */
  atoll_slice_plan *point;
  int points, by_grid;
  int64_t missing;
  char *why;
} entry;

typedef struct held { /* bytes of a slice along every axis */
  int first, last, policy;
  memory_model model;
} held;

typedef struct state {
  const atoll_plan_problem *problem;
  const atoll_plan_params *params;
  cost_model *cost;
  atoll_syms *pool;
  held *held;
  int helds, held_room;
  child *program; /* NULL once it failed for good */
  char name[128];
  int policy; /* the only one allowed, or -1 */
  void *grid; /* fallback, or NULL */
  entry *entry;
  int entries, room, *bucket;
  size_t buckets;
  int failures;  /* in a row */
  int given_up;  /* bool: asked no more */
  int fallbacks; /* slices that grid planned */
  int late, refused, warnings;
  char given_up_why[512];
} state;

/* ---- entries ----------------------------------------------------------------------------------------------------- */

static int same(const request *a, const request *b) {
  return a->slice.first == b->slice.first && a->slice.last == b->slice.last && a->shape.island == b->shape.island &&
         a->shape.nodes == b->shape.nodes && a->shape.per_node == b->shape.per_node &&
         a->context.in_flight == b->context.in_flight && a->context.partials == b->context.partials &&
         a->context.micro_batch == b->context.micro_batch && a->context.micro_batches == b->context.micro_batches &&
         a->context.data == b->context.data;
}

/* Where the request is in the buckets, or the empty place where it would be. */
static size_t place_of(const state *s, const request *r) {
  const int64_t key[] = {r->slice.first,           r->slice.last,        r->shape.island,     r->shape.nodes,
                         r->shape.per_node,        r->context.in_flight, r->context.partials, r->context.micro_batch,
                         r->context.micro_batches, r->context.data};
  uint64_t h = 0;
  for (size_t i = 0; i < sizeof key / sizeof *key; i++)
    h = (h ^ (uint64_t)key[i]) * UINT64_C(0x9e3779b97f4a7c15);
  size_t at = (size_t)(h >> 20) & (s->buckets - 1);
  while (s->bucket[at] >= 0 && !same(&s->entry[s->bucket[at]].r, r))
    at = (at + 1) & (s->buckets - 1);
  return at;
}

static atoll_err grow(state *s) {
  if (s->entries < s->room)
    return ATOLL_OK;
  int room = s->room ? 2 * s->room : 256;
  entry *grown = realloc(s->entry, (size_t)room * sizeof *grown);
  if (!grown)
    return atoll_fail(ATOLL_NOMEM, "plan.extern: no memory for %d requests", room);
  s->entry = grown;
  s->room = room;
  free(s->bucket);
  s->bucket = NULL;
  s->buckets = 2 * (size_t)room;
  ATOLL_TRY(plan_alloc(s->buckets, sizeof *s->bucket, &s->bucket));
  for (size_t i = 0; i < s->buckets; i++)
    s->bucket[i] = -1;
  for (int i = 0; i < s->entries; i++)
    s->bucket[place_of(s, &s->entry[i].r)] = i;
  return ATOLL_OK;
}

static void fail_entry(state *s, entry *e, atoll_err code) {
  e->state = FAILED;
  e->code = code;
  e->message = strdup(atoll_err_message());
  s->failures++;
}

/* From now on every slice is grid's, or an error. */
static void give_up(state *s) {
  s->given_up = 1;
  snprintf(s->given_up_why, sizeof s->given_up_why, "%s", atoll_err_message());
  child_stop(&s->program, 0);
}

/* ---- what we say ------------------------------------------------------------------------------------------------- */

static atoll_err send_json(state *s, json_t *message) {
  char *text = message ? json_dumps(message, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
  json_decref(message);
  if (!text) /* names are text of somebody's files */
    return atoll_fail(ATOLL_USAGE, "plan.extern: the message to %s is not UTF-8, or there is no memory for it",
                      s->name);
  atoll_err err = child_send(s->program, text, strlen(text));
  if (err == ATOLL_OK)
    err = child_send(s->program, "\n", 1);
  free(text);
  return err;
}

static atoll_err eval(const atoll_sym *e, atoll_syms *pool, int64_t seq, int64_t *out) {
  static const char *const names[] = {"B", "S"};
  const int64_t values[] = {1, seq};
  if (!e)
    return atoll_syms_error(pool) != ATOLL_OK ? ATOLL_INTERNAL
                                              : atoll_fail(ATOLL_INTERNAL, "plan: a layer without expression");
  return atoll_sym_eval_int(e, names, values, 2, out);
}

static atoll_err class_json(const state *s, int layer, json_t *list) {
  const atoll_model *m = s->problem->model;
  int64_t seq = s->problem->seq, forward, backward, boundary, gradient, saved, elements = 0;
  atoll_syms *pool = NULL;
  json_t *kept = NULL;
  int index[64], n = atoll_model_layer_params(m, layer, index, 64);
  for (int i = 0; i < n && i < 64; i++) {
    const atoll_model_param *p = atoll_model_param_at(m, index[i]);
    int64_t k = 1;
    for (int d = 0; d < p->ndim; d++)
      k *= p->shape[d];
    elements += k;
  }
  ATOLL_TRY(cost_gradient_bytes(m, layer, layer + 1, &gradient));
  ATOLL_TRY(cost_boundary_bytes(m, layer, 1, seq, &boundary));
  ATOLL_TRY(atoll_syms_create(&pool));
  atoll_err err;
  ATOLL_TRY_GOTO(err, done, eval(atoll_model_layer_flops(m, pool, layer), pool, seq, &forward));
  ATOLL_TRY_GOTO(err, done, eval(atoll_model_layer_backward_flops(m, pool, layer), pool, seq, &backward));
  kept = json_object();
  for (int p = 0; p < ATOLL_POLICIES; p++) {
    ATOLL_TRY_GOTO(err, done, eval(atoll_layer_saved_bytes(m, pool, layer, (atoll_policy)p, 1), pool, seq, &saved));
    json_object_set_new(kept, atoll_policy_name((atoll_policy)p), json_integer(saved));
  }
  json_array_append_new(list, json_pack("{s:s,s:I,s:I,s:I,s:I,s:I,s:O}", "kind",
                                        atoll_layer_kind_name(atoll_model_layer_kind(m, layer)), "parameters",
                                        (json_int_t)elements, "gradient_bytes", (json_int_t)gradient, "forward_flops",
                                        (json_int_t)forward, "backward_flops", (json_int_t)backward, "boundary_bytes",
                                        (json_int_t)boundary, "saved_bytes", kept));
done:
  json_decref(kept);
  atoll_syms_destroy(&pool);
  return err;
}

static atoll_err model_json(const state *s, json_t **out) {
  int n = atoll_model_layers(s->problem->model), classes = 0;
  json_t *layers = json_array(), *list = json_array();
  atoll_err err = ATOLL_OK;
  for (int l = 0; l < n && err == ATOLL_OK; l++) {
    int k = cost_layer_class(s->cost, l);
    json_array_append_new(layers, json_integer(k));
    if (k == classes) { /* classes are numbered in order of appearance */
      err = class_json(s, l, list);
      classes++;
    }
  }
  if (err == ATOLL_OK)
    *out = json_pack("{s:s,s:I,s:I,s:I,s:I,s:O,s:O}", "family", atoll_model_family_name(s->problem->model), "seq",
                     (json_int_t)s->problem->seq, "global_batch", (json_int_t)s->problem->global_batch, "experts",
                     (json_int_t)s->params->experts, "expert_top", (json_int_t)s->params->expert_top, "layers", layers,
                     "classes", list);
  json_decref(layers);
  json_decref(list);
  return err;
}

static json_t *islands_json(const state *s) {
  const atoll_islands *islands = s->problem->islands;
  json_t *list = json_array();
  for (int i = 0; i < islands->count; i++) {
    const atoll_island *is = &islands->island[i];
    json_array_append_new(list, json_pack("{s:s,s:s,s:i,s:i,s:I,s:f,s:f,s:{s:f,s:f},s:{s:f,s:f}}", "name", is->name,
                                          "model", is->model, "devices", is->devices, "nodes", is->nodes, "memory",
                                          (json_int_t)is->memory, "flops", 1e9 * is->gemm_f32, "bytes_per_second",
                                          1e9 * is->bandwidth, "in_node", "latency", is->latency_in, "bytes_per_second",
                                          1e9 * is->bandwidth_in, "between_nodes", "latency", is->latency_out,
                                          "bytes_per_second", 1e9 * is->bandwidth_out));
  }
  return list;
}

static json_t *policies_json(const state *s) {
  json_t *list = json_array();
  for (int p = 0; p < ATOLL_POLICIES; p++)
    if (plan_tries_policy(s->policy, p))
      json_array_append_new(list, json_string(atoll_policy_name((atoll_policy)p)));
  return list;
}

/* Our greeting and its answer. */
static atoll_err greet(state *s) {
  json_t *model = NULL;
  json_error_t e;
  char *line;
  size_t bytes;
  ATOLL_TRY(model_json(s, &model));
  ATOLL_TRY(send_json(s, json_pack("{s:s,s:i,s:o,s:o,s:o,s:s,s:{s:f,s:i,s:i}}", "type", "hello", "protocol",
                                   ATOLL_EXTERN_PROTOCOL, "model", model, "islands", islands_json(s), "policies",
                                   policies_json(s), "target", s->params->target == 0 ? "train" : "any", "limits",
                                   "answer_seconds", s->params->extern_limit, "line_bytes", CHILD_LINE_MAX, "points",
                                   ATOLL_EXTERN_POINTS)));
  ATOLL_TRY(child_line(s->program, s->params->extern_limit, &line, &bytes));
  json_t *hello = json_loadb(line, bytes, JSON_REJECT_DUPLICATES, &e);
  const char *type = json_string_value(json_object_get(hello, "type"));
  const json_t *protocol = json_object_get(hello, "protocol");
  atoll_err err = ATOLL_OK;
  if (!hello)
    err = atoll_fail(ATOLL_CORRUPT, "plan.extern: %s wrote a line that is not JSON (%s, column %d): %.120s", s->name,
                     e.text, e.column, line);
  else if (!type || strcmp(type, "hello") != 0 || !json_is_integer(protocol) || json_object_get(hello, "model"))
    err = atoll_fail(ATOLL_CORRUPT, /* also who only echoes ours */
                     "plan.extern: %s did not greet, expected {\"type\":\"hello\",\"protocol\":%d}: %.120s", s->name,
                     ATOLL_EXTERN_PROTOCOL, line);
  else if (json_integer_value(protocol) != ATOLL_EXTERN_PROTOCOL)
    err = atoll_fail(ATOLL_UNSUPPORTED, "plan.extern: %s speaks protocol %" JSON_INTEGER_FORMAT ", this program %d",
                     s->name, json_integer_value(protocol), ATOLL_EXTERN_PROTOCOL);
  json_decref(hello);
  return err;
}

static int64_t limit_of(const state *s, int island) {
  if (s->params->memory > 0)
    return s->params->memory - s->problem->reserve;
  int64_t memory = s->problem->islands->island[island].memory;
  return memory > 0 ? (int64_t)((double)memory * s->params->memory_share) - s->problem->reserve : INT64_MAX;
}

/* Seconds to sum the slice's gradients, leaf by leaf and over all devices of the shape: `per_node` of each of the
 * island's first `nodes` nodes. */
static atoll_err reduce_seconds(const state *s, const request *r, double *seconds) {
  const atoll_island *is = &s->problem->islands->island[r->shape.island];
  int *node = NULL, n = 0, of_node = 0, nodes = 0, last = -1;
  int64_t gradient = cost_gradient_share(s->cost, r->slice.first, r->slice.last, 1);
  *seconds = r->context.leaves * cost_leaf(s->cost, r->shape.island, gradient);
  if (r->shape.nodes * r->shape.per_node < 2)
    return ATOLL_OK;
  ATOLL_TRY(plan_alloc((size_t)is->devices, sizeof *node, &node));
  for (int i = 0; i < is->devices; i++) {
    int here = s->problem->topo->device[is->device[i]].node;
    of_node = here == last ? of_node : 0;
    nodes += here != last;
    last = here;
    if (nodes <= r->shape.nodes && of_node++ < r->shape.per_node)
      node[n++] = here;
  }
  *seconds += cost_reduce(s->cost, node, n, gradient, n * r->context.partials, r->context.partials,
                          cost_bandwidth(s->cost, r->shape.island));
  free(node);
  return ATOLL_OK;
}

/* On one device. */
static cost_stage stage_of(const request *r, atoll_policy policy) {
  const atoll_slice_context *x = &r->context;
  return (cost_stage){r->slice.first, r->slice.last, policy, x->micro_batch,
                      x->in_flight,   x->partials,   1,      ATOLL_MLP_PLAIN};
}

static atoll_err request_costs(const state *s, const request *r, json_t *costs, json_t *exact) {
  for (int p = 0; p < ATOLL_POLICIES; p++) {
    int64_t bytes[ATOLL_MEM_CATEGORIES];
    if (!plan_tries_policy(s->policy, p))
      continue;
    for (int l = r->slice.first, classes = 0; l < r->slice.last; l++) {
      int k = cost_layer_class(s->cost, l), seen = 0;
      cost_slice c;
      for (int q = r->slice.first; q < l && !seen; q++)
        seen = cost_layer_class(s->cost, q) == k;
      if (seen)
        continue;
      classes++;
      ATOLL_TRY(cost_of_slice(s->cost, r->shape.island, 1, ATOLL_MLP_PLAIN, l, l + 1, (atoll_policy)p,
                              r->context.micro_batch, &c));
      json_array_append_new(costs,
                            json_pack("{s:i,s:s,s:f,s:f,s:f,s:s}", "class", k, "policy",
                                      atoll_policy_name((atoll_policy)p), "forward", c.forward, "backward", c.backward,
                                      "update", c.update, "source", atoll_cost_source_name(c.source)));
      if (classes == 64)
        break;
    }
    const cost_stage stage = stage_of(r, (atoll_policy)p);
    ATOLL_TRY(cost_stage_bytes(s->cost, &stage, bytes));
    json_object_set_new(exact, atoll_policy_name((atoll_policy)p), json_integer(cost_sum_bytes(bytes)));
  }
  return ATOLL_OK;
}

static atoll_err send_request(state *s, int id) {
  const request *r = &s->entry[id].r;
  int64_t limit = limit_of(s, r->shape.island);
  double reduce;
  ATOLL_TRY(reduce_seconds(s, r, &reduce));
  json_t *costs = json_array(), *exact = json_object();
  atoll_err err = request_costs(s, r, costs, exact);
  if (err == ATOLL_OK)
    err = send_json(s, json_pack("{s:s,s:i,s:{s:i,s:i},s:{s:i,s:s,s:i,s:i},s:{s:i,s:i,s:I,s:I,s:i},s:o,s:O,s:f,s:O}",
                                 "type", "plan", "id", id, "slice", "first", r->slice.first, "last", r->slice.last,
                                 "island", "index", r->shape.island, "name",
                                 s->problem->islands->island[r->shape.island].name, "nodes", r->shape.nodes, "per_node",
                                 r->shape.per_node, "context", "in_flight", r->context.in_flight, "partials",
                                 r->context.partials, "micro_batch", (json_int_t)r->context.micro_batch,
                                 "micro_batches", (json_int_t)r->context.micro_batches, "data", r->context.data,
                                 "memory_limit", limit == INT64_MAX ? json_null() : json_integer((json_int_t)limit),
                                 "costs", costs, "reduce", reduce, "exact_bytes", exact));
  json_decref(costs);
  json_decref(exact);
  return err;
}

/* The request's entry, asked for if it is new. */
static atoll_err ask(state *s, const request *r, int *id) {
  ATOLL_TRY(grow(s));
  size_t at = place_of(s, r);
  if (s->bucket[at] < 0) {
    s->bucket[at] = s->entries;
    s->entry[s->entries++] = (entry){.r = *r, .state = WAITING, .missing = INT64_MAX};
    if (!s->given_up)
      ATOLL_TRY(send_request(s, s->entries - 1));
  }
  *id = s->bucket[at];
  return ATOLL_OK;
}

/* ---- what we hear ------------------------------------------------------------------------------------------------ */

static int plain(const atoll_slice_plan *p) {
  return p->tensor == 1 && p->context == 1 && p->expert == 1 && p->zero == 0 && p->recompute == 0 &&
         p->offload_weights == 0 && p->offload_gradients == 0 && p->offload_optimizer == 0 &&
         p->offload_activations == 0;
}

static atoll_err misfit(const state *s, const request *r, int i, const char *what, const char *line) {
  return atoll_fail(ATOLL_CORRUPT, "plan.extern: %s: layers %d-%d on island %s, point %d: %s, in: %.120s", s->name,
                    r->slice.first, r->slice.last - 1, s->problem->islands->island[r->shape.island].name, i, what,
                    line);
}

static atoll_err find_held(state *s, int first, int last, int policy, const memory_model **out) {
  int a = cost_range_first(s->cost, first, last), b = last - (first - a);
  for (int i = 0; i < s->helds; i++)
    if (s->held[i].first == a && s->held[i].last == b && s->held[i].policy == policy) {
      *out = &s->held[i].model;
      return ATOLL_OK;
    }
  if (s->helds == s->held_room) {
    int room = s->held_room ? 2 * s->held_room : 64;
    held *grown = realloc(s->held, (size_t)room * sizeof *grown);
    if (!grown)
      return atoll_fail(ATOLL_NOMEM, "plan.extern: no memory for %d slices", room);
    s->held = grown;
    s->held_room = room;
  }
  if (!s->pool)
    ATOLL_TRY(atoll_syms_create(&s->pool));
  held *h = &s->held[s->helds];
  *h = (held){.first = a, .last = b, .policy = policy};
  ATOLL_TRY(memory_model_make(s->problem->model, s->pool, a, b, (atoll_policy)policy,
                              (memory_moe){s->params->experts, s->params->expert_top}, &h->model));
  s->helds++;
  *out = &h->model;
  return ATOLL_OK;
}

/* Eighths of a share that is in host memory: rounded up, no more bytes than its own stay on the device. */
static int64_t eighths(double share) { return (int64_t)ceil(8 * share - 1e-9); }

/* No rank that runs the slice so holds fewer bytes. */
static atoll_err least_bytes(state *s, const request *r, const atoll_slice_plan *p, int64_t *bytes) {
  const memory_model *m = NULL;
  int blocks = 0; /* layers that can be done again, of the first `recompute` */
  for (int l = r->slice.first; l < r->slice.first + p->recompute; l++)
    blocks += atoll_model_layer_kind(s->problem->model, l) == ATOLL_LAYER_BLOCK;
  const struct {
    const char *name;
    int64_t value;
  } axis[] = {{"B", r->context.micro_batch},
              {"S", s->problem->seq},
              {"slots", r->context.in_flight},
              {"partials", r->context.partials},
              {"data", p->data},
              {"tensor", p->tensor},
              {"context", p->context},
              {"expert", p->expert},
              {"zero", p->zero},
              {"sequence_parallel", p->sequence_parallel},
              {"recompute", blocks},
              {"offload_weights", eighths(p->offload_weights)},
              {"offload_gradients", eighths(p->offload_gradients)},
              {"offload_optimizer", eighths(p->offload_optimizer)},
              {"offload_activations", eighths(p->offload_activations)}};
  enum { AXES = sizeof axis / sizeof *axis };
  const char *names[AXES];
  int64_t values[AXES];
  for (int i = 0; i < AXES; i++) {
    names[i] = axis[i].name;
    values[i] = axis[i].value;
  }
  ATOLL_TRY(find_held(s, r->slice.first, r->slice.last, p->policy, &m));
  ATOLL_TRY(atoll_sym_eval_int(m->peak, names, values, AXES, bytes));
  *bytes += s->problem->checkpoint_bytes + s->problem->fixed_bytes;
  return ATOLL_OK;
}

/* A point against its request; *refused: it lies about memory. */
static atoll_err check_point(state *s, const request *r, atoll_slice_plan *p, int i, int by_category, const char *line,
                             int *refused) {
  char text[160];
  int64_t devices = (int64_t)r->shape.nodes * r->shape.per_node, ranks = 1;
  const int degree[] = {p->data, p->tensor, p->context, p->expert};
  for (int k = 0; k < 4; k++)
    ranks = ranks > devices ? ranks : ranks * degree[k];
  *refused = 0;
  if (ranks != devices) {
    snprintf(text, sizeof text,
             "data %d x tensor %d x context %d x expert %d is not the %" PRId64 " devices of %d x %d", p->data,
             p->tensor, p->context, p->expert, devices, r->shape.nodes, r->shape.per_node);
    return misfit(s, r, i, text, line);
  }
  if (r->context.data > 0 && p->data != r->context.data) {
    snprintf(text, sizeof text, "data %d, asked for %d", p->data, r->context.data);
    return misfit(s, r, i, text, line);
  }
  if (s->policy >= 0 && p->policy != s->policy) {
    snprintf(text, sizeof text, "policy %s, asked for %s", atoll_policy_name((atoll_policy)p->policy),
             atoll_policy_name((atoll_policy)s->policy));
    return misfit(s, r, i, text, line);
  }
  if (p->recompute > r->slice.last - r->slice.first) {
    snprintf(text, sizeof text, "recompute %d of %d layers", p->recompute, r->slice.last - r->slice.first);
    return misfit(s, r, i, text, line);
  }
  if (s->params->target == 0 && !plain(p))
    return misfit(s, r, i, "uses an axis that train does not execute (plan.target is train)", line);
  p->bytes_limit = limit_of(s, r->shape.island);
  int64_t exact[ATOLL_MEM_CATEGORIES], total = 0, least;
  int known = plain(p) && s->params->experts == 0;
  if (known) {
    const cost_stage stage = stage_of(r, (atoll_policy)p->policy);
    ATOLL_TRY(cost_stage_bytes(s->cost, &stage, exact));
    total = cost_sum_bytes(exact);
  }
  if (known)
    least = total;
  else
    ATOLL_TRY(least_bytes(s, r, p, &least));
  if (p->bytes_peak < least) {
    *refused = 1;
    (void)atoll_fail(ATOLL_CORRUPT,
                     "plan.extern: %s: layers %d-%d on island %s, point %d claims %" PRId64 " bytes, it takes %" PRId64
                     " (%s, micro-batch %" PRId64 ", %d in flight): refused",
                     s->name, r->slice.first, r->slice.last - 1, s->problem->islands->island[r->shape.island].name, i,
                     p->bytes_peak, least, atoll_policy_name((atoll_policy)p->policy), r->context.micro_batch,
                     r->context.in_flight);
    if (s->refused++ < WARNINGS_MAX)
      atoll_warn("%s", atoll_err_message());
    return ATOLL_OK;
  }
  if (!by_category) { /* what is known, and the rest as workspace */
    if (known)
      memcpy(p->bytes, exact, sizeof exact);
    p->bytes[ATOLL_MEM_WORKSPACE] += p->bytes_peak - total;
  }
  return ATOLL_OK;
}

static int dominated(const atoll_slice_plan *a, const atoll_slice_plan *by) {
  return by->t <= a->t && by->d <= a->d && by->bytes_peak <= a->bytes_peak;
}

static int by_time(const void *a, const void *b) {
  const atoll_slice_plan *x = a, *y = b;
  if (x->t != y->t)
    return x->t < y->t ? -1 : 1;
  return x->d != y->d ? (x->d < y->d ? -1 : 1) : (x->bytes_peak > y->bytes_peak) - (x->bytes_peak < y->bytes_peak);
}

/* An answer into its entry. */
static atoll_err accept(state *s, entry *e, atoll_extern_answer *a, const char *line) {
  int n = 0, refused = 0;
  if (a->error[0])
    return atoll_fail(ATOLL_UNAVAILABLE, "plan.extern: %s has no answer for layers %d-%d on island %s: %s", s->name,
                      e->r.slice.first, e->r.slice.last - 1, s->problem->islands->island[e->r.shape.island].name,
                      a->error);
  e->missing = a->missing;
  for (int i = 0; i < a->count; i++) {
    atoll_slice_plan *p = &a->point[i];
    int lie;
    ATOLL_TRY(check_point(s, &e->r, p, i, a->by_category[i], line, &lie));
    refused += lie;
    if (lie)
      continue;
    if (p->bytes_peak > p->bytes_limit) {
      int64_t over = p->bytes_peak - p->bytes_limit;
      e->missing = over < e->missing ? over : e->missing;
      continue;
    }
    int keep = 1, k = 0;
    for (int j = 0; j < n; j++)
      keep = keep && !dominated(p, &a->point[j]);
    if (!keep)
      continue;
    for (int j = 0; j < n; j++)
      if (!dominated(&a->point[j], p))
        a->point[k++] = a->point[j];
    a->point[k] = *p; /* k <= n <= i */
    n = k + 1;
  }
  if (refused == a->count && refused > 0)
    return atoll_fail(ATOLL_CORRUPT,
                      "plan.extern: %s: layers %d-%d on island %s: every point claims fewer bytes than "
                      "it takes, in: %.120s",
                      s->name, e->r.slice.first, e->r.slice.last - 1,
                      s->problem->islands->island[e->r.shape.island].name, line);
  qsort(a->point, (size_t)n, sizeof *a->point, by_time);
  ATOLL_TRY(plan_alloc((size_t)n, sizeof *e->point, &e->point));
  memcpy(e->point, a->point, (size_t)n * sizeof *e->point);
  e->points = n;
  e->why = strdup(a->why);
  e->state = ANSWERED;
  s->failures = 0;
  return ATOLL_OK;
}

/* Takes one line from the program while `awaited` waits, for whichever entry it is. Failures of the program are put
 * down to an entry; other errors are returned. */
static atoll_err hear(state *s, int awaited) {
  char *line;
  size_t bytes;
  atoll_extern_answer *a = NULL;
  atoll_err err = child_line(s->program, s->params->extern_limit, &line, &bytes);
  if (err == ATOLL_NOMEM)
    return err;
  if (err != ATOLL_OK) {
    fail_entry(s, &s->entry[awaited], err);
    if (err != ATOLL_TIMEOUT)
      give_up(s); /* it is gone, or where its next line begins is unknown */
    return ATOLL_OK;
  }
  ATOLL_TRY(plan_alloc(1, sizeof *a, &a));
  err = atoll_extern_parse(s->name, line, bytes, a);
  entry *e = a->id >= 0 && a->id < s->entries ? &s->entry[a->id] : NULL;
  if (e && e->state == FAILED && e->code == ATOLL_TIMEOUT) {
    if (s->late++ == 0)
      atoll_warn("plan.extern: %s answered request %" PRId64 " too late; the answer is not used", s->name, a->id);
    free(a);
    return ATOLL_OK;
  }
  if (err == ATOLL_OK && (!e || e->state != WAITING)) {
    err = atoll_fail(ATOLL_CORRUPT, "plan.extern: %s answers request %" PRId64 ", which %s: %.120s", s->name, a->id,
                     e ? "it has answered" : "was not asked", line);
    e = NULL;
  }
  if (err == ATOLL_OK)
    err = accept(s, e, a, line);
  free(a);
  if (err == ATOLL_OK || err == ATOLL_NOMEM || err == ATOLL_INTERNAL)
    return err;
  fail_entry(s, e && e->state == WAITING ? e : &s->entry[awaited], err);
  return ATOLL_OK;
}

/* ---- the parallelizer -------------------------------------------------------------------------------------------- */

static void extern_end(void **address) {
  state *s = *address;
  if (!s)
    return;
  child_stop(&s->program, GRACE);
  if (s->refused > WARNINGS_MAX)
    atoll_warn("plan.extern: %s: %d points were refused for claiming too few bytes", s->name, s->refused);
  if (s->fallbacks)
    atoll_warn("plan.extern: %d of %d slices were planned by grid, because %s failed", s->fallbacks, s->entries,
               s->name);
  if (s->grid)
    atoll_parallelizer_grid.end(&s->grid);
  for (int i = 0; i < s->entries; i++) {
    free(s->entry[i].message);
    free(s->entry[i].point);
    free(s->entry[i].why);
  }
  free(s->entry);
  free(s->bucket);
  free(s->held);
  atoll_syms_destroy(&s->pool);
  cost_destroy(&s->cost);
  free(s);
  *address = NULL;
}

static atoll_err extern_begin(const atoll_plan_problem *problem, const atoll_plan_params *params, void **out) {
  state *s = NULL;
  void *address = NULL;
  int policy;
  if (!params->extern_program[0])
    return atoll_fail(ATOLL_USAGE, "plan.parallelizer is extern, but plan.extern names no program");
  ATOLL_TRY(plan_policy(params, &policy));
  ATOLL_TRY(plan_alloc(1, sizeof *s, &s));
  address = s;
  s->problem = problem;
  s->params = params;
  s->policy = policy;
  atoll_err err;
  ATOLL_TRY_GOTO(err, fail, cost_create(problem, &s->cost));
  if (params->extern_fallback)
    ATOLL_TRY_GOTO(err, fail, atoll_parallelizer_grid.begin(problem, params, &s->grid));
  ATOLL_TRY_GOTO(err, fail, child_start(params->extern_program, &s->program));
  snprintf(s->name, sizeof s->name, "%s", child_name(s->program));
  err = greet(s);
  if (err != ATOLL_OK && err != ATOLL_NOMEM && err != ATOLL_INTERNAL && err != ATOLL_UNSUPPORTED && s->grid) {
    give_up(s);
    atoll_warn("%s; grid plans instead", s->given_up_why);
    err = ATOLL_OK;
  }
  if (err != ATOLL_OK)
    goto fail;
  *out = s;
  return ATOLL_OK;
fail:
  child_stop(&s->program, 0);
  extern_end(&address);
  return err;
}

/* More points than there is room for: the one whose loss costs least goes first. A plan that used a dropped point takes
 * the kept one that stands for it instead; its t and d are at most (1 + epsilon) times as large, and a composed time is
 * made of sums and maxima of these, so it grows by at most that factor. */
static int thin(atoll_slice_plan *p, int n, int cap, double *epsilon) {
  double worst = 0;
  while (n > cap && n > 1) {
    int drop = 0;
    double least = INFINITY;
    for (int i = 0; i < n; i++)
      for (int j = 0; j < n; j++) {
        double t = p[j].t / p[i].t, d = p[j].d <= p[i].d ? 1 : p[i].d > 0 ? p[j].d / p[i].d : INFINITY;
        double loss = fmax(fmax(t, d), 1);
        if (i != j && loss < least) {
          least = loss;
          drop = i;
        }
      }
    if (!(least < INFINITY))
      break;
    /* What stood for others may go too, so factors multiply. */
    worst = (1 + worst) * least - 1;
    memmove(&p[drop], &p[drop + 1], (size_t)(n - drop - 1) * sizeof *p);
    n--;
  }
  *epsilon = worst;
  return n;
}

static atoll_err fall_back(state *s, int id, atoll_slice_plan *out, int cap, int *n, double *epsilon, int64_t *missing,
                           char *why, size_t why_bytes) {
  const entry *e = &s->entry[id];
  const char *message = e->state == FAILED ? e->message ? e->message : "no memory" : s->given_up_why;
  if (!s->grid) {
    atoll_err_set_message(message);
    return e->state == FAILED ? e->code : ATOLL_UNAVAILABLE;
  }
  if (e->state == FAILED && s->warnings++ < WARNINGS_MAX)
    atoll_warn("%s; grid plans this slice", message);
  if (!s->entry[id].by_grid++)
    s->fallbacks++;
  return atoll_parallelizer_grid.plan(s->grid, e->r.slice, e->r.shape, &e->r.context, out, cap, n, epsilon, missing,
                                      why, why_bytes);
}

static atoll_err extern_plan(void *address, atoll_slice slice, atoll_island_shape shape,
                             const atoll_slice_context *context, atoll_slice_plan *out, int cap, int *n,
                             double *epsilon, int64_t *missing, char *why, size_t why_bytes) {
  state *s = address;
  const request r = {slice, shape, *context};
  int id;
  *n = 0;
  *epsilon = 0;
  *missing = INT64_MAX;
  if (shape.nodes < 1 || shape.per_node < 1 || cap < 1)
    return atoll_fail(ATOLL_USAGE, "plan.extern: %d x %d devices, room for %d points", shape.nodes, shape.per_node,
                      cap);
  ATOLL_TRY(ask(s, &r, &id));
  while (s->entry[id].state == WAITING && !s->given_up) {
    ATOLL_TRY(hear(s, id));
    if (s->failures >= FAILURES_MAX && !s->given_up) {
      atoll_err_set_message(s->entry[id].message ? s->entry[id].message : "it failed three times");
      give_up(s);
    }
  }
  const entry *e = &s->entry[id];
  if (e->state != ANSWERED)
    return fall_back(s, id, out, cap, n, epsilon, missing, why, why_bytes);
  if (e->points == 0) {
    *missing = e->missing;
    if (why)
      snprintf(why, why_bytes, "layers %d-%d on island %s: %s finds nothing that fits%s%s", slice.first, slice.last - 1,
               s->problem->islands->island[shape.island].name, s->name, e->why && e->why[0] ? ": " : "",
               e->why ? e->why : "");
    return ATOLL_OK;
  }
  atoll_slice_plan *all = NULL;
  ATOLL_TRY(plan_alloc((size_t)e->points, sizeof *all, &all));
  memcpy(all, e->point, (size_t)e->points * sizeof *all);
  int kept = thin(all, e->points, cap, epsilon);
  if (kept <= cap) {
    memcpy(out, all, (size_t)kept * sizeof *out);
    *n = kept;
  }
  free(all);
  return kept <= cap
             ? ATOLL_OK
             : atoll_fail(ATOLL_USAGE, "plan.extern: %s: room for %d points is too little for %d", s->name, cap, kept);
}

static atoll_err extern_prepare(void *address, const atoll_slice *slice, int slices, atoll_island_shape shape,
                                const atoll_slice_context *context) {
  state *s = address;
  for (int i = 0; i < slices && !s->given_up; i++) {
    const request r = {slice[i], shape, *context};
    int id;
    ATOLL_TRY(ask(s, &r, &id));
  }
  return ATOLL_OK;
}

static const char *extern_source(const void *address) {
  return ((const state *)address)->fallbacks ? "extern+grid" : "extern";
}

const atoll_parallelizer atoll_parallelizer_extern = {.name = "extern",
                                                      .begin = extern_begin,
                                                      .plan = extern_plan,
                                                      .end = extern_end,
                                                      .prepare = extern_prepare,
                                                      .source = extern_source};
