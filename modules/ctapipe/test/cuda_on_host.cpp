/* The GPU kernel's source, run on the host by a shim: two ranks' grids over a chain of two layers and its backward, at
 * the same time, with a GELU and with SwiGLU's gate between the layers. Right numbers for sizes that divide nothing;
 * the bits of one job after the other, epoch after epoch without reset, each rank taking its own tiles or whoever is
 * idle the other's, and where one rank alone does all; without flags forward and gradients are wrong; a producer that
 * never comes ends the wait. Under ThreadSanitizer it is clean, and reports a race when the release is relaxed: then
 * the program, which runs itself, expects status 66. */
#include "host_grid.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { M = 70, K = 40, N = 96, BOTH = 2 * N, P = 40, BLOCKS = 1, PANELS = 2, TILES = 3 }; /* M, N, BOTH: at most */
enum { FORWARD = 2, BACKWARD = 4 };

/* Rows; columns between the layers; of products, V's and W's in turns; of y and of dz that a tile makes. */
static const struct between {
  int activation, rows, n, products, y_columns, dz_columns;
} chains[] = {{CTA_GELU, M, 72, 72, 64, 64}, {CTA_SWIGLU, 10, 96, 192, 32, 128}};
static const struct between *mid;

static bf16 x[M * K], w1[BOTH * K], w2[P * N], turned1[K * BOTH], turned2[N * P], dy[M * P];
static bf16 before[M * BOTH], y[M * N], z[M * P], dz[M * BOTH], dx[M * K];
static float b1[N], dw1[BOTH * K], dw2[P * N], db1[BOTH], db2[P];
static uint32_t flags[2][PANELS * TILES * CTA_FLAG_STRIDE], gave_up[2];
static uint64_t claim[FORWARD + BACKWARD];

#define CHECK(c)                                                                                                       \
  do {                                                                                                                 \
    if (!(c)) {                                                                                                        \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #c);                                                  \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)

static struct cta_job product(const bf16 *a, const bf16 *b, bf16 *c, int n, int k, int number) {
  struct cta_job g = {};
  g.A = a, g.B = b, g.C = c, g.M = mid->rows, g.N = n, g.K = k, g.from = -1, g.claim = &claim[number];
  return g;
}

static struct cta_job gradient(const bf16 *right, const bf16 *left, float *dw, float *db, int m, int n, int number) {
  struct cta_job g = product(right, left, NULL, n, mid->rows, number);
  g.weight = 1, g.C = dw, g.column = db, g.M = m;
  return g;
}

static struct cta_chain chain(int rank, uint32_t epoch, int claims) {
  struct cta_chain p = {};
  p.claims = claims, p.group = 2, p.epoch = p.turn = epoch, p.gave_up = &gave_up[rank];
  return p;
}

/* Rank 0 owns the first layer, rank 1 the second. */
static struct cta_chain forward(int rank, uint32_t epoch, int claims) {
  struct cta_chain p = chain(rank, epoch, claims);
  p.jobs = p.products = FORWARD;
  p.job[0] = product(x, w1, y, mid->products, K, 0);
  p.job[0].bias = mid->products > mid->n ? NULL : b1, p.job[0].activation = mid->activation, p.job[0].before = before,
  p.job[0].ready_out = flags[0];
  p.job[1] = product(y, w2, z, P, mid->n, 1);
  p.job[1].ready_in = flags[0], p.job[1].ready_columns = mid->y_columns, p.job[1].from = 0;
  p.job[rank].own = 1;
  return p;
}

static struct cta_chain backward(int rank, uint32_t epoch, int claims) {
  struct cta_chain p = chain(rank, epoch, claims);
  p.jobs = BACKWARD, p.products = 2;
  p.job[0] = product(dy, turned2, dz, mid->n, P, FORWARD);
  p.job[0].slope = mid->activation, p.job[0].at = before, p.job[0].ready_out = flags[1];
  p.job[1] = product(dz, turned1, dx, K, mid->products, FORWARD + 1);
  p.job[2] = gradient(dy, y, dw2, db2, P, mid->n, FORWARD + 2);
  p.job[3] = gradient(dz, x, dw1, db1, mid->products, K, FORWARD + 3);
  p.job[1].ready_columns = p.job[3].ready_columns = mid->dz_columns;
  p.job[1].ready_in = p.job[3].ready_in = flags[1], p.job[1].from = p.job[3].from = 0;
  p.job[!rank].own = p.job[2 + !rank].own = 1;
  return p;
}

static void run_grid(struct cta_chain p) { grid_join(grid_launch(&p, BLOCKS)); }

/* Of a list one job by itself. */
static void alone(struct cta_chain p, int job) {
  p.job[0] = p.job[job];
  p.job[0].ready_in = NULL, p.job[0].from = -1, p.job[0].own = 1;
  p.jobs = p.products = 1;
  run_grid(p);
}

static void poison(void) {
  bf16 *const numbers[] = {before, y, z, dz, dx};
  const int n[] = {M * BOTH, M * N, M * P, M * BOTH, M * K};
  for (int i = 0; i < 5; i++)
    for (int j = 0; j < n[i]; j++)
      numbers[i][j].bits = 0x7fc0;
  memset(dw1, 0xff, sizeof dw1), memset(dw2, 0xff, sizeof dw2);
  memset(db1, 0xff, sizeof db1), memset(db2, 0xff, sizeof db2);
}

/* --- right numbers ------------------------------------------------------------------------------------------------ */

static void fill(bf16 *p, int n, int mod, float scale) {
  for (int i = 0; i < n; i++)
    p[i] = cta_to_bf16((float)(i % mod - mod / 2) * scale);
}

static void turn(const bf16 *from, int rows, int columns, bf16 *to) {
  for (int r = 0; r < rows; r++)
    for (int c = 0; c < columns; c++)
      to[c * rows + r] = from[r * columns + c];
}

static double at(const bf16 *p, int i) { return cta_from_bf16(p[i]); }

/* How far got is from want, of the largest. */
struct errors {
  double worst, scale;
};
static void look(struct errors *e, double got, double want) {
  double d = fabs(got - want);
  e->worst = d <= e->worst ? e->worst : isnan(d) ? INFINITY : d;
  e->scale = fabs(want) > e->scale ? fabs(want) : e->scale;
}
static int close_to(struct errors e) { return e.worst < e.scale / 128; } /* a bf16 has 8 bits */

/* sum over k of a[i, k] b[j, k], each read by its strides. */
static double dot(const bf16 *a, int ai, int ak, const bf16 *b, int bj, int bk, int i, int j, int n) {
  double sum = 0;
  for (int k = 0; k < n; k++)
    sum += at(a, i * ai + k * ak) * at(b, j * bj + k * bk);
  return sum;
}

/* Column j of y, and the columns of dz behind it, of row i. */
static void look_between(struct errors *hidden, struct errors *slope, int i, int j) {
  int n = mid->n, all = mid->products, gate = all > n, first = gate ? j / 32 * 64 + j % 32 : j;
  double back = dot(dy, P, 1, w2, 1, n, i, j, P), f = dot(x, K, 1, w1, K, 1, i, first, K);
  if (gate) {
    double u = dot(x, K, 1, w1, K, 1, i, first + 32, K), s = 1 / (1 + exp(-f));
    look(hidden, at(y, i * n + j), f * s * u);
    look(slope, at(dz, i * all + first), back * u * s * (1 + f * (1 - s)));
    look(slope, at(dz, i * all + first + 32), back * f * s);
    return;
  }
  f += b1[j];
  double u = 0.7978845608 * (f + 0.044715 * f * f * f), t = tanh(u);
  look(hidden, at(y, i * n + j), 0.5 * f * (1 + t));
  look(slope, at(dz, i * n + j),
       back * (0.5 * (1 + t) + 0.5 * f * (1 - t * t) * 0.7978845608 * (1 + 3 * 0.044715 * f * f)));
}

/* Each against what it was made of, in double. */
static void check_numbers(void) {
  struct errors hidden = {}, out = {}, slope = {}, down = {}, first = {}, second = {}, columns[2] = {};
  const int n = mid->n, all = mid->products, rows = mid->rows;
  bf16 ones[M];
  for (int i = 0; i < M; i++)
    ones[i] = cta_to_bf16(1);
  for (int i = 0; i < rows; i++) {
    for (int j = 0; j < n; j++)
      look_between(&hidden, &slope, i, j);
    for (int j = 0; j < P; j++)
      look(&out, at(z, i * P + j), dot(y, n, 1, w2, n, 1, i, j, n));
    for (int j = 0; j < K; j++)
      look(&down, at(dx, i * K + j), dot(dz, all, 1, w1, 1, K, i, j, all));
  }
  for (int o = 0; o < all; o++) {
    look(&columns[0], db1[o], dot(dz, 1, all, ones, 0, 1, o, 0, rows));
    for (int i = 0; i < K; i++)
      look(&first, dw1[o * K + i], dot(dz, 1, all, x, 1, K, o, i, rows));
  }
  for (int o = 0; o < P; o++) {
    look(&columns[1], db2[o], dot(dy, 1, P, ones, 0, 1, o, 0, rows));
    for (int i = 0; i < n; i++)
      look(&second, dw2[o * n + i], dot(dy, 1, P, y, 1, n, o, i, rows));
  }
  CHECK(close_to(hidden) && close_to(out) && close_to(slope) && close_to(down));
  CHECK(close_to(first) && close_to(second) && close_to(columns[0]) && close_to(columns[1]));
}

/* --- the same bits ------------------------------------------------------------------------------------------------ */

static struct results {
  bf16 z[M * P], dx[M * K];
  float dw1[BOTH * K], dw2[P * N], db1[BOTH], db2[P];
} kept;

static void keep(struct results *r) {
  memcpy(r->z, z, sizeof z), memcpy(r->dx, dx, sizeof dx), memcpy(r->dw1, dw1, sizeof dw1);
  memcpy(r->dw2, dw2, sizeof dw2), memcpy(r->db1, db1, sizeof db1), memcpy(r->db2, db2, sizeof db2);
}

static int as_kept(void) {
  static struct results now;
  keep(&now);
  return !memcmp(&now, &kept, sizeof now);
}

/* The second layer's rank begins, as it would wait the longest. */
static void together(struct cta_chain (*list)(int, uint32_t, int), uint32_t epoch, int claims) {
  struct cta_chain a = list(1, epoch, claims), b = list(0, epoch, claims);
  struct grid *second = grid_launch(&a, BLOCKS), *first = grid_launch(&b, BLOCKS);
  grid_join(first);
  grid_join(second);
}

/* Epochs [e, e + 9) and turns. */
static void run_chain(const struct between *b, uint32_t e) {
  mid = b;
  fill(x, M * K, 23, 1.0f / 8);
  fill(w1, mid->products * K, 19, 1.0f / 32);
  fill(w2, P * mid->n, 17, 1.0f / 16);
  fill(dy, M * P, 29, 1.0f / 8);
  turn(w1, mid->products, K, turned1);
  turn(w2, P, mid->n, turned2);
  for (int i = 0; i < mid->n; i++)
    b1[i] = (float)(i % 5 - 2) / 4;
  poison();
  for (int j = 0; j < FORWARD; j++)
    alone(forward(0, e, 0), j);
  for (int j = 0; j < BACKWARD; j++)
    alone(backward(0, e, 0), j);
  check_numbers();
  keep(&kept);
  for (uint32_t epoch = mid == chains ? e + 1 : e + 2; epoch < e + 3; epoch++) { /* the second with claims alone */
    poison();
    together(forward, epoch, epoch > e + 1);
    together(backward, epoch, epoch > e + 1);
    CHECK(!gave_up[0] && !gave_up[1] && as_kept());
  }
  if (mid == chains) { /* the first rank has no time: the second one does all */
    poison();
    run_grid(forward(1, e + 4, 1));
    run_grid(backward(1, e + 4, 1));
    CHECK(!gave_up[1] && as_kept());
  }
  poison(); /* no flags: nobody waits, and the producers come later */
  alone(forward(1, e + 5, 0), 1);
  CHECK(memcmp(kept.z, z, sizeof z) != 0);
  alone(backward(0, e + 5, 0), 3);
  CHECK(memcmp(kept.dw1, dw1, sizeof dw1) != 0);
  struct cta_chain lonely = forward(1, e + 8, 0); /* its producer never comes */
  lonely.spins = 100;
  run_grid(lonely);
  CHECK(gave_up[1] == 1);
  gave_up[1] = 0;
}

static int run(void) {
  run_chain(&chains[0], 1);
  run_chain(&chains[1], 10);
  return 0;
}

int main(int argc, char **argv) {
  if (argc > 1)
    return run();
  setenv("TSAN_OPTIONS", "exitcode=66:halt_on_error=1", 1);
  pid_t child = fork();
  if (child == 0) {
    execl("/proc/self/exe", argv[0], "run", (char *)NULL);
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  int got = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  printf("exit status %d, expected %d\n", got, EXPECTED_STATUS);
  return got != EXPECTED_STATUS;
}
