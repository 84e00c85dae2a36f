/* Bytes shared by one rank and gathered from all arrive whole: empty, odd, and larger than one MPI operation may be
 * (the limit is lowered by ATOLL_TEST_COMM_LIMIT). */
#include "mpi_check.h"

static unsigned char byte_at(int rank, int64_t i) { return (unsigned char)(i * 31 + rank * 7 + 3); }

static char *filled(int rank, int64_t n) {
  char *p = malloc(n ? (size_t)n : 1);
  for (int64_t i = 0; i < n; i++)
    p[i] = (char)byte_at(rank, i);
  return p;
}

int main(int argc, char **argv) {
  check_begin(&argc, &argv);
  const int64_t sizes[] = {0, 1, 63, 64, 65, 1000, 4099};
  for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
    for (int root = 0; root < check_size; root++) {
      int64_t n = -1;
      void *got = NULL;
      char *mine = check_rank == root ? filled(root, sizes[s]) : NULL;
      CHECK_OK(atoll_share_bytes(MPI_COMM_WORLD, root, mine, check_rank == root ? sizes[s] : 12345, &got, &n));
      CHECK(n == sizes[s] && got != mine);
      for (int64_t i = 0; i < n; i++)
        CHECK(((unsigned char *)got)[i] == byte_at(root, i));
      free(got);
      free(mine);
    }
  for (int scale = 1; scale <= 100; scale *= 10) {
    int64_t n = (int64_t)check_rank * 5 * scale, *offset = NULL; /* rank 0 has nothing */
    void *got = NULL;
    char *mine = filled(check_rank, n);
    CHECK_OK(atoll_gather_bytes(MPI_COMM_WORLD, n ? mine : NULL, n, &got, &offset));
    CHECK(offset[0] == 0);
    for (int r = 0; r < check_size; r++) {
      CHECK(offset[r + 1] - offset[r] == (int64_t)r * 5 * scale);
      for (int64_t i = 0; i < offset[r + 1] - offset[r]; i++)
        CHECK(((unsigned char *)got)[offset[r] + i] == byte_at(r, i));
    }
    free(got);
    free(offset);
    free(mine);
  }
  void *got = NULL;
  int64_t n = 0, *offset = NULL;
  CHECK(atoll_share_bytes(MPI_COMM_WORLD, 1, "", check_rank == 1 ? -4 : 0, &got, &n) == ATOLL_USAGE);
  CHECK(atoll_gather_bytes(MPI_COMM_WORLD, "", check_rank == 1 ? -1 : 1, &got, &offset) == ATOLL_USAGE);
  CHECK(atoll_share_bytes(MPI_COMM_WORLD, check_size, "", 0, &got, &n) == ATOLL_USAGE);
  CHECK(!got && !offset);
  return check_end();
}
