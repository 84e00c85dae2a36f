/* The CUDA plug-in as it is installed: it loads on any machine, and says why its device is not used where there is no
 * driver; nothing that it brings is taken by "auto". */
#include "atoll/plugin.h"
#include "unit_check.h"

static void it_loads(void **state) {
  (void)state;
  const atoll_plugin *p = NULL;
  const char *path, *why = NULL, *kind = NULL;
  atoll_device *d = NULL;
  assert_int_equal(atoll_plugins_load(), ATOLL_OK);
  assert_true(atoll_plugin_entry(0, &p, &path, &why));
  if (!p)
    fail_msg("%s", why);
  assert_string_equal(p->name, "cuda");
  assert_non_null(p->chain);
  assert_true(atoll_device_entry(2, &kind, &why));
  assert_string_equal(kind, "cuda");
  atoll_err err = atoll_device_open("cuda", NULL, &d);
  if (why) {
    assert_int_equal(err, ATOLL_UNAVAILABLE);
    assert_non_null(strstr(atoll_err_message(), "no GPU here"));
  } else {
    assert_int_equal(err, ATOLL_OK);
    atoll_device_close(&d);
  }
  assert_int_equal(atoll_device_open("auto", NULL, &d), ATOLL_OK);
  assert_string_equal(atoll_device_kind(d), "cpu");
  atoll_device_close(&d);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(it_loads)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
