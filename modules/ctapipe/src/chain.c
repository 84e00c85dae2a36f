/* The object: who owns what, where it lies in symmetric memory, and one run. */
#include "atoll/ctapipe.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/bf16.h"
#include "chain_impl.h"

const char *atoll_chain_way_name(atoll_chain_way way) {
  static const char *const names[] = {
#define WAY_NAME(name, text) text,
      ATOLL_CHAIN_WAY_LIST(WAY_NAME)
#undef WAY_NAME
  };
  return (unsigned)way < ATOLL_CHAIN_WAYS ? names[way] : "unknown";
}

void atoll_chain_params_init(atoll_chain_params *p) {
  memset(p, 0, sizeof *p);
  p->claims = 1;
  p->timeout = 60;
  p->dtype = ATOLL_F32;
}

static atoll_err check_params(const atoll_chain_params *p, int ranks) {
  if (p->layers < 1 || p->layers > ATOLL_CHAIN_LAYERS || p->rows < 0 || p->rows > INT32_MAX || !(p->timeout > 0))
    return atoll_fail(ATOLL_USAGE, "chain of %d layers (1..%d), %" PRId64 " rows (0..%d), timeout %g s (above 0)",
                      p->layers, ATOLL_CHAIN_LAYERS, p->rows, INT32_MAX, p->timeout);
  if (ranks > CTA_RANKS)
    return atoll_fail(ATOLL_UNSUPPORTED, "chain over %d ranks, at most %d", ranks, CTA_RANKS);
  if (p->backward && (p->layers != 2 || p->layer[1].activation))
    return atoll_fail(ATOLL_UNSUPPORTED,
                      "backward is for two layers, the second without activation; this chain has %d%s", p->layers,
                      p->layers == 2 ? ", the second with activation" : "");
  if (p->dtype != ATOLL_F32 && p->dtype != ATOLL_BF16)
    return atoll_fail(ATOLL_UNSUPPORTED, "chain of %s, expected f32 or bf16", atoll_dtype_name(p->dtype));
  for (int l = 0; l < p->layers; l++) {
    const atoll_chain_layer *a = &p->layer[l];
    if (a->in < 0 || a->out < 0 || a->in > INT32_MAX || a->out > INT32_MAX)
      return atoll_fail(ATOLL_USAGE, "layer %d of a chain is %" PRId64 " x %" PRId64, l, a->in, a->out);
    if (a->activation == ATOLL_ACTIVATION_SWIGLU && a->bias)
      return atoll_fail(ATOLL_UNSUPPORTED, "layer %d of a chain: SwiGLU with a bias", l);
    if (l > 0 && a->in != p->layer[l - 1].out)
      return atoll_fail(ATOLL_USAGE, "layer %d of a chain reads %" PRId64 " columns, layer %d makes %" PRId64, l, a->in,
                        l - 1, p->layer[l - 1].out);
  }
  return ATOLL_OK;
}

/* --- layout ------------------------------------------------------------------------------------------------------- */

void *cta_lay(struct cta_layout *l, int rank, size_t bytes, size_t align) {
  size_t at = (l->used[rank] + align - 1) / align * align;
  l->used[rank] = at + bytes;
  return l->symmetric ? (char *)atoll_symmetric_at(l->symmetric, rank) + at : NULL;
}

/* Rows of tiles that hold `rows` rows whatever the panel: whole panels, none larger than the rows rounded up. */
static size_t tile_rows(const atoll_chain *c) {
  int64_t rows = (c->params.rows + CTA_PANEL_MIN - 1) / CTA_PANEL_MIN * CTA_PANEL_MIN;
  return (size_t)(rows + cta_least(rows, CTA_GROUP));
}

size_t cta_tile_bytes(const struct atoll_chain *c, int64_t nt) {
  return tile_rows(c) * (size_t)nt * CTA_TILE * sizeof(float);
}

/* Of a step of the view v. */
static void lay_weights(atoll_chain *c, struct cta_layout *l, struct cta_view *v, int step, int bias) {
  struct cta_step *s = &v->step[step];
  size_t before = l->used[s->owner];
  s->w = cta_lay(l, s->owner, (size_t)cta_weights_end(v, step) * sizeof(float), 4096);
  s->bias = bias ? cta_lay(l, s->owner, (size_t)s->out * sizeof(float), 64) : NULL;
  if (s->owner == c->view.rank)
    c->weight_bytes += l->used[s->owner] - before;
}

/* `reader` is the rank that waits for the tiles. */
static void lay_tiles(const atoll_chain *c, struct cta_layout *l, struct cta_step *s, int reader) {
  size_t lines = (size_t)(c->params.rows / CTA_PANEL_MIN + 1) * (size_t)s->nt;
  s->tiles = cta_lay(l, reader, cta_tile_bytes(c, s->nt * cta_made(s)), 4096);
  s->flag = cta_lay(l, reader, lines * sizeof *s->flag, sizeof *s->flag);
}

static void lay_step(atoll_chain *c, struct cta_layout *l, int i) {
  struct cta_view *v = &c->view;
  struct cta_step *s = &v->step[i];
  s->claim = cta_lay(l, s->owner, sizeof *s->claim, sizeof *s->claim);
  if (i + 1 < v->steps)
    lay_tiles(c, l, s, v->step[i + 1].owner);
  if (i > 0)
    lay_weights(c, l, v, i, c->params.layer[i - 1].bias);
}

/* Shape of a step of the backward view. */
static struct cta_step back_step(const atoll_chain *c, enum cta_kind kind, int64_t in, int64_t out, int layer) {
  return (struct cta_step){.kind = kind,
                           .in = in,
                           .out = out,
                           .ks = cta_tiles(in),
                           .nt = cta_tiles(out),
                           .owner = c->view.step[layer + 1].owner};
}

static void describe_gradient(atoll_chain *c, int step, int layer, int right) {
  struct cta_step *s = &c->back.step[step];
  const atoll_chain_layer *a = &c->params.layer[layer];
  *s = back_step(c, CTA_WEIGHT, a->in, a->out, layer);
  s->left = c->view.step[layer].tiles;
  s->right = right;
}

static void lay_dx(atoll_chain *c, struct cta_layout *l) {
  size_t bytes = (size_t)c->params.rows * (size_t)c->params.layer[0].in * sizeof *c->dx;
  c->dx = cta_lay(l, c->view.step[1].owner, bytes, 4096);
}

/* Steps of backward: 0 copies dy, 1 is the second layer turned, with the slope of the first one's activation, 2 the
 * first layer turned, 3 and 4 the gradients of the second and the first layer's weights. */
static void lay_backward(atoll_chain *c, struct cta_layout *l) {
  struct cta_view *b = &c->back;
  b->micro = c->view.micro;
  const atoll_chain_layer *a = c->params.layer;
  struct cta_step *first = &c->view.step[1];
  if (a[0].activation > ATOLL_ACTIVATION_RELU)
    first->before = cta_lay(l, first->owner, cta_tile_bytes(c, first->nt * cta_factors(first)), 4096);
  b->steps = 5;
  b->products = 3;
  b->step[0] = back_step(c, CTA_COPY, a[1].out, a[1].out, 1);
  b->step[1] = back_step(c, CTA_PRODUCT, a[1].out, a[1].in, 1);
  b->step[2] = back_step(c, CTA_PRODUCT, a[0].out, a[0].in, 0);
  b->step[1].slope = a[0].activation;
  b->step[1].slope_at = first->before ? first->before : first->tiles;
  b->step[2].ks *= cta_made(&b->step[1]);
  lay_tiles(c, l, &b->step[0], b->step[1].owner);
  lay_tiles(c, l, &b->step[1], b->step[2].owner);
  lay_weights(c, l, b, 1, 0);
  lay_weights(c, l, b, 2, 0);
  lay_dx(c, l);
  describe_gradient(c, 3, 1, 0);
  describe_gradient(c, 4, 0, 1);
  for (int i = 0; i < b->steps; i++)
    b->step[i].claim = cta_lay(l, b->step[i].owner, sizeof *b->step[i].claim, sizeof *b->step[i].claim);
}

static void lay_out(atoll_chain *c, struct cta_layout *l) {
  struct cta_view *v = &c->view;
  const struct cta_step *last = &v->step[v->steps - 1];
  size_t result = (size_t)c->params.rows * (size_t)last->out * sizeof(float);
  c->weight_bytes = 0;
  v->abort = cta_lay(l, 0, sizeof *v->abort, 64);
  for (int r = 0; r < v->ranks; r++) {
    v->done[r] = cta_lay(l, r, sizeof *v->done[r], 64);
    v->process[r] = cta_lay(l, r, sizeof *v->process[r], 64);
  }
  for (int i = 0; i < 2; i++)
    c->output[i] = cta_lay(l, last->owner, result, 4096);
  if (cta_is_on_device(c)) { /* the rest is there */
    if (c->params.backward)
      lay_dx(c, l);
    return;
  }
  for (int i = 0; i < v->steps; i++)
    lay_step(c, l, i);
  for (int r = 0; r < v->ranks && v->steps == 3; r++) {
    c->partial[r] = cta_lay(l, r, result, 4096);
    c->there[r] =
        cta_lay(l, r, (size_t)v->ranks * (size_t)(c->params.rows / CTA_PANEL_MIN + 1) * sizeof *c->there[r], 64);
  }
  if (c->params.backward)
    lay_backward(c, l);
}

static void describe_steps(atoll_chain *c, const atoll_chain_params *params, int rank, int ranks) {
  struct cta_view *v = &c->view;
  c->params = *params;
  v->rank = rank;
  v->ranks = ranks;
  v->claims = params->claims;
  v->rounds = params->dtype == ATOLL_BF16;
  v->micro = cta_micro_best();
  v->steps = v->products = c->params.layers + 1;
  for (int i = 0; i < v->steps; i++) {
    int layer = i > 0 ? i - 1 : 0;
    const atoll_chain_layer *a = &c->params.layer[layer];
    struct cta_step *s = &v->step[i];
    s->in = a->in;
    s->out = i > 0 ? a->out : a->in;
    s->kind = i > 0 ? CTA_PRODUCT : CTA_COPY;
    s->ks = cta_tiles(s->in);
    s->nt = cta_tiles(s->out);
    s->owner = (int)((int64_t)layer * v->ranks / c->params.layers);
    s->activation = i > 0 ? a->activation : ATOLL_ACTIVATION_NONE;
  }
}

/* --- life --------------------------------------------------------------------------------------------------------- */

static atoll_err open_tools(atoll_chain *c) {
  atoll_device_params p;
  struct cta_view *v = &c->view;
  const char *test = getenv("ATOLL_TEST_CTA");
  atoll_device_params_init(&p);
  p.threads = 1;
  ATOLL_TRY(atoll_device_open("cpu", &p, &c->device));
  ATOLL_TRY(atoll_queue_create(c->device, "compute", &v->queue));
  ATOLL_TRY(atoll_kernels_get("cpu", &v->kernels));
  v->skip_waits = test && !strcmp(test, "skip-waits");
  return ATOLL_OK;
}

atoll_err cta_sketch(const atoll_chain_params *params, int rank, int ranks, atoll_chain **out) {
  ATOLL_TRY(check_params(params, ranks));
  *out = calloc(1, sizeof **out);
  if (!*out)
    return atoll_fail(ATOLL_NOMEM, "chain: %zu bytes", sizeof **out);
  describe_steps(*out, params, rank, ranks);
  return ATOLL_OK;
}

static atoll_err prepare(atoll_comm *comm, atoll_mem *mem, const atoll_chain_params *params, atoll_chain **out) {
  ATOLL_TRY(cta_sketch(params, atoll_comm_rank(comm), atoll_comm_size(comm), out));
  atoll_chain *c = *out;
  c->comm = comm;
  c->mem = mem;
  struct cta_view *v = &c->view;
  v->timeout = params->timeout;
  ATOLL_TRY(open_tools(c));
  v->scratch = aligned_alloc(64, (size_t)2 * CTA_TILE * CTA_TILE * sizeof(float));
  return v->scratch ? ATOLL_OK : atoll_fail(ATOLL_NOMEM, "chain: scratch of two tiles");
}

static void chain_free(atoll_chain *c) {
  if (!c)
    return;
  cta_device_close(c);
  atoll_symmetric_destroy(&c->symmetric);
  atoll_mem_free(c->mem, &c->send);
  atoll_queue_destroy(&c->view.queue);
  if (c->device)
    atoll_device_close(&c->device);
  free(c->view.scratch);
  free(c->trace.event);
  free(c->events);
  free(c);
}

atoll_err atoll_chain_create(atoll_comm *comm, atoll_mem *mem, const atoll_chain_params *params, atoll_chain **out) {
  atoll_chain *c = NULL;
  struct cta_layout l = {{0}, NULL};
  atoll_err err = atoll_agree(atoll_comm_mpi(comm), prepare(comm, mem, params, &c));
  if (err == ATOLL_OK) {
    lay_out(c, &l);
    c->bytes = l.used[c->view.rank];
    err = atoll_symmetric_create(comm, c->device, mem, ATOLL_MEM_COMM, c->bytes, "of a chain", &c->symmetric);
  }
  if (err == ATOLL_OK && cta_is_on_device(c))
    err = cta_device_open(c);
  if (err != ATOLL_OK) {
    chain_free(c);
    return err;
  }
  l = (struct cta_layout){{0}, c->symmetric};
  lay_out(c, &l);
  cta_introduce(&c->view);
  *out = c;
  return ATOLL_OK;
}

atoll_err atoll_chain_measure(const atoll_chain_params *params, int rank, int ranks, size_t *bytes) {
  struct cta_layout l = {{0}, NULL};
  atoll_chain *c = NULL;
  ATOLL_TRY(cta_sketch(params, rank, ranks, &c));
  lay_out(c, &l);
  *bytes = l.used[rank];
  free(c);
  return ATOLL_OK;
}

void atoll_chain_destroy(atoll_chain **chain) {
  chain_free(*chain);
  *chain = NULL;
}

int atoll_chain_owner(const atoll_chain *chain, int layer) { return chain->view.step[layer + 1].owner; }

size_t atoll_chain_bytes(const atoll_chain *chain, size_t *weights) {
  if (weights)
    *weights = chain->weight_bytes;
  return chain->bytes + chain->device_bytes;
}

const char *atoll_chain_vectors(const atoll_chain *chain) {
  return cta_is_on_device(chain) ? atoll_device_kind(chain->params.device) : chain->view.micro->name;
}

const char *atoll_chain_transport(const atoll_chain *chain) {
  return cta_is_on_device(chain) ? cta_device_transport(chain) : atoll_symmetric_transport(chain->symmetric);
}

double atoll_chain_device_seconds(const atoll_chain *chain) {
  return cta_is_on_device(chain) ? cta_device_seconds(chain) : 0;
}

/* [n, m] of w from (i0, j0) on as f32, with strides of its own: in place, or widened to the scratch. */
struct part_of {
  const float *w;
  int64_t ks, ns;
};
static struct part_of part_at(const struct cta_view *v, const void *w, int64_t ks, int64_t ns, int64_t i0, int64_t j0,
                              int64_t n, int64_t m) {
  int64_t at = i0 * ks + j0 * ns;
  if (!v->rounds)
    return (struct part_of){(const float *)w + at, ks, ns};
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < m; j++)
      v->scratch[i * CTA_TILE + j] = atoll_bf16_float(((const uint16_t *)w)[at + i * ks + j * ns]);
  return (struct part_of){v->scratch, CTA_TILE, 1};
}

/* w(k, j) = w[k * ks + j * ns], of factor `which` of a gate (0: V) or the other matrix of a step. Only the owner writes
 * what a step reads, and only here. */
static void pack_step(const atoll_chain *c, const struct cta_view *v, int step, int which, const void *w, int64_t ks,
                      int64_t ns) {
  const struct cta_step *s = &v->step[step];
  int made = cta_made(s - 1), gate = cta_factors(s) > 1;
  float *packed = (float *)(uintptr_t)s->w;
  for (int64_t k = 0; k < s->ks / made; k++)
    for (int64_t t = 0; t < s->nt; t++) {
      int64_t n = cta_tile_cols(s->in, k), m = cta_tile_cols(s->out, t);
      struct part_of a = part_at(&c->view, w, ks, ns, k * CTA_TILE, t * CTA_TILE, n, m);
      cta_pack(v->micro, n, m, a.w, a.ks, a.ns,
               packed + cta_weights_at(v, step, k * made + (made > 1 ? which : 0), t, gate ? which : 0, 0));
    }
}

/* V of a gate (0) or W. */
static atoll_err pack_layer(atoll_chain *c, int layer, int which, const void *w, int64_t is, int64_t os,
                            const void *bias) {
  if (layer < 0 || layer >= c->params.layers)
    return atoll_fail(ATOLL_USAGE, "layer %d of a chain of %d", layer, c->params.layers);
  const struct cta_view *v = &c->view;
  const struct cta_step *s = &v->step[layer + 1];
  if (which == 0 && cta_factors(s) < 2)
    return atoll_fail(ATOLL_USAGE, "layer %d of a chain has no gate", layer);
  if (s->owner != v->rank)
    return ATOLL_OK;
  if (!w)
    return atoll_fail(ATOLL_USAGE, "layer %d of a chain: its owner, rank %d, gave no weights", layer, v->rank);
  if (cta_is_on_device(c))
    return cta_device_set_layer(c, layer, which, w, is, os, bias);
  pack_step(c, v, layer + 1, which, w, is, os);
  if (c->params.backward)
    pack_step(c, &c->back, 2 - layer, which, w, os, is);
  float *b = (float *)(uintptr_t)s->bias;
  for (int64_t o = 0; b && o < s->out; o++)
    b[o] = bias ? *part_at(v, bias, 1, 1, o, 0, 1, 1).w : 0;
  return ATOLL_OK;
}

/* Ranks that a sharded run let go meet before anything that it reads is written again. */
static atoll_err together(atoll_chain *c) {
  int apart = c->apart;
  c->apart = 0;
  return apart ? cta_meet(&c->view) : ATOLL_OK;
}

atoll_err atoll_chain_set_layer(atoll_chain *chain, int layer, const void *w, int64_t in_stride, int64_t out_stride,
                                const void *bias) {
  ATOLL_TRY(together(chain));
  return atoll_agree(atoll_comm_mpi(chain->comm), pack_layer(chain, layer, 1, w, in_stride, out_stride, bias));
}

atoll_err atoll_chain_set_gate(atoll_chain *chain, int layer, const void *v, int64_t in_stride, int64_t out_stride) {
  ATOLL_TRY(together(chain));
  return atoll_agree(atoll_comm_mpi(chain->comm), pack_layer(chain, layer, 0, v, in_stride, out_stride, NULL));
}

/* --- running ------------------------------------------------------------------------------------------------------ */

/* Rows of a tile where the caller names none: high panels read the weights less often and keep more sums in registers,
 * as long as the narrowest layer has some 4 tiles for each rank. */
static int64_t default_panel(const atoll_chain *c, int64_t rows) {
  int64_t nt = INT64_MAX, panel = CTA_GROUP;
  for (int i = 1; i < c->view.steps; i++)
    nt = cta_least(nt, c->view.step[i].nt);
  while (panel > 16 && (rows + panel - 1) / panel * nt < 4 * c->view.ranks)
    panel /= 2;
  return panel;
}

int64_t cta_panel(const atoll_chain *c, const atoll_chain_cut *cut, int64_t rows) {
  int64_t panel = cut && cut->panel ? cut->panel : default_panel(c, rows),
          most = (rows + CTA_PANEL_MIN - 1) / CTA_PANEL_MIN * CTA_PANEL_MIN;
  return panel > most && most > 0 ? most : panel;
}

static atoll_err set_up(atoll_chain *c, const atoll_chain_cut *cut, int64_t rows, const void *x) {
  struct cta_view *v = &c->view;
  int64_t panel = cut && cut->panel ? cut->panel : CTA_PANEL_MIN;
  if (*c->broken)
    return atoll_fail(ATOLL_PEER_LOST, "this chain ended its use: %s", c->broken);
  if (rows < 0 || rows > c->params.rows)
    return atoll_fail(ATOLL_USAGE, "chain run of %" PRId64 " rows, made for 0..%" PRId64, rows, c->params.rows);
  if (panel < CTA_PANEL_MIN || panel > CTA_GROUP)
    return atoll_fail(ATOLL_USAGE, "chain run in panels of %" PRId64 " rows, expected %d..%d", panel, CTA_PANEL_MIN,
                      CTA_GROUP);
  ATOLL_TRY(cta_check_others(v));
  ATOLL_TRY(together(c));
  v->epoch++;
  cta_begin(v, rows, cta_panel(c, cut, rows), x, c->output[c->parity ^= 1]);
  c->trace.n = 0;
  return ATOLL_OK;
}

static atoll_err run(atoll_chain *chain, atoll_chain_way way, const atoll_chain_cut *cut, int64_t rows, const void *x,
                     int sharded, const float **y) {
  const float *result = NULL;
  int64_t chunks = cut && cut->chunks > 0 ? cut->chunks : 8;
  ATOLL_TRY(set_up(chain, cut, rows, x));
  atoll_err err = cta_is_on_device(chain) ? cta_device_run(chain, way, chunks, x, &result)
                                          : cta_run_way(chain, way, chunks, sharded, &result);
  if (err == ATOLL_TIMEOUT || err == ATOLL_PEER_LOST)
    snprintf(chain->broken, sizeof chain->broken, "%s", atoll_err_message());
  chain->kept = err == ATOLL_OK && cta_goes_back(chain, way);
  if (err == ATOLL_OK)
    *y = result;
  else
    chain->parity ^= 1; /* a refusal is no run: others may still read what the last one gave */
  return err;
}

atoll_err atoll_chain_run(atoll_chain *chain, atoll_chain_way way, const atoll_chain_cut *cut, int64_t rows,
                          const void *x, const float **y) {
  return run(chain, way, cut, rows, x, 0, y);
}

atoll_err atoll_chain_run_sharded(atoll_chain *chain, atoll_chain_way way, const atoll_chain_cut *cut, int64_t rows,
                                  const void *x, const float **y, int64_t *begin, int64_t *end) {
  const struct cta_view *v = &chain->view;
  ATOLL_TRY(run(chain, way, cut, rows, x, 1, y));
  struct cta_share s = cta_panels_of(v->panels, v->rank, v->ranks);
  *begin = cta_least(rows, s.begin * v->panel);
  *end = cta_least(rows, s.end * v->panel);
  return ATOLL_OK;
}

/* The backward view runs in the forward one's place: its steps, everything else the same. */
static void turn(atoll_chain *c) {
  struct cta_view *v = &c->view, *b = &c->back;
  struct cta_view now = *v;
  memcpy(now.step, b->step, sizeof now.step);
  now.steps = b->steps;
  now.products = b->products;
  now.trace = NULL;
  *b = now;
}

/* Every gradient has a place. */
static atoll_err check_places(const atoll_chain *c, const atoll_chain_gradients *to) {
  for (int l = 0; l < 2; l++) {
    const atoll_chain_layer *a = &c->params.layer[l];
    if (!to->dw[l] || (a->bias && !to->db[l]) || (a->activation == ATOLL_ACTIVATION_SWIGLU && !to->dgate))
      return atoll_fail(ATOLL_USAGE, "backward of a chain: a gradient of layer %d has no place", l);
  }
  return ATOLL_OK;
}

/* Where the gradients of weights are added: V's is the first of two. */
static void aim(atoll_chain *c, const atoll_chain_gradients *to) {
  for (int l = 0; l < 2; l++) {
    struct cta_step *s = &c->back.step[4 - l];
    const atoll_chain_layer *a = &c->params.layer[l];
    int gate = a->activation == ATOLL_ACTIVATION_SWIGLU;
    s->dw[0] = gate ? to->dgate : to->dw[l];
    s->dw[1] = gate ? to->dw[l] : NULL;
    s->db = a->bias ? to->db[l] : NULL;
  }
}

static atoll_err host_backward(atoll_chain *c, atoll_chain_way way, const void *dy, const atoll_chain_gradients *to) {
  struct cta_view *b = &c->back;
  aim(c, to);
  turn(c);
  cta_begin(b, c->view.rows, c->view.panel, dy, c->dx);
  atoll_err err = cta_meet(b); /* nobody reads dx of the call before any more, and places are ready */
  if (err == ATOLL_OK)
    err = cta_run_back(c, way);
  if (err == ATOLL_OK)
    err = cta_meet(b);
  c->view.meetings = b->meetings;
  return err;
}

atoll_err atoll_chain_backward(atoll_chain *chain, atoll_chain_way way, const void *dy, const atoll_chain_gradients *to,
                               const float **dx) {
  if (!chain->params.backward || !chain->kept)
    return atoll_fail(ATOLL_USAGE, "backward of a chain %s",
                      chain->params.backward ? "whose last run left nothing for it" : "made without it");
  if (!cta_goes_back(chain, way))
    return atoll_fail(ATOLL_UNSUPPORTED, "backward of a chain by way %s", atoll_chain_way_name(way));
  ATOLL_TRY(check_places(chain, to));
  chain->apart = 0; /* it begins with a meeting */
  chain->view.epoch++;
  atoll_err err = cta_is_on_device(chain) ? cta_device_backward(chain, way, dy, to) : host_backward(chain, way, dy, to);
  if (err != ATOLL_OK) {
    snprintf(chain->broken, sizeof chain->broken, "%s", atoll_err_message());
    return err;
  }
  *dx = chain->dx;
  return ATOLL_OK;
}

/* --- trace -------------------------------------------------------------------------------------------------------- */

atoll_err atoll_chain_trace(atoll_chain *chain, int on) {
  struct cta_view *v = &chain->view;
  int64_t most = 0;
  for (int i = 0; i < v->steps; i++)
    most += (chain->params.rows / CTA_PANEL_MIN + 1) * v->step[i].nt;
  if (on && !chain->trace.event) {
    chain->trace.event = malloc((size_t)most * sizeof *chain->trace.event);
    chain->events = malloc((size_t)most * sizeof *chain->events);
    if (!chain->trace.event || !chain->events)
      return atoll_fail(ATOLL_NOMEM, "trace of %" PRId64 " tiles", most);
    chain->trace.most = most;
  }
  chain->trace.n = 0;
  v->trace = on ? &chain->trace : NULL;
  return ATOLL_OK;
}

int64_t atoll_chain_events(const atoll_chain *chain, const atoll_chain_event **events) {
  for (int64_t i = 0; i < chain->trace.n; i++) {
    const cta_event *e = &chain->trace.event[i];
    chain->events[i] =
        (atoll_chain_event){e->step - 1, e->panel * chain->view.panel, (int64_t)e->tile * CTA_TILE, e->begin, e->end};
  }
  *events = chain->events;
  return chain->trace.n;
}
