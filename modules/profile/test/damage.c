/* A damaged file of layer times is refused with a message, or read as times that planning can use; nothing crashes. */
#include "atoll/profile.h"

#include <math.h>

#include "unit_check.h"

static const atoll_digest model = {5, 9};

static unsigned random_below(unsigned n) {
  static unsigned seed = 20261129;
  seed = seed * 1664525u + 1013904223u;
  return (seed >> 8) % n;
}

static void make_image(void **image, size_t *n, int64_t rows_claimed) {
  atoll_profile *p = NULL;
  atoll_store *s = NULL;
  assert_int_equal(atoll_profile_create(&p), ATOLL_OK);
  for (int k = 0; k < 12; k++) {
    atoll_cost c = {.forward = 0.25 + k, .backward_input = 0.5, .update = 7, .leaf = 1};
    assert_int_equal(atoll_profile_add(p, "A B/8c", model, k % 3 ? "block" : "head", "exact", 128, 1 + k, &c),
                     ATOLL_OK);
  }
  assert_int_equal(atoll_store_open("profile.h5", ATOLL_STORE_IMAGE, &s), ATOLL_OK);
  assert_int_equal(atoll_profile_to_store(p, s, "/profile"), ATOLL_OK);
  if (rows_claimed >= 0) {
    int64_t one = 1;
    assert_int_equal(atoll_store_write(s, "/other/rows", ATOLL_I64, 1, &one, &rows_claimed, "1", "rows"), ATOLL_OK);
  }
  assert_int_equal(atoll_store_image(s, image, n), ATOLL_OK);
  assert_int_equal(atoll_store_close(&s), ATOLL_OK);
  atoll_profile_destroy(&p);
}

/* Whether it was accepted. */
static int try_bytes(const void *bytes, size_t n, const char *group) {
  atoll_store *s = NULL;
  atoll_profile *p = NULL;
  atoll_err_clear();
  atoll_err err = atoll_store_open_bytes("damaged.h5", bytes, n, &s);
  if (err == ATOLL_OK)
    err = atoll_profile_from_store(s, group, &p);
  if (err != ATOLL_OK) {
    assert_null(p);
    if (!atoll_err_message()[0] || err == ATOLL_INTERNAL || err == ATOLL_OK)
      fail_msg("%s: '%s'", atoll_err_name(err), atoll_err_message());
  }
  for (int k = 0; err == ATOLL_OK && k < 12; k++) {
    atoll_cost c;
    if (atoll_profile_find(p, "A B/8c", model, k % 3 ? "block" : "head", "exact", 128, 1 + k, &c) == ATOLL_OK)
      assert_true(c.forward > 0 && isfinite(c.forward) && c.backward_input >= 0 && isfinite(c.backward_input));
  }
  atoll_profile_destroy(&p);
  (void)atoll_store_close(&s);
  return err == ATOLL_OK;
}

static void bytes_change(void **state) {
  (void)state;
  void *image;
  size_t n;
  int accepted = 0, refused = 0;
  make_image(&image, &n, -1);
  assert_true(try_bytes(image, n, "/profile"));
  for (int round = 0; round < 600; round++) {
    unsigned char *copy = malloc(n);
    assert_non_null(copy);
    memcpy(copy, image, n);
    size_t length = round % 4 ? n : random_below((unsigned)n);
    for (unsigned k = 0, times = random_below(4) + (length == n); k < times && length; k++)
      copy[random_below((unsigned)length)] = (unsigned char)random_below(256);
    int ok = try_bytes(copy, length, "/profile");
    accepted += ok;
    refused += !ok;
    free(copy);
  }
  print_message("%d accepted, %d refused\n", accepted, refused);
  assert_true(refused > 150);
  free(image);
}

static void wrong_counts(void **state) {
  (void)state;
  static const int64_t counts[] = {1, 100000001, INT64_MAX};
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
    void *image;
    size_t n;
    make_image(&image, &n, counts[i]);
    assert_false(try_bytes(image, n, "/other")); /* its columns are not there */
    free(image);
  }
}

static void free_layers(void **state) {
  (void)state;
  atoll_profile *p = NULL;
  assert_int_equal(atoll_profile_create(&p), ATOLL_OK);
  static const double bad[] = {0, -1, NAN, INFINITY};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    atoll_cost c = {.forward = bad[i], .backward_input = 0.5, .backward_weight = 0.5, .update = 1};
    assert_int_equal(atoll_profile_add(p, "A", model, "block", "exact", 128, 4, &c), ATOLL_USAGE);
    assert_non_null(strstr(atoll_err_message(), "block exact at B 4"));
  }
  assert_int_equal(atoll_profile_count(p), 0);
  atoll_profile_destroy(&p);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(bytes_change), cmocka_unit_test(wrong_counts),
                                     cmocka_unit_test(free_layers)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
