/* Promise: kill:POINT:N ends the process with SIGKILL at the Nth passage of that point and of no other; stop:POINT
 * stops it. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "atoll/fault.h"
#include "unit_check.h"

/* Passes `other` once and `here` `passages` times in a child; its wait status. */
static int child(const char *rules, int rank, int passages) {
  pid_t pid = fork();
  if (pid == 0) {
    if (atoll_fault_set(rules, rank) != ATOLL_OK)
      _exit(99);
    atoll_fault_point("other");
    for (int i = 0; i < passages; i++)
      atoll_fault_point("here");
    _exit(7);
  }
  assert_true(pid > 0);
  int status = 0;
  assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
  if (WIFSTOPPED(status)) {
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
  }
  return status;
}

static void kills(void **state) {
  (void)state;
  int s = child("kill:here", 0, 1);
  assert_true(WIFSIGNALED(s) && WTERMSIG(s) == SIGKILL);
  s = child("kill:here:3", 0, 2);
  assert_true(WIFEXITED(s) && WEXITSTATUS(s) == 7);
  s = child("kill:here:3", 0, 3);
  assert_true(WIFSIGNALED(s) && WTERMSIG(s) == SIGKILL);
  s = child("kill:here:1:1", 0, 3);
  assert_true(WIFEXITED(s) && WEXITSTATUS(s) == 7);
  s = child("kill:here:1:1", 1, 3);
  assert_true(WIFSIGNALED(s) && WTERMSIG(s) == SIGKILL);
  s = child("nan:here:1", 0, 3);
  assert_true(WIFEXITED(s) && WEXITSTATUS(s) == 7);
}

static void stops(void **state) {
  (void)state;
  int s = child("stop:here:2", 0, 1);
  assert_true(WIFEXITED(s) && WEXITSTATUS(s) == 7);
  s = child("stop:here:2", 0, 2);
  assert_true(WIFSTOPPED(s) && WSTOPSIG(s) == SIGSTOP);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(kills), cmocka_unit_test(stops)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
