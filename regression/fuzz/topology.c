/* Topologies as YAML, and the grouping of whatever they describe. */
#include "atoll/island.h"
#include "fuzz.h"

static atoll_err read_topology(const char *text, size_t bytes, atoll_topo **out) {
  atoll_yaml *root = NULL;
  ATOLL_TRY(atoll_yaml_parse("topology.yaml", text, bytes, &root));
  atoll_err err = atoll_topo_from_yaml(root, out);
  atoll_yaml_destroy(&root);
  return err;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  atoll_topo *topo = NULL, *again = NULL;
  atoll_islands *islands = NULL;
  atoll_yaml_out *out = NULL;
  const char *text;
  atoll_island_params p;
  atoll_err err = read_topology((const char *)data, bytes, &topo);
  if (err != ATOLL_OK) {
    fuzz_refused(err);
    FUZZ_CHECK(!topo);
    return 0;
  }
  FUZZ_CHECK(atoll_yaml_out_create(&out) == ATOLL_OK);
  FUZZ_CHECK(atoll_topo_to_yaml(topo, out) == ATOLL_OK);
  FUZZ_CHECK(atoll_yaml_out_text(out, &text) == ATOLL_OK);
  FUZZ_CHECK(read_topology(text, strlen(text), &again) == ATOLL_OK);
  FUZZ_CHECK(atoll_digest_equal(atoll_topo_digest(topo), atoll_topo_digest(again)));
  atoll_yaml_out_destroy(&out);
  atoll_island_params_init(&p);
  err = atoll_islands_group(topo, &p, &islands);
  if (err != ATOLL_OK)
    fuzz_refused(err);
  atoll_islands_destroy(&islands);
  atoll_topo_destroy(&topo);
  atoll_topo_destroy(&again);
  return 0;
}
