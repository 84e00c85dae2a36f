/* A checkpoint that cannot be read for a passing reason (a disk that answers EIO, a folder without permission) is
 * walked past where an older one is good; where none is, the answer is IO with their names and not "there is none",
 * which would begin the training anew. */
#include "ckpt_test.h"

#include "atoll/fault.h"

static char dir[1024], *report;

static atoll_err find_under(const char *rule, int rank) {
  free(report);
  CHECK(atoll_fault_set(rule, rank) == ATOLL_OK);
  atoll_err err = atoll_ckpt_find(MPI_COMM_WORLD, "ckpt-unread", dir, sizeof dir, &report);
  char message[1024];
  snprintf(message, sizeof message, "%s", atoll_err_message());
  CHECK(atoll_fault_set("", rank) == ATOLL_OK);
  atoll_err_set_message(message);
  return err;
}

static int names_both(const char *text) {
  return text && strstr(text, "step-00000001.a1") && strstr(text, "step-00000002.a1");
}

static void cut_commit(const char *path) {
  FILE *f = fopen(path, "w");
  CHECK(f && fclose(f) == 0);
}

int main(int argc, char **argv) {
  int rank;
  CHECK(atoll_mpi_init(&argc, &argv) == ATOLL_OK);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0)
    CHECK(atoll_file_remove_tree("ckpt-unread") == ATOLL_OK);
  MPI_Barrier(MPI_COMM_WORLD);
  CHECK(save_model(MPI_COMM_WORLD, "ckpt-unread", 1, 1, 1) == ATOLL_OK);
  CHECK(save_model(MPI_COMM_WORLD, "ckpt-unread", 2, 1, 1) == ATOLL_OK);
  /* The folder itself is closed to rank 0, or its disk does not answer: nobody knows names. */
  CHECK(find_under("fail:open:*:EACCES:0", rank) == ATOLL_IO && strstr(atoll_err_message(), "ckpt-unread"));
  CHECK(find_under("fail:read:*:EIO:0", rank) == ATOLL_IO && strstr(atoll_err_message(), "ckpt-unread"));
  CHECK(find_under("fail:stat:1:EACCES:0", rank) == ATOLL_OK); /* not to be looked at is not missing */
  /* Rank 1 cannot read its share of the files. */
  CHECK(find_under("fail:read:*:EIO:1", rank) == ATOLL_IO && names_both(atoll_err_message()));
  CHECK(find_under("fail:open:*:EACCES:1", rank) == ATOLL_IO && names_both(atoll_err_message()));
  CHECK(find_under("fail:read:1:EIO:1", rank) == ATOLL_OK); /* rank 1's shard of the newer one */
  CHECK(!strcmp(dir, "ckpt-unread/step-00000001.a1") && strstr(report, "step-00000002.a1"));
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0)
    cut_commit("ckpt-unread/step-00000002.a1/COMMIT");
  MPI_Barrier(MPI_COMM_WORLD);
  CHECK(find_under("fail:read:*:EIO:1", rank) == ATOLL_IO &&
        names_both(atoll_err_message())); /* one damaged, one unread */
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0)
    CHECK(atoll_file_remove_tree("ckpt-unread/step-00000001.a1/COMMIT") == ATOLL_OK);
  MPI_Barrier(MPI_COMM_WORLD);
  CHECK(find_under("", rank) == ATOLL_NOINPUT && names_both(report)); /* damage does not pass */
  free(report);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0)
    CHECK(atoll_file_remove_tree("ckpt-unread") == ATOLL_OK);
  MPI_Finalize();
  return 0;
}
