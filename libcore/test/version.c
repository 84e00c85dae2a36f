/* The version string is a dotted triple and the build line is one printable line: both go into every output file. */
#include "atoll/version.h"

#include <ctype.h>

#include "unit_check.h"

static void version_is_a_triple(void **state) {
  (void)state;
  int major = -1, minor = -1, patch = -1, used = 0;
  assert_int_equal(sscanf(atoll_version(), "%d.%d.%d%n", &major, &minor, &patch, &used), 3);
  assert_int_equal(used, (int)strlen(atoll_version()));
  assert_true(major >= 0 && minor >= 0 && patch >= 0);
}

static void build_options_are_one_line(void **state) {
  (void)state;
  const char *text = atoll_version_build();
  assert_true(strlen(text) > 0);
  for (const char *c = text; *c; c++)
    assert_true(isprint((unsigned char)*c));
  assert_non_null(strstr(text, "papi="));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(version_is_a_triple),
      cmocka_unit_test(build_options_are_one_line),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
