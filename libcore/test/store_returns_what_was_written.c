/* Every element type, shape, text and attribute comes back, from a file and from its bytes; wrong requests are refused
 * with their reason, and equal content gives equal bytes. */
#include "store_test.h"

#include <math.h>

static atoll_store *image(void) {
  atoll_store *s = NULL;
  assert_ok(atoll_store_open(in_dir("x.h5"), ATOLL_STORE_IMAGE, &s));
  return s;
}

static atoll_store *reopen(atoll_store **s) {
  atoll_store *r = NULL;
  save_image(s, in_dir("x.h5"));
  assert_ok(atoll_store_open(in_dir("x.h5"), ATOLL_STORE_READ, &r));
  return r;
}

/* Sizes on both sides of each layout: none, in the header, one checked chunk, contiguous. */
static void every_type_and_size(void **state) {
  (void)state;
  static const int64_t sizes[] = {0, 1, 7, 2048, 100003, 600011};
  for (int t = 0; t < ATOLL_DTYPES; t++) {
    size_t width = atoll_dtype_bytes((atoll_dtype)t);
    atoll_store *s = image();
    unsigned char *data = malloc(600011 * width), *back = malloc(600011 * width);
    for (size_t i = 0; i < 600011 * width; i++)
      data[i] = (unsigned char)(i * 2654435761u >> 13) & 0x3f; /* no NaN in any format */
    for (size_t k = 0; k < 6; k++) {
      char path[64];
      int64_t shape[2] = {1, sizes[k]};
      snprintf(path, sizeof path, "/deep/group/n%lld", (long long)sizes[k]);
      assert_ok(atoll_store_write(s, path, (atoll_dtype)t, 2, shape, data, "1", "numbers"));
    }
    assert_ok(atoll_store_write(s, "/scalar", (atoll_dtype)t, 0, NULL, data, NULL, NULL));
    atoll_store *r = reopen(&s);
    for (size_t k = 0; k < 6; k++) {
      char path[64];
      atoll_dtype found;
      int ndim;
      int64_t shape[ATOLL_NDIM_MAX];
      snprintf(path, sizeof path, "/deep/group/n%lld", (long long)sizes[k]);
      assert_ok(atoll_store_shape(r, path, &found, &ndim, shape));
      assert_int_equal(found, t);
      assert_int_equal(ndim, 2);
      assert_int_equal(shape[0], 1);
      assert_int_equal(shape[1], sizes[k]);
      memset(back, 0xff, 600011 * width);
      assert_ok(atoll_store_read(r, path, (atoll_dtype)t, NULL, NULL, back));
      assert_memory_equal(back, data, (size_t)sizes[k] * width);
    }
    int64_t start[2] = {0, 99990}, count[2] = {1, 13};
    assert_ok(atoll_store_read(r, "/deep/group/n100003", (atoll_dtype)t, start, count, back));
    assert_memory_equal(back, data + 99990 * width, 13 * width);
    assert_ok(atoll_store_read(r, "/scalar", (atoll_dtype)t, NULL, NULL, back));
    assert_memory_equal(back, data, width);
    start[1] = 100000;
    assert_int_equal(atoll_store_read(r, "/deep/group/n100003", (atoll_dtype)t, start, count, back), ATOLL_CORRUPT);
    assert_ok(atoll_store_close(&r));
    free(data);
    free(back);
  }
}

static void types_convert(void **state) {
  (void)state;
  atoll_store *s = image();
  const uint16_t bf16[5] = {0x3f80, 0xc000, 0x0000, 0x7fc0, 0x4049};
  const float f32[3] = {1.5f, -2.0f, 3.0f};
  int64_t n5 = 5, n3 = 3, whole[3];
  float f[5];
  double d[3];
  assert_ok(atoll_store_write(s, "/bf16", ATOLL_BF16, 1, &n5, bf16, NULL, NULL));
  assert_ok(atoll_store_write(s, "/f32", ATOLL_F32, 1, &n3, f32, NULL, NULL));
  atoll_store *r = reopen(&s);
  assert_ok(atoll_store_read(r, "/bf16", ATOLL_F32, NULL, NULL, f));
  assert_true(f[0] == 1 && f[1] == -2 && f[2] == 0 && isnan(f[3]) && f[4] == 3.140625f);
  assert_ok(atoll_store_read(r, "/f32", ATOLL_F64, NULL, NULL, d));
  assert_true(d[0] == 1.5 && d[1] == -2 && d[2] == 3);
  assert_ok(atoll_store_read(r, "/f32", ATOLL_I64, NULL, NULL, whole));
  assert_true(whole[0] == 1 && whole[1] == -2 && whole[2] == 3);
  assert_ok(atoll_store_close(&r));
}

static void texts_and_attributes(void **state) {
  (void)state;
  static char long_text[100001];
  memset(long_text, 'x', 100000);
  char medium[5001];
  memset(medium, 'y', 5000);
  medium[5000] = '\0';
  static const char *const list[] = {"", "grün", "a longer one"};
  static const char *const axes[] = {"row", "column"};
  int64_t shape[2] = {2, 3}, i = 0;
  double data[6] = {0}, d = 0;
  char buf[6000], *text = NULL, **texts = NULL;
  size_t n = 9;
  atoll_store *s = image();
  assert_ok(atoll_store_stamp(s, "atoll-test", 3));
  assert_ok(atoll_store_write_text(s, "/text/empty", "", NULL));
  assert_ok(atoll_store_write_text(s, "/text/long", long_text, "long"));
  assert_ok(atoll_store_write_texts(s, "/text/list", list, 3, NULL));
  assert_ok(atoll_store_write_texts(s, "/text/none", list, 0, NULL));
  assert_ok(atoll_store_write(s, "/d", ATOLL_F64, 2, shape, data, "s", "seconds"));
  assert_ok(atoll_store_axes(s, "/d", axes, 2));
  assert_ok(atoll_store_attr_text(s, "/d", "note", "first"));
  assert_ok(atoll_store_attr_text(s, "/d", "note", "second")); /* replaced */
  assert_ok(atoll_store_attr_text(s, "/", "medium", medium));
  assert_ok(atoll_store_attr_text(s, "/", "empty", ""));
  assert_ok(atoll_store_attr_int(s, "/text", "big", INT64_MIN));
  assert_ok(atoll_store_attr_real(s, "/d", "real", 0.1));
  atoll_store *r = reopen(&s);
  assert_ok(atoll_store_read_text(r, "/text/empty", &text));
  assert_string_equal(text, "");
  free(text);
  assert_ok(atoll_store_read_text(r, "/text/long", &text));
  assert_string_equal(text, long_text);
  free(text);
  assert_ok(atoll_store_read_texts(r, "/text/none", &texts, &n));
  assert_int_equal(n, 0);
  atoll_store_texts_free(&texts, n);
  assert_ok(atoll_store_read_texts(r, "/text/list", &texts, &n));
  assert_int_equal(n, 3);
  for (size_t k = 0; k < n; k++)
    assert_string_equal(texts[k], list[k]);
  atoll_store_texts_free(&texts, n);
  assert_ok(atoll_store_get_attr_text(r, "/d", "note", buf, sizeof buf));
  assert_string_equal(buf, "second");
  assert_ok(atoll_store_get_attr_text(r, "/d", "units", buf, sizeof buf));
  assert_string_equal(buf, "s");
  assert_ok(atoll_store_get_attr_text(r, "/", "medium", buf, sizeof buf));
  assert_string_equal(buf, medium);
  assert_ok(atoll_store_get_attr_text(r, "/", "empty", buf, sizeof buf));
  assert_string_equal(buf, "");
  assert_ok(atoll_store_get_attr_text(r, "/", "format", buf, sizeof buf));
  assert_string_equal(buf, "atoll-test");
  assert_ok(atoll_store_get_attr_int(r, "/", "format_version", &i));
  assert_int_equal(i, 3);
  assert_ok(atoll_store_get_attr_int(r, "/text", "big", &i));
  assert_true(i == INT64_MIN);
  assert_ok(atoll_store_get_attr_real(r, "/d", "real", &d));
  assert_true(d == 0.1);
  assert_true(atoll_store_has_attr(r, "/d", "DIMENSION_LABELS"));
  assert_false(atoll_store_has_attr(r, "/d", "no"));
  assert_true(atoll_store_has(r, "/text"));
  assert_false(atoll_store_has(r, "/text/no/deeper"));
  assert_false(atoll_store_has(r, "/d/not-a-group"));
  assert_ok(atoll_store_close(&r));
}

static void refused(atoll_err got, atoll_err want, const char *word) {
  if (got != want || !strstr(atoll_err_message(), word))
    fail_msg("got %s (%s), expected %s with '%s'", atoll_err_name(got), atoll_err_message(), atoll_err_name(want),
             word);
}

static void wrong_requests_are_refused(void **state) {
  (void)state;
  atoll_store *s = image(), *none = NULL;
  int64_t shape[2] = {INT64_MAX / 2, 3}, one = 1, i = 0;
  double d = 1;
  char buf[4] = "abc", *text = NULL, **texts = NULL;
  size_t n = 0;
  assert_ok(atoll_store_series(s, "/m/s", ATOLL_F64, "s", "x"));
  assert_ok(atoll_store_series(s, "/m/s", ATOLL_F64, "s", "x")); /* made by the first call */
  refused(atoll_store_series(s, "/m/s", ATOLL_I64, "s", "x"), ATOLL_USAGE, "f64");
  refused(atoll_store_put(s, "/m/s", 0, &d), ATOLL_USAGE, "0 elements");
  refused(atoll_store_append(s, "/m/no", &d, 1), ATOLL_USAGE, "no series");
  refused(atoll_store_write(s, "/d", ATOLL_F64, 2, shape, &d, NULL, NULL), ATOLL_USAGE, "2^63");
  refused(atoll_store_write(s, "d", ATOLL_F64, 1, &one, &d, NULL, NULL), ATOLL_USAGE, "absolute");
  refused(atoll_store_write(s, "/m", ATOLL_F64, 1, &one, &d, NULL, NULL), ATOLL_USAGE, "exists");
  refused(atoll_store_attr_int(s, "/nowhere", "a", 1), ATOLL_USAGE, "/nowhere");
  assert_ok(atoll_store_write(s, "/d", ATOLL_F64, 1, &one, &d, "second", NULL));
  assert_ok(atoll_store_write_text(s, "/t", "text", NULL));
  atoll_store *r = reopen(&s); /* refused requests leave the store usable, and its close is clean */
  refused(atoll_store_write(r, "/x", ATOLL_F64, 1, &one, &d, NULL, NULL), ATOLL_USAGE, "reading");
  refused(atoll_store_read(r, "/no", ATOLL_F64, NULL, NULL, &d), ATOLL_NOINPUT, "/no");
  refused(atoll_store_read(r, "/m", ATOLL_F64, NULL, NULL, &d), ATOLL_NOINPUT, "group");
  refused(atoll_store_read(r, "/t", ATOLL_F64, NULL, NULL, &d), ATOLL_CORRUPT, "text");
  refused(atoll_store_read_text(r, "/d", &text), ATOLL_CORRUPT, "expected text");
  refused(atoll_store_read_texts(r, "/d", &texts, &n), ATOLL_CORRUPT, "expected text");
  refused(atoll_store_get_attr_text(r, "/d", "units", buf, sizeof buf), ATOLL_CORRUPT, "room for 3");
  assert_string_equal(buf, "abc");
  refused(atoll_store_get_attr_int(r, "/d", "units", &i), ATOLL_CORRUPT, "text");
  refused(atoll_store_get_attr_int(r, "/d", "no", &i), ATOLL_NOINPUT, "no attribute no");
  assert_ok(atoll_store_close(&r));
  refused(atoll_store_open(in_dir("missing.h5"), ATOLL_STORE_READ, &none), ATOLL_NOINPUT, "No such file");
  refused(atoll_store_open(test_dir, ATOLL_STORE_READ, &none), ATOLL_NOINPUT, "a directory");
  refused(atoll_store_open(in_dir("no/x.h5"), ATOLL_STORE_FOLLOW, &none), ATOLL_IO, "No such file");
  refused(atoll_store_open(in_dir("x.h5"), ATOLL_STORE_FOLLOW, &none), ATOLL_IO, "File exists");
  assert_ok(atoll_file_replace(in_dir("y.h5"), "not HDF5", 8));
  refused(atoll_store_open(in_dir("y.h5"), ATOLL_STORE_READ, &none), ATOLL_CORRUPT, "signature");
  assert_null(none);
}

static void images_of_one_name_are_apart(void **state) {
  (void)state;
  atoll_store *a = image(), *b = image(), *ra = NULL, *rb = NULL;
  void *bytes[2];
  size_t n[2];
  int64_t i;
  assert_ok(atoll_store_attr_int(a, "/", "which", 1));
  assert_ok(atoll_store_attr_int(b, "/", "which", 2));
  assert_ok(atoll_store_image(a, &bytes[0], &n[0]));
  assert_ok(atoll_store_image(b, &bytes[1], &n[1]));
  assert_ok(atoll_store_close(&a));
  assert_ok(atoll_store_close(&b));
  assert_ok(atoll_store_open_bytes("same", bytes[0], n[0], &ra));
  assert_ok(atoll_store_open_bytes("same", bytes[1], n[1], &rb));
  assert_ok(atoll_store_get_attr_int(ra, "/", "which", &i));
  assert_int_equal(i, 1);
  assert_ok(atoll_store_get_attr_int(rb, "/", "which", &i));
  assert_int_equal(i, 2);
  assert_ok(atoll_store_close(&ra));
  assert_ok(atoll_store_close(&rb));
  free(bytes[0]);
  free(bytes[1]);
}

static void fill(atoll_store *s) {
  double v[700];
  int64_t shape[2] = {70, 10};
  for (int i = 0; i < 700; i++)
    v[i] = i;
  assert_ok(atoll_store_write(s, "/a/b/c", ATOLL_F64, 2, shape, v, "s", "some"));
  assert_ok(atoll_store_write_text(s, "/a/t", "text", "words"));
  assert_ok(atoll_store_series(s, "/m/x", ATOLL_F64, "1", "x"));
  assert_ok(atoll_store_append(s, "/m/x", v, 700));
  assert_ok(atoll_store_attr_real(s, "/a", "r", 2));
}

static void *filled(size_t *n) {
  atoll_store *s = image();
  void *bytes = NULL;
  fill(s);
  assert_ok(atoll_store_image(s, &bytes, n));
  assert_ok(atoll_store_close(&s));
  return bytes;
}

static void equal_content_gives_equal_bytes(void **state) {
  (void)state;
  size_t n, m;
  void *a = filled(&n);
  sleep(1); /* HDF5 would store seconds */
  void *b = filled(&m);
  assert_int_equal(n, m);
  assert_memory_equal(a, b, n);
  free(a);
  free(b);
}

static void a_buffer_holds_one_image_after_another(void **state) {
  (void)state;
  enum { LARGE = 700000 };
  atoll_store_buffer buffer = {0};
  atoll_store *s = NULL, *back = NULL;
  const void *bytes = NULL;
  size_t n, m;
  int64_t shape[1] = {LARGE};
  double *v = calloc(LARGE, sizeof *v);
  assert_non_null(v);
  for (int round = 0; round < 2; round++) { /* first large, so that the second finds old bytes in the buffer */
    v[LARGE - 1] = round + 1;
    assert_ok(atoll_store_open_image("large", &buffer, &s));
    assert_ok(atoll_store_write(s, "/v", ATOLL_F64, 1, shape, v, "1", "v"));
    assert_ok(atoll_store_finish_image(&s, &bytes, &n));
    assert_null(s);
    assert_true(n > LARGE * sizeof *v && n <= buffer.capacity);
    assert_ok(atoll_store_open_bytes("large", bytes, n, &back)); /* compares the seal */
    double *w = calloc(LARGE, sizeof *w);
    assert_non_null(w);
    assert_ok(atoll_store_read(back, "/v", ATOLL_F64, (int64_t[]){0}, shape, w));
    assert_memory_equal(v, w, LARGE * sizeof *v);
    free(w);
    assert_ok(atoll_store_close(&back));

    void *plain = filled(&m);
    assert_ok(atoll_store_open_image("small", &buffer, &s));
    fill(s);
    assert_ok(atoll_store_finish_image(&s, &bytes, &n));
    assert_int_equal(n, m);
    assert_memory_equal(bytes, plain, n);
    free(plain);
  }
  atoll_store_buffer_free(&buffer);
  assert_null(buffer.bytes);
  free(v);
  s = image();
  assert_int_equal(atoll_store_finish_image(&s, &bytes, &n), ATOLL_USAGE);
  assert_null(s);
}

static atoll_err note(void *arg, const char *path, int is_dataset) {
  char *text = arg;
  sprintf(text + strlen(text), "%s%s ", path, is_dataset ? "" : "/");
  return strstr(path, "stop") ? atoll_fail(ATOLL_STOPPED, "here") : ATOLL_OK;
}

static void visits_in_name_order(void **state) {
  (void)state;
  atoll_store *s = image();
  char seen[256] = "";
  assert_ok(atoll_store_write_text(s, "/b/y", "1", NULL));
  assert_ok(atoll_store_write_text(s, "/a", "2", NULL));
  assert_ok(atoll_store_write_text(s, "/b/x/z", "3", NULL));
  assert_ok(atoll_store_visit(s, "/", note, seen));
  assert_string_equal(seen, "/a /b/ /b/x/ /b/x/z /b/y ");
  seen[0] = '\0';
  assert_ok(atoll_store_visit(s, "/b/x", note, seen));
  assert_string_equal(seen, "/b/x/z ");
  assert_ok(atoll_store_write_text(s, "/b/stop", "4", NULL));
  assert_int_equal(atoll_store_visit(s, "/", note, seen), ATOLL_STOPPED);
  assert_int_equal(atoll_store_visit(s, "/no", note, seen), ATOLL_NOINPUT);
  assert_ok(atoll_store_close(&s));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_type_and_size),
      cmocka_unit_test(types_convert),
      cmocka_unit_test(texts_and_attributes),
      cmocka_unit_test(wrong_requests_are_refused),
      cmocka_unit_test(images_of_one_name_are_apart),
      cmocka_unit_test(equal_content_gives_equal_bytes),
      cmocka_unit_test(a_buffer_holds_one_image_after_another),
      cmocka_unit_test(visits_in_name_order),
  };
  return cmocka_run_group_tests(tests, test_dir_make, test_dir_remove);
}
