# CartPole is solved from five seeds: a mean return of 475 at least, over 100 episodes, as run.h5 has it. In the grid
# world, ways become short.
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
run mpi 1 "$(atoll atoll-rl)" rl.environment=grid rl.environments=32 rl.steps=64 rl.iterations=100 rl.hidden=16 rl.chunk=20 \
  rl.learning_rate=5e-3 rl.evaluate=32 run.dir=grid
atoll-inspect metrics grid --json >metrics.json || fail 'metrics of the grid'
python3 - <<'P' || fail 'the way through the grid is not found'
import json
m = json.load(open("metrics.json"))
assert m["mean_return"][0] < 0 and m["validation_return"][-1] >= 0.8, (m["mean_return"][0], m["validation_return"])
P
exit 0
