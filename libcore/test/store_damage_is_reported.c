/* A damaged file gives CORRUPT, no crash and no endless loop, and what reads without an error is right: with the seal
 * of an image every change is seen; without it (as in followed files) the checksums inside the file must do. Each
 * damage is a deterministic function of its number; children read, so that a crash is counted and named. */
#include "store_test.h"

#include "store_impl.h"

enum { FLIPS = 500, CUTS = 60, GARBAGE = 60, ROWS = 700 };

static unsigned char *original;
static size_t length;

static void build(void) {
  atoll_store *s = NULL;
  void *bytes = NULL;
  double v[ROWS];
  static const char *const list[] = {"one", "two", "three"};
  int64_t shape[2] = {70, 10}, big = 3000;
  float f[3000];
  for (int i = 0; i < ROWS; i++)
    v[i] = 1.0 + i;
  for (int i = 0; i < 3000; i++)
    f[i] = (float)i;
  assert_ok(atoll_store_open("damaged", ATOLL_STORE_IMAGE, &s));
  assert_ok(atoll_store_stamp(s, "atoll-test", 1));
  assert_ok(atoll_store_write(s, "/a/small", ATOLL_F64, 2, shape, v, "s", "in the header"));
  assert_ok(atoll_store_write(s, "/a/checked", ATOLL_F32, 1, &big, f, "s", "one chunk"));
  assert_ok(atoll_store_write_text(s, "/a/text", "some text", "text"));
  assert_ok(atoll_store_write_texts(s, "/a/list", list, 3, "texts"));
  assert_ok(atoll_store_series(s, "/m/x", ATOLL_F64, "1", "series"));
  assert_ok(atoll_store_append(s, "/m/x", v, ROWS));
  atoll_store_piece piece = {.file = "other.h5", .dataset = "/x", .start = {0}, .count = {10}};
  int64_t ten = 10;
  assert_ok(atoll_store_virtual(s, "/view", ATOLL_F64, 1, &ten, &piece, 1, "1", "view"));
  assert_ok(atoll_store_image(s, &bytes, &length));
  assert_ok(atoll_store_close(&s));
  original = bytes;
}

static int only_corrupt(atoll_err err, int *damaged) {
  *damaged |= err != ATOLL_OK;
  return err == ATOLL_OK || err == ATOLL_CORRUPT || err == ATOLL_NOINPUT;
}

static atoll_err touch(void *arg, const char *path, int is_dataset) {
  int64_t shape[ATOLL_NDIM_MAX];
  atoll_dtype t;
  int ndim;
  (void)is_dataset;
  (void)atoll_store_shape(arg, path, &t, &ndim, shape);
  return ATOLL_OK;
}

/* Read everything. 0: all right and whole; 1: damage reported; 2: wrong code; 3: wrong data without an error. */
static int read_all(atoll_store *s) {
  int damaged = 0, right = 1;
  double v[ROWS];
  float f[3000];
  char buf[64], *text = NULL, **texts = NULL;
  size_t n = 0;
  int64_t i = 0, shape[ATOLL_NDIM_MAX] = {0};
  int ndim = 0;
  atoll_dtype t;
  right &= only_corrupt(atoll_store_visit(s, "/", touch, s), &damaged);
  right &= only_corrupt(atoll_store_get_attr_text(s, "/", "format", buf, sizeof buf), &damaged);
  right &= only_corrupt(atoll_store_get_attr_text(s, "/a/small", "long_name", buf, sizeof buf), &damaged);
  right &= only_corrupt(atoll_store_get_attr_int(s, "/", "format_version", &i), &damaged);
  atoll_err err = atoll_store_shape(s, "/a/small", &t, &ndim, shape);
  right &= only_corrupt(err, &damaged);
  if (err == ATOLL_OK && (t != ATOLL_F64 || ndim != 2 || shape[0] * shape[1] != ROWS))
    return 3;
  if (err == ATOLL_OK) {
    err = atoll_store_read(s, "/a/small", ATOLL_F64, NULL, NULL, v);
    right &= only_corrupt(err, &damaged);
    for (int k = 0; err == ATOLL_OK && k < ROWS; k++)
      if (v[k] != 1.0 + k)
        return 3;
  }
  err = atoll_store_shape(s, "/a/checked", &t, &ndim, shape);
  right &= only_corrupt(err, &damaged);
  if (err == ATOLL_OK && ndim == 1 && shape[0] == 3000) {
    err = atoll_store_read(s, "/a/checked", ATOLL_F32, NULL, NULL, f);
    right &= only_corrupt(err, &damaged);
    for (int k = 0; err == ATOLL_OK && k < 3000; k++)
      if (f[k] != (float)k)
        return 3;
  }
  err = atoll_store_read_text(s, "/a/text", &text);
  right &= only_corrupt(err, &damaged);
  if (err == ATOLL_OK && strcmp(text, "some text") != 0)
    return 3;
  free(text);
  right &= only_corrupt(atoll_store_read_texts(s, "/a/list", &texts, &n), &damaged);
  atoll_store_texts_free(&texts, n);
  err = atoll_store_shape(s, "/m/x", &t, &ndim, shape);
  right &= only_corrupt(err, &damaged);
  if (err == ATOLL_OK && ndim == 1 && shape[0] == ROWS) {
    err = atoll_store_read(s, "/m/x", ATOLL_F64, NULL, NULL, v);
    right &= only_corrupt(err, &damaged);
    for (int k = 0; err == ATOLL_OK && k < ROWS; k++)
      if (v[k] != 1.0 + k)
        return 3;
  }
  err = atoll_store_shape(s, "/view", &t, &ndim, shape);
  right &= only_corrupt(err, &damaged);
  if (err == ATOLL_OK && ndim == 1 && shape[0] == 10)
    right &= only_corrupt(atoll_store_read(s, "/view", ATOLL_F64, NULL, NULL, v), &damaged);
  return !right ? 2 : damaged;
}

static int open_and_read(const unsigned char *bytes, size_t n, int from_file) {
  atoll_store *s = NULL;
  atoll_err err;
  if (from_file) {
    if (atoll_file_publish(in_dir("damaged.h5"), bytes, n) != ATOLL_OK)
      return 4;
    err = atoll_store_open(in_dir("damaged.h5"), ATOLL_STORE_READ, &s);
  } else {
    err = atoll_store_open_bytes("damaged", bytes, n, &s);
  }
  if (err != ATOLL_OK)
    return err == ATOLL_CORRUPT ? 1 : 2;
  int result = read_all(s);
  return atoll_store_close(&s) == ATOLL_OK ? result : 2;
}

static uint64_t mix(uint64_t x) { /* SplitMix64 */
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

static size_t damage(int kind, uint64_t k, unsigned char *bytes) {
  uint64_t r = mix((uint64_t)kind << 32 | k);
  memcpy(bytes, original, length);
  switch (kind) {
  case 0: /* a flipped bit */
    bytes[r % length] ^= (unsigned char)(1u << (r >> 60 & 7));
    return length;
  case 1: /* cut short */
    return 1 + r % (length - 1);
  default: { /* a run of other bytes, as a lost page or a wrong block leaves it */
    size_t n = 16 + (r >> 40) % 512, at = r % (length - n);
    for (size_t i = 0; i < n; i++)
      bytes[at + i] = (unsigned char)(bytes[at + i] ^ (k & 1 ? 0xff : mix(r + i) | 1));
    return length;
  }
  }
}

static void sweep(int kind, int count, int sealed) {
  int seen[5] = {0};
  size_t whole = length;
  length -= sealed ? 0 : STORE_SEAL_BYTES;
  unsigned char *bytes = malloc(length);
  for (int first = 0; first < count; first += 20) {
    fflush(NULL);
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork();
    if (pid == 0) {
      alarm(50);
      for (int k = first; k < first + 20 && k < count; k++) {
        size_t n = damage(kind, (uint64_t)k, bytes);
        char result = (char)open_and_read(bytes, n, k & 1);
        if (write(fds[1], &result, 1) != 1)
          _exit(9);
      }
      _exit(0);
    }
    (void)close(fds[1]);
    char result;
    int k = first;
    for (; read(fds[0], &result, 1) == 1; k++) {
      seen[(int)result]++;
      if (result > 1)
        print_message("kind %d number %d: %s\n", kind, k,
                      result == 2   ? "another code than CORRUPT"
                      : result == 3 ? "wrong data"
                                    : "not written");
    }
    (void)close(fds[0]);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status))
      fail_msg("kind %d number %d: the reader ended by signal %d", kind, k, WIFSIGNALED(status) ? WTERMSIG(status) : 0);
  }
  length = whole;
  print_message("kind %d, %s: %d whole, %d damaged\n", kind, sealed ? "sealed" : "not sealed", seen[0], seen[1]);
  assert_int_equal(seen[2] + seen[3] + seen[4], 0);
  assert_int_equal(seen[0] + seen[1], count);
  assert_true(seen[1] > count / 4); /* the damage reaches something */
  if (sealed || kind == 1)
    assert_int_equal(seen[1], count);
  free(bytes);
}

static void the_original_is_whole(void **state) {
  (void)state;
  build();
  assert_int_equal(open_and_read(original, length, 0), 0);
  assert_int_equal(open_and_read(original, length, 1), 0);
}
static void flipped_bits(void **state) {
  (void)state;
  sweep(0, FLIPS, 1);
  sweep(0, FLIPS, 0);
}
static void cut_short(void **state) {
  (void)state;
  sweep(1, CUTS, 1);
  sweep(1, CUTS, 0);
}
static void overwritten(void **state) {
  (void)state;
  sweep(2, GARBAGE, 1);
  sweep(2, GARBAGE, 0);
}

static void nothing_but_noise(void **state) {
  (void)state;
  unsigned char noise[4096];
  for (size_t i = 0; i < sizeof noise; i++)
    noise[i] = (unsigned char)mix(i);
  for (size_t n = 1; n <= sizeof noise; n *= 2) {
    assert_int_equal(open_and_read(noise, n, 0), 1);
    assert_int_equal(open_and_read(noise, n, 1), 1);
  }
  assert_int_equal(open_and_read(noise, 0, 1), 1);
  memcpy(noise, original, 8); /* the signature alone */
  assert_int_equal(open_and_read(noise, sizeof noise, 0), 1);
}

/* HDF5 may ask for an absurd amount; the C library refuses, and so shall the sanitizer. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "allocator_may_return_null=1"; }

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_original_is_whole), cmocka_unit_test(flipped_bits),      cmocka_unit_test(cut_short),
      cmocka_unit_test(overwritten),           cmocka_unit_test(nothing_but_noise),
  };
  int failed = cmocka_run_group_tests(tests, test_dir_make, test_dir_remove);
  free(original);
  return failed;
}
