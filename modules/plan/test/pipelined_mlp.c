/* What a stage with mlp cta costs beside a plain one on tensor ranks: one sum less each way and the packing of weights,
 * products a little longer. So it is the faster where sums are slow, and the slower where they cost nothing. */
#include "plan_test.h"

#include <math.h>

#include "cost/cost.h"

typedef struct pair {
  cost_slice plain, cta, own, chosen;
} pair;

static atoll_dtype dtype = ATOLL_F32;

static atoll_model *model_of(int family) {
  atoll_model_params p;
  atoll_model *m = NULL;
  atoll_model_params_init(&p);
  p.family = family, p.layers = 4, p.width = 128, p.heads = 4, p.context = 128, p.vocab = 256;
  p.dtype = (int)dtype;
  assert_ok(atoll_model_create(&p, &m));
  return m;
}

/* over: a profile knows that pipelined on two ranks takes so much of an even share; 0: there is none. */
static pair prices_with(int family, double link_gbs, int tensor, double over) {
  const test_node node[] = {{"p", 4, INT64_C(1) << 32, 20, 10}};
  test_cluster c;
  pair p;
  cost_model *cost = NULL;
  atoll_profile *profile = NULL;
  atoll_model *m = model_of(family);
  test_cluster_make(&c, node, 1, link_gbs, 1);
  atoll_plan_problem problem = test_problem(m, &c, 32);
  if (over > 0) {
    char name[256];
    atoll_island_class(&c.islands, 0, name, sizeof name);
    assert_ok(atoll_profile_create(&profile));
    assert_ok(atoll_profile_add_mlp(profile, name, atoll_model_digest(m), 2, 64, 2, over * 1e-3, 1e-3));
    problem.profile = profile;
  }
  assert_ok(cost_create(&problem, &cost));
  assert_ok(cost_of_slice(cost, 0, tensor, ATOLL_MLP_PLAIN, 1, 3, ATOLL_POLICY_EAGER_FLASH, 4, &p.plain));
  assert_ok(cost_of_slice(cost, 0, tensor, ATOLL_MLP_CTA, 1, 3, ATOLL_POLICY_EAGER_FLASH, 4, &p.cta));
  assert_ok(cost_of_slice(cost, 0, tensor, ATOLL_MLP_CTA_OWN, 1, 3, ATOLL_POLICY_EAGER_FLASH, 4, &p.own));
  assert_ok(cost_of_slice(cost, 0, tensor, ATOLL_MLP_AUTO, 1, 3, ATOLL_POLICY_EAGER_FLASH, 4, &p.chosen));
  cost_destroy(&cost);
  atoll_profile_destroy(&profile);
  test_cluster_free(&c);
  atoll_model_destroy(&m);
  return p;
}

static pair prices(double link_gbs, int tensor) { return prices_with(ATOLL_FAMILY_GPT2, link_gbs, tensor, 0); }

static void it_sums_less_and_packs(void **state) {
  (void)state;
  pair slow = prices(0.01, 2), fast = prices_with(ATOLL_FAMILY_GPT2, 1e6, 2, 1.05), alone = prices(1, 1);
  assert_true(slow.cta.forward < slow.plain.forward && slow.cta.backward < slow.plain.backward);
  assert_true(slow.cta.forward > slow.plain.forward / 2); /* that of attention is left */
  assert_true(fast.cta.forward > fast.plain.forward && fast.cta.forward < 1.05 * fast.plain.forward);
  assert_true(fast.cta.backward > fast.plain.backward && fast.cta.backward < 1.05 * fast.plain.backward);
  assert_true(fast.cta.update > fast.plain.update);
  pair four = prices(1e6, 4); /* two of which do nothing where each does its own */
  assert_true(fabs(fast.own.forward - fast.cta.forward) < 1e-12 && four.own.forward > 1.2 * four.cta.forward);
  /* Of three matrices one rank has two: four thirds of an even share, where there is little but the MLP. */
  pair gate = prices_with(ATOLL_FAMILY_LLAMA, 1e6, 2, 0);
  assert_true(gate.own.forward > 1.1 * gate.cta.forward && gate.own.forward < 1.34 * gate.cta.forward);
  assert_true(alone.cta.forward == alone.plain.forward && alone.cta.backward == alone.plain.backward &&
              alone.cta.update == alone.plain.update); /* one rank pipelines nothing */
}

static pair remembered(int tensor, double over) { return prices_with(ATOLL_FAMILY_GPT2, 1e6, tensor, over); }

/* What a machine remembers, at another micro-batch, takes the place of the fixed figure, for as many ranks. */
static void it_costs_what_was_remembered(void **state) {
  (void)state;
  pair fixed = prices(1e6, 2), same = remembered(2, 1.02), slow = remembered(2, 1.5), fast = remembered(2, 0.9),
       four = prices(1e6, 4), others = remembered(4, 1.5);
  double mlp = (slow.cta.forward - fixed.cta.forward) / 0.48; /* an even share of its products */
  assert_true(fabs(same.cta.forward - fixed.cta.forward) < 1e-12 * mlp);
  assert_true(mlp > 0.1 * fixed.plain.forward && mlp < fixed.plain.forward);
  assert_true(fabs(fixed.cta.forward - fast.cta.forward - 0.12 * mlp) < 1e-9 * mlp);
  assert_true(fabs(slow.own.forward - slow.cta.forward) < 1e-9 * mlp);
  assert_true(others.cta.forward == four.cta.forward);
  /* Whatever is the fastest: an even share, or better. */
  assert_true(fabs(slow.cta.forward - slow.chosen.forward - 0.5 * mlp) < 1e-9 * mlp);
  assert_true(fast.chosen.forward == fast.cta.forward);
}

/* By what lies between two that are remembered. */
static double fixed_figure(int family) {
  double low = prices_with(family, 1e6, 2, 0.9).cta.forward, high = prices_with(family, 1e6, 2, 1.5).cta.forward;
  return 0.9 + 0.6 * (prices_with(family, 1e6, 2, 0).cta.forward - low) / (high - low);
}

static void gates_and_bf16_have_figures_of_their_own(void **state) {
  (void)state;
  assert_true(fabs(fixed_figure(ATOLL_FAMILY_GPT2) - 1.02) < 1e-6);
  assert_true(fabs(fixed_figure(ATOLL_FAMILY_LLAMA) - 1.04) < 1e-6);
  dtype = ATOLL_BF16;
  assert_true(fabs(fixed_figure(ATOLL_FAMILY_GPT2) - 1.07) < 1e-6);
  assert_true(fabs(fixed_figure(ATOLL_FAMILY_LLAMA) - 1.04) < 1e-6);
  dtype = ATOLL_F32;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(it_sums_less_and_packs),
                                     cmocka_unit_test(it_costs_what_was_remembered),
                                     cmocka_unit_test(gates_and_bf16_have_figures_of_their_own)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
