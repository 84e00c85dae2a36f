# atoll-bench step and io: figures follow from each other and from the model, on one rank and over a pipeline; whatever
# the machine's speed, a part of a whole is a part.
. "$ATOLL_SOURCE_DIR/regression/lib/case.sh"
cat >job.yaml <<YAML
model.preset: gpt2-tiny
data.train: not-read.txt
YAML
step=("$(atoll atoll-bench)" step --job job.yaml --batch 2 --seq 32)
export TMPDIR=$PWD/scratch # of which nothing may be left
mkdir scratch
for dtype in f32 bf16; do
  run "${step[@]}" --dtype $dtype --steps 2 --micro-batches 2 --json $dtype.json
  says ' tokens/s , '
done
run "${step[@]}" --alone --steps 3 --json alone.json
run mpi 2 "${step[@]}" --alone --steps 5 --micro-batches 4 --json pipeline.json
says '1F1B bound'
python3 - <<'PY' || fail "figures of steps"
import json
f32, bf16, alone, pipeline = (json.load(open(f + ".json")) for f in ("f32", "bf16", "alone", "pipeline"))
def near(a, b): # nine digits are printed
    return abs(a - b) <= 1e-7 * abs(b)
for t, dtype, ranks, micro, steps in ((f32, "f32", 1, 2, 2), (bf16, "bf16", 1, 2, 2), (alone, "f32", 1, 1, 3),
                                      (pipeline, "f32", 2, 4, 5)):
    assert [t[k] for k in ("benchmark", "model", "dtype", "ranks", "B", "T", "micro_batches", "steps")] == \
        ["step", "gpt2-tiny", dtype, ranks, 2, 32, micro, steps], t
    assert t["threads"] > 0 and near(t["tokens_per_second"] * t["step_seconds"], 2 * 32 * micro), t
    elements = t["gflops"] / (6e-9 * t["tokens_per_second"]) # 12 W^2 a block, and the head
    layers, width, vocab = 4, 128, 256
    assert near(elements, 12 * layers * width * width + vocab * width), elements
    assert t["peak_rss_bytes"] > 4 * elements, t
    assert min(t["forward_seconds"], t["backward_seconds"], t["update_seconds"]) > 0, t
    parts = t["breakdown"]
    assert near(sum(p["share"] for p in parts), 1) and parts[-1]["kernel"] == "outside of kernels", parts
    assert all(0 < p["share"] < 1 and p["calls"] > 0 for p in parts[:-1]) and parts[-1]["share"] < 1, parts
    products = [p for p in parts if "gflops" in p]
    for p in products:
        assert near(p["gflops"], 2e-9 * p["rows"] * p["inner"] * p["columns"] * p["calls"] / p["seconds"]), p
    shapes = {tuple(sorted((p["rows"], p["inner"], p["columns"]))) for p in products}
    assert (64, width, 4 * width) in shapes, shapes # of an MLP, on 2 x 32 rows
for t in (f32, bf16):
    assert 0 < t["ceiling_fraction"] < 1.5 and near(t["ceiling_fraction"] * t["ceiling_gflops"], t["gflops"]), t
    assert t["ceiling_gflops"] >= 0.999999 * max(v for k, v in t["ceiling_by_library"].items() if k != "fma-loop"), t
assert "bf16" not in f32["ceiling_of"] and "bf16" in bf16["ceiling_of"], (f32, bf16)
for t in (alone, pipeline):
    assert t["ceiling_fraction"] is None and "ceiling_gflops" not in t, t
assert len(pipeline["stages"]) == 2 and sum(s["layers"] for s in pipeline["stages"]) == 6, pipeline
assert "stages" not in f32 and near(pipeline["bound_ratio"] * pipeline["pipeline_seconds"], pipeline["bound_seconds"])
f, b = ([s[k + "_seconds"] for s in pipeline["stages"]] for k in ("forward", "backward"))
busy = max(4 * (x + y) for x, y in zip(f, b)) # no schedule is shorter than its busiest stage, nor than all in turn
assert busy * 0.999999 <= pipeline["bound_seconds"] <= 4 * (sum(f) + sum(b)) * 1.000001, pipeline
PY
expect 64 "${step[@]}" --dtype f16
expect 64 "${step[@]}" --steps 0
says "'0' is not a whole number in 1..256"
for ranks in 1 2; do
  run mpi $ranks "$(atoll atoll-bench)" io --mib 4 --repeats 3 --json io$ranks.json
  says ' : plain write and fsync '
done
python3 - <<'PY' || fail "figures of io"
import json
for ranks in 1, 2:
    t = json.load(open("io%d.json" % ranks))
    assert t["benchmark"] == "io" and t["ranks"] == ranks and t["bytes"] == 4 << 20, t
    rates = [t[k + "_bytes_per_second"] for k in ("plain", "checkpoint", "checkpoint_verified")]
    assert min(rates) > 0 and t["ratio"] > 0 and t["ratio_verified"] > 0, t
PY
mkdir here
run "$(atoll atoll-bench)" io --mib 1 --repeats 1 --dir here
expect 74 "$(atoll atoll-bench)" io --mib 1 --repeats 1 --dir nowhere
left=$(find scratch here -name 'atoll-*') # Open MPI may leave its own
[ -z "$left" ] || fail "left behind: $left"
