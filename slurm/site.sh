# shellcheck shell=bash
# Site file: every choice a cluster may want to make about Atoll's jobs, in one place. Copy it, point ATOLL_SITE at the copy, edit.
# All of it may stay commented; where a line shows another value than the default, the default stands beside it. `export ATOLL_SITE=FILE`
# before sbatch; a copy edited in place is read as well.

# Modules that the programs were built with:
#module load openmpi hdf5-parallel hwloc

# Where the programs are, when not below ATOLL_ROOT:
#ATOLL_BIN=/apps/atoll/bin

# Launcher: auto asks `srun --mpi=list` and falls back to mpirun when the ranks do not get to begin; srun or mpirun force one. More
# words for it, split at blanks:
#ATOLL_LAUNCHER=auto
#ATOLL_LAUNCH_OPTIONS="--cpu-bind=none"

# How often a job may be requeued after it stopped early or died; 0 in ATOLL_REQUEUE leaves that to you.
#ATOLL_REQUEUE_CAP=20
#ATOLL_REQUEUE=1

# Refuse to start with less than this free in the run directory's file system (KiB):
#ATOLL_FREE_KIB=1048576                      # default 1024

# Open MPI settings that some file systems and networks need:
#export OMPI_MCA_btl_tcp_if_include=ib0
#export HDF5_USE_FILE_LOCKING=FALSE          # file systems without flock
