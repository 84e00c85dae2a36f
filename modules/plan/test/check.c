/* Every index that execution follows is checked, and the message names pipeline, stage and field; a plan for another
 * cluster, model or number of ranks is refused. */
#include "plan_made.h"

#define REFUSED(part, change, restore)                                                                                 \
  do {                                                                                                                 \
    change;                                                                                                            \
    assert_refused(ATOLL_CORRUPT, part, atoll_plan_check(p, x.model));                                                 \
    restore;                                                                                                           \
    assert_ok(atoll_plan_check(p, x.model));                                                                           \
  } while (0)

#define SET(part, place, value)                                                                                        \
  do {                                                                                                                 \
    __typeof__(place) kept_ = (place);                                                                                 \
    REFUSED(part, (place) = (value), (place) = kept_);                                                                 \
  } while (0)

static void fields(void **state) {
  (void)state;
  made x;
  made_begin(&x);
  atoll_plan *p = x.plan;
  atoll_plan_pipeline *pipe = &p->pipeline[0];
  atoll_plan_stage *s0 = &pipe->stage[0], *s1 = &pipe->stage[1];
  atoll_plan_replica *r0 = &s0->replica[0], *r1 = &s0->replica[1], *r3 = &s1->replica[1];
  assert_ok(atoll_plan_check(p, x.model));
  assert_ok(atoll_plan_check(p, NULL));
  SET("version is 7", p->version, 7);
  SET("world is 0", p->world, 0);
  SET("seq is 0", p->seq, 0);
  SET("context is 128", p->seq, 129);
  SET("global_batch", p->global_batch, 0);
  SET("hold 16 samples, global_batch is 32", p->global_batch, 32);
  SET("micro_batches is 17", p->micro_batches, 17);
  SET("sum_leaves is 9", p->sum_leaves, 9);
  SET("pipeline 0 has micro-batches [1", pipe->first_micro_batch, 1);
  SET("begin at 0 and stay below 8", pipe->micro_batches, 9);
  SET("no stages", pipe->stages, 0);
  SET("stage 1 chunk 0 is layers [", s1->chunk[0].first, s1->chunk[0].first + 1);
  SET("stage 0 chunk 0 is layers [0, 0)", s0->chunk[0].last, 0);
  SET("the model has 8", s1->chunk[0].last, 9);
  SET("stage 1: no range treats layer", s1->ranges, 0);
  SET("no range treats layer", s0->range[0].last, s0->range[0].last - 1);
  SET("stage 0 range 0: policy is 99", s0->range[0].policy, 99);
  SET("stage 0 range 0: recompute is -1", s0->range[0].recompute, -1);
  SET("recompute is 99", s0->range[0].recompute, 99);
  SET("offload_optimizer is 1.5", s0->range[0].offload_optimizer, 1.5);
  SET("offload_weights is nan", s0->range[0].offload_weights, NAN);
  SET("mlp is empty", s0->range[0].mlp[0], 0);
  SET("in_flight is 0", s1->in_flight, 0);
  SET("no replicas", s1->replicas, 0);
  SET("replica 0: tensor is 0", r0->tensor, 0);
  SET("tensor x context x expert = 1 x 2 x 1", r0->context, 2);
  SET("zero is 4", r0->zero, 4);
  SET("sequence_parallel is 2", r0->sequence_parallel, 2);
  SET("island is -1", r0->island, -1);
  SET("replica 1: micro_batches is 0", r1->micro_batches, 0);
  SET("expected to begin at", r1->first_micro_batch, r1->first_micro_batch - 1);
  SET("stage 1", r3->micro_batches, r3->micro_batches - 1);
  SET("on stage 1 and 2 on stage 0", r3->micro_batch, 1);
  SET("rank 9, expected 0..4", r0->rank[0], 9);
  SET("is used twice", r0->rank[0], r1->rank[0]);
  SET("device -2", r0->device[0], -2);
  SET("is used twice", p->idle[0], r0->rank[0]);
  SET("is neither on a stage nor idle", p->idle_count, 0);
  SET("tied entry 0 use 1", p->tied[0].stage[1], 0);
  SET("tied entry 0 is not parameter 0 (wte.weight)", p->tied_count, 0);
  /* A cut inside a leaf of the summation tree: 3 leaves over 8 micro-batches begin at 0, 2 and 5. */
  REFUSED("inside a leaf", p->sum_leaves = 3, p->sum_leaves = 8);
  made_end(&x);
}

static void fits(void **state) {
  (void)state;
  made x;
  made_begin(&x);
  assert_ok(atoll_plan_fits(x.plan, x.model, &x.cluster.islands, 5));
  assert_refused(ATOLL_MISMATCH, "made for 5 ranks, the job has 6",
                 atoll_plan_fits(x.plan, x.model, &x.cluster.islands, 6));
  assert_refused(ATOLL_MISMATCH, "made for 5 ranks, the job has 4",
                 atoll_plan_fits(x.plan, x.model, &x.cluster.islands, 4));
  atoll_model *other = test_model(6, 96);
  assert_refused(ATOLL_MISMATCH, "another model", atoll_plan_fits(x.plan, other, &x.cluster.islands, 5));
  atoll_model_destroy(&other);
  const test_node node[] = {{"fast", 2, INT64_C(1) << 30, 100, 20}, {"slower", 3, INT64_C(1) << 30, 40, 10}};
  test_cluster c;
  test_cluster_make(&c, node, 2, 5, 1);
  c.islands.island[1].key.lo = 77; /* other hardware */
  assert_refused(ATOLL_MISMATCH, "another cluster", atoll_plan_fits(x.plan, x.model, &c.islands, 5));
  test_cluster_free(&c);
  int device = x.plan->pipeline[0].stage[0].replica[0].device[0];
  x.plan->pipeline[0].stage[0].replica[0].device[0] = 99;
  assert_refused(ATOLL_MISMATCH, "device 99", atoll_plan_fits(x.plan, x.model, &x.cluster.islands, 5));
  x.plan->pipeline[0].stage[0].replica[0].device[0] = device;
  made_end(&x);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(fields), cmocka_unit_test(fits)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
