/* Inside of the layer room: how buffers are laid out, and one set of functions per kind of layer. */
#ifndef ATOLL_LAYER_IMPL_H
#define ATOLL_LAYER_IMPL_H

#include "atoll/layer.h"
#include "atoll/symmetric.h"

/* On how many tensor ranks a block is, and how it does its MLP there. */
typedef struct layer_way {
  int tensor;
  atoll_mlp mlp;
} layer_way;
static const layer_way layer_alone = {1, ATOLL_MLP_PLAIN};

/* Every buffer of a layer is a list of pieces; piece i holds rows x (row[i] + row_s[i] S) bytes, padded to 64, where
 * rows = min(B S, max_rows). Layout in memory and the expressions that planners count with come from the same list
 * (bytes.c).
 */
#define PIECES_MAX   32
#define LAYER_PARAMS 16 /* of one layer at most */
typedef struct layer_pieces {
  int n;
  int64_t row[PIECES_MAX], row_s[PIECES_MAX];
  int64_t max_rows; /* 0: no limit */
} layer_pieces;

/* Positions in atoll_model_layer_params() of matrices that a layer's products with all rows read; returns how many. */
int layer_matrices(const atoll_model *m, int layer, layer_way way, int list[LAYER_PARAMS]);
/* Whether every backward has a product that gives the gradient of parameter i. */
int layer_overwrites(const atoll_model *m, int layer, layer_way way, int i);

void head_work_pieces(const atoll_model *m, layer_pieces *out);
void embed_work_pieces(const atoll_model *m, layer_pieces *out);

/* Bytes of an element of activations and of weights as layers read them. */
int64_t layer_element(const atoll_model *m);

int64_t pieces_bytes(const layer_pieces *p, int64_t B, int64_t S);
/* Start of piece i in a buffer. */
void *piece(const layer_pieces *p, void *base, int i, int64_t B, int64_t S);
int64_t layer_saved_size(const atoll_model *m, int layer, atoll_policy p, layer_way way, int64_t B, int64_t S);
int64_t layer_carried_size(const atoll_model *m, int layer, atoll_policy p, layer_way way, int64_t B, int64_t S);
/* Scratch of the largest call, with backward whole or in halves. */
int64_t layer_work_size(const atoll_model *m, int layer, atoll_policy p, layer_way way, int in_halves, int64_t B,
                        int64_t S);
/* Bytes of the room for a layer's input at the start of its saved buffer. */
int64_t layer_input_size(const atoll_model *m, int layer, atoll_policy p, int64_t B, int64_t S);

/* Rows of logits that exist at a time. A function of the vocabulary alone, so that sums over rows do not depend on the
 * plan. */
int64_t head_chunk(const atoll_model *m);

/* tensor.c: one of how many tensor ranks, and the sum over them of [R, H] values, in place: the same bits on all. */
int layer_degree(const atoll_exec *e);
int layer_rank(const atoll_exec *e);
/* Scratch of a sum, beside that of the call. */
void tensor_sum_pieces(const atoll_model *m, int tensor, layer_pieces *out);

/* mlp.c: the pipelined MLP of one block, over the ranks of e->tensor. Each call is collective, enqueued on e->compute,
 * and the same on all of them. */
typedef struct layer_mlp layer_mlp;
atoll_err mlp_check(int tensor);
atoll_err mlp_bytes(const atoll_model *m, int64_t rows, int train, int rank, int tensor, int64_t *bytes);
/* Where a stage has gradients: buffers of `apart` elements behind one another in its segment of `memory` (NULL: it does
 * not train), the layer's parameter i from at[i] on. */
typedef struct mlp_gradients {
  const atoll_symmetric *memory;
  int64_t apart, at[LAYER_PARAMS];
} mlp_gradients;
/* `like`: an MLP of the same stage, whose choice this one takes; NULL: it is the first. */
atoll_err mlp_create(const atoll_model *m, int layer, int64_t rows, atoll_mlp way, const atoll_exec *e,
                     const mlp_gradients *gradients, const layer_mlp *like, layer_mlp **out);
const char *mlp_choice(const layer_mlp *mlp); /* "": none was made */
void mlp_destroy(layer_mlp **mlp);
/* Takes the layer's weights; those that another rank owns are not read. */
atoll_err mlp_set(const atoll_layer_buffers *b, const atoll_exec *e);

/* Generating: attention adds what it makes to the cache. */
typedef struct layer_cache {
  atoll_cache c;            /* of this layer, rows as attention finds them */
  const int32_t *slot, *at; /* [R] */
  int single;               /* each row is a token of a text of its own and attends to the cache; 0: the rows are one
                               text from its beginning and attend to themselves */
} layer_cache;

/* What each function of a kind gets. */
typedef struct layer_call {
  const atoll_model *m;
  const atoll_model_params *config;
  int layer;
  atoll_policy policy;
  const atoll_exec *e;
  const atoll_call *c;
  const atoll_layer_buffers *b;
  int64_t R, H;             /* B S rows of H */
  const layer_cache *cache; /* NULL: not generating */
} layer_call;

atoll_drop layer_drop(const layer_call *l, atoll_rng_site site);
atoll_err tensor_sum(const layer_call *l, void *at);
/* Where values are not of f32: a product with its sum over ranks, in f32 up to the one rounding of what is stored.
 * to[R,H] (+)= sum over ranks of from[R,inner] w[H,inner]^T + bias, or back: from w[inner,H]. */
int tensor_sums_apart(const layer_call *l);
atoll_err tensor_product(const layer_call *l, int back, const void *from, int64_t inner, const void *w,
                         const void *bias, void *to, int add);
atoll_err mlp_forward(const layer_call *l, const void *x, void *y);
/* And adds to the weights' gradients. */
atoll_err mlp_input(const layer_call *l, const void *x, const void *dy, void *dx, int add);

/* One norm over rows of C: LayerNorm, or RMSNorm when beta and mean are NULL. rstd (and mean) [rows] are written by
 * forward and read by the others. */
typedef struct layer_norm {
  const layer_call *l;
  const void *gamma, *beta;
  float *mean, *rstd;
  int64_t rows, C;
} layer_norm;

atoll_err layer_norm_forward(const layer_norm *n, const void *x, void *y);
atoll_err layer_norm_apply(const layer_norm *n, const void *x, void *y); /* the same y, bit for bit */
atoll_err layer_norm_input(const layer_norm *n, const void *dy, const void *x, void *dx, int accumulate);
atoll_err layer_norm_weight(const layer_norm *n, const void *dy, const void *x, float *dgamma, float *dbeta);

atoll_err embed_forward(const layer_call *l, const int32_t *tokens, void *y);
atoll_err embed_backward(const layer_call *l, const int32_t *tokens, const void *dy);
atoll_err head_forward(const layer_call *l, const void *x, const int32_t *targets, void *dx, float *loss);
/* The heads of bert and roberta (masked.c). */
void masked_work_pieces(const atoll_model *m, layer_pieces *out);
atoll_err masked_forward(const layer_call *l, const void *x, const int32_t *targets, void *dx, float *loss);

/* Element `i` of an array of the kernels' type. */
const void *layer_at(const layer_call *l, const void *base, int64_t i);
void *layer_place(const layer_call *l, void *base, int64_t i);

#endif
