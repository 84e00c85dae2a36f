/* The families as tables: one row a tensor, in the order in which a layer uses them. Names are those of the published
 * checkpoints; matrices are [out, in], row-major.
 *
 * Layers of bert and roberta are cut before their norms, not behind: a block begins with the norm that ends the layer
 * before it, and the last block's norm belongs to the head. So all blocks keep the same kinds of values for backward,
 * and what crosses from layer to layer is the sum before the norm, in every family.
 *
 *   gpt2     Radford et al. 2019: learnt positions, pre-norm blocks, tanh GELU, head tied to the token embedding
 *   llama    Touvron et al. 2023 (2302.13971), Llama 3 (2407.21783): rotary positions, pre-norm blocks with RMSNorm,
 *            SwiGLU, fewer key heads than heads, no biases, head tied or not
 *   bert     Devlin et al. 2019 (1810.04805): learnt positions and token types, post-norm blocks, GELU, attention both
 *            ways; heads for masked words (its matrix tied) and for the next sentence
 *   roberta  Liu et al. 2019 (1907.11692): as bert, without the next sentence; positions begin behind the padding id
 */
#include "atoll/model.h"

#include "model_impl.h"

#define E      ATOLL_LAYER_EMBED
#define B      ATOLL_LAYER_BLOCK
#define H      ATOLL_LAYER_HEAD
#define NORMAL ATOLL_INIT_NORMAL
#define ZERO   ATOLL_INIT_ZERO
#define ONE    ATOLL_INIT_ONE
#define WIDTH  EXTENT_WIDTH
#define FFN    EXTENT_FFN
#define NONE   EXTENT_NONE

static const model_tensor gpt2[] = {
    {E, "wte.weight", NULL, EXTENT_VOCAB, WIDTH, NORMAL, 0},
    {E, "wpe.weight", NULL, EXTENT_POSITIONS, WIDTH, NORMAL, 0},
    {B, "h.%d.ln_1.weight", NULL, WIDTH, NONE, ONE, 0},
    {B, "h.%d.ln_1.bias", NULL, WIDTH, NONE, ZERO, 0},
    {B, "h.%d.attn.c_attn.weight", NULL, EXTENT_WIDTH3, WIDTH, NORMAL, 0},
    {B, "h.%d.attn.c_attn.bias", NULL, EXTENT_WIDTH3, NONE, ZERO, 0},
    {B, "h.%d.attn.c_proj.weight", NULL, WIDTH, WIDTH, NORMAL, TENSOR_RESIDUAL},
    {B, "h.%d.attn.c_proj.bias", NULL, WIDTH, NONE, ZERO, 0},
    {B, "h.%d.ln_2.weight", NULL, WIDTH, NONE, ONE, 0},
    {B, "h.%d.ln_2.bias", NULL, WIDTH, NONE, ZERO, 0},
    {B, "h.%d.mlp.c_fc.weight", NULL, FFN, WIDTH, NORMAL, 0},
    {B, "h.%d.mlp.c_fc.bias", NULL, FFN, NONE, ZERO, 0},
    {B, "h.%d.mlp.c_proj.weight", NULL, WIDTH, FFN, NORMAL, TENSOR_RESIDUAL},
    {B, "h.%d.mlp.c_proj.bias", NULL, WIDTH, NONE, ZERO, 0},
    {H, "wte.weight", NULL, EXTENT_VOCAB, WIDTH, NORMAL, TENSOR_TIED},
    {H, "ln_f.weight", NULL, WIDTH, NONE, ONE, 0},
    {H, "ln_f.bias", NULL, WIDTH, NONE, ZERO, 0},
    {0},
};

static const model_tensor llama[] = {
    {E, "embed_tokens.weight", NULL, EXTENT_VOCAB, WIDTH, NORMAL, 0},
    {B, "layers.%d.input_layernorm.weight", NULL, WIDTH, NONE, ONE, 0},
    {B, "layers.%d.self_attn.q_proj.weight", NULL, WIDTH, WIDTH, NORMAL, 0},
    {B, "layers.%d.self_attn.k_proj.weight", NULL, EXTENT_KEYS, WIDTH, NORMAL, 0},
    {B, "layers.%d.self_attn.v_proj.weight", NULL, EXTENT_KEYS, WIDTH, NORMAL, 0},
    {B, "layers.%d.self_attn.o_proj.weight", NULL, WIDTH, WIDTH, NORMAL, TENSOR_RESIDUAL},
    {B, "layers.%d.post_attention_layernorm.weight", NULL, WIDTH, NONE, ONE, 0},
    {B, "layers.%d.mlp.gate_proj.weight", NULL, FFN, WIDTH, NORMAL, 0},
    {B, "layers.%d.mlp.up_proj.weight", NULL, FFN, WIDTH, NORMAL, 0},
    {B, "layers.%d.mlp.down_proj.weight", NULL, WIDTH, FFN, NORMAL, TENSOR_RESIDUAL},
    {H, "embed_tokens.weight", NULL, EXTENT_VOCAB, WIDTH, NORMAL, TENSOR_TIED},
    {H, "lm_head.weight", NULL, EXTENT_VOCAB, WIDTH, NORMAL, TENSOR_UNTIED},
    {H, "norm.weight", NULL, WIDTH, NONE, ONE, 0},
    {0},
};

/* A matrix with its bias; a norm; the norm that ends the layer before. */
#define LINEAR(place, name, rows, cols, flags)                                                                         \
  {place, name ".weight", NULL, rows, cols, NORMAL, flags}, { place, name ".bias", NULL, rows, NONE, ZERO, 0 }
#define NORM(place, name)                                                                                              \
  {place, name ".weight", NULL, WIDTH, NONE, ONE, 0}, { place, name ".bias", NULL, WIDTH, NONE, ZERO, 0 }
#define NORM_BEFORE(place)                                                                                             \
  {                                                                                                                    \
      place,          "encoder.layer.%d.output.LayerNorm.weight", "embeddings.LayerNorm.weight", WIDTH, NONE, ONE,     \
      TENSOR_PREVIOUS},                                                                                                \
  {                                                                                                                    \
    place, "encoder.layer.%d.output.LayerNorm.bias", "embeddings.LayerNorm.bias", WIDTH, NONE, ZERO, TENSOR_PREVIOUS   \
  }
/* What the two encoders share. */
#define ENCODER                                                                                                        \
  {E, "embeddings.word_embeddings.weight", NULL, EXTENT_VOCAB, WIDTH, NORMAL, 0},                                      \
      {E, "embeddings.position_embeddings.weight", NULL, EXTENT_POSITIONS, WIDTH, NORMAL, 0},                          \
      {E, "embeddings.token_type_embeddings.weight", NULL, EXTENT_TYPES, WIDTH, NORMAL, 0}, NORM_BEFORE(B),            \
      LINEAR(B, "encoder.layer.%d.attention.self.query", WIDTH, WIDTH, 0),                                             \
      LINEAR(B, "encoder.layer.%d.attention.self.key", WIDTH, WIDTH, 0),                                               \
      LINEAR(B, "encoder.layer.%d.attention.self.value", WIDTH, WIDTH, 0),                                             \
      LINEAR(B, "encoder.layer.%d.attention.output.dense", WIDTH, WIDTH, 0),                                           \
      NORM(B, "encoder.layer.%d.attention.output.LayerNorm"),                                                          \
      LINEAR(B, "encoder.layer.%d.intermediate.dense", FFN, WIDTH, 0),                                                 \
      LINEAR(B, "encoder.layer.%d.output.dense", WIDTH, FFN, 0),                                                       \
      {H, "embeddings.word_embeddings.weight", NULL, EXTENT_VOCAB, WIDTH, NORMAL, TENSOR_TIED}, NORM_BEFORE(H)

static const model_tensor bert[] = {
    ENCODER,
    LINEAR(H, "cls.predictions.transform.dense", WIDTH, WIDTH, 0),
    NORM(H, "cls.predictions.transform.LayerNorm"),
    {H, "cls.predictions.bias", NULL, EXTENT_VOCAB, NONE, ZERO, 0},
    LINEAR(H, "pooler.dense", WIDTH, WIDTH, TENSOR_SAMPLE),
    LINEAR(H, "cls.seq_relationship", EXTENT_TWO, WIDTH, TENSOR_SAMPLE),
    {0},
};

static const model_tensor roberta[] = {
    ENCODER,
    LINEAR(H, "lm_head.dense", WIDTH, WIDTH, 0),
    NORM(H, "lm_head.layer_norm"),
    {H, "lm_head.bias", NULL, EXTENT_VOCAB, NONE, ZERO, 0},
    {0},
};

const struct model_family model_gpt2 = {.name = "gpt2", .tensor = gpt2, .causal = 1, .norm_eps = 1e-5};
const struct model_family model_llama = {.name = "llama", .tensor = llama, .causal = 1, .norm_eps = 1e-5};
const struct model_family model_bert = {.name = "bert", .tensor = bert, .norm_eps = 1e-12, .types = 2};
const struct model_family model_roberta = {
    .name = "roberta", .tensor = roberta, .norm_eps = 1e-5, .types = 1, .position_offset = 2};
