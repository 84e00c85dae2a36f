/* A followed file: others read it while it grows, and after kill -9 every flushed row is there, by this library at
 * once, by plain readers after h5clear, by h5py in SWMR mode at once. */
#include "store_test.h"

enum { SERIES = 3, ROWS = 1500 };

static void names(int k, char *buf) { sprintf(buf, "/metrics/s%d", k); }

/* Writes ROWS rows, flushing each; after `pause_at` rows tells through fd and waits to be killed or told to go on. */
static void writer(const char *path, int pause_at, int tell, int hear, int unflushed) {
  atoll_store *s = NULL;
  char name[32], byte = 'x';
  if (atoll_store_open(path, ATOLL_STORE_FOLLOW, &s) != ATOLL_OK || atoll_store_stamp(s, "atoll-test", 1) != ATOLL_OK ||
      atoll_store_write_text(s, "/provenance/options", "a: 1", "options") != ATOLL_OK)
    _exit(3);
  for (int k = 0; k < SERIES; k++) {
    names(k, name);
    if (atoll_store_series(s, name, ATOLL_F64, "1", "a series") != ATOLL_OK)
      _exit(4);
  }
  if (atoll_store_start_following(s) != ATOLL_OK)
    _exit(5);
  if (atoll_store_attr_int(s, "/", "late", 1) != ATOLL_USAGE ||
      atoll_store_write_text(s, "/late", "x", NULL) != ATOLL_USAGE)
    _exit(6);
  for (int i = 0; i < ROWS + unflushed; i++) {
    double v = i;
    for (int k = 0; k < SERIES; k++) {
      names(k, name);
      if (atoll_store_append(s, name, &v, 1) != ATOLL_OK)
        _exit(7);
    }
    if (i < ROWS && atoll_store_flush(s) != ATOLL_OK)
      _exit(8);
    if (i == pause_at && (write(tell, &byte, 1) != 1 || read(hear, &byte, 1) != 1))
      _exit(9);
  }
  if (pause_at >= ROWS)
    _exit(10);
  _exit(atoll_store_close(&s) == ATOLL_OK ? 0 : 11);
}

static pid_t start(const char *path, int pause_at, int unflushed, int *go_on) {
  int tell[2], hear[2];
  char byte;
  assert_int_equal(pipe(tell) | pipe(hear), 0);
  fflush(NULL);
  pid_t pid = fork();
  if (pid == 0) {
    (void)close(hear[1]);
    writer(path, pause_at, tell[1], hear[0], unflushed);
  }
  (void)close(tell[1]);
  (void)close(hear[0]);
  assert_int_equal(read(tell[0], &byte, 1), 1); /* 0 bytes: the writer ended early */
  (void)close(tell[0]);
  *go_on = hear[1];
  return pid;
}

/* This library's reader sees at least `rows` right ones. */
static void expect_rows(const char *path, int rows) {
  atoll_store *r = NULL;
  char name[32], *text = NULL;
  assert_ok(atoll_store_open(path, ATOLL_STORE_READ, &r));
  assert_ok(atoll_store_read_text(r, "/provenance/options", &text));
  assert_string_equal(text, "a: 1");
  free(text);
  for (int k = 0; k < SERIES; k++) {
    atoll_dtype t;
    int ndim;
    int64_t shape[ATOLL_NDIM_MAX], zero = 0;
    names(k, name);
    assert_ok(atoll_store_shape(r, name, &t, &ndim, shape));
    assert_true(shape[0] >= rows);
    double *v = calloc((size_t)shape[0], sizeof *v);
    assert_ok(atoll_store_read(r, name, ATOLL_F64, &zero, shape, v));
    for (int i = 0; i < rows; i++)
      assert_true(v[i] == i);
    free(v);
  }
  assert_ok(atoll_store_close(&r));
}

static const char swmr_script[] = "import h5py, numpy, sys\n"
                                  "path, rows = sys.argv[1].split(':')\n"
                                  "f = h5py.File(path, 'r', libver='latest', swmr=True)\n"
                                  "for k in range(3):\n"
                                  "    d = f['/metrics/s%d' % k]; d.refresh()\n"
                                  "    assert d.shape[0] >= int(rows), (d.shape, rows)\n"
                                  "    assert (d[:int(rows)] == numpy.arange(int(rows))).all()\n";
static const char plain_script[] = "import h5py, numpy, sys\n"
                                   "path, rows = sys.argv[1].split(':')\n"
                                   "f = h5py.File(path, 'r')\n"
                                   "assert (f['/metrics/s2'][:int(rows)] == numpy.arange(int(rows))).all()\n"
                                   "assert isinstance(f.attrs['format'], str)\n"
                                   "assert f['/metrics/s0'].attrs['units'] == '1'\n";

static void python_sees(const char *script, const char *path, int rows) {
  char argument[PATH_MAX + 32];
  if (!python()) {
    print_message("no h5py: its part is left out\n");
    return;
  }
  snprintf(argument, sizeof argument, "%s:%d", path, rows);
  assert_int_equal(run_python(script, argument), 0);
}

static void readers_follow_the_living(void **state) {
  (void)state;
  const char *path = in_dir("alive.h5");
  int go_on, status;
  pid_t pid = start(path, 700, 0, &go_on);
  expect_rows(path, 701);
  python_sees(swmr_script, path, 701);
  assert_int_equal(write(go_on, "x", 1), 1);
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
  (void)close(go_on);
  expect_rows(path, ROWS);
  python_sees(plain_script, path, ROWS); /* closed: opens plainly */
}

static void rows_survive_the_dead(void **state) {
  (void)state;
  const char *path = in_dir("dead.h5");
  int go_on, status;
  char command[PATH_MAX + 64], *before = NULL, *after = NULL;
  size_t n, m;
  pid_t pid = start(path, ROWS + 40, 80, &go_on); /* 41 rows later than the last flush */
  assert_int_equal(kill(pid, SIGKILL), 0);
  assert_int_equal(waitpid(pid, &status, 0), pid);
  (void)close(go_on);
  assert_ok(atoll_file_read(path, &before, &n));
  expect_rows(path, ROWS);
  assert_ok(atoll_file_read(path, &after, &m)); /* reading left the evidence alone */
  assert_true(n == m && !memcmp(before, after, n));
  free(before);
  free(after);
  python_sees(swmr_script, path, ROWS);
  if (system("h5clear --version >/dev/null 2>&1") == 0) {
    snprintf(command, sizeof command, "h5clear -s '%s'", path);
    assert_int_equal(system(command), 0);
    python_sees(plain_script, path, ROWS);
    expect_rows(path, ROWS);
  }
}

static void dead_before_anybody_followed(void **state) {
  (void)state;
  const char *path = in_dir("early.h5");
  fflush(NULL);
  pid_t pid = fork();
  if (pid == 0) {
    atoll_store *s = NULL;
    double v = 5;
    if (atoll_store_open(path, ATOLL_STORE_FOLLOW, &s) == ATOLL_OK &&
        atoll_store_series(s, "/s", ATOLL_F64, "1", "x") == ATOLL_OK &&
        atoll_store_append(s, "/s", &v, 1) == ATOLL_OK && atoll_store_flush(s) == ATOLL_OK)
      (void)kill(getpid(), SIGKILL);
    _exit(1);
  }
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFSIGNALED(status));
  atoll_store *r = NULL;
  double v = 0;
  assert_ok(atoll_store_open(path, ATOLL_STORE_READ, &r));
  assert_ok(atoll_store_read(r, "/s", ATOLL_F64, NULL, NULL, &v));
  assert_true(v == 5);
  assert_ok(atoll_store_close(&r));
}

static void a_name_is_not_reused(void **state) {
  (void)state;
  atoll_store *s = NULL, *again = NULL;
  assert_ok(atoll_store_open(in_dir("once.h5"), ATOLL_STORE_FOLLOW, &s));
  assert_int_equal(atoll_store_open(in_dir("once.h5"), ATOLL_STORE_FOLLOW, &again), ATOLL_IO);
  assert_ok(atoll_store_close(&s));
  assert_int_equal(atoll_store_open(in_dir("once.h5"), ATOLL_STORE_FOLLOW, &again), ATOLL_IO);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(readers_follow_the_living),
      cmocka_unit_test(rows_survive_the_dead),
      cmocka_unit_test(dead_before_anybody_followed),
      cmocka_unit_test(a_name_is_not_reused),
  };
  (void)signal(SIGPIPE, SIG_IGN);
  return cmocka_run_group_tests(tests, test_dir_make, test_dir_remove);
}
