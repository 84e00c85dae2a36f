/* Who computes products is measured once and the same on ranks alike, whatever their threads; a file that is damaged,
 * foreign or cannot be written costs a measurement and nothing else; and what was chosen is what computes. */
#include <unistd.h>

#include "atoll/device.h"
#include "atoll/file.h"
#include "atoll/gemm.h"
#include "atoll/kernel.h"
#include "mpi_check.h"

static const atoll_kernels *kernels;

static atoll_gemm_choice choose(const char *path) {
  atoll_gemm_choice a, first;
  CHECK_OK(atoll_gemm_choose(MPI_COMM_WORLD, 1 + check_rank % 2, path, &a));
  first = a;
  MPI_Bcast(&first, sizeof first, MPI_BYTE, 0, MPI_COMM_WORLD);
  CHECK(!memcmp(&a, &first, sizeof a));
  for (int i = 0; i < atoll_gemm_ways(); i++)
    CHECK(a.gflops[i] > 0 && a.gflops[i] <= 1.06 * a.gflops[a.way]);
  return a;
}

static void write_file(const char *path, const char *text) {
  MPI_Barrier(MPI_COMM_WORLD);
  if (check_rank == 0)
    CHECK_OK(atoll_file_replace(path, text, strlen(text)));
  MPI_Barrier(MPI_COMM_WORLD);
}

/* The file as it was written, with `from` replaced. */
static void edit(const char *path, const char *from, const char *to) {
  char *text = NULL, edited[2048];
  size_t n;
  CHECK_OK(atoll_file_read(path, &text, &n));
  char *at = strstr(text, from);
  CHECK(at && n + strlen(to) < sizeof edited);
  snprintf(edited, sizeof edited, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
  free(text);
  write_file(path, edited);
}

enum { N = 64, LONG = 1500 };

/* y[N, N] = x w' over K numbers, as the kernels compute it now. */
static void multiply(const float *x, const float *w, int64_t K, float *y) {
  atoll_device *device = NULL;
  atoll_queue *queue = NULL;
  atoll_device_params p;
  atoll_device_params_init(&p);
  CHECK_OK(atoll_device_open("cpu", &p, &device));
  CHECK_OK(atoll_queue_create(device, "compute", &queue));
  CHECK_OK(kernels->linear_forward(queue, x, w, NULL, y, N, K, N));
  CHECK_OK(atoll_queue_sync(queue));
  atoll_queue_destroy(&queue);
  atoll_device_close(&device);
}

static void check_product(void) {
  static float x[N * N], w[N * N], y[N * N];
  for (int i = 0; i < N * N; i++)
    x[i] = (float)(i % 5 - 2), w[i] = (float)(i % 7 - 3);
  multiply(x, w, N, y);
  for (int i = 0; i < N; i++)
    for (int j = 0; j < N; j++) {
      float sum = 0; /* whole numbers: exact in any order */
      for (int k = 0; k < N; k++)
        sum += x[i * N + k] * w[j * N + k];
      CHECK(y[i * N + j] == sum);
    }
}

/* Ways add up in different orders, so sums of many fractions tell whether another one computes. */
static void long_product(float *y) {
  static float x[N * LONG], w[N * LONG];
  const atoll_rng_key key = {.seed = 1, .site = ATOLL_RNG_TEST};
  atoll_rng_fill_normal(&key, 0, N * LONG, 1, x);
  atoll_rng_fill_normal(&key, N * LONG, N * LONG, 1, w);
  multiply(x, w, LONG, y);
}

int main(int argc, char **argv) {
  check_begin(&argc, &argv);
  const char *path = "gemm.yaml", *name;
  static float by[ATOLL_GEMM_WAYS][N * N];
  int differ = 0;
  CHECK_OK(atoll_kernels_get("cpu", &kernels));
  unlink(path);
  MPI_Barrier(MPI_COMM_WORLD);
  CHECK(!choose(path).remembered);
  CHECK(strstr(atoll_kernels_describe(kernels), "measured: packed "));
  CHECK(choose(path).remembered);
  CHECK(strstr(atoll_kernels_describe(kernels), "as measured before: packed "));
  /* What a file says is used, each way in turn. */
  for (int way = 0; way < atoll_gemm_ways(); way++) {
    char text[2048], *file = NULL;
    size_t n;
    CHECK(atoll_gemm_library(way, &name));
    CHECK_OK(atoll_file_read(path, &file, &n));
    const char *end = strchr(strstr(file, "processor:"), '\n');
    snprintf(text, sizeof text, "%.*s\nproducts: %s\ngflops: {onednn: 1, openblas: 1, packed: 1%s}\n",
             (int)(end - file), file, name, atoll_gemm_ways() > 3 ? ", libxsmm: 1" : "");
    free(file);
    write_file(path, text);
    atoll_gemm_choice c = choose(path);
    CHECK(c.remembered && c.way == way);
    static const char *const says[] = {"GEMM by oneDNN", "GEMM by OpenBLAS", "GEMM by packed tiles",
                                       "GEMM by packed tiles of libxsmm"};
    CHECK(strstr(atoll_kernels_describe(kernels), says[way]));
    check_product();
    long_product(by[way]);
    differ += way > 0 && memcmp(by[way], by[0], sizeof by[0]) != 0;
  }
  CHECK(differ > 0);
  edit(path, "gflops", "gigaflops");
  CHECK(!choose(path).remembered && choose(path).remembered);
  write_file(path, "processor: [\n");
  CHECK(!choose(path).remembered && choose(path).remembered);
  edit(path, "processor: \"", "processor: \"another "); /* foreign */
  CHECK(!choose(path).remembered && choose(path).remembered);
  edit(path, "\"code ", "\"code 0"); /* of another build */
  CHECK(!choose(path).remembered && choose(path).remembered);
  CHECK(!choose("no/such/folder/gemm.yaml").remembered);
  return check_end();
}
