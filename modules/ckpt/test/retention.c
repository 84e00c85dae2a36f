/* Newest N are kept, and always the newest whose loss was finite; leftovers of saves that never ended go; damaged ones
 * are skipped with a report. */
#include "ckpt_test.h"

static int there(int64_t step) {
  char path[64];
  snprintf(path, sizeof path, "ckpt-keep/step-%08lld.a1", (long long)step);
  return atoll_file_exists(path);
}

int main(int argc, char **argv) {
  char dir[1024], *report;
  CHECK(atoll_mpi_init(&argc, &argv) == ATOLL_OK);
  CHECK(atoll_file_remove_tree("ckpt-keep") == ATOLL_OK);
  for (int64_t s = 1; s <= 6; s++)
    CHECK(save_model(MPI_COMM_WORLD, "ckpt-keep", s, 1, s <= 3) == ATOLL_OK); /* from 4 on the loss is NaN */
  CHECK(atoll_file_mkdirs("ckpt-keep/step-00000007.a1.tmp") == ATOLL_OK);
  CHECK(atoll_ckpt_retain(MPI_COMM_WORLD, "ckpt-keep", 2, 2) == ATOLL_OK);
  CHECK(!there(1) && !there(2) && there(3) && !there(4) && there(5) && there(6));
  CHECK(!atoll_file_exists("ckpt-keep/step-00000007.a1.tmp"));
  CHECK(atoll_file_remove_tree("ckpt-keep/step-00000006.a1/COMMIT") == ATOLL_OK);
  CHECK(atoll_ckpt_find(MPI_COMM_WORLD, "ckpt-keep", dir, sizeof dir, &report) == ATOLL_OK);
  CHECK(!strcmp(dir, "ckpt-keep/step-00000005.a1"));
  CHECK(report && strstr(report, "step-00000006.a1") && strstr(report, "COMMIT"));
  free(report);
  CHECK(atoll_file_remove_tree("ckpt-keep") == ATOLL_OK);
  CHECK(atoll_ckpt_find(MPI_COMM_WORLD, "ckpt-keep", dir, sizeof dir, &report) == ATOLL_NOINPUT);
  CHECK(report == NULL);
  /* A path may hold a line break. */
  CHECK(atoll_file_remove_tree("ckpt\nkeep") == ATOLL_OK);
  CHECK(save_model(MPI_COMM_WORLD, "ckpt\nkeep", 1, 1, 1) == ATOLL_OK);
  CHECK(atoll_ckpt_find(MPI_COMM_WORLD, "ckpt\nkeep", dir, sizeof dir, &report) == ATOLL_OK);
  CHECK(!strcmp(dir, "ckpt\nkeep/step-00000001.a1") && report == NULL);
  /* Ranks share the checking of the files; none may be left out. */
  char **names, path[1200];
  size_t n;
  CHECK(atoll_file_list(dir, &names, &n) == ATOLL_OK && n > 4);
  for (size_t i = 0; i < n; i++) {
    CHECK(atoll_path_join(path, sizeof path, dir, names[i]) == ATOLL_OK);
    CHECK(atoll_file_rename(path, "ckpt-away") == ATOLL_OK);
    CHECK(atoll_ckpt_find(MPI_COMM_WORLD, "ckpt\nkeep", dir, sizeof dir, &report) == ATOLL_NOINPUT);
    free(report);
    CHECK(atoll_file_rename("ckpt-away", path) == ATOLL_OK);
  }
  atoll_file_list_free(&names, n);
  CHECK(atoll_file_remove_tree("ckpt\nkeep") == ATOLL_OK);
  MPI_Finalize();
  return 0;
}
