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
# An attempt that fails before it finds its checkpoint does not make the committed ones unsaid.
expect 66 mpi 2 "$(atoll atoll-train)" job.yaml run.dir=again data.train=nowhere.txt
expect 66 "$(atoll atoll-inspect)" status again
says 'last committed step 20'

train 4 fewer train.steps=11 plan.stages=2 plan.data_parallel=2
head -c 3000 fewer/run.h5 >damaged # its rows are in the attempt's own file as well
cp damaged fewer/run.h5
train 2 fewer plan.stages=2
says 'fewer/run.h5 cannot be read and is kept as fewer/run.h5.unreadable: '
cmp damaged fewer/run.h5.unreadable || fail 'what could not be read is not kept'
same base fewer
train 2 more train.steps=11
train 4 more
same base more

# The best validation belongs to the run, not to the attempt: what follows at a rate that spoils the model is worse.
best() { sed -n 's/^best_validation: *//p' "$1"/ckpt/step-"$2"/COMMIT; }
train 2 best train.steps=10
train 2 best train.learning_rate=1 train.min_learning_rate=1
[ "$(best best 00000010.a1)" = "$(best best 00000020.a2)" ] ||
  fail "best validation $(best best 00000010.a1) became $(best best 00000020.a2)"
read -r last least < <(sed -n 's/^validation , step 20 , loss \([0-9.]*\) .* best \([0-9.]*\)$/\1 \2/p' "$ATOLL_LAST_OUT")
awk "BEGIN { exit !($last > $least + 0.01) }" || fail "the second attempt was not worse: $last, best $least"

# Caught in the middle by a signal to the last rank alone, among many steps; then it goes on like one that was never stopped.
long='train.decay_steps=20 train.log_every=1 train.validate_every=0'
"${ATOLL_MPIRUN[@]}" -np 2 "$(atoll atoll-train)" job.yaml run.dir=stop $long train.steps=1000000 >stop.out 2>&1 </dev/null &
launcher=$!
while_alive $launcher grep -q '^step 3 ' stop.out
victim=$(pgrep -P $launcher atoll-train | tail -n 1)
kill -USR1 "$victim" || fail 'no rank to signal'
wait $launcher
got=$?
cp stop.out "$ATOLL_LAST_OUT"
[ $got = 75 ] || { cat stop.out; fail "the signalled job ended with $got"; }
says 'signal USR1 on rank'
expect 75 "$(atoll atoll-inspect)" status stop
expect 75 "$(atoll atoll-inspect)" status --json stop
says '"action": "requeue"'
at=$(sed -n 's/.*"last_step": \([0-9]*\).*/\1/p' "$ATOLL_LAST_OUT")
[ "$at" -gt 1 ] && [ "$at" -lt 1000000 ] || fail "stopped at step $at"
train 2 stop $long train.steps=$((at + 5))
train 2 straight $long train.steps=$((at + 5))
same straight stop
