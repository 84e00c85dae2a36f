/* Panels of weights that are kept (packed.h): who may have them, and the tasks. */
#include "atoll/packed.h"

#include <string.h>

#include "gemm_impl.h"
#include "kernel_impl.h"

int atoll_packed_serves(const atoll_kernels *k, const char **why_not) {
  const char *why = NULL;
  if (strcmp(k->name, kernels_cpu.name) != 0 && strcmp(k->name, kernels_cpu_bf16.name) != 0)
    why = "only the cpu kernels have panels";
  else if (k->dtype == ATOLL_F32 && !gemm_packs(gemm_way()))
    why = "products are a library's (gemm.h), which packs on every call";
  if (why_not)
    *why_not = why;
  return !why;
}

int64_t atoll_packed_bytes(int64_t I, int64_t O, int back) { return gemm_panels_bytes(back ? I : O, back ? O : I); }

/* w as the second operand of a product. */
static gemm_operand operand(const void *w, int bf16, int64_t I, int back) {
  return (gemm_operand){w, back ? 1 : I, back ? I : 1, bf16};
}

typedef struct packed_args {
  int threads, bf16, back, accumulate, ends;
  const void *from, *w, *panels, *b; /* from: x or dy */
  void *to;
  int64_t R, I, O;
  atoll_linear_then then; /* where it ends in it */
} packed_args;

static atoll_err fill_task(void *args, void *stream) {
  const packed_args *a = args;
  (void)stream;
  double began = kernel_profile_begin();
  const gemm_operand w = operand(a->w, a->bf16, a->I, a->back);
  int64_t N = a->back ? a->I : a->O, K = a->back ? a->O : a->I;
  gemm_panels_fill(a->threads, a->bf16 ? GEMM_PACKED : gemm_way(), N, K, &w, a->to);
  kernel_profile_end(began, "pack_weights", 0, 0, 0);
  return ATOLL_OK;
}

static atoll_err multiply_task(void *args, void *stream) {
  const packed_args *a = args;
  (void)stream;
  double began = kernel_profile_begin();
  int64_t N = a->back ? a->I : a->O, K = a->back ? a->O : a->I;
  const gemm_end end = {a->bf16 ? cpu_then_bf16 : cpu_then, &a->then, a->to, a->R, N};
  const gemm_product g = {.M = a->R,
                          .N = N,
                          .K = K,
                          .A = {a->from, K, 1, a->bf16},
                          .B = operand(a->w, a->bf16, a->I, a->back),
                          .C = a->to,
                          .ldc = N,
                          .beta = a->accumulate,
                          .bf16_c = a->bf16,
                          .bias = a->b,
                          .xsmm = !a->bf16 && gemm_way() != GEMM_PACKED,
                          .panels = a->panels,
                          .end = a->ends ? &end : NULL};
  /* without panels, as the kernels of these names do */
  atoll_err err = a->panels || a->bf16 ? gemm_packed(a->threads, &g)
                                       : gemm_by(gemm_way(), a->threads, 0, !a->back, a->R, N, K, a->from, K, a->w,
                                                 a->I, a->accumulate, a->to, N, a->b, g.end);
  kernel_profile_end(began,
                     a->panels ? a->back ? "packed_backward_input" : "packed_forward"
                     : a->back ? "linear_backward_input"
                               : "linear_forward",
                     a->R, a->I, a->O);
  return err;
}

static packed_args args_of(const atoll_kernels *k, atoll_queue *q, int64_t R, int64_t I, int64_t O, int back) {
  return (packed_args){.threads = atoll_device_threads(atoll_queue_device(q)),
                       .bf16 = k->dtype == ATOLL_BF16,
                       .back = back,
                       .R = R,
                       .I = I,
                       .O = O};
}

/* Where the unpacked product is a library's, so must this one be: their bits differ. */
static int by_panels(const atoll_kernels *k, const void *panels, int64_t M, int64_t N) {
  return panels && atoll_packed_serves(k, NULL) && (k->dtype == ATOLL_BF16 || gemm_packed_serves(M, N));
}

atoll_err atoll_packed_fill(const atoll_kernels *k, atoll_queue *q, const void *w, void *panels, int64_t I, int64_t O,
                            int back) {
  const char *why;
  if (!atoll_packed_serves(k, &why))
    return atoll_fail(ATOLL_UNSUPPORTED, "panels of a %lld x %lld matrix: %s", (long long)O, (long long)I, why);
  packed_args a = args_of(k, q, 0, I, O, back);
  a.w = w, a.to = panels;
  return atoll_queue_submit(q, fill_task, &a, sizeof a);
}

atoll_err atoll_packed_forward(const atoll_kernels *k, atoll_queue *q, const void *x, const void *w, const void *panels,
                               const void *b, void *y, int64_t R, int64_t I, int64_t O) {
  if (!by_panels(k, panels, R, O))
    return k->linear_forward(q, x, w, b, y, R, I, O);
  packed_args a = args_of(k, q, R, I, O, 0);
  a.from = x, a.w = w, a.panels = panels, a.b = b, a.to = y;
  return atoll_queue_submit(q, multiply_task, &a, sizeof a);
}

atoll_err atoll_packed_backward_input(const atoll_kernels *k, atoll_queue *q, const void *dy, const void *w,
                                      const void *panels, void *dx, int64_t R, int64_t I, int64_t O, int accumulate) {
  if (!by_panels(k, panels, R, I))
    return k->linear_backward_input(q, dy, w, dx, R, I, O, accumulate);
  packed_args a = args_of(k, q, R, I, O, 1);
  a.from = dy, a.w = w, a.panels = panels, a.to = dx, a.accumulate = accumulate;
  return atoll_queue_submit(q, multiply_task, &a, sizeof a);
}

/* ---- and what follows ---- */

static int is_cpu(const atoll_kernels *k) {
  return !strcmp(k->name, kernels_cpu.name) || !strcmp(k->name, kernels_cpu_bf16.name);
}

static atoll_err run_then(const atoll_kernels *k, atoll_queue *q, const void *z, int64_t R, int64_t C,
                          const atoll_linear_then *t) {
  switch (t->kind) {
  case ATOLL_THEN_GELU:
    return k->gelu_forward(q, z, t->y, R * C);
  case ATOLL_THEN_GELU_ERF:
    return k->gelu_erf_forward(q, z, t->y, R * C);
  case ATOLL_THEN_GELU_BACKWARD:
    return k->gelu_backward(q, z, t->x, t->y, R * C);
  case ATOLL_THEN_GELU_ERF_BACKWARD:
    return k->gelu_erf_backward(q, z, t->x, t->y, R * C);
  case ATOLL_THEN_RESIDUAL:
    return k->residual_forward(q, t->x, z, t->y, t->B, R / t->B * C, &t->drop);
  }
  return atoll_fail(ATOLL_USAGE, "what follows a product: %d is unknown", (int)t->kind);
}

atoll_err atoll_packed_forward_then(const atoll_kernels *k, atoll_queue *q, const void *x, const void *w,
                                    const void *panels, const void *b, void *z, int64_t R, int64_t I, int64_t O,
                                    const atoll_linear_then *then) {
  if (!is_cpu(k)) {
    ATOLL_TRY(atoll_packed_forward(k, q, x, w, panels, b, z, R, I, O));
    return run_then(k, q, z, R, O, then);
  }
  packed_args a = args_of(k, q, R, I, O, 0);
  a.from = x, a.w = w, a.panels = by_panels(k, panels, R, O) ? panels : NULL, a.b = b, a.to = z;
  a.ends = 1, a.then = *then;
  return atoll_queue_submit(q, multiply_task, &a, sizeof a);
}

atoll_err atoll_packed_backward_input_then(const atoll_kernels *k, atoll_queue *q, const void *dy, const void *w,
                                           const void *panels, void *z, int64_t R, int64_t I, int64_t O,
                                           const atoll_linear_then *then) {
  if (!is_cpu(k)) {
    ATOLL_TRY(atoll_packed_backward_input(k, q, dy, w, panels, z, R, I, O, 0));
    return run_then(k, q, z, R, I, then);
  }
  packed_args a = args_of(k, q, R, I, O, 1);
  a.from = dy, a.w = w, a.panels = by_panels(k, panels, R, I) ? panels : NULL, a.to = z;
  a.ends = 1, a.then = *then;
  return atoll_queue_submit(q, multiply_task, &a, sizeof a);
}
