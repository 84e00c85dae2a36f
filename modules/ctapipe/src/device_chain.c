/* Chains on a device of a plug-in: where things lie in its memory, and what is put on which queue.
 *
 * Each layer's weights and input lie in its owner's symmetric segment, where the layer before stores the input, with a
 * flag for each tile and one for each chunk of rows. Two schedules:
 *
 *   tiles   one launch a rank, of all layers; its blocks take tiles of the rank's own layers, then of others', and wait
 *           for the tiles they read inside the loop over k
 *   chunks  a queue a layer, and a launch for each chunk of rows, by the tile kernel or by the vendor's library, whose
 *           kernels know no flags: the queue waits for the chunk's flag before the launch and sets the next layer's
 *           after it (stream memory operations). One chunk is the sequential way.
 *
 * Backward is a launch of four jobs: dy through the second layer turned and the slope of the first one's activation,
 * that through the first layer turned, and the gradients of both weights, in f32 from zero, which their owners add to
 * the caller's on the host. The sequential way launches the jobs one after the other, each on its owner.
 *
 * The host waits with a bound. Who gives up sets the word that ends the waits of its kernels, and its own chunk flags,
 * so that its queues run dry; the numbers are lost and the chain refuses further use, as on the host. */
#include "atoll/ctapipe_device.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/bf16.h"
#include "atoll/clock.h"
#include "atoll/plugin.h"
#include "chain_impl.h"

enum { CHUNKS_MOST = 64, GROUP = 8 };

struct device_layer {
  int64_t in, out;  /* rounded up to 8; a gate's, and what reads it, to a turn of V and W */
  int64_t products; /* out, of a gate twice that: V's and W's in turns */
  int owner;
  void *input;            /* [rows, in] */
  int64_t ready;          /* columns of a tile of the input */
  uint32_t *tile, *chunk; /* flags of the input; of its chunks of rows */
  uint64_t *claim;
  void *w, *turned; /* [products, in]; [in, products] for backward */
  float *bias;
  float *sums; /* own layers only, as queue and done */
  atoll_queue *queue;
  atoll_event *done;
};

enum { BACK_JOBS = 4 };

/* With backward alone; named as in the chain's `to`. Everything lies with the owner of what it belongs to. */
struct device_back {
  void *before;   /* [rows, products] that the first layer's activation is applied to; NULL: its results do */
  void *dy, *dz;  /* [rows, out], [rows, products] */
  uint32_t *tile; /* flags of dz */
  void *dx;       /* [rows, in] */
  float *dw[2], *db[2];
  uint64_t *claim[BACK_JOBS];
};

struct cta_device {
  const atoll_chain_device *table;
  atoll_device *device;
  atoll_symmetric *symmetric;
  atoll_queue *main, *side; /* side: for what must reach the device while a launch waits */
  atoll_event *done;        /* of main */
  struct device_layer layer[ATOLL_CHAIN_LAYERS];
  struct device_back back;
  void *output;      /* [rows, out] of the last layer */
  uint32_t *gave_up; /* this rank's */
  int blocks;        /* of a launch */
  int claims;
  void *staging;
  atoll_chain_gemm *job; /* of the launches on their way: [layers, CHUNKS_MOST], or those of one for all */
  double seconds;
};

static int64_t round8(int64_t n) { return n > 0 ? (n + 7) / 8 * 8 : 8; }
static int64_t ceiling(int64_t n, int64_t d) { return (n + d - 1) / d; }

/* --- tasks -------------------------------------------------------------------------------------------------------- */

struct launch {
  const atoll_chain_device *table;
  atoll_chain_launch launch;
  int blocks;
};
static atoll_err launch_task(void *args, void *stream) {
  const struct launch *a = args;
  return a->table->tiles(stream, &a->launch, a->blocks);
}

struct product {
  const atoll_chain_device *table;
  atoll_chain_gemm gemm;
  float *sums;
};
static atoll_err library_task(void *args, void *stream) {
  const struct product *a = args;
  return a->table->library(stream, &a->gemm, a->sums);
}

struct word {
  const atoll_chain_device *table;
  uint32_t *flag, value;
};
static atoll_err write_task(void *args, void *stream) {
  struct word *a = args;
  return a->table->write(stream, a->flag, a->value);
}
static atoll_err wait_task(void *args, void *stream) {
  struct word *a = args;
  return a->table->wait(stream, a->flag, a->value);
}

struct resident {
  const atoll_chain_device *table;
  int *blocks, *claims;
};
static atoll_err resident_task(void *args, void *stream) {
  struct resident *a = args;
  (void)stream;
  return a->table->resident(a->blocks, a->claims);
}

/* --- life --------------------------------------------------------------------------------------------------------- */

static const atoll_chain_device *find_table(const char *kind) {
  const atoll_plugin *p;
  const char *path, *why;
  for (int i = 0; atoll_plugin_entry(i, &p, &path, &why); i++) {
    const atoll_chain_device *t = p ? p->chain : NULL;
    if (t && !strcmp(t->device, kind))
      return t;
  }
  return NULL;
}

static int64_t flags_of(const struct cta_device *d, int64_t rows, int64_t columns, int64_t each) {
  return ceiling(rows, d->table->tile_rows) * ceiling(columns, each);
}

static int is_gate(const struct device_layer *a) { return a->products > a->out; }

static void *lay_numbers(struct cta_layout *l, int rank, int64_t n) {
  return cta_lay(l, rank, (size_t)n * sizeof(uint16_t), 256);
}

static void describe_layer(const atoll_chain *c, struct cta_device *d, int layer) {
  struct device_layer *a = &d->layer[layer];
  const atoll_chain_layer *p = &c->params.layer[layer];
  int gate = p->activation == ATOLL_ACTIVATION_SWIGLU;
  a->in = layer > 0 ? a[-1].out : round8(p->in);
  a->out = gate ? ceiling(round8(p->out), ATOLL_CHAIN_GATE) * ATOLL_CHAIN_GATE : round8(p->out);
  a->products = gate ? 2 * a->out : a->out;
  a->ready = layer > 0 && is_gate(a - 1) ? d->table->tile_cols / 2 : d->table->tile_cols;
  a->owner = c->view.step[layer + 1].owner;
}

static void lay_layers(const atoll_chain *c, struct cta_device *d, struct cta_layout *l) {
  size_t line = (size_t)d->table->flag_stride * sizeof(uint32_t);
  int64_t rows = c->params.rows;
  for (int r = 0; r < c->view.ranks; r++) {
    uint32_t *word = cta_lay(l, r, line, 256);
    d->gave_up = r == c->view.rank ? word : d->gave_up;
  }
  for (int i = 0; i < c->params.layers; i++) {
    struct device_layer *a = &d->layer[i];
    describe_layer(c, d, i);
    a->input = lay_numbers(l, a->owner, rows * a->in);
    a->tile = cta_lay(l, a->owner, (size_t)flags_of(d, rows, a->in, a->ready) * line, 256);
    a->chunk = cta_lay(l, a->owner, CHUNKS_MOST * line, 256);
    a->claim = cta_lay(l, a->owner, line, 256);
    a->w = lay_numbers(l, a->owner, a->in * a->products);
    a->bias = cta_lay(l, a->owner, (size_t)a->out * sizeof *a->bias, 256);
    a->turned = c->params.backward ? lay_numbers(l, a->owner, a->in * a->products) : NULL;
  }
  const struct device_layer *last = &d->layer[c->params.layers - 1];
  d->output = lay_numbers(l, last->owner, rows * last->out);
}

static void lay_back(const atoll_chain *c, struct cta_device *d, struct cta_layout *l) {
  const struct device_layer *a = d->layer;
  struct device_back *b = &d->back;
  size_t line = (size_t)d->table->flag_stride * sizeof(uint32_t);
  int64_t rows = c->params.rows;
  if (c->params.layer[0].activation > ATOLL_ACTIVATION_RELU)
    b->before = lay_numbers(l, a[0].owner, rows * a[0].products);
  b->dy = lay_numbers(l, a[1].owner, rows * a[1].out);
  b->dz = lay_numbers(l, a[0].owner, rows * a[0].products);
  b->tile = cta_lay(l, a[0].owner, (size_t)flags_of(d, rows, a[0].out, d->table->tile_cols) * line, 256);
  b->dx = lay_numbers(l, a[0].owner, rows * a[0].in);
  for (int i = 0; i < 2; i++) {
    b->dw[i] = cta_lay(l, a[i].owner, (size_t)(a[i].in * a[i].products) * sizeof *b->dw[i], 256);
    b->db[i] = cta_lay(l, a[i].owner, (size_t)a[i].out * sizeof *b->db[i], 256);
  }
  for (int i = 0; i < BACK_JOBS; i++)
    b->claim[i] = cta_lay(l, a[i % 2 ? 0 : 1].owner, line, 256);
}

static void lay_device(const atoll_chain *c, struct cta_device *d, struct cta_layout *l) {
  lay_layers(c, d, l);
  if (c->params.backward)
    lay_back(c, d, l);
}

/* Elements of the largest thing that is moved between the host and the device. */
static int64_t largest(const atoll_chain *c, const struct cta_device *d) {
  int64_t most = 8;
  for (int i = 0; i < c->params.layers; i++) {
    const struct device_layer *a = &d->layer[i];
    int64_t values = c->params.rows * (a->in > a->out ? a->in : a->out);
    int64_t gradient = c->params.backward ? a->in * a->products : 0;
    most = values > most ? values : most;
    most = gradient > most ? gradient : most;
  }
  return most;
}

/* Local. */
static atoll_err open_own(atoll_chain *c, struct cta_device *d) {
  for (int i = 0; i < c->params.layers; i++) {
    struct device_layer *a = &d->layer[i];
    if (a->owner != c->view.rank)
      continue;
    ATOLL_TRY(atoll_queue_create(d->device, "compute", &a->queue));
    ATOLL_TRY(atoll_event_create(&a->done));
  }
  ATOLL_TRY(atoll_queue_create(d->device, "compute", &d->main));
  ATOLL_TRY(atoll_queue_create(d->device, "copy", &d->side));
  ATOLL_TRY(atoll_event_create(&d->done));
  ATOLL_TRY(atoll_mem_alloc(c->mem, ATOLL_MEM_WORKSPACE, (size_t)largest(c, d) * sizeof(float), &d->staging));
  d->job = calloc((size_t)c->params.layers * CHUNKS_MOST, sizeof *d->job);
  if (!d->job)
    return atoll_fail(ATOLL_NOMEM, "chain: jobs of %d layers", c->params.layers);
  struct resident r = {d->table, &d->blocks, &d->claims};
  return atoll_queue_submit(d->side, resident_task, &r, sizeof r);
}

/* All take tiles of others', or nobody does. */
static atoll_err agree_on_claims(const atoll_chain *c, struct cta_device *d) {
  d->claims &= c->params.claims;
  int rc = MPI_Allreduce(MPI_IN_PLACE, &d->claims, 1, MPI_INT, MPI_MIN, atoll_comm_mpi(c->comm));
  return rc == MPI_SUCCESS ? ATOLL_OK : atoll_fail(ATOLL_IO, "MPI_Allreduce failed with %d", rc);
}

static atoll_err prepare(atoll_chain *c) {
  const char *kind = atoll_device_kind(c->params.device);
  if (c->params.dtype != ATOLL_F32)
    return atoll_fail(ATOLL_UNSUPPORTED, "chain: values of %s for device kind %s, which takes f32 and rounds itself",
                      atoll_dtype_name(c->params.dtype), kind);
  const atoll_chain_device *table = find_table(kind);
  if (!table)
    return atoll_fail(ATOLL_UNSUPPORTED, "chain: no plug-in has kernels for chains on device kind %s", kind);
  c->on_device = calloc(1, sizeof *c->on_device);
  if (!c->on_device)
    return atoll_fail(ATOLL_NOMEM, "chain: %zu bytes", sizeof *c->on_device);
  c->on_device->table = table;
  c->on_device->device = c->params.device;
  return ATOLL_OK;
}

atoll_err cta_device_open(atoll_chain *c) {
  struct cta_layout l = {{0}, NULL};
  ATOLL_TRY_ALL(atoll_comm_mpi(c->comm), prepare(c));
  struct cta_device *d = c->on_device;
  lay_device(c, d, &l);
  c->device_bytes = l.used[c->view.rank];
  /* Not charged to c->mem, which accounts the host's. */
  ATOLL_TRY(atoll_symmetric_create(c->comm, d->device, NULL, ATOLL_MEM_COMM, c->device_bytes, "of a chain on a device",
                                   &d->symmetric));
  l = (struct cta_layout){{0}, d->symmetric};
  lay_device(c, d, &l);
  for (int i = 0; i < c->params.layers; i++) {
    const struct device_layer *a = &d->layer[i];
    if (a->owner == c->view.rank)
      c->weight_bytes += (size_t)(a->in * a->products) * sizeof(uint16_t) * (a->turned ? 2 : 1);
  }
  ATOLL_TRY_ALL(atoll_comm_mpi(c->comm), open_own(c, d));
  return agree_on_claims(c, d);
}

void cta_device_close(atoll_chain *c) {
  struct cta_device *d = c->on_device;
  if (!d)
    return;
  for (int i = 0; i < c->params.layers; i++) {
    struct device_layer *a = &d->layer[i];
    if (a->queue)
      atoll_queue_destroy(&a->queue);
    if (a->done)
      atoll_event_destroy(&a->done);
    atoll_device_free(d->device, a->sums);
  }
  if (d->main)
    atoll_queue_destroy(&d->main);
  if (d->side)
    atoll_queue_destroy(&d->side);
  if (d->done)
    atoll_event_destroy(&d->done);
  atoll_mem_free(c->mem, &d->staging);
  atoll_symmetric_destroy(&d->symmetric);
  free(d->job);
  free(d);
  c->on_device = NULL;
}

const char *cta_device_transport(const atoll_chain *c) { return atoll_symmetric_transport(c->on_device->symmetric); }
double cta_device_seconds(const atoll_chain *c) { return c->on_device->seconds; }

/* --- weights ------------------------------------------------------------------------------------------------------ */

/* Where output o of V (which = 0) or W stands among a layer's products. */
static int64_t place_of(const struct device_layer *a, int which, int64_t o) {
  return is_gate(a) ? (o / ATOLL_CHAIN_GATE * 2 + which) * ATOLL_CHAIN_GATE + o % ATOLL_CHAIN_GATE : o;
}

static atoll_err move(struct cta_device *d, void *to, const void *from, size_t bytes) {
  ATOLL_TRY(atoll_queue_copy(d->main, to, from, bytes));
  return atoll_queue_sync(d->main);
}

/* One matrix of a layer to its own places in `to`, [products, in] or turned; what lies outside of it is zero. */
static atoll_err put_matrix(atoll_chain *c, int layer, int which, const float *w, int64_t in_stride, int64_t out_stride,
                            void *to, int turned, uint16_t *room) {
  struct cta_device *d = c->on_device;
  const struct device_layer *a = &d->layer[layer];
  const atoll_chain_layer *p = &c->params.layer[layer];
  size_t bytes = (size_t)(a->in * a->products) * sizeof *room;
  if (is_gate(a))
    ATOLL_TRY(move(d, room, to, bytes)); /* the other's */
  for (int64_t o = 0; o < a->out; o++)
    for (int64_t i = 0; i < a->in; i++) {
      int64_t at = place_of(a, which, o);
      room[turned ? i * a->products + at : at * a->in + i] =
          o < p->out && i < p->in ? atoll_bf16_of(w[i * in_stride + o * out_stride]) : 0;
    }
  return move(d, to, room, bytes);
}

atoll_err cta_device_set_layer(atoll_chain *c, int layer, int which, const float *w, int64_t in_stride,
                               int64_t out_stride, const float *bias) {
  struct cta_device *d = c->on_device;
  const struct device_layer *a = &d->layer[layer];
  const atoll_chain_layer *p = &c->params.layer[layer];
  uint16_t *room = calloc((size_t)(a->in * a->products), sizeof *room);
  float *b = calloc((size_t)a->out, sizeof *b);
  atoll_err err = room && b ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "chain: layer %d in bf16", layer);
  if (err == ATOLL_OK)
    err = put_matrix(c, layer, which, w, in_stride, out_stride, a->w, 0, room);
  if (err == ATOLL_OK && a->turned)
    err = put_matrix(c, layer, which, w, in_stride, out_stride, a->turned, 1, room);
  for (int64_t o = 0; o < p->out && err == ATOLL_OK; o++)
    b[o] = bias && p->bias ? bias[o] : 0;
  if (err == ATOLL_OK)
    err = move(d, a->bias, b, (size_t)a->out * sizeof *b);
  free(room);
  free(b);
  return err;
}

/* --- one run ------------------------------------------------------------------------------------------------------ */

/* x [rows, n] of the caller to the owner's matrix [rows, width]; what lies outside is zero. */
static atoll_err upload(atoll_chain *c, int owner, void *to, int64_t width, const float *x, int64_t n) {
  uint16_t *room = c->on_device->staging;
  int64_t rows = c->view.rows;
  if (owner != c->view.rank)
    return ATOLL_OK;
  for (int64_t r = 0; r < rows; r++)
    for (int64_t i = 0; i < width; i++)
      room[r * width + i] = i < n ? atoll_bf16_of(x[r * n + i]) : 0;
  return move(c->on_device, to, room, (size_t)(rows * width) * sizeof *room);
}

/* And back: y [rows, n]. */
static atoll_err download(atoll_chain *c, int owner, const void *from, int64_t width, float *y, int64_t n) {
  const uint16_t *got = c->on_device->staging;
  int64_t rows = c->view.rows;
  if (owner != c->view.rank)
    return ATOLL_OK;
  ATOLL_TRY(move(c->on_device, c->on_device->staging, from, (size_t)(rows * width) * sizeof *got));
  for (int64_t r = 0; r < rows; r++)
    for (int64_t o = 0; o < n; o++)
      y[r * n + o] = atoll_bf16_float(got[r * width + o]);
  return ATOLL_OK;
}

static atoll_chain_launch launch_of(const atoll_chain *c, const atoll_chain_gemm *job, int jobs, int64_t chunk) {
  const struct cta_device *d = c->on_device;
  return (atoll_chain_launch){.job = job,
                              .jobs = jobs,
                              .products = jobs,
                              .epoch = c->view.epoch,
                              .turn = c->view.epoch * CHUNKS_MOST + (uint32_t)chunk,
                              .gave_up = d->gave_up,
                              .claims = d->claims,
                              .group = GROUP};
}

/* Rows [r0, r1) of a layer, whose input is there. */
static atoll_chain_gemm gemm_of(const atoll_chain *c, int layer, int64_t r0, int64_t r1) {
  const struct cta_device *d = c->on_device;
  const struct device_layer *a = &d->layer[layer];
  int last = layer + 1 == c->params.layers;
  uint16_t *to = last ? d->output : a[1].input, *before = layer == 0 ? d->back.before : NULL;
  return (atoll_chain_gemm){.a = (const uint16_t *)a->input + r0 * a->in,
                            .b = a->w,
                            .c = to + r0 * a->out,
                            .bias = c->params.layer[layer].bias ? a->bias : NULL,
                            .before = before ? before + r0 * a->products : NULL,
                            .m = (int)(r1 - r0),
                            .n = (int)a->products,
                            .k = (int)a->in,
                            .activation = c->params.layer[layer].activation,
                            .from = -1,
                            .own = a->owner == c->view.rank,
                            .claim = a->claim};
}

static atoll_err put_launch(const atoll_chain *c, atoll_queue *queue, const atoll_chain_launch *l) {
  struct launch a = {c->on_device->table, *l, c->on_device->blocks};
  return atoll_queue_submit(queue, launch_task, &a, sizeof a);
}

static atoll_err put_word(const atoll_chain *c, atoll_queue *queue, atoll_task task, uint32_t *flag) {
  struct word w = {c->on_device->table, flag, c->view.epoch};
  return atoll_queue_submit(queue, task, &w, sizeof w);
}

static atoll_err put_tiles(atoll_chain *c) {
  struct cta_device *d = c->on_device;
  atoll_chain_launch l = launch_of(c, d->job, c->params.layers, 0);
  for (int i = 0; i < l.jobs; i++) {
    d->job[i] = gemm_of(c, i, 0, c->view.rows);
    d->job[i].from = i - 1;
    d->job[i].ready_in = i > 0 ? d->layer[i].tile : NULL;
    d->job[i].ready_columns = (int)d->layer[i].ready;
    d->job[i].ready_out = i + 1 < l.jobs ? d->layer[i + 1].tile : NULL;
  }
  return put_launch(c, d->main, &l);
}

static atoll_err put_chunk(const atoll_chain *c, const struct device_layer *a, const atoll_chain_gemm *g, int64_t i,
                           float *sums) {
  const struct product p = {c->on_device->table, *g, sums};
  if (sums)
    return atoll_queue_submit(a->queue, library_task, &p, sizeof p);
  const atoll_chain_launch l = launch_of(c, g, 1, i);
  return put_launch(c, a->queue, &l);
}

static atoll_err put_chunks(atoll_chain *c, int layer, int64_t chunks, int library) {
  struct cta_device *d = c->on_device;
  struct device_layer *a = &d->layer[layer];
  int64_t stride = d->table->flag_stride, rows = c->view.rows;
  size_t sums = (size_t)(c->params.rows * a->products) * sizeof *a->sums;
  if (library && !a->sums)
    ATOLL_TRY(atoll_device_alloc(d->device, sums, (void **)&a->sums));
  for (int64_t i = 0; i < chunks; i++) {
    int64_t r0 = rows * i / chunks;
    atoll_chain_gemm *g = &d->job[layer * CHUNKS_MOST + i];
    *g = gemm_of(c, layer, r0, rows * (i + 1) / chunks);
    if (layer > 0)
      ATOLL_TRY(put_word(c, a->queue, wait_task, a->chunk + i * stride));
    ATOLL_TRY(put_chunk(c, a, g, i, library ? a->sums + r0 * a->products : NULL));
    if (layer + 1 < c->params.layers)
      ATOLL_TRY(put_word(c, a->queue, write_task, a[1].chunk + i * stride));
  }
  return atoll_queue_record(a->queue, a->done);
}

static atoll_err put_layers(atoll_chain *c, atoll_chain_way way, int64_t chunks) {
  if (way == ATOLL_CHAIN_CTA)
    return put_tiles(c);
  for (int i = 0; i < c->params.layers; i++)
    if (c->on_device->layer[i].owner == c->view.rank)
      ATOLL_TRY(put_chunks(c, i, chunks, way == ATOLL_CHAIN_BLAS_CHUNKS));
  return ATOLL_OK;
}

/* --- waiting ------------------------------------------------------------------------------------------------------ */

/* Number of the first flag that is behind the epoch, -1 when none is. */
static int64_t first_behind(const atoll_chain *c, const uint32_t *flag, int64_t n) {
  struct cta_device *d = c->on_device;
  size_t stride = (size_t)d->table->flag_stride;
  uint32_t *copy = malloc((size_t)n * stride * sizeof *copy + 1);
  int64_t found = -1;
  if (copy && atoll_queue_copy(d->side, copy, flag, (size_t)n * stride * sizeof *copy) == ATOLL_OK &&
      atoll_queue_sync(d->side) == ATOLL_OK)
    for (int64_t i = 0; i < n && found < 0; i++)
      found = (int32_t)(copy[(size_t)i * stride] - c->view.epoch) < 0 ? i : -1;
  free(copy);
  return found;
}

/* What a layer waits for: so many chunks of the layer before, its tiles, or backward those of the layer behind. */
enum { TILES = 0, TILES_BACK = -1 };

/* Adds to text what `layer` lacks; 0: nothing. */
static int say_missing(const atoll_chain *c, int chunks, int layer, char *text, size_t n) {
  const struct cta_device *d = c->on_device;
  const struct device_layer *a = &d->layer[layer];
  int back = chunks == TILES_BACK, from = back ? layer + 1 : layer - 1;
  int64_t width = back ? a->out : a->in, each = back ? d->table->tile_cols : a->ready, missing;
  if (a->owner != c->view.rank || from < 0 || from >= c->params.layers)
    return 0;
  missing = chunks > 0 ? first_behind(c, a->chunk, chunks)
                       : first_behind(c, back ? d->back.tile : a->tile, flags_of(d, c->view.rows, width, each));
  if (missing < 0)
    return 0;
  if (chunks > 0)
    snprintf(text, n, " layer %d, which lacks chunk %" PRId64 " of layer %d of rank %d", layer, missing, from,
             d->layer[from].owner);
  else
    snprintf(text, n, " layer %d, which lacks tile %" PRId64 " of panel %" PRId64 " of layer %d of rank %d", layer,
             missing % ceiling(width, each), missing / ceiling(width, each), from, d->layer[from].owner);
  return 1;
}

/* The own kernels' and queues' waits end, whatever they wait for. */
static void let_go(atoll_chain *c) {
  struct cta_device *d = c->on_device;
  static const uint32_t one = 1;
  (void)atoll_queue_copy(d->side, d->gave_up, &one, sizeof one);
  for (int i = 0; i < c->params.layers; i++)
    for (int64_t k = 0; k < CHUNKS_MOST && d->layer[i].owner == c->view.rank; k++)
      (void)put_word(c, d->side, write_task, d->layer[i].chunk + k * d->table->flag_stride);
  (void)atoll_queue_sync(d->side);
  (void)atoll_queue_sync(d->main);
  for (int i = 0; i < c->params.layers; i++)
    if (d->layer[i].owner == c->view.rank)
      (void)atoll_queue_sync(d->layer[i].queue);
}

static atoll_err wait_queue(atoll_chain *c, atoll_queue *queue, atoll_event *done, int chunks) {
  struct cta_view *v = &c->view;
  char report[sizeof v->abort->text];
  double since = atoll_clock_now();
  while (!atoll_event_done(done)) {
    (void)sched_yield();
    ATOLL_TRY(cta_check_others(v));
    if (atoll_clock_now() - since < v->timeout)
      continue;
    int at = snprintf(report, sizeof report, "rank %d waited %g s on its device for", v->rank, v->timeout), layer = 0;
    while (layer < c->params.layers && !say_missing(c, chunks, layer, report + at, sizeof report - (size_t)at))
      layer++;
    at = (int)strlen(report);
    snprintf(report + at, sizeof report - (size_t)at, "%s in epoch %" PRIu32,
             layer < c->params.layers ? "" : " what it was given", v->epoch);
    return cta_give_up(v, ATOLL_TIMEOUT, report);
  }
  return atoll_queue_sync(queue);
}

static atoll_err wait_layers(atoll_chain *c, int chunks) {
  struct cta_device *d = c->on_device;
  for (int i = 0; i < c->params.layers; i++)
    if (d->layer[i].owner == c->view.rank)
      ATOLL_TRY(wait_queue(c, d->layer[i].queue, d->layer[i].done, chunks));
  return ATOLL_OK;
}

static atoll_err wait_main(atoll_chain *c, int tiles) {
  struct cta_device *d = c->on_device;
  ATOLL_TRY(atoll_queue_record(d->main, d->done));
  return wait_queue(c, d->main, d->done, tiles);
}

/* An error of this rank's device ends the run for everybody. */
static atoll_err tell_others(atoll_chain *c, atoll_err err) {
  char report[sizeof c->view.abort->text];
  if (err == ATOLL_OK)
    return err;
  snprintf(report, sizeof report, "%s", atoll_err_message());
  let_go(c);
  if (err == ATOLL_TIMEOUT || err == ATOLL_PEER_LOST) {
    atoll_err_set_message(report);
    return err;
  }
  return cta_give_up(&c->view, err, report);
}

static int can_run(atoll_chain_way way) {
  return way == ATOLL_CHAIN_SEQUENTIAL || way == ATOLL_CHAIN_MICROBATCH || way == ATOLL_CHAIN_CTA ||
         way == ATOLL_CHAIN_BLAS_CHUNKS;
}

atoll_err cta_device_run(atoll_chain *c, atoll_chain_way way, int64_t chunks, const float *x, const float **y) {
  struct cta_view *v = &c->view;
  struct cta_device *d = c->on_device;
  int last = c->params.layers - 1;
  const struct device_layer *a = d->layer;
  if (!can_run(way))
    return atoll_fail(ATOLL_UNSUPPORTED,
                      "chains on device kind %s run sequential, microbatch, blas_chunks or cta, not %s",
                      d->table->device, atoll_chain_way_name(way));
  chunks = way == ATOLL_CHAIN_SEQUENTIAL ? 1 : cta_least(chunks, CHUNKS_MOST);
  chunks = cta_least(chunks, v->rows > 0 ? v->rows : 1);
  ATOLL_TRY(tell_others(c, upload(c, a->owner, a->input, a->in, x, c->params.layer[0].in)));
  ATOLL_TRY(cta_meet(v)); /* nobody reads the inputs of the run before any more */
  double begin = atoll_clock_now();
  atoll_err err = v->rows > 0 ? put_layers(c, way, chunks) : ATOLL_OK;
  if (err == ATOLL_OK && v->rows > 0)
    err = way == ATOLL_CHAIN_CTA ? wait_main(c, TILES) : wait_layers(c, (int)chunks);
  d->seconds = atoll_clock_now() - begin;
  ATOLL_TRY(tell_others(c, err));
  ATOLL_TRY(cta_meet(v)); /* others have made tiles of this rank's layers */
  err = download(c, a[last].owner, d->output, a[last].out, v->output, c->params.layer[last].out);
  ATOLL_TRY(tell_others(c, err));
  *y = v->output;
  return cta_meet(v);
}

/* --- backward ----------------------------------------------------------------------------------------------------- */

/* Of dz, that a tile of the products before its slope makes. */
static int dz_columns(const struct cta_device *d) { return d->table->tile_cols * (is_gate(&d->layer[0]) ? 2 : 1); }

/* Products 0 and 1: dy to dz, dz to dx. */
static atoll_chain_gemm turned_job(const atoll_chain *c, int job) {
  const struct cta_device *d = c->on_device;
  const struct device_back *b = &d->back;
  const struct device_layer *a = &d->layer[1 - job];
  atoll_chain_gemm g = {.a = job ? b->dz : b->dy,
                        .b = a->turned,
                        .c = job ? b->dx : b->dz,
                        .m = (int)c->view.rows,
                        .n = (int)a->in,
                        .k = (int)a->products,
                        .from = job - 1,
                        .own = a->owner == c->view.rank,
                        .ready_in = job ? b->tile : NULL,
                        .ready_columns = dz_columns(d),
                        .ready_out = job ? NULL : b->tile,
                        .claim = b->claim[job]};
  if (!job) {
    g.slope = c->params.layer[0].activation;
    g.at = b->before ? b->before : d->layer[1].input;
  }
  return g;
}

/* Jobs 2 and 3: gradients of the second layer's weights, and the first one's. */
static atoll_chain_gemm weight_job(const atoll_chain *c, int job) {
  const struct cta_device *d = c->on_device;
  const struct device_back *b = &d->back;
  int layer = 3 - job;
  const struct device_layer *a = &d->layer[layer];
  return (atoll_chain_gemm){.weight = 1,
                            .a = layer ? b->dy : b->dz,
                            .b = a->input,
                            .c = b->dw[layer],
                            .column = c->params.layer[layer].bias ? b->db[layer] : NULL,
                            .m = (int)a->products,
                            .n = (int)a->in,
                            .k = (int)c->view.rows,
                            .from = layer ? -1 : 0,
                            .own = a->owner == c->view.rank,
                            .ready_in = layer ? NULL : b->tile,
                            .ready_columns = dz_columns(d),
                            .claim = b->claim[job]};
}

static atoll_err backward_together(atoll_chain *c) {
  atoll_chain_gemm *job = c->on_device->job;
  atoll_chain_launch l = launch_of(c, job, BACK_JOBS, 0);
  l.products = 2;
  for (int j = 0; j < BACK_JOBS; j++)
    job[j] = j < l.products ? turned_job(c, j) : weight_job(c, j);
  ATOLL_TRY(tell_others(c, put_launch(c, c->on_device->main, &l)));
  ATOLL_TRY(tell_others(c, wait_main(c, TILES_BACK)));
  return cta_meet(&c->view);
}

static atoll_err backward_in_turn(atoll_chain *c) {
  for (int j = 0; j < BACK_JOBS; j++) {
    atoll_chain_gemm *job = c->on_device->job;
    atoll_chain_launch l = launch_of(c, job, 1, 0);
    *job = j < 2 ? turned_job(c, j) : weight_job(c, j);
    job->ready_in = NULL;
    job->from = -1;
    if (job->own) {
      ATOLL_TRY(tell_others(c, put_launch(c, c->on_device->main, &l)));
      ATOLL_TRY(tell_others(c, wait_main(c, TILES_BACK)));
    }
    ATOLL_TRY(cta_meet(&c->view));
  }
  return ATOLL_OK;
}

/* to [out, in] += this rank's gradients of V (which = 0) or W. */
static atoll_err add_matrix(atoll_chain *c, int layer, int which, float *to) {
  struct cta_device *d = c->on_device;
  const struct device_layer *a = &d->layer[layer];
  const atoll_chain_layer *p = &c->params.layer[layer];
  const float *got = d->staging;
  ATOLL_TRY(move(d, d->staging, d->back.dw[layer], (size_t)(a->products * a->in) * sizeof *got));
  for (int64_t o = 0; o < p->out; o++)
    for (int64_t i = 0; i < p->in; i++)
      to[o * p->in + i] += got[place_of(a, which, o) * a->in + i];
  return ATOLL_OK;
}

static atoll_err add_bias(atoll_chain *c, int layer, float *to) {
  struct cta_device *d = c->on_device;
  const float *got = d->staging;
  ATOLL_TRY(move(d, d->staging, d->back.db[layer], (size_t)d->layer[layer].out * sizeof *got));
  for (int64_t o = 0; o < c->params.layer[layer].out; o++)
    to[o] += got[o];
  return ATOLL_OK;
}

static atoll_err add_gradients(atoll_chain *c, const atoll_chain_gradients *to) {
  for (int i = 0; i < 2; i++) {
    const struct device_layer *a = &c->on_device->layer[i];
    if (a->owner != c->view.rank)
      continue;
    ATOLL_TRY(add_matrix(c, i, 1, to->dw[i]));
    if (is_gate(a))
      ATOLL_TRY(add_matrix(c, i, 0, to->dgate));
    if (c->params.layer[i].bias)
      ATOLL_TRY(add_bias(c, i, to->db[i]));
  }
  return ATOLL_OK;
}

atoll_err cta_device_backward(atoll_chain *c, atoll_chain_way way, const float *dy, const atoll_chain_gradients *to) {
  struct cta_view *v = &c->view;
  struct cta_device *d = c->on_device;
  const struct device_layer *a = d->layer;
  ATOLL_TRY(tell_others(c, upload(c, a[1].owner, d->back.dy, a[1].out, dy, c->params.layer[1].out)));
  ATOLL_TRY(cta_meet(v)); /* nobody reads dx of the call before any more, and places are ready */
  if (v->rows > 0) {
    ATOLL_TRY(way == ATOLL_CHAIN_CTA ? backward_together(c) : backward_in_turn(c));
    ATOLL_TRY(tell_others(c, download(c, a->owner, d->back.dx, a->in, c->dx, c->params.layer[0].in)));
    ATOLL_TRY(tell_others(c, add_gradients(c, to)));
  }
  return cta_meet(v);
}
