/* Binding narrows to the device's cores within what is allowed, leaves virtual and shared nodes alone, and never fails.
 */
#include <sched.h>

#include "topo_test.h"

static int cpus(cpu_set_t *set) {
  CPU_ZERO(set);
  assert_int_equal(sched_getaffinity(0, sizeof *set, set), 0);
  return CPU_COUNT(set);
}

static void one_core_of_two(void **state) {
  (void)state;
  cpu_set_t before, after;
  if (cpus(&before) < 2)
    skip();
  atoll_topo_params p = params_of(NULL, NULL);
  atoll_topo *t = NULL;
  p.ranks_per_node = 2;
  p.device = 1;
  assert_int_equal(atoll_topo_discover(NULL, &p, &t), ATOLL_OK);
  int threads = 0, bound = 0;
  t->device[0].rank = 0;
  t->device[1].rank = 1;

  t->node[0].bindable = 0;
  atoll_topo_bind(t, 1, &threads, &bound);
  assert_int_equal(bound, 0);
  assert_int_equal(threads, t->device[1].ncores);
  cpus(&after);
  assert_true(CPU_EQUAL(&before, &after));

  t->node[0].bindable = 1;
  char keep[512];
  strcpy(keep, t->device[0].cores);
  strcpy(t->device[0].cores, t->device[1].cores); /* two ranks on the same cores */
  atoll_topo_bind(t, 1, &threads, &bound);
  assert_int_equal(bound, 0);
  strcpy(t->device[0].cores, keep);

  strcpy(keep, t->device[1].cores);
  strcpy(t->device[1].cores, "4095"); /* not allowed */
  atoll_topo_bind(t, 1, &threads, &bound);
  assert_int_equal(bound, 0);
  cpus(&after);
  assert_true(CPU_EQUAL(&before, &after));
  strcpy(t->device[1].cores, keep);

  atoll_topo_bind(t, 1, &threads, &bound);
  assert_int_equal(bound, 1);
  assert_int_equal(threads, t->device[1].ncores);
  assert_int_equal(cpus(&after), t->device[1].nthreads);
  CPU_AND(&after, &after, &before);
  assert_int_equal(CPU_COUNT(&after), t->device[1].nthreads);

  atoll_topo_bind(t, -1, &threads, &bound);
  assert_int_equal(bound, 0);
  atoll_topo_destroy(&t);
}

int main(void) {
  unsetenv("OMP_PROC_BIND");
  unsetenv("OMP_PLACES");
  const struct CMUnitTest tests[] = {cmocka_unit_test(one_core_of_two)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
