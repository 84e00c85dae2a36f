# One rank killed in each phase: the job ends everywhere within 30 seconds, with a non-zero code, and the same command afterwards finishes with the losses of a run that was
# never killed.
. "$ATOLL_SOURCE_DIR/regression/lib/case.sh"
. "$ATOLL_SOURCE_DIR/regression/train/job.sh"
write_job job.yaml 'ckpt.every_steps: 5' 'topo.probe: true' 'topo.probe_seconds: 1' 'train.calibrate: true' 'plan.stages: 2'
train 2 base
for point in 'run directory' inputs topology probe islands calibrate plan stage train.step:8 train.forward:30 train.backward:30 train.reduce:8 train.update:8 \
  train.validate:1 ckpt.begin:1 ckpt.shard.open:2 ckpt.shard.written:1 ckpt.shards.agreed:1; do
  dir=killed-$(printf %s "$point" | tr -c 'a-z0-9' -)
  began=$(date +%s)
  ATOLL_FAULT="kill:$point$(case $point in *:*) ;; *) printf :1 ;; esac):1" timeout 60 "${ATOLL_MPIRUN[@]}" -np 2 "$(atoll atoll-train)" job.yaml run.dir="$dir" >"$ATOLL_LAST_OUT" 2>&1 </dev/null
  got=$?
  took=$(($(date +%s) - began))
  [ "$got" != 0 ] || fail "$point: the job ended 0 although a rank was killed"
  [ "$took" -le 30 ] || fail "$point: the job took $took s to end"
  train 2 "$dir"
  same base "$dir"
  run "$(atoll atoll-inspect)" status "$dir"
done
# Rank 0 writes COMMIT: kill it around that.
for point in ckpt.model.written:1 ckpt.commit.before:1 ckpt.commit.written:1 ckpt.renamed:1 ckpt.retention:1; do
  dir=killed-$(printf %s "$point" | tr -c 'a-z0-9' -)
  ATOLL_FAULT="kill:$point:0" timeout 60 "${ATOLL_MPIRUN[@]}" -np 2 "$(atoll atoll-train)" job.yaml run.dir="$dir" >"$ATOLL_LAST_OUT" 2>&1 </dev/null &&
    fail "$point: the job ended 0 although rank 0 was killed"
  [ "$(committed "$dir")" -gt 0 ] && run "$(atoll atoll-inspect)" verify "$dir"
  train 2 "$dir"
  same base "$dir"
done
# Silent instead of dead.
ATOLL_FAULT='stop:train.forward:30:1' timeout 60 "${ATOLL_MPIRUN[@]}" -np 2 "$(atoll atoll-train)" job.yaml run.dir=silent run.silence=4s >"$ATOLL_LAST_OUT" 2>&1 </dev/null &&
  fail 'the job ended 0 although a rank fell silent'
says 'rank 1'
