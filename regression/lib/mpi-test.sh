#!/usr/bin/env bash
# mpi-test.sh RANKS PROGRAM [ARGS...]   run one test program on RANKS ranks of this host, with ATOLL_TEST_ONE_CORE=1 all on
# the first core that they may use
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/mpi-env.sh"
ranks=$1
shift
one=()
if [ "${ATOLL_TEST_ONE_CORE:-0}" = 1 ]; then
  core=$(grep Cpus_allowed_list /proc/self/status | grep -o '[0-9]*' | head -n 1)
  one=(taskset -c "$core")
fi
exec "${one[@]}" "${ATOLL_MPIRUN[@]}" -np "$ranks" "$@"
