/* Gradients, dropout included, are the slopes of the loss: a forward pass in double, written out here from the formulas
 * of the model, is differenced centrally (error about 1e-9) and compared with the gradients of the cpu kernels.
 * Tolerance 3e-5 of a tensor's largest slope, as for the recorded references; masks come from the generator's
 * single-number function, keyed as layer.h and kernel.h state. */
#include "stage_test.h"

enum { L = 2, H = 20, A = 2, V = 23, C = 16, B = 2, S = 13, F = 4 * H, D = H / A, R = B * S };
#define DROP 0.25

static double *param[64]; /* by model index */

static double mask(double p, uint64_t sample, int layer, atoll_rng_site site, int64_t element) {
  if (p <= 0)
    return 1;
  atoll_rng_key key = {.seed = 9, .step = 3, .sample = sample, .layer = (uint32_t)layer, .site = site};
  return atoll_rng_bits(&key, (uint64_t)element) < (uint32_t)(p * 4294967296.0) ? 0 : 1 / (1 - p);
}

static void norm(const double *x, const double *g, const double *b, double *y) {
  double m = 0, v = 0;
  for (int i = 0; i < H; i++)
    m += x[i] / H;
  for (int i = 0; i < H; i++)
    v += (x[i] - m) * (x[i] - m) / H;
  for (int i = 0; i < H; i++)
    y[i] = (x[i] - m) / sqrt(v + 1e-5) * g[i] + b[i];
}

static void linear(const double *x, const double *w, const double *b, double *y, int in, int out) {
  for (int o = 0; o < out; o++) {
    y[o] = b[o];
    for (int i = 0; i < in; i++)
      y[o] += x[i] * w[o * in + i];
  }
}

/* Mean loss over the R tokens. */
static double loss(const int32_t *tokens, const int32_t *targets, double p) {
  static double x[R][H], n[H], qkv[R][3 * H], o[R][H], z[H], f[F], logits[V];
  for (int r = 0; r < R; r++)
    for (int i = 0; i < H; i++)
      x[r][i] = (param[0][tokens[r] * H + i] + param[1][r % S * H + i]) *
                mask(p, (uint64_t)(r / S), 0, ATOLL_RNG_DROP_EMBED, r % S * H + i);
  for (int l = 0; l < L; l++) {
    double **w = param + 2 + 12 * l;
    for (int r = 0; r < R; r++) {
      norm(x[r], w[0], w[1], n);
      linear(n, w[2], w[3], qkv[r], H, 3 * H);
    }
    for (int r = 0; r < R; r++)
      for (int h = 0; h < A; h++) {
        int b = r / S, q = r % S;
        double s[S], top = -1e300, sum = 0;
        for (int k = 0; k <= q; k++) {
          s[k] = 0;
          for (int d = 0; d < D; d++)
            s[k] += qkv[r][h * D + d] * qkv[b * S + k][H + h * D + d] / sqrt(D);
          top = fmax(top, s[k]);
        }
        for (int k = 0; k <= q; k++)
          sum += s[k] = exp(s[k] - top);
        for (int d = 0; d < D; d++)
          o[r][h * D + d] = 0;
        for (int k = 0; k <= q; k++)
          for (int d = 0; d < D; d++)
            o[r][h * D + d] += s[k] / sum * mask(p, (uint64_t)b, l + 1, ATOLL_RNG_DROP_ATTENTION, (h * S + q) * S + k) *
                               qkv[b * S + k][2 * H + h * D + d];
      }
    for (int r = 0; r < R; r++) {
      linear(o[r], w[4], w[5], z, H, H);
      for (int i = 0; i < H; i++)
        x[r][i] += z[i] * mask(p, (uint64_t)(r / S), l + 1, ATOLL_RNG_DROP_PROJ, r % S * H + i);
      norm(x[r], w[6], w[7], n);
      linear(n, w[8], w[9], f, H, F);
      for (int i = 0; i < F; i++)
        f[i] = 0.5 * f[i] * (1 + tanh(0.79788456080286535588 * (f[i] + 0.044715 * f[i] * f[i] * f[i])));
      linear(f, w[10], w[11], z, F, H);
      for (int i = 0; i < H; i++)
        x[r][i] += z[i] * mask(p, (uint64_t)(r / S), l + 1, ATOLL_RNG_DROP_MLP, r % S * H + i);
    }
  }
  double sum = 0;
  for (int r = 0; r < R; r++) {
    if (targets[r] < 0)
      continue;
    norm(x[r], param[2 + 12 * L], param[3 + 12 * L], n);
    double top = -1e300, e = 0;
    for (int v = 0; v < V; v++) {
      logits[v] = 0;
      for (int i = 0; i < H; i++)
        logits[v] += n[i] * param[0][v * H + i];
      top = fmax(top, logits[v]);
    }
    for (int v = 0; v < V; v++)
      e += exp(logits[v] - top);
    sum += log(e) + top - logits[targets[r]];
  }
  return sum / R;
}

/* The values the stage has, so that both see the same f32 numbers. */
static void copy(const atoll_model *m, int index, float *values, int64_t n) {
  (void)m;
  for (int64_t i = 0; i < n; i++) {
    if (n == H || n == 3 * H || n == F) /* biases and norms too: away from 0 and 1 */
      values[i] += 0.3f * (float)sin((double)(i + index));
    param[index][i] = values[i];
  }
}

static void slopes(double p) {
  const int whole[] = {0, L + 2};
  atoll_model *m = model_of(L, H, A, V, C, p);
  for (int i = 0; i < atoll_model_params_count(m); i++)
    param[i] = malloc((size_t)elements(atoll_model_param_at(m, i)) * sizeof(double));
  rig r = rig_open(m, "cpu", "cpu", 2, 0);
  result got = run_step(&r, whole, 1, ATOLL_POLICY_EXACT20, B, S, 1, copy);
  int32_t tokens[R], targets[R];
  ids(R, V, tokens, targets);
  double sum = 0, exact = loss(tokens, targets, p);
  for (int i = 0; i < R; i++)
    sum += got.loss[i];
  if (!(fabs(sum / R - exact) <= 2e-6 * exact))
    fail_msg("mean loss %.9g, in double %.12g", sum / R, exact);
  int64_t at = 0;
  for (int i = 0; i < atoll_model_params_count(m); i++) {
    const atoll_model_param *mp = atoll_model_param_at(m, i);
    int64_t n = elements(mp);
    double most = 0;
    for (int64_t e = 0; e < n; e++)
      most = fmax(most, fabs(got.grad[at + e]));
    assert_true(most > 1e-5);
    for (int k = 0; k < 8; k++) {
      int64_t e = (k * 7919 + i) % n;
      double old = param[i][e], step = 1e-5;
      param[i][e] = old + step;
      double up = loss(tokens, targets, p);
      param[i][e] = old - step;
      double down = loss(tokens, targets, p);
      param[i][e] = old;
      double slope = (up - down) / (2 * step);
      if (!(fabs(got.grad[at + e] - slope) <= 3e-5 * most + 1e-9))
        fail_msg("gradient of %s[%lld]: %.9g, slope %.9g, largest %.3g", mp->name, (long long)e, got.grad[at + e],
                 slope, most);
    }
    at += n;
  }
  for (int i = 0; i < atoll_model_params_count(m); i++)
    free(param[i]);
  result_free(&got);
  rig_close(&r);
  atoll_model_destroy(&m);
}

static void plain(void **state) {
  (void)state;
  slopes(0);
}

static void dropout(void **state) {
  (void)state;
  slopes(DROP);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(plain), cmocka_unit_test(dropout)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
