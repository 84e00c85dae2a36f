/* Machines recorded by newer hwloc, kept outside the tree: skipped where they are not. */
#include "topo_test.h"

static const struct {
  const char *file;
  int devices, gpus, cores, threads;
  const char *model;
} table[] = {
    {"git-nvidiaDGX2.xml", 16, 16, 4, 4, "NVIDIA Tesla V100-SXM3-32GB-H"},
    {"git-master-AMD-19h-Zen4-2xEpyc-9654.xml", 2, 0, 192, 384, "AMD EPYC 9654 96-Core Processor"},
    {"git-master-Intel-RaptorLake-Corei7-1370P.xml", 1, 0, 14, 20, "13th Gen Intel(R) Core(TM) i7-1370P, 2 core kinds"},
    {"git-master-Intel-ArrowLake-CoreUltra5-225U.xml", 1, 0, 12, 14, "Intel(R) Core(TM) Ultra 5 225U, 3 core kinds"},
    {"git-master-nvidia-dgx-gb10.xml", 1, 0, 20, 20, "unnamed CPU revision 1, 2 core kinds"},
};

static char folder[1024];

static void answers_hold(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
    char path[1200];
    snprintf(path, sizeof path, "%s/%s", folder, table[i].file);
    atoll_topo *t = load_topo(path, NULL);
    int gpus = 0;
    for (int k = 0; k < t->devices; k++)
      gpus += t->device[k].kind == ATOLL_TOPO_GPU;
    if (t->devices != table[i].devices || gpus != table[i].gpus || t->node[0].cores != table[i].cores ||
        t->node[0].threads != table[i].threads || strcmp(t->device[0].model, table[i].model) != 0)
      fail_msg("%s: found %d devices, %d GPUs, %d cores, %d threads, %s", table[i].file, t->devices, gpus,
               t->node[0].cores, t->node[0].threads, t->device[0].model);
    atoll_topo_destroy(&t);
  }
}

int main(void) {
  const char *shared = getenv("ATOLL_SHARED");
  snprintf(folder, sizeof folder, "%s/data/topologies", shared ? shared : ATOLL_SOURCE_DIR "/../shared");
  if (!atoll_file_is_dir(folder)) {
    printf("SKIPPED: no %s\n", folder);
    return 77;
  }
  const struct CMUnitTest tests[] = {cmocka_unit_test(answers_hold)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
