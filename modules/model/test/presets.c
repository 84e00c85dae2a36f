/* Presets have the parameter counts of the published models, and sizes a user sets win over the preset's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "atoll/model.h"

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
  /* Sums over the tensors of the released checkpoints. */
  const struct {
    const char *preset;
    int64_t elements;
    int layers;
  } known[] = {{"gpt2-124m", 124439808, 14},
               {"gpt2-355m", 354823168, 26},
               {"gpt2-774m", 774030080, 38},
               {"gpt2-1.5b", 1557611200, 50}};
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
  atoll_model_destroy(&a);
  atoll_model_destroy(&b);
  atoll_model_destroy(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(counts), cmocka_unit_test(matmul), cmocka_unit_test(override),
                                     cmocka_unit_test(digest)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
