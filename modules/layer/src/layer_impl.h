/* Inside of the layer room: how buffers are laid out, and one set of functions per kind of layer. */
#ifndef ATOLL_LAYER_IMPL_H
#define ATOLL_LAYER_IMPL_H

#include "atoll/layer.h"

/* Every buffer of a layer is a list of pieces; piece i holds rows x (row[i] + row_s[i] S) bytes, padded to 64, where
 * rows = min(B S, max_rows). Layout in memory and the expressions that planners count with come from the same list
 * (bytes.c).
 */
#define PIECES_MAX 32
typedef struct layer_pieces {
  int n;
  int64_t row[PIECES_MAX], row_s[PIECES_MAX];
  int64_t max_rows; /* 0: no limit */
} layer_pieces;

enum head_work { WORK_LN, WORK_LOGITS, WORK_DLN, WORK_MEAN, WORK_RSTD };
void head_work_pieces(const atoll_model *m, layer_pieces *out);

int64_t pieces_bytes(const layer_pieces *p, int64_t B, int64_t S);
/* Start of piece i in a buffer. */
void *piece(const layer_pieces *p, void *base, int i, int64_t B, int64_t S);
int64_t layer_saved_size(const atoll_model *m, int layer, atoll_policy p, int64_t B, int64_t S);
int64_t layer_carried_size(const atoll_model *m, int layer, atoll_policy p, int64_t B, int64_t S);
int64_t layer_work_size(const atoll_model *m, int layer, atoll_policy p, int64_t B, int64_t S);
/* Bytes of the room for a layer's input at the start of its saved buffer. */
int64_t layer_input_size(const atoll_model *m, int layer, int64_t B, int64_t S);

/* Rows of logits that exist at a time. A function of the vocabulary alone, so that sums over rows do not depend on the
 * plan. */
int64_t head_chunk(const atoll_model *m);

/* What each function of a kind gets. */
typedef struct layer_call {
  const atoll_model *m;
  const atoll_model_params *config;
  int layer;
  atoll_policy policy;
  const atoll_exec *e;
  const atoll_call *c;
  const atoll_layer_buffers *b;
  int64_t R, H; /* B S rows of H */
} layer_call;

atoll_drop layer_drop(const layer_call *l, atoll_rng_site site);

atoll_err head_forward(const layer_call *l, const float *x, const int32_t *targets, float *dx, float *loss);

#endif
