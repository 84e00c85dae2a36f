/* Bad ids are CORRUPT and named; calls that do not fit the stage are USAGE; a tied tensor's owners are told apart. */
#include "stage_test.h"

static void bad_ids(void **state) {
  (void)state;
  const char *const kernels[] = {"cpu", "ref"};
  for (int k = 0; k < 2; k++) {
    atoll_model *m = model_of(1, 16, 2, 50, 8, 0);
    rig r = rig_open(m, "cpu", kernels[k], 2, 0);
    atoll_stage_params p = {.first = 0, .last = 3, .B = 2, .S = 8, .slots = 1, .partials = 1, .train = 1};
    atoll_stage *s = NULL;
    OK(atoll_stage_create(m, &p, &r.e, &s));
    OK(atoll_stage_init(s, 1));
    int32_t tokens[16], targets[16];
    float loss[16];
    ids(16, 50, tokens, targets);
    atoll_call c = {.B = 2, .S = 8, .seed = 1, .loss_scale = 1.0f / 16, .train = 0};
    OK(atoll_stage_forward(s, 0, &c, NULL, tokens, targets, NULL, loss));
    OK(atoll_queue_sync(r.e.compute));
    tokens[11] = 50;
    atoll_err err = atoll_stage_forward(s, 0, &c, NULL, tokens, targets, NULL, loss);
    if (err == ATOLL_OK)
      err = atoll_queue_sync(r.e.compute);
    assert_int_equal(err, ATOLL_CORRUPT);
    assert_non_null(strstr(atoll_err_message(), "token of sample 1, position 3 is 50, expected 0..49"));
    (void)atoll_queue_sync(r.e.compute);
    tokens[11] = 0;
    targets[5] = -2;
    err = atoll_stage_forward(s, 0, &c, NULL, tokens, targets, NULL, loss);
    if (err == ATOLL_OK)
      err = atoll_queue_sync(r.e.compute);
    assert_int_equal(err, ATOLL_CORRUPT);
    assert_non_null(strstr(atoll_err_message(), "target of row 5 is -2, expected -1..49"));
    (void)atoll_queue_sync(r.e.compute);
    atoll_stage_destroy(&s);
    rig_close(&r);
    atoll_model_destroy(&m);
  }
}

static void refused(atoll_err err, const char *text) {
  assert_int_equal(err, ATOLL_USAGE);
  if (!strstr(atoll_err_message(), text))
    fail_msg("'%s' does not say '%s'", atoll_err_message(), text);
}

static void bad_calls(void **state) {
  (void)state;
  atoll_model *m = model_of(2, 16, 2, 50, 8, 0);
  rig r = rig_open(m, "cpu", "cpu", 1, 0);
  atoll_stage_params p = {.first = 1, .last = 4, .B = 2, .S = 8, .slots = 1, .partials = 1, .train = 1};
  atoll_stage *s = NULL;
  atoll_stage_params q = p;
  q.last = 5;
  refused(atoll_stage_create(m, &q, &r.e, &s), "layers 1 to 4");
  q = p, q.S = 9;
  refused(atoll_stage_create(m, &q, &r.e, &s), "context is 8");
  q = p, q.slots = 0;
  refused(atoll_stage_create(m, &q, &r.e, &s), "0 slots");
  OK(atoll_stage_create(m, &p, &r.e, &s));
  OK(atoll_stage_init(s, 1));
  float x[2 * 8 * 16] = {0}, dx[2 * 8 * 16], loss[16];
  int32_t tokens[16], targets[16];
  ids(16, 50, tokens, targets);
  atoll_call c = {.B = 2, .S = 8, .loss_scale = 1, .train = 1}, big = c;
  big.B = 3;
  refused(atoll_stage_forward(s, 0, &big, x, NULL, targets, NULL, loss), "2 samples of 8 tokens; the call has 3");
  refused(atoll_stage_forward(s, 1, &c, x, NULL, targets, NULL, loss), "slot 1 of 1");
  refused(atoll_stage_forward(s, 0, &c, NULL, tokens, targets, NULL, loss), "input or output is missing");
  refused(atoll_stage_backward(s, 0, 0, &c, NULL, dx, NULL), "holds no forward");
  OK(atoll_stage_forward(s, 0, &c, x, NULL, targets, NULL, loss));
  refused(atoll_stage_forward(s, 0, &c, x, NULL, targets, NULL, loss), "slot 0 is in use");
  refused(atoll_stage_backward(s, 0, 1, &c, NULL, dx, NULL), "gradient buffer 1 of 1");
  refused(atoll_stage_backward(s, 0, 0, &c, NULL, NULL, NULL), "gradient of its boundary is missing");
  OK(atoll_stage_backward(s, 0, 0, &c, NULL, dx, NULL));
  atoll_stage *block = NULL;
  q = p, q.last = 2;
  OK(atoll_stage_create(m, &q, &r.e, &block));
  OK(atoll_stage_init(block, 1));
  refused(atoll_stage_forward(block, 0, &c, x, NULL, NULL, x, NULL), "two different buffers");
  OK(atoll_stage_forward(block, 0, &c, x, NULL, NULL, dx, NULL));
  atoll_stage_destroy(&block);
  int64_t count = 0;
  int first = -1;
  float *tied = atoll_stage_tied_grad(s, 0, &count, &first);
  const atoll_tensor *g;
  const int *index;
  int n;
  OK(atoll_stage_tensors(s, ATOLL_STAGE_GRAD, &g, &index, &n));
  for (int i = 0; i < n; i++)
    if (index[i] == 0)
      assert_ptr_equal(tied, g[i].data);
  assert_int_equal(first, 0);
  assert_int_equal(count, 800);
  atoll_stage_destroy(&s);
  rig_close(&r);
  atoll_model_destroy(&m);
}

/* Validation gives the losses that training gives without dropout, on training and on forward-only stages, and leaves
 * gradients alone. */
static void validation(void **state) {
  (void)state;
  atoll_model *m = model_of(2, 16, 2, 50, 8, 0), *dropping = model_of(2, 16, 2, 50, 8, 0.5);
  rig r = rig_open(m, "cpu", "cpu", 2, 0);
  int32_t tokens[16], targets[16];
  ids(16, 50, tokens, targets);
  float loss[3][16];
  for (int k = 0; k < 3; k++) {
    atoll_stage_params p = {.first = 0, .last = 4, .B = 2, .S = 8, .slots = 1, .partials = 1, .train = k < 2};
    atoll_stage *s = NULL;
    OK(atoll_stage_create(k ? dropping : m, &p, &r.e, &s));
    OK(atoll_stage_init(s, 3));
    atoll_call c = {.B = 2, .S = 8, .loss_scale = 1.0f / 16, .train = k == 0};
    OK(atoll_stage_forward(s, 0, &c, NULL, tokens, targets, NULL, loss[k]));
    if (k == 0)
      OK(atoll_stage_backward(s, 0, 0, &c, NULL, NULL, NULL));
    OK(atoll_queue_sync(r.e.compute));
    if (k == 1)
      for (int64_t i = 0; i < atoll_stage_grad_elements(s); i++)
        assert_true(atoll_stage_flat_grad(s, 0)[i] == 0);
    atoll_stage_destroy(&s);
  }
  assert_memory_equal(loss[0], loss[1], sizeof loss[0]);
  assert_memory_equal(loss[0], loss[2], sizeof loss[0]);
  rig_close(&r);
  atoll_model_destroy(&m);
  atoll_model_destroy(&dropping);
}

/* The optimizer reaches every parameter, decays matrices only, and by_param covers what the stage owns first. */
static void optimizer(void **state) {
  (void)state;
  atoll_model *m = model_of(1, 16, 2, 50, 8, 0);
  rig r = rig_open(m, "cpu", "cpu", 2, 0);
  const int cuts[][2] = {{0, 3}, {1, 3}};
  for (int k = 0; k < 2; k++) {
    atoll_stage_params p = {
        .first = cuts[k][0], .last = cuts[k][1], .B = 2, .S = 8, .slots = 1, .partials = 2, .train = 1};
    atoll_stage *s = NULL;
    OK(atoll_stage_create(m, &p, &r.e, &s));
    OK(atoll_stage_init(s, 3));
    for (int64_t i = 0; i < atoll_stage_grad_elements(s); i++)
      atoll_stage_flat_grad(s, 1)[i] = 2;
    double by_param[32];
    for (int i = 0; i < 32; i++)
      by_param[i] = -1;
    OK(atoll_stage_sum_squares(s, 1, by_param));
    OK(atoll_queue_sync(r.e.compute));
    const atoll_tensor *w, *m1;
    const int *index;
    int n;
    OK(atoll_stage_tensors(s, ATOLL_STAGE_PARAM, &w, &index, &n));
    OK(atoll_stage_tensors(s, ATOLL_STAGE_MOMENT1, &m1, &index, &n));
    float before[32];
    for (int i = 0; i < n; i++) {
      before[i] = *(float *)w[i].data;
      int owner = index[i] > 1 || k == 0;
      assert_true(by_param[index[i]] == (owner ? 4.0 * (double)atoll_tensor_local_count(&w[i]) : -1));
    }
    atoll_adamw a = {.lr = 0.5f,
                     .beta1 = 0.9f,
                     .beta2 = 0.5f,
                     .eps = 0,
                     .decay = 0.5f,
                     .grad_scale = 1,
                     .bias1 = 0.1f,
                     .bias2 = 0.5f};
    OK(atoll_stage_adamw(s, 1, &a)); /* first step: the update is lr x sign(g) */
    OK(atoll_queue_sync(r.e.compute));
    for (int i = 0; i < n; i++) {
      double want = before[i] * (w[i].ndim == 2 ? 0.75 : 1) - 0.5;
      if (fabs(*(float *)w[i].data - want) > 1e-6)
        fail_msg("%s: %g, expected %g", w[i].name, *(float *)w[i].data, want);
      assert_true(fabs(*(float *)m1[i].data - 0.2) < 1e-6);
    }
    atoll_stage_destroy(&s);
  }
  rig_close(&r);
  atoll_model_destroy(&m);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(bad_ids), cmocka_unit_test(bad_calls),
                                     cmocka_unit_test(validation), cmocka_unit_test(optimizer)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
