/* A followed file on a full disk: the refused write is reported with the system's reason, later writes and close repeat
 * it, other files still work, and the program ends by its own will, also through MPI_Finalize. */
#include "store_test.h"

#include <mpi.h>
#include <sys/resource.h>

#include "atoll/agree.h"

/* In a child: 0 when everything was as promised. */
static int fill_up(const char *path) {
  struct rlimit limit = {1 << 18, 1 << 18};
  atoll_store *s = NULL, *image = NULL;
  double v[4096] = {1};
  int64_t shape = 4096;
  (void)signal(SIGXFSZ, SIG_IGN);
  if (atoll_store_open(path, ATOLL_STORE_FOLLOW, &s) != ATOLL_OK ||
      atoll_store_series(s, "/s", ATOLL_F64, "1", "x") != ATOLL_OK || atoll_store_start_following(s) != ATOLL_OK)
    return 1;
  if (setrlimit(RLIMIT_FSIZE, &limit))
    return 2;
  atoll_err err = ATOLL_OK;
  for (int i = 0; i < 100 && err == ATOLL_OK; i++) {
    err = atoll_store_append(s, "/s", v, 4096);
    if (err == ATOLL_OK)
      err = atoll_store_flush(s);
  }
  if (err != ATOLL_IO || !strstr(atoll_err_message(), strerror(EFBIG))) {
    fprintf(stderr, "%s: %s\n", atoll_err_name(err), atoll_err_message());
    return 3;
  }
  atoll_err_clear();
  if (atoll_store_append(s, "/s", v, 1) != ATOLL_IO || !strstr(atoll_err_message(), strerror(EFBIG)))
    return 4;
  if (atoll_store_close(&s) != ATOLL_IO || s || !strstr(atoll_err_message(), strerror(EFBIG)))
    return 5;
  void *bytes = NULL;
  size_t n = 0;
  if (atoll_store_open("after", ATOLL_STORE_IMAGE, &image) != ATOLL_OK ||
      atoll_store_write(image, "/x", ATOLL_F64, 1, &shape, v, NULL, NULL) != ATOLL_OK ||
      atoll_store_image(image, &bytes, &n) != ATOLL_OK || atoll_store_close(&image) != ATOLL_OK)
    return 6;
  free(bytes);
  return 0;
}

static void expect_child(int with_mpi) {
  int status;
  fflush(NULL);
  pid_t pid = fork();
  if (pid == 0) {
    if (with_mpi && atoll_mpi_init(NULL, NULL) != ATOLL_OK)
      exit(7);
    int result = fill_up(in_dir(with_mpi ? "mpi.h5" : "plain.h5"));
    if (with_mpi)
      (void)MPI_Finalize();
    exit(result); /* with the handlers of exit() */
  }
  assert_int_equal(waitpid(pid, &status, 0), pid);
  if (!WIFEXITED(status))
    fail_msg("the child ended by signal %d", WTERMSIG(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}

static void plain(void **state) {
  (void)state;
  expect_child(0);
}
static void with_mpi(void **state) {
  (void)state;
  expect_child(1);
}

/* After a refused write HDF5 1.10 keeps the buffer of the chunk it could not write. */
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) { return "leak:H5FL_blk_malloc\n"; }

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(plain), cmocka_unit_test(with_mpi)};
  return cmocka_run_group_tests(tests, test_dir_make, test_dir_remove);
}
