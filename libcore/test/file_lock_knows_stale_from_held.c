/* Promise: a held lock is BUSY and names its holder; a lock whose holder provably ended is taken over, by one process
 * only; any other doubt is BUSY; no failure leaves a lock or a temporary behind. */
#include "file_test.h"

#include <signal.h>
#include <sys/wait.h>

/* The lock's content with one line replaced. */
static void rewrite(const char *path, const char *key, const char *line) {
  char *text = NULL, out[2048] = "";
  assert_int_equal(atoll_file_read(path, &text, NULL), ATOLL_OK);
  int found = 0;
  for (char *save = NULL, *p = strtok_r(text, "\n", &save); p; p = strtok_r(NULL, "\n", &save)) {
    int hit = strncmp(p, key, strlen(key)) == 0;
    found += hit;
    snprintf(out + strlen(out), sizeof out - strlen(out), "%s\n", hit ? line : p);
  }
  assert_int_equal(found, 1);
  assert_int_equal(atoll_file_replace(path, out, strlen(out)), ATOLL_OK);
  free(text);
}

/* A child takes the lock and dies without releasing it; its pid. */
static pid_t abandoned_by_child(const char *path) {
  pid_t pid = fork();
  if (pid == 0) {
    atoll_file_lock *token = NULL;
    _exit(atoll_file_lock_take(path, &token) != ATOLL_OK);
  }
  int status = 0;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  return pid;
}

static void held_is_busy(void **state) {
  (void)state;
  const char *path = in_dir("lock");
  atoll_file_lock *a = NULL, *b = NULL;
  char want[64];
  assert_int_equal(atoll_file_lock_take(path, &a), ATOLL_OK);
  assert_int_equal(count_names(test_dir), 1);
  assert_int_equal(atoll_file_lock_take(path, &b), ATOLL_BUSY);
  snprintf(want, sizeof want, "pid %ld", (long)getpid());
  assert_non_null(strstr(atoll_err_message(), want));
  assert_null(b);
  assert_int_equal(count_names(test_dir), 1);
  atoll_file_lock_release(&a);
  assert_null(a);
  assert_int_equal(count_names(test_dir), 0);
  atoll_file_lock_release(&a);
}

static void dead_holder_is_replaced(void **state) {
  (void)state;
  const char *path = in_dir("lock");
  atoll_file_lock *a = NULL;
  (void)abandoned_by_child(path);
  assert_int_equal(atoll_file_lock_take(path, &a), ATOLL_OK);
  char *text = NULL, want[64];
  assert_int_equal(atoll_file_read(path, &text, NULL), ATOLL_OK);
  snprintf(want, sizeof want, "\npid %ld\n", (long)getpid());
  assert_non_null(strstr(text, want));
  free(text);
  assert_int_equal(count_names(test_dir), 1);
  atoll_file_lock_release(&a);
  assert_int_equal(count_names(test_dir), 0);
}

/* Under a launcher or a container's first process that takes its time, the holder stays in the process table. */
static void holder_nobody_waited_for_is_replaced(void **state) {
  (void)state;
  const char *path = in_dir("lock");
  atoll_file_lock *a = NULL;
  siginfo_t info;
  pid_t pid = fork();
  if (pid == 0)
    _exit(atoll_file_lock_take(path, &a) != ATOLL_OK);
  assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
  assert_int_equal(kill(pid, 0), 0);
  assert_int_equal(atoll_file_lock_probe(path), ATOLL_OK);
  assert_int_equal(atoll_file_lock_take(path, &a), ATOLL_OK);
  atoll_file_lock_release(&a);
  assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void evidence_is_weighed(void **state) {
  (void)state;
  const char *path = in_dir("lock");
  /* What is changed in the lock of a living process (this one), and whether it may then be taken over. */
  static const struct {
    const char *key, *line;
    atoll_err want;
  } cases[] = {
      {"time", "time 2001-01-01T00:00:00Z", ATOLL_BUSY},               /* age proves nothing */
      {"start", "start 1", ATOLL_OK},                                  /* the number was reused */
      {"boot", "boot 00000000-0000-0000-0000-000000000000", ATOLL_OK}, /* booted since */
      {"host", "host elsewhere", ATOLL_BUSY},                          /* cannot be seen from here */
      {"pids", "pids pid:[1]", ATOLL_BUSY},                            /* another container */
      {"pid ", "garbage", ATOLL_BUSY},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    atoll_file_lock *a = NULL, *b = NULL;
    assert_int_equal(atoll_file_lock_take(path, &a), ATOLL_OK);
    rewrite(path, cases[i].key, cases[i].line);
    atoll_err err = atoll_file_lock_take(path, &b);
    if (err != cases[i].want)
      fail_msg("%s: %s, expected %s: %s", cases[i].line, atoll_err_name(err), atoll_err_name(cases[i].want),
               atoll_err_message());
    atoll_file_lock_release(&b);
    /* The first token's file is gone or another's: releasing it must not remove what it does not own. */
    int there = atoll_file_exists(path);
    atoll_file_lock_release(&a);
    assert_int_equal(atoll_file_exists(path), there);
    assert_int_equal(atoll_file_remove_tree(path), ATOLL_OK);
    assert_int_equal(count_names(test_dir), 0);
  }
}

/* A dead process number proves nothing when it is another host's or another container's. */
static void foreign_numbers_prove_nothing(void **state) {
  (void)state;
  const char *path = in_dir("lock");
  static const char *const lines[][2] = {{"host", "host elsewhere"}, {"pids", "pids pid:[1]"}};
  for (int i = 0; i < 2; i++) {
    atoll_file_lock *a = NULL;
    (void)abandoned_by_child(path);
    rewrite(path, lines[i][0], lines[i][1]);
    assert_int_equal(atoll_file_lock_take(path, &a), ATOLL_BUSY);
    assert_non_null(strstr(atoll_err_message(), "cannot be shown"));
    assert_int_equal(atoll_file_remove_tree(path), ATOLL_OK);
  }
}

/* A process that found the lock stale and then slept must look again: meanwhile another has taken it over. */
static void sleeper_looks_again(void **state) {
  (void)state;
  const char *path = in_dir("lock");
  atoll_file_lock *a = NULL;
  (void)abandoned_by_child(path);
  pid_t pid = fork();
  if (pid == 0) {
    atoll_file_lock *token = NULL;
    if (atoll_fault_set("stop:lock.opened", 0) != ATOLL_OK)
      _exit(9);
    atoll_err err = atoll_file_lock_take(path, &token);
    _exit(err == ATOLL_BUSY ? 0 : err == ATOLL_OK ? 1 : 9);
  }
  assert_true(pid > 0);
  int status = 0;
  assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
  assert_true(WIFSTOPPED(status));
  assert_int_equal(atoll_file_lock_take(path, &a), ATOLL_OK);
  assert_int_equal(kill(pid, SIGCONT), 0);
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
  atoll_file_lock_release(&a);
  assert_int_equal(count_names(test_dir), 0);
}

static void requeued_job_may_take_over(void **state) {
  (void)state;
  const char *path = in_dir("lock");
  atoll_file_lock *a = NULL, *b = NULL;
  assert_int_equal(setenv("SLURM_JOB_ID", "4242", 1), 0);
  assert_int_equal(unsetenv("SLURM_RESTART_COUNT"), 0);
  assert_int_equal(atoll_file_lock_take(path, &a), ATOLL_OK);
  rewrite(path, "host", "host elsewhere");
  assert_int_equal(atoll_file_lock_take(path, &b), ATOLL_BUSY); /* perhaps another step of the same run of the job */
  assert_non_null(strstr(atoll_err_message(), "4242"));
  assert_int_equal(setenv("SLURM_RESTART_COUNT", "1", 1), 0);
  assert_int_equal(setenv("SLURM_JOB_ID", "4243", 1), 0);
  assert_int_equal(atoll_file_lock_take(path, &b), ATOLL_BUSY);
  assert_int_equal(setenv("SLURM_JOB_ID", "4242", 1), 0);
  assert_int_equal(atoll_file_lock_take(path, &b), ATOLL_OK);
  atoll_file_lock_release(&b);
  atoll_file_lock_release(&a);
  assert_int_equal(count_names(test_dir), 0);
  assert_int_equal(unsetenv("SLURM_JOB_ID"), 0);
  assert_int_equal(unsetenv("SLURM_RESTART_COUNT"), 0);
}

/* Many processes find one stale lock at the same time: exactly one gets it. */
static void one_wins_the_take_over(void **state) {
  (void)state;
  enum { CHILDREN = 8, ROUNDS = 20 };
  const char *path = in_dir("lock");
  for (int round = 0; round < ROUNDS; round++) {
    int go[2], hold[2];
    pid_t pid[CHILDREN];
    (void)abandoned_by_child(path);
    assert_int_equal(pipe(go), 0);
    assert_int_equal(pipe(hold), 0);
    for (int i = 0; i < CHILDREN; i++) {
      pid[i] = fork();
      if (pid[i] == 0) {
        char c;
        atoll_file_lock *token = NULL;
        (void)close(go[1]);
        (void)close(hold[1]);
        (void)fclose(stderr); /* the winner's warning is expected */
        if (read(go[0], &c, 1) < 0)
          _exit(9);
        atoll_err err = atoll_file_lock_take(path, &token);
        /* The winner lives until all have tried. */
        if (err == ATOLL_OK && read(hold[0], &c, 1) < 0)
          _exit(9);
        _exit(err == ATOLL_OK ? 1 : err == ATOLL_BUSY ? 0 : 9);
      }
      assert_true(pid[i] > 0);
    }
    (void)close(go[0]);
    (void)close(hold[0]);
    (void)close(go[1]); /* end of file releases all */
    int left = CHILDREN, winners = 0;
    for (int i = 0; i < CHILDREN && left > 1; i++) { /* any but the winner */
      int status = 0;
      assert_true(waitpid(-1, &status, 0) > 0);
      assert_true(WIFEXITED(status));
      assert_in_range(WEXITSTATUS(status), 0, 0);
      left--;
    }
    (void)close(hold[1]);
    int status = 0;
    assert_true(waitpid(-1, &status, 0) > 0);
    winners = WIFEXITED(status) && WEXITSTATUS(status) == 1;
    assert_int_equal(winners, 1);
    assert_int_equal(count_names(test_dir), 1);
    assert_int_equal(atoll_file_remove_tree(path), ATOLL_OK);
  }
}

static void failures_leave_nothing(void **state) {
  (void)state;
  const char *path = in_dir("lock");
  for (int stale = 0; stale < 2; stale++) {
    for (int nth = 1;; nth++) {
      char rule[64];
      atoll_file_lock *a = NULL;
      if (stale)
        (void)abandoned_by_child(path);
      snprintf(rule, sizeof rule, "fail:*:%d:EIO", nth);
      assert_int_equal(atoll_fault_set(rule, 0), ATOLL_OK);
      atoll_err err = atoll_file_lock_take(path, &a);
      assert_int_equal(atoll_fault_set(NULL, 0), ATOLL_OK);
      size_t left = count_names(test_dir);
      atoll_file_lock_release(&a);
      if (err == ATOLL_OK && left == 1) {
        assert_true(nth > 6);
        break;
      }
      /* Only the removal of the temporary may fail without failing the lock. */
      if (err != ATOLL_OK)
        assert_int_equal(left, stale);
      assert_int_equal(atoll_file_remove_tree(test_dir), ATOLL_OK);
      assert_int_equal(atoll_file_mkdirs(test_dir), ATOLL_OK);
      assert_true(nth < 50);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(held_is_busy),
                                     cmocka_unit_test(dead_holder_is_replaced),
                                     cmocka_unit_test(holder_nobody_waited_for_is_replaced),
                                     cmocka_unit_test(evidence_is_weighed),
                                     cmocka_unit_test(requeued_job_may_take_over),
                                     cmocka_unit_test(foreign_numbers_prove_nothing),
                                     cmocka_unit_test(sleeper_looks_again),
                                     cmocka_unit_test(one_wins_the_take_over),
                                     cmocka_unit_test(failures_leave_nothing)};
  return cmocka_run_group_tests(tests, test_dir_make, test_dir_remove);
}
