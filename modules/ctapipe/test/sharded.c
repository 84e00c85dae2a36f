/* A sharded run gives each rank its rows, with the bits of a whole run, and all rows once everybody is back; a rank
 * whose rows need nobody else does not wait for others; runs that follow at once, of any way, and new weights disturb
 * no rank that is still in it. */
#include "chain_test.h"

#include "atoll/clock.h"

static atoll_comm *comm;
static atoll_mem *mem;

static float *keep(const struct problem *q, const float *y) {
  size_t n = (size_t)(q->p.rows * q->out);
  float *copy = malloc(n * sizeof *copy + 1);
  CHECK(copy);
  memcpy(copy, y, n * sizeof *copy);
  return copy;
}

static void each_way(atoll_chain *c, const struct problem *q) {
  for (int way = 0; way < ATOLL_CHAIN_WAYS; way++)
    for (int64_t panel = 8; panel <= 64; panel *= 2) {
      const atoll_chain_cut cut = {panel, 2};
      const float *y = NULL;
      int64_t begin = -1, end = -1, before = 0, sum;
      if (way == ATOLL_CHAIN_BLAS_CHUNKS || way == ATOLL_CHAIN_TP_ALLREDUCE) /* y is a rank's own */
        continue;
      CHECK_OK(atoll_chain_run(c, (atoll_chain_way)way, &cut, q->p.rows, q->x, &y));
      float *want = keep(q, y);
      poison(c, q);
      CHECK_OK(atoll_chain_run_sharded(c, (atoll_chain_way)way, &cut, q->p.rows, q->x, &y, &begin, &end));
      CHECK(0 <= begin && begin <= end && end <= q->p.rows);
      CHECK(!memcmp(y + begin * q->out, want + begin * q->out, (size_t)((end - begin) * q->out) * sizeof *y));
      sum = end - begin;
      MPI_Exscan(&sum, &before, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
      MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
      CHECK(sum == q->p.rows && begin == (check_rank ? before : 0)); /* each row to one, in order of rank */
      CHECK(!memcmp(y, want, (size_t)(q->p.rows * q->out) * sizeof *y));
      free(want);
      MPI_Barrier(MPI_COMM_WORLD);
    }
}

/* Each rank begins when the one before has its rows. */
static void nobody_waits(atoll_chain *c, const struct problem *q) {
  const atoll_chain_cut cut = {8, 0};
  const float *y = NULL;
  int64_t begin, end;
  int none = 0;
  CHECK_OK(atoll_chain_run(c, ATOLL_CHAIN_CTA, &cut, q->p.rows, q->x, &y));
  if (check_rank > 0)
    MPI_Recv(&none, 0, MPI_INT, check_rank - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  CHECK_OK(atoll_chain_run_sharded(c, ATOLL_CHAIN_ROW_SPLIT, &cut, q->p.rows, q->x, &y, &begin, &end));
  if (check_rank + 1 < check_size)
    MPI_Send(&none, 0, MPI_INT, check_rank + 1, 0, MPI_COMM_WORLD);
}

static void set_first(atoll_chain *c, const struct problem *q, const float *w) {
  int own = atoll_chain_owner(c, 0) == check_rank;
  CHECK_OK(atoll_chain_set_layer(c, 0, own ? w : NULL, q->p.layer[0].out, 1, q->b[0]));
}

/* Ranks come late in turn; inputs, and at times the first layer's sign, differ from run to run. */
static void nobody_is_disturbed(atoll_chain *c, struct problem *q) {
  static const atoll_chain_way ways[] = {ATOLL_CHAIN_TP_FLAGS,   ATOLL_CHAIN_CTA,        ATOLL_CHAIN_TP_FLAGS,
                                         ATOLL_CHAIN_TP_FLAGS,   ATOLL_CHAIN_SEQUENTIAL, ATOLL_CHAIN_ROW_SPLIT,
                                         ATOLL_CHAIN_MICROBATCH, ATOLL_CHAIN_ROW_SPLIT,  ATOLL_CHAIN_COLUMN_SHARED};
  const atoll_chain_cut cut = {8, 2};
  const float *y = NULL;
  int64_t n = q->p.rows * q->p.layer[0].in, w = q->p.layer[0].in * q->p.layer[0].out, begin, end;
  float *x[2] = {q->x, malloc((size_t)n * sizeof(float))}, *sign[2] = {q->w[0], malloc((size_t)w * sizeof(float))};
  float *want[2][2][2]; /* by input, sign, and whether the way sums over ranks */
  CHECK(x[1] && sign[1]);
  for (int64_t i = 0; i < n; i++)
    x[1][i] = 1 - q->x[i];
  for (int64_t i = 0; i < w; i++)
    sign[1][i] = -q->w[0][i];
  for (int s = 1; s >= 0; s--) {
    set_first(c, q, sign[s]);
    for (int i = 0; i < 2; i++)
      for (int sums = 0; sums < 2; sums++) {
        CHECK_OK(atoll_chain_run(c, sums ? ATOLL_CHAIN_TP_FLAGS : ATOLL_CHAIN_SEQUENTIAL, &cut, q->p.rows, x[i], &y));
        want[i][s][sums] = keep(q, y);
      }
  }
  CHECK(memcmp(want[0][0][0], want[1][0][0], (size_t)(q->p.rows * q->out) * sizeof *y));
  for (int i = 0, s = 0; i < 300; i++) {
    atoll_chain_way way = ways[(size_t)i % (sizeof ways / sizeof *ways)];
    if (i % 50 == 7)
      set_first(c, q, sign[s ^= 1]);
    else if (i % 7 == check_rank)
      atoll_clock_sleep(1e-3);
    CHECK_OK(atoll_chain_run_sharded(c, way, &cut, q->p.rows, x[i % 2], &y, &begin, &end));
    const float *right = want[i % 2][s][way == ATOLL_CHAIN_TP_FLAGS];
    CHECK(!memcmp(y + begin * q->out, right + begin * q->out, (size_t)((end - begin) * q->out) * sizeof *y));
  }
  for (int i = 0; i < 8; i++)
    free(want[i / 4][i / 2 % 2][i % 2]);
  free(x[1]), free(sign[1]);
}

int main(int argc, char **argv) {
  check_begin(&argc, &argv);
  CHECK_OK(atoll_comm_create(MPI_COMM_WORLD, "world", NULL, &comm));
  CHECK_OK(atoll_mem_create(0, 0, &mem));
  struct problem q = make_problem(61, 2, (const int64_t[]){67, 601, 93}, ATOLL_ACTIVATION_GELU);
  atoll_chain *c = open_chain(comm, mem, &q);
  each_way(c, &q);
  nobody_waits(c, &q);
  nobody_is_disturbed(c, &q);
  atoll_chain_destroy(&c);
  drop_problem(&q);
  atoll_mem_destroy(&mem, NULL);
  atoll_comm_destroy(&comm);
  return check_end();
}
