/* A product with what follows it has the bits of the two kernels one after the other: of both types, with panels and
 * without, by every way of products, wherever the result goes. In f32 it agrees with the oracle. */
#include "kernel_test.h"

#include "atoll/bf16.h"
#include "atoll/packed.h"

static const char *const kinds[] = {"gelu",     "gelu by erf",           "gelu back", "gelu by erf back",
                                    "residual", "residual after dropout"};
enum { KINDS = 6, IN_Z, IN_X, ALONE, PLACES };

/* [n], narrowed in place for bf16. */
static void *operand(uint64_t what, int64_t n, int bf16) {
  float *p = numbers(what, n, 1);
  for (int64_t i = 0; bf16 && i < n; i++) {
    uint16_t h = atoll_bf16_of(p[i]);
    memcpy((uint16_t *)(void *)p + i, &h, sizeof h);
  }
  return p;
}

static atoll_linear_then follow(int kind, int64_t B, const void *x, void *y) {
  atoll_linear_then t = {.kind = kind > 4 ? ATOLL_THEN_RESIDUAL : (atoll_then)kind, .x = x, .y = y, .B = B};
  if (kind == 5)
    t.drop = (atoll_drop){0.25f, {.seed = 1, .step = 2, .sample = 3, .layer = 4, .site = ATOLL_RNG_DROP_MLP}};
  return t;
}

static atoll_err by_itself(struct bench *t, const void *z, int64_t R, int64_t C, const atoll_linear_then *n) {
  const atoll_kernels *k = t->k;
  switch (n->kind) {
  case ATOLL_THEN_GELU:
    return k->gelu_forward(t->queue, z, n->y, R * C);
  case ATOLL_THEN_GELU_ERF:
    return k->gelu_erf_forward(t->queue, z, n->y, R * C);
  case ATOLL_THEN_GELU_BACKWARD:
    return k->gelu_backward(t->queue, z, n->x, n->y, R * C);
  case ATOLL_THEN_GELU_ERF_BACKWARD:
    return k->gelu_erf_backward(t->queue, z, n->x, n->y, R * C);
  default:
    return k->residual_forward(t->queue, n->x, z, n->y, n->B, R / n->B * C, &n->drop);
  }
}

typedef struct sizes {
  int64_t B, R, I, O;
} sizes;
/* Few rows, an odd number, more than a block of rows or of columns; inner sizes of one and of several parts. */
static const sizes shapes[] = {
    {1, 1, 7, 50}, {3, 33, 129, 65}, {2, 64, 96, 800}, {4, 600, 1030, 41}, {5, 3100, 33, 40}};

/* z and y of one way: in one call, or in two. `out` [2][R C] elements. */
static void make(const char *kernels, sizes s, int kind, int place, int back, int panels, int at_once, char *out) {
  struct bench t = bench_open("cpu", kernels, 3);
  int bf16 = t.k->dtype == ATOLL_BF16;
  int64_t C = back ? s.I : s.O, inner = back ? s.O : s.I, n = s.R * C, bytes = atoll_packed_bytes(s.I, s.O, back);
  void *a = operand(1, s.R * inner, bf16), *w = operand(2, s.I * s.O, bf16), *b = operand(3, s.O, bf16),
       *x = operand(4, n, bf16), *z = operand(5, n, bf16), *alone = operand(6, n, bf16),
       *y = place == IN_Z   ? z
            : place == IN_X ? x
                            : alone;
  float *kept = panels && atoll_packed_serves(t.k, NULL) ? numbers(7, bytes / 4, 0) : NULL;
  atoll_linear_then then = follow(kind, s.B, x, y);
  if (kept)
    OK(atoll_packed_fill(t.k, t.queue, w, kept, s.I, s.O, back));
  if (at_once && back)
    OK(atoll_packed_backward_input_then(t.k, t.queue, a, w, kept, z, s.R, s.I, s.O, &then));
  else if (at_once)
    OK(atoll_packed_forward_then(t.k, t.queue, a, w, kept, b, z, s.R, s.I, s.O, &then));
  else if (back)
    OK(t.k->linear_backward_input(t.queue, a, w, z, s.R, s.I, s.O, 0));
  else
    OK(t.k->linear_forward(t.queue, a, w, b, z, s.R, s.I, s.O));
  if (!at_once)
    OK(by_itself(&t, z, s.R, C, &then));
  OK(atoll_queue_sync(t.queue));
  size_t size = (size_t)n * (bf16 ? 2 : 4);
  memcpy(out, z, size);
  memcpy(out + size, y, size);
  drop_numbers(a, s.R * inner);
  drop_numbers(w, s.I * s.O);
  drop_numbers(b, s.O);
  drop_numbers(x, n);
  drop_numbers(z, n);
  drop_numbers(alone, n);
  if (kept)
    drop_numbers(kept, bytes / 4);
  bench_close(&t);
}

static void keeps_bits(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    for (int kind = 0; kind < KINDS; kind++)
      for (int bf16 = 0; bf16 < 2; bf16++)
        for (int back = 0; back < 2; back++) {
          const char *kernels = bf16 ? "cpu:bf16" : "cpu";
          int place = IN_Z + (int)(i + (size_t)kind) % (PLACES - IN_Z), panels = (kind + back) % 2;
          size_t size = (size_t)(shapes[i].R * (back ? shapes[i].I : shapes[i].O)) * (bf16 ? 2 : 4);
          char *once = malloc(2 * size), *twice = malloc(2 * size);
          assert_true(once && twice);
          make(kernels, shapes[i], kind, place, back, panels, 1, once);
          make(kernels, shapes[i], kind, place, back, panels, 0, twice);
          same_bits(kinds[kind], once, twice, 2 * size);
          free(once);
          free(twice);
        }
}

static void agrees_with_oracle(void **state) {
  (void)state;
  sizes s = {3, 66, 129, 130};
  enum { N = 66 * 130 };
  static float cpu[2 * N], ref[2 * N];
  for (int kind = 0; kind < KINDS; kind++) {
    make("cpu", s, kind, ALONE, 0, 0, 1, (char *)cpu);
    make("ref", s, kind, ALONE, 0, 0, 1, (char *)ref);
    close_to("product", cpu, ref, N, 2e-6);
    close_to(kinds[kind], cpu + N, ref + N, N, 2e-6);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(keeps_bits), cmocka_unit_test(agrees_with_oracle)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
