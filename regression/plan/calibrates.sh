# Layer times measured by atoll-bench are keyed by device class, plan the cluster they were measured on, and say so when
# they know nothing about another.
. "$ATOLL_SOURCE_DIR/regression/lib/case.sh"
plan=$(atoll atoll-plan)
cat >job.yaml <<YAML
model: {family: gpt2, layers: 3, width: 32, heads: 2, context: 32, vocab: 256}
train: {seq: 32, global_batch: 8}
topo.probe: false
topo.probe_seconds: 1
YAML
run mpi 2 "$(atoll atoll-bench)" calibrate --job job.yaml --json times.json --out times.h5 plan.micro_batch=2
grep -Eq 'block +exact20 +micro-batch 2 ' "$ATOLL_LAST_OUT" || fail 'no times of a block'
python3 - <<'PY' || fail "times.json"
import json
t = json.load(open("times.json"))
rows = t["rows"]
assert t["benchmark"] == "calibrate" and t["T"] == 32 and t["ranks"] == 2, t
assert {(r["kind"], r["policy"]) for r in rows} == {(k, p) for k in ("embed", "block", "head") for p in ("eager_flash", "exact20")}, rows
assert all(r["B"] == 2 and r["forward_seconds"] > 0 and r["backward_seconds"] > 0 and r["device_class"] for r in rows), rows
PY
h5dump -d /profile/device_class times.h5 >dump.txt || fail "h5dump"
grep -qF "$(python3 -c 'import json; print(json.load(open("times.json"))["rows"][0]["device_class"])')" dump.txt || fail "not keyed by device class"
# The same ranks again: these devices are known.
run mpi 2 "$plan" job.yaml --profile times.h5 plan.micro_batch=2
says "costs measured"
run mpi 2 "$plan" job.yaml --profile times.h5 plan.micro_batch=4
says "costs interpolated"
run "$plan" job.yaml --profile times.h5 topo.synthetic='2x(pack:1 core:4 memory=64GiB)'
says "costs analytic"
says "the profile says nothing about this model on these devices"
run "$plan" job.yaml --profile times.h5 model.width=64 topo.synthetic='2x(pack:1 core:4 memory=64GiB)'
says "costs analytic"
# What the machine remembers of a pipelined MLP goes with them when the job pipelines its own, and only then.
export ATOLL_CACHE=$PWD
run "$(atoll atoll-bench)" mlp --seconds 0 --repeats 1 --shape 16x32x128x32 --choices "$PWD/chains.yaml"
for mlp in plain cta; do
  run mpi 2 "$(atoll atoll-bench)" calibrate --job job.yaml --out "$mlp.h5" topo.probe_seconds=0.05 train.seq=16 plan.micro_batch=1 plan.mlp=$mlp
  h5dump -d /profile/policy "$mlp.h5" >"$mlp.txt" || fail "h5dump"
done
grep -q '"cta over 2' cta.txt || fail "the pipelined MLP's time is not in the profile"
grep -q "cta over" plain.txt && fail "a plain job's profile has a pipelined MLP"
# Nothing is left where it cannot be written, and a batch that the job contradicts is refused before any work.
"$(atoll atoll-bench)" calibrate --job job.yaml --out no/such/folder/x.h5 plan.micro_batch=2 >"$ATOLL_LAST_OUT" 2>&1 && fail "wrote nowhere"
says "no/such/folder"
expect 64 "$(atoll atoll-bench)" calibrate --job job.yaml --batch 0
says "--batch"
