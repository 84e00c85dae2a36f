/* Reductions over all of the past or future run along: the same results, while what is kept no longer grows with the
 * run. */
#include "recurrent_test.h"

enum { SHORT = 5, LONG = 45, L = 3, N = 2, LOGS = 2 };
static double numbers[LONG * N];

/* What is reduced: not an input, so that it takes memory. */
static atoll_rt *term(atoll_rec *c) {
  return atoll_rt_name(atoll_rt_tanh(atoll_rec_input(c, "x", ATOLL_F64, "t", ATOLL_SHAPE(N))), "term");
}

typedef atoll_rt *scan(atoll_rec *c);
static atoll_rt *past_sum(atoll_rec *c) { return atoll_rt_sum(atoll_rt_at(term(c), "0:t+1"), 0); }
static atoll_rt *past_mean(atoll_rec *c) { return atoll_rt_mean(atoll_rt_at(term(c), "0:t+1"), 0); }
static atoll_rt *past_maximum(atoll_rec *c) { return atoll_rt_maximum(atoll_rt_at(term(c), "0:t+1"), 0); }
static atoll_rt *past_powers(atoll_rec *c) { return atoll_rt_dsum(atoll_rt_at(term(c), "0:t+1"), 0.7); }
static atoll_rt *scalar_powers(atoll_rec *c) {
  return atoll_rt_dsum(atoll_rt_at(atoll_rt_sum(term(c), 0), "0:t+1"), 0.7);
}
/* Times that come from the future go backwards. */
static atoll_rt *from_behind(atoll_rec *c) {
  atoll_rt *x = atoll_rec_tensor(c, "behind", ATOLL_F64, "t", ATOLL_SHAPE(N));
  atoll_rt_def(x, "t==T-1", atoll_rt_scale(atoll_rec_iota(c, ATOLL_F64, N), 0.5));
  atoll_rt_def(x, "true", atoll_rt_sin(atoll_rt_shift(atoll_rt_at(x, "t+1"), 0.3)));
  return x;
}
static atoll_rt *future_sum(atoll_rec *c) { return atoll_rt_sum(atoll_rt_at(from_behind(c), "t:T"), 0); }
static atoll_rt *future_maximum(atoll_rec *c) { return atoll_rt_maximum(atoll_rt_at(from_behind(c), "t:T"), 0); }
static atoll_rt *future_powers(atoll_rec *c) { return atoll_rt_dsum(atoll_rt_at(from_behind(c), "t:T"), 0.7); }
static atoll_rt *first_of_future(atoll_rec *c) { return atoll_rt_at(future_powers(c), "t=0"); }
/* Over layers too, where the dimension that is read elsewhere stays as it is. */
static atoll_rt *mirrored(atoll_rec *c) {
  atoll_rt *x = atoll_rt_mul(term(c), atoll_rec_expr(c, ATOLL_F64, "l+1"));
  return atoll_rt_sum(atoll_rt_at(atoll_rt_tanh(x), "t=0:t+1,l=L-1-l"), 0);
}
/* Only some points are asked for. */
static atoll_rt *sometimes(atoll_rec *c) {
  atoll_rt *y = atoll_rec_tensor(c, "sometimes", ATOLL_F64, "t", ATOLL_SHAPE(N));
  atoll_rt_def(y, "t%3==1", past_sum(c));
  atoll_rt_def(y, "true", atoll_rec_const(c, ATOLL_F64, 2));
  return y;
}
/* A sum that what is summed depends on. */
static atoll_rt *fed_back(atoll_rec *c) {
  atoll_rt *x = atoll_rec_tensor(c, "fed", ATOLL_F64, "t", ATOLL_SHAPE(N));
  atoll_rt *y = atoll_rt_sum(atoll_rt_at(x, "0:t+1"), 0);
  atoll_rt *drive = term(c);
  atoll_rt_def(x, "t==0", drive);
  atoll_rt_def(x, "true", atoll_rt_tanh(atoll_rt_sub(drive, atoll_rt_at(y, "t-1"))));
  return y;
}
static atoll_rt *gradient_over(atoll_rec *c, const char *index) {
  atoll_rt *x = from_behind(c), *grad;
  atoll_rt_gradients(atoll_rt_sum(atoll_rt_square(atoll_rt_sum(atoll_rt_at(x, index), 0)), 0), 1, &x, &grad);
  return grad;
}
/* A gradient of the past's sum is a sum over the future. */
static atoll_rt *gradient(atoll_rec *c) { return gradient_over(c, "0:t+1"); }
/* Some points in between do not read x. */
static atoll_rt *gradient_with_holes(atoll_rec *c) { return gradient_over(c, "t%3:t+1"); }

/* These stay what they are. */
static atoll_rt *window(atoll_rec *c) { return atoll_rt_sum(atoll_rt_at(term(c), "max(0,t-2):t+1"), 0); }
static atoll_rt *without_present(atoll_rec *c) { return atoll_rt_sum(atoll_rt_at(term(c), "0:t"), 0); }
static atoll_rt *other_layers(atoll_rec *c) {
  atoll_rt *x = atoll_rt_mul(term(c), atoll_rec_expr(c, ATOLL_F64, "l+1"));
  return atoll_rt_sum(atoll_rt_at(atoll_rt_tanh(x), "t=0:t+1,l=t%3"), 0);
}
static atoll_rt *weighted(atoll_rec *c) {
  atoll_rt *x = atoll_rt_at(term(c), "0:t+1");
  return atoll_rt_sum(atoll_rt_mul(x, atoll_rec_expr(c, ATOLL_F64, "t+1")), 0);
}

static atoll_rec *make(scan *f, int64_t bound, test_log *log) {
  atoll_rec *c = test_context();
  atoll_rec_dim(c, "t", bound);
  atoll_rec_dim(c, "l", L);
  atoll_rt_sink(f(c), "y", test_collect, log);
  return c;
}

/* Most bytes of a run of T steps, whose results are those by definition. */
static int64_t peak_of(scan *f, int64_t T, int known, const char *passes, const char *compiler) {
  static test_log expected, got;
  const atoll_rec_binding b[] = {{"x", 0, numbers}, {"T", T, NULL}};
  atoll_rec_program *p = NULL;
  int64_t peak, most;
  memset(&expected, 0, sizeof expected);
  memset(&got, 0, sizeof got);
  atoll_rec *c = make(f, known ? T : 0, &expected);
  assert_ok(atoll_rec_interpret(c, b, 2));
  atoll_rec_destroy(&c);
  c = make(f, known ? T : 0, &got);
  assert_ok(atoll_rec_compile(c, &(atoll_rec_params){.passes = passes, .compiler = compiler}, &p));
  assert_ok(atoll_rec_run(p, b, 2));
  assert_ok(atoll_rec_peak_bytes(p, b, 2, &peak));
  assert_ok(atoll_rec_last_peak(p, &most));
  assert_int_equal(peak, most);
  assert_true(expected.n > 0);
  assert_int_equal(expected.n, got.n);
  for (int i = 0; i < got.n; i++)
    if (!(fabs(expected.v[i] - got.v[i]) < 1e-12 * (1 + fabs(expected.v[i]))))
      fail_msg("T=%d, element %d is %.17g, expected %.17g", (int)T, i, got.v[i], expected.v[i]);
  atoll_rec_program_destroy(&p);
  atoll_rec_destroy(&c);
  return peak;
}

static int64_t growth(scan *f, int known, const char *passes) {
  return peak_of(f, LONG, known, passes, "") - peak_of(f, SHORT, known, passes, "");
}

/* Bytes of one step; results over the future are kept for a sink, which reads them in the other direction. */
static void what_runs_along_keeps_nothing(void **state) {
  static const struct {
    scan *f;
    int64_t more, without;
  } scans[] = {{past_sum, 0, N * 8},
               {past_mean, 0, N * 8},
               {past_maximum, 0, N * 8},
               {past_powers, 0, N * 8},
               {scalar_powers, 0, 8},
               {sometimes, 0, N * 8},
               {fed_back, 0, N * 8},
               {mirrored, 0, L * N * 8},
               {first_of_future, 0, N * 8},
               {future_sum, N * 8, 2 * N * 8},
               {future_maximum, N * 8, 2 * N * 8},
               {future_powers, N * 8, 2 * N * 8}};
  (void)state;
  for (size_t k = 0; k < sizeof scans / sizeof *scans; k++)
    for (int known = 0; known < 2; known++) {
      int64_t more = growth(scans[k].f, known, "simplify,scans"), without = growth(scans[k].f, known, "simplify");
      if (more != scans[k].more * (LONG - SHORT) || without < scans[k].without * (LONG - SHORT))
        fail_msg("scan %d: %lld bytes more for %d steps more, %lld without", (int)k, (long long)more, LONG - SHORT,
                 (long long)without);
    }
}

static int gathers(scan *f) {
  static test_log unused;
  atoll_rec_program *p = NULL;
  atoll_rec *c = make(f, 0, &unused);
  assert_ok(atoll_rec_compile(c, &(atoll_rec_params){.passes = "simplify", .compiler = ""}, &p));
  char *text = test_print(p);
  int found = strstr(text, "= PICK") != NULL;
  free(text);
  atoll_rec_program_destroy(&p);
  atoll_rec_destroy(&c);
  return found;
}

static void gradients_run_along(void **state) {
  (void)state;
  assert_false(gathers(gradient));
  assert_true(gathers(gradient_with_holes));
  assert_true(growth(gradient, 0, "simplify,scans") < growth(gradient, 0, "simplify"));
  (void)growth(gradient_with_holes, 0, "simplify,scans");
}

static void what_does_not_run_along_stays(void **state) {
  static scan *const others[] = {window, without_present, other_layers, weighted};
  (void)state;
  for (size_t k = 0; k < sizeof others / sizeof *others; k++)
    assert_int_equal(peak_of(others[k], LONG, 0, "simplify,scans", ""), peak_of(others[k], LONG, 0, "simplify", ""));
}

static void the_whole_compiles_to_the_same(void **state) {
  static scan *const scans[] = {past_powers, first_of_future, sometimes, fed_back, mirrored, gradient};
  (void)state;
  for (size_t k = 0; k < sizeof scans / sizeof *scans; k++) {
    int64_t compiled = peak_of(scans[k], LONG, 0, NULL, NULL);
    assert_int_equal(compiled, peak_of(scans[k], LONG, 0, NULL, ""));
    if (scans[k] != gradient)
      assert_int_equal(compiled, peak_of(scans[k], SHORT, 0, NULL, NULL));
  }
}

/* Largest and its position, over rows and along time; where all is NaN, -infinity and 0. */
static atoll_rec *maxima(test_log *log) {
  atoll_rec *c = test_context();
  atoll_rec_dim(c, "t", 0);
  atoll_rt *x = atoll_rec_input(c, "x", ATOLL_F64, "t", ATOLL_SHAPE(N));
  atoll_rt *past = atoll_rt_at(x, "0:t+1"), *future = atoll_rt_at(x, "t:T"), *whole = atoll_rt_at(x, "0:T");
  atoll_rt_sink(atoll_rt_maximum(x, 0), "row", test_collect, &log[0]);
  atoll_rt_sink(atoll_rt_argmax(x, 0), "row", test_collect, &log[1]);
  atoll_rt_sink(atoll_rt_maximum(past, 0), "past", test_collect, &log[2]);
  atoll_rt_sink(atoll_rt_argmax(past, 0), "past", test_collect, &log[3]);
  atoll_rt_sink(atoll_rt_maximum(future, 0), "future", test_collect, &log[4]);
  atoll_rt_sink(atoll_rt_maximum(whole, 0), "whole", test_collect, &log[5]);
  return c;
}

static void maxima_pass_over_nan(void **state) {
  (void)state;
  enum { STEPS = 5, SINKS = 6 };
  static const double x[STEPS * N] = {NAN, NAN, 1, NAN, NAN, 3, 0.5, NAN, 2, NAN};
  static const double past[STEPS * N] = {-INFINITY, -INFINITY, 1, -INFINITY, 1, 3, 1, 3, 2, 3};
  static test_log expected[SINKS], got[SINKS];
  const atoll_rec_binding b[] = {{"T", STEPS, NULL}, {"x", 0, x}};
  atoll_rec *c = maxima(expected);
  assert_ok(atoll_rec_interpret(c, b, 2));
  atoll_rec_destroy(&c);
  assert_int_equal(expected[2].n, STEPS * N);
  assert_memory_equal(expected[2].v, past, sizeof past);
  for (int way = 0; way < 3; way++) {
    atoll_rec_program *p = NULL;
    memset(got, 0, sizeof got);
    c = maxima(got);
    assert_ok(atoll_rec_compile(
        c, &(atoll_rec_params){.compiler = way ? NULL : "", .device = way == 2 ? "async" : NULL}, &p));
    assert_ok(atoll_rec_run(p, b, 2));
    for (int k = 0; k < SINKS; k++) {
      assert_int_equal(got[k].n, expected[k].n);
      assert_memory_equal(got[k].v, expected[k].v, (size_t)got[k].n * sizeof *got[k].v);
    }
    atoll_rec_program_destroy(&p);
    atoll_rec_destroy(&c);
  }
}

int main(void) {
  for (int i = 0; i < LONG * N; i++)
    numbers[i] = (double)(i * 37 % 101) / 50 - 1;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_runs_along_keeps_nothing), cmocka_unit_test(gradients_run_along),
      cmocka_unit_test(what_does_not_run_along_stays), cmocka_unit_test(the_whole_compiles_to_the_same),
      cmocka_unit_test(maxima_pass_over_nan),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
