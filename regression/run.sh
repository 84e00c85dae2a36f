#!/usr/bin/env bash
# regression/run.sh [-L LABEL] [any ctest argument]
#
# Installs what is missing, builds, and runs the test suite; without arguments all of it. Labels: unit mpi fault
# regression slurm install (and gpu). Ends with CTest's summary and its exit status. ATOLL_PRESET chooses another
# preset than release.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
. regression/lib/setup.sh
preset=${ATOLL_PRESET:-release}

echo "== set-up"
atoll_setup --tests && atoll_check_cmake || exit 1
echo "== build, preset $preset"
log=build/$preset.configure.log
mkdir -p build
if ! cmake --preset "$preset" >"$log" 2>&1; then
  cat "$log"
  exit 1
fi
sed -n '/^  Atoll /,/^$/p' "$log"
cmake --build --preset "$preset" || exit 1
echo "== test, preset $preset"
# Ranks that start and wait leave cores idle: a test more than there are cores.
exec ctest --preset "$preset" --parallel "$(($(nproc) + 1))" "$@"
