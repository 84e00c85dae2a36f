/* Which tensor of a file is which parameter, as tables: one row a tensor, "%d" for the layer.
 *
 * The names are those that the published checkpoints of each family carry (Hugging Face's safetensors). Atoll's own
 * names of gpt2 are the same without prefix; so are those of the other families here. */
#include "weights_impl.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define T TURN_TRANSPOSE
#define N TURN_NONE
#define IGNORED(file)                                                                                                  \
  { NULL, file, N, N, ROLE_IGNORED }

/* Conv1D keeps matrices as [in, out]. llm.c keeps them as Atoll does. */
static const weights_rule gpt2[] = {
    {"wte.weight", "transformer.wte.weight", N, N, ROLE_PARAM},
    {"wpe.weight", "transformer.wpe.weight", N, N, ROLE_PARAM},
    {"h.%d.ln_1.weight", "transformer.h.%d.ln_1.weight", N, N, ROLE_PARAM},
    {"h.%d.ln_1.bias", "transformer.h.%d.ln_1.bias", N, N, ROLE_PARAM},
    {"h.%d.attn.c_attn.weight", "transformer.h.%d.attn.c_attn.weight", T, N, ROLE_PARAM},
    {"h.%d.attn.c_attn.bias", "transformer.h.%d.attn.c_attn.bias", N, N, ROLE_PARAM},
    {"h.%d.attn.c_proj.weight", "transformer.h.%d.attn.c_proj.weight", T, N, ROLE_PARAM},
    {"h.%d.attn.c_proj.bias", "transformer.h.%d.attn.c_proj.bias", N, N, ROLE_PARAM},
    {"h.%d.ln_2.weight", "transformer.h.%d.ln_2.weight", N, N, ROLE_PARAM},
    {"h.%d.ln_2.bias", "transformer.h.%d.ln_2.bias", N, N, ROLE_PARAM},
    {"h.%d.mlp.c_fc.weight", "transformer.h.%d.mlp.c_fc.weight", T, N, ROLE_PARAM},
    {"h.%d.mlp.c_fc.bias", "transformer.h.%d.mlp.c_fc.bias", N, N, ROLE_PARAM},
    {"h.%d.mlp.c_proj.weight", "transformer.h.%d.mlp.c_proj.weight", T, N, ROLE_PARAM},
    {"h.%d.mlp.c_proj.bias", "transformer.h.%d.mlp.c_proj.bias", N, N, ROLE_PARAM},
    {"ln_f.weight", "transformer.ln_f.weight", N, N, ROLE_PARAM},
    {"ln_f.bias", "transformer.ln_f.bias", N, N, ROLE_PARAM},
    {"wte.weight", "lm_head.weight", N, N, ROLE_SAME},
    IGNORED("transformer.h.%d.attn.bias"), /* the causal mask */
    IGNORED("transformer.h.%d.attn.masked_bias"),
    {0},
};

static const weights_rule llama[] = {
    {"embed_tokens.weight", "model.embed_tokens.weight", N, N, ROLE_PARAM},
    {"layers.%d.input_layernorm.weight", "model.layers.%d.input_layernorm.weight", N, N, ROLE_PARAM},
    {"layers.%d.self_attn.q_proj.weight", "model.layers.%d.self_attn.q_proj.weight", N, TURN_ROPE_Q, ROLE_PARAM},
    {"layers.%d.self_attn.k_proj.weight", "model.layers.%d.self_attn.k_proj.weight", N, TURN_ROPE_K, ROLE_PARAM},
    {"layers.%d.self_attn.v_proj.weight", "model.layers.%d.self_attn.v_proj.weight", N, N, ROLE_PARAM},
    {"layers.%d.self_attn.o_proj.weight", "model.layers.%d.self_attn.o_proj.weight", N, N, ROLE_PARAM},
    {"layers.%d.post_attention_layernorm.weight", "model.layers.%d.post_attention_layernorm.weight", N, N, ROLE_PARAM},
    {"layers.%d.mlp.gate_proj.weight", "model.layers.%d.mlp.gate_proj.weight", N, N, ROLE_PARAM},
    {"layers.%d.mlp.up_proj.weight", "model.layers.%d.mlp.up_proj.weight", N, N, ROLE_PARAM},
    {"layers.%d.mlp.down_proj.weight", "model.layers.%d.mlp.down_proj.weight", N, N, ROLE_PARAM},
    {"norm.weight", "model.norm.weight", N, N, ROLE_PARAM},
    {"lm_head.weight", "lm_head.weight", N, N, ROLE_HEAD},
    IGNORED("model.layers.%d.self_attn.rotary_emb.inv_freq"),
    {0},
};

/* The encoder is the same for both; the heads that pre-train them differ. */
#define ENCODER(family)                                                                                                \
  {"embeddings.word_embeddings.weight", family ".embeddings.word_embeddings.weight", N, N, ROLE_PARAM},                \
      {"embeddings.position_embeddings.weight", family ".embeddings.position_embeddings.weight", N, N, ROLE_PARAM},    \
      {"embeddings.token_type_embeddings.weight", family ".embeddings.token_type_embeddings.weight", N, N,             \
       ROLE_PARAM},                                                                                                    \
      {"embeddings.LayerNorm.weight", family ".embeddings.LayerNorm.weight", N, N, ROLE_PARAM},                        \
      {"embeddings.LayerNorm.bias", family ".embeddings.LayerNorm.bias", N, N, ROLE_PARAM},                            \
      ENCODER_LAYER(family, "attention.self.query"), ENCODER_LAYER(family, "attention.self.key"),                      \
      ENCODER_LAYER(family, "attention.self.value"), ENCODER_LAYER(family, "attention.output.dense"),                  \
      ENCODER_LAYER(family, "attention.output.LayerNorm"), ENCODER_LAYER(family, "intermediate.dense"),                \
      ENCODER_LAYER(family, "output.dense"), ENCODER_LAYER(family, "output.LayerNorm"),                                \
      IGNORED(family ".embeddings.position_ids"), IGNORED(family ".embeddings.token_type_ids")
#define ENCODER_LAYER(family, module)                                                                                  \
  {"encoder.layer.%d." module ".weight", family ".encoder.layer.%d." module ".weight", N, N, ROLE_PARAM}, {            \
    "encoder.layer.%d." module ".bias", family ".encoder.layer.%d." module ".bias", N, N, ROLE_PARAM                   \
  }
#define PLAIN(name)                                                                                                    \
  { name, name, N, N, ROLE_PARAM }

static const weights_rule bert[] = {
    ENCODER("bert"),
    {"pooler.dense.weight", "bert.pooler.dense.weight", N, N, ROLE_PARAM},
    {"pooler.dense.bias", "bert.pooler.dense.bias", N, N, ROLE_PARAM},
    PLAIN("cls.predictions.transform.dense.weight"),
    PLAIN("cls.predictions.transform.dense.bias"),
    PLAIN("cls.predictions.transform.LayerNorm.weight"),
    PLAIN("cls.predictions.transform.LayerNorm.bias"),
    PLAIN("cls.predictions.bias"),
    {"embeddings.word_embeddings.weight", "cls.predictions.decoder.weight", N, N, ROLE_SAME},
    {"cls.predictions.bias", "cls.predictions.decoder.bias", N, N, ROLE_SAME},
    PLAIN("cls.seq_relationship.weight"),
    PLAIN("cls.seq_relationship.bias"),
    {0},
};

static const weights_rule roberta[] = {
    ENCODER("roberta"),
    {"pooler.dense.weight", "roberta.pooler.dense.weight", N, N, ROLE_EXTRA},
    {"pooler.dense.bias", "roberta.pooler.dense.bias", N, N, ROLE_EXTRA},
    PLAIN("lm_head.dense.weight"),
    PLAIN("lm_head.dense.bias"),
    PLAIN("lm_head.layer_norm.weight"),
    PLAIN("lm_head.layer_norm.bias"),
    PLAIN("lm_head.bias"),
    {"embeddings.word_embeddings.weight", "lm_head.decoder.weight", N, N, ROLE_SAME},
    {"lm_head.bias", "lm_head.decoder.bias", N, N, ROLE_SAME},
    {0},
};

/* Converted TensorFlow checkpoints name the halves of a layer norm after the paper. */
static const char *const old_norms[][2] = {
    {"LayerNorm.gamma", "LayerNorm.weight"}, {"LayerNorm.beta", "LayerNorm.bias"}, {NULL, NULL}};
static const char *const old_none[][2] = {{NULL, NULL}};

static const weights_family families[] = {
    {"gpt2", "transformer.", "wte.weight", gpt2, old_none},
    {"llama", "model.", "embed_tokens.weight", llama, old_none},
    {"bert", "bert.", "embeddings.word_embeddings.weight", bert, old_norms},
    {"roberta", "roberta.", "embeddings.word_embeddings.weight", roberta, old_norms},
};

const weights_family *weights_family_at(int i) {
  return i >= 0 && i < (int)(sizeof families / sizeof *families) ? &families[i] : NULL;
}

const weights_family *weights_family_find(const char *name) {
  for (int i = 0; i < (int)(sizeof families / sizeof *families); i++)
    if (!strcmp(families[i].name, name))
      return &families[i];
  return NULL;
}

/* pattern against name; the number where "%d" stands, without leading zeros. */
static int matches(const char *pattern, const char *name, int *layer) {
  const char *place = strstr(pattern, "%d");
  *layer = 0;
  if (!place)
    return !strcmp(pattern, name);
  size_t head = (size_t)(place - pattern);
  if (strncmp(pattern, name, head) != 0 || !isdigit((unsigned char)name[head]) ||
      (name[head] == '0' && isdigit((unsigned char)name[head + 1])))
    return 0;
  char *end = NULL;
  long value = strtol(name + head, &end, 10);
  if (value > 65000 || strcmp(end, place + 2) != 0)
    return 0;
  *layer = (int)value;
  return 1;
}

static const weights_rule *find(const weights_family *f, const char *name, int *layer) {
  size_t skip = strlen(f->prefix);
  for (const weights_rule *r = f->rule; r->file; r++)
    if (matches(r->file, name, layer) || (!strncmp(r->file, f->prefix, skip) && matches(r->file + skip, name, layer)))
      return r;
  return NULL;
}

const weights_rule *weights_rule_find(const weights_family *f, const char *name, int *layer) {
  size_t n = strlen(name);
  char today[256];
  for (int i = 0; f->old[i][0]; i++) {
    size_t k = strlen(f->old[i][0]);
    if (n >= k && n < 200 && !strcmp(name + n - k, f->old[i][0])) {
      snprintf(today, sizeof today, "%.*s%s", (int)(n - k), name, f->old[i][1]);
      return find(f, today, layer);
    }
  }
  return find(f, name, layer);
}

const weights_rule *weights_rule_of_model(const weights_family *f, const char *name, int *layer) {
  for (const weights_rule *r = f->rule; r->file; r++)
    if (r->role <= ROLE_HEAD && matches(r->model, name, layer))
      return r;
  return NULL;
}

atoll_err weights_rule_name(const char *pattern, int layer, char *buf, size_t n) {
  const char *place = strstr(pattern, "%d");
  int want = place ? snprintf(buf, n, "%.*s%d%s", (int)(place - pattern), pattern, layer, place + 2)
                   : snprintf(buf, n, "%s", pattern);
  if (want < 0 || (size_t)want >= n)
    return atoll_fail(ATOLL_INTERNAL, "tensor name %s is too long", pattern);
  return ATOLL_OK;
}
