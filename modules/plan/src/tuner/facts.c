/* Recorded plans against ours.
 *
 * Bytes are half.h's. Seconds of compute are analytic and marked so: products at a share of the device's fp16 rate, and
 * what is not a product moves its tensors through memory; rates are the data sheets'. Collectives and host copies use
 * the fits of the file (seconds = bytes / rate * (n - 1) / n + latency, reduce-scatter 1.1 and all-reduce 2.1 times as
 * long), streams its interference factors.
 *
 * Our plan: for every number of stages that divides the devices into equal meshes, every accumulation and every number
 * of layers within two of equal, the frontier of each stage; the inter-stage program then chooses. */
#include "atoll/facts.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/file.h"
#include "cost/collective.h"
#include "interstage/interstage.h"
#include "plan_impl.h"
#include "tuner/half.h"
#include "tuner/tuner.h"

#define MIB         1048576.0
#define GIB         1073741824.0
#define GEMM_SHARE  0.85 /* as in cost.c */
#define SPLIT       2    /* layers from equal that a stage may have */
#define POINTS      32   /* of one stage and number of layers */
#define MICRO_BATCH 16   /* most samples of a rank */

typedef struct gpu {
  const char *name;
  double flops, bandwidth; /* fp16 with fp32 accumulation, dense; B/s */
} gpu;

/* Vendors' data sheets. */
static const gpu gpus[] = {{"L4", 121e12, 300e9},    {"A100-40", 312e12, 1555e9}, {"A100-80", 312e12, 2039e9},
                           {"A100", 312e12, 1555e9}, {"V100-16", 125e12, 900e9},  {"V100-32", 125e12, 900e9},
                           {"A10G", 125e12, 600e9},  {"H100", 989e12, 3350e9},    {NULL, 0, 0}};

typedef struct fit {
  int nodes, per_node;
  double rate, latency;
} fit;

typedef struct machine {
  int nodes, per_node;
  const gpu *gpu;
  double capacity; /* B */
  fit fit[64];
  int fits;
  double in_rate, in_latency, out_rate, out_latency;
  interference streams;
} machine;

typedef struct setting {
  const char *path;
  half_shape shape;
  machine machine;
  int64_t batch;
  atoll_syms *pool;
  half_stage stage[2][2][2][2]; /* [pre][post][pipelined][middle]; made when first asked for */
  tuner *tuner[2][2][2][2];
} setting;

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static atoll_err bad(const setting *s, const char *key, const char *expected) {
  return atoll_fail(ATOLL_USAGE, "%s: %s is missing or wrong, expected %s", s->path, key, expected);
}

static atoll_err get_object(const setting *s, const json_t *o, const char *key, const json_t **out) {
  *out = json_object_get(o, key);
  return json_is_object(*out) ? ATOLL_OK : bad(s, key, "an object");
}

static atoll_err get_int(const setting *s, const json_t *o, const char *key, int64_t lo, int64_t hi, int64_t *out) {
  const json_t *v = json_object_get(o, key);
  char expected[64];
  snprintf(expected, sizeof expected, "a whole number of %" PRId64 "..%" PRId64, lo, hi);
  if (!json_is_integer(v) || json_integer_value(v) < lo || json_integer_value(v) > hi)
    return bad(s, key, expected);
  *out = json_integer_value(v);
  return ATOLL_OK;
}

static atoll_err get_real(const setting *s, const json_t *v, const char *key, double lo, double *out) {
  if (!json_is_number(v) || !(json_number_value(v) >= lo) || !isfinite(json_number_value(v)))
    return bad(s, key, lo > 0 ? "a number above 0" : "a number of 0 or more");
  *out = json_number_value(v);
  return ATOLL_OK;
}

static atoll_err get_count(const setting *s, const json_t *o, const char *key, int lo, int hi, int *out) {
  int64_t v = 0;
  ATOLL_TRY(get_int(s, o, key, lo, hi, &v));
  *out = (int)v;
  return ATOLL_OK;
}

/* `n` numbers. */
static atoll_err get_reals(const setting *s, const json_t *list, const char *key, int n, double *out) {
  char expected[64];
  snprintf(expected, sizeof expected, "a list of %d numbers of 0 or more", n);
  if (!json_is_array(list) || (int)json_array_size(list) != n)
    return bad(s, key, expected);
  for (int i = 0; i < n; i++)
    ATOLL_TRY(get_real(s, json_array_get(list, (size_t)i), key, 0, &out[i]));
  return ATOLL_OK;
}

static atoll_err read_model(setting *s, const json_t *o) {
  half_shape *m = &s->shape;
  const json_t *flash = json_object_get(o, "flash_attention");
  ATOLL_TRY(get_int(s, o, "hidden", 1, 1 << 20, &m->hidden));
  ATOLL_TRY(get_int(s, o, "mlp_hidden", 1, 1 << 22, &m->mlp));
  ATOLL_TRY(get_int(s, o, "layers", 1, 4096, &m->layers));
  ATOLL_TRY(get_int(s, o, "heads", 1, 1 << 16, &m->heads));
  ATOLL_TRY(get_int(s, o, "sequence", 1, 1 << 22, &m->seq));
  ATOLL_TRY(get_int(s, o, "vocabulary", 1, 1 << 24, &m->vocab));
  if (!json_is_boolean(flash))
    return bad(s, "flash_attention", "true or false");
  m->flash = json_is_true(flash);
  return ATOLL_OK;
}

static atoll_err read_links(setting *s, const json_t *table) {
  machine *m = &s->machine;
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)(uintptr_t)table, key, value) {
    double pair[2];
    fit f = {0, 0, 0, 0};
    if (m->fits == (int)(sizeof m->fit / sizeof *m->fit) || sscanf(key, "%dx%d", &f.nodes, &f.per_node) != 2 ||
        f.nodes < 1 || f.per_node < 1)
      return bad(s, "by_nodes_and_gpus_per_node", "at most 64 entries NODESxGPUS");
    ATOLL_TRY(get_reals(s, value, key, 2, pair));
    if (!(pair[0] > 0))
      return bad(s, key, "a bandwidth above 0");
    f.rate = pair[0] * GIB;
    f.latency = pair[1];
    m->fit[m->fits++] = f;
  }
  return m->fits > 0 ? ATOLL_OK : bad(s, "by_nodes_and_gpus_per_node", "at least one entry");
}

static atoll_err read_host(const setting *s, const json_t *gpu_object, const char *key, double *rate, double *latency) {
  const json_t *o;
  ATOLL_TRY(get_object(s, gpu_object, key, &o));
  ATOLL_TRY(get_real(s, json_object_get(o, "k_gb_per_s"), key, 1e-9, rate));
  ATOLL_TRY(get_real(s, json_object_get(o, "b_s"), key, 0, latency));
  *rate *= GIB;
  return ATOLL_OK;
}

static atoll_err read_machine(setting *s, const json_t *o) {
  machine *m = &s->machine;
  const json_t *g, *links;
  double factor[INTERFERENCE_FACTORS];
  ATOLL_TRY(get_count(s, o, "nodes", 1, 1 << 16, &m->nodes));
  ATOLL_TRY(get_count(s, o, "gpus_per_node", 1, 1 << 10, &m->per_node));
  ATOLL_TRY(get_object(s, o, "gpu", &g));
  const char *type = json_string_value(json_object_get(g, "type"));
  for (m->gpu = gpus; type && m->gpu->name && strcmp(m->gpu->name, type) != 0;)
    m->gpu++;
  if (!type || !m->gpu->name)
    return bad(s, "gpu.type", "L4, A10G, A100, A100-40, A100-80, V100-16, V100-32 or H100");
  ATOLL_TRY(get_real(s, json_object_get(g, "memory_capacity_gb"), "memory_capacity_gb", 1e-3, &m->capacity));
  m->capacity *= GIB;
  ATOLL_TRY(get_object(s, g, "gpu_to_gpu", &links));
  ATOLL_TRY(get_object(s, links, "by_nodes_and_gpus_per_node", &links));
  ATOLL_TRY(read_links(s, links));
  ATOLL_TRY(read_host(s, g, "host_to_gpu", &m->in_rate, &m->in_latency));
  ATOLL_TRY(read_host(s, g, "gpu_to_host", &m->out_rate, &m->out_latency));
  ATOLL_TRY(get_reals(s, json_object_get(g, "interference_parameters"), "interference_parameters", INTERFERENCE_FACTORS,
                      factor));
  return interference_set(&m->streams, factor);
}

static atoll_err read_stage(const setting *s, const json_t *o, atoll_facts_stage *x) {
  double zero[3], offload[4];
  int64_t b;
  ATOLL_TRY(get_count(s, o, "layers", 1, (int)s->shape.layers, &x->layers));
  ATOLL_TRY(get_count(s, o, "nodes", 1, s->machine.nodes, &x->nodes));
  ATOLL_TRY(get_count(s, o, "gpus_per_node", 1, s->machine.per_node, &x->per_node));
  ATOLL_TRY(get_int(s, o, "micro_batch", 1, s->batch, &b));
  ATOLL_TRY(get_count(s, o, "dp", 1, 1 << 20, &x->data));
  ATOLL_TRY(get_count(s, o, "tp", 1, 1 << 20, &x->tensor));
  ATOLL_TRY(get_count(s, o, "checkpointed_layers", 0, x->layers, &x->redone));
  ATOLL_TRY(get_reals(s, json_object_get(o, "zero_weights_gradients_optimizer"), "zero_weights_gradients_optimizer", 3,
                      zero));
  ATOLL_TRY(get_reals(s, json_object_get(o, "offload_weights_gradients_optimizer_activations"),
                      "offload_weights_gradients_optimizer_activations", 4, offload));
  x->micro_batch = b;
  for (int i = 0; i < 3; i++)
    x->zero[i] = zero[i] > 0;
  for (int i = 0; i < 4; i++) {
    x->offload[i] = (int)lround(8 * offload[i]);
    if (offload[i] > 1 || fabs(8 * offload[i] - x->offload[i]) > 1e-9)
      return bad(s, "offload_weights_gradients_optimizer_activations", "eighths of 0..1");
  }
  return (int64_t)x->data * x->tensor == (int64_t)x->nodes * x->per_node ? ATOLL_OK
                                                                         : bad(s, "dp", "dp x tp = nodes x gpus");
}

static void read_lists(const json_t *o, const char *key, atoll_facts_plan *p, size_t at) {
  const json_t *list = json_object_get(o, key);
  for (int i = 0; i < p->stages && json_is_array(list); i++) {
    double v = json_number_value(json_array_get(list, (size_t)i));
    memcpy((char *)&p->stage[i] + at, &v, sizeof v);
  }
}

static atoll_err read_plan(const setting *s, const json_t *o, atoll_facts_plan *p) {
  const json_t *list = json_object_get(o, "stages");
  const char *name = json_string_value(json_object_get(o, "plan_of"));
  int layers = 0;
  snprintf(p->name, sizeof p->name, "%s", name ? name : "recorded");
  ATOLL_TRY(get_int(s, o, "gradient_accumulation", 1, s->batch, &p->accumulation));
  if (!json_is_array(list) || json_array_size(list) < 1 || json_array_size(list) > ATOLL_FACTS_STAGES)
    return bad(s, "stages", "a list of 1..64 stages");
  p->stages = (int)json_array_size(list);
  for (int i = 0; i < p->stages; i++) {
    ATOLL_TRY(read_stage(s, json_array_get(list, (size_t)i), &p->stage[i]));
    layers += p->stage[i].layers;
    if (p->stage[i].micro_batch * p->stage[i].data * p->accumulation != s->batch)
      return bad(s, "micro_batch", "micro_batch x dp x gradient_accumulation = global_batch");
  }
  if (layers != s->shape.layers)
    return bad(s, "layers", "stages that add up to the model's");
  p->said_seconds = json_number_value(json_object_get(o, "predicted_iteration_time_s"));
  p->measured_seconds = json_number_value(json_object_get(o, "measured_iteration_time_s"));
  read_lists(o, "predicted_peak_forward_mib", p, offsetof(atoll_facts_stage, said));
  read_lists(o, "predicted_peak_backward_mib", p, offsetof(atoll_facts_stage, said) + sizeof(double));
  read_lists(o, "measured_peak_allocated_mib", p, offsetof(atoll_facts_stage, allocated));
  return ATOLL_OK;
}

/* ---- seconds of a mesh ------------------------------------------------------------------------------------------- */

/* The fit of a group on so many nodes and devices of each; of several, the smallest that is no smaller. */
static void net_of(const machine *m, int nodes, int per_node, collective_net *net) {
  const fit *best = NULL;
  *net = (collective_net){.level = {{per_node, 0, INFINITY}, {nodes, 0, INFINITY}, {1, 0, INFINITY}},
                          .fit_scale = {1, 1.1, 2.1, 1, 1},
                          .source = ATOLL_COST_MEASURED};
  for (int i = 0; i < m->fits; i++) {
    const fit *f = &m->fit[i];
    int enough = f->nodes >= nodes && f->per_node >= per_node, had = best != NULL;
    int was = had && best->nodes >= nodes && best->per_node >= per_node;
    if (!had || (enough && !was) ||
        (enough == was && (enough ? f->nodes * f->per_node < best->nodes * best->per_node
                                  : f->nodes * f->per_node > best->nodes * best->per_node)))
      best = f;
  }
  net->fit_rate = best->rate;
  net->fit_latency = best->latency;
}

typedef struct mesh {
  int nodes, per_node, data, tensor;
  int64_t b;
} mesh;

/* Tensor ranks are neighbours in a node, replicas the rest. */
static void price(const setting *s, const mesh *x, int pre, int post, int neighbours, int extra, int layers,
                  tuner_fixed fixed[HALF_FIXED]) {
  const half_shape *h = &s->shape;
  const machine *m = &s->machine;
  double v[HALF_FIXED] = {0};
  collective_net tensor, data, link;
  net_of(m, 1, x->tensor, &tensor);
  net_of(m, x->nodes, x->per_node / x->tensor > 0 ? x->per_node / x->tensor : 1, &data);
  net_of(m, neighbours > 1 ? 2 : 1, neighbours > 1 ? 1 : 2, &link);
  double rows = (double)(x->b * h->seq), hid = (double)h->hidden, T = x->tensor;
  double products = 2 * rows * (double)(half_block_values(h)) + 4 * rows * (double)h->seq * hid;
  double scores = h->flash ? 0 : 2.0 * (double)(x->b * h->heads) * (double)h->seq * (double)h->seq;
  double rate = GEMM_SHARE * m->gpu->flops, traffic = 2 * rows * (16 * hid + 2 * (double)h->mlp) + 4 * scores;
  v[HALF_FORWARD] = (products / rate + traffic / m->gpu->bandwidth) / T;
  v[HALF_BACKWARD] = 2 * v[HALF_FORWARD];
  v[HALF_INSIDE] = 2 * collective_seconds(&tensor, COLLECTIVE_ALL_REDUCE, 2 * rows * hid);
  double block = 2 * (double)half_block_values(h) / T, edge = 0;
  edge += pre ? 2 * (double)half_pre_values(h) / T : 0;
  edge += post ? 2 * (double)half_post_values(h) / T : 0;
  v[HALF_GATHER] = collective_seconds(&data, COLLECTIVE_ALL_GATHER, block);
  v[HALF_SCATTER] = collective_seconds(&data, COLLECTIVE_REDUCE_SCATTER, block);
  v[HALF_REDUCE] = collective_seconds(&data, COLLECTIVE_ALL_REDUCE, block);
  v[HALF_EDGE_GATHER] = collective_seconds(&data, COLLECTIVE_ALL_GATHER, edge);
  v[HALF_EDGE_SCATTER] = collective_seconds(&data, COLLECTIVE_REDUCE_SCATTER, edge);
  v[HALF_EDGE_REDUCE] = collective_seconds(&data, COLLECTIVE_ALL_REDUCE, edge);
  double head = 2 * rows * hid * (double)h->vocab / rate + 3 * 2 * rows * (double)h->vocab / m->gpu->bandwidth;
  v[HALF_EDGE_FORWARD] = post ? head / T : 0;
  v[HALF_EDGE_BACKWARD] = 2 * v[HALF_EDGE_FORWARD];
  int boundaries = neighbours > 0 ? (!pre) + (!post) : 0;
  v[HALF_SEND] = boundaries * 2 * collective_seconds(&link, COLLECTIVE_POINT_TO_POINT, 2 * rows * hid);
  v[HALF_IN_RATE] = m->in_rate;
  v[HALF_OUT_RATE] = m->out_rate;
  v[HALF_IN_LATENCY] = m->in_latency;
  v[HALF_OUT_LATENCY] = m->out_latency;
  v[HALF_CAPACITY] = m->capacity;
  const int64_t ints[HALF_INTS] = {x->b, x->data, x->tensor, extra, layers};
  for (int i = 0; i < HALF_FIXED; i++)
    fixed[i] = (tuner_fixed){half_fixed_name[i],
                             {i < HALF_INTS ? ATOLL_SYM_INT : ATOLL_SYM_REAL, i < HALF_INTS ? ints[i] : 0, v[i]}};
}

/* 0: one stage; 1: the next stage is in the node; 2: on another. */
static int neighbours_of(const setting *s, int stages, int nodes, int per_node) {
  return stages == 1 ? 0 : nodes > 1 || per_node == s->machine.per_node ? 2 : 1;
}

static atoll_err stage_of(setting *s, int stages, int i, half_stage **out, tuner ***search) {
  half_where w = {i == 0, i == stages - 1, stages > 1, i > 0 && i < stages - 1};
  half_stage *x = &s->stage[w.pre][w.post][w.pipelined][w.middle];
  if (!x->t)
    ATOLL_TRY(half_stage_make(s->pool, &s->shape, w, &s->machine.streams, x));
  *out = x;
  if (search)
    *search = &s->tuner[w.pre][w.post][w.pipelined][w.middle];
  return ATOLL_OK;
}

/* ---- evaluating a plan ------------------------------------------------------------------------------------------- */

static atoll_err real_of(const atoll_sym *e, const atoll_sym_binding *b, double *out) {
  atoll_sym_value v;
  ATOLL_TRY(atoll_sym_eval(e, b, HALF_FIXED + HALF_AXES, &v));
  *out = v.type == ATOLL_SYM_REAL ? v.r : (double)v.i;
  return ATOLL_OK;
}

static atoll_err evaluate_stage(setting *s, int stages, int i, atoll_facts_stage *x) {
  half_stage *e;
  tuner_fixed fixed[HALF_FIXED];
  atoll_sym_binding b[HALF_FIXED + HALF_AXES];
  mesh m = {x->nodes, x->per_node, x->data, x->tensor, x->micro_batch};
  double fits;
  ATOLL_TRY(stage_of(s, stages, i, &e, NULL));
  price(s, &m, i == 0, i == stages - 1, neighbours_of(s, stages, x->nodes, x->per_node), stages - 1 - i, x->layers,
        fixed);
  const int64_t axis[HALF_AXES] = {x->zero[0],    x->zero[1],    x->zero[2],    x->redone,
                                   x->offload[0], x->offload[1], x->offload[2], x->offload[3]};
  for (int k = 0; k < HALF_FIXED; k++)
    b[k] = (atoll_sym_binding){half_fixed_name[k], fixed[k].value};
  for (int k = 0; k < HALF_AXES; k++)
    b[HALF_FIXED + k] = (atoll_sym_binding){half_axis_name[k], {ATOLL_SYM_INT, axis[k], 0}};
  ATOLL_TRY(real_of(e->t, b, &x->t));
  ATOLL_TRY(real_of(e->d, b, &x->d));
  ATOLL_TRY(real_of(e->peak_forward, b, &x->peak[0]));
  ATOLL_TRY(real_of(e->peak_backward, b, &x->peak[1]));
  ATOLL_TRY(real_of(e->fragmentation, b, &x->fragmentation));
  ATOLL_TRY(real_of(e->fits, b, &fits));
  x->d = fmax(x->d, 0);
  x->peak[0] /= MIB;
  x->peak[1] /= MIB;
  x->fits = fits > 0;
  return ATOLL_OK;
}

static atoll_err evaluate_plan(setting *s, atoll_facts_plan *p) {
  interstage_option option[ATOLL_FACTS_STAGES];
  interstage_stage stage[ATOLL_FACTS_STAGES];
  int choice[ATOLL_FACTS_STAGES] = {0};
  double bottleneck, sum;
  for (int i = 0; i < p->stages; i++) {
    ATOLL_TRY(evaluate_stage(s, p->stages, i, &p->stage[i]));
    option[i] = (interstage_option){-1, p->stage[i].layers, p->stage[i].t, p->stage[i].d};
    stage[i] = (interstage_stage){1, &option[i]};
  }
  const interstage_problem problem = {p->stages, (int)s->shape.layers, p->accumulation, stage};
  p->seconds = interstage_value(&problem, choice, &bottleneck, &sum);
  return ATOLL_OK;
}

/* ---- our plan ---------------------------------------------------------------------------------------------------- */

typedef struct found { /* the points of one stage */
  int n, room;
  interstage_option *option;
  atoll_facts_stage *stage;
} found;

static atoll_err keep(found *f, const tuner_point *p, const mesh *m, int layers) {
  if (f->n == f->room) {
    int room = f->room ? 2 * f->room : 64;
    interstage_option *o = realloc(f->option, (size_t)room * sizeof *o);
    f->option = o ? o : f->option;
    atoll_facts_stage *g = o ? realloc(f->stage, (size_t)room * sizeof *g) : NULL;
    if (!g)
      return atoll_fail(ATOLL_NOMEM, "plan: no memory for %d points of a stage", room);
    f->stage = g;
    f->room = room;
  }
  f->option[f->n] = (interstage_option){-1, layers, p->t, p->d};
  f->stage[f->n++] = (atoll_facts_stage){
      .layers = layers,
      .nodes = m->nodes,
      .per_node = m->per_node,
      .data = m->data,
      .tensor = m->tensor,
      .redone = (int)p->choice[HALF_REDONE],
      .micro_batch = m->b,
      .zero = {(int)p->choice[HALF_WRE], (int)p->choice[HALF_GRE], (int)p->choice[HALF_ORE]},
      .offload = {(int)p->choice[HALF_OW], (int)p->choice[HALF_OG], (int)p->choice[HALF_OO], (int)p->choice[HALF_OA]}};
  return ATOLL_OK;
}

/* ZeRO 0 shards nothing, 3 everything; with a single replica there is nothing to share. */
static atoll_err search_mesh(tuner *u, const mesh *m, const tuner_fixed *fixed, int layers, int tag,
                             tuner_frontier *f) {
  static const int64_t flag[2] = {0, 1}, none[1] = {0}, coarse[] = {0, 2, 3, 4, 6, 8},
                       fine[] = {0, 2, 3, 4, 5, 6, 7, 8};
  int64_t redone[4097];
  for (int i = 0; i <= layers; i++)
    redone[i] = i;
  for (int zero = 0; zero <= (m->data > 1 ? 3 : 0); zero++) {
    const int64_t *on = flag + 1, *off = none;
    tuner_axis axes[HALF_AXES] = {{half_axis_name[0], 1, zero >= 3 ? on : off},
                                  {half_axis_name[1], 1, zero >= 2 ? on : off},
                                  {half_axis_name[2], 1, zero >= 1 ? on : off},
                                  {half_axis_name[3], layers + 1, redone},
                                  {half_axis_name[4], 6, coarse},
                                  {half_axis_name[5], 6, coarse},
                                  {half_axis_name[6], 8, fine},
                                  {half_axis_name[7], 8, fine}};
    ATOLL_TRY(tuner_search(u, axes, fixed, INT64_MAX, tag, f));
  }
  return ATOLL_OK;
}

/* Every mesh and micro-batch of a stage of so many layers. */
static atoll_err search_stage(setting *s, int stages, int i, int nodes, int per_node, int64_t accumulation, int layers,
                              found *out, int64_t *candidates) {
  half_stage *e;
  tuner **u;
  mesh tried[64];
  int meshes = 0;
  tuner_frontier f = {.least = INT64_MAX};
  atoll_err err = ATOLL_OK;
  double epsilon;
  ATOLL_TRY(stage_of(s, stages, i, &e, &u));
  for (int T = 1; T <= per_node && err == ATOLL_OK; T *= 2) {
    mesh m = {nodes, per_node, nodes * per_node / T, T, 0};
    tuner_fixed fixed[HALF_FIXED];
    if (per_node % T || s->shape.heads % T || s->batch % (accumulation * m.data) || meshes == 64)
      continue;
    m.b = s->batch / (accumulation * m.data);
    if (m.b > MICRO_BATCH)
      continue;
    price(s, &m, i == 0, i == stages - 1, neighbours_of(s, stages, nodes, per_node), stages - 1 - i, layers, fixed);
    if (!*u) {
      const tuner_expressions x = {e->fits, e->peak, e->t, e->d};
      tuner_axis axes[HALF_AXES];
      for (int k = 0; k < HALF_AXES; k++)
        axes[k] = (tuner_axis){half_axis_name[k], 0, NULL};
      err = tuner_create(&x, axes, HALF_AXES, fixed, HALF_FIXED, u);
    }
    tried[meshes++] = m;
    if (err == ATOLL_OK)
      err = search_mesh(*u, &m, fixed, layers, meshes - 1, &f);
  }
  *candidates += f.candidates;
  tuner_thin(&f, POINTS, &epsilon);
  for (int p = 0; p < f.count && err == ATOLL_OK; p++)
    err = keep(out, &f.point[p], &tried[f.point[p].tag], layers);
  tuner_frontier_clear(&f);
  return err;
}

static atoll_err try_depth(setting *s, int stages, int nodes, int per_node, int64_t accumulation, atoll_facts *out) {
  found f[ATOLL_FACTS_STAGES];
  interstage_stage list[ATOLL_FACTS_STAGES];
  int choice[ATOLL_FACTS_STAGES], L = (int)s->shape.layers, equal = (L + stages / 2) / stages;
  atoll_err err = ATOLL_OK;
  memset(f, 0, sizeof f);
  for (int i = 0; i < stages && err == ATOLL_OK; i++) {
    for (int l = equal - SPLIT; l <= equal + SPLIT && err == ATOLL_OK; l++)
      if (l >= 1 && l <= L - (stages - 1) && (stages > 1 || l == L))
        err = search_stage(s, stages, i, nodes, per_node, accumulation, l, &f[i], &out->candidates);
    list[i] = (interstage_stage){f[i].n, f[i].option};
    if (f[i].n == 0)
      goto done; /* nothing fits there */
  }
  interstage_answer answer;
  const interstage_problem problem = {stages, L, accumulation, list};
  if (err == ATOLL_OK)
    err = interstage_solve(&problem, INTERSTAGE_DP, choice, &answer);
  if (err == ATOLL_INFEASIBLE) {
    atoll_err_clear();
    err = ATOLL_OK;
  } else if (err == ATOLL_OK && (!out->tuned.stages || answer.value < out->tuned.seconds)) {
    atoll_facts_plan *p = &out->tuned;
    *p = (atoll_facts_plan){.name = "ours, tuned", .stages = stages, .accumulation = accumulation};
    for (int i = 0; i < stages; i++)
      p->stage[i] = f[i].stage[choice[i]];
    err = evaluate_plan(s, p);
  }
done:
  for (int i = 0; i < stages; i++) {
    free(f[i].option);
    free(f[i].stage);
  }
  return err;
}

/* Stages of equal meshes: whole nodes, or equal parts of a node. */
static atoll_err tune(setting *s, atoll_facts *out) {
  int devices = s->machine.nodes * s->machine.per_node;
  for (int stages = 1; stages <= devices && stages <= ATOLL_FACTS_STAGES && stages <= s->shape.layers; stages++) {
    int each = devices / stages, per_node = each < s->machine.per_node ? each : s->machine.per_node;
    if (devices % stages || each % per_node || s->machine.per_node % per_node)
      continue;
    for (int64_t g = 1; g <= s->batch; g++)
      if (s->batch % g == 0)
        ATOLL_TRY(try_depth(s, stages, each / per_node, per_node, g, out));
  }
  return ATOLL_OK;
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

static atoll_err read_all(setting *s, const json_t *root, atoll_facts *out) {
  const json_t *model, *machines, *list = json_object_get(root, "recorded");
  const char *name = json_string_value(json_object_get(root, "name"));
  ATOLL_TRY(get_object(s, root, "model", &model));
  ATOLL_TRY(get_object(s, root, "machines", &machines));
  ATOLL_TRY(get_int(s, root, "global_batch", 1, 1 << 24, &s->batch));
  ATOLL_TRY(read_model(s, model));
  ATOLL_TRY(read_machine(s, machines));
  if (!json_is_array(list) || json_array_size(list) < 1 || json_array_size(list) > 64)
    return bad(s, "recorded", "a list of 1..64 plans");
  snprintf(out->name, sizeof out->name, "%s", name ? name : "facts");
  ATOLL_TRY(plan_alloc(json_array_size(list), sizeof *out->plan, &out->plan));
  for (size_t i = 0; i < json_array_size(list); i++) {
    ATOLL_TRY(read_plan(s, json_array_get(list, i), &out->plan[i]));
    out->recorded++;
  }
  snprintf(out->times, sizeof out->times, "analytic: %s at %.3g TFLOP/s, %.4g GB/s", s->machine.gpu->name,
           GEMM_SHARE * s->machine.gpu->flops / 1e12, s->machine.gpu->bandwidth / 1e9);
  return ATOLL_OK;
}

static int has_times(const atoll_facts *facts) {
  int timed = 0;
  for (int i = 0; i < facts->recorded; i++)
    timed = timed || facts->plan[i].said_seconds > 0 || facts->plan[i].measured_seconds > 0;
  return timed;
}

static void setting_free(setting *s) {
  for (int i = 0; i < 16; i++)
    tuner_destroy(&s->tuner[i >> 3][i >> 2 & 1][i >> 1 & 1][i & 1]);
  atoll_syms_destroy(&s->pool);
  free(s);
}

atoll_err atoll_facts_load(const char *path, atoll_facts **out) {
  json_t *root = NULL;
  setting *s = NULL;
  atoll_facts *made = NULL;
  ATOLL_TRY(plan_read_json(path, &root));
  atoll_err err;
  ATOLL_TRY_GOTO(err, done, plan_alloc(1, sizeof *s, &s));
  ATOLL_TRY_GOTO(err, done, plan_alloc(1, sizeof *made, &made));
  s->path = path;
  ATOLL_TRY_GOTO(err, done, atoll_syms_create(&s->pool));
  ATOLL_TRY_GOTO(err, done, read_all(s, root, made));
  for (int i = 0; i < made->recorded; i++)
    ATOLL_TRY_GOTO(err, done, evaluate_plan(s, &made->plan[i]));
  if (has_times(made))
    ATOLL_TRY_GOTO(err, done, tune(s, made));
  *out = made;
  made = NULL;
done:
  json_decref(root);
  atoll_facts_destroy(&made);
  if (s)
    setting_free(s);
  return err;
}

void atoll_facts_destroy(atoll_facts **address) {
  if (!address || !*address)
    return;
  free((*address)->plan);
  free(*address);
  *address = NULL;
}

/* ---- printing ---------------------------------------------------------------------------------------------------- */

static int off(double ours, double theirs) {
  return theirs > 0 && !(fabs(ours - theirs) <= ATOLL_FACTS_TOLERANCE * theirs);
}

static const char *against(double ours, double theirs, char *buf, size_t n) {
  if (theirs > 0)
    snprintf(buf, n, "%.0f (%+.2f %%)%s", theirs, 100 * (ours / theirs - 1), off(ours, theirs) ? " TOO FAR" : "");
  else
    snprintf(buf, n, "-");
  return buf;
}

static void print_plan(const atoll_facts_plan *p, FILE *f, int *failures) {
  char a[64], b[64], c[64];
  fprintf(f, "\n%s: %" PRId64 " micro-batches, %.4g s by our model", p->name, p->accumulation, p->seconds);
  if (p->said_seconds > 0)
    fprintf(f, ", %.4g s by theirs", p->said_seconds);
  if (p->measured_seconds > 0)
    fprintf(f, ", %.4g s measured", p->measured_seconds);
  fprintf(f, "\n  %-5s %-6s %-7s %-4s %-9s %-5s %-15s %-11s %-24s %-11s %-24s %-24s %s\n", "stage", "layers", "mesh",
          "b", "data x tp", "again", "offload W G O A", "forward MiB", "theirs", "backward", "theirs", "allocated",
          "fits");
  for (int i = 0; i < p->stages; i++) {
    const atoll_facts_stage *s = &p->stage[i];
    double most = s->peak[0] > s->peak[1] ? s->peak[0] : s->peak[1];
    char shape[32], degrees[32], offload[48];
    snprintf(shape, sizeof shape, "%dx%d", s->nodes, s->per_node);
    snprintf(degrees, sizeof degrees, "%dx%d z%d", s->data, s->tensor,
             s->data > 1 ? s->zero[0] + s->zero[1] + s->zero[2] : 0);
    snprintf(offload, sizeof offload, "%d %d %d %d /8", s->offload[0], s->offload[1], s->offload[2], s->offload[3]);
    fprintf(f, "  %-5d %-6d %-7s %-4" PRId64 " %-9s %-5d %-15s %-11.0f %-24s %-11.0f %-24s %-24s %s\n", i, s->layers,
            shape, s->micro_batch, degrees, s->redone, offload, s->peak[0],
            against(s->peak[0], s->said[0], a, sizeof a), s->peak[1], against(s->peak[1], s->said[1], b, sizeof b),
            against(most, s->allocated, c, sizeof c), s->fits ? "yes" : "NO");
    *failures += !s->fits + off(s->peak[0], s->said[0]) + off(s->peak[1], s->said[1]) + off(most, s->allocated);
  }
}

void atoll_facts_print(const atoll_facts *facts, FILE *f, int *failures) {
  double best = INFINITY;
  *failures = 0;
  fprintf(f, "%s: recorded plans by our model (times %s)\n", facts->name, facts->times);
  for (int i = 0; i < facts->recorded; i++) {
    print_plan(&facts->plan[i], f, failures);
    best = facts->plan[i].seconds < best ? facts->plan[i].seconds : best;
  }
  if (facts->candidates == 0)
    return;
  if (!facts->tuned.stages) {
    fprintf(f, "\nour tuner finds no plan that fits, of %" PRId64 " candidates\n", facts->candidates);
    ++*failures;
    return;
  }
  print_plan(&facts->tuned, f, failures);
  fprintf(f, "\nof %" PRId64 " candidates; the best recorded plan takes %.4g s by the same model, ours %+.2f %%%s\n",
          facts->candidates, best, 100 * (facts->tuned.seconds / best - 1),
          facts->tuned.seconds <= best * (1 + 1e-9) ? "" : " SLOWER");
  *failures += !(facts->tuned.seconds <= best * (1 + 1e-9));
}
