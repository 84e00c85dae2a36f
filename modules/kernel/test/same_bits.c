/* Every cpu kernel gives the same bits with 1, 2 and 3 threads, with other numbers left in a thread's scratch memory,
 * at other alignments, and on the asynchronous device. */
#include "kernel_test.h"

enum { OUTPUTS = 48 };

struct outputs {
  int n;
  float *p[OUTPUTS];
  int64_t count[OUTPUTS];
  const char *name[OUTPUTS];
};

static float *out(struct outputs *o, const char *name, uint64_t what, int64_t n) {
  assert_in_range(o->n, 0, OUTPUTS - 1);
  o->name[o->n] = name;
  o->count[o->n] = n;
  return o->p[o->n++] = numbers(what, n, 1);
}

static struct outputs everything(const char *kind, int threads) {
  struct bench t = bench_open(kind, "cpu", threads);
  const atoll_kernels *k = t.k;
  atoll_queue *q = t.queue;
  struct outputs o = {0};
  int64_t B = 3, S = 150, heads = 3, D = 22, H = heads * D, R = B * S, F = 1001, V = 517;
  atoll_drop drop = {0.1f, {.seed = 1, .step = 2, .sample = 3, .layer = 4, .site = ATOLL_RNG_DROP_MLP}};
  float *x = numbers(101, R * H, 1), *z = numbers(102, R * F, 1), *w = numbers(103, F * H, 1), *b = numbers(104, F, 1);
  float *qkv = numbers(105, R * 3 * H, 1), *logits = numbers(106, R * V, 3), *table = numbers(107, V * H, 1);
  int32_t ids[450];
  for (int i = 0; i < 450; i++)
    ids[i] = (i * 31) % 517;
  OK(k->linear_forward(q, x, w, b, out(&o, "linear y", 1, R * F), R, H, F));
  OK(k->linear_backward_input(q, z, w, out(&o, "linear dx", 2, R * H), R, H, F, 1));
  float *dw = out(&o, "linear dw", 3, F * H);
  OK(k->linear_backward_weight(q, z, x, dw, out(&o, "linear db", 4, F), R, H, F, 1));
  float *mean = out(&o, "mean", 5, R), *rstd = out(&o, "rstd", 6, R);
  OK(k->layernorm_forward(q, x, b, b + H, out(&o, "norm y", 7, R * H), mean, rstd, R, H, 1e-5f));
  OK(k->layernorm_backward_input(q, x, qkv, mean, rstd, b, out(&o, "norm dx", 8, R * H), R, H, 1));
  float *dgamma = out(&o, "dgamma", 9, H);
  OK(k->layernorm_backward_weight(q, x, qkv, mean, rstd, dgamma, out(&o, "dbeta", 10, H), R, H));
  atoll_attention_shape s = {
      .B = B, .S = S, .heads = heads, .head_dim = D, .scale = 0.2f, .q_row = 3 * H, .kv_row = 3 * H};
  float *lse = out(&o, "lse", 11, B * heads * S), *att = out(&o, "attention", 12, R * H),
        *delta = out(&o, "delta", 13, B * heads * S);
  OK(k->attention_forward(q, qkv, qkv + H, qkv + 2 * H, att, lse, &s, &drop));
  float *dqkv = out(&o, "dqkv", 14, R * 3 * H);
  OK(k->attention_backward(q, qkv, qkv + H, qkv + 2 * H, att, lse, x, dqkv, dqkv + H, dqkv + 2 * H, delta, &s, &drop));
  const int32_t lengths[] = {150, 1, 77};
  atoll_attention_shape few = {
      .B = B, .S = S, .heads = heads, .head_dim = D, .scale = 0.2f, .kv_heads = 1, .both_ways = 1, .lengths = lengths};
  float *lse2 = out(&o, "lse of few keys", 35, B * heads * S), *att2 = out(&o, "attention to few keys", 36, R * H),
        *dq = out(&o, "dquery", 37, R * H), *dk = out(&o, "dkey", 38, R * D), *dv = out(&o, "dvalue", 39, R * D);
  OK(k->attention_forward(q, x, qkv, qkv + R * D, att2, lse2, &few, &drop));
  OK(k->attention_backward(q, x, qkv, qkv + R * D, att2, lse2, x, dq, dk, dv, delta, &few, &drop));
  atoll_rope rope = {.theta = 10000};
  OK(k->rope(q, dq, B, S, heads, D, &rope, 0));
  float *rms = out(&o, "rms", 40, R), *rmsdx = out(&o, "rms dx", 42, R * H);
  OK(k->rmsnorm_forward(q, x, b, out(&o, "rms y", 41, R * H), rms, R, H, 1e-5f));
  OK(k->rmsnorm_backward_input(q, x, qkv, rms, b, rmsdx, R, H, 0));
  OK(k->rmsnorm_backward_weight(q, x, qkv, rms, out(&o, "rms dgamma", 43, H), R, H));
  OK(k->gelu_erf_forward(q, z, out(&o, "gelu by erf", 44, R * F), R * F));
  float *swi = out(&o, "swiglu dx", 45, R * H);
  OK(k->swiglu_backward(q, swi, x, qkv, swi, out(&o, "swiglu dup", 46, R * H), R * H));
  OK(k->gelu_forward(q, z, out(&o, "gelu", 15, R * F), R * F));
  float *g = out(&o, "gelu gradient", 16, R * F);
  OK(k->gelu_backward(q, g, z, g, R * F));
  OK(k->residual_forward(q, x, qkv, out(&o, "residual", 17, R * H), B, S * H, &drop));
  OK(k->embed_forward(q, ids, table, table, out(&o, "embedding", 18, R * H), B, S, H, V, &drop));
  float *dwte = out(&o, "dwte", 19, V * H);
  OK(k->embed_backward_weight(q, ids, x, dwte, out(&o, "dwpe", 20, S * H), B, S, H, V, &drop));
  OK(k->cross_entropy(q, logits, ids, out(&o, "loss", 21, R), logits, 0.1f, R, V));
  double *sums = (double *)(void *)numbers(0, 4, 0);
  OK(k->sum_squares(q, z, R * F, sums));
  atoll_adamw p = {.lr = 1e-2f,
                   .beta1 = 0.9f,
                   .beta2 = 0.95f,
                   .eps = 1e-8f,
                   .decay = 0.1f,
                   .grad_scale = 0.5f,
                   .bias1 = 0.19f,
                   .bias2 = 0.0975f};
  float *wt = out(&o, "w", 22, R * F), *m = out(&o, "m", 23, R * F);
  float *v = numbers(0, R * F, 0);
  OK(k->adamw(q, wt, z, m, v, NULL, R * F, &p));
  OK(atoll_queue_sync(q));
  o.name[o.n] = "dlogits", o.count[o.n] = R * V, o.p[o.n++] = logits;
  o.name[o.n] = "sum of squares", o.count[o.n] = 4, o.p[o.n++] = (float *)(void *)sums;
  drop_numbers(v, R * F);
  drop_numbers(x, R * H);
  drop_numbers(z, R * F);
  drop_numbers(w, F * H);
  drop_numbers(b, F);
  drop_numbers(qkv, R * 3 * H);
  drop_numbers(table, V * H);
  bench_close(&t);
  return o;
}

static void same(void **state) {
  (void)state;
  struct outputs one = everything("cpu", 1);
  const struct {
    const char *kind;
    int threads;
  } ways[] = {{"cpu", 1}, {"cpu", 2}, {"cpu", 3}, {"async", 2}};
  for (int i = 0; i < 4; i++) {
    struct outputs o = everything(ways[i].kind, ways[i].threads);
    for (int k = 0; k < o.n; k++) {
      same_bits(o.name[k], o.p[k], one.p[k], (size_t)o.count[k] * 4);
      drop_numbers(o.p[k], o.count[k]);
    }
  }
  for (int k = 0; k < one.n; k++)
    drop_numbers(one.p[k], one.count[k]);
}

/* Rows of odd length put every row at another alignment; results must not notice. */
static void alignment(void **state) {
  (void)state;
  struct bench t = bench_open("cpu", "cpu", 2);
  int64_t R = 5, C = 333;
  float *x = numbers(1, R * C + 16, 1), *y = numbers(2, R * C + 16, 1), *gamma = numbers(3, C, 1), *expected = NULL;
  float mean[5], rstd[5], kept[5];
  double squares = 0;
  for (int shift = 0; shift < 16; shift += 3) {
    float *at = x + shift, *base = numbers(1, R * C, 1);
    memcpy(at, base, (size_t)(R * C) * 4);
    OK(t.k->layernorm_forward(t.queue, at, gamma, gamma, y + (16 - shift) % 16, mean, rstd, R, C, 1e-5f));
    double sum;
    OK(t.k->sum_squares(t.queue, at, R * C, &sum));
    OK(atoll_queue_sync(t.queue));
    if (!expected) {
      expected = copy_of(y + (16 - shift) % 16, R * C);
      memcpy(kept, rstd, sizeof kept);
      squares = sum;
    }
    same_bits("norm", y + (16 - shift) % 16, expected, (size_t)(R * C) * 4);
    same_bits("rstd", rstd, kept, sizeof kept);
    assert_true(sum == squares);
    drop_numbers(base, R * C);
  }
  drop_numbers(expected, R * C);
  drop_numbers(x, R * C + 16);
  drop_numbers(y, R * C + 16);
  drop_numbers(gamma, C);
  bench_close(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(same), cmocka_unit_test(alignment)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
