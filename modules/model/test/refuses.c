/* A model that cannot be is refused by key, value and what would be valid. */
#include "atoll/model.h"
#include "unit_check.h"

static void refused(const atoll_model_params *p, const char *a, const char *b) {
  atoll_model *m = NULL;
  assert_int_equal(atoll_model_create(p, &m), ATOLL_USAGE);
  assert_null(m);
  assert_non_null(strstr(atoll_err_message(), a));
  assert_non_null(strstr(atoll_err_message(), b));
}

static void each(void **state) {
  (void)state;
  atoll_model_params base, p;
  atoll_model_params_init(&base);
  refused(&base, "model.layers is 0", "preset");
  strcpy(base.preset, "gpt2-124");
  refused(&base, "'gpt2-124'", "gpt2-124m");
  strcpy(base.preset, "gpt2-tiny");
  p = base, p.heads = 5;
  refused(&p, "model.width is 128", "model.heads 5");
  p = base, p.vocab = -1;
  refused(&p, "model.vocab is -1", "1..");
  p = base, p.dropout = 1.0;
  refused(&p, "model.dropout is 1", "0..0.99");
  p = base, p.ffn = -4;
  refused(&p, "model.ffn is -4", "1..");
  p = base, p.kv_heads = 2;
  refused(&p, "model.kv_heads is 2", "as many as model.heads (4)");
  p = base, p.untied = 1;
  refused(&p, "model.untied is set", "only llama");
  p = base, p.types = 2;
  refused(&p, "model.types is 2", "only bert and roberta");
  p = base, p.family = ATOLL_FAMILY_BERT;
  refused(&p, "gpt2-tiny is of family gpt2", "model.family is bert");
  p = base, p.family = 17;
  refused(&p, "model.family is 17", "roberta");
  p = base, p.norm_eps = -1;
  refused(&p, "model.norm_eps is -1", "0..1");
  strcpy(base.preset, "llama-tiny");
  p = base, p.kv_heads = 3;
  refused(&p, "model.heads is 4", "model.kv_heads 3");
  p = base, p.width = 12;
  refused(&p, "model.width 12 over model.heads 4", "even size");
  p = base, p.rope_factor = 8;
  refused(&p, "model.rope_factor is 8", "rope_context 0 > 0");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(each)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
