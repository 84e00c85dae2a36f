/* Mistakes are told with the index string and a caret, the tensor and the point; nothing ends the process. */
#include "recurrent_test.h"

static atoll_rec *context(void) {
  atoll_rec *c = test_context();
  atoll_rec_dim(c, "b", 2);
  atoll_rec_dim(c, "t", 0);
  return c;
}

static atoll_rt *input(atoll_rec *c) { return atoll_rec_input(c, "x", ATOLL_F64, "b,t", ATOLL_SHAPE(3)); }

static atoll_err nothing(void *user, const int64_t *point, const atoll_rt_view *in, const atoll_rt_view *out) {
  (void)user;
  (void)point;
  (void)in;
  (void)out;
  return ATOLL_OK;
}

/* The text of an index and what is said about it. */
static void index_strings(void **state) {
  (void)state;
  static const struct {
    const char *index, *said;
  } all[] = {
      {"b,u-1", "column 3: 'u' is neither a dimension nor a bound\n  b,u-1\n    ^"},
      {"b,t*b", "column 3: not affine: a product of two variables\n  b,t*b\n    ^"},
      {"b,t//T", "column 3: not affine: // and % need a positive number on the right"},
      {"b", "column 2: 1 items for a tensor with 2 dimensions"},
      {"b,t,t", "column 5: more items than dimensions"},
      {"b,0:t+*1", "column 7"},
      {"b,0:", "column 5: an expression is missing"},
      {"b,t==1", "column 3: an integer expression is expected"},
      {"t=t-1,t=0", "column 7: dimension 't' is indexed twice"},
      {"t=t-1,0", "column 7: items are either all named or all by position"},
      {"q=0", "column 1: this name is not a dimension of the tensor"},
      {"", "column 1: 0 items for a tensor with 2 dimensions"},
      {"b,t,", "column 5: more items than dimensions"},
      {"b=0,", "column 5: items are either all named or all by position"},
      {"b,(t", "column 5: expected ')'\n  b,(t\n      ^"},
      {"b,t)", "column 4: unexpected text"},
      {"b,t//0", "column 3: not affine: // and % need a positive number on the right"},
      {"b,t%0", "column 3: not affine: // and % need a positive number on the right"},
      {"b,t//-2", "column 3: not affine: // and % need a positive number on the right"},
      {"b,9999999999999999999999", "column 3: integer constant does not fit into 64 bits"},
      {"b,t-2147483649", "column 3: a number is too large\n  b,t-2147483649\n    ^"},
      {"b,select(real(t)<1.5,0,t)", "column 3: real numbers have no place in it"},
      {"b,1.5", "column 3: an integer expression is expected"},
      {NULL, "index of x (#0 INPUT): there is none"},
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    atoll_rec *c = context();
    assert_null(atoll_rt_at(input(c), all[i].index));
    assert_refused(ATOLL_USAGE, all[i].said, atoll_rec_error(c));
    assert_refused(ATOLL_USAGE, all[i].said, atoll_rec_interpret(c, NULL, 0));
    atoll_rec_destroy(&c);
  }
}

static atoll_err compile(atoll_rec *c) {
  atoll_rec_program *p = NULL;
  atoll_err err = atoll_rec_compile(c, NULL, &p);
  atoll_rec_program_destroy(&p);
  return err;
}

static void points_outside(void **state) {
  (void)state;
  const double x[2 * 4 * 3] = {0};
  const atoll_rec_binding b[] = {{"T", 4, NULL}, {"x", 0, x}};
  for (int k = 0; k < 2; k++) {
    atoll_rec *c = context();
    atoll_rt_sink(atoll_rt_at(input(c), k ? "b,t-1" : "b,t+1"), "out", nothing, NULL);
    assert_refused(ATOLL_USAGE, k ? "index 'b,t-1' of x" : "index 'b,t+1' of x", atoll_rec_interpret(c, b, 2));
    assert_refused(ATOLL_USAGE, "is outside of its domain, read by", compile(c));
    atoll_rec_destroy(&c);
  }
  /* Only some bounds are bad: the program is compiled, the run is refused. */
  atoll_rec *c = context();
  atoll_rec_program *p = NULL;
  atoll_rt_sink(atoll_rt_at(input(c), "b,5"), "out", nothing, NULL);
  assert_ok(atoll_rec_compile(c, NULL, &p));
  assert_refused(ATOLL_USAGE, "not with these bounds, T=4: for example, index 'b,5' of x", atoll_rec_run(p, b, 2));
  assert_refused(ATOLL_USAGE, "bound 'T' is not given", atoll_rec_run(p, NULL, 0));
  atoll_rec_program_destroy(&p);
  atoll_rec_destroy(&c);
}

/* Slices of an axis whose extent depends on the point: what is outside of it is neither read nor written. */
static void slices_outside(void **state) {
  (void)state;
  double x[2 * 4 * 3];
  const atoll_rec_binding fits[] = {{"T", 4, NULL}, {"x", 0, x}}, no[] = {{"T", 3, NULL}, {"x", 0, x}};
  const char *const said = "index 3, the axis has 3 elements";
  for (int k = 0; k < 2 * 4 * 3; k++)
    x[k] = k;
  for (int learns = 0; learns < 2; learns++) {
    atoll_rec *c = context();
    test_log got = {0};
    atoll_rt *in = input(c), *y = atoll_rt_slice(atoll_rt_at(in, "b,0:t+1"), 0, 0, 4), *gradient = NULL;
    y = atoll_rt_at(atoll_rt_sum(atoll_rt_sum(atoll_rt_square(y), 0), 0), "b,T-1");
    if (learns)
      atoll_rt_gradients(y, 1, &in, &gradient);
    atoll_rt_sink(learns ? gradient : y, "out", test_collect, &got);
    assert_ok(atoll_rec_interpret(c, fits, 2));
    assert_refused(ATOLL_USAGE, said, atoll_rec_interpret(c, no, 2));
    const test_log expected = got;
    assert_int_equal(expected.n, learns ? 24 : 2);
    for (int compiled = 0; compiled < 2; compiled++) {
      atoll_rec_program *p = NULL;
      assert_ok(atoll_rec_compile(c, &(atoll_rec_params){.compiler = compiled ? NULL : ""}, &p));
      got.n = 0;
      assert_ok(atoll_rec_run(p, fits, 2));
      assert_int_equal(got.n, expected.n);
      for (int k = 0; k < got.n; k++)
        assert_true(got.v[k] == expected.v[k]);
      assert_refused(ATOLL_USAGE, said, atoll_rec_run(p, no, 2));
      atoll_rec_program_destroy(&p);
    }
    atoll_rec_destroy(&c);
  }
}

/* Expressions that are computed, not read at, may multiply; what they divide by must be a positive number. */
static void expressions(void **state) {
  (void)state;
  static const char *const bad[] = {"t//(T-4)",     "1+t%T",       "t//0",        "t//-2",
                                    "t%-2",         "t%0",         "t//(t+1)",    "t*9223372036854775807",
                                    "t+2147483649", "-2147483649", "2147483648*2"};
  for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
    atoll_rec *c = context();
    assert_null(atoll_rec_expr(c, ATOLL_I32, bad[k]));
    assert_refused(ATOLL_USAGE, "expression, column ", atoll_rec_error(c));
    assert_refused(ATOLL_USAGE, bad[k], atoll_rec_error(c));
    assert_refused(ATOLL_USAGE, "^", atoll_rec_error(c));
    atoll_rec_destroy(&c);
  }
  const atoll_rec_binding b[] = {{"T", 4, NULL}};
  atoll_rec *c = context();
  atoll_rec_program *p = NULL;
  test_log got = {0}, large = {0};
  atoll_rt_sink(atoll_rec_expr(c, ATOLL_I32, "(t-3)//2*t + (t-5)%3"), "out", test_collect, &got);
  atoll_rt_sink(atoll_rec_expr(c, ATOLL_I64, "2147483648"), "large", test_collect, &large);
  atoll_rt_sink(atoll_rec_expr(c, ATOLL_I64, "-2147483648 + 0*t"), "large", test_collect, &large);
  assert_ok(atoll_rec_compile(c, NULL, &p));
  assert_ok(atoll_rec_run(p, b, 1));
  assert_ok(atoll_rec_interpret(c, b, 1));
  static const int64_t expected[] = {1, -1 + 2, -2 + 0, 0 + 1};
  assert_int_equal(got.n, 8);
  for (int k = 0; k < 8; k++)
    assert_true(got.v[k] == (double)expected[k % 4]);
  assert_true(large.n == 4 && large.v[0] == 2147483648.0 && large.v[1] == -2147483648.0);
  atoll_rec_program_destroy(&p);
  atoll_rec_destroy(&c);
}

/* What compiled programs would not notice is refused before they run. */
static void expressions_overflow(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int64_t bound;
    int fits;
  } all[] = {{"t*t*t*t", 1 << 15, 1},
             {"t*t*t*t", 1 << 16, 0},
             {"T*T*T*max(T, 2*t)", 1 << 15, 1},
             {"T*T*T*(t%3-1)", 1 << 21, 0},
             {"(t-2147483648)*(t//2+2147483648)", 4, 1},
             {"(t-2147483648)*(t+2147483648)*(t+2147483648)", 4, 0}};
  for (size_t k = 0; k < 2 * sizeof all / sizeof *all; k++) {
    const int way = k % 2;
    const atoll_rec_binding b = {"T", all[k / 2].bound, NULL};
    atoll_rec_program *p = NULL;
    atoll_rec *c = test_context();
    atoll_rec_dim(c, "t", 0);
    atoll_rt *x = atoll_rec_expr(c, ATOLL_I64, all[k / 2].text);
    atoll_rt_sink(atoll_rt_at(x, "t=T-1"), "out", nothing, NULL);
    if (way) /* as an axis */
      atoll_rt_sink(atoll_rt_maximum(atoll_rt_at(x, "t=0:T"), 0), "out", nothing, NULL);
    assert_ok(atoll_rec_compile(c, &(atoll_rec_params){.compiler = "", .vectorize = way ? "t" : NULL}, &p));
    if (all[k / 2].fits)
      assert_ok(atoll_rec_run(p, &b, 1));
    else
      assert_refused(ATOLL_USAGE, "may need more than 64 bits", atoll_rec_run(p, &b, 1));
    atoll_rec_program_destroy(&p);
    atoll_rec_destroy(&c);
  }
}

static void slices_that_end_before_they_begin(void **state) {
  (void)state;
  const double x[2 * 4 * 3] = {0};
  const atoll_rec_binding b[] = {{"T", 4, NULL}, {"x", 0, x}};
  static const struct {
    const char *index, *told, *said;
  } all[] = {{"b,5:t", "axis 0 has extent -5, by index 'b,5:t' of x (#0 INPUT)",
              "index 'b,5:t' of x (#0 INPUT): a slice ends before it begins at (b=0, t=0)"},
             {"b,t+2:T", "axis 0 has extent -1, by index 'b,t+2:T' of x (#0 INPUT)",
              "index 'b,t+2:T' of x (#0 INPUT): a slice ends before it begins"}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    atoll_rec *c = context();
    atoll_rt_sink(atoll_rt_sum(atoll_rt_at(input(c), all[i].index), 0), "out", nothing, NULL);
    assert_refused(ATOLL_USAGE, all[i].told, atoll_rec_interpret(c, b, 2));
    assert_refused(ATOLL_USAGE, all[i].said, compile(c));
    atoll_rec_destroy(&c);
  }
  /* Empty ones are none of these, and where only some bounds are bad, runs with those are refused. */
  atoll_rec *c = context();
  atoll_rec_program *p = NULL;
  atoll_rt *in = input(c);
  atoll_rt_sink(atoll_rt_sum(atoll_rt_at(in, "b,t+1:T"), 0), "out", nothing, NULL);
  atoll_rt_sink(atoll_rt_sum(atoll_rt_at(in, "b,3:T"), 0), "out", nothing, NULL);
  assert_ok(atoll_rec_compile(c, NULL, &p));
  assert_ok(atoll_rec_run(p, b, 2));
  assert_refused(ATOLL_USAGE, "index 'b,3:T' of x (#0 INPUT): a slice ends before it begins",
                 atoll_rec_run(p, (const atoll_rec_binding[]){{"T", 2, NULL}, {"x", 0, x}}, 2));
  atoll_rec_program_destroy(&p);
  atoll_rec_destroy(&c);
}

static atoll_rt *scalar(atoll_rec *c, const char *name) {
  return atoll_rec_tensor(c, name, ATOLL_F64, "t", ATOLL_SCALAR);
}

static void cases(void **state) {
  (void)state;
  const atoll_rec_binding b[] = {{"T", 4, NULL}};
  atoll_rec *c = context();
  atoll_rt *x = scalar(c, "h"), *one = atoll_rec_const(c, ATOLL_F64, 1);
  atoll_rt_def(x, "t>=1", one);
  atoll_rt_sink(x, "out", nothing, NULL);
  assert_refused(ATOLL_USAGE, "no case defines h", atoll_rec_interpret(c, b, 1));
  assert_refused(ATOLL_USAGE, "no case defines h", compile(c));
  atoll_rt_def(x, "true", one);
  atoll_rt_def(x, "t==0", one);
  assert_refused(ATOLL_USAGE, "case 't==0' of h", compile(c));
  atoll_rec_destroy(&c);

  /* Whether a case applies is a question of all bounds, not of those of this program. */
  static const struct {
    const char *last, *said;
  } all[] = {{"true", NULL}, {"t==T-2", NULL}, {"t==0", "case 't==0' of h"}, {"t==T", "case 't==T' of h"}};
  for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
    test_log got = {0};
    atoll_rec_program *p = NULL;
    c = test_context();
    atoll_rec_dim(c, "t", 1);
    x = atoll_rec_tensor(c, "h", ATOLL_F64, "t", ATOLL_SCALAR);
    atoll_rt_def(x, "t==0", atoll_rec_const(c, ATOLL_F64, 7));
    atoll_rt_def(x, "t==1", atoll_rec_const(c, ATOLL_F64, 8));
    atoll_rt_def(x, all[k].last, atoll_rt_add(atoll_rt_at(x, "t-1"), atoll_rt_at(x, "t-2")));
    atoll_rt_sink(x, "out", test_collect, &got);
    if (all[k].said) {
      assert_refused(ATOLL_USAGE, all[k].said, compile(c));
    } else {
      assert_ok(atoll_rec_compile(c, &(atoll_rec_params){.compiler = ""}, &p));
      assert_ok(atoll_rec_run(p, NULL, 0));
      assert_true(got.n == 1 && got.v[0] == 7);
    }
    atoll_rec_program_destroy(&p);
    atoll_rec_destroy(&c);
  }

  c = context();
  x = scalar(c, "h");
  atoll_rt_def(x, "t = 0", atoll_rec_const(c, ATOLL_F64, 1));
  assert_refused(ATOLL_USAGE, "condition of h (#0 MERGE), column 3", atoll_rec_error(c));
  atoll_rec_destroy(&c);

  c = context();
  x = scalar(c, "h");
  atoll_rt_def(x, "b==0", atoll_rec_const(c, ATOLL_F64, 1));
  assert_refused(ATOLL_USAGE, "'b' is not in the tensor's domain\n  b==0\n  ^", atoll_rec_error(c));
  atoll_rec_destroy(&c);
}

/* An exception from a later case is meant; of two that only meet, nobody knows which counts there. */
static void cases_that_overlap(void **state) {
  (void)state;
  static const struct {
    const char *first, *second, *said; /* NULL: legal */
  } all[] = {
      {"t<3", "t>1",
       "cases 't<3' and 't>1' of h (#2 MERGE) overlap at (b=0, t=2) for T=4: let the first be a part of the second, or "
       "write the second as '(t>1) and not (t<3)'"},
      {"t<2", "t%2==1", "cases 't<2' and 't%2==1' of h (#2 MERGE) overlap at (b=0, t=1)"},
      {"t==T-1", "b==0", "cases 't==T-1' and 'b==0' of h (#2 MERGE) overlap at (b=0, t=1) for T=2"},
      {"t==0", "t<4", NULL},
      {"b==0 and t==0", "t==0", NULL},
      {"t<2", "t>=2 and b==1", NULL},
      {"t<3", "(t>1 and t!=4) and not (t<3)", NULL},
      {"t==0", "t==T-1", NULL}, /* they meet where the second is left nothing */
      {"t==0", "t>=T-2", NULL}, /* or where the first is a part of it */
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    atoll_rec *c = context();
    atoll_rt *one = atoll_rec_const(c, ATOLL_F64, 1), *two = atoll_rec_const(c, ATOLL_F64, 2);
    atoll_rt *x = atoll_rec_tensor(c, "h", ATOLL_F64, "b,t", ATOLL_SCALAR);
    atoll_rt_def(x, all[i].first, one);
    atoll_rt_def(x, all[i].second, two);
    atoll_rt_def(x, "true", one);
    atoll_rt_sink(x, "out", nothing, NULL);
    if (all[i].said)
      assert_refused(ATOLL_USAGE, all[i].said, compile(c));
    else
      assert_ok(compile(c));
    atoll_rec_destroy(&c);
  }
}

/* Of cases that meet for some bounds only, the first counts there, by the definition and by the program. */
static void cases_that_meet_for_some_bounds(void **state) {
  (void)state;
  static const double expected[3][3] = {{1}, {1, 2}, {1, 3, 2}};
  test_log log = {0};
  atoll_rec_program *p = NULL;
  atoll_rec *c = context();
  atoll_rt *x = scalar(c, "h");
  atoll_rt_def(x, "t==0", atoll_rec_const(c, ATOLL_F64, 1));
  atoll_rt_def(x, "t==T-1", atoll_rec_const(c, ATOLL_F64, 2));
  atoll_rt_def(x, "true", atoll_rec_const(c, ATOLL_F64, 3));
  atoll_rt_sink(x, "out", test_collect, &log);
  assert_ok(atoll_rec_compile(c, &(atoll_rec_params){.compiler = ""}, &p));
  for (int way = 0; way < 2; way++)
    for (int64_t n = 1; n <= 3; n++) {
      const atoll_rec_binding b = {"T", n, NULL};
      log.n = 0;
      assert_ok(way ? atoll_rec_run(p, &b, 1) : atoll_rec_interpret(c, &b, 1));
      assert_int_equal(log.n, n);
      assert_memory_equal(log.v, expected[n - 1], (size_t)n * sizeof *log.v);
    }
  atoll_rec_program_destroy(&p);
  atoll_rec_destroy(&c);
}

static void definitions_that_need_themselves(void **state) {
  (void)state;
  const atoll_rec_binding b[] = {{"T", 4, NULL}};
  for (int k = 0; k < 2; k++) {
    atoll_rec *c = context();
    atoll_rt *x = scalar(c, "h");
    atoll_rt_def(x, "true", atoll_rt_shift(atoll_rt_at(x, k ? "T-1-t" : "t"), 1));
    atoll_rt_sink(x, "out", nothing, NULL);
    assert_refused(ATOLL_USAGE, "cyclic definition without a base case", atoll_rec_interpret(c, b, 1));
    assert_refused(ATOLL_USAGE,
                   k ? "a definition needs itself; by index 'T-1-t' of h"
                     : "a definition needs itself; by index 't' of h",
                   compile(c));
    atoll_rec_destroy(&c);
  }
  for (int way = 0; way < 5; way++) {
    atoll_rec *c = context();
    atoll_rt *x = scalar(c, "x"), *y = scalar(c, "y");
    if (way >= 3) /* where another case does not count */
      atoll_rt_def(y, "t==0", atoll_rec_const(c, ATOLL_F64, 1));
    atoll_rt_def(x, "true", way == 2 ? atoll_rt_exp(y) : y);
    atoll_rt_def(y, "true", way == 0 ? y : way == 3 ? atoll_rt_at(y, "t") : atoll_rt_neg(atoll_rt_at(x, "t")));
    atoll_rt_sink(y, "out", nothing, NULL);
    assert_refused(ATOLL_USAGE, "cyclic definition without a base case", atoll_rec_interpret(c, b, 1));
    assert_refused(ATOLL_USAGE, "a definition needs itself", compile(c));
    atoll_rec_destroy(&c);
  }
  atoll_rec *c = context();
  atoll_rt *x = scalar(c, "x"), *y = scalar(c, "y");
  atoll_rt_def(x, "true", atoll_rt_at(y, "T-1-t"));
  atoll_rt_def(y, "true", atoll_rt_at(x, "T-1-t"));
  atoll_rt_sink(y, "out", nothing, NULL);
  assert_refused(ATOLL_USAGE, "a definition needs itself: that of ", compile(c));
  atoll_rec_destroy(&c);
}

/* Where a message says that t+b was too large. */
static void assert_at(int64_t sum) {
  const char *at = strstr(atoll_err_message(), " at (b=");
  int b, t;
  assert_true(at && sscanf(at, " at (b=%d, t=%d)", &b, &t) == 2);
  assert_int_equal(b + t, sum);
}

static void tables_that_end_before(void **state) {
  (void)state;
  static const double x[2 * 4 * 3] = {0};
  const atoll_rec_binding b[] = {{"T", 4, NULL}, {"x", 0, x}};
  for (int compiled = 0; compiled < 3; compiled++) {
    atoll_rec_program *p = NULL;
    atoll_rec *c = context();
    atoll_rt *table = input(c);
    atoll_rt_sink(atoll_rt_take(table, atoll_rec_expr(c, ATOLL_I32, "t+b")), "out", nothing, NULL);
    if (compiled)
      assert_ok(atoll_rec_compile(c, &(atoll_rec_params){.compiler = compiled > 1 ? NULL : ""}, &p));
    assert_refused(ATOLL_USAGE,
                   "TAKE of x (#0 INPUT) at (b=", p ? atoll_rec_run(p, b, 2) : atoll_rec_interpret(c, b, 2));
    assert_at(3);
    assert_non_null(strstr(atoll_err_message(), "): index 3, the axis has 3 elements"));
    atoll_rec_program_destroy(&p);
    atoll_rec_destroy(&c);
  }
}

static void shapes_and_types(void **state) {
  (void)state;
  atoll_rec *c = context();
  assert_null(atoll_rt_add(input(c), atoll_rec_iota(c, ATOLL_F64, 4)));
  assert_refused(ATOLL_USAGE, "shape does not match [3]", atoll_rec_error(c));
  atoll_rec_destroy(&c);
  c = context();
  assert_null(atoll_rt_add(input(c), atoll_rec_const(c, ATOLL_F32, 1)));
  assert_refused(ATOLL_USAGE, "cast one of them", atoll_rec_error(c));
  atoll_rec_destroy(&c);
  c = context();
  assert_null(atoll_rt_reshape(input(c), ATOLL_SHAPE(2, 2)));
  assert_refused(ATOLL_USAGE, "number of elements would change; x (#0 INPUT) has type f64 and shape [3]",
                 atoll_rec_error(c));
  atoll_rec_destroy(&c);
  c = context();
  assert_null(atoll_rt_einsum("oi,i->o", input(c), input(c)));
  assert_refused(ATOLL_USAGE, "input 'x' is made twice", atoll_rec_error(c));
  atoll_rec_destroy(&c);
  c = context();
  atoll_rt *x = input(c);
  assert_null(atoll_rt_einsum("ij,j->i", x, x));
  assert_refused(ATOLL_USAGE, "einsum 'ij,j->i': 2 labels for operand 0, which has 1 axes", atoll_rec_error(c));
  atoll_rec_destroy(&c);
  c = context();
  x = input(c);
  atoll_rt_def(x, "true", x);
  assert_refused(ATOLL_USAGE, "is not defined by cases", atoll_rec_error(c));
  atoll_rec_destroy(&c);
  /* a window of a tensor whose shape depends on the window's dimension */
  c = context();
  assert_null(atoll_rt_at(atoll_rt_at(input(c), "b,0:t+1"), "b,0:T"));
  assert_refused(ATOLL_USAGE, "a slice over a dimension on which the shape depends", atoll_rec_error(c));
  atoll_rec_destroy(&c);
  c = context();
  atoll_rec_dim(c, "t", 3);
  assert_refused(ATOLL_USAGE, "dimension 't' is made twice", atoll_rec_error(c));
  atoll_rec_destroy(&c);
}

static void too_many_cases(void **state) {
  (void)state;
  atoll_rec *c = context();
  atoll_rt *x = scalar(c, "h"), *one = atoll_rec_const(c, ATOLL_F64, 1);
  for (int k = 0; k < 10000; k++) {
    char condition[16];
    (void)snprintf(condition, sizeof condition, "t==%d", k);
    atoll_rt_def(x, condition, one);
  }
  assert_refused(ATOLL_USAGE, "case 't==100' of h: more than 100 cases", atoll_rec_error(c));
  atoll_rec_destroy(&c);
}

static void sizes_and_names(void **state) {
  (void)state;
  const int64_t huge = (int64_t)1 << 40;
  static const char *const words[] = {"mod", "floor", "exists", "and", "select", "T", ""};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    atoll_rec *c = context();
    atoll_rec_dim(c, words[i], 3);
    assert_int_equal(atoll_rec_error(c), ATOLL_USAGE);
    assert_non_null(strstr(atoll_err_message(), words[i]));
    atoll_rec_destroy(&c);
  }
  for (int k = 0; k < 10; k++) {
    atoll_rec *c = context();
    atoll_rt *x = input(c);
    const char *said = "bound 4294967296";
    if (k == 0)
      atoll_rec_dim(c, "q", (int64_t)1 << 32);
    else if (k == 1)
      assert_null(atoll_rec_iota(c, ATOLL_F64, 0)), said = "iota: extent 0";
    else if (k == 2)
      assert_null(atoll_rt_slice(x, 0, INT64_MAX, 1)), said = "slice of axis 0: 1 elements from 9223372036854775807";
    else if (k == 3)
      assert_null(atoll_rec_input(c, "y", ATOLL_F64, "t", ATOLL_SHAPE(huge, 2))), said = "extent 2 of axis 1";
    else if (k == 4)
      assert_null(atoll_rt_cast(x, (atoll_dtype)99)), said = "cast to type 99";
    else if (k == 5)
      assert_null(atoll_rec_input(c, NULL, ATOLL_F64, "t", ATOLL_SCALAR)), said = "an input needs a name";
    else if (k == 6)
      assert_null(atoll_rec_call(c, "step", NULL, NULL, "t", ATOLL_F64, ATOLL_SCALAR, 0, NULL)),
          said = "call of 'step'";
    else if (k == 7)
      atoll_rt_sink(x, "out", NULL, NULL), said = "sink 'out'";
    else if (k == 8)
      atoll_rt_def(scalar(c, "h"), NULL, x), said = "h (#1 MERGE): a case has no condition";
    else
      assert_null(atoll_rt_reshape(x, (atoll_rt_shape){11, {3}})), said = "reshape: 11 axes";
    assert_refused(ATOLL_USAGE, said, atoll_rec_error(c));
    assert_null(input(c)); /* after a mistake there is nothing more, and the mistake stays the first */
    assert_refused(ATOLL_USAGE, said, atoll_rec_error(c));
    atoll_rec_destroy(&c);
  }
  /* a node that is not finished is no input */
  atoll_rec *c = context();
  assert_null(atoll_rec_input(c, "y", ATOLL_F64, "q", ATOLL_SCALAR));
  assert_null(input(c));
  assert_refused(ATOLL_USAGE, "domain, column 1: 'q' is not a dimension", atoll_rec_error(c));
  atoll_rec_destroy(&c);
  c = context();
  assert_null(atoll_rec_input(c, "y", ATOLL_F64, "b,", ATOLL_SCALAR));
  assert_refused(ATOLL_USAGE, "domain, column 3: '' is not a dimension", atoll_rec_error(c));
  atoll_rec_destroy(&c);
}

static void runs(void **state) {
  (void)state;
  const double x[2 * 4 * 3] = {0};
  static const struct {
    atoll_rec_binding t;
    const char *said;
  } all[] = {{{"T", 0, NULL}, "bound 'T' is not given, or is less than 1"},
             {{"T", -5, NULL}, "bound 'T' is not given, or is less than 1"},
             {{"T", INT64_MAX, NULL}, "or more than 2147483648"},
             {{"B", 3, NULL}, "bound 'B' is 2 by construction, 3 is given"},
             {{NULL, 4, NULL}, "binding 0 has no name"}};
  atoll_rec *c = context();
  atoll_rec_program *p = NULL;
  int64_t peak;
  atoll_rt_sink(input(c), "out", nothing, NULL);
  assert_ok(atoll_rec_compile(c, NULL, &p));
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    const atoll_rec_binding b[] = {all[i].t, {"x", 0, x}};
    assert_refused(ATOLL_USAGE, all[i].said, atoll_rec_interpret(c, b, 2));
    assert_refused(ATOLL_USAGE, all[i].said, atoll_rec_run(p, b, 2));
    assert_refused(ATOLL_USAGE, all[i].said, atoll_rec_peak_bytes(p, b, 2, &peak));
  }
  const atoll_rec_binding twice[] = {{"T", 4, NULL}, {"x", 0, x}, {"T", 3, NULL}, {"T", 4, NULL}};
  const char *said = "bound 'T' is given twice, as 4 and as 3";
  assert_refused(ATOLL_USAGE, said, atoll_rec_interpret(c, twice, 3));
  assert_refused(ATOLL_USAGE, said, atoll_rec_run(p, twice, 4));
  atoll_rec_program_destroy(&p);
  atoll_rec_destroy(&c);
}

static void parameters(void **state) {
  (void)state;
  static const struct {
    atoll_rec_params p;
    const char *said;
  } all[] = {{{.passes = "simplfy"}, "pass 'simplfy': there are simplify,tile,"},
             {{.passes = "simplify,groups,x"}, "pass 'x'"},
             {{.passes = "simplify,,groups"}, "pass '': there are"},
             {{.passes = "simplify,"}, "pass '': there are"},
             {{.passes = ","}, "pass '': there are"},
             {{.tile = -1}, "tile -1, expected 0 to"},
             {{.block = -4}, "block -4, expected 0 to"},
             {{.least = (int64_t)1 << 40}, "least 1099511627776, expected 0 to"},
             {{.threads = -1}, "threads -1"},
             {{.memory = -1}, "memory -1"},
             {{.vectorize = "q"}, "'q' is not a dimension"},
             {{.device = "gpu"}, "device 'gpu'"}};
  atoll_rec *c = context();
  atoll_rt_sink(input(c), "out", nothing, NULL);
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    atoll_rec_program *p = NULL;
    assert_refused(ATOLL_USAGE, all[i].said, atoll_rec_compile(c, &all[i].p, &p));
    assert_null(p);
  }
  atoll_rec_destroy(&c);
}

static atoll_err gives_nan(void *user, const int64_t *point, const atoll_rt_view *in, const atoll_rt_view *out) {
  (void)user;
  (void)in;
  ((float *)out->data)[0] = 1;
  ((float *)out->data)[1] = point[0] == 2 ? NAN : 0;
  return ATOLL_OK;
}

/* user: what it says, or NULL. */
static atoll_err fails(void *user, const int64_t *point, const atoll_rt_view *in, const atoll_rt_view *out) {
  (void)in;
  (void)out;
  if (point[0] != 2)
    return ATOLL_OK;
  return user ? atoll_fail(ATOLL_IO, "%s", (const char *)user) : ATOLL_IO;
}

/* What failed before on the thread is not mistaken for the reason. */
static void functions_that_fail(void **state) {
  (void)state;
  static char why[] = "sensor 5 is dead";
  static const char *const said[] = {"the function failed, in step (#0 CALL) at (t=2)",
                                     "sensor 5 is dead, in step (#0 CALL) at (t=2)"};
  const atoll_rec_binding b[] = {{"T", 4, NULL}};
  for (int way = 0; way < 2; way++) {
    atoll_rec *c = context();
    atoll_rec_program *p = NULL;
    atoll_rt *step = atoll_rec_call(c, "step", fails, way ? why : NULL, "t", ATOLL_F32, ATOLL_SCALAR, 0, NULL);
    atoll_rt_sink(step, "out", nothing, NULL);
    assert_ok(atoll_rec_compile(c, NULL, &p));
    atoll_err_set_message("an earlier failure");
    assert_refused(ATOLL_IO, said[way], atoll_rec_interpret(c, b, 1));
    atoll_err_set_message("an earlier failure");
    assert_refused(ATOLL_IO, said[way], atoll_rec_run(p, b, 1));
    atoll_rec_program_destroy(&p);
    atoll_rec_destroy(&c);
  }
}

static void environments(void **state) {
  (void)state;
  const atoll_rec_binding b[] = {{"T", 4, NULL}};
  atoll_rec *c = context();
  atoll_rec_program *p = NULL;
  atoll_rt *step = atoll_rec_call(c, "step", gives_nan, NULL, "t", ATOLL_F32, ATOLL_SHAPE(2), 0, NULL);
  atoll_rt_sink(step, "out", nothing, NULL);
  assert_refused(ATOLL_NONFINITE, "at (t=2): element 1 of the result is", atoll_rec_interpret(c, b, 1));
  assert_ok(atoll_rec_compile(c, NULL, &p));
  assert_refused(ATOLL_NONFINITE, "step", atoll_rec_run(p, b, 1));
  atoll_rec_program_destroy(&p);
  atoll_rec_destroy(&c);
  /* an input that was not bound */
  c = context();
  atoll_rt_sink(input(c), "out", nothing, NULL);
  assert_refused(ATOLL_USAGE, "input 'x' is not bound", atoll_rec_interpret(c, b, 1));
  atoll_rec_destroy(&c);
  /* nor one that nothing needs */
  c = context();
  (void)atoll_rt_exp(input(c));
  atoll_rt_sink(atoll_rec_expr(c, ATOLL_F32, "t"), "out", nothing, NULL);
  assert_ok(atoll_rec_interpret(c, b, 1));
  assert_ok(atoll_rec_compile(c, NULL, &p));
  assert_ok(atoll_rec_run(p, b, 1));
  atoll_rec_program_destroy(&p);
  atoll_rec_destroy(&c);
}

static void nothing_to_compute(void **state) {
  (void)state;
  atoll_rec *c = context();
  (void)atoll_rt_exp(input(c));
  assert_refused(ATOLL_USAGE, "has no sink", compile(c));
  assert_refused(ATOLL_USAGE, "has no sink", atoll_rec_interpret(c, NULL, 0));
  atoll_rec_destroy(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(index_strings),
      cmocka_unit_test(points_outside),
      cmocka_unit_test(slices_outside),
      cmocka_unit_test(slices_that_end_before_they_begin),
      cmocka_unit_test(expressions),
      cmocka_unit_test(cases),
      cmocka_unit_test(cases_that_overlap),
      cmocka_unit_test(expressions_overflow),
      cmocka_unit_test(cases_that_meet_for_some_bounds),
      cmocka_unit_test(too_many_cases),
      cmocka_unit_test(sizes_and_names),
      cmocka_unit_test(runs),
      cmocka_unit_test(parameters),
      cmocka_unit_test(definitions_that_need_themselves),
      cmocka_unit_test(tables_that_end_before),
      cmocka_unit_test(shapes_and_types),
      cmocka_unit_test(functions_that_fail),
      cmocka_unit_test(environments),
      cmocka_unit_test(nothing_to_compute),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
