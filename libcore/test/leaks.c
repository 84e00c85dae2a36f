/* One thing that is never freed, by name, between MPI's start and its end. */
#include "mpi_check.h"

static void *volatile kept;

static void lose(const char *what) {
  MPI_Comm comm;
  MPI_Datatype type;
  if (strcmp(what, "memory") == 0)
    kept = malloc(100);
  if (strcmp(what, "communicator") == 0)
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  if (strcmp(what, "datatype") == 0)
    MPI_Type_contiguous(3, MPI_INT, &type);
  kept = NULL;
}

int main(int argc, char **argv) {
  check_begin(&argc, &argv);
  lose(argv[1]);
  return check_end();
}
