# Without a Slurm allocation the same library runs mpirun: Ctrl-C, which the terminal sends to the whole foreground group, stops with a
# checkpoint; the same command resumes; a second Ctrl-C aborts.
. "$ATOLL_SOURCE_DIR/regression/lib/case.sh"
. "$ATOLL_SOURCE_DIR/regression/train/job.sh"
unset "${!SLURM_@}"
export ATOLL_BIN=$ATOLL_BUILD_DIR/bin
export ATOLL_LAUNCH_OPTIONS='--oversubscribe --bind-to none'
I=$(atoll atoll-inspect) script=$(sourcefile slurm/interactive.sh)
write_job job.yaml
more='train.decay_steps=20 train.log_every=1 train.validate_every=0 plan.stages=2'

expect 64 "$script" -n 00 job.yaml # mpirun would take every slot
says 'wants a number of ranks'
run "$script" -n 2 job.yaml
says 'launcher mpirun'
says ', 2 ranks'
says 'finished'

# begin DIR STEPS: in a process group of its own, as a shell starts a foreground job; who started this test in the background made
# it ignore INT, which no shell below could trap.
heeds='import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execvp(sys.argv[1], sys.argv[1:])'
begin() {
  rm -f job.out
  set -m
  ATOLL_TEST_PACE=$pace python3 -c "$heeds" "$script" -n 2 job.yaml run.dir="$1" train.steps="$2" $more >job.out 2>&1 </dev/null &
  group=$!
  set +m
  local try
  for try in $(seq 2400); do
    grep -q '^step 1 ' job.out && break
    sleep 0.05
  done
}
ends() {
  wait $group
  local got=$?
  cp job.out "$ATOLL_LAST_OUT"
  [ $got = "$1" ] || { cat job.out; fail "ended with $got, expected $1"; }
}

pace=20
begin stop 400
kill -INT -$group
ends 75
says 'signal INT, asking the ranks'
says 'the same command resumes'
at=$("$I" status --json stop | sed -n 's/.*"last_step": \([0-9]*\).*/\1/p')
[ "$at" -ge 1 ] && [ "$at" -lt 400 ] || fail "stopped at step $at"
run "$script" -n 2 job.yaml run.dir=stop train.steps=$((at + 5)) $more
says 'resumed'
run "$script" -n 1 job.yaml run.dir='the "straight" \ way' train.steps=$((at + 5)) train.decay_steps=20 train.log_every=1 train.validate_every=0
run "$I" diff 'the "straight" \ way' stop

# A rank that no longer moves: the second signal ends the job at once, and not with 0.
export ATOLL_FAULT=stop:train.step:2:1
begin abort 400
unset ATOLL_FAULT
stopped() { grep -q '^State:[[:space:]]*T' $(pgrep -f 'atoll-train .*run.dir=abort' | sed 's|.*|/proc/&/status|') /dev/null; }
for _ in $(seq 2400); do stopped && break || sleep 0.05; done
stopped || fail 'no rank stands still'
kill -INT -$group
sleep 1.2
kill -INT -$group
began=$SECONDS
wait $group && fail 'an aborted job called it a success'
[ $((SECONDS - began)) -le 40 ] || fail 'the second Ctrl-C did not end the job'
grep -c 'signal INT' job.out | grep -qx 2 || { cat job.out; fail 'two signals were not told'; }

expect 64 "$script"
expect 64 "$script" -n two job.yaml
says "found 'two'"
