# A job that is told to stop before its end leaves with 75 after a checkpoint, is requeued by its own script, resumes, and ends with
# the losses of one that was never stopped: by a signal to the batch shell, by the program's clock against Slurm's end of the job, for a
# task of an array and for a heterogeneous job; and the cap ends it.
. "$ATOLL_SOURCE_DIR/regression/lib/case.sh"
. "$ATOLL_SOURCE_DIR/regression/slurm/cluster.sh"
. "$ATOLL_SOURCE_DIR/regression/train/job.sh"
cluster_start
write_job job.yaml
more='train.steps=200 train.log_every=50 train.validate_every=0 plan.stages=2'
one='--ntasks-per-node=1 --cpus-per-task=1'
train=$(sourcefile slurm/train.sbatch) inspect=$(atoll atoll-inspect)

batch --nodes=2 $one "$train" job.yaml run.dir=runs/straight $more
status_is 0
same() {
  run "$inspect" diff runs/straight "$1"
  says 'loss is the same bit for bit in 200 common rows'
}

export ATOLL_CASE_PACE_FIRST=20 # slow enough to be caught in the middle; what is requeued runs at full speed
submit --nodes=2 $one "$train" job.yaml run.dir=runs/told $more
await_file runs/told/run.a1.h5
sleep 1
signal_batch USR1
await
status_is 0
says 'signal USR1, asking'
says "requeueing $JOB ( restart 1"
says 'restart 1 on n'
says 'resumed runs/told/ckpt/'
same runs/told

# TERM as well; a directory with a blank in its name; and with no requeue left, 75 is the job's own exit status.
ATOLL_REQUEUE_CAP=0 submit --nodes=2 $one "$train" job.yaml 'run.dir=runs/a b' $more
await_file 'runs/a b/run.a1.h5'
signal_batch TERM
await
status_is 75
says 'already requeued 0 times'
expect 75 "$inspect" status 'runs/a b'

# The limit of the job, one minute, is nearer than the margin asked for: the program stops by itself at its first step.
ATOLL_REQUEUE_CAP=0 batch --nodes=2 $one --time=1 "$train" job.yaml run.dir=runs/clock $more run.stop_margin=80s
status_is 75
expect 75 "$inspect" status runs/clock
says 'limit'
unset ATOLL_CASE_PACE_FIRST
batch --nodes=2 $one "$train" job.yaml run.dir=runs/clock $more
status_is 0
same runs/clock
