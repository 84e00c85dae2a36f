/* The modelled time of a chain: by hand for small ones, no less than the ideal and no more than the sequential time,
 * and the same scheduler as a run: claims make up for unequal layers, micro-batches do not. For two and four ranks. */
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

static void two_ranks(void) {
  static const int64_t equal[] = {256, 256, 256}, second[] = {256, 256, 1024}, four[] = {256, 256, 256, 256, 256},
                       wide[] = {256, 512, 256};
  for (int claims = 0; claims < 2; claims++) {
    /* Two panels of one tile each: the second layer's first waits for one tile, its second ends after three of four.
     * With claims each rank takes one of the first layer, and nobody waits. */
    CHECK(is(modelled(32, 2, equal, claims, ATOLL_CHAIN_CTA, 16, 0), claims ? 0.5 : 3.0 / 4));
    CHECK(is(modelled(64, 2, equal, claims, ATOLL_CHAIN_CTA, 16, 0), claims ? 0.5 : 5.0 / 8));
    CHECK(is(modelled(64, 2, equal, claims, ATOLL_CHAIN_MICROBATCH, 16, 4), 5.0 / 8));
    CHECK(is(modelled(64, 2, equal, claims, ATOLL_CHAIN_MICROBATCH, 16, 1), 1));
    CHECK(is(modelled(64, 2, equal, claims, ATOLL_CHAIN_MICROBATCH, 16, 2), 3.0 / 4));
  }
  /* One panel: the second layer's only tile uses the first of two inputs while the second is made. By rows: 1. */
  CHECK(is(modelled(16, 2, wide, 0, ATOLL_CHAIN_CTA, 16, 0), 3.0 / 4));
  CHECK(is(modelled(16, 2, wide, 0, ATOLL_CHAIN_MICROBATCH, 16, 1), 1));
  /* The second layer is four times the first: its owner alone needs four fifths, and a fill before. */
  CHECK(is(modelled(256, 2, second, 0, ATOLL_CHAIN_CTA, 16, 0), (1 + 4 * 16) / 80.0));
  CHECK(is(modelled(256, 2, second, 0, ATOLL_CHAIN_MICROBATCH, 16, 16), (1 + 4 * 16) / 80.0));
  double shared = modelled(256, 2, second, 1, ATOLL_CHAIN_CTA, 16, 0);
  CHECK(shared >= 0.5 && shared < 0.53);
  double chain = modelled(256, 4, four, 1, ATOLL_CHAIN_CTA, 16, 0);
  CHECK(chain >= 0.5 && chain < 0.55);
}

static void four_ranks(void) {
  static const int64_t square[] = {256, 256, 256, 256, 256, 256, 256, 256, 256}, wide[] = {256, 512, 512, 512, 256};
  /* A layer a rank, 16 panels of a tile each: the last layer ends 3 tiles after the first, of 64. */
  CHECK(is(modelled(256, 4, square, 0, ATOLL_CHAIN_CTA, 16, 0), 19.0 / 64));
  CHECK(is(modelled(256, 4, square, 0, ATOLL_CHAIN_MICROBATCH, 16, 16), 19.0 / 64));
  CHECK(is(modelled(256, 4, square, 0, ATOLL_CHAIN_MICROBATCH, 16, 1), 1));
  /* Two layers a rank, panel by panel. */
  CHECK(is(modelled(256, 8, square, 0, ATOLL_CHAIN_MICROBATCH, 16, 16), 2 * 19.0 / 128));
  /* Claims fill it: no less than a quarter, and less than a fill more. */
  for (int layers = 4; layers <= 8; layers += 4) {
    double t = modelled(256, layers, square, 1, ATOLL_CHAIN_CTA, 16, 0);
    CHECK(t >= 0.25 && t < 19.0 / 64);
  }
  /* One panel, tiles of 1, 2, 2 and 2 units, two to each layer but the last: layer 0's end at 1 and 2; layer 1's first
   * has its second input at 2 and ends at 3, the second at 5; layer 2's at 6 and 8; layer 3's at 9. By rows: 12.
   */
  CHECK(is(modelled(16, 4, wide, 0, ATOLL_CHAIN_CTA, 16, 0), 9.0 / 12));
  CHECK(is(modelled(16, 4, wide, 0, ATOLL_CHAIN_MICROBATCH, 16, 1), 1));
}

int main(int argc, char **argv) {
  check_begin(&argc, &argv);
  CHECK(check_size == 2 || check_size == 4);
  CHECK_OK(atoll_comm_create(MPI_COMM_WORLD, "world", NULL, &comm));
  CHECK_OK(atoll_mem_create(0, 0, &mem));
  if (check_size == 2)
    two_ranks();
  else
    four_ranks();
  atoll_mem_destroy(&mem, NULL);
  atoll_comm_destroy(&comm);
  return check_end();
}
