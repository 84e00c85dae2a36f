/** Model families as data: layers, shapes, parameters, FLOPs. No bytes of activations (layer states those), no code
 * that computes.
 *
 *  A model is a list of layers: 0 is the embedding, 1 .. L are blocks, L + 1 is the head (final norm, tied projection,
 * loss). Where norms follow what they norm (bert, roberta), a layer's last norm counts to the next one. Slices are
 * half-open layer ranges. Parameters have a global index (layer-major) that orders sums over parameters. */
#ifndef ATOLL_MODEL_H
#define ATOLL_MODEL_H

#include <stdint.h>

#include "atoll/digest.h"
#include "atoll/opt.h"
#include "atoll/sym.h"
#include "atoll/tensor.h"

ATOLL_BEGIN_C

/** AUTO is the preset's, or gpt2; a resolved config never has it. */
typedef enum atoll_family {
  ATOLL_FAMILY_AUTO,
  ATOLL_FAMILY_GPT2,
  ATOLL_FAMILY_LLAMA,
  ATOLL_FAMILY_BERT,
  ATOLL_FAMILY_ROBERTA
} atoll_family;
typedef enum atoll_layer_kind {
  ATOLL_LAYER_EMBED,
  ATOLL_LAYER_BLOCK,
  ATOLL_LAYER_HEAD,
  ATOLL_LAYER_KINDS
} atoll_layer_kind;

/** Options `model.*`. With `preset` set, zero-valued sizes take the preset's. */
typedef struct atoll_model_params {
  int family;                        /* an atoll_family */
  char preset[ATOLL_OPT_STRING_MAX]; /* "", gpt2-124m gpt2-355m gpt2-774m gpt2-1.5b gpt2-tiny ... */
  int64_t layers, width, heads;
  int64_t kv_heads;                        /* heads of keys and values; llama may have fewer than heads; 0 = heads */
  int64_t ffn;                             /* 0 = 4 x width; llama 8/3 x width rounded up to a multiple of 32 */
  int64_t context;                         /* tokens of a sample at most; train.seq may be shorter */
  int64_t vocab;                           /* 256 for bytes; masked families need four ids more */
  int64_t types;                           /* token types of bert (2) and roberta (1); 0 = the family's */
  int untied;                              /* bool: llama's head has a matrix of its own */
  double dropout;                          /* one probability for embedding, attention, projections */
  double init_std;                         /* 0.02; residual projections of gpt2 and llama are scaled by 1/sqrt(2 L) */
  double norm_eps;                         /* added to the variance, or mean square, in norms; 0 = the family's */
  double rope_theta;                       /* llama: frequency of pair i is theta^(-2 i / head size); 0 = 10000 */
  double rope_factor, rope_low, rope_high; /* llama 3's scaling of these (kernel.h); factor 0: none */
  int64_t rope_context;                    /* positions before that scaling */
  int dtype; /* an atoll_dtype, f32 or bf16: of activations and of the weights that layers read. No option of its own:
                train.dtype; a model that was not told computes in f32 */
} atoll_model_params;
extern ATOLL_API const atoll_opt_table atoll_model_options;
ATOLL_API void atoll_model_params_init(atoll_model_params *p);

typedef enum atoll_init { ATOLL_INIT_NORMAL, ATOLL_INIT_ZERO, ATOLL_INIT_ONE } atoll_init;

typedef struct atoll_model_param {
  char name[96]; /* "wte.weight", "h.3.attn.c_attn.weight": published names; matrices are [out, in], row-major */
  int layer;     /* where it is first used */
  int ndim;
  int64_t shape[ATOLL_NDIM_MAX];
  atoll_init init;
  double init_std;
  int decay;      /* 1: weight decay applies (matrices and embeddings) */
  int tied_layer; /* a second layer that uses it (the head, of the token embedding), or -1 */
} atoll_model_param;

typedef struct atoll_model atoll_model;

/** USAGE names the key, value and what would be valid (e.g. width not divisible by heads). */
ATOLL_API atoll_err atoll_model_create(const atoll_model_params *params, atoll_model **out);
ATOLL_API void atoll_model_destroy(atoll_model **model);
/** Resolved values (preset applied); borrowed. */
ATOLL_API const atoll_model_params *atoll_model_config(const atoll_model *model);
ATOLL_API const char *atoll_model_family_name(const atoll_model *model);
/** 1: a token attends to itself and those before it, and is followed by its target. 0: to all tokens that are not
 * padding; targets are what stood at masked places. */
ATOLL_API int atoll_model_causal(const atoll_model *model);
/** Row of the position table that position 0 has (2 for roberta). */
ATOLL_API int64_t atoll_model_position_offset(const atoll_model *model);
ATOLL_API int atoll_model_layers(const atoll_model *model); /* L + 2 */
ATOLL_API atoll_layer_kind atoll_model_layer_kind(const atoll_model *model, int layer);
ATOLL_API const char *atoll_layer_kind_name(atoll_layer_kind k);
ATOLL_API int atoll_model_params_count(const atoll_model *model);
ATOLL_API const atoll_model_param *atoll_model_param_at(const atoll_model *model, int i);
ATOLL_API int atoll_model_param_find(const atoll_model *model, const char *name); /* -1 */
/** Parameters used by a layer, in the order of the family's table (src/families.c), by global index. The head's first
 * is its matrix, mostly tied to the token embedding. Returns how many; fills at most cap. */
ATOLL_API int atoll_model_layer_params(const atoll_model *model, int layer, int *index, int cap);
/** Elements of all parameters, tied ones once. */
ATOLL_API int64_t atoll_model_elements(const atoll_model *model);
/** Parameters that every token is multiplied with, tied head once: the N of "6 N per token". Those of a head of masked
 * words count for 15 in 100, the share that is predicted. */
ATOLL_API int64_t atoll_model_matmul_elements(const atoll_model *model);
/** Of all that plans and measured times depend on, and of what a checkpoint depends on: the same but for the dtype. */
ATOLL_API atoll_digest atoll_model_digest(const atoll_model *model);
ATOLL_API atoll_digest atoll_model_weights_digest(const atoll_model *model);

/** Forward FLOPs of one layer for B samples of S tokens, as an int expression over variables "B" and "S" of the pool (2
 * per multiply-add, causal attention counted at S^2/2, attention both ways at S^2). Backward input and backward weight
 * are the same each for matrices; attention backward is 2.5 times. A head of masked words: of the 15 in 100 tokens that
 * are predicted. */
ATOLL_API const atoll_sym *atoll_model_layer_flops(const atoll_model *model, atoll_syms *pool, int layer);
ATOLL_API const atoll_sym *atoll_model_layer_backward_flops(const atoll_model *model, atoll_syms *pool, int layer);
/** Elements that cross the boundary after a layer: B S H, as an expression. */
ATOLL_API const atoll_sym *atoll_model_boundary_elements(const atoll_model *model, atoll_syms *pool, int layer);

ATOLL_END_C
#endif
