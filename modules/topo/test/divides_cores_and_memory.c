/* Cores are divided evenly and near, memory by the smallest limit, GPUs by locality; ranks bound apart keep their own
 * cores. */
#include <hwloc.h>

#include "topo_test.h"
#include "topo_impl.h"

static void free_places(topo_places *p) { topo_places_free(p); }

/* n ranks on one host with the given affinities (NULL: all cores). */
static topo_places places(int n, const char *const *affinity, int64_t rlimit) {
  topo_places p = {.ranks = n};
  size_t m = (size_t)n;
  p.name = calloc(m, sizeof *p.name);
  p.alias = calloc(m, sizeof *p.alias);
  p.boot = calloc(m, sizeof *p.boot);
  p.affinity = calloc(m, sizeof *p.affinity);
  p.gpu_ready = calloc(m, sizeof *p.gpu_ready);
  p.rlimit = calloc(m, sizeof *p.rlimit);
  p.group = calloc(m, sizeof *p.group);
  p.leader = calloc(m, sizeof *p.leader);
  for (int i = 0; i < n; i++) {
    strcpy(p.name[i], "h");
    snprintf(p.affinity[i], sizeof p.affinity[i], "%s", affinity ? affinity[i] : "0-63");
    p.rlimit[i] = rlimit;
  }
  topo_places_group(&p);
  return p;
}

static atoll_topo_hosts host_of_text(const char *text, int read_here) {
  atoll_topo_hosts hosts = {0};
  atoll_topo_host *h;
  assert_int_equal(topo_hosts_add(&hosts, &h), ATOLL_OK);
  if (topo_synthetic_node(text, "test", "h", h) != ATOLL_OK)
    fail_msg("%s", atoll_err_message());
  h->read_here = read_here;
  return hosts;
}

static atoll_topo *divide(atoll_topo_hosts *hosts, topo_places *p, int device) {
  atoll_topo_params params = params_of(NULL, NULL);
  atoll_topo *t = NULL;
  params.device = device;
  int *host_of = calloc((size_t)p->ranks, sizeof *host_of);
  if (topo_divide(&params, "test", hosts, p, host_of, &t) != ATOLL_OK)
    fail_msg("%s", atoll_err_message());
  free(host_of);
  return t;
}

static void check_cores(const char *text, int ranks, const char *const *affinity, const char *const *want) {
  atoll_topo_hosts hosts = host_of_text(text, 1);
  topo_places p = places(ranks, affinity, 0);
  atoll_topo *t = divide(&hosts, &p, 1);
  assert_int_equal(t->devices, ranks);
  for (int i = 0; i < ranks; i++) {
    assert_string_equal(t->device[i].cores, want[i]);
    assert_int_equal(t->device[i].rank, i);
  }
  atoll_topo_destroy(&t);
  free_places(&p);
  topo_hosts_free(&hosts);
}

static void evenly_and_near(void **state) {
  (void)state;
  check_cores("pack:2 numa:1 core:4", 2, NULL, (const char *[]){"0-3", "4-7"});
  check_cores("pack:2 numa:1 core:4", 4, NULL, (const char *[]){"0-1", "2-3", "4-5", "6-7"});
  check_cores("pack:2 numa:1 core:3", 4, NULL, (const char *[]){"0", "1-2", "3", "4-5"}); /* never across NUMA nodes */
  check_cores("pack:2 numa:1 core:3", 3, NULL, (const char *[]){"0-1", "2-3", "4-5"});
  check_cores("core:7", 2, NULL, (const char *[]){"0-2", "3-6"});
  check_cores("pack:1 core:2 pu:2", 2, NULL, (const char *[]){"0-1", "2-3"}); /* both hardware threads of a core */
  check_cores("core:2", 3, NULL, (const char *[]){"0", "0", "1"});
}

static void bound_ranks_keep_their_own(void **state) {
  (void)state;
  check_cores("core:8", 2, (const char *[]){"6-7", "0-3"}, (const char *[]){"6-7", "0-3"});
  /* hardware threads of one core given to two ranks */
  check_cores("core:4 pu:2", 2, (const char *[]){"0", "1"}, (const char *[]){"0", "1"});
  /* overlapping sets are no division: all of them are cut evenly */
  check_cores("core:8", 2, (const char *[]){"0-7", "0-7"}, (const char *[]){"0-3", "4-7"});
  check_cores("core:8", 2, (const char *[]){"0-5", "4-7"}, (const char *[]){"0-3", "4-7"});
}

static void memory_is_the_smallest_limit(void **state) {
  (void)state;
  const int64_t GiB = 1 << 30;
  static const struct {
    int64_t declared, cgroup, slurm, rlimit, want;
    const char *who;
  } table[] = {
      {0, 0, 0, 0, 32, "machine"},     {0, 32, 0, 0, 16, "cgroup"},    {0, 32, 16, 0, 8, "slurm"},
      {0, 32, 16, 5, 5, "rlimit"},     {0, 0, 0, 20, 20, "rlimit"},    {8, 0, 0, 0, 4, "declared"},
      {0, 640, 640, 0, 32, "machine"}, {128, 0, 0, 0, 64, "declared"},
  };
  for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
    atoll_topo_hosts hosts = host_of_text("core:4 memory=64GiB", 1);
    hosts.host[0].declared_memory = table[i].declared * GiB;
    hosts.host[0].cgroup = table[i].cgroup * GiB;
    hosts.host[0].slurm = table[i].slurm * GiB;
    topo_places p = places(2, NULL, table[i].rlimit * GiB);
    atoll_topo *t = divide(&hosts, &p, 1);
    for (int k = 0; k < 2; k++) {
      if (t->device[k].memory != table[i].want * GiB || strcmp(t->device[k].memory_limit, table[i].who) != 0)
        fail_msg("row %zu: found %lld by %s", i, (long long)(t->device[k].memory / GiB), t->device[k].memory_limit);
    }
    atoll_topo_destroy(&t);
    free_places(&p);
    topo_hosts_free(&hosts);
  }
}

static void forbidden_cores_are_not_used(void **state) {
  (void)state;
  atoll_topo_hosts hosts = host_of_text("core:6", 1);
  hosts.host[0].core[0].allowed = hosts.host[0].core[3].allowed = 0; /* a cpuset that skips CPU 0 */
  topo_places p = places(2, NULL, 0);
  atoll_topo *t = divide(&hosts, &p, 1);
  assert_string_equal(t->device[0].cores, "1-2");
  assert_string_equal(t->device[1].cores, "4-5");
  assert_int_equal(t->node[0].threads, 6);
  assert_int_equal(t->node[0].allowed_threads, 4);
  atoll_topo_destroy(&t);
  /* Where NUMA nodes lost unequal numbers of cores, parts still do not cross them. */
  atoll_topo_hosts two = host_of_text("pack:2 numa:1 core:4", 1);
  two.host[0].core[0].allowed = two.host[0].core[1].allowed = 0;
  t = divide(&two, &p, 1);
  assert_string_equal(t->device[0].cores, "2-3");
  assert_string_equal(t->device[1].cores, "4-7");
  atoll_topo_destroy(&t);
  topo_hosts_free(&two);
  for (int i = 0; i < 6; i++)
    hosts.host[0].core[i].allowed = 0;
  atoll_topo_params params = params_of(NULL, NULL);
  int host_of[2] = {0, 0};
  assert_int_equal(topo_divide(&params, "test", &hosts, &p, host_of, &t), ATOLL_UNAVAILABLE);
  assert_non_null(strstr(atoll_err_message(), "none of its 6 cores is allowed"));
  free_places(&p);
  topo_hosts_free(&hosts);
}

static void gpus_go_to_the_nearest_rank(void **state) {
  (void)state;
  atoll_topo_hosts hosts = host_of_text("pack:2 numa:1 core:4 gpus=4", 1);
  for (int i = 0; i < 4; i++)
    strcpy(hosts.host[0].gpu[i].near_cores, i < 2 ? "0-3" : "4-7");
  topo_places p = places(2, (const char *[]){"4-7", "0-3"}, 0);
  p.gpu_ready[0] = p.gpu_ready[1] = 1;
  atoll_topo *t = divide(&hosts, &p, 0);
  assert_int_equal(t->devices, 4); /* by PCI address, with or without a rank */
  assert_int_equal(t->device[0].rank, 1);
  assert_int_equal(t->device[1].rank, -1);
  assert_int_equal(t->device[2].rank, 0);
  assert_int_equal(t->device[3].rank, -1);
  assert_int_equal(atoll_topo_device_of(t, 0), 2);
  assert_int_equal(atoll_topo_device_of(t, 7), -1);
  atoll_topo_destroy(&t);
  /* no runtime: cores, and a note */
  p.gpu_ready[0] = p.gpu_ready[1] = 0;
  t = divide(&hosts, &p, 0);
  assert_int_equal(t->device[0].kind, ATOLL_TOPO_CPU);
  assert_non_null(strstr(t->note, "4 GPUs are seen, but no device backend drives them"));
  atoll_topo_destroy(&t);
  free_places(&p);
  /* more ranks than GPUs: the rest gets cores, unless GPUs were demanded */
  hosts.host[0].ngpus = 1;
  p = places(2, NULL, 0);
  p.gpu_ready[0] = p.gpu_ready[1] = 1;
  t = divide(&hosts, &p, 0);
  assert_int_equal(t->devices, 2);
  assert_int_equal(t->device[0].kind, ATOLL_TOPO_GPU);
  assert_int_equal(t->device[1].kind, ATOLL_TOPO_CPU);
  assert_int_equal(t->device[1].rank, 1);
  atoll_topo_destroy(&t);
  atoll_topo_params params = params_of(NULL, NULL);
  int two[2] = {0, 0};
  params.device = 2;
  assert_int_equal(topo_divide(&params, "test", &hosts, &p, two, &t), ATOLL_UNAVAILABLE);
  assert_non_null(strstr(atoll_err_message(), "2 ranks on node h, which has 1 GPUs"));
  free_places(&p);
  topo_hosts_free(&hosts);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(evenly_and_near), cmocka_unit_test(bound_ranks_keep_their_own),
                                     cmocka_unit_test(memory_is_the_smallest_limit),
                                     cmocka_unit_test(forbidden_cores_are_not_used),
                                     cmocka_unit_test(gpus_go_to_the_nearest_rank)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
