/* The heads of bert and roberta. Both begin with the norm that ends the last block:
 *
 *   n = LN(x)   masked words:   t = n Wd + b   a = gelu(t)   m = LN(a)   logits = m E^T + b, loss where a target is
 *               next sentence:  p = tanh(n[b,0] Wp + b)      logits = p Ws + b, a loss per sample (bert)
 *
 * E is the token embedding. Only rows that have a target are worked on (about 15 of 100; the call says how many at
 * most), gathered in their order and done in chunks, as in head.c; losses and gradients of the others are 0. The few
 * rows of the next sentence come after them: their norm is made again, and their gradients are added. */
#include "atoll/packed.h"
#include "layer_impl.h"

enum { WTE, N_W, N_B, D_W, D_B, M_W, M_B, BIAS, POOL_W, POOL_B, NEXT_W, NEXT_B };
enum { X, N, T, A, M, D1, D2, LOGITS, MEAN0, RSTD0, MEAN1, RSTD1, INDEX, PICKED, LOSS, PIECES };
enum { CLASSES = 2 };

void masked_work_pieces(const atoll_model *m, layer_pieces *out) {
  const atoll_model_params *c = atoll_model_config(m);
  *out = (layer_pieces){.n = PIECES, .max_rows = head_chunk(m)};
  for (int i = X; i <= D2; i++)
    out->row[i] = layer_element(m) * c->width;
  out->row[LOGITS] = layer_element(m) * (c->vocab > CLASSES ? c->vocab : CLASSES);
  for (int i = MEAN0; i < PIECES; i++)
    out->row[i] = 4;
}

static layer_norm first_norm(const layer_call *l, void *const *at, int64_t n) {
  return (layer_norm){l, l->b->weight[N_W], l->b->weight[N_B], at[MEAN0], at[RSTD0], n, l->H};
}

static layer_norm second_norm(const layer_call *l, void *const *at, int64_t n) {
  return (layer_norm){l, l->b->weight[M_W], l->b->weight[M_B], at[MEAN1], at[RSTD1], n, l->H};
}

/* Weight and input gradient of a matrix, weights w and w + 1: from dy to dx. */
static atoll_err back_through(const layer_call *l, int w, const void *dy, const void *x, void *dx, int64_t n, int64_t I,
                              int64_t O) {
  const atoll_kernels *k = l->e->kernels;
  float *const *g = l->b->grad;
  if (g[w])
    ATOLL_TRY(k->linear_backward_weight(l->e->compute, dy, x, g[w], g[w + 1], n, I, O, 1));
  return k->linear_backward_input(l->e->compute, dy, l->b->weight[w], dx, n, I, O, 0);
}

/* And of the first norm, whose output's gradient is dy: added to dx when `accumulate`. */
static atoll_err back_through_norm(const layer_call *l, void *const *at, const void *dy, const void *x, void *dx,
                                   int64_t n, int accumulate) {
  layer_norm norm = first_norm(l, at, n);
  if (l->b->grad[N_W])
    ATOLL_TRY(layer_norm_weight(&norm, dy, x, l->b->grad[N_W], l->b->grad[N_B]));
  return dx ? layer_norm_input(&norm, dy, x, dx, accumulate) : ATOLL_OK;
}

/* ---- masked words ---- */

static int64_t row_bytes(const layer_call *l) { return l->H * (int64_t)atoll_dtype_bytes(l->e->kernels->dtype); }

static int64_t with_target(const layer_call *l) { return l->c->targets && l->c->targets < l->R ? l->c->targets : l->R; }

static atoll_err words_back(const layer_call *l, void *const *at, void *dx, int64_t n) {
  const atoll_kernels *k = l->e->kernels;
  atoll_queue *q = l->e->compute;
  float *const *g = l->b->grad;
  int64_t H = l->H, V = l->config->vocab;
  layer_norm m = second_norm(l, at, n);
  ATOLL_TRY(atoll_packed_backward_input(k, q, at[LOGITS], l->b->weight[WTE], l->b->panels[WTE][1], at[D1], n, H, V, 0));
  if (g[WTE])
    ATOLL_TRY(k->linear_backward_weight(q, at[LOGITS], at[M], g[WTE], g[BIAS], n, H, V, 1));
  if (g[M_W])
    ATOLL_TRY(layer_norm_weight(&m, at[D1], at[A], g[M_W], g[M_B]));
  ATOLL_TRY(layer_norm_input(&m, at[D1], at[A], at[D2], 0));
  ATOLL_TRY(k->gelu_erf_backward(q, at[D2], at[T], at[D2], n * H));
  ATOLL_TRY(back_through(l, D_W, at[D2], at[N], at[D1], n, H, H));
  ATOLL_TRY(back_through_norm(l, at, at[D1], at[X], dx ? at[D2] : NULL, n, 0));
  return dx ? k->scatter(q, at[D2], at[INDEX], dx, n, row_bytes(l)) : ATOLL_OK;
}

/* Rows with a target number `skip` to skip + n - 1. */
static atoll_err words(const layer_call *l, void *const *at, const void *x, const int32_t *targets, int64_t skip,
                       int64_t n, void *dx, float *loss) {
  const atoll_kernels *k = l->e->kernels;
  atoll_queue *q = l->e->compute;
  const void *const *w = l->b->weight;
  int64_t H = l->H, V = l->config->vocab;
  layer_norm first = first_norm(l, at, n), second = second_norm(l, at, n);
  ATOLL_TRY(k->pick(q, targets, l->R, with_target(l), skip, n, at[INDEX], at[PICKED]));
  ATOLL_TRY(k->gather(q, x, at[INDEX], at[X], n, row_bytes(l)));
  ATOLL_TRY(layer_norm_forward(&first, at[X], at[N]));
  ATOLL_TRY(k->linear_forward(q, at[N], w[D_W], w[D_B], at[T], n, H, H));
  ATOLL_TRY(k->gelu_erf_forward(q, at[T], at[A], n * H));
  ATOLL_TRY(layer_norm_forward(&second, at[A], at[M]));
  ATOLL_TRY(atoll_packed_forward(k, q, at[M], w[WTE], l->b->panels[WTE][0], w[BIAS], at[LOGITS], n, H, V));
  void *d = l->c->train ? at[LOGITS] : NULL;
  ATOLL_TRY(k->cross_entropy(q, at[LOGITS], at[PICKED], at[LOSS], d, l->c->loss_scale, n, V));
  ATOLL_TRY(k->scatter(q, at[LOSS], at[INDEX], loss, n, sizeof *loss));
  return d ? words_back(l, at, dx, n) : ATOLL_OK;
}

/* ---- next sentence: rows 0 of n samples, S H apart ---- */

static atoll_err sentences(const layer_call *l, void *const *at, const void *x, const int32_t *next, int64_t n,
                           void *dx, float *loss) {
  const atoll_kernels *k = l->e->kernels;
  atoll_queue *q = l->e->compute;
  const void *const *w = l->b->weight;
  int64_t H = l->H, apart = l->c->S * H;
  layer_norm norm = first_norm(l, at, n);
  ATOLL_TRY(k->rows(q, x, apart, at[T], H, n, H, 0));
  ATOLL_TRY(layer_norm_forward(&norm, at[T], at[N]));
  ATOLL_TRY(k->linear_forward(q, at[N], w[POOL_W], w[POOL_B], at[A], n, H, H));
  ATOLL_TRY(k->tanh_forward(q, at[A], at[A], n * H));
  ATOLL_TRY(k->linear_forward(q, at[A], w[NEXT_W], w[NEXT_B], at[LOGITS], n, H, CLASSES));
  ATOLL_TRY(
      k->cross_entropy(q, at[LOGITS], next, at[LOSS], l->c->train ? at[LOGITS] : NULL, l->c->next_scale, n, CLASSES));
  ATOLL_TRY(k->add_scaled(q, at[LOSS], loss, l->c->S, n, l->c->next_scale / l->c->loss_scale));
  if (!l->c->train)
    return ATOLL_OK;
  ATOLL_TRY(back_through(l, NEXT_W, at[LOGITS], at[A], at[D1], n, H, CLASSES));
  ATOLL_TRY(k->tanh_backward(q, at[D1], at[A], at[D1], n * H));
  ATOLL_TRY(back_through(l, POOL_W, at[D1], at[N], at[D2], n, H, H));
  ATOLL_TRY(back_through_norm(l, at, at[D2], at[T], at[D1], n, 0));
  return dx ? k->rows(q, at[D1], H, dx, apart, n, H, 1) : ATOLL_OK;
}

atoll_err masked_forward(const layer_call *l, const void *x, const int32_t *targets, void *dx, float *loss) {
  int64_t chunk = head_chunk(l->m), B = l->c->B, S = l->c->S;
  layer_pieces p;
  masked_work_pieces(l->m, &p);
  size_t mark = atoll_arena_mark(l->e->work);
  void *base = NULL, *at[PIECES];
  ATOLL_TRY(atoll_arena_push(l->e->work, (size_t)pieces_bytes(&p, B, S), &base));
  for (int i = 0; i < PIECES; i++)
    at[i] = piece(&p, base, i, B, S);
  ATOLL_TRY(atoll_queue_zero(l->e->compute, loss, (size_t)l->R * sizeof *loss));
  if (dx)
    ATOLL_TRY(atoll_queue_zero(l->e->compute, dx, (size_t)(l->R * row_bytes(l))));
  for (int64_t r = 0; r < with_target(l); r += chunk) {
    int64_t left = with_target(l) - r;
    ATOLL_TRY(words(l, at, x, targets, r, left < chunk ? left : chunk, dx, loss));
  }
  for (int64_t b = 0; l->c->next && l->config->family == ATOLL_FAMILY_BERT && b < B; b += chunk) {
    int64_t n = B - b < chunk ? B - b : chunk, at_b = b * S * l->H;
    ATOLL_TRY(
        sentences(l, at, layer_at(l, x, at_b), l->c->next + b, n, dx ? layer_place(l, dx, at_b) : NULL, loss + b * S));
  }
  atoll_arena_release(l->e->work, mark);
  return ATOLL_OK;
}
