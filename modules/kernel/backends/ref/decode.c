/* The oracle of generating: plain loops, sums in double. */
#include "atoll/kernel.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernel_impl.h"

static atoll_err ref_decode_linear(int threads, const float *x, const float *w, const float *b, float *y, int64_t R,
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

static atoll_err ref_decode_rope(int threads, float *x, const atoll_rope *rope, int64_t heads, int64_t D,
                                 const int32_t *at, int64_t R) {
  (void)threads;
  for (int64_t i = 0; i < D / 2; i++)
    for (int64_t r = 0; r < R; r++) {
      double angle = atoll_rope_frequency(rope, i, D) * (double)at[r], c = cos(angle), s = sin(angle);
      for (int64_t h = 0; h < heads; h++) {
        float *p = x + (r * heads + h) * D + i;
        double a = p[0], b = p[D / 2];
        p[0] = (float)(a * c - b * s);
        p[D / 2] = (float)(b * c + a * s);
      }
    }
  return ATOLL_OK;
}

static atoll_err ref_decode_store(int threads, const float *key, const float *value, const atoll_cache *c,
                                  const int32_t *slot, const int32_t *at, int64_t R) {
  int64_t D = c->head_dim, K = c->kv_heads;
  float *keys = c->keys, *values = c->values;
  (void)threads;
  for (int64_t r = 0; r < R; r++)
    for (int64_t h = 0; h < K; h++) {
      int64_t from = r * c->kv_row + h * D, to = ((slot[r] * K + h) * c->room + at[r]) * D;
      memcpy(keys + to, key + from, (size_t)D * sizeof *key);
      memcpy(values + to, value + from, (size_t)D * sizeof *value);
    }
  return ATOLL_OK;
}

static void one_head(const float *q, const float *keys, const float *values, const atoll_cache *c, int64_t n,
                     double *score, float *o) {
  int64_t D = c->head_dim;
  double top = -INFINITY, sum = 0;
  for (int64_t t = 0; t < n; t++) {
    score[t] = 0;
    for (int64_t d = 0; d < D; d++)
      score[t] += (double)q[d] * keys[t * D + d];
    score[t] *= c->scale;
    top = score[t] > top ? score[t] : top;
  }
  for (int64_t t = 0; t < n; t++) {
    score[t] = exp(score[t] - top);
    sum += score[t];
  }
  for (int64_t d = 0; d < D; d++) {
    double v = 0;
    for (int64_t t = 0; t < n; t++)
      v += score[t] * values[t * D + d];
    o[d] = (float)(v / sum);
  }
}

static atoll_err ref_decode_attention(int threads, const float *query, float *o, const atoll_cache *c,
                                      const int32_t *slot, const int32_t *at, int64_t R) {
  int64_t D = c->head_dim, K = c->kv_heads;
  double *score = malloc((size_t)c->room * sizeof *score);
  (void)threads;
  if (!score)
    return atoll_fail(ATOLL_NOMEM, "scores of %lld positions", (long long)c->room);
  for (int64_t r = 0; r < R; r++)
    for (int64_t h = 0; h < c->heads; h++) {
      int64_t head = (slot[r] * K + h / (c->heads / K)) * c->room * D, first = cache_first(c, at[r]);
      head += first * D;
      one_head(query + r * c->q_row + h * D, (const float *)c->keys + head, (const float *)c->values + head, c,
               at[r] + 1 - first, score, o + (r * c->heads + h) * D);
    }
  free(score);
  return ATOLL_OK;
}

#define D(name) ref_decode_##name
#define DECODE  decode_ref
#include "submit_decode.inc"
