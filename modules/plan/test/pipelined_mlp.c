/* What a stage with mlp cta costs beside a plain one on tensor ranks: one sum less each way and the packing of weights,
 * products a little longer. So it is the faster where sums are slow, and the slower where they cost nothing. */
#include "plan_test.h"

#include <math.h>

#include "cost/cost.h"

typedef struct pair {
  cost_slice plain, cta, own;
} pair;

static pair prices(double link_gbs, int tensor) {
  const test_node node[] = {{"p", 4, INT64_C(1) << 32, 20, 10}};
  test_cluster c;
  pair p;
  cost_model *cost = NULL;
  atoll_model *m = test_model(4, 128);
  test_cluster_make(&c, node, 1, link_gbs, 1);
  atoll_plan_problem problem = test_problem(m, &c, 32);
  assert_ok(cost_create(&problem, &cost));
  assert_ok(cost_of_slice(cost, 0, tensor, ATOLL_MLP_PLAIN, 1, 3, ATOLL_POLICY_EAGER_FLASH, 4, &p.plain));
  assert_ok(cost_of_slice(cost, 0, tensor, ATOLL_MLP_CTA, 1, 3, ATOLL_POLICY_EAGER_FLASH, 4, &p.cta));
  assert_ok(cost_of_slice(cost, 0, tensor, ATOLL_MLP_CTA_OWN, 1, 3, ATOLL_POLICY_EAGER_FLASH, 4, &p.own));
  cost_destroy(&cost);
  test_cluster_free(&c);
  atoll_model_destroy(&m);
  return p;
}

static void it_sums_less_and_packs(void **state) {
  (void)state;
  pair slow = prices(0.01, 2), fast = prices(1e6, 2), alone = prices(1, 1);
  assert_true(slow.cta.forward < slow.plain.forward && slow.cta.backward < slow.plain.backward);
  assert_true(slow.cta.forward > slow.plain.forward / 2); /* that of attention is left */
  assert_true(fast.cta.forward > fast.plain.forward && fast.cta.forward < 1.05 * fast.plain.forward);
  assert_true(fast.cta.backward > fast.plain.backward && fast.cta.backward < 1.05 * fast.plain.backward);
  assert_true(fast.cta.update > fast.plain.update);
  pair four = prices(1e6, 4); /* two of which do nothing where each does its own */
  assert_true(fabs(fast.own.forward - fast.cta.forward) < 1e-12 && four.own.forward > 1.2 * four.cta.forward);
  assert_true(alone.cta.forward == alone.plain.forward && alone.cta.backward == alone.plain.backward &&
              alone.cta.update == alone.plain.update); /* one rank pipelines nothing */
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(it_sums_less_and_packs)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
