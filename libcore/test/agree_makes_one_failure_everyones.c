/* Any rank's failure, alone or with others, becomes everyone's code and message, the lowest failed rank's. */
#include "mpi_check.h"

static atoll_err fails_on(int rank, atoll_err code) {
  if (check_rank == rank)
    return atoll_fail(code, "shard %d holds 3 bytes, needs 4", rank);
  atoll_err_set_message("something old");
  return ATOLL_OK;
}

static atoll_err inner(int rank) {
  ATOLL_TRY_ALL(MPI_COMM_WORLD, fails_on(rank, ATOLL_IO));
  return ATOLL_OK;
}

int main(int argc, char **argv) {
  check_begin(&argc, &argv);
  char expect[128];
  CHECK_OK(atoll_agree(MPI_COMM_WORLD, ATOLL_OK));
  for (int r = 0; r < check_size; r++) {
    CHECK(atoll_agree(MPI_COMM_WORLD, fails_on(r, ATOLL_CORRUPT)) == ATOLL_CORRUPT);
    snprintf(expect, sizeof expect, "rank %d: shard %d holds 3 bytes, needs 4", r, r);
    CHECK(!strcmp(atoll_err_message(), expect));
    /* Agreed twice, the rank is still the one that failed. */
    CHECK(atoll_agree(MPI_COMM_WORLD, inner(r)) == ATOLL_IO);
    CHECK(!strcmp(atoll_err_message(), expect));
  }
  /* Several fail differently: the lowest wins. */
  atoll_err mine =
      check_rank == 0 ? ATOLL_OK : atoll_fail(check_rank == 1 ? ATOLL_NOMEM : ATOLL_IO, "me %d", check_rank);
  CHECK(atoll_agree(MPI_COMM_WORLD, mine) == ATOLL_NOMEM);
  CHECK(!strcmp(atoll_err_message(), "rank 1: me 1"));
  /* Without a message the code's text is carried. */
  atoll_err_clear();
  CHECK(atoll_agree(MPI_COMM_WORLD, check_rank == 1 ? ATOLL_IO : ATOLL_OK) == ATOLL_IO);
  CHECK(strstr(atoll_err_message(), "rank 1: the file system"));
  CHECK_OK(atoll_agree(MPI_COMM_WORLD, ATOLL_OK));
  return check_end();
}
