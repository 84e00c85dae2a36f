/* The launcher behind every mpi test starts as many ranks as the test declares, tells waiting ranks to yield, and hands
 * a failing rank's status on. Without the first a test of three ranks passes as three tests of one. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
  int rank = 0, size = 0, sum = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  const char *yield = getenv("OMPI_MCA_mpi_yield_when_idle");
  int bad = argc != 3 || size != atoi(argv[1]) || sum != size * (size - 1) / 2 || !yield || strcmp(yield, "1") != 0;
  if (bad)
    printf("rank %d of %d: sum %d, yield %s\n", rank, size, sum, yield ? yield : "unset");
  MPI_Finalize();
  if (bad)
    return 1;
  return rank == size - 1 ? atoi(argv[2]) : 0;
}
