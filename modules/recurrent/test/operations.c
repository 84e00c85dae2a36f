/* Operations by what C says of their elements: every one of the interface, with what is not a number and what is not
 * finite; every type, at its limits and beyond; interpreted, scheduled, fused and stored. */
#include <float.h>

#include "recurrent_test.h"

enum { WAYS = 4 };

/* By the definition; as a schedule that is interpreted; compiled, every value stored; compiled, with all passes. */
static void run_way(atoll_rec *c, int way, const atoll_rec_binding *b, int n) {
  static const atoll_rec_params params[WAYS] = {{.passes = NULL}, {.compiler = ""}, {.passes = ""}, {.passes = NULL}};
  atoll_rec_program *p = NULL;
  if (way == 0) {
    assert_ok(atoll_rec_interpret(c, b, n));
    return;
  }
  assert_ok(atoll_rec_compile(c, &params[way], &p));
  assert_ok(atoll_rec_run(p, b, n));
  atoll_rec_program_destroy(&p);
}

/* ---- elements ---- */

enum { SPECIAL = 12, ELEMENTS = SPECIAL * SPECIAL };
static const double special[SPECIAL] = {NAN, INFINITY, -INFINITY, 0, -0.0, 1, -1, 0.5, -2.25, 3, 7.5, -0.125};

typedef struct operation {
  const char *name;
  atoll_rt *(*unary)(atoll_rt *);
  atoll_rt *(*binary)(atoll_rt *, atoll_rt *);
  double (*expected)(double a, double b);
  int finite; /* approximated such that infinities need not be exact */
} operation;

#define EXPECT(name, value)                                                                                            \
  static double name##_expected(double a, double b) {                                                                  \
    (void)a;                                                                                                           \
    (void)b;                                                                                                           \
    return value;                                                                                                      \
  }
EXPECT(neg, -a)
EXPECT(exp, exp(a))
EXPECT(log, log(a))
EXPECT(sqrt, sqrt(a))
EXPECT(sin, sin(a))
EXPECT(cos, cos(a))
EXPECT(tanh, tanh(a))
EXPECT(erf, erf(a))
EXPECT(abs, fabs(a))
EXPECT(not, a == 0)
EXPECT(sigmoid, 1 / (1 + exp(-a)))
EXPECT(relu, a > 0 ? a : 0)
EXPECT(silu, a / (1 + exp(-a)))
EXPECT(gelu, a * 0.5 * (1 + erf(a / sqrt(2))))
EXPECT(gelu_tanh, a * 0.5 * (1 + tanh(sqrt(2 / M_PI) * (a + 0.044715 * a * a * a))))
EXPECT(square, a *a)
EXPECT(detach, a)
EXPECT(add, a + b)
EXPECT(sub, a - b)
EXPECT(mul, a *b)
EXPECT(div, a / b)
EXPECT(pow, pow(a, b))
EXPECT(min, a < b ? a : b)
EXPECT(max, a > b ? a : b)
EXPECT(lt, a < b)
EXPECT(le, a <= b)
EXPECT(eq, a == b)
EXPECT(ne, a != b)
EXPECT(and, (a != 0) && (b != 0))
EXPECT(or, (a != 0) || (b != 0))

#define UNARY(name)                                                                                                    \
  { #name, atoll_rt_##name, NULL, name##_expected, 0 }
#define BINARY(name)                                                                                                   \
  { #name, NULL, atoll_rt_##name, name##_expected, 0 }
static const operation operations[] = {
    UNARY(neg),    UNARY(exp),    UNARY(log),
    UNARY(sqrt),   UNARY(sin),    UNARY(cos),
    UNARY(tanh),   UNARY(erf),    UNARY(abs),
    UNARY(not ),   UNARY(relu),   UNARY(sigmoid),
    UNARY(gelu),   UNARY(silu),   {"gelu_tanh", atoll_rt_gelu_tanh, NULL, gelu_tanh_expected, 1},
    UNARY(square), UNARY(detach), BINARY(add),
    BINARY(sub),   BINARY(mul),   BINARY(div),
    BINARY(pow),   BINARY(min),   BINARY(max),
    BINARY(lt),    BINARY(le),    BINARY(eq),
    BINARY(ne),    BINARY(and),   BINARY(or),
};
enum { OPERATIONS = sizeof operations / sizeof *operations };

static int is_near(double got, double expected, double tolerance) {
  if (isnan(expected))
    return isnan(got);
  if (isinf(expected))
    return got == expected;
  return fabs(got - expected) <= tolerance * fabs(expected) + FLT_MIN;
}

static void elements(void **state) {
  (void)state;
  double wide[2][ELEMENTS];
  float narrow[2][ELEMENTS];
  for (int i = 0; i < ELEMENTS; i++) {
    wide[0][i] = special[i / SPECIAL];
    wide[1][i] = special[i % SPECIAL];
    narrow[0][i] = (float)wide[0][i];
    narrow[1][i] = (float)wide[1][i];
  }
  for (int single = 0; single < 2; single++) {
    const atoll_dtype type = single ? ATOLL_F32 : ATOLL_F64;
    const atoll_rec_binding b[] = {{"a", 0, single ? (void *)narrow[0] : (void *)wide[0]},
                                   {"b", 0, single ? (void *)narrow[1] : (void *)wide[1]}};
    static test_log got[OPERATIONS + 1];
    atoll_rec *c = test_context();
    atoll_rt *x = atoll_rec_input(c, "a", type, "", ATOLL_SHAPE(ELEMENTS));
    atoll_rt *y = atoll_rec_input(c, "b", type, "", ATOLL_SHAPE(ELEMENTS));
    for (int k = 0; k < OPERATIONS; k++) {
      const operation *o = &operations[k];
      atoll_rt_sink(o->unary ? o->unary(x) : o->binary(x, y), o->name, test_collect, &got[k]);
    }
    atoll_rt_sink(atoll_rt_where(x, y, atoll_rt_neg(y)), "where", test_collect, &got[OPERATIONS]);
    for (int way = 0; way < WAYS; way++) {
      memset(got, 0, sizeof got);
      run_way(c, way, b, 2);
      for (int i = 0; i < ELEMENTS; i++) {
        const double p = wide[0][i], q = wide[1][i];
        for (int k = 0; k <= OPERATIONS; k++) {
          const double expected = k == OPERATIONS ? (p != 0 ? q : -q) : operations[k].expected(p, q);
          assert_int_equal(got[k].n, ELEMENTS);
          if (k < OPERATIONS && operations[k].finite && isinf(p))
            continue;
          if (!is_near(got[k].v[i], expected, single ? 2e-6 : 1e-14))
            fail_msg("%s of %g and %g, %s, way %d: %.9g, expected %.9g", k < OPERATIONS ? operations[k].name : "where",
                     p, q, atoll_dtype_name(type), way, got[k].v[i], expected);
        }
      }
    }
    atoll_rec_destroy(&c);
  }
}

/* ---- types ---- */

static const struct {
  atoll_dtype type;
  double least, most;
} whole[] = {{ATOLL_I32, -2147483648.0, 2147483647.0},
             {ATOLL_I64, -9223372036854775808.0, 9223372036854774784.0},
             {ATOLL_U16, 0, 65535},
             {ATOLL_U8, 0, 255}};
enum { WHOLE = sizeof whole / sizeof *whole };

static double cut_off(int k, double v) { return isnan(v) ? 0 : fmin(fmax(trunc(v), whole[k].least), whole[k].most); }

/* The nearest number of 8 binary digits. */
static double brief(double v) {
  int e;
  const double m = frexp((double)(float)v, &e);
  return isfinite(v) ? ldexp(nearbyint(ldexp(m, 8)), e - 8) : v;
}

/* What is beyond a type's limits is the limit, in memory and on the way from one operation to the next. */
static void integers_end_at_their_limits(void **state) {
  (void)state;
  static const double value[] = {NAN, INFINITY, -INFINITY, 1e20, -1e20, 1e9, 200, 100, 3.9, 1, 0, -1.5, -3, 70000};
  enum { N = sizeof value / sizeof *value, SINKS = 8 };
  double x[N * N], y[N * N];
  for (int i = 0; i < N * N; i++) {
    x[i] = value[i / N];
    y[i] = value[i % N];
  }
  const atoll_rec_binding b[] = {{"x", 0, x}, {"y", 0, y}};
  for (int k = 0; k < WHOLE; k++) {
    static test_log got[SINKS];
    atoll_rec *c = test_context();
    atoll_rt *p = atoll_rt_cast(atoll_rec_input(c, "x", ATOLL_F64, "", ATOLL_SHAPE(N * N)), whole[k].type);
    atoll_rt *q = atoll_rt_cast(atoll_rec_input(c, "y", ATOLL_F64, "", ATOLL_SHAPE(N * N)), whole[k].type);
    atoll_rt *const made[SINKS] = {p,
                                   atoll_rt_add(p, q),
                                   atoll_rt_sub(p, q),
                                   atoll_rt_mul(p, q),
                                   atoll_rt_div(p, q),
                                   atoll_rt_sub(atoll_rt_add(p, q), q),
                                   atoll_rt_neg(atoll_rt_neg(p)),
                                   atoll_rt_cast(atoll_rt_scale(atoll_rt_scale(p, 0.5), 2), ATOLL_F64)};
    for (int s = 0; s < SINKS; s++)
      atoll_rt_sink(made[s], "s", test_collect, &got[s]);
    for (int way = 0; way < WAYS; way++) {
      memset(got, 0, sizeof got);
      run_way(c, way, b, 2);
      for (int i = 0; i < N * N; i++) {
        const double u = cut_off(k, x[i]), v = cut_off(k, y[i]);
        const double expected[SINKS] = {u,
                                        cut_off(k, u + v),
                                        cut_off(k, u - v),
                                        cut_off(k, u * v),
                                        cut_off(k, u / v),
                                        cut_off(k, cut_off(k, u + v) - v),
                                        cut_off(k, -cut_off(k, -u)),
                                        0};
        for (int s = 0; s < SINKS; s++)
          if (got[s].v[i] != expected[s])
            fail_msg("%s, sink %d of %g and %g, way %d: %.17g, expected %.17g", atoll_dtype_name(whole[k].type), s,
                     x[i], y[i], way, got[s].v[i], expected[s]);
      }
    }
    atoll_rec_destroy(&c);
  }
}

/* Sums are cut off once, recurrences at each step; a table is read at indices of any integer type. */
static void integers_add_up(void **state) {
  (void)state;
  enum { T = 12, N = 4 };
  double x[T * N];
  for (int i = 0; i < T * N; i++)
    x[i] = (i * 7 % 5 - 1) * (i % 3 ? 40 : 1.2e9);
  const atoll_rec_binding b[] = {{"x", 0, x}};
  for (int k = 0; k < WHOLE; k++) {
    static test_log got[5];
    atoll_rec *c = test_context();
    atoll_rec_dim(c, "t", T);
    atoll_rt *y = atoll_rt_cast(atoll_rec_input(c, "x", ATOLL_F64, "t", ATOLL_SHAPE(N)), whole[k].type);
    atoll_rt *h = atoll_rec_tensor(c, "h", whole[k].type, "t", ATOLL_SHAPE(N));
    atoll_rt_def(h, "t==0", y);
    atoll_rt_def(h, "true", atoll_rt_sub(atoll_rt_add(atoll_rt_at(h, "t-1"), y), atoll_rec_const(c, whole[k].type, 1)));
    atoll_rt *table = atoll_rt_scale(atoll_rec_iota(c, ATOLL_F32, T), 3);
    atoll_rt_sink(atoll_rt_sum(y, 0), "sum", test_collect, &got[0]);
    atoll_rt_sink(h, "h", test_collect, &got[1]);
    atoll_rt_sink(atoll_rt_at(atoll_rt_sum(atoll_rt_at(y, "0:t+1"), 0), "T-1"), "past", test_collect, &got[2]);
    atoll_rt_sink(atoll_rt_sum(atoll_rt_at(y, "0:T"), 0), "all", test_collect, &got[3]);
    atoll_rt_sink(atoll_rt_take(table, atoll_rec_expr(c, whole[k].type, "t")), "take", test_collect, &got[4]);
    for (int way = 0; way < WAYS; way++) {
      double all[N] = {0}, run[N];
      memset(got, 0, sizeof got);
      run_way(c, way, b, 1);
      for (int t = 0; t < T; t++) {
        double sum = 0;
        for (int i = 0; i < N; i++) {
          const double v = cut_off(k, x[t * N + i]);
          sum += v;
          all[i] += v;
          run[i] = t ? cut_off(k, cut_off(k, run[i] + v) - 1) : v;
          assert_true(got[1].v[t * N + i] == run[i]);
        }
        assert_true(got[0].v[t] == cut_off(k, sum));
        assert_true(got[4].v[t] == 3 * t);
      }
      for (int i = 0; i < N; i++) {
        assert_true(got[2].v[i] == cut_off(k, all[i]));
        assert_true(got[3].v[i] == cut_off(k, all[i]));
      }
    }
    atoll_rec_destroy(&c);
  }
}

/* bf16: each operation is rounded to 8 binary digits, a sum once. */
static void brief_numbers(void **state) {
  (void)state;
  enum { T = 300, N = 4 };
  float x[T * N];
  for (int i = 0; i < T * N; i++)
    x[i] = 1 + (float)(i % 37) / 16;
  const atoll_rec_binding b[] = {{"x", 0, x}};
  static test_log got[3];
  atoll_rec *c = test_context();
  atoll_rec_dim(c, "t", T);
  atoll_rt *y = atoll_rt_cast(atoll_rec_input(c, "x", ATOLL_F32, "t", ATOLL_SHAPE(N)), ATOLL_BF16);
  atoll_rt_sink(atoll_rt_scale(atoll_rt_mul(y, y), 1.7), "product", test_collect, &got[0]);
  atoll_rt_sink(atoll_rt_at(atoll_rt_sum(atoll_rt_at(y, "0:t+1"), 0), "T-1"), "past", test_collect, &got[1]);
  atoll_rt_sink(atoll_rt_sum(atoll_rt_at(y, "0:T"), 0), "all", test_collect, &got[2]);
  for (int way = 0; way < WAYS; way++) {
    double all[N] = {0};
    memset(got, 0, sizeof got);
    run_way(c, way, b, 1);
    for (int i = 0; i < T * N; i++) {
      const double v = brief(x[i]);
      all[i % N] += v;
      assert_true(got[0].v[i] == brief(brief(v * v) * brief(1.7)));
    }
    for (int i = 0; i < N; i++) {
      assert_true(got[1].v[i] == brief(all[i]));
      assert_true(got[2].v[i] == brief(all[i]));
    }
  }
  atoll_rec_destroy(&c);
}

/* Attention in bf16 whose result is the next input. Rounded differently by a last digit, it parts no further. */
static void brief_decoding(void **state) {
  (void)state;
  enum { T = 20, N = 8 };
  float w[3 * N * N], first[N];
  uint64_t seed = 11;
  for (int i = 0; i < 3 * N * N; i++)
    w[i] = (float)test_below(&seed, 2000) / 2000 - 0.5F;
  for (int i = 0; i < N; i++)
    first[i] = (float)i / N;
  const atoll_rec_binding b[] = {{"w", 0, w}, {"first", 0, first}};
  test_log got = {0}, expected;
  atoll_rec *c = test_context();
  atoll_rt *m[3];
  atoll_rec_dim(c, "t", T);
  atoll_rt *all = atoll_rt_cast(atoll_rec_input(c, "w", ATOLL_F32, "", ATOLL_SHAPE(3 * N, N)), ATOLL_BF16);
  atoll_rt *x = atoll_rec_tensor(c, "x", ATOLL_BF16, "t", ATOLL_SHAPE(N));
  for (int k = 0; k < 3; k++)
    m[k] = atoll_rt_mv(atoll_rt_slice(all, 0, k * N, N), x);
  atoll_rt *keys = atoll_rt_at(m[1], "max(0,t-6):t+1"), *values = atoll_rt_at(m[2], "max(0,t-6):t+1");
  atoll_rt *y = atoll_rt_einsum("n,nd->d", atoll_rt_softmax(atoll_rt_einsum("d,nd->n", m[0], keys), 0), values);
  atoll_rt_def(x, "t==0", atoll_rt_cast(atoll_rec_input(c, "first", ATOLL_F32, "", ATOLL_SHAPE(N)), ATOLL_BF16));
  atoll_rt_def(x, "true", atoll_rt_at(atoll_rt_tanh(atoll_rt_add(x, y)), "t-1"));
  atoll_rt_sink(x, "x", test_collect, &got);
  for (int way = 0; way < WAYS; way++) {
    got.n = 0;
    run_way(c, way, b, 2);
    assert_int_equal(got.n, T * N);
    if (way == 0)
      expected = got;
    for (int i = 0; i < got.n; i++) {
      assert_true(got.v[i] == brief(got.v[i]) && fabs(got.v[i]) <= 1);
      assert_true(fabs(got.v[i] - expected.v[i]) < 0.02);
    }
  }
  atoll_rec_destroy(&c);
}

/* ---- composed ---- */

static void pairs_turn(void **state) {
  (void)state;
  enum { T = 5, N = 6 };
  float x[T * N], frequency[N / 2] = {1, 0.3F, 0.01F};
  for (int i = 0; i < T * N; i++)
    x[i] = (float)(i % 7) - 3;
  const atoll_rec_binding b[] = {{"x", 0, x}, {"frequency", 0, frequency}};
  test_log got = {0};
  atoll_rec *c = test_context();
  atoll_rec_dim(c, "t", T);
  atoll_rt *f = atoll_rec_input(c, "frequency", ATOLL_F32, "", ATOLL_SHAPE(N / 2));
  atoll_rt_sink(
      atoll_rt_rotate(atoll_rec_input(c, "x", ATOLL_F32, "t", ATOLL_SHAPE(N)), atoll_rec_expr(c, ATOLL_I32, "5*t"), f),
      "turned", test_collect, &got);
  for (int way = 0; way < WAYS; way++) {
    got.n = 0;
    run_way(c, way, b, 2);
    assert_int_equal(got.n, T * N);
    for (int i = 0; i < T * N; i++) {
      const int t = i / N, k = i % (N / 2), second = i % N >= N / 2;
      const double angle = 5 * t * (double)frequency[k], p = x[t * N + k], q = x[t * N + k + N / 2];
      const double expected = second ? q * cos(angle) + p * sin(angle) : p * cos(angle) - q * sin(angle);
      assert_true(fabs(got.v[i] - expected) < 1e-5);
    }
  }
  atoll_rec_destroy(&c);
}

enum { ROWS = 4, CHOICES = 3 };
static const double logits[CHOICES] = {0, 1.5, -0.75};

typedef struct draws {
  int n, count[CHOICES];
  int32_t first[64 * ROWS];
} draws;

static atoll_err count_draws(void *user, const int64_t *point, const atoll_rt_view *in, const atoll_rt_view *out) {
  draws *d = user;
  (void)point;
  (void)out;
  for (int k = 0; k < ROWS; k++, d->n++) {
    const int32_t choice = ((const int32_t *)in->data)[k];
    assert_true(choice >= 0 && choice < CHOICES);
    d->count[choice]++;
    if (d->n < 64 * ROWS)
      d->first[d->n] = choice;
  }
  return ATOLL_OK;
}

static atoll_rec *drawing(atoll_dtype type, int64_t points, int64_t origin, draws *d) {
  atoll_rec *c = test_context();
  atoll_rec_dim(c, "t", points);
  atoll_rec_origin(c, "t", origin);
  atoll_rt *x = atoll_rec_input(c, "logits", type, "", ATOLL_SHAPE(ROWS, CHOICES));
  x = atoll_rt_add(x, atoll_rt_scale(atoll_rec_expr(c, type, "t"), 0));
  atoll_rt_sink(atoll_rt_categorical(x), "choice", count_draws, d);
  return c;
}

/* As often as softmax says; what is drawn at a point depends on the point alone. */
static void choices(void **state) {
  (void)state;
  enum { POINTS = 25000, FEW = 48 };
  float narrow[ROWS * CHOICES];
  double wide[ROWS * CHOICES], total = 0;
  for (int i = 0; i < ROWS * CHOICES; i++)
    narrow[i] = (float)(wide[i] = logits[i % CHOICES]);
  for (int k = 0; k < CHOICES; k++)
    total += exp(logits[k]);
  static draws all, some;
  for (int single = 0; single < 2; single++) {
    const atoll_rec_binding b = {"logits", 0, single ? (void *)narrow : (void *)wide};
    const atoll_dtype type = single ? ATOLL_F32 : ATOLL_F64;
    all = (draws){0};
    atoll_rec *c = drawing(type, POINTS, 0, &all);
    run_way(c, WAYS - 1, &b, 1);
    atoll_rec_destroy(&c);
    assert_int_equal(all.n, POINTS * ROWS);
    for (int k = 0; k < CHOICES; k++) {
      const double p = exp(logits[k]) / total, sigma = sqrt(all.n * p * (1 - p));
      if (!(fabs(all.count[k] - all.n * p) < 4 * sigma))
        fail_msg("%s: %d of %d draws are %d, expected %g", atoll_dtype_name(type), all.count[k], all.n, k, all.n * p);
    }
    for (int way = 0; way < WAYS; way++) {
      some = (draws){0};
      for (int part = 0; part < 2; part++) { /* as two ranks would */
        c = drawing(type, FEW / 2, part * FEW / 2, &some);
        run_way(c, way, &b, 1);
        atoll_rec_destroy(&c);
      }
      assert_int_equal(some.n, FEW * ROWS);
      assert_memory_equal(some.first, all.first, sizeof(int32_t) * FEW * ROWS);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(elements),        cmocka_unit_test(integers_end_at_their_limits),
      cmocka_unit_test(integers_add_up), cmocka_unit_test(brief_numbers),
      cmocka_unit_test(brief_decoding),  cmocka_unit_test(pairs_turn),
      cmocka_unit_test(choices),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
