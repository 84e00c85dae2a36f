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

/* The published in-place GELU's slope at three places, as its released polynomials give it in f32: a knot of the wrong
 * sign above 0.98, and cancellation in coefficients of up to 6e14 below -1. Ours beside it. */
static void published_form(void **state) {
  (void)state;
  static const struct { double x, published, exact; } at[] = {{2.0, 1.011, 1.085}, {2.9, 2.76, 1.015}};
  struct bench b = bench_open("cpu", "cpu", 1);
  for (int i = 0; i < 2; i++) {
    float x = (float)at[i].x, one = 1, t, ours;
    assert_true(fabs(slope(at[i].x, 1) - at[i].exact) < 1e-3);
    OK(b.k->keep->gelu_root(b.queue, &x, &t, 1, 1));
    OK(b.k->keep->gelu_root_backward(b.queue, &one, &t, &ours, 1, 1));
    OK(atoll_queue_sync(b.queue));
    print_message("slope of GELU at %.1f: exact %.5f, published %.3f (error %.3f), ours %.5f (error %.1e)\n", at[i].x,
                  slope(at[i].x, 1), at[i].published, fabs(at[i].published - slope(at[i].x, 1)), ours,
                  fabs(ours - slope(at[i].x, 1)));
    assert_true(fabs(ours - slope(at[i].x, 1)) < 1e-4);
    assert_true(fabs(at[i].published - slope(at[i].x, 1)) > 0.07);
  }
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

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(root_of_gelu), cmocka_unit_test(published_form),
                                     cmocka_unit_test(eight_bits)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
