/* Codes, names and exit statuses are interface; a message is whole, per thread, and survives being wrapped. */
#include "atoll/err.h"

#include <errno.h>
#include <pthread.h>

#include "unit_check.h"

static void every_code_has_one_name_and_status(void **state) {
  (void)state;
  int n = 0, codes[64];
  atoll_err code, parsed;
  const char *name, *text;
  for (; atoll_err_entry(n, &code, &name, &text); n++) {
    assert_int_equal(atoll_err_parse(name, &parsed), 0);
    assert_int_equal(parsed, code);
    assert_string_equal(atoll_err_name(code), name);
    assert_string_equal(atoll_err_text(code), text);
    assert_true(code == ATOLL_OK || (code >= 64 && code < 126)); /* free of shell and signal statuses */
    codes[n] = code;
    for (int i = 0; i < n; i++)
      assert_int_not_equal(codes[i], code);
  }
  assert_true(n >= 17);
  assert_false(atoll_err_entry(-1, &code, &name, &text));
  assert_int_equal(atoll_err_parse("io", &parsed), -1);
  assert_int_equal(atoll_err_parse("", &parsed), -1);
  assert_string_equal(atoll_err_name((atoll_err)3), "UNKNOWN");
}

static void statuses_do_not_move(void **state) {
  (void)state;
  assert_int_equal(ATOLL_OK, 0);
  assert_int_equal(ATOLL_USAGE, 64);
  assert_int_equal(ATOLL_IO, 74);
  assert_int_equal(ATOLL_STOPPED, 75);
  assert_int_equal(ATOLL_NONFINITE, 80);
}

static void message_names_value_and_place(void **state) {
  (void)state;
  errno = ENOSPC;
  assert_int_equal(atoll_fail(ATOLL_IO, "shard %d holds %zu bytes", 3, (size_t)17), ATOLL_IO);
  assert_int_equal(errno, ENOSPC);
  assert_string_equal(atoll_err_message(), "shard 3 holds 17 bytes");
  assert_non_null(strstr(atoll_err_where(), "err_list_is_interface.c:"));
  assert_null(strchr(atoll_err_where(), '/'));
  atoll_fail(ATOLL_CORRUPT, "resume: %s", atoll_err_message());
  assert_string_equal(atoll_err_message(), "resume: shard 3 holds 17 bytes");
  atoll_err_set_message(atoll_err_message() + 8);
  assert_string_equal(atoll_err_message(), "shard 3 holds 17 bytes");
  atoll_err_clear();
  assert_string_equal(atoll_err_message(), "");
}

static void long_message_is_cut_visibly(void **state) {
  (void)state;
  char text[5000];
  memset(text, 'x', sizeof text - 1);
  text[sizeof text - 1] = 0;
  atoll_fail(ATOLL_USAGE, "%s", text);
  size_t n = strlen(atoll_err_message());
  assert_true(n > 1000 && n < sizeof text);
  assert_string_equal(atoll_err_message() + n - 3, "...");
}

static void *fail_elsewhere(void *arg) {
  *(int *)arg = atoll_err_message()[0] == 0;
  atoll_fail(ATOLL_IO, "other thread");
  return NULL;
}

static void message_is_per_thread(void **state) {
  (void)state;
  pthread_t thread;
  int began_empty = 0;
  atoll_fail(ATOLL_USAGE, "mine");
  assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, &began_empty), 0);
  pthread_join(thread, NULL);
  assert_true(began_empty);
  assert_string_equal(atoll_err_message(), "mine");
}

static atoll_err tries(int fails, int *reached) {
  ATOLL_TRY(fails ? ATOLL_NOMEM : ATOLL_OK);
  *reached = 1;
  return ATOLL_OK;
}

static void try_passes_the_code_on(void **state) {
  (void)state;
  int reached = 0;
  assert_int_equal(tries(1, &reached), ATOLL_NOMEM);
  assert_int_equal(reached, 0);
  assert_int_equal(tries(0, &reached), ATOLL_OK);
  assert_int_equal(reached, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_code_has_one_name_and_status),
      cmocka_unit_test(statuses_do_not_move),
      cmocka_unit_test(message_names_value_and_place),
      cmocka_unit_test(long_message_is_cut_visibly),
      cmocka_unit_test(message_is_per_thread),
      cmocka_unit_test(try_passes_the_code_on),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
