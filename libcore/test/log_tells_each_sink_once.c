/* Who sees what: the story on rank 0 only, warnings on standard error once, everything in the rank's appended file.
 * Each case is a child process whose standard output and error are files. */
#include "atoll/log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit_check.h"

static char folder[] = "log-XXXXXX";
static char out_text[65536], err_text[65536], file_text[65536];

static void read_file(const char *name, char *text, size_t n) {
  char path[256];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *f = fopen(path, "r");
  size_t got = f ? fread(text, 1, n - 1, f) : 0;
  text[got] = 0;
  if (f)
    fclose(f);
}

static void run(void (*body)(void), const char *log_name) {
  char path[256];
  fflush(NULL);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (!pid) {
    snprintf(path, sizeof path, "%s/out", folder);
    dup2(open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666), 1);
    snprintf(path, sizeof path, "%s/err", folder);
    dup2(open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666), 2);
    unsetenv("ATOLL_LOG");
    body();
    _exit(0);
  }
  int status = -1;
  waitpid(pid, &status, 0);
  assert_int_equal(status, 0);
  read_file("out", out_text, sizeof out_text);
  read_file("err", err_text, sizeof err_text);
  if (log_name)
    read_file(log_name, file_text, sizeof file_text);
}

static int count(const char *text, const char *word) {
  int n = 0;
  for (const char *s = text; (s = strstr(s, word)); s += strlen(word))
    n++;
  return n;
}

static void speak_as(int rank) {
  if (atoll_log_open(folder, rank, 1))
    _exit(1);
  atoll_say("story %d", 7);
  atoll_warn("careful");
  atoll_warn("careful");
  atoll_debug("hidden");
  atoll_log(ATOLL_LOG_ERROR, "broken");
  atoll_progress("step 1");
  atoll_log_close();
}
static void rank_zero(void) { speak_as(0); }
static void rank_three(void) { speak_as(3); }

static void rank_zero_tells_the_story(void **state) {
  (void)state;
  run(rank_zero, "rank-00000.a1.log");
  assert_string_equal(out_text, "story 7\nstep 1\n");
  assert_string_equal(err_text, "warn: careful\nerror: broken\n");
  assert_int_equal(count(file_text, "story 7"), 1);
  assert_int_equal(count(file_text, "careful"), 2);
  assert_int_equal(count(file_text, "hidden"), 0);
  assert_int_equal(file_text[4], '-'); /* 2026-... */
  run(rank_zero, "rank-00000.a1.log");
  assert_int_equal(count(file_text, "story 7"), 2); /* appended */
}

static void other_ranks_only_warn(void **state) {
  (void)state;
  run(rank_three, "rank-00003.a1.log");
  assert_string_equal(out_text, "");
  assert_string_equal(err_text, "warn: rank 3 : careful\nerror: rank 3 : broken\n");
  assert_int_equal(count(file_text, "story 7"), 1);
}

static void json_body(void) {
  atoll_log_story_to_stderr(1);
  atoll_say("story");
  printf("{}\n");
  fflush(stdout);
}
static void story_leaves_standard_output_to_json(void **state) {
  (void)state;
  run(json_body, NULL);
  assert_string_equal(out_text, "{}\n");
  assert_string_equal(err_text, "story\n");
}

static void debug_body(void) {
  setenv("ATOLL_LOG", "debug", 1);
  atoll_log_open(folder, 5, 2);
  atoll_debug("seen %s", "now");
}
static void quiet_body(void) {
  setenv("ATOLL_LOG", "error", 1);
  atoll_log_open(folder, 6, 2);
  atoll_warn("on the screen only");
  atoll_log(ATOLL_LOG_ERROR, "in both");
}
static void environment_chooses_the_level(void **state) {
  (void)state;
  run(debug_body, "rank-00005.a2.log");
  assert_int_equal(count(file_text, "seen now"), 1);
  assert_string_equal(err_text, "");
  run(quiet_body, "rank-00006.a2.log");
  assert_int_equal(count(file_text, "screen"), 0);
  assert_int_equal(count(file_text, "in both"), 1);
  assert_int_equal(count(err_text, "screen"), 1);
}

static void long_body(void) {
  char text[9000];
  memset(text, 'y', sizeof text - 1);
  text[sizeof text - 1] = 0;
  atoll_say("%s", text);
}
static void long_lines_are_whole(void **state) {
  (void)state;
  run(long_body, NULL);
  assert_int_equal(strlen(out_text), 9000);
}

static void full_body(void) {
  /* /dev/full answers ENOSPC: the log gives the file up, tells once, and goes on. */
  char path[256];
  snprintf(path, sizeof path, "%s/rank-00008.a1.log", folder);
  if (symlink("/dev/full", path) || atoll_log_open(folder, 8, 1))
    _exit(1);
  atoll_say("first");
  atoll_say("second");
}
static void full_disk_does_not_end_the_run(void **state) {
  (void)state;
  run(full_body, NULL);
  assert_int_equal(count(err_text, "No space left"), 1);
}

static void missing_folder_is_an_error(void **state) {
  (void)state;
  assert_int_equal(atoll_log_open("no/such/folder", 0, 1), ATOLL_IO);
  assert_non_null(strstr(atoll_err_message(), "no/such/folder/rank-00000.a1.log: No such file"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rank_zero_tells_the_story),
      cmocka_unit_test(other_ranks_only_warn),
      cmocka_unit_test(story_leaves_standard_output_to_json),
      cmocka_unit_test(environment_chooses_the_level),
      cmocka_unit_test(long_lines_are_whole),
      cmocka_unit_test(full_disk_does_not_end_the_run),
      cmocka_unit_test(missing_folder_is_an_error),
  };
  if (!mkdtemp(folder))
    return 1;
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  char command[300];
  snprintf(command, sizeof command, "rm -r %s", folder);
  return system(command) || failed;
}
