# What goes_on.sh does with REINFORCE holds for PPO, for returns of n steps, and for an environment in a shared object:
# a run in parts has the numbers of a whole one. atoll-inspect draws such runs.
. "${0%/*}/../lib/case.sh"
common=(rl.environments=8 rl.steps=12 rl.hidden=8 rl.chunk=2)
metrics() { atoll-inspect metrics "$1" --json >"$1.json" || fail "metrics of $1"; }
# in_parts NAME FIRST ALL OPTION...: runs NAME, and NAME-parts with an end after FIRST iterations.
in_parts() {
  local name=$1 first=$2 all=$3
  shift 3
  run mpi 1 "$(atoll atoll-rl)" "${common[@]}" "$@" rl.iterations=$all run.dir=$name
  cp "$ATOLL_LAST_OUT" $name.said
  run mpi 1 "$(atoll atoll-rl)" "${common[@]}" "$@" rl.iterations=$first run.dir=$name-parts
  run mpi 1 "$(atoll atoll-rl)" "${common[@]}" "$@" rl.iterations=$all run.dir=$name-parts
  says "resumed $name-parts/ckpt/step-0000000$first.a1 : iteration $first"
  metrics $name
  metrics $name-parts
}
ppo=(rl.algorithm=ppo rl.environment=grid rl.epochs=2 rl.evaluate=8)
in_parts ppo 4 8 "${ppo[@]}"
in_parts steps 4 8 rl.environment=grid rl.n=3 rl.evaluate=8
in_parts mine 2 4 rl.environment="$ATOLL_BUILD_DIR/modules/rl/test/librl_env_0.so" rl.evaluate=0
grep -q '^ppo on grid , 8 environments' ppo.said || fail "$(cat ppo.said)"
grep -q '^reinforce on mine , 8 environments' mine.said || fail "$(cat mine.said)"
# Iterations of one step go on from the states of those before; returns to the end and of one step are the same then.
one=(rl.environments=8 rl.hidden=8 rl.chunk=2 rl.environment=cartpole rl.steps=1 rl.iterations=60 rl.evaluate=4)
run mpi 1 "$(atoll atoll-rl)" "${one[@]}" rl.baseline=false run.dir=one-all
run mpi 2 "$(atoll atoll-rl)" "${one[@]}" rl.baseline=false rl.n=1 run.dir=one-n
run mpi 1 "$(atoll atoll-rl)" "${one[@]}" rl.algorithm=ppo run.dir=one-ppo
for name in one-all one-n one-ppo; do metrics $name; done
python3 - <<'P' || fail 'iterations of one step'
import json
whole, window, ppo = (json.load(open(f"one-{n}.json")) for n in ("all", "n", "ppo"))
for m in whole, window, ppo:
    assert m["environment_steps"] == [8 * k for k in range(1, 61)] and min(m["gradient_norm"]) > 0
    ends = [length for n, length in zip(m["episodes"], m["mean_length"]) if n]
    assert ends and min(ends) > 5, ends  # CartPole does not fall at once
for name in ("loss", "gradient_norm"):
    for a, b in zip(whole[name], window[name]):
        assert abs(a - b) <= 1e-4 * abs(a), (name, a, b)
P
run mpi 1 "$(atoll atoll-rl)" "${common[@]}" rl.environment=grid rl.evaluate=8 rl.iterations=8 run.dir=whole
metrics whole
run mpi 1 "$(atoll atoll-rl)" "${common[@]}" "${ppo[@]}" rl.clip=0 rl.iterations=8 run.dir=clipped
metrics clipped
run mpi 2 "$(atoll atoll-rl)" "${common[@]}" "${ppo[@]}" rl.iterations=2 run.dir=two
metrics two
python3 - <<'P' || fail 'the numbers'
import json
m = {n: json.load(open(n + ".json")) for n in
     ("ppo", "ppo-parts", "steps", "steps-parts", "mine", "mine-parts", "whole", "clipped", "two")}
for name, first in (("ppo", 4), ("steps", 4), ("mine", 2)):
    a, b = m[name], m[name + "-parts"]
    for key in ("step", "episodes", "mean_return", "reward", "loss", "gradient_norm", "environment_steps"):
        assert a[key] == b[key], (name, key)
    assert b["attempt"] == [1] * first + [2] * (len(a["step"]) - first), b["attempt"]
assert m["ppo"]["validation_return"][-1] == m["ppo-parts"]["validation_return"][-1]
assert m["mine"]["reward"] == [1.0] * 4, m["mine"]["reward"] # of each step, as that environment has it
# One policy to begin with, so what it does in the first iteration is the same; how it learns is not.
for name in ("ppo", "steps"):
    assert m[name]["reward"][0] == m["whole"]["reward"][0] and m[name]["loss"] != m["whole"]["loss"], name
assert m["steps"]["gradient_norm"] != m["ppo"]["gradient_norm"] != m["clipped"]["gradient_norm"]
for a, b in zip(m["two"]["loss"], m["ppo"]["loss"]):
    assert abs(a - b) <= 1e-4 * abs(b), (a, b)
P
# What else is left at its default finds the ways through the grid, from several seeds.
for seed in 1 2 3; do
  run mpi 1 "$(atoll atoll-rl)" rl.algorithm=ppo rl.environment=grid rl.iterations=30 rl.seed=$seed run.dir=ways$seed
  metrics ways$seed
done
python3 - <<'P' || fail 'PPO does not find the ways through the grid'
import json
for seed in 1, 2, 3:
    m = json.load(open(f"ways{seed}.json"))
    print("seed", seed, "mean return", m["mean_return"][0], m["mean_return"][-1], "evaluated", m["validation_return"][-1])
    assert m["mean_return"][0] < 0 and m["mean_return"][-1] >= 0.85 and m["validation_return"][-1] >= 0.85
P
if command -v gnuplot >/dev/null; then
  run atoll-inspect plot ppo
  says 'likeliest actions'
  run atoll-inspect plot ppo --svg ppo.svg
  python3 - <<'P' || fail 'SVG'
import xml.dom.minidom as x
def words(n):
    return n.data if n.nodeType == n.TEXT_NODE else " ".join(words(c) for c in n.childNodes)
e = x.parse("ppo.svg").documentElement
text = words(e)
assert e.tagName == "svg" and "mean return" in text and "likeliest actions" in text and "steps / s" in text, text
P
fi
# An environment that goes wrong, on all ranks or on the second alone, ends a run on all of them, with the code of what it
# did and the checkpoint that there was.
run mpi 2 "$(atoll atoll-rl)" "${common[@]}" rl.environment="$ATOLL_BUILD_DIR/modules/rl/test/librl_env_0.so" rl.evaluate=0 \
  rl.iterations=2 run.dir=wrong
wrong() { # KIND CODE RANK TEXT
  expect $2 mpi 2 timeout 60 "$(atoll atoll-rl)" "${common[@]}" rl.environment="$ATOLL_BUILD_DIR/modules/rl/test/librl_env_$1.so" \
    rl.evaluate=0 rl.iterations=4 run.dir=wrong
  says 'resumed wrong/ckpt/step-00000002.a1 : iteration 2'
  says "rank $3: environment mine: step $4"
  expect $2 atoll-inspect status wrong
  run atoll-inspect verify wrong/ckpt/step-00000002.a1
}
wrong 2 80 0 'made number 0 of environment 1 nan (iteration 2, step 0)'
wrong 3 76 0 'left number 4 of environment 0 unwritten, of 5 (iteration 2, step 0)'
wrong 4 76 0 'wrote more than 5 numbers for each of 4 environments (iteration 2, step 0)'
wrong 5 68 0 'failed with 7 (iteration 2, step 0)'
wrong 8 76 0 'says that environment 0 has ended, which is endless (iteration 2, step 0)'
wrong 7 68 1 'failed with 7 (iteration 2, step 0)'
atoll-inspect metrics wrong --json >wrong.json || fail 'metrics of a run that has failed'
python3 -c 'import json; m = json.load(open("wrong.json")); assert m["step"] == [1, 2], m["step"]' || fail 'rows of a run that has failed'
# Parameters that become too large to be added up, with a checkpoint from before or without one.
huge=("${common[@]}" rl.environment=free rl.evaluate=0)
expect 80 mpi 1 "$(atoll atoll-rl)" "${huge[@]}" rl.learning_rate=1e38 rl.iterations=4 run.dir=huge
says 'iteration 2: loss '
says '; there is no checkpoint'
run mpi 1 "$(atoll atoll-rl)" "${huge[@]}" rl.iterations=2 run.dir=grown
expect 80 mpi 1 "$(atoll atoll-rl)" "${huge[@]}" rl.learning_rate=1e38 rl.iterations=4 run.dir=grown
says '; the last checkpoint is of iteration 2'
expect 66 mpi 1 "$(atoll atoll-rl)" rl.environment=./none.so run.dir=odd
[ ! -e odd ] || fail 'what is refused leaves a run directory'
exit 0
