/* What one would do instead of pipelining tiles, with the same products. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "chain_impl.h"

/* [begin, end) of n that falls to a rank, in whole units. */
static struct cta_share share_of(const struct cta_view *v, int64_t n, int64_t unit) {
  struct cta_share s = cta_panels_of((n + unit - 1) / unit, v->rank, v->ranks);
  return (struct cta_share){cta_least(n, s.begin * unit), cta_least(n, s.end * unit)};
}

struct cta_share cta_panels_of(int64_t panels, int rank, int ranks) {
  return (struct cta_share){panels * rank / ranks, panels * (rank + 1) / ranks};
}

static atoll_err row_split(struct cta_view *v) {
  struct cta_share s = share_of(v, v->panels, 1);
  return cta_run_alone(v, s.begin, s.end);
}

int cta_goes_back(const struct atoll_chain *c, atoll_chain_way way) {
  if (way == ATOLL_CHAIN_SEQUENTIAL || way == ATOLL_CHAIN_CTA)
    return 1;
  return !cta_is_on_device(c) && (way == ATOLL_CHAIN_ROW_SPLIT || way == ATOLL_CHAIN_COLUMN_SHARED);
}

/* Those that split forward have rows split here, and then tiles of the weights' gradients, of which each sums over all
 * rows. */
atoll_err cta_run_back(struct atoll_chain *c, atoll_chain_way way) {
  struct cta_view *b = &c->back;
  if (way == ATOLL_CHAIN_CTA)
    return cta_run_pipelined(b);
  if (way == ATOLL_CHAIN_SEQUENTIAL) {
    if (b->rank > 0)
      return ATOLL_OK;
    ATOLL_TRY(cta_run_alone(b, 0, b->panels));
    return cta_run_weights(b, 0, 1);
  }
  ATOLL_TRY(row_split(b));
  ATOLL_TRY(cta_meet(b));
  return cta_run_weights(b, b->rank, b->ranks);
}

/* Every rank copies its share of x for all. */
static atoll_err copy_shared(struct cta_view *v) {
  struct cta_share s = share_of(v, v->panels, 1);
  for (int64_t p = s.begin; p < s.end; p++)
    for (int64_t t = 0; t < v->step[0].nt; t++)
      ATOLL_TRY(cta_tile(v, 0, p, t, 0));
  return cta_meet(v);
}

/* This rank's columns of tile t, all panels of a group. */
static atoll_err columns(struct cta_view *v, int step, int64_t group, int64_t t, struct cta_share mine) {
  const struct cta_step *s = &v->step[step];
  int64_t c0 = mine.begin > t * CTA_TILE ? mine.begin - t * CTA_TILE : 0;
  int64_t c1 = cta_least(mine.end - t * CTA_TILE, cta_tile_cols(s->out, t));
  for (int64_t p = group; p < v->panels && p < group + v->group && c0 < c1; p++) {
    float *c = s->tiles ? cta_tile_at(v, step, p, t) : v->output + p * v->panel * s->out + t * CTA_TILE;
    ATOLL_TRY(cta_product(v, step, p, t, c0, c1, 0, s->ks, c + c0, s->tiles ? CTA_TILE : s->out, 0));
  }
  return ATOLL_OK;
}

static atoll_err column_shared(struct cta_view *v) {
  ATOLL_TRY(copy_shared(v));
  for (int step = 1; step < v->steps; step++) {
    struct cta_share mine = share_of(v, v->step[step].out, v->micro->cols);
    for (int64_t g = 0; g < v->panels; g += v->group)
      for (int64_t t = 0; t < v->step[step].nt; t++)
        ATOLL_TRY(columns(v, step, g, t, mine));
    if (step + 1 < v->steps)
      ATOLL_TRY(cta_meet(v));
  }
  return ATOLL_OK;
}

/* First layer: this rank's tiles of columns, for all rows. Nobody else reads them. */
static atoll_err tensor_columns(struct cta_view *v, struct cta_share tiles) {
  ATOLL_TRY(copy_shared(v));
  for (int64_t g = 0; g < v->panels; g += v->group)
    for (int64_t t = tiles.begin; t < tiles.end; t++)
      for (int64_t p = g; p < v->panels && p < g + v->group; p++)
        ATOLL_TRY(cta_tile(v, 1, p, t, 0));
  return ATOLL_OK;
}

/* Second layer: sums over this rank's tiles of k for panels [p0, p1), into its own partial. */
static atoll_err tensor_rows(struct atoll_chain *c, struct cta_share tiles, int64_t p0, int64_t p1) {
  struct cta_view *v = &c->view;
  const struct cta_step *s = &v->step[2];
  for (int64_t p = p0; p < p1; p++) {
    float *part = c->partial[v->rank] + p * v->panel * s->out;
    if (tiles.begin == tiles.end)
      memset(part, 0, (size_t)(cta_panel_rows(v, p) * s->out) * sizeof *part);
    for (int64_t t = 0; t < s->nt && tiles.begin < tiles.end; t++)
      ATOLL_TRY(
          cta_product(v, 2, p, t, 0, cta_tile_cols(s->out, t), tiles.begin, tiles.end, part + t * CTA_TILE, s->out, 0));
  }
  return ATOLL_OK;
}

static atoll_err check_tensor(const struct atoll_chain *c) {
  const struct cta_view *v = &c->view;
  if (v->rounds)
    return atoll_fail(ATOLL_UNSUPPORTED, "the tensor-parallel ways are for chains of f32");
  if (v->steps != 3 || v->step[2].activation != ATOLL_ACTIVATION_NONE)
    return atoll_fail(ATOLL_UNSUPPORTED,
                      "the tensor-parallel ways split two layers, the second without activation; this chain has %d%s",
                      v->steps - 1, v->steps == 3 ? ", the second with activation" : "");
  return ATOLL_OK;
}

static atoll_err tp_allreduce(struct atoll_chain *c, const float **y) {
  struct cta_view *v = &c->view;
  struct cta_share tiles = share_of(v, v->step[1].nt, 1);
  int64_t count = v->rows * v->step[2].out;
  if (count > INT32_MAX)
    return atoll_fail(ATOLL_UNSUPPORTED, "MPI_Allreduce of %" PRId64 " elements", count);
  ATOLL_TRY(tensor_columns(v, tiles));
  ATOLL_TRY(tensor_rows(c, tiles, 0, v->panels));
  *y = c->partial[v->rank];
  int rc = MPI_Allreduce(MPI_IN_PLACE, c->partial[v->rank], (int)count, MPI_FLOAT, MPI_SUM, atoll_comm_mpi(c->comm));
  return rc == MPI_SUCCESS ? ATOLL_OK : atoll_fail(ATOLL_IO, "MPI_Allreduce failed with %d", rc);
}

static cta_line *there(const struct atoll_chain *c, int owner, int from, int64_t panel) {
  return &c->there[owner][from * (c->params.rows / CTA_PANEL_MIN + 1) + panel];
}

static atoll_err add_parts(struct atoll_chain *c, int64_t p) {
  struct cta_view *v = &c->view;
  int64_t at = p * v->panel * v->step[2].out, n = cta_panel_rows(v, p) * v->step[2].out;
  for (int r = 0; r < v->ranks; r++) {
    struct cta_wait w = {0};
    const float *part = c->partial[r] + at;
    while (r != v->rank && !cta_reached(there(c, v->rank, r, p), v->epoch))
      ATOLL_TRY(cta_wait_step(v, &w, "sums of tile", 2, p, 0, r));
    if (r == 0)
      memcpy(v->output + at, part, (size_t)n * sizeof *part);
    for (int64_t i = 0; r > 0 && i < n; i++)
      v->output[at + i] += part[i];
  }
  return ATOLL_OK;
}

/* The others' panels first, so that theirs are on their way while each works on its own. Sums in order of rank. */
static atoll_err tp_flags(struct atoll_chain *c) {
  struct cta_view *v = &c->view;
  struct cta_share tiles = share_of(v, v->step[1].nt, 1), own = share_of(v, v->panels, 1);
  ATOLL_TRY(tensor_columns(v, tiles));
  for (int i = 1; i < v->ranks; i++) {
    int r = (v->rank + i) % v->ranks;
    struct cta_share theirs = cta_panels_of(v->panels, r, v->ranks);
    for (int64_t p = theirs.begin; p < theirs.end; p++) {
      ATOLL_TRY(tensor_rows(c, tiles, p, p + 1));
      cta_set(there(c, r, v->rank, p), v->epoch);
    }
  }
  ATOLL_TRY(tensor_rows(c, tiles, own.begin, own.end));
  for (int64_t p = own.begin; p < own.end; p++)
    ATOLL_TRY(add_parts(c, p));
  return ATOLL_OK;
}

/* --- micro-batching ----------------------------------------------------------------------------------------------- */

struct stage {
  int first, last; /* steps [first, last) */
  int64_t chunks;
  MPI_Request *in, *out;
};

static struct cta_share chunk_of(const struct cta_view *v, const struct stage *s, int64_t i) {
  return (struct cta_share){v->panels * i / s->chunks, v->panels * (i + 1) / s->chunks};
}

/* Posts the transfer of a chunk of the tiles that step `step` makes. */
static atoll_err move_chunk(struct atoll_chain *c, int step, struct cta_share chunk, int peer, int tag, float *base,
                            int send, MPI_Request *request) {
  struct cta_view *v = &c->view;
  int64_t tile = v->panel * CTA_TILE, count = (chunk.end - chunk.begin) * v->step[step].nt * tile;
  float *at = base + chunk.begin * v->step[step].nt * tile;
  if (count > INT32_MAX)
    return atoll_fail(ATOLL_UNSUPPORTED, "a micro-batch of %" PRId64 " elements", count);
  int rc = send ? MPI_Isend(at, (int)count, MPI_FLOAT, peer, tag, atoll_comm_mpi(c->comm), request)
                : MPI_Irecv(at, (int)count, MPI_FLOAT, peer, tag, atoll_comm_mpi(c->comm), request);
  return rc == MPI_SUCCESS ? ATOLL_OK : atoll_fail(ATOLL_IO, "micro-batch %d: MPI failed with %d", tag, rc);
}

static atoll_err run_stage(struct atoll_chain *c, struct stage *s) {
  struct cta_view *v = &c->view;
  float *next = v->step[s->last - 1].tiles; /* NULL in the last stage */
  atoll_err err = ATOLL_OK;
  for (int64_t i = 0; i < s->chunks && s->first > 0 && err == ATOLL_OK; i++)
    err = move_chunk(c, s->first - 1, chunk_of(v, s, i), v->step[s->first - 1].owner, (int)i,
                     v->step[s->first - 1].tiles, 0, &s->in[i]);
  if (next)
    v->step[s->last - 1].tiles = c->send;
  for (int64_t i = 0; i < s->chunks && err == ATOLL_OK; i++) {
    struct cta_share chunk = chunk_of(v, s, i);
    if (s->first > 0)
      (void)MPI_Wait(&s->in[i], MPI_STATUS_IGNORE);
    for (int64_t g = chunk.begin; g < chunk.end; g += v->group)
      for (int step = s->first; step < s->last; step++)
        for (int64_t t = 0; t < v->step[step].nt; t++)
          for (int64_t p = g; p < chunk.end && p < g + v->group && err == ATOLL_OK; p++)
            err = cta_tile(v, step, p, t, 0);
    if (next && err == ATOLL_OK)
      err = move_chunk(c, s->last - 1, chunk, v->step[s->last].owner, (int)i, c->send, 1, &s->out[i]);
  }
  if (next) {
    (void)MPI_Waitall((int)s->chunks, s->out, MPI_STATUSES_IGNORE);
    v->step[s->last - 1].tiles = next;
  }
  return err;
}

static atoll_err make_send(struct atoll_chain *c, int step) {
  if (c->send || !c->view.step[step].tiles)
    return ATOLL_OK;
  return atoll_mem_calloc(c->mem, ATOLL_MEM_COMM, cta_tile_bytes(c, c->view.step[step].nt), (void **)&c->send);
}

static atoll_err microbatch(struct atoll_chain *c, int64_t chunks) {
  struct cta_view *v = &c->view;
  struct stage s = {v->steps, 0, chunks < v->panels ? chunks : v->panels, NULL, NULL};
  for (int i = 0; i < v->steps; i++)
    if (v->step[i].owner == v->rank) {
      s.first = i < s.first ? i : s.first;
      s.last = i + 1;
    }
  if (s.last == 0 || s.chunks == 0)
    return ATOLL_OK;
  ATOLL_TRY(make_send(c, s.last - 1));
  s.in = malloc((size_t)s.chunks * sizeof *s.in);
  s.out = malloc((size_t)s.chunks * sizeof *s.out);
  for (int64_t i = 0; s.in && s.out && i < s.chunks; i++)
    s.in[i] = s.out[i] = MPI_REQUEST_NULL;
  atoll_err err =
      s.in && s.out ? run_stage(c, &s) : atoll_fail(ATOLL_NOMEM, "requests of %" PRId64 " micro-batches", s.chunks);
  free(s.in);
  free(s.out);
  return err;
}

/* Sharded, the two ways below that divide y by rows end without a meeting: what a rank's rows need is there. A run that
 * follows begins with one. */
atoll_err cta_run_way(struct atoll_chain *c, atoll_chain_way way, int64_t chunks, int sharded, const float **y) {
  struct cta_view *v = &c->view;
  *y = v->output;
  switch (way) {
  case ATOLL_CHAIN_SEQUENTIAL:
    ATOLL_TRY(v->rank == 0 ? cta_run_alone(v, 0, v->panels) : ATOLL_OK);
    break;
  case ATOLL_CHAIN_MICROBATCH:
    ATOLL_TRY(microbatch(c, chunks));
    break;
  case ATOLL_CHAIN_ROW_SPLIT:
    ATOLL_TRY(row_split(v));
    break;
  case ATOLL_CHAIN_COLUMN_SHARED:
    ATOLL_TRY(column_shared(v));
    break;
  case ATOLL_CHAIN_TP_ALLREDUCE:
    ATOLL_TRY(check_tensor(c));
    ATOLL_TRY(tp_allreduce(c, y));
    break;
  case ATOLL_CHAIN_TP_FLAGS:
    ATOLL_TRY(check_tensor(c));
    ATOLL_TRY(tp_flags(c));
    break;
  case ATOLL_CHAIN_CTA:
    ATOLL_TRY(cta_run_pipelined(v));
    break;
  case ATOLL_CHAIN_BLAS_CHUNKS:
    return atoll_fail(ATOLL_UNSUPPORTED, "way blas_chunks is for chains on a device");
  default:
    return atoll_fail(ATOLL_USAGE, "way %d of running a chain", (int)way);
  }
  c->apart = sharded && (way == ATOLL_CHAIN_ROW_SPLIT || way == ATOLL_CHAIN_TP_FLAGS);
  return c->apart ? ATOLL_OK : cta_meet(v);
}
