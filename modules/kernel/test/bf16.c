/* Kernels on bf16 agree with the oracle in double on the same numbers. What is stored in bf16 is rounded once, by half
 * a unit of 8 bits, which is up to 1/256 of the value; cutting instead would be up to 1/128. Tolerance is 1/256, and
 * 1/100 where a kernel stores a number twice. What stays float agrees as closely as in f32. */
#include "atoll/kernel_keep.h"
#include "kernel_test.h"

#define ONCE  (1.0 / 256)
#define TWICE (1.0 / 100)

static struct bench ref, cpu;

static int setup(void **state) {
  (void)state;
  ref = bench_open("cpu", "ref", 1);
  cpu = bench_open("cpu", "cpu:bf16", 2);
  return 0;
}

static int teardown(void **state) {
  (void)state;
  bench_close(&ref);
  bench_close(&cpu);
  return 0;
}

/* The same numbers for both: floats that are bf16 values, and those in bf16. */
typedef struct both {
  float *f;
  uint16_t *h;
  int64_t n;
} both;

static float wide(uint16_t h) {
  uint32_t bits = (uint32_t)h << 16;
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}

#define KEPT 32
static both made[KEPT];
static int makes;

static both make(uint64_t what, int64_t n, float std) {
  both x = {numbers(what, n, std), malloc((size_t)(n + 1) * 2), n};
  assert_non_null(x.h);
  x.h[n] = 0x1234;
  for (int64_t i = 0; i < n; i++) {
    uint32_t bits;
    memcpy(&bits, &x.f[i], sizeof bits);
    x.h[i] = (uint16_t)(bits >> 16);
    x.f[i] = wide(x.h[i]);
  }
  assert_in_range(makes, 0, KEPT - 1);
  return made[makes++] = x;
}

static void sync_both(void) {
  OK(atoll_queue_sync(ref.queue));
  OK(atoll_queue_sync(cpu.queue));
}

static void done(void) {
  while (makes > 0) {
    both *x = &made[--makes];
    assert_int_equal(x->h[x->n], 0x1234);
    drop_numbers(x->f, x->n);
    free(x->h);
  }
}

/* Rounding is relative to the number itself; sums err relative to their terms, so to the largest. */
static void check(const char *what, both x, double tolerance) {
  double largest = 1e-30;
  for (int64_t i = 0; i < x.n; i++)
    largest = fabs((double)x.f[i]) > largest ? fabs((double)x.f[i]) : largest;
  for (int64_t i = 0; i < x.n; i++)
    if (!(fabs((double)wide(x.h[i]) - x.f[i]) <= tolerance * fabs((double)x.f[i]) + 1e-5 * largest))
      fail_msg("%s[%lld of %lld]: %.9g, expected %.9g", what, (long long)i, (long long)x.n, wide(x.h[i]), x.f[i]);
}

/* Sums of terms that were rounded themselves. */
static void check_sum(const char *what, both x, double tolerance) {
  float *h = numbers(1, x.n, 1);
  for (int64_t i = 0; i < x.n; i++)
    h[i] = wide(x.h[i]);
  close_to(what, h, x.f, x.n, tolerance);
  drop_numbers(h, x.n);
}

#define RUN(call_ref, call_cpu)                                                                                        \
  do {                                                                                                                 \
    OK(ref.k->call_ref);                                                                                               \
    OK(cpu.k->call_cpu);                                                                                               \
    sync_both();                                                                                                       \
  } while (0)

static void linear(void **state) {
  (void)state;
  const int64_t shapes[][3] = {{1, 1, 1}, {17, 33, 65}, {127, 50, 131}, {97, 1030, 50}, {70, 31, 400}, {6, 16, 3080}};
  for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
    int64_t R = shapes[s][0], I = shapes[s][1], O = shapes[s][2];
    both x = make(1, R * I, 1), w = make(2, O * I, 1), b = make(3, O, 1), y = make(4, R * O, 1), dy = make(5, R * O, 1);
    RUN(linear_forward(ref.queue, x.f, w.f, b.f, y.f, R, I, O), linear_forward(cpu.queue, x.h, w.h, b.h, y.h, R, I, O));
    check("linear y", y, ONCE);
    for (int accumulate = 0; accumulate < 2; accumulate++) {
      both dx = make(6, R * I, 1);
      RUN(linear_backward_input(ref.queue, dy.f, w.f, dx.f, R, I, O, accumulate),
          linear_backward_input(cpu.queue, dy.h, w.h, dx.h, R, I, O, accumulate));
      check("linear dx", dx, ONCE);
    }
    float *part[2] = {numbers(9, R * O, 1), numbers(9, R * O, 1)},
          *back[2] = {numbers(10, R * I, 1), numbers(10, R * I, 1)};
    RUN(linear_forward_part(ref.queue, x.f, w.f, part[0], R, I, O),
        linear_forward_part(cpu.queue, x.h, w.h, part[1], R, I, O));
    close_to("part of y", part[1], part[0], R * O, 2e-6);
    RUN(linear_backward_input_part(ref.queue, dy.f, w.f, back[0], R, I, O),
        linear_backward_input_part(cpu.queue, dy.h, w.h, back[1], R, I, O));
    close_to("part of dx", back[1], back[0], R * I, 2e-6);
    for (int accumulate = 0; accumulate < 2; accumulate++) { /* the whole product, rounded once */
      both z = make(11, R * O, 1);
      RUN(round_sum(ref.queue, part[0], b.f, z.f, R, O, accumulate),
          round_sum(cpu.queue, part[1], b.h, z.h, R, O, accumulate));
      check("rounded sum", z, ONCE);
    }
    for (int i = 0; i < 2; i++)
      drop_numbers(part[i], R * O), drop_numbers(back[i], R * I);
    float *dw[2] = {numbers(7, O * I, 1), numbers(7, O * I, 1)}, *db[2] = {numbers(8, O, 1), numbers(8, O, 1)};
    RUN(linear_backward_weight(ref.queue, dy.f, x.f, dw[0], db[0], R, I, O, s % 2),
        linear_backward_weight(cpu.queue, dy.h, x.h, dw[1], db[1], R, I, O, s % 2));
    close_to("linear dw", dw[1], dw[0], O * I, 2e-6);
    close_to("linear db", db[1], db[0], O, 2e-6);
    for (int k = 0; k < 2; k++) {
      drop_numbers(dw[k], O * I);
      drop_numbers(db[k], O);
    }
    done();
  }
}

static void norms(void **state) {
  (void)state;
  const int64_t shapes[][2] = {{17, 64}, {127, 50}, {33, 768}, {5, 131}};
  for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
    int64_t R = shapes[s][0], C = shapes[s][1];
    both x = make(1, R * C, 3), gamma = make(2, C, 1), beta = make(3, C, 1), y = make(4, R * C, 1),
         dy = make(5, R * C, 1), dx = make(6, R * C, 1), z = make(7, R * C, 1), dz = make(8, R * C, 1);
    float *mean[2], *rstd[2], *dg[2], *db[2];
    for (int k = 0; k < 2; k++)
      mean[k] = numbers(9, R, 1), rstd[k] = numbers(9, R, 1), dg[k] = numbers(10, C, 1), db[k] = numbers(10, C, 1);
    RUN(layernorm_forward(ref.queue, x.f, gamma.f, beta.f, y.f, mean[0], rstd[0], R, C, 1e-5f),
        layernorm_forward(cpu.queue, x.h, gamma.h, beta.h, y.h, mean[1], rstd[1], R, C, 1e-5f));
    check("layernorm y", y, ONCE);
    close_to("layernorm mean", mean[1], mean[0], R, 5e-6);
    close_to("layernorm rstd", rstd[1], rstd[0], R, 5e-6);
    RUN(layernorm_backward_input(ref.queue, dy.f, x.f, mean[0], rstd[0], gamma.f, dx.f, R, C, 1),
        layernorm_backward_input(cpu.queue, dy.h, x.h, mean[0], rstd[0], gamma.h, dx.h, R, C, 1));
    check("layernorm dx", dx, ONCE);
    RUN(layernorm_backward_weight(ref.queue, dy.f, x.f, mean[0], rstd[0], dg[0], db[0], R, C),
        layernorm_backward_weight(cpu.queue, dy.h, x.h, mean[0], rstd[0], dg[1], db[1], R, C));
    close_to("layernorm dgamma", dg[1], dg[0], C, 5e-6);
    close_to("layernorm dbeta", db[1], db[0], C, 5e-6);
    RUN(rmsnorm_forward(ref.queue, x.f, gamma.f, z.f, rstd[0], R, C, 1e-5f),
        rmsnorm_forward(cpu.queue, x.h, gamma.h, z.h, rstd[1], R, C, 1e-5f));
    check("rmsnorm y", z, ONCE);
    RUN(rmsnorm_backward_input(ref.queue, dy.f, x.f, rstd[0], gamma.f, dz.f, R, C, 0),
        rmsnorm_backward_input(cpu.queue, dy.h, x.h, rstd[0], gamma.h, dz.h, R, C, 0));
    check("rmsnorm dx", dz, ONCE);
    RUN(rmsnorm_backward_weight(ref.queue, dy.f, x.f, rstd[0], dg[0], R, C),
        rmsnorm_backward_weight(cpu.queue, dy.h, x.h, rstd[0], dg[1], R, C));
    close_to("rmsnorm dgamma", dg[1], dg[0], C, 5e-6);
    for (int k = 0; k < 2; k++) {
      drop_numbers(mean[k], R);
      drop_numbers(rstd[k], R);
      drop_numbers(dg[k], C);
      drop_numbers(db[k], C);
    }
    done();
  }
}

static void attention(void **state) {
  (void)state;
  const int64_t lengths[] = {1, 17, 127};
  for (int i = 0; i < 3; i++) {
    int64_t B = 2, S = lengths[i], heads = 4, kv = 2, D = 22, R = B * S;
    atoll_attention_shape s = {.B = B,
                               .S = S,
                               .heads = heads,
                               .kv_heads = kv,
                               .head_dim = D,
                               .q_row = heads * D,
                               .kv_row = kv * D,
                               .scale = 0.2f};
    atoll_drop drop = {0.1f, {.seed = 1, .step = 2, .sample = 3, .layer = 4, .site = ATOLL_RNG_DROP_ATTENTION}};
    both q = make(1, R * heads * D, 1), k = make(2, R * kv * D, 1), v = make(3, R * kv * D, 1),
         o = make(4, R * heads * D, 1), d_o = make(5, R * heads * D, 1), dq = make(6, R * heads * D, 1),
         dk = make(7, R * kv * D, 1), dv = make(8, R * kv * D, 1);
    float *lse[2], *delta[2];
    for (int j = 0; j < 2; j++)
      lse[j] = numbers(9, B * heads * S, 1), delta[j] = numbers(9, B * heads * S, 1);
    RUN(attention_forward(ref.queue, q.f, k.f, v.f, o.f, lse[0], &s, &drop),
        attention_forward(cpu.queue, q.h, k.h, v.h, o.h, lse[1], &s, &drop));
    check("attention o", o, ONCE);
    close_to("attention lse", lse[1], lse[0], B * heads * S, 5e-6);
    for (int64_t n = 0; n < o.n; n++) /* both from the same o */
      o.f[n] = wide(o.h[n]);
    RUN(attention_backward(ref.queue, q.f, k.f, v.f, o.f, lse[0], d_o.f, dq.f, dk.f, dv.f, delta[0], &s, &drop),
        attention_backward(cpu.queue, q.h, k.h, v.h, o.h, lse[0], d_o.h, dq.h, dk.h, dv.h, delta[1], &s, &drop));
    check("attention dq", dq, ONCE);
    check("attention dk", dk, ONCE);
    check("attention dv", dv, ONCE);
    for (int j = 0; j < 2; j++) {
      drop_numbers(lse[j], B * heads * S);
      drop_numbers(delta[j], B * heads * S);
    }
    done();
  }
}

/* Kernels of memory policies. Both backends go on from what cpu kept, so that each is judged by itself. */
static void same_from(both x) {
  for (int64_t i = 0; i < x.n; i++)
    x.f[i] = wide(x.h[i]);
}

static void kept_norms(void **state) {
  (void)state;
  const int64_t shapes[][2] = {{17, 64}, {127, 50}, {5, 131}};
  for (size_t s = 0; s < 3; s++)
    for (int rms = 0; rms < 2; rms++) {
      int64_t R = shapes[s][0], C = shapes[s][1];
      both x = make(1, R * C, 3), hat = make(2, R * C, 1), gamma = make(3, C, 1), beta = make(4, C, 1),
           y = make(5, R * C, 1), dy = make(6, R * C, 1), dx = make(7, R * C, 0);
      float *rstd[2] = {numbers(8, R, 1), numbers(8, R, 1)}, *dg[2] = {numbers(9, C, 1), numbers(9, C, 1)},
            *db[2] = {numbers(10, C, 1), numbers(10, C, 1)};
      RUN(keep->normalize(ref.queue, x.f, hat.f, rstd[0], R, C, 1e-5f, rms),
          keep->normalize(cpu.queue, x.h, hat.h, rstd[1], R, C, 1e-5f, rms));
      check("normalized", hat, ONCE);
      close_to("deviation", rstd[1], rstd[0], R, 5e-6);
      same_from(hat);
      RUN(keep->affine(ref.queue, hat.f, gamma.f, beta.f, y.f, R, C, rms),
          keep->affine(cpu.queue, hat.h, gamma.h, beta.h, y.h, R, C, rms));
      check("affine", y, ONCE);
      RUN(keep->norm_backward_input(ref.queue, dy.f, hat.f, rstd[0], gamma.f, dx.f, R, C, rms, 0),
          keep->norm_backward_input(cpu.queue, dy.h, hat.h, rstd[0], gamma.h, dx.h, R, C, rms, 0));
      check("gradient from what is normalized", dx, TWICE);
      RUN(keep->norm_backward_weight(ref.queue, dy.f, hat.f, dg[0], db[0], R, C, rms),
          keep->norm_backward_weight(cpu.queue, dy.h, hat.h, dg[1], db[1], R, C, rms));
      close_to("dgamma", dg[1], dg[0], C, 5e-6);
      close_to("dbeta", db[1], db[0], C, 5e-6);
      for (int k = 0; k < 2; k++) {
        drop_numbers(rstd[k], R);
        drop_numbers(dg[k], C);
        drop_numbers(db[k], C);
      }
      done();
    }
}

static void kept_elements(void **state) {
  (void)state;
  enum { R = 11, C = 131, N = R * C };
  both x = make(1, N, 4), t = make(2, N, 0), y = make(3, N, 0), dy = make(4, N, 1), dx = make(5, N, 0),
       z = make(6, N, 0);
  for (int erf = 0; erf < 2; erf++) {
    RUN(keep->gelu_root(ref.queue, x.f, t.f, N, erf), keep->gelu_root(cpu.queue, x.h, t.h, N, erf));
    check("root", t, ONCE);
    same_from(t);
    RUN(keep->gelu_of_root(ref.queue, t.f, y.f, N, erf), keep->gelu_of_root(cpu.queue, t.h, y.h, N, erf));
    check("gelu of root", y, ONCE);
    RUN(keep->gelu_root_backward(ref.queue, dy.f, t.f, dx.f, N, erf),
        keep->gelu_root_backward(cpu.queue, dy.h, t.h, dx.h, N, erf));
    check("gradient from root", dx, ONCE);
  }
  static uint8_t mask[2][N], code[2][N];
  float scale[2][R];
  atoll_drop drop = {0.3f, {.seed = 1, .step = 2, .sample = 3, .layer = 4, .site = ATOLL_RNG_DROP_MLP}};
  RUN(keep->drop_mask(ref.queue, mask[0], R, C, &drop), keep->drop_mask(cpu.queue, mask[1], R, C, &drop));
  assert_memory_equal(mask[0], mask[1], N);
  RUN(keep->drop_backward(ref.queue, dy.f, mask[0], dx.f, N, 0.3f),
      keep->drop_backward(cpu.queue, dy.h, mask[0], dx.h, N, 0.3f));
  check("gradient by mask", dx, ONCE);
  RUN(keep->pack8(ref.queue, x.f, code[0], scale[0], R, C), keep->pack8(cpu.queue, x.h, code[1], scale[1], R, C));
  close_to("scale of 8 bits", scale[1], scale[0], R, 1e-6);
  for (int i = 0; i < N; i++)
    assert_in_range(code[1][i] - code[0][i] + 1, 0, 2); /* ties */
  RUN(keep->unpack8(ref.queue, code[1], scale[1], z.f, R, C), keep->unpack8(cpu.queue, code[1], scale[1], z.h, R, C));
  check("8 bits", z, ONCE);
  for (int i = 0; i < N; i++)
    assert_true(fabs((double)wide(z.h[i]) - wide(x.h[i])) <=
                0.50001 * scale[1][i / C] + fabs((double)wide(x.h[i])) / 256);
  done();
}

static void kept_attention(void **state) {
  (void)state;
  const int64_t lengths[] = {1, 17, 127};
  for (int i = 0; i < 3; i++)
    for (int masks = 0; masks < 2; masks++) {
      int64_t B = 2, S = lengths[i], heads = 4, kv = 2, D = 22, n = B * S * heads * D, lines = B * heads * S;
      atoll_attention_shape s = {.B = B, .S = S, .heads = heads, .kv_heads = kv, .head_dim = D, .scale = 0.2f};
      atoll_drop drop = {0.1f, {.seed = 1, .step = 2, .sample = 3, .layer = 4, .site = ATOLL_RNG_DROP_ATTENTION}};
      both q = make(1, n, 1), k = make(2, n / 2, 1), v = make(3, n / 2, 1), o = make(4, n, 1), d_o = make(5, n, 1),
           dq = make(6, n, 0), dk = make(7, n / 2, 0), dv = make(8, n / 2, 0), p = make(9, lines * S, 0),
           dropped = make(10, lines * S, 0);
      float *lse = numbers(11, lines, 1), *delta[2] = {numbers(12, lines, 1), numbers(12, lines, 1)};
      uint8_t *mask[2] = {malloc((size_t)(lines * S)), malloc((size_t)(lines * S))};
      atoll_attention_kept by_ref = {.p = p.f, .dropped = masks ? dropped.f : NULL, .mask = masks ? mask[0] : NULL},
                           by_cpu = {.p = p.h, .dropped = masks ? dropped.h : NULL, .mask = masks ? mask[1] : NULL};
      OK(cpu.k->attention_forward(cpu.queue, q.h, k.h, v.h, o.h, lse, &s, &drop));
      sync_both();
      same_from(o);
      RUN(keep->attention_keep(ref.queue, q.f, k.f, lse, &by_ref, &s, &drop),
          keep->attention_keep(cpu.queue, q.h, k.h, lse, &by_cpu, &s, &drop));
      check("probabilities", p, ONCE);
      same_from(p);
      if (masks) {
        check("probabilities after dropout", dropped, ONCE);
        assert_memory_equal(mask[0], mask[1], (size_t)(lines * S));
        same_from(dropped);
      }
      RUN(keep->attention_backward(ref.queue, q.f, k.f, v.f, o.f, &by_ref, d_o.f, dq.f, dk.f, dv.f, delta[0], &s,
                                   &drop),
          keep->attention_backward(cpu.queue, q.h, k.h, v.h, o.h, &by_cpu, d_o.h, dq.h, dk.h, dv.h, delta[1], &s,
                                   &drop));
      check("dq from probabilities", dq, ONCE);
      check("dk from probabilities", dk, ONCE);
      if (masks)
        check_sum("dv from probabilities after dropout", dv, TWICE);
      else
        check("dv from probabilities", dv, ONCE);
      drop_numbers(lse, lines);
      for (int j = 0; j < 2; j++) {
        drop_numbers(delta[j], lines);
        free(mask[j]);
      }
      done();
    }
}

/* By codes of 8 bits: the probabilities' error is what is stated, and so in the mean of a row's squares; the result is
 * that of these codes, and made again it has the same bits. Gradients from scores differ by the codes' error. */
static void coded_attention(void **state) {
  (void)state;
  enum { B = 2, HEADS = 4, D = 22, LONGEST = 127 };
  const int64_t lengths[] = {1, 17, LONGEST};
  for (int i = 0; i < 3; i++) {
    int64_t S = lengths[i], n = B * S * HEADS * D, lines = B * HEADS * S;
    atoll_attention_shape s = {
        .B = B, .S = S, .heads = HEADS, .kv_heads = HEADS, .head_dim = D, .scale = 0.2f, .both_ways = i % 2};
    atoll_drop drop = {0.1f, {.seed = 1, .step = 2, .sample = 3, .layer = 4, .site = ATOLL_RNG_DROP_ATTENTION}};
    both q = make(1, n, 2), k = make(2, n, 2), v = make(3, n, 1), o = make(4, n, 1), again = make(4, n, 1),
         d_o = make(5, n, 1), dq = make(6, n, 0), dk = make(7, n, 0), dv = make(8, n, 0), p = make(9, lines * S, 0);
    float *lse = numbers(11, lines, 1), *delta[2] = {numbers(12, lines, 1), numbers(12, lines, 1)},
          *unit = numbers(13, lines, 1);
    uint8_t *code = malloc((size_t)(lines * S));
    atoll_attention_kept whole = {.p = p.f}, coded = {.code = code, .unit = unit};
    OK(ref.k->attention_forward(ref.queue, q.f, k.f, v.f, o.f, lse, &s, &drop));
    OK(ref.k->keep->attention_keep(ref.queue, q.f, k.f, lse, &whole, &s, &drop));
    RUN(attention_backward(ref.queue, q.f, k.f, v.f, o.f, lse, d_o.f, dq.f, dk.f, dv.f, delta[0], &s, &drop),
        keep->attention_coded(cpu.queue, q.h, k.h, v.h, o.h, &coded, &s, &drop));
    RUN(attention_forward(ref.queue, q.f, k.f, v.f, o.f, lse, &s, &drop),
        keep->attention_of_kept(cpu.queue, v.h, &coded, again.h, &s, &drop));
    assert_memory_equal(again.h, o.h, (size_t)n * 2);
    for (int64_t line = 0; line < lines; line++) {
      double squares = 0, most = 0, step = sqrt(unit[line]);
      for (int64_t at = line * S; at < (line + 1) * S; at++) {
        double error = (double)code[at] * code[at] * unit[line] - p.f[at];
        if (!(fabs(error) <= step * (sqrt(p.f[at]) + step) + (sqrt((double)S) * step + 1e-6) * p.f[at]))
          fail_msg("%lld tokens: probability %g is off by %g, unit %g", (long long)S, p.f[at], error, unit[line]);
        squares += error * error;
        most = fmax(most, p.f[at]);
      }
      assert_true(sqrt(squares) <= 2 * 0.0023 * sqrt(most) + 1e-6); /* twice: rows are short */
    }
    OK(cpu.k->keep->attention_backward(cpu.queue, q.h, k.h, v.h, o.h, &coded, d_o.h, dq.h, dk.h, dv.h, delta[1], &s,
                                       &drop));
    OK(atoll_queue_sync(cpu.queue));
    check_sum("o of codes", o, TWICE);
    check_sum("dv from codes", dv, TWICE);
    if (S > 1) {
      check_sum("dq from codes", dq, TWICE);
      check_sum("dk from codes", dk, TWICE);
    }
    free(code);
    drop_numbers(lse, lines), drop_numbers(unit, lines);
    drop_numbers(delta[0], lines), drop_numbers(delta[1], lines);
    done();
  }
}

/* Bent functions of one or two numbers, in place of the third where that is allowed. */
static void elementwise(void **state) {
  (void)state;
  int64_t n = 5003;
  both x = make(1, n, 4), up = make(2, n, 1), dy = make(3, n, 1), y = make(4, n, 0), dx = make(5, n, 0),
       dup = make(6, n, 0);
#define UNARY(name)                                                                                                    \
  RUN(name##_forward(ref.queue, x.f, y.f, n), name##_forward(cpu.queue, x.h, y.h, n));                                 \
  check(#name, y, ONCE);                                                                                               \
  RUN(name##_backward(ref.queue, dy.f, x.f, dx.f, n), name##_backward(cpu.queue, dy.h, x.h, dx.h, n));                 \
  check(#name " gradient", dx, ONCE)
  UNARY(gelu);
  UNARY(gelu_erf);
  UNARY(tanh);
  RUN(swiglu_forward(ref.queue, x.f, up.f, y.f, n), swiglu_forward(cpu.queue, x.h, up.h, y.h, n));
  check("swiglu", y, ONCE);
  RUN(swiglu_backward(ref.queue, dy.f, x.f, up.f, dx.f, dup.f, n),
      swiglu_backward(cpu.queue, dy.h, x.h, up.h, dx.h, dup.h, n));
  check("swiglu dx", dx, ONCE);
  check("swiglu dup", dup, ONCE);
  atoll_drop drop = {0.3f, {.seed = 1, .step = 2, .sample = 3, .layer = 4, .site = ATOLL_RNG_DROP_MLP}};
  for (int p = 0; p < 2; p++) {
    RUN(residual_forward(ref.queue, x.f, up.f, y.f, 1, n, p ? &drop : NULL),
        residual_forward(cpu.queue, x.h, up.h, y.h, 1, n, p ? &drop : NULL));
    check("residual", y, ONCE);
    RUN(drop_backward(ref.queue, dy.f, dx.f, 1, n, p ? &drop : NULL),
        drop_backward(cpu.queue, dy.h, dx.h, 1, n, p ? &drop : NULL));
    check("dropout", dx, ONCE);
  }
  for (int64_t i = 0; i < n; i++) /* both from the same y */
    y.f[i] = wide(y.h[i]);
  RUN(rows(ref.queue, x.f, 51, y.f, 53, 90, 50, 1), rows(cpu.queue, x.h, 51, y.h, 53, 90, 50, 1));
  check("rows", y, ONCE);
  atoll_rope rope = {.theta = 10000};
  RUN(rope(ref.queue, up.f, 2, 17, 3, 22, &rope, 0), rope(cpu.queue, up.h, 2, 17, 3, 22, &rope, 0));
  check("rope", up, ONCE);
  done();
}

static void ends(void **state) {
  (void)state;
  int64_t B = 2, S = 9, C = 131, V = 517, R = B * S;
  int32_t ids[18];
  for (int i = 0; i < 18; i++)
    ids[i] = (i * 31) % 517;
  atoll_drop drop = {0.1f, {.seed = 1, .step = 2, .sample = 3, .layer = 0, .site = ATOLL_RNG_DROP_EMBED}};
  both wte = make(1, V * C, 1), wpe = make(2, S * C, 1), y = make(3, R * C, 1), dy = make(4, R * C, 1),
       logits = make(5, R * V, 3), d = make(6, R * V, 0);
  RUN(embed_forward(ref.queue, ids, wte.f, wpe.f, y.f, B, S, C, V, &drop),
      embed_forward(cpu.queue, ids, wte.h, wpe.h, y.h, B, S, C, V, &drop));
  check("embedding", y, TWICE);
  float *dwte[2] = {numbers(7, V * C, 1), numbers(7, V * C, 1)},
        *dwpe[2] = {numbers(8, S * C, 1), numbers(8, S * C, 1)};
  RUN(embed_backward_weight(ref.queue, ids, dy.f, dwte[0], dwpe[0], B, S, C, V, &drop),
      embed_backward_weight(cpu.queue, ids, dy.h, dwte[1], dwpe[1], B, S, C, V, &drop));
  close_to("dwte", dwte[1], dwte[0], V * C, 2e-6);
  close_to("dwpe", dwpe[1], dwpe[0], S * C, 2e-6);
  float loss[2][18];
  ids[3] = -1;
  RUN(cross_entropy(ref.queue, logits.f, ids, loss[0], d.f, 0.1f, R, V),
      cross_entropy(cpu.queue, logits.h, ids, loss[1], d.h, 0.1f, R, V));
  close_to("loss", loss[1], loss[0], R, 5e-6);
  check("dlogits", d, TWICE);
  for (int k = 0; k < 2; k++) {
    drop_numbers(dwte[k], V * C);
    drop_numbers(dwpe[k], S * C);
  }
  done();
}

/* Ties go to even, a carry goes on into the exponent, infinity and NaN stay what they are. */
static void rounding(void **state) {
  (void)state;
  const struct {
    uint32_t from;
    uint16_t to;
  } cases[] = {{0x3f808000, 0x3f80}, {0x3f818000, 0x3f82}, {0x3f808001, 0x3f81}, {0x3fffffff, 0x4000},
               {0x7f7fffff, 0x7f80}, {0x7f800000, 0x7f80}, {0x80000001, 0x8000}, {0xff800000, 0xff80}};
  enum { N = sizeof cases / sizeof *cases };
  /* As a product of one term, whose sum is the number itself: 1 x c, with the digits that bf16 lacks in a bias of the
     same kind is not possible, so the two halves are added: high + low. */
  for (int i = 0; i < N; i++) {
    float c;
    memcpy(&c, &cases[i].from, sizeof c);
    uint16_t high = (uint16_t)(cases[i].from >> 16), y = 0, one = 0x3f80;
    float low = c - wide(high);
    uint32_t bits;
    memcpy(&bits, &low, sizeof bits);
    if (!isfinite(c) || (bits & 0xffff)) /* low must be a bf16 itself */
      continue;
    uint16_t x[2] = {high, (uint16_t)(bits >> 16)}, w[2] = {one, one};
    OK(cpu.k->linear_forward(cpu.queue, x, w, NULL, &y, 1, 2, 1));
    OK(atoll_queue_sync(cpu.queue));
    if (y != cases[i].to)
      fail_msg("%08x rounds to %04x, expected %04x", cases[i].from, y, cases[i].to);
  }
  uint16_t special[3] = {0x7f80, 0xff80, 0x7fc1}, zero[3] = {0, 0, 0}, sum[3];
  OK(cpu.k->residual_forward(cpu.queue, special, zero, sum, 1, 3, NULL));
  OK(atoll_queue_sync(cpu.queue));
  assert_int_equal(sum[0], 0x7f80);
  assert_int_equal(sum[1], 0xff80);
  assert_true((sum[2] & 0x7fff) > 0x7f80);
  assert_null(cpu.k->decode);
  assert_int_equal(cpu.k->dtype, ATOLL_BF16);
}

/* Masters of all sizes become bf16 as storing rounds; by chance to one of the two neighbours, whatever the cut into
 * calls, in the middle as often as their distance says; after AdamW as without it. */
static void weights(void **state) {
  (void)state;
  enum { N = 5003 };
  float *w = numbers(1, N, 1), *g = numbers(2, N, 1), *m = numbers(3, N, 0), *v = numbers(4, N, 0);
  static uint16_t near[N], chance[N], parts[N], fused[N];
  w[0] = INFINITY, w[1] = NAN, w[2] = -0.0f, w[3] = 0x1.02p0f /* a bf16 itself */;
  for (uint32_t i = 4; i < 100; i++) { /* half-way between neighbours, the lower one odd and even, of both signs */
    const uint32_t half_way = (i % 3 ? 0x3f808000 : 0xbf808000) + (i << 16);
    memcpy(&w[i], &half_way, sizeof half_way);
  }
  atoll_rounding r = {.by_chance = 0, .key = {.seed = 7, .step = 3, .sample = 5, .site = ATOLL_RNG_ROUND}};
  OK(cpu.k->copy_weights(cpu.queue, w, near, N, &r));
  r.by_chance = 1;
  OK(cpu.k->copy_weights(cpu.queue, w, chance, N, &r));
  for (int64_t i = 0, n; i < N; i += n) {
    n = N - i < 777 ? N - i : 777;
    r.first = (uint64_t)i;
    OK(cpu.k->copy_weights(cpu.queue, w + i, parts + i, n, &r));
  }
  OK(atoll_queue_sync(cpu.queue));
  assert_memory_equal(chance, parts, sizeof chance);
  double up = 0, expected = 0;
  for (int i = 0; i < N; i++) {
    uint32_t bits;
    memcpy(&bits, &w[i], sizeof bits);
    uint16_t below = (uint16_t)(bits >> 16);
    if (i == 1) {
      assert_true(isnan(wide(near[i])) && isnan(wide(chance[i])));
      continue;
    }
    assert_true(chance[i] == below || chance[i] == below + ((bits & 0xffff) != 0));
    assert_true(near[i] == below + ((bits & 0xffff) > 0x8000 || ((bits & 0xffff) == 0x8000 && (below & 1))));
    up += chance[i] != below;
    expected += (bits & 0xffff) / 65536.0;
  }
  /* Each is a coin of variance at most 1/4: five deviations. */
  if (!(fabs(up - expected) <= 5 * sqrt(N / 4.0)))
    fail_msg("%g of %d numbers went up, expected %g", up, N, expected);
  atoll_adamw p = {.lr = 1e-3f,
                   .beta1 = 0.9f,
                   .beta2 = 0.95f,
                   .eps = 1e-8f,
                   .decay = 0.1f,
                   .grad_scale = 1,
                   .bias1 = 0.1f,
                   .bias2 = 0.05f,
                   .rounding = r};
  for (int by_chance = 0; by_chance < 2; by_chance++) {
    p.rounding.by_chance = by_chance, p.rounding.first = 11;
    OK(cpu.k->adamw(cpu.queue, w, g, m, v, fused, N, &p));
    OK(cpu.k->copy_weights(cpu.queue, w, parts, N, &p.rounding));
    OK(atoll_queue_sync(cpu.queue));
    assert_memory_equal(fused, parts, sizeof fused);
  }
  drop_numbers(w, N), drop_numbers(g, N), drop_numbers(m, N), drop_numbers(v, N);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(linear),         cmocka_unit_test(norms),          cmocka_unit_test(attention),
      cmocka_unit_test(elementwise),    cmocka_unit_test(ends),           cmocka_unit_test(rounding),
      cmocka_unit_test(weights),        cmocka_unit_test(kept_norms),     cmocka_unit_test(kept_elements),
      cmocka_unit_test(kept_attention), cmocka_unit_test(coded_attention)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
