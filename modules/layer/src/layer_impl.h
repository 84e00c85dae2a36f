/* Inside of the layer room: how buffers are laid out, and one set of functions per kind of layer. */
#ifndef ATOLL_LAYER_IMPL_H
#define ATOLL_LAYER_IMPL_H

#include "atoll/layer.h"

/* Every buffer of a layer is a list of pieces; piece i holds rows x per_row[i] floats, padded to 64 bytes, where rows =
 * min(B S, max_rows). Layout in memory and the expressions that planners count with come from the same list (bytes.c).
 */
#define PIECES_MAX 13
typedef struct layer_pieces {
  int n;
  int64_t per_row[PIECES_MAX];
  int64_t max_rows; /* 0: no limit */
} layer_pieces;

enum block_saved {
  SAVED_X,
  SAVED_QKV,
  SAVED_O,
  SAVED_R1,
  SAVED_F,
  SAVED_MEAN1,
  SAVED_RSTD1,
  SAVED_MEAN2,
  SAVED_RSTD2,
  SAVED_LSE,
  SAVED_LN1,
  SAVED_LN2,
  SAVED_G /* eager only */
};
enum block_carried { CARRIED_DF, CARRIED_DLN2, CARRIED_DZ, CARRIED_DQKV, CARRIED_DLN1, CARRIED_DZ2 };
enum head_work { WORK_LN, WORK_LOGITS, WORK_DLN, WORK_MEAN, WORK_RSTD };

void layer_saved_pieces(const atoll_model *m, int layer, atoll_policy p, layer_pieces *out);
void layer_carried_pieces(const atoll_model *m, int layer, atoll_policy p, layer_pieces *out);
/* Scratch of one call is one of these lists; returns how many there are (at most 3). */
int layer_work_pieces(const atoll_model *m, int layer, atoll_policy p, layer_pieces out[3]);

int64_t pieces_bytes(const layer_pieces *p, int64_t B, int64_t S);
/* Start of piece i in a buffer. */
float *piece(const layer_pieces *p, void *base, int i, int64_t B, int64_t S);
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

atoll_err block_forward(const layer_call *l, const float *x, float *y);
atoll_err block_backward_input(const layer_call *l, const float *x, const float *dy, float *dx);
atoll_err block_backward_weight(const layer_call *l, const float *x, const float *dy);
atoll_err head_forward(const layer_call *l, const float *x, const int32_t *targets, float *dx, float *loss);

#endif
