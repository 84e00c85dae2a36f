/* A launcher that started N tasks, each alone, is refused with advice; what mpirun says counts before Slurm's numbers.
 * Run without mpirun: the process is a world of one. */
#include "mpi_check.h"

int main(int argc, char **argv) {
  unsetenv("OMPI_COMM_WORLD_SIZE");
  unsetenv("PMI_SIZE");
  unsetenv("SLURM_STEP_NUM_TASKS");
  unsetenv("SLURM_NTASKS");
  unsetenv("SLURM_STEP_ID");
  unsetenv("SLURM_STEPID");
  unsetenv("SLURM_HET_SIZE");
  const char *launched = getenv("TEST_LAUNCHED");
  if (launched)
    setenv("OMPI_COMM_WORLD_SIZE", launched, 1);
  check_begin(&argc, &argv);
  CHECK(check_size == 1);
  if (launched) { /* "3": a launcher of 3 whose processes do not find each other; Slurm agreeing with 1 does not help */
    setenv("SLURM_STEP_NUM_TASKS", "1", 1);
    CHECK(atoll_mpi_check_world(MPI_COMM_WORLD) == ATOLL_MISMATCH);
    CHECK(strstr(atoll_err_message(), "started 3 tasks"));
    return check_end();
  }
  CHECK_OK(atoll_mpi_check_world(MPI_COMM_WORLD));
  setenv("SLURM_NTASKS", "4", 1); /* the batch script itself: one process is fine */
  CHECK_OK(atoll_mpi_check_world(MPI_COMM_WORLD));
  setenv("SLURM_STEP_ID", "0", 1);
  CHECK(atoll_mpi_check_world(MPI_COMM_WORLD) == ATOLL_MISMATCH);
  CHECK(strstr(atoll_err_message(), "4 tasks (SLURM_NTASKS)") && strstr(atoll_err_message(), "world of 1"));
  setenv("SLURM_STEP_NUM_TASKS", "1", 1);
  CHECK_OK(atoll_mpi_check_world(MPI_COMM_WORLD));
  setenv("SLURM_STEP_NUM_TASKS", "8", 1);
  CHECK(atoll_mpi_check_world(MPI_COMM_WORLD) == ATOLL_MISMATCH);
  setenv("SLURM_HET_SIZE", "3", 1);
  CHECK(atoll_mpi_check_world(MPI_COMM_WORLD) == ATOLL_MISMATCH);
  setenv("SLURM_STEP_NUM_TASKS", "1", 1);
  CHECK_OK(atoll_mpi_check_world(MPI_COMM_WORLD));
  return check_end();
}
