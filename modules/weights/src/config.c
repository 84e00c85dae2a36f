/* config.json of the published models, by one table of keys a family; and what shapes tell without it. */
#include "weights_impl.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define F(field) offsetof(atoll_weights_config, field)

typedef struct config_key {
  const char *key;
  size_t offset;
  int real;
} config_key;

static const config_key gpt2_keys[] = {{"n_layer", F(layers), 0},
                                       {"n_embd", F(width), 0},
                                       {"n_head", F(heads), 0},
                                       {"n_inner", F(ffn), 0},
                                       {"n_positions", F(context), 0},
                                       {"vocab_size", F(vocab), 0},
                                       {"layer_norm_epsilon", F(norm_eps), 1},
                                       {NULL, 0, 0}};
static const config_key llama_keys[] = {
    {"num_hidden_layers", F(layers), 0},  {"hidden_size", F(width), 0},
    {"num_attention_heads", F(heads), 0}, {"num_key_value_heads", F(kv_heads), 0},
    {"intermediate_size", F(ffn), 0},     {"max_position_embeddings", F(context), 0},
    {"vocab_size", F(vocab), 0},          {"rms_norm_eps", F(norm_eps), 1},
    {"rope_theta", F(rope_theta), 1},     {NULL, 0, 0}};
static const config_key bert_keys[] = {{"num_hidden_layers", F(layers), 0},
                                       {"hidden_size", F(width), 0},
                                       {"num_attention_heads", F(heads), 0},
                                       {"intermediate_size", F(ffn), 0},
                                       {"max_position_embeddings", F(context), 0},
                                       {"vocab_size", F(vocab), 0},
                                       {"type_vocab_size", F(types), 0},
                                       {"layer_norm_eps", F(norm_eps), 1},
                                       {NULL, 0, 0}};

/* Defaults are those that the published programs take when a key is absent. */
static const struct {
  const char *family, *architecture, *activation_key, *activation;
  const config_key *keys;
  double norm_eps, rope_theta;
} known[] = {{"gpt2", "GPT2LMHeadModel", "activation_function", "gelu_new", gpt2_keys, 1e-5, 0},
             {"llama", "LlamaForCausalLM", "hidden_act", "silu", llama_keys, 1e-6, 10000},
             {"bert", "BertForPreTraining", "hidden_act", "gelu", bert_keys, 1e-12, 0},
             {"roberta", "RobertaForMaskedLM", "hidden_act", "gelu", bert_keys, 1e-12, 0}};
#define KNOWN (sizeof known / sizeof *known)

static size_t known_index(const char *family) {
  size_t k = 0;
  while (k < KNOWN && strcmp(known[k].family, family) != 0)
    k++;
  return k;
}

static atoll_err read_number(const char *name, json_t *root, const char *key, int real, void *field) {
  json_t *v = json_object_get(root, key);
  if (!v || json_is_null(v))
    return ATOLL_OK;
  if (real ? !json_is_number(v) || !(json_number_value(v) >= 0) || json_number_value(v) > 1e18
           : !json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > (json_int_t)1 << 40)
    return atoll_fail(ATOLL_CORRUPT, "%s: %s is not %s", name, key, real ? "a number" : "a size");
  if (real)
    *(double *)field = json_number_value(v);
  else
    *(int64_t *)field = json_integer_value(v);
  return ATOLL_OK;
}

static atoll_err read_scaling(const char *name, json_t *scaling, atoll_weights_config *c) {
  if (!scaling || json_is_null(scaling))
    return ATOLL_OK;
  json_t *type = json_object_get(scaling, "rope_type");
  const char *kind = json_string_value(type ? type : json_object_get(scaling, "type"));
  if (!kind || strcmp(kind, "llama3") != 0)
    return atoll_fail(ATOLL_UNSUPPORTED, "%s: rope_scaling of type '%s', expected llama3", name, kind ? kind : "none");
  ATOLL_TRY(read_number(name, scaling, "factor", 1, &c->rope_factor));
  ATOLL_TRY(read_number(name, scaling, "low_freq_factor", 1, &c->rope_low));
  ATOLL_TRY(read_number(name, scaling, "high_freq_factor", 1, &c->rope_high));
  return read_number(name, scaling, "original_max_position_embeddings", 0, &c->rope_context);
}

atoll_err weights_config_read(const char *name, json_t *root, atoll_weights_config *c) {
  const char *family = json_string_value(json_object_get(root, "model_type"));
  size_t k = family ? known_index(family) : KNOWN;
  if (k == KNOWN)
    return atoll_fail(ATOLL_UNSUPPORTED,
                      "%s: model_type '%s' is an unknown architecture: expected gpt2, llama, bert "
                      "or roberta",
                      name, family ? family : "(absent)");
  atoll_weights_config new = {.norm_eps = known[k].norm_eps, .rope_theta = known[k].rope_theta};
  snprintf(new.family, sizeof new.family, "%s", family);
  for (const config_key *q = known[k].keys; q->key; q++)
    ATOLL_TRY(read_number(name, root, q->key, q->real, (char *)&new + q->offset));
  const char *activation = json_string_value(json_object_get(root, known[k].activation_key));
  if (activation && strcmp(activation, known[k].activation) != 0)
    return atoll_fail(ATOLL_UNSUPPORTED, "%s: %s is '%s', family %s computes '%s'", name, known[k].activation_key,
                      activation, family, known[k].activation);
  static const char *const biases[] = {"attention_bias", "mlp_bias"};
  for (size_t i = 0; i < 2 && !strcmp(family, "llama"); i++)
    if (json_is_true(json_object_get(root, biases[i])))
      return atoll_fail(ATOLL_UNSUPPORTED, "%s: %s is true, family llama has no biases", name, biases[i]);
  json_int_t head = json_integer_value(json_object_get(root, "head_dim"));
  if (head && new.heads && (new.width % new.heads || head != new.width / new.heads))
    return atoll_fail(ATOLL_UNSUPPORTED, "%s: head_dim %lld times %lld heads is not the width %lld", name,
                      (long long)head, (long long)new.heads, (long long)new.width);
  ATOLL_TRY(read_scaling(name, json_object_get(root, "rope_scaling"), &new));
  if (!new.kv_heads)
    new.kv_heads = new.heads;
  *c = new;
  return ATOLL_OK;
}

json_t *weights_config_object(const atoll_weights_config *c) {
  size_t k = known_index(c->family);
  if (k == KNOWN)
    return NULL;
  json_t *root = json_pack("{s:s, s:[s], s:s, s:b}", "model_type", c->family, "architectures", known[k].architecture,
                           known[k].activation_key, known[k].activation, "tie_word_embeddings", !c->untied);
  int bad = !root;
  for (const config_key *q = known[k].keys; q->key && !bad; q++) {
    const char *field = (const char *)c + q->offset;
    double real = q->real ? *(const double *)(const void *)field : 0;
    int64_t whole = q->real ? 0 : *(const int64_t *)(const void *)field;
    if (real != 0 || whole != 0)
      bad = json_object_set_new(root, q->key, q->real ? json_real(real) : json_integer(whole)) != 0;
  }
  if (!bad && c->rope_factor != 0)
    bad = json_object_set_new(root, "rope_scaling",
                              json_pack("{s:s, s:f, s:f, s:f, s:I}", "rope_type", "llama3", "factor", c->rope_factor,
                                        "low_freq_factor", c->rope_low, "high_freq_factor", c->rope_high,
                                        "original_max_position_embeddings", (json_int_t)c->rope_context)) != 0;
  if (!bad)
    return root;
  json_decref(root);
  return NULL;
}

atoll_err atoll_weights_config_json(const atoll_weights_config *config, char **text) {
  if (known_index(config->family) == KNOWN)
    return atoll_fail(ATOLL_UNSUPPORTED, "family '%s', expected gpt2, llama, bert or roberta", config->family);
  json_t *root = weights_config_object(config);
  char *made = root ? json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(15)) : NULL;
  size_t n = made ? strlen(made) + 2 : 0;
  char *line = made ? malloc(n) : NULL;
  if (line)
    snprintf(line, n, "%s\n", made);
  free(made);
  json_decref(root);
  if (!line)
    return atoll_fail(ATOLL_NOMEM, "config.json");
  *text = line;
  return ATOLL_OK;
}

/* ---- sizes from shapes ---- */

/* Where a size shows: extent `axis` of a tensor of the first layer. */
static const struct {
  const char *family, *tensor;
  int axis;
  size_t offset;
} places[] = {{"gpt2", "wte.weight", 0, F(vocab)},
              {"gpt2", "wte.weight", 1, F(width)},
              {"gpt2", "wpe.weight", 0, F(context)},
              {"gpt2", "h.0.mlp.c_fc.weight", 0, F(ffn)},
              {"llama", "embed_tokens.weight", 0, F(vocab)},
              {"llama", "embed_tokens.weight", 1, F(width)},
              {"llama", "layers.0.mlp.gate_proj.weight", 0, F(ffn)},
              {"bert", "embeddings.word_embeddings.weight", 0, F(vocab)},
              {"bert", "embeddings.word_embeddings.weight", 1, F(width)},
              {"bert", "embeddings.position_embeddings.weight", 0, F(context)},
              {"bert", "embeddings.token_type_embeddings.weight", 0, F(types)},
              {"bert", "encoder.layer.0.intermediate.dense.weight", 0, F(ffn)},
              {"roberta", "embeddings.word_embeddings.weight", 0, F(vocab)},
              {"roberta", "embeddings.word_embeddings.weight", 1, F(width)},
              {"roberta", "embeddings.position_embeddings.weight", 0, F(context)},
              {"roberta", "embeddings.token_type_embeddings.weight", 0, F(types)},
              {"roberta", "encoder.layer.0.intermediate.dense.weight", 0, F(ffn)}};

static int64_t count_layers(const atoll_weights *w) {
  const weights_family *f = weights_family_find(w->config.family);
  int64_t layers = 0;
  for (int i = 0; i < w->items; i++) {
    int layer = 0;
    const weights_rule *r = weights_rule_of_model(f, w->item[i].name, &layer);
    if (r && strstr(r->model, "%d") && layer >= layers)
      layers = layer + 1;
  }
  return layers;
}

static atoll_err settle(const char *path, const char *what, int64_t shows, int64_t *said) {
  if (*said && *said != shows)
    return atoll_fail(ATOLL_MISMATCH, "%s: %s show %lld, its configuration says %lld", path, what, (long long)shows,
                      (long long)*said);
  *said = shows;
  return ATOLL_OK;
}

/* Keys have the size of a head times their heads. */
atoll_err weights_config_keys(atoll_weights *w, const char *path) {
  atoll_weights_config *c = &w->config;
  int key = strcmp(c->family, "llama") ? -1 : atoll_weights_find(w, "layers.0.self_attn.k_proj.weight");
  int64_t head = c->heads > 0 && c->width % c->heads == 0 ? c->width / c->heads : 0;
  if (key < 0 || head == 0 || w->item[key].shape[0] % head)
    return ATOLL_OK;
  return settle(path, "keys", w->item[key].shape[0] / head, &c->kv_heads);
}

atoll_err weights_config_infer(atoll_weights *w, const char *path) {
  atoll_weights_config *c = &w->config;
  for (size_t k = 0; k < sizeof places / sizeof *places; k++) {
    int i = strcmp(places[k].family, c->family) ? -1 : atoll_weights_find(w, places[k].tensor);
    if (i < 0 || w->item[i].ndim != 2)
      continue;
    ATOLL_TRY(settle(path, places[k].tensor, w->item[i].shape[places[k].axis],
                     (int64_t *)(void *)((char *)c + places[k].offset)));
  }
  ATOLL_TRY(settle(path, "layers", count_layers(w), &c->layers));
  size_t k = known_index(c->family);
  if (c->norm_eps == 0)
    c->norm_eps = known[k].norm_eps;
  if (c->rope_theta == 0)
    c->rope_theta = known[k].rope_theta;
  return weights_config_keys(w, path);
}
