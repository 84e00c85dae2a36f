/* Numbers at the edge: NaN and infinity are never hidden, scores far apart give exact zeros and ones, empty work is
 * nothing. */
#include "atoll/gemm.h"
#include "kernel_test.h"

static struct bench t;

static int setup(void **state) {
  (void)state;
  t = bench_open("cpu", "cpu", 2);
  return 0;
}

static int teardown(void **state) {
  (void)state;
  bench_close(&t);
  return 0;
}

static void nan_shows(void **state) {
  (void)state;
  for (int at = 0; at < 40; at += 13) {
    float x[40], y[40], d[40], loss[1], mean[1], rstd[1], one[40];
    double squares;
    for (int i = 0; i < 40; i++)
      x[i] = (float)i / 40, one[i] = 1;
    x[at] = NAN;
    int32_t target = 5;
    OK(t.k->gelu_forward(t.queue, x, y, 40));
    OK(t.k->gelu_backward(t.queue, one, x, d, 40));
    OK(atoll_queue_sync(t.queue));
    for (int i = 0; i < 40; i++) {
      assert_int_equal(isnan(y[i]), i == at);
      assert_int_equal(isnan(d[i]), i == at);
    }
    OK(t.k->cross_entropy(t.queue, x, &target, loss, d, 1, 1, 40));
    OK(t.k->layernorm_forward(t.queue, x, one, one, y, mean, rstd, 1, 40, 1e-5f));
    OK(t.k->sum_squares(t.queue, x, 40, &squares));
    OK(atoll_queue_sync(t.queue));
    assert_true(isnan(loss[0]) && isnan(d[0]) && isnan(y[39]) && isnan(squares));
    x[at] = INFINITY;
    OK(t.k->sum_squares(t.queue, x, 40, &squares));
    OK(t.k->cross_entropy(t.queue, x, &target, loss, NULL, 1, 1, 40));
    OK(atoll_queue_sync(t.queue));
    assert_true(isinf(squares) && !isfinite(loss[0]));
    atoll_attention_shape s = {.B = 1, .S = 5, .heads = 1, .head_dim = 2, .scale = 1, .q_row = 6, .kv_row = 6};
    float qkv[30] = {0}, o[10], lse[5];
    qkv[(at % 5) * 6 + 1] = NAN; /* in a query */
    OK(t.k->attention_forward(t.queue, qkv, qkv + 2, qkv + 4, o, lse, &s, NULL));
    OK(atoll_queue_sync(t.queue));
    assert_true(isnan(o[(at % 5) * 2]) && isnan(lse[at % 5]));
  }
}

static void far_scores(void **state) {
  (void)state;
  int64_t V = 100;
  float x[100], d[100], loss;
  for (int i = 0; i < V; i++)
    x[i] = i == 7 ? 1e4f : -1e4f;
  int32_t target = 7;
  OK(t.k->cross_entropy(t.queue, x, &target, &loss, d, 1, 1, V));
  OK(atoll_queue_sync(t.queue));
  assert_true(loss == 0);
  for (int i = 0; i < V; i++)
    assert_true(d[i] == 0);
  target = 8;
  OK(t.k->cross_entropy(t.queue, x, &target, &loss, d, 1, 1, V));
  OK(atoll_queue_sync(t.queue));
  assert_true(loss == 2e4f && d[7] == 1 && d[8] == -1);
  /* GELU far out: 0 and x, slopes 0 and 1. */
  float in[4] = {-1e4f, -30, 30, 1e4f}, one[4] = {1, 1, 1, 1}, y[4], g[4];
  OK(t.k->gelu_forward(t.queue, in, y, 4));
  OK(t.k->gelu_backward(t.queue, one, in, g, 4));
  OK(atoll_queue_sync(t.queue));
  for (int i = 0; i < 4; i++) {
    assert_true(fabsf(y[i] - (i < 2 ? 0 : in[i])) < 1e-30f + (i < 2 ? 1e-30f : 0));
    assert_true(fabsf(g[i] - (i < 2 ? 0 : 1)) < 1e-6f);
  }
  /* So are the form by the error function and the gate of SwiGLU. */
  float s[4], du[4];
  OK(t.k->gelu_erf_forward(t.queue, in, y, 4));
  OK(t.k->gelu_erf_backward(t.queue, one, in, g, 4));
  OK(t.k->swiglu_forward(t.queue, in, one, s, 4));
  OK(atoll_queue_sync(t.queue));
  for (int i = 0; i < 4; i++) {
    assert_true(i < 2 ? fabsf(y[i]) < 1e-30f && fabsf(s[i]) < 1e-10f : y[i] == in[i] && s[i] == in[i]);
    assert_true(fabsf(g[i] - (i < 2 ? 0 : 1)) < 1e-6f);
  }
  OK(t.k->swiglu_backward(t.queue, one, in, one, g, du, 4));
  OK(atoll_queue_sync(t.queue));
  for (int i = 0; i < 4; i++)
    assert_true(fabsf(g[i] - (i < 2 ? 0 : 1)) < 1e-6f && (i < 2 ? fabsf(du[i]) < 1e-10f : du[i] == in[i]));
}

/* A sample without a key, or with more keys than tokens, is refused. */
static void lengths(void **state) {
  (void)state;
  const int32_t wrong[] = {0, 6};
  for (int i = 0; i < 2; i++) {
    struct bench b = bench_open("cpu", "cpu", 2);
    float x[10] = {0}, o[10], lse[5];
    atoll_attention_shape s = {.B = 1, .S = 5, .heads = 1, .head_dim = 2, .scale = 1, .lengths = wrong + i};
    atoll_err err = b.k->attention_forward(b.queue, x, x, x, o, lse, &s, NULL);
    if (err == ATOLL_OK)
      err = atoll_queue_sync(b.queue);
    assert_int_equal(err, ATOLL_CORRUPT);
    assert_non_null(strstr(atoll_err_message(), "expected 1..5"));
    bench_close(&b);
  }
}

static void nothing(void **state) {
  (void)state;
  float x[4] = {1, 2, 3, 4};
  double s = -1;
  atoll_attention_shape none = {.S = 5, .heads = 1, .head_dim = 2, .scale = 1};
  OK(t.k->linear_forward(t.queue, x, x, NULL, x, 0, 2, 2));
  OK(t.k->linear_backward_weight(t.queue, x, x, x, NULL, 0, 2, 2, 1)); /* no rows: nothing to add */
  OK(t.k->layernorm_forward(t.queue, x, x, x, x, x, x, 0, 4, 1e-5f));
  OK(t.k->attention_forward(t.queue, x, x, x, x, x, &none, NULL));
  OK(t.k->gelu_forward(t.queue, x, x, 0));
  OK(t.k->sum_squares(t.queue, x, 0, &s));
  OK(t.k->cross_entropy(t.queue, x, NULL, x, NULL, 1, 0, 4));
  OK(atoll_queue_sync(t.queue));
  assert_true(s == 0);
  for (int i = 0; i < 4; i++)
    assert_true(x[i] == (float)(i + 1));
}

static void names(void **state) {
  (void)state;
  const atoll_kernels *k = NULL;
  assert_int_equal(atoll_kernels_get("cuda", &k), ATOLL_UNAVAILABLE);
  assert_non_null(strstr(atoll_err_message(), "ref, cpu"));
  assert_null(k);
  OK(atoll_kernels_get("auto:cpu", &k));
  assert_string_equal(k->name, "cpu");
  assert_non_null(strstr(atoll_kernels_describe(k), "GEMM by "));
  assert_non_null(atoll_device_probe("cpu"));
  assert_non_null(atoll_device_probe("async"));
  const atoll_rate_probe *p = atoll_device_probe("cpu");
  double seconds = 0, amount = 0;
  OK(p->gemm(t.device, ATOLL_F32, 100, &seconds, &amount));
  assert_true(seconds > 0 && amount == 2e6);
  OK(p->gemm(t.device, ATOLL_BF16, 100, &seconds, &amount));
  assert_true(seconds > 0 && amount == 2e6);
  assert_int_equal(p->gemm(t.device, ATOLL_F64, 100, &seconds, &amount), ATOLL_UNSUPPORTED);
  OK(p->memory(t.device, 8 << 20, &seconds, &amount));
  assert_true(seconds > 0 && amount == 8 << 20);
  const char *library;
  double rate = 0;
  int n = 0;
  for (; atoll_gemm_library(n, &library); n++) {
    rate = 0;
    OK(atoll_gemm_rate(library, 64, 65, 66, 1, 1, &rate));
    assert_true(rate > 0 && isfinite(rate));
  }
  assert_int_equal(n, atoll_gemm_ways() + 1);
  assert_int_equal(atoll_gemm_rate("blis", 64, 64, 64, 1, 1, &rate), ATOLL_USAGE);
  assert_int_equal(atoll_gemm_bf16_rate("onednn", 64, 64, 64, 1, 1, &rate), ATOLL_USAGE);
  const char *const by_units[] = {"packed", "fma-loop"};
  for (int i = 0; i < 2; i++) {
    rate = 0;
    atoll_err err = atoll_gemm_bf16_rate(by_units[i], 64, 65, 66, 1, 1, &rate);
    assert_int_equal(err, atoll_gemm_bf16_units() ? ATOLL_OK : ATOLL_UNSUPPORTED);
    assert_true(err != ATOLL_OK || (rate > 0 && isfinite(rate)));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(nan_shows), cmocka_unit_test(far_scores),
                                     cmocka_unit_test(lengths), cmocka_unit_test(nothing), cmocka_unit_test(names)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
