/* The same cluster with its nodes listed in any order has the same islands: same names, same members by node name, same
 * explanation. */
#include "island_test.h"

#define NODES 11

/* The topology with node i of the old at place to[i]. One device a node. */
static atoll_topo *permuted(const atoll_topo *t, const int *to) {
  atoll_topo *p = NULL;
  assert_int_equal(atoll_topo_copy(t, &p), ATOLL_OK);
  for (int i = 0; i < t->nodes; i++) {
    p->node[to[i]] = t->node[i];
    p->node[to[i]].first_device = to[i];
    p->device[to[i]] = t->device[i];
    p->device[to[i]].node = to[i];
  }
  for (int i = 0; i < t->links; i++) {
    int a = to[t->link[i].a], b = to[t->link[i].b];
    p->link[i].a = a < b ? a : b;
    p->link[i].b = a < b ? b : a;
  }
  return p;
}

static const char *home(const atoll_islands *is, const atoll_topo *t, const char *node) {
  for (int i = 0; i < t->devices; i++)
    if (strcmp(t->node[t->device[i].node].name, node) == 0)
      return is->island[is->island_of[i]].name;
  return "?";
}

static void any_order(void **state) {
  (void)state;
  atoll_topo *t = load_topo("4x(core:4 memory=8GiB), 3x(core:2 memory=8GiB), 4x(core:4 memory=8GiB kind=k)");
  assert_int_equal(t->devices, NODES);
  uint64_t at = 0;
  for (int i = 0; i < NODES; i++)
    measure(&t->device[i].gemm_f32, i == 2 ? 100 : 300, GAUSS, 0.02, 9, &at);
  add_link(t, 0, 1, 10);
  add_link(t, 0, 3, 0.1);
  add_link(t, 1, 3, 0.1);
  for (int a = 7; a < 11; a++) /* two halves that nothing but their names tells apart */
    for (int b = a + 1; b < 11; b++)
      add_link(t, a, b, (a - 7) / 2 == (b - 7) / 2 ? 5 : 0.1);
  atoll_islands *want = group(t);
  assert_int_equal(want->count, 6); /* n0 n1 | n3 | n2 slow | n4 n5 n6 | n7 n8 | n9 n10 */
  for (int draw = 0; draw < 300; draw++) {
    int to[NODES];
    for (int i = 0; i < NODES; i++)
      to[i] = (int)atoll_rng_permute((uint64_t)draw, 1, NODES, (uint64_t)i);
    atoll_topo *p = permuted(t, to);
    atoll_islands *is = group(p);
    assert_int_equal(is->count, want->count);
    for (int i = 0; i < NODES; i++)
      assert_string_equal(home(is, p, t->node[i].name), home(want, t, t->node[i].name));
    for (int k = 0; k < is->count; k++) {
      assert_int_equal(is->island[k].class_id, want->island[k].class_id);
      assert_int_equal(is->island[k].speed_id, want->island[k].speed_id);
      assert_string_equal(is->island[k].class_key, want->island[k].class_key);
      assert_true(atoll_digest_equal(is->island[k].key, want->island[k].key));
    }
    atoll_islands_destroy(&is);
    atoll_topo_destroy(&p);
  }
  atoll_islands_destroy(&want);
  atoll_topo_destroy(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(any_order)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
