/* The oracle: each kernel as the plainest loop, one thread, sums in double, rounded once where a value is stored. It is
 * never tuned; faster backends are compared with it. */
#include "atoll/kernel_keep.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernel_impl.h"
#include "ref_keep.h"

static atoll_err ref_linear_forward(int threads, const float *x, const float *w, const float *b, float *y, int64_t R,
                                    int64_t I, int64_t O) {
  (void)threads;
  for (int64_t r = 0; r < R; r++)
    for (int64_t o = 0; o < O; o++) {
      double sum = b ? b[o] : 0;
      for (int64_t i = 0; i < I; i++)
        sum += (double)x[r * I + i] * w[o * I + i];
      y[r * O + o] = (float)sum;
    }
  return ATOLL_OK;
}

static atoll_err ref_linear_backward_input(int threads, const float *dy, const float *w, float *dx, int64_t R,
                                           int64_t I, int64_t O, int accumulate) {
  (void)threads;
  for (int64_t r = 0; r < R; r++)
    for (int64_t i = 0; i < I; i++) {
      double sum = accumulate ? dx[r * I + i] : 0;
      for (int64_t o = 0; o < O; o++)
        sum += (double)dy[r * O + o] * w[o * I + i];
      dx[r * I + i] = (float)sum;
    }
  return ATOLL_OK;
}

static atoll_err ref_linear_forward_part(int threads, const float *x, const float *w, float *y, int64_t R, int64_t I,
                                         int64_t O) {
  return ref_linear_forward(threads, x, w, NULL, y, R, I, O);
}

static atoll_err ref_linear_backward_input_part(int threads, const float *dy, const float *w, float *dx, int64_t R,
                                                int64_t I, int64_t O) {
  return ref_linear_backward_input(threads, dy, w, dx, R, I, O, 0);
}

static atoll_err ref_round_sum(int threads, const float *sum, const float *b, float *y, int64_t R, int64_t C,
                               int accumulate) {
  (void)threads;
  for (int64_t r = 0; r < R; r++)
    for (int64_t c = 0; c < C; c++)
      y[r * C + c] = (float)((accumulate ? (double)y[r * C + c] : 0) + sum[r * C + c] + (b ? (double)b[c] : 0));
  return ATOLL_OK;
}

static atoll_err ref_linear_backward_weight(int threads, const float *dy, const float *x, float *dw, float *db,
                                            int64_t R, int64_t I, int64_t O, int accumulate) {
  (void)threads;
  for (int64_t o = 0; o < O; o++) {
    for (int64_t i = 0; i < I; i++) {
      double sum = accumulate ? (double)dw[o * I + i] : 0;
      for (int64_t r = 0; r < R; r++)
        sum += (double)dy[r * O + o] * x[r * I + i];
      dw[o * I + i] = (float)sum;
    }
    if (db) {
      double sum = accumulate ? (double)db[o] : 0;
      for (int64_t r = 0; r < R; r++)
        sum += dy[r * O + o];
      db[o] = (float)sum;
    }
  }
  return ATOLL_OK;
}

static atoll_err ref_layernorm_apply(int threads, const float *x, const float *mean, const float *rstd,
                                     const float *gamma, const float *beta, float *y, int64_t R, int64_t C) {
  (void)threads;
  for (int64_t r = 0; r < R; r++)
    for (int64_t c = 0; c < C; c++)
      y[r * C + c] = (float)(((double)x[r * C + c] - mean[r]) * rstd[r] * gamma[c] + beta[c]);
  return ATOLL_OK;
}

static atoll_err ref_layernorm_forward(int threads, const float *x, const float *gamma, const float *beta, float *y,
                                       float *mean, float *rstd, int64_t R, int64_t C, float eps) {
  for (int64_t r = 0; r < R; r++) {
    double sum = 0, squares = 0;
    for (int64_t c = 0; c < C; c++)
      sum += x[r * C + c];
    sum /= (double)C;
    for (int64_t c = 0; c < C; c++)
      squares += (x[r * C + c] - sum) * (x[r * C + c] - sum);
    mean[r] = (float)sum;
    rstd[r] = (float)(1 / sqrt(squares / (double)C + eps));
  }
  return ref_layernorm_apply(threads, x, mean, rstd, gamma, beta, y, R, C);
}

static atoll_err ref_layernorm_backward_input(int threads, const float *dy, const float *x, const float *mean,
                                              const float *rstd, const float *gamma, float *dx, int64_t R, int64_t C,
                                              int accumulate) {
  (void)threads;
  for (int64_t r = 0; r < R; r++) {
    const float *d = dy + r * C, *xr = x + r * C;
    double g = 0, gx = 0;
    for (int64_t c = 0; c < C; c++) {
      double hat = ((double)xr[c] - mean[r]) * rstd[r];
      g += (double)d[c] * gamma[c];
      gx += (double)d[c] * gamma[c] * hat;
    }
    g /= (double)C;
    gx /= (double)C;
    for (int64_t c = 0; c < C; c++) {
      double hat = ((double)xr[c] - mean[r]) * rstd[r];
      double v = rstd[r] * ((double)d[c] * gamma[c] - g - hat * gx);
      dx[r * C + c] = (float)(accumulate ? dx[r * C + c] + v : v);
    }
  }
  return ATOLL_OK;
}

static atoll_err ref_layernorm_backward_weight(int threads, const float *dy, const float *x, const float *mean,
                                               const float *rstd, float *dgamma, float *dbeta, int64_t R, int64_t C) {
  (void)threads;
  for (int64_t c = 0; c < C; c++) {
    double dg = dgamma[c], db = dbeta[c];
    for (int64_t r = 0; r < R; r++) {
      dg += (double)dy[r * C + c] * ((double)x[r * C + c] - mean[r]) * rstd[r];
      db += dy[r * C + c];
    }
    dgamma[c] = (float)dg;
    dbeta[c] = (float)db;
  }
  return ATOLL_OK;
}

static atoll_err ref_rmsnorm_apply(int threads, const float *x, const float *rstd, const float *gamma, float *y,
                                   int64_t R, int64_t C) {
  (void)threads;
  for (int64_t r = 0; r < R; r++)
    for (int64_t c = 0; c < C; c++)
      y[r * C + c] = (float)((double)x[r * C + c] * rstd[r] * gamma[c]);
  return ATOLL_OK;
}

static atoll_err ref_rmsnorm_forward(int threads, const float *x, const float *gamma, float *y, float *rstd, int64_t R,
                                     int64_t C, float eps) {
  for (int64_t r = 0; r < R; r++) {
    double squares = 0;
    for (int64_t c = 0; c < C; c++)
      squares += (double)x[r * C + c] * x[r * C + c];
    rstd[r] = (float)(1 / sqrt(squares / (double)C + eps));
  }
  return ref_rmsnorm_apply(threads, x, rstd, gamma, y, R, C);
}

static atoll_err ref_rmsnorm_backward_input(int threads, const float *dy, const float *x, const float *rstd,
                                            const float *gamma, float *dx, int64_t R, int64_t C, int accumulate) {
  (void)threads;
  for (int64_t r = 0; r < R; r++) {
    const float *d = dy + r * C, *xr = x + r * C;
    double gx = 0;
    for (int64_t c = 0; c < C; c++)
      gx += (double)d[c] * gamma[c] * xr[c] * rstd[r];
    gx /= (double)C;
    for (int64_t c = 0; c < C; c++) {
      double v = rstd[r] * ((double)d[c] * gamma[c] - (double)xr[c] * rstd[r] * gx);
      dx[r * C + c] = (float)(accumulate ? dx[r * C + c] + v : v);
    }
  }
  return ATOLL_OK;
}

static atoll_err ref_rmsnorm_backward_weight(int threads, const float *dy, const float *x, const float *rstd,
                                             float *dgamma, int64_t R, int64_t C) {
  (void)threads;
  for (int64_t c = 0; c < C; c++) {
    double dg = dgamma[c];
    for (int64_t r = 0; r < R; r++)
      dg += (double)dy[r * C + c] * x[r * C + c] * rstd[r];
    dgamma[c] = (float)dg;
  }
  return ATOLL_OK;
}

/* What multiplies a probability: 0 when dropped, 1 / (1 - p) when kept. */
static double keep(const atoll_drop *drop, const atoll_rng_key *key, int64_t element) {
  if (drop->p <= 0)
    return 1;
  return atoll_rng_bits(key, (uint64_t)element) < drop_threshold(drop->p) ? 0 : drop_scale(drop->p);
}

/* One head of one sample. */
struct head {
  const float *q, *k, *v;
  int64_t S, D, q_row, kv_row, length, both_ways;
  double scale;
};

static struct head head_of(const atoll_attention_shape *s, int64_t b, int64_t h, const float *query, const float *key,
                           const float *value) {
  int64_t D = s->head_dim, at = b * s->S * s->kv_row + h / (s->heads / s->kv_heads) * D;
  return (struct head){query + b * s->S * s->q_row + h * D, key + at,     value + at, s->S, D, s->q_row, s->kv_row,
                       s->lengths ? s->lengths[b] : s->S,   s->both_ways, s->scale};
}

/* Keys that a query sees. */
static int64_t seen(const struct head *h, int64_t query) {
  return h->both_ways || query >= h->length ? h->length : query + 1;
}

/* row[k] = scale q.k for the keys that the query sees; returns how many. */
static int64_t scores(const struct head *h, int64_t query, double *row) {
  const float *q = h->q + query * h->q_row;
  int64_t keys = seen(h, query);
  for (int64_t k = 0; k < keys; k++) {
    const float *kk = h->k + k * h->kv_row;
    double sum = 0;
    for (int64_t d = 0; d < h->D; d++)
      sum += (double)q[d] * kk[d];
    row[k] = h->scale * sum;
  }
  return keys;
}

static atoll_err ref_attention_forward(int threads, const float *query, const float *key, const float *value, float *o,
                                       float *lse, const atoll_attention_shape *s, const atoll_drop *drop) {
  (void)threads;
  int64_t H = s->heads * s->head_dim, D = s->head_dim;
  double *row = malloc((size_t)(s->S + 1) * sizeof *row);
  if (!row)
    return atoll_fail(ATOLL_NOMEM, "no memory for a row of %lld scores", (long long)s->S);
  for (int64_t b = 0; b < s->B; b++) {
    atoll_rng_key rng = drop_key(drop, b);
    for (int64_t h = 0; h < s->heads; h++) {
      struct head head = head_of(s, b, h, query, key, value);
      for (int64_t q = 0; q < s->S; q++) {
        int64_t keys = scores(&head, q, row);
        double max = -INFINITY, sum = 0;
        for (int64_t k = 0; k < keys; k++)
          max = row[k] > max ? row[k] : max;
        for (int64_t k = 0; k < keys; k++)
          sum += exp(row[k] - max);
        lse[(b * s->heads + h) * s->S + q] = (float)(max + log(sum));
        for (int64_t k = 0; k < keys; k++)
          row[k] = exp(row[k] - max) / sum * keep(drop, &rng, ((s->first_head + h) * s->S + q) * s->S + k);
        for (int64_t d = 0; d < D; d++) {
          double acc = 0;
          for (int64_t k = 0; k < keys; k++)
            acc += row[k] * head.v[k * s->kv_row + d];
          o[(b * s->S + q) * H + h * D + d] = (float)acc;
        }
      }
    }
  }
  free(row);
  return ATOLL_OK;
}

/* A kept probability. */
static double kept_value(const atoll_attention_kept *kept, int64_t line, int64_t S, int64_t k) {
  if (!kept->code)
    return ((const float *)kept->p)[line * S + k];
  double root = ((const uint16_t *)kept->code)[line * S + k];
  return root * root * kept->unit[line];
}

/* With P the probabilities, M the scaled mask: O = (P M) V, dP = (dO V^T) M, delta = sum_k P dP = dO . O, dS = P (dP -
 * delta). Adds one head's share to dk, dv [S, D]. P comes from lse, or is what was kept [S, S]; and so the mask. */
static void head_backward(const struct head *h, const float *o, int64_t o_row, const float *lse,
                          const atoll_attention_kept *kept, const float *d_o, float *dq, float *delta, double *dk,
                          double *dv, double *row, const atoll_drop *drop, const atoll_rng_key *rng, int64_t first) {
  const uint8_t *mask = kept ? kept->mask : NULL;
  int64_t D = h->D;
  for (int64_t q = 0; q < h->S; q++) {
    const float *doq = d_o + q * o_row, *oq = o + q * o_row, *qq = h->q + q * h->q_row;
    double sum = 0;
    for (int64_t d = 0; d < D; d++)
      sum += (double)doq[d] * oq[d];
    delta[q] = (float)sum;
    int64_t keys = scores(h, q, row);
    for (int64_t k = 0; k < keys; k++) {
      const float *vk = h->v + k * h->kv_row;
      double p = kept ? kept_value(kept, q, h->S, k) : exp(row[k] - lse[q]), dp = 0;
      double m = mask ? mask[q * h->S + k] * drop_scale(drop->p) : keep(drop, rng, first + q * h->S + k);
      for (int64_t d = 0; d < D; d++) {
        dp += (double)doq[d] * vk[d];
        dv[k * D + d] += p * m * doq[d];
      }
      row[k] = p * (dp * m - sum) * h->scale;
      for (int64_t d = 0; d < D; d++)
        dk[k * D + d] += row[k] * qq[d];
    }
    for (int64_t d = 0; d < D; d++) {
      double g = 0;
      for (int64_t k = 0; k < keys; k++)
        g += row[k] * h->k[k * h->kv_row + d];
      dq[q * h->q_row + d] = (float)g;
    }
  }
}

/* Kept values from a row on. */
static atoll_attention_kept kept_of(const atoll_attention_kept *kept, int64_t line, int64_t S) {
  atoll_attention_kept none = {0};
  if (!kept)
    return none;
  if (kept->code)
    return (atoll_attention_kept){.code = (uint16_t *)kept->code + line * S, .unit = kept->unit + line};
  return (atoll_attention_kept){.p = (float *)kept->p + line * S, .mask = kept->mask ? kept->mask + line * S : NULL};
}

/* From lse, or from what was kept. */
static atoll_err backward(const float *query, const float *key, const float *value, const float *o, const float *lse,
                          const atoll_attention_kept *kept, const float *d_o, float *dquery, float *dkey, float *dvalue,
                          float *delta, const atoll_attention_shape *s, const atoll_drop *drop) {
  int64_t D = s->head_dim, H = s->heads * D, S = s->S, group = s->heads / s->kv_heads;
  double *row = malloc((size_t)(S + 1 + 2 * S * D) * sizeof *row);
  if (!row)
    return atoll_fail(ATOLL_NOMEM, "no memory for the sums of a head of %lld tokens", (long long)S);
  double *dk = row + S + 1, *dv = dk + S * D;
  for (int64_t b = 0; b < s->B; b++) {
    atoll_rng_key rng = drop_key(drop, b);
    for (int64_t g = 0; g < s->kv_heads; g++) {
      memset(dk, 0, (size_t)(2 * S * D) * sizeof *dk);
      for (int64_t h = g * group; h < (g + 1) * group; h++) {
        struct head head = head_of(s, b, h, query, key, value);
        int64_t at = b * S * H + h * D, line = (b * s->heads + h) * S;
        atoll_attention_kept of_head = kept_of(kept, line, S);
        head_backward(&head, o + at, H, kept ? NULL : lse + line, kept ? &of_head : NULL, d_o + at,
                      dquery + (head.q - query), delta + line, dk, dv, row, drop, &rng, (s->first_head + h) * S * S);
      }
      for (int64_t k = 0; k < S; k++)
        for (int64_t d = 0; d < D; d++) {
          dkey[(b * S + k) * s->kv_row + g * D + d] = (float)dk[k * D + d];
          dvalue[(b * S + k) * s->kv_row + g * D + d] = (float)dv[k * D + d];
        }
    }
  }
  free(row);
  return ATOLL_OK;
}

static atoll_err ref_attention_backward(int threads, const float *query, const float *key, const float *value,
                                        const float *o, const float *lse, const float *d_o, float *dquery, float *dkey,
                                        float *dvalue, float *delta, const atoll_attention_shape *s,
                                        const atoll_drop *drop) {
  (void)threads;
  return backward(query, key, value, o, lse, NULL, d_o, dquery, dkey, dvalue, delta, s, drop);
}

/* ---- attention that keeps S x S values ---- */

atoll_err ref_keep_attention(int threads, const float *query, const float *key, const float *lse,
                             const atoll_attention_kept *kept, const atoll_attention_shape *s, const atoll_drop *drop) {
  (void)threads;
  double *row = malloc((size_t)(s->S + 1) * sizeof *row);
  if (!row)
    return atoll_fail(ATOLL_NOMEM, "no memory for a row of %lld scores", (long long)s->S);
  for (int64_t line = 0; line < s->B * s->heads * s->S; line++) {
    int64_t b = line / s->S / s->heads, h = line / s->S % s->heads, q = line % s->S;
    atoll_rng_key rng = drop_key(drop, b);
    struct head head = head_of(s, b, h, query, key, key);
    int64_t keys = scores(&head, q, row);
    float *p = (float *)kept->p + line * s->S;
    for (int64_t k = 0; k < s->S; k++) {
      double m = keep(drop, &rng, ((s->first_head + h) * s->S + q) * s->S + k);
      p[k] = k < keys ? (float)exp(row[k] - lse[line]) : 0;
      if (!kept->mask)
        continue;
      kept->mask[line * s->S + k] = k < keys && m > 0;
      ((float *)kept->dropped)[line * s->S + k] = (float)(p[k] * m);
    }
  }
  free(row);
  return ATOLL_OK;
}

atoll_err ref_keep_attention_of_kept(int threads, const float *value, const atoll_attention_kept *kept, float *o,
                                     const atoll_attention_shape *s, const atoll_drop *drop) {
  (void)threads;
  int64_t D = s->head_dim;
  for (int64_t line = 0; line < s->B * s->heads * s->S; line++) {
    int64_t b = line / s->S / s->heads, h = line / s->S % s->heads, q = line % s->S;
    atoll_rng_key rng = drop_key(drop, b);
    struct head head = head_of(s, b, h, value, value, value);
    for (int64_t d = 0; d < D; d++) {
      double acc = 0;
      for (int64_t k = 0; k < seen(&head, q); k++)
        acc += kept_value(kept, line, s->S, k) * keep(drop, &rng, ((s->first_head + h) * s->S + q) * s->S + k) *
               head.v[k * s->kv_row + d];
      o[((b * s->S + q) * s->heads + h) * D + d] = (float)acc;
    }
  }
  return ATOLL_OK;
}

/* Scores of a row to codes. */
static void encode(const double *score, int64_t keys, int64_t S, uint16_t *code, float *unit) {
  double most = -INFINITY, sum = 0;
  int finite = 1;
  for (int64_t k = 0; k < keys; k++) {
    most = fmax(most, score[k]);
    finite &= isfinite(score[k]) != 0;
  }
  if (!finite) { /* which must show */
    memset(code, 0, (size_t)S * sizeof *code);
    *unit = NAN;
    return;
  }
  for (int64_t k = 0; k < S; k++) {
    code[k] = k < keys ? (uint16_t)lround(sqrt(exp(score[k] - most)) * UINT16_MAX) : 0;
    sum += (double)code[k] * code[k];
  }
  *unit = (float)(1 / sum);
}

atoll_err ref_keep_attention_coded(int threads, const float *query, const float *key, const float *value, float *o,
                                   const atoll_attention_kept *kept, const atoll_attention_shape *s,
                                   const atoll_drop *drop) {
  double *row = malloc((size_t)(s->S + 1) * sizeof *row);
  if (!row)
    return atoll_fail(ATOLL_NOMEM, "no memory for a row of %lld scores", (long long)s->S);
  for (int64_t line = 0; line < s->B * s->heads * s->S; line++) {
    struct head head = head_of(s, line / s->S / s->heads, line / s->S % s->heads, query, key, key);
    int64_t keys = scores(&head, line % s->S, row);
    encode(row, keys, s->S, (uint16_t *)kept->code + line * s->S, kept->unit + line);
  }
  free(row);
  return ref_keep_attention_of_kept(threads, value, kept, o, s, drop);
}

atoll_err ref_keep_attention_backward(int threads, const float *query, const float *key, const float *value,
                                      const float *o, const atoll_attention_kept *kept, const float *d_o, float *dquery,
                                      float *dkey, float *dvalue, float *delta, const atoll_attention_shape *s,
                                      const atoll_drop *drop) {
  (void)threads;
  return backward(query, key, value, o, NULL, kept, d_o, dquery, dkey, dvalue, delta, s, drop);
}

static atoll_err ref_rope(int threads, float *x, int64_t B, int64_t S, int64_t heads, int64_t D, const atoll_rope *rope,
                          int back) {
  (void)threads;
  for (int64_t i = 0; i < D / 2; i++) {
    double frequency = atoll_rope_frequency(rope, i, D);
    for (int64_t r = 0; r < B * S; r++) {
      double c = cos(frequency * (double)(r % S)), s = sin(frequency * (double)(r % S));
      for (int64_t h = 0; h < heads; h++) {
        float *at = x + (r * heads + h) * D + i;
        double a = at[0], b = at[D / 2];
        at[0] = (float)(back ? a * c + b * s : a * c - b * s);
        at[D / 2] = (float)(back ? b * c - a * s : b * c + a * s);
      }
    }
  }
  return ATOLL_OK;
}

static atoll_err ref_swiglu_forward(int threads, const float *x, const float *up, float *y, int64_t n) {
  (void)threads;
  for (int64_t i = 0; i < n; i++)
    y[i] = (float)(x[i] / (1 + exp(-(double)x[i])) * up[i]);
  return ATOLL_OK;
}

static atoll_err ref_swiglu_backward(int threads, const float *dy, const float *x, const float *up, float *dx,
                                     float *dup, int64_t n) {
  (void)threads;
  for (int64_t i = 0; i < n; i++) {
    double v = x[i], d = dy[i], u = up[i], s = 1 / (1 + exp(-v));
    dx[i] = (float)(d * u * s * (1 + v * (1 - s)));
    dup[i] = (float)(d * v * s);
  }
  return ATOLL_OK;
}

static atoll_err ref_gelu_erf_forward(int threads, const float *x, float *y, int64_t n) {
  (void)threads;
  for (int64_t i = 0; i < n; i++)
    y[i] = (float)(0.5 * x[i] * erfc(-x[i] * 0.70710678118654752440));
  return ATOLL_OK;
}

static atoll_err ref_gelu_erf_backward(int threads, const float *dy, const float *x, float *dx, int64_t n) {
  (void)threads;
  for (int64_t i = 0; i < n; i++) {
    double v = x[i];
    dx[i] = (float)(dy[i] * (0.5 * erfc(-v * 0.70710678118654752440) + v * exp(-0.5 * v * v) * 0.39894228040143267794));
  }
  return ATOLL_OK;
}

static atoll_err ref_tanh_forward(int threads, const float *x, float *y, int64_t n) {
  (void)threads;
  for (int64_t i = 0; i < n; i++)
    y[i] = (float)tanh(x[i]);
  return ATOLL_OK;
}

static atoll_err ref_tanh_backward(int threads, const float *dy, const float *y, float *dx, int64_t n) {
  (void)threads;
  for (int64_t i = 0; i < n; i++)
    dx[i] = (float)(dy[i] * (1 - (double)y[i] * y[i]));
  return ATOLL_OK;
}

static atoll_err ref_rows(int threads, const float *x, int64_t x_row, float *y, int64_t y_row, int64_t n, int64_t C,
                          int accumulate) {
  (void)threads;
  for (int64_t r = 0; r < n; r++)
    for (int64_t c = 0; c < C; c++)
      y[r * y_row + c] = accumulate ? y[r * y_row + c] + x[r * x_row + c] : x[r * x_row + c];
  return ATOLL_OK;
}

static atoll_err ref_add_scaled(int threads, const float *x, float *y, int64_t y_row, int64_t n, float scale) {
  (void)threads;
  for (int64_t i = 0; i < n; i++)
    y[i * y_row] += scale * x[i];
  return ATOLL_OK;
}

#define GELU_C 0.79788456080286535588 /* sqrt(2 / pi) */
#define GELU_A 0.044715

static atoll_err ref_gelu_forward(int threads, const float *x, float *y, int64_t n) {
  (void)threads;
  for (int64_t i = 0; i < n; i++) {
    double v = x[i];
    y[i] = (float)(0.5 * v * (1 + tanh(GELU_C * (v + GELU_A * v * v * v))));
  }
  return ATOLL_OK;
}

static atoll_err ref_gelu_backward(int threads, const float *dy, const float *x, float *dx, int64_t n) {
  (void)threads;
  for (int64_t i = 0; i < n; i++) {
    double v = x[i], t = tanh(GELU_C * (v + GELU_A * v * v * v));
    dx[i] = (float)(dy[i] * (0.5 * (1 + t) + 0.5 * v * (1 - t * t) * GELU_C * (1 + 3 * GELU_A * v * v)));
  }
  return ATOLL_OK;
}

static atoll_err ref_residual_forward(int threads, const float *x, const float *z, float *y, int64_t B, int64_t inner,
                                      const atoll_drop *drop) {
  (void)threads;
  for (int64_t b = 0; b < B; b++) {
    atoll_rng_key key = drop_key(drop, b);
    for (int64_t i = 0; i < inner; i++)
      y[b * inner + i] = (float)(x[b * inner + i] + keep(drop, &key, i) * z[b * inner + i]);
  }
  return ATOLL_OK;
}

static atoll_err ref_drop_backward(int threads, const float *dy, float *dz, int64_t B, int64_t inner,
                                   const atoll_drop *drop) {
  (void)threads;
  for (int64_t b = 0; b < B; b++) {
    atoll_rng_key key = drop_key(drop, b);
    for (int64_t i = 0; i < inner; i++)
      dz[b * inner + i] = (float)(keep(drop, &key, i) * dy[b * inner + i]);
  }
  return ATOLL_OK;
}

static atoll_err ref_add(int threads, const float *x, float *y, int64_t n) {
  (void)threads;
  for (int64_t i = 0; i < n; i++)
    y[i] += x[i];
  return ATOLL_OK;
}

static atoll_err ref_embed_forward(int threads, const int32_t *tokens, const float *wte, const float *wpe, float *y,
                                   int64_t B, int64_t S, int64_t C, int64_t V, const atoll_drop *drop) {
  (void)threads;
  for (int64_t r = 0; r < B * S; r++)
    if (tokens[r] < 0 || tokens[r] >= V)
      return kernel_bad_token("token", r / S, r % S, tokens[r], V);
  for (int64_t b = 0; b < B; b++) {
    atoll_rng_key key = drop_key(drop, b);
    for (int64_t s = 0; s < S; s++)
      for (int64_t c = 0; c < C; c++)
        y[(b * S + s) * C + c] = (float)(keep(drop, &key, s * C + c) *
                                         ((double)wte[tokens[b * S + s] * C + c] + (wpe ? wpe[s * C + c] : 0)));
  }
  return ATOLL_OK;
}

static atoll_err ref_embed_backward_weight(int threads, const int32_t *tokens, const float *dy, float *dwte,
                                           float *dwpe, int64_t B, int64_t S, int64_t C, int64_t V,
                                           const atoll_drop *drop) {
  (void)threads;
  for (int64_t r = 0; r < B * S; r++)
    if (tokens[r] < 0 || tokens[r] >= V)
      return kernel_bad_token("token", r / S, r % S, tokens[r], V);
  for (int64_t b = 0; b < B; b++) {
    atoll_rng_key key = drop_key(drop, b);
    for (int64_t s = 0; s < S; s++)
      for (int64_t c = 0; c < C; c++) {
        float d = (float)(keep(drop, &key, s * C + c) * dy[(b * S + s) * C + c]);
        dwte[tokens[b * S + s] * C + c] += d;
        if (dwpe)
          dwpe[s * C + c] += d;
      }
  }
  return ATOLL_OK;
}

static atoll_err ref_cross_entropy(int threads, const float *logits, const int32_t *targets, float *loss,
                                   float *dlogits, float scale, int64_t R, int64_t V) {
  (void)threads;
  for (int64_t r = 0; r < R; r++)
    if (targets[r] < -1 || targets[r] >= V)
      return kernel_bad_token("target", r, -1, targets[r], V);
  for (int64_t r = 0; r < R; r++) {
    const float *x = logits + r * V;
    if (targets[r] < 0) {
      loss[r] = 0;
      if (dlogits)
        memset(dlogits + r * V, 0, (size_t)V * sizeof *dlogits);
      continue;
    }
    double max = -INFINITY, sum = 0;
    for (int64_t v = 0; v < V; v++)
      max = x[v] > max ? x[v] : max;
    for (int64_t v = 0; v < V; v++)
      sum += exp(x[v] - max);
    double lse = max + log(sum);
    loss[r] = (float)(lse - x[targets[r]]);
    if (dlogits)
      for (int64_t v = 0; v < V; v++)
        dlogits[r * V + v] = (float)((exp(x[v] - lse) - (v == targets[r])) * scale);
  }
  return ATOLL_OK;
}

static atoll_err ref_sum_squares(int threads, const float *x, int64_t n, double *out) {
  (void)threads;
  double sum = 0;
  for (int64_t i = 0; i < n; i++)
    sum += (double)x[i] * x[i];
  *out = sum;
  return ATOLL_OK;
}

static atoll_err ref_sum(int threads, const float *x, int64_t n, double *out) {
  (void)threads;
  double sum = 0;
  for (int64_t i = 0; i < n; i++)
    sum += x[i];
  *out = sum;
  return ATOLL_OK;
}

static atoll_err ref_adamw(int threads, float *w, const float *g, float *m, float *v, float *rounded, int64_t n,
                           const atoll_adamw *p) {
  (void)threads;
  for (int64_t i = 0; i < n; i++) {
    double d = (double)g[i] * p->grad_scale;
    double m1 = p->beta1 * (double)m[i] + (1 - (double)p->beta1) * d,
           v1 = p->beta2 * (double)v[i] + (1 - (double)p->beta2) * d * d;
    m[i] = (float)m1;
    v[i] = (float)v1;
    w[i] = (float)(w[i] - p->lr * (m1 / p->bias1 / (sqrt(v1 / p->bias2) + p->eps) + (double)p->decay * w[i]));
    if (rounded)
      rounded[i] = w[i];
  }
  return ATOLL_OK;
}

static atoll_err ref_copy_weights(int threads, const float *w, float *y, int64_t n, const atoll_rounding *r) {
  (void)threads, (void)r;
  memcpy(y, w, (size_t)n * sizeof *y);
  return ATOLL_OK;
}

#define M(name)      ref_##name
#define TABLE        kernels_ref
#define TABLE_NAME   "ref"
#define TABLE_DTYPE  ATOLL_F32
#define TABLE_DECODE &decode_ref
#define TABLE_KEEP   &keep_ref
#include "submit.inc"
