/* Promise: the names that published checkpoints carry find their parameters, in every family, with and without the
 * prefix; what the family ties is checked and stored once; buffers are passed over. */
#include "weights_test.h"

/* A file of small float32 tensors with these names: "name rows cols;...", all of one content. Owned. */
static unsigned char *file_of(const char *list, size_t *bytes) {
  char *header = NULL;
  size_t n = 0, at = 0;
  FILE *f = open_memstream(&header, &n);
  assert_non_null(f);
  fputc('{', f);
  for (const char *s = list; *s;) {
    char name[128];
    int rows = 0, cols = 0, used = 0;
    assert_true(sscanf(s, "%127s %d %d;%n", name, &rows, &cols, &used) == 3 && used > 0);
    size_t data = 4 * (size_t)rows * (size_t)(cols ? cols : 1);
    fprintf(f, "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%d", s == list ? "" : ",", name, rows);
    fprintf(f, cols ? ",%d]" : "]", cols);
    fprintf(f, ",\"data_offsets\":[%zu,%zu]}", at, at + data);
    at += data;
    s += used;
    s += strspn(s, " ");
  }
  fputc('}', f);
  assert_int_equal(fclose(f), 0);
  unsigned char *file = test_safetensors(header, at, bytes);
  memset(file + 8 + strlen(header), 0, at);
  free(header);
  return file;
}

static atoll_weights *open_list(const char *list, const char *family, unsigned char **file) {
  size_t n = 0;
  atoll_weights *w = NULL;
  *file = file_of(list, &n);
  if (atoll_weights_open_bytes("list", *file, n, family, &w) != ATOLL_OK)
    fail_msg("%s", atoll_err_message());
  return w;
}

static void expect_item(const atoll_weights *w, const char *name, int64_t rows, int64_t cols) {
  int i = atoll_weights_find(w, name);
  if (i < 0)
    fail_msg("no %s", name);
  assert_int_equal(atoll_weights_at(w, i)->shape[0], rows);
  assert_int_equal(atoll_weights_at(w, i)->shape[1], cols);
}

static void gpt2(void **state) {
  (void)state;
  /* As the first releases have it: no prefix, and the causal mask stored. */
  static const char list[] =
      "wte.weight 9 4; wpe.weight 8 4; h.0.ln_1.weight 4 0; h.0.ln_1.bias 4 0; "
      "h.0.attn.bias 8 8; h.0.attn.masked_bias 1 0; h.0.attn.c_attn.weight 4 12; "
      "h.0.attn.c_attn.bias 12 0; h.0.attn.c_proj.weight 4 4; h.0.attn.c_proj.bias 4 0; "
      "h.0.ln_2.weight 4 0; h.0.ln_2.bias 4 0; h.0.mlp.c_fc.weight 4 16; h.0.mlp.c_fc.bias 16 0; "
      "h.0.mlp.c_proj.weight 16 4; h.0.mlp.c_proj.bias 4 0; ln_f.weight 4 0; ln_f.bias 4 0; "
      "lm_head.weight 9 4;";
  unsigned char *file;
  atoll_weights *w = open_list(list, NULL, &file);
  assert_int_equal(atoll_weights_count(w), 16);
  expect_item(w, "h.0.attn.c_attn.weight", 12, 4);
  expect_item(w, "h.0.mlp.c_proj.weight", 4, 16);
  const atoll_weights_config *c = atoll_weights_config_of(w);
  assert_string_equal(c->family, "gpt2");
  assert_int_equal(c->layers, 1);
  assert_int_equal(c->width, 4);
  assert_int_equal(c->ffn, 16);
  assert_int_equal(c->vocab, 9);
  assert_int_equal(c->context, 8);
  assert_int_equal(c->heads, 0); /* the shapes do not tell */
  test_refused(atoll_weights_set_heads(w, 3), ATOLL_USAGE, "3 heads do not divide the width 4");
  assert_int_equal(atoll_weights_set_heads(w, 2), ATOLL_OK);
  /* Against models: of that shape, and of others. */
  atoll_model_params p;
  atoll_model *m = NULL;
  atoll_model_params_init(&p);
  p.layers = 1, p.width = 4, p.heads = 2, p.context = 8, p.vocab = 9;
  assert_int_equal(atoll_model_create(&p, &m), ATOLL_OK);
  assert_int_equal(atoll_weights_check(w, m), ATOLL_OK);
  atoll_model_destroy(&m);
  p.ffn = 12;
  assert_int_equal(atoll_model_create(&p, &m), ATOLL_OK);
  test_refused(atoll_weights_check(w, m), ATOLL_MISMATCH,
               "tensor h.0.mlp.c_fc.weight: list has 4 x 16 (transposed), the model 12 x 4");
  atoll_model_destroy(&m);
  p.ffn = 0, p.layers = 2;
  assert_int_equal(atoll_model_create(&p, &m), ATOLL_OK);
  test_refused(atoll_weights_check(w, m), ATOLL_MISMATCH, "h.1.ln_1.weight (4) is not in list");
  atoll_model_destroy(&m);
  atoll_weights_close(&w);
  /* A head that is not the embedding. */
  size_t n = 0;
  free(file);
  file = file_of(list, &n);
  file[n - 1] = 0x3f;
  test_refused(atoll_weights_open_bytes("list", file, n, NULL, &w), ATOLL_MISMATCH,
               "lm_head.weight differs from wte.weight, to which it is tied");
  free(file);
}

/* Matrices of Conv1D are turned, also where their shape does not show it. */
static void turned(void **state) {
  (void)state;
  static const char *const names[] = {"h.0.attn.c_attn.weight", "h.0.attn.c_proj.weight", "h.0.mlp.c_fc.weight",
                                      "h.0.mlp.c_proj.weight"};
  static const float stored[] = {1, 2, 3, 4}, want[] = {1, 3, 2, 4};
  for (int i = 0; i < 4; i++) {
    char list[96];
    size_t n = 0;
    float got[4];
    atoll_weights *w = NULL;
    snprintf(list, sizeof list, "wte.weight 2 2; %s 2 2;", names[i]);
    unsigned char *file = file_of(list, &n);
    memcpy(file + n - sizeof stored, stored, sizeof stored);
    assert_int_equal(atoll_weights_open_bytes("list", file, n, NULL, &w), ATOLL_OK);
    assert_int_equal(atoll_weights_read(w, atoll_weights_find(w, names[i]), got), ATOLL_OK);
    assert_memory_equal(got, want, sizeof want);
    atoll_weights_close(&w);
    free(file);
  }
}

static void llama(void **state) {
  (void)state;
  static const char list[] =
      "model.embed_tokens.weight 9 8; model.layers.0.input_layernorm.weight 8 0; "
      "model.layers.0.self_attn.q_proj.weight 8 8; model.layers.0.self_attn.k_proj.weight 4 8; "
      "model.layers.0.self_attn.v_proj.weight 4 8; model.layers.0.self_attn.o_proj.weight 8 8; "
      "model.layers.0.self_attn.rotary_emb.inv_freq 2 0; model.layers.0.post_attention_layernorm.weight 8 0; "
      "model.layers.0.mlp.gate_proj.weight 12 8; model.layers.0.mlp.up_proj.weight 12 8; "
      "model.layers.0.mlp.down_proj.weight 8 12; model.norm.weight 8 0; lm_head.weight 9 8;";
  unsigned char *file;
  atoll_weights *w = open_list(list, NULL, &file);
  assert_int_equal(atoll_weights_count(w), 11); /* an equal head is tied */
  assert_string_equal(atoll_weights_config_of(w)->family, "llama");
  assert_int_equal(atoll_weights_config_of(w)->untied, 0);
  expect_item(w, "layers.0.mlp.down_proj.weight", 8, 12);
  assert_int_equal(atoll_weights_set_heads(w, 4), ATOLL_OK);
  assert_int_equal(atoll_weights_config_of(w)->kv_heads, 2); /* keys have 4 rows, heads 2 */
  atoll_weights_close(&w);
  size_t n = 0;
  free(file);
  file = file_of(list, &n);
  file[n - 1] = 0x3f;
  assert_int_equal(atoll_weights_open_bytes("list", file, n, NULL, &w), ATOLL_OK);
  assert_int_equal(atoll_weights_count(w), 12);
  assert_int_equal(atoll_weights_config_of(w)->untied, 1);
  atoll_weights_close(&w);
  free(file);
}

#define ENCODER(p, norm_w, norm_b)                                                                                     \
  p "embeddings.word_embeddings.weight 9 4; " p "embeddings.position_embeddings.weight 8 4; " p                        \
    "embeddings.token_type_embeddings.weight 2 4; " p "embeddings.LayerNorm." norm_w " 4 0; " p                        \
    "embeddings.LayerNorm." norm_b " 4 0; " p "encoder.layer.0.attention.self.query.weight 4 4; " p                    \
    "encoder.layer.0.attention.self.query.bias 4 0; " p "encoder.layer.0.attention.self.key.weight 4 4; " p            \
    "encoder.layer.0.attention.self.key.bias 4 0; " p "encoder.layer.0.attention.self.value.weight 4 4; " p            \
    "encoder.layer.0.attention.self.value.bias 4 0; " p "encoder.layer.0.attention.output.dense.weight 4 4; " p        \
    "encoder.layer.0.attention.output.dense.bias 4 0; " p "encoder.layer.0.attention.output.LayerNorm." norm_w         \
    " 4 0; " p "encoder.layer.0.attention.output.LayerNorm." norm_b " 4 0; " p                                         \
    "encoder.layer.0.intermediate.dense.weight 16 4; " p "encoder.layer.0.intermediate.dense.bias 16 0; " p            \
    "encoder.layer.0.output.dense.weight 4 16; " p "encoder.layer.0.output.dense.bias 4 0; " p                         \
    "encoder.layer.0.output.LayerNorm." norm_w " 4 0; " p "encoder.layer.0.output.LayerNorm." norm_b " 4 0; "

static void encoders(void **state) {
  (void)state;
  unsigned char *file;
  atoll_weights *w = open_list(
      ENCODER("bert.", "gamma", "beta") "bert.pooler.dense.weight 4 4; bert.pooler.dense.bias 4 0; "
                                        "cls.predictions.bias 9 0; cls.predictions.transform.dense.weight 4 4; "
                                        "cls.predictions.transform.dense.bias 4 0; "
                                        "cls.predictions.transform.LayerNorm.gamma 4 0; "
                                        "cls.predictions.transform.LayerNorm.beta 4 0; "
                                        "cls.predictions.decoder.weight 9 4; cls.seq_relationship.weight 2 4; "
                                        "cls.seq_relationship.bias 2 0;",
      NULL, &file);
  assert_string_equal(atoll_weights_config_of(w)->family, "bert");
  assert_int_equal(atoll_weights_count(w), 30);
  expect_item(w, "encoder.layer.0.output.LayerNorm.weight", 4, 0);
  assert_int_equal(atoll_weights_config_of(w)->types, 2);
  assert_int_equal(atoll_weights_config_of(w)->ffn, 16);
  atoll_weights_close(&w);
  free(file);
  w = open_list(ENCODER("roberta.", "weight", "bias") "lm_head.bias 9 0; lm_head.dense.weight 4 4; "
                                                      "lm_head.dense.bias 4 0; lm_head.layer_norm.weight 4 0; "
                                                      "lm_head.layer_norm.bias 4 0; lm_head.decoder.weight 9 4; "
                                                      "lm_head.decoder.bias 9 0;",
                NULL, &file);
  assert_string_equal(atoll_weights_config_of(w)->family, "roberta");
  assert_int_equal(atoll_weights_count(w), 26);
  atoll_weights_close(&w);
  free(file);
  /* Without prefix the two look alike: the caller says. */
  size_t n = 0;
  file = file_of(ENCODER("", "weight", "bias"), &n);
  test_refused(atoll_weights_open_bytes("bare", file, n, NULL, &w), ATOLL_UNSUPPORTED, "no known architecture");
  assert_int_equal(atoll_weights_open_bytes("bare", file, n, "bert", &w), ATOLL_OK);
  assert_int_equal(atoll_weights_count(w), 21);
  atoll_weights_close(&w);
  test_refused(atoll_weights_open_bytes("bare", file, n, "t5", &w), ATOLL_USAGE, "family 't5'");
  test_refused(atoll_weights_open_bytes("bare", file, n, "gpt2", &w), ATOLL_MISMATCH, "has no place in family gpt2");
  free(file);
}

/* Each parameter of each preset has its place in the table. */
static void every_parameter_of_gpt2(void **state) {
  (void)state;
  test_set s;
  atoll_weights_config c;
  atoll_model *m = test_gpt2(&s, &c);
  atoll_weights_source source = test_source(&s);
  assert_int_equal(atoll_weights_write_safetensors("published.tmp", &c, &source, ATOLL_F32), ATOLL_OK);
  unlink("published.tmp");
  test_set_free(&s);
  atoll_model_destroy(&m);
}

static void write_text(const char *path, const char *text) {
  assert_int_equal(atoll_file_replace(path, text, strlen(text)), ATOLL_OK);
}

static void folders_with_config_and_index(void **state) {
  (void)state;
  static const char a[] = "wte.weight 9 4; wpe.weight 8 4; ln_f.weight 4 0; ln_f.bias 4 0;",
                    b[] = "h.0.ln_1.weight 4 0;";
  unsigned char *fa, *fb;
  size_t na = 0, nb = 0;
  atoll_weights *w = NULL;
  fa = file_of(a, &na);
  fb = file_of(b, &nb);
  assert_int_equal(atoll_file_remove_tree("index.tmp"), ATOLL_OK);
  assert_int_equal(atoll_file_mkdirs("index.tmp"), ATOLL_OK);
  test_refused(atoll_weights_open("index.tmp", NULL, &w), ATOLL_NOINPUT, "holds neither model.safetensors");
  assert_int_equal(atoll_file_replace("index.tmp/a.safetensors", fa, na), ATOLL_OK);
  assert_int_equal(atoll_file_replace("index.tmp/b.safetensors", fb, nb), ATOLL_OK);
  write_text("index.tmp/config.json", "{\"model_type\": \"gpt2\", \"n_head\": 2, \"n_layer\": 1, \"n_embd\": 4, "
                                      "\"n_inner\": null, \"activation_function\": \"gelu_new\"}");
  static const char index[] = "index.tmp/model.safetensors.index.json";
  write_text(index, "{\"metadata\": {}, \"weight_map\": {\"wte.weight\": \"a.safetensors\", "
                    "\"h.0.ln_1.weight\": \"b.safetensors\"}}");
  assert_int_equal(atoll_weights_open("index.tmp", NULL, &w), ATOLL_OK);
  assert_int_equal(atoll_weights_count(w), 5);
  assert_int_equal(atoll_weights_config_of(w)->heads, 2);
  atoll_weights_close(&w);
  write_text(index, "{\"weight_map\": {\"wte.weight\": \"b.safetensors\"}}");
  test_refused(atoll_weights_open("index.tmp", NULL, &w), ATOLL_CORRUPT, "tensor wte.weight is not in");
  write_text(index, "{\"weight_map\": {\"wte.weight\": \"../a.safetensors\"}}");
  test_refused(atoll_weights_open("index.tmp", NULL, &w), ATOLL_CORRUPT, "not a name in this folder");
  write_text(index, "{\"weight_map\": {\"wte.weight\": \"c.safetensors\"}}");
  test_refused(atoll_weights_open("index.tmp", NULL, &w), ATOLL_NOINPUT, "c.safetensors");
  assert_int_equal(atoll_file_replace("index.tmp/c.safetensors", fa, na), ATOLL_OK);
  write_text(index, "{\"weight_map\": {\"wte.weight\": \"a.safetensors\", \"wpe.weight\": \"c.safetensors\"}}");
  test_refused(atoll_weights_open("index.tmp", NULL, &w), ATOLL_CORRUPT, "is in two files");
  /* config.json that says otherwise. */
  assert_int_equal(atoll_file_replace("index.tmp/model.safetensors", fa, na), ATOLL_OK);
  static const struct {
    const char *config, *says;
    atoll_err code;
  } bad[] = {
      {"{\"model_type\": \"mistral\"}", "'mistral' is an unknown architecture", ATOLL_UNSUPPORTED},
      {"{}", "'(absent)' is an unknown architecture", ATOLL_UNSUPPORTED},
      {"{\"model_type\": \"gpt2\", \"activation_function\": \"relu\"}", "is 'relu', family gpt2 computes 'gelu_new'",
       ATOLL_UNSUPPORTED},
      {"{\"model_type\": \"gpt2\", \"vocab_size\": 10}", "wte.weight show 9, its configuration says 10",
       ATOLL_MISMATCH},
      {"{\"model_type\": \"gpt2\", \"n_head\": \"two\"}", "n_head is not a size", ATOLL_CORRUPT},
      {"{\"model_type\": \"llama\", \"rope_scaling\": {\"rope_type\": \"yarn\"}}", "of type 'yarn', expected llama3",
       ATOLL_UNSUPPORTED},
      {"{\"model_type\": \"llama\", \"attention_bias\": true}", "attention_bias is true", ATOLL_UNSUPPORTED},
      {"{\"model_type\": \"gpt2\", ", "config.json:1:", ATOLL_CORRUPT},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    write_text("index.tmp/config.json", bad[i].config);
    test_refused(atoll_weights_open("index.tmp", NULL, &w), bad[i].code, bad[i].says);
  }
  assert_null(w);
  assert_int_equal(atoll_file_remove_tree("index.tmp"), ATOLL_OK);
  free(fa);
  free(fb);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(gpt2),
                                     cmocka_unit_test(turned),
                                     cmocka_unit_test(llama),
                                     cmocka_unit_test(encoders),
                                     cmocka_unit_test(every_parameter_of_gpt2),
                                     cmocka_unit_test(folders_with_config_and_index)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
