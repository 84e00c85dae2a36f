/* cluster.yaml in a folder with one node file, as topo.path reads it. */
#include <unistd.h>

#include "atoll/file.h"
#include "atoll/island.h"
#include "fuzz.h"

static char folder[128];

static void leave(void) { (void)atoll_file_remove_tree(folder); }

static void put(const char *name, const void *data, size_t bytes) {
  char path[256];
  FUZZ_CHECK(atoll_path_join(path, sizeof path, folder, name) == ATOLL_OK);
  FILE *f = fopen(path, "wb");
  FUZZ_CHECK(f && fwrite(data, 1, bytes, f) == bytes);
  FUZZ_CHECK(fclose(f) == 0);
}

static void enter(void) {
  char *xml = NULL;
  size_t n = 0;
  snprintf(folder, sizeof folder, "%s/atoll-fuzz-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
  FUZZ_CHECK(mkdtemp(folder));
  atexit(leave);
  FUZZ_CHECK(atoll_file_read(ATOLL_SOURCE_DIR "/inputs/clusters/mixed-2x2/n0.xml", &xml, &n) == ATOLL_OK);
  put("n0.xml", xml, n);
  free(xml);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  atoll_topo_params p;
  atoll_island_params ip;
  atoll_topo *topo = NULL;
  atoll_islands *islands = NULL;
  if (!folder[0])
    enter();
  put("cluster.yaml", data, bytes);
  atoll_topo_params_init(&p);
  p.probe = 0;
  snprintf(p.path, sizeof p.path, "%s", folder);
  atoll_err err = atoll_topo_discover(NULL, &p, &topo);
  if (err != ATOLL_OK) {
    fuzz_refused(err);
    FUZZ_CHECK(!topo);
    return 0;
  }
  atoll_island_params_init(&ip);
  err = atoll_islands_group(topo, &ip, &islands);
  if (err != ATOLL_OK)
    fuzz_refused(err);
  atoll_islands_destroy(&islands);
  atoll_topo_destroy(&topo);
  return 0;
}
