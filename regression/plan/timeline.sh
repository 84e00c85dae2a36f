# The predicted step as a timeline and as a chart: well formed, of the plan that is printed, whole or absent; a plan that
# has no times, or whose stages wait for each other, is refused.
. "$ATOLL_SOURCE_DIR/regression/lib/case.sh"
plan=$(atoll atoll-plan)
job=$(sourcefile inputs/jobs/gpt2-124m.yaml)
here=topo.path=$(sourcefile inputs/clusters/a100-v100)
run "$plan" "$job" "$here" --trace step.json --gantt step.svg --save p.yaml
step=$(sed -n 's/.*predicted: step \([0-9.]*\) ms.*/\1/p' "$ATOLL_LAST_OUT")
[ -n "$step" ] || fail "no step time printed"
run python3 - "$step" <<'PYTHON'
import json, sys, xml.etree.ElementTree as tree
events = json.load(open("step.json"))["traceEvents"]
spans = [e for e in events if e["ph"] == "X"]
end = max(e["ts"] + e["dur"] for e in spans) / 1e3
assert abs(end - float(sys.argv[1])) < 0.006 * end, (end, sys.argv[1])
names = [e["args"]["name"] for e in events if e["name"] == "process_name"]
assert any("doing the same" in n and "island a" in n for n in names), names
for kind in "forward 0", "backward 0", "activation 0", "gradient 0", "sum gradients", "tied tensors", "update":
    assert any(e["name"] == kind for e in spans), kind
svg = tree.parse("step.svg").getroot()
text = "".join(svg.itertext())
assert "12 devices" in text and "stage 0, layers" in text and "sum of gradients over replicas" in text, text
PYTHON
if command -v rsvg-convert >/dev/null 2>&1; then
  run rsvg-convert step.svg -o step.png
  [ "$(stat -c %s step.png)" -gt 10000 ] || fail "the chart is nearly empty"
fi
# The same files from the saved plan, and on every call.
run "$plan" "$job" "$here" plan.load=p.yaml --trace again.json --gantt again.svg
cmp step.json again.json && cmp step.svg again.svg || fail "the saved plan draws another step"
# What cannot be written is absent.
expect 74 "$plan" "$job" "$here" --gantt no/such/folder/step.svg
says "no/such/folder"
sed 's/forward_seconds: .*/forward_seconds: 0/' p.yaml >untimed.yaml
cmp -s p.yaml untimed.yaml && fail "the saved plan has no forward_seconds"
expect 64 "$plan" "$job" "$here" plan.load=untimed.yaml --trace untimed.json --save untouched.yaml
says "stage 0 replica 0 has no predicted times"
[ ! -e untimed.json ] && [ ! -e untouched.yaml ] || fail "files were written"
# Stage 0 holds one micro-batch, stage 1 wants two before it gives one back: a run would hang.
awk '/in_flight:/ { n++; sub(/in_flight: .*/, n == 1 ? "in_flight: 1" : "in_flight: 2") } { print }' p.yaml >stuck.yaml
expect 65 "$plan" "$job" "$here" plan.load=stuck.yaml
says "stands still"
says "waits to run backward of micro-batch 0"
