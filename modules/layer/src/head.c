/* The head: final norm, projection tied to the token embedding, cross-entropy.
 *
 * Logits are R x V and would be the largest array of the run (206 MB for 1024 tokens of GPT-2), so rows are done in
 * chunks: norm, logits, loss, gradient of the logits in their place, and at once what follows from it: input gradient
 * and weight gradients. Nothing is made twice and nothing of size V outlives its chunk. */
#include "atoll/layer.h"

#include "layer_impl.h"

enum { WTE, LNF_W, LNF_B };

atoll_err head_forward(const layer_call *l, const float *x, const int32_t *targets, float *dx, float *loss) {
  const atoll_kernels *k = l->e->kernels;
  atoll_queue *q = l->e->compute;
  const void *const *w = l->b->weight;
  float *const *g = l->b->grad;
  int64_t H = l->H, V = l->config->vocab, chunk = head_chunk(l->m);
  layer_pieces p;
  head_work_pieces(l->m, &p);
  size_t mark = atoll_arena_mark(l->e->work);
  void *base = NULL;
  ATOLL_TRY(atoll_arena_push(l->e->work, (size_t)pieces_bytes(&p, l->c->B, l->c->S), &base));
  float *at[WORK_RSTD + 1];
  for (int i = 0; i <= WORK_RSTD; i++)
    at[i] = piece(&p, base, i, l->c->B, l->c->S);
  for (int64_t r = 0; r < l->R; r += chunk) {
    int64_t n = l->R - r < chunk ? l->R - r : chunk;
    const float *xr = x + r * H;
    ATOLL_TRY(k->layernorm_forward(q, xr, w[LNF_W], w[LNF_B], at[WORK_LN], at[WORK_MEAN], at[WORK_RSTD], n, H,
                                   (float)l->config->norm_eps));
    ATOLL_TRY(k->linear_forward(q, at[WORK_LN], w[WTE], NULL, at[WORK_LOGITS], n, H, V));
    float *logits = at[WORK_LOGITS], *d = l->c->train ? logits : NULL;
    ATOLL_TRY(k->cross_entropy(q, logits, targets + r, loss + r, d, l->c->loss_scale, n, V));
    if (!d)
      continue;
    ATOLL_TRY(k->linear_backward_input(q, d, w[WTE], at[WORK_DLN], n, H, V, 0));
    if (g[WTE])
      ATOLL_TRY(k->linear_backward_weight(q, d, at[WORK_LN], g[WTE], NULL, n, H, V));
    if (g[LNF_W])
      ATOLL_TRY(
          k->layernorm_backward_weight(q, at[WORK_DLN], xr, at[WORK_MEAN], at[WORK_RSTD], g[LNF_W], g[LNF_B], n, H));
    if (dx)
      ATOLL_TRY(k->layernorm_backward_input(q, at[WORK_DLN], xr, at[WORK_MEAN], at[WORK_RSTD], w[LNF_W], dx + r * H, n,
                                            H, 0));
  }
  atoll_arena_release(l->e->work, mark);
  return ATOLL_OK;
}
