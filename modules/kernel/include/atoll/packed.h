/** Weights laid out once for many products.
 *
 *  A product of the cpu kernels begins by copying both operands into panels, the order in which they are computed with
 * (Goto and van de Geijn, ACM TOMS 34(3), 2008). Of few rows that takes longer than the product. Whoever multiplies
 * several micro-batches, or tokens one after another, by weights that stay the same keeps the panels of these:
 *
 *    size_t bytes = atoll_packed_bytes(I, O, 0);             memory of the caller's, 64-byte aligned
 *    atoll_packed_fill(k, q, w, panels, I, O, 0);            and again whenever w has changed
 *    atoll_packed_forward(k, q, x, w, panels, b, y, R, I, O);
 *
 *  Results have the bits of the kernels' linear_forward and linear_backward_input. Products that these leave to a
 * library (few rows or columns; see gemm.h) read w instead, and so does everybody for panels NULL. */
#ifndef ATOLL_PACKED_H
#define ATOLL_PACKED_H

#include "atoll/kernel.h"

ATOLL_BEGIN_C

/** 1 where products of these kernels use panels, as the choice of products (gemm.h) is now; 0 and why, in a borrowed
 * text, where they are a library's that packs for itself, or another device's. why_not may be NULL. */
ATOLL_API int atoll_packed_serves(const atoll_kernels *k, const char **why_not);

/** Bytes of the panels of w [O, I], for products forward, or (back) to the input's gradient. A function of the sizes
 * alone, so that planners count what machines of any kind take: those that panels of f32 need. */
ATOLL_API int64_t atoll_packed_bytes(int64_t I, int64_t O, int back);

/** Enqueued, like the others; w and `panels` are borrowed until the queue has run it. UNSUPPORTED says why not. */
ATOLL_API atoll_err atoll_packed_fill(const atoll_kernels *k, atoll_queue *q, const void *w, void *panels, int64_t I,
                                      int64_t O, int back);

/** k->linear_forward() and k->linear_backward_input() with w's panels of the matching kind, or NULL. INTERNAL: panels
 * of other sizes. */
ATOLL_API atoll_err atoll_packed_forward(const atoll_kernels *k, atoll_queue *q, const void *x, const void *w,
                                         const void *panels, const void *b, void *y, int64_t R, int64_t I, int64_t O);
ATOLL_API atoll_err atoll_packed_backward_input(const atoll_kernels *k, atoll_queue *q, const void *dy, const void *w,
                                                const void *panels, void *dx, int64_t R, int64_t I, int64_t O,
                                                int accumulate);

/** What a block does next to a product's result z [R, C], by the kernels of these names. */
typedef enum atoll_then {
  ATOLL_THEN_GELU, /* y = gelu(z) */
  ATOLL_THEN_GELU_ERF,
  ATOLL_THEN_GELU_BACKWARD, /* y = gradient of gelu's input x, from that of its result, z */
  ATOLL_THEN_GELU_ERF_BACKWARD,
  ATOLL_THEN_RESIDUAL /* y = x + drop(z) */
} atoll_then;

typedef struct atoll_linear_then {
  atoll_then kind;
  const void *x; /* [R, C]; NULL where the kind has none */
  void *y;       /* [R, C]; may be z or x, overlaps nothing else that the product reads */
  int64_t B;     /* residual: samples, of R / B rows each */
  atoll_drop drop;
} atoll_linear_then;

/** atoll_packed_forward() or atoll_packed_backward_input() to z, and then what `then` says: by the cpu kernels piece by
 * piece while z is in cache, by others one after the other. z and y have the bits of both calls. `then` is copied. */
ATOLL_API atoll_err atoll_packed_forward_then(const atoll_kernels *k, atoll_queue *q, const void *x, const void *w,
                                              const void *panels, const void *b, void *z, int64_t R, int64_t I,
                                              int64_t O, const atoll_linear_then *then);
ATOLL_API atoll_err atoll_packed_backward_input_then(const atoll_kernels *k, atoll_queue *q, const void *dy,
                                                     const void *w, const void *panels, void *z, int64_t R, int64_t I,
                                                     int64_t O, const atoll_linear_then *then);

ATOLL_END_C
#endif
