/* Memory policy, cut into stages, the largest micro-batch a stage was made for, number of threads and device do not
 * change a bit of losses and gradients. */
#include "stage_test.h"

static const int whole[] = {0, 5};

static void each_way(const char *kernels, int64_t B, int64_t S, double dropout) {
  int bf16 = strcmp(kernels, "cpu") != 0;
  atoll_model *m = model_in(bf16 ? ATOLL_BF16 : ATOLL_F32, 3, 48, 3, 67, 40, dropout);
  rig base = rig_open(m, "cpu", kernels, 1, 0);
  result expected = run_step(&base, whole, 1, ATOLL_POLICY_EXACT20, B, S, 3, NULL);
  double norm = 0;
  for (int64_t i = 0; i < expected.n; i++)
    norm += fabs(expected.grad[i]);
  assert_true(norm > 0.1 && isfinite(norm));

  result r;
  for (int p = 0; p < ATOLL_POLICIES; p++) {
    if (p == ATOLL_POLICY_TEMPO || p == ATOLL_POLICY_TEMPO_FLASH || p == ATOLL_POLICY_EXACT16_LOSSY)
      continue; /* state an error: policies.c */
    if (p == ATOLL_POLICY_EAGER && bf16)
      continue; /* needs kernels that are f32 only */
    r = run_step(&base, whole, 1, (atoll_policy)p, B, S, 3, NULL);
    same_result(&r, &expected);
    result_free(&r);
  }

  const int cuts[][6] = {{0, 2, 5}, {0, 1, 5}, {0, 4, 5}, {0, 1, 2, 3, 4, 5}};
  const int stages[] = {2, 2, 2, 5};
  for (int k = 0; k < 4; k++) {
    r = run_step(&base, cuts[k], stages[k], ATOLL_POLICY_EXACT20, B, S, 3, NULL);
    same_result(&r, &expected);
    result_free(&r);
    base.spare = 3;
    r = run_step(&base, cuts[k], stages[k], ATOLL_POLICY_EXACT20, B, S, 3, NULL);
    base.spare = 0;
    same_result(&r, &expected);
    result_free(&r);
  }
  rig_close(&base);

  for (int threads = 2; threads <= 3; threads++) {
    rig t = rig_open(m, "cpu", kernels, threads, 0);
    r = run_step(&t, whole, 1, ATOLL_POLICY_EXACT20, B, S, 3, NULL);
    same_result(&r, &expected);
    result_free(&r);
    rig_close(&t);
  }
  rig a = rig_open(m, "async", kernels, 2, 0);
  r = run_step(&a, cuts[0], 2, ATOLL_POLICY_EXACT20, B, S, 3, NULL);
  same_result(&r, &expected);
  result_free(&r);
  rig_close(&a);
  result_free(&expected);
  atoll_model_destroy(&m);
}

static void plain(void **state) {
  (void)state;
  each_way("cpu", 2, 33, 0);
  each_way("cpu:bf16", 2, 33, 0);
}

static void dropout(void **state) {
  (void)state;
  each_way("cpu", 3, 17, 0.2);
  each_way("cpu:bf16", 3, 17, 0.2);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(plain), cmocka_unit_test(dropout)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
