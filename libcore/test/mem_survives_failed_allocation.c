/* Promise: whichever allocation of an operation fails, the operation fails with NOMEM, leaves nothing held, and works
 * afterwards. The failure is walked forward until the operation no longer meets it. */
#include "atoll/mem.h"
#include "unit_check.h"

static atoll_err operation(atoll_mem *mem) {
  void *a = NULL, *b = NULL, *c = NULL;
  atoll_arena *arena = NULL;
  atoll_err err;
  ATOLL_TRY(atoll_mem_alloc(mem, ATOLL_MEM_PARAMETER, 4096, &a));
  ATOLL_TRY_GOTO(err, free_a, atoll_mem_calloc(mem, ATOLL_MEM_GRADIENT, 100, &b));
  ATOLL_TRY_GOTO(err, free_b, atoll_arena_create(mem, ATOLL_MEM_ACTIVATION, 640, &arena));
  ATOLL_TRY_GOTO(err, free_arena, atoll_mem_alloc(mem, ATOLL_MEM_DATA, (size_t)4 << 20, &c));
  atoll_mem_free(mem, &c);
free_arena:
  atoll_arena_destroy(&arena);
free_b:
  atoll_mem_free(mem, &b);
free_a:
  atoll_mem_free(mem, &a);
  return err;
}

static void walk(void **state) {
  (void)state;
  for (int counting = 0; counting < 2; counting++) {
    atoll_mem *mem = NULL;
    assert_int_equal(atoll_mem_create(0, counting, &mem), ATOLL_OK);
    int64_t nth = 1;
    for (;; nth++) {
      atoll_mem_fail_at(mem, nth);
      atoll_err err = operation(mem);
      assert_int_equal(atoll_mem_current_total(mem), 0);
      if (err == ATOLL_OK)
        break;
      assert_int_equal(err, ATOLL_NOMEM);
      assert_int_equal(operation(mem), ATOLL_OK); /* one failure only */
    }
    assert_int_equal(nth, 5);
    atoll_mem_fail_at(mem, 1);
    atoll_mem_fail_at(mem, 0);
    assert_int_equal(operation(mem), ATOLL_OK);
    atoll_mem_destroy(&mem, NULL);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(walk)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
