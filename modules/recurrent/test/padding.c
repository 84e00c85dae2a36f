/* Shifted reads beyond a tensor's points come from one stored value: the cases that said so are not computed, and
 * values are those of the interpreter, by demand and by schedule, compiled and not. */
#include <stdlib.h>
#include <string.h>

#include "recurrent_test.h"

enum { T = 7, L = 3, N = 4 };
static double numbers[T * N], weights[N * N];

/* `name` is x at an index where there is one, else a number. */
static atoll_rt *padded(atoll_rt *x, const char *name, const char *none, double number, const char *index,
                        const char *domain, atoll_rec *c) {
  atoll_rt *y = atoll_rec_tensor(c, name, ATOLL_F64, domain, ATOLL_SHAPE(N));
  atoll_rt_def(y, none, atoll_rec_const(c, ATOLL_F64, number));
  atoll_rt_def(y, "true", atoll_rt_at(x, index));
  return y;
}

/* A recurrence forward whose state begins with zeros. */
static void state(atoll_rec *c, atoll_rt *x, atoll_rt *w, test_log *log) {
  atoll_rt *h = atoll_rec_tensor(c, "h", ATOLL_F64, "t", ATOLL_SHAPE(N));
  atoll_rt *before = padded(h, "before", "t==0", 0, "t=t-1", "t", c);
  atoll_rt_def(h, "true", atoll_rt_tanh(atoll_rt_add(atoll_rt_einsum("ij,j->i", w, before), x)));
  atoll_rt_sink(h, "log", test_collect, log);
}

/* Backward, with a number that is not 0. */
static void returns(atoll_rec *c, atoll_rt *x, atoll_rt *w, test_log *log) {
  atoll_rt *g = atoll_rec_tensor(c, "g", ATOLL_F64, "t", ATOLL_SHAPE(N));
  (void)w;
  atoll_rt *next = padded(g, "next", "t==T-1", 1.5, "t=t+1", "t", c);
  atoll_rt_def(g, "true", atoll_rt_add(x, atoll_rt_scale(next, 0.9)));
  atoll_rt_sink(g, "log", test_collect, log);
}

/* A filter over what is computed: taps before the beginning are zeros. */
static void taps(atoll_rec *c, atoll_rt *x, atoll_rt *w, test_log *log) {
  atoll_rt *s = atoll_rt_sin(x), *sum = s;
  (void)w;
  sum = atoll_rt_add(sum, atoll_rt_scale(padded(s, "one", "t<1", 0, "t=t-1", "t", c), 0.5));
  sum = atoll_rt_add(sum, atoll_rt_scale(padded(s, "three", "t<3", 0, "t=t-3", "t", c), -0.25));
  atoll_rt_sink(sum, "log", test_collect, log);
}

/* One read under two conditions in one statement. */
static void twice(atoll_rec *c, atoll_rt *x, atoll_rt *w, test_log *log) {
  atoll_rt *s = atoll_rt_sin(x);
  (void)w;
  atoll_rt *soon = padded(s, "soon", "t<1", 2, "t=t-1", "t", c), *late = padded(s, "late", "t<3", 2, "t=t-1", "t", c);
  atoll_rt_sink(atoll_rt_sub(atoll_rt_scale(soon, 3), late), "log", test_collect, log);
}

/* Cases that name the constant last, in two dimensions; the reader comes from somewhere else itself. */
static void layers(atoll_rec *c, atoll_rt *x, atoll_rt *w, test_log *log) {
  atoll_rt *y = atoll_rec_tensor(c, "y", ATOLL_F64, "t,l", ATOLL_SHAPE(N));
  atoll_rt *corner = atoll_rec_tensor(c, "corner", ATOLL_F64, "t,l", ATOLL_SHAPE(N));
  (void)w;
  atoll_rt_def(corner, "t>=1 and l>=1", atoll_rt_at(y, "t=t-1,l=l-1"));
  atoll_rt_def(corner, "true", atoll_rec_const(c, ATOLL_F64, -2));
  atoll_rt_def(y, "true", atoll_rt_cos(atoll_rt_add(atoll_rt_at(corner, "l=L-1-l"), x)));
  atoll_rt_sink(y, "log", test_collect, log);
}

/* Two numbers for one tensor: the second stays a case. */
static void two(atoll_rec *c, atoll_rt *x, atoll_rt *w, test_log *log) {
  atoll_rt *s = atoll_rt_sin(x);
  (void)w;
  atoll_rt *a = padded(s, "a", "t==0", 2, "t=t-1", "t", c), *b = padded(s, "b", "t<2", 3, "t=t-2", "t", c);
  atoll_rt_sink(atoll_rt_sub(a, b), "log", test_collect, log);
}

/* A reader over a slice: the case stays. */
static void slice(atoll_rec *c, atoll_rt *x, atoll_rt *w, test_log *log) {
  (void)w;
  atoll_rt *b = padded(atoll_rt_sin(x), "b", "t==0", 1, "t=t-1", "t", c);
  atoll_rt_sink(atoll_rt_sum(atoll_rt_at(b, "t=max(0,t-2):t+1"), 0), "log", test_collect, log);
}

typedef void builder(atoll_rec *c, atoll_rt *x, atoll_rt *w, test_log *log);

static atoll_rec *build(builder *make, int64_t bound, test_log *log) {
  atoll_rec *c = test_context();
  memset(log, 0, sizeof *log);
  atoll_rec_dim(c, "t", bound);
  atoll_rec_dim(c, "l", L);
  make(c, atoll_rec_input(c, "x", ATOLL_F64, "t", ATOLL_SHAPE(N)),
       atoll_rec_input(c, "w", ATOLL_F64, "", ATOLL_SHAPE(N, N)), log);
  return c;
}

static int count(const char *text, const char *what) {
  int n = 0;
  for (const char *at = text; (at = strstr(at, what)); at++)
    n++;
  return n;
}

/* What the program prints after its passes. */
static void run(builder *make, int64_t bound, const char *compiler, test_log *log, int *pads, int *cases) {
  const atoll_rec_binding b[] = {{"x", 0, numbers}, {"w", 0, weights}, {"T", T, NULL}};
  atoll_rec *c = build(make, bound, log);
  atoll_rec_program *p = NULL;
  int64_t peak, most;
  assert_ok(atoll_rec_compile(c, &(atoll_rec_params){.compiler = compiler}, &p));
  assert_int_equal(strncmp(atoll_rec_engine(p), "compiled", 8) == 0, compiler == NULL);
  char *text = test_report(p, b, 3);
  *pads = count(text, "padded with");
  assert_int_equal(count(text, "\npads 32 bytes\n"), *pads); /* N f64 */
  *cases = count(text, "= MERGE");
  free(text);
  assert_ok(atoll_rec_run(p, b, 3));
  assert_ok(atoll_rec_peak_bytes(p, b, 3, &peak));
  assert_ok(atoll_rec_last_peak(p, &most));
  assert_int_equal(peak, most);
  atoll_rec_program_destroy(&p);
  atoll_rec_destroy(&c);
}

static void check(builder *make, int pads, int cases) {
  static test_log expected, got;
  const atoll_rec_binding b[] = {{"x", 0, numbers}, {"w", 0, weights}, {"T", T, NULL}};
  for (int k = 0; k < 4; k++) {
    const int64_t bound = k % 2 ? T : 0;
    int found[2];
    atoll_rec *c = build(make, bound, &expected);
    assert_ok(atoll_rec_interpret(c, b, 3));
    atoll_rec_destroy(&c);
    run(make, bound, k < 2 ? "" : NULL, &got, &found[0], &found[1]);
    assert_int_equal(found[0], pads);
    assert_int_equal(found[1], cases);
    assert_int_equal(got.n, expected.n);
    assert_true(got.n > 0);
    for (int i = 0; i < got.n; i++)
      assert_true(fabs(got.v[i] - expected.v[i]) < 1e-12);
  }
}

static void shifted_reads_have_pads(void **unused) {
  (void)unused;
  check(state, 1, 1); /* what is left is h itself */
  check(returns, 1, 1);
  check(taps, 1, 0);
  check(twice, 1, 0);
  check(layers, 1, 1);
}

static void other_cases_stay(void **unused) {
  (void)unused;
  check(two, 1, 1);
  check(slice, 0, 1);
}

int main(void) {
  uint64_t seed = 5;
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    numbers[i] = (double)test_below(&seed, 2000) / 1000 - 1;
  for (size_t i = 0; i < sizeof weights / sizeof *weights; i++)
    weights[i] = (double)test_below(&seed, 2000) / 1000 - 1;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(shifted_reads_have_pads),
      cmocka_unit_test(other_cases_stay),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
