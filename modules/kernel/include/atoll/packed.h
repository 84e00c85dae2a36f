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
 * alone, so that planners count what machines of any kind take: panels are of f32, whatever w is. */
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

ATOLL_END_C
#endif
