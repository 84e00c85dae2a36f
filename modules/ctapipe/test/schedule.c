/* What the scheduler takes next and where a tile waits, one rank at a time: tiles come in groups of panels that share a
 * pass over the weights, the deepest step first; a tile is taken early only when its inputs are on their way; it waits
 * for each of them inside its loop, where it has used all before, and a gradient of weights likewise panel by panel. */
#include "unit_check.h"

#include "view.h"

enum { K = 600, N = 512, P = 70, PANEL = 32, ROWS = 12 * PANEL + 5, PANELS = 13, GROUP = 8, STEPS = 4 };
enum { TILES_K = 3, TILES_N = 2, FLAGS = PANELS * TILES_K };

static cta_line flags[2][FLAGS];
static cta_claim claims[STEPS];
static cta_abort stop;
static _Alignas(64) float scratch[2 * CTA_TILE * CTA_TILE], tiles[2][PANELS * PANEL * TILES_K * CTA_TILE];
static float output[ROWS * P], w[N * P], packed[N * 128], dw[N * K];

/* A chain K, N, P and the gradient of its first layer's weights, the first layer with rank 0. */
static struct cta_view view_of(int rank, int may_claim) {
  struct cta_view v = {.rank = rank,
                       .ranks = 2,
                       .steps = STEPS,
                       .products = 3,
                       .abort = &stop,
                       .claims = may_claim,
                       .timeout = 0.01,
                       .epoch = 1,
                       .micro = cta_micro_best(),
                       .scratch = scratch};
  v.step[0] = (struct cta_step){.in = K, .out = K, .tiles = tiles[0], .flag = flags[0]};
  v.step[1] = (struct cta_step){.kind = CTA_PRODUCT, .in = K, .out = N, .tiles = tiles[1], .flag = flags[1]};
  v.step[2] = (struct cta_step){.kind = CTA_PRODUCT, .in = N, .out = P, .owner = 1, .w = packed};
  v.step[3] = (struct cta_step){.kind = CTA_WEIGHT, .in = K, .out = N, .left = tiles[0], .right = 1, .dw = {dw}};
  for (int s = 0; s < STEPS; s++) {
    v.step[s].claim = &claims[s];
    v.step[s].ks = cta_tiles(v.step[s].in);
    v.step[s].nt = cta_tiles(v.step[s].out);
  }
  memset(flags, 0, sizeof flags), memset(claims, 0, sizeof claims), memset(&stop, 0, sizeof stop);
  cta_begin(&v, ROWS, PANEL, NULL, output);
  assert_true(v.panels == PANELS);
  return v;
}

/* Takes what comes next; it must be there. */
static struct cta_place take(struct cta_view *v, int *step) {
  struct cta_place at;
  int left;
  assert_true(cta_find(v, &left, step, &at) && left > 0);
  return at;
}

/* By hand: groups of GROUP panels, in a group tile by tile, in a tile panel by panel. */
static struct cta_place grouped(int64_t item, int64_t nt) {
  for (int64_t first = 0, n = 0; first < PANELS; first += GROUP)
    for (int64_t t = 0; t < nt; t++)
      for (int64_t p = first; p < PANELS && p < first + GROUP; p++)
        if (n++ == item)
          return (struct cta_place){p, t};
  fail();
  return (struct cta_place){0};
}

static void tiles_come_in_groups_of_panels(void **state) {
  (void)state;
  struct cta_view v = view_of(0, 1);
  int64_t next[STEPS] = {0};
  for (int64_t i = 0; i < PANELS * (TILES_K + TILES_N + 1) + TILES_K * TILES_N; i++) {
    int step;
    struct cta_place at = take(&v, &step), want;
    int64_t item = next[step]++;
    if (step == 3) /* columns of one tile of the right factor together */
      want = (struct cta_place){item % TILES_K, item / TILES_K};
    else
      want = grouped(item, v.step[step].nt);
    assert_true(at.panel == want.panel && at.tile == want.tile);
    if (i <= 2 * GROUP) /* two passes over the weights of a group, and its first panel's last tile ... */
      assert_int_equal(step, 0);
    if (i == 2 * GROUP + 1) /* ... before the next layer can begin, which does so at once */
      assert_int_equal(step, 1);
    if (v.step[step].flag)
      cta_set(cta_flag_at(&v, step, at.panel, at.tile), v.epoch);
  }
  int left, step;
  struct cta_place at;
  assert_true(!cta_find(&v, &left, &step, &at) && left == 0);
  assert_true(next[0] == PANELS * TILES_K && next[1] == PANELS * TILES_N && next[2] == PANELS && next[3] == 6);
}

/* Both ranks take tiles and finish none. The second layer's first panel needs two of the first layer's, which lie GROUP
 * panels apart. */
static void a_tile_is_taken_early_when_its_inputs_come(void **state) {
  (void)state;
  int step = -1;
  struct cta_view first = view_of(0, 0), second = first;
  second.rank = 1;
  struct cta_place at = take(&second, &step); /* without claims whoever owns a layer above another rank's begins it */
  assert_true(step == 2 && at.panel == 0 && at.tile == 0);
  first = view_of(0, 1);
  second = first;
  second.rank = 1;
  for (int64_t i = 0; i < PANELS * TILES_K; i++) { /* x needs nothing, so it comes first */
    (void)take(i % 2 ? &first : &second, &step);
    assert_int_equal(step, 0);
  }
  for (int64_t i = 0; i <= GROUP; i++) { /* all of x is being copied, so any tile of the first layer may be taken */
    at = take(&second, &step);
    assert_true(step == 1 && at.panel == i % GROUP && at.tile == i / GROUP);
  }
  at = take(&second, &step); /* and now the second layer's first, which is its own */
  assert_true(step == 2 && at.panel == 0);
  at = take(&second, &step); /* but not the next, until there is ... */
  assert_true(step == 1 && at.panel == 1 && at.tile == 1);
  at = take(&second, &step); /* ... that tile */
  assert_true(step == 2 && at.panel == 1);
}

/* The first panel's output is the sum over tiles [0, k1). */
static void check_sums(const struct cta_view *v, int64_t k1) {
  for (int64_t i = 0; i < PANEL; i++)
    for (int64_t j = 0; j < P; j++) {
      double sum = 0;
      for (int64_t k = 0; k < k1; k++)
        for (int64_t q = 0; q < CTA_TILE; q++)
          sum += (double)cta_tile_at(v, 1, 0, k)[i * CTA_TILE + q] * w[(k * CTA_TILE + q) * P + j];
      assert_true(output[i * P + j] > sum - 1e-4 && output[i * P + j] < sum + 1e-4);
    }
}

static void fill(float *at, int64_t n, uint64_t seed) {
  for (int64_t i = 0; i < n; i++)
    at[i] = (float)(test_real(&seed) - 0.5);
}

static void a_product_waits_inside_its_loop(void **state) {
  (void)state;
  struct cta_view v = view_of(1, 0);
  v.steps = v.products; /* forward */
  fill(w, N * P, 1);
  fill(tiles[1], (int64_t)(sizeof tiles[1] / sizeof(float)), 2);
  for (int64_t k = 0; k < TILES_N; k++)
    cta_pack(v.micro, CTA_TILE, P, w + k * CTA_TILE * P, P, 1, packed + cta_weights_at(&v, 2, k, 0, 0, 0));
  assert_true(cta_weights_end(&v, 2) <= (int64_t)(sizeof packed / sizeof *packed));
  cta_set(cta_flag_at(&v, 1, 0, 0), v.epoch);
  assert_refused(ATOLL_TIMEOUT, "rank 1 waited 0.01 s for tile 1 of panel 0 of layer 0 of rank 0 in epoch 1",
                 cta_tile(&v, 2, 0, 0, 1));
  check_sums(&v, 1); /* it has used what was there */
  memset(&stop, 0, sizeof stop);
  cta_set(cta_flag_at(&v, 1, 0, 1), v.epoch);
  assert_ok(cta_tile(&v, 2, 0, 0, 1));
  check_sums(&v, 2);
}

static void a_gradient_waits_panel_by_panel(void **state) {
  (void)state;
  struct cta_view v = view_of(0, 0);
  fill(tiles[0], (int64_t)(sizeof tiles[0] / sizeof(float)), 3);
  fill(tiles[1], (int64_t)(sizeof tiles[1] / sizeof(float)), 4);
  memset(dw, 0, sizeof dw);
  cta_set(cta_flag_at(&v, 1, 0, 1), v.epoch);
  assert_refused(ATOLL_TIMEOUT, "for tile 1 of panel 1 of layer 1 turned of rank 0", cta_tile(&v, 3, 2, 1, 1));
  for (int64_t o = 0; o < CTA_TILE; o++)
    for (int64_t i = 0; i < K - 2 * CTA_TILE; i++) {
      double sum = 0;
      for (int64_t r = 0; r < PANEL; r++)
        sum += (double)cta_tile_at(&v, 1, 0, 1)[r * CTA_TILE + o] * cta_tile_at(&v, 0, 0, 2)[r * CTA_TILE + i];
      float got = dw[(CTA_TILE + o) * K + 2 * CTA_TILE + i];
      assert_true(got > sum - 1e-4 && got < sum + 1e-4);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tiles_come_in_groups_of_panels),
      cmocka_unit_test(a_tile_is_taken_early_when_its_inputs_come),
      cmocka_unit_test(a_product_waits_inside_its_loop),
      cmocka_unit_test(a_gradient_waits_panel_by_panel),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
