/* A small Llama that feeds itself, greedily: layers are a dimension, so the program does not grow with them. Tokens of
 * the compiled program are those of the interpreter, for all of the past and for a window, for sequences one by one
 * and together; attention by blocks gives the same values. */
#include "recurrent_test.h"

enum { B = 2, T = 9, P = 3, D = 8, H = 4, HK = 2, DH = 4, F = 12, V = 16, L = 3 };

/* Most of this test's time is the compiler's; storage_and_threads_do_not_change_values() has what it does by default.
 */
#define QUICK "-O1 -ffp-contract=off -fopenmp-simd"
static float weights[L * V * D];

static atoll_rt *weight(atoll_rec *c, const char *name, const char *domain, atoll_rt_shape shape) {
  return atoll_rec_input(c, name, ATOLL_F32, domain, shape);
}

static atoll_rec *llama(int layers, int window, test_log *log) {
  atoll_rec *c = test_context();
  atoll_rec_dim(c, "b", B);
  atoll_rec_dim(c, "t", 0);
  atoll_rec_dim(c, "l", layers);
  atoll_rt *emb = weight(c, "emb", "", ATOLL_SHAPE(V, D)), *wq = weight(c, "wq", "l", ATOLL_SHAPE(H * DH, D));
  atoll_rt *wk = weight(c, "wk", "l", ATOLL_SHAPE(HK * DH, D)), *wv = weight(c, "wv", "l", ATOLL_SHAPE(HK * DH, D));
  atoll_rt *wo = weight(c, "wo", "l", ATOLL_SHAPE(D, H * DH)), *w1 = weight(c, "w1", "l", ATOLL_SHAPE(F, D));
  atoll_rt *w2 = weight(c, "w2", "l", ATOLL_SHAPE(D, F)), *w3 = weight(c, "w3", "l", ATOLL_SHAPE(F, D));
  atoll_rt *tok = atoll_rec_tensor(c, "tok", ATOLL_I32, "b,t", ATOLL_SCALAR);
  atoll_rt *x = atoll_rec_tensor(c, "x", ATOLL_F32, "b,t,l", ATOLL_SHAPE(D));
  atoll_rt *position = atoll_rec_expr(c, ATOLL_I32, "t");
  const char *index = window ? "t=max(0,t-3):t+1" : "t=0:t+1";
  atoll_rt_def(x, "l==0", atoll_rt_take(emb, tok));
  atoll_rt *n = atoll_rt_rmsnorm(x, NULL, 1e-5);
  atoll_rt *q = atoll_rt_rope(atoll_rt_reshape(atoll_rt_mv(wq, n), ATOLL_SHAPE(HK, H / HK, DH)), position, 10000);
  atoll_rt *k = atoll_rt_rope(atoll_rt_reshape(atoll_rt_mv(wk, n), ATOLL_SHAPE(HK, DH)), position, 10000);
  atoll_rt *v = atoll_rt_reshape(atoll_rt_mv(wv, n), ATOLL_SHAPE(HK, DH));
  atoll_rt *s = atoll_rt_scale(atoll_rt_einsum("kgd,nkd->kgn", q, atoll_rt_at(k, index)), 0.5);
  atoll_rt *y = atoll_rt_einsum("kgn,nkd->kgd", atoll_rt_softmax(s, -1), atoll_rt_at(v, index));
  atoll_rt *h = atoll_rt_add(x, atoll_rt_mv(wo, atoll_rt_reshape(y, ATOLL_SHAPE(H * DH))));
  atoll_rt *m = atoll_rt_rmsnorm(h, NULL, 1e-5);
  atoll_rt *mlp = atoll_rt_mv(w2, atoll_rt_mul(atoll_rt_silu(atoll_rt_mv(w1, m)), atoll_rt_mv(w3, m)));
  atoll_rt *out = atoll_rt_add(h, mlp);
  atoll_rt_def(x, "true", atoll_rt_at(out, "l=l-1"));
  atoll_rt *logits = atoll_rt_mv(emb, atoll_rt_rmsnorm(atoll_rt_at(out, "l=L-1"), NULL, 1e-5));
  atoll_rt_def(tok, "t<3", atoll_rec_input(c, "prompt", ATOLL_I32, "b,t", ATOLL_SCALAR));
  atoll_rt_def(tok, "true", atoll_rt_at(atoll_rt_argmax(logits, -1), "t=t-1"));
  atoll_rt_sink(tok, "tokens", test_collect, log);
  return c;
}

static int bindings(atoll_rec_binding *b) {
  static int32_t prompt[B * T];
  static const char *const name[] = {"emb", "wq", "wk", "wv", "wo", "w1", "w2", "w3"};
  uint64_t seed = 5;
  for (int i = 0; i < L * V * D; i++)
    weights[i] = (float)(test_below(&seed, 2000) - 1000) / 1000;
  for (int i = 0; i < B * T; i++)
    prompt[i] = test_below(&seed, V);
  for (int k = 0; k < 8; k++)
    b[k] = (atoll_rec_binding){name[k], 0, weights};
  b[8] = (atoll_rec_binding){"prompt", 0, prompt};
  b[9] = (atoll_rec_binding){"T", T, NULL};
  return 10;
}

/* Whether attention goes over blocks of t. */
static int has_blocks(const atoll_rec_program *p) {
  char *text = test_print(p);
  int found = strstr(text, "tjj=") != NULL;
  free(text);
  return found;
}

static void tokens_are_the_same(void **state) {
  (void)state;
  atoll_rec_binding b[10];
  int n = bindings(b);
  for (int window = 0; window < 2; window++) {
    static test_log expected, got;
    expected.n = 0;
    atoll_rec *c = llama(L, window, &expected);
    assert_ok(atoll_rec_interpret(c, b, n));
    atoll_rec_destroy(&c);
    assert_int_equal(expected.n, B * T);
    for (int way = 0; way < 4; way++) { /* texts together or not, values in blocks or not */
      atoll_rec_program *p = NULL;
      got.n = 0;
      c = llama(L, window, &got);
      assert_ok(atoll_rec_compile(
          c, &(atoll_rec_params){.vectorize = way & 1 ? "b" : NULL, .block = way & 2 ? 4 : 0, .flags = QUICK}, &p));
      assert_ok(atoll_rec_run(p, b, n));
      assert_int_equal(got.n, B * T);
      for (int i = 0; i < B * T; i++)
        assert_true(got.v[i] == expected.v[i]);
      atoll_rec_program_destroy(&p);
      atoll_rec_destroy(&c);
    }
  }
}

/* Heads that share keys and values; rows of whole vectors. */
typedef struct heads {
  int shared, each;
  const char *index;
  int block, sweep; /* whether blocks are read place by place: 1; 2: and scores are kept so meanwhile */
} heads;

enum { PLACES = 45, ROW = 16, TEXTS = 2, MOST_HEADS = 256 };

static atoll_rec *grouped(const heads *h, test_log *log) {
  atoll_rec *c = test_context();
  atoll_rec_dim(c, "b", TEXTS);
  atoll_rec_dim(c, "t", PLACES);
  atoll_rt *q = atoll_rec_input(c, "q", ATOLL_F32, "b,t", ATOLL_SHAPE(h->shared, h->each, ROW));
  atoll_rt *x = atoll_rec_input(c, "x", ATOLL_F32, "b,t", ATOLL_SHAPE(h->shared, ROW));
  atoll_rt *k = atoll_rt_at(atoll_rt_scale(x, 0.5), h->index), *v = atoll_rt_at(atoll_rt_shift(x, 1), h->index);
  atoll_rt *p = atoll_rt_softmax(atoll_rt_einsum("kgd,nkd->kgn", q, k), -1);
  atoll_rt *y = atoll_rt_sum(atoll_rt_sum(atoll_rt_einsum("kgn,nkd->kgd", p, v), -1), -1); /* fewer to compare */
  atoll_rt_sink(atoll_rt_at(y, "b=0:B"), "out", test_collect, log);
  return c;
}

static void run_grouped(const heads *h, int threads, const atoll_rec_binding *b, test_log *log) {
  char *text = NULL;
  size_t n = 0;
  FILE *trace = open_memstream(&text, &n);
  atoll_rec_program *p = NULL;
  atoll_rec *c = grouped(h, log);
  assert_non_null(trace);
  assert_ok(atoll_rec_compile(
      c, &(atoll_rec_params){.vectorize = "b", .block = h->block, .threads = threads, .trace = trace}, &p));
  fclose(trace);
  assert_int_equal(strstr(text, "done += rows") != NULL, h->sweep > 0);
  assert_int_equal(strstr(text, "float near[") != NULL, h->sweep > 1);
  free(text);
  log->n = 0;
  assert_ok(atoll_rec_run(p, b, 2));
  atoll_rec_program_destroy(&p);
  atoll_rec_destroy(&c);
}

static void blocks_are_read_as_they_lie(void **state) {
  static const heads all[] = {{4, 1, "t=0:t+1", 16, 1},
                              {2, 4, "t=max(0,t-18):t+1", 32, 2},
                              {4, 4, "t=0:t+1", 32, 2},
                              {3, 1, "t=0:t+1", 16, 1},             /* values only: no four heads */
                              {16, 8, "t=max(0,t-18):t+1", 16, 0}}; /* too many to stay in a cache */
  static float q[TEXTS * PLACES * MOST_HEADS * ROW], x[TEXTS * PLACES * MOST_HEADS * ROW];
  static test_log expected, one, two;
  const atoll_rec_binding b[] = {{"q", 0, q}, {"x", 0, x}};
  uint64_t seed = 11;
  (void)state;
  for (size_t i = 0; i < sizeof x / sizeof *x; i++) {
    q[i] = (float)test_below(&seed, 2000) / 1000 - 1;
    x[i] = (float)test_below(&seed, 2000) / 1000 - 1;
  }
  for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
    expected.n = 0;
    atoll_rec *c = grouped(&all[k], &expected);
    assert_ok(atoll_rec_interpret(c, b, 2));
    atoll_rec_destroy(&c);
    run_grouped(&all[k], 1, b, &one);
    run_grouped(&all[k], 2, b, &two);
    assert_int_equal(expected.n, one.n);
    assert_true(one.n > 0);
    for (int i = 0; i < one.n; i++) {
      if (!(fabs(expected.v[i] - one.v[i]) < 1e-4))
        fail_msg("case %d: element %d is %g, expected %g", (int)k, i, one.v[i], expected.v[i]);
      assert_true(one.v[i] == two.v[i]);
    }
  }
}

/* One head whose values are looked at themselves; scores large enough that a wrong running maximum or factor shows. */
static void add_head(atoll_rec *c, const char *domain, const char *index, test_log *log) {
  atoll_rt *x = atoll_rec_input(c, domain, ATOLL_F64, domain, ATOLL_SHAPE(4));
  atoll_rt *k = atoll_rt_at(atoll_rt_scale(x, 3), index), *v = atoll_rt_at(atoll_rt_tanh(x), index);
  atoll_rt *p = atoll_rt_softmax(atoll_rt_einsum("nd,d->n", k, x), 0);
  atoll_rt_sink(atoll_rt_einsum("n,nd->d", p, v), "out", test_collect, log);
}

static atoll_rec *head(const char *index, test_log *log) {
  atoll_rec *c = test_context();
  atoll_rec_dim(c, "t", 0);
  atoll_rec_dim(c, "tj", 2); /* as blocks of t would be named */
  add_head(c, "t", index, log);
  return c;
}

static void blocks_keep_the_values(void **state) {
  (void)state;
  static const char *const index[] = {"0:t+1", "max(0,t-4):t+1",
                                      /* somewhere empty: there the result is 0 */
                                      "0:t", "max(0,t-4):t", "max(0,t-5):max(0,t-1)", "t+1:T", "t+1:min(t+5,T)"};
  double x[T * 4];
  uint64_t seed = 9;
  for (int i = 0; i < T * 4; i++)
    x[i] = (double)test_below(&seed, 4000) / 1000 - 2;
  const atoll_rec_binding b[] = {{"T", T, NULL}, {"t", 0, x}};
  for (size_t k = 0; k < sizeof index / sizeof *index; k++) {
    static test_log expected, got;
    atoll_rec_program *p = NULL;
    expected.n = got.n = 0;
    atoll_rec *c = head(index[k], &expected);
    assert_ok(atoll_rec_interpret(c, b, 2));
    atoll_rec_destroy(&c);
    c = head(index[k], &got);
    assert_ok(atoll_rec_compile(c, &(atoll_rec_params){.tile = 3, .flags = QUICK}, &p));
    assert_int_equal(has_blocks(p), 1);
    assert_ok(atoll_rec_run(p, b, 2));
    assert_int_equal(got.n, T * 4);
    for (int i = 0; i < T * 4; i++)
      if (!(fabs(got.v[i] - expected.v[i]) < 1e-12))
        fail_msg("'%s', value %d: %g, expected %g", index[k], i, got.v[i], expected.v[i]);
    int64_t told, used; /* blocks are allocated whole */
    assert_ok(atoll_rec_peak_bytes(p, b, 2, &told));
    assert_ok(atoll_rec_last_peak(p, &used));
    assert_int_equal(told, used);
    atoll_rec_program_destroy(&p);
    atoll_rec_destroy(&c);
  }
}

/* Attention of WIDE numbers over as many positions as it takes for threads to share the work. */
enum { WIDE = 192, LONG = 400 };

static atoll_rec *wide_head(const char *index, test_log *log) {
  atoll_rec *c = test_context();
  atoll_rec_dim(c, "t", 0);
  atoll_rt *x = atoll_rec_input(c, "x", ATOLL_F32, "t", ATOLL_SHAPE(WIDE));
  atoll_rt *k = atoll_rt_name(atoll_rt_scale(x, 0.5), "keys"), *v = atoll_rt_name(atoll_rt_tanh(x), "values");
  atoll_rt *p = atoll_rt_softmax(atoll_rt_einsum("nd,d->n", atoll_rt_at(k, index), x), 0);
  atoll_rt *y = atoll_rt_einsum("n,nd->d", p, atoll_rt_at(v, index));
  atoll_rt_sink(atoll_rt_sum(atoll_rt_mul(y, x), 0), "out", test_collect, log);
  return c;
}

/* Bytes that the report says a value takes: "name ... , N bytes". */
static int64_t reported_bytes(const atoll_rec_program *p, const atoll_rec_binding *b, int n, const char *name) {
  char *text = test_report(p, b, n);
  char *line = strstr(text, name); /* of the list after graph and schedule */
  char *end = line ? strstr(line, " bytes") : NULL;
  assert_non_null(end);
  while (end[-1] != ' ')
    end--;
  const int64_t bytes = strtoll(end, NULL, 10);
  free(text);
  return bytes;
}

static void storage_and_threads_do_not_change_values(void **state) {
  (void)state;
  enum { WINDOW = 128, BLOCK = 32 };
  static float x[LONG * WIDE];
  static test_log plain, got;
  uint64_t seed = 3;
  for (int i = 0; i < LONG * WIDE; i++)
    x[i] = (float)test_below(&seed, 2000) / 8000 - 0.125f;
  const atoll_rec_binding b[] = {{"T", LONG, NULL}, {"x", 0, x}};
  for (int window = 0; window < 2; window++)
    for (int way = 0; way < 3; way++) {
      const atoll_rec_params params = {.block = way ? BLOCK : 0, .threads = way == 2 ? 3 : 1};
      atoll_rec_program *p = NULL;
      test_log *log = way ? &got : &plain;
      log->n = 0;
      atoll_rec *c = wide_head(window ? "max(0,t-127):t+1" : "0:t+1", log);
      assert_ok(atoll_rec_compile(c, &params, &p));
      assert_ok(atoll_rec_run(p, b, 2));
      assert_int_equal(log->n, LONG);
      for (int i = 0; way && i < LONG; i++) /* bit by bit: each element is computed in the same order */
        assert_true(got.v[i] == plain.v[i]);
      int64_t told, used, kept = reported_bytes(p, b, 2, "\nkeys (");
      assert_ok(atoll_rec_peak_bytes(p, b, 2, &told));
      assert_ok(atoll_rec_last_peak(p, &used));
      assert_int_equal(told, used);
      if (window)
        assert_int_equal(kept, (WINDOW + (way ? BLOCK : 0)) * WIDE * 4);
      else
        assert_int_equal(kept, (way ? (LONG + BLOCK - 1) / BLOCK * BLOCK : LONG) * WIDE * 4);
      atoll_rec_program_destroy(&p);
      atoll_rec_destroy(&c);
    }
}

static void programs_do_not_grow_with_layers(void **state) {
  (void)state;
  size_t length[2];
  for (int k = 0; k < 2; k++) {
    static test_log log;
    atoll_rec_program *p = NULL;
    atoll_rec *c = llama(k ? 64 : 4, 1, &log);
    assert_ok(atoll_rec_compile(c, &(atoll_rec_params){.vectorize = "b", .least = 64, .compiler = ""}, &p));
    char *text = test_print(p);
    length[k] = strlen(text);
    free(text);
    atoll_rec_program_destroy(&p);
    atoll_rec_destroy(&c);
  }
  assert_true(length[1] < length[0] + length[0] / 20); /* numbers with two digits */
}

/* Attention over t, and over a dimension that is named as blocks of t would be. */
static atoll_rec *two_heads(test_log log[2]) {
  atoll_rec *c = test_context();
  atoll_rec_dim(c, "t", 0);
  atoll_rec_dim(c, "tj", 0);
  add_head(c, "t", "0:t+1", &log[0]);
  add_head(c, "tj", "0:tj+1", &log[1]);
  return c;
}

static void each_dimension_has_its_own_blocks(void **state) {
  (void)state;
  static test_log expected[2], got[2];
  double x[T * 4];
  uint64_t seed = 9;
  atoll_rec_program *p = NULL;
  for (int i = 0; i < T * 4; i++)
    x[i] = (double)test_below(&seed, 4000) / 1000 - 2;
  const atoll_rec_binding b[] = {{"T", 4, NULL}, {"TJ", T, NULL}, {"t", 0, x}, {"tj", 0, x}};
  atoll_rec *c = two_heads(expected);
  assert_ok(atoll_rec_interpret(c, b, 4));
  atoll_rec_destroy(&c);
  c = two_heads(got);
  assert_ok(atoll_rec_compile(c, &(atoll_rec_params){.tile = 3, .compiler = ""}, &p));
  assert_int_equal(has_blocks(p), 1);
  assert_ok(atoll_rec_run(p, b, 4));
  for (int k = 0; k < 2; k++) {
    assert_int_equal(got[k].n, k ? T * 4 : 4 * 4);
    for (int i = 0; i < got[k].n; i++)
      assert_true(fabs(got[k].v[i] - expected[k].v[i]) < 1e-12);
  }
  atoll_rec_program_destroy(&p);
  atoll_rec_destroy(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tokens_are_the_same),
      cmocka_unit_test(blocks_keep_the_values),
      cmocka_unit_test(each_dimension_has_its_own_blocks),
      cmocka_unit_test(blocks_are_read_as_they_lie),
      cmocka_unit_test(storage_and_threads_do_not_change_values),
      cmocka_unit_test(programs_do_not_grow_with_layers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
