/* Inside of the model room: a family is a table of its tensors; everything else follows from that. */
#ifndef ATOLL_MODEL_IMPL_H
#define ATOLL_MODEL_IMPL_H

#include "atoll/model.h"

#define MODEL_LAYER_PARAMS_MAX 16 /* the width of atoll_layer_buffers */

struct atoll_model {
  atoll_model_params config; /* resolved */
  int layers;                /* embedding + blocks + head */
  int nparams;
  atoll_model_param *params;
};

/* An extent of a tensor, as a size of the model. */
typedef enum model_extent {
  EXTENT_NONE, /* ends a shape */
  EXTENT_TWO,
  EXTENT_WIDTH,
  EXTENT_WIDTH3, /* queries, keys and values in one */
  EXTENT_KEYS,   /* key heads times the size of a head */
  EXTENT_FFN,
  EXTENT_VOCAB,
  EXTENT_POSITIONS, /* context, and what the family keeps before it */
  EXTENT_TYPES
} model_extent;

enum model_flags {
  TENSOR_RESIDUAL = 1, /* initial values are scaled by 1/sqrt(2 L) */
  TENSOR_TIED = 2,     /* no tensor: the head's use of the first one, when the head is tied */
  TENSOR_UNTIED = 4,   /* only when the head is not tied */
  TENSOR_SAMPLE = 8,   /* multiplies one row of a sample, not every token */
  TENSOR_PREVIOUS = 16 /* carries the number of the block before; before the first block stands `first` */
};

typedef struct model_tensor {
  atoll_layer_kind place;
  const char *name, *first; /* "%d" for the number of the block, from 0 */
  model_extent rows, cols;
  atoll_init init;
  int flags;
} model_tensor;

struct model_family {
  const char *name;
  const model_tensor *tensor; /* in order of use: embedding, block, head; ends with name NULL */
  int causal;
  double norm_eps;
  int64_t types, position_offset;
};

extern const struct model_family model_gpt2, model_llama, model_bert, model_roberta;

/* A named set of sizes; 0 and negative values of the user's config take the preset's. */
struct model_preset {
  const char *name;
  int family;
  int64_t layers, width, heads, kv_heads, ffn, context, vocab;
  double rope_theta, rope_factor, rope_low, rope_high;
  int64_t rope_context;
};
const struct model_preset *model_preset_find(const char *name);
const struct model_preset *model_preset_at(int i); /* NULL past the end */

#endif
