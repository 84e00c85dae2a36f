/* Promise: on a real file system of 2 MiB that is full, every writing call fails with IO, the old content survives, no
 * temporary stays and no space is lost. Needs the right to mount a tmpfs in a private namespace; skips (77) without it.
 */
#include "file_test.h"

#include <errno.h>
#include <sched.h>
#include <sys/mount.h>

enum { MIB = 1 << 20 };

static void full_disk(void **state) {
  (void)state;
  char *big = calloc(1, 4 * MIB);
  assert_non_null(big);
  memset(big, 'x', 4 * MIB);
  int64_t before = 0, after = 0;
  char path[PATH_MAX];
  assert_int_equal(atoll_path_join(path, sizeof path, test_dir, "state"), ATOLL_OK);
  assert_int_equal(atoll_file_replace(path, "old", 3), ATOLL_OK);
  assert_int_equal(atoll_file_space(test_dir, &before), ATOLL_OK);
  assert_in_range(before, MIB, 2 * MIB);
  assert_int_equal(atoll_file_replace(path, big, 4 * MIB), ATOLL_IO);
  assert_non_null(strstr(atoll_err_message(), strerror(ENOSPC)));
  assert_int_equal(atoll_file_publish(path, big, 4 * MIB), ATOLL_IO);
  assert_int_equal(atoll_file_create(in_dir("new"), big, 4 * MIB), ATOLL_IO);
  expect_content(path, "old");
  assert_int_equal(count_names(test_dir), 1);
  assert_int_equal(atoll_file_space(test_dir, &after), ATOLL_OK);
  assert_int_equal(before, after);
  /* Fill it to the last page: appending says so, and a small replacement fails as cleanly. */
  atoll_err err = ATOLL_OK;
  for (int i = 0; i < 1000 && err == ATOLL_OK; i++)
    err = atoll_file_append(in_dir("log"), big, 4096);
  assert_int_equal(err, ATOLL_IO);
  assert_int_equal(atoll_file_replace(path, "newer", 5), ATOLL_IO);
  expect_content(path, "old");
  assert_int_equal(count_names(test_dir), 2);
  /* And with space again it works. */
  assert_int_equal(atoll_file_remove_tree(in_dir("log")), ATOLL_OK);
  assert_int_equal(atoll_file_replace(path, "newer", 5), ATOLL_OK);
  expect_content(path, "newer");
  free(big);
}

int main(void) {
  if (test_dir_make(NULL))
    return 1;
  if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
      mount("atoll-test", test_dir, "tmpfs", 0, "size=2m")) {
    fprintf(stderr, "skipped: cannot mount a tmpfs in a private namespace: %s\n", strerror(errno));
    (void)rmdir(test_dir);
    return 77;
  }
  const struct CMUnitTest tests[] = {cmocka_unit_test(full_disk)};
  int rc = cmocka_run_group_tests(tests, NULL, NULL);
  if (umount(test_dir) || rmdir(test_dir))
    rc = 1;
  return rc;
}
