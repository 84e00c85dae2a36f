/* Shared by the tests of stages: a model, a device and one or more stages that run a step over it. */
#ifndef ATOLL_STAGE_TEST_H
#define ATOLL_STAGE_TEST_H

#include "unit_check.h"

#include <math.h>

#include "atoll/layer.h"

#define OK(call)                                                                                                       \
  do {                                                                                                                 \
    atoll_err ok_err_ = (call);                                                                                        \
    if (ok_err_ != ATOLL_OK)                                                                                           \
      fail_msg("%s: %s: %s", #call, atoll_err_name(ok_err_), atoll_err_message());                                     \
  } while (0)

static inline atoll_model *model_in(atoll_dtype dtype, int64_t layers, int64_t width, int64_t heads, int64_t vocab,
                                    int64_t context, double dropout) {
  atoll_model_params p;
  atoll_model_params_init(&p);
  p.layers = layers, p.width = width, p.heads = heads, p.vocab = vocab, p.context = context, p.dropout = dropout;
  p.dtype = dtype;
  p.init_std = 0.2; /* large enough that every part of a small model matters */
  atoll_model *m = NULL;
  OK(atoll_model_create(&p, &m));
  return m;
}

static inline atoll_model *model_of(int64_t layers, int64_t width, int64_t heads, int64_t vocab, int64_t context,
                                    double dropout) {
  return model_in(ATOLL_F32, layers, width, heads, vocab, context, dropout);
}

typedef struct rig {
  const atoll_model *m;
  atoll_exec e;
  atoll_mlp mlp;
  int64_t spare; /* stages are made for so many more samples, and tokens of each, than a call has */
  int packed;    /* stages keep panels of their weights */
} rig;

static inline rig rig_open(const atoll_model *m, const char *kind, const char *kernels, int threads, int counting) {
  rig r = {.m = m};
  atoll_device_params p;
  atoll_device_params_init(&p);
  p.threads = threads;
  OK(atoll_kernels_get(kernels, &r.e.kernels));
  OK(atoll_device_open(kind, &p, &r.e.device));
  OK(atoll_queue_create(r.e.device, "compute", &r.e.compute));
  OK(atoll_mem_create(0, counting, &r.e.mem));
  return r;
}

static inline void rig_close(rig *r) {
  int64_t held = 0;
  atoll_queue_destroy(&r->e.compute);
  atoll_device_close(&r->e.device);
  atoll_mem_destroy(&r->e.mem, &held);
  assert_int_equal(held, 0);
}

/* Ids of position i: tokens and the next ones as targets, with one target missing. */
static inline void ids(int64_t n, int64_t vocab, int32_t *tokens, int32_t *targets) {
  for (int64_t i = 0; i < n; i++) {
    tokens[i] = (int32_t)((i * i * 7 + 3 * i + 1) % vocab);
    targets[i] = i == 2 ? -1 : (int32_t)(((i + 1) * (i + 1) * 7 + 3 * (i + 1) + 1) % vocab);
  }
}

/* What a step leaves: losses and all gradients in the order of the model's parameters, tied ones folded. */
typedef struct result {
  int64_t n, losses;
  float *grad, *loss;
} result;

static inline int64_t elements(const atoll_model_param *p) {
  int64_t n = 1;
  for (int d = 0; d < p->ndim; d++)
    n *= p->shape[d];
  return n;
}

/* Element of the whole that element e of a block is. */
static inline int64_t whole_element(const atoll_tensor *t, int64_t e) {
  if (t->ndim == 1)
    return t->start[0] + e;
  return (t->start[0] + e / t->local[1]) * t->global[1] + t->start[1] + e % t->local[1];
}

static inline void result_free(result *r) {
  free(r->grad);
  free(r->loss);
}

/* The samples of a step, of all its micro-batches; what a family does not want may be NULL. */
typedef struct samples {
  const int32_t *tokens, *targets, *types, *lengths, *next;
  float loss_scale, next_scale;
  int64_t most_targets; /* of a micro-batch; 0: any number */
} samples;

static inline atoll_call call_of(const samples *s, int64_t B, int64_t S, int i) {
  return (atoll_call){.B = B,
                      .S = S,
                      .seed = 9,
                      .step = 3,
                      .first_sample = (uint64_t)(i * B),
                      .loss_scale = s->loss_scale,
                      .train = 1,
                      .types = s->types ? s->types + i * B * S : NULL,
                      .lengths = s->lengths ? s->lengths + i * B : NULL,
                      .targets = s->most_targets,
                      .next = s->next ? s->next + i * B : NULL,
                      .next_scale = s->next_scale};
}

/* One step of `micro` micro-batches of B x S through stages cut at cuts[0] = 0, ..., cuts[stages] = layers + 2; `set`
 * (may be NULL) may change parameters first. All stages are on one device; what crosses a boundary is passed by
 * pointer. */
static inline result run_samples(rig *r, const int *cuts, int stages, atoll_policy policy, int64_t B, int64_t S,
                                 int micro, void (*set)(const atoll_model *m, int param, float *values, int64_t n),
                                 const samples *given) {
  const atoll_model_params *c = atoll_model_config(r->m);
  int64_t R = B * S, H = c->width;
  atoll_policy policies[64];
  for (int i = 0; i < 64; i++)
    policies[i] = policy;
  atoll_stage *stage[8];
  float *x[9][2] = {{0}}, *d[9][2] = {{0}};
  result out = {.n = atoll_model_elements(r->m), .losses = R * micro};
  out.grad = calloc((size_t)out.n, sizeof *out.grad);
  out.loss = calloc((size_t)(R * micro), sizeof *out.loss);
  for (int k = 0; k < stages; k++) {
    atoll_stage_params p = {.first = cuts[k],
                            .last = cuts[k + 1],
                            .policy = policies,
                            .B = B + r->spare,
                            .S = S + r->spare,
                            .slots = 2,
                            .partials = 1,
                            .train = 1,
                            .tensor = r->e.tensor ? atoll_comm_size(r->e.tensor) : 0,
                            .tensor_rank = r->e.tensor ? atoll_comm_rank(r->e.tensor) : 0,
                            .mlp = r->mlp,
                            .packed = r->packed};
    OK(atoll_stage_create(r->m, &p, &r->e, &stage[k]));
    OK(atoll_stage_init(stage[k], 42));
    OK(atoll_stage_zero_grad(stage[k], 0));
    OK(atoll_queue_sync(r->e.compute));
    for (int i = 0; i < 2 && k > 0; i++) {
      x[k][i] = malloc((size_t)(R * H) * sizeof(float));
      d[k][i] = malloc((size_t)(R * H) * sizeof(float));
    }
    const atoll_tensor *t;
    const int *index;
    int n;
    OK(atoll_stage_tensors(stage[k], ATOLL_STAGE_PARAM, &t, &index, &n));
    for (int i = 0; i < n && set; i++)
      set(r->m, index[i], t[i].data, atoll_tensor_local_count(&t[i]));
    OK(atoll_stage_refresh(stage[k], &(atoll_rounding){0}));
  }
  /* Two in flight: forward of micro-batch i, then backward of i - 1. */
  for (int i = 0; i <= micro; i++) {
    atoll_call call = call_of(given, B, S, i);
    for (int k = 0; k < stages && i < micro; k++)
      OK(atoll_stage_forward(stage[k], i % 2, &call, x[k][i % 2], given->tokens + i * R, given->targets + i * R,
                             x[k + 1][i % 2], out.loss + i * R));
    int j = i - 1;
    if (j < 0)
      continue;
    call = call_of(given, B, S, j);
    for (int k = stages - 1; k >= 0; k--)
      OK(atoll_stage_backward(stage[k], j % 2, 0, &call, d[k + 1][j % 2], d[k][j % 2], NULL));
  }
  OK(atoll_queue_sync(r->e.compute));
  for (int k = 0; k < stages; k++) {
    OK(atoll_stage_fold_tied(stage[k], 0));
    OK(atoll_queue_sync(r->e.compute));
    const atoll_tensor *t;
    const int *index;
    int n;
    OK(atoll_stage_tensors(stage[k], ATOLL_STAGE_GRAD, &t, &index, &n));
    for (int i = 0; i < n; i++) {
      int64_t at = 0, count = atoll_tensor_local_count(&t[i]);
      for (int q = 0; q < index[i]; q++)
        at += elements(atoll_model_param_at(r->m, q));
      const float *g = t[i].data;
      for (int64_t e = 0; e < count; e++)
        out.grad[at + whole_element(&t[i], e)] += g[e]; /* a tied tensor on two stages: first use, then second */
    }
  }
  for (int k = 0; k < stages; k++) {
    atoll_stage_destroy(&stage[k]);
    for (int i = 0; i < 2; i++) {
      free(x[k][i]);
      free(d[k][i]);
    }
  }
  return out;
}

/* The same on the tokens of ids(), the loss a mean over all positions. */
static inline result run_step(rig *r, const int *cuts, int stages, atoll_policy policy, int64_t B, int64_t S, int micro,
                              void (*set)(const atoll_model *m, int param, float *values, int64_t n)) {
  int64_t n = B * S * micro;
  int32_t *tokens = malloc((size_t)n * sizeof *tokens), *targets = malloc((size_t)n * sizeof *targets);
  ids(n, atoll_model_config(r->m)->vocab, tokens, targets);
  samples given = {.tokens = tokens, .targets = targets, .loss_scale = 1.0f / (float)n};
  result out = run_samples(r, cuts, stages, policy, B, S, micro, set, &given);
  free(tokens);
  free(targets);
  return out;
}

static inline void same_result(const result *a, const result *b) {
  assert_int_equal(a->n, b->n);
  for (int64_t i = 0; i < a->losses; i++)
    if (memcmp(&a->loss[i], &b->loss[i], 4))
      fail_msg("loss %lld: %.9g against %.9g", (long long)i, a->loss[i], b->loss[i]);
  for (int64_t i = 0; i < a->n; i++)
    if (memcmp(&a->grad[i], &b->grad[i], 4))
      fail_msg("gradient element %lld: %.9g against %.9g", (long long)i, a->grad[i], b->grad[i]);
}

#endif
