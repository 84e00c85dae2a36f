/* FLOPs as expressions: 2 per multiply-add forward, matrices twice that backward, causal attention 2 S^2 H and 5 S^2 H,
 * attention both ways twice that; what works on one row of a sample counts per sample. */
#include "atoll/model.h"
#include "unit_check.h"

static int64_t eval(const atoll_sym *e, int64_t B, int64_t S) {
  const char *const names[] = {"B", "S"};
  const int64_t values[] = {B, S};
  int64_t v = -1;
  assert_non_null(e);
  assert_int_equal(atoll_sym_eval_int(e, names, values, 2, &v), ATOLL_OK);
  return v;
}

static void closed_form(void **state) {
  (void)state;
  atoll_model_params p;
  atoll_model_params_init(&p);
  strcpy(p.preset, "gpt2-124m");
  atoll_model *m = NULL;
  atoll_syms *pool = NULL;
  assert_int_equal(atoll_model_create(&p, &m), ATOLL_OK);
  assert_int_equal(atoll_syms_create(&pool), ATOLL_OK);
  int64_t B = 4, S = 256, H = 768, V = 50257, R = B * S, forward = 0, backward = 0;
  for (int l = 0; l < atoll_model_layers(m); l++) {
    forward += eval(atoll_model_layer_flops(m, pool, l), B, S);
    backward += eval(atoll_model_layer_backward_flops(m, pool, l), B, S);
  }
  int64_t matrices = 2 * R * (12 * 12 * H * H + V * H), attention = 12 * 2 * B * S * S * H;
  assert_int_equal(forward, matrices + attention);
  assert_int_equal(backward, 2 * matrices + attention / 2 * 5);
  assert_int_equal(matrices, 2 * R * atoll_model_matmul_elements(m));
  assert_int_equal(eval(atoll_model_boundary_elements(m, pool, 3), B, S), R * H);
  assert_int_equal(eval(atoll_model_boundary_elements(m, pool, 13), B, S), 0);
  assert_null(atoll_model_layer_flops(m, pool, 14));
  atoll_syms_destroy(&pool);
  atoll_model_destroy(&m);
}

static void families(void **state) {
  (void)state;
  const char *const presets[] = {"llama-3.2-1b", "bert-base"};
  /* q, o: 2 H H; k, v: 2 H H / 4; three of the MLP. q, k, v, o and two of the MLP. */
  const int64_t H[] = {2048, 768}, block[] = {5 * 1024 * 2048 + 3 * 2048 * 8192, 12 * 768 * 768};
  const int64_t head[] = {128256 * 2048, 30522 * 768 + 768 * 768}, sample[] = {0, 768 * 768 + 2 * 768};
  int64_t B = 3, S = 40;
  for (int i = 0; i < 2; i++) {
    atoll_model_params p;
    atoll_model_params_init(&p);
    strcpy(p.preset, presets[i]);
    atoll_model *m = NULL;
    atoll_syms *pool = NULL;
    assert_int_equal(atoll_model_create(&p, &m), ATOLL_OK);
    assert_int_equal(atoll_syms_create(&pool), ATOLL_OK);
    int last = atoll_model_layers(m) - 1, both = i + 1;
    assert_int_equal(eval(atoll_model_layer_flops(m, pool, 0), B, S), 0);
    assert_int_equal(eval(atoll_model_layer_flops(m, pool, 1), B, S),
                     2 * B * S * block[i] + both * 2 * B * S * S * H[i]);
    assert_int_equal(eval(atoll_model_layer_backward_flops(m, pool, 1), B, S),
                     4 * B * S * block[i] + both * 5 * B * S * S * H[i]);
    int64_t predicted = i ? B * S * 15 / 100 : B * S, share = i ? 15 : 100; /* of masked words */
    assert_int_equal(eval(atoll_model_layer_flops(m, pool, last), B, S), 2 * predicted * head[i] + 2 * B * sample[i]);
    assert_int_equal(atoll_model_matmul_elements(m), (last - 1) * block[i] + (head[i] * share + 99) / 100);
    atoll_syms_destroy(&pool);
    atoll_model_destroy(&m);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(closed_form), cmocka_unit_test(families)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
