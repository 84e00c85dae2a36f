/* Gradients against central differences, for every kind of index and through recurrences; those over a dimension that
 * becomes an axis as programs, too. */
#include "recurrent_test.h"

enum { T = 6, B = 3, N = 3 };

/* The program's loss as a function of x [b,t][N] and w [N,N]. */
typedef atoll_rt *(*builder)(atoll_rec *c, atoll_rt *x, atoll_rt *w);

static int64_t known; /* T; 0: given at run */

static atoll_rec *make(builder build, test_log *loss, test_log *gx, test_log *gw) {
  atoll_rec *c = test_context();
  atoll_rt *grad[2];
  atoll_rec_dim(c, "b", B);
  atoll_rec_dim(c, "t", known);
  atoll_rt *xt = atoll_rec_input(c, "x", ATOLL_F64, "b,t", ATOLL_SHAPE(N));
  atoll_rt *wt = atoll_rec_input(c, "w", ATOLL_F64, "", ATOLL_SHAPE(N, N));
  atoll_rt *l = build(c, xt, wt);
  atoll_rt_sink(l, "loss", test_collect, loss);
  if (gx) {
    atoll_rt_gradients(l, 2, (atoll_rt *[]){xt, wt}, grad);
    atoll_rt_sink(grad[0], "gx", test_collect, gx);
    atoll_rt_sink(grad[1], "gw", test_collect, gw);
  }
  return c;
}

static double total_loss(builder build, const double *x, const double *w, test_log *gx, test_log *gw) {
  test_log loss = {0};
  atoll_rec *c = make(build, &loss, gx, gw);
  assert_ok(atoll_rec_interpret(c, (atoll_rec_binding[]){{"T", T, NULL}, {"x", 0, x}, {"w", 0, w}}, 3));
  atoll_rec_destroy(&c);
  double sum = 0;
  for (int i = 0; i < loss.n; i++)
    sum += loss.v[i];
  return sum;
}

static void draw(double *x, double *w) {
  uint64_t seed = 3;
  for (int i = 0; i < B * T * N; i++)
    x[i] = (double)test_below(&seed, 2000) / 1000 - 1;
  for (int i = 0; i < N * N; i++)
    w[i] = (double)test_below(&seed, 2000) / 1000 - 1;
}

static void compare(builder build, const char *name) {
  double x[B * T * N], w[N * N];
  test_log gx = {0}, gw = {0};
  draw(x, w);
  (void)total_loss(build, x, w, &gx, &gw);
  assert_int_equal(gx.n, B * T * N);
  assert_int_equal(gw.n, N * N);
  double norm = 0;
  for (int i = 0; i < gx.n + gw.n; i++) {
    double *at = i < gx.n ? &x[i] : &w[i - gx.n], keep = *at, h = 1e-5;
    *at = keep + h;
    double up = total_loss(build, x, w, NULL, NULL);
    *at = keep - h;
    double down = total_loss(build, x, w, NULL, NULL);
    *at = keep;
    double expected = (up - down) / (2 * h), got = i < gx.n ? gx.v[i] : gw.v[i - gx.n];
    norm += fabs(expected);
    if (!(fabs(got - expected) < 1e-6 * (1 + fabs(expected))))
      fail_msg("%s: gradient %d is %.9g, differences give %.9g", name, i, got, expected);
  }
  assert_true(norm > 0.1);
}

/* A number from x [..., N] in which every element has its own weight: sin, a row of w over the last axis, and powers
 * over the others. */
static atoll_rt *measure(atoll_rt *x, atoll_rt *w, int leading) {
  atoll_rt *row = atoll_rt_reshape(atoll_rt_slice(w, 0, 1, 1), ATOLL_SHAPE(N));
  atoll_rt *y = atoll_rt_sum(atoll_rt_mul(atoll_rt_sin(x), row), -1);
  for (int k = 0; k < leading; k++)
    y = atoll_rt_dsum(y, 0.7);
  return y;
}

static const char *pattern; /* of the builder below */
static int pattern_slices;

static atoll_rt *indexed(atoll_rec *c, atoll_rt *x, atoll_rt *w) {
  (void)c;
  return measure(atoll_rt_at(x, pattern), w, pattern_slices);
}

static void index_patterns(void **state) {
  (void)state;
  static const struct {
    const char *index;
    int slices;
  } all[] = {
      {"b,t", 0},
      {"b,0", 0},
      {"b,T-1", 0},
      {"b,3:5", 1},
      {"b,0:T", 1},
      {"b,0:t+1", 1},
      {"b,0:t", 1},
      {"b,t:T", 1},
      {"b,t+1:T", 1},
      {"b,max(0,t-2):t+1", 1},
      {"b,t:min(t+3,T)", 1},
      {"b,max(0,t-1):min(t+2,T)", 1},
      {"b,t//2", 0},
      {"b,t%4", 0},
      {"b,(t+b)%4", 0},
      {"b,T-1-t", 0},
      {"b,min(t+2,T-1)", 0},
      {"b,max(t-2,0)", 0},
      {"B-1-b,t", 0},
      {"0:B,t", 1},
      {"0:B,0:t+1", 2},
      {"0:b+1,t//2:t+1", 2},
      {"b,t//3*3:t+1", 1},
      {"b,select(t<3,t,T-1)", 0},
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    pattern = all[i].index;
    pattern_slices = all[i].slices;
    compare(indexed, pattern);
  }
}

static atoll_rt *defined(atoll_rec *c, const char *first, atoll_rt *base, atoll_rt *rest, const char *index) {
  atoll_rt *y = atoll_rec_tensor(c, "y", ATOLL_F64, "b,t", ATOLL_SHAPE(N));
  atoll_rt_def(y, first, base);
  atoll_rt_def(y, "true", atoll_rt_at(rest, index));
  return y;
}

static atoll_rt *shifted_back(atoll_rec *c, atoll_rt *x, atoll_rt *w) {
  return measure(defined(c, "t==0", atoll_rt_scale(x, 2), atoll_rt_square(x), "b,t-1"), w, 0);
}

static atoll_rt *shifted_ahead(atoll_rec *c, atoll_rt *x, atoll_rt *w) {
  return measure(defined(c, "t>=T-2", atoll_rt_scale(x, 2), atoll_rt_square(x), "b,t+2"), w, 0);
}

static atoll_rt *recurrent(atoll_rec *c, atoll_rt *x, atoll_rt *w) {
  atoll_rt *h = atoll_rec_tensor(c, "h", ATOLL_F64, "b,t", ATOLL_SHAPE(N));
  atoll_rt_def(h, "t==0", atoll_rt_tanh(atoll_rt_mv(w, x)));
  atoll_rt_def(h, "true", atoll_rt_tanh(atoll_rt_add(atoll_rt_mv(w, x), atoll_rt_mv(w, atoll_rt_at(h, "b,t-1")))));
  return measure(atoll_rt_at(h, "b,T-1"), w, 0);
}

static atoll_rt *returns(atoll_rec *c, atoll_rt *x, atoll_rt *w) {
  atoll_rt *g = atoll_rec_tensor(c, "g", ATOLL_F64, "b,t", ATOLL_SHAPE(N));
  atoll_rt_def(g, "t==T-1", x);
  atoll_rt_def(g, "true", atoll_rt_add(x, atoll_rt_scale(atoll_rt_at(g, "b,t+1"), 0.9)));
  return measure(atoll_rt_at(g, "0:B,0:T"), w, 2);
}

static atoll_rt *two_steps(atoll_rec *c, atoll_rt *x, atoll_rt *w) {
  atoll_rt *h = atoll_rec_tensor(c, "h", ATOLL_F64, "b,t", ATOLL_SHAPE(N));
  atoll_rt_def(h, "t<2", x);
  atoll_rt_def(h, "true", atoll_rt_sin(atoll_rt_mul(atoll_rt_mv(w, atoll_rt_at(h, "b,t-2")), atoll_rt_at(h, "b,t-1"))));
  return measure(h, w, 0);
}

static atoll_rt *lstm(atoll_rec *c, atoll_rt *x, atoll_rt *w) {
  atoll_rt *h = atoll_rec_tensor(c, "h", ATOLL_F64, "b,t", ATOLL_SHAPE(N));
  atoll_rt *s = atoll_rec_tensor(c, "s", ATOLL_F64, "b,t", ATOLL_SHAPE(N));
  atoll_rt *before_h = atoll_rec_tensor(c, "before_h", ATOLL_F64, "b,t", ATOLL_SHAPE(N));
  atoll_rt *before_s = atoll_rec_tensor(c, "before_s", ATOLL_F64, "b,t", ATOLL_SHAPE(N));
  atoll_rt *zero = atoll_rec_const(c, ATOLL_F64, 0);
  atoll_rt_def(before_h, "t==0", zero);
  atoll_rt_def(before_h, "true", atoll_rt_at(h, "b,t-1"));
  atoll_rt_def(before_s, "t==0", zero);
  atoll_rt_def(before_s, "true", atoll_rt_at(s, "b,t-1"));
  atoll_rt *u = atoll_rt_add(atoll_rt_mv(w, x), before_h);
  atoll_rt *in = atoll_rt_sigmoid(u), *forget = atoll_rt_sigmoid(atoll_rt_shift(atoll_rt_neg(u), 1));
  atoll_rt *candidate = atoll_rt_tanh(atoll_rt_add(x, atoll_rt_mv(w, before_h)));
  atoll_rt *out = atoll_rt_sigmoid(atoll_rt_sub(x, before_h));
  atoll_rt_def(s, "true", atoll_rt_add(atoll_rt_mul(forget, before_s), atoll_rt_mul(in, candidate)));
  atoll_rt_def(h, "true", atoll_rt_mul(out, atoll_rt_tanh(s)));
  return measure(atoll_rt_at(h, "b,0:T"), w, 1);
}

static atoll_rt *attention(atoll_rec *c, atoll_rt *x, atoll_rt *w) {
  (void)c;
  atoll_rt *q = atoll_rt_mv(w, x), *k = atoll_rt_at(x, "b,0:t+1"), *v = atoll_rt_at(atoll_rt_tanh(x), "b,0:t+1");
  atoll_rt *p = atoll_rt_softmax(atoll_rt_einsum("nd,d->n", k, q), 0);
  return measure(atoll_rt_einsum("n,nd->d", p, v), w, 0);
}

static atoll_rt *layers(atoll_rec *c, atoll_rt *x, atoll_rt *w) {
  atoll_rec_dim(c, "l", 3);
  atoll_rt *h = atoll_rec_tensor(c, "h", ATOLL_F64, "b,t,l", ATOLL_SHAPE(N));
  atoll_rt_def(h, "l==0", x);
  atoll_rt_def(h, "true", atoll_rt_at(atoll_rt_rmsnorm(atoll_rt_gelu(atoll_rt_mv(w, h)), NULL, 1e-2), "l=l-1"));
  return measure(atoll_rt_at(h, "b,t,L-1"), w, 0);
}

/* A recurrence over a grid, which no loop over one dimension orders. */
static atoll_rt *grid(atoll_rec *c, atoll_rt *x, atoll_rt *w) {
  atoll_rt *h = atoll_rec_tensor(c, "h", ATOLL_F64, "b,t", ATOLL_SHAPE(N));
  atoll_rt_def(h, "b==0 or t==T-1", x);
  atoll_rt_def(h, "true",
               atoll_rt_tanh(atoll_rt_add(atoll_rt_at(h, "b-1,t+1"), atoll_rt_mul(x, atoll_rt_at(h, "b,t+1")))));
  return measure(h, w, 0);
}

static void recurrences(void **state) {
  (void)state;
  compare(shifted_back, "shifted back");
  compare(shifted_ahead, "shifted ahead");
  compare(recurrent, "recurrent");
  compare(returns, "returns");
  compare(two_steps, "two steps");
  compare(lstm, "lstm");
  compare(attention, "attention");
  compare(layers, "layers");
  compare(grid, "grid");
}

/* ---- over a dimension that becomes an axis ---- */

static atoll_rt *along_batch(atoll_rec *c, atoll_rt *x, atoll_rt *w) {
  atoll_rt *h = atoll_rec_tensor(c, "h", ATOLL_F64, "b,t", ATOLL_SHAPE(N)), *u = atoll_rt_mv(w, x);
  atoll_rt_def(h, "b==0", atoll_rt_tanh(u));
  atoll_rt_def(h, "true", atoll_rt_tanh(atoll_rt_add(u, atoll_rt_mv(w, atoll_rt_at(h, "b-1,t")))));
  return measure(h, w, 0);
}

static atoll_rt *down_the_batch(atoll_rec *c, atoll_rt *x, atoll_rt *w) {
  atoll_rt *h = atoll_rec_tensor(c, "h", ATOLL_F64, "b,t", ATOLL_SHAPE(N));
  atoll_rt_def(h, "b==B-1", x);
  atoll_rt_def(h, "true", atoll_rt_sin(atoll_rt_add(x, atoll_rt_scale(atoll_rt_at(h, "b+1,t"), 0.9))));
  return measure(atoll_rt_at(h, "0,t"), w, 0);
}

/* What is on the cycle has values at all points. */
static atoll_rt *needed_everywhere(atoll_rec *c, atoll_rt *x, atoll_rt *w) {
  atoll_rt *h = atoll_rec_tensor(c, "h", ATOLL_F64, "b,t", ATOLL_SHAPE(N));
  atoll_rt *f = atoll_rt_tanh(atoll_rt_add(x, atoll_rt_mv(w, atoll_rt_at(h, "max(b-1,0),t"))));
  atoll_rt_def(h, "b==0", x);
  atoll_rt_def(h, "true", f);
  return measure(atoll_rt_mul(f, h), w, 0);
}

/* Along both: the order of t alone serves. */
static atoll_rt *diagonal(atoll_rec *c, atoll_rt *x, atoll_rt *w) {
  atoll_rt *h = atoll_rec_tensor(c, "h", ATOLL_F64, "b,t", ATOLL_SHAPE(N));
  atoll_rt_def(h, "b==0 or t==0", x);
  atoll_rt_def(h, "true", atoll_rt_sin(atoll_rt_add(x, atoll_rt_at(h, "b-1,t-1"))));
  return measure(h, w, 0);
}

static void agree(const char *name, const test_log *expected, const test_log *got) {
  assert_int_equal(expected->n, got->n);
  for (int i = 0; i < got->n; i++) /* sums over the axis have another order */
    if (!(fabs(got->v[i] - expected->v[i]) < 1e-12 * (1 + fabs(expected->v[i]))))
      fail_msg("%s: gradient %d is %.17g, expected %.17g", name, i, got->v[i], expected->v[i]);
}

static void recurrences_over_an_axis(void **state) {
  static const struct {
    builder build;
    const char *name;
  } all[] = {{along_batch, "along the batch"},
             {down_the_batch, "down the batch"},
             {needed_everywhere, "needed everywhere"},
             {diagonal, "diagonal"}};
  static const char *const vectorize[] = {NULL, "b"};
  double x[B * T * N], w[N * N];
  const atoll_rec_binding bindings[] = {{"T", T, NULL}, {"x", 0, x}, {"w", 0, w}};
  (void)state;
  draw(x, w);
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    test_log expected[2] = {{0}};
    compare(all[i].build, all[i].name);
    (void)total_loss(all[i].build, x, w, &expected[0], &expected[1]);
    for (int v = 0; v < 2; v++) {
      test_log loss = {0}, got[2] = {{0}};
      atoll_rec_program *program = NULL;
      atoll_rec *c = make(all[i].build, &loss, &got[0], &got[1]);
      if (atoll_rec_compile(c, &(atoll_rec_params){.vectorize = vectorize[v], .compiler = ""}, &program) != ATOLL_OK)
        fail_msg("%s, vectorize '%s': %s", all[i].name, v ? vectorize[v] : "", atoll_err_message());
      assert_ok(atoll_rec_run(program, bindings, 3));
      agree(all[i].name, &expected[0], &got[0]);
      agree(all[i].name, &expected[1], &got[1]);
      atoll_rec_program_destroy(&program);
      atoll_rec_destroy(&c);
    }
  }
}

/* With one step, what is defined by the step before never applies. That is no mistake, also where it is known. */
static void one_step(void **state) {
  static const builder all[] = {lstm, along_batch, down_the_batch};
  double x[B * T * N], w[N * N];
  const atoll_rec_binding bindings[] = {{"x", 0, x}, {"w", 0, w}, {"T", 1, NULL}};
  (void)state;
  draw(x, w);
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    test_log expected[3] = {{0}};
    atoll_rec *c = make(all[i], &expected[0], &expected[1], &expected[2]);
    assert_ok(atoll_rec_interpret(c, bindings, 3));
    atoll_rec_destroy(&c);
    for (int compiled = 0; compiled < 2; compiled++) {
      test_log got[3] = {{0}};
      atoll_rec_program *program = NULL;
      known = 1;
      c = make(all[i], &got[0], &got[1], &got[2]);
      known = 0;
      if (compiled) {
        assert_ok(atoll_rec_compile(c, &(atoll_rec_params){.compiler = ""}, &program));
        assert_ok(atoll_rec_run(program, bindings, 2));
      } else {
        assert_ok(atoll_rec_interpret(c, bindings, 2));
      }
      assert_int_equal(got[1].n, B * N);
      for (int k = 0; k < 3; k++)
        agree("one step", &expected[k], &got[k]);
      atoll_rec_program_destroy(&program);
      atoll_rec_destroy(&c);
    }
  }
}

static atoll_rt *unary_all(atoll_rec *c, atoll_rt *x, atoll_rt *w) {
  (void)c;
  atoll_rt *p = atoll_rt_shift(atoll_rt_square(x), 0.5), *y = atoll_rt_exp(x);
  y = atoll_rt_add(y, atoll_rt_mul(atoll_rt_log(p), atoll_rt_sqrt(p)));
  y = atoll_rt_add(y, atoll_rt_div(atoll_rt_cos(x), atoll_rt_shift(atoll_rt_abs(x), 1)));
  y = atoll_rt_add(y, atoll_rt_pow(p, x));
  y = atoll_rt_add(y, atoll_rt_max(x, atoll_rt_min(atoll_rt_scale(x, 3), atoll_rt_neg(x))));
  y = atoll_rt_add(y, atoll_rt_where(atoll_rt_lt(x, atoll_rt_square(x)), atoll_rt_silu(x), atoll_rt_gelu_tanh(x)));
  return measure(atoll_rt_sub(y, atoll_rt_layernorm(x, NULL, NULL, 0.1)), w, 0);
}

static atoll_rt *shapes_all(atoll_rec *c, atoll_rt *x, atoll_rt *w) {
  atoll_rt *m = atoll_rt_mul(atoll_rt_reshape(x, ATOLL_SHAPE(N, 1)), w);
  atoll_rt *y = atoll_rt_maximum(atoll_rt_permute(m, (int[]){1, 0}), 0);
  atoll_rt *joined = atoll_rt_concat(m, atoll_rt_matmul(m, w), 0);
  y = atoll_rt_add(y, atoll_rt_mean(atoll_rt_slice(joined, 0, 1, 4), 0));
  atoll_rt *rows = atoll_rt_take(m, atoll_rt_reshape(atoll_rec_expr(c, ATOLL_I32, "t%2"), ATOLL_SHAPE(1)));
  y = atoll_rt_add(y, atoll_rt_reshape(rows, ATOLL_SHAPE(N)));
  return measure(atoll_rt_add(y, atoll_rt_log_softmax(y, 0)), w, 0);
}

static void operations(void **state) {
  (void)state;
  compare(unary_all, "elementwise");
  compare(shapes_all, "shapes");
}

/* x[i+1] from the gradient at x[i]: descent reaches the minimum, and the steps themselves are not differentiated. */
static void parameters_descend(void **state) {
  (void)state;
  atoll_rec *c = test_context();
  test_log log = {0};
  atoll_rt *grad;
  atoll_rec_dim(c, "i", 400);
  atoll_rt *x = atoll_rec_tensor(c, "x", ATOLL_F64, "i", ATOLL_SHAPE(2));
  atoll_rt_def(x, "i==0", atoll_rt_shift(atoll_rec_iota(c, ATOLL_F64, 2), 1));
  atoll_rt *loss = atoll_rt_sum(atoll_rt_square(atoll_rt_shift(x, -3)), 0);
  atoll_rt_gradients(loss, 1, &x, &grad);
  atoll_rt_adam(x, grad, "i", 0.05, 0.9, 0.999, 1e-8);
  atoll_rt_sink(atoll_rt_at(x, "I-1"), "x", test_collect, &log);
  atoll_rt_sink(atoll_rt_at(x, "1"), "x", test_collect, &log);
  assert_ok(atoll_rec_interpret(c, NULL, 0));
  assert_true(fabs(log.v[0] - 3) < 1e-3 && fabs(log.v[1] - 3) < 1e-3);
  /* the first step of Adam is the rate, whatever the size of the gradient */
  assert_true(fabs(log.v[2] - 1.05) < 1e-6 && fabs(log.v[3] - 2.05) < 1e-6);
  atoll_rec_destroy(&c);
}

/* Descends on x*y + x^2 by x and on y^2 - x*y by y, each the other's surroundings. */
static atoll_rec *players(int second_first, test_log *log) {
  atoll_rec *c = test_context();
  atoll_rt *grad[2];
  atoll_rec_dim(c, "i", 20);
  atoll_rt *x = atoll_rec_tensor(c, "x", ATOLL_F64, "i", ATOLL_SCALAR);
  atoll_rt *y = atoll_rec_tensor(c, "y", ATOLL_F64, "i", ATOLL_SCALAR);
  atoll_rt_def(x, "i==0", atoll_rec_const(c, ATOLL_F64, 1));
  atoll_rt_def(y, "i==0", atoll_rec_const(c, ATOLL_F64, -0.5));
  atoll_rt *xy = atoll_rt_mul(x, y);
  atoll_rt *loss[] = {atoll_rt_add(xy, atoll_rt_square(x)), atoll_rt_sub(atoll_rt_square(y), xy)};
  for (int k = 0; k < 2; k++) {
    const int who = k ^ second_first;
    atoll_rt_gradients(loss[who], 1, who ? &y : &x, &grad[who]);
  }
  atoll_rt_def(x, "true", atoll_rt_at(atoll_rt_sub(x, atoll_rt_scale(grad[0], 0.1)), "i-1"));
  atoll_rt_def(y, "true", atoll_rt_at(atoll_rt_sub(y, atoll_rt_scale(grad[1], 0.2)), "i-1"));
  atoll_rt_sink(x, "x", test_collect, &log[0]);
  atoll_rt_sink(y, "y", test_collect, &log[1]);
  return c;
}

static void two_learn_from_each_other(void **state) {
  (void)state;
  for (int way = 0; way < 6; way++) {
    test_log got[2] = {{0}};
    double x = 1, y = -0.5;
    atoll_rec_program *p = NULL;
    atoll_rec *c = players(way % 2, got);
    if (way < 2) {
      assert_ok(atoll_rec_interpret(c, NULL, 0));
    } else {
      assert_ok(atoll_rec_compile(c, &(atoll_rec_params){.compiler = way < 4 ? "" : NULL}, &p));
      assert_ok(atoll_rec_run(p, NULL, 0));
    }
    assert_true(got[0].n == 20 && got[1].n == 20);
    for (int i = 0; i < 20; i++) {
      assert_true(fabs(got[0].v[i] - x) < 1e-12 && fabs(got[1].v[i] - y) < 1e-12);
      const double dx = y + 2 * x, dy = 2 * y - x;
      x -= 0.1 * dx;
      y -= 0.2 * dy;
    }
    atoll_rec_program_destroy(&p);
    atoll_rec_destroy(&c);
  }
}

/* What one call has as a leaf another one differentiates through, where it is an ordinary value, and where what is
 * asked for is the effect on what was learnt: x halves as often as the rate says. */
static void calls_differentiate_through_leaves_of_others(void **state) {
  (void)state;
  enum { I = 6 };
  for (int second_first = 0; second_first < 2; second_first++) {
    const double w0 = 0.75;
    const atoll_rec_binding b = {"w", 0, &w0};
    test_log log[2] = {{0}};
    atoll_rec *c = test_context();
    atoll_rt *w = atoll_rec_input(c, "w", ATOLL_F64, "", ATOLL_SCALAR), *h = atoll_rt_tanh(w), *grad[2];
    atoll_rt *loss = atoll_rt_square(h);
    for (int k = 0; k < 2; k++)
      atoll_rt_gradients(loss, 1, k ^ second_first ? &w : &h, &grad[k ^ second_first]);
    for (int k = 0; k < 2; k++)
      atoll_rt_sink(grad[k], "d", test_collect, &log[k]);
    assert_ok(atoll_rec_interpret(c, &b, 1));
    const double t = tanh(w0);
    assert_true(fabs(log[0].v[0] - 2 * t) < 1e-12 && fabs(log[1].v[0] - 2 * t * (1 - t * t)) < 1e-12);
    atoll_rec_destroy(&c);
  }
  const double rate = 0.2;
  const atoll_rec_binding b = {"rate", 0, &rate};
  test_log log = {0};
  atoll_rec *c = test_context();
  atoll_rt *step, *effect;
  atoll_rec_dim(c, "i", I);
  atoll_rt *a = atoll_rec_input(c, "rate", ATOLL_F64, "", ATOLL_SCALAR);
  atoll_rt *x = atoll_rec_tensor(c, "x", ATOLL_F64, "i", ATOLL_SCALAR);
  atoll_rt_def(x, "i==0", atoll_rec_const(c, ATOLL_F64, 1));
  atoll_rt_gradients(atoll_rt_square(x), 1, &x, &step);
  atoll_rt_def(x, "true", atoll_rt_at(atoll_rt_sub(x, atoll_rt_mul(a, step)), "i-1"));
  atoll_rt_gradients(atoll_rt_at(x, "I-1"), 1, &a, &effect);
  atoll_rt_sink(effect, "effect", test_collect, &log);
  assert_ok(atoll_rec_interpret(c, &b, 1));
  assert_true(fabs(log.v[0] - (I - 1) * pow(1 - 2 * rate, I - 2) * -2) < 1e-12);
  atoll_rec_destroy(&c);
}

/* The gradients of the sum of y by a and b are these, by the definition and by the program. */
static void check_kink(atoll_rec *c, atoll_rt *y, atoll_rt *a, atoll_rt *b, const double expected[2 * N],
                       const char *name) {
  static const double x[2 * N] = {0, 2, 2, 0, 2, 1};
  const atoll_rec_binding bound = {"x", 0, x};
  test_log log = {0};
  atoll_rec_program *p = NULL;
  atoll_rt *grad[2];
  atoll_rt_gradients(atoll_rt_sum(y, 0), 2, (atoll_rt *[]){a, b}, grad);
  atoll_rt_sink(atoll_rt_concat(grad[0], grad[1], 0), "gradient", test_collect, &log);
  assert_ok(atoll_rec_interpret(c, &bound, 1));
  assert_ok(atoll_rec_compile(c, NULL, &p));
  assert_ok(atoll_rec_run(p, &bound, 1));
  assert_int_equal(log.n, 4 * N);
  for (int i = 0; i < 4 * N; i++)
    if (log.v[i] != expected[i % (2 * N)] && !(isnan(log.v[i]) && isnan(expected[i % (2 * N)])))
      fail_msg("%s: gradient %d is %g, expected %g", name, i, log.v[i], expected[i % (2 * N)]);
  atoll_rec_program_destroy(&p);
}

/* Where there is no derivative: as recurrent.h says. */
static void kinks(void **state) {
  (void)state;
  enum { MAX, MIN, MAXIMUM, RELU, ABS, WHERE, LOG, KINKS };
  static const struct {
    const char *name;
    double expected[2 * N];
  } all[KINKS] = {{"max", {1, 1, 1, 0, 0, 0}},      {"min", {1, 1, 0, 0, 0, 1}}, {"maximum", {0, 1, 0, 0, 0, 0}},
                  {"relu", {1, 1, 1, 0, 0, 0}},     {"abs", {1, 1, 1, 0, 0, 0}}, {"where", {0, 1, 1, 1, 0, 0}},
                  {"log", {NAN, 0.5, 0.5, 1, 0, 0}}};
  for (int k = 0; k < KINKS; k++) {
    atoll_rec *c = test_context();
    atoll_rt *x = atoll_rec_input(c, "x", ATOLL_F64, "", ATOLL_SHAPE(2 * N));
    atoll_rt *a = atoll_rt_slice(x, 0, 0, N), *b = atoll_rt_slice(x, 0, N, N), *y = NULL;
    switch (k) {
    case MAX:
      y = atoll_rt_max(a, b);
      break;
    case MIN:
      y = atoll_rt_min(a, b);
      break;
    case MAXIMUM:
      y = atoll_rt_reshape(atoll_rt_maximum(a, 0), ATOLL_SHAPE(1));
      break;
    case RELU:
      y = atoll_rt_relu(a);
      break;
    case ABS:
      y = atoll_rt_abs(a);
      break;
    default:
      y = atoll_rt_where(a, k == LOG ? atoll_rt_log(a) : a, b);
      break;
    }
    check_kink(c, y, a, b, all[k].expected, all[k].name);
    atoll_rec_destroy(&c);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(index_patterns),
      cmocka_unit_test(recurrences),
      cmocka_unit_test(recurrences_over_an_axis),
      cmocka_unit_test(operations),
      cmocka_unit_test(kinks),
      cmocka_unit_test(parameters_descend),
      cmocka_unit_test(one_step),
      cmocka_unit_test(two_learn_from_each_other),
      cmocka_unit_test(calls_differentiate_through_leaves_of_others),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
