/* Promise: an arena is one allocation of its memory, hands out disjoint 64-byte aligned blocks, and refuses what does
 * not fit. */
#include "atoll/mem.h"
#include "unit_check.h"

static void stack_discipline(void **state) {
  (void)state;
  atoll_mem *mem = NULL;
  atoll_arena *arena = NULL;
  void *a = NULL, *b = NULL, *c = NULL;
  assert_int_equal(atoll_mem_create(0, 0, &mem), ATOLL_OK);
  assert_int_equal(atoll_arena_create(mem, ATOLL_MEM_ACTIVATION, 1000, &arena), ATOLL_OK);
  assert_int_equal(atoll_mem_current(mem, ATOLL_MEM_ACTIVATION), 1024);
  assert_int_equal(atoll_arena_push(arena, 65, &a), ATOLL_OK);
  size_t mark = atoll_arena_mark(arena);
  assert_int_equal(mark, 128);
  assert_int_equal(atoll_arena_push(arena, 1, &b), ATOLL_OK);
  assert_int_equal((char *)b - (char *)a, 128);
  assert_int_equal((uintptr_t)a % 64, 0);
  assert_int_equal(atoll_arena_push(arena, 0, &c), ATOLL_OK);
  assert_non_null(c);
  assert_int_equal(atoll_arena_push(arena, 833, &c), ATOLL_NOMEM);
  assert_non_null(strstr(atoll_err_message(), "192 of 1024"));
  assert_int_equal(atoll_arena_push(arena, SIZE_MAX, &c), ATOLL_NOMEM);
  assert_int_equal(atoll_arena_push(arena, 832, &c), ATOLL_OK);
  memset(a, 1, 65);
  memset(b, 2, 1);
  memset(c, 3, 832);
  assert_int_equal(((char *)a)[64], 1);
  assert_int_equal(((char *)b)[0], 2);
  assert_int_equal(atoll_arena_peak(arena), 1024);
  atoll_arena_release(arena, mark);
  assert_int_equal(atoll_arena_push(arena, 64, &c), ATOLL_OK);
  assert_ptr_equal(b, c);
  assert_int_equal(atoll_arena_peak(arena), 1024);
  assert_int_equal(atoll_mem_current(mem, ATOLL_MEM_ACTIVATION), 1024);
  atoll_arena_destroy(&arena);
  assert_null(arena);
  atoll_arena_destroy(&arena);
  assert_int_equal(atoll_mem_current_total(mem), 0);
  atoll_mem_destroy(&mem, NULL);
}

static void padding(void **state) {
  (void)state;
  assert_int_equal(atoll_arena_padded(0), 0);
  assert_int_equal(atoll_arena_padded(1), 64);
  assert_int_equal(atoll_arena_padded(64), 64);
  assert_int_equal(atoll_arena_padded(65), 128);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(stack_discipline), cmocka_unit_test(padding)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
