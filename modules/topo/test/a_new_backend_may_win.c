/* A registered source with the highest willing priority is used, one that refuses says why, and a name is registered
 * once. */
#include "atoll/topo_backend.h"

#include "topo_test.h"

static int willing;

static atoll_err probe(const atoll_topo_params *params, const char **why_not) {
  (void)params;
  *why_not = willing ? NULL : "the inventory does not answer";
  return willing ? ATOLL_OK : ATOLL_UNAVAILABLE;
}

static atoll_err load(const atoll_topo_params *params, const atoll_topo_place *place, atoll_topo_hosts *out) {
  (void)params;
  (void)place;
  out->host = calloc(1, sizeof *out->host);
  out->count = 1;
  atoll_topo_host *h = out->host;
  strcpy(h->name, "inventory-1");
  strcpy(h->model, "Inventory CPU");
  h->sockets = h->numa_nodes = h->core_kinds = h->threads = h->ncores = 1;
  h->memory = 1 << 30;
  h->core = calloc(1, sizeof *h->core);
  h->core->threads = 1;
  h->core->allowed = 1;
  return ATOLL_OK;
}

static const atoll_topo_backend inventory = {.name = "inventory", .priority = 99, .probe = probe, .load = load};

static void highest_willing_wins(void **state) {
  (void)state;
  const char *name, *why;
  atoll_topo_params p = params_of(NULL, NULL);
  assert_int_equal(atoll_topo_backend_register(&inventory), ATOLL_OK);
  assert_int_equal(atoll_topo_backend_register(&inventory), ATOLL_USAGE);
  int i = 0, seen = 0;
  for (; atoll_topo_backend_entry(&p, i, &name, &why); i++)
    if (strcmp(name, "inventory") == 0) {
      seen = 1;
      assert_string_equal(why, "the inventory does not answer");
    }
  assert_true(seen && i == 4);
  atoll_topo *t = load_topo(NULL, NULL);
  assert_string_equal(t->backend, "live");
  atoll_topo_destroy(&t);
  willing = 1;
  t = load_topo(NULL, NULL);
  assert_string_equal(t->backend, "inventory");
  assert_string_equal(t->device[0].model, "Inventory CPU");
  atoll_topo_destroy(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(highest_willing_wins)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
