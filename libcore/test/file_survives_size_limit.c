/* Promise: at RLIMIT_FSIZE a write fails with IO (EFBIG) and leaves the old content and no temporary; needs no
 * privileges. */
#include "file_test.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>

static void size_limit(void **state) {
  (void)state;
  static char big[100000];
  const char *path = in_dir("state");
  assert_int_equal(atoll_file_replace(path, "old", 3), ATOLL_OK);
  struct rlimit limit, saved;
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &saved), 0);
  limit = saved;
  limit.rlim_cur = 50000;
  assert_true(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
  atoll_err replaced = atoll_file_replace(path, big, sizeof big);
  int told = strstr(atoll_err_message(), strerror(EFBIG)) != NULL;
  atoll_err created = atoll_file_create(in_dir("new"), big, sizeof big);
  atoll_err appended = atoll_file_append(in_dir("log"), big, sizeof big); /* half arrives: said, not repeated */
  int told_half = strstr(atoll_err_message(), "50000 of 100000") != NULL;
  atoll_err fits = atoll_file_create(in_dir("fits"), big, 50000);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &saved), 0);
  assert_int_equal(replaced, ATOLL_IO);
  assert_true(told);
  assert_int_equal(created, ATOLL_IO);
  assert_int_equal(appended, ATOLL_IO);
  assert_true(told_half);
  assert_int_equal(fits, ATOLL_OK);
  expect_content(path, "old");
  assert_int_equal(count_names(test_dir), 3); /* state log fits */
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(size_limit)};
  return cmocka_run_group_tests(tests, test_dir_make, test_dir_remove);
}
