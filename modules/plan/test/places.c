/* Places, owners, stage parameters and the buffers of the summation tree are what a plain reading of the plan gives. */
#include "plan_made.h"

#include "atoll/comm.h"

static void places(void **state) {
  (void)state;
  made x;
  made_begin(&x);
  int found = 0;
  for (int rank = 0; rank < x.plan->world; rank++) {
    atoll_plan_place at = atoll_plan_find(x.plan, rank);
    if (at.stage < 0)
      continue;
    found++;
    assert_int_equal(x.plan->pipeline[at.pipeline].stage[at.stage].replica[at.replica].rank[at.slot], rank);
    atoll_stage_params sp;
    atoll_policy policy[16];
    assert_ok(atoll_plan_stage_params(x.plan, at, &sp, policy));
    const atoll_plan_stage *s = &x.plan->pipeline[0].stage[at.stage];
    assert_int_equal(sp.first, s->chunk[0].first);
    assert_int_equal(sp.last, s->chunk[0].last);
    assert_int_equal(sp.B, 2);
    assert_int_equal(sp.S, 64);
    assert_int_equal(sp.slots, at.stage == 0 ? 2 : 1);
    for (int l = 0; l < sp.last - sp.first; l++)
      assert_int_equal(policy[l], s->range[0].policy);
    for (int64_t g = 0; g < x.plan->micro_batches; g++) {
      const atoll_plan_replica *r = &s->replica[at.replica];
      int mine = g >= r->first_micro_batch && g < r->first_micro_batch + r->micro_batches;
      assert_int_equal(atoll_plan_owner(x.plan, 0, at.stage, g) == at.replica, mine);
    }
  }
  assert_int_equal(found, 4);
  assert_int_equal(atoll_plan_find(x.plan, x.plan->idle[0]).stage, -1);
  assert_int_equal(atoll_plan_find(x.plan, 99).stage, -1);
  assert_int_equal(atoll_plan_owner(x.plan, 0, 0, 8), -1);
  assert_int_equal(atoll_plan_owner(x.plan, 0, 0, -1), -1);
  assert_int_equal(atoll_plan_owner(x.plan, 1, 0, 0), -1);
  atoll_stage_params sp;
  atoll_policy policy[16];
  assert_refused(ATOLL_USAGE, "stage 5", atoll_plan_stage_params(x.plan, (atoll_plan_place){0, 5, 0, 0}, &sp, policy));
  /* Interleaved chunks are a plan, but not one stage. */
  atoll_plan_stage *s = &x.plan->pipeline[0].stage[0];
  s->chunks = 2;
  assert_refused(ATOLL_UNSUPPORTED, "2 layer chunks",
                 atoll_plan_stage_params(x.plan, (atoll_plan_place){0, 0, 0, 0}, &sp, policy));
  s->chunks = 1;
  made_end(&x);
}

/* Buffers by definition: leaf after leaf, count the complete nodes whose parent is not complete. */
static int most_live(int64_t leaves, int64_t first, int64_t n) {
  int most = 1;
  for (int64_t k = 1; k <= n; k++) {
    /* Before leaf k is merged it has a buffer of its own beside those of the k - 1 leaves before it. */
    int live = 1 + (k > 1 ? atoll_tree_nodes(leaves, first, k - 1, NULL, NULL, 0) : 0);
    most = live > most ? live : most;
  }
  return most;
}

static void partials(void **state) {
  (void)state;
  for (int64_t G = 1; G <= 40; G++)
    for (int64_t leaves = 1; leaves <= G; leaves++) {
      atoll_plan p = {.micro_batches = G, .sum_leaves = leaves};
      for (int64_t a = 0; a < leaves; a++)
        for (int64_t b = a + 1; b <= leaves; b++) {
          int64_t first = a * G / leaves, end = b * G / leaves;
          int got = atoll_plan_partials(&p, first, end - first), want = most_live(leaves, a, b - a);
          if (got != want)
            fail_msg("%" PRId64 " leaves over %" PRId64 ", leaves [%" PRId64 ", %" PRId64 "): %d, expected %d", leaves,
                     G, a, b, got, want);
        }
    }
  atoll_plan p = {.micro_batches = 8, .sum_leaves = 8};
  assert_int_equal(atoll_plan_partials(&p, 0, 8), 4);
  assert_int_equal(atoll_plan_partials(&p, 0, 1), 1);
  p.sum_leaves = 1;
  assert_int_equal(atoll_plan_partials(&p, 0, 8), 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(places), cmocka_unit_test(partials)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
