/* Promise: current and peak bytes are exact, per category and in total, and the budget is a hard limit. */
#include "atoll/mem.h"
#include "unit_check.h"

static void counts_as_asked(void **state) {
  (void)state;
  atoll_mem *mem = NULL;
  void *a = NULL, *b = NULL, *c = NULL, *z = NULL;
  assert_int_equal(atoll_mem_create(0, 0, &mem), ATOLL_OK);
  assert_int_equal(atoll_mem_alloc(mem, ATOLL_MEM_PARAMETER, 1001, &a), ATOLL_OK);
  assert_int_equal(atoll_mem_calloc(mem, ATOLL_MEM_GRADIENT, 3, &b), ATOLL_OK);
  assert_int_equal(atoll_mem_calloc(mem, ATOLL_MEM_PARAMETER, ((size_t)5 << 20) + 1, &c), ATOLL_OK);
  assert_int_equal(atoll_mem_alloc(mem, ATOLL_MEM_DATA, 0, &z), ATOLL_OK);
  assert_non_null(z);
  assert_int_equal((uintptr_t)a % 64 + (uintptr_t)b % 64 + (uintptr_t)c % 64 + (uintptr_t)z % 64, 0);
  for (size_t i = 0; i < 3; i++)
    assert_int_equal(((char *)b)[i], 0);
  for (size_t i = 0; i <= (size_t)5 << 20; i += 511)
    assert_int_equal(((char *)c)[i], 0);
  memset(a, 7, 1001);
  memset(c, 7, ((size_t)5 << 20) + 1);
  assert_int_equal(atoll_mem_current(mem, ATOLL_MEM_PARAMETER), 1001 + (5 << 20) + 1);
  assert_int_equal(atoll_mem_current(mem, ATOLL_MEM_GRADIENT), 3);
  assert_int_equal(atoll_mem_current_total(mem), 1001 + 3 + (5 << 20) + 1);
  atoll_mem_free(mem, &a);
  assert_null(a);
  atoll_mem_free(mem, &a); /* NULL is fine */
  assert_int_equal(atoll_mem_current(mem, ATOLL_MEM_PARAMETER), (5 << 20) + 1);
  assert_int_equal(atoll_mem_peak(mem, ATOLL_MEM_PARAMETER), 1001 + (5 << 20) + 1);
  atoll_mem_free(mem, &c);
  /* Peak of the sum, not sum of the peaks: parameters are gone when gradients grow. */
  assert_int_equal(atoll_mem_alloc(mem, ATOLL_MEM_GRADIENT, 100, &a), ATOLL_OK);
  assert_int_equal(atoll_mem_peak(mem, ATOLL_MEM_GRADIENT), 103);
  assert_int_equal(atoll_mem_peak_total(mem), 1001 + 3 + (5 << 20) + 1);
  atoll_mem_reset_peak(mem);
  assert_int_equal(atoll_mem_peak(mem, ATOLL_MEM_PARAMETER), 0);
  assert_int_equal(atoll_mem_peak_total(mem), 103);
  atoll_mem_free(mem, &a);
  atoll_mem_free(mem, &b);
  atoll_mem_free(mem, &z);
  assert_int_equal(atoll_mem_current_total(mem), 0);
  int64_t held = -1;
  atoll_mem_destroy(&mem, &held);
  assert_int_equal(held, 0);
  assert_null(mem);
  atoll_mem_destroy(&mem, NULL);
}

static void budget_is_hard(void **state) {
  (void)state;
  atoll_mem *mem = NULL;
  void *a = NULL, *b = (void *)&mem;
  assert_int_equal(atoll_mem_create(1000, 0, &mem), ATOLL_OK);
  assert_int_equal(atoll_mem_budget(mem), 1000);
  assert_int_equal(atoll_mem_alloc(mem, ATOLL_MEM_OPTIMIZER, 600, &a), ATOLL_OK);
  assert_int_equal(atoll_mem_alloc(mem, ATOLL_MEM_ACTIVATION, 401, &b), ATOLL_NOMEM);
  assert_ptr_equal(b, &mem); /* untouched on failure */
  const char *said = atoll_err_message();
  assert_non_null(strstr(said, "activation"));
  assert_non_null(strstr(said, "401"));
  assert_non_null(strstr(said, "600"));
  assert_non_null(strstr(said, "1000"));
  assert_int_equal(atoll_mem_alloc(mem, ATOLL_MEM_ACTIVATION, SIZE_MAX - 5, &b), ATOLL_NOMEM);
  assert_int_equal(atoll_mem_current_total(mem), 600);
  assert_int_equal(atoll_mem_peak_total(mem), 600);
  assert_int_equal(atoll_mem_alloc(mem, ATOLL_MEM_ACTIVATION, 400, &b), ATOLL_OK);
  atoll_mem_free(mem, &a);
  atoll_mem_free(mem, &b);
  atoll_mem_destroy(&mem, NULL);
  assert_int_equal(atoll_mem_create(-1, 0, &mem), ATOLL_USAGE);
  assert_null(mem);
}

static void charges_count_like_blocks(void **state) {
  (void)state;
  atoll_mem *mem = NULL;
  void *a = NULL, *b = NULL;
  int64_t held = 0;
  assert_int_equal(atoll_mem_create(1 << 20, 0, &mem), ATOLL_OK);
  assert_int_equal(atoll_mem_charge(mem, ATOLL_MEM_COMM, 1 << 19, &a), ATOLL_OK);
  assert_int_equal(atoll_mem_current(mem, ATOLL_MEM_COMM), 1 << 19);
  assert_int_equal(atoll_mem_charge(mem, ATOLL_MEM_COMM, (1 << 19) + 1, &b), ATOLL_NOMEM);
  assert_null(b);
  atoll_mem_discharge(mem, &a);
  assert_null(a);
  assert_int_equal(atoll_mem_current_total(mem), 0);
  assert_int_equal(atoll_mem_peak(mem, ATOLL_MEM_COMM), 1 << 19);
  assert_int_equal(atoll_mem_charge(mem, ATOLL_MEM_COMM, 1 << 18, &a), ATOLL_OK);
  atoll_mem_destroy(&mem, &held); /* must not release what it does not own */
  assert_int_equal(held, 1 << 18);
}

static void leaks_are_reported(void **state) {
  (void)state;
  atoll_mem *mem = NULL;
  void *a = NULL, *b = NULL;
  assert_int_equal(atoll_mem_create(0, 0, &mem), ATOLL_OK);
  assert_int_equal(atoll_mem_alloc(mem, ATOLL_MEM_COMM, 77, &a), ATOLL_OK);
  assert_int_equal(atoll_mem_alloc(mem, ATOLL_MEM_COMM, (size_t)3 << 20, &b), ATOLL_OK);
  int64_t held = 0;
  atoll_mem_destroy(&mem, &held);
  assert_int_equal(held, 77 + (3 << 20));
}

/* The table behind the accounts: many blocks freed in another order than taken. */
static void many_blocks_in_any_order(void **state) {
  (void)state;
  enum { N = 5000 };
  static void *block[N];
  atoll_mem *mem = NULL;
  assert_int_equal(atoll_mem_create(0, 0, &mem), ATOLL_OK);
  int64_t want = 0;
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < N; i++)
      if (!block[i]) {
        assert_int_equal(atoll_mem_alloc(mem, ATOLL_MEM_WORKSPACE, (size_t)i % 97, &block[i]), ATOLL_OK);
        want += i % 97;
      }
    for (int i = 0; i < N; i++) {
      int j = (int)((int64_t)i * 2741 % N);
      if (block[j] && (j + round) % 3) {
        atoll_mem_free(mem, &block[j]);
        want -= j % 97;
      }
      if (i % 500 == 0)
        assert_int_equal(atoll_mem_current_total(mem), want);
    }
  }
  for (int i = 0; i < N; i++)
    atoll_mem_free(mem, &block[i]);
  assert_int_equal(atoll_mem_current_total(mem), 0);
  atoll_mem_destroy(&mem, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(counts_as_asked), cmocka_unit_test(budget_is_hard),
                                     cmocka_unit_test(charges_count_like_blocks), cmocka_unit_test(leaks_are_reported),
                                     cmocka_unit_test(many_blocks_in_any_order)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
