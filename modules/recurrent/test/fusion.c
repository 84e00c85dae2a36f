/* What compiled loops are made of: statements that fuse although gradients read them backwards, values that are
 * computed where they are read, mathematics in float. */
#include <stdlib.h>
#include <string.h>

#include "recurrent_test.h"

enum { WIDTH = 64, BATCH = 32, T = 12, ARRAYS = 8 };

static int count(const char *text, const char *what) {
  int n = 0;
  for (const char *at = text; at && (at = strstr(at, what)); at++)
    n++;
  return n;
}

/* Two layers of tanh at every t, the mean of their squares over all t, and its gradients. */
static atoll_rec *layers(test_log *log) {
  atoll_rec *c = test_context();
  atoll_rec_dim(c, "t", T);
  atoll_rt *x = atoll_rec_input(c, "x", ATOLL_F32, "t", ATOLL_SHAPE(BATCH, WIDTH)), *grad[2];
  atoll_rt *w[2] = {atoll_rec_input(c, "w", ATOLL_F32, "", ATOLL_SHAPE(WIDTH, WIDTH)),
                    atoll_rec_input(c, "v", ATOLL_F32, "", ATOLL_SHAPE(WIDTH, WIDTH))};
  atoll_rt *y = atoll_rt_tanh(atoll_rt_matmul(atoll_rt_tanh(atoll_rt_matmul(x, w[0])), w[1]));
  atoll_rt_gradients(atoll_rt_mean_all(atoll_rt_at(atoll_rt_square(y), "t=0:T")), 2, w, grad);
  for (int k = 0; k < 2; k++)
    atoll_rt_sink(grad[k], "gradient", test_collect, &log[k]);
  return c;
}

static float numbers[T * BATCH * WIDTH];

static int draw_numbers(void **state) {
  uint64_t seed = 5;
  (void)state;
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    numbers[i] = (float)test_below(&seed, 2000) / 4000 - 0.25f;
  return 0;
}

static void check(const test_log *expected, const test_log *got, int n) {
  assert_int_equal(expected->n, n);
  assert_int_equal(got->n, n);
  for (int i = 0; i < n; i++)
    assert_true(fabs(expected->v[i] - got->v[i]) < 1e-6);
}

/* Everything at t is one statement, but for the sums over t; of what a layer keeps for its gradient, y alone is in
 * memory, and 1 - y y is not. */
static void layers_and_their_gradients_are_one_statement(void **state) {
  (void)state;
  static test_log expected[2], got[2];
  const atoll_rec_binding b[] = {{"x", 0, numbers}, {"w", 0, numbers + 5}, {"v", 0, numbers + 11}};
  char *text = NULL;
  size_t n = 0;
  atoll_rec_program *p = NULL;
  atoll_rec *c = layers(expected);
  assert_ok(atoll_rec_interpret(c, b, 3));
  atoll_rec_destroy(&c);
  c = layers(got);
  FILE *trace = open_memstream(&text, &n);
  assert_non_null(trace);
  assert_ok(atoll_rec_compile(c, &(atoll_rec_params){.trace = trace}, &p));
  fclose(trace);
  assert_ok(atoll_rec_run(p, b, 3));
  for (int k = 0; k < 2; k++)
    check(&expected[k], &got[k], WIDTH * WIDTH);
  char *schedule = strstr(text, "== schedule"), *code = strstr(schedule, "== C");
  char *statement = strstr(code, "RT_FUNCTION int s0_"), *end = strstr(statement, "\n}\n");
  code[0] = end[0] = 0;
  assert_int_equal(count(schedule, "execute "), 7); /* this one, two sums and their cases, two sinks */
  assert_int_equal(count(statement, "= (float *)r"), ARRAYS);
  free(text);
  atoll_rec_program_destroy(&p);
  atoll_rec_destroy(&c);
}

/* A recurrence forward, and a sum from the end on that weighs gradients: they wait for it. */
static atoll_rec *later(test_log *log) {
  atoll_rec *c = test_context();
  atoll_rec_dim(c, "t", 0);
  atoll_rt *x = atoll_rec_input(c, "x", ATOLL_F32, "t", ATOLL_SHAPE(BATCH, WIDTH)), *grad;
  atoll_rt *w = atoll_rec_input(c, "w", ATOLL_F32, "", ATOLL_SHAPE(WIDTH, WIDTH));
  atoll_rt *before = atoll_rec_tensor(c, "before", ATOLL_F32, "t", ATOLL_SHAPE(BATCH, WIDTH));
  atoll_rt *y = atoll_rt_tanh(atoll_rt_matmul(atoll_rt_add(x, atoll_rt_detach(before)), w));
  y = atoll_rt_tanh(atoll_rt_matmul(y, w));
  atoll_rt *sum = atoll_rt_mean_all(atoll_rt_square(y));
  atoll_rt_def(before, "t==0", x);
  atoll_rt_def(before, "true", atoll_rt_at(y, "t=t-1"));
  atoll_rt *g = atoll_rec_tensor(c, "g", ATOLL_F32, "t", ATOLL_SCALAR);
  atoll_rt_def(g, "t==T-1", sum);
  atoll_rt_def(g, "true", atoll_rt_add(sum, atoll_rt_at(g, "t=t+1")));
  atoll_rt *loss = atoll_rt_mul(atoll_rt_mean_all(y), atoll_rt_detach(g));
  atoll_rt_gradients(atoll_rt_mean(atoll_rt_at(loss, "t=0:T"), 0), 1, &w, &grad);
  atoll_rt_sink(atoll_rt_sum(grad, 0), "gradient", test_collect, log);
  return c;
}

/* What a gradient makes of a layer's y alone, 1 - y y, is made when it is used if y is kept anyhow. Of two layers, what
 * each has read is kept, and one array for the last tanh. */
static void gradients_that_wait_keep_three_arrays(void **state) {
  (void)state;
  static test_log expected, got;
  const atoll_rec_binding b[] = {{"T", T, NULL}, {"x", 0, numbers}, {"w", 0, numbers + 5}};
  int64_t peak;
  atoll_rec_program *p = NULL;
  atoll_rec *c = later(&expected);
  assert_ok(atoll_rec_interpret(c, b, 3));
  atoll_rec_destroy(&c);
  c = later(&got);
  assert_ok(atoll_rec_compile(c, &(atoll_rec_params){.flags = "-O1 -ffp-contract=off"}, &p));
  assert_ok(atoll_rec_run(p, b, 3));
  assert_ok(atoll_rec_last_peak(p, &peak));
  print_message("%d arrays of %d bytes, %" PRId64 " at most\n", T, BATCH * WIDTH * 4, peak);
  assert_true(peak < (3 * T + 6) * BATCH * WIDTH * 4);
  check(&expected, &got, WIDTH);
  atoll_rec_program_destroy(&p);
  atoll_rec_destroy(&c);
}

/* m = y z is read when a sum from the end on is known, by a statement that reads y and z, but at the first point alone.
 */
static atoll_rec *product_for_later(test_log *log) {
  atoll_rec *c = test_context();
  atoll_rec_dim(c, "t", 0);
  atoll_rt *x = atoll_rec_input(c, "x", ATOLL_F32, "t", ATOLL_SHAPE(WIDTH));
  atoll_rt *y = atoll_rt_tanh(x), *z = atoll_rt_sin(x), *m = atoll_rt_mul(y, z), *sum = atoll_rt_mean_all(y);
  atoll_rt *g = atoll_rec_tensor(c, "g", ATOLL_F32, "t", ATOLL_SCALAR);
  atoll_rt_def(g, "t==T-1", sum);
  atoll_rt_def(g, "true", atoll_rt_add(sum, atoll_rt_at(g, "t=t+1")));
  atoll_rt *first =
      atoll_rt_add(atoll_rt_mul(atoll_rt_at(y, "t=max(0,t-11)"), g), atoll_rt_mul(atoll_rt_at(z, "t=max(0,t-11)"), g));
  atoll_rt_sink(atoll_rt_add(atoll_rt_mul(m, g), first), "sum", test_collect, log);
  return c;
}

/* Put off, it would be computed from two arrays of each t that nobody keeps otherwise. */
static void values_wait_only_where_operands_are_kept(void **state) {
  (void)state;
  static test_log expected, got;
  const atoll_rec_binding b[] = {{"T", T, NULL}, {"x", 0, numbers}};
  int64_t peak;
  atoll_rec_program *p = NULL;
  atoll_rec *c = product_for_later(&expected);
  assert_ok(atoll_rec_interpret(c, b, 2));
  atoll_rec_destroy(&c);
  c = product_for_later(&got);
  assert_ok(atoll_rec_compile(c, &(atoll_rec_params){.compiler = ""}, &p));
  assert_ok(atoll_rec_run(p, b, 2));
  assert_ok(atoll_rec_last_peak(p, &peak));
  print_message("%d arrays of %d bytes, %" PRId64 " at most\n", T, WIDTH * 4, peak);
  assert_true(peak < (T + 8) * WIDTH * 4);
  check(&expected, &got, T * WIDTH);
  atoll_rec_program_destroy(&p);
  atoll_rec_destroy(&c);
}

/* f(x) of many x from 1e-6 to 30 and their negatives. */
static void check_function(atoll_rt *(*make)(atoll_rt *), double (*exact)(double), double units, double most) {
  enum { POINTS = 4096 };
  static float x[POINTS];
  static test_log log;
  atoll_rec_program *p = NULL;
  for (int i = 0; i < POINTS; i++)
    x[i] = (i % 2 ? -1 : 1) * 1e-6f * powf(3e7f, (float)i / POINTS);
  log.n = 0;
  atoll_rec *c = test_context();
  atoll_rt_sink(make(atoll_rec_input(c, "x", ATOLL_F32, "", ATOLL_SHAPE(POINTS))), "y", test_collect, &log);
  assert_ok(atoll_rec_compile(c, NULL, &p));
  assert_int_equal(strncmp(atoll_rec_engine(p), "compiled", 8), 0);
  assert_ok(atoll_rec_run(p, &(atoll_rec_binding){"x", 0, x}, 1));
  for (int i = 0; i < POINTS; i++) {
    double y = exact(x[i]), unit = ldexp(1, ilogb(y) - 23);
    if (!(fabs(log.v[i] - y) <= units * unit && fabs(log.v[i]) <= most))
      fail_msg("of %g: %.9g, expected %.9g", (double)x[i], log.v[i], y);
  }
  atoll_rec_program_destroy(&p);
  atoll_rec_destroy(&c);
}

static void mathematics_in_float_is_close(void **state) {
  (void)state;
  check_function(atoll_rt_tanh, tanh, 6, 1);
  check_function(atoll_rt_exp, exp, 2, INFINITY);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(layers_and_their_gradients_are_one_statement),
      cmocka_unit_test(gradients_that_wait_keep_three_arrays),
      cmocka_unit_test(values_wait_only_where_operands_are_kept),
      cmocka_unit_test(mathematics_in_float_is_close),
  };
  return cmocka_run_group_tests(tests, draw_numbers, NULL);
}
