#!/bin/bash
# Try a job on a test allocation, or on this machine when there is none.
#
#   salloc -N2 --ntasks-per-node=1 -t 30 ./interactive.sh JOB.yaml [key=value ...]
#   ./interactive.sh [-n RANKS] JOB.yaml [key=value ...]
#
# Ctrl-C stops with a checkpoint; a second one, a moment later, aborts. Never requeues; exit status 75 says: the same command resumes.

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=lib.sh
. "$here/lib.sh"

if [ "${1:-}" = -n ]; then
  case ${2:-} in '' | *[!0-9]* | 0*) atoll_die 64 "-n wants a number of ranks, found '${2:-}'" ;; esac
  SLURM_NTASKS=$2
  [ -z "${SLURM_JOB_ID:-}" ] || export SLURM_NTASKS
  shift 2
fi
export ATOLL_REQUEUE=0
ATOLL_OWN_GROUP=1
trap 'atoll_signal INT' INT
atoll_begin "$@"
atoll_train
atoll_end
