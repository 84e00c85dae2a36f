/* Chains on a device: the numbers are right to bf16, every way but the library's gives the sequential one's bits, for
 * widths and rows that divide nothing, layers of one rank overlapping or each on its own, epoch after epoch; a layer
 * that never comes ends everybody's wait with a report that names it. Runs on the host through a plug-in made for tests
 * (ATOLL_TEST_STALL set: and lets it fail), and on a GPU where there is one. */
#include <stdio.h>

#include "atoll/plugin.h"
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

static void problem(int64_t rows, int layers, const int64_t *width, atoll_activation a) {
  struct problem q = make_problem(rows, layers, width, a);
  const float *y = NULL;
  size_t bytes = (size_t)(rows * q.out) * sizeof *y;
  q.p.device = device;
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

/* The first layer's owner loses its launches: the second one's device waits, and gives up. */
static void stalls(atoll_chain_way way, const char *said) {
  struct problem q = make_problem(66, 2, (const int64_t[]){24, 72, 40}, ATOLL_ACTIVATION_RELU);
  const float *y = NULL;
  q.p.device = device;
  /* Who owns the second layer gives up first: the others know of no loss. */
  atoll_chain *c = open_hurried(comm, mem, &q, way, 20);
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

static void refusals(void) {
  atoll_chain *c = NULL;
  struct problem q = make_problem(4, 2, (const int64_t[]){3, 5, 2}, ATOLL_ACTIVATION_NONE);
  q.p.device = device;
  q.p.backward = 1;
  CHECK(atoll_chain_create(comm, mem, &q.p, &c) == ATOLL_UNSUPPORTED && strstr(atoll_err_message(), "backward"));
  CHECK(c == NULL);
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
  problem(66, 2, (const int64_t[]){40, 72, 24}, ATOLL_ACTIVATION_RELU);
  problem(9, 3, (const int64_t[]){33, 7, 65, 3}, ATOLL_ACTIVATION_GELU);
  problem(1, 1, (const int64_t[]){1, 1}, ATOLL_ACTIVATION_NONE);
  problem(0, 2, (const int64_t[]){5, 7, 3}, ATOLL_ACTIVATION_RELU);
  refusals();
  if (getenv("ATOLL_TEST_STALL") && check_size > 1) {
    stalls(ATOLL_CHAIN_CTA, "lacks tile 0 of panel 0 of layer 0 of rank 0");
    stalls(ATOLL_CHAIN_BLAS_CHUNKS, "lacks chunk 0 of layer 0 of rank 0");
  }
  atoll_mem_destroy(&mem, NULL);
  atoll_comm_destroy(&comm);
  atoll_device_close(&device);
  return check_end();
}
