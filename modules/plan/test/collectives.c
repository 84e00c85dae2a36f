/* Seconds of collectives by hand on small groups, what must hold between operations, and how a group is read from a
 * topology with zones. */
#include "plan_test.h"

#include "../src/cost/collective.h"

static void near(double got, double want) {
  if (fabs(got - want) > 1e-9 * fmax(fabs(want), 1e-9))
    fail_msg("%.12g, expected %.12g", got, want);
}

static collective_net net_of(int a, int b, int c) {
  return (collective_net){.level = {{a, 1e-6, 10e9}, {b, 10e-6, 2e9}, {c, 1e-3, 1e8}}};
}

static void by_hand(void **state) {
  (void)state;
  collective_net node = net_of(4, 1, 1), two = net_of(4, 2, 1), far = net_of(2, 2, 2), one = net_of(1, 1, 1);
  near(collective_seconds(&node, COLLECTIVE_ALL_GATHER, 4e6), 3e6 / 10e9 + 2e-6);
  near(collective_seconds(&node, COLLECTIVE_ALL_REDUCE, 4e6), 2 * (3e6 / 10e9 + 2e-6));
  /* The node's link carries the data once, half of it comes from the other node. */
  near(collective_seconds(&two, COLLECTIVE_REDUCE_SCATTER, 4e6), 3e6 / 10e9 + 2e-6 + 2e6 / 2e9 + 10e-6);
  /* Between zones a node has half of the data left, and half of that is the other zone's. */
  near(collective_seconds(&far, COLLECTIVE_ALL_GATHER, 8e6), 4e6 / 10e9 + 1e-6 + 4e6 / 2e9 + 10e-6 + 2e6 / 1e8 + 1e-3);
  /* Eight ranks, 1e6 each: 4 ranks send half of it over the node's link, 3 parts of 1/8 stay inside. */
  near(collective_seconds(&two, COLLECTIVE_ALL_TO_ALL, 1e6), 4 * 1e6 * 4 / 8 / 2e9 + 3 * 1e-6 + 4 * 10e-6);
  near(collective_seconds(&two, COLLECTIVE_POINT_TO_POINT, 1e6), 10e-6 + 1e6 / 2e9);
  for (int op = 0; op < COLLECTIVE_OPS; op++) {
    near(collective_seconds(&one, (collective_op)op, 1e9), 0);
    near(collective_seconds(&far, (collective_op)op, 0), 0);
  }
}

static void fits_replace_levels(void **state) {
  (void)state;
  collective_net net = net_of(2, 1, 1);
  net.fit_rate = 3e9;
  net.fit_latency = 1e-4;
  for (int op = 0; op < COLLECTIVE_OPS; op++)
    net.fit_scale[op] = 1;
  net.fit_scale[COLLECTIVE_ALL_REDUCE] = 2.1;
  near(collective_seconds(&net, COLLECTIVE_ALL_REDUCE, 6e9), 2.1 * (1 + 1e-4));
  near(collective_seconds(&net, COLLECTIVE_POINT_TO_POINT, 6e9), 2);
}

static void groups_have_levels(void **state) {
  (void)state;
  atoll_topo_node nodes[4] = {{.zone = "east"}, {.zone = "east"}, {.zone = "west"}, {.zone = "west"}};
  atoll_topo_route routes[] = {{.a = "*", .b = "*", .latency = 20e-6, .bandwidth = 10},
                               {.a = "east", .b = "west", .latency = 30e-3, .bandwidth = 0.5}};
  atoll_topo topo = {.nodes = 4, .node = nodes, .routes = 2, .route = routes};
  const int devices[] = {0, 0, 1, 1, 2, 2, 3, 3}, east[] = {0, 0, 1, 1};
  collective_net net;
  collective_of_nodes(&topo, devices, 8, 1, &net);
  assert_int_equal(net.level[COLLECTIVE_NODE].size, 2);
  assert_int_equal(net.level[COLLECTIVE_ZONE].size, 2);
  assert_int_equal(net.level[COLLECTIVE_WORLD].size, 2);
  near(net.level[COLLECTIVE_ZONE].rate, 10e9);
  near(net.level[COLLECTIVE_WORLD].rate, 0.5e9);
  near(net.level[COLLECTIVE_WORLD].latency, 30e-3);
  collective_of_nodes(&topo, east, 4, 2, &net);
  assert_int_equal(net.level[COLLECTIVE_WORLD].size, 1);
  near(net.level[COLLECTIVE_ZONE].rate, 5e9); /* two groups share the node's link */
  near(net.level[COLLECTIVE_NODE].rate, 5e9); /* nothing known inside nodes: the default */
  collective_of_nodes(&topo, east, 1, 1, &net);
  assert_int_equal(collective_ranks(&net), 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(by_hand), cmocka_unit_test(fits_replace_levels),
                                     cmocka_unit_test(groups_have_levels)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
