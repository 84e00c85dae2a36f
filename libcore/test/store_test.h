/* Helpers for tests of stores: a private folder, images, and h5py as the stranger who reads the files. */
#ifndef ATOLL_STORE_TEST_H
#define ATOLL_STORE_TEST_H

#include "atoll/store.h"

#include "file_test.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

/* An interpreter that has h5py; NULL when there is none. */
static inline const char *python(void) {
  static const char *const names[] = {"/usr/bin/python3", "python3"};
  char command[256];
  for (size_t i = 0; i < 2; i++) {
    snprintf(command, sizeof command, "%s -c 'import h5py, numpy' >/dev/null 2>&1", names[i]);
    if (system(command) == 0)
      return names[i];
  }
  return NULL;
}

/* For main(): the test is skipped without h5py. */
static inline int need_python(void) {
  if (python())
    return 0;
  printf("skipped: no python3 with h5py and numpy\n");
  return 77;
}

/* Runs python with `script` and one argument (sys.argv[1]); gives the exit status. The script's output goes to standard
 * output. */
static inline int run_python(const char *script, const char *argument) {
  const char *name = python(); /* also as its argv[0], by which an interpreter finds its modules */
  fflush(NULL);
  pid_t pid = fork();
  if (pid == 0) {
    execlp(name, name, "-c", script, argument, (char *)NULL);
    _exit(127);
  }
  int status = -1;
  return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Close an image into a file. */
static inline void save_image(atoll_store **s, const char *path) {
  void *bytes = NULL;
  size_t n = 0;
  assert_ok(atoll_store_image(*s, &bytes, &n));
  assert_ok(atoll_store_close(s));
  assert_ok(atoll_file_replace(path, bytes, n));
  free(bytes);
}

#endif
