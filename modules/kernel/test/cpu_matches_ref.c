/* Each cpu kernel agrees with the plain C oracle on random numbers and awkward sizes. Tolerances are relative to the
 * largest value of the result: f32 sums of K terms err by about sqrt(K) x 6e-8, here at most 1e-6 for K < 1000;
 * exponentials add 2e-7. */
#include "kernel_test.h"

#define TOL 2e-6

static struct bench ref, cpu;

static int setup(void **state) {
  (void)state;
  ref = bench_open("cpu", "ref", 1);
  cpu = bench_open("cpu", "cpu", 2);
  return 0;
}

static int teardown(void **state) {
  (void)state;
  bench_close(&ref);
  bench_close(&cpu);
  return 0;
}

static void sync_both(void) {
  OK(atoll_queue_sync(ref.queue));
  OK(atoll_queue_sync(cpu.queue));
}

static void linear(void **state) {
  (void)state;
  /* around the edges of tiles (6 x 16), tasks (96 x 384), inner parts (512) and blocks (3072) of packed products */
  const int64_t shapes[][3] = {{1, 1, 1},      {1, 7, 5},      {17, 33, 65},   {127, 50, 131},
                               {260, 64, 400}, {300, 31, 70},  {2, 800, 3},    {96, 48, 96},
                               {97, 513, 50},  {513, 40, 385}, {3073, 33, 32}, {33, 33, 3073}};
  for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
    int64_t R = shapes[s][0], I = shapes[s][1], O = shapes[s][2];
    float *x = numbers(1, R * I, 1), *w = numbers(2, O * I, 1), *b = numbers(3, O, 1), *dy = numbers(4, R * O, 1);
    for (int bias = 0; bias < 2; bias++) {
      float *y[2] = {numbers(5, R * O, 1), numbers(5, R * O, 1)}, *dx[2] = {numbers(6, R * I, 1), numbers(6, R * I, 1)};
      float *dw[2] = {numbers(7, O * I, 1), numbers(7, O * I, 1)}, *db[2] = {numbers(8, O, 1), numbers(8, O, 1)};
      for (int k = 0; k < 2; k++) {
        struct bench *t = k ? &cpu : &ref;
        OK(t->k->linear_forward(t->queue, x, w, bias ? b : NULL, y[k], R, I, O));
        OK(t->k->linear_backward_input(t->queue, dy, w, dx[k], R, I, O, bias)); /* and so accumulate both ways */
        OK(t->k->linear_backward_weight(t->queue, dy, x, dw[k], bias ? db[k] : NULL, R, I, O, (bias + (int)s) % 2));
      }
      sync_both();
      close_to("linear y", y[1], y[0], R * O, TOL);
      close_to("linear dx", dx[1], dx[0], R * I, TOL);
      close_to("linear dw", dw[1], dw[0], O * I, TOL);
      close_to("linear db", db[1], db[0], O, TOL);
      for (int k = 0; k < 2; k++) {
        drop_numbers(y[k], R * O);
        drop_numbers(dx[k], R * I);
        drop_numbers(dw[k], O * I);
        drop_numbers(db[k], O);
      }
    }
    drop_numbers(x, R * I);
    drop_numbers(w, O * I);
    drop_numbers(b, O);
    drop_numbers(dy, R * O);
  }
}

static void layernorm(void **state) {
  (void)state;
  const int64_t shapes[][2] = {{1, 1}, {1, 17}, {17, 64}, {127, 50}, {33, 768}, {70, 131}, {5, 15}};
  for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
    int64_t R = shapes[s][0], C = shapes[s][1];
    float *x = numbers(1, R * C, 3), *gamma = numbers(2, C, 1), *beta = numbers(3, C, 1), *dy = numbers(4, R * C, 1);
    for (int64_t i = 0; i < R * C; i++)
      x[i] += 5; /* a mean much larger than rounding */
    for (int accumulate = 0; accumulate < 2; accumulate++) {
      float *y[2], *mean[2], *rstd[2], *dx[2], *dg[2], *db[2], *again = numbers(9, R * C, 0);
      for (int k = 0; k < 2; k++) {
        struct bench *t = k ? &cpu : &ref;
        y[k] = numbers(5, R * C, 1), mean[k] = numbers(6, R, 1), rstd[k] = numbers(6, R, 1);
        dx[k] = numbers(7, R * C, 1), dg[k] = numbers(8, C, 1), db[k] = numbers(8, C, 1);
        OK(t->k->layernorm_forward(t->queue, x, gamma, beta, y[k], mean[k], rstd[k], R, C, 1e-5f));
        OK(t->k->layernorm_backward_input(t->queue, dy, x, mean[0], rstd[0], gamma, dx[k], R, C, accumulate));
        OK(t->k->layernorm_backward_weight(t->queue, dy, x, mean[0], rstd[0], dg[k], db[k], R, C));
      }
      OK(cpu.k->layernorm_apply(cpu.queue, x, mean[1], rstd[1], gamma, beta, again, R, C));
      sync_both();
      same_bits("layernorm apply", again, y[1], (size_t)(R * C) * 4);
      close_to("layernorm y", y[1], y[0], R * C, C == 1 ? 1 : 5e-6); /* (x - mean) loses the digits of the mean */
      close_to("layernorm mean", mean[1], mean[0], R, TOL);
      close_to("layernorm rstd", rstd[1], rstd[0], R, 5e-6);
      if (C > 1) /* of one column it is exactly 0, and a difference of large numbers */
        close_to("layernorm dx", dx[1], dx[0], R * C, 5e-6);
      close_to("layernorm dgamma", dg[1], dg[0], C, 5e-6);
      close_to("layernorm dbeta", db[1], db[0], C, TOL);
      for (int k = 0; k < 2; k++) {
        drop_numbers(y[k], R * C);
        drop_numbers(mean[k], R);
        drop_numbers(rstd[k], R);
        drop_numbers(dx[k], R * C);
        drop_numbers(dg[k], C);
        drop_numbers(db[k], C);
      }
      drop_numbers(again, R * C);
    }
    drop_numbers(x, R * C);
    drop_numbers(gamma, C);
    drop_numbers(beta, C);
    drop_numbers(dy, R * C);
  }
}

/* One shape by both backends: queries, keys and values packed apart, or in one array when `joined`. */
static void attend(const atoll_attention_shape *shape, int joined, const atoll_drop *drop) {
  atoll_attention_shape a = *shape;
  int64_t H = a.heads * a.head_dim, K = (a.kv_heads ? a.kv_heads : a.heads) * a.head_dim;
  int64_t R = a.B * a.S, L = a.B * a.heads * a.S, n = R * (H + 2 * K);
  int64_t key = joined ? H : R * H, value = joined ? H + K : R * (H + K);
  if (joined)
    a.q_row = a.kv_row = H + 2 * K;
  float *qkv = numbers(1, n, 2), *d_o = numbers(2, R * H, 1);
  float *o[2], *lse[2], *g[2], *delta[2];
  for (int k = 0; k < 2; k++) {
    struct bench *t = k ? &cpu : &ref;
    o[k] = numbers(3, R * H, 1), lse[k] = numbers(4, L, 1), g[k] = numbers(5, n, 1), delta[k] = numbers(6, L, 1);
    OK(t->k->attention_forward(t->queue, qkv, qkv + key, qkv + value, o[k], lse[k], &a, drop));
    OK(t->k->attention_backward(t->queue, qkv, qkv + key, qkv + value, o[0], lse[0], d_o, g[k], g[k] + key,
                                g[k] + value, delta[k], &a, drop));
  }
  sync_both();
  close_to("attention o", o[1], o[0], R * H, 5e-6);
  close_to("attention lse", lse[1], lse[0], L, TOL);
  /* p = exp(score - lse): a score of size 20 is rounded by 1e-6, and the gradient is a difference of such terms */
  close_to("attention gradient", g[1], g[0], n, 1e-5);
  for (int k = 0; k < 2; k++) {
    drop_numbers(o[k], R * H);
    drop_numbers(lse[k], L);
    drop_numbers(g[k], n);
    drop_numbers(delta[k], L);
  }
  drop_numbers(qkv, n);
  drop_numbers(d_o, R * H);
}

static void attention(void **state) {
  (void)state;
  const int64_t shapes[][5] = {{1, 1, 1, 8, 1},    {2, 17, 3, 16, 3}, {1, 64, 2, 64, 1},  {2, 127, 4, 20, 2},
                               {1, 130, 1, 64, 1}, {1, 200, 2, 7, 2}, {3, 65, 3, 100, 1}, {2, 128, 6, 16, 2}};
  const int32_t lengths[][3] = {{1, 1, 1},  {17, 5, 1}, {64, 1, 1},  {127, 64, 1},
                                {66, 1, 1}, {3, 1, 1},  {65, 1, 64}, {1, 128, 1}};
  atoll_drop drop = {0.2f, {.seed = 5, .step = 6, .sample = 7, .layer = 8, .site = ATOLL_RNG_DROP_ATTENTION}};
  for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
    for (int kind = 0; kind < 16; kind++) {
      atoll_attention_shape a = {.B = shapes[s][0],
                                 .S = shapes[s][1],
                                 .heads = shapes[s][2],
                                 .head_dim = shapes[s][3],
                                 .scale = 1 / sqrtf((float)shapes[s][3]),
                                 .kv_heads = kind & 1 ? shapes[s][4] : 0,
                                 .both_ways = kind >> 1 & 1,
                                 .lengths = kind & 4 ? lengths[s] : NULL};
      attend(&a, kind & 1, kind & 8 ? &drop : NULL);
    }
}

/* What is padding cannot be seen: other keys there give the same bits, and no gradient reaches them. */
static void padding(void **state) {
  (void)state;
  enum { S = 80, D = 12 };
  const int32_t lengths[] = {70};
  for (int k = 0; k < 2; k++)
    for (int both = 0; both < 2; both++) {
      struct bench *t = k ? &cpu : &ref;
      atoll_attention_shape a = {
          .B = 1, .S = S, .heads = 1, .head_dim = D, .scale = 0.3f, .both_ways = both, .lengths = lengths};
      float *q = numbers(1, S * D, 1), *key = numbers(2, S * D, 1), *v = numbers(3, S * D, 1), lse[S], delta[S];
      float *o[2] = {numbers(4, S * D, 0), numbers(4, S * D, 0)}, *g = numbers(5, 3 * S * D, 1);
      for (int i = 0; i < 2; i++) {
        OK(t->k->attention_forward(t->queue, q, key, v, o[i], lse, &a, NULL));
        OK(atoll_queue_sync(t->queue));
        for (int e = 70 * D; e < S * D; e++)
          key[e] = 1e3f, v[e] = -1e3f;
      }
      same_bits("attention beside padding", o[0], o[1], sizeof(float) * S * D);
      OK(t->k->attention_backward(t->queue, q, key, v, o[0], lse, q, g, g + S * D, g + 2 * S * D, delta, &a, NULL));
      OK(atoll_queue_sync(t->queue));
      for (int e = 70 * D; e < S * D; e++)
        assert_true(g[S * D + e] == 0 && g[2 * S * D + e] == 0);
      drop_numbers(q, S * D);
      drop_numbers(key, S * D);
      drop_numbers(v, S * D);
      drop_numbers(o[0], S * D);
      drop_numbers(o[1], S * D);
      drop_numbers(g, 3 * S * D);
    }
}

static void rmsnorm(void **state) {
  (void)state;
  const int64_t shapes[][2] = {{1, 1}, {1, 17}, {17, 64}, {127, 50}, {33, 768}, {70, 131}, {5, 15}};
  for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
    for (int accumulate = 0; accumulate < 2; accumulate++) {
      int64_t R = shapes[s][0], C = shapes[s][1];
      float *x = numbers(1, R * C, 3), *gamma = numbers(2, C, 1), *dy = numbers(4, R * C, 1);
      float *y[2], *rstd[2], *dx[2], *dg[2], *again = numbers(9, R * C, 0);
      for (int k = 0; k < 2; k++) {
        struct bench *t = k ? &cpu : &ref;
        y[k] = numbers(5, R * C, 1), rstd[k] = numbers(6, R, 1), dx[k] = numbers(7, R * C, 1), dg[k] = numbers(8, C, 1);
        OK(t->k->rmsnorm_forward(t->queue, x, gamma, y[k], rstd[k], R, C, 0.01f));
        OK(t->k->rmsnorm_backward_input(t->queue, dy, x, rstd[0], gamma, dx[k], R, C, accumulate));
        OK(t->k->rmsnorm_backward_weight(t->queue, dy, x, rstd[0], dg[k], R, C));
      }
      OK(cpu.k->rmsnorm_apply(cpu.queue, x, rstd[1], gamma, again, R, C));
      sync_both();
      same_bits("rmsnorm apply", again, y[1], (size_t)(R * C) * 4);
      close_to("rmsnorm y", y[1], y[0], R * C, 2e-6);
      close_to("rmsnorm rstd", rstd[1], rstd[0], R, 2e-6);
      close_to("rmsnorm dx", dx[1], dx[0], R * C, C == 1 ? 1e-4 : 5e-6);
      close_to("rmsnorm dgamma", dg[1], dg[0], C, 5e-6);
      for (int k = 0; k < 2; k++) {
        drop_numbers(y[k], R * C);
        drop_numbers(rstd[k], R);
        drop_numbers(dx[k], R * C);
        drop_numbers(dg[k], C);
      }
      drop_numbers(again, R * C);
      drop_numbers(x, R * C);
      drop_numbers(gamma, C);
      drop_numbers(dy, R * C);
    }
}

/* Both backends turn alike, backwards undoes it, and position 0 and lengths stay. */
static void rotary(void **state) {
  (void)state;
  const int64_t shapes[][4] = {{1, 1, 1, 2}, {2, 17, 3, 10}, {1, 127, 2, 64}, {2, 40, 1, 34}};
  for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
    for (int scaled = 0; scaled < 2; scaled++) {
      int64_t B = shapes[s][0], S = shapes[s][1], heads = shapes[s][2], D = shapes[s][3], n = B * S * heads * D;
      atoll_rope rope = {.theta = 1000};
      if (scaled)
        rope = (atoll_rope){.theta = 500000, .factor = 8, .low = 1, .high = 4, .context = 16};
      float *x = numbers(1, n, 1), *y[2] = {copy_of(x, n), copy_of(x, n)};
      for (int k = 0; k < 2; k++) {
        struct bench *t = k ? &cpu : &ref;
        OK(t->k->rope(t->queue, y[k], B, S, heads, D, &rope, 0));
      }
      sync_both();
      close_to("rope", y[1], y[0], n, 5e-7);
      same_bits("rope at position 0", y[1], x, (size_t)(heads * D) * 4);
      assert_true(S == 1 || fabsf(y[1][heads * D] - x[heads * D]) > 1e-4f);
      OK(cpu.k->rope(cpu.queue, y[1], B, S, heads, D, &rope, 1));
      OK(ref.k->rope(ref.queue, y[0], B, S, heads, D, &rope, 1));
      sync_both();
      close_to("rope and back", y[1], x, n, 1e-6);
      close_to("rope and back", y[0], x, n, 1e-6);
      drop_numbers(x, n);
      drop_numbers(y[0], n);
      drop_numbers(y[1], n);
    }
}

/* Llama 3's scaling at its three kinds of frequency, by the turn of the second position. */
static void rotary_scaling(void **state) {
  (void)state;
  enum { D = 8 };
  const atoll_rope rope = {.theta = 10000, .factor = 32, .low = 1, .high = 4, .context = 128};
  float x[2 * D] = {0};
  for (int i = 0; i < D / 2; i++)
    x[D + i] = 1;
  OK(ref.k->rope(ref.queue, x, 1, 2, 1, D, &rope, 0));
  OK(atoll_queue_sync(ref.queue));
  /* frequencies 1, 0.1, 0.01, 0.001 turn 20.4, 2.04, 0.20 and 0.02 times in 128 positions */
  double turns = 12.8 / 6.283185307179586, mix = (turns - 1) / 3;
  const double want[] = {1, 0.1 * (mix + (1 - mix) / 32), 0.01 / 32, 0.001 / 32};
  for (int i = 0; i < 4; i++)
    assert_true(fabs(atan2(x[D + D / 2 + i], x[D + i]) - want[i]) <= 1e-6 * want[i]);
}

static void gates(void **state) {
  (void)state;
  const int64_t sizes[] = {1, 7, 16, 33, 1000, 20000};
  for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
    int64_t n = sizes[s];
    float *x = numbers(1, n, 4), *u = numbers(2, n, 1), *dy = numbers(3, n, 1), *y[2][7];
    x[n - 1] = -40, x[n / 2] = 95; /* where exp is 0 or infinite */
    for (int k = 0; k < 2; k++) {
      struct bench *t = k ? &cpu : &ref;
      for (int i = 0; i < 7; i++)
        y[k][i] = copy_of(dy, n);
      OK(t->k->swiglu_forward(t->queue, x, u, y[k][0], n));
      OK(t->k->swiglu_backward(t->queue, y[k][1], x, u, y[k][1], y[k][2], n)); /* dx in place of dy */
      OK(t->k->tanh_forward(t->queue, u, y[k][3], n));
      OK(t->k->tanh_backward(t->queue, dy, y[0][3], y[k][4], n));
      OK(t->k->gelu_erf_forward(t->queue, x, y[k][5], n));
      OK(t->k->gelu_erf_backward(t->queue, y[k][6], x, y[k][6], n));
      OK(atoll_queue_sync(t->queue));
    }
    const char *const names[] = {"swiglu",        "swiglu dx",   "swiglu dup",          "tanh",
                                 "tanh gradient", "gelu by erf", "gelu by erf gradient"};
    for (int i = 0; i < 7; i++) {
      close_to(names[i], y[1][i], y[0][i], n, 1e-6);
      drop_numbers(y[0][i], n);
      drop_numbers(y[1][i], n);
    }
    drop_numbers(x, n);
    drop_numbers(u, n);
    drop_numbers(dy, n);
  }
}

static void rows_apart(void **state) {
  (void)state;
  float x[3][5], *y[2] = {numbers(4, 3 * 7, 1), numbers(4, 3 * 7, 1)}, loss[2][6] = {{0}};
  for (int i = 0; i < 15; i++)
    x[i / 5][i % 5] = (float)i;
  for (int k = 0; k < 2; k++) {
    struct bench *t = k ? &cpu : &ref;
    OK(t->k->rows(t->queue, x, 5, y[k], 7, 3, 5, 0));
    OK(t->k->rows(t->queue, x, 5, y[k] + 1, 7, 3, 4, 1));
    OK(t->k->add_scaled(t->queue, x[0], loss[k], 2, 3, 0.5f));
    OK(t->k->add_scaled(t->queue, x[0], loss[k], 2, 3, 1));
  }
  sync_both();
  same_bits("rows", y[0], y[1], 4 * 21);
  assert_true(y[0][7] == 5 && y[0][8] == 6 + 5 && y[0][11] == 9 + 8);
  for (int k = 0; k < 2; k++)
    for (int i = 0; i < 6; i++)
      assert_true(loss[k][i] == (i % 2 ? 0 : 1.5f * (float)(i / 2)));
  drop_numbers(y[0], 21);
  drop_numbers(y[1], 21);
}

/* Of eight rows five have a target; two lists of three have room for them and one more. */
static void rows_by_number(void **state) {
  (void)state;
  const int32_t targets[8] = {-1, 4, 0, -1, 9, 9, -1, 1};
  const int32_t index[2][3] = {{1, 2, 4}, {5, 7, -1}}, picked[2][3] = {{4, 0, 9}, {9, 1, -1}};
  for (int k = 0; k < 4; k++) { /* both tables, both halves */
    struct bench *t = k % 2 ? &cpu : &ref;
    int half = k / 2;
    int32_t at[3], ids[3];
    float x[8][5], y[3][5], back[8][5];
    for (int i = 0; i < 40; i++)
      x[i / 5][i % 5] = (float)i, back[i / 5][i % 5] = -1;
    OK(t->k->pick(t->queue, targets, 8, 5, 3 * half, 3, at, ids));
    OK(t->k->gather(t->queue, x, at, y, 3, sizeof y[0]));
    OK(t->k->scatter(t->queue, y, at, back, 3, sizeof y[0]));
    OK(atoll_queue_sync(t->queue));
    assert_memory_equal(at, index[half], sizeof at);
    assert_memory_equal(ids, picked[half], sizeof ids);
    for (int i = 0; i < 3; i++)
      for (int c = 0; c < 5; c++)
        assert_true(y[i][c] == (at[i] < 0 ? 0 : x[at[i]][c]));
    for (int r = 0; r < 8; r++)
      for (int c = 0, listed = r == at[0] || r == at[1] || r == at[2]; c < 5; c++)
        assert_true(back[r][c] == (listed ? x[r][c] : -1));
    atoll_err err = t->k->pick(t->queue, targets, 8, 4, 0, 3, at, ids); /* one more than announced */
    assert_int_equal(err == ATOLL_OK ? atoll_queue_sync(t->queue) : err, ATOLL_USAGE);
    (void)atoll_queue_sync(t->queue);
  }
}

static void elementwise(void **state) {
  (void)state;
  const int64_t sizes[] = {1, 7, 16, 33, 1000, 20000};
  for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
    int64_t n = sizes[s], B = 3;
    float *x = numbers(1, B * n, 2), *z = numbers(2, B * n, 1);
    for (int d = 0; d < 2; d++) {
      atoll_drop drop = {d ? 0.3f : 0, {.seed = 5, .step = 6, .sample = 7, .layer = 8, .site = ATOLL_RNG_DROP_MLP}};
      float *y[2][5];
      for (int k = 0; k < 2; k++) {
        struct bench *t = k ? &cpu : &ref;
        for (int i = 0; i < 5; i++)
          y[k][i] = copy_of(x, B * n);
        OK(t->k->gelu_forward(t->queue, x, y[k][0], B * n));
        OK(t->k->gelu_backward(t->queue, z, x, y[k][1], B * n));
        OK(t->k->residual_forward(t->queue, x, z, y[k][2], B, n, &drop));
        OK(t->k->drop_backward(t->queue, y[k][3], y[k][3], B, n, &drop));
        OK(t->k->add(t->queue, z, y[k][4], B * n));
      }
      sync_both();
      const char *const names[] = {"gelu", "gelu gradient", "residual", "drop gradient", "add"};
      for (int i = 0; i < 5; i++) {
        close_to(names[i], y[1][i], y[0][i], B * n, 1e-6);
        drop_numbers(y[0][i], B * n);
        drop_numbers(y[1][i], B * n);
      }
    }
    drop_numbers(x, B * n);
    drop_numbers(z, B * n);
  }
}

/* Each value on its own scale, over the whole range where GELU is neither 0 nor x. */
static void gelu_error(void **state) {
  (void)state;
  int64_t n = 200001;
  float *x = numbers(1, n, 0), *y = numbers(1, n, 0), *one = numbers(1, n, 0), *g = numbers(1, n, 0);
  for (int64_t i = 0; i < n; i++) {
    x[i] = -10 + 20 * (float)i / (float)(n - 1);
    one[i] = 1;
  }
  OK(cpu.k->gelu_forward(cpu.queue, x, y, n));
  OK(cpu.k->gelu_backward(cpu.queue, one, x, g, n));
  OK(atoll_queue_sync(cpu.queue));
  for (int64_t i = 0; i < n; i++) {
    double v = x[i], u = 0.79788456080286535588 * (v + 0.044715 * v * v * v), t = tanh(u);
    double exact = v / (1 + exp(-2 * u)),
           slope = 0.5 * (1 + t) + 0.5 * v * (1 - t * t) * 0.79788456080286535588 * (1 + 3 * 0.044715 * v * v);
    double limit = v > -3 ? 1e-6 * fabs(exact) + 1e-30 : 5e-7 * fabs(v);
    if (!(fabs(y[i] - exact) <= limit))
      fail_msg("gelu(%.9g) = %.9g, expected %.12g within %g", v, y[i], exact, limit);
    if (!(fabs(g[i] - slope) <= 1e-6))
      fail_msg("gelu'(%.9g) = %.9g, expected %.12g within 1e-6", v, g[i], slope);
  }
  drop_numbers(x, n);
  drop_numbers(y, n);
  drop_numbers(one, n);
  drop_numbers(g, n);
}

/* The same for the form by the error function. */
static void gelu_erf_error(void **state) {
  (void)state;
  int64_t n = 200001;
  float *x = numbers(1, n, 0), *y = numbers(1, n, 0), *one = numbers(1, n, 0), *g = numbers(1, n, 0);
  for (int64_t i = 0; i < n; i++) {
    x[i] = -30 + 60 * (float)i / (float)(n - 1);
    one[i] = 1;
  }
  OK(cpu.k->gelu_erf_forward(cpu.queue, x, y, n));
  OK(cpu.k->gelu_erf_backward(cpu.queue, one, x, g, n));
  OK(atoll_queue_sync(cpu.queue));
  for (int64_t i = 0; i < n; i++) {
    double v = x[i], phi = 0.5 * erfc(-v * 0.70710678118654752440);
    double slope = phi + v * exp(-0.5 * v * v) * 0.39894228040143267794;
    if (!(fabs(y[i] - v * phi) <= (v > -3 ? 1e-6 * fabs(v * phi) + 1e-30 : 5e-7 * fabs(v))))
      fail_msg("gelu(%.9g) = %.9g, expected %.12g", v, y[i], v * phi);
    if (!(fabs(g[i] - slope) <= 1e-6))
      fail_msg("gelu'(%.9g) = %.9g, expected %.12g within 1e-6", v, g[i], slope);
  }
  drop_numbers(x, n);
  drop_numbers(y, n);
  drop_numbers(one, n);
  drop_numbers(g, n);
}

static void embedding(void **state) {
  (void)state;
  int64_t B = 3, S = 17, V = 11;
  const int64_t widths[] = {1, 20, 64, 130};
  for (size_t s = 0; s < sizeof widths / sizeof widths[0]; s++) {
    int64_t C = widths[s];
    int32_t tokens[51];
    for (int i = 0; i < 51; i++)
      tokens[i] = (i * i + 3) % 11;
    float *wte = numbers(1, V * C, 1), *wpe = numbers(2, S * C, 1), *dy = numbers(3, B * S * C, 1);
    for (int d = 0; d < 2; d++) {
      atoll_drop drop = {d ? 0.3f : 0, {.seed = 5, .step = 6, .sample = 7, .site = ATOLL_RNG_DROP_EMBED}};
      float *y[2], *dwte[2], *dwpe[2];
      for (int k = 0; k < 2; k++) {
        struct bench *t = k ? &cpu : &ref;
        y[k] = numbers(4, B * S * C, 1), dwte[k] = numbers(5, V * C, 1), dwpe[k] = numbers(6, S * C, 1);
        OK(t->k->embed_forward(t->queue, tokens, wte, wpe, y[k], B, S, C, V, &drop));
        OK(t->k->embed_backward_weight(t->queue, tokens, dy, dwte[k], dwpe[k], B, S, C, V, &drop));
        float *alone = numbers(7, B * S * C, 1); /* without positions */
        OK(t->k->embed_forward(t->queue, tokens, wte, NULL, alone, B, S, C, V, NULL));
        OK(t->k->embed_backward_weight(t->queue, tokens, dy, dwte[k], NULL, B, S, C, V, &drop));
        OK(atoll_queue_sync(t->queue));
        for (int64_t r = 0; r < B * S; r++)
          same_bits("embedding alone", alone + r * C, wte + tokens[r] * C, (size_t)C * 4);
        drop_numbers(alone, B * S * C);
      }
      sync_both();
      close_to("embedding", y[1], y[0], B * S * C, TOL);
      close_to("embedding dwte", dwte[1], dwte[0], V * C, TOL);
      close_to("embedding dwpe", dwpe[1], dwpe[0], S * C, TOL);
      for (int k = 0; k < 2; k++) {
        drop_numbers(y[k], B * S * C);
        drop_numbers(dwte[k], V * C);
        drop_numbers(dwpe[k], S * C);
      }
    }
    drop_numbers(wte, V * C);
    drop_numbers(wpe, S * C);
    drop_numbers(dy, B * S * C);
  }
}

static void cross_entropy(void **state) {
  (void)state;
  const int64_t shapes[][2] = {{1, 1}, {5, 17}, {3, 256}, {2, 50257}, {17, 65}};
  for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
    int64_t R = shapes[s][0], V = shapes[s][1];
    int32_t targets[17];
    for (int i = 0; i < 17; i++)
      targets[i] = i == 1 ? -1 : (int32_t)((i * 7919) % V);
    float *x = numbers(1, R * V, 4), *loss[2] = {numbers(2, R, 1), numbers(2, R, 1)},
          *d[2] = {numbers(3, R * V, 1), copy_of(x, R * V)};
    float *only = numbers(2, R, 1);
    OK(ref.k->cross_entropy(ref.queue, x, targets, loss[0], d[0], 0.25f, R, V));
    OK(cpu.k->cross_entropy(cpu.queue, d[1], targets, loss[1], d[1], 0.25f, R, V)); /* in place */
    OK(cpu.k->cross_entropy(cpu.queue, x, targets, only, NULL, 0, R, V));
    sync_both();
    close_to("loss", loss[1], loss[0], R, TOL);
    close_to("loss without gradient", only, loss[0], R, TOL);
    close_to("dlogits", d[1], d[0], R * V, V == 1 ? 1 : TOL);
    for (int k = 0; k < 2; k++) {
      drop_numbers(loss[k], R);
      drop_numbers(d[k], R * V);
    }
    drop_numbers(only, R);
    drop_numbers(x, R * V);
  }
}

static void optimiser(void **state) {
  (void)state;
  const int64_t sizes[] = {1, 17, 1000, 40000};
  for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
    int64_t n = sizes[s];
    float *g = numbers(2, n, 1), *w[2], *m[2], *v[2];
    double squares[2], sum[2];
    atoll_adamw p = {.lr = 1e-2f,
                     .beta1 = 0.9f,
                     .beta2 = 0.95f,
                     .eps = 1e-8f,
                     .decay = 0.1f,
                     .grad_scale = 0.5f,
                     .bias1 = 0.19f,
                     .bias2 = 0.0975f};
    for (int k = 0; k < 2; k++) {
      struct bench *t = k ? &cpu : &ref;
      w[k] = numbers(1, n, 1), m[k] = numbers(3, n, 0.1f), v[k] = numbers(4, n, 0.1f);
      for (int64_t i = 0; i < n; i++)
        v[k][i] = fabsf(v[k][i]);
      OK(t->k->adamw(t->queue, w[k], g, m[k], v[k], NULL, n, &p));
      OK(t->k->sum_squares(t->queue, g, n, &squares[k]));
      OK(t->k->sum(t->queue, g, n, &sum[k]));
    }
    sync_both();
    close_to("adamw w", w[1], w[0], n, 1e-6);
    close_to("adamw m", m[1], m[0], n, 1e-6);
    close_to("adamw v", v[1], v[0], n, 1e-6);
    assert_true(fabs(squares[1] - squares[0]) <= 1e-12 * squares[0]); /* doubles in another order */
    assert_true(sum[1] == sum[0]);
    for (int k = 0; k < 2; k++) {
      drop_numbers(w[k], n);
      drop_numbers(m[k], n);
      drop_numbers(v[k], n);
    }
    drop_numbers(g, n);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(linear),         cmocka_unit_test(layernorm),   cmocka_unit_test(attention),
      cmocka_unit_test(padding),        cmocka_unit_test(rmsnorm),     cmocka_unit_test(rotary),
      cmocka_unit_test(rotary_scaling), cmocka_unit_test(gates),       cmocka_unit_test(rows_apart),
      cmocka_unit_test(rows_by_number), cmocka_unit_test(elementwise), cmocka_unit_test(gelu_error),
      cmocka_unit_test(gelu_erf_error), cmocka_unit_test(embedding),   cmocka_unit_test(cross_entropy),
      cmocka_unit_test(optimiser)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
