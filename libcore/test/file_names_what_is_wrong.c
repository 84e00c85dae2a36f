/* Promise: reading, listing, making and removing do what they say, and bad input gives the code and names the path. */
#include "file_test.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

static void reading(void **state) {
  (void)state;
  char *data = NULL;
  size_t n = 0;
  atoll_digest d, e;
  int64_t bytes = 0;
  assert_int_equal(atoll_file_read(in_dir("absent"), &data, &n), ATOLL_NOINPUT);
  assert_non_null(strstr(atoll_err_message(), "absent"));
  assert_null(data);
  assert_int_equal(atoll_file_read(test_dir, &data, &n), ATOLL_NOINPUT);
  assert_int_equal(atoll_file_digest(in_dir("absent"), &d, &bytes), ATOLL_NOINPUT);
  assert_int_equal(atoll_file_read("/dev/zero", &data, &n), ATOLL_NOINPUT); /* before the memory is full */
  assert_non_null(strstr(atoll_err_message(), "/dev/zero: no end after"));
  /* Long enough for several pieces, with NULs inside. */
  size_t size = 3 * 1024 * 1024 + 17;
  char *big = malloc(size);
  assert_non_null(big);
  for (size_t i = 0; i < size; i++)
    big[i] = (char)(i * 7 >> 3);
  assert_int_equal(atoll_file_create(in_dir("big"), big, size), ATOLL_OK);
  assert_int_equal(atoll_file_read(in_dir("big"), &data, &n), ATOLL_OK);
  assert_int_equal(n, size);
  assert_memory_equal(data, big, size);
  assert_int_equal(data[n], 0);
  assert_int_equal(atoll_file_digest(in_dir("big"), &d, &bytes), ATOLL_OK);
  assert_int_equal(bytes, size);
  e = atoll_digest_bytes(big, size);
  assert_true(atoll_digest_equal(d, e));
  free(data);
  free(big);
  data = NULL;
  for (int i = 0; i < 2; i++) {
    assert_int_equal(atoll_fault_set("fail:read:1:EIO", 0), ATOLL_OK);
    assert_int_equal(i ? atoll_file_read(in_dir("big"), &data, &n) : atoll_file_digest(in_dir("big"), &d, &bytes),
                     ATOLL_IO);
    assert_null(data);
  }
  assert_int_equal(atoll_fault_set(NULL, 0), ATOLL_OK);
  /* A file whose size the system does not tell, and an empty one. */
  assert_int_equal(atoll_file_read("/proc/self/status", &data, &n), ATOLL_OK);
  assert_true(n > 100 && strstr(data, "Pid:"));
  free(data);
  assert_int_equal(atoll_file_create(in_dir("empty"), NULL, 0), ATOLL_OK);
  expect_content(in_dir("empty"), "");
}

static void appending(void **state) {
  (void)state;
  assert_int_equal(atoll_file_append(in_dir("log"), "one\n", 4), ATOLL_OK);
  assert_int_equal(atoll_fault_set("short:write:1", 0), ATOLL_OK);
  assert_int_equal(atoll_file_append(in_dir("log"), "two\n", 4), ATOLL_IO);
  assert_int_equal(atoll_fault_set("fail:close:1:EIO", 0), ATOLL_OK);
  assert_int_equal(atoll_file_append(in_dir("log"), "x", 1), ATOLL_IO);
  assert_int_equal(atoll_fault_set(NULL, 0), ATOLL_OK);
  assert_int_equal(atoll_file_append(in_dir("log"), "three\n", 6), ATOLL_OK);
  expect_content(in_dir("log"), "one\ntwxthree\n");
  assert_int_equal(atoll_file_append(in_dir("no/such/log"), "x", 1), ATOLL_IO);
  assert_non_null(strstr(atoll_err_message(), "no/such/log"));
}

static void directories(void **state) {
  (void)state;
  assert_int_equal(atoll_file_mkdirs(in_dir("a/b//c/")), ATOLL_OK);
  assert_int_equal(atoll_file_mkdirs(in_dir("a/b/c")), ATOLL_OK);
  assert_true(atoll_file_is_dir(in_dir("a/b/c")));
  assert_int_equal(atoll_file_create(in_dir("a/file"), "x", 1), ATOLL_OK);
  assert_true(atoll_file_exists(in_dir("a/file")));
  assert_false(atoll_file_is_dir(in_dir("a/file")));
  assert_int_equal(atoll_file_mkdirs(in_dir("a/file/d")), ATOLL_IO);
  assert_non_null(strstr(atoll_err_message(), "not a directory"));
  assert_int_equal(atoll_file_mkdirs(""), ATOLL_USAGE);
  assert_int_equal(atoll_fault_set("fail:mkdir:2:EROFS", 0), ATOLL_OK);
  assert_int_equal(atoll_file_mkdirs(in_dir("a/d/e")), ATOLL_IO);
  assert_non_null(strstr(atoll_err_message(), strerror(EROFS)));
  assert_int_equal(atoll_fault_set("fail:dirsync:1:EIO", 0), ATOLL_OK);
  assert_int_equal(atoll_file_sync_dir(in_dir("a")), ATOLL_IO);
  assert_int_equal(atoll_file_sync_dir(in_dir("a")), ATOLL_OK);
  char **names = NULL;
  size_t n = 0;
  assert_int_equal(atoll_file_list(in_dir("a"), &names, &n), ATOLL_OK);
  assert_int_equal(n, 3);
  assert_string_equal(names[0], "b");
  assert_string_equal(names[1], "d");
  assert_string_equal(names[2], "file");
  atoll_file_list_free(&names, n);
  assert_null(names);
  assert_int_equal(atoll_file_list(in_dir("none"), &names, &n), ATOLL_NOINPUT);
  assert_int_equal(atoll_file_rename(in_dir("a/file"), in_dir("a/renamed")), ATOLL_OK);
  assert_int_equal(atoll_file_rename(in_dir("a/file"), in_dir("a/renamed")), ATOLL_IO);
  assert_non_null(strstr(atoll_err_message(), "a/renamed"));
}

static void what_cannot_be_read_is_kept(void **state) {
  (void)state;
  for (int k = 0; k < 3; k++) {
    const char content[] = {(char)('0' + k), '\0'};
    assert_int_equal(atoll_file_create(in_dir("rows"), content, 1), ATOLL_OK);
    assert_int_equal(atoll_fault_set("fail:rename:1:EIO", 0), ATOLL_OK);
    assert_int_equal(atoll_file_set_aside(in_dir("rows")), ATOLL_IO);
    assert_int_equal(atoll_fault_set(NULL, 0), ATOLL_OK);
    expect_content(in_dir("rows"), content);
    assert_int_equal(atoll_file_set_aside(in_dir("rows")), ATOLL_OK);
    assert_false(atoll_file_exists(in_dir("rows")));
  }
  expect_content(in_dir("rows.unreadable"), "0");
  expect_content(in_dir("rows.unreadable.2"), "1");
  expect_content(in_dir("rows.unreadable.3"), "2");
  assert_int_equal(atoll_file_set_aside(in_dir("rows")), ATOLL_IO);
}

/* What is asked for under the name of a device or a pipe goes into it; root would otherwise make a file of it. */
static void links_and_pipes_stay_what_they_are(void **state) {
  (void)state;
  char got[16] = "";
  struct stat st;
  atoll_file_writer *writer = NULL;
  assert_int_equal(mkfifo(in_dir("pipe"), 0600), 0);
  int reader = open(in_dir("pipe"), O_RDONLY | O_NONBLOCK);
  assert_true(reader >= 0);
  assert_int_equal(atoll_file_replace(in_dir("pipe"), "some", 4), ATOLL_OK);
  assert_int_equal(atoll_file_publish(in_dir("pipe"), "more", 4), ATOLL_OK);
  assert_int_equal(read(reader, got, sizeof got), 8);
  assert_memory_equal(got, "somemore", 8);
  assert_int_equal(atoll_file_writer_open(in_dir("pipe"), &writer), ATOLL_IO);
  assert_non_null(strstr(atoll_err_message(), "not a regular file"));
  assert_true(lstat(in_dir("pipe"), &st) == 0 && S_ISFIFO(st.st_mode));
  close(reader);

  assert_int_equal(atoll_file_create(in_dir("target"), "old", 3), ATOLL_OK);
  assert_int_equal(symlink("target", in_dir("to-target")), 0);
  assert_int_equal(atoll_file_replace(in_dir("to-target"), "new", 3), ATOLL_OK);
  expect_content(in_dir("target"), "new");
  assert_int_equal(atoll_file_writer_open(in_dir("to-target"), &writer), ATOLL_OK);
  assert_int_equal(atoll_file_writer_add(writer, "piece", 5), ATOLL_OK);
  assert_int_equal(atoll_file_writer_commit(&writer), ATOLL_OK);
  expect_content(in_dir("target"), "piece");
  assert_true(lstat(in_dir("to-target"), &st) == 0 && S_ISLNK(st.st_mode));
}

/* Removing a tree removes symbolic links, never what they lead to. */
static void removing_trees(void **state) {
  (void)state;
  assert_int_equal(atoll_file_mkdirs(in_dir("tree/x/y")), ATOLL_OK);
  assert_int_equal(atoll_file_mkdirs(in_dir("kept")), ATOLL_OK);
  assert_int_equal(atoll_file_create(in_dir("kept/file"), "kept", 4), ATOLL_OK);
  assert_int_equal(symlink(in_dir("kept"), in_dir("tree/x/link")), 0);
  assert_int_equal(symlink(in_dir("kept"), in_dir("link")), 0);
  assert_int_equal(symlink("nowhere", in_dir("tree/dangling")), 0);
  for (int i = 0; i < 50; i++) {
    char name[32];
    snprintf(name, sizeof name, "tree/x/y/%d", i);
    assert_int_equal(atoll_file_create(in_dir(name), "", 0), ATOLL_OK);
  }
  assert_int_equal(atoll_fault_set("fail:unlink:10:EIO", 0), ATOLL_OK);
  assert_int_equal(atoll_file_remove_tree(in_dir("tree")), ATOLL_IO);
  assert_int_equal(atoll_fault_set(NULL, 0), ATOLL_OK);
  assert_int_equal(atoll_file_remove_tree(in_dir("tree/")), ATOLL_OK);
  assert_false(atoll_file_exists(in_dir("tree")));
  assert_int_equal(atoll_file_remove_tree(in_dir("link/")), ATOLL_OK);
  assert_false(atoll_file_exists(in_dir("link")));
  expect_content(in_dir("kept/file"), "kept");
  assert_int_equal(atoll_file_remove_tree(in_dir("tree")), ATOLL_OK); /* missing is fine */
  assert_int_equal(atoll_file_remove_tree("/"), ATOLL_USAGE);
  assert_int_equal(atoll_file_remove_tree("//"), ATOLL_USAGE);
  assert_int_equal(atoll_file_remove_tree(""), ATOLL_USAGE);
}

static void paths(void **state) {
  (void)state;
  char buf[8];
  assert_int_equal(atoll_path_join(buf, sizeof buf, "ab", "cd"), ATOLL_OK);
  assert_string_equal(buf, "ab/cd");
  assert_int_equal(atoll_path_join(buf, sizeof buf, "ab/", "cd"), ATOLL_OK);
  assert_string_equal(buf, "ab/cd");
  assert_int_equal(atoll_path_join(buf, sizeof buf, "", "cd"), ATOLL_OK);
  assert_string_equal(buf, "cd");
  assert_int_equal(atoll_path_join(buf, sizeof buf, "abcd", "efg"), ATOLL_USAGE);
  int64_t bytes = -1;
  assert_int_equal(atoll_file_space(in_dir("none"), &bytes), ATOLL_IO);
  assert_int_equal(atoll_file_space(test_dir, &bytes), ATOLL_OK);
  assert_true(bytes >= 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(reading),        cmocka_unit_test(appending),
      cmocka_unit_test(directories),    cmocka_unit_test(links_and_pipes_stay_what_they_are),
      cmocka_unit_test(removing_trees), cmocka_unit_test(what_cannot_be_read_is_kept),
      cmocka_unit_test(paths)};
  return cmocka_run_group_tests(tests, test_dir_make, test_dir_remove);
}
