/* Enqueues the kernels of memory policies, as submit.inc does the others: a task gets a copy of the arguments. */
#include "atoll/kernel_keep.h"

#include "keep_impl.h"
#include "kernel_impl.h"

static int threads_of(atoll_queue *q) { return atoll_device_threads(atoll_queue_device(q)); }

#define SUBMIT(name, ...)                                                                                              \
  struct args_##name a = {threads_of(q), __VA_ARGS__};                                                                 \
  return atoll_queue_submit(q, task_##name, &a, sizeof a)

#define TASK(name, function, ...)                                                                                      \
  static atoll_err task_##name(void *args, void *stream) {                                                             \
    struct args_##name *a = args;                                                                                      \
    (void)stream;                                                                                                      \
    double began = kernel_profile_begin();                                                                             \
    atoll_err err = function(a->threads, __VA_ARGS__);                                                                 \
    kernel_profile_end(began, #name, 0, 0, 0);                                                                         \
    return err;                                                                                                        \
  }

struct args_attention_keep {
  int threads;
  const void *query;
  const void *key;
  const float *lse;
  atoll_attention_kept kept;
  atoll_attention_shape s;
  atoll_drop drop;
};
TASK(attention_keep, keep_attention, a->query, a->key, a->lse, &a->kept, &a->s, &a->drop)
static atoll_err q_attention_keep(atoll_queue *q, const void *query, const void *key, const float *lse,
                                  const atoll_attention_kept *kept, const atoll_attention_shape *s,
                                  const atoll_drop *drop) {
  SUBMIT(attention_keep, query, key, lse, *kept, attention_shape_of(s), *drop);
}

struct args_attention_backward {
  int threads;
  const void *query;
  const void *key;
  const void *value;
  const void *o;
  atoll_attention_kept kept;
  const void *d_o;
  void *dquery;
  void *dkey;
  void *dvalue;
  float *delta;
  atoll_attention_shape s;
  atoll_drop drop;
};
TASK(attention_backward, keep_attention_backward, a->query, a->key, a->value, a->o, &a->kept, a->d_o, a->dquery,
     a->dkey, a->dvalue, a->delta, &a->s, &a->drop)
static atoll_err q_attention_backward(atoll_queue *q, const void *query, const void *key, const void *value,
                                      const void *o, const atoll_attention_kept *kept, const void *d_o, void *dquery,
                                      void *dkey, void *dvalue, float *delta, const atoll_attention_shape *s,
                                      const atoll_drop *drop) {
  SUBMIT(attention_backward, query, key, value, o, *kept, d_o, dquery, dkey, dvalue, delta, attention_shape_of(s),
         *drop);
}

struct args_drop_mask {
  int threads;
  uint8_t *mask;
  int64_t B, inner;
  atoll_drop drop;
};
TASK(drop_mask, keep_drop_mask, a->mask, a->B, a->inner, &a->drop)
static atoll_err q_drop_mask(atoll_queue *q, uint8_t *mask, int64_t B, int64_t inner, const atoll_drop *drop) {
  SUBMIT(drop_mask, mask, B, inner, *drop);
}

struct args_drop_backward {
  int threads;
  const void *dy;
  const uint8_t *mask;
  void *dz;
  int64_t n;
  float p;
};
TASK(drop_backward, keep_drop_backward, a->dy, a->mask, a->dz, a->n, a->p)
static atoll_err q_drop_backward(atoll_queue *q, const void *dy, const uint8_t *mask, void *dz, int64_t n, float p) {
  SUBMIT(drop_backward, dy, mask, dz, n, p);
}

struct args_normalize {
  int threads;
  const void *x;
  void *hat;
  float *rstd;
  int64_t R;
  int64_t C;
  float eps;
  int rms;
};
TASK(normalize, keep_normalize, a->x, a->hat, a->rstd, a->R, a->C, a->eps, a->rms)
static atoll_err q_normalize(atoll_queue *q, const void *x, void *hat, float *rstd, int64_t R, int64_t C, float eps,
                             int rms) {
  SUBMIT(normalize, x, hat, rstd, R, C, eps, rms);
}

struct args_affine {
  int threads;
  const void *hat;
  const void *gamma;
  const void *beta;
  void *y;
  int64_t R;
  int64_t C;
  int rms;
};
TASK(affine, keep_affine, a->hat, a->gamma, a->beta, a->y, a->R, a->C, a->rms)
static atoll_err q_affine(atoll_queue *q, const void *hat, const void *gamma, const void *beta, void *y, int64_t R,
                          int64_t C, int rms) {
  SUBMIT(affine, hat, gamma, beta, y, R, C, rms);
}

struct args_norm_backward_input {
  int threads;
  const void *dy;
  const void *hat;
  const float *rstd;
  const void *gamma;
  void *dx;
  int64_t R;
  int64_t C;
  int rms;
  int accumulate;
};
TASK(norm_backward_input, keep_norm_backward_input, a->dy, a->hat, a->rstd, a->gamma, a->dx, a->R, a->C, a->rms,
     a->accumulate)
static atoll_err q_norm_backward_input(atoll_queue *q, const void *dy, const void *hat, const float *rstd,
                                       const void *gamma, void *dx, int64_t R, int64_t C, int rms, int accumulate) {
  SUBMIT(norm_backward_input, dy, hat, rstd, gamma, dx, R, C, rms, accumulate);
}

struct args_norm_backward_weight {
  int threads;
  const void *dy;
  const void *hat;
  float *dgamma;
  float *dbeta;
  int64_t R;
  int64_t C;
  int rms;
};
TASK(norm_backward_weight, keep_norm_backward_weight, a->dy, a->hat, a->dgamma, a->dbeta, a->R, a->C, a->rms)
static atoll_err q_norm_backward_weight(atoll_queue *q, const void *dy, const void *hat, float *dgamma, float *dbeta,
                                        int64_t R, int64_t C, int rms) {
  SUBMIT(norm_backward_weight, dy, hat, dgamma, dbeta, R, C, rms);
}

struct args_gelu_root {
  int threads;
  const void *x;
  void *t;
  int64_t n;
  int erf;
};
TASK(gelu_root, keep_gelu_root, a->x, a->t, a->n, a->erf)
static atoll_err q_gelu_root(atoll_queue *q, const void *x, void *t, int64_t n, int erf) {
  SUBMIT(gelu_root, x, t, n, erf);
}

struct args_gelu_of_root {
  int threads;
  const void *t;
  void *y;
  int64_t n;
  int erf;
};
TASK(gelu_of_root, keep_gelu_of_root, a->t, a->y, a->n, a->erf)
static atoll_err q_gelu_of_root(atoll_queue *q, const void *t, void *y, int64_t n, int erf) {
  SUBMIT(gelu_of_root, t, y, n, erf);
}

struct args_gelu_root_backward {
  int threads;
  const void *dy;
  const void *t;
  void *dx;
  int64_t n;
  int erf;
};
TASK(gelu_root_backward, keep_gelu_root_backward, a->dy, a->t, a->dx, a->n, a->erf)
static atoll_err q_gelu_root_backward(atoll_queue *q, const void *dy, const void *t, void *dx, int64_t n, int erf) {
  SUBMIT(gelu_root_backward, dy, t, dx, n, erf);
}

struct args_pack8 {
  int threads;
  const void *x;
  uint8_t *code;
  float *scale;
  int64_t R;
  int64_t C;
};
TASK(pack8, keep_pack8, a->x, a->code, a->scale, a->R, a->C)
static atoll_err q_pack8(atoll_queue *q, const void *x, uint8_t *code, float *scale, int64_t R, int64_t C) {
  SUBMIT(pack8, x, code, scale, R, C);
}

struct args_unpack8 {
  int threads;
  const uint8_t *code;
  const float *scale;
  void *x;
  int64_t R;
  int64_t C;
};
TASK(unpack8, keep_unpack8, a->code, a->scale, a->x, a->R, a->C)
static atoll_err q_unpack8(atoll_queue *q, const uint8_t *code, const float *scale, void *x, int64_t R, int64_t C) {
  SUBMIT(unpack8, code, scale, x, R, C);
}

const atoll_keep_kernels keep_cpu = {
    .attention_keep = q_attention_keep,
    .attention_backward = q_attention_backward,
    .drop_mask = q_drop_mask,
    .drop_backward = q_drop_backward,
    .normalize = q_normalize,
    .affine = q_affine,
    .norm_backward_input = q_norm_backward_input,
    .norm_backward_weight = q_norm_backward_weight,
    .gelu_root = q_gelu_root,
    .gelu_of_root = q_gelu_of_root,
    .gelu_root_backward = q_gelu_root_backward,
    .pack8 = q_pack8,
    .unpack8 = q_unpack8,
};
