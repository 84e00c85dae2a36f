/* A chain runs a thousand times without resetting a flag; the negative control, which does not wait for tiles, is seen
 * to be wrong; a rank that does not come, or stops with a tile that it has taken, forward or backward, ends the run
 * within the bound, everyone leaves with the same report, and the chain stays refused. */
#include "chain_test.h"

#include <signal.h>
#include <unistd.h>

#include "atoll/clock.h"
#include "atoll/fault.h"
#include "atoll/symmetric.h"

static atoll_comm *comm;
static atoll_mem *mem;

static void many_epochs(int claims) {
  struct problem q = make_problem(40, 2, (const int64_t[]){70, 530, 40}, ATOLL_ACTIVATION_RELU);
  size_t n = (size_t)(q.p.rows * q.out);
  q.p.claims = claims;
  atoll_chain *c = open_chain(comm, mem, &q);
  float *doubled = malloc((size_t)(q.p.rows * 70) * sizeof *doubled), *want[2] = {malloc(n * 4 + 1), malloc(n * 4 + 1)};
  const float *y;
  CHECK(doubled && want[0] && want[1]);
  for (int64_t i = 0; i < q.p.rows * 70; i++)
    doubled[i] = 2 * q.x[i];
  for (int k = 0; k < 2; k++) {
    CHECK_OK(atoll_chain_run(c, ATOLL_CHAIN_SEQUENTIAL, NULL, q.p.rows, k ? doubled : q.x, &y));
    memcpy(want[k], y, n * sizeof *y);
  }
  CHECK(memcmp(want[0], want[1], n * sizeof *y) != 0);
  atoll_chain_cut cut = {8, 0};
  for (int i = 0; i < 1000; i++) {
    CHECK_OK(atoll_chain_run(c, ATOLL_CHAIN_CTA, &cut, q.p.rows, i % 2 ? doubled : q.x, &y));
    CHECK(memcmp(want[i % 2], y, n * sizeof *y) == 0); /* read while a faster rank is in the next run */
    const float *none = NULL;                          /* a refusal is no run */
    CHECK(atoll_chain_run(c, ATOLL_CHAIN_BLAS_CHUNKS, &cut, q.p.rows, q.x, &none) == ATOLL_UNSUPPORTED && !none);
  }
  free(doubled), free(want[0]), free(want[1]);
  atoll_chain_destroy(&c);
  drop_problem(&q);
}

/* Without waits the owner of the second layer reads tiles of the run before, which are NaN: rank 0, which makes the
 * first, comes late. On a busy machine the other may come later still, so it is tried until it is seen. */
static void skipped_waits_show(void) {
  struct problem q = make_problem(64, 2, (const int64_t[]){512, 512, 64}, ATOLL_ACTIVATION_RELU);
  int wrong = 0;
  q.p.claims = 0;
  setenv("ATOLL_TEST_CTA", "skip-waits", 1);
  atoll_chain *c = open_chain(comm, mem, &q);
  unsetenv("ATOLL_TEST_CTA");
  for (int i = 0; i < 100 && !wrong; i++) {
    const float *y;
    poison(c, &q);
    if (check_rank == 0)
      atoll_clock_sleep(0.05);
    CHECK_OK(atoll_chain_run(c, ATOLL_CHAIN_CTA, NULL, q.p.rows, q.x, &y));
    wrong = !(worst_error(&q, y) < 1e-5);
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  }
  CHECK(wrong);
  atoll_chain_destroy(&c);
  drop_problem(&q);
}

/* Rank `absent` comes when the others have given up: at once, or one of them long before the rest. */
static void absent_rank_is_named(int claims, int absent, int hurried, double patience, const char *said) {
  struct problem q = make_problem(64, 2, (const int64_t[]){300, 512, 64}, ATOLL_ACTIVATION_RELU);
  const float *y = NULL;
  char waited[32];
  int none = 0;
  q.p.claims = claims;
  atoll_chain *c = open_hurried(comm, mem, &q, ATOLL_CHAIN_CTA, hurried, patience);
  snprintf(waited, sizeof waited, "waited %g s", check_rank == hurried ? q.p.timeout : q.p.timeout / patience);
  double start = atoll_clock_now();
  if (check_rank == absent)
    MPI_Recv(&none, 0, MPI_INT, hurried, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  atoll_err err = atoll_chain_run(c, ATOLL_CHAIN_CTA, NULL, q.p.rows, q.x, &y);
  CHECK(atoll_clock_now() - start < q.p.timeout + 60); /* loose: the machine may be busy */
  if (check_rank == hurried)
    MPI_Send(&none, 0, MPI_INT, absent, 0, MPI_COMM_WORLD);
  int first_alone = check_size == 2 || patience > 1; /* else any of them may be the first to give up */
  CHECK(err == (check_rank == hurried ? ATOLL_TIMEOUT : ATOLL_PEER_LOST) ||
        (!first_alone && (err == ATOLL_TIMEOUT || err == ATOLL_PEER_LOST)));
  CHECK(strstr(atoll_err_message(), waited) && (strstr(atoll_err_message(), said) || !first_alone));
  CHECK(atoll_chain_run(c, ATOLL_CHAIN_SEQUENTIAL, NULL, q.p.rows, q.x, &y) == ATOLL_PEER_LOST);
  CHECK(strstr(atoll_err_message(), waited));
  MPI_Barrier(MPI_COMM_WORLD);
  atoll_chain_destroy(&c);
  drop_problem(&q);
}

/* --- a rank that stops with a tile ---------------------------------------------------------------------------------
 */

struct run {
  atoll_chain *c;
  const struct problem *q;
  const float *dy;
  atoll_chain_gradients to;
};

static atoll_err once(const struct run *r, int backward) {
  const float *y = NULL, *dx = NULL;
  return backward ? atoll_chain_backward(r->c, ATOLL_CHAIN_CTA, r->dy, &r->to, &dx)
                  : atoll_chain_run(r->c, ATOLL_CHAIN_CTA, NULL, r->q->p.rows, r->q->x, &y);
}

/* Runs until rank `stopped` has stopped with its tile number `nth`: where tiles are claimed it may come too late for
 * one. So the others come later every time, but in backward, which begins with a meeting, that rank: where all are on
 * one core, who comes last goes on. Whoever gave up first lets it go on. */
static void run_until_stopped(const struct run *r, int backward, int stopped, int nth, int hurried, const char *said) {
  char rule[64];
  int64_t pid = getpid();
  int failed = 0;
  snprintf(rule, sizeof rule, "stop:chain.tile:%d:%d", nth, stopped);
  MPI_Bcast(&pid, 1, MPI_INT64_T, stopped, MPI_COMM_WORLD);
  for (int i = 0; i < 200 && !failed; i++) {
    if (backward)
      CHECK_OK(once(r, 0));
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK_OK(atoll_fault_set(rule, check_rank));
    if ((check_rank == stopped) == backward)
      atoll_clock_sleep(1e-3 * i);
    double start = atoll_clock_now();
    atoll_err err = once(r, backward);
    double took = atoll_clock_now() - start;
    CHECK_OK(atoll_fault_set("", check_rank));
    failed = err != ATOLL_OK;
    if (failed && check_rank == hurried)
      CHECK(!kill((pid_t)pid, SIGCONT));
    CHECK(!failed || err == (check_rank == hurried ? ATOLL_TIMEOUT : ATOLL_PEER_LOST));
    CHECK(!failed || strstr(atoll_err_message(), said));
    CHECK(took < r->q->p.timeout + 60); /* loose: the machine may be busy */
    MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  }
  CHECK(failed);
  CHECK(once(r, 0) == ATOLL_PEER_LOST && strstr(atoll_err_message(), said));
}

static void stopped_rank_ends_the_run(int claims, int backward, int stopped, int nth, int hurried, const char *said) {
  struct problem q = make_problem(64, 2, (const int64_t[]){300, 512, 64}, ATOLL_ACTIVATION_RELU);
  float *dy = random_floats(99, q.p.rows * q.out, 1);
  atoll_symmetric *s = NULL;
  atoll_device *host = NULL;
  q.p.claims = claims;
  q.p.backward = backward;
  size_t n = 300 * 512 + 512 * 64, bytes = check_rank == 0 ? (n + 512 + 64) * sizeof(float) : 0;
  CHECK_OK(atoll_device_open("cpu", NULL, &host));
  CHECK_OK(atoll_symmetric_create(comm, host, mem, ATOLL_MEM_GRADIENT, bytes, "of a test", &s));
  float *at = atoll_symmetric_at(s, 0);
  atoll_chain *c = open_hurried(comm, mem, &q, ATOLL_CHAIN_CTA, hurried, 20);
  const struct run r = {c, &q, dy, {{at, at + 300 * 512}, {at + n, at + n + 512}, NULL}};
  run_until_stopped(&r, backward, stopped, nth, hurried, said);
  atoll_chain_destroy(&c);
  atoll_symmetric_destroy(&s);
  atoll_device_close(&host);
  free(dy);
  drop_problem(&q);
}

int main(int argc, char **argv) {
  check_begin(&argc, &argv);
  CHECK_OK(atoll_comm_create(MPI_COMM_WORLD, "world", NULL, &comm));
  CHECK_OK(atoll_mem_create(0, 0, &mem));
  many_epochs(0);
  many_epochs(1);
  skipped_waits_show();
  absent_rank_is_named(0, 1, 0, 1, "rank 1 in epoch 2");
  absent_rank_is_named(1, 1, 0, 1, "rank 1 in epoch 2");
  /* Who owns the second layer lacks the first one's. */
  absent_rank_is_named(0, 0, check_size / 2, 20, "for tile 0 of panel 0 of layer 0 of rank 0 in epoch 2");
  /* Rank 0's thirteenth tile is the first panel's second one of layer 0: four panels, two tiles of x each, and a tile
   * of layer 0 as soon as a panel of x is there. With claims it is whichever comes, and anybody may wait for it. */
  stopped_rank_ends_the_run(0, 0, 0, 13, check_size / 2, "for tile 1 of panel 0 of layer 0 of rank 0 in epoch 2");
  stopped_rank_ends_the_run(1, 0, 1, 1, 0, "rank 0 waited ");
  stopped_rank_ends_the_run(1, 0, 0, 1, 1, "rank 1 waited ");
  stopped_rank_ends_the_run(0, 1, 0, 1, check_size / 2, "for the arrival of rank 0 in epoch 3");
  stopped_rank_ends_the_run(0, 1, check_size / 2, 9, 0, " of layer 1 turned of rank ");
  stopped_rank_ends_the_run(1, 1, 1, 1, 0, "rank 0 waited ");
  atoll_mem_destroy(&mem, NULL);
  atoll_comm_destroy(&comm);
  return check_end();
}
