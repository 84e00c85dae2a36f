/* Exact bytes: one list of pieces per buffer serves the layout in memory and the expressions of planners, so they
 * cannot disagree. */
#include "atoll/layer.h"

#include <string.h>

#include "layer_impl.h"

static const char *const policies[] = {"eager", "exact"};

const char *atoll_policy_name(atoll_policy p) { return (unsigned)p < ATOLL_POLICIES ? policies[p] : "unknown"; }

int atoll_policy_parse(const char *name, atoll_policy *p) {
  for (int i = 0; name && i < ATOLL_POLICIES; i++)
    if (!strcmp(policies[i], name)) {
      *p = (atoll_policy)i;
      return 0;
    }
  return -1;
}

static void put(layer_pieces *p, int at, int64_t per_row) {
  p->per_row[at] = per_row;
  p->n = at + 1 > p->n ? at + 1 : p->n;
}

void layer_saved_pieces(const atoll_model *m, int layer, atoll_policy policy, layer_pieces *out) {
  const atoll_model_params *c = atoll_model_config(m);
  memset(out, 0, sizeof *out);
  atoll_layer_kind kind = atoll_model_layer_kind(m, layer);
  if (kind == ATOLL_LAYER_EMBED)
    return;
  put(out, SAVED_X, c->width);
  if (kind == ATOLL_LAYER_HEAD)
    return;
  put(out, SAVED_QKV, 3 * c->width);
  put(out, SAVED_O, c->width);
  put(out, SAVED_R1, c->width);
  put(out, SAVED_F, c->ffn);
  for (int i = SAVED_MEAN1; i <= SAVED_RSTD2; i++)
    put(out, i, 1);
  put(out, SAVED_LSE, c->heads);
  if (policy == ATOLL_POLICY_EAGER) {
    put(out, SAVED_LN1, c->width);
    put(out, SAVED_LN2, c->width);
    put(out, SAVED_G, c->ffn);
  }
}

void layer_carried_pieces(const atoll_model *m, int layer, atoll_policy policy, layer_pieces *out) {
  (void)policy;
  const atoll_model_params *c = atoll_model_config(m);
  memset(out, 0, sizeof *out);
  if (atoll_model_layer_kind(m, layer) != ATOLL_LAYER_BLOCK)
    return;
  put(out, CARRIED_DF, c->ffn);
  put(out, CARRIED_DLN2, c->width);
  put(out, CARRIED_DZ, c->width);
  put(out, CARRIED_DQKV, 3 * c->width);
  put(out, CARRIED_DLN1, c->width);
  if (c->dropout > 0) /* without dropout it is dy itself */
    put(out, CARRIED_DZ2, c->width);
}

int layer_work_pieces(const atoll_model *m, int layer, atoll_policy policy, layer_pieces out[3]) {
  const atoll_model_params *c = atoll_model_config(m);
  memset(out, 0, 3 * sizeof *out);
  switch (atoll_model_layer_kind(m, layer)) {
  case ATOLL_LAYER_BLOCK:
    put(&out[0], 0, c->heads); /* attention backward's delta */
    if (policy == ATOLL_POLICY_EAGER)
      return 1;
    put(&out[1], 0, c->width); /* LayerNorm output, made again */
    put(&out[2], 0, c->ffn);   /* GELU output, made again */
    return 3;
  case ATOLL_LAYER_HEAD:
    out[0].max_rows = head_chunk(m);
    put(&out[0], WORK_LN, c->width);
    put(&out[0], WORK_LOGITS, c->vocab);
    put(&out[0], WORK_DLN, c->width);
    put(&out[0], WORK_MEAN, 1);
    put(&out[0], WORK_RSTD, 1);
    return 1;
  default:
    return 0;
  }
}

/* About 64 MiB of logits, a power of two of rows. Fewer rows would read the embedding table more often, more would only
 * take memory. */
int64_t head_chunk(const atoll_model *m) {
  int64_t rows = 4096;
  while (rows > 16 && rows * atoll_model_config(m)->vocab * 4 > INT64_C(64) << 20)
    rows /= 2;
  return rows;
}

/* ---- numbers ---- */

static int64_t padded(int64_t bytes) { return (bytes + 63) / 64 * 64; }

static int64_t rows_of(const layer_pieces *p, int64_t B, int64_t S) {
  return p->max_rows && B * S > p->max_rows ? p->max_rows : B * S;
}

int64_t pieces_bytes(const layer_pieces *p, int64_t B, int64_t S) {
  int64_t sum = 0, rows = rows_of(p, B, S);
  for (int i = 0; i < p->n; i++)
    sum += padded(4 * p->per_row[i] * rows);
  return sum;
}

float *piece(const layer_pieces *p, void *base, int i, int64_t B, int64_t S) {
  layer_pieces before = *p;
  before.n = i;
  return (float *)((uintptr_t)base + (uintptr_t)pieces_bytes(&before, B, S));
}

int64_t layer_saved_size(const atoll_model *m, int layer, atoll_policy policy, int64_t B, int64_t S) {
  layer_pieces p;
  layer_saved_pieces(m, layer, policy, &p);
  return pieces_bytes(&p, B, S);
}

int64_t layer_input_size(const atoll_model *m, int layer, int64_t B, int64_t S) {
  layer_pieces p;
  layer_saved_pieces(m, layer, ATOLL_POLICY_EXACT, &p);
  p.n = p.n ? 1 : 0;
  return pieces_bytes(&p, B, S);
}

int64_t layer_carried_size(const atoll_model *m, int layer, atoll_policy policy, int64_t B, int64_t S) {
  layer_pieces p;
  layer_carried_pieces(m, layer, policy, &p);
  return pieces_bytes(&p, B, S);
}

int64_t layer_work_size(const atoll_model *m, int layer, atoll_policy policy, int64_t B, int64_t S) {
  layer_pieces p[3];
  int64_t most = 0;
  int n = layer_work_pieces(m, layer, policy, p);
  for (int i = 0; i < n; i++) {
    int64_t b = pieces_bytes(&p[i], B, S);
    most = b > most ? b : most;
  }
  return most;
}

/* ---- expressions ---- */

static const atoll_sym *sym_bytes(const layer_pieces *p, atoll_syms *pool) {
  const atoll_sym *rows =
      atoll_sym_mul(pool, atoll_sym_var(pool, "B", ATOLL_SYM_INT), atoll_sym_var(pool, "S", ATOLL_SYM_INT));
  if (p->max_rows)
    rows = atoll_sym_binary(pool, ATOLL_SYM_MIN, rows, atoll_sym_int(pool, p->max_rows));
  const atoll_sym *sum = atoll_sym_int(pool, 0), *line = atoll_sym_int(pool, 64);
  for (int i = 0; i < p->n; i++) {
    const atoll_sym *bytes;
    if (4 * p->per_row[i] % 64 == 0)
      bytes = atoll_sym_mul(pool, rows, atoll_sym_int(pool, 4 * p->per_row[i]));
    else
      bytes = atoll_sym_mul(
          pool, line, atoll_sym_ceildiv(pool, atoll_sym_mul(pool, rows, atoll_sym_int(pool, 4 * p->per_row[i])), line));
    sum = atoll_sym_add(pool, sum, bytes);
  }
  return sum;
}

static int known(const atoll_model *m, int layer) { return layer >= 0 && layer < atoll_model_layers(m); }

const atoll_sym *atoll_layer_saved_bytes(const atoll_model *m, atoll_syms *pool, int layer, atoll_policy policy) {
  layer_pieces p;
  if (!known(m, layer))
    return NULL;
  layer_saved_pieces(m, layer, policy, &p);
  return sym_bytes(&p, pool);
}

const atoll_sym *atoll_layer_carried_bytes(const atoll_model *m, atoll_syms *pool, int layer, atoll_policy policy) {
  layer_pieces p;
  if (!known(m, layer))
    return NULL;
  layer_carried_pieces(m, layer, policy, &p);
  return sym_bytes(&p, pool);
}

const atoll_sym *atoll_layer_work_bytes(const atoll_model *m, atoll_syms *pool, int layer, atoll_policy policy) {
  layer_pieces p[3];
  if (!known(m, layer))
    return NULL;
  const atoll_sym *most = atoll_sym_int(pool, 0);
  int n = layer_work_pieces(m, layer, policy, p);
  for (int i = 0; i < n; i++)
    most = i ? atoll_sym_max(pool, most, sym_bytes(&p[i], pool)) : sym_bytes(&p[i], pool);
  return most;
}
