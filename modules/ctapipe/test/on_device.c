/* Chains on a device: the numbers are right to bf16, every way but the library's gives the sequential one's bits, for
 * widths and rows that divide nothing, layers of one rank overlapping or each on its own, with and without claims,
 * epoch after epoch, backward as well; what one device does not do the others do where claims are allowed, and else a
 * layer that never comes ends everybody's wait with a report that names it. Runs on the host through a plug-in made for
 * tests (ATOLL_TEST_STALL set: and lets it fail), and on a GPU where there is one. */
#include <stdio.h>

#include "atoll/plugin.h"
#include "atoll/symmetric.h"
#include "chain_test.h"

static atoll_comm *comm;
static atoll_mem *mem;
static atoll_device *device;

/* A bf16 has 8 bits: each layer's result is rounded to it. */
static const double tolerance = 1.0 / 64;

static void run_way(atoll_chain *c, const struct problem *q, atoll_chain_way way, int64_t chunks, const float *first) {
  const float *y = NULL;
  const atoll_chain_cut cut = {0, chunks};
  poison(c, q);
  CHECK_OK(atoll_chain_run(c, way, &cut, q->p.rows, q->x, &y));
  CHECK(worst_error(q, y) < tolerance);
  if (way != ATOLL_CHAIN_BLAS_CHUNKS)
    CHECK(!memcmp(y, first, (size_t)(q->p.rows * q->out) * sizeof *y));
  CHECK(atoll_chain_device_seconds(c) >= 0);
}

static void problem(int64_t rows, int layers, const int64_t *width, atoll_activation a, int claims) {
  struct problem q = make_problem(rows, layers, width, a);
  const float *y = NULL;
  size_t bytes = (size_t)(rows * q.out) * sizeof *y;
  q.p.device = device;
  q.p.claims = claims;
  atoll_chain *c = open_chain(comm, mem, &q);
  CHECK(!strcmp(atoll_chain_vectors(c), "cuda") && strcmp(atoll_chain_transport(c), "mpi shared window"));
  CHECK_OK(atoll_chain_run(c, ATOLL_CHAIN_SEQUENTIAL, NULL, rows, q.x, &y));
  CHECK(worst_error(&q, y) < tolerance);
  float *first = malloc(bytes + 1);
  CHECK(first);
  memcpy(first, y, bytes);
  run_way(c, &q, ATOLL_CHAIN_CTA, 0, first);
  run_way(c, &q, ATOLL_CHAIN_MICROBATCH, 3, first);
  run_way(c, &q, ATOLL_CHAIN_BLAS_CHUNKS, 2, first);
  CHECK(atoll_chain_run(c, ATOLL_CHAIN_ROW_SPLIT, NULL, rows, q.x, &y) == ATOLL_UNSUPPORTED);
  CHECK_OK(atoll_chain_run(c, ATOLL_CHAIN_CTA, NULL, rows, q.x, &y)); /* a refusal does no harm */
  free(first);
  atoll_chain_destroy(&c);
  CHECK(c == NULL && atoll_mem_current_total(mem) == 0);
  drop_problem(&q);
}

/* --- backward ----------------------------------------------------------------------------------------------------- */

enum { PARTS = 6, DX = PARTS - 1 };
/* What backward of a device gave, or of the host in f32. */
struct gradients {
  atoll_symmetric *memory;
  atoll_chain_gradients to;
  const float *part[PARTS]; /* NULL: the chain has none */
  int64_t n[PARTS];
};

static struct gradients open_gradients(const struct problem *q, atoll_device *host) {
  int64_t K = q->p.layer[0].in, N = q->p.layer[0].out, P = q->out, all = 2 * N * K + P * N + N + P;
  struct gradients g = {.n = {N * K, P * N, N, P, N * K, q->p.rows * K}};
  CHECK_OK(atoll_symmetric_create(comm, host, mem, ATOLL_MEM_GRADIENT, check_rank ? 0 : (size_t)all * sizeof(float),
                                  "of a test", &g.memory));
  float *at = atoll_symmetric_at(g.memory, 0);
  for (int i = 0; i < DX; at += g.n[i++])
    g.part[i] = (i == 2 && q->v[0]) || (i == 4 && !q->v[0]) ? NULL : at;
  float *const *to = (float *const *)(uintptr_t)g.part;
  g.to = (atoll_chain_gradients){{to[0], to[1]}, {to[2], to[3]}, to[4]};
  return g;
}

static void back(atoll_chain *c, struct gradients *g, atoll_chain_way way, const float *dy) {
  for (int i = 0; i < DX; i++)
    for (int64_t e = 0; check_rank == 0 && g->part[i] && e < g->n[i]; e++)
      ((float *)(uintptr_t)g->part[i])[e] = 0.5f; /* what gradients are added to */
  CHECK_OK(atoll_chain_backward(c, way, dy, &g->to, &g->part[DX]));
}

static void close_parts(const struct gradients *got, const struct gradients *want) {
  for (int i = 0; i < PARTS; i++) {
    double scale = 1e-30, worst = 0;
    for (int64_t e = 0; got->part[i] && e < got->n[i]; e++) {
      double d = fabs((double)got->part[i][e] - want->part[i][e]);
      scale = fmax(scale, fabs((double)want->part[i][e]));
      worst = d <= worst ? worst : isnan(d) ? INFINITY : d;
    }
    if (!(worst <= scale * 2 * tolerance))
      fprintf(stderr, "part %d: error %g of %g\n", i, worst, scale);
    CHECK(worst <= scale * 2 * tolerance); /* through two roundings to bf16 */
  }
}

/* What bf16 holds, so that no ReLU is on its other side there. */
static void cut(float *x, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    uint32_t u;
    memcpy(&u, &x[i], sizeof u);
    u &= 0xffff0000U;
    memcpy(&x[i], &u, sizeof u);
  }
}

static void backward(int64_t rows, const int64_t *width, atoll_activation a, int claims) {
  struct problem q = make_problem(rows, 2, width, a);
  float *dy = random_floats(99, rows * q.out, 1), *first[PARTS];
  const float *y;
  atoll_device *host = NULL;
  cut(dy, rows * q.out);
  cut(q.x, rows * width[0]);
  for (int l = 0; l < 2; l++)
    cut(q.w[l], width[l] * width[l + 1]), cut(q.b[l], width[l + 1]);
  if (q.v[0])
    cut(q.v[0], width[0] * width[1]);
  CHECK_OK(atoll_device_open("cpu", NULL, &host));
  struct gradients want = open_gradients(&q, host), got = open_gradients(&q, host);
  q.p.backward = 1;
  q.p.claims = claims;
  atoll_chain *plain = open_chain(comm, mem, &q);
  q.p.device = device;
  atoll_chain *c = open_chain(comm, mem, &q);
  CHECK_OK(atoll_chain_run(plain, ATOLL_CHAIN_CTA, NULL, rows, q.x, &y));
  back(plain, &want, ATOLL_CHAIN_CTA, dy);
  CHECK(atoll_chain_backward(c, ATOLL_CHAIN_CTA, dy, &got.to, &y) == ATOLL_USAGE); /* nothing was run */
  CHECK_OK(atoll_chain_run(c, ATOLL_CHAIN_SEQUENTIAL, NULL, rows, q.x, &y));
  back(c, &got, ATOLL_CHAIN_SEQUENTIAL, dy);
  close_parts(&got, &want);
  for (int i = 0; i < PARTS; i++) {
    first[i] = malloc((size_t)got.n[i] * sizeof **first + 1);
    CHECK(first[i]);
    if (got.part[i])
      memcpy(first[i], got.part[i], (size_t)got.n[i] * sizeof **first);
  }
  poison(c, &q);
  back(c, &got, ATOLL_CHAIN_CTA, dy); /* its tiles become NaN, too */
  CHECK_OK(atoll_chain_run(c, ATOLL_CHAIN_CTA, NULL, rows, q.x, &y));
  back(c, &got, ATOLL_CHAIN_CTA, dy);
  for (int i = 0; i < PARTS; i++) {
    CHECK(!got.part[i] || !memcmp(first[i], got.part[i], (size_t)got.n[i] * sizeof **first));
    free(first[i]);
  }
  free(dy);
  atoll_chain_destroy(&c);
  atoll_chain_destroy(&plain);
  atoll_symmetric_destroy(&want.memory);
  atoll_symmetric_destroy(&got.memory);
  atoll_device_close(&host);
  CHECK(atoll_mem_current_total(mem) == 0);
  drop_problem(&q);
}

/* --- what goes wrong ---------------------------------------------------------------------------------------------- */

/* Rank 0's launches do nothing, and the others take its tiles. */
static void others_take_over(void) {
  struct problem q = make_problem(66, 2, (const int64_t[]){24, 72, 40}, ATOLL_ACTIVATION_RELU);
  const float *y = NULL;
  q.p.device = device;
  atoll_chain *c = open_chain(comm, mem, &q);
  poison(c, &q);
  if (check_rank == 0)
    setenv("ATOLL_TEST_FAKE_CUDA", "lost-kernel", 1);
  CHECK_OK(atoll_chain_run(c, ATOLL_CHAIN_CTA, NULL, 66, q.x, &y));
  CHECK(worst_error(&q, y) < tolerance);
  unsetenv("ATOLL_TEST_FAKE_CUDA");
  atoll_chain_destroy(&c);
  drop_problem(&q);
}

/* The first layer's owner loses its launches: the second one's device waits, and gives up. */
static void stalls(atoll_chain_way way, const char *said) {
  struct problem q = make_problem(66, 2, (const int64_t[]){24, 72, 40}, ATOLL_ACTIVATION_RELU);
  const float *y = NULL;
  q.p.device = device;
  q.p.claims = 0;
  /* Who owns the second layer gives up first: the others know of no loss. */
  atoll_chain *c = open_hurried(comm, mem, &q, way, 1, 20);
  if (atoll_chain_owner(c, 0) == check_rank)
    setenv("ATOLL_TEST_FAKE_CUDA", "lost-kernel", 1);
  atoll_err err = atoll_chain_run(c, way, NULL, 66, q.x, &y);
  CHECK(err == ATOLL_TIMEOUT || err == ATOLL_PEER_LOST);
  if (!strstr(atoll_err_message(), said))
    fprintf(stderr, "expected '%s'\n", said);
  CHECK(strstr(atoll_err_message(), said) && strstr(atoll_err_message(), "epoch 2"));
  CHECK(atoll_chain_run(c, way, NULL, 66, q.x, &y) == ATOLL_PEER_LOST); /* no further use */
  unsetenv("ATOLL_TEST_FAKE_CUDA");
  atoll_chain_destroy(&c);
  drop_problem(&q);
}

/* Backward the second layer's owner loses its launches, and the first one's waits for what it did not make. */
static void stalls_back(void) {
  struct problem q = make_problem(66, 2, (const int64_t[]){24, 72, 40}, ATOLL_ACTIVATION_RELU);
  float *dy = random_floats(99, 66 * q.out, 1);
  const float *dx = NULL;
  atoll_device *host = NULL;
  CHECK_OK(atoll_device_open("cpu", NULL, &host));
  struct gradients g = open_gradients(&q, host);
  q.p.device = device;
  q.p.claims = 0;
  q.p.backward = 1;
  atoll_chain *c = open_hurried(comm, mem, &q, ATOLL_CHAIN_CTA, 0, 20);
  if (atoll_chain_owner(c, 1) == check_rank)
    setenv("ATOLL_TEST_FAKE_CUDA", "lost-kernel", 1);
  atoll_err err = atoll_chain_backward(c, ATOLL_CHAIN_CTA, dy, &g.to, &dx);
  CHECK(err == ATOLL_TIMEOUT || err == ATOLL_PEER_LOST);
  const char *said = "layer 0, which lacks tile 0 of panel 0 of layer 1 of rank 1 in epoch 2";
  if (!strstr(atoll_err_message(), said))
    fprintf(stderr, "expected '%s' in '%s'\n", said, atoll_err_message());
  CHECK(strstr(atoll_err_message(), said));
  unsetenv("ATOLL_TEST_FAKE_CUDA");
  free(dy);
  atoll_chain_destroy(&c);
  atoll_symmetric_destroy(&g.memory);
  atoll_device_close(&host);
  drop_problem(&q);
}

/* Why no chain runs on this machine's device; NULL when one does. */
static const char *no_device(void) {
  const char *kind, *why = "no plug-in with device kind cuda";
  CHECK_OK(atoll_plugins_load());
  for (int i = 0; atoll_device_entry(i, &kind, &why); i++)
    if (!strcmp(kind, "cuda"))
      return why;
  return "no plug-in with device kind cuda";
}

int main(int argc, char **argv) {
  atoll_device_params p;
  check_begin(&argc, &argv);
  const char *why = no_device();
  if (why) {
    if (check_rank == 0)
      printf("skipped: %s\n", why);
    MPI_Finalize();
    return 77;
  }
  atoll_device_params_init(&p);
  CHECK_OK(atoll_device_open("cuda", &p, &device));
  CHECK_OK(atoll_comm_create(MPI_COMM_WORLD, "world", NULL, &comm));
  CHECK_OK(atoll_mem_create(0, 0, &mem));
  problem(9, 2, (const int64_t[]){40, 72, 24}, ATOLL_ACTIVATION_RELU, 0);
  problem(9, 3, (const int64_t[]){33, 7, 65, 3}, ATOLL_ACTIVATION_GELU, 1);
  problem(9, 3, (const int64_t[]){24, 40, 72, 16}, ATOLL_ACTIVATION_SWIGLU, 1);
  problem(1, 1, (const int64_t[]){1, 1}, ATOLL_ACTIVATION_NONE, 0);
  problem(0, 2, (const int64_t[]){5, 7, 3}, ATOLL_ACTIVATION_RELU, 1);
  backward(9, (const int64_t[]){40, 30, 24}, ATOLL_ACTIVATION_GELU, 0);
  backward(7, (const int64_t[]){8, 9, 3}, ATOLL_ACTIVATION_GELU_ERF, 1);
  backward(7, (const int64_t[]){8, 9, 3}, ATOLL_ACTIVATION_SWIGLU, 0);
  backward(0, (const int64_t[]){5, 7, 3}, ATOLL_ACTIVATION_NONE, 1);
  if (check_size < 3) { /* two panels; on the host a thousand threads would take their time */
    problem(66, 2, (const int64_t[]){40, 72, 24}, ATOLL_ACTIVATION_RELU, 1);
    backward(66, (const int64_t[]){23, 70, 33}, ATOLL_ACTIVATION_RELU, 1);
    backward(66, (const int64_t[]){23, 70, 33}, ATOLL_ACTIVATION_SWIGLU, 1);
  }
  if (getenv("ATOLL_TEST_STALL") && check_size > 1) {
    others_take_over();
    stalls(ATOLL_CHAIN_CTA, "lacks tile 0 of panel 0 of layer 0 of rank 0");
    stalls(ATOLL_CHAIN_BLAS_CHUNKS, "lacks chunk 0 of layer 0 of rank 0");
    stalls_back();
  }
  atoll_mem_destroy(&mem, NULL);
  atoll_comm_destroy(&comm);
  atoll_device_close(&device);
  return check_end();
}
