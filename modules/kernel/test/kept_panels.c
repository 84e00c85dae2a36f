/* Products by weights whose panels are kept have the bits of those that pack on every call; whoever cannot keep panels
 * says why, and multiplies all the same. Run by every way of products. */
#include "kernel_test.h"

#include "atoll/bf16.h"
#include "atoll/packed.h"

static void *narrowed(const float *x, int64_t n, int bf16) {
  float *copy = copy_of(x, n);
  for (int64_t i = 0; bf16 && i < n; i++)
    ((uint16_t *)(void *)copy)[i] = atoll_bf16_of(x[i]);
  return copy;
}

/* Few rows, an odd number, and more than one block; inner sizes of one and of several parts. */
static const int64_t shapes[][3] = {{1, 70, 50},    {31, 129, 65},   {32, 96, 64},   {64, 768, 130},
                                    {77, 1030, 41}, {100, 33, 3110}, {65, 40, 1537}, {3100, 50, 40}};

static void matrix(const char *kernels, int64_t R, int64_t I, int64_t O, int back) {
  struct bench t = bench_open("cpu", kernels, 3);
  int bf16 = t.k->dtype == ATOLL_BF16;
  int64_t inner = back ? O : I, columns = back ? I : O, bytes = atoll_packed_bytes(I, O, back);
  float *a = numbers(1, R * inner, 1), *b = numbers(2, O * I, 1), *c = numbers(3, O, 1),
        *d = numbers(4, R * columns, 1);
  void *x = narrowed(a, R * inner, bf16), *w = narrowed(b, O * I, bf16), *bias = narrowed(c, O, bf16),
       *expected = narrowed(d, R * columns, bf16), *y = narrowed(d, R * columns, bf16);
  float *panels = numbers(5, bytes / 4, 1);
  const char *why;
  assert_int_equal(bytes % 64, 0);
  for (int turn = 0; turn < 2; turn++) { /* the second with other weights */
    int serves = atoll_packed_serves(t.k, &why);
    assert_true(serves == !why);
    atoll_err filled = atoll_packed_fill(t.k, t.queue, w, panels, I, O, back);
    assert_int_equal(filled, serves ? ATOLL_OK : ATOLL_UNSUPPORTED);
    if (!serves)
      assert_non_null(strstr(atoll_err_message(), "a library's"));
    if (back) {
      OK(t.k->linear_backward_input(t.queue, x, w, expected, R, I, O, turn));
      OK(atoll_packed_backward_input(t.k, t.queue, x, w, panels, y, R, I, O, turn));
    } else {
      OK(t.k->linear_forward(t.queue, x, w, turn ? NULL : bias, expected, R, I, O));
      OK(atoll_packed_forward(t.k, t.queue, x, w, panels, turn ? NULL : bias, y, R, I, O));
    }
    OK(atoll_queue_sync(t.queue));
    same_bits(back ? "dx" : "y", y, expected, (size_t)(R * columns) * (bf16 ? 2 : 4));
    for (int64_t i = 0; i < O * I; i++)
      if (bf16)
        ((uint16_t *)w)[i] ^= 0x8000;
      else
        ((float *)w)[i] *= 1.5f;
  }
  drop_numbers(a, R * inner);
  drop_numbers(b, O * I);
  drop_numbers(c, O);
  drop_numbers(d, R * columns);
  drop_numbers(x, R * inner);
  drop_numbers(w, O * I);
  drop_numbers(bias, O);
  drop_numbers(expected, R * columns);
  drop_numbers(y, R * columns);
  drop_numbers(panels, bytes / 4);
  bench_close(&t);
}

static void same_as_unpacked(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    for (int back = 0; back < 2; back++) {
      matrix("cpu", shapes[i][0], shapes[i][1], shapes[i][2], back);
      matrix("cpu:bf16", shapes[i][0], shapes[i][1], shapes[i][2], back);
    }
}

/* That panels are read at all: with zeros in their place the result is the bias. */
static void are_used(void **state) {
  (void)state;
  struct bench t = bench_open("cpu", "cpu", 2);
  if (!atoll_packed_serves(t.k, NULL)) {
    bench_close(&t);
    skip();
  }
  int64_t R = 64, I = 96, O = 80, bytes = atoll_packed_bytes(I, O, 0);
  float *x = numbers(1, R * I, 1), *w = numbers(2, O * I, 1), *b = numbers(3, O, 1), *y = numbers(4, R * O, 0),
        *zeros = numbers(5, O * I, 0), *panels = numbers(6, bytes / 4, 0);
  OK(atoll_packed_fill(t.k, t.queue, zeros, panels, I, O, 0));
  OK(atoll_packed_forward(t.k, t.queue, x, w, panels, b, y, R, I, O));
  OK(atoll_queue_sync(t.queue));
  for (int64_t r = 0; r < R; r++)
    same_bits("row", y + r * O, b, (size_t)O * 4);
  assert_int_equal(atoll_packed_forward(t.k, t.queue, x, w, panels, b, y, R, I + 1, O), ATOLL_INTERNAL);
  assert_non_null(strstr(atoll_err_message(), "panels of a 80 x 96 matrix for one of 80 x 97"));
  drop_numbers(x, R * I);
  drop_numbers(w, O * I);
  drop_numbers(b, O);
  drop_numbers(y, R * O);
  drop_numbers(zeros, O * I);
  drop_numbers(panels, bytes / 4);
  bench_close(&t);
}

static void oracle_keeps_none(void **state) {
  (void)state;
  const char *why;
  struct bench t = bench_open("cpu", "ref", 1);
  assert_false(atoll_packed_serves(t.k, &why));
  assert_non_null(strstr(why, "only the cpu kernels"));
  bench_close(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(same_as_unpacked), cmocka_unit_test(are_used),
                                     cmocka_unit_test(oracle_keeps_none)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
