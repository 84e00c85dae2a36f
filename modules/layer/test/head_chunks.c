/* The head gives the same whether its rows fill several chunks of logits or one: losses, input gradient and the sums of
 * weight gradients. The vocabulary is large, because the chunk shrinks with it (16 rows from two million ids on);
 * tolerance as in reference.c. */
#include "stage_test.h"

enum { V = 2000000, H = 4, B = 2, S = 21, R = B * S };

struct outcome {
  float loss[R], dx[R * H], *grad[3];
};

static int64_t sizes[] = {(int64_t)V * H, H, H};

/* Rows [first, first + n) as one sample. */
static void rows(rig *r, const float *const *weight, const float *x, const int32_t *targets, int first, int n,
                 struct outcome *o) {
  atoll_call c = {.B = 1, .S = n, .loss_scale = 1.0f / R, .train = 1};
  atoll_layer_buffers b = {.weight = {weight[0], weight[1], weight[2]}, .grad = {o->grad[0], o->grad[1], o->grad[2]}};
  OK(atoll_layer_forward(r->m, 2, ATOLL_POLICY_EXACT20, &r->e, &c, &b, x + first * H, NULL, targets + first,
                         o->dx + first * H, o->loss + first));
  OK(atoll_queue_sync(r->e.compute));
}

static void close_to(const char *what, const float *a, const float *b, int64_t n) {
  double most = 0;
  for (int64_t i = 0; i < n; i++)
    most = fmax(most, fabs(b[i]));
  assert_true(most > 0);
  for (int64_t i = 0; i < n; i++)
    if (!(fabs((double)a[i] - b[i]) <= 1e-5 * most))
      fail_msg("%s[%lld]: %.9g, in one chunk %.9g, largest %.3g", what, (long long)i, a[i], b[i], most);
}

static void chunks(void **state) {
  (void)state;
  atoll_model *m = model_of(1, H, 1, V, R, 0);
  rig r = rig_open(m, "cpu", "cpu", 2, 0);
  atoll_syms *pool = NULL;
  OK(atoll_syms_create(&pool));
  const char *const names[] = {"B", "S"};
  int64_t work = 0, one = 0;
  OK(atoll_sym_eval_int(atoll_layer_work_bytes(m, pool, 2, ATOLL_POLICY_EXACT20, 1), names, (const int64_t[]){1, R}, 2,
                        &work));
  OK(atoll_sym_eval_int(atoll_layer_work_bytes(m, pool, 2, ATOLL_POLICY_EXACT20, 1), names, (const int64_t[]){1, 16}, 2,
                        &one));
  assert_int_equal(work, one); /* 42 rows need no more than 16: there are three chunks */
  OK(atoll_arena_create(r.e.mem, ATOLL_MEM_WORKSPACE, (size_t)work, &r.e.work));

  float *weight[3], x[R * H];
  int32_t targets[R];
  atoll_rng_key key = {.seed = 4, .site = ATOLL_RNG_TEST};
  struct outcome many = {.loss = {0}}, few = {.loss = {0}};
  for (int i = 0; i < 3; i++) {
    weight[i] = malloc((size_t)sizes[i] * sizeof(float));
    many.grad[i] = calloc((size_t)sizes[i], sizeof(float));
    few.grad[i] = calloc((size_t)sizes[i], sizeof(float));
    key.sample++;
    atoll_rng_fill_normal(&key, 0, (size_t)sizes[i], 1, weight[i]);
  }
  atoll_rng_fill_normal(&key, 100, R * H, 1, x);
  for (int i = 0; i < R; i++)
    targets[i] = i == 20 ? -1 : (i * 7919 + 13) % 97;
  const float *const w[3] = {weight[0], weight[1], weight[2]};
  rows(&r, w, x, targets, 0, R, &many);
  for (int i = 0; i < R; i += 14)
    rows(&r, w, x, targets, i, 14, &few);
  close_to("loss", many.loss, few.loss, R);
  close_to("dx", many.dx, few.dx, R * H);
  close_to("dwte", many.grad[0], few.grad[0], sizes[0]);
  close_to("dgamma", many.grad[1], few.grad[1], H);
  close_to("dbeta", many.grad[2], few.grad[2], H);
  for (int i = 0; i < 3; i++) {
    free(weight[i]);
    free(many.grad[i]);
    free(few.grad[i]);
  }
  atoll_arena_destroy(&r.e.work);
  atoll_syms_destroy(&pool);
  rig_close(&r);
  atoll_model_destroy(&m);
}

/* Heads of masked words: all samples at once, their rows with a target (two in three) and their next sentences in
 * several chunks; or sample by sample, each in one. */
static void masked_chunks_of(atoll_family family, int count, int length, int parts) {
  enum { ROWS = 80 };
  atoll_model_params p;
  atoll_model_params_init(&p);
  p.family = family;
  p.layers = 1, p.width = H, p.heads = 1, p.vocab = V, p.context = length + 2;
  atoll_model *m = NULL;
  OK(atoll_model_create(&p, &m));
  int32_t tokens[ROWS], targets[ROWS], types[ROWS] = {0}, next[ROWS];
  samples given = {.tokens = tokens, .targets = targets, .types = types, .loss_scale = 1.0f / (float)(count * length)};
  for (int i = 0; i < count * length; i++) {
    tokens[i] = (i * 7919 + 5) % V;
    targets[i] = i % 3 == 2 ? -1 : (i * 104729 + 13) % V;
    next[i] = (i + 1) % 3 - 1;
    given.most_targets += targets[i] >= 0;
  }
  if (family == ATOLL_FAMILY_BERT)
    given.next = next, given.next_scale = 1.0f / (float)count;
  rig r = rig_open(m, "cpu", "cpu", 2, 0);
  const int whole[] = {0, 3};
  result many = run_samples(&r, whole, 1, ATOLL_POLICY_EXACT20, count, length, 1, NULL, &given);
  const int rows_each = count / parts * length;
  given.most_targets = rows_each - rows_each / 3;
  result few = run_samples(&r, whole, 1, ATOLL_POLICY_EXACT20, count / parts, length, parts, NULL, &given);
  close_to("loss", many.loss, few.loss, count * length);
  close_to("gradient", many.grad, few.grad, many.n);
  result_free(&many);
  result_free(&few);
  rig_close(&r);
  atoll_model_destroy(&m);
}

/* 54 of 80 rows have a target: four chunks. */
static void masked_chunks(void **state) {
  (void)state;
  masked_chunks_of(ATOLL_FAMILY_ROBERTA, 5, 16, 5);
}

/* 20 next sentences: two chunks. */
static void sentence_chunks(void **state) {
  (void)state;
  masked_chunks_of(ATOLL_FAMILY_BERT, 20, 1, 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(chunks), cmocka_unit_test(masked_chunks),
                                     cmocka_unit_test(sentence_chunks)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
