/* Plug-ins found on ATOLL_PLUGIN_PATH are in use, or listed with the reason why not; other programs go on. */
#include "atoll/plugin.h"
#include "unit_check.h"

static const char *reason_of(const char *file) {
  const atoll_plugin *p;
  const char *path, *why;
  for (int i = 0; atoll_plugin_entry(i, &p, &path, &why); i++)
    if (strstr(path, file))
      return why ? why : "";
  return NULL;
}

static void each_says_why(void **state) {
  (void)state;
  char path[4096];
  FILE *f = fopen("plugin_not_an_object.so", "w");
  assert_non_null(f);
  fputs("hello\n", f);
  fclose(f);
  snprintf(path, sizeof path, "%s:%s:plugin_not_an_object.so", getenv("SAMPLE_OLD"), getenv("SAMPLE"));
  setenv("ATOLL_PLUGIN_PATH", path, 1);
  assert_int_equal(atoll_plugins_load(), ATOLL_OK);
  assert_int_equal(atoll_plugins_load(), ATOLL_OK); /* once */
  remove("plugin_not_an_object.so");
  assert_non_null(strstr(reason_of("plugin_sample_old"), "version 99"));
  assert_non_null(strstr(reason_of("plugin_not_an_object"), "plugin_not_an_object.so"));
  assert_string_equal(reason_of("plugin_sample.so"), "no sample card in this machine");
  const atoll_plugin *p;
  const char *where, *why;
  assert_int_equal(atoll_plugin_entry(3, &p, &where, &why), 0);
}

static void a_refusing_device_names_its_reason(void **state) {
  (void)state;
  atoll_device *d = NULL;
  const char *kind, *why;
  assert_int_equal(atoll_device_open("sample", NULL, &d), ATOLL_UNAVAILABLE);
  assert_non_null(strstr(atoll_err_message(), "no sample card"));
  assert_true(atoll_device_entry(2, &kind, &why));
  assert_string_equal(kind, "sample");
  assert_string_equal(why, "no sample card in this machine");
  assert_false(atoll_device_entry(3, &kind, &why));
}

static atoll_err note_stream(void *args, void *stream) {
  *(*(void ***)args) = stream;
  return ATOLL_OK;
}

static void a_willing_device_is_used(void **state) {
  (void)state;
  setenv("ATOLL_SAMPLE_HERE", "1", 1);
  atoll_device *d = NULL;
  atoll_queue *q;
  atoll_event *e;
  void *p, *stream = NULL, **to = &stream;
  assert_int_equal(atoll_device_open("auto", NULL, &d), ATOLL_OK); /* the highest priority */
  assert_string_equal(atoll_device_kind(d), "sample");
  assert_false(atoll_device_host_memory(d));
  assert_int_equal(atoll_device_alloc(d, 16, &p), ATOLL_OK);
  assert_int_equal(atoll_queue_create(d, "compute", &q), ATOLL_OK);
  assert_int_equal(atoll_event_create(&e), ATOLL_OK);
  assert_int_equal(atoll_queue_zero(q, p, 16), ATOLL_OK);
  assert_int_equal(atoll_queue_submit(q, note_stream, &to, sizeof to), ATOLL_OK);
  assert_non_null(stream);
  assert_int_equal(atoll_queue_record(q, e), ATOLL_OK);
  assert_int_equal(atoll_event_sync(e), ATOLL_OK);
  atoll_event_destroy(&e);
  atoll_queue_destroy(&q);
  atoll_device_free(d, p);
  atoll_device_close(&d);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(each_says_why),
                                     cmocka_unit_test(a_refusing_device_names_its_reason),
                                     cmocka_unit_test(a_willing_device_is_used)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
