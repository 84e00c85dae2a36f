/* Leaves given twice, by nobody, or as something that is no node of the tree are MISMATCH on every rank, as are ranks
 * that ask for different sums; one rank's bad request is everyone's. */
#include "mpi_check.h"

#include "atoll/comm.h"

static atoll_comm *comm;
static atoll_queue *queue;

static atoll_err sum(int64_t leaves, int parts, int64_t f0, int64_t n0, int64_t f1, int64_t n1, int64_t count,
                     int64_t piece) {
  float a[8] = {1, 1, 1, 1, 1, 1, 1, 1}, b[8] = {1, 1, 1, 1, 1, 1, 1, 1}, out[8], work[64], *part[2] = {a, b};
  atoll_comm_tree_sum(comm, queue, leaves, parts, (int64_t[]){f0, f1}, (int64_t[]){n0, n1}, part, count, out, work,
                      piece);
  return atoll_queue_sync(queue);
}

#define ON(rank, yes, no) (check_rank == (rank) ? (yes) : (no))

int main(int argc, char **argv) {
  check_begin(&argc, &argv);
  CHECK(check_size == 2);
  CHECK_OK(atoll_comm_create(MPI_COMM_WORLD, "data", NULL, &comm));
  for (int k = 0; k < 2; k++) {
    atoll_device *device;
    CHECK_OK(atoll_device_open(k ? "async" : "cpu", NULL, &device));
    CHECK_OK(atoll_queue_create(device, "comm", &queue));
    CHECK_OK(sum(4, 1, ON(0, 0, 2), 2, 0, 0, 8, 8));
    /* leaf 3 by nobody */
    CHECK(sum(4, 1, ON(0, 0, 2), ON(0, 2, 1), 0, 0, 8, 8) == ATOLL_MISMATCH);
    CHECK(strstr(atoll_err_message(), "no rank gives leaf 3 of 4"));
    /* leaf 0 by nobody, and a hole in the middle */
    CHECK(sum(4, 1, ON(0, 1, 2), ON(0, 1, 2), 0, 0, 8, 8) == ATOLL_MISMATCH);
    CHECK(strstr(atoll_err_message(), "no rank gives leaf 0"));
    CHECK(sum(4, 1, ON(0, 0, 3), ON(0, 2, 1), 0, 0, 8, 8) == ATOLL_MISMATCH);
    CHECK(strstr(atoll_err_message(), "no rank gives leaf 2"));
    /* leaf 2 by both */
    CHECK(sum(4, ON(0, 2, 1), ON(0, 0, 2), 2, 2, 1, 8, 8) == ATOLL_MISMATCH);
    CHECK(strstr(atoll_err_message(), "leaf 2 is given by rank 0 and by rank 1"));
    /* 1..2 crosses the middle */
    CHECK(sum(4, ON(0, 2, 1), ON(0, 0, 1), ON(0, 1, 2), 3, 1, 8, 8) == ATOLL_MISMATCH);
    CHECK(strstr(atoll_err_message(), "leaves 1..2, which is no node"));
    /* beyond the end */
    CHECK(sum(4, 1, ON(0, 0, 2), ON(0, 2, 3), 0, 0, 8, 8) == ATOLL_MISMATCH);
    /* different questions */
    CHECK(sum(4, 1, ON(0, 0, 2), 2, 0, 0, ON(0, 8, 7), 8) == ATOLL_MISMATCH);
    CHECK(strstr(atoll_err_message(), "rank 1 4 of 7 in 8"));
    CHECK(sum(ON(0, 4, 5), 1, ON(0, 0, 2), 2, 0, 0, 8, 8) == ATOLL_MISMATCH);
    CHECK(sum(4, 1, ON(0, 0, 2), 2, 0, 0, 8, ON(0, 8, 4)) == ATOLL_MISMATCH);
    /* one rank's mistake */
    CHECK(sum(4, 1, ON(0, 0, 2), 2, 0, 0, 8, ON(0, 8, 0)) == ATOLL_USAGE);
    CHECK(strstr(atoll_err_message(), "rank 1: tree sum on data"));
    CHECK_OK(sum(4, 1, ON(0, 0, 2), 2, 0, 0, 8, 8));
    atoll_queue_destroy(&queue);
    atoll_device_close(&device);
  }
  /* The nodes that make up a range. */
  int64_t f[8], n[8];
  CHECK(atoll_tree_nodes(8, 0, 8, f, n, 8) == 1 && f[0] == 0 && n[0] == 8);
  CHECK(atoll_tree_nodes(7, 3, 4, f, n, 8) == 2 && f[0] == 3 && n[0] == 1 && f[1] == 4 && n[1] == 3);
  CHECK(atoll_tree_nodes(7, 3, 4, f, n, 1) == 2); /* says how many, fills what fits */
  CHECK(atoll_tree_nodes(8, 3, 0, f, n, 8) == 0 && atoll_tree_nodes(8, 6, 3, f, n, 8) == 0);
  CHECK(atoll_tree_nodes(INT64_C(1) << 40, 1, 2, f, n, 8) == 2);
  atoll_comm_destroy(&comm);
  return check_end();
}
