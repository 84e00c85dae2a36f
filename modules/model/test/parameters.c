/* Every parameter belongs to its layer in global order; only the token embedding has a second use, by the head, first
 * in its list, and none when the head has a matrix of its own. */
#include "atoll/model.h"
#include "unit_check.h"

static atoll_model *make(const char *preset, int untied) {
  atoll_model_params p;
  atoll_model_params_init(&p);
  strcpy(p.preset, preset);
  p.untied = untied;
  atoll_model *m = NULL;
  assert_int_equal(atoll_model_create(&p, &m), ATOLL_OK);
  return m;
}

static void covers(const char *preset, int untied) {
  atoll_model *m = make(preset, untied);
  int n = atoll_model_params_count(m), next = 0, second = 0;
  for (int l = 0; l < atoll_model_layers(m); l++) {
    int index[16], k = atoll_model_layer_params(m, l, index, 16);
    assert_in_range(k, 1, 16);
    for (int i = 0; i < k; i++) {
      const atoll_model_param *q = atoll_model_param_at(m, index[i]);
      assert_int_equal(atoll_model_param_find(m, q->name), index[i]);
      if (q->layer == l) {
        assert_int_equal(index[i], next++);
      } else {
        assert_int_equal(i, 0);
        assert_int_equal(index[i], 0);
        assert_int_equal(q->tied_layer, l);
        assert_int_equal(atoll_model_layer_kind(m, l), ATOLL_LAYER_HEAD);
        second++;
      }
      assert_int_equal(q->decay, q->ndim == 2); /* matrices and embeddings decay, biases and norms do not */
    }
  }
  assert_int_equal(second, !untied);
  assert_int_equal(next, n);
  assert_null(atoll_model_param_at(m, n));
  assert_int_equal(atoll_model_param_find(m, "nonsense"), -1);
  atoll_model_destroy(&m);
}

static void cover(void **state) {
  (void)state;
  covers("gpt2-tiny", 0);
  covers("llama-tiny", 0);
  covers("llama-tiny", 1);
  covers("bert-tiny", 0);
  covers("roberta-tiny", 0);
}

static void facts(void **state) {
  (void)state;
  atoll_model *m = make("gpt2-tiny", 0);
  const atoll_model_param *q = atoll_model_param_at(m, atoll_model_param_find(m, "h.3.mlp.c_fc.weight"));
  assert_non_null(q);
  assert_int_equal(q->layer, 4);
  assert_int_equal(q->shape[0], 512);
  assert_int_equal(q->shape[1], 128);
  q = atoll_model_param_at(m, atoll_model_param_find(m, "h.0.mlp.c_proj.weight"));
  assert_float_equal(q->init_std, 0.02 / 2.8284271247461903, 1e-12); /* 1 / sqrt(2 x 4) */
  atoll_model_destroy(&m);
  m = make("llama-tiny", 0);
  q = atoll_model_param_at(m, atoll_model_param_find(m, "layers.1.self_attn.k_proj.weight"));
  assert_non_null(q);
  assert_int_equal(q->layer, 2);
  assert_int_equal(q->shape[0], 64); /* two key heads of 32 */
  assert_int_equal(q->shape[1], 128);
  atoll_model_destroy(&m);
  m = make("bert-tiny", 0);
  q = atoll_model_param_at(m, atoll_model_param_find(m, "encoder.layer.0.output.dense.weight"));
  assert_non_null(q);
  assert_float_equal(q->init_std, 0.02, 0); /* post-norm: not scaled */
  /* The norm that ends a layer begins the next. */
  assert_int_equal(atoll_model_param_at(m, atoll_model_param_find(m, "embeddings.LayerNorm.bias"))->layer, 1);
  assert_int_equal(atoll_model_param_at(m, atoll_model_param_find(m, "encoder.layer.0.output.LayerNorm.bias"))->layer,
                   2);
  assert_int_equal(atoll_model_param_at(m, atoll_model_param_find(m, "encoder.layer.3.output.LayerNorm.bias"))->layer,
                   5);
  atoll_model_destroy(&m);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(cover), cmocka_unit_test(facts)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
