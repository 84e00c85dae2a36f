/* Losses and every gradient of a small GPT-2 agree with recorded float64 values
 * (regression/reference/gpt2_reference.py), for both backends.
 *
 * Tolerance: per tensor, 1e-5 of its largest gradient for cpu. Each stored f32 value is rounded by 6e-8; a gradient
 * passes through about 30 roundings and sums of up to 100 terms on its way, and differences (norms, softmax) magnify
 * that by about ten. Losses, of size 4.6: 2e-6 relative. `ref` has double sums but f32 values between kernels, so only
 * somewhat better. `cpu:bf16` rounds each value that it stores, weights included, by up to 1/256: losses to 1 in 100,
 * gradients to 1 in 20 of the largest of their tensor. */
#include "stage_test.h"

enum { L = 2, H = 24, A = 3, V = 29, C = 12, B = 2, S = 11 };

static void set(const atoll_model *m, int param, float *values, int64_t n) {
  const atoll_model_param *p = atoll_model_param_at(m, param);
  int residual = !!strstr(p->name, "c_proj.weight");
  double scale = p->ndim == 1 ? 0.5 : residual ? 0.5 : 1;
  for (int64_t e = 0; e < n; e++) {
    uint32_t h = ((uint32_t)e * UINT32_C(2654435761) + (uint32_t)param * 40503 + 12345) >> 16;
    double u = h / 65536.0 - 0.5;
    values[e] = (float)(p->init == ATOLL_INIT_ONE ? 1 + u / 2 : u * scale);
  }
}

static double *recorded(int64_t n) {
  char path[4096];
  snprintf(path, sizeof path, "%s/regression/reference/gpt2_reference.f64", ATOLL_SOURCE_DIR);
  FILE *f = fopen(path, "rb");
  if (!f)
    fail_msg("cannot open %s", path);
  double *v = malloc((size_t)(n + 1) * sizeof *v);
  int64_t got = (int64_t)fread(v, sizeof *v, (size_t)n + 1, f);
  fclose(f);
  assert_int_equal(got, n); /* neither more nor less */
  return v;
}

static void agrees(const char *kernels, double of_loss, double tolerance) {
  const int whole[] = {0, L + 2};
  atoll_model *m = model_in(strstr(kernels, ":bf16") ? ATOLL_BF16 : ATOLL_F32, L, H, A, V, C, 0);
  int64_t R = B * S, n = atoll_model_elements(m);
  double *want = recorded(R + n);
  rig r = rig_open(m, "cpu", kernels, 2, 0);
  result got = run_step(&r, whole, 1, ATOLL_POLICY_EXACT20, B, S, 1, set);
  for (int64_t i = 0; i < R; i++)
    if (!(fabs(got.loss[i] - want[i]) <= of_loss * fabs(want[i])))
      fail_msg("%s loss %lld: %.9g, recorded %.12g", kernels, (long long)i, got.loss[i], want[i]);
  int64_t at = 0;
  for (int p = 0; p < atoll_model_params_count(m); p++) {
    const atoll_model_param *mp = atoll_model_param_at(m, p);
    double most = 0, worst = 0;
    int64_t count = elements(mp);
    for (int64_t e = 0; e < count; e++)
      most = fmax(most, fabs(want[R + at + e]));
    assert_true(most > 1e-4); /* each tensor has a gradient to compare */
    for (int64_t e = 0; e < count; e++) {
      double error = fabs(got.grad[at + e] - want[R + at + e]);
      worst = fmax(worst, error);
      if (!(error <= tolerance * most))
        fail_msg("%s gradient of %s[%lld]: %.9g, recorded %.12g, largest %.3g", kernels, mp->name, (long long)e,
                 got.grad[at + e], want[R + at + e], most);
    }
    if (getenv("ATOLL_TEST_VERBOSE"))
      printf("%-24s %.2e of %.2e\n", mp->name, worst / most, most);
    at += count;
  }
  result_free(&got);
  free(want);
  rig_close(&r);
  atoll_model_destroy(&m);
}

static void cpu(void **state) {
  (void)state;
  agrees("cpu", 2e-6, 1e-5);
}

static void ref(void **state) {
  (void)state;
  agrees("ref", 2e-6, 5e-6);
}

static void bf16(void **state) {
  (void)state;
  agrees("cpu:bf16", 0.01, 0.05);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(cpu), cmocka_unit_test(ref), cmocka_unit_test(bf16)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
