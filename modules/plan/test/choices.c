/* What the user fixes is kept, and what cannot be is refused naming the option, the value and what would be valid. */
#include "plan_made.h"

static const int64_t GIB = INT64_C(1) << 30;

static void kept(void **state) {
  (void)state;
  made x;
  made_begin(&x);
  atoll_plan_destroy(&x.plan);
  atoll_plan_params_init(&x.params);
  x.params.layers = (atoll_opt_ints){3, {1, 4, 1}};
  x.params.micro_batch = 4;
  snprintf(x.params.policy, sizeof x.params.policy, "exact");
  x.params.sum_leaves = 2;
  assert_ok(atoll_plan_make(&x.problem, &x.params, &x.plan, NULL));
  const atoll_plan_pipeline *p = &x.plan->pipeline[0];
  assert_int_equal(p->stages, 3);
  assert_int_equal(p->stage[0].chunk[0].last, 2);
  assert_int_equal(p->stage[1].chunk[0].last, 6);
  assert_int_equal(p->stage[2].chunk[0].last, 8);
  for (int s = 0; s < 3; s++) {
    assert_int_equal(p->stage[s].range[0].policy, ATOLL_POLICY_EXACT20);
    assert_int_equal(p->stage[s].replica[0].micro_batch, 4);
  }
  assert_int_equal(x.plan->sum_leaves, 2);
  atoll_plan_destroy(&x.plan);
  atoll_plan_params_init(&x.params);
  x.params.layers = (atoll_opt_ints){1, {6}};
  x.params.data_parallel = 5;
  assert_ok(atoll_plan_make(&x.problem, &x.params, &x.plan, NULL));
  assert_int_equal(x.plan->pipeline[0].stage[0].replicas, 5);
  assert_int_equal(x.plan->idle_count, 0);
  made_end(&x);
}

/* Stages of a plan of fixed shape that keep packed weights; x->plan is it. */
static int stages_packed(made *x, int64_t micro_batch, int pack_weights, int64_t memory) {
  int n = 0;
  atoll_plan_destroy(&x->plan);
  atoll_plan_params_init(&x->params);
  x->params.layers = (atoll_opt_ints){2, {3, 3}};
  x->params.micro_batch = micro_batch;
  snprintf(x->params.policy, sizeof x->params.policy, "exact20");
  x->params.data_parallel = 1;
  x->params.pack_weights = pack_weights;
  x->params.memory = memory;
  assert_ok(atoll_plan_make(&x->problem, &x->params, &x->plan, NULL));
  for (int s = 0; s < x->plan->pipeline[0].stages; s++)
    n += x->plan->pipeline[0].stage[s].packed;
  return n;
}

/* Weights are kept packed where ranks can, have several small micro-batches and the memory, to the byte. */
static void packs_where_it_fits(void **state) {
  (void)state;
  made x;
  made_begin(&x);
  assert_int_equal(stages_packed(&x, 1, ATOLL_PACK_AUTO, 0), 0);
  int64_t without = x.plan->pipeline[0].stage[0].replica[0].bytes_peak;
  atoll_digest before = atoll_plan_digest(x.plan);
  x.problem.packs = 1;
  assert_int_equal(stages_packed(&x, 1, ATOLL_PACK_NO, 0), 0);
  assert_int_equal(stages_packed(&x, 8, ATOLL_PACK_AUTO, 0), 0); /* many rows */
  assert_int_equal(stages_packed(&x, 8, ATOLL_PACK_YES, 0), 2);
  assert_int_equal(stages_packed(&x, 1, ATOLL_PACK_AUTO, 0), 2);
  assert_false(atoll_digest_equal(before, atoll_plan_digest(x.plan)));
  int64_t with[2];
  for (int s = 0; s < 2; s++) {
    const atoll_plan_replica *r = &x.plan->pipeline[0].stage[s].replica[0];
    int64_t bytes[ATOLL_MEM_CATEGORIES];
    atoll_stage_params sp;
    atoll_policy policy[16];
    with[s] = r->bytes_peak;
    assert_ok(atoll_plan_stage_params(x.plan, (atoll_plan_place){0, s, 0, 0}, &sp, policy));
    assert_int_equal(sp.packed, 1);
    assert_ok(atoll_stage_bytes(x.problem.model, &sp, bytes));
    for (int c = 0; c < ATOLL_MEM_CATEGORIES; c++)
      assert_int_equal(r->bytes[c], bytes[c]);
  }
  assert_true(with[0] > without);
  char *text = NULL;
  size_t n;
  atoll_plan *read = NULL;
  assert_ok(atoll_plan_to_text(x.plan, &text, &n));
  assert_ok(atoll_plan_from_text("plan", text, n, &read));
  assert_true(atoll_digest_equal(atoll_plan_digest(read), atoll_plan_digest(x.plan)));
  assert_int_equal(read->pipeline[0].stage[1].packed, 1);
  free(text);
  atoll_plan_destroy(&read);
  const atoll_plan_replica *second = &x.plan->pipeline[0].stage[1].replica[0];
  const int64_t parameters = second->bytes[ATOLL_MEM_PARAMETER];
  assert_ok(atoll_plan_unpack(x.plan, x.problem.model));
  assert_true(atoll_digest_equal(before, atoll_plan_digest(x.plan)));
  assert_int_equal(x.plan->pipeline[0].stage[0].replica[0].bytes_peak, without);
  assert_int_equal(with[1] - second->bytes_peak, parameters - second->bytes[ATOLL_MEM_PARAMETER]);
  x.params.layers.n = 0;
  x.params.min_throughput = 1e-9; /* which the search of large clusters alone knows */
  atoll_plan_destroy(&x.plan);
  assert_ok(atoll_plan_make(&x.problem, &x.params, &x.plan, NULL));
  assert_int_equal(x.plan->pipeline[0].stage[0].packed, 1);
  x.problem.global_batch = 1; /* one micro-batch */
  assert_int_equal(stages_packed(&x, 1, ATOLL_PACK_AUTO, 0), 0);
  x.problem.global_batch = 16;
  int64_t most = with[0] > with[1] ? with[0] : with[1];
  assert_int_equal(stages_packed(&x, 1, ATOLL_PACK_AUTO, most), 2);
  assert_int_equal(stages_packed(&x, 1, ATOLL_PACK_AUTO, most - 1), 1);
  made_end(&x);
}

#define REFUSED(part, ...)                                                                                             \
  do {                                                                                                                 \
    atoll_plan_params_init(&x.params);                                                                                 \
    __VA_ARGS__;                                                                                                       \
    assert_refused(ATOLL_USAGE, part, atoll_plan_make(&x.problem, &x.params, &x.plan, NULL));                          \
    assert_null(x.plan);                                                                                               \
  } while (0)

static void refused(void **state) {
  (void)state;
  made x;
  made_begin(&x);
  atoll_plan_destroy(&x.plan);
  REFUSED("plan.layers: the entries add up to 5 blocks, the model has 6",
          x.params.layers = (atoll_opt_ints){2, {2, 3}});
  REFUSED("plan.layers: entry 2 is 0", x.params.layers = (atoll_opt_ints){3, {3, 0, 3}});
  REFUSED("plan.stages is 2", x.params.layers = (atoll_opt_ints){3, {2, 2, 2}}; x.params.stages = 2);
  REFUSED("plan.stages is 9, the model has 8 layers", x.params.stages = 9);
  REFUSED("needs 6 devices, there are 5", x.params.stages = 3; x.params.data_parallel = 2);
  REFUSED("plan.micro_batch 3 does not divide train.global_batch 16", x.params.micro_batch = 3);
  REFUSED("plan.data_parallel is 5, there are at most 2 micro-batches", x.params.micro_batch = 8;
          x.params.data_parallel = 5);
  REFUSED("plan.sum_leaves 2", x.params.sum_leaves = 2; x.params.data_parallel = 4);
  REFUSED("plan.policy is 'lazy'", snprintf(x.params.policy, sizeof x.params.policy, "lazy"));
  x.problem.seq = 200;
  REFUSED("train.seq 200 is beyond model.context 128", (void)0);
  x.problem.seq = 64;
  made_end(&x);
}

/* Too little memory: the tightest stage, its bytes by category and what is missing; and those bytes are layer's. */
static void infeasible(void **state) {
  (void)state;
  made x;
  made_begin(&x);
  int64_t least = x.plan->pipeline[0].stage[0].replica[0].bytes_peak;
  for (int s = 0; s < 2; s++)
    for (int k = 0; k < 2; k++) {
      const atoll_plan_replica *r = &x.plan->pipeline[0].stage[s].replica[k];
      int64_t sum = 0, bytes[ATOLL_MEM_CATEGORIES];
      atoll_stage_params sp;
      atoll_policy policy[16];
      assert_ok(atoll_plan_stage_params(x.plan, (atoll_plan_place){0, s, k, 0}, &sp, policy));
      assert_ok(atoll_stage_bytes(x.model, &sp, bytes));
      for (int c = 0; c < ATOLL_MEM_CATEGORIES; c++) {
        assert_int_equal(bytes[c], r->bytes[c]);
        sum += bytes[c];
      }
      assert_int_equal(sum, r->bytes_peak);
      assert_int_equal(r->bytes_limit, (int64_t)((double)GIB * 0.9));
    }
  atoll_plan_destroy(&x.plan);
  atoll_plan_report *report = NULL;
  x.params.memory = 100000;
  assert_true(least > x.params.memory);
  assert_refused(ATOLL_INFEASIBLE, "stage", atoll_plan_make(&x.problem, &x.params, &x.plan, &report));
  const char *message = atoll_err_message();
  assert_non_null(strstr(message, "missing"));
  assert_non_null(strstr(message, "parameter"));
  assert_non_null(strstr(message, "97.7 KiB on island"));
  assert_true(report && report->count > 0 && report->infeasible > 0);
  assert_true(isnan(report->rejected[0].step_seconds));
  atoll_plan_report_destroy(&report);
  made_end(&x);
}

/* What the executor adds counts too, and can make a plan infeasible or move it. */
static atoll_err extra(const atoll_model *model, const atoll_plan *plan, int pipeline, int stage, int replica,
                       int64_t bytes[ATOLL_MEM_CATEGORIES]) {
  (void)model, (void)plan, (void)pipeline, (void)replica;
  bytes[ATOLL_MEM_COMM] += stage == 0 ? GIB : 17;
  return ATOLL_OK;
}

static void extra_counts(void **state) {
  (void)state;
  made x;
  made_begin(&x);
  atoll_plan_destroy(&x.plan);
  x.problem.extra_bytes = extra;
  assert_refused(ATOLL_INFEASIBLE, "stage 0 of 2", atoll_plan_make(&x.problem, &x.params, &x.plan, NULL));
  assert_non_null(strstr(atoll_err_message(), "comm 1.00 GiB"));
  x.params.memory = 2 * GIB;
  x.problem.checkpoint_bytes = 1000;
  x.problem.fixed_bytes = 2000;
  assert_ok(atoll_plan_make(&x.problem, &x.params, &x.plan, NULL));
  assert_int_equal(x.plan->pipeline[0].stage[1].replica[0].bytes[ATOLL_MEM_COMM], 17);
  assert_int_equal(x.plan->pipeline[0].stage[1].replica[0].bytes[ATOLL_MEM_CHECKPOINT], 1000);
  assert_int_equal(x.plan->pipeline[0].stage[1].replica[0].bytes[ATOLL_MEM_DATA], 2000);
  made_end(&x);
}

/* Tight memory turns eager into exact where it is needed. */
static void policy_follows_memory(void **state) {
  (void)state;
  made x;
  made_begin(&x);
  int64_t eager = 0, exact = 0;
  for (int policy = 0; policy < 2; policy++) {
    atoll_plan_destroy(&x.plan);
    snprintf(x.params.policy, sizeof x.params.policy, "%s", policy ? "exact" : "eager_flash");
    assert_ok(atoll_plan_make(&x.problem, &x.params, &x.plan, NULL));
    int64_t most = 0;
    for (int s = 0; s < 2; s++)
      for (int k = 0; k < 2; k++)
        most = x.plan->pipeline[0].stage[s].replica[k].bytes_peak > most
                   ? x.plan->pipeline[0].stage[s].replica[k].bytes_peak
                   : most;
    *(policy ? &exact : &eager) = most;
  }
  assert_true(exact < eager);
  snprintf(x.params.policy, sizeof x.params.policy, "auto");
  atoll_plan_destroy(&x.plan);
  assert_ok(atoll_plan_make(&x.problem, &x.params, &x.plan, NULL));
  assert_int_equal(x.plan->pipeline[0].stage[0].range[0].policy, ATOLL_POLICY_EAGER_FLASH);
  made_end(&x);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(kept),         cmocka_unit_test(packs_where_it_fits),
                                     cmocka_unit_test(refused),      cmocka_unit_test(infeasible),
                                     cmocka_unit_test(extra_counts), cmocka_unit_test(policy_follows_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
