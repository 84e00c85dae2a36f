/* The embedding: a row per token, and of families that have them a row per position and per token type. The norm over
 * the sum that bert and roberta have belongs to the first block. */
#include "layer_impl.h"

enum { WTE, WPE, WTT }; /* as far as the family has them */

static int positions(const layer_call *l) { return l->config->family != ATOLL_FAMILY_LLAMA; }

/* Rows of types, made apart and then added. */
void embed_work_pieces(const atoll_model *m, layer_pieces *out) {
  const atoll_model_params *c = atoll_model_config(m);
  *out = (layer_pieces){.n = c->types > 0, .row = {layer_element(m) * c->width}};
}

/* Families with a norm behind the embedding have their dropout behind that. */
static atoll_drop drop_here(const layer_call *l) {
  atoll_drop none = {0};
  return l->config->types ? none : layer_drop(l, ATOLL_RNG_DROP_EMBED);
}

static atoll_err add_types(const layer_call *l, void *y) {
  const atoll_kernels *k = l->e->kernels;
  atoll_queue *q = l->e->compute;
  int64_t B = l->c->B, S = l->c->S;
  layer_pieces p;
  void *rows = NULL;
  if (!l->c->types)
    return atoll_fail(ATOLL_USAGE, "layer %d: token types missing", l->layer);
  embed_work_pieces(l->m, &p);
  size_t mark = atoll_arena_mark(l->e->work);
  ATOLL_TRY(atoll_arena_push(l->e->work, (size_t)pieces_bytes(&p, B, S), &rows));
  ATOLL_TRY(k->embed_forward(q, l->c->types, l->b->weight[WTT], NULL, rows, B, S, l->H, l->config->types, NULL));
  ATOLL_TRY(k->residual_forward(q, y, rows, y, B, S * l->H, NULL));
  atoll_arena_release(l->e->work, mark);
  return ATOLL_OK;
}

/* Generating, behind the prompt: each row has a position of its own. */
static atoll_err embed_single(const layer_call *l, const int32_t *tokens, const void *wpe, void *y) {
  for (int64_t r = 0; r < l->R; r++)
    ATOLL_TRY(l->e->kernels->embed_forward(l->e->compute, tokens + r, l->b->weight[WTE],
                                           layer_at(l, wpe, l->cache->at[r] * l->H), layer_place(l, y, r * l->H), 1, 1,
                                           l->H, l->config->vocab, NULL));
  return ATOLL_OK;
}

atoll_err embed_forward(const layer_call *l, const int32_t *tokens, void *y) {
  const void *wpe = positions(l) ? layer_at(l, l->b->weight[WPE], atoll_model_position_offset(l->m) * l->H) : NULL;
  if (wpe && l->cache && l->cache->single)
    return embed_single(l, tokens, wpe, y);
  atoll_drop drop = drop_here(l);
  ATOLL_TRY(l->e->kernels->embed_forward(l->e->compute, tokens, l->b->weight[WTE], wpe, y, l->c->B, l->c->S, l->H,
                                         l->config->vocab, &drop));
  return l->config->types ? add_types(l, y) : ATOLL_OK;
}

atoll_err embed_backward(const layer_call *l, const int32_t *tokens, const void *dy) {
  const atoll_kernels *k = l->e->kernels;
  float *dwpe = positions(l) ? l->b->grad[WPE] + atoll_model_position_offset(l->m) * l->H : NULL;
  atoll_drop drop = drop_here(l);
  ATOLL_TRY(k->embed_backward_weight(l->e->compute, tokens, dy, l->b->grad[WTE], dwpe, l->c->B, l->c->S, l->H,
                                     l->config->vocab, &drop));
  if (!l->config->types)
    return ATOLL_OK;
  return k->embed_backward_weight(l->e->compute, l->c->types, dy, l->b->grad[WTT], NULL, l->c->B, l->c->S, l->H,
                                  l->config->types, NULL);
}
