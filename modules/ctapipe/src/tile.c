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

static atoll_err gelu(struct cta_view *v, int64_t m, int64_t n, float *c, int64_t ldc, int whole) {
  if (whole && ldc == CTA_TILE) /* rows are neighbours; what lies behind the last column is nobody's */
    return v->kernels->gelu_forward(v->queue, c, c, m * CTA_TILE);
  for (int64_t i = 0; i < m; i++)
    ATOLL_TRY(v->kernels->gelu_forward(v->queue, c + i * ldc, c + i * ldc, n));
  return ATOLL_OK;
}

atoll_err cta_product(struct cta_view *v, int step, int64_t p, int64_t t, int64_t c0, int64_t c1, int64_t k0,
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
  if (ends && s->activation == ATOLL_ACTIVATION_GELU)
    return gelu(v, m, c1 - c0, c, ldc, c1 - c0 == cta_tile_cols(s->out, t));
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
  if (step == 0) {
    copy_x(v, p, t);
  } else {
    float *c = s->tiles ? cta_tile_at(v, step, p, t) : v->output + p * v->panel * s->out + t * CTA_TILE;
    ATOLL_TRY(
        cta_product(v, step, p, t, 0, cta_tile_cols(s->out, t), 0, s->ks, c, s->tiles ? CTA_TILE : s->out, flags));
  }
  if (s->tiles && flags)
    cta_set(cta_flag_at(v, step, p, t), v->epoch);
  record(v, step, p, t, begin);
  return ATOLL_OK;
}
