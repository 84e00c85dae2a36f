/* Presets have the parameter counts of the published models, and sizes a user sets win over the preset's. */
#include "atoll/model.h"
#include "unit_check.h"

static atoll_model *make(const char *preset) {
  atoll_model_params p;
  atoll_model_params_init(&p);
  strcpy(p.preset, preset);
  atoll_model *m = NULL;
  assert_int_equal(atoll_model_create(&p, &m), ATOLL_OK);
  return m;
}

static void counts(void **state) {
  (void)state;
  /* Sums over the tensors of the released checkpoints; those of roberta also hold a pooler, which nothing trains. */
  const struct {
    const char *preset;
    int64_t elements;
    int layers;
  } known[] = {{"gpt2-124m", 124439808, 14},    {"gpt2-355m", 354823168, 26},     {"gpt2-774m", 774030080, 38},
               {"gpt2-1.5b", 1557611200, 50},   {"llama-3.2-1b", 1235814400, 18}, {"llama-3.2-3b", 3212749824, 30},
               {"bert-base", 110106428, 14},    {"bert-large", 336226108, 26},    {"roberta-base", 124697433, 14},
               {"roberta-large", 355412057, 26}};
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
    atoll_model *m = make(known[i].preset);
    assert_int_equal(atoll_model_elements(m), known[i].elements);
    assert_int_equal(atoll_model_layers(m), known[i].layers);
    atoll_model_destroy(&m);
    assert_null(m);
  }
}

static void matmul(void **state) {
  (void)state;
  atoll_model *m = make("gpt2-124m");
  assert_int_equal(atoll_model_matmul_elements(m), 12 * 12 * INT64_C(768) * 768 + INT64_C(50257) * 768);
  atoll_model_destroy(&m);
}

static void override(void **state) {
  (void)state;
  atoll_model_params p;
  atoll_model_params_init(&p);
  strcpy(p.preset, "gpt2-124m");
  p.layers = 3;
  p.vocab = 256;
  p.width = 96; /* and so ffn is 4 x 96, not the preset's 3072 */
  atoll_model *m = NULL;
  assert_int_equal(atoll_model_create(&p, &m), ATOLL_OK);
  const atoll_model_params *c = atoll_model_config(m);
  assert_int_equal(c->layers, 3);
  assert_int_equal(c->vocab, 256);
  assert_int_equal(c->heads, 12);
  assert_int_equal(c->ffn, 384);
  assert_int_equal(c->context, 1024);
  atoll_model_destroy(&m);
}

/* What a preset leaves open is the family's, and the user's word counts more. */
static void variants(void **state) {
  (void)state;
  atoll_model *m = make("llama-3.2-1b");
  const atoll_model_params *c = atoll_model_config(m);
  assert_int_equal(c->kv_heads, 8);
  assert_float_equal(c->norm_eps, 1e-5, 0);
  assert_float_equal(c->rope_theta, 500000, 0);
  assert_float_equal(c->rope_factor, 32, 0);
  assert_int_equal(atoll_model_causal(m), 1);
  atoll_model_destroy(&m);
  m = make("bert-base");
  c = atoll_model_config(m);
  assert_int_equal(c->types, 2);
  assert_int_equal(c->kv_heads, 12);
  assert_float_equal(c->norm_eps, 1e-12, 0);
  assert_int_equal(atoll_model_causal(m), 0);
  assert_int_equal(atoll_model_position_offset(m), 0);
  atoll_model_destroy(&m);
  m = make("roberta-base");
  int i = atoll_model_param_find(m, "embeddings.position_embeddings.weight");
  assert_int_equal(atoll_model_param_at(m, i)->shape[0], 514);
  assert_int_equal(atoll_model_position_offset(m), 2);
  assert_string_equal(atoll_model_family_name(m), "roberta");
  atoll_model_destroy(&m);
  atoll_model_params p;
  atoll_model_params_init(&p);
  strcpy(p.preset, "llama-tiny");
  p.width = 96, p.heads = 6, p.untied = 1, p.norm_eps = 1e-6;
  assert_int_equal(atoll_model_create(&p, &m), ATOLL_OK);
  c = atoll_model_config(m);
  assert_int_equal(c->kv_heads, 6);
  assert_int_equal(c->ffn, 256); /* 8/3 x 96 */
  assert_float_equal(c->norm_eps, 1e-6, 0);
  assert_true(atoll_model_param_find(m, "lm_head.weight") >= 0);
  assert_int_equal(atoll_model_param_at(m, 0)->tied_layer, -1);
  atoll_model_destroy(&m);
}

static void digest(void **state) {
  (void)state;
  atoll_model *a = make("gpt2-tiny");
  atoll_model_params p = *atoll_model_config(a);
  p.preset[0] = 0; /* the same sizes by hand are the same model */
  atoll_model *b = NULL, *c = NULL;
  assert_int_equal(atoll_model_create(&p, &b), ATOLL_OK);
  p.dropout = 0.1;
  assert_int_equal(atoll_model_create(&p, &c), ATOLL_OK);
  assert_true(atoll_digest_equal(atoll_model_digest(a), atoll_model_digest(b)));
  assert_false(atoll_digest_equal(atoll_model_digest(a), atoll_model_digest(c)));
  atoll_model_destroy(&c);
  p.dropout = 0, p.norm_eps = 1e-6;
  assert_int_equal(atoll_model_create(&p, &c), ATOLL_OK);
  assert_false(atoll_digest_equal(atoll_model_digest(a), atoll_model_digest(c)));
  char text[33]; /* as checkpoints of earlier releases have it */
  atoll_digest_text(atoll_model_digest(a), text);
  assert_string_equal(text, "10e270c952bc757cb0e9281e1aab0c14");
  atoll_model_destroy(&a);
  atoll_model_destroy(&b);
  atoll_model_destroy(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(counts), cmocka_unit_test(matmul), cmocka_unit_test(override),
                                     cmocka_unit_test(variants), cmocka_unit_test(digest)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
