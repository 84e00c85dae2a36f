# CartPole is solved from five seeds: a mean return of 475 at least, over 100 episodes, as run.h5 has it.
. "${0%/*}/../lib/case.sh"
job=$(sourcefile inputs/jobs/cartpole.yaml)
for seed in 1 2 3 4 5; do
  run mpi 1 "$(atoll atoll-rl)" "$job" rl.seed=$seed run.dir=seed$seed
  says 'finished'
  atoll-inspect metrics seed$seed --json >metrics.json || fail "metrics of seed $seed"
  python3 - $seed <<'P' || fail "seed $seed is not solved"
import json, sys
m = json.load(open("metrics.json"))
print("seed", sys.argv[1], "mean return", m["validation_return"][-1], "after", m["environment_steps"][-1], "steps")
assert m["validation_return"][-1] >= 475, m["validation_return"]
assert m["step"] == list(range(1, len(m["step"]) + 1))
P
done
exit 0
