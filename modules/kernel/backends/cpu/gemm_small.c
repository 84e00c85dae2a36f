/* Products that are small enough to stay in the caches, by tiles that read operands where they are (vec_small.inc).
 *
 * Libraries pack for products whose operands come from memory, and look up on every call what they generated; of
 * 128 x 64 x 64 these tiles make 113 of the 115 GFLOP/s that a Zen 4 core has. What tiles need is rows of the second
 * operand in one piece: an operand that lies the other way is turned, a panel of columns at a time, and so are the
 * columns that are left beyond whole vectors. A result with fewer columns than a vector has floats is computed
 * transposed, where it has more rows than that. */
#include <string.h>

#include "gemm_impl.h"

enum { FLOATS = ATOLL_GEMM_SMALL_FLOATS, INNER = ATOLL_GEMM_SMALL_SUM };
enum { ROWS = 64, ROWS_LEAST = 8, THREAD_WORK = 1 << 20 };

typedef struct small {
  int64_t M, N, K; /* N: lanes */
  const float *a, *b;
  int64_t a_outer, a_inner, b_outer, b_inner;
  float *c;
  int64_t c_row, c_column;
} small;

/* Rows of few columns as columns of few rows. */
static small turned(const small *x) {
  return (small){.M = x->N,
                 .N = x->M,
                 .K = x->K,
                 .a = x->b,
                 .b = x->a,
                 .a_outer = x->b_outer,
                 .a_inner = x->b_inner,
                 .b_outer = x->a_outer,
                 .b_inner = x->a_inner,
                 .c = x->c,
                 .c_row = x->c_column,
                 .c_column = x->c_row};
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static int is_turned(int64_t M, int64_t N) { return N < cpu_vec_best()->width && M > N; }

int gemm_small_serves(int64_t M, int64_t N, int64_t K, int64_t a_outer, int64_t b_outer) {
  const int turn = is_turned(M, N);
  const int64_t rows = turn ? N : M, apart = turn ? a_outer : b_outer;
  if (M > FLOATS || N > FLOATS || K > INNER || M * K + N * K + M * N > FLOATS)
    return 0;
  return apart == 1 || rows >= ROWS_LEAST || turn; /* else turning takes longer than the product */
}

/* Columns j to j + n, fewer than a panel has or turned, from a panel. */
static void panel(const struct cpu_vec *v, const small *x, int64_t j, int64_t n) {
  float turned_b[INNER * CPU_WIDE] __attribute__((aligned(64))), sums[ROWS * CPU_WIDE] __attribute__((aligned(64)));
  const int64_t width = v->gemm_columns, lanes = (n + v->width - 1) / v->width * v->width;
  const float *b = x->b + j * x->b_outer;
  int64_t row = x->b_inner;
  if (x->b_outer != 1 || n != lanes) {
    v->gemm_pack(b, 0, x->b_outer, x->b_inner, n, x->K, (int)width, turned_b);
    b = turned_b;
    row = width;
  }
  if (x->c_column == 1 && n == lanes) {
    v->gemm_small(x->M, n, x->K, x->a, x->a_outer, x->a_inner, b, row, x->c + j, x->c_row);
    return;
  }
  for (int64_t i = 0; i < x->M; i += ROWS) {
    const int64_t m = least(ROWS, x->M - i);
    v->gemm_small(m, lanes, x->K, x->a + i * x->a_outer, x->a_outer, x->a_inner, b, row, sums, lanes);
    float *c = x->c + i * x->c_row + j * x->c_column;
    for (int64_t l = 0; l < n; l++)
      for (int64_t k = 0; k < m; k++)
        c[k * x->c_row + l * x->c_column] = sums[k * lanes + l];
  }
}

static void multiply(const small *x) {
  const struct cpu_vec *v = cpu_vec_best();
  const int64_t direct = x->b_outer == 1 && x->c_column == 1 ? x->N / v->width * v->width : 0;
  if (direct)
    v->gemm_small(x->M, direct, x->K, x->a, x->a_outer, x->a_inner, x->b, x->b_inner, x->c, x->c_row);
  for (int64_t j = direct; j < x->N; j += v->gemm_columns)
    panel(v, x, j, least(v->gemm_columns, x->N - j));
}

/* Rows from .. to. */
static small part_of(const small *x, int64_t from, int64_t to) {
  small p = *x;
  p.M = to - from;
  p.a += from * p.a_outer;
  p.c += from * p.c_row;
  return p;
}

void gemm_small(int threads, int64_t M, int64_t N, int64_t K, const float *a, int64_t a_outer, int64_t a_inner,
                const float *b, int64_t b_outer, int64_t b_inner, float *c, int64_t ldc) {
  const small x = {M, N, K, a, b, a_outer, a_inner, b_outer, b_inner, c, ldc, 1};
  const int64_t parts = M * N * K < THREAD_WORK ? 1 : least(threads, M);
  if (parts == 1) {
    const small t = turned(&x);
    multiply(is_turned(M, N) ? &t : &x);
    return;
  }
#pragma omp parallel for num_threads((int)parts)
  for (int64_t p = 0; p < parts; p++) {
    const small rows = part_of(&x, M * p / parts, M * (p + 1) / parts), t = turned(&rows);
    multiply(is_turned(M, N) ? &t : &rows);
  }
}
