/* A virtual dataset shows the whole of what lies in several files, to this library and to h5py, also after the folder
 * was moved; where a file is missing it shows NaN. */
#include "store_test.h"

#include <math.h>

enum { ROWS = 30, COLUMNS = 7, PARTS = 3 };

static void make_shards(const char *dir) {
  assert_ok(atoll_file_mkdirs(dir));
  char path[PATH_MAX], names[PARTS + 1][32];
  atoll_store *s = NULL;
  atoll_store_piece piece[PARTS + 1], half[PARTS];
  for (int p = 0; p < PARTS; p++) {
    float v[ROWS / PARTS * COLUMNS];
    uint16_t b[ROWS / PARTS * COLUMNS];
    int64_t shape[2] = {ROWS / PARTS, COLUMNS};
    for (int i = 0; i < ROWS / PARTS * COLUMNS; i++) {
      v[i] = (float)(p * (ROWS / PARTS) * COLUMNS + i);
      b[i] = 0x3f80; /* 1 */
    }
    snprintf(names[p], sizeof names[p], "shard-%04d.h5", p);
    snprintf(path, sizeof path, "%s/%s", dir, names[p]);
    assert_ok(atoll_store_open(path, ATOLL_STORE_IMAGE, &s));
    assert_ok(atoll_store_write(s, "/layer/w", ATOLL_F32, 2, shape, v, "1", "weight"));
    assert_ok(atoll_store_write(s, "/layer/b", ATOLL_BF16, 2, shape, b, "1", "bf16"));
    save_image(&s, path);
    piece[p] = (atoll_store_piece){names[p], "/layer/w", {p * (ROWS / PARTS), 0}, {ROWS / PARTS, COLUMNS}};
    half[p] = (atoll_store_piece){names[p], "/layer/b", {p * (ROWS / PARTS), 0}, {ROWS / PARTS, COLUMNS}};
  }
  piece[PARTS] =
      (atoll_store_piece){"shard-0000.h5", "/layer/none", {ROWS, 0}, {0, COLUMNS}}; /* a rank that holds nothing */
  int64_t shape[2] = {ROWS, COLUMNS};
  snprintf(path, sizeof path, "%s/model.h5", dir);
  assert_ok(atoll_store_open(path, ATOLL_STORE_IMAGE, &s));
  assert_ok(atoll_store_virtual(s, "/layer/w", ATOLL_F32, 2, shape, piece, PARTS + 1, "1", "weight"));
  assert_ok(atoll_store_virtual(s, "/layer/b", ATOLL_BF16, 2, shape, half, PARTS, "1", "bf16"));
  save_image(&s, path);
}

/* lost: the part that must show NaN, -1 none. */
static void expect_view(const char *dir, int lost) {
  char path[PATH_MAX];
  static float v[ROWS * COLUMNS], b[ROWS * COLUMNS];
  atoll_store *r = NULL;
  snprintf(path, sizeof path, "%s/model.h5", dir);
  assert_ok(atoll_store_open(path, ATOLL_STORE_READ, &r));
  assert_ok(atoll_store_read(r, "/layer/w", ATOLL_F32, NULL, NULL, v));
  assert_ok(atoll_store_read(r, "/layer/b", ATOLL_F32, NULL, NULL, b));
  assert_ok(atoll_store_close(&r));
  for (int i = 0; i < ROWS * COLUMNS; i++) {
    int part = i / (ROWS / PARTS * COLUMNS);
    assert_true(part == lost ? isnan(v[i]) : v[i] == (float)i);
    assert_true(part == lost ? isnan(b[i]) : b[i] == 1);
  }
}

static const char script[] = "import h5py, numpy, sys\n"
                             "path, lost = sys.argv[1].rsplit(':', 1)\n"
                             "f = h5py.File(path + '/model.h5', 'r')\n"
                             "v = f['/layer/w'][()]; b = f['/layer/b'][()]\n"
                             "assert v.shape == (30, 7) and v.dtype == 'float32' and b.dtype == 'float32'\n"
                             "want = numpy.arange(210, dtype='f4').reshape(30, 7)\n"
                             "ones = numpy.ones((30, 7))\n"
                             "l = int(lost)\n"
                             "if l >= 0: want[10*l:10*l+10] = numpy.nan; ones[10*l:10*l+10] = numpy.nan\n"
                             "assert numpy.array_equal(v, want, equal_nan=True), v\n"
                             "assert numpy.array_equal(b, ones, equal_nan=True), b\n"
                             "assert f['/layer/w'].is_virtual and f['/layer/w'].attrs['long_name'] == 'weight'\n";

static void h5py_sees(const char *dir, int lost) {
  char argument[PATH_MAX + 16];
  if (!python()) {
    print_message("no h5py: its part is left out\n");
    return;
  }
  snprintf(argument, sizeof argument, "%s:%d", dir, lost);
  assert_int_equal(run_python(script, argument), 0);
}

static void whole_moved_and_lost(void **state) {
  (void)state;
  make_shards(in_dir("a/step-1"));
  expect_view(in_dir("a/step-1"), -1);
  h5py_sees(in_dir("a/step-1"), -1);
  assert_ok(atoll_file_mkdirs(in_dir("elsewhere")));
  assert_ok(atoll_file_rename(in_dir("a/step-1"), in_dir("elsewhere/moved")));
  expect_view(in_dir("elsewhere/moved"), -1);
  h5py_sees(in_dir("elsewhere/moved"), -1);
  assert_ok(atoll_file_remove_tree(in_dir("elsewhere/moved/shard-0001.h5")));
  expect_view(in_dir("elsewhere/moved"), 1);
  h5py_sees(in_dir("elsewhere/moved"), 1);
}

static void bad_pieces_are_refused(void **state) {
  (void)state;
  atoll_store *s = NULL;
  int64_t shape[1] = {10};
  atoll_store_piece p = {"/abs.h5", "/x", {0}, {10}};
  assert_ok(atoll_store_open("view", ATOLL_STORE_IMAGE, &s));
  assert_int_equal(atoll_store_virtual(s, "/v", ATOLL_F32, 1, shape, &p, 1, NULL, NULL), ATOLL_USAGE);
  p.file = "rel.h5";
  p.start[0] = 1;
  assert_int_equal(atoll_store_virtual(s, "/v", ATOLL_F32, 1, shape, &p, 1, NULL, NULL), ATOLL_USAGE);
  assert_non_null(strstr(atoll_err_message(), "piece 0"));
  p.start[0] = 0;
  assert_ok(atoll_store_virtual(s, "/v", ATOLL_F32, 1, shape, &p, 1, NULL, NULL));
  assert_ok(atoll_store_close(&s));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(whole_moved_and_lost), cmocka_unit_test(bad_pieces_are_refused)};
  return cmocka_run_group_tests(tests, test_dir_make, test_dir_remove);
}
