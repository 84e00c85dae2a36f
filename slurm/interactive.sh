#!/bin/bash
# Try a job on a test allocation, or on this machine when there is none.
#
#   salloc -N2 --ntasks-per-node=1 -t 30 ./interactive.sh JOB.yaml [key=value ...]
#   ./interactive.sh JOB.yaml [key=value ...]
#
# Ctrl-C stops with a checkpoint; a second one aborts. Never requeues.

here=$(cd "$(dirname "$0")" && pwd)
ATOLL_ROOT=${ATOLL_ROOT:-$(cd "$here/.." && pwd)}
case "$here" in */share/atoll/slurm) ATOLL_ROOT=$(cd "$here/../../.." && pwd) ;; esac
. "$here/lib.sh"

export ATOLL_REQUEUE=0
[ -z "${SLURM_JOB_ID:-}" ] && export ATOLL_LAUNCHER=${ATOLL_LAUNCHER:-mpirun}
atoll_begin "$@"
trap 'atoll_forward INT' INT
atoll_train
atoll_end
