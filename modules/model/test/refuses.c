/* A model that cannot be is refused by key, value and what would be valid. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "atoll/model.h"

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
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(each)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
