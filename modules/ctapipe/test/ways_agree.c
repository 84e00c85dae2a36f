/* Every way of running a chain gives the sequential way's bits (the tensor-parallel ones its numbers), for widths and
 * rows that divide nothing, one tile, nothing at all, every panel height, with and without claims, one to four ranks;
 * the sequential way is right. Each tile is made once, without claims by its layer's owner. */
#include "chain_test.h"

static atoll_comm *comm;
static atoll_mem *mem;

static int tensor_parallel(atoll_chain_way way) {
  return way == ATOLL_CHAIN_TP_ALLREDUCE || way == ATOLL_CHAIN_TP_FLAGS;
}

static void one_way(atoll_chain *c, const struct problem *q, atoll_chain_way way, int64_t panel, const float *first) {
  const float *y = NULL;
  size_t bytes = (size_t)(q->p.rows * q->out) * sizeof *y;
  atoll_chain_cut cut = {panel, 1 + panel / 8};
  if (way == ATOLL_CHAIN_BLAS_CHUNKS || (tensor_parallel(way) && q->p.layers != 2)) {
    CHECK(atoll_chain_run(c, way, &cut, q->p.rows, q->x, &y) == ATOLL_UNSUPPORTED);
    return;
  }
  poison(c, q);
  CHECK_OK(atoll_chain_run(c, way, &cut, q->p.rows, q->x, &y));
  if (way == ATOLL_CHAIN_MICROBATCH || tensor_parallel(way))
    CHECK(worst_error(q, y) < 1e-5);
  if (!tensor_parallel(way) && memcmp(y, first, bytes) != 0) {
    fprintf(stderr, "way %s, panel %lld, %lld rows, %d layers\n", atoll_chain_way_name(way), (long long)panel,
            (long long)q->p.rows, q->p.layers);
    CHECK(!"other bits than the sequential way");
  }
}

static int64_t tiles_of(const struct problem *q, int64_t panel) {
  int64_t panels = (q->p.rows + panel - 1) / panel, n = 0, tile = 256;
  for (int l = -1; l < q->p.layers; l++) {
    int64_t width = l < 0 ? q->p.layer[0].in : q->p.layer[l].out;
    n += panels * (width > 0 ? (width + tile - 1) / tile : 1);
  }
  return n;
}

static void who_made_what(atoll_chain *c, const struct problem *q) {
  const atoll_chain_event *event;
  const float *y;
  const atoll_chain_cut cut = {8, 0};
  CHECK_OK(atoll_chain_trace(c, 1));
  CHECK_OK(atoll_chain_run(c, ATOLL_CHAIN_CTA, &cut, q->p.rows, q->x, &y));
  int64_t n = atoll_chain_events(c, &event), all = n;
  for (int64_t i = 0; i < n; i++)
    CHECK(q->p.claims || atoll_chain_owner(c, event[i].layer < 0 ? 0 : event[i].layer) == check_rank);
  MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
  CHECK(all == tiles_of(q, cut.panel));
  CHECK_OK(atoll_chain_trace(c, 0));
}

static void problem(int64_t rows, int layers, const int64_t *width, atoll_activation a, int claims) {
  struct problem q = make_problem(rows, layers, width, a);
  static const int64_t panels[] = {0, 8, 24, 64, 256};
  const float *y = NULL;
  size_t bytes = (size_t)(rows * q.out) * sizeof *y;
  q.p.claims = claims;
  atoll_chain *c = open_chain(comm, mem, &q);
  CHECK_OK(atoll_chain_run(c, ATOLL_CHAIN_SEQUENTIAL, NULL, rows, q.x, &y));
  CHECK(worst_error(&q, y) < 1e-5);
  float *first = malloc(bytes + 1);
  CHECK(first);
  memcpy(first, y, bytes);
  for (int way = 0; way < ATOLL_CHAIN_WAYS; way++)
    for (size_t i = 0; i < sizeof panels / sizeof *panels; i++)
      one_way(c, &q, (atoll_chain_way)way, panels[i], first);
  who_made_what(c, &q);
  CHECK(atoll_mem_current(mem, ATOLL_MEM_COMM) >= (int64_t)atoll_chain_bytes(c, NULL));
  free(first);
  atoll_chain_destroy(&c);
  CHECK(c == NULL && atoll_mem_current_total(mem) == 0);
  drop_problem(&q);
}

static void refusals(void) {
  atoll_chain *c = NULL;
  struct problem q = make_problem(4, 2, (const int64_t[]){3, 5, 2}, ATOLL_ACTIVATION_NONE);
  q.p.layer[1].in = 6;
  CHECK(atoll_chain_create(comm, mem, &q.p, &c) == ATOLL_USAGE && strstr(atoll_err_message(), "reads 6"));
  q.p.layer[1].in = 5;
  q.p.layer[0].activation = ATOLL_ACTIVATION_SWIGLU;
  CHECK(atoll_chain_create(comm, mem, &q.p, &c) == ATOLL_UNSUPPORTED && strstr(atoll_err_message(), "SwiGLU with a"));
  q.p.layer[0].activation = ATOLL_ACTIVATION_NONE;
  atoll_mem_fail_at(mem, 1);
  CHECK(atoll_chain_create(comm, mem, &q.p, &c) == ATOLL_NOMEM && c == NULL);
  c = open_chain(comm, mem, &q);
  const float *y = NULL;
  CHECK(atoll_chain_run(c, ATOLL_CHAIN_CTA, NULL, 5, q.x, &y) == ATOLL_USAGE && y == NULL);
  CHECK(atoll_chain_run(c, ATOLL_CHAIN_CTA, &(atoll_chain_cut){7, 0}, 4, q.x, &y) == ATOLL_USAGE);
  CHECK_OK(atoll_chain_run(c, ATOLL_CHAIN_CTA, NULL, 4, q.x, &y)); /* a refusal does no harm */
  CHECK(worst_error(&q, y) < 1e-5);
  CHECK(atoll_chain_set_layer(c, 1, NULL, 2, 1, NULL) == ATOLL_USAGE);
  CHECK(atoll_chain_set_gate(c, 0, q.w[0], 5, 1) == ATOLL_USAGE && strstr(atoll_err_message(), "no gate"));
  atoll_chain_destroy(&c);
  drop_problem(&q);
}

int main(int argc, char **argv) {
  check_begin(&argc, &argv);
  CHECK_OK(atoll_comm_create(MPI_COMM_WORLD, "world", NULL, &comm));
  CHECK_OK(atoll_mem_create(0, 0, &mem));
  for (int claims = 0; claims < 2; claims++) {
    problem(61, 2, (const int64_t[]){67, 601, 93}, ATOLL_ACTIVATION_GELU, claims);
    problem(130, 2, (const int64_t[]){300, 512, 257}, ATOLL_ACTIVATION_RELU, claims);
    problem(64, 2, (const int64_t[]){256, 256, 256}, ATOLL_ACTIVATION_NONE, claims);
    problem(1, 2, (const int64_t[]){1, 1, 1}, ATOLL_ACTIVATION_RELU, claims);
    problem(0, 2, (const int64_t[]){5, 7, 3}, ATOLL_ACTIVATION_RELU, claims);
    problem(9, 2, (const int64_t[]){0, 7, 3}, ATOLL_ACTIVATION_GELU, claims);
    problem(9, 2, (const int64_t[]){5, 0, 3}, ATOLL_ACTIVATION_RELU, claims);
    problem(9, 2, (const int64_t[]){5, 7, 0}, ATOLL_ACTIVATION_RELU, claims);
    problem(33, 1, (const int64_t[]){301, 290}, ATOLL_ACTIVATION_RELU, claims);
    problem(70, 5, (const int64_t[]){40, 300, 17, 520, 260, 31}, ATOLL_ACTIVATION_GELU, claims);
    problem(40, 4, (const int64_t[]){40, 300, 60, 290, 70}, ATOLL_ACTIVATION_RELU, claims);
    problem(40, 8, (const int64_t[]){40, 300, 257, 64, 100, 290, 33, 270, 50}, ATOLL_ACTIVATION_GELU, claims);
    problem(61, 2, (const int64_t[]){67, 601, 93}, ATOLL_ACTIVATION_GELU_ERF, claims);
    problem(61, 2, (const int64_t[]){331, 601, 93}, ATOLL_ACTIVATION_SWIGLU, claims);
    problem(9, 2, (const int64_t[]){5, 0, 3}, ATOLL_ACTIVATION_SWIGLU, claims);
    problem(70, 3, (const int64_t[]){40, 300, 257, 31}, ATOLL_ACTIVATION_SWIGLU, claims);
  }
  refusals();
  atoll_mem_destroy(&mem, NULL);
  atoll_comm_destroy(&comm);
  return check_end();
}
