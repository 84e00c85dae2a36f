/* A digest that differs anywhere is MISMATCH everywhere, and the message names the ranks. */
#include "mpi_check.h"

int main(int argc, char **argv) {
  check_begin(&argc, &argv);
  atoll_digest same = atoll_digest_bytes("plan", 4), other = atoll_digest_bytes("plam", 4);
  CHECK_OK(atoll_agree_digest(MPI_COMM_WORLD, "plan", same));
  CHECK(atoll_agree_digest(MPI_COMM_WORLD, "plan", check_rank == 2 ? other : same) == ATOLL_MISMATCH);
  CHECK(strstr(atoll_err_message(), "plan: rank 0 has digest ") && strstr(atoll_err_message(), "rank 2 has another"));
  CHECK(atoll_agree_digest(MPI_COMM_WORLD, "islands", check_rank == 0 ? other : same) == ATOLL_MISMATCH);
  CHECK(strstr(atoll_err_message(), "ranks 1, 2 have another"));
  /* Half a difference is one. */
  atoll_digest half = same;
  half.hi++;
  CHECK(atoll_agree_digest(MPI_COMM_WORLD, "plan", check_rank == 1 ? half : same) == ATOLL_MISMATCH);
  CHECK_OK(atoll_agree_digest(MPI_COMM_WORLD, "plan", same));
  return check_end();
}
