/* Kernels of generating: cpu against ref, on odd sizes; a row's bits depend neither on its neighbours nor on threads.
 */
#include "kernel_test.h"

#include "atoll/kernel.h"

static void linear(struct bench *b, const float *x, const float *w, const float *bias, float *y, int64_t R, int64_t I,
                   int64_t O) {
  OK(b->k->decode->linear(b->queue, x, w, bias, y, R, I, O));
  OK(atoll_queue_sync(b->queue));
}

static void products_match(void **state) {
  (void)state;
  struct bench ref = bench_open("cpu", "ref", 1), cpu = bench_open("cpu", "cpu", 2);
  const int64_t sizes[][3] = {{1, 1, 1},   {1, 64, 64},  {1, 37, 5},  {2, 129, 33}, {3, 16, 100},
                              {4, 768, 7}, {7, 100, 66}, {13, 31, 9}, {1, 3072, 96}};
  for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
    for (int with_bias = 0; with_bias < 2; with_bias++) {
      int64_t R = sizes[k][0], I = sizes[k][1], O = sizes[k][2];
      float *x = numbers(1, R * I, 1), *w = numbers(2, O * I, 1), *bias = numbers(3, O, 1);
      float *y = numbers(4, R * O, 1), *want = numbers(5, R * O, 1);
      linear(&ref, x, w, with_bias ? bias : NULL, want, R, I, O);
      linear(&cpu, x, w, with_bias ? bias : NULL, y, R, I, O);
      close_to("y", y, want, R * O, 1e-6 * sqrt((double)I));
      drop_numbers(x, R * I), drop_numbers(w, O * I), drop_numbers(bias, O);
      drop_numbers(y, R * O), drop_numbers(want, R * O);
    }
  bench_close(&ref);
  bench_close(&cpu);
}

static void rows_of_products_stand_alone(void **state) {
  (void)state;
  enum { R = 11, I = 203, O = 77 };
  float *x = numbers(1, R * I, 1), *w = numbers(2, O * I, 1), *all = numbers(3, R * O, 1), *one = numbers(4, O, 1);
  struct bench two = bench_open("cpu", "cpu", 2), single = bench_open("cpu", "cpu", 1);
  linear(&two, x, w, NULL, all, R, I, O);
  for (int r = 0; r < R; r++) {
    linear(&single, x + r * I, w, NULL, one, 1, I, O);
    same_bits("row", all + r * O, one, O * sizeof *one);
  }
  bench_close(&two);
  bench_close(&single);
  drop_numbers(x, R * I), drop_numbers(w, O * I), drop_numbers(all, R * O), drop_numbers(one, O);
}

typedef struct filled {
  atoll_cache c;
  int64_t slots;
  float *qkv;
} filled;

static int64_t elements(const filled *f) { return f->slots * f->c.kv_heads * f->c.room * f->c.head_dim; }

/* Queries, keys and values lie in rows of one array. */
static int64_t row_of(const atoll_cache *c) { return (c->heads + 2 * c->kv_heads) * c->head_dim; }

static const float *key_of(const filled *f) { return f->qkv + f->c.heads * f->c.head_dim; }

static const float *value_of(const filled *f) { return key_of(f) + f->c.kv_heads * f->c.head_dim; }

static filled fill(int64_t heads, int64_t kv_heads, int64_t D, int64_t room, int64_t slots, int64_t R) {
  filled f = {.c = {.heads = heads, .kv_heads = kv_heads, .room = room, .head_dim = D, .scale = 1 / sqrtf((float)D)},
              .slots = slots};
  f.c.q_row = f.c.kv_row = row_of(&f.c);
  f.c.keys = numbers(1, elements(&f), 2);
  f.c.values = numbers(2, elements(&f), 1);
  f.qkv = numbers(3, R * row_of(&f.c), 2);
  return f;
}

static void empty(filled *f, int64_t R) {
  drop_numbers(f->c.keys, elements(f));
  drop_numbers(f->c.values, elements(f));
  drop_numbers(f->qkv, R * row_of(&f->c));
}

static void attend(struct bench *b, const filled *f, int64_t first, float *o, const int32_t *slot, const int32_t *at,
                   int64_t R) {
  OK(b->k->decode->attention(b->queue, f->qkv + first * row_of(&f->c), o, &f->c, slot, at, R));
  OK(atoll_queue_sync(b->queue));
}

static const int64_t shapes[][3] = {{1, 1, 1}, {4, 4, 16}, {8, 4, 8}, {6, 2, 33}, {12, 3, 64}, {5, 1, 7}};

static void attention_matches(void **state) {
  (void)state;
  enum { R = 6, SLOTS = 4, ROOM = 700 };
  const int32_t slot[R] = {2, 0, 3, 1, 2, 0}, at[R] = {0, 16, 255, 256, 512, 699};
  struct bench ref = bench_open("cpu", "ref", 1), cpu = bench_open("cpu", "cpu", 2);
  const int64_t windows[] = {0, 1, 256, 300, 1000};
  for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
    for (size_t w = 0; w < sizeof windows / sizeof *windows; w++) {
      filled f = fill(shapes[k][0], shapes[k][1], shapes[k][2], ROOM, SLOTS, R);
      int64_t n = R * f.c.heads * f.c.head_dim;
      float *o = numbers(4, n, 1), *want = numbers(5, n, 1);
      f.c.window = windows[w];
      attend(&ref, &f, 0, want, slot, at, R);
      attend(&cpu, &f, 0, o, slot, at, R);
      close_to("o", o, want, n, 2e-6);
      drop_numbers(o, n), drop_numbers(want, n);
      empty(&f, R);
    }
  bench_close(&ref);
  bench_close(&cpu);
}

static void rows_of_attention_stand_alone(void **state) {
  (void)state;
  enum { R = 5, SLOTS = 3, ROOM = 600 };
  const int32_t slot[R] = {1, 0, 2, 2, 1}, at[R] = {599, 3, 300, 0, 128};
  struct bench two = bench_open("cpu", "cpu", 2), single = bench_open("cpu", "cpu", 1);
  filled f = fill(6, 2, 20, ROOM, SLOTS, R);
  int64_t width = f.c.heads * f.c.head_dim;
  float *all = numbers(4, R * width, 1), *one = numbers(5, width, 1);
  attend(&two, &f, 0, all, slot, at, R);
  for (int r = 0; r < R; r++) {
    attend(&single, &f, r, one, slot + r, at + r, 1);
    same_bits("row", all + r * width, one, (size_t)width * sizeof *one);
  }
  drop_numbers(all, R * width), drop_numbers(one, width);
  empty(&f, R);
  bench_close(&two);
  bench_close(&single);
}

/* What lies before the window, and behind the token, is not looked at. */
static void a_window_shuts_out_the_rest(void **state) {
  (void)state;
  enum { ROOM = 600, WINDOW = 290 };
  const int32_t slot = 0, at = 500;
  const char *const kernels[] = {"cpu", "ref"};
  for (int b = 0; b < 2; b++) {
    struct bench bench = bench_open("cpu", kernels[b], 1);
    filled f = fill(4, 2, 16, ROOM, 1, 1);
    float o[2][4 * 16];
    f.c.window = WINDOW;
    attend(&bench, &f, 0, o[0], &slot, &at, 1);
    for (int64_t h = 0; h < 2; h++)
      for (int64_t t = 0; t < ROOM; t++)
        for (int64_t d = 0; d < 16 && (t <= at - WINDOW || t > at); d++)
          ((float *)f.c.keys)[(h * ROOM + t) * 16 + d] = ((float *)f.c.values)[(h * ROOM + t) * 16 + d] = NAN;
    attend(&bench, &f, 0, o[1], &slot, &at, 1);
    same_bits("o", o[0], o[1], sizeof o[0]);
    empty(&f, 1);
    bench_close(&bench);
  }
}

/* Rotary positions are those of the kernel that trains, bit for bit on cpu. */
static void turns_as_in_training(void **state) {
  (void)state;
  enum { S = 40, HEADS = 3 };
  const atoll_rope ropes[] = {{.theta = 10000}, {.theta = 500000, .factor = 32, .low = 1, .high = 4, .context = 20}};
  const int32_t at[3] = {39, 0, 17};
  struct bench ref = bench_open("cpu", "ref", 1), cpu = bench_open("cpu", "cpu", 2);
  for (int64_t D = 2; D <= 34; D += 8)
    for (size_t k = 0; k < 2; k++) {
      int64_t row = HEADS * D;
      float *all = numbers(1, S * row, 1), *rows = numbers(2, 3 * row, 1), *want = numbers(3, 3 * row, 1);
      for (int r = 0; r < 3; r++)
        memcpy(rows + r * row, all + at[r] * row, (size_t)row * sizeof *rows);
      memcpy(want, rows, (size_t)(3 * row) * sizeof *rows);
      OK(cpu.k->rope(cpu.queue, all, 1, S, HEADS, D, &ropes[k], 0));
      OK(cpu.k->decode->rope(cpu.queue, rows, &ropes[k], HEADS, D, at, 3));
      OK(ref.k->decode->rope(ref.queue, want, &ropes[k], HEADS, D, at, 3));
      OK(atoll_queue_sync(cpu.queue));
      OK(atoll_queue_sync(ref.queue));
      close_to("turned", rows, want, 3 * row, 1e-6);
      for (int r = 0; r < 3; r++)
        same_bits("turned", rows + r * row, all + at[r] * row, (size_t)row * sizeof *rows);
      drop_numbers(all, S * row), drop_numbers(rows, 3 * row), drop_numbers(want, 3 * row);
    }
  bench_close(&ref);
  bench_close(&cpu);
}

/* Rows reach their own places and nothing else changes. */
static void what_is_stored_is_what_was_given(void **state) {
  (void)state;
  enum { R = 150, SLOTS = 3, ROOM = 100 };
  int32_t slot[R], at[R];
  struct bench ref = bench_open("cpu", "ref", 1), cpu = bench_open("cpu", "cpu", 2);
  for (int r = 0; r < R; r++) {
    slot[r] = r % 2 ? 2 : 0;
    at[r] = r / 2;
  }
  for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
    filled a = fill(shapes[k][0], shapes[k][1], shapes[k][2], ROOM, SLOTS, R), b = a;
    int64_t K = a.c.kv_heads, D = a.c.head_dim, n = elements(&a), row = 7 * row_of(&a.c) + (K - 1) * D;
    b.c.keys = copy_of(a.c.keys, n), b.c.values = copy_of(a.c.values, n);
    OK(ref.k->decode->store(ref.queue, key_of(&a), value_of(&a), &a.c, slot, at, R));
    OK(cpu.k->decode->store(cpu.queue, key_of(&a), value_of(&a), &b.c, slot, at, R));
    OK(atoll_queue_sync(ref.queue));
    OK(atoll_queue_sync(cpu.queue));
    same_bits("keys", a.c.keys, b.c.keys, (size_t)n * 4);
    same_bits("values", a.c.values, b.c.values, (size_t)n * 4);
    const float *keys = a.c.keys, *values = a.c.values;
    int64_t place = ((slot[7] * K + K - 1) * ROOM + at[7]) * D;
    same_bits("a key", keys + place, key_of(&a) + row, (size_t)D * 4);
    same_bits("a value", values + place, value_of(&a) + row, (size_t)D * 4);
    float *before = numbers(1, n, 2);
    for (int64_t i = K * ROOM * D; i < 2 * K * ROOM * D; i++) /* slot 1 */
      assert_true(keys[i] == before[i]);
    drop_numbers(before, n);
    drop_numbers(b.c.keys, n), drop_numbers(b.c.values, n);
    empty(&a, R);
  }
  bench_close(&ref);
  bench_close(&cpu);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(products_match),
      cmocka_unit_test(rows_of_products_stand_alone),
      cmocka_unit_test(attention_matches),
      cmocka_unit_test(rows_of_attention_stand_alone),
      cmocka_unit_test(a_window_shuts_out_the_rest),
      cmocka_unit_test(turns_as_in_training),
      cmocka_unit_test(what_is_stored_is_what_was_given),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
