/* Costs: measured where a profile knows the layer, else modelled from FLOPs, bytes and rates.
 *
 * The analytic model is a roofline per layer: products run at a share of the device's GEMM rate, and what is not a
 * product moves activations through memory. Its constants stand below; where no source is named they are assumptions of
 * the right size, not measurements, and plans by them are marked analytic. They decide only until the first
 * calibration: atoll-train measures its layers before it plans, and the profile of a run or of atoll-bench replaces
 * every one of them. */
#include "cost/cost.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan_impl.h"

/* Share of the device's best GEMM rate that the products of a layer reach: an assumption. Layers' shapes are smaller
 * than the probe's. Whole steps of GPT-2 124M, 4 samples of 256 tokens on each of two CPU ranks, ran at 0.86 to 0.91 of
 * the probed rate, other work included. */
#define GEMM_SHARE 0.85
/* Rows (tokens of a micro-batch) at which a product reaches half its rate, as in Hockney's n_1/2: small products are
 * dominated by packing and start-up. An assumption; no fit stands behind it. */
#define GEMM_HALF_ROWS 24.0
/* Starting a layer's kernels: assumes about twenty, each a parallel region or a launch of 2 us. */
#define LAYER_SECONDS 40e-6
/* Times a block's saved activations pass through memory beside its products: forward writes each and reads it once,
 * backward reads each and writes a gradient of its size. Counted from the layer's own list of saved tensors. */
#define FORWARD_PASSES  2.0
#define BACKWARD_PASSES 3.0
/* AdamW reads parameter, gradient and two moments and writes parameter and moments; the norm reads the gradient once
 * more: 8 values of 4 bytes per parameter. */
#define UPDATE_BYTES_PER_VALUE 32.0
/* Rates when neither probe nor cluster file gives any. A core with 8-wide FMA at 2 GHz; a memory channel's worth per
 * device; a GPU of 2018 (V100: 14 TFLOP/s, 900 GB/s peak). */
#define DEFAULT_GFLOPS_PER_CORE 32.0
#define DEFAULT_GFLOPS_GPU      10000.0
#define DEFAULT_BANDWIDTH_CPU   10.0
#define DEFAULT_BANDWIDTH_GPU   600.0
/* Links nobody measured or declared: shared memory between processes, 10 Gbit/s Ethernet. */
#define DEFAULT_LATENCY_IN    2e-6
#define DEFAULT_BANDWIDTH_IN  5.0
#define DEFAULT_LATENCY_OUT   30e-6
#define DEFAULT_BANDWIDTH_OUT 1.1
/* The executor's pieces of a tree sum: 2^20 values of 4 bytes. */
#define REDUCE_PIECE_BYTES (4.0 * 1048576.0)

typedef struct rates {
  double flops, bandwidth; /* FLOP/s, B/s */
  double leaf;             /* s per gradient byte of a summation leaf */
  char class_key[256];
} rates;

typedef struct entry { /* of the memo of layer costs */
  int island, cls, policy, tensor;
  atoll_mlp mlp;
  int64_t b;
  cost_slice cost;
} entry;

/* Bytes of a stage grow by the same amount with every slot and every gradient buffer. */
typedef struct stage_entry {
  cost_stage stage; /* without slots and partials */
  int affine;
  int64_t one[ATOLL_MEM_CATEGORIES], per_slot[ATOLL_MEM_CATEGORIES], per_partial[ATOLL_MEM_CATEGORIES];
} stage_entry;

struct cost_model {
  const atoll_plan_problem *problem;
  int layers, islands;
  int *cls;      /* [layers] */
  int *first_of; /* [cls]: a layer of the class */
  int classes;
  int *range;      /* [layers + 1][layers + 1]: representative */
  int64_t *values; /* [layers]: parameter values the layer's gradient has; tied ones at each use */
  rates *rate;     /* [islands] */
  entry *memo;
  int memos, room;
  stage_entry *stage;
  int stages, stage_room;
  int *stage_bucket; /* [2 * stage_room]: hashed places of stage entries; -1 empty */
  int64_t *divided;  /* [layers]: values of those that tensor ranks divide */
  int boundary_class;
  int64_t boundary_b, boundary_bytes; /* the last boundary asked for */
  int nodes;
  uint32_t *link;                        /* [nodes, nodes]: index into the next two; 0 and 1 are the defaults */
  double *latency, *bytes_per_second;    /* inside a node, between nodes, then routes, then links */
  double least_latency[2], most_rate[2]; /* of links inside nodes and between them */
  atoll_digest model;
};

void cost_destroy(cost_model **address) {
  if (!address || !*address)
    return;
  cost_model *c = *address;
  free(c->cls);
  free(c->first_of);
  free(c->range);
  free(c->values);
  free(c->rate);
  free(c->memo);
  free(c->stage);
  free(c->stage_bucket);
  free(c->divided);
  free(c->link);
  free(c->latency);
  free(c->bytes_per_second);
  free(c);
  *address = NULL;
}

/* Of activations and what passes between stages. */
static int64_t element_bytes(const atoll_model *m) {
  return (int64_t)atoll_dtype_bytes((atoll_dtype)atoll_model_config(m)->dtype);
}

/* Where layers read weights of another type, these are written in the same pass. */
static double update_bytes(const atoll_model *m) {
  return UPDATE_BYTES_PER_VALUE + (atoll_model_config(m)->dtype == ATOLL_F32 ? 0 : (double)element_bytes(m));
}

static int64_t layer_values(const atoll_model *m, int layer) {
  int index[64], n = atoll_model_layer_params(m, layer, index, 64);
  int64_t sum = 0;
  for (int i = 0; i < n && i < 64; i++) {
    const atoll_model_param *p = atoll_model_param_at(m, index[i]);
    int64_t k = 1;
    for (int d = 0; d < p->ndim; d++)
      k *= p->shape[d];
    sum += k;
  }
  return sum;
}

/* Of a layer's values, those that tensor ranks divide: what one of `degree` ranks lacks, of all of them. */
static atoll_err divided_values(const atoll_model *m, int layer, int degree, int64_t *values) {
  int index[64], n = atoll_model_layer_params(m, layer, index, 64);
  int64_t held = 0;
  for (int i = 0; i < n && i < 64; i++) {
    atoll_tensor block[ATOLL_LAYER_BLOCKS];
    int blocks = 0;
    ATOLL_TRY(atoll_layer_blocks(m, index[i], 0, degree, ATOLL_MLP_PLAIN, block, &blocks));
    for (int k = 0; k < blocks; k++)
      held += atoll_tensor_local_count(&block[k]);
  }
  *values = degree > 1 ? (layer_values(m, layer) - held) * degree / (degree - 1) : 0;
  return ATOLL_OK;
}

/* Two layers are alike when kind, FLOPs and parameter shapes are: equal expressions are one pointer. */
static int alike(const atoll_model *m, atoll_syms *pool, int a, int b) {
  if (atoll_model_layer_kind(m, a) != atoll_model_layer_kind(m, b) ||
      atoll_model_layer_flops(m, pool, a) != atoll_model_layer_flops(m, pool, b) ||
      atoll_model_layer_backward_flops(m, pool, a) != atoll_model_layer_backward_flops(m, pool, b))
    return 0;
  int x[64], y[64], n = atoll_model_layer_params(m, a, x, 64);
  if (n > 64 || atoll_model_layer_params(m, b, y, 64) != n)
    return 0;
  for (int i = 0; i < n; i++) {
    const atoll_model_param *p = atoll_model_param_at(m, x[i]), *q = atoll_model_param_at(m, y[i]);
    if (p->ndim != q->ndim || memcmp(p->shape, q->shape, (size_t)p->ndim * sizeof *p->shape) != 0 ||
        (p->tied_layer >= 0) != (q->tied_layer >= 0))
      return 0;
  }
  return 1;
}

static atoll_err find_classes(cost_model *c, const atoll_model *m) {
  atoll_syms *pool = NULL;
  ATOLL_TRY(atoll_syms_create(&pool));
  for (int l = 0; l < c->layers; l++) {
    int k = 0;
    while (k < c->classes && !alike(m, pool, c->first_of[k], l))
      k++;
    if (k == c->classes)
      c->first_of[c->classes++] = l;
    c->cls[l] = k;
    c->values[l] = layer_values(m, l);
  }
  atoll_syms_destroy(&pool);
  for (int l = 0, degree = plan_least_degree(m); l < c->layers; l++)
    ATOLL_TRY(divided_values(m, l, degree, &c->divided[l]));
  /* Representative of [a, b): [a - 1, b - 1)'s, when shifting keeps every class. Shifts by one suffice for repeated
   * blocks, which is what there is to find. */
  int n = c->layers + 1;
  for (int b = 1; b <= c->layers; b++)
    for (int a = 0; a < b; a++) {
      int same = a > 0;
      for (int l = a; l < b && same; l++)
        same = c->cls[l] == c->cls[l - 1];
      c->range[a * n + b] = same ? c->range[(a - 1) * n + b - 1] : a;
    }
  return ATOLL_OK;
}

static atoll_err find_links(cost_model *c);
static void link_of(const cost_model *c, int a, int b, double *latency, double *bytes_per_second);
static atoll_err boundary_of(cost_model *c, int layer, int64_t b, int64_t *bytes);

/* A measured block's time for clearing its gradient and adding it, else one write, two reads and a write. */
static double leaf_rate(const cost_model *c, const rates *r) {
  atoll_cost found;
  int block = 0;
  while (block < c->layers && atoll_model_layer_kind(c->problem->model, block) != ATOLL_LAYER_BLOCK)
    block++;
  for (int policy = 0; policy < ATOLL_POLICIES && c->problem->profile && block < c->layers; policy++)
    if (atoll_profile_find(c->problem->profile, r->class_key, c->model, atoll_layer_kind_name(ATOLL_LAYER_BLOCK),
                           atoll_policy_name((atoll_policy)policy), c->problem->seq, 1, &found) == ATOLL_OK &&
        found.leaf > 0)
      return found.leaf / (4.0 * (double)c->values[block]);
  atoll_err_clear();
  return 4.0 / r->bandwidth;
}

static void find_rates(cost_model *c) {
  const atoll_islands *islands = c->problem->islands;
  for (int i = 0; i < islands->count; i++) {
    const atoll_island *is = &islands->island[i];
    const atoll_topo_device *d = is->devices > 0 ? &c->problem->topo->device[is->device[0]] : NULL;
    int gpu = d && d->kind == ATOLL_TOPO_GPU, cores = d && d->ncores > 0 ? d->ncores : 1;
    rates *r = &c->rate[i];
    double rate =
        atoll_model_config(c->problem->model)->dtype == ATOLL_BF16 && is->gemm_bf16 > 0 ? is->gemm_bf16 : is->gemm_f32;
    r->flops = 1e9 * (rate > 0 ? rate : gpu ? DEFAULT_GFLOPS_GPU : cores * DEFAULT_GFLOPS_PER_CORE);
    r->bandwidth = 1e9 * (is->bandwidth > 0 ? is->bandwidth : gpu ? DEFAULT_BANDWIDTH_GPU : DEFAULT_BANDWIDTH_CPU);
    atoll_island_class(islands, i, r->class_key, sizeof r->class_key);
    r->leaf = leaf_rate(c, r);
  }
}

atoll_err cost_create(const atoll_plan_problem *problem, cost_model **out) {
  cost_model *c = NULL;
  ATOLL_TRY(plan_alloc(1, sizeof *c, &c));
  c->problem = problem;
  c->layers = atoll_model_layers(problem->model);
  c->islands = problem->islands->count;
  c->model = atoll_model_digest(problem->model);
  size_t n = (size_t)c->layers;
  atoll_err err;
  ATOLL_TRY_GOTO(err, fail, plan_alloc(n, sizeof *c->cls, &c->cls));
  ATOLL_TRY_GOTO(err, fail, plan_alloc(n, sizeof *c->first_of, &c->first_of));
  ATOLL_TRY_GOTO(err, fail, plan_alloc(n, sizeof *c->values, &c->values));
  ATOLL_TRY_GOTO(err, fail, plan_alloc(n, sizeof *c->divided, &c->divided));
  ATOLL_TRY_GOTO(err, fail, plan_alloc((n + 1) * (n + 1), sizeof *c->range, &c->range));
  ATOLL_TRY_GOTO(err, fail, plan_alloc((size_t)c->islands, sizeof *c->rate, &c->rate));
  ATOLL_TRY_GOTO(err, fail, find_classes(c, problem->model));
  find_rates(c);
  ATOLL_TRY_GOTO(err, fail, find_links(c));
  *out = c;
  return ATOLL_OK;
fail:
  cost_destroy(&c);
  return err;
}

int cost_layer_class(const cost_model *c, int layer) { return c->cls[layer]; }
int cost_range_first(const cost_model *c, int first, int last) { return c->range[first * (c->layers + 1) + last]; }
double cost_bandwidth(const cost_model *c, int island) { return c->rate[island].bandwidth / 1e9; }

double cost_spread(const cost_model *c) {
  double most = 0;
  for (int i = 0; i < c->islands && c->problem->profile; i++)
    most = fmax(most, atoll_profile_spread(c->problem->profile, c->rate[i].class_key, c->model));
  return most;
}

/* ---- layers ------------------------------------------------------------------------------------------------------ */

static atoll_err eval(const atoll_sym *e, atoll_syms *pool, int64_t b, int64_t seq, int64_t *out) {
  static const char *const names[] = {"B", "S"};
  const int64_t values[] = {b, seq};
  if (!e)
    return atoll_syms_error(pool) != ATOLL_OK ? ATOLL_INTERNAL
                                              : atoll_fail(ATOLL_INTERNAL, "plan: a layer without expression");
  return atoll_sym_eval_int(e, names, values, 2, out);
}

/* Of one of `tensor` ranks, without their sums. */
static atoll_err analytic(cost_model *c, int island, int layer, atoll_policy policy, int tensor, int64_t b,
                          cost_slice *out) {
  const atoll_model *m = c->problem->model;
  const rates *r = &c->rate[island];
  int parts = atoll_model_layer_kind(m, layer) == ATOLL_LAYER_BLOCK ? tensor : 1; /* who shares its products */
  int64_t seq = c->problem->seq, forward, backward, repeated, saved, eager, boundary;
  atoll_syms *pool = NULL;
  ATOLL_TRY(atoll_syms_create(&pool));
  atoll_err err;
  ATOLL_TRY_GOTO(err, done, eval(atoll_model_layer_flops(m, pool, layer), pool, b, seq, &forward));
  ATOLL_TRY_GOTO(err, done, eval(atoll_model_layer_backward_flops(m, pool, layer), pool, b, seq, &backward));
  ATOLL_TRY_GOTO(err, done, eval(atoll_layer_recompute_flops(m, pool, layer, policy), pool, b, seq, &repeated));
  ATOLL_TRY_GOTO(err, done, eval(atoll_layer_saved_bytes(m, pool, layer, policy, tensor), pool, b, seq, &saved));
  ATOLL_TRY_GOTO(err, done,
                 eval(atoll_layer_saved_bytes(m, pool, layer, ATOLL_POLICY_EAGER_FLASH, tensor), pool, b, seq, &eager));
  ATOLL_TRY_GOTO(err, done, eval(atoll_model_boundary_elements(m, pool, layer), pool, b, seq, &boundary));
  /* Whatever the policy keeps, forward writes all of eager's tensors; what it dropped, backward writes again. */
  double rows = (double)(b * seq), rate = parts * GEMM_SHARE * r->flops * rows / (rows + GEMM_HALF_ROWS);
  double tensors = (double)eager + (double)element_bytes(m) * (double)boundary,
         again = (double)(eager > saved ? eager - saved : 0);
  out->forward = LAYER_SECONDS + (double)forward / rate + FORWARD_PASSES * tensors / r->bandwidth;
  out->backward = LAYER_SECONDS + (double)(backward + repeated) / rate +
                  (BACKWARD_PASSES * tensors + FORWARD_PASSES * again) / r->bandwidth;
  out->source = ATOLL_COST_ANALYTIC;
done:
  atoll_syms_destroy(&pool);
  return err;
}

/* Seconds of a policy that was not measured, from exact20, which was: backward and the products that the policy
 * repeats, at the rate of the measured forward. NOINPUT: not measured either. */
static atoll_err repeated(const cost_model *c, int island, int layer, atoll_policy policy, int64_t b,
                          atoll_cost *found) {
  const atoll_model *m = c->problem->model;
  int64_t forward, again;
  ATOLL_TRY(atoll_profile_find(c->problem->profile, c->rate[island].class_key, c->model,
                               atoll_layer_kind_name(atoll_model_layer_kind(m, layer)),
                               atoll_policy_name(ATOLL_POLICY_EXACT20), c->problem->seq, b, found));
  atoll_syms *pool = NULL;
  ATOLL_TRY(atoll_syms_create(&pool));
  atoll_err err;
  ATOLL_TRY_GOTO(err, done, eval(atoll_model_layer_flops(m, pool, layer), pool, b, c->problem->seq, &forward));
  ATOLL_TRY_GOTO(err, done,
                 eval(atoll_layer_recompute_flops(m, pool, layer, policy), pool, b, c->problem->seq, &again));
  if (forward > 0)
    found->backward_input += found->forward * (double)again / (double)forward;
  if (again > 0 && found->source < ATOLL_COST_INTERPOLATED)
    found->source = ATOLL_COST_INTERPOLATED;
done:
  atoll_syms_destroy(&pool);
  return err;
}

static atoll_err ask_profile(const cost_model *c, int island, int layer, atoll_policy policy, int64_t b,
                             atoll_cost *out) {
  if (!c->problem->profile)
    return ATOLL_NOINPUT;
  return atoll_profile_find(c->problem->profile, c->rate[island].class_key, c->model,
                            atoll_layer_kind_name(atoll_model_layer_kind(c->problem->model, layer)),
                            atoll_policy_name(policy), c->problem->seq, b, out);
}

/* What a profile knows of a layer. When it knows it under the policy that keeps everything alone, as files of other
 * programs do, the model says how much longer another one takes. */
static atoll_err profiled(cost_model *c, int island, int layer, atoll_policy policy, int64_t b, atoll_cost *out) {
  cost_slice here, there;
  atoll_err err = ask_profile(c, island, layer, policy, b, out);
  if (err == ATOLL_NOINPUT && c->problem->profile)
    err = repeated(c, island, layer, policy, b, out);
  if (err != ATOLL_NOINPUT || policy == ATOLL_POLICY_EAGER_FLASH)
    return err;
  ATOLL_TRY(ask_profile(c, island, layer, ATOLL_POLICY_EAGER_FLASH, b, out));
  ATOLL_TRY(analytic(c, island, layer, policy, 1, b, &here));
  ATOLL_TRY(analytic(c, island, layer, ATOLL_POLICY_EAGER_FLASH, 1, b, &there));
  out->forward *= here.forward / there.forward;
  out->backward_input *= here.backward / there.backward;
  out->backward_weight *= here.backward / there.backward;
  out->source = out->source > ATOLL_COST_INTERPOLATED ? out->source : ATOLL_COST_INTERPOLATED;
  return ATOLL_OK;
}

/* What blocks repeat of the products before a residual, whose results tensor ranks sum again. */
static int sums_again(atoll_policy policy) {
  return policy == ATOLL_POLICY_EXACT18 || policy == ATOLL_POLICY_EXACT10 || policy == ATOLL_POLICY_EXACT4 ||
         policy == ATOLL_POLICY_EXACT2;
}

/* What a pipelined MLP takes over its ranks' even share of the products, where the machine has not measured its own:
 * `atoll-bench mlp` on two Zen 4 cores, of f32 and of bf16, each without and with gates. Medians: of 12 runs, which
 * lie between 0.95 and 1.09, and of two each for the others (0.99 to 1.11), 256 x 768 x 3072 x 768 and 512 x 1024 x
 * 4096 x 1024, gated 256 x 768 x 2048 x 768 and 512 x 2048 x 5632 x 2048. Two Zen 3 cores gave 1.05 for the first. */
static const double cta_over_ideal[2][2] = {{1.02, 1.04}, {1.07, 1.04}};
/* Each of its weights is packed once a step for each direction: read and written in f32. */
#define CTA_PACK_BYTES_PER_VALUE 16.0

static double over_even_share(const cost_model *c, int island, int tensor, int64_t b) {
  const atoll_model_params *m = atoll_model_config(c->problem->model);
  double over = cta_over_ideal[m->dtype == ATOLL_BF16][m->family == ATOLL_FAMILY_LLAMA];
  if (c->problem->profile && atoll_profile_find_mlp(c->problem->profile, c->rate[island].class_key, c->model, tensor,
                                                    c->problem->seq, b, &over) != ATOLL_OK)
    atoll_err_clear();
  return over;
}

/* Without claims the owner of the most matrices has all of theirs: one of two, or two of three where there is a gate.
 */
atoll_err cost_pipeline_mlp(const cost_model *c, int island, int layer, int tensor, atoll_mlp mlp, int64_t b,
                            cost_slice *out) {
  if (!atoll_mlp_pipelined(mlp))
    return ATOLL_OK;
  const atoll_model_params *m = atoll_model_config(c->problem->model);
  double matrices = m->family == ATOLL_FAMILY_LLAMA ? 3 : 2, values = matrices * (double)m->width * (double)m->ffn;
  double over = over_even_share(c, island, tensor, b);
  if (mlp == ATOLL_MLP_AUTO)
    over = over < 1 ? over : 1; /* rows split evenly are among the ways that a stage chooses from */
  if (mlp == ATOLL_MLP_CTA_OWN)
    over *= tensor * (matrices - 1) / matrices;
  int64_t all, seq = c->problem->seq;
  atoll_syms *pool = NULL;
  ATOLL_TRY(atoll_syms_create(&pool));
  atoll_err err = eval(atoll_model_layer_flops(c->problem->model, pool, layer), pool, b, seq, &all);
  atoll_syms_destroy(&pool);
  ATOLL_TRY(err);
  double more = (over - 1) * 2 * (double)(b * seq) * values / (double)all;
  out->forward *= 1 + more;
  out->backward *= 1 + more;
  out->update += CTA_PACK_BYTES_PER_VALUE * values / 2 / c->rate[island].bandwidth; /* two ranks own them */
  return ATOLL_OK;
}

/* From the cost of a whole block to that of one of its tensor ranks: as much shorter as the model says, and the sums
 * (of f32), which every rank waits for. */
static atoll_err divide(cost_model *c, int island, int layer, atoll_policy policy, int tensor, atoll_mlp mlp, int64_t b,
                        cost_slice *out) {
  cost_slice whole, part;
  int64_t bytes;
  ATOLL_TRY(analytic(c, island, layer, policy, 1, b, &whole));
  ATOLL_TRY(analytic(c, island, layer, policy, tensor, b, &part));
  ATOLL_TRY(boundary_of(c, layer, b, &bytes));
  double sum = cost_sum_in_node(c, island, tensor, bytes / element_bytes(c->problem->model) * 4);
  out->forward *= part.forward / whole.forward;
  out->backward *= part.backward / whole.backward;
  out->update *= (double)(cost_gradient_share(c, layer, layer + 1, tensor)) / (4.0 * (double)c->values[layer]);
  ATOLL_TRY(cost_pipeline_mlp(c, island, layer, tensor, mlp, b, out));
  out->forward += (atoll_mlp_pipelined(mlp) ? 1 : 2) * sum;
  out->backward += (atoll_layer_backward_sums(c->problem->model, layer, mlp) + sums_again(policy)) * sum;
  out->source = out->source > ATOLL_COST_INTERPOLATED ? out->source : ATOLL_COST_INTERPOLATED;
  return ATOLL_OK;
}

static atoll_err whole_cost(cost_model *c, int island, int layer, atoll_policy policy, int64_t b, cost_slice *out) {
  atoll_cost found;
  atoll_err err = profiled(c, island, layer, policy, b, &found);
  double update = update_bytes(c->problem->model) * (double)c->values[layer] / c->rate[island].bandwidth;
  if (err == ATOLL_NOINPUT) {
    atoll_err_clear();
    ATOLL_TRY(analytic(c, island, layer, policy, 1, b, out));
    out->update = update;
    return ATOLL_OK;
  }
  ATOLL_TRY(err);
  *out = (cost_slice){found.forward, found.backward_input + found.backward_weight,
                      found.update > 0 ? found.update : update, found.source};
  return ATOLL_OK;
}

static atoll_err layer_cost(cost_model *c, int island, int layer, atoll_policy policy, int tensor, atoll_mlp mlp,
                            int64_t b, cost_slice *out) {
  int cls = c->cls[layer];
  for (int i = c->memos - 1; i >= 0; i--) {
    const entry *e = &c->memo[i];
    if (e->island == island && e->cls == cls && e->policy == (int)policy && e->tensor == tensor && e->mlp == mlp &&
        e->b == b) {
      *out = e->cost;
      return ATOLL_OK;
    }
  }
  entry e = {.island = island, .cls = cls, .policy = (int)policy, .tensor = tensor, .mlp = mlp, .b = b};
  ATOLL_TRY(whole_cost(c, island, layer, policy, b, &e.cost));
  if (tensor > 1 && atoll_model_layer_kind(c->problem->model, layer) == ATOLL_LAYER_BLOCK)
    ATOLL_TRY(divide(c, island, layer, policy, tensor, mlp, b, &e.cost));
  if (c->memos == c->room) {
    int room = c->room ? 2 * c->room : 64;
    entry *grown = realloc(c->memo, (size_t)room * sizeof *grown);
    if (!grown)
      return atoll_fail(ATOLL_NOMEM, "plan: no memory for %d layer costs", room);
    c->memo = grown;
    c->room = room;
  }
  c->memo[c->memos++] = e;
  *out = e.cost;
  return ATOLL_OK;
}

atoll_err cost_of_slice(cost_model *c, int island, int tensor, atoll_mlp mlp, int first, int last, atoll_policy policy,
                        int64_t b, cost_slice *out) {
  cost_slice sum = {0, 0, 0, ATOLL_COST_MEASURED}, one = {0}, of_class[64];
  char known[64] = {0};
  for (int l = first; l < last; l++) {
    int k = c->cls[l];
    if (k < 64 && known[k]) {
      one = of_class[k];
    } else {
      ATOLL_TRY(layer_cost(c, island, l, policy, tensor, mlp, b, &one));
      if (k < 64) {
        known[k] = 1;
        of_class[k] = one;
      }
    }
    sum.forward += one.forward;
    sum.backward += one.backward;
    sum.update += one.update;
    sum.source = one.source > sum.source ? one.source : sum.source;
  }
  *out = sum;
  return ATOLL_OK;
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

int64_t cost_sum_bytes(const int64_t bytes[ATOLL_MEM_CATEGORIES]) {
  int64_t sum = 0;
  for (int i = 0; i < ATOLL_MEM_CATEGORIES; i++)
    sum += bytes[i];
  return sum;
}

static atoll_err ask_rank(const cost_model *c, const atoll_stage_params *p, int64_t bytes[ATOLL_MEM_CATEGORIES]) {
  memset(bytes, 0, ATOLL_MEM_CATEGORIES * sizeof *bytes);
  return atoll_stage_bytes(c->problem->model, p, bytes);
}

/* Tensor ranks hold as much as each other, except where each matrix of an MLP is on a rank of its own: then the fullest
 * one's. */
static atoll_err ask_stage(const cost_model *c, const cost_stage *s, int64_t bytes[ATOLL_MEM_CATEGORIES]) {
  atoll_policy *each = NULL;
  int64_t other[ATOLL_MEM_CATEGORIES];
  ATOLL_TRY(plan_alloc((size_t)(s->last - s->first), sizeof *each, &each));
  for (int i = 0; i < s->last - s->first; i++)
    each[i] = s->policy;
  atoll_stage_params p = {.first = s->first,
                          .last = s->last,
                          .policy = each,
                          .B = s->b,
                          .S = c->problem->seq,
                          .slots = s->slots,
                          .partials = s->partials,
                          .train = 1,
                          .tensor = s->tensor,
                          .mlp = s->tensor > 1 ? s->mlp : ATOLL_MLP_PLAIN};
  atoll_err err = ask_rank(c, &p, bytes);
  for (p.tensor_rank = 1; atoll_mlp_pipelined(p.mlp) && p.tensor_rank < p.tensor && err == ATOLL_OK; p.tensor_rank++) {
    err = ask_rank(c, &p, other);
    if (cost_sum_bytes(other) > cost_sum_bytes(bytes))
      memcpy(bytes, other, sizeof other);
  }
  free(each);
  return err;
}

static size_t stage_slot(const cost_model *c, const cost_stage *s) {
  size_t room = 2 * (size_t)c->stage_room;
  uint64_t h = (uint64_t)s->b;
  const int key[] = {s->first, s->last, (int)s->policy, s->tensor, (int)s->mlp};
  for (size_t i = 0; i < sizeof key / sizeof *key; i++)
    h = (h ^ (uint64_t)key[i]) * UINT64_C(0x9e3779b97f4a7c15);
  size_t at = (size_t)(h >> 20) & (room - 1);
  for (; c->stage_bucket[at] >= 0; at = (at + 1) & (room - 1)) {
    const cost_stage *e = &c->stage[c->stage_bucket[at]].stage;
    if (e->first == s->first && e->last == s->last && e->policy == s->policy && e->b == s->b &&
        e->tensor == s->tensor && e->mlp == s->mlp)
      break;
  }
  return at;
}

/* Room for one more entry, with half of the buckets free. */
static atoll_err grow_stages(cost_model *c) {
  if (c->stages < c->stage_room)
    return ATOLL_OK;
  int room = c->stage_room ? 2 * c->stage_room : 64, *bucket;
  stage_entry *grown = realloc(c->stage, (size_t)room * sizeof *grown);
  if (!grown)
    return atoll_fail(ATOLL_NOMEM, "plan: no memory for %d stage sizes", room);
  c->stage = grown;
  ATOLL_TRY(plan_alloc(2 * (size_t)room, sizeof *bucket, &bucket));
  free(c->stage_bucket);
  c->stage_bucket = bucket;
  c->stage_room = room;
  for (int i = 0; i < 2 * room; i++)
    bucket[i] = -1;
  for (int i = 0; i < c->stages; i++)
    bucket[stage_slot(c, &c->stage[i].stage)] = i;
  return ATOLL_OK;
}

/* Three answers stand for all numbers of slots and gradient buffers, and a fourth tells whether they may. */
static atoll_err measure_stage(cost_model *c, stage_entry *e) {
  cost_stage ask = e->stage;
  int64_t slot[ATOLL_MEM_CATEGORIES], partial[ATOLL_MEM_CATEGORIES], far[ATOLL_MEM_CATEGORIES];
  ask.slots = ask.partials = 1;
  ATOLL_TRY(ask_stage(c, &ask, e->one));
  ask.slots = 2;
  ATOLL_TRY(ask_stage(c, &ask, slot));
  ask.slots = 1, ask.partials = 2;
  ATOLL_TRY(ask_stage(c, &ask, partial));
  ask.slots = 4, ask.partials = 3;
  ATOLL_TRY(ask_stage(c, &ask, far));
  e->affine = 1;
  for (int k = 0; k < ATOLL_MEM_CATEGORIES; k++) {
    e->per_slot[k] = slot[k] - e->one[k];
    e->per_partial[k] = partial[k] - e->one[k];
    e->affine = e->affine && far[k] == e->one[k] + 3 * e->per_slot[k] + 2 * e->per_partial[k];
  }
  return ATOLL_OK;
}

/* The first layers of a stage, or the last ones where it ends the model, if all between the ends is one class. */
static int shorten(const cost_model *c, const cost_stage *s, int layers, cost_stage *out) {
  if (s->last - s->first <= layers || (s->first == 0 && s->last == c->layers))
    return 0;
  for (int l = s->first + 2; l < s->last - 1; l++)
    if (c->cls[l] != c->cls[s->first + 1])
      return 0;
  *out = *s;
  if (s->last < c->layers)
    out->last = s->first + layers;
  else
    out->first = s->last - layers;
  return c->cls[s->last < c->layers ? s->last - 1 : s->first] == c->cls[s->first + 1];
}

static atoll_err find_stage(cost_model *c, const cost_stage *s, stage_entry *out);

/* Blocks of one class add the same amount each: stages of SHORT, one and two layers more tell how much, and whether. */
static atoll_err extend_stage(cost_model *c, stage_entry *e, int *done) {
  enum { SHORT = 4 };
  cost_stage at;
  stage_entry a[3];
  *done = 0;
  if (!shorten(c, &e->stage, SHORT + 2, &at))
    return ATOLL_OK;
  for (int i = 0; i < 3; i++) {
    (void)shorten(c, &e->stage, SHORT + i, &at);
    ATOLL_TRY(find_stage(c, &at, &a[i]));
    if (!a[i].affine)
      return ATOLL_OK;
  }
  int more = e->stage.last - e->stage.first - SHORT;
  for (int k = 0; k < ATOLL_MEM_CATEGORIES; k++) {
    if (a[2].one[k] - a[1].one[k] != a[1].one[k] - a[0].one[k] ||
        a[2].per_slot[k] - a[1].per_slot[k] != a[1].per_slot[k] - a[0].per_slot[k] ||
        a[2].per_partial[k] - a[1].per_partial[k] != a[1].per_partial[k] - a[0].per_partial[k])
      return ATOLL_OK;
    e->one[k] = a[0].one[k] + more * (a[1].one[k] - a[0].one[k]);
    e->per_slot[k] = a[0].per_slot[k] + more * (a[1].per_slot[k] - a[0].per_slot[k]);
    e->per_partial[k] = a[0].per_partial[k] + more * (a[1].per_partial[k] - a[0].per_partial[k]);
  }
  *done = e->affine = 1;
  return ATOLL_OK;
}

/* Asking layer thousands of times is what a search would spend its time on, so a few answers stand for all; where they
 * may not, layer is asked each time. */
static atoll_err find_stage(cost_model *c, const cost_stage *stage, stage_entry *out) {
  cost_stage s = *stage; /* the first that is alike */
  s.first = cost_range_first(c, stage->first, stage->last);
  s.last -= stage->first - s.first;
  ATOLL_TRY(grow_stages(c));
  size_t at = stage_slot(c, &s);
  if (c->stage_bucket[at] >= 0) {
    *out = c->stage[c->stage_bucket[at]];
    return ATOLL_OK;
  }
  stage_entry e = {.stage = s};
  int done;
  ATOLL_TRY(extend_stage(c, &e, &done));
  if (!done)
    ATOLL_TRY(measure_stage(c, &e));
  ATOLL_TRY(grow_stages(c)); /* others may have come in between */
  c->stage_bucket[stage_slot(c, &s)] = c->stages;
  c->stage[c->stages++] = e;
  *out = e;
  return ATOLL_OK;
}

atoll_err cost_stage_bytes(cost_model *c, const cost_stage *stage, int64_t bytes[ATOLL_MEM_CATEGORIES]) {
  stage_entry e;
  ATOLL_TRY(find_stage(c, stage, &e));
  if (e.affine)
    for (int k = 0; k < ATOLL_MEM_CATEGORIES; k++)
      bytes[k] = e.one[k] + (stage->slots - 1) * e.per_slot[k] + (stage->partials - 1) * e.per_partial[k];
  else
    ATOLL_TRY(ask_stage(c, stage, bytes));
  bytes[ATOLL_MEM_CHECKPOINT] += c->problem->checkpoint_bytes;
  bytes[ATOLL_MEM_DATA] += c->problem->fixed_bytes;
  return ATOLL_OK;
}

/* Boundaries of one model are alike where its layers are; asked for often with one b. */
static atoll_err boundary_of(cost_model *c, int layer, int64_t b, int64_t *bytes) {
  if (c->boundary_class != c->cls[layer] || c->boundary_b != b) {
    ATOLL_TRY(cost_boundary_bytes(c->problem->model, layer, b, c->problem->seq, &c->boundary_bytes));
    c->boundary_class = c->cls[layer];
    c->boundary_b = b;
  }
  *bytes = c->boundary_bytes;
  return ATOLL_OK;
}

int64_t cost_gradient_share(const cost_model *c, int first, int last, int tensor) {
  int64_t values = 0;
  for (int l = first; l < last; l++)
    values += c->values[l] - c->divided[l] + c->divided[l] / tensor;
  return 4 * values;
}

atoll_err cost_boundary_bytes(const atoll_model *model, int layer, int64_t b, int64_t seq, int64_t *bytes) {
  atoll_syms *pool = NULL;
  int64_t elements = 0;
  ATOLL_TRY(atoll_syms_create(&pool));
  atoll_err err = eval(atoll_model_boundary_elements(model, pool, layer), pool, b, seq, &elements);
  atoll_syms_destroy(&pool);
  *bytes = element_bytes(model) * elements;
  return err;
}

atoll_err cost_gradient_bytes(const atoll_model *model, int first, int last, int64_t *bytes) {
  int64_t values = 0;
  for (int l = first; l < last; l++)
    values += layer_values(model, l);
  *bytes = 4 * values;
  return ATOLL_OK;
}

/* ---- links ------------------------------------------------------------------------------------------------------- */

/* The nodes of topo that stand at an end of a route. */
static int route_end(const atoll_topo *topo, const char *end, int *list) {
  int n = 0;
  for (int i = 0; i < topo->nodes; i++)
    if (atoll_topo_at(&topo->node[i], end))
      list[n++] = i;
  return n;
}

static atoll_err find_routes(cost_model *c) {
  const atoll_topo *topo = c->problem->topo;
  size_t n = (size_t)topo->nodes;
  int *a = NULL, *b;
  ATOLL_TRY(plan_alloc(2 * n, sizeof *a, &a));
  b = a + n;
  for (int r = 0; r < topo->routes; r++) {
    c->latency[2 + r] = topo->route[r].latency;
    c->bytes_per_second[2 + r] = 1e9 * topo->route[r].bandwidth;
    if (!(topo->route[r].bandwidth > 0))
      continue;
    int as = route_end(topo, topo->route[r].a, a), bs = route_end(topo, topo->route[r].b, b);
    for (int i = 0; i < as; i++)
      for (int k = 0; k < bs; k++)
        if (a[i] != b[k])
          c->link[(size_t)a[i] * n + (size_t)b[k]] = c->link[(size_t)b[k] * n + (size_t)a[i]] = (uint32_t)(2 + r);
  }
  free(a);
  return ATOLL_OK;
}

/* A matrix over nodes. Pairs that were neither measured nor declared take the slowest of their kind, as
 * atoll_topo_link_of() does; when nothing of a kind is known, the constants above. */
static atoll_err find_links(cost_model *c) {
  const atoll_topo *topo = c->problem->topo;
  size_t n = (size_t)topo->nodes;
  double latency[2] = {0, 0}, rate[2] = {INFINITY, INFINITY};
  for (int i = 0; i < topo->links; i++) {
    const atoll_topo_link *k = &topo->link[i];
    double l = atoll_samples_median(&k->latency), w = 1e9 * atoll_samples_median(&k->bandwidth);
    int out = k->a != k->b;
    latency[out] = l > latency[out] ? l : latency[out];
    rate[out] = w > 0 && w < rate[out] ? w : rate[out];
  }
  for (int out = 0; out < 2; out++) {
    if (!(latency[out] > 0))
      latency[out] = out ? DEFAULT_LATENCY_OUT : DEFAULT_LATENCY_IN;
    if (!(rate[out] < INFINITY))
      rate[out] = 1e9 * (out ? DEFAULT_BANDWIDTH_OUT : DEFAULT_BANDWIDTH_IN);
  }
  c->nodes = topo->nodes;
  size_t kinds = 2 + (size_t)topo->routes + (size_t)topo->links;
  ATOLL_TRY(plan_alloc(n * n, sizeof *c->link, &c->link));
  ATOLL_TRY(plan_alloc(kinds, sizeof *c->latency, &c->latency));
  ATOLL_TRY(plan_alloc(kinds, sizeof *c->bytes_per_second, &c->bytes_per_second));
  for (size_t i = 0; i < n * n; i++)
    c->link[i] = i / n != i % n;
  for (int out = 0; out < 2; out++) {
    c->latency[out] = latency[out];
    c->bytes_per_second[out] = rate[out];
    c->least_latency[out] = INFINITY;
    c->most_rate[out] = 0;
  }
  ATOLL_TRY(find_routes(c));
  for (int i = 0; i < topo->links; i++) {
    const atoll_topo_link *k = &topo->link[i];
    double l = atoll_samples_median(&k->latency), w = 1e9 * atoll_samples_median(&k->bandwidth);
    size_t at[2] = {(size_t)k->a * n + (size_t)k->b, (size_t)k->b * n + (size_t)k->a};
    uint32_t before = c->link[at[0]], own = (uint32_t)(2 + topo->routes + i);
    c->latency[own] = l > 0 ? l : c->latency[before];
    c->bytes_per_second[own] = w > 0 ? w : c->bytes_per_second[before];
    c->link[at[0]] = c->link[at[1]] = own;
  }
  for (size_t i = 0; i < n * n; i++) {
    int out = i / n != i % n;
    c->least_latency[out] = fmin(c->least_latency[out], c->latency[c->link[i]]);
    c->most_rate[out] = fmax(c->most_rate[out], c->bytes_per_second[c->link[i]]);
  }
  return ATOLL_OK;
}

static void link_of(const cost_model *c, int a, int b, double *latency, double *bytes_per_second) {
  uint32_t at = c->link[(size_t)a * (size_t)c->nodes + (size_t)b];
  *latency = c->latency[at];
  *bytes_per_second = c->bytes_per_second[at];
}

double cost_send(const cost_model *c, int a, int b, int64_t bytes) {
  double latency, rate;
  link_of(c, a, b, &latency, &rate);
  return latency + (double)bytes / rate;
}

/* Slowest latency and rate among the members' nodes. Nodes come in runs, so equal neighbours are looked up once. */
static void slowest(const cost_model *c, const int *node, int n, double *latency, double *rate) {
  *latency = 0;
  *rate = INFINITY;
  for (int i = 0; i < n; i++) {
    if (i > 1 && node[i] == node[i - 1] && node[i] == node[i - 2])
      continue;
    for (int j = i + 1; j < n; j++) {
      if (j > i + 1 && node[j] == node[j - 1])
        continue;
      double l, r;
      link_of(c, node[i], node[j], &l, &r);
      *latency = l > *latency ? l : *latency;
      *rate = r < *rate ? r : *rate;
    }
  }
}

/* Reduce-scatter and all-gather over a fixed tree (atoll_comm_tree_sum): each element of each part travels once to the
 * rank that sums its slice, and each sum once to the others; the summing rank adds all parts of its slice. */
static double reduce_seconds(int n, int64_t bytes, int parts, int most_parts, double bandwidth, double latency,
                             double rate) {
  if (n <= 1 || bytes == 0)
    return 0;
  double share = (double)(n - 1) / n, pieces = ceil((double)bytes / REDUCE_PIECE_BYTES);
  double travel = (most_parts + 1) * share * (double)bytes / rate;
  double adds = 12.0 * (double)(parts - 1) * (double)bytes / n / (1e9 * bandwidth); /* two reads, one write */
  return travel + adds + 2 * latency * (pieces + ceil(log2(n)));
}

double cost_sum_in_node(const cost_model *c, int island, int n, int64_t bytes) {
  double latency, rate;
  int node = c->problem->topo->device[c->problem->islands->island[island].device[0]].node;
  link_of(c, node, node, &latency, &rate);
  return reduce_seconds(n, bytes, n, 1, cost_bandwidth(c, island), latency, rate);
}

double cost_hand_on(const cost_model *c, int node, int from, int to, int64_t bytes) {
  double latency, rate;
  if (from == to || to <= 1)
    return 0;
  link_of(c, node, node, &latency, &rate);
  return ceil(log2(to)) * (latency + (double)bytes / rate);
}

void cost_slowest(const cost_model *c, const int *node, int n, double *latency, double *bytes_per_second) {
  slowest(c, node, n, latency, bytes_per_second);
}

double cost_reduce_over(int n, int64_t bytes, int parts, int most_parts, double bandwidth, double latency,
                        double bytes_per_second) {
  return reduce_seconds(n, bytes, parts, most_parts, bandwidth, latency, bytes_per_second);
}

double cost_reduce(const cost_model *c, const int *node, int n, int64_t bytes, int parts, int most_parts,
                   double bandwidth) {
  double latency, rate;
  if (n <= 1 || bytes == 0)
    return 0;
  slowest(c, node, n, &latency, &rate);
  return reduce_seconds(n, bytes, parts, most_parts, bandwidth, latency, rate);
}

double cost_reduce_least(const cost_model *c, int n, int one_node, int64_t bytes, int parts, int most_parts,
                         double bandwidth) {
  if (n <= 1 || bytes == 0)
    return 0;
  double latency = fmin(c->least_latency[1], one_node ? c->least_latency[0] : INFINITY);
  double rate = fmax(c->most_rate[1], one_node ? c->most_rate[0] : 0);
  return reduce_seconds(n, bytes, parts, most_parts, bandwidth, latency, rate);
}

double cost_most_rate(const cost_model *c, int one_node) {
  return fmax(c->most_rate[1], one_node ? c->most_rate[0] : 0);
}

double cost_tied(const cost_model *c, int a, int b, int64_t bytes, double bandwidth) {
  double latency, rate, pieces = ceil((double)bytes / REDUCE_PIECE_BYTES);
  link_of(c, a, b, &latency, &rate);
  return (double)bytes / rate + latency * pieces + 12.0 * (double)bytes / (1e9 * bandwidth);
}

double cost_finish(const cost_model *c, const int *node, int n) {
  double latency, rate;
  if (n <= 1)
    return 0;
  slowest(c, node, n, &latency, &rate);
  return 2 * latency * ceil(log2(n));
}

double cost_leaf(const cost_model *c, int island, int64_t gradient_bytes) {
  return (double)gradient_bytes * c->rate[island].leaf;
}
