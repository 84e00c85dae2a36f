/* Recorded machines are read as the answers beside them say (data/expected.txt). */
#include "topo_test.h"

static void answers_hold(void **state) {
  (void)state;
  char line[512];
  int files = 0;
  FILE *f = fopen(DATA "expected.txt", "r");
  assert_non_null(f);
  while (fgets(line, sizeof line, f)) {
    char file[128], model[128], path[1024];
    int sockets, numa, cores, threads, gpus, nics, mib;
    if (line[0] == '#' || sscanf(line, "%127s %d %d %d %d %d %d %d %127[^\n]", file, &sockets, &numa, &cores, &threads,
                                 &gpus, &nics, &mib, model) != 9)
      continue;
    snprintf(path, sizeof path, DATA "%s", file);
    atoll_topo *t = load_topo(path, NULL);
    const atoll_topo_node *n = &t->node[0];
    int found = 0;
    for (int i = 0; i < t->devices; i++)
      found += t->device[i].kind == ATOLL_TOPO_GPU;
    if (n->sockets != sockets || n->numa_nodes != numa || n->cores != cores || n->threads != threads || found != gpus ||
        n->nics != nics || n->memory >> 20 != mib || strcmp(t->device[0].model, model) != 0)
      fail_msg("%s: found %d %d %d %d %d %d %lld %s", file, n->sockets, n->numa_nodes, n->cores, n->threads, found,
               n->nics, (long long)(n->memory >> 20), t->device[0].model);
    atoll_topo_destroy(&t);
    files++;
  }
  fclose(f);
  assert_int_equal(files, 7);
}

static void gpus_are_known_by_pci_and_place(void **state) {
  (void)state;
  atoll_topo *t = load_topo(DATA "power8gpudistances.xml", NULL);
  static const char *const pci[] = {"0002:01:00.0", "0003:01:00.0", "000a:01:00.0", "000b:01:00.0"};
  assert_int_equal(t->devices, 4);
  for (int i = 0; i < 4; i++) {
    assert_string_equal(t->device[i].pci, pci[i]);
    assert_int_equal(t->device[i].numa, i / 2);
    assert_true(t->device[i].memory == (int64_t)16671616 * 1024);
    assert_string_equal(t->device[i].memory_limit, "device");
    assert_string_equal(t->device[i].cores, i < 2 ? "0-1,8-9,16-17,24-25" : "80-81,88-89,96-97,104-105");
  }
  atoll_topo_destroy(&t);
}

static void cores_instead_of_gpus_when_asked(void **state) {
  (void)state;
  atoll_topo_params p = params_of(DATA "power8gpudistances.xml", NULL);
  atoll_topo *t = NULL;
  p.device = 1;
  p.ranks_per_node = 4;
  assert_int_equal(atoll_topo_discover(NULL, &p, &t), ATOLL_OK);
  assert_int_equal(t->devices, 4);
  for (int i = 0; i < 4; i++) {
    assert_int_equal(t->device[i].kind, ATOLL_TOPO_CPU);
    assert_int_equal(t->device[i].ncores, 2);
    assert_int_equal(t->device[i].numa, i / 2);
    assert_true(t->device[i].memory == t->node[0].memory / 4);
  }
  atoll_topo_destroy(&t);
  p = params_of(DATA "fakecpukinds.xml", NULL);
  p.device = 2;
  assert_int_equal(atoll_topo_discover(NULL, &p, &t), ATOLL_UNAVAILABLE);
  assert_non_null(strstr(atoll_err_message(), "has no GPU"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(answers_hold), cmocka_unit_test(gpus_are_known_by_pci_and_place),
                                     cmocka_unit_test(cores_instead_of_gpus_when_asked)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
