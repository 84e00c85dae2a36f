# Sourced first by every case script. A case runs in its own empty folder $ATOLL_WORK and may use:
#
#   run CMD...            must exit 0; output is kept in $ATOLL_LAST_OUT and shown when it does not
#   expect CODE CMD...    must exit CODE (output kept the same way)
#   says TEXT             the last output contains TEXT (a fixed string)
#   atoll NAME            path of a program of this build
#   mpi N CMD...          the command line that runs CMD on N ranks; use as: run mpi 2 "$(atoll atoll-train)" job.yaml
#   sourcefile PATH       a file of the tree, e.g. inputs/jobs/quick.yaml
#   shared PATH           a file of the shared data folder, or a skip when there is none
#   together NAME...      the functions NAME at the same time, each with a last output of its own; all must succeed
#   fail TEXT, skip TEXT
#
# ATOLL_SOURCE_DIR, ATOLL_BUILD_DIR and ATOLL_WORK come from CTest.
set -u
: "${ATOLL_SOURCE_DIR:?run through ctest}" "${ATOLL_BUILD_DIR:?}" "${ATOLL_WORK:?}"
. "$ATOLL_SOURCE_DIR/regression/lib/mpi-env.sh"
export LC_ALL=C
export PATH=$ATOLL_BUILD_DIR/bin:$PATH

# Only ever emptied below the build tree.
case $ATOLL_WORK in
  "$ATOLL_BUILD_DIR"/*/work/*) ;;
  *) echo "ATOLL_WORK is $ATOLL_WORK, expected a work/ folder of the build tree" && exit 1 ;;
esac
mkdir -p "$ATOLL_WORK"
find "$ATOLL_WORK" -mindepth 1 -delete
cd "$ATOLL_WORK" || exit 1

ATOLL_LAST_OUT=$ATOLL_WORK/last.out
ATOLL_SHARED=${ATOLL_SHARED:-$ATOLL_SOURCE_DIR/../shared}

fail() {
  printf 'FAILED: %s\n' "$*"
  exit 1
}

skip() {
  printf 'SKIPPED: %s\n' "$*"
  exit 77
}

expect() {
  local want=$1 got
  shift
  if [ "$1" = mpi ]; then # a function cannot be run by timeout or env; it only rewrites the command line
    local ranks=$2
    shift 2
    set -- "${ATOLL_MPIRUN[@]}" -np "$ranks" "$@"
  fi
  "$@" >"$ATOLL_LAST_OUT" 2>&1 </dev/null
  got=$?
  if [ "$got" != "$want" ]; then
    printf 'exit %s, expected %s: %s\n' "$got" "$want" "$*"
    tail -n 60 "$ATOLL_LAST_OUT"
    exit 1
  fi
}

run() { expect 0 "$@"; }

says() {
  grep -qF -- "$1" "$ATOLL_LAST_OUT" && return 0
  printf 'expected the output to contain: %s\n' "$1"
  tail -n 60 "$ATOLL_LAST_OUT"
  exit 1
}

together() {
  local name i=0 pids=() failed=
  for name in "$@"; do
    (ATOLL_LAST_OUT=$ATOLL_WORK/last-$name.out && "$name") >"story-$name" 2>&1 &
    pids+=($!)
  done
  for name in "$@"; do
    wait "${pids[i++]}" || failed="$failed $name"
    cat "story-$name"
  done
  [ -z "$failed" ] || fail "of functions together:$failed"
}

atoll() { printf '%s/bin/%s' "$ATOLL_BUILD_DIR" "$1"; }

sourcefile() { printf '%s/%s' "$ATOLL_SOURCE_DIR" "$1"; }

# Call as: file=$(shared data/x) || exit $?   (a subshell cannot end its caller)
shared() {
  if [ ! -e "$ATOLL_SHARED/$1" ]; then
    printf 'SKIPPED: no %s; set ATOLL_SHARED\n' "$ATOLL_SHARED/$1" >&2
    exit 77
  fi
  printf '%s/%s' "$ATOLL_SHARED" "$1"
}

# A program outside the tree that loads sanitized libraries needs the same runtime; $1 is put before the flags.
sanitized_flags() {
  local sanitize
  sanitize=$(sed -n 's/^ATOLL_SANITIZE:STRING=//p' "$ATOLL_BUILD_DIR/CMakeCache.txt")
  [ -z "$sanitize" ] || printf '%s-fsanitize=%s' "${1:-}" "$sanitize"
}
