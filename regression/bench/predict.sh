# Predictions and steps take turns, with the job's own data; each ratio follows from its row, and the plan stays the same.
. "$ATOLL_SOURCE_DIR/regression/lib/case.sh"
head -c 20000 "$ATOLL_SOURCE_DIR/inputs/corpora/kjv-train.txt" >text.txt
cat >job.yaml <<YAML
model: {family: gpt2, layers: 3, width: 32, heads: 2, context: 32, vocab: 256}
data.train: text.txt
train: {seq: 32, global_batch: 8}
topo.probe: false
topo.probe_seconds: 0.2
YAML
run mpi 2 "$(atoll atoll-bench)" predict --job job.yaml --repeats 3 --json predict.json
python3 - <<'PY' || fail "predict.json"
import json, statistics
t = json.load(open("predict.json"))
rows = t["rows"]
assert t["benchmark"] == "predict" and t["ranks"] == 2 and len(rows) == 3 and t["plan_predicted_seconds"] > 0, t
for a, b in zip(rows, rows[1:]):
    assert a["predicted_after_seconds"] == b["predicted_before_seconds"], rows
for r in rows:
    mean = (r["predicted_before_seconds"] + r["predicted_after_seconds"]) / 2
    assert mean > 0 and abs(r["ratio"] * r["measured_seconds"] / mean - 1) < 1e-6, r  # nine digits are printed
assert abs(t["ratio"] - statistics.median(r["ratio"] for r in rows)) < 1e-6 <= t["ratio_least"] <= t["ratio"] <= t["ratio_most"], t
PY
# Two stages of one rank each are a plan that options can name, too.
run mpi 2 "$(atoll atoll-bench)" predict --job job.yaml --repeats 1 plan.stages=2 plan.micro_batch=1
says "predicted over measured: median"
export ATOLL_TEST_GEMM=packed # whose products read packed weights
run mpi 2 "$(atoll atoll-bench)" predict --job job.yaml --repeats 1 plan.micro_batch=2
says "predicted over measured: median"
