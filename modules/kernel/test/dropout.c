/* Dropout drops the stated share, scales the rest, is a function of (seed, step, global sample, layer, site, element)
 * alone, and backward drops what forward dropped. */
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

static void forward(const atoll_drop *d, float *y, int64_t B, int64_t n) {
  float *x = numbers(0, B * n, 0), *ones = numbers(0, B * n, 0);
  for (int64_t i = 0; i < B * n; i++)
    ones[i] = 1;
  OK(t.k->residual_forward(t.queue, x, ones, y, B, n, d));
  OK(atoll_queue_sync(t.queue));
  drop_numbers(x, B * n);
  drop_numbers(ones, B * n);
}

static void share(void **state) {
  (void)state;
  const float rates[] = {0.01f, 0.1f, 0.5f, 0.9f};
  int64_t B = 4, n = 50000;
  float *y = numbers(0, B * n, 0);
  for (int i = 0; i < 4; i++) {
    atoll_drop d = {rates[i], {.seed = 11, .step = 5, .sample = 100, .layer = 2, .site = ATOLL_RNG_DROP_PROJ}};
    forward(&d, y, B, n);
    int64_t zero = 0, pairs = 0;
    for (int64_t k = 0; k < B * n; k++) {
      zero += y[k] == 0;
      pairs += k && y[k] == 0 && y[k - 1] == 0;
      assert_true(y[k] == 0 || y[k] == (float)(1.0 / (1.0 - (double)rates[i])));
    }
    double p = rates[i], N = (double)(B * n);
    /* Five standard deviations of a binomial; neighbours are independent. */
    assert_true(fabs((double)zero - p * N) < 5 * sqrt(N * p * (1 - p)));
    assert_true(fabs((double)pairs - p * p * N) < 8 * sqrt(N * p * p));
  }
  drop_numbers(y, B * n);
}

static void keyed(void **state) {
  (void)state;
  int64_t B = 3, n = 1003; /* odd: blocks of the generator do not end with samples */
  float *y = numbers(0, B * n, 0), *z = numbers(0, B * n, 0);
  atoll_drop d = {0.3f, {.seed = 11, .step = 5, .sample = 100, .layer = 2, .site = ATOLL_RNG_DROP_PROJ}};
  forward(&d, y, B, n);
  for (int64_t b = 0; b < B; b++)
    for (int64_t i = 0; i < n; i++) {
      atoll_rng_key key = d.key;
      key.sample += (uint64_t)b;
      int dropped = atoll_rng_bits(&key, (uint64_t)i) < (uint32_t)((double)d.p * 4294967296.0);
      assert_int_equal(y[b * n + i] == 0, dropped);
    }
  /* The same global samples in another micro-batch. */
  atoll_drop later = d;
  later.key.sample = 101;
  forward(&later, z, 2, n);
  same_bits("samples 101, 102", z, y + n, (size_t)(2 * n) * 4);
  /* Each field matters. */
  atoll_drop other[] = {d, d, d, d, d};
  other[0].key.seed++, other[1].key.step++, other[2].key.sample += 1000, other[3].key.layer++,
      other[4].key.site = ATOLL_RNG_DROP_MLP;
  for (int k = 0; k < 5; k++) {
    forward(&other[k], z, B, n);
    int64_t same = 0;
    for (int64_t i = 0; i < B * n; i++)
      same += (y[i] == 0) == (z[i] == 0);
    assert_true(same < B * n * 7 / 10); /* 58 % by chance */
  }
  float *g = numbers(0, B * n, 0);
  for (int64_t i = 0; i < B * n; i++)
    g[i] = 1;
  OK(t.k->drop_backward(t.queue, g, g, B, n, &d));
  OK(atoll_queue_sync(t.queue));
  same_bits("backward", g, y, (size_t)(B * n) * 4);
  drop_numbers(g, B * n);
  drop_numbers(y, B * n);
  drop_numbers(z, B * n);
}

/* With equal scores each of q+1 keys has probability 1/(q+1); a value of one key shows whether it was dropped. */
static void attention(void **state) {
  (void)state;
  int64_t S = 70, D = 70; /* value of key k is the unit vector k */
  float *qkv = numbers(0, 2 * S * 3 * D, 0), *o = numbers(0, 2 * S * D, 0), lse[140];
  for (int64_t b = 0; b < 2; b++)
    for (int64_t k = 0; k < S; k++)
      qkv[(b * S + k) * 3 * D + 2 * D + k] = 1;
  atoll_attention_shape s = {.B = 2, .S = S, .heads = 1, .head_dim = D, .scale = 1, .q_row = 3 * D, .kv_row = 3 * D};
  atoll_drop d = {0.4f, {.seed = 11, .step = 5, .sample = 7, .layer = 2, .site = ATOLL_RNG_DROP_ATTENTION}};
  OK(t.k->attention_forward(t.queue, qkv, qkv + D, qkv + 2 * D, o, lse, &s, &d));
  OK(atoll_queue_sync(t.queue));
  for (int64_t b = 0; b < 2; b++)
    for (int64_t q = 0; q < S; q++)
      for (int64_t k = 0; k < S; k++) {
        atoll_rng_key key = d.key;
        key.sample += (uint64_t)b;
        double keep = k > q || atoll_rng_bits(&key, (uint64_t)(q * S + k)) < (uint32_t)((double)d.p * 4294967296.0)
                          ? 0
                          : 1 / (1 - (double)d.p);
        assert_true(fabs(o[(b * S + q) * D + k] - keep / (double)(q + 1)) < 1e-6);
      }
  drop_numbers(qkv, 2 * S * 3 * D);
  drop_numbers(o, 2 * S * D);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(share), cmocka_unit_test(keyed), cmocka_unit_test(attention)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
