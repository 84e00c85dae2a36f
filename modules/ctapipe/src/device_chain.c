/* Chains on a device of a plug-in: where things lie in its memory, and what is put on which queue.
 *
 * Each layer is on the device of its owner, which has its weights; its input lies in the owner's symmetric segment,
 * where the layer before stores it, with a flag for each tile and one for each chunk of rows. Each layer has a queue of
 * its own, so that layers of one rank overlap like those of two. Two schedules:
 *
 *   tiles   one launch a layer; its blocks wait for the tiles they read, inside the loop over k
 *   chunks  a launch for each chunk of rows, by the tile kernel or by the vendor's library, whose kernels know no
 * flags: the queue waits for the chunk's flag before the launch and sets the next layer's after it (stream memory
 *           operations). One chunk is the sequential way.
 *
 * The host waits with a bound. Who gives up sets the word that ends the waits of its kernels, and its own chunk flags,
 * so that its queues run dry; the numbers are lost and the chain refuses further use, as on the host. */
#include "atoll/ctapipe_device.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/clock.h"
#include "atoll/plugin.h"
#include "chain_impl.h"

enum { CHUNKS_MOST = 64, GROUP = 8 };

struct device_layer {
  int64_t in, out; /* rounded up to 8 */
  int owner;
  void *input;              /* [rows, in] */
  uint32_t *tile, *chunk;   /* flags of the input; of its chunks of rows */
  uint32_t *next, *gave_up; /* in the owner's memory */
  void *w;                  /* [out, in]; w, bias, sums, queue and done: own layers only */
  float *bias, *sums;
  atoll_queue *queue;
  atoll_event *done;
};

struct cta_device {
  const atoll_chain_device *table;
  atoll_device *device;
  atoll_symmetric *symmetric;
  atoll_queue *side; /* for what must reach the device while layers wait */
  struct device_layer layer[ATOLL_CHAIN_LAYERS];
  void *output; /* [rows, out] of the last layer */
  int blocks;   /* of a launch */
  uint16_t *staging;
  double seconds;
};

static int64_t round8(int64_t n) { return n > 0 ? (n + 7) / 8 * 8 : 8; }
static int64_t ceiling(int64_t n, int64_t d) { return (n + d - 1) / d; }

/* --- bf16 --------------------------------------------------------------------------------------------------------- */

static uint16_t bf16_of(float v) {
  uint32_t u;
  memcpy(&u, &v, sizeof u);
  if ((u & 0x7fffffffU) > 0x7f800000U)
    return (uint16_t)(u >> 16 | 0x40); /* NaN stays one */
  return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static float float_of(uint16_t v) {
  uint32_t u = (uint32_t)v << 16;
  float f;
  memcpy(&f, &u, sizeof f);
  return f;
}

/* --- tasks -------------------------------------------------------------------------------------------------------- */

struct launch {
  const atoll_chain_device *table;
  atoll_chain_gemm gemm;
  int blocks; /* 0: the library */
};
static atoll_err launch_task(void *args, void *stream) {
  struct launch *a = args;
  return a->blocks ? a->table->tiles(stream, &a->gemm, a->blocks) : a->table->library(stream, &a->gemm);
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
  int *blocks;
};
static atoll_err resident_task(void *args, void *stream) {
  struct resident *a = args;
  (void)stream;
  return a->table->resident(a->blocks);
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

static int64_t flags_of(const struct cta_device *d, int64_t rows, int64_t columns) {
  return ceiling(rows, d->table->tile_rows) * ceiling(columns, d->table->tile_cols);
}

static void lay_layers(const atoll_chain *c, struct cta_device *d, struct cta_layout *l) {
  size_t line = (size_t)d->table->flag_stride * sizeof(uint32_t);
  for (int i = 0; i < c->params.layers; i++) {
    struct device_layer *a = &d->layer[i];
    a->in = round8(c->params.layer[i].in);
    a->out = round8(c->params.layer[i].out);
    a->owner = c->view.step[i + 1].owner;
    a->input = cta_lay(l, a->owner, (size_t)(c->params.rows * a->in) * sizeof(uint16_t), 256);
    a->tile = cta_lay(l, a->owner, (size_t)flags_of(d, c->params.rows, a->in) * line, 256);
    a->chunk = cta_lay(l, a->owner, CHUNKS_MOST * line, 256);
    a->next = cta_lay(l, a->owner, line, 256);
    a->gave_up = cta_lay(l, a->owner, line, 256);
  }
}

/* Local: what an own layer needs beside its input. */
static atoll_err open_layer(const atoll_chain *c, struct cta_device *d, struct device_layer *a) {
  if (a->owner != c->view.rank)
    return ATOLL_OK;
  ATOLL_TRY(atoll_queue_create(d->device, "compute", &a->queue));
  ATOLL_TRY(atoll_event_create(&a->done));
  ATOLL_TRY(atoll_device_alloc(d->device, (size_t)(a->in * a->out) * sizeof(uint16_t), &a->w));
  return atoll_device_alloc(d->device, (size_t)a->out * sizeof(float), (void **)&a->bias);
}

static atoll_err open_own(atoll_chain *c, struct cta_device *d) {
  int64_t widest = 8, own = 0;
  for (int i = 0; i < c->params.layers; i++) {
    const struct device_layer *a = &d->layer[i];
    widest = a->in > widest ? a->in : a->out > widest ? a->out : widest;
    own += a->owner == c->view.rank;
    ATOLL_TRY(open_layer(c, d, &d->layer[i]));
  }
  ATOLL_TRY(atoll_queue_create(d->device, "copy", &d->side));
  const struct device_layer *last = &d->layer[c->params.layers - 1];
  size_t bytes = (size_t)(c->params.rows * last->out) * sizeof(uint16_t);
  if (last->owner == c->view.rank)
    ATOLL_TRY(atoll_device_alloc(d->device, bytes, &d->output));
  ATOLL_TRY(atoll_mem_alloc(c->mem, ATOLL_MEM_WORKSPACE, (size_t)((c->params.rows + 1) * widest) * sizeof *d->staging,
                            (void **)&d->staging));
  /* All own layers' launches must be on the device at once, as one waits for another. */
  struct resident r = {d->table, &d->blocks};
  ATOLL_TRY(atoll_queue_submit(d->side, resident_task, &r, sizeof r));
  d->blocks = d->blocks / (int)(own > 0 ? own : 1);
  return d->blocks > 0 || own == 0
             ? ATOLL_OK
             : atoll_fail(ATOLL_UNSUPPORTED, "chain: device %s does not hold %" PRId64 " layers' launches at once",
                          d->table->device, own);
}

static atoll_err prepare(atoll_chain *c) {
  const char *kind = atoll_device_kind(c->params.device);
  const atoll_chain_device *table = find_table(kind);
  if (!table)
    return atoll_fail(ATOLL_UNSUPPORTED, "chain: no plug-in has kernels for chains on device kind %s", kind);
  if (c->params.backward)
    return atoll_fail(ATOLL_UNSUPPORTED, "chain: backward runs on the host, not on device kind %s", kind);
  for (int i = 0; i < c->params.layers; i++)
    if (c->params.layer[i].activation == ATOLL_ACTIVATION_SWIGLU)
      return atoll_fail(ATOLL_UNSUPPORTED, "chain: layer %d's SwiGLU runs on the host, not on device kind %s", i, kind);
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
  lay_layers(c, d, &l);
  c->device_bytes = l.used[c->view.rank];
  /* Not charged to c->mem, which accounts the host's. */
  ATOLL_TRY(atoll_symmetric_create(c->comm, d->device, NULL, ATOLL_MEM_COMM, c->device_bytes, "of a chain on a device",
                                   &d->symmetric));
  l = (struct cta_layout){{0}, d->symmetric};
  lay_layers(c, d, &l);
  return atoll_agree(atoll_comm_mpi(c->comm), open_own(c, d));
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
    atoll_device_free(d->device, a->w);
    atoll_device_free(d->device, a->bias);
    atoll_device_free(d->device, a->sums);
  }
  if (d->side)
    atoll_queue_destroy(&d->side);
  atoll_device_free(d->device, d->output);
  atoll_mem_free(c->mem, &d->staging);
  atoll_symmetric_destroy(&d->symmetric);
  free(d);
  c->on_device = NULL;
}

const char *cta_device_transport(const atoll_chain *c) { return atoll_symmetric_transport(c->on_device->symmetric); }
double cta_device_seconds(const atoll_chain *c) { return c->on_device->seconds; }

/* --- weights ------------------------------------------------------------------------------------------------------ */

atoll_err cta_device_set_layer(atoll_chain *c, int layer, const float *w, int64_t in_stride, int64_t out_stride,
                               const float *bias) {
  struct cta_device *d = c->on_device;
  const struct device_layer *a = &d->layer[layer];
  int64_t in = c->params.layer[layer].in, out = c->params.layer[layer].out;
  uint16_t *turned = calloc((size_t)(a->in * a->out), sizeof *turned);
  float *b = calloc((size_t)a->out, sizeof *b);
  atoll_err err = turned && b ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "chain: layer %d in bf16", layer);
  for (int64_t o = 0; o < out && err == ATOLL_OK; o++) {
    for (int64_t i = 0; i < in; i++)
      turned[o * a->in + i] = bf16_of(w[i * in_stride + o * out_stride]);
    b[o] = bias && c->params.layer[layer].bias ? bias[o] : 0;
  }
  if (err == ATOLL_OK)
    err = atoll_queue_copy(a->queue, a->w, turned, (size_t)(a->in * a->out) * sizeof *turned);
  if (err == ATOLL_OK)
    err = atoll_queue_copy(a->queue, a->bias, b, (size_t)a->out * sizeof *b);
  if (err == ATOLL_OK)
    err = atoll_queue_sync(a->queue);
  free(turned);
  free(b);
  return err;
}

/* --- one run ------------------------------------------------------------------------------------------------------ */

static atoll_err upload(atoll_chain *c, const float *x) {
  struct cta_device *d = c->on_device;
  const struct device_layer *a = &d->layer[0];
  int64_t rows = c->view.rows, in = c->params.layer[0].in;
  if (a->owner != c->view.rank)
    return ATOLL_OK;
  for (int64_t r = 0; r < rows; r++)
    for (int64_t i = 0; i < a->in; i++)
      d->staging[r * a->in + i] = i < in ? bf16_of(x[r * in + i]) : 0;
  ATOLL_TRY(atoll_queue_copy(a->queue, a->input, d->staging, (size_t)(rows * a->in) * sizeof *d->staging));
  return atoll_queue_sync(a->queue);
}

static atoll_err download(atoll_chain *c) {
  struct cta_device *d = c->on_device;
  const struct device_layer *a = &d->layer[c->params.layers - 1];
  int64_t rows = c->view.rows, out = c->params.layer[c->params.layers - 1].out;
  if (a->owner != c->view.rank)
    return ATOLL_OK;
  ATOLL_TRY(atoll_queue_copy(a->queue, d->staging, d->output, (size_t)(rows * a->out) * sizeof *d->staging));
  ATOLL_TRY(atoll_queue_sync(a->queue));
  for (int64_t r = 0; r < rows; r++)
    for (int64_t o = 0; o < out; o++)
      c->view.output[r * out + o] = float_of(d->staging[r * a->out + o]);
  return ATOLL_OK;
}

/* Rows [r0, r1) of a layer. */
static atoll_chain_gemm gemm_of(const atoll_chain *c, int layer, int64_t r0, int64_t r1) {
  const struct cta_device *d = c->on_device;
  const struct device_layer *a = &d->layer[layer];
  int last = layer + 1 == c->params.layers;
  uint16_t *to = last ? d->output : a[1].input;
  return (atoll_chain_gemm){.a = (const uint16_t *)a->input + r0 * a->in,
                            .b = a->w,
                            .c = to + r0 * a->out,
                            .bias = a->bias,
                            .m = (int)(r1 - r0),
                            .n = (int)a->out,
                            .k = (int)a->in,
                            .activation = c->params.layer[layer].activation,
                            .epoch = c->view.epoch,
                            .next = a->next,
                            .gave_up = a->gave_up,
                            .group = GROUP,
                            .sums = a->sums ? a->sums + r0 * a->out : NULL};
}

static atoll_err put_launch(const atoll_chain *c, const struct device_layer *a, const atoll_chain_gemm *g, int blocks) {
  struct launch l = {c->on_device->table, *g, blocks};
  ATOLL_TRY(atoll_queue_zero(a->queue, a->next, sizeof *a->next));
  return atoll_queue_submit(a->queue, launch_task, &l, sizeof l);
}

static atoll_err put_word(const atoll_chain *c, atoll_queue *queue, atoll_task task, uint32_t *flag) {
  struct word w = {c->on_device->table, flag, c->view.epoch};
  return atoll_queue_submit(queue, task, &w, sizeof w);
}

static atoll_err put_tiles(atoll_chain *c, int layer) {
  const struct cta_device *d = c->on_device;
  const struct device_layer *a = &d->layer[layer];
  atoll_chain_gemm g = gemm_of(c, layer, 0, c->view.rows);
  g.ready_in = layer > 0 ? a->tile : NULL;
  g.ready_out = layer + 1 < c->params.layers ? a[1].tile : NULL;
  return put_launch(c, a, &g, d->blocks);
}

static atoll_err put_chunks(atoll_chain *c, int layer, int64_t chunks, int library) {
  struct cta_device *d = c->on_device;
  struct device_layer *a = &d->layer[layer];
  int64_t stride = d->table->flag_stride, rows = c->view.rows;
  size_t sums = (size_t)(c->params.rows * a->out) * sizeof *a->sums;
  if (library && !a->sums)
    ATOLL_TRY(atoll_device_alloc(d->device, sums, (void **)&a->sums));
  for (int64_t i = 0; i < chunks; i++) {
    atoll_chain_gemm g = gemm_of(c, layer, rows * i / chunks, rows * (i + 1) / chunks);
    if (layer > 0)
      ATOLL_TRY(put_word(c, a->queue, wait_task, a->chunk + i * stride));
    ATOLL_TRY(put_launch(c, a, &g, library ? 0 : d->blocks));
    if (layer + 1 < c->params.layers)
      ATOLL_TRY(put_word(c, a->queue, write_task, a[1].chunk + i * stride));
  }
  return ATOLL_OK;
}

static atoll_err put_layers(atoll_chain *c, atoll_chain_way way, int64_t chunks) {
  struct cta_device *d = c->on_device;
  for (int i = 0; i < c->params.layers; i++) {
    const struct device_layer *a = &d->layer[i];
    if (a->owner != c->view.rank)
      continue;
    ATOLL_TRY(way == ATOLL_CHAIN_CTA ? put_tiles(c, i) : put_chunks(c, i, chunks, way == ATOLL_CHAIN_BLAS_CHUNKS));
    ATOLL_TRY(atoll_queue_record(a->queue, a->done));
  }
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

/* What layer waits for, in words. */
static void report_of(const atoll_chain *c, atoll_chain_way way, int64_t chunks, int layer, char *text, size_t n) {
  const struct cta_device *d = c->on_device;
  const struct device_layer *a = &d->layer[layer];
  int64_t tiles = ceiling(a->in, d->table->tile_cols), missing = -1;
  int at = snprintf(text, n, "rank %d waited %g s for layer %d on its device", c->view.rank, c->view.timeout, layer);
  if (layer > 0)
    missing = way == ATOLL_CHAIN_CTA ? first_behind(c, a->tile, flags_of(d, c->view.rows, a->in))
                                     : first_behind(c, a->chunk, chunks);
  if (missing >= 0 && way == ATOLL_CHAIN_CTA)
    at += snprintf(text + at, n - (size_t)at, ", which lacks tile %" PRId64 " of panel %" PRId64 " of layer %d",
                   missing % tiles, missing / tiles, layer - 1);
  else if (missing >= 0)
    at += snprintf(text + at, n - (size_t)at, ", which lacks chunk %" PRId64 " of layer %d", missing, layer - 1);
  if (missing >= 0)
    at += snprintf(text + at, n - (size_t)at, " of rank %d", a[-1].owner);
  snprintf(text + at, n - (size_t)at, " in epoch %" PRIu32, c->view.epoch);
}

/* The own kernels' and queues' waits end, whatever they wait for. */
static void let_go(atoll_chain *c) {
  struct cta_device *d = c->on_device;
  static const uint32_t one = 1;
  for (int i = 0; i < c->params.layers; i++) {
    struct device_layer *a = &d->layer[i];
    if (a->owner != c->view.rank)
      continue;
    (void)atoll_queue_copy(d->side, a->gave_up, &one, sizeof one);
    for (int64_t k = 0; k < CHUNKS_MOST; k++)
      (void)put_word(c, d->side, write_task, a->chunk + k * d->table->flag_stride);
  }
  (void)atoll_queue_sync(d->side);
  for (int i = 0; i < c->params.layers; i++)
    if (d->layer[i].owner == c->view.rank)
      (void)atoll_queue_sync(d->layer[i].queue);
}

static atoll_err wait_layer(atoll_chain *c, atoll_chain_way way, int64_t chunks, int layer) {
  struct cta_view *v = &c->view;
  const struct device_layer *a = &c->on_device->layer[layer];
  double since = atoll_clock_now();
  while (!atoll_event_done(a->done)) {
    char report[sizeof v->abort->text];
    (void)sched_yield();
    ATOLL_TRY(cta_check_others(v));
    if (atoll_clock_now() - since < v->timeout)
      continue;
    report_of(c, way, chunks, layer, report, sizeof report);
    return cta_give_up(v, ATOLL_TIMEOUT, report);
  }
  return atoll_queue_sync(a->queue);
}

static atoll_err wait_layers(atoll_chain *c, atoll_chain_way way, int64_t chunks) {
  for (int i = 0; i < c->params.layers; i++)
    if (c->on_device->layer[i].owner == c->view.rank)
      ATOLL_TRY(wait_layer(c, way, chunks, i));
  return ATOLL_OK;
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
  if (!can_run(way))
    return atoll_fail(ATOLL_UNSUPPORTED,
                      "chains on device kind %s run sequential, microbatch, blas_chunks or cta, not %s",
                      c->on_device->table->device, atoll_chain_way_name(way));
  chunks = way == ATOLL_CHAIN_SEQUENTIAL ? 1 : cta_least(chunks, CHUNKS_MOST);
  chunks = cta_least(chunks, v->rows > 0 ? v->rows : 1);
  ATOLL_TRY(tell_others(c, upload(c, x)));
  ATOLL_TRY(cta_meet(v)); /* nobody reads the inputs of the run before any more */
  double begin = atoll_clock_now();
  atoll_err err = v->rows > 0 ? put_layers(c, way, chunks) : ATOLL_OK;
  if (err == ATOLL_OK && v->rows > 0)
    err = wait_layers(c, way, chunks);
  c->on_device->seconds = atoll_clock_now() - begin;
  ATOLL_TRY(tell_others(c, err));
  ATOLL_TRY(tell_others(c, download(c)));
  *y = v->output;
  return cta_meet(v);
}
