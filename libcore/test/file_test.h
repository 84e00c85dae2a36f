/* A private directory for a test of files, removed afterwards. */
#ifndef ATOLL_FILE_TEST_H
#define ATOLL_FILE_TEST_H

#include <limits.h>
#include <unistd.h>

#include "atoll/fault.h"
#include "atoll/file.h"
#include "unit_check.h"

static char test_dir[PATH_MAX / 2];

static inline int test_dir_make(void **state) {
  (void)state;
  const char *base = getenv("TMPDIR");
  snprintf(test_dir, sizeof test_dir, "%s/atoll-file-XXXXXX", base && *base ? base : "/tmp");
  return mkdtemp(test_dir) ? 0 : -1;
}

static inline int test_dir_remove(void **state) {
  (void)state;
  return atoll_fault_set(NULL, 0) != ATOLL_OK || atoll_file_remove_tree(test_dir) != ATOLL_OK;
}

/* test_dir/name in one of four static buffers. */
static inline const char *in_dir(const char *name) {
  static char buf[4][PATH_MAX];
  static int next;
  char *b = buf[next++ & 3];
  assert_int_equal(atoll_path_join(b, PATH_MAX, test_dir, name), ATOLL_OK);
  return b;
}

static inline void expect_content(const char *path, const char *want) {
  char *data = NULL;
  size_t n = 0;
  assert_int_equal(atoll_file_read(path, &data, &n), ATOLL_OK);
  assert_int_equal(n, strlen(want));
  assert_string_equal(data, want);
  free(data);
}

/* How many names the directory holds. */
static inline size_t count_names(const char *dir) {
  char **names = NULL;
  size_t n = 0;
  assert_int_equal(atoll_file_list(dir, &names, &n), ATOLL_OK);
  atoll_file_list_free(&names, n);
  return n;
}

#endif
