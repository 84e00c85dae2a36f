# Sourced by the test launchers: what several ranks on few cores need, and root in a container.
# yield_when_idle decides everything on two cores: without it waiting ranks spin and take the core from the working one.
export OMPI_MCA_mpi_yield_when_idle=1
export OMPI_MCA_rmaps_base_oversubscribe=1
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
# And threads at a barrier likewise: where other programs have the cores, spinning made a run of one rank five times as long.
export OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-passive}"
if [ "$(id -u)" = 0 ]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
# Container runtimes forbid the system call behind single-copy transfers, and Open MPI then complains once per message.
if [ -e /.dockerenv ] || [ -e /run/.containerenv ]; then
  export OMPI_MCA_btl_vader_single_copy_mechanism=none
fi
# Short session paths: Open MPI puts unix sockets there and their names are limited to about 100 bytes.
export TMPDIR="${TMPDIR:-/tmp}"
ATOLL_MPIRUN=(mpirun --oversubscribe --bind-to none)
