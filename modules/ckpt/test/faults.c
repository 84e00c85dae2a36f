/* Every file operation of a save fails once, on either rank: both ranks get the same error, nothing with a final name
 * is left, and the checkpoint before stays good. The failure is walked forward until a save meets none. */
#include "ckpt_test.h"

#include "atoll/fault.h"

int main(int argc, char **argv) {
  static const char *const calls[] = {"open", "write", "fsync", "rename", "mkdir", "dirsync", "close"};
  int rank, walked = 0, parent_synced = 0;
  char dir[1024], *report, rule[64], **names;
  size_t files;
  CHECK(atoll_mpi_init(&argc, &argv) == ATOLL_OK);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0)
    CHECK(atoll_file_remove_tree("ckpt-faults") == ATOLL_OK);
  MPI_Barrier(MPI_COMM_WORLD);
  CHECK(save_model(MPI_COMM_WORLD, "ckpt-faults", 1, 1, 1) == ATOLL_OK);
  for (size_t c = 0; c < sizeof calls / sizeof *calls; c++)
    for (int victim = 0; victim < 2; victim++) {
      int passed = 0;
      for (int nth = 1; nth < 60 && !passed; nth++) {
        snprintf(rule, sizeof rule, "fail:%s:%d:ENOSPC:%d", calls[c], nth, victim);
        CHECK(atoll_fault_set(rule, rank) == ATOLL_OK);
        atoll_err err = save_model(MPI_COMM_WORLD, "ckpt-faults", 2, (int)c * 200 + victim * 100 + nth, 1);
        parent_synced |= err != ATOLL_OK && strstr(atoll_err_message(), "sync directory ckpt-faults:");
        CHECK(atoll_fault_set("", rank) == ATOLL_OK);
        int mine = (int)err, low, high;
        MPI_Allreduce(&mine, &low, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
        MPI_Allreduce(&mine, &high, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
        CHECK(low == high); /* ranks leave together */
        CHECK(atoll_ckpt_verify("ckpt-faults/step-00000001.a1") == ATOLL_OK);
        CHECK(atoll_ckpt_find(MPI_COMM_WORLD, "ckpt-faults", dir, sizeof dir, &report) == ATOLL_OK);
        CHECK(report == NULL); /* what has a final name is whole */
        if (err != ATOLL_OK) {
          snprintf(dir, sizeof dir, "ckpt-faults/step-00000002.a%d", (int)c * 200 + victim * 100 + nth);
          CHECK(err == ATOLL_IO && !atoll_file_exists(dir)); /* so that the same step can be saved again */
          walked++;
        } else {
          CHECK(atoll_ckpt_verify(dir) == ATOLL_OK);
          CHECK(atoll_file_list(dir, &names, &files) == ATOLL_OK);
          if (!strcmp(calls[c], "fsync") && victim == 0) /* every file was synced, also the shards */
            CHECK((size_t)nth - 1 >= files);
          atoll_file_list_free(&names, files);
          passed = 1;
        }
        MPI_Barrier(MPI_COMM_WORLD);
      }
      CHECK(passed);
    }
  CHECK(walked > 20 && parent_synced); /* the walk did meet failures, that of the new name's sync among them */
  /* Shards are read back before COMMIT: a disk that cannot give back what it took is found out then, not at resume. */
  CHECK(atoll_fault_set("fail:read:1:EIO:0", rank) == ATOLL_OK); /* the last rank has no shard */
  CHECK(save_model(MPI_COMM_WORLD, "ckpt-faults", 3, 1, 1) == ATOLL_IO);
  CHECK(atoll_fault_set("", rank) == ATOLL_OK);
  if (rank == 0) {
    printf("%d failures walked\n", walked);
    CHECK(atoll_file_remove_tree("ckpt-faults") == ATOLL_OK);
  }
  MPI_Finalize();
  return 0;
}
