/* The head of families that predict the next token: final norm, projection (mostly tied to the token embedding),
 * cross-entropy.
 *
 * Logits are R x V and would be the largest array of the run (206 MB for 1024 tokens of GPT-2), so rows are done in
 * chunks: norm, logits, loss, gradient of the logits in their place, and at once what follows from it: input gradient
 * and weight gradients. Nothing is made twice and nothing of size V outlives its chunk. */
#include "atoll/layer.h"

#include "atoll/packed.h"
#include "layer_impl.h"

enum { WTE, LNF_W, LNF_B };
enum { WORK_LN, WORK_LOGITS, WORK_DLN, WORK_MEAN, WORK_RSTD, WORK_PIECES };

void head_work_pieces(const atoll_model *m, layer_pieces *out) {
  const atoll_model_params *c = atoll_model_config(m);
  *out = (layer_pieces){.n = WORK_PIECES, .max_rows = head_chunk(m)};
  out->row[WORK_LN] = out->row[WORK_DLN] = layer_element(m) * c->width;
  out->row[WORK_LOGITS] = layer_element(m) * c->vocab;
  out->row[WORK_MEAN] = out->row[WORK_RSTD] = 4;
}

static atoll_err chunk_of_rows(const layer_call *l, void *const *at, const void *x, const int32_t *targets, int64_t n,
                               int add, void *dx, float *loss) {
  const atoll_kernels *k = l->e->kernels;
  atoll_queue *q = l->e->compute;
  const void *const *w = l->b->weight;
  float *const *g = l->b->grad;
  int64_t H = l->H, V = l->config->vocab;
  int bias = l->config->family == ATOLL_FAMILY_GPT2;
  layer_norm norm = {l, w[LNF_W], bias ? w[LNF_B] : NULL, at[WORK_MEAN], at[WORK_RSTD], n, H};
  ATOLL_TRY(layer_norm_forward(&norm, x, at[WORK_LN]));
  ATOLL_TRY(atoll_packed_forward(k, q, at[WORK_LN], w[WTE], l->b->panels[WTE][0], NULL, at[WORK_LOGITS], n, H, V));
  void *logits = at[WORK_LOGITS], *d = l->c->train ? logits : NULL;
  ATOLL_TRY(k->cross_entropy(q, logits, targets, loss, d, l->c->loss_scale, n, V));
  if (!d)
    return ATOLL_OK;
  ATOLL_TRY(atoll_packed_backward_input(k, q, d, w[WTE], l->b->panels[WTE][1], at[WORK_DLN], n, H, V, 0));
  if (g[WTE])
    ATOLL_TRY(k->linear_backward_weight(q, d, at[WORK_LN], g[WTE], NULL, n, H, V, add));
  if (g[LNF_W])
    ATOLL_TRY(layer_norm_weight(&norm, at[WORK_DLN], x, g[LNF_W], bias ? g[LNF_B] : NULL));
  return dx ? layer_norm_input(&norm, at[WORK_DLN], x, dx, 0) : ATOLL_OK;
}

atoll_err head_forward(const layer_call *l, const void *x, const int32_t *targets, void *dx, float *loss) {
  int64_t chunk = head_chunk(l->m);
  layer_pieces p;
  head_work_pieces(l->m, &p);
  size_t mark = atoll_arena_mark(l->e->work);
  void *base = NULL, *at[WORK_PIECES];
  ATOLL_TRY(atoll_arena_push(l->e->work, (size_t)pieces_bytes(&p, l->c->B, l->c->S), &base));
  for (int i = 0; i < WORK_PIECES; i++)
    at[i] = piece(&p, base, i, l->c->B, l->c->S);
  for (int64_t r = 0; r < l->R; r += chunk) {
    int64_t n = l->R - r < chunk ? l->R - r : chunk;
    void *to = dx ? layer_place(l, dx, r * l->H) : NULL;
    ATOLL_TRY(chunk_of_rows(l, at, layer_at(l, x, r * l->H), targets + r, n, r > 0 || !l->b->fresh, to, loss + r));
  }
  atoll_arena_release(l->e->work, mark);
  return ATOLL_OK;
}
