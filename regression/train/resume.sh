# A run that stops and resumes is the run that did not stop, bit for bit: on the same plan, from 4 ranks to 2, and when the stop came by a signal to one rank only.
. "$ATOLL_SOURCE_DIR/regression/lib/case.sh"
. "$ATOLL_SOURCE_DIR/regression/train/job.sh"
write_job job.yaml
train 2 base

train 2 again train.steps=7
says 'step 7'
train 2 again
says 'resumed'
same base again
says 'loss is the same bit for bit in 20 common rows'

train 4 fewer train.steps=11 plan.stages=2 plan.data_parallel=2
train 2 fewer plan.stages=2
same base fewer
train 2 more train.steps=11
train 4 more
same base more

# 20 more steps are enough to be caught in the middle by a signal to the last rank alone.
write_job job.yaml 'train.steps: 4000' 'train.decay_steps: 20' 'train.log_every: 1000' 'train.validate_every: 0'
(
  until [ -e stop/run.a1.h5 ]; do sleep 0.1; done
  sleep 1
  kill -USR1 "$(pgrep -f 'run.dir=stop' -n)"
) &
expect 75 mpi 2 "$(atoll atoll-train)" job.yaml run.dir=stop
wait
says 'signal USR1 on rank'
expect 75 "$(atoll atoll-inspect)" status stop
run "$(atoll atoll-inspect)" status --json stop || true
