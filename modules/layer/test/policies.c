/* Gradients of all families under all policies, with gammas of 0, 0.01 and below 0: those that claim exactness give
 * the bits of exact20, the others stay within the error that layer.h states. Odd sizes: width not a multiple of 16,
 * samples of 1, 17 and 127 tokens; and the tails of nonlinearities. */
#include "stage_test.h"

static const struct {
  atoll_family family;
  const char *name;
} families[] = {{ATOLL_FAMILY_GPT2, "gpt2"},
                {ATOLL_FAMILY_LLAMA, "llama"},
                {ATOLL_FAMILY_BERT, "bert"},
                {ATOLL_FAMILY_ROBERTA, "roberta"}};

static double stated_error(atoll_policy p, atoll_dtype dtype) {
  if (dtype == ATOLL_BF16) /* what is kept in place of other values is itself rounded */
    switch (p) {
    case ATOLL_POLICY_EAGER:
      return 2e-2;
    case ATOLL_POLICY_TEMPO:
    case ATOLL_POLICY_TEMPO_FLASH:
      return 5e-2;
    case ATOLL_POLICY_EXACT16_LOSSY:
      return 5e-2;
    default:
      return 0;
    }
  switch (p) {
  case ATOLL_POLICY_TEMPO:
  case ATOLL_POLICY_TEMPO_FLASH:
    return 1e-4; /* slopes within 2e-5, through the layers behind */
  case ATOLL_POLICY_EXACT16_LOSSY:
    return 5e-2; /* eight bits */
  default:
    return 0;
  }
}

/* Gammas that in-place forms divide by. */
static void gammas(const atoll_model *m, int param, float *values, int64_t n) {
  static const float some[] = {1, 0, 0.01f, -0.7f, 1.3f};
  const atoll_model_param *p = atoll_model_param_at(m, param);
  for (int64_t i = 0; i < n; i++) {
    if (p->ndim == 1 && p->init == ATOLL_INIT_ONE)
      values[i] = some[i % 5];
    else if (p->ndim == 1)
      values[i] = 0.1f * (float)(i % 7 - 3);
  }
}

/* Slopes of 0 are all rounding: those of a tensor count in parts of no less than this part of the largest of all. With
 * one key softmax does not see scores, so queries and keys have none. */
static double least_counted(const atoll_model *m, int64_t S) {
  return atoll_model_config(m)->dtype == ATOLL_BF16 ? 3e-2 : S == 1 ? 1e-2 : 1e-3;
}

static double worst(const atoll_model *m, int64_t S, const result *a, const result *b) {
  const double nothing = least_counted(m, S);
  double most = 0, of_all = 0;
  int64_t at = 0;
  for (int64_t i = 0; i < b->n; i++)
    of_all = fmax(of_all, fabs(b->grad[i]));
  for (int i = 0; i < atoll_model_params_count(m); i++) {
    double largest = 0, error = 0;
    for (int64_t n = elements(atoll_model_param_at(m, i)); n > 0; n--, at++) {
      largest = fmax(largest, fabs(b->grad[at]));
      error = fmax(error, fabs(a->grad[at] - b->grad[at]));
      assert_true(isfinite(a->grad[at]));
    }
    most = fmax(most, error / fmax(largest, nothing * of_all));
  }
  return most;
}

enum { SAMPLES = 4, TOKENS = SAMPLES * 127 };

/* Of `S` tokens each; some padded. */
static samples some_samples(const atoll_model_params *p, int64_t S) {
  static int32_t tokens[TOKENS], targets[TOKENS], types[TOKENS], lengths[SAMPLES], next[SAMPLES];
  ids(SAMPLES * S, p->vocab, tokens, targets);
  for (int64_t i = 0; i < SAMPLES * S; i++)
    types[i] = (int32_t)(i % (p->types > 0 ? p->types : 1));
  for (int i = 0; i < SAMPLES; i++) {
    lengths[i] = (int32_t)(i % 2 && S > 1 ? S - S / 3 : S);
    next[i] = i % 2;
  }
  samples s = {.tokens = tokens, .targets = targets, .loss_scale = 1.0f / (float)(SAMPLES * S)};
  if (p->types > 0)
    s.types = types, s.lengths = lengths, s.next = next, s.next_scale = 1.0f / SAMPLES;
  return s;
}

static atoll_model *small_model(int f, atoll_dtype dtype, double dropout) {
  atoll_model_params p;
  atoll_model_params_init(&p);
  p.family = families[f].family, p.dtype = dtype;
  p.layers = 2, p.width = 36, p.heads = 6, p.vocab = 67, p.context = 127, p.dropout = dropout, p.init_std = 0.2;
  p.kv_heads = p.family == ATOLL_FAMILY_LLAMA ? 2 : 0;
  atoll_model *m = NULL;
  OK(atoll_model_create(&p, &m));
  return m;
}

/* By one stage, or (cut) by two. */
static void one(int f, atoll_dtype dtype, int64_t S, double dropout, int cut_in_two) {
  atoll_model *m = small_model(f, dtype, dropout);
  const int whole[] = {0, 4}, cut[] = {0, 2, 4};
  rig r = rig_open(m, "cpu", dtype == ATOLL_BF16 ? "cpu:bf16" : "cpu", 1, 0);
  samples given = some_samples(atoll_model_config(m), S);
  result expected = run_samples(&r, whole, 1, ATOLL_POLICY_EXACT20, 2, S, 2, gammas, &given);
  for (int policy = 0; policy < ATOLL_POLICIES; policy++) {
    double limit = stated_error((atoll_policy)policy, dtype);
    result got =
        run_samples(&r, cut_in_two ? cut : whole, 1 + cut_in_two, (atoll_policy)policy, 2, S, 2, gammas, &given);
    double error = worst(m, S, &got, &expected);
    if (getenv("ATOLL_TEST_VERBOSE"))
      printf("%-8s S %-4lld %-14s %.2e\n", families[f].name, (long long)S, atoll_policy_name((atoll_policy)policy),
             error);
    if (limit > 0 ? !(error < limit) : error > 0)
      fail_msg("%s, %lld tokens, %s: error %.3g, stated %.3g", families[f].name, (long long)S,
               atoll_policy_name((atoll_policy)policy), error, limit);
    result_free(&got);
  }
  result_free(&expected);
  rig_close(&r);
  atoll_model_destroy(&m);
}

static void plain(void **state) {
  (void)state;
  for (int f = 0; f < 4; f++) {
    one(f, ATOLL_F32, 1, 0, 1);
    one(f, ATOLL_F32, 17, 0, 0);
  }
}

static void dropout(void **state) {
  (void)state;
  for (int f = 0; f < 4; f++)
    one(f, ATOLL_F32, 127, 0.2, 1);
}

static void bf16(void **state) {
  (void)state;
  for (int f = 0; f < 4; f++) {
    one(f, ATOLL_BF16, 17, 0, 1);
    one(f, ATOLL_BF16, 65, 0.2, 0);
  }
}

/* The oracle has every policy, within the error that is stated (or the rounding of what is kept, as it computes in
 * double); and cpu agrees with it policy by policy. `all`: also those that have the bits of exact20 on cpu. */
static void oracle_of(int f, int64_t B, int64_t S, int all,
                      void (*set)(const atoll_model *m, int param, float *values, int64_t n)) {
  const int whole[] = {0, 4};
  atoll_model *m = small_model(f, ATOLL_F32, 0.2);
  rig cpu = rig_open(m, "cpu", "cpu", 2, 0), ref = rig_open(m, "cpu", "ref", 1, 0);
  samples given = some_samples(atoll_model_config(m), S);
  result expected = run_samples(&ref, whole, 1, ATOLL_POLICY_EXACT20, B, S, 1, set, &given);
  for (int policy = 0; policy < ATOLL_POLICIES; policy++) {
    double stated = stated_error((atoll_policy)policy, ATOLL_F32), limit = fmax(stated, 1e-5),
           near = fmax(limit, 1e-4); /* cpu is in f32 */
    if (!all && stated == 0 && policy != ATOLL_POLICY_EAGER && policy != ATOLL_POLICY_EXACT20)
      continue;
    result by_ref = run_samples(&ref, whole, 1, (atoll_policy)policy, B, S, 1, set, &given);
    result by_cpu = run_samples(&cpu, whole, 1, (atoll_policy)policy, B, S, 1, set, &given);
    double error = worst(m, S, &by_ref, &expected), apart = worst(m, S, &by_cpu, &by_ref);
    if (getenv("ATOLL_TEST_VERBOSE"))
      printf("%-8s S %-4lld %-14s ref %.2e, cpu from ref %.2e\n", families[f].name, (long long)S,
             atoll_policy_name((atoll_policy)policy), error, apart);
    if (!(error < limit && apart < near))
      fail_msg("%s, %lld tokens, %s: error of ref %.3g, cpu differs from ref by %.3g", families[f].name, (long long)S,
               atoll_policy_name((atoll_policy)policy), error, apart);
    result_free(&by_ref);
    result_free(&by_cpu);
  }
  result_free(&expected);
  rig_close(&cpu);
  rig_close(&ref);
  atoll_model_destroy(&m);
}

static void oracle(void **state) {
  (void)state;
  for (int f = 0; f < 4; f++) {
    oracle_of(f, SAMPLES, 1, 0, gammas);
    oracle_of(f, SAMPLES, 17, 1, gammas);
    oracle_of(f, 1, 127, 0, gammas);
  }
}

/* What the nonlinearities see lies between -30 and 30: by biases, or in llama by a gate of large weights. */
static void tails_set(const atoll_model *m, int param, float *values, int64_t n) {
  const atoll_model_param *p = atoll_model_param_at(m, param);
  gammas(m, param, values, n);
  if (strstr(p->name, "c_fc.bias") || strstr(p->name, "intermediate.dense.bias"))
    for (int64_t i = 0; i < n; i++)
      values[i] = -30 + 60 * (float)i / (float)(n - 1);
  if (strstr(p->name, "gate_proj.weight"))
    for (int64_t i = 0; i < n; i++)
      values[i] *= 10;
}

static void tails(void **state) {
  (void)state;
  for (int f = 0; f < 4; f++)
    oracle_of(f, SAMPLES, 17, 0, tails_set);
}

/* A table without the kernels says so. */
static void lacking(void **state) {
  (void)state;
  atoll_model *m = model_of(1, 16, 2, 50, 8, 0);
  rig r = rig_open(m, "cpu", "cpu", 1, 0);
  atoll_kernels plain_table = *r.e.kernels;
  plain_table.name = "plain", plain_table.keep = NULL;
  r.e.kernels = &plain_table;
  atoll_policy policy[] = {ATOLL_POLICY_TEMPO, ATOLL_POLICY_TEMPO, ATOLL_POLICY_TEMPO};
  atoll_stage_params p = {
      .first = 0, .last = 3, .policy = policy, .B = 1, .S = 8, .slots = 1, .partials = 1, .train = 1};
  atoll_stage *s = NULL;
  int32_t tokens[8], targets[8];
  float loss[8];
  ids(8, 50, tokens, targets);
  atoll_call c = {.B = 1, .S = 8, .loss_scale = 1, .train = 1};
  OK(atoll_stage_create(m, &p, &r.e, &s));
  assert_int_equal(atoll_stage_forward(s, 0, &c, NULL, tokens, targets, NULL, loss), ATOLL_UNSUPPORTED);
  assert_non_null(strstr(atoll_err_message(), "memory policy tempo needs kernels that 'plain' lacks"));
  atoll_stage_destroy(&s);
  rig_close(&r);
  atoll_model_destroy(&m);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(plain),  cmocka_unit_test(dropout), cmocka_unit_test(bf16),
                                     cmocka_unit_test(oracle), cmocka_unit_test(tails),   cmocka_unit_test(lacking)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
