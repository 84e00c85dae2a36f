/* Promise: whichever system call of a replacement fails, and however, the old content survives and no temporary stays.
 * The failure is walked forward over every call until the replacement succeeds; then the new content is whole. */
#include "file_test.h"

#include <errno.h>

static const char old_text[] = "the old content";
static const char new_text[] = "the new content, which is longer than the old one";

static void set_rule(const char *form, int nth, const char *error) {
  char rule[64];
  snprintf(rule, sizeof rule, form, nth, error);
  assert_int_equal(atoll_fault_set(rule, 0), ATOLL_OK);
}

/* Walk a failure through one operation. had: path holds old_text before. Returns how many calls could fail. */
static int walk(atoll_err (*operation)(const char *, const void *, size_t), int had, const char *form,
                const char *error) {
  const char *path = in_dir("file");
  for (int nth = 1;; nth++) {
    assert_int_equal(atoll_fault_set(NULL, 0), ATOLL_OK);
    assert_int_equal(atoll_file_remove_tree(path), ATOLL_OK);
    if (had)
      assert_int_equal(atoll_file_create(path, old_text, strlen(old_text)), ATOLL_OK);
    set_rule(form, nth, error);
    atoll_err err = operation(path, new_text, strlen(new_text));
    assert_int_equal(atoll_fault_set(NULL, 0), ATOLL_OK);
    if (err == ATOLL_OK) {
      expect_content(path, new_text);
      assert_int_equal(count_names(test_dir), 1);
      return nth - 1;
    }
    assert_int_equal(err, ATOLL_IO);
    assert_non_null(strstr(atoll_err_message(), "file"));
    assert_non_null(strstr(atoll_err_message(), "errno"));
    if (had)
      expect_content(path, old_text);
    assert_int_equal(count_names(test_dir), had);
  }
}

static void replace_survives_each_failure(void **state) {
  (void)state;
  /* open write fsync close link rename dirsync unlink(old) */
  assert_int_equal(walk(atoll_file_replace, 1, "fail:*:%d:%s", "EIO"), 8);
  assert_int_equal(walk(atoll_file_replace, 1, "fail:*:%d:%s", "ENOSPC"), 8);
  /* Without a previous file there is nothing to unlink. */
  assert_int_equal(walk(atoll_file_replace, 0, "fail:*:%d:%s", "EDQUOT"), 7);
  assert_int_equal(walk(atoll_file_replace, 1, "short:write:%d", ""), 1);
}

static void publish_and_create_survive_each_failure(void **state) {
  (void)state;
  assert_int_equal(walk(atoll_file_publish, 1, "fail:*:%d:%s", "EIO"), 4); /* open write close rename */
  assert_int_equal(walk(atoll_file_publish, 1, "short:write:%d", ""), 1);
  assert_int_equal(walk(atoll_file_create, 0, "fail:*:%d:%s", "EIO"), 5); /* open write fsync close dirsync */
  assert_int_equal(walk(atoll_file_create, 0, "short:write:%d", ""), 1);
}

/* Two pieces, the first put right afterwards, through a writer. */
static atoll_err in_pieces(const char *path, const void *data, size_t bytes) {
  atoll_file_writer *w = NULL;
  ATOLL_TRY(atoll_file_writer_open(path, &w));
  atoll_err err = atoll_file_writer_add(w, "THE", 3);
  if (err == ATOLL_OK)
    err = atoll_file_writer_add(w, (const char *)data + 3, bytes - 3);
  if (err == ATOLL_OK)
    err = atoll_file_writer_put(w, 0, data, 3);
  if (err != ATOLL_OK) {
    atoll_file_writer_discard(&w);
    return err;
  }
  return atoll_file_writer_commit(&w);
}

static void pieces_survive_each_failure(void **state) {
  (void)state;
  /* open write write fsync close link rename dirsync unlink(old) */
  assert_int_equal(walk(in_pieces, 1, "fail:*:%d:%s", "ENOSPC"), 9);
  assert_int_equal(walk(in_pieces, 1, "short:write:%d", ""), 2);
  atoll_file_writer *w = NULL;
  assert_int_equal(atoll_fault_set(NULL, 0), ATOLL_OK);
  assert_int_equal(atoll_file_writer_open(in_dir("file"), &w), ATOLL_OK);
  assert_int_equal(atoll_file_writer_add(w, "x", 1), ATOLL_OK);
  assert_int_equal(atoll_file_writer_put(w, 1, "y", 1), ATOLL_INTERNAL);
  atoll_file_writer_discard(&w);
  assert_null(w);
  expect_content(in_dir("file"), new_text);
  assert_int_equal(count_names(test_dir), 1);
}

static void map_shows_what_a_file_holds(void **state) {
  (void)state;
  const void *bytes = NULL;
  size_t n = 9;
  assert_int_equal(atoll_file_map(in_dir("file"), &bytes, &n), ATOLL_OK);
  assert_int_equal(n, strlen(new_text));
  assert_memory_equal(bytes, new_text, n);
  atoll_file_unmap(&bytes, n);
  assert_null(bytes);
  assert_int_equal(atoll_file_replace(in_dir("file"), "", 0), ATOLL_OK);
  assert_int_equal(atoll_file_map(in_dir("file"), &bytes, &n), ATOLL_OK);
  assert_int_equal(n, 0);
  assert_int_equal(atoll_file_map(test_dir, &bytes, &n), ATOLL_NOINPUT);
  assert_int_equal(atoll_file_map(in_dir("absent"), &bytes, &n), ATOLL_NOINPUT);
}

/* Without hard links a failed directory sync cannot be undone; everything before it still is. */
static void works_without_hard_links(void **state) {
  (void)state;
  const char *path = in_dir("file");
  assert_int_equal(atoll_file_remove_tree(path), ATOLL_OK);
  assert_int_equal(atoll_file_create(path, old_text, strlen(old_text)), ATOLL_OK);
  assert_int_equal(atoll_fault_set("fail:link:*:EPERM;fail:rename:1:EIO", 0), ATOLL_OK);
  assert_int_equal(atoll_file_replace(path, new_text, strlen(new_text)), ATOLL_IO);
  expect_content(path, old_text);
  assert_int_equal(atoll_file_replace(path, new_text, strlen(new_text)), ATOLL_OK);
  assert_int_equal(atoll_fault_set(NULL, 0), ATOLL_OK);
  expect_content(path, new_text);
  assert_int_equal(count_names(test_dir), 1);
}

static void create_never_overwrites(void **state) {
  (void)state;
  const char *path = in_dir("file");
  assert_int_equal(atoll_file_remove_tree(path), ATOLL_OK);
  assert_int_equal(atoll_file_create(path, old_text, strlen(old_text)), ATOLL_OK);
  assert_int_equal(atoll_file_create(path, new_text, strlen(new_text)), ATOLL_IO);
  assert_non_null(strstr(atoll_err_message(), strerror(EEXIST)));
  expect_content(path, old_text);
}

/* What a killed process left under our own number is no obstacle. */
static void leftovers_are_no_obstacle(void **state) {
  (void)state;
  const char *path = in_dir("file");
  char name[PATH_MAX];
  for (int i = 0; i < 2; i++) {
    snprintf(name, sizeof name, "%s.%s-%ld", path, i ? "old" : "tmp", (long)getpid());
    assert_int_equal(atoll_file_create(name, "junk", 4), ATOLL_OK);
  }
  assert_int_equal(atoll_file_replace(path, new_text, strlen(new_text)), ATOLL_OK);
  expect_content(path, new_text);
  assert_int_equal(count_names(test_dir), 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(replace_survives_each_failure), cmocka_unit_test(publish_and_create_survive_each_failure),
      cmocka_unit_test(pieces_survive_each_failure),   cmocka_unit_test(map_shows_what_a_file_holds),
      cmocka_unit_test(works_without_hard_links),      cmocka_unit_test(create_never_overwrites),
      cmocka_unit_test(leftovers_are_no_obstacle)};
  return cmocka_run_group_tests(tests, test_dir_make, test_dir_remove);
}
