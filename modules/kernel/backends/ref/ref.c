/* The oracle: each kernel as the plainest loop, one thread, sums in double, rounded once where a value is stored. It is
 * never tuned; faster backends are compared with it. */
#include "atoll/kernel.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernel_impl.h"

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

static atoll_err ref_linear_backward_weight(int threads, const float *dy, const float *x, float *dw, float *db,
                                            int64_t R, int64_t I, int64_t O) {
  (void)threads;
  for (int64_t o = 0; o < O; o++) {
    for (int64_t i = 0; i < I; i++) {
      double sum = dw[o * I + i];
      for (int64_t r = 0; r < R; r++)
        sum += (double)dy[r * O + o] * x[r * I + i];
      dw[o * I + i] = (float)sum;
    }
    if (db) {
      double sum = db[o];
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
                                       float *mean, float *rstd, int64_t R, int64_t C) {
  for (int64_t r = 0; r < R; r++) {
    double sum = 0, squares = 0;
    for (int64_t c = 0; c < C; c++)
      sum += x[r * C + c];
    sum /= (double)C;
    for (int64_t c = 0; c < C; c++)
      squares += (x[r * C + c] - sum) * (x[r * C + c] - sum);
    mean[r] = (float)sum;
    rstd[r] = (float)(1 / sqrt(squares / (double)C + 1e-5));
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

/* What multiplies a probability: 0 when dropped, 1 / (1 - p) when kept. */
static double keep(const atoll_drop *drop, const atoll_rng_key *key, int64_t element) {
  if (drop->p <= 0)
    return 1;
  return atoll_rng_bits(key, (uint64_t)element) < drop_threshold(drop->p) ? 0 : drop_scale(drop->p);
}

/* row[k] = scale q.k for k <= query. */
static void scores(const float *qkv, const atoll_attention_shape *s, int64_t b, int64_t h, int64_t query, double *row) {
  int64_t H = s->heads * s->head_dim, D = s->head_dim;
  const float *q = qkv + (b * s->S + query) * 3 * H + h * D;
  for (int64_t k = 0; k <= query; k++) {
    const float *kk = qkv + (b * s->S + k) * 3 * H + H + h * D;
    double sum = 0;
    for (int64_t d = 0; d < D; d++)
      sum += (double)q[d] * kk[d];
    row[k] = s->scale * sum;
  }
}

static atoll_err ref_attention_forward(int threads, const float *qkv, float *o, float *lse,
                                       const atoll_attention_shape *s, const atoll_drop *drop) {
  (void)threads;
  int64_t H = s->heads * s->head_dim, D = s->head_dim;
  double *row = malloc((size_t)(s->S + 1) * sizeof *row);
  if (!row)
    return atoll_fail(ATOLL_NOMEM, "no memory for a row of %lld scores", (long long)s->S);
  for (int64_t b = 0; b < s->B; b++) {
    atoll_rng_key key = drop_key(drop, b);
    for (int64_t h = 0; h < s->heads; h++)
      for (int64_t q = 0; q < s->S; q++) {
        scores(qkv, s, b, h, q, row);
        double max = -INFINITY, sum = 0;
        for (int64_t k = 0; k <= q; k++)
          max = row[k] > max ? row[k] : max;
        for (int64_t k = 0; k <= q; k++)
          sum += exp(row[k] - max);
        lse[(b * s->heads + h) * s->S + q] = (float)(max + log(sum));
        for (int64_t k = 0; k <= q; k++)
          row[k] = exp(row[k] - max) / sum * keep(drop, &key, (h * s->S + q) * s->S + k);
        for (int64_t d = 0; d < D; d++) {
          double acc = 0;
          for (int64_t k = 0; k <= q; k++)
            acc += row[k] * qkv[(b * s->S + k) * 3 * H + 2 * H + h * D + d];
          o[(b * s->S + q) * H + h * D + d] = (float)acc;
        }
      }
  }
  free(row);
  return ATOLL_OK;
}

/* With P the probabilities, M the scaled mask: O = (P M) V, dP = (dO V^T) M, delta = sum_k P dP = dO . O, dS = P (dP -
 * delta). */
static atoll_err ref_attention_backward(int threads, const float *qkv, const float *o, const float *lse,
                                        const float *d_o, float *dqkv, float *delta, const atoll_attention_shape *s,
                                        const atoll_drop *drop) {
  (void)threads;
  int64_t H = s->heads * s->head_dim, D = s->head_dim, S = s->S;
  double *row = malloc((size_t)(S + 1 + 2 * S * D) * sizeof *row);
  if (!row)
    return atoll_fail(ATOLL_NOMEM, "no memory for the sums of a head of %lld tokens", (long long)S);
  double *dk = row + S + 1, *dv = dk + S * D;
  for (int64_t b = 0; b < s->B; b++) {
    atoll_rng_key key = drop_key(drop, b);
    for (int64_t h = 0; h < s->heads; h++) {
      memset(dk, 0, (size_t)(2 * S * D) * sizeof *dk);
      for (int64_t q = 0; q < S; q++) {
        const float *doq = d_o + (b * S + q) * H + h * D, *oq = o + (b * S + q) * H + h * D;
        const float *qq = qkv + (b * S + q) * 3 * H + h * D;
        double sum = 0;
        for (int64_t d = 0; d < D; d++)
          sum += (double)doq[d] * oq[d];
        delta[(b * s->heads + h) * S + q] = (float)sum;
        scores(qkv, s, b, h, q, row);
        for (int64_t k = 0; k <= q; k++) {
          const float *vk = qkv + (b * S + k) * 3 * H + 2 * H + h * D;
          double p = exp(row[k] - lse[(b * s->heads + h) * S + q]), m = keep(drop, &key, (h * S + q) * S + k), dp = 0;
          for (int64_t d = 0; d < D; d++) {
            dp += (double)doq[d] * vk[d];
            dv[k * D + d] += p * m * doq[d];
          }
          row[k] = p * (dp * m - sum) * s->scale;
          for (int64_t d = 0; d < D; d++)
            dk[k * D + d] += row[k] * qq[d];
        }
        for (int64_t d = 0; d < D; d++) {
          double dq = 0;
          for (int64_t k = 0; k <= q; k++)
            dq += row[k] * qkv[(b * S + k) * 3 * H + H + h * D + d];
          dqkv[(b * S + q) * 3 * H + h * D + d] = (float)dq;
        }
      }
      for (int64_t k = 0; k < S; k++)
        for (int64_t d = 0; d < D; d++) {
          dqkv[(b * S + k) * 3 * H + H + h * D + d] = (float)dk[k * D + d];
          dqkv[(b * S + k) * 3 * H + 2 * H + h * D + d] = (float)dv[k * D + d];
        }
    }
  }
  free(row);
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
        y[(b * S + s) * C + c] =
            (float)(keep(drop, &key, s * C + c) * ((double)wte[tokens[b * S + s] * C + c] + wpe[s * C + c]));
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

static atoll_err ref_adamw(int threads, float *w, const float *g, float *m, float *v, int64_t n, const atoll_adamw *p) {
  (void)threads;
  for (int64_t i = 0; i < n; i++) {
    double d = (double)g[i] * p->grad_scale;
    double m1 = p->beta1 * (double)m[i] + (1 - (double)p->beta1) * d,
           v1 = p->beta2 * (double)v[i] + (1 - (double)p->beta2) * d * d;
    m[i] = (float)m1;
    v[i] = (float)v1;
    w[i] = (float)(w[i] - p->lr * (m1 / p->bias1 / (sqrt(v1 / p->bias2) + p->eps) + (double)p->decay * w[i]));
  }
  return ATOLL_OK;
}

#define M(name)     ref_##name
#define TABLE       kernels_ref
#define TABLE_NAME  "ref"
#define TABLE_DTYPE ATOLL_F32
#include "submit.inc"
