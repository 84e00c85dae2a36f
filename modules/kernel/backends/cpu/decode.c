/* Generating on the cpu: blocks of outputs, and pieces of the cache, go to threads. The pieces have a fixed size and
 * are put together in order, so the number of threads does not matter; without pieces a long text in one slot would
 * leave all but kv_heads threads idle. */
#include "cpu_impl.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "kernel_impl.h"

#define OUTPUTS INT64_C(32)    /* of one block */
#define PIECE   INT64_C(256)   /* positions */
#define SHARE   INT64_C(65536) /* multiply-adds, some ten microseconds: less is not worth another thread */

static int team(int threads, int64_t tasks, int64_t work) {
  int64_t most = work / SHARE + 1;
  most = most < tasks ? most : tasks;
  return most < threads ? (int)most : threads;
}

atoll_err cpu_decode_linear(int threads, const float *x, const float *w, const float *b, float *y, int64_t R, int64_t I,
                            int64_t O) {
  const struct cpu_vec *v = cpu_vec_best();
  int64_t blocks = (O + OUTPUTS - 1) / OUTPUTS;
#pragma omp parallel for num_threads(team(threads, blocks, R *I *O)) schedule(static)
  for (int64_t k = 0; k < blocks; k++) {
    int64_t o = k * OUTPUTS;
    v->decode_linear(x, w, b, y, R, I, O, o, O - o < OUTPUTS ? O - o : OUTPUTS);
  }
  return ATOLL_OK;
}

static atoll_err cpu_decode_rope(int threads, float *x, const atoll_rope *rope, int64_t heads, int64_t D,
                                 const int32_t *at, int64_t R) {
  const struct cpu_vec *v = cpu_vec_best();
  int64_t half = D / 2;
  double *frequency = malloc((size_t)(half + 1) * sizeof *frequency);
  float *turn = malloc((size_t)(2 * half + 1) * sizeof *turn); /* cosines, then sines */
  atoll_err err = frequency && turn ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "%lld rotary angles", (long long)half);
  (void)threads; /* a few microseconds */
  for (int64_t i = 0; i < half && err == ATOLL_OK; i++)
    frequency[i] = atoll_rope_frequency(rope, i, D);
  for (int64_t r = 0; r < R && err == ATOLL_OK; r++) {
    for (int64_t i = 0; i < half; i++) {
      turn[i] = (float)cos(frequency[i] * (double)at[r]);
      turn[half + i] = (float)sin(frequency[i] * (double)at[r]);
    }
    for (int64_t h = 0; h < heads; h++)
      v->rotate(x + (r * heads + h) * D, turn, turn + half, half);
  }
  free(frequency);
  free(turn);
  return err;
}

static atoll_err cpu_decode_store(int threads, const float *key, const float *value, const atoll_cache *c,
                                  const int32_t *slot, const int32_t *at, int64_t R) {
  int64_t D = c->head_dim, K = c->kv_heads, tasks = R * K;
  float *keys = c->keys, *values = c->values;
#pragma omp parallel for num_threads(team(threads, tasks, 2 * tasks * D)) schedule(static)
  for (int64_t k = 0; k < tasks; k++) {
    int64_t r = k / K, h = k % K, from = r * c->kv_row + h * D, to = ((slot[r] * K + h) * c->room + at[r]) * D;
    memcpy(keys + to, key + from, (size_t)D * sizeof *key);
    memcpy(values + to, value + from, (size_t)D * sizeof *value);
  }
  return ATOLL_OK;
}

/* Of one head and row: o = sum of exp(top_i - top) o_i / sum of exp(top_i - top) sum_i over pieces i. Numbers of a
 * piece: top and sum of each query head, then their values. */
static void together(const float *piece, int64_t pieces, int64_t stride, int64_t queries, int64_t g, int64_t D,
                     float *o) {
  float top = -INFINITY, sum = 0;
  for (int64_t i = 0; i < pieces; i++)
    top = fmaxf(top, piece[i * stride + g]);
  memset(o, 0, (size_t)D * sizeof *o);
  for (int64_t i = 0; i < pieces; i++) {
    const float *p = piece + i * stride, *v = p + 2 * queries + g * D, share = expf(p[g] - top);
    sum += share * p[queries + g];
    for (int64_t d = 0; d < D; d++)
      o[d] += share * v[d];
  }
  for (int64_t d = 0; d < D; d++)
    o[d] /= sum;
}

static atoll_err cpu_decode_attention(int threads, const float *query, float *o, const atoll_cache *c,
                                      const int32_t *slot, const int32_t *at, int64_t R) {
  const struct cpu_vec *v = cpu_vec_best();
  int64_t D = c->head_dim, K = c->kv_heads, queries = c->heads / K, most = 0;
  for (int64_t r = 0; r < R; r++) {
    int64_t live = at[r] + 1 - cache_first(c, at[r]);
    most = live > most ? live : most;
  }
  int64_t pieces = (most + PIECE - 1) / PIECE, stride = (2 + D) * queries, tasks = R * K * pieces;
  if (tasks == 0)
    return ATOLL_OK;
  threads = team(threads, tasks, 2 * R * c->heads * most * D);
  size_t room = (size_t)(tasks * stride + threads * queries * PIECE);
  float *part = malloc(room * sizeof *part), *score = part + tasks * stride;
  if (!part)
    return atoll_fail(ATOLL_NOMEM, "attention to %lld positions: %zu numbers", (long long)most, room);
#pragma omp parallel num_threads(threads)
  {
#pragma omp for schedule(dynamic, 1)
    for (int64_t k = 0; k < tasks; k++) {
      int64_t i = k % pieces, h = k / pieces % K, r = k / pieces / K, first = cache_first(c, at[r]) + i * PIECE;
      int64_t n = at[r] + 1 - first < PIECE ? at[r] + 1 - first : PIECE, head = (slot[r] * K + h) * c->room + first;
      float *to = part + k * stride;
      if (n > 0)
        v->decode_attention(query + r * c->q_row + h * queries * D, (const float *)c->keys + head * D,
                            (const float *)c->values + head * D, queries, n, D, c->scale,
                            score + omp_get_thread_num() * queries * PIECE, to, to + queries, to + 2 * queries);
    }
#pragma omp for schedule(static)
    for (int64_t k = 0; k < R * c->heads; k++) {
      int64_t r = k / c->heads, h = k % c->heads;
      int64_t mine = (at[r] - cache_first(c, at[r]) + PIECE) / PIECE;
      together(part + (r * K + h / queries) * pieces * stride, mine, stride, queries, h % queries, D, o + k * D);
    }
  }
  free(part);
  return ATOLL_OK;
}

#define D(name) cpu_decode_##name
#define DECODE  decode_cpu
#include "submit_decode.inc"
