#!/usr/bin/env bash
# mpi-test.sh RANKS PROGRAM [ARGS...]   run one test program on RANKS ranks of this host
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/mpi-env.sh"
ranks=$1
shift
exec "${ATOLL_MPIRUN[@]}" -np "$ranks" "$@"
