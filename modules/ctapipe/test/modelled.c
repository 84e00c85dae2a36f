/* The modelled time of a chain: by hand for small ones, no less than the ideal and no more than the sequential time,
 * and the same scheduler as a run: claims make up for unequal layers, micro-batches do not. */
#include "chain_test.h"

static atoll_comm *comm;
static atoll_mem *mem;

/* Of the sequential time. */
static double modelled(int64_t rows, int layers, const int64_t *width, int claims, atoll_chain_way way, int64_t panel,
                       int64_t chunks) {
  atoll_chain_params p;
  atoll_chain *c = NULL;
  const atoll_chain_cut cut = {panel, chunks};
  double t = 0;
  atoll_chain_params_init(&p);
  p.rows = rows;
  p.layers = layers;
  p.claims = claims;
  for (int l = 0; l < layers; l++)
    p.layer[l] = (atoll_chain_layer){width[l], width[l + 1], ATOLL_ACTIVATION_NONE, 0};
  CHECK_OK(atoll_chain_create(comm, mem, &p, &c));
  CHECK_OK(atoll_chain_model(c, way, &cut, rows, 8, &t));
  CHECK(atoll_chain_model(c, ATOLL_CHAIN_ROW_SPLIT, &cut, rows, 8, &t) == ATOLL_UNSUPPORTED);
  atoll_chain_destroy(&c);
  return t / 8;
}

static int is(double a, double b) { return fabs(a - b) < 1e-9; }

int main(int argc, char **argv) {
  check_begin(&argc, &argv);
  CHECK(check_size == 2);
  CHECK_OK(atoll_comm_create(MPI_COMM_WORLD, "world", NULL, &comm));
  CHECK_OK(atoll_mem_create(0, 0, &mem));
  static const int64_t equal[] = {256, 256, 256}, second[] = {256, 256, 1024}, four[] = {256, 256, 256, 256, 256};
  for (int claims = 0; claims < 2; claims++) {
    /* Two panels of one tile each: the second layer's first waits for one tile, its second ends after three of four.
     * With claims each rank takes one of the first layer, and nobody waits. */
    CHECK(is(modelled(32, 2, equal, claims, ATOLL_CHAIN_CTA, 16, 0), claims ? 0.5 : 3.0 / 4));
    CHECK(is(modelled(64, 2, equal, claims, ATOLL_CHAIN_CTA, 16, 0), claims ? 0.5 : 5.0 / 8));
    CHECK(is(modelled(64, 2, equal, claims, ATOLL_CHAIN_MICROBATCH, 16, 4), 5.0 / 8));
    CHECK(is(modelled(64, 2, equal, claims, ATOLL_CHAIN_MICROBATCH, 16, 1), 1));
    CHECK(is(modelled(64, 2, equal, claims, ATOLL_CHAIN_MICROBATCH, 16, 2), 3.0 / 4));
  }
  /* The second layer is four times the first: its owner alone needs four fifths, and a fill before. */
  CHECK(is(modelled(256, 2, second, 0, ATOLL_CHAIN_CTA, 16, 0), (1 + 4 * 16) / 80.0));
  CHECK(is(modelled(256, 2, second, 0, ATOLL_CHAIN_MICROBATCH, 16, 16), (1 + 4 * 16) / 80.0));
  double shared = modelled(256, 2, second, 1, ATOLL_CHAIN_CTA, 16, 0);
  CHECK(shared >= 0.5 && shared < 0.53);
  double chain = modelled(256, 4, four, 1, ATOLL_CHAIN_CTA, 16, 0);
  CHECK(chain >= 0.5 && chain < 0.55);
  atoll_mem_destroy(&mem, NULL);
  atoll_comm_destroy(&comm);
  return check_end();
}
