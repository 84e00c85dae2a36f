#include <string.h>

#include "atoll/bf16.h"
#include "atoll/clock.h"
#include "atoll/fault.h"
#include "view.h"

void cta_begin(struct cta_view *v, int64_t rows, int64_t panel, const void *x, float *output) {
  v->rows = rows;
  v->panel = panel;
  v->panels = (rows + panel - 1) / panel;
  v->group = CTA_GROUP / panel > 0 ? CTA_GROUP / panel : 1;
  v->x = x;
  v->output = output;
}

static void widen(const uint16_t *x, int64_t n, float *y) {
  for (int64_t i = 0; i < n; i++)
    y[i] = atoll_bf16_float(x[i]);
}

/* [m, n], where a chain of bf16 stores a value; rows ld apart. */
static void round_rows(const struct cta_view *v, int64_t m, int64_t n, float *c, int64_t ld) {
  for (int64_t i = 0; v->rounds && i < m; i++, c += ld)
    for (int64_t j = 0; j < n; j++)
      c[j] = atoll_bf16_float(atoll_bf16_of(c[j]));
}

static void copy_x(struct cta_view *v, int64_t p, int64_t t) {
  const struct cta_step *s = &v->step[0];
  int64_t m = cta_panel_rows(v, p), n = cta_tile_cols(s->out, t);
  int64_t at = p * v->panel * s->out + t * CTA_TILE;
  float *c = cta_tile_at(v, 0, p, t);
  for (int64_t i = 0; i < m && n > 0; i++, at += s->out, c += CTA_TILE)
    if (v->rounds)
      widen((const uint16_t *)v->x + at, n, c);
    else
      memcpy(c, (const float *)v->x + at, (size_t)n * sizeof *c);
}

/* --- activations -------------------------------------------------------------------------------------------------- */

/* of, and for a gate by, [n]. */
static atoll_err activate(struct cta_view *v, atoll_activation a, const float *of, const float *by, float *c,
                          int64_t n) {
  switch (a) {
  case ATOLL_ACTIVATION_GELU:
    return v->kernels->gelu_forward(v->queue, of, c, n);
  case ATOLL_ACTIVATION_GELU_ERF:
    return v->kernels->gelu_erf_forward(v->queue, of, c, n);
  case ATOLL_ACTIVATION_SWIGLU:
    return v->kernels->swiglu_forward(v->queue, of, by, c, n);
  default: /* the products have clipped it */
    return ATOLL_OK;
  }
}

/* From [m, n] of sums, or of tiles of them, to c; rows ld and ldc apart. A whole tile's rows are neighbours, and what
 * lies behind its last column is nobody's, so it goes in one call. */
static atoll_err activate_rows(struct cta_view *v, atoll_activation a, int64_t m, int64_t n, const float *sums,
                               int64_t ld, float *c, int64_t ldc, int whole) {
  const float *by = sums + v->panel * CTA_TILE;
  if (whole && ld == CTA_TILE && ldc == CTA_TILE)
    return activate(v, a, sums, by, c, m * CTA_TILE);
  for (int64_t i = 0; i < m; i++)
    ATOLL_TRY(activate(v, a, sums + i * ld, by + i * ld, c + i * ldc, n));
  return ATOLL_OK;
}

/* c [m, CTA_TILE], and for a gate the tile behind it, from the gradient d of what the activation gave; d may be c. */
static atoll_err slope(struct cta_view *v, const struct cta_step *s, int64_t m, const float *at, const float *d,
                       float *c) {
  int64_t n = m * CTA_TILE, next = v->panel * CTA_TILE;
  switch (s->slope) {
  case ATOLL_ACTIVATION_GELU:
    return v->kernels->gelu_backward(v->queue, d, at, c, n);
  case ATOLL_ACTIVATION_GELU_ERF:
    return v->kernels->gelu_erf_backward(v->queue, d, at, c, n);
  case ATOLL_ACTIVATION_SWIGLU:
    return v->kernels->swiglu_backward(v->queue, d, at, at + next, c, c + next, n);
  case ATOLL_ACTIVATION_RELU:
    for (int64_t i = 0; i < n; i++)
      c[i] = at[i] > 0 ? d[i] : 0;
    return ATOLL_OK;
  default:
    return ATOLL_OK;
  }
}

/* --- products ----------------------------------------------------------------------------------------------------- */

/* As cta_product(), by one factor and without activation (but ReLU). */
static atoll_err sums(struct cta_view *v, int step, int j, int64_t p, int64_t t, int64_t c0, int64_t c1, int64_t k0,
                      int64_t k1, float *c, int64_t ldc, int flags) {
  const struct cta_step *s = &v->step[step];
  int64_t m = cta_panel_rows(v, p), made = cta_made(&v->step[step - 1]);
  const float *start = s->bias && k0 == 0 ? s->bias + t * CTA_TILE + c0 : NULL;
  int ends = k0 == 0 && k1 == s->ks;
  for (int64_t k = k0; k < k1; k++) {
    const float *a = cta_tile_at(v, step - 1, p, k / made) + k % made * v->panel * CTA_TILE;
    if (flags)
      ATOLL_TRY(cta_wait_tile(v, step - 1, p, k / made));
    v->micro->block(m, c1 - c0, cta_depth(v, step, k), a, s->w + cta_weights_at(v, step, k, t, j, c0), c, ldc, k == k0,
                    start, ends && k == s->ks - 1 && s->activation == ATOLL_ACTIVATION_RELU);
  }
  return ATOLL_OK;
}

atoll_err cta_product(struct cta_view *v, int step, int64_t p, int64_t t, int64_t c0, int64_t c1, int64_t k0,
                      int64_t k1, float *c, int64_t ldc, int flags) {
  const struct cta_step *s = &v->step[step];
  int factors = cta_factors(s), apart = s->before || factors > 1;
  int64_t ld = apart ? CTA_TILE : ldc, m = cta_panel_rows(v, p);
  float *to = s->before ? s->before + (p * s->nt + t) * factors * v->panel * CTA_TILE + c0 : apart ? v->scratch : c;
  for (int j = 0; j < factors; j++)
    ATOLL_TRY(sums(v, step, j, p, t, c0, c1, k0, k1, to + j * v->panel * CTA_TILE, ld, flags));
  if (k0 > 0 || k1 < s->ks)
    return ATOLL_OK;
  int final = !s->tiles && s->activation <= ATOLL_ACTIVATION_RELU; /* the last values are the caller's to round */
  for (int j = 0; j < factors && !final; j++)
    round_rows(v, m, c1 - c0, to + j * v->panel * CTA_TILE, ld);
  if (s->activation <= ATOLL_ACTIVATION_RELU)
    return ATOLL_OK;
  ATOLL_TRY(activate_rows(v, s->activation, m, c1 - c0, to, ld, c, ldc, c1 - c0 == cta_tile_cols(s->out, t)));
  if (s->tiles)
    round_rows(v, m, c1 - c0, c, ldc);
  return ATOLL_OK;
}

static atoll_err product(struct cta_view *v, int step, int64_t p, int64_t t, int flags) {
  const struct cta_step *s = &v->step[step];
  int64_t n = cta_tile_cols(s->out, t), m = cta_panel_rows(v, p), made = cta_made(s),
          place = (p * s->nt + t) * made * v->panel * CTA_TILE;
  if (!s->tiles)
    return cta_product(v, step, p, t, 0, n, 0, s->ks, v->output + p * v->panel * s->out + t * CTA_TILE, s->out, flags);
  float *c = cta_tile_at(v, step, p, t), *d = made > 1 ? v->scratch : c;
  ATOLL_TRY(cta_product(v, step, p, t, 0, n, 0, s->ks, d, CTA_TILE, flags));
  if (!s->slope)
    return ATOLL_OK;
  ATOLL_TRY(slope(v, s, m, s->slope_at + place, d, c));
  for (int64_t j = 0; j < made; j++)
    round_rows(v, m, n, c + j * v->panel * CTA_TILE, CTA_TILE);
  return ATOLL_OK;
}

/* --- gradients of weights ----------------------------------------------------------------------------------------- */

/* Adds to dw[tile t of out, tile i of in] over all panels in order, for each factor; with the first i the sums of
 * columns, too. */
static atoll_err weight(struct cta_view *v, int step, int64_t i, int64_t t, int flags) {
  const struct cta_step *s = &v->step[step];
  int64_t m = cta_tile_cols(s->out, t), n = cta_tile_cols(s->in, i), tile = v->panel * CTA_TILE,
          at = t * CTA_TILE * s->in + i * CTA_TILE;
  float *db = i == 0 && s->db ? s->db + t * CTA_TILE : NULL, *room = v->scratch + CTA_TILE * CTA_TILE;
  for (int64_t p = 0; p < v->panels; p++) {
    int64_t rows = cta_panel_rows(v, p);
    const float *left = s->left + (p * s->ks + i) * tile, *right = cta_tile_at(v, s->right, p, t);
    if (flags)
      ATOLL_TRY(cta_wait_tile(v, s->right, p, t));
    cta_pack(v->micro, rows, n, left, CTA_TILE, 1, v->scratch);
    for (int j = 0; j < cta_made(&v->step[s->right]); j++)
      v->micro->block_turned(m, n, rows, right + j * tile, v->scratch, s->dw[j] + at, s->in, room);
    for (int64_t r = 0; db && r < rows; r++)
      for (int64_t c = 0; c < m; c++)
        db[c] += right[r * CTA_TILE + c];
  }
  return ATOLL_OK;
}

static void record(struct cta_view *v, int step, int64_t p, int64_t t, double begin) {
  struct cta_trace *trace = v->trace;
  if (trace && trace->n < trace->most)
    trace->event[trace->n++] = (cta_event){step, (int)p, (int)t, begin, atoll_clock_now()};
}

atoll_err cta_tile(struct cta_view *v, int step, int64_t p, int64_t t, int flags) {
  const struct cta_step *s = &v->step[step];
  double begin = v->trace ? atoll_clock_now() : 0;
  if (s->kind == CTA_COPY)
    copy_x(v, p, t);
  else
    ATOLL_TRY(s->kind == CTA_WEIGHT ? weight(v, step, p, t, flags) : product(v, step, p, t, flags));
  if (flags)
    atoll_fault_point("chain.tile");
  if (s->tiles && flags)
    cta_set(cta_flag_at(v, step, p, t), v->epoch);
  record(v, step, p, t, begin);
  return ATOLL_OK;
}
