#!/usr/bin/env bash
# ./quickstart.sh   install what is missing, build, train a small model on the King James Bible with two MPI ranks,
# and show the result. Takes a few minutes on two cores. Run it again whenever you like: it builds only what changed
# and never touches an earlier run.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")" || exit 1
. regression/lib/setup.sh
say() { printf '\n== %s\n' "$*"; }
die() {
  printf '\nquickstart: %s\n' "$*" >&2
  exit 1
}

say "packages"
atoll_setup || exit 1
atoll_check_cmake || exit 1

installed=$SECONDS
say "build (preset release, into build/release)"
mkdir -p build
if ! cmake --preset release >build/release.configure.log 2>&1; then
  cat build/release.configure.log
  die "configuring failed; INSTALL, \"Troubleshooting\", may help"
fi
sed -n '/^  Atoll /,/^$/p' build/release.configure.log
cmake --build --preset release || die "the build failed"
bin=build/release/bin

built=$SECONDS
say "train inputs/jobs/quick.yaml on 2 ranks"
. regression/lib/mpi-env.sh
unset OMP_NUM_THREADS # the program gives each rank its share of the cores
run=runs/quick
number=1
while [ -e "$run" ]; do
  number=$((number + 1))
  run=runs/quick-$number
done
[ "$number" = 1 ] || echo "earlier runs are kept as they are; this one goes to $run"
command="${ATOLL_MPIRUN[*]} -np 2 $bin/atoll-train inputs/jobs/quick.yaml run.dir=$run"
echo "$command"
"${ATOLL_MPIRUN[@]}" -np 2 "$bin/atoll-train" inputs/jobs/quick.yaml run.dir="$run" </dev/null
status=$?
[ "$status" = 0 ] || die "atoll-train ended with status $status; see $run/log and README, \"Exit codes\""

trained=$SECONDS
say "loss over the steps"
"$bin/atoll-inspect" plot "$run" --terminal || die "atoll-inspect plot failed"
"$bin/atoll-inspect" status "$run" || die "the run does not call itself finished"

root_hint=""
[ "$(id -u)" != 0 ] || root_hint="  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1   # mpirun wants this from root
"
last=$(find "$run/ckpt" -mindepth 1 -maxdepth 1 -name 'step-*' | sort | tail -n 1)
cat <<EOT

== done in $SECONDS s: packages $installed, build $((built - installed)), training $((trained - built))

  $run/run.h5    topology, islands, plan, metrics, memory, counters
  $last    the last checkpoint; model.h5 in it shows every parameter whole
  $run/log    what each rank had to say

Have a look:
  $bin/atoll-inspect ls $run
  $bin/atoll-inspect metrics $run
  $bin/atoll-inspect counters $run
  $bin/atoll-inspect plot $run --svg loss.svg
  $bin/atoll-inspect verify $last
  h5ls -r $run/run.h5
  $bin/atoll-topo
Train on from there:
$root_hint  $command train.steps=600
EOT
