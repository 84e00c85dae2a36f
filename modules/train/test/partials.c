/* A replica's gradient sums are exactly the nodes of the fixed tree inside its range, with the bits of the serial tree,
 * and fit in the buffers that the plan counts. The stage is a fake that holds a few numbers per buffer. */
#include "train_impl.h"
#include "unit_check.h"

enum { WIDTH = 3, BUFFERS = 16 };

struct atoll_stage {
  float grad[BUFFERS][WIDTH];
};

/* These take the place of the layer library's. */
float *atoll_stage_flat_grad(atoll_stage *s, int partial) { return s->grad[partial]; }
int64_t atoll_stage_grad_elements(const atoll_stage *s) {
  (void)s;
  return WIDTH;
}
atoll_err atoll_stage_zero_grad(atoll_stage *s, int partial) {
  memset(s->grad[partial], 0, sizeof s->grad[partial]);
  return ATOLL_OK;
}

static atoll_err fake_add(atoll_queue *q, const float *x, float *y, int64_t n) {
  (void)q;
  for (int64_t i = 0; i < n; i++)
    y[i] += x[i];
  return ATOLL_OK;
}

static const atoll_kernels fake_kernels = {.add = fake_add};

static uint64_t state = 12345;
static uint32_t next(void) { return (uint32_t)((state = state * 6364136223846793005u + 1442695040888963407u) >> 33); }

/* The oracle: micro-batches of a leaf in order, leaves by the splitting rule. */
static float serial(const float *x, int64_t G, int64_t L, int64_t a, int64_t n) {
  if (n == 1) {
    float sum = 0;
    for (int64_t g = a * G / L; g < (a + 1) * G / L; g++)
      sum += x[g];
    return sum;
  }
  int64_t p = 1;
  while (p * 2 < n)
    p *= 2;
  return serial(x, G, L, a, p) + serial(x, G, L, a + p, n - p);
}

static void check_range(const float *x, int64_t G, int64_t L, int64_t first, int64_t n) {
  atoll_stage stage;
  atoll_exec exec = {.kernels = &fake_kernels};
  partials p;
  int64_t g0 = first * G / L, g1 = (first + n) * G / L, node_first[64], node_count[64];
  atoll_plan plan = {.micro_batches = G, .sum_leaves = L};
  int room = atoll_plan_partials(&plan, g0, g1 - g0);
  assert_in_range(room, 1, BUFFERS);
  memset(&stage, 0xff, sizeof stage); /* NaN: a buffer that is not zeroed shows */
  assert_int_equal(partials_begin(&p, L, G, room), ATOLL_OK);
  for (int64_t g = g0; g < g1; g++) {
    int buffer;
    assert_int_equal(partials_target(&p, &stage, g, &buffer), ATOLL_OK);
    for (int k = 0; k < WIDTH; k++)
      stage.grad[buffer][k] += x[g] * (float)(k + 1);
    assert_int_equal(partials_close(&p, &stage, &exec, g), ATOLL_OK);
  }
  int nodes = atoll_tree_nodes(L, first, n, node_first, node_count, 64);
  assert_int_equal(p.depth, nodes);
  for (int i = 0; i < nodes; i++) {
    assert_int_equal(p.node[i].first, node_first[i]);
    assert_int_equal(p.node[i].count, node_count[i]);
    float want = serial(x, G, L, node_first[i], node_count[i]), got = stage.grad[p.node[i].buffer][0];
    assert_memory_equal(&got, &want, sizeof want);
  }
}

static void every_range_of_every_tree(void **unused) {
  (void)unused;
  float x[64];
  for (int i = 0; i < 64; i++)
    x[i] = (float)next() / 1e3f - 1e6f;
  for (int64_t G = 1; G <= 24; G++)
    for (int64_t L = 1; L <= G; L++)
      for (int64_t first = 0; first < L; first++)
        for (int64_t n = 1; first + n <= L; n++)
          check_range(x, G, L, first, n);
}

static void a_start_inside_a_leaf_is_refused(void **unused) {
  (void)unused;
  atoll_stage stage;
  partials p;
  int buffer;
  assert_int_equal(partials_begin(&p, 2, 8, 4), ATOLL_OK);
  assert_int_equal(partials_target(&p, &stage, 1, &buffer), ATOLL_INTERNAL);
}

static void too_few_buffers_are_reported(void **unused) {
  (void)unused;
  atoll_stage stage;
  atoll_exec exec = {.kernels = &fake_kernels};
  partials p;
  int buffer;
  atoll_err err = ATOLL_OK;
  assert_int_equal(partials_begin(&p, 8, 8, 2), ATOLL_OK);
  for (int64_t g = 0; g < 8 && err == ATOLL_OK; g++) {
    err = partials_target(&p, &stage, g, &buffer);
    if (err == ATOLL_OK)
      err = partials_close(&p, &stage, &exec, g);
  }
  assert_int_equal(err, ATOLL_INTERNAL);
  assert_non_null(strstr(atoll_err_message(), "gradient buffers"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_range_of_every_tree),
      cmocka_unit_test(a_start_inside_a_leaf_is_refused),
      cmocka_unit_test(too_few_buffers_are_reported),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
