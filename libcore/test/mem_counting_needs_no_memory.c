/* Promise: a counting memory runs an allocation sequence of any size, keeps the same accounts as a real one and holds
 * nothing. */
#include "atoll/mem.h"
#include "unit_check.h"

static void sequence(atoll_mem *mem, size_t unit) {
  void *p[20];
  atoll_arena *arena = NULL;
  for (int i = 0; i < 20; i++)
    assert_int_equal(atoll_mem_calloc(mem, (atoll_mem_category)(i % ATOLL_MEM_CATEGORIES), unit * (size_t)i, &p[i]),
                     ATOLL_OK);
  for (int i = 0; i < 20; i++)
    for (int j = 0; j < i; j++)
      assert_ptr_not_equal(p[i], p[j]);
  for (int i = 0; i < 20; i += 2)
    atoll_mem_free(mem, &p[i]);
  assert_int_equal(atoll_arena_create(mem, ATOLL_MEM_WORKSPACE, 100 * unit, &arena), ATOLL_OK);
  void *q = NULL, *r = NULL;
  assert_int_equal(atoll_arena_push(arena, unit, &q), ATOLL_OK);
  assert_int_equal(atoll_arena_push(arena, unit, &r), ATOLL_OK);
  assert_int_equal((uintptr_t)r - (uintptr_t)q, atoll_arena_padded(unit));
  atoll_arena_destroy(&arena);
  for (int i = 1; i < 20; i += 2)
    atoll_mem_free(mem, &p[i]);
}

static void same_accounts_as_real(void **state) {
  (void)state;
  atoll_mem *real = NULL, *counting = NULL;
  assert_int_equal(atoll_mem_create(0, 0, &real), ATOLL_OK);
  assert_int_equal(atoll_mem_create(0, 1, &counting), ATOLL_OK);
  assert_false(atoll_mem_counting(real));
  assert_true(atoll_mem_counting(counting));
  sequence(real, 1000);
  sequence(counting, 1000);
  for (int c = 0; c < ATOLL_MEM_CATEGORIES; c++)
    assert_int_equal(atoll_mem_peak(real, (atoll_mem_category)c), atoll_mem_peak(counting, (atoll_mem_category)c));
  assert_int_equal(atoll_mem_peak_total(real), atoll_mem_peak_total(counting));
  assert_int_equal(atoll_mem_current_total(counting), 0);
  atoll_mem_destroy(&real, NULL);
  atoll_mem_destroy(&counting, NULL);
}

static void larger_than_any_machine(void **state) {
  (void)state;
  atoll_mem *mem = NULL;
  assert_int_equal(atoll_mem_create(0, 1, &mem), ATOLL_OK);
  sequence(mem, (size_t)1 << 44); /* 16 TiB units, 1.6 PiB arena */
  assert_true(atoll_mem_peak_total(mem) > (int64_t)100 << 44);
  atoll_mem_destroy(&mem, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(same_accounts_as_real),
                                     cmocka_unit_test(larger_than_any_machine)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
