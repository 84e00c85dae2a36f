/* Saved plans. */
#include "atoll/plan.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  static atoll_model *model;
  atoll_plan *plan = NULL, *again = NULL;
  char *once = NULL, *twice = NULL;
  size_t n = 0, m = 0;
  if (!model) {
    atoll_model_params p;
    atoll_model_params_init(&p);
    p.layers = 4;
    p.width = 64;
    p.heads = 4;
    p.context = 128;
    p.vocab = 256;
    FUZZ_CHECK(atoll_model_create(&p, &model) == ATOLL_OK);
  }
  atoll_err err = atoll_plan_from_text("plan.yaml", (const char *)data, bytes, &plan);
  if (err != ATOLL_OK) {
    fuzz_refused(err);
    FUZZ_CHECK(!plan);
    return 0;
  }
  FUZZ_CHECK(atoll_plan_to_text(plan, &once, &n) == ATOLL_OK);
  FUZZ_CHECK(atoll_plan_from_text("again.yaml", once, n, &again) == ATOLL_OK);
  FUZZ_CHECK(atoll_plan_to_text(again, &twice, &m) == ATOLL_OK);
  FUZZ_CHECK(n == m && memcmp(once, twice, n) == 0);
  FUZZ_CHECK(atoll_digest_equal(atoll_plan_digest(plan), atoll_plan_digest(again)));
  err = atoll_plan_check(plan, model);
  if (err != ATOLL_OK)
    fuzz_refused(err);
  else /* what is well formed can be looked at */
    for (int r = 0; r < plan->world && r < 64; r++)
      (void)atoll_plan_find(plan, r);
  free(once);
  free(twice);
  atoll_plan_destroy(&plan);
  atoll_plan_destroy(&again);
  return 0;
}
