/* Exact bytes: one list of pieces per buffer serves the layout in memory and the expressions of planners, so they
 * cannot disagree. */
#include "atoll/layer.h"

#include <string.h>

#include "schedule.h"

#define BLOCKS_REMEMBERED 8

/* What one layer holds: saved, carried, one list of scratch for each call, and that of sums beside it. */
typedef struct lists {
  layer_pieces saved, carried, work[CALLS], sum;
} lists;

/* Calls of a stage on a layer: forward and backward, the latter whole or in halves. */
static const int whole[] = {STEP_FORWARD, CALL_BACKWARD, -1}, halves[] = {STEP_FORWARD, STEP_INPUT, STEP_WEIGHT, -1};

/* Of a block; planners ask for the same few over and over, for every layer of every slice. */
static atoll_err block_lists(const atoll_model *m, int layer, atoll_policy policy, layer_way way, lists *out) {
  static _Thread_local struct {
    int known, first;
    layer_way way;
    atoll_policy policy;
    atoll_model_params config;
    lists l;
  } memo[BLOCKS_REMEMBERED];
  static _Thread_local int next;
  const atoll_model_params *config = atoll_model_config(m);
  for (int i = 0; i < BLOCKS_REMEMBERED; i++)
    if (memo[i].known && memo[i].policy == policy && memo[i].first == (layer == 1) &&
        memo[i].way.tensor == way.tensor && memo[i].way.mlp == way.mlp &&
        memcmp(&memo[i].config, config, sizeof *config) == 0) {
      *out = memo[i].l;
      return ATOLL_OK;
    }
  block_plan b;
  ATOLL_TRY(block_make(m, layer, policy, way, &b));
  out->saved = b.saved;
  out->carried = b.carried;
  for (int i = 0; i < CALLS; i++)
    out->work[i] = b.call[i].work;
  tensor_sum_pieces(m, way.tensor, &out->sum);
  memo[next].known = 1;
  memo[next].first = layer == 1;
  memo[next].way = way;
  memo[next].policy = policy;
  memcpy(&memo[next].config, config, sizeof *config);
  memo[next].l = *out;
  next = (next + 1) % BLOCKS_REMEMBERED;
  return ATOLL_OK;
}

static atoll_err lists_of(const atoll_model *m, int layer, atoll_policy policy, layer_way way, lists *out) {
  memset(out, 0, sizeof *out);
  if (layer < 0 || layer >= atoll_model_layers(m))
    return atoll_fail(ATOLL_USAGE, "layer %d of a model with %d layers", layer, atoll_model_layers(m));
  switch (atoll_model_layer_kind(m, layer)) {
  case ATOLL_LAYER_HEAD:
    out->saved = (layer_pieces){.n = 1, .row = {layer_element(m) * atoll_model_config(m)->width}}; /* its input */
    (atoll_model_causal(m) ? head_work_pieces : masked_work_pieces)(m, &out->work[0]);
    return ATOLL_OK;
  case ATOLL_LAYER_BLOCK:
    return block_lists(m, layer, policy, way, out);
  default:
    embed_work_pieces(m, &out->work[0]);
    return ATOLL_OK;
  }
}

int64_t layer_element(const atoll_model *m) {
  return (int64_t)atoll_dtype_bytes((atoll_dtype)atoll_model_config(m)->dtype);
}

/* At most 96 MiB of logits: 4096 rows, 3072, 2048, 1536 ... Fewer would read the embedding table, and pack it for
 * products, more often. Of more we have seen no gain that stands out from how runs differ (GPT-2 in f32, 512 rows
 * instead of 384), and they take memory. */
int64_t head_chunk(const atoll_model *m) {
  int64_t rows = 4096;
  while (rows > 16 && rows * atoll_model_config(m)->vocab * layer_element(m) > INT64_C(96) << 20)
    rows = rows & (rows - 1) ? rows / 3 * 2 : rows / 4 * 3;
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
    sum += padded((p->row[i] + p->row_s[i] * S) * rows);
  return sum;
}

void *piece(const layer_pieces *p, void *base, int i, int64_t B, int64_t S) {
  layer_pieces before = *p;
  before.n = i;
  return (void *)((uintptr_t)base + (uintptr_t)pieces_bytes(&before, B, S));
}

int64_t layer_saved_size(const atoll_model *m, int layer, atoll_policy policy, layer_way way, int64_t B, int64_t S) {
  lists l;
  return lists_of(m, layer, policy, way, &l) == ATOLL_OK ? pieces_bytes(&l.saved, B, S) : 0;
}

int64_t layer_input_size(const atoll_model *m, int layer, atoll_policy policy, int64_t B, int64_t S) {
  return !atoll_layer_keeps_input(m, layer, policy) ? 0
                                                    : padded(layer_element(m) * atoll_model_config(m)->width * B * S);
}

int64_t layer_carried_size(const atoll_model *m, int layer, atoll_policy policy, layer_way way, int64_t B, int64_t S) {
  lists l;
  return lists_of(m, layer, policy, way, &l) == ATOLL_OK ? pieces_bytes(&l.carried, B, S) : 0;
}

int64_t layer_work_size(const atoll_model *m, int layer, atoll_policy policy, layer_way way, int in_halves, int64_t B,
                        int64_t S) {
  lists l;
  int64_t most = 0;
  if (lists_of(m, layer, policy, way, &l) != ATOLL_OK)
    return 0;
  for (const int *i = in_halves ? halves : whole; *i >= 0; i++) {
    int64_t b = pieces_bytes(&l.work[*i], B, S);
    most = b > most ? b : most;
  }
  return most + pieces_bytes(&l.sum, B, S);
}

/* ---- expressions ---- */

static int odd(const layer_pieces *p, int i) { return p->row[i] % 64 || p->row_s[i] % 64; }

static const atoll_sym *sym_bytes(const layer_pieces *p, atoll_syms *pool) {
  const atoll_sym *rows =
      atoll_sym_mul(pool, atoll_sym_var(pool, "B", ATOLL_SYM_INT), atoll_sym_var(pool, "S", ATOLL_SYM_INT));
  if (p->max_rows)
    rows = atoll_sym_binary(pool, ATOLL_SYM_MIN, rows, atoll_sym_int(pool, p->max_rows));
  const atoll_sym *sum = atoll_sym_int(pool, 0), *line = atoll_sym_int(pool, 64);
  for (int i = 0; i < p->n; i++) {
    const atoll_sym *row = atoll_sym_int(pool, p->row[i]);
    if (p->row_s[i])
      row = atoll_sym_add(
          pool, row, atoll_sym_mul(pool, atoll_sym_var(pool, "S", ATOLL_SYM_INT), atoll_sym_int(pool, p->row_s[i])));
    const atoll_sym *bytes = atoll_sym_mul(pool, rows, row);
    if (odd(p, i))
      bytes = atoll_sym_mul(pool, line, atoll_sym_ceildiv(pool, bytes, line));
    sum = atoll_sym_add(pool, sum, bytes);
  }
  return sum;
}

const atoll_sym *atoll_layer_saved_bytes(const atoll_model *m, atoll_syms *pool, int layer, atoll_policy policy,
                                         int tensor) {
  lists l;
  return lists_of(m, layer, policy, (layer_way){tensor, ATOLL_MLP_PLAIN}, &l) == ATOLL_OK ? sym_bytes(&l.saved, pool)
                                                                                          : NULL;
}

const atoll_sym *atoll_layer_carried_bytes(const atoll_model *m, atoll_syms *pool, int layer, atoll_policy policy,
                                           int tensor) {
  lists l;
  return lists_of(m, layer, policy, (layer_way){tensor, ATOLL_MLP_PLAIN}, &l) == ATOLL_OK ? sym_bytes(&l.carried, pool)
                                                                                          : NULL;
}

/* Whether list a never takes more than list b: in sum, as far as pieces are whole lines of 64 bytes; of others, which
 * are padded, each has one in b that is not smaller. */
static int within(const layer_pieces *a, const layer_pieces *b) {
  int used[PIECES_MAX] = {0}, fit = 1;
  int64_t row = 0, row_s = 0; /* by which b's whole lines are longer */
  for (int i = 0; i < a->n && fit; i++) {
    if (!odd(a, i)) {
      row -= a->row[i], row_s -= a->row_s[i];
      continue;
    }
    fit = 0;
    for (int k = 0; k < b->n && !fit; k++)
      fit = !used[k] && odd(b, k) && a->row[i] <= b->row[k] && a->row_s[i] <= b->row_s[k] && (used[k] = 1);
  }
  for (int k = 0; k < b->n; k++)
    if (!odd(b, k))
      row += b->row[k], row_s += b->row_s[k];
  return fit && row >= 0 && row_s >= 0;
}

static const atoll_sym *largest_work(const lists *l, const int *calls, atoll_syms *pool) {
  const atoll_sym *most = NULL;
  for (const int *i = calls; *i >= 0; i++) {
    int needed = 1;
    for (const int *k = calls; *k >= 0 && needed; k++)
      needed = k == i || !within(&l->work[*i], &l->work[*k]) || (k > i && within(&l->work[*k], &l->work[*i]));
    if (needed)
      most = most ? atoll_sym_max(pool, most, sym_bytes(&l->work[*i], pool)) : sym_bytes(&l->work[*i], pool);
  }
  const atoll_sym *sum = sym_bytes(&l->sum, pool);
  return most ? atoll_sym_add(pool, most, sum) : sum;
}

const atoll_sym *atoll_layer_work_bytes(const atoll_model *m, atoll_syms *pool, int layer, atoll_policy policy,
                                        int tensor) {
  lists l;
  return lists_of(m, layer, policy, (layer_way){tensor, ATOLL_MLP_PLAIN}, &l) == ATOLL_OK
             ? largest_work(&l, whole, pool)
             : NULL;
}

const atoll_sym *atoll_layer_half_bytes(const atoll_model *m, atoll_syms *pool, int layer, atoll_policy policy,
                                        int tensor) {
  lists l;
  return lists_of(m, layer, policy, (layer_way){tensor, ATOLL_MLP_PLAIN}, &l) == ATOLL_OK
             ? largest_work(&l, halves, pool)
             : NULL;
}

/* ---- products made again ---- */

static const atoll_sym *op_flops(const atoll_model *m, const program *p, const program_op *o, atoll_syms *pool) {
  const atoll_sym *rows =
      atoll_sym_mul(pool, atoll_sym_var(pool, "B", ATOLL_SYM_INT), atoll_sym_var(pool, "S", ATOLL_SYM_INT));
  if (o->kind == OP_LINEAR)
    return atoll_sym_mul(pool, rows, atoll_sym_int(pool, 2 * p->value[o->in[0]].width * p->value[o->out].width));
  if (o->kind != OP_ATTENTION && o->kind != OP_ATTENTION_KEPT && o->kind != OP_ATTENTION_AGAIN)
    return atoll_sym_int(pool, 0);
  int64_t each = (atoll_model_causal(m) ? 2 : 4) * p->value[o->out].width;
  if (o->kind == OP_ATTENTION_AGAIN) /* one of two products */
    each /= 2;
  return atoll_sym_mul(pool, atoll_sym_mul(pool, rows, atoll_sym_var(pool, "S", ATOLL_SYM_INT)),
                       atoll_sym_int(pool, each));
}

const atoll_sym *atoll_layer_recompute_flops(const atoll_model *m, atoll_syms *pool, int layer, atoll_policy policy) {
  block_plan b;
  const atoll_sym *sum = atoll_sym_int(pool, 0);
  if (layer < 0 || layer >= atoll_model_layers(m))
    return NULL;
  if (atoll_model_layer_kind(m, layer) != ATOLL_LAYER_BLOCK)
    return sum;
  if (block_make(m, layer, policy, layer_alone, &b) != ATOLL_OK)
    return NULL;
  const schedule *s = &b.call[CALL_BACKWARD];
  for (int i = 0; i < s->n; i++)
    if (s->step[i].kind == STEP_FORWARD)
      sum = atoll_sym_add(pool, sum, op_flops(m, &b.p, &b.p.op[s->step[i].op], pool));
  return sum;
}
