/* On published runs, time and memory are within five per cent of measured with constants fitted on other runs, and
 * nearer than the neutral scorer's. */
#include "atoll/accuracy.h"
#include "atoll/file.h"
#include "plan_test.h"

static char runs[512], data[512];

static void published_runs_are_met(void **state) {
  (void)state;
  atoll_accuracy *a = NULL;
  assert_int_equal(atoll_accuracy_create(runs, data, &a), ATOLL_OK);
  assert_true(atoll_accuracy_sets(a) >= 2);
  for (int set = 0; set < atoll_accuracy_sets(a); set++)
    for (int what = 0; what < 2; what++)
      for (int other = 0; other < atoll_accuracy_sets(a); other++) {
        if (other == set)
          continue;
        atoll_accuracy_score s = atoll_accuracy_of(a, (atoll_accuracy_what)what, ATOLL_ACCURACY_FITTED, set, other);
        print_message("%s by %s: %s %.2f %%, bias %+.2f %%\n", atoll_accuracy_set_name(a, set),
                      atoll_accuracy_set_name(a, other), what ? "memory" : "time", 100 * s.mean, 100 * s.bias);
        assert_true(s.mean <= 0.05);
        assert_true(s.mean < atoll_accuracy_of(a, (atoll_accuracy_what)what, ATOLL_ACCURACY_SCORER, set, 0).mean);
      }
  atoll_accuracy_destroy(&a);
}

int main(void) {
  const char *shared = getenv("ATOLL_SHARED");
  snprintf(runs, sizeof runs, "%s/judge/measured", shared ? shared : ATOLL_SOURCE_DIR "/../shared");
  snprintf(data, sizeof data, "%s/judge/data", shared ? shared : ATOLL_SOURCE_DIR "/../shared");
  if (!atoll_file_is_dir(runs)) {
    printf("SKIPPED: no %s; set ATOLL_SHARED\n", runs);
    return 77;
  }
  const struct CMUnitTest tests[] = {cmocka_unit_test(published_runs_are_met)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
