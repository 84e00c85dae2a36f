/* A row's numbers do not depend on the rows beside it: a product of all rows and products of some give the same bits.
 * (Of packed products only; a library may choose its order of summation by the number of rows.) */
#include "kernel_test.h"

#include "atoll/bf16.h"

/* In place; what lies behind the last stays as it is. */
static void narrow(float *x, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    uint16_t h = atoll_bf16_of(x[i]);
    memcpy((uint16_t *)(void *)x + i, &h, sizeof h);
  }
}

/* R beyond what is packed at a time, I likewise. */
static void rows_of(const char *kernels) {
  struct bench t = bench_open("cpu", kernels, 2);
  enum { FEW = 37 };
  int64_t R = 3100, I = 1031, O = 70, bytes = (int64_t)atoll_dtype_bytes(t.k->dtype);
  float *x = numbers(1, R * I, 1), *w = numbers(2, O * I, 1), *b = numbers(3, O, 1), *all = numbers(4, R * O, 0),
        *few = numbers(5, FEW * O, 0);
  if (t.k->dtype == ATOLL_BF16)
    narrow(x, R * I), narrow(w, O * I), narrow(b, O);
  OK(t.k->linear_forward(t.queue, x, w, b, all, R, I, O));
  for (int64_t from = 0; from + FEW <= R; from += FEW) {
    OK(t.k->linear_forward(t.queue, (char *)x + from * I * bytes, w, b, few, FEW, I, O));
    OK(atoll_queue_sync(t.queue));
    same_bits("rows", few, (char *)all + from * O * bytes, (size_t)(FEW * O * bytes));
  }
  drop_numbers(x, R * I);
  drop_numbers(w, O * I);
  drop_numbers(b, O);
  drop_numbers(all, R * O);
  drop_numbers(few, FEW * O);
  bench_close(&t);
}

static void rows_stand_alone(void **state) {
  (void)state;
  rows_of("cpu");
  rows_of("cpu:bf16");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(rows_stand_alone)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
