# A rank or a launcher is killed: the job ends everywhere within a minute, its script requeues it, at most as often as the cap says,
# and what was committed goes on to the losses of a run that was never killed.
. "$ATOLL_SOURCE_DIR/regression/lib/case.sh"
. "$ATOLL_SOURCE_DIR/regression/slurm/cluster.sh"
. "$ATOLL_SOURCE_DIR/regression/train/job.sh"
cluster_start
write_job job.yaml 'ckpt.every_steps: 2'
I=$(atoll atoll-inspect) train=$(sourcefile slurm/train.sbatch)
one='--nodes=2 --ntasks-per-node=1 --cpus-per-task=1'

batch $one "$train" job.yaml run.dir=runs/base
status_is 0

within() { # SECONDS WHAT: since $began
  [ $((SECONDS - began)) -le "$1" ] || { cat job.out; fail "$2: ended after $((SECONDS - began)) s"; }
}

# Each attempt gets four steps further, loses rank 1, and is requeued until the cap.
began=$SECONDS
ATOLL_FAULT=kill:train.step:5:1 ATOLL_REQUEUE_CAP=1 batch $one "$train" job.yaml run.dir=runs/rank
status_is 75
within 120 'two attempts with a killed rank, and the wait between them'
says 'requeueing'
says 'already requeued 1 times (ATOLL_REQUEUE_CAP=1)'
says 'runs/rank : dead , attempt 2'
says 'resumed runs/rank/ckpt/step-00000004.a1'
batch $one "$train" job.yaml run.dir=runs/rank
status_is 0
says 'resumed runs/rank/ckpt/'
run "$I" diff runs/base runs/rank

# The same over the two components of a heterogeneous job.
began=$SECONDS
ATOLL_FAULT=kill:train.step:5:3 ATOLL_REQUEUE=0 batch "$(sourcefile slurm/het.sbatch)" job.yaml run.dir=runs/het run.silence=10s
within 60 'a killed rank of the second component'
case $STATUS in 75 | 77) ;; *) status_is 75 ;; esac
says 'the same command resumes'

# The launcher dies, the ranks do not notice: the script ends the step, then requeues.
slow='train.steps=200 train.decay_steps=20 train.log_every=50 train.validate_every=0 ckpt.every_steps=100'
for launcher in srun mpirun; do
  export ATOLL_LAUNCHER=$launcher
  ATOLL_REQUEUE=0 ATOLL_CASE_PACE_FIRST=40 submit $one "$train" job.yaml run.dir=runs/$launcher $slow
  await_file runs/$launcher/run.a1.h5
  sleep 1
  # The launcher that the batch script started: a child of it, so not the srun by which mpirun starts its daemons.
  script=$(pgrep -d , -x -f ".*slurm_script.* run.dir=runs/$launcher .*")
  victim=$(pgrep -x -P "$script" "$launcher")
  [ -n "$victim" ] || fail "no $launcher of job $JOB"
  kill -KILL "$victim"
  began=$SECONDS
  await
  within 60 "killed $launcher"
  status_is 75
  says 'launcher ended with 137'
  says "runs/$launcher : dead"
  if pgrep -f "run.dir=runs/$launcher" >/dev/null; then fail "ranks of the killed $launcher are still there"; fi
done
