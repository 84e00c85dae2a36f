/* A run directory tells where a run stands: absent, running, finished, stopped, failed, dead. Attempt numbers are never
 * reused, one job holds the lock, and the first exit record of an attempt stays. */
#include "atoll/rundir.h"

#include <sys/wait.h>
#include <unistd.h>

#include "atoll/fault.h"
#include "atoll/file.h"
#include "unit_check.h"

static const char dir[] = "rundir-test";

static int clean(void **state) {
  (void)state;
  return atoll_file_remove_tree(dir) != ATOLL_OK;
}

static atoll_run_state state_of(atoll_exit_record *r) {
  atoll_run_state s;
  assert_int_equal(atoll_rundir_status(dir, &s, r), ATOLL_OK);
  return s;
}

static void a_run_goes_through_its_states(void **state) {
  (void)state;
  atoll_exit_record r, exit = {.code = ATOLL_STOPPED, .reason = "signal \"USR1\" on rank 1", .last_step = 40};
  atoll_rundir *run = NULL, *other = NULL;
  assert_int_equal(state_of(&r), ATOLL_RUN_ABSENT);
  assert_int_equal(atoll_rundir_open(dir, &run), ATOLL_OK);
  assert_int_equal(atoll_rundir_attempt(run), 1);
  assert_int_equal(state_of(&r), ATOLL_RUN_RUNNING);
  assert_int_equal(atoll_rundir_open(dir, &other), ATOLL_BUSY);
  assert_null(other);
  exit.attempt = 1;
  assert_int_equal(atoll_rundir_write_exit(dir, &exit), ATOLL_OK);
  exit.code = ATOLL_IO; /* a second rank on the abort path does not replace the first's word */
  assert_int_equal(atoll_rundir_write_exit(dir, &exit), ATOLL_OK);
  atoll_rundir_close(&run);
  assert_int_equal(state_of(&r), ATOLL_RUN_STOPPED);
  assert_string_equal(r.reason, "signal \"USR1\" on rank 1");
  assert_int_equal(r.last_step, 40);
  assert_int_equal(r.attempt, 1);

  assert_int_equal(atoll_rundir_open(dir, &run), ATOLL_OK);
  assert_int_equal(atoll_rundir_attempt(run), 2);
  assert_int_equal(state_of(&r), ATOLL_RUN_RUNNING); /* attempt 1's record says nothing about attempt 2 */
  atoll_rundir_close(&run);
  assert_int_equal(state_of(&r), ATOLL_RUN_DEAD);
  assert_int_equal(r.attempt, 2);

  assert_int_equal(atoll_rundir_open(dir, &run), ATOLL_OK);
  exit = (atoll_exit_record){.code = ATOLL_NONFINITE, .reason = "too many", .attempt = 3};
  assert_int_equal(atoll_rundir_write_exit(dir, &exit), ATOLL_OK);
  atoll_rundir_close(&run);
  assert_int_equal(state_of(&r), ATOLL_RUN_FAILED);
  assert_int_equal(r.code, ATOLL_NONFINITE);

  assert_int_equal(atoll_rundir_open(dir, &run), ATOLL_OK);
  exit = (atoll_exit_record){.code = ATOLL_OK, .reason = "finished", .attempt = 4};
  assert_int_equal(atoll_rundir_write_exit(dir, &exit), ATOLL_OK);
  atoll_rundir_close(&run);
  assert_int_equal(state_of(&r), ATOLL_RUN_FINISHED);
}

/* Somebody removes the directory of a run that goes on. Nobody else came: it is made again. Another run came: that
 * one's lock, attempt and record are left alone, while it runs and afterwards. */
static void a_removed_directory_is_kept_or_given_up(void **state) {
  (void)state;
  static const char other[] = "host elsewhere boot - pids - pid 7 start 0 job 12 restart 0 time 2026-01-31T12:00:00Z\n";
  atoll_exit_record r;
  atoll_rundir *run = NULL, *second = NULL;
  char *text = NULL;
  size_t n;
  assert_int_equal(atoll_rundir_open(dir, &run), ATOLL_OK);
  assert_int_equal(atoll_rundir_keep(run), ATOLL_OK);
  assert_int_equal(atoll_file_remove_tree(dir), ATOLL_OK);
  assert_int_equal(atoll_rundir_keep(run), ATOLL_OK);
  assert_int_equal(state_of(&r), ATOLL_RUN_RUNNING);
  assert_int_equal(r.attempt, 1);
  assert_int_equal(atoll_rundir_open(dir, &second), ATOLL_BUSY);
  assert_int_equal(atoll_file_remove_tree("rundir-test/lock"), ATOLL_OK);
  assert_int_equal(atoll_rundir_keep(run), ATOLL_OK); /* the lock alone was gone */

  FILE *lock = fopen("rundir-test/lock", "w"); /* in place, as when the number of a removed file is given out again */
  assert_non_null(lock);
  fputs(other, lock);
  fclose(lock);
  assert_int_equal(atoll_rundir_keep(run), ATOLL_BUSY);
  assert_non_null(strstr(atoll_err_message(), "taken by host elsewhere pid 7 job 12"));
  assert_int_equal(atoll_rundir_keep(run), ATOLL_BUSY);
  atoll_rundir_close(&run);
  assert_int_equal(atoll_file_read("rundir-test/lock", &text, &n), ATOLL_OK);
  assert_string_equal(text, other);
  free(text);

  assert_int_equal(atoll_file_remove_tree("rundir-test/lock"), ATOLL_OK);
  assert_int_equal(atoll_rundir_open(dir, &run), ATOLL_OK);
  assert_int_equal(atoll_file_remove_tree("rundir-test/lock"), ATOLL_OK);
  assert_int_equal(atoll_file_replace("rundir-test/attempts/a2", "then", 4), ATOLL_OK);
  assert_int_equal(atoll_rundir_keep(run), ATOLL_BUSY);
  assert_non_null(strstr(atoll_err_message(), "became another job's"));
  assert_int_equal(atoll_rundir_keep(run), ATOLL_BUSY); /* having looked once gives no right to it */
  assert_false(atoll_file_exists("rundir-test/lock"));
  atoll_rundir_close(&run);

  assert_int_equal(atoll_rundir_open(dir, &run), ATOLL_OK);
  assert_int_equal(atoll_rundir_attempt(run), 3);
  assert_int_equal(atoll_file_remove_tree(dir), ATOLL_OK);
  assert_int_equal(atoll_rundir_open(dir, &second), ATOLL_OK); /* begins at 1 */
  atoll_rundir_close(&second);
  assert_int_equal(atoll_rundir_keep(run), ATOLL_BUSY);
  atoll_rundir_close(&run);
}

static void a_killed_holder_leaves_a_dead_run(void **state) {
  (void)state;
  atoll_exit_record r;
  pid_t child = fork();
  if (child == 0) {
    atoll_rundir *run = NULL;
    _exit(atoll_rundir_open(dir, &run) != ATOLL_OK); /* without closing: the lock stays */
  }
  int status;
  waitpid(child, &status, 0);
  assert_int_equal(status, 0);
  assert_int_equal(state_of(&r), ATOLL_RUN_DEAD);
  atoll_rundir *run = NULL;
  assert_int_equal(atoll_rundir_open(dir, &run), ATOLL_OK); /* the stale lock is taken over */
  assert_int_equal(atoll_rundir_attempt(run), 2);
  atoll_rundir_close(&run);
}

static void damage_and_refusals_are_named(void **state) {
  (void)state;
  atoll_run_state s;
  atoll_exit_record r;
  atoll_rundir *run = NULL;
  assert_int_equal(atoll_fault_set("fail:mkdir:1:EROFS", 0), ATOLL_OK);
  assert_int_equal(atoll_rundir_open(dir, &run), ATOLL_IO);
  assert_non_null(strstr(atoll_err_message(), "Read-only file system"));
  assert_int_equal(atoll_fault_set("", 0), ATOLL_OK);
  assert_int_equal(atoll_rundir_open(dir, &run), ATOLL_OK);
  atoll_rundir_close(&run);
  assert_int_equal(atoll_file_replace("rundir-test/exit.json", "{\"code\": \"OK\"", 13), ATOLL_OK);
  assert_int_equal(atoll_rundir_status(dir, &s, &r), ATOLL_CORRUPT);
  assert_non_null(strstr(atoll_err_message(), "exit.json"));
  assert_int_equal(atoll_file_replace("rundir-test/exit.json", "{\"code\": \"OK\"}", 14), ATOLL_OK);
  assert_int_equal(atoll_rundir_status(dir, &s, &r), ATOLL_CORRUPT);
}

static void a_halt_file_does_not_outlive_its_attempt(void **state) {
  (void)state;
  atoll_rundir *run = NULL;
  assert_int_equal(atoll_rundir_open(dir, &run), ATOLL_OK);
  atoll_rundir_close(&run);
  assert_int_equal(atoll_file_replace("rundir-test/halt", "stop\n", 5), ATOLL_OK);
  assert_int_equal(atoll_rundir_open(dir, &run), ATOLL_OK);
  assert_false(atoll_file_exists("rundir-test/halt"));
  atoll_rundir_close(&run);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(a_run_goes_through_its_states, clean, clean),
      cmocka_unit_test_setup_teardown(a_removed_directory_is_kept_or_given_up, clean, clean),
      cmocka_unit_test_setup_teardown(a_killed_holder_leaves_a_dead_run, clean, clean),
      cmocka_unit_test_setup_teardown(damage_and_refusals_are_named, clean, clean),
      cmocka_unit_test_setup_teardown(a_halt_file_does_not_outlive_its_attempt, clean, clean),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
