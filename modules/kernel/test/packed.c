/* A row's numbers do not depend on the rows beside it: a product of all rows and products of some give the same bits.
 * (Of packed products only; a library may choose its order of summation by the number of rows.) */
#include "kernel_test.h"

/* R beyond what is packed at a time, I likewise. */
static void rows_stand_alone(void **state) {
  (void)state;
  struct bench t = bench_open("cpu", "cpu", 2);
  enum { FEW = 37 };
  int64_t R = 3100, I = 1030, O = 70;
  float *x = numbers(1, R * I, 1), *w = numbers(2, O * I, 1), *b = numbers(3, O, 1), *all = numbers(4, R * O, 0),
        *few = numbers(5, FEW * O, 0);
  OK(t.k->linear_forward(t.queue, x, w, b, all, R, I, O));
  for (int64_t from = 0; from + FEW <= R; from += FEW) {
    OK(t.k->linear_forward(t.queue, x + from * I, w, b, few, FEW, I, O));
    OK(atoll_queue_sync(t.queue));
    same_bits("rows", few, all + from * O, (size_t)(FEW * O) * 4);
  }
  drop_numbers(x, R * I);
  drop_numbers(w, O * I);
  drop_numbers(b, O);
  drop_numbers(all, R * O);
  drop_numbers(few, FEW * O);
  bench_close(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(rows_stand_alone)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
