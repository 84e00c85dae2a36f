# A run that is stopped by a signal leaves a checkpoint and status 75; the same command goes on from there and ends with
# the numbers of a run that was never stopped. Ranks divide the environments and learn the same.
. "${0%/*}/../lib/case.sh"
common=(rl.environment=grid rl.environments=8 rl.steps=16 rl.hidden=8 rl.chunk=2 rl.evaluate=8)
all=rl.iterations=40
run mpi 1 "$(atoll atoll-rl)" "${common[@]}" $all run.dir=whole
run mpi 1 "$(atoll atoll-rl)" "${common[@]}" rl.iterations=6 run.dir=parts
run mpi 1 "$(atoll atoll-rl)" "${common[@]}" $all run.dir=parts
says 'resumed parts/ckpt/step-00000006.a1 : iteration 6'
metrics() { atoll-inspect metrics "$1" --json >"$1.json" || fail "metrics of $1"; }
metrics whole
metrics parts
python3 - <<'P' || fail 'a run in parts differs'
import json
whole, parts = (json.load(open(f + ".json")) for f in ("whole", "parts"))
for name in ("step", "episodes", "mean_return", "reward", "loss", "gradient_norm", "environment_steps"):
    assert whole[name] == parts[name], name
assert parts["attempt"] == [1] * 6 + [2] * 34
assert whole["validation_return"][-1] == parts["validation_return"][-1]
P
run atoll-inspect metrics whole
says 'mean_return'
run atoll-inspect export --csv --out whole.csv whole
[ "$(head -n 1 whole.csv | sed 's/.*,//')" = validation_return ] && tail -n 1 whole.csv | grep -q '[0-9]$' || fail "the table lacks the returns held out"
run atoll-inspect status whole
run atoll-inspect diff whole whole
says 'validation_return is the same bit for bit in 1 common rows'
! grep 'only in' "$ATOLL_LAST_OUT" || fail 'a run has rows that it lacks itself'
run atoll-inspect diff whole parts
says 'mean_return is the same bit for bit in 40 common rows'
says '0 validations only in the first , 1 only in the second'
run atoll-inspect verify whole/ckpt/step-00000040.a1
# What died before it had committed anything begins anew; with a checkpoint it goes on.
died() { # FOLLOWS EVERY
  ATOLL_FAULT=kill:rl.chunk:2 "$(atoll atoll-rl)" "${common[@]}" $all run.dir=died ckpt.every_steps=$2 >out 2>&1 </dev/null
  [ $? = 137 ] || fail "not killed: $(tail -n 3 out)"
  expect 75 atoll-inspect status died
  says "$1"
}
died 'ended without a word; nothing was committed: the same command begins anew' 0
died 'ended without a word; the same command resumes from the last committed checkpoint' 2
# Stopped by a signal.
"$(atoll atoll-rl)" "${common[@]}" rl.iterations=100000000 run.dir=stopped >out 2>&1 </dev/null &
pid=$!
for _ in $(seq 1200); do [ -e stopped/run.h5 ] && break || sleep 0.1; done
kill -USR1 $pid
wait $pid
code=$?
[ $code = 75 ] || fail "exit $code after a signal, expected 75: $(tail -n 3 out)"
grep -q 'signal USR1 on rank 0 : iteration .* requeue to continue' out || fail "it says: $(tail -n 3 out)"
expect 75 atoll-inspect status stopped
step=$(ls stopped/ckpt | sed -n 's/step-0*\([0-9]*\).a1/\1/p' | tail -n 1)
run mpi 1 "$(atoll atoll-rl)" "${common[@]}" rl.iterations=$((step + 2)) run.dir=stopped
says "resumed stopped/ckpt"
says "finished : iteration $((step + 2))"
# Two and four ranks: the same draws, sums in another order, of gradients well above rounding (Adam divides by their size).
cart=(rl.environment=cartpole rl.environments=8 rl.steps=40 rl.hidden=8 rl.chunk=2 rl.evaluate=8)
run mpi 1 "$(atoll atoll-rl)" "${cart[@]}" rl.iterations=4 run.dir=one
run mpi 2 "$(atoll atoll-rl)" "${cart[@]}" rl.iterations=4 run.dir=two
run mpi 4 "$(atoll atoll-rl)" "${cart[@]}" rl.iterations=4 run.dir=four
metrics one
metrics two
metrics four
python3 - <<'P' || fail 'ranks differ'
import json
whole, *divided = (json.load(open(f + ".json")) for f in ("one", "two", "four"))
for d in divided:
    assert whole["episodes"] == d["episodes"] and whole["reward"] == d["reward"]
    for name in ("loss", "gradient_norm"):
        for a, b in zip(whole[name], d[name]):
            assert abs(a - b) <= 1e-5 * abs(a) > 0, (name, a, b)
P
# A run goes on, too, on other numbers of ranks than it began with.
goes_on() { # RANKS ITERATIONS CHECKPOINT
  run mpi $1 "$(atoll atoll-rl)" "${cart[@]}" rl.iterations=$2 run.dir=spread
  [ -z "$3" ] || says "resumed spread/ckpt/$3 : iteration $(($2 - 1))"
}
goes_on 1 2 ''
goes_on 2 3 step-00000002.a1
goes_on 4 4 step-00000003.a2
metrics spread
python3 - <<'P' || fail 'a run that changes its number of ranks differs'
import json
whole, spread = (json.load(open(f + ".json")) for f in ("one", "spread"))
assert spread["attempt"] == [1, 1, 2, 3], spread["attempt"]
for name in ("step", "episodes", "mean_return", "reward", "environment_steps"):
    assert spread[name] == whole[name], name
for name in ("loss", "gradient_norm"):
    for a, b in zip(whole[name], spread[name]):
        assert abs(a - b) <= 1e-5 * abs(a) > 0, (name, a, b)
P
# Metrics that cannot be read stop no run and are kept, whoever was kept before them.
head -c 3000 spread/run.h5 >damaged
: >spread/run.h5
goes_on 2 5 step-00000004.a3
says 'spread/run.h5 cannot be read and is kept as spread/run.h5.unreadable: '
cp damaged spread/run.h5
goes_on 4 6 step-00000005.a4
says 'spread/run.h5 cannot be read and is kept as spread/run.h5.unreadable.2: '
[ ! -s spread/run.h5.unreadable ] && cmp damaged spread/run.h5.unreadable.2 || fail 'what could not be read is not kept'
metrics spread
python3 -c 'import json; assert json.load(open("spread.json"))["step"] == [6]' || fail 'rows after lost ones'
expect 76 mpi 1 "$(atoll atoll-rl)" "${common[@]/rl.hidden=8/rl.hidden=9}" run.dir=parts
says 'is not of reinforce, environment grid, observation 2, seed 1, hidden 9, environments 8'
expect 76 mpi 1 "$(atoll atoll-rl)" "${common[@]}" rl.algorithm=ppo run.dir=parts
says 'is not of ppo, environment grid'
expect 76 atoll-generate parts --prompt And
says 'parts/ckpt/step-00000040.a2 holds a policy that atoll-rl has learnt; expected a transformer'
expect 76 atoll-convert export parts exported.safetensors
says 'holds a policy'
expect 64 mpi 2 "$(atoll atoll-rl)" rl.environments=9 run.dir=odd
says 'rl.environments 9 is not a multiple of the 2 ranks'
expect 64 mpi 1 "$(atoll atoll-rl)" rl.n=501 run.dir=odd
says 'rl.n 501 is beyond rl.steps 500'
expect 64 mpi 1 "$(atoll atoll-rl)" rl.environments=1 run.dir=odd
says 'rl.baseline with rl.environments 1'
# A trace that its disk does not take ends the run before it learns.
if [ -w /dev/full ]; then
  expect 74 mpi 2 "$(atoll atoll-rl)" "${cart[@]}" rl.iterations=2 run.dir=traced --trace=/dev/full
  says 'the file of --trace cannot be written to its end'
  [ ! -e traced/run.h5 ] || fail 'it learnt all the same'
fi
run mpi 2 "$(atoll atoll-rl)" "${cart[@]}" rl.iterations=2 run.dir=traced --trace=trace.txt
grep -q '^== program' trace.txt || fail 'no program in the trace'
# What would count for nothing is refused, whoever gives it; a default value that is written down is none of that.
run mpi 1 "$(atoll atoll-rl)" "${common[@]}" rl.clip=0.2 rl.observation=4 rl.iterations=1 run.dir=written
refused() { # TEXT OPTION...
  local text=$1
  shift
  expect 64 mpi 1 "$(atoll atoll-rl)" "$@" run.dir=odd
  says "$text"
}
refused 'rl.n (command line) counts for nothing with rl.algorithm ppo' rl.algorithm=ppo rl.n=8
refused 'rl.baseline (command line) counts for nothing' rl.algorithm=ppo rl.baseline=false
for option in epochs=2 lambda=0.5 clip=0.1 entropy=0 value=1 normalize=false; do
  refused "rl.${option%=*} (command line) counts for nothing with rl.algorithm reinforce" rl.$option
done
printf 'rl: {environment: grid, observation: 8}\n' >odd.yaml
refused 'rl.observation (odd.yaml:1) counts for nothing with rl.environment grid' odd.yaml
refused 'run.time_limit 5 s is no more than run.stop_margin 10 s' run.time_limit=5s
refused 'rl.evaluate_every (command line) counts for nothing with rl.evaluate 0' rl.evaluate=0 rl.evaluate_every=5
expect 64 mpi 1 "$(atoll atoll-rl)" rl.environment=cartpol run.dir=odd
says "did you mean 'cartpole'"
[ ! -e odd ] || fail 'what is refused leaves a run directory'
