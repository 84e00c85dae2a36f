/* What ranks wrote in row shares, a rank without any among them, is read back whole, in other shares, in column blocks
 * and by one rank alone; a tensor beyond one image is cut; wrong shapes, unknown tensors and doubly given parts are
 * refused by name. */
#include "ckpt_test.h"

static void read_all_ways(const char *dir, int rank, int size) {
  atoll_tensor t[TEST_TENSORS];
  /* the same shares */
  int n = make_model(t, rank, size, 0);
  CHECK(atoll_ckpt_load(MPI_COMM_WORLD, dir, t, n) == ATOLL_OK);
  for (int i = 0; i < n; i++)
    CHECK(block_is_right(&t[i]));
  free_model(t, n);
  /* whole, each rank for itself */
  n = make_model(t, 0, 1, 0);
  CHECK(n == TEST_TENSORS);
  CHECK(atoll_ckpt_load(MPI_COMM_SELF, dir, t, n) == ATOLL_OK);
  for (int i = 0; i < n; i++)
    CHECK(block_is_right(&t[i]));
  free_model(t, n);
  /* an inner block: rows and columns */
  const int64_t global[2] = {37, 11}, start[2] = {3 + rank, 2}, count[2] = {20, 5}, cube[3] = {5, 4, 3},
                cube_start[3] = {1, 1, 1}, cube_count[3] = {3, 2, 2};
  make_block(&t[0], "param/w", 2, global, start, count, 0);
  make_block(&t[1], "moment2/cube", 3, cube, cube_start, cube_count, 0);
  CHECK(atoll_ckpt_load(MPI_COMM_WORLD, dir, t, 2) == ATOLL_OK);
  CHECK(block_is_right(&t[0]) && block_is_right(&t[1]));
  free_model(t, 2);
}

static void refusals(const char *dir) {
  atoll_tensor t;
  const int64_t other[2] = {37, 12}, vector[1] = {101};
  make_block(&t, "param/w", 2, other, NULL, NULL, 0);
  CHECK(atoll_ckpt_load(MPI_COMM_WORLD, dir, &t, 1) == ATOLL_MISMATCH);
  CHECK(strstr(atoll_err_message(), "param/w") && strstr(atoll_err_message(), "37 x 11") &&
        strstr(atoll_err_message(), "37 x 12"));
  free(t.data);
  make_block(&t, "param/absent", 1, vector, NULL, NULL, 0);
  CHECK(atoll_ckpt_load(MPI_COMM_WORLD, dir, &t, 1) == ATOLL_MISMATCH);
  CHECK(strstr(atoll_err_message(), "param/absent"));
  free(t.data);
}

/* Two ranks that give the same rows, and rows that nobody gives. */
static void bad_covers(int rank) {
  atoll_tensor t;
  char made[1024];
  atoll_ckpt_params p;
  atoll_ckpt_meta m = {.step = 99, .attempt = 9};
  const int64_t global[1] = {8}, start[1] = {4}, count[1] = {4};
  atoll_ckpt_params_init(&p);
  make_block(&t, "param/x", 1, global, rank == 0 ? NULL : start, rank == 0 ? NULL : count, 1);
  CHECK(atoll_ckpt_save(MPI_COMM_WORLD, NULL, NULL, "ckpt-reshard", &p, &m, &t, rank < 2, made, sizeof made) ==
        ATOLL_INTERNAL);
  CHECK(strstr(atoll_err_message(), "param/x"));
  free(t.data);
  make_block(&t, "param/x", 1, global, start, count, 1);
  CHECK(atoll_ckpt_save(MPI_COMM_WORLD, NULL, NULL, "ckpt-reshard", &p, &m, &t, rank == 0, made, sizeof made) ==
        ATOLL_INTERNAL);
  CHECK(strstr(atoll_err_message(), "4 of 8 elements of param/x"));
  free(t.data);
  CHECK(!atoll_file_exists("ckpt-reshard/step-00000099.a9") && !atoll_file_exists("ckpt-reshard/step-00000099.a9.tmp"));
}

/* 70 MiB on one rank: two images. */
static void large(int rank) {
  atoll_tensor t;
  char made[1024], path[1200];
  atoll_ckpt_params p;
  atoll_ckpt_meta m = {.step = 3, .attempt = 1, .finite = 1};
  atoll_mem *mem = NULL;
  const int64_t global[2] = {70, 1 << 18};
  atoll_ckpt_params_init(&p);
  CHECK(atoll_mem_create(0, 0, &mem) == ATOLL_OK);
  make_block(&t, "param/large", 2, global, NULL, NULL, rank == 0);
  CHECK(atoll_ckpt_save(MPI_COMM_WORLD, NULL, mem, "ckpt-reshard", &p, &m, &t, rank == 0, made, sizeof made) ==
        ATOLL_OK);
  snprintf(path, sizeof path, "%s/shard-0000-001.h5", made);
  CHECK(atoll_file_exists(path));
  CHECK(atoll_mem_peak(mem, ATOLL_MEM_CHECKPOINT) == (rank == 0 ? atoll_ckpt_image_bytes(&t, 1) : 0));
  CHECK(atoll_mem_peak(mem, ATOLL_MEM_CHECKPOINT) <= ATOLL_CKPT_IMAGE_BYTES);
  memset(t.data, 0, (size_t)atoll_tensor_local_bytes(&t));
  CHECK(atoll_ckpt_load(MPI_COMM_WORLD, made, &t, 1) == ATOLL_OK);
  CHECK(block_is_right(&t));
  free(t.data);
  atoll_mem_destroy(&mem, NULL);
}

int main(int argc, char **argv) {
  int rank, size;
  char dir[1024], *report;
  CHECK(atoll_mpi_init(&argc, &argv) == ATOLL_OK);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (rank == 0)
    CHECK(atoll_file_remove_tree("ckpt-reshard") == ATOLL_OK);
  MPI_Barrier(MPI_COMM_WORLD);
  CHECK(save_model(MPI_COMM_WORLD, "ckpt-reshard", 12, 1, 1) == ATOLL_OK);
  CHECK(atoll_ckpt_find(MPI_COMM_WORLD, "ckpt-reshard", dir, sizeof dir, &report) == ATOLL_OK);
  CHECK(report == NULL && !strcmp(dir, "ckpt-reshard/step-00000012.a1"));
  atoll_ckpt_meta m;
  CHECK(atoll_ckpt_read_meta(dir, &m) == ATOLL_OK);
  CHECK(m.step == 12 && m.tokens == 1200 && m.seed == 18446744073709551615u && m.finite);
  CHECK(m.last_loss == 7.0 / 3 && m.best_validation == 5.0 / 3); /* every bit */
  CHECK(!strcmp(m.plan, "version: 1\n") && !strcmp(m.config, "train.seq: 4\n") && !strcmp(m.reason, "periodic"));
  atoll_ckpt_meta_free(&m);
  read_all_ways(dir, rank, size);
  refusals(dir);
  if (size > 1)
    bad_covers(rank);
  large(rank);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0)
    CHECK(atoll_file_remove_tree("ckpt-reshard") == ATOLL_OK);
  MPI_Finalize();
  return 0;
}
