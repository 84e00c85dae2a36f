# One rank killed in each phase, rank 0 or another, or fallen silent: the job ends everywhere within a minute with a non-zero code, what was committed stays good, and the
# same command afterwards finishes with the losses of a run that was never killed.
. "$ATOLL_SOURCE_DIR/regression/lib/case.sh"
. "$ATOLL_SOURCE_DIR/regression/train/job.sh"
T=$(atoll atoll-train) I=$(atoll atoll-inspect)
write_job job.yaml 'ckpt.every_steps: 2' 'ckpt.keep: 2' 'train.steps: 12' 'train.decay_steps: 12' 'train.validate_every: 2' 'topo.probe: true' 'topo.probe_seconds: 0.1' \
  'train.calibrate: true' 'plan.stages: 2'
sed -i 's/steps: 20, decay_steps: 20, //; s/validate_every: 10, //; /^topo.probe: false/d; /^train.calibrate: false/d' job.yaml

# dies RANK DIR POINT[:NTH]: an attempt in DIR in which that rank is killed there. Attempts follow one another in one directory, as requeued jobs do.
dies() {
  local rank=$1 dir=$2 point=$3 before began got took
  case $point in *:*) ;; *) point=$point:1 ;; esac
  before=$(committed "$dir")
  began=$(date +%s)
  ATOLL_FAULT="${fault:-kill}:$point:$rank" timeout 120 "${ATOLL_MPIRUN[@]}" -np 2 "$T" job.yaml run.dir="$dir" run.silence=4s >"$ATOLL_LAST_OUT" 2>&1 </dev/null
  got=$?
  took=$(($(date +%s) - began))
  [ "$got" != 0 ] || { cat "$ATOLL_LAST_OUT"; fail "$point on rank $rank: the job ended 0 although a rank was killed"; }
  [ "$took" -le 60 ] || fail "$point on rank $rank: the job took $took s to end"
  ls "$dir"/ckpt/*.removed >/dev/null 2>&1 || [ "$(committed "$dir")" -ge "$before" ] || fail "$point on rank $rank: a committed checkpoint is gone"
  [ ! -d "$dir/ckpt" ] || run "$I" verify "$dir"
  expect "${status:-75}" "$I" status "$dir"
}

train 2 base

# Phases before the first step, each on both ranks.
setup() {
  for point in 'run directory' inputs topology probe islands 'find checkpoint' plan calibrate stage; do
    dies 1 setup "$point"
    [ "$point" = 'run directory' ] || dies 0 setup "$point" # rank 0 has not made the directory there
  done
  train 2 setup
  same base setup
}

# A rank that never comes up is not waited for without end, though nobody watches before MPI is there.
absent() {
  ATOLL_TEST_START_LIMIT=2 expect 78 mpi 1 "$T" job.yaml run.dir=absent : -np 1 sleep 60
  says 'MPI_Init does not end'
}

# Then in the middle of steps: every attempt goes on from the checkpoint that the one before left.
steps() {
  dies 1 steps train.step:4
  dies 0 steps train.forward:7
  dies 1 steps train.backward:10
  dies 0 steps train.reduce:4
  dies 1 steps train.update:3
  dies 0 steps train.validate:2
  dies 1 steps restore
  train 2 steps
  same base steps
}

# Named points of a checkpoint: of the first one of an attempt and of the second.
checkpoints() {
  dies 1 ckpt ckpt.begin:2
  dies 0 ckpt ckpt.begin
  dies 1 ckpt ckpt.shard.open
  dies 0 ckpt ckpt.shard.open
  dies 1 ckpt ckpt.shard.written
  dies 0 ckpt ckpt.shard.written
  dies 1 ckpt ckpt.shards.agreed
  dies 0 ckpt ckpt.shards.agreed
  dies 0 ckpt ckpt.model.written # rank 0 alone does what follows
  dies 0 ckpt ckpt.commit.before
  dies 0 ckpt ckpt.commit.written
  dies 0 ckpt ckpt.renamed:2
  dies 0 ckpt ckpt.retention
  train 2 ckpt
  same base ckpt
  [ -z "$(ls -d ckpt/ckpt/*.tmp ckpt/ckpt/*.removed 2>/dev/null)" ] || fail "leftovers of dead attempts stay: $(ls ckpt/ckpt)"
  [ "$(committed ckpt)" = 2 ] || fail "expected two checkpoints, there are: $(ls ckpt/ckpt)"
}

# Silent instead of dead: the one who noticed says so in the exit record, and the run goes on later.
silent() {
  local fault=stop status=77
  dies 1 silent train.forward:14
  says 'rank 1'
  dies 0 silent train.backward:14
  says 'rank 0'
  dies 1 silent ckpt.shard.open
  says 'rank 1'
  unset fault status
  train 2 silent
  same base silent
}

# Most of the time goes by waiting for mpirun to end what is left.
together setup steps checkpoints silent absent
