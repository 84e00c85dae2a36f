/* An MLP of few rows by a team.
 *
 * Pipelined: each layer's columns are tiles, dealt out in shares to the ranks. A rank takes those of its own share,
 * then what is left of others'. Hidden values go through the activation where they are made and into memory that all
 * see, with a flag for each tile; a tile of the second layer begins when all flags are there. All claims of the first
 * layer are taken before a rank looks at the second, by ranks that do nothing else until they are done, so nobody waits
 * for ever. The ranks meet once, at the end: nobody reads hidden values of a call after it, nor claims tiles of it. */
#include "team_impl.h"

#include <string.h>

static atoll_err activate(const struct team_call *c, atoll_queue *q, float *of, float *by, int64_t n) {
  const atoll_kernels *k = c->team->plain;
  if (c->activation == ATOLL_ACTIVATION_SWIGLU)
    return k->swiglu_forward(q, of, by, of, n);
  return (c->activation == ATOLL_ACTIVATION_GELU_ERF ? k->gelu_erf_forward : k->gelu_forward)(q, of, of, n);
}

/* The parts of an MLP as products of their own. */
static struct team_call first_of(const struct team_call *c, int gate, float *to) {
  return (struct team_call){.team = c->team,
                            .x = c->x,
                            .w = gate ? c->gate : c->w,
                            .b = gate ? NULL : c->b,
                            .y = to,
                            .R = c->R,
                            .I = c->I,
                            .O = c->H};
}
static struct team_call second_of(const struct team_call *c) {
  return (struct team_call){
      .team = c->team, .x = c->team->hidden[0], .w = c->w2, .b = c->b2, .y = c->y, .R = c->R, .I = c->H, .O = c->O};
}

/* What the nonlinearity is applied to comes first. */
static atoll_err by_parts(const struct team_call *c, atoll_err (*product)(const struct team_call *)) {
  float **h = c->team->hidden;
  struct team_call part = first_of(c, c->gate != NULL, h[0]);
  ATOLL_TRY(product(&part));
  if (c->gate) {
    part = first_of(c, 0, h[1]);
    ATOLL_TRY(product(&part));
  }
  ATOLL_TRY(activate(c, c->team->queue, h[0], h[1], c->R * c->H));
  part = second_of(c);
  return product(&part);
}

atoll_err team_mlp_alone(const struct team_call *c) { return by_parts(c, team_alone); }
atoll_err team_mlp_shared(const struct team_call *c) { return by_parts(c, team_shared); }

/* --- pipelined ---------------------------------------------------------------------------------------------------- */

/* Columns of a tile of n: whole units, enough of them for each thread to have one. */
static int64_t tile_columns(const atoll_linear_team *t, int64_t n) {
  int64_t units = (n + TEAM_UNIT - 1) / TEAM_UNIT, most = (int64_t)t->view.ranks * TEAM_TILES,
          threads = atoll_device_threads(t->device), each = (units + most - 1) / most;
  return (each > threads ? each : threads) * TEAM_UNIT;
}

static int64_t share_begin(const atoll_linear_team *t, int64_t tiles, int rank) { return tiles * rank / t->view.ranks; }

/* The next tile of a rank's share, or -1. What a tile needs is ordered by flags, not by the claim. */
static int64_t take(const atoll_linear_team *t, int layer, int64_t tiles, int rank) {
  cta_claim *claim = &t->claim[rank][layer];
  int64_t begin = share_begin(t, tiles, rank), size = share_begin(t, tiles, rank + 1) - begin;
  uint64_t word = atomic_load_explicit(&claim->word, memory_order_relaxed), epoch = t->view.epoch;
  for (;;) {
    int64_t taken = word >> 32 == epoch ? (int64_t)(word & UINT32_MAX) : 0;
    if (taken >= size)
      return -1;
    if (atomic_compare_exchange_weak_explicit(&claim->word, &word, epoch << 32 | (uint64_t)(taken + 1),
                                              memory_order_relaxed, memory_order_relaxed))
      return begin + taken;
  }
}

/* to [R, columns] of w's columns from `at` on. */
static atoll_err columns_of(const struct team_call *c, const float *x, const float *w, const float *b, int64_t I,
                            int64_t at, int64_t n, float *to) {
  return c->team->plain->decode->linear(c->team->inner, x, w + at * I, b ? b + at : NULL, to, c->R, I, n);
}

static void place(const float *from, int64_t R, int64_t n, float *to, int64_t ld) {
  for (int64_t r = 0; r < R; r++)
    memcpy(to + r * ld, from + r * n, (size_t)n * sizeof *to);
}

static atoll_err hidden_tile(const struct team_call *c, int64_t tile, int64_t width) {
  atoll_linear_team *t = c->team;
  int64_t at = tile * width, n = cta_least(width, c->H - at);
  ATOLL_TRY(columns_of(c, c->x, c->gate ? c->gate : c->w, c->gate ? NULL : c->b, c->I, at, n, t->hidden[0]));
  if (c->gate)
    ATOLL_TRY(columns_of(c, c->x, c->w, c->b, c->I, at, n, t->hidden[1]));
  ATOLL_TRY(activate(c, t->inner, t->hidden[0], t->hidden[1], c->R * n));
  place(t->hidden[0], c->R, n, t->shared_hidden + at, c->H);
  cta_set(&t->flag[tile], t->view.epoch);
  return ATOLL_OK;
}

static atoll_err wait_hidden(atoll_linear_team *t, int64_t tiles) {
  struct cta_view *v = &t->view;
  for (int64_t i = 0; i < tiles; i++) {
    struct cta_wait w = {0};
    int owner = 0;
    while (share_begin(t, tiles, owner + 1) <= i)
      owner++;
    while (!cta_reached(&t->flag[i], v->epoch))
      ATOLL_TRY(cta_wait_step(v, &w, "tile", 1, 0, i, owner));
  }
  return ATOLL_OK;
}

static atoll_err result_tile(const struct team_call *c, int64_t tile, int64_t width, float *all) {
  atoll_linear_team *t = c->team;
  int64_t at = tile * width, n = cta_least(width, c->O - at);
  ATOLL_TRY(columns_of(c, t->shared_hidden, c->w2, c->b2, c->H, at, n, t->own));
  place(t->own, c->R, n, all + at, c->O);
  return ATOLL_OK;
}

static atoll_err pipelined_task(void *args, void *stream) {
  const struct team_call *c = args;
  atoll_linear_team *t = c->team;
  float *all = t->result[t->parity ^= 1];
  (void)stream;
  t->view.epoch++;
  for (int layer = 0; layer < 2; layer++) {
    int64_t n = layer ? c->O : c->H, width = tile_columns(t, n), tiles = (n + width - 1) / width;
    for (int i = 0; i < t->view.ranks; i++)
      for (int64_t tile; (tile = take(t, layer, tiles, (t->view.rank + i) % t->view.ranks)) >= 0;)
        ATOLL_TRY(layer ? result_tile(c, tile, width, all) : hidden_tile(c, tile, width));
    if (!layer)
      ATOLL_TRY(wait_hidden(t, tiles));
  }
  ATOLL_TRY(cta_meet(&t->view));
  memcpy(c->y, all, (size_t)(c->R * c->O) * sizeof *all);
  return ATOLL_OK;
}

atoll_err team_mlp_pipelined(const struct team_call *c) {
  return atoll_queue_submit(c->team->queue, pipelined_task, c, sizeof *c);
}
