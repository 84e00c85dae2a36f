/* Gradients of a two-layer MLP: right against the plainest computation in double and added to what was there, the same
 * bits by every way there and back, with and without claims, for widths that divide nothing, with every activation, and
 * after many runs. */
#include "atoll/symmetric.h"
#include "chain_test.h"

#include <unistd.h>

static atoll_comm *comm;
static atoll_mem *mem;

static double slope_of(atoll_activation a, double v) {
  if (a == ATOLL_ACTIVATION_GELU) {
    double u = 0.7978845608028654 * (v + 0.044715 * v * v * v), t = tanh(u);
    return 0.5 * (1 + t) + 0.5 * v * (1 - t * t) * 0.7978845608028654 * (1 + 3 * 0.044715 * v * v);
  }
  if (a == ATOLL_ACTIVATION_GELU_ERF)
    return 0.5 * (1 + erf(v * 0.7071067811865476)) + v * exp(-0.5 * v * v) * 0.3989422804014327;
  return a == ATOLL_ACTIVATION_RELU ? v > 0 : 1;
}

static double silu_slope(double v) {
  double s = 1 / (1 + exp(-v));
  return s * (1 + v * (1 - s));
}

/* c [m, n] (+)= a [m, k] b [k, n], each read by its strides. */
static void multiply(int64_t m, int64_t n, int64_t k, const double *a, int64_t ai, int64_t ak, const double *b,
                     int64_t bk, int64_t bj, double *c) {
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++) {
      double sum = 0;
      for (int64_t q = 0; q < k; q++)
        sum += a[i * ai + q * ak] * b[q * bk + j * bj];
      c[i * n + j] = sum;
    }
}

static double *widen(const float *x, int64_t n) {
  double *d = malloc(((size_t)n + 1) * sizeof *d);
  CHECK(d);
  for (int64_t i = 0; x && i < n; i++)
    d[i] = x[i];
  return d;
}

static const float begun = 0.5f; /* what gradients are added to */

static void close_to(const char *what, const float *got, double from, const double *want, int64_t n) {
  double scale = 1e-30, worst = 0;
  for (int64_t i = 0; i < n; i++)
    scale = fmax(scale, fabs(want[i]));
  for (int64_t i = 0; i < n; i++) {
    double e = fabs(got[i] - from - want[i]) / fmax(scale, from);
    worst = e <= worst ? worst : isnan(e) ? INFINITY : e;
  }
  if (!(worst < 2e-5))
    fprintf(stderr, "%s: error %g\n", what, worst);
  CHECK(worst < 2e-5);
}

/* db is the column sum. */
static void check_db(const char *what, const float *got, const double *d, int64_t rows, int64_t n) {
  double *want = widen(NULL, n);
  for (int64_t j = 0; j < n; j++) {
    want[j] = 0;
    for (int64_t i = 0; i < rows; i++)
      want[j] += d[i * n + j];
  }
  close_to(what, got, begun, want, n);
  free(want);
}

/* Of a gate: z holds what W gives, dh the gradient of what the layer gives and then that of z. dx gets V's share. */
static void check_gate(const struct problem *q, const double *x, const double *z, double *dh, double *y, double *dx,
                       const float *dgate) {
  int64_t M = q->p.rows, K = q->p.layer[0].in, N = q->p.layer[0].out;
  double *v = widen(q->v[0], K * N), *f = widen(NULL, M * N), *df = widen(NULL, M * N), *part = widen(NULL, M * K),
         *dv = widen(NULL, K * N);
  multiply(M, N, K, x, K, 1, v, N, 1, f);
  for (int64_t i = 0; i < M * N; i++) {
    y[i] = silu(f[i]) * z[i];
    df[i] = dh[i] * z[i] * silu_slope(f[i]);
    dh[i] *= silu(f[i]);
  }
  multiply(M, K, N, df, N, 1, v, 1, N, part);
  for (int64_t i = 0; i < M * K; i++)
    dx[i] += part[i];
  multiply(N, K, M, df, 1, N, x, K, 1, dv);
  close_to("dw of the gate", dgate, begun, dv, K * N);
  free(v), free(f), free(df), free(part), free(dv);
}

static void check_gradients(const struct problem *q, const float *dy, const atoll_chain_gradients *g,
                            const float *got_dx) {
  int64_t M = q->p.rows, K = q->p.layer[0].in, N = q->p.layer[0].out, P = q->out;
  double *x = widen(q->x, M * K), *w1 = widen(q->w[0], K * N), *w2 = widen(q->w[1], N * P), *dz = widen(dy, M * P);
  double *h = widen(NULL, M * N), *y = widen(NULL, M * N), *dh = widen(NULL, M * N), *dx = widen(NULL, M * K),
         *dw1 = widen(NULL, K * N), *dw2 = widen(NULL, N * P);
  multiply(M, N, K, x, K, 1, w1, N, 1, h);
  multiply(M, N, P, dz, P, 1, w2, 1, P, dh);
  for (int64_t i = 0; i < M * K; i++)
    dx[i] = 0;
  for (int64_t i = 0; i < M * N && !q->v[0]; i++) {
    h[i] += q->b[0][i % N];
    y[i] = activated(q->p.layer[0].activation, h[i]);
    dh[i] *= slope_of(q->p.layer[0].activation, h[i]);
  }
  CHECK(!q->v[0] == !g->dgate);
  if (q->v[0])
    check_gate(q, x, h, dh, y, dx, g->dgate);
  double *through = widen(NULL, M * K);
  multiply(M, K, N, dh, N, 1, w1, 1, N, through);
  for (int64_t i = 0; i < M * K; i++)
    dx[i] += through[i];
  free(through);
  multiply(N, K, M, dh, 1, N, x, K, 1, dw1);
  multiply(P, N, M, dz, 1, P, y, N, 1, dw2);
  close_to("dx", got_dx, 0, dx, M * K);
  close_to("dw of layer 0", g->dw[0], begun, dw1, K * N);
  close_to("dw of layer 1", g->dw[1], begun, dw2, N * P);
  CHECK(!q->v[0] == !!g->db[0]);
  if (g->db[0])
    check_db("db of layer 0", g->db[0], dh, M, N);
  check_db("db of layer 1", g->db[1], dz, M, P);
  free(x), free(w1), free(w2), free(dz), free(h), free(y), free(dh), free(dx), free(dw1), free(dw2);
}

enum { PARTS = 6 };
struct parts {
  const float *at[PARTS]; /* NULL: the chain has none */
  int64_t n[PARTS];
};

static struct parts parts_of(const struct problem *q, const atoll_chain_gradients *g, const float *dx) {
  int64_t K = q->p.layer[0].in, N = q->p.layer[0].out, P = q->out;
  return (struct parts){{dx, g->dw[0], g->dw[1], g->db[0], g->db[1], g->dgate},
                        {q->p.rows * K, K * N, N * P, N, P, K * N}};
}

static void keep(const struct parts *p, float **copy) {
  for (int i = 0; i < PARTS; i++) {
    copy[i] = malloc(((size_t)p->n[i] + 1) * sizeof **copy);
    CHECK(copy[i]);
    if (p->at[i])
      memcpy(copy[i], p->at[i], (size_t)p->n[i] * sizeof **copy);
  }
}

/* Gradients of all layers lie in rank 0's segment. */
static int64_t places(const struct problem *q, const atoll_symmetric *s, atoll_chain_gradients *g) {
  int64_t K = q->p.layer[0].in, N = q->p.layer[0].out, P = q->out;
  float *at = s ? atoll_symmetric_at(s, 0) : NULL;
  *g = (atoll_chain_gradients){{at, at + N * K},
                               {q->v[0] ? NULL : at + N * K + P * N, at + N * K + P * N + N},
                               q->v[0] ? at + N * K + P * N + N + P : NULL};
  return 2 * N * K + P * N + N + P;
}

static const float *backward(atoll_chain *c, const struct problem *q, const atoll_symmetric *s, atoll_chain_way way,
                             const float *dy) {
  const float *dx = NULL;
  atoll_chain_gradients g;
  int64_t n = places(q, s, &g);
  for (int64_t i = 0; check_rank == 0 && i < n; i++)
    ((float *)atoll_symmetric_at(s, 0))[i] = begun;
  CHECK_OK(atoll_chain_backward(c, way, dy, &g, &dx));
  return dx;
}

static void problem(int64_t rows, const int64_t *width, atoll_activation a, int claims) {
  struct problem q = make_problem(rows, 2, width, a);
  float *dy = random_floats(99, rows * q.out, 1);
  const float *y, *dx = NULL;
  atoll_chain_gradients g;
  atoll_chain_cut cut = {24, 0};
  atoll_symmetric *s = NULL;
  atoll_device *host = NULL;
  size_t bytes = check_rank == 0 ? (size_t)places(&q, NULL, &g) * sizeof(float) : 0;
  CHECK_OK(atoll_device_open("cpu", NULL, &host));
  CHECK_OK(atoll_symmetric_create(comm, host, mem, ATOLL_MEM_GRADIENT, bytes, "of a test", &s));
  (void)places(&q, s, &g);
  q.p.claims = claims;
  q.p.backward = 1;
  atoll_chain *c = open_chain(comm, mem, &q);
  CHECK(atoll_chain_backward(c, ATOLL_CHAIN_CTA, dy, &g, &dx) == ATOLL_USAGE); /* nothing was run */
  for (int w = 0; w < ATOLL_CHAIN_WAYS; w++) { /* forward is what it is without backward */
    if (w == ATOLL_CHAIN_BLAS_CHUNKS)
      continue;
    CHECK_OK(atoll_chain_run(c, (atoll_chain_way)w, &cut, rows, q.x, &y));
    CHECK(worst_error(&q, y) < 1e-5);
  }
  CHECK_OK(atoll_chain_run(c, ATOLL_CHAIN_MICROBATCH, &cut, rows, q.x, &y));
  CHECK(atoll_chain_backward(c, ATOLL_CHAIN_CTA, dy, &g, &dx) == ATOLL_USAGE); /* it leaves nothing */
  CHECK_OK(atoll_chain_run(c, ATOLL_CHAIN_SEQUENTIAL, &cut, rows, q.x, &y));
  CHECK(atoll_chain_backward(c, ATOLL_CHAIN_MICROBATCH, dy, &g, &dx) == ATOLL_UNSUPPORTED);
  const atoll_chain_gradients nowhere = {.dw = {g.dw[0]}};
  CHECK(atoll_chain_backward(c, ATOLL_CHAIN_SEQUENTIAL, dy, &nowhere, &dx) == ATOLL_USAGE);
  dx = backward(c, &q, s, ATOLL_CHAIN_SEQUENTIAL, dy);
  check_gradients(&q, dy, &g, dx);
  struct parts parts = parts_of(&q, &g, dx);
  float *first[PARTS];
  keep(&parts, first);
  static const atoll_chain_way ways[] = {ATOLL_CHAIN_SEQUENTIAL, ATOLL_CHAIN_ROW_SPLIT, ATOLL_CHAIN_COLUMN_SHARED,
                                         ATOLL_CHAIN_CTA, ATOLL_CHAIN_CTA};
  enum { WAYS = sizeof ways / sizeof *ways };
  for (int i = 0; i < WAYS * WAYS; i++) {
    atoll_chain_way there = ways[i % WAYS], back = ways[i / WAYS];
    poison(c, &q);
    (void)backward(c, &q, s, ATOLL_CHAIN_CTA, dy); /* its tiles become NaN, too */
    CHECK_OK(atoll_chain_run(c, there, &cut, rows, q.x, &y));
    CHECK(worst_error(&q, y) < 1e-5);
    dx = backward(c, &q, s, back, dy);
    parts = parts_of(&q, &g, dx);
    for (int j = 0; j < PARTS; j++)
      CHECK(!parts.at[j] || !memcmp(first[j], parts.at[j], (size_t)parts.n[j] * sizeof **first));
  }
  for (int i = 0; i < PARTS; i++)
    free(first[i]);
  free(dy);
  atoll_chain_destroy(&c);
  atoll_symmetric_destroy(&s);
  atoll_device_close(&host);
  CHECK(atoll_mem_current_total(mem) == 0);
  drop_problem(&q);
}

/* Measuring leaves gradients as they are, is remembered beside what runs alone would choose, and what it chooses can be
 * trained with. */
static void choice_for_training(void) {
  struct problem q = make_problem(48, 2, (const int64_t[]){200, 300, 200}, ATOLL_ACTIVATION_GELU);
  float *dy = random_floats(99, 48 * q.out, 1), *copy;
  const float *y, *dx = NULL;
  atoll_chain_gradients g;
  atoll_chain_choice first, again;
  atoll_symmetric *s = NULL;
  atoll_device *host = NULL;
  int64_t n = places(&q, NULL, &g);
  CHECK_OK(atoll_device_open("cpu", NULL, &host));
  CHECK_OK(atoll_symmetric_create(comm, host, mem, ATOLL_MEM_GRADIENT, check_rank == 0 ? (size_t)n * sizeof(float) : 0,
                                  "of a test", &s));
  (void)places(&q, s, &g);
  q.p.backward = 1;
  atoll_chain *c = open_chain(comm, mem, &q);
  copy = random_floats(98, n, 1);
  if (check_rank == 0)
    memcpy(atoll_symmetric_at(s, 0), copy, (size_t)n * sizeof *copy);
  unlink("training.yaml");
  MPI_Barrier(MPI_COMM_WORLD);
  CHECK_OK(atoll_chain_choose(c, 48, 1, "training.yaml", &first));
  CHECK_OK(atoll_chain_choose_training(c, 48, &g, "training.yaml", &first));
  CHECK(!first.remembered && first.seconds[ATOLL_CHAIN_MICROBATCH] == 0 && first.seconds[first.setting.way] > 0);
  CHECK_OK(atoll_chain_choose_training(c, 48, &g, "training.yaml", &again));
  CHECK(again.remembered && again.setting.way == first.setting.way &&
        again.setting.cut.panel == first.setting.cut.panel);
  CHECK(check_size == 1 || first.seconds[ATOLL_CHAIN_CTA] > 0);
  CHECK(!memcmp(atoll_symmetric_at(s, 0), copy, (size_t)n * sizeof *copy));
  CHECK_OK(atoll_chain_run(c, first.setting.way, &first.setting.cut, 48, q.x, &y));
  dx = backward(c, &q, s, first.setting.way, dy);
  check_gradients(&q, dy, &g, dx);
  free(dy), free(copy);
  atoll_chain_destroy(&c);
  q.p.backward = 0;
  c = open_chain(comm, mem, &q);
  CHECK(atoll_chain_choose_training(c, 48, &g, "", &first) == ATOLL_USAGE);
  atoll_chain_destroy(&c);
  atoll_symmetric_destroy(&s);
  atoll_device_close(&host);
  drop_problem(&q);
}

int main(int argc, char **argv) {
  check_begin(&argc, &argv);
  CHECK_OK(atoll_comm_create(MPI_COMM_WORLD, "world", NULL, &comm));
  CHECK_OK(atoll_mem_create(0, 0, &mem));
  for (int claims = 0; claims < 2; claims++) {
    problem(61, (const int64_t[]){67, 331, 93}, ATOLL_ACTIVATION_GELU, claims);
    problem(130, (const int64_t[]){300, 257, 40}, ATOLL_ACTIVATION_RELU, claims);
    problem(24, (const int64_t[]){256, 256, 256}, ATOLL_ACTIVATION_NONE, claims);
    problem(61, (const int64_t[]){67, 331, 93}, ATOLL_ACTIVATION_GELU_ERF, claims);
    problem(61, (const int64_t[]){267, 531, 93}, ATOLL_ACTIVATION_SWIGLU, claims);
    problem(1, (const int64_t[]){1, 1, 1}, ATOLL_ACTIVATION_GELU, claims);
    problem(0, (const int64_t[]){5, 7, 3}, ATOLL_ACTIVATION_SWIGLU, claims);
    problem(0, (const int64_t[]){5, 7, 3}, ATOLL_ACTIVATION_RELU, claims);
  }
  choice_for_training();
  atoll_mem_destroy(&mem, NULL);
  atoll_comm_destroy(&comm);
  return check_end();
}
