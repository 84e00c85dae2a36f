/* layers: memory and speed of each memory policy, per model.
 *
 * Largest batch: the real allocation sequence of a whole training stage (parameters, gradients, moments, one slot of
 * activations, workspace) in a counting memory with the budget, by bisection. Bytes predicted come from the layers'
 * expressions, bytes measured from that memory's peak.
 *
 * Time: two blocks of each policy, in turns, on `timed_batch` samples, medians of the rounds, scaled by depth;
 * embedding, head and AdamW measured apart and added. Tokens per second are those of a step of the largest batch: time
 * per token beyond a few hundred tokens hardly depends on their number, so the batch matters by spreading AdamW. Rows
 * say so ("scaled").
 *
 * Beside the largest batch over eager's stands what a block's bytes allow ("by bytes"): eager's over the policy's,
 * which parameters, the ends of the model and small batches only come near. With S = 128 that is 84.1 / 40.1 = 2.10 for
 * exact20 (44.1 / 20.1 = 2.19 in bf16), whatever the budget; of the exact frontier exact12 is the first beyond 2.5.
 *
 * What making values again costs: the share of a block's forward products that a policy repeats, by count and by
 * time (longer than exact20, which repeats none, over exact20's forward, within each round); and of tokens per second,
 * against eager at its own largest batch.
 *
 * Confirmed: one whole real step at the largest batch.
 *
 * Rows are written as they come, so a run that is ended early leaves those it has (complete: false); "parts" says how
 * long each model, type and length took.
 *
 * Each in f32 and in bf16, where weights that layers read lie beside f32 masters; bf16 is counted, and timed when asked
 * for, so that the default set ends in ten minutes. */
#include "bench.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/clock.h"
#include "atoll/kernel.h"
#include "atoll/log.h"
#include "atoll/perf.h"

enum { ONE_IN = 7, ROUNDS = 3, TIMED_TOKENS = 512, MOST_BATCH = 1 << 20 };

typedef struct work {
  const char *preset;
  int timed; /* else counted only */
  int confirmed;
  int full; /* only with --full */
} work;

static const work works[] = {
    {"bert-large", 1, 1, 0}, {"gpt2-124m", 1, 0, 0},     {"roberta-base", 1, 0, 0}, {"llama-3.2-1b", 0, 0, 0},
    {"bert-base", 1, 0, 1},  {"roberta-large", 1, 0, 1}, {"gpt2-355m", 1, 0, 1},    {"gpt2-774m", 0, 0, 1},
    {"gpt2-1.5b", 0, 0, 1},  {"llama-3.2-3b", 0, 0, 1},
};
static const int64_t lengths[] = {128, 512};
static const atoll_policy confirmed[] = {ATOLL_POLICY_EAGER, ATOLL_POLICY_TEMPO, ATOLL_POLICY_EXACT20};

/* One model at one length. */
typedef struct scene {
  const work *w;
  atoll_model *m;
  atoll_exec e;
  atoll_dtype dtype;
  int64_t S, budget;
  int blocks;
  int count, timed; /* bytes only, as asked; time too */
  int64_t only_length;
  const char *only_dtype;
  int only; /* policy beside eager; -1: all */
  int full;
  int64_t eager_batch; /* of eager's row, which comes first */
  double eager_bsh, eager_rate;
  const atoll_cli *cli;
  json_t *out, *rows;
} scene;

static int64_t element(const scene *s) { return (int64_t)atoll_dtype_bytes(s->dtype); }

static int wanted(const scene *s, int policy) {
  return s->only < 0 || policy == s->only || policy == ATOLL_POLICY_EAGER;
}

/* ---- bytes ---- */

static atoll_err eval(const atoll_sym *e, int64_t B, int64_t S, int64_t *out) {
  const char *const names[] = {"B", "S"};
  const int64_t values[] = {B, S};
  return e ? atoll_sym_eval_int(e, names, values, 2, out) : atoll_fail(ATOLL_INTERNAL, "a layer states no bytes");
}

static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* Where the bytes go. */
typedef struct parts {
  /* do not grow with the batch; what follows does */
  int64_t weights, masters, gradients, moments;
  int64_t saved, passed; /* by all layers; between them */
  int64_t scratch;       /* of the layer that needs most */
} parts;

static int64_t parts_sum(const parts *p) {
  return p->weights + p->masters + p->gradients + p->moments + p->saved + p->passed + p->scratch;
}

/* What the expressions of all layers add up to. */
static atoll_err predict_layers(const scene *s, atoll_policy p, int64_t B, parts *out) {
  atoll_syms *pool = NULL;
  int64_t v = 0;
  atoll_err err;
  ATOLL_TRY(atoll_syms_create(&pool));
  for (int l = 0; l < atoll_model_layers(s->m); l++) {
    ATOLL_TRY_GOTO(err, done, eval(atoll_layer_saved_bytes(s->m, pool, l, p, 1), B, s->S, &v));
    out->saved += v;
    ATOLL_TRY_GOTO(err, done, eval(atoll_layer_work_bytes(s->m, pool, l, p, 1), B, s->S, &v));
    out->scratch = most(out->scratch, v);
  }
  out->passed = 2 * element(s) * B * s->S * atoll_model_config(s->m)->width;
done:
  atoll_syms_destroy(&pool);
  return err;
}

/* Parameters, their masters where layers read another type, their gradient and two moments; the gradient of a tied
 * tensor's second use. Each padded to lines of 16 numbers. */
static void predict_states(const scene *s, parts *out) {
  for (int i = 0; i < atoll_model_params_count(s->m); i++) {
    const atoll_model_param *p = atoll_model_param_at(s->m, i);
    int64_t n = 1;
    for (int d = 0; d < p->ndim; d++)
      n *= p->shape[d];
    n = (n + 15) / 16 * 16;
    out->weights += element(s) * n;
    out->masters += s->dtype == ATOLL_F32 ? 0 : 4 * n;
    out->gradients += p->tied_layer >= 0 ? 2 * 4 * n : 4 * n;
    out->moments += 2 * 4 * n;
  }
}

static atoll_err stage_of(const scene *s, int first, int last, atoll_policy p, int64_t B, atoll_mem *mem,
                          atoll_stage **out) {
  atoll_policy *each = calloc((size_t)(last - first), sizeof *each);
  if (!each)
    return atoll_fail(ATOLL_NOMEM, "policies of %d layers", last - first);
  for (int i = 0; i < last - first; i++)
    each[i] = p;
  atoll_stage_params sp = {
      .first = first, .last = last, .policy = each, .B = B, .S = s->S, .slots = 1, .partials = 1, .train = 1};
  atoll_exec e = s->e;
  e.mem = mem;
  atoll_err err = atoll_stage_create(s->m, &sp, &e, out);
  free(each);
  return err;
}

/* Peak of the allocation sequence at B, or -1 when it exceeds the budget. */
static atoll_err count_bytes(const scene *s, atoll_policy p, int64_t B, int64_t budget, int64_t *peak) {
  atoll_mem *mem = NULL;
  atoll_stage *stage = NULL;
  ATOLL_TRY(atoll_mem_create(budget, 1, &mem));
  atoll_err err = stage_of(s, 0, atoll_model_layers(s->m), p, B, mem, &stage);
  *peak = err == ATOLL_OK ? atoll_mem_peak_total(mem) : -1;
  atoll_stage_destroy(&stage);
  atoll_mem_destroy(&mem, NULL);
  if (err != ATOLL_NOMEM)
    return err;
  atoll_err_clear();
  return ATOLL_OK;
}

static atoll_err largest_batch(const scene *s, atoll_policy p, int64_t *batch) {
  int64_t low = 0, high = 1, peak = 0;
  for (; high <= MOST_BATCH; high *= 2) {
    ATOLL_TRY(count_bytes(s, p, high, s->budget, &peak));
    if (peak < 0)
      break;
    low = high;
  }
  while (high - low > 1) {
    int64_t middle = low + (high - low) / 2;
    ATOLL_TRY(count_bytes(s, p, middle, s->budget, &peak));
    *(peak < 0 ? &high : &low) = middle;
  }
  *batch = low;
  return ATOLL_OK;
}

/* ---- time ---- */

/* Tokens and what else a call may want; random, as speed does not depend on them. Masked families predict one in
 * seven. */
typedef struct inputs {
  int32_t *tokens, *targets, *types, *next;
  void *x, *y, *dx; /* elements */
  float *loss;
} inputs;

static void inputs_free(inputs *in) {
  void *const all[] = {in->tokens, in->targets, in->types, in->next, in->x, in->y, in->dx, in->loss};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    free(all[i]);
}

/* n random elements. */
static atoll_err fill(const scene *s, uint64_t first, size_t n, float std, void *to) {
  enum { PART = 4096 };
  atoll_rng_key key = {.seed = 1, .site = ATOLL_RNG_TEST};
  float part[PART];
  for (size_t i = 0; i < n; i += PART) {
    size_t m = n - i < PART ? n - i : PART;
    atoll_rng_fill_normal(&key, first + i, m, std, part);
    ATOLL_TRY(s->e.kernels->copy_weights(s->e.compute, part, (char *)to + (size_t)element(s) * i, (int64_t)m,
                                         &(atoll_rounding){0}));
    ATOLL_TRY(atoll_queue_sync(s->e.compute));
  }
  return ATOLL_OK;
}

static atoll_err inputs_make(const scene *s, int64_t B, inputs *in) {
  const atoll_model_params *c = atoll_model_config(s->m);
  size_t R = (size_t)(B * s->S), n = R * (size_t)c->width;
  *in = (inputs){malloc(R * 4), malloc(R * 4), calloc(R, 4),  calloc((size_t)B, 4),
                 malloc(n * 4), malloc(n * 4), malloc(n * 4), malloc(R * 4)};
  if (!in->tokens || !in->targets || !in->types || !in->next || !in->x || !in->y || !in->dx || !in->loss) {
    inputs_free(in);
    return atoll_fail(ATOLL_NOMEM, "inputs of %" PRId64 " samples", B);
  }
  atoll_rng_key key = {.seed = 1, .site = ATOLL_RNG_TEST};
  atoll_err err = fill(s, 0, n, 1, in->x);
  if (err == ATOLL_OK)
    err = fill(s, n, n, 1e-3f, in->y);
  int causal = atoll_model_causal(s->m);
  for (size_t i = 0; i < R; i++) {
    in->tokens[i] = (int32_t)(atoll_rng_bits(&key, i) % (uint32_t)c->vocab);
    in->targets[i] = causal || i % ONE_IN == 0 ? in->tokens[i] : -1;
  }
  if (err != ATOLL_OK)
    inputs_free(in);
  return err;
}

/* Forward and backward of a stage; `forward` may be NULL. */
static atoll_err pass(const scene *s, atoll_stage *stage, int first, int last, int64_t B, inputs *in, double *forward,
                      double *seconds) {
  int head = last == atoll_model_layers(s->m), masked = !atoll_model_causal(s->m);
  atoll_call c = {.B = B, .S = s->S, .seed = 1, .loss_scale = 1.0f / (float)(B * s->S), .train = 1};
  if (masked)
    c.types = in->types, c.targets = (B * s->S + ONE_IN - 1) / ONE_IN;
  if (masked && atoll_model_config(s->m)->family == ATOLL_FAMILY_BERT)
    c.next = in->next, c.next_scale = 1.0f / (float)B;
  double begin = atoll_clock_now();
  ATOLL_TRY(atoll_stage_forward(stage, 0, &c, first > 0 ? in->x : NULL, in->tokens, head ? in->targets : NULL,
                                head ? NULL : in->dx, head ? in->loss : NULL));
  if (forward) {
    ATOLL_TRY(atoll_queue_sync(s->e.compute));
    *forward = atoll_clock_now() - begin;
  }
  ATOLL_TRY(atoll_stage_backward(stage, 0, 0, &c, head ? NULL : in->y, first > 0 ? in->dx : NULL, NULL));
  ATOLL_TRY(atoll_queue_sync(s->e.compute));
  *seconds = atoll_clock_now() - begin;
  return ATOLL_OK;
}

static atoll_err update(const scene *s, atoll_stage *stage, double *seconds) {
  atoll_adamw a = {
      .lr = 1e-4f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .grad_scale = 1, .bias1 = 0.1f, .bias2 = 0.05f};
  double begin = atoll_clock_now();
  ATOLL_TRY(atoll_stage_adamw(stage, 0, &a));
  ATOLL_TRY(atoll_queue_sync(s->e.compute));
  *seconds = atoll_clock_now() - begin;
  return ATOLL_OK;
}

/* Seconds of a policy's blocks by kernel, shapes of products together. */
enum { MOST_KERNELS = 48 };
typedef struct kernel_times {
  int n;
  const char *name[MOST_KERNELS];
  double seconds[MOST_KERNELS][ROUNDS];
} kernel_times;

static void count_kernels(kernel_times *k, int round) {
  atoll_kernel_time e;
  for (int i = 0; atoll_kernels_profile_entry(i, &e); i++) {
    int at = 0;
    while (at < k->n && strcmp(k->name[at], e.name) != 0)
      at++;
    if (at == MOST_KERNELS)
      continue;
    if (at == k->n)
      k->name[k->n++] = e.name;
    k->seconds[at][round] += e.seconds;
  }
}

typedef struct timing {
  int64_t batch;
  double blocks[ATOLL_POLICIES];  /* seconds of all blocks, for `batch` samples */
  double forward[ATOLL_POLICIES]; /* of that, forward */
  double again[ATOLL_POLICIES];   /* what making values again takes, in parts of a forward */
  double ends, update;            /* embedding and head; AdamW of everything */
  int count;                      /* blocks that were timed */
  kernel_times kernels[ATOLL_POLICIES];
} timing;

/* One of embedding and head, after a first pass that touches its memory. */
static atoll_err time_end(const scene *s, int layer, inputs *in, timing *t) {
  atoll_stage *stage = NULL;
  double first, v[ROUNDS];
  ATOLL_TRY(stage_of(s, layer, layer + 1, ATOLL_POLICY_EXACT20, t->batch, s->e.mem, &stage));
  atoll_err err = atoll_stage_init(stage, 1);
  if (err == ATOLL_OK)
    err = pass(s, stage, layer, layer + 1, t->batch, in, NULL, &first);
  for (int i = 0; i < ROUNDS && err == ATOLL_OK; i++)
    err = pass(s, stage, layer, layer + 1, t->batch, in, NULL, &v[i]);
  t->ends += err == ATOLL_OK ? atoll_median(v, ROUNDS) : 0;
  atoll_stage_destroy(&stage);
  return err;
}

static atoll_err time_blocks(const scene *s, inputs *in, timing *t) {
  atoll_stage *stage[ATOLL_POLICIES] = {0};
  double v[ATOLL_POLICIES][ROUNDS], f[ATOLL_POLICIES][ROUNDS], again[ATOLL_POLICIES][ROUNDS], u[ROUNDS], first;
  int count = s->blocks < 2 ? s->blocks : 2;
  atoll_err err = ATOLL_OK;
  for (int p = 0; p < ATOLL_POLICIES; p++) {
    if (!wanted(s, p) && p != ATOLL_POLICY_EXACT20)
      continue;
    ATOLL_TRY_GOTO(err, done, stage_of(s, 1, 1 + count, (atoll_policy)p, t->batch, s->e.mem, &stage[p]));
    ATOLL_TRY_GOTO(err, done, atoll_stage_init(stage[p], 1));
    ATOLL_TRY_GOTO(err, done, pass(s, stage[p], 1, 1 + count, t->batch, in, NULL, &first));
  }
  for (int r = 0; r < ROUNDS; r++)
    for (int p = 0; p < ATOLL_POLICIES; p++) {
      if (!stage[p])
        continue;
      atoll_kernels_profile(1);
      ATOLL_TRY_GOTO(err, done, pass(s, stage[p], 1, 1 + count, t->batch, in, &f[p][r], &v[p][r]));
      atoll_kernels_profile(0);
      count_kernels(&t->kernels[p], r);
      ATOLL_TRY_GOTO(err, done, update(s, stage[p], &u[r])); /* so that each meets new weights, as in training */
    }
  for (int p = 0; p < ATOLL_POLICIES; p++) /* within a round, whose load all policies share */
    for (int r = 0; r < ROUNDS && stage[p]; r++)
      again[p][r] = (v[p][r] - v[ATOLL_POLICY_EXACT20][r]) / f[ATOLL_POLICY_EXACT20][r];
  for (int p = 0; p < ATOLL_POLICIES; p++) {
    t->blocks[p] = stage[p] ? atoll_median(v[p], ROUNDS) * s->blocks / count : 0;
    t->forward[p] = stage[p] ? atoll_median(f[p], ROUNDS) * s->blocks / count : 0;
    t->again[p] = stage[p] ? atoll_median(again[p], ROUNDS) : 0;
  }
  t->count = count;
  t->update = atoll_median(u, ROUNDS) * (double)atoll_model_elements(s->m) /
              (double)atoll_stage_param_elements(stage[ATOLL_POLICY_EAGER]);
done:
  for (int p = 0; p < ATOLL_POLICIES; p++)
    atoll_stage_destroy(&stage[p]);
  return err;
}

static atoll_err time_scene(const scene *s, timing *t) {
  inputs in;
  *t = (timing){.batch = most(1, TIMED_TOKENS / s->S)};
  ATOLL_TRY(inputs_make(s, t->batch, &in));
  atoll_err err = time_blocks(s, &in, t);
  if (err == ATOLL_OK)
    err = time_end(s, 0, &in, t);
  if (err == ATOLL_OK)
    err = time_end(s, atoll_model_layers(s->m) - 1, &in, t);
  inputs_free(&in);
  return err;
}

/* A whole real step of B samples. */
static atoll_err confirm(const scene *s, atoll_policy p, int64_t B, json_t *row) {
  atoll_mem *mem = NULL;
  atoll_stage *stage = NULL;
  inputs in;
  double step, adamw;
  ATOLL_TRY(inputs_make(s, B, &in));
  atoll_err err;
  ATOLL_TRY_GOTO(err, done, atoll_mem_create(s->budget, 0, &mem));
  ATOLL_TRY_GOTO(err, done, stage_of(s, 0, atoll_model_layers(s->m), p, B, mem, &stage));
  ATOLL_TRY_GOTO(err, done, atoll_stage_init(stage, 1));
  ATOLL_TRY_GOTO(err, done, pass(s, stage, 0, atoll_model_layers(s->m), B, &in, NULL, &step));
  ATOLL_TRY_GOTO(err, done, update(s, stage, &adamw));
  json_object_set_new(row, "confirmed", json_true());
  json_object_set_new(row, "confirmed_bytes", json_integer((json_int_t)atoll_mem_peak_total(mem)));
  json_object_set_new(row, "confirmed_seconds", json_real(step + adamw));
  json_object_set_new(row, "confirmed_tokens_per_second", json_real((double)(B * s->S) / (step + adamw)));
done:
  atoll_stage_destroy(&stage);
  atoll_mem_destroy(&mem, NULL);
  inputs_free(&in);
  return err;
}

/* ---- rows ---- */

/* Without --full the three of BERT-Large at the first length in f32: a minute or two each. */
static int to_confirm(const scene *s, atoll_policy p) {
  int named = 0;
  for (size_t i = 0; i < sizeof confirmed / sizeof *confirmed; i++)
    named |= confirmed[i] == p;
  if (s->only >= 0)
    return (int)p == s->only;
  return s->w->confirmed && named && ((s->S == lengths[0] && s->dtype == ATOLL_F32) || s->full);
}

static double real_of(const json_t *row, const char *key) { return json_real_value(json_object_get(row, key)); }

static atoll_err add_bytes(scene *s, atoll_policy p, int64_t B, json_t *row) {
  int64_t measured, one, saved, H = atoll_model_config(s->m)->width;
  parts of = {0};
  atoll_syms *pool = NULL;
  ATOLL_TRY(predict_layers(s, p, B, &of));
  predict_states(s, &of);
  ATOLL_TRY(count_bytes(s, p, B, 0, &measured));
  ATOLL_TRY(count_bytes(s, p, B + 1, 0, &one));
  ATOLL_TRY(atoll_syms_create(&pool));
  atoll_err err = eval(atoll_layer_saved_bytes(s->m, pool, s->blocks, p, 1), B, s->S, &saved);
  atoll_syms_destroy(&pool);
  ATOLL_TRY(err);
  json_object_set_new(row, "bytes_predicted", json_integer((json_int_t)parts_sum(&of)));
  json_object_set_new(row, "bytes_measured", json_integer((json_int_t)measured));
  json_object_set_new(row, "bytes_per_sample", json_integer((json_int_t)(one - measured)));
  double bsh = (double)saved / (double)(B * s->S * H);
  s->eager_bsh = p == ATOLL_POLICY_EAGER ? bsh : s->eager_bsh;
  json_object_set_new(row, "bsh_bytes", json_real(bsh));
  json_object_set_new(row, "max_batch_over_eager_by_bytes", json_real(s->eager_bsh / bsh));
  json_object_set_new(row, "bytes",
                      json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "weights", (json_int_t)of.weights, "masters",
                                (json_int_t)of.masters, "gradients", (json_int_t)of.gradients, "moments",
                                (json_int_t)of.moments, "saved", (json_int_t)of.saved, "passed", (json_int_t)of.passed,
                                "scratch", (json_int_t)of.scratch));
  return ATOLL_OK;
}

/* What the policy makes again, in parts of a block's forward: products by count, everything by time. */
static atoll_err add_recompute(const scene *s, atoll_policy p, const timing *t, json_t *row) {
  atoll_syms *pool = NULL;
  int64_t again, forward;
  ATOLL_TRY(atoll_syms_create(&pool));
  atoll_err err = eval(atoll_layer_recompute_flops(s->m, pool, s->blocks, p), t->batch, s->S, &again);
  if (err == ATOLL_OK)
    err = eval(atoll_model_layer_flops(s->m, pool, s->blocks), t->batch, s->S, &forward);
  atoll_syms_destroy(&pool);
  ATOLL_TRY(err);
  json_object_set_new(row, "recompute_share_counted", json_real((double)again / (double)forward));
  json_object_set_new(row, "recompute_share_measured", json_real(t->again[p]));
  return ATOLL_OK;
}

/* A policy at its largest batch against eager at its own: what it loses of tokens per second, and what its repeated
 * products account for, as backward takes twice the forward's. */
static void add_loss(const scene *s, json_t *row) {
  double share = real_of(row, "recompute_share_counted"), over = real_of(row, "tokens_per_second") / s->eager_rate;
  json_object_set_new(row, "tokens_per_second_over_eager", json_real(over));
  json_object_set_new(row, "loss_measured", json_real(1 - over));
  json_object_set_new(row, "loss_counted", json_real(share / (3 + share)));
}

/* Of one block. */
static json_t *by_kernel(timing *t, atoll_policy p) {
  json_t *out = json_object();
  kernel_times *k = &t->kernels[p];
  for (int i = 0; i < k->n; i++)
    json_object_set_new(out, k->name[i], json_real(atoll_median(k->seconds[i], ROUNDS) / t->count));
  return out;
}

static atoll_err add_time(scene *s, atoll_policy p, timing *t, int64_t B, json_t *row) {
  double block = t->blocks[p] / (double)t->batch, ends = t->ends / (double)t->batch, step = (block + ends) * (double)B,
         rate = (double)(B * s->S) / (step + t->update);
  json_object_set_new(row, "tokens_per_second", json_real(rate));
  json_object_set_new(row, "scaled", json_true());
  json_object_set_new(row, "timed_blocks", json_integer(t->count));
  json_object_set_new(row, "timed_batch", json_integer((json_int_t)t->batch));
  json_object_set_new(row, "block_seconds", json_real(t->blocks[p] / s->blocks));
  json_object_set_new(row, "block_forward_seconds", json_real(t->forward[p] / s->blocks));
  json_object_set_new(row, "block_kernel_seconds", by_kernel(t, p));
  ATOLL_TRY(add_recompute(s, p, t, row));
  s->eager_rate = p == ATOLL_POLICY_EAGER ? rate : s->eager_rate;
  if (s->eager_rate > 0)
    add_loss(s, row);
  return to_confirm(s, p) ? confirm(s, p, B, row) : ATOLL_OK;
}

static void tell(const scene *s, const json_t *row) {
  char speed[200] = "", loss[64] = "";
  if (json_object_get(row, "loss_measured"))
    snprintf(loss, sizeof loss, " ( loses %.3f , counted %.3f )", real_of(row, "loss_measured"),
             real_of(row, "loss_counted"));
  if (json_is_real(json_object_get(row, "tokens_per_second")))
    snprintf(speed, sizeof speed, ", %.0f tokens/s%s, %.1f ms a block, makes again %.2f of forward ( %.2f )",
             real_of(row, "tokens_per_second"), loss, 1e3 * real_of(row, "block_seconds"),
             real_of(row, "recompute_share_measured"), real_of(row, "recompute_share_counted"));
  atoll_say("%-13s %-4s S %-4" PRId64 " %-13s %5.1f bytes/BSH, largest batch %4" PRId64
            " ( %.2f x eager , by bytes %.2f )%s%s",
            s->w->preset, atoll_dtype_name(s->dtype), s->S, json_string_value(json_object_get(row, "policy")),
            real_of(row, "bsh_bytes"), (int64_t)json_integer_value(json_object_get(row, "max_batch")),
            real_of(row, "max_batch_over_eager"), real_of(row, "max_batch_over_eager_by_bytes"), speed,
            json_object_get(row, "confirmed") ? ", confirmed by a real step" : "");
}

/* Told and written at once, so that a run that is ended keeps the rows it has. */
static atoll_err add_row(scene *s, atoll_policy p, timing *t) {
  int64_t batch;
  ATOLL_TRY(largest_batch(s, p, &batch));
  int64_t B = most(batch, 1);
  s->eager_batch = p == ATOLL_POLICY_EAGER ? batch : s->eager_batch;
  json_t *row =
      json_pack("{s:s,s:s,s:s,s:I,s:I,s:I,s:I,s:b,s:n,s:f}", "family", s->w->preset, "policy", atoll_policy_name(p),
                "dtype", atoll_dtype_name(s->dtype), "B", (json_int_t)B, "S", (json_int_t)s->S, "max_batch",
                (json_int_t)batch, "budget", (json_int_t)s->budget, "counted_only", !s->timed, "tokens_per_second",
                "max_batch_over_eager", s->eager_batch > 0 ? (double)batch / (double)s->eager_batch : 0.0);
  if (!row)
    return atoll_fail(ATOLL_NOMEM, "a row of figures");
  atoll_err err = add_bytes(s, p, B, row);
  if (err == ATOLL_OK && s->timed && batch > 0)
    err = add_time(s, p, t, B, row);
  if (err != ATOLL_OK) {
    json_decref(row);
    return err;
  }
  tell(s, row);
  json_array_append_new(s->rows, row);
  return bench_write(s->cli, s->out);
}

static atoll_err run_scene(scene *s) {
  atoll_model_params p;
  static timing t; /* large */
  memset(&t, 0, sizeof t);
  atoll_model_params_init(&p);
  snprintf(p.preset, sizeof p.preset, "%s", s->w->preset);
  p.dropout = strncmp(s->w->preset, "llama", 5) ? 0.1 : 0;
  p.dtype = s->dtype;
  ATOLL_TRY(atoll_model_create(&p, &s->m));
  if (s->S > atoll_model_config(s->m)->context) {
    atoll_model_destroy(&s->m);
    return ATOLL_OK;
  }
  double begin = atoll_clock_now();
  s->blocks = atoll_model_layers(s->m) - 2;
  s->timed = s->w->timed && !s->count && (s->dtype == ATOLL_F32 || s->only_dtype || s->full);
  s->eager_batch = 0, s->eager_rate = 0;
  atoll_err err = s->timed ? time_scene(s, &t) : ATOLL_OK;
  double timing_seconds = atoll_clock_now() - begin;
  if (err == ATOLL_OK)
    err = add_row(s, ATOLL_POLICY_EAGER, &t);
  for (int k = 0; k < ATOLL_POLICIES && err == ATOLL_OK; k++)
    if (k != ATOLL_POLICY_EAGER && wanted(s, k))
      err = add_row(s, (atoll_policy)k, &t);
  if (err == ATOLL_OK)
    json_array_append_new(json_object_get(s->out, "parts"),
                          json_pack("{s:s,s:s,s:I,s:f,s:f}", "family", s->w->preset, "dtype",
                                    atoll_dtype_name(s->dtype), "S", (json_int_t)s->S, "seconds",
                                    atoll_clock_now() - begin, "timing_seconds", timing_seconds));
  atoll_model_destroy(&s->m);
  return err;
}

static atoll_err device_open(scene *s) {
  atoll_device_params p;
  atoll_device_params_init(&p);
  ATOLL_TRY(atoll_device_open("cpu", &p, &s->e.device));
  ATOLL_TRY(atoll_queue_create(s->e.device, "compute", &s->e.compute));
  return atoll_mem_create(0, 0, &s->e.mem);
}

static void device_close(scene *s) {
  atoll_queue_destroy(&s->e.compute);
  atoll_device_close(&s->e.device);
  atoll_mem_destroy(&s->e.mem, NULL);
}

static atoll_err run_lengths(scene *s) {
  static const atoll_dtype dtypes[] = {ATOLL_F32, ATOLL_BF16};
  for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
    s->dtype = dtypes[d];
    if (s->only_dtype && strcmp(s->only_dtype, atoll_dtype_name(s->dtype)) != 0)
      continue;
    ATOLL_TRY(atoll_kernels_get(s->dtype == ATOLL_F32 ? "auto:cpu" : "auto:cpu:bf16", &s->e.kernels));
    for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
      s->S = lengths[k];
      if (!s->only_length || s->S == s->only_length)
        ATOLL_TRY(run_scene(s));
    }
  }
  return ATOLL_OK;
}

static atoll_err run_works(const char *only, scene *s) {
  const work other = {only, 1, 0, 0};
  int found = 0;
  for (size_t i = 0; i < sizeof works / sizeof *works; i++) {
    if (only ? strcmp(only, works[i].preset) != 0 : works[i].full && !s->full)
      continue;
    found = 1;
    s->w = &works[i];
    ATOLL_TRY(run_lengths(s));
  }
  s->w = &other;
  return found ? ATOLL_OK : run_lengths(s);
}

static atoll_err run(const atoll_cli *cli, atoll_job *job, const atoll_opts *opts, json_t *out) {
  (void)job, (void)opts;
  int64_t gib, length;
  atoll_policy only;
  const char *policy = atoll_cli_value(cli, "policy");
  if (!out)
    return ATOLL_OK; /* one rank measures */
  ATOLL_TRY(bench_count(cli, "budget", 11, 1, 1 << 20, &gib));
  ATOLL_TRY(bench_count(cli, "seq", 0, 1, 1 << 20, &length));
  if (length && length != lengths[0] && length != lengths[1])
    return atoll_fail(ATOLL_USAGE, "--seq %lld: layers are measured with 128 and 512 tokens", (long long)length);
  if (policy && atoll_policy_parse(policy, &only) != 0)
    return atoll_fail(ATOLL_USAGE, "--policy '%s' is none of %s", policy, atoll_policy_list());
  scene s = {.budget = gib << 30,
             .count = atoll_cli_value(cli, "count") != NULL,
             .only_length = length,
             .only_dtype = atoll_cli_value(cli, "dtype"),
             .only = policy ? (int)only : -1,
             .full = atoll_cli_value(cli, "full") != NULL,
             .cli = cli,
             .out = out,
             .rows = json_array()};
  json_object_set_new(out, "rows", s.rows);
  json_object_set_new(out, "parts", json_array()); /* what took how long */
  json_object_set_new(out, "complete", json_false());
  atoll_err err = device_open(&s);
  if (err == ATOLL_OK)
    err = run_works(atoll_cli_value(cli, "preset"), &s);
  device_close(&s);
  json_object_set_new(out, "complete", json_boolean(err == ATOLL_OK));
  json_object_set_new(out, "peak_rss", json_integer((json_int_t)atoll_perf_peak_rss()));
  return err;
}

const bench bench_layers = {"layers", "bytes, largest batch and speed of each memory policy",
                            "seq dtype preset policy budget count full", run};
