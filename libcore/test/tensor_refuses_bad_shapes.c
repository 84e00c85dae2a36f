/* A tensor descriptor is right or refused: names, extents, 64-bit overflow, blocks that leave the whole. */
#include "atoll/tensor.h"
#include "unit_check.h"

static void types_have_sizes_and_names(void **state) {
  (void)state;
  atoll_dtype t;
  assert_int_equal(atoll_dtype_bytes(ATOLL_F32), 4);
  assert_int_equal(atoll_dtype_bytes(ATOLL_BF16), 2);
  assert_int_equal(atoll_dtype_bytes(ATOLL_I64), 8);
  for (int i = 0; i < ATOLL_DTYPES; i++) {
    assert_int_equal(atoll_dtype_parse(atoll_dtype_name((atoll_dtype)i), &t), 0);
    assert_int_equal(t, i);
  }
  assert_int_equal(atoll_dtype_parse("f16", &t), -1);
}

static void counts_are_64_bit(void **state) {
  (void)state;
  atoll_tensor t;
  assert_int_equal(atoll_tensor_init(&t, "w", ATOLL_F32, 2, (int64_t[]){70000, 70000}, NULL), ATOLL_OK);
  assert_true(atoll_tensor_local_count(&t) == INT64_C(4900000000));
  assert_true(atoll_tensor_local_bytes(&t) == INT64_C(19600000000));
  assert_int_equal(atoll_tensor_init(&t, "scalar", ATOLL_F64, 0, NULL, NULL), ATOLL_OK);
  assert_true(atoll_tensor_global_count(&t) == 1);
  assert_int_equal(atoll_tensor_init(&t, "empty", ATOLL_F64, 3, (int64_t[]){5, 0, 7}, NULL), ATOLL_OK);
  assert_true(atoll_tensor_local_bytes(&t) == 0);
}

static void bad_requests_are_refused(void **state) {
  (void)state;
  atoll_tensor t;
  memset(&t, 0x5a, sizeof t);
  atoll_tensor before = t;
  char longname[97];
  memset(longname, 'a', 96);
  longname[96] = 0;
  int64_t ok[1] = {3}, negative[2] = {3, -1}, huge[2] = {INT64_C(1) << 32, INT64_C(1) << 30};
  assert_int_equal(atoll_tensor_init(&t, longname, ATOLL_F32, 1, ok, NULL), ATOLL_USAGE);
  assert_int_equal(atoll_tensor_init(&t, "", ATOLL_F32, 1, ok, NULL), ATOLL_USAGE);
  assert_int_equal(atoll_tensor_init(&t, "w", ATOLL_F32, 5, ok, NULL), ATOLL_USAGE);
  assert_int_equal(atoll_tensor_init(&t, "w", ATOLL_F32, -1, ok, NULL), ATOLL_USAGE);
  assert_int_equal(atoll_tensor_init(&t, "w", ATOLL_F32, 2, negative, NULL), ATOLL_USAGE);
  assert_non_null(strstr(atoll_err_message(), "-1"));
  assert_int_equal(atoll_tensor_init(&t, "w", ATOLL_F32, 2, huge, NULL), ATOLL_USAGE); /* 2^64 bytes */
  assert_int_equal(atoll_tensor_init(&t, "w", ATOLL_U8, 2, huge, NULL), ATOLL_OK);     /* 2^62 bytes */
  t = before;
  atoll_tensor_init(&t, "w", ATOLL_F32, 5, ok, NULL);
  assert_memory_equal(&t, &before, sizeof t);
}

static void blocks_lie_inside(void **state) {
  (void)state;
  atoll_tensor t;
  assert_int_equal(atoll_tensor_init(&t, "w", ATOLL_F32, 2, (int64_t[]){10, 8}, NULL), ATOLL_OK);
  t.start[0] = 6;
  t.local[0] = 4;
  assert_int_equal(atoll_tensor_check(&t), ATOLL_OK);
  assert_true(atoll_tensor_local_count(&t) == 32 && atoll_tensor_global_count(&t) == 80);
  t.local[0] = 5;
  assert_int_equal(atoll_tensor_check(&t), ATOLL_USAGE);
  t.local[0] = 0;
  t.start[0] = 10;
  assert_int_equal(atoll_tensor_check(&t), ATOLL_OK);
  t.start[0] = 1;
  t.local[0] = INT64_MAX; /* start + local would overflow */
  assert_int_equal(atoll_tensor_check(&t), ATOLL_USAGE);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(types_have_sizes_and_names), cmocka_unit_test(counts_are_64_bit),
                                     cmocka_unit_test(bad_requests_are_refused), cmocka_unit_test(blocks_lie_inside)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
