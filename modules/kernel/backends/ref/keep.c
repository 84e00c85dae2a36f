/* The oracle's kernels of memory policies, in double. The slope of GELU is found by solving root(x) = t for x, so that
 * polynomials of faster backends have something to be held against. */
#include "atoll/kernel_keep.h"

#include <math.h>

#include "kernel_impl.h"
#include "ref_keep.h"

static atoll_err ref_keep_drop_mask(int threads, uint8_t *mask, int64_t B, int64_t inner, const atoll_drop *drop) {
  (void)threads;
  for (int64_t b = 0; b < B; b++) {
    atoll_rng_key key = drop_key(drop, b);
    for (int64_t i = 0; i < inner; i++)
      mask[b * inner + i] = atoll_rng_bits(&key, (uint64_t)i) >= drop_threshold(drop->p);
  }
  return ATOLL_OK;
}

static atoll_err ref_keep_drop_backward(int threads, const float *dy, const uint8_t *mask, float *dz, int64_t n,
                                        float p) {
  (void)threads;
  for (int64_t i = 0; i < n; i++)
    dz[i] = mask[i] ? (float)((double)dy[i] * drop_scale(p)) : 0;
  return ATOLL_OK;
}

/* ---- norms ---- */

static atoll_err ref_keep_normalize(int threads, const float *x, float *hat, float *rstd, int64_t R, int64_t C,
                                    float eps, int rms) {
  (void)threads;
  for (int64_t r = 0; r < R; r++) {
    double mean = 0, squares = 0;
    for (int64_t c = 0; c < C && !rms; c++)
      mean += x[r * C + c] / (double)C;
    for (int64_t c = 0; c < C; c++)
      squares += (x[r * C + c] - mean) * (x[r * C + c] - mean);
    double scale = 1 / sqrt(squares / (double)C + eps);
    rstd[r] = (float)scale;
    for (int64_t c = 0; c < C; c++)
      hat[r * C + c] = (float)((x[r * C + c] - mean) * scale);
  }
  return ATOLL_OK;
}

static atoll_err ref_keep_affine(int threads, const float *hat, const float *gamma, const float *beta, float *y,
                                 int64_t R, int64_t C, int rms) {
  (void)threads;
  for (int64_t i = 0; i < R * C; i++)
    y[i] = (float)((double)hat[i] * gamma[i % C] + (rms ? 0 : beta[i % C]));
  return ATOLL_OK;
}

static atoll_err ref_keep_norm_backward_input(int threads, const float *dy, const float *hat, const float *rstd,
                                              const float *gamma, float *dx, int64_t R, int64_t C, int rms,
                                              int accumulate) {
  (void)threads;
  for (int64_t r = 0; r < R; r++) {
    const float *d = dy + r * C, *h = hat + r * C;
    double g = 0, gh = 0;
    for (int64_t c = 0; c < C; c++) {
      g += rms ? 0 : (double)d[c] * gamma[c] / (double)C;
      gh += (double)d[c] * gamma[c] * h[c] / (double)C;
    }
    for (int64_t c = 0; c < C; c++) {
      double v = rstd[r] * ((double)d[c] * gamma[c] - g - h[c] * gh);
      dx[r * C + c] = (float)(accumulate ? dx[r * C + c] + v : v);
    }
  }
  return ATOLL_OK;
}

static atoll_err ref_keep_norm_backward_weight(int threads, const float *dy, const float *hat, float *dgamma,
                                               float *dbeta, int64_t R, int64_t C, int rms) {
  (void)threads;
  for (int64_t c = 0; c < C; c++) {
    double dg = dgamma[c], db = rms ? 0 : dbeta[c];
    for (int64_t r = 0; r < R; r++) {
      dg += (double)dy[r * C + c] * hat[r * C + c];
      db += dy[r * C + c];
    }
    dgamma[c] = (float)dg;
    if (!rms)
      dbeta[c] = (float)db;
  }
  return ATOLL_OK;
}

/* ---- GELU by its root ---- */

static const double tanh_c = 0.797884560802865355880, tanh_a = 0.044715; /* sqrt(2 / pi) */

static double gelu(double x, int by_erf) {
  return 0.5 * x * (by_erf ? erfc(-x * M_SQRT1_2) : 1 + tanh(tanh_c * (x + tanh_a * x * x * x)));
}

static double slope(double x, int by_erf) {
  if (by_erf)
    return 0.5 * erfc(-x * M_SQRT1_2) + 0.5 * tanh_c * x * exp(-0.5 * x * x);
  double t = tanh(tanh_c * (x + tanh_a * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * tanh_c * (1 + 3 * tanh_a * x * x);
}

typedef struct lowest {
  double x, y;
  int by_erf;
} lowest;

enum { HALVINGS = 80 };

/* Where the slope changes its sign. */
static lowest lowest_of(int by_erf) {
  double low = -1, high = -0.5;
  for (int i = 0; i < HALVINGS; i++) {
    double x = (low + high) / 2;
    *(slope(x, by_erf) < 0 ? &low : &high) = x;
  }
  return (lowest){low, gelu(low, by_erf), by_erf};
}

static double root(const lowest *m, double x) {
  double d = gelu(x, m->by_erf) - m->y, t = sqrt(d > 0 ? d : 0);
  return x < m->x ? -t : t;
}

/* root() rises everywhere; GELU is below x, so t^2 + 1 is beyond its inverse, and nothing is left below -64. */
static double unroot(const lowest *m, double t) {
  double low = -64, high = t * t + 1;
  for (int i = 0; i < HALVINGS; i++) {
    double x = (low + high) / 2;
    *(root(m, x) < t ? &low : &high) = x;
  }
  return low;
}

static atoll_err ref_keep_gelu_root(int threads, const float *x, float *t, int64_t n, int by_erf) {
  (void)threads;
  lowest m = lowest_of(by_erf);
  for (int64_t i = 0; i < n; i++)
    t[i] = (float)(root(&m, x[i]) + 0.0 * x[i]); /* what is not finite stays that */
  return ATOLL_OK;
}

static atoll_err ref_keep_gelu_of_root(int threads, const float *t, float *y, int64_t n, int by_erf) {
  (void)threads;
  lowest m = lowest_of(by_erf);
  for (int64_t i = 0; i < n; i++)
    y[i] = (float)((double)t[i] * t[i] + m.y);
  return ATOLL_OK;
}

static atoll_err ref_keep_gelu_root_backward(int threads, const float *dy, const float *t, float *dx, int64_t n,
                                             int by_erf) {
  (void)threads;
  lowest m = lowest_of(by_erf);
  for (int64_t i = 0; i < n; i++)
    dx[i] = (float)(dy[i] * (slope(unroot(&m, t[i]), by_erf) + 0.0 * t[i]));
  return ATOLL_OK;
}

/* ---- 8 bits ---- */

static atoll_err ref_keep_pack8(int threads, const float *x, uint8_t *code, float *scale, int64_t R, int64_t C) {
  (void)threads;
  for (int64_t r = 0; r < R; r++) {
    double most = 0, odd = 0;
    for (int64_t c = 0; c < C; c++) {
      most = fmax(most, fabs(x[r * C + c]));
      odd += 0.0 * x[r * C + c];
    }
    scale[r] = (float)(most / 127 + odd);
    for (int64_t c = 0; c < C; c++)
      code[r * C + c] = (uint8_t)(128 + (most > 0 && odd == 0 ? lround(x[r * C + c] * 127 / most) : 0));
  }
  return ATOLL_OK;
}

static atoll_err ref_keep_unpack8(int threads, const uint8_t *code, const float *scale, float *x, int64_t R,
                                  int64_t C) {
  (void)threads;
  for (int64_t r = 0; r < R; r++)
    for (int64_t c = 0; c < C; c++)
      x[r * C + c] = (float)((double)(code[r * C + c] - 128) * scale[r]);
  return ATOLL_OK;
}

#define K(name)    ref_keep_##name
#define KEEP_TABLE keep_ref
#include "submit_keep.inc"
