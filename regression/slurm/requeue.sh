# A job that is told to stop before its end leaves with 75 after a checkpoint, is requeued by its own script, resumes, and ends with the losses of one that was never
# stopped: once by a signal to the batch shell, once by the program's own clock against the job's time limit.
. "$ATOLL_SOURCE_DIR/regression/lib/case.sh"
. "$ATOLL_SOURCE_DIR/regression/slurm/cluster.sh"
. "$ATOLL_SOURCE_DIR/regression/train/job.sh"
cluster_start
write_job job.yaml
more='train.steps=150 train.log_every=50 train.validate_every=0 plan.stages=2 plan.data_parallel=1'
export ATOLL_CASE_PACE_FAST=10 ATOLL_CASE_PACE_SLOW=10 # slow enough to be caught in the middle
nodes='--nodes=2 --ntasks-per-node=1 --cpus-per-task=1 --time=10'

batch $nodes "$(sourcefile slurm/train.sbatch)" job.yaml run.dir=runs/straight $more
batch_is 0

rm -f job.out
id=$(sbatch --parsable --output=job.out --open-mode=append $nodes "$(sourcefile slurm/train.sbatch)" job.yaml run.dir=runs/told $more) || fail 'sbatch'
for try in $(seq 300); do
  [ -e runs/told/run.a1.h5 ] && break
  sleep 0.1
done
sleep 2
scancel --signal=USR1 --batch "$id"
for try in $(seq 600); do
  state=$(job_state "$id")
  case $state in COMPLETED | FAILED | CANCELLED | TIMEOUT | NODE_FAIL) break ;; esac
  sleep 0.2
done
cp job.out "$ATOLL_LAST_OUT"
[ "$state" = COMPLETED ] || { cat job.out; fail "the requeued job is $state"; }
says 'requeueing'
says 'restart 1'
says 'resumed'
run "$(atoll atoll-inspect)" diff runs/straight runs/told
says 'loss is the same bit for bit in 150 common rows'

# The program's own clock, and a cap of no requeue: 75 is the job's exit status.
export ATOLL_REQUEUE_CAP=0
batch $nodes "$(sourcefile slurm/train.sbatch)" job.yaml run.dir=runs/clock $more run.time_limit=6s run.stop_margin=1s
batch_is 75
says 'already requeued'
expect 75 "$(atoll atoll-inspect)" status runs/clock
batch $nodes "$(sourcefile slurm/train.sbatch)" job.yaml run.dir=runs/clock $more
batch_is 0
run "$(atoll atoll-inspect)" diff runs/straight runs/clock
