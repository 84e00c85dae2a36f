# The template, unedited, over four nodes of two kinds, the second really slower: two islands, an uneven layer split that beats the even one, and stage times as
# predicted (see check_islands.py).
. "$ATOLL_SOURCE_DIR/regression/lib/case.sh"
. "$ATOLL_SOURCE_DIR/regression/slurm/cluster.sh"
PY=/usr/bin/python3
"$PY" -c 'import h5py, numpy' 2>/dev/null || skip 'python3-h5py is not installed'
cluster_start
# Together they use 2/6 + 2/12 of a core of two, so that they do not slow each other more than they are meant to.
export ATOLL_CASE_PACE_FAST=6 ATOLL_CASE_PACE_SLOW=12
cat >job.yaml <<YAML
model: {family: gpt2, layers: 9, width: 160, heads: 4, context: 64, vocab: 256}
data: {train: $(sourcefile inputs/corpora/kjv-train.txt), validation: $(sourcefile inputs/corpora/kjv-heldout.txt)}
train: {seq: 64, global_batch: 16, steps: 8, decay_steps: 8, validate_windows: 16, log_every: 4}
plan: {micro_batch: 2, data_parallel: 1, stages: 4}
topo: {path: $(sourcefile inputs/clusters/mixed-2x2), probe_seconds: 8}
YAML
nodes='--nodes=4 --ntasks-per-node=1 --cpus-per-task=1 --time=10'
for try in 1 2 3 4 5; do # the machine is shared: times may be disturbed, and the plan follows measured ones; islands are declared
  batch $nodes "$(sourcefile slurm/train.sbatch)" job.yaml run.dir=runs/planned$try
  status_is 0
  says '2 islands'
  batch $nodes "$(sourcefile slurm/train.sbatch)" job.yaml run.dir=runs/even$try plan.layers=2,3,2,2
  status_is 0
  "$PY" "$(sourcefile regression/slurm/check_islands.py)" runs/planned$try runs/even$try
  got=$?
  [ $got = 0 ] && break
done
[ $got != 1 ] || fail 'the plan is not what two kinds of nodes ask for'
[ $got = 0 ] || fail 'predicted and measured times differ in each of five runs'
run "$(atoll atoll-inspect)" verify runs/planned$try
