/* Rounds of the link measurement: a node is in one pair at most, each pair comes once, and there are O(nodes) rounds.
 */
#include "topo_test.h"

/* The schedule is file-local. */
#include "../src/probe.c"

static void any_number_of_nodes(void **state) {
  (void)state;
  for (int n = 0; n <= 200; n++) {
    pair *p = NULL;
    int count = 0, rounds = schedule(n, &p, &count);
    char *busy = calloc((size_t)(rounds + 1) * (size_t)(n + 1), 1),
         *seen = calloc((size_t)(n + 1) * (size_t)(n + 1), 1);
    for (int i = 0; i < count; i++) {
      assert_true(p[i].a >= 0 && p[i].a < p[i].b && p[i].b < n && p[i].round < rounds);
      assert_false(busy[p[i].round * n + p[i].a]++);
      assert_false(busy[p[i].round * n + p[i].b]++);
      assert_false(seen[p[i].a * n + p[i].b]++);
    }
    if (n >= 2 && n <= TOURNAMENT_MAX)
      assert_int_equal(count, n * (n - 1) / 2);
    if (n > TOURNAMENT_MAX) {
      for (int i = 0; i < n; i++)
        assert_true(seen[i < (i + 1) % n ? i * n + (i + 1) % n
                                         : (i + 1) % n * n + i]); /* the ring is whole, so all nodes are connected */
    }
    assert_true(rounds <= (n <= TOURNAMENT_MAX ? n : 3 * 8));
    free(busy);
    free(seen);
    free(p);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(any_number_of_nodes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
