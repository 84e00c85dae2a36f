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
  const int64_t shapes[][3] = {{1, 1, 1},      {1, 7, 5},     {17, 33, 65}, {127, 50, 131},
                               {260, 64, 400}, {300, 31, 70}, {2, 800, 3}};
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
        OK(t->k->linear_backward_weight(t->queue, dy, x, dw[k], bias ? db[k] : NULL, R, I, O));
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
        OK(t->k->layernorm_forward(t->queue, x, gamma, beta, y[k], mean[k], rstd[k], R, C));
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

static void attention(void **state) {
  (void)state;
  const int64_t shapes[][4] = {{1, 1, 1, 8},    {2, 17, 3, 16}, {1, 64, 2, 64}, {2, 127, 2, 20},
                               {1, 130, 1, 64}, {1, 200, 2, 7}, {3, 65, 1, 100}};
  for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
    atoll_attention_shape a = {shapes[s][0], shapes[s][1], shapes[s][2], shapes[s][3], 1 / sqrtf((float)shapes[s][3])};
    int64_t R = a.B * a.S, H = a.heads * a.head_dim, L = a.B * a.heads * a.S;
    float *qkv = numbers(1, R * 3 * H, 2), *d_o = numbers(2, R * H, 1);
    for (int d = 0; d < 2; d++) {
      atoll_drop drop = {d ? 0.2f : 0,
                         {.seed = 5, .step = 6, .sample = 7, .layer = 8, .site = ATOLL_RNG_DROP_ATTENTION}};
      float *o[2], *lse[2], *dqkv[2], *delta[2];
      for (int k = 0; k < 2; k++) {
        struct bench *t = k ? &cpu : &ref;
        o[k] = numbers(3, R * H, 1), lse[k] = numbers(4, L, 1), dqkv[k] = numbers(5, R * 3 * H, 1),
        delta[k] = numbers(6, L, 1);
        OK(t->k->attention_forward(t->queue, qkv, o[k], lse[k], &a, d ? &drop : NULL));
        OK(t->k->attention_backward(t->queue, qkv, o[0], lse[0], d_o, dqkv[k], delta[k], &a, d ? &drop : NULL));
      }
      sync_both();
      close_to("attention o", o[1], o[0], R * H, 5e-6);
      close_to("attention lse", lse[1], lse[0], L, TOL);
      /* p = exp(score - lse): a score of size 20 is rounded by 1e-6, and the gradient is a difference of such terms */
      close_to("attention dqkv", dqkv[1], dqkv[0], R * 3 * H, 1e-5);
      for (int k = 0; k < 2; k++) {
        drop_numbers(o[k], R * H);
        drop_numbers(lse[k], L);
        drop_numbers(dqkv[k], R * 3 * H);
        drop_numbers(delta[k], L);
      }
    }
    drop_numbers(qkv, R * 3 * H);
    drop_numbers(d_o, R * H);
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
      OK(t->k->adamw(t->queue, w[k], g, m[k], v[k], n, &p));
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
  const struct CMUnitTest tests[] = {cmocka_unit_test(linear),        cmocka_unit_test(layernorm),
                                     cmocka_unit_test(attention),     cmocka_unit_test(elementwise),
                                     cmocka_unit_test(gelu_error),    cmocka_unit_test(embedding),
                                     cmocka_unit_test(cross_entropy), cmocka_unit_test(optimiser)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
