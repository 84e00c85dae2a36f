/* The summation tree of gradients, seen from one rank.
 *
 * Gradients are sums over micro-batches. Floating-point addition does not associate, so "the same training on another
 * plan" holds bit for bit only if every plan adds in the same shape. The shape is a binary tree over `leaves` leaves
 * (atoll_comm_tree_sum); a leaf is a run of consecutive micro-batches added in order. A rank accumulates leaf after
 * leaf, each in its own gradient buffer, and adds two buffers as soon as they are siblings; so it holds at most about
 * log2(leaves) + 1 buffers, and what is left at the end are the largest tree nodes inside its range. Combining those
 * over ranks (team.c) gives the root with the same bits whoever held what. */
#include "train_impl.h"

#include <string.h>

static int64_t power_below(int64_t n) { /* largest power of two below n, n >= 2 */
  int64_t p = 1;
  while (p * 2 < n)
    p *= 2;
  return p;
}

/* Whether [a, a + n) is a node of the tree over [0, leaves). */
static int is_node(int64_t leaves, int64_t a, int64_t n) {
  int64_t lo = 0, count = leaves;
  while (lo != a || count != n) {
    if (count <= 1 || a < lo || a + n > lo + count)
      return 0;
    int64_t split = lo + power_below(count);
    if (a < split) {
      count = split - lo;
    } else {
      count = lo + count - split;
      lo = split;
    }
  }
  return 1;
}

static int64_t leaf_of(const partials *p, int64_t g) { /* leaf i covers [i G / L, (i + 1) G / L) */
  int64_t i = g * p->leaves / p->micro_batches;
  while ((i + 1) * p->micro_batches / p->leaves <= g)
    i++;
  return i;
}

static int64_t leaf_first(const partials *p, int64_t leaf) { return leaf * p->micro_batches / p->leaves; }

atoll_err partials_begin(partials *p, int64_t leaves, int64_t micro_batches, int buffers) {
  memset(p, 0, sizeof *p);
  p->leaves = leaves;
  p->micro_batches = micro_batches;
  p->buffers = buffers;
  return ATOLL_OK;
}

atoll_err partials_target(partials *p, atoll_stage *stage, int64_t g, int *buffer) {
  int64_t leaf = leaf_of(p, g);
  if (leaf_first(p, leaf) == g) {
    int b = 0;
    while (b < p->buffers && p->used[b])
      b++;
    if (b == p->buffers || p->depth == 64)
      return atoll_fail(ATOLL_INTERNAL, "summation tree: micro-batch %lld needs more than %d gradient buffers",
                        (long long)g, p->buffers);
    p->used[b] = 1;
    p->node[p->depth++] = (partial_node){leaf, 1, b};
    ATOLL_TRY(atoll_stage_zero_grad(stage, b));
  } else if (p->depth == 0 || p->node[p->depth - 1].first + p->node[p->depth - 1].count - 1 != leaf) {
    return atoll_fail(ATOLL_INTERNAL, "summation tree: micro-batch %lld is not the first of leaf %lld", (long long)g,
                      (long long)leaf);
  }
  *buffer = p->node[p->depth - 1].buffer;
  return ATOLL_OK;
}

atoll_err partials_close(partials *p, atoll_stage *stage, const atoll_exec *exec, int64_t g) {
  if (leaf_first(p, leaf_of(p, g) + 1) != g + 1)
    return ATOLL_OK;
  while (p->depth >= 2) {
    partial_node *left = &p->node[p->depth - 2], *right = &p->node[p->depth - 1];
    int64_t n = left->count + right->count;
    if (!is_node(p->leaves, left->first, n) || power_below(n) != left->count)
      break;
    ATOLL_TRY(exec->kernels->add(exec->compute, atoll_stage_flat_grad(stage, right->buffer),
                                 atoll_stage_flat_grad(stage, left->buffer), atoll_stage_grad_elements(stage)));
    left->count = n;
    p->used[right->buffer] = 0;
    p->depth--;
  }
  return ATOLL_OK;
}
