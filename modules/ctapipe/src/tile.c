#include <string.h>

#include "atoll/clock.h"
#include "view.h"

void cta_begin(struct cta_view *v, int64_t rows, int64_t panel, const float *x, float *output) {
  v->rows = rows;
  v->panel = panel;
  v->panels = (rows + panel - 1) / panel;
  v->group = CTA_GROUP / panel > 0 ? CTA_GROUP / panel : 1;
  v->x = x;
  v->output = output;
}

static void copy_x(struct cta_view *v, int64_t p, int64_t t) {
  const struct cta_step *s = &v->step[0];
  int64_t m = cta_panel_rows(v, p), n = cta_tile_cols(s->out, t);
  const float *x = v->x + p * v->panel * s->out + t * CTA_TILE;
  float *c = cta_tile_at(v, 0, p, t);
  for (int64_t i = 0; i < m && n > 0; i++)
    memcpy(c + i * CTA_TILE, x + i * s->out, (size_t)n * sizeof *c);
}

/* [m, n] of tiles or of rows of the output, at distance ld. A whole tile's rows are neighbours, and what lies behind
 * its last column is nobody's, so it goes in one call. */
static atoll_err gelu(struct cta_view *v, int64_t m, int64_t n, const float *from, float *c, int64_t ld, int whole) {
  if (whole && ld == CTA_TILE)
    return v->kernels->gelu_forward(v->queue, from, c, m * CTA_TILE);
  for (int64_t i = 0; i < m; i++)
    ATOLL_TRY(v->kernels->gelu_forward(v->queue, from + i * ld, c + i * ld, n));
  return ATOLL_OK;
}

/* As cta_product(), but for GELU. */
static atoll_err sums(struct cta_view *v, int step, int64_t p, int64_t t, int64_t c0, int64_t c1, int64_t k0,
                      int64_t k1, float *c, int64_t ldc, int flags) {
  const struct cta_step *s = &v->step[step];
  int64_t m = cta_panel_rows(v, p), col = t * CTA_TILE + c0, whole = cta_packed(v->micro, CTA_TILE, s->out);
  const float *start = s->bias && k0 == 0 ? s->bias + col : NULL;
  int ends = k0 == 0 && k1 == s->ks;
  for (int64_t k = k0; k < k1; k++) {
    int64_t depth = cta_tile_cols(s->in, k);
    if (flags)
      ATOLL_TRY(cta_wait_tile(v, step - 1, p, k));
    v->micro->block(m, c1 - c0, depth, cta_tile_at(v, step - 1, p, k), s->w + k * whole + col * depth, c, ldc, k == k0,
                    start, ends && k == s->ks - 1 && s->activation == ATOLL_ACTIVATION_RELU);
  }
  return ATOLL_OK;
}

atoll_err cta_product(struct cta_view *v, int step, int64_t p, int64_t t, int64_t c0, int64_t c1, int64_t k0,
                      int64_t k1, float *c, int64_t ldc, int flags) {
  const struct cta_step *s = &v->step[step];
  ATOLL_TRY(sums(v, step, p, t, c0, c1, k0, k1, c, ldc, flags));
  if (s->activation == ATOLL_ACTIVATION_GELU && k0 == 0 && k1 == s->ks)
    return gelu(v, cta_panel_rows(v, p), c1 - c0, c, c, ldc, c1 - c0 == cta_tile_cols(s->out, t));
  return ATOLL_OK;
}

/* c [m, CTA_TILE] times the derivative of the activation. */
static atoll_err slope(struct cta_view *v, const struct cta_step *s, int64_t m, const float *at, float *c) {
  if (s->slope == ATOLL_ACTIVATION_GELU)
    return v->kernels->gelu_backward(v->queue, c, at, c, m * CTA_TILE);
  for (int64_t i = 0; i < m * CTA_TILE; i++)
    c[i] = at[i] > 0 ? c[i] : 0;
  return ATOLL_OK;
}

static atoll_err product(struct cta_view *v, int step, int64_t p, int64_t t, int flags) {
  const struct cta_step *s = &v->step[step];
  int64_t n = cta_tile_cols(s->out, t), m = cta_panel_rows(v, p), place = (p * s->nt + t) * v->panel * CTA_TILE;
  if (!s->tiles)
    return cta_product(v, step, p, t, 0, n, 0, s->ks, v->output + p * v->panel * s->out + t * CTA_TILE, s->out, flags);
  float *c = s->tiles + place;
  if (s->before) { /* of a GELU: kept beside its result */
    ATOLL_TRY(sums(v, step, p, t, 0, n, 0, s->ks, s->before + place, CTA_TILE, flags));
    return gelu(v, m, n, s->before + place, c, CTA_TILE, 1);
  }
  ATOLL_TRY(cta_product(v, step, p, t, 0, n, 0, s->ks, c, CTA_TILE, flags));
  return s->slope ? slope(v, s, m, s->slope_at + place, c) : ATOLL_OK;
}

/* dw[tile i of in, tile t of out] over all panels in order, and with the first i the sums of columns. */
static atoll_err weight(struct cta_view *v, int step, int64_t i, int64_t t, int flags) {
  const struct cta_step *s = &v->step[step];
  int64_t m = cta_tile_cols(s->in, i), n = cta_tile_cols(s->out, t);
  float *dw = s->dw + i * CTA_TILE * s->out + t * CTA_TILE, *db = i == 0 ? s->db + t * CTA_TILE : NULL;
  for (int64_t r = 0; r < m && v->panels == 0; r++)
    memset(dw + r * s->out, 0, (size_t)(n > 0 ? n : 0) * sizeof *dw);
  for (int64_t j = 0; db && j < n; j++)
    db[j] = 0;
  for (int64_t p = 0; p < v->panels; p++) {
    int64_t rows = cta_panel_rows(v, p);
    const float *left = s->left + (p * s->ks + i) * v->panel * CTA_TILE, *right = cta_tile_at(v, s->right, p, t);
    if (flags)
      ATOLL_TRY(cta_wait_tile(v, s->right, p, t));
    cta_pack(v->micro, rows, n, right, CTA_TILE, 1, v->scratch);
    v->micro->block_turned(m, n, rows, left, v->scratch, dw, s->out, p == 0);
    for (int64_t r = 0; db && r < rows; r++)
      for (int64_t j = 0; j < n; j++)
        db[j] += right[r * CTA_TILE + j];
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
  if (s->tiles && flags)
    cta_set(cta_flag_at(v, step, p, t), v->epoch);
  record(v, step, p, t, begin);
  return ATOLL_OK;
}
