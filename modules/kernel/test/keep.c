/* Kernels of memory policies against exact formulas in double. */
#include "atoll/kernel_keep.h"
#include "kernel_test.h"

static double slope(double x, int erf_form) {
  if (erf_form)
    return 0.5 * erfc(-x / sqrt(2)) + x * exp(-x * x / 2) / sqrt(2 * 3.14159265358979323846);
  const double c = sqrt(2 / 3.14159265358979323846), a = 0.044715;
  double t = tanh(c * (x + a * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * a * x * x);
}

static double worst_slope(struct bench *b, float from, float to, int64_t n, int erf_form) {
  float *x = numbers(1, n, 1), *t = numbers(2, n, 1), *one = numbers(3, n, 1), *y = numbers(4, n, 1),
        *z = numbers(5, n, 1);
  for (int64_t i = 0; i < n; i++) {
    x[i] = from + (to - from) * (float)i / (float)n;
    one[i] = 1;
  }
  OK(b->k->keep->gelu_root(b->queue, x, t, n, erf_form));
  OK(b->k->keep->gelu_of_root(b->queue, t, y, n, erf_form));
  OK((erf_form ? b->k->gelu_erf_forward : b->k->gelu_forward)(b->queue, x, z, n));
  OK(b->k->keep->gelu_root_backward(b->queue, one, t, one, n, erf_form)); /* in place */
  OK(atoll_queue_sync(b->queue));
  double most = 0;
  for (int64_t i = 0; i < n; i++) {
    most = fmax(most, fabs(one[i] - slope(x[i], erf_form)));
    if (!(fabs((double)y[i] - z[i]) <= 3e-7 * fmax(1, fabs(z[i]))))
      fail_msg("y(%g) is %.9g from its root, %.9g itself", x[i], y[i], z[i]);
  }
  drop_numbers(x, n), drop_numbers(t, n), drop_numbers(one, n), drop_numbers(y, n), drop_numbers(z, n);
  return most;
}

/* Over all |x| to 30, and closely around the minimum, where a rounded y tells least about x. */
static void root_of_gelu(void **state) {
  (void)state;
  struct bench b = bench_open("cpu", "cpu", 2), ref = bench_open("cpu", "ref", 1);
  for (int erf_form = 0; erf_form < 2; erf_form++) {
    assert_true(worst_slope(&b, -30, 30, 200003, erf_form) < 2e-5);
    assert_true(worst_slope(&b, -0.7530f, -0.7510f, 10007, erf_form) < 2e-5);
    assert_true(worst_slope(&b, -6, -1, 20011, erf_form) < 2e-5);
    assert_true(worst_slope(&ref, -30, 30, 5003, erf_form) < 1e-6); /* the rounding of its root */
    assert_true(worst_slope(&ref, -6, -0.7f, 5003, erf_form) < 1e-6);
  }
  bench_close(&b);
  bench_close(&ref);
}

/* The slope of the published in-place GELU (Tempo, 2210.10246) from its result y and the side of the minimum that x is
 * on: polynomials in y, of the coefficients, the order and the precision of its release. There one knot has the wrong
 * sign; `mended` takes the right one. */
static float in_order(const float *c, int n, float t) { /* c[0] + c[1] t + ... */
  float sum = c[n - 1];
  for (int i = n - 2; i >= 0; i--)
    sum = c[i] + t * sum;
  return sum;
}

static float published_slope(float y, int right, int mended) {
  static const float least = -0.1699712074799012f, zero = 0.10682674544528972f, one = 0.9774323423471688f;
  static const float left[] = {0,
                               -2.44705742e+01f,
                               3.64509157e+03f,
                               -3.24039623e+05f,
                               1.72624707e+07f,
                               -5.87053927e+08f,
                               1.33643456e+10f,
                               -2.09622261e+11f,
                               2.29518632e+12f,
                               -1.75056809e+13f,
                               9.11525632e+13f,
                               -3.08903527e+14f,
                               6.14002866e+14f,
                               -5.43092154e+14f};
  static const float below_zero[] = {0,
                                     2.03860722e+01f,
                                     -1.51033017e+03f,
                                     7.29893892e+04f,
                                     -2.08603338e+06f,
                                     3.75106859e+07f,
                                     -4.43847941e+08f,
                                     3.54134638e+09f,
                                     -1.91638067e+10f,
                                     6.93203478e+10f,
                                     -1.60441793e+11f,
                                     2.14787711e+11f,
                                     -1.26477496e+11f};
  static const float below_one[] = {0.6468323960187936f, 1.19132403f,   -1.44264915f, 1.9529612f,    -3.84418714f,
                                    8.2541642f,          -16.40234298f, 27.17877296f, -34.79939566f, 32.32044636f,
                                    -20.25396347f,       7.6092532f,    -1.28943268f};
  static const float below_three[] = {1.1079279405461824f, 1.40963829e-01f, -2.74712808e-01f, 1.30758747e-01f,
                                      -3.34020163e-02f,    2.21484679e-02f, -1.73618287e-02f, 1.13268204e-02f,
                                      -7.30845601e-03f,    3.40900094e-03f, -9.19837579e-04f, 1.24505621e-04f,
                                      -6.11869959e-06f};
  enum { DEGREE = 12 };
  if (!right)
    return y > -3 ? in_order(left, DEGREE + 2, y - least) : 0;
  if (y < 0.10682432f)
    return in_order(below_zero, DEGREE + 1, y - least);
  if (y <= 0.97742819f)
    return in_order(below_one, DEGREE + 1, y - zero);
  return y < 3 ? in_order(below_three, DEGREE + 1, mended ? y - one : y + one) : 1;
}

/* Errors of the published form, as released and with its knot mended, and ours beside them. */
static void published_form(void **state) {
  (void)state;
  enum { N = 9001 };
  const double lo = -6, hi = 3;
  static float x[N], t[N], ones[N], ours[N];
  double worst[3] = {0};
  struct bench b = bench_open("cpu", "cpu", 1);
  for (int i = 0; i < N; i++)
    x[i] = (float)(lo + (hi - lo) * i / (N - 1)), ones[i] = 1;
  OK(b.k->keep->gelu_root(b.queue, x, t, N, 1));
  OK(b.k->keep->gelu_root_backward(b.queue, ones, t, ours, N, 1));
  OK(atoll_queue_sync(b.queue));
  for (int i = 0; i < N; i++) {
    float y = (float)(0.5 * x[i] * erfc(-x[i] / sqrt(2.0)));
    int right = x[i] >= -0.751791631f;
    double exact = slope(x[i], 1);
    const double of[] = {published_slope(y, right, 0), published_slope(y, right, 1), ours[i]};
    for (int k = 0; k < 3; k++)
      worst[k] = fmax(worst[k], fabs(of[k] - exact));
  }
  print_message("slope of GELU over [%g, %g], largest error: published %.3f, with its knot mended %.3f, ours %.1e\n",
                lo, hi, worst[0], worst[1], worst[2]);
  assert_true(worst[0] > 2);    /* 2.70 */
  assert_true(worst[1] > 0.05); /* cancellation of coefficients up to 6e14 in f32 */
  assert_true(worst[2] < 1e-4);
  bench_close(&b);
}

/* Eight bits: within half a step of the row; a row of zeros stays that. */
static void eight_bits_of(const char *kernels) {
  enum { R = 5, C = 37 };
  struct bench b = bench_open("cpu", kernels, 2);
  float *x = numbers(6, R * C, 2), *y = numbers(7, R * C, 1), scale[R];
  uint8_t code[R * C];
  for (int c = 0; c < C; c++)
    x[2 * C + c] = 0;
  OK(b.k->keep->pack8(b.queue, x, code, scale, R, C));
  OK(b.k->keep->unpack8(b.queue, code, scale, y, R, C));
  OK(atoll_queue_sync(b.queue));
  for (int i = 0; i < R * C; i++)
    if (!(fabs((double)x[i] - y[i]) <= 0.50001 * scale[i / C]))
      fail_msg("row %d: %g came back as %g, step %g", i / C, x[i], y[i], scale[i / C]);
  drop_numbers(x, R * C), drop_numbers(y, R * C);
  bench_close(&b);
}

static void eight_bits(void **state) {
  (void)state;
  eight_bits_of("cpu");
  eight_bits_of("ref");
}

/* Attention by probabilities in 16 bits: within what is stated, zero where no key is seen; result and gradients from
 * them are those from scores within 1e-4 of the largest, in either backend. */
static void coded_attention_of(const char *kernels, int64_t S, int both_ways, const int32_t *lengths) {
  enum { B = 2, HEADS = 4, KV = 2, D = 10, H = HEADS * D, K = KV * D };
  struct bench b = bench_open("cpu", kernels, 2), exact = bench_open("cpu", "ref", 1);
  const int64_t lines = B * HEADS * S, n = B * S * H, m = B * S * K;
  atoll_attention_shape s = {.B = B,
                             .S = S,
                             .heads = HEADS,
                             .kv_heads = KV,
                             .head_dim = D,
                             .scale = 0.4f,
                             .both_ways = both_ways,
                             .lengths = lengths};
  atoll_drop drop = {0.2f, {.seed = 1, .step = 2, .sample = 3, .layer = 4, .site = ATOLL_RNG_DROP_ATTENTION}};
  float *q = numbers(1, n, 2), *k = numbers(2, m, 2), *v = numbers(3, m, 1), *d_o = numbers(4, n, 1);
  float *o = numbers(5, n, 0), *again = numbers(6, n, 1), *first = numbers(6, n, 1), *lse = numbers(7, lines, 0),
        *unit = numbers(8, lines, 0), *p = numbers(9, lines * S, 1), *delta = numbers(10, lines, 0);
  float *dq[2] = {numbers(11, n, 1), numbers(12, n, 1)}, *dk[2] = {numbers(13, m, 1), numbers(14, m, 1)},
        *dv[2] = {numbers(15, m, 1), numbers(16, m, 1)};
  uint16_t *code = malloc((size_t)(lines * S) * sizeof *code);
  atoll_attention_kept whole = {.p = p}, coded = {.code = code, .unit = unit};
  OK(exact.k->attention_forward(exact.queue, q, k, v, o, lse, &s, &drop));
  OK(exact.k->keep->attention_keep(exact.queue, q, k, lse, &whole, &s, &drop));
  OK(exact.k->attention_backward(exact.queue, q, k, v, o, lse, d_o, dq[0], dk[0], dv[0], delta, &s, &drop));
  OK(atoll_queue_sync(exact.queue));
  OK(b.k->keep->attention_coded(b.queue, q, k, v, first, &coded, &s, &drop));
  OK(b.k->keep->attention_of_kept(b.queue, v, &coded, again, &s, &drop));
  OK(b.k->keep->attention_backward(b.queue, q, k, v, again, &coded, d_o, dq[1], dk[1], dv[1], delta, &s, &drop));
  OK(atoll_queue_sync(b.queue));
  for (int64_t i = 0; i < lines * S; i++) {
    double back = (double)code[i] * code[i] * unit[i / S], step = 1.01 * sqrt(unit[i / S]);
    if (!(p[i] > 0 ? fabs(back - p[i]) <= step * (sqrt(p[i]) + step) + (sqrt((double)S) * step + 1e-6) * p[i]
                   : code[i] == 0))
      fail_msg("%s, %lld tokens: probability %g came back as %g, unit %g", kernels, (long long)S, p[i], back,
               unit[i / S]);
  }
  same_bits("o again", again, first, (size_t)n * sizeof *first);
  close_to("o", again, o, n, 1e-4);
  for (int64_t i = 0; i < n && S == 1; i++) /* one key: its score changes nothing */
    assert_true(fabsf(dq[1][i]) < 1e-5f && fabsf(dk[1][i % m]) < 1e-5f);
  if (S > 1) {
    close_to("dq from codes", dq[1], dq[0], n, 1e-4);
    close_to("dk from codes", dk[1], dk[0], m, 1e-4);
  }
  close_to("dv from codes", dv[1], dv[0], m, 1e-4);
  float *const wide[] = {q, d_o, o, again, dq[0], dq[1]}, *const narrow[] = {k, v, dk[0], dk[1], dv[0], dv[1]};
  for (int i = 0; i < 6; i++)
    drop_numbers(wide[i], n), drop_numbers(narrow[i], m);
  drop_numbers(first, n), drop_numbers(lse, lines), drop_numbers(unit, lines), drop_numbers(delta, lines),
      drop_numbers(p, lines * S);
  free(code);
  bench_close(&b);
  bench_close(&exact);
}

static void coded_attention(void **state) {
  (void)state;
  static const int64_t lengths[] = {1, 17, 127};
  for (int i = 0; i < 3; i++)
    for (int both_ways = 0; both_ways < 2; both_ways++) {
      const int32_t some[] = {(int32_t)lengths[i], (int32_t)(lengths[i] + 1) / 2};
      coded_attention_of("cpu", lengths[i], both_ways, both_ways ? some : NULL);
      coded_attention_of("ref", lengths[i], both_ways, both_ways ? some : NULL);
    }
}

/* A score that is not finite is hidden by no code, in the rows that have it; from them neither result nor gradients are
 * numbers. One key of -infinity would otherwise be a key of no weight. */
static void coded_not_finite_of(const char *kernels, float odd) {
  struct bench b = bench_open("cpu", kernels, 1);
  float x[3] = {1, odd, 1}, one[3] = {1, 1, 1}, o[3], unit[3], delta[3], dq[3], dk[3], dv[3];
  uint16_t code[9];
  atoll_attention_shape s = {.B = 1, .S = 3, .heads = 1, .kv_heads = 1, .head_dim = 1, .scale = 1};
  atoll_attention_kept coded = {.code = code, .unit = unit};
  atoll_drop none = {0};
  OK(b.k->keep->attention_coded(b.queue, x, one, one, o, &coded, &s, &none)); /* in a query */
  OK(b.k->keep->attention_backward(b.queue, x, one, one, o, &coded, one, dq, dk, dv, delta, &s, &none));
  OK(atoll_queue_sync(b.queue));
  assert_true(isfinite(o[0]) && isnan(o[1]) && isfinite(o[2]));
  assert_true(isfinite(dq[0]) && isnan(dq[1]) && isfinite(dq[2]) && isnan(dv[0]) && isnan(dv[1]) && isfinite(dv[2]));
  OK(b.k->keep->attention_coded(b.queue, one, x, one, o, &coded, &s, &none)); /* in a key */
  OK(b.k->keep->attention_backward(b.queue, one, x, one, o, &coded, one, dq, dk, dv, delta, &s, &none));
  OK(atoll_queue_sync(b.queue));
  assert_true(isfinite(o[0]) && isnan(o[1]) && isnan(o[2]));
  assert_true(isnan(dq[1]) && isnan(dq[2]) && isnan(dk[1]) && isnan(dv[1]));
  bench_close(&b);
}

/* The same of other forms that are kept: the root of GELU, and a row of eight bits. */
static void kept_not_finite_of(const char *kernels, float odd) {
  enum { R = 3, C = 21 };
  struct bench b = bench_open("cpu", kernels, 1);
  float x[R * C], y[R * C], scale[R];
  uint8_t code[R * C];
  for (int at = C; at < 2 * C; at += 5) {
    for (int i = 0; i < R * C; i++)
      x[i] = i == at ? odd : (float)i / C - 1;
    OK(b.k->keep->pack8(b.queue, x, code, scale, R, C));
    OK(b.k->keep->unpack8(b.queue, code, scale, y, R, C));
    OK(atoll_queue_sync(b.queue));
    for (int i = 0; i < R * C; i++)
      assert_int_equal(isnan(y[i]), i / C == 1);
    for (int erf = 0; erf < 2; erf++) {
      float one[R * C], t[R * C];
      for (int i = 0; i < R * C; i++)
        one[i] = 1;
      OK(b.k->keep->gelu_root(b.queue, x, t, R * C, erf));
      OK(b.k->keep->gelu_of_root(b.queue, t, y, R * C, erf));
      OK(b.k->keep->gelu_root_backward(b.queue, one, t, one, R * C, erf));
      OK(atoll_queue_sync(b.queue));
      for (int i = 0; i < R * C; i++)
        assert_true(isnan(y[i]) == (i == at) && isnan(one[i]) == (i == at));
    }
  }
  bench_close(&b);
}

static void not_finite(void **state) {
  (void)state;
  const char *const names[] = {"cpu", "ref"};
  const float odd[] = {NAN, INFINITY, -INFINITY};
  for (int i = 0; i < 6; i++) {
    coded_not_finite_of(names[i % 2], odd[i / 2]);
    kept_not_finite_of(names[i % 2], odd[i / 2]);
  }
}

/* A sample without a key, or with more keys than tokens, is refused, as by attention_forward(). */
static void coded_lengths(void **state) {
  (void)state;
  const int32_t wrong[] = {0, 6};
  for (int i = 0; i < 2; i++) {
    struct bench b = bench_open("cpu", "cpu", 2);
    float x[10] = {0}, o[10], unit[5];
    uint16_t code[25];
    atoll_attention_shape s = {
        .B = 1, .S = 5, .heads = 1, .head_dim = 2, .scale = 1, .both_ways = 1, .lengths = wrong + i};
    atoll_attention_kept coded = {.code = code, .unit = unit};
    atoll_drop none = {0};
    atoll_err err = b.k->keep->attention_coded(b.queue, x, x, x, o, &coded, &s, &none);
    if (err == ATOLL_OK)
      err = atoll_queue_sync(b.queue);
    assert_int_equal(err, ATOLL_CORRUPT);
    assert_non_null(strstr(atoll_err_message(), "expected 1..5"));
    bench_close(&b);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(root_of_gelu), cmocka_unit_test(published_form),
                                     cmocka_unit_test(eight_bits),   cmocka_unit_test(coded_attention),
                                     cmocka_unit_test(not_finite),   cmocka_unit_test(coded_lengths)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
