/* Promise: threads may share a memory; its accounts stay exact and its peak is one that really occurred. */
#include <pthread.h>

#include "atoll/mem.h"
#include "unit_check.h"

enum { THREADS = 4, TURNS = 20000, HELD = 8 };

struct task {
  atoll_mem *mem;
  int number;
  int failures;
};

static void *work(void *arg) {
  struct task *t = arg;
  void *p[HELD] = {0};
  for (int i = 0; i < TURNS; i++) {
    int k = i % HELD;
    if (p[k] && ((char *)p[k])[0] != t->number)
      t->failures++;
    atoll_mem_free(t->mem, &p[k]);
    if (atoll_mem_alloc(t->mem, (atoll_mem_category)(i % 3), 100, &p[k]) != ATOLL_OK)
      t->failures++;
    else
      memset(p[k], t->number, 100);
  }
  for (int k = 0; k < HELD; k++)
    atoll_mem_free(t->mem, &p[k]);
  return NULL;
}

static void shared_by_threads(void **state) {
  (void)state;
  atoll_mem *mem = NULL;
  void *own = NULL;
  pthread_t thread[THREADS];
  struct task task[THREADS];
  assert_int_equal(atoll_mem_create(THREADS * HELD * 100 + 11, 0, &mem), ATOLL_OK);
  assert_int_equal(atoll_mem_alloc(mem, ATOLL_MEM_DATA, 11, &own), ATOLL_OK);
  for (int i = 0; i < THREADS; i++) {
    task[i] = (struct task){mem, i + 1, 0};
    assert_int_equal(pthread_create(&thread[i], NULL, work, &task[i]), 0);
  }
  for (int i = 0; i < THREADS; i++) {
    assert_int_equal(pthread_join(thread[i], NULL), 0);
    assert_int_equal(task[i].failures, 0);
  }
  assert_int_equal(atoll_mem_current_total(mem), 11);
  assert_in_range(atoll_mem_peak_total(mem), HELD * 100 + 11, THREADS * HELD * 100 + 11);
  assert_int_equal(atoll_mem_peak_total(mem) % 100, 11);
  for (int c = 0; c < 3; c++)
    assert_int_equal(atoll_mem_current(mem, (atoll_mem_category)c), 0);
  atoll_mem_free(mem, &own);
  atoll_mem_destroy(&mem, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(shared_by_threads)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
