/* Rates and links are measured, the same on every rank, within the time given; what is declared stays. */
#include "topo_test.h"

#include "atoll/agree.h"
#include "atoll/clock.h"
#include "atoll/comm.h"

static atoll_comm *world;
static int rank;
static int gemms;

/* A device whose speed is known: rank r multiplies at 100 * (r + 1) GFLOP/s, bf16 is missing. */
static atoll_err gemm(atoll_device *device, int dtype, int64_t n, double *seconds, double *flop) {
  (void)device;
  if (dtype != ATOLL_F32)
    return atoll_fail(ATOLL_UNSUPPORTED, "no bf16 here");
  gemms++;
  *flop = 2.0 * (double)n * (double)n * (double)n;
  *seconds = *flop / (1e11 * (rank + 1));
  return ATOLL_OK;
}

static atoll_err memory(atoll_device *device, int64_t bytes, double *seconds, double *moved) {
  (void)device;
  *moved = 2.0 * (double)bytes;
  *seconds = *moved / 2e10;
  return ATOLL_OK;
}

static const atoll_rate_probe fake = {"cpu", gemm, memory};

static void rates_and_links(void **state) {
  (void)state;
  char name[16];
  snprintf(name, sizeof name, "v%d", rank / 2); /* ranks 0 and 1 on one node, 2 on another */
  setenv("SLURMD_NODENAME", name, 1);
  atoll_topo_params p = params_of(NULL, NULL);
  atoll_topo *t = NULL;
  atoll_device *device = NULL;
  atoll_device_params dp;
  p.device = 1;
  p.probe_seconds = 0.5;
  atoll_device_params_init(&dp);
  dp.threads = 1;
  assert_int_equal(atoll_device_open("cpu", &dp, &device), ATOLL_OK);
  assert_int_equal(atoll_topo_discover(world, &p, &t), ATOLL_OK);
  double start = atoll_clock_now();
  assert_int_equal(atoll_topo_probe(world, &p, device, t), ATOLL_OK);
  assert_true(atoll_clock_now() - start < 30); /* half a second asked; a loaded machine gets slack */
  assert_int_equal(atoll_agree_digest(MPI_COMM_WORLD, "probed", atoll_topo_digest(t)), ATOLL_OK);
  for (int r = 0; r < 3; r++) {
    const atoll_topo_device *d = &t->device[atoll_topo_device_of(t, r)];
    assert_int_equal(d->gemm_f32.n, ATOLL_TOPO_SAMPLES);
    assert_true(atoll_samples_median(&d->gemm_f32) > 99.9 * (r + 1) &&
                atoll_samples_median(&d->gemm_f32) < 100.1 * (r + 1));
    assert_int_equal(d->gemm_bf16.n, 0);
    assert_true(atoll_samples_median(&d->bandwidth) > 19.9 && atoll_samples_median(&d->bandwidth) < 20.1);
    assert_false(d->declared);
  }
  assert_int_equal(t->links, 2); /* inside v0, and v0 - v1; v1 has one rank */
  for (int i = 0; i < 2; i++) {
    assert_true(t->link[i].a == 0 && t->link[i].b == i);
    assert_true(t->link[i].bandwidth.n > 0 && atoll_samples_median(&t->link[i].bandwidth) > 0.001);
    assert_true(t->link[i].latency.n > 0 && atoll_samples_median(&t->link[i].latency) < 0.5);
  }
  assert_ptr_equal(atoll_topo_link_of(t, 1, 1), &t->link[0]); /* not measured: the slowest of its kind */
  atoll_topo_destroy(&t);
  atoll_device_close(&device);
}

static void declared_values_stay(void **state) {
  (void)state;
  char name[16];
  snprintf(name, sizeof name, "n%d", rank);
  setenv("SLURMD_NODENAME", name, 1);
  atoll_topo_params p = params_of(ATOLL_SOURCE_DIR "/inputs/clusters/mixed-2x2", NULL);
  atoll_topo *t = NULL;
  atoll_device *device = NULL;
  atoll_device_params dp;
  p.probe_seconds = 0.2;
  atoll_device_params_init(&dp);
  dp.threads = 1;
  assert_int_equal(atoll_device_open("cpu", &dp, &device), ATOLL_OK);
  assert_int_equal(atoll_topo_discover(world, &p, &t), ATOLL_OK);
  atoll_digest before = atoll_topo_digest(t);
  gemms = 0;
  assert_int_equal(atoll_topo_probe(world, &p, device, t), ATOLL_OK);
  assert_true(atoll_digest_equal(before, atoll_topo_digest(t)));
  assert_int_equal(gemms, 0);
  atoll_topo_destroy(&t);
  atoll_device_close(&device);
}

int main(int argc, char **argv) {
  if (atoll_mpi_init(&argc, &argv) != ATOLL_OK || atoll_comm_create(MPI_COMM_WORLD, "world", NULL, &world) != ATOLL_OK)
    return 1;
  rank = atoll_comm_rank(world);
  atoll_device_register_probe(&fake);
  const struct CMUnitTest tests[] = {cmocka_unit_test(rates_and_links), cmocka_unit_test(declared_values_stay)};
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  if (failed)
    MPI_Abort(MPI_COMM_WORLD, 1);
  atoll_comm_destroy(&world);
  MPI_Finalize();
  return 0;
}
