/* A chain of bf16 does what the bf16 kernels do one after the other: sums are of f32 in another order, so each stored
 * value may be rounded the other way, which few are, and results are within two of those roundings. All ways that keep
 * bits do, forward and backward; the tensor-parallel ones are refused. Gradients of weights are sums in f32 of the same
 * products, so they are closer than a rounding. */
#include "atoll/bf16.h"
#include "atoll/kernel.h"
#include "atoll/symmetric.h"
#include "chain_test.h"

static atoll_comm *comm;
static atoll_mem *mem;
static const atoll_kernels *plain; /* of bf16 */
static atoll_queue *queue;

static const double two_roundings = 2.0 / 256;

static uint16_t *halves(uint64_t what, int64_t n, float std) {
  float *x = random_floats(what, n, std);
  uint16_t *h = malloc((size_t)n * sizeof *h + 1);
  CHECK(h);
  for (int64_t i = 0; i < n; i++)
    h[i] = atoll_bf16_of(x[i]);
  free(x);
  return h;
}

static void close_to(const char *what, const float *got, const uint16_t *want, int64_t n) {
  double worst = 0, scale = 1e-30;
  int64_t other = 0;
  for (int64_t i = 0; i < n; i++) {
    uint16_t here = atoll_bf16_of(got[i]);
    double w = atoll_bf16_float(want[i]), e = fabs(atoll_bf16_float(here) - w);
    other += here != want[i];
    scale = fmax(scale, fabs(w));
    worst = e <= worst ? worst : isnan(e) ? INFINITY : e;
  }
  if (getenv("ATOLL_TEST_VERBOSE") || !(worst <= scale * two_roundings) || other > n / 20)
    fprintf(stderr, "%s: %g of %g, %lld of %lld with other bits\n", what, worst, scale, (long long)other, (long long)n);
  CHECK(worst <= scale * two_roundings && other <= n / 20); /* a third where a rounding is left out */
}

/* Elements of the gradients of weights and biases, one behind the other. */
static int64_t gradients(const int64_t *n) { return n[0] * n[1] + n[1] * n[2] + n[1] + n[2]; }

static atoll_chain_gradients at_places(float *at, const int64_t *n) {
  float *db = at + n[0] * n[1] + n[1] * n[2];
  return (atoll_chain_gradients){{at, at + n[0] * n[1]}, {db, db + n[1]}, NULL};
}

/* The MLP by kernels: y, and dx and the gradients for dy, which are added to `begun`. */
static const float begun = 0.5f;
struct by_kernels {
  uint16_t *z, *h, *y, *dh, *dx;
  float *g;
};
static struct by_kernels multiply(int64_t M, const int64_t *n, const uint16_t *x, uint16_t *const *w,
                                  uint16_t *const *b, const uint16_t *dy) {
  struct by_kernels k = {halves(1, M * n[1], 1), halves(1, M * n[1], 1), halves(1, M * n[2], 1),
                         halves(1, M * n[1], 1), halves(1, M * n[0], 1), random_floats(1, gradients(n), 1)};
  const atoll_chain_gradients to = at_places(k.g, n);
  for (int64_t i = 0; i < gradients(n); i++)
    k.g[i] = begun;
  CHECK_OK(plain->linear_forward(queue, x, w[0], b[0], k.z, M, n[0], n[1]));
  CHECK_OK(plain->gelu_forward(queue, k.z, k.h, M * n[1]));
  CHECK_OK(plain->linear_forward(queue, k.h, w[1], b[1], k.y, M, n[1], n[2]));
  CHECK_OK(plain->linear_backward_input(queue, dy, w[1], k.dh, M, n[1], n[2], 0));
  CHECK_OK(plain->gelu_backward(queue, k.dh, k.z, k.dh, M * n[1]));
  CHECK_OK(plain->linear_backward_input(queue, k.dh, w[0], k.dx, M, n[0], n[1], 0));
  CHECK_OK(plain->linear_backward_weight(queue, dy, k.h, to.dw[1], to.db[1], M, n[1], n[2], 1));
  CHECK_OK(plain->linear_backward_weight(queue, k.dh, x, to.dw[0], to.db[0], M, n[0], n[1], 1));
  CHECK_OK(atoll_queue_sync(queue));
  return k;
}

/* The first layer's gradients come of values that were rounded, a few the other way: of M rows, few terms differ. */
static void close_gradients(const float *got, const float *want, const int64_t *n) {
  const atoll_chain_gradients g = at_places((float *)(uintptr_t)got, n), k = at_places((float *)(uintptr_t)want, n);
  const float *const mine[] = {g.dw[0], g.dw[1], g.db[0], g.db[1]}, *const theirs[] = {k.dw[0], k.dw[1], k.db[0],
                                                                                       k.db[1]};
  const int64_t size[] = {n[0] * n[1], n[1] * n[2], n[1], n[2]};
  for (int i = 0; i < 4; i++) {
    double worst = 0, scale = 1e-30;
    for (int64_t j = 0; j < size[i]; j++) {
      double e = fabs((double)mine[i][j] - theirs[i][j]);
      scale = fmax(scale, fabs((double)theirs[i][j]));
      worst = e <= worst ? worst : isnan(e) ? INFINITY : e;
    }
    if (getenv("ATOLL_TEST_VERBOSE") || !(worst <= scale / 256))
      fprintf(stderr, "gradient %d: %g of %g\n", i, worst, scale);
    CHECK(worst <= scale / 256);
  }
}

static void same_bits(atoll_chain *c, int64_t M, const uint16_t *x, const float *first, int64_t n) {
  const float *y = NULL;
  for (int w = 0; w < ATOLL_CHAIN_WAYS; w++) {
    atoll_chain_way way = (atoll_chain_way)w;
    if (way == ATOLL_CHAIN_TP_ALLREDUCE || way == ATOLL_CHAIN_TP_FLAGS || way == ATOLL_CHAIN_BLAS_CHUNKS) {
      CHECK(atoll_chain_run(c, way, NULL, M, x, &y) == ATOLL_UNSUPPORTED);
      continue;
    }
    CHECK_OK(atoll_chain_run(c, way, &(atoll_chain_cut){16, 2}, M, x, &y));
    CHECK(!memcmp(y, first, (size_t)n * sizeof *y));
  }
}

/* Every rank has read what was there. */
static void begin(float *at, int64_t n) {
  MPI_Barrier(MPI_COMM_WORLD);
  for (int64_t i = 0; check_rank == 0 && i < n; i++)
    at[i] = begun;
}

static void mlp(int64_t M, const int64_t *n, int claims) {
  uint16_t *x = halves(2, M * n[0], 1), *dy = halves(3, M * n[2], 1), *w[2], *b[2];
  const float *y = NULL, *dx = NULL;
  atoll_chain_params p;
  atoll_chain *c = NULL;
  atoll_device *host = NULL;
  atoll_symmetric *s = NULL;
  atoll_chain_params_init(&p);
  p.rows = M, p.layers = 2, p.backward = 1, p.claims = claims, p.dtype = ATOLL_BF16;
  for (int l = 0; l < 2; l++) {
    p.layer[l] = (atoll_chain_layer){n[l], n[l + 1], l ? ATOLL_ACTIVATION_NONE : ATOLL_ACTIVATION_GELU, 1};
    w[l] = halves(4 + (uint64_t)l, n[l] * n[l + 1], 1 / sqrtf((float)n[l])); /* [out, in] */
    b[l] = halves(6 + (uint64_t)l, n[l + 1], 1);
  }
  CHECK_OK(atoll_device_open("cpu", NULL, &host));
  size_t bytes = (size_t)gradients(n) * sizeof(float);
  CHECK_OK(atoll_symmetric_create(comm, host, mem, ATOLL_MEM_GRADIENT, check_rank ? 0 : bytes, "of a test", &s));
  float *at = atoll_symmetric_at(s, 0);
  const atoll_chain_gradients g = at_places(at, n);
  CHECK_OK(atoll_chain_create(comm, mem, &p, &c));
  for (int l = 0; l < 2; l++)
    CHECK_OK(atoll_chain_set_layer(c, l, w[l], 1, n[l], b[l]));
  struct by_kernels k = multiply(M, n, x, w, b, dy);
  CHECK_OK(atoll_chain_run(c, ATOLL_CHAIN_SEQUENTIAL, &(atoll_chain_cut){16, 0}, M, x, &y));
  close_to("y", y, k.y, M * n[2]);
  float *first = malloc((size_t)(M * n[2]) * sizeof *first), *before = malloc((size_t)(M * n[0]) * sizeof *before);
  CHECK(first && before);
  memcpy(first, y, (size_t)(M * n[2]) * sizeof *first);
  begin(at, gradients(n));
  CHECK_OK(atoll_chain_backward(c, ATOLL_CHAIN_SEQUENTIAL, dy, &g, &dx));
  close_to("dx", dx, k.dx, M * n[0]);
  close_gradients(at, k.g, n);
  memcpy(k.g, at, bytes);
  memcpy(before, dx, (size_t)(M * n[0]) * sizeof *before);
  same_bits(c, M, x, first, M * n[2]);
  CHECK_OK(atoll_chain_run(c, ATOLL_CHAIN_CTA, NULL, M, x, &y));
  begin(at, gradients(n));
  CHECK_OK(atoll_chain_backward(c, ATOLL_CHAIN_CTA, dy, &g, &dx));
  CHECK(!memcmp(before, dx, (size_t)(M * n[0]) * sizeof *before) && !memcmp(at, k.g, bytes));
  free(k.g), free(first), free(before), free(x), free(dy), free(k.z), free(k.h), free(k.y), free(k.dh), free(k.dx);
  for (int l = 0; l < 2; l++)
    free(w[l]), free(b[l]);
  atoll_chain_destroy(&c);
  atoll_symmetric_destroy(&s);
  atoll_device_close(&host);
}

/* 1 + 2^-9 is 1 in bf16, and so it goes into the last layer's activation; what comes out is not rounded. */
static void last_activation(void) {
  const uint16_t one = atoll_bf16_of(1), bias = atoll_bf16_of(0x1p-9f);
  const float *y = NULL;
  atoll_chain_params p;
  atoll_chain *c = NULL;
  atoll_chain_params_init(&p);
  p.rows = p.layers = 1, p.dtype = ATOLL_BF16;
  p.layer[0] = (atoll_chain_layer){1, 1, ATOLL_ACTIVATION_GELU_ERF, 1};
  CHECK_OK(atoll_chain_create(comm, mem, &p, &c));
  CHECK_OK(atoll_chain_set_layer(c, 0, &one, 1, 1, &bias));
  CHECK_OK(atoll_chain_run(c, ATOLL_CHAIN_CTA, NULL, 1, &one, &y));
  CHECK(fabs(*y - 0.5 * (1 + erf(sqrt(0.5)))) < 1e-5);
  atoll_chain_destroy(&c);
}

int main(int argc, char **argv) {
  atoll_device *device = NULL;
  check_begin(&argc, &argv);
  CHECK_OK(atoll_comm_create(MPI_COMM_WORLD, "world", NULL, &comm));
  CHECK_OK(atoll_mem_create(0, 0, &mem));
  CHECK_OK(atoll_device_open("cpu", NULL, &device));
  CHECK_OK(atoll_queue_create(device, "compute", &queue));
  CHECK_OK(atoll_kernels_get("cpu:bf16", &plain));
  mlp(61, (const int64_t[]){67, 331, 93}, 0);
  mlp(61, (const int64_t[]){300, 257, 40}, 1);
  last_activation();
  CHECK(atoll_mem_current_total(mem) == 0);
  atoll_queue_destroy(&queue);
  atoll_device_close(&device);
  atoll_mem_destroy(&mem, NULL);
  atoll_comm_destroy(&comm);
  return check_end();
}
