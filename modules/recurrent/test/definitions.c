/* Programs mean what their definitions say: checked against loops written by hand. */
#include "recurrent_test.h"

static void cases_are_a_recurrence(void **state) {
  (void)state;
  atoll_rec *c = test_context();
  test_log log = {0};
  atoll_rec_dim(c, "t", 0);
  atoll_rt *x = atoll_rec_tensor(c, "x", ATOLL_F64, "t", ATOLL_SCALAR);
  atoll_rt_def(x, "t==0", atoll_rec_const(c, ATOLL_F64, 1));
  atoll_rt_def(x, "t==1", atoll_rec_const(c, ATOLL_F64, 1));
  atoll_rt_def(x, "true", atoll_rt_add(atoll_rt_at(x, "t-1"), atoll_rt_at(x, "t-2")));
  atoll_rt_sink(x, "log", test_collect, &log);
  assert_ok(atoll_rec_interpret(c, (atoll_rec_binding[]){{"T", 10, NULL}}, 1));
  const double fibonacci[] = {1, 1, 2, 3, 5, 8, 13, 21, 34, 55};
  assert_int_equal(log.n, 10);
  for (int t = 0; t < 10; t++)
    assert_true(log.v[t] == fibonacci[t]);
  atoll_rec_destroy(&c);
}

/* A recurrence over many points must not need a deep C stack. */
static void long_recurrences_end(void **state) {
  (void)state;
  atoll_rec *c = test_context();
  test_log log = {0};
  atoll_rec_dim(c, "t", 200000);
  atoll_rt *x = atoll_rec_tensor(c, "x", ATOLL_F64, "t", ATOLL_SCALAR);
  atoll_rt_def(x, "t==T-1", atoll_rec_const(c, ATOLL_F64, 1));
  atoll_rt_def(x, "true", atoll_rt_shift(atoll_rt_at(x, "t+1"), 1));
  atoll_rt_sink(atoll_rt_at(x, "0"), "log", test_collect, &log);
  assert_ok(atoll_rec_interpret(c, NULL, 0));
  assert_true(log.n == 1 && log.v[0] == 200000);
  atoll_rec_destroy(&c);
}

/* One head of attention over everything before, and over a window. */
static void attention_reads_its_window(void **state) {
  (void)state;
  enum { T = 9, D = 4 };
  for (int window = 0; window < 2; window++) {
    atoll_rec *c = test_context();
    test_log log = {0};
    double q[T][D], k[T][D];
    uint64_t seed = 11;
    for (int t = 0; t < T; t++)
      for (int d = 0; d < D; d++) {
        q[t][d] = (double)test_below(&seed, 1000) / 500 - 1;
        k[t][d] = (double)test_below(&seed, 1000) / 500 - 1;
      }
    atoll_rec_dim(c, "t", 0);
    const char *index = window ? "max(0,t-2):t+1" : "0:t+1";
    atoll_rt *qt = atoll_rec_input(c, "q", ATOLL_F64, "t", ATOLL_SHAPE(D));
    atoll_rt *kt = atoll_rt_at(atoll_rec_input(c, "k", ATOLL_F64, "t", ATOLL_SHAPE(D)), index);
    atoll_rt *p = atoll_rt_softmax(atoll_rt_einsum("nd,d->n", kt, qt), 0);
    atoll_rt_sink(atoll_rt_einsum("n,nd->d", p, kt), "log", test_collect, &log);
    assert_ok(atoll_rec_interpret(c, (atoll_rec_binding[]){{"T", T, NULL}, {"q", 0, q}, {"k", 0, k}}, 3));
    assert_int_equal(log.n, T * D);
    for (int t = 0; t < T; t++) {
      double sum = 0, y[D] = {0};
      for (int s = window && t > 2 ? t - 2 : 0; s <= t; s++) {
        double dot = 0;
        for (int d = 0; d < D; d++)
          dot += q[t][d] * k[s][d];
        sum += exp(dot);
        for (int d = 0; d < D; d++)
          y[d] += exp(dot) * k[s][d];
      }
      for (int d = 0; d < D; d++)
        assert_true(fabs(log.v[t * D + d] - y[d] / sum) < 1e-12);
    }
    atoll_rec_destroy(&c);
  }
}

/* The layer is a dimension: x[l] is defined by x[l-1], and tokens by the last layer one step before. */
static void layers_are_a_dimension(void **state) {
  (void)state;
  enum { L = 3, T = 5, V = 4 };
  atoll_rec *c = test_context();
  test_log log = {0};
  const double w[L][V][V] = {{{1, 2, 0, 1}, {0, 1, 1, 0}, {2, 0, 1, 1}, {1, 1, 0, 3}},
                             {{0, 1, 1, 2}, {1, 0, 2, 1}, {1, 1, 1, 0}, {0, 2, 1, 1}},
                             {{1, 0, 0, 1}, {2, 1, 0, 0}, {0, 0, 1, 2}, {1, 1, 1, 1}}};
  const double emb[V][V] = {{1, 0, 0, 0}, {0, 2, 0, 1}, {0, 0, 1, 0}, {1, 0, 0, 1}};
  const int32_t prompt[] = {2};
  atoll_rec_dim(c, "l", L);
  atoll_rec_dim(c, "t", T);
  atoll_rt *table = atoll_rec_input(c, "emb", ATOLL_F64, "", ATOLL_SHAPE(V, V));
  atoll_rt *wl = atoll_rec_input(c, "w", ATOLL_F64, "l", ATOLL_SHAPE(V, V));
  atoll_rt *token = atoll_rec_tensor(c, "token", ATOLL_I32, "t", ATOLL_SCALAR);
  atoll_rt *x = atoll_rec_tensor(c, "x", ATOLL_F64, "l,t", ATOLL_SHAPE(V));
  atoll_rt *y = atoll_rt_mv(wl, x);
  atoll_rt_def(x, "l==0", atoll_rt_take(table, token));
  atoll_rt_def(x, "true", atoll_rt_at(y, "l=l-1"));
  atoll_rt_def(token, "t==0", atoll_rec_input(c, "prompt", ATOLL_I32, "", ATOLL_SCALAR));
  atoll_rt_def(token, "true", atoll_rt_argmax(atoll_rt_at(y, "L-1,t-1"), 0));
  atoll_rt_sink(token, "log", test_collect, &log);
  assert_ok(atoll_rec_interpret(c, (atoll_rec_binding[]){{"w", 0, w}, {"emb", 0, emb}, {"prompt", 0, prompt}}, 3));
  int tok = 2;
  for (int t = 0; t < T; t++) {
    assert_true(log.v[t] == tok);
    double a[V], b[V];
    memcpy(a, emb[tok], sizeof a);
    for (int l = 0; l < L; l++) {
      for (int i = 0; i < V; i++) {
        b[i] = 0;
        for (int j = 0; j < V; j++)
          b[i] += w[l][i][j] * a[j];
      }
      memcpy(a, b, sizeof a);
    }
    tok = 0;
    for (int i = 1; i < V; i++)
      if (a[i] > a[tok])
        tok = i;
  }
  atoll_rec_destroy(&c);
}

static atoll_err walk_step(void *user, const int64_t *point, const atoll_rt_view *in, const atoll_rt_view *out) {
  (void)user;
  (void)point;
  float s = ((const float *)in[0].data)[0], a = ((const float *)in[1].data)[0];
  ((float *)out->data)[0] = 0.5f * s + a;
  ((float *)out->data)[1] = -s * s;
  return ATOLL_OK;
}

/* An environment of the user, and returns over a window of the future. */
static void returns_look_ahead(void **state) {
  (void)state;
  enum { B = 2, T = 6 };
  atoll_rec *c = test_context();
  test_log rewards = {0}, returns = {0};
  atoll_rec_dim(c, "b", B);
  atoll_rec_dim(c, "t", T);
  atoll_rt *s = atoll_rec_tensor(c, "s", ATOLL_F32, "b,t", ATOLL_SHAPE(1));
  atoll_rt *a = atoll_rt_add(s, atoll_rec_normal(c, "b,t", ATOLL_SHAPE(1)));
  atoll_rt *step = atoll_rec_call(c, "step", walk_step, NULL, NULL, ATOLL_F32, ATOLL_SHAPE(2), 2, (atoll_rt *[]){s, a});
  atoll_rt_def(s, "t==0",
               atoll_rt_reshape(atoll_rt_cast(atoll_rec_expr(c, ATOLL_I32, "b"), ATOLL_F32), ATOLL_SHAPE(1)));
  atoll_rt_def(s, "true", atoll_rt_at(atoll_rt_slice(step, 0, 0, 1), "t=t-1"));
  atoll_rt *r = atoll_rt_reshape(atoll_rt_slice(step, 0, 1, 1), ATOLL_SCALAR);
  atoll_rt_sink(r, "rewards", test_collect, &rewards);
  atoll_rt_sink(atoll_rt_dsum(atoll_rt_at(r, "b,t:min(t+3,T)"), 0.5), "returns", test_collect, &returns);
  assert_ok(atoll_rec_interpret(c, NULL, 0));
  for (int b = 0; b < B; b++)
    for (int t = 0; t < T; t++) {
      double g = 0;
      for (int k = t; k < T && k < t + 3; k++)
        g += pow(0.5, k - t) * rewards.v[b * T + k];
      assert_true(fabs(g - returns.v[b * T + t]) < 1e-5 * (1 + fabs(g)));
    }
  atoll_rec_destroy(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(cases_are_a_recurrence),     cmocka_unit_test(long_recurrences_end),
      cmocka_unit_test(attention_reads_its_window), cmocka_unit_test(layers_are_a_dimension),
      cmocka_unit_test(returns_look_ahead),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
