/* A profile survives packing and HDF5 to the last bit, whatever the order of adding; damaged text is refused. */
#include "atoll/profile.h"
#include "unit_check.h"

static atoll_profile *filled(int backwards) {
  atoll_profile *p = NULL;
  assert_int_equal(atoll_profile_create(&p), ATOLL_OK);
  for (int i = 0; i < 24; i++) {
    int k = backwards ? 23 - i : i;
    atoll_cost c = {.forward = 1.0 / (k + 3),
                    .backward_input = 0.1 * k,
                    .backward_weight = 1e-300 * k,
                    .update = 7,
                    .leaf = 0.3 * k};
    assert_int_equal(atoll_profile_add(p, k % 2 ? "A B/8c" : "C", (atoll_digest){(uint64_t)k % 3, 9},
                                       k % 5 ? "block" : "head", "exact", 128, 1 + k, &c),
                     ATOLL_OK);
  }
  return p;
}

/* A digest is made of the packed text and cannot show what packing lost. */
static void same_times(const atoll_profile *a, const atoll_profile *b) {
  for (int k = 0; k < 24; k++) {
    atoll_cost x, y;
    const char *class_key = k % 2 ? "A B/8c" : "C", *kind = k % 5 ? "block" : "head";
    atoll_digest model = {(uint64_t)k % 3, 9};
    assert_int_equal(atoll_profile_find(a, class_key, model, kind, "exact", 128, 1 + k, &x), ATOLL_OK);
    assert_int_equal(atoll_profile_find(b, class_key, model, kind, "exact", 128, 1 + k, &y), ATOLL_OK);
    assert_true(x.forward == y.forward && x.backward_input == y.backward_input &&
                x.backward_weight == y.backward_weight && x.update == y.update && x.leaf == y.leaf);
    assert_true(x.forward == 1.0 / (k + 3) && x.source == y.source);
  }
}

/* What was measured again takes the place of what was known; the rest stays. */
static void replaces(void **state) {
  (void)state;
  atoll_profile *known = filled(0), *again = NULL;
  assert_int_equal(atoll_profile_create(&again), ATOLL_OK);
  const atoll_cost one = {.forward = 2, .backward_input = 3};
  for (int i = 0; i < 2; i++) /* B 2 is known, B 99 is not */
    assert_int_equal(atoll_profile_add(again, "A B/8c", (atoll_digest){1, 9}, "block", "exact", 128, i ? 99 : 2, &one),
                     ATOLL_OK);
  assert_int_equal(atoll_profile_replace(known, again), ATOLL_OK);
  assert_int_equal(atoll_profile_count(known), 25);
  for (int i = 0; i < 2; i++) {
    atoll_cost c;
    assert_int_equal(atoll_profile_find(known, "A B/8c", (atoll_digest){1, 9}, "block", "exact", 128, i ? 99 : 2, &c),
                     ATOLL_OK);
    assert_true(c.forward == 2 && c.backward_input == 3 && c.update == 0);
  }
  atoll_cost kept;
  assert_int_equal(atoll_profile_find(known, "C", (atoll_digest){2, 9}, "block", "exact", 128, 3, &kept), ATOLL_OK);
  assert_true(kept.forward == 1.0 / 5);
  atoll_profile_destroy(&known);
  atoll_profile_destroy(&again);
}

static void packs(void **state) {
  (void)state;
  atoll_profile *a = filled(0), *b = filled(1), *c = NULL;
  assert_true(atoll_digest_equal(atoll_profile_digest(a), atoll_profile_digest(b)));
  char *text;
  size_t bytes;
  assert_int_equal(atoll_profile_pack(a, &text, &bytes), ATOLL_OK);
  assert_int_equal(atoll_profile_create(&c), ATOLL_OK);
  assert_int_equal(atoll_profile_unpack(c, text, bytes), ATOLL_OK);
  assert_true(atoll_digest_equal(atoll_profile_digest(a), atoll_profile_digest(c)));
  same_times(a, c);
  /* Any damage is an error or leaves a profile that still works; nothing crashes. */
  unsigned seed = 20261129;
  print_message("seed %u\n", seed);
  for (int i = 0; i < 3000; i++) {
    char *copy = malloc(bytes);
    memcpy(copy, text, bytes);
    for (int k = 0; k < 3; k++) {
      seed = seed * 1664525u + 1013904223u;
      copy[(seed >> 8) % bytes] = (char)(seed >> 24);
    }
    seed = seed * 1664525u + 1013904223u;
    size_t cut = i % 2 ? bytes : (seed >> 8) % bytes;
    atoll_profile *d = NULL;
    assert_int_equal(atoll_profile_create(&d), ATOLL_OK);
    (void)atoll_profile_unpack(d, copy, cut);
    atoll_profile_destroy(&d);
    free(copy);
  }
  atoll_profile *d = NULL;
  assert_int_equal(atoll_profile_create(&d), ATOLL_OK);
  assert_int_equal(atoll_profile_unpack(d, text, bytes - 1), ATOLL_CORRUPT);
  assert_int_equal(atoll_profile_unpack(d, "a\tb\n", 4), ATOLL_CORRUPT);
  free(text);
  atoll_profile_destroy(&a);
  atoll_profile_destroy(&b);
  atoll_profile_destroy(&c);
  atoll_profile_destroy(&d);
}

static void stores(void **state) {
  (void)state;
  atoll_profile *a = filled(0), *empty = NULL, *b = NULL;
  assert_int_equal(atoll_profile_create(&empty), ATOLL_OK);
  atoll_store *s = NULL;
  void *image;
  size_t n;
  assert_int_equal(atoll_store_open("profile.h5", ATOLL_STORE_IMAGE, &s), ATOLL_OK);
  assert_int_equal(atoll_profile_to_store(a, s, "/profile"), ATOLL_OK);
  assert_int_equal(atoll_profile_to_store(empty, s, "/empty"), ATOLL_OK);
  assert_int_equal(atoll_store_image(s, &image, &n), ATOLL_OK);
  assert_int_equal(atoll_store_close(&s), ATOLL_OK);
  assert_int_equal(atoll_store_open_bytes("profile.h5", image, n, &s), ATOLL_OK);
  assert_int_equal(atoll_profile_from_store(s, "/profile", &b), ATOLL_OK);
  same_times(a, b);
  assert_true(atoll_digest_equal(atoll_profile_digest(a), atoll_profile_digest(b)));
  atoll_profile_destroy(&b);
  assert_int_equal(atoll_profile_from_store(s, "/empty", &b), ATOLL_OK);
  assert_int_equal(atoll_profile_count(b), 0);
  atoll_profile_destroy(&b);
  assert_int_not_equal(atoll_profile_from_store(s, "/absent", &b), ATOLL_OK);
  assert_int_equal(atoll_store_close(&s), ATOLL_OK);
  free(image);
  atoll_profile_destroy(&a);
  atoll_profile_destroy(&empty);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(replaces), cmocka_unit_test(packs), cmocka_unit_test(stores)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
