/* Four ranks: the same topology everywhere, one device each; virtual nodes are told apart by SLURMD_NODENAME; a failure
 * of the one rank that reads is everybody's failure. */
#include "topo_test.h"

#include "atoll/agree.h"
#include "atoll/comm.h"

static atoll_comm *world;
static int rank, size;

static void check_same(const atoll_topo *t) {
  assert_int_equal(atoll_agree_digest(MPI_COMM_WORLD, "topology", atoll_topo_digest(t)), ATOLL_OK);
  for (int r = 0; r < size; r++)
    assert_true(atoll_topo_device_of(t, r) >= 0);
}

static void live(void **state) {
  (void)state;
  unsetenv("SLURMD_NODENAME");
  atoll_topo_params p = params_of(NULL, NULL);
  atoll_topo *t = NULL;
  assert_int_equal(atoll_topo_discover(world, &p, &t), ATOLL_OK);
  check_same(t);
  assert_int_equal(t->nodes, 1);
  assert_int_equal(t->node[0].bindable, 1);
  assert_int_equal(t->devices, size);
  atoll_topo_destroy(&t);
}

static void virtual_nodes(void **state) {
  (void)state;
  setenv("SLURMD_NODENAME", rank % 2 ? "odd" : "even", 1);
  setenv("SLURM_MEM_PER_NODE", rank % 2 ? "512" : "1024", 1);
  atoll_topo_params p = params_of(NULL, NULL);
  atoll_topo *t = NULL;
  p.device = 1;
  assert_int_equal(atoll_topo_discover(world, &p, &t), ATOLL_OK);
  check_same(t);
  assert_int_equal(t->nodes, 2);
  assert_string_equal(t->node[0].name, "even");
  assert_string_equal(t->node[1].name, "odd");
  for (int r = 0; r < size; r++) {
    const atoll_topo_device *d = &t->device[atoll_topo_device_of(t, r)];
    assert_int_equal(d->node, r % 2);
    assert_true(d->memory == (int64_t)(r % 2 ? 256 : 512) << 20);
    assert_string_equal(d->memory_limit, "slurm");
  }
  assert_int_equal(t->node[0].bindable, 0); /* one kernel: the same cores twice */
  assert_non_null(strstr(t->note, "several nodes are one kernel"));
  atoll_topo_destroy(&t);
  unsetenv("SLURM_MEM_PER_NODE");
}

/* Slurm that counts CPUs and binds nobody. */
static void slurm_counts_cpus(void **state) {
  (void)state;
  setenv("SLURMD_NODENAME", "only", 1);
  setenv("SLURM_JOB_CPUS_PER_NODE", "1", 1);
  atoll_topo_params p = params_of(NULL, NULL);
  atoll_topo *t = NULL;
  p.device = 1;
  assert_int_equal(atoll_topo_discover(world, &p, &t), ATOLL_OK);
  check_same(t);
  for (int i = 0; i < t->devices; i++)
    assert_string_equal(t->device[i].cores, t->device[0].cores); /* four ranks share the one core granted */
  if (t->node[0].cores > 1) {
    assert_int_equal(t->node[0].bindable, 0);
    assert_non_null(strstr(t->note, "Slurm grants 1 of"));
  }
  atoll_topo_destroy(&t);
  unsetenv("SLURM_JOB_CPUS_PER_NODE");
  unsetenv("SLURMD_NODENAME");
}

static void cluster_by_name(void **state) {
  (void)state;
  char name[16];
  snprintf(name, sizeof name, "n%d", 3 - rank);
  setenv("SLURMD_NODENAME", name, 1);
  atoll_topo_params p = params_of(ATOLL_SOURCE_DIR "/inputs/clusters/mixed-2x2", NULL);
  atoll_topo *t = NULL;
  assert_int_equal(atoll_topo_discover(world, &p, &t), ATOLL_OK);
  check_same(t);
  assert_int_equal(t->nodes, 4);
  const atoll_topo_device *d = &t->device[atoll_topo_device_of(t, rank)];
  assert_string_equal(t->node[d->node].name, name);
  assert_string_equal(t->node[d->node].kind, rank < 2 ? "slow" : "fast");
  atoll_topo_destroy(&t);
  setenv("SLURMD_NODENAME", rank == 2 ? "stranger" : name, 1);
  assert_int_equal(atoll_topo_discover(world, &p, &t), ATOLL_MISMATCH);
  assert_non_null(strstr(atoll_err_message(), "node 'stranger' of rank 2"));
  unsetenv("SLURMD_NODENAME");
}

static void failure_is_everybodys(void **state) {
  (void)state;
  atoll_topo_params p = params_of("/nonexistent/cluster", NULL);
  atoll_topo *t = NULL;
  assert_int_equal(atoll_topo_discover(world, &p, &t), ATOLL_NOINPUT);
  assert_non_null(strstr(atoll_err_message(), "/nonexistent/cluster"));
  assert_null(t);
}

int main(int argc, char **argv) {
  if (atoll_mpi_init(&argc, &argv) != ATOLL_OK || atoll_comm_create(MPI_COMM_WORLD, "world", NULL, &world) != ATOLL_OK)
    return 1;
  rank = atoll_comm_rank(world);
  size = atoll_comm_size(world);
  const struct CMUnitTest tests[] = {cmocka_unit_test(live), cmocka_unit_test(virtual_nodes),
                                     cmocka_unit_test(slurm_counts_cpus), cmocka_unit_test(cluster_by_name),
                                     cmocka_unit_test(failure_is_everybodys)};
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  if (failed)
    MPI_Abort(MPI_COMM_WORLD, 1); /* the others may wait for this rank */
  atoll_comm_destroy(&world);
  MPI_Finalize();
  return 0;
}
