# atoll-bench mlp starts its own ranks, every way that keeps the bits agrees with the sequential one, the figures hold
# together, and the timeline shows both ranks at work on both layers.
. "$ATOLL_SOURCE_DIR/regression/lib/case.sh"
run "$(atoll atoll-bench)" mlp --seconds 0 --shape 96x300x520x70 --repeats 1 --trace trace.json --svg timeline.svg --json mlp.json
python3 - <<'PY' || fail "mlp.json"
import json
t = json.load(open("mlp.json"))
row, = t["rows"]
assert t["benchmark"] == "mlp" and t["ranks"] == 2 and t["bit_identical"] is True, t
assert [row[k] for k in "MKNP"] == [96, 300, 520, 70] and row["widths"] == [300, 520, 70], row
ways = ["sequential", "microbatch", "microbatch_blas", "row_split", "column_shared", "tp_allreduce", "tp_flags", "cta"]
assert all(row[w + "_us"] > 0 for w in ways), row
assert 0 < row["flag_round_trip"]["first_quartile_ns"] <= row["flag_round_trip"]["third_quartile_ns"], row
assert row["near"]["turns"] + row["far"]["turns"] == row["turns"] and row["near"]["cta_over_ideal"] > 0, row
assert abs(row["ideal_us"] * 2 - row["sequential_us"]) < 1e-6 * row["sequential_us"], row
assert row["blas"] in ("openblas", "onednn") and row["tp_relative_error"] < 1e-5, row
assert t["ceiling_gflops"] > 0 and row["exposed_weight_bytes_of_rank_0"] >= 300 * 520 * 4, row
events = json.load(open("trace.json"))["traceEvents"]
rows = {}
for e in events:
    rows.setdefault(e["name"], set()).add((e["args"]["row"], e["args"]["column"]))
    assert e["dur"] >= 0 and e["tid"] in (0, 1), e
panel = row["settings"]["cta"]["panel"]
panels = -(-96 // panel)
assert len(rows["layer 0"]) == panels * 3 and len(rows["layer 1"]) == panels, rows
assert len(events) == panels * (2 + 3 + 1), len(events)
import xml.etree.ElementTree as tree
drawn = [r for r in tree.parse("timeline.svg").iter("{http://www.w3.org/2000/svg}rect") if len(r)]
assert len(drawn) == len(events), (len(drawn), len(events))
assert row["ideal_us"] <= row["modelled_cta_us"] * 1.000001 and row["modelled_cta_us"] <= row["sequential_us"], row
assert row["modelled_microbatch_us"] >= row["modelled_cta_us"] * 0.999999, row
PY
run "$(atoll atoll-bench)" mlp --seconds 0 --shape 40x64x64x64x64 --repeats 1 --json chain.json
python3 - <<'PY' || fail "chain.json"
import json
t = json.load(open("chain.json"))
row, = t["rows"]
assert t["bit_identical"] is True and row["widths"] == [64] * 4 and "tp_flags_us" not in row, row
PY
# The MLP of Llama, and in bf16, where tensor-parallel ways and libraries have no row.
for dtype in f32 bf16; do
  run "$(atoll atoll-bench)" mlp --seconds 0 --shape 40x64x96x64 --gated --dtype $dtype --repeats 1 --trace trace.json --json gated.json
  python3 - $dtype <<'PY' || fail "gated.json in $dtype"
import json, sys
t = json.load(open("gated.json"))
row, = t["rows"]
assert t["bit_identical"] is True and row["gated"] is True and row["dtype"] == t["dtype"] == sys.argv[1], t
assert row["row_split_us"] > 0 and row["cta_us"] > 0 and "microbatch_blas_us" not in row, row
assert ("tp_flags_us" in row) == (sys.argv[1] == "f32"), row
assert json.load(open("trace.json"))["traceEvents"], row
PY
done
# Chains of eight layers of 1024 columns, on two ranks and on four, which the model gives a core each.
for ranks in 2 4; do
  run mpi $ranks "$(atoll atoll-bench)" mlp --seconds 0 --chain 8 --rows 64 --repeats 1 --json "chain$ranks.json"
done
python3 - <<'PY' || fail "chain2.json, chain4.json"
import json
for ranks in 2, 4:
    t = json.load(open("chain%d.json" % ranks))
    row, = t["rows"]
    assert t["bit_identical"] is True and t["ranks"] == row["ranks"] == ranks and row["M"] == 64, t
    assert row["widths"] == [1024] * 9 and row["cta_us"] > 0 and row["microbatch_us"] > 0, row
    assert row["ideal_us"] <= row["modelled_cta_us"] * 1.000001 and row["modelled_cta_us"] < row["sequential_us"], row
PY
# Tiles of both ranks overlap, and the second layer begins before the first ends. Where other programs have the cores
# one rank may make all tiles of a run, so it is tried until it is seen.
overlap() {
  run "$(atoll atoll-bench)" mlp --seconds 0 --shape 512x512x512x512 --repeats 1 --choices "$PWD/overlap.yaml" --trace overlap.json
  python3 - <<'PY'
import json, sys
events = json.load(open("overlap.json"))["traceEvents"]
spans = {(name, tid): [(e["ts"], e["ts"] + e["dur"]) for e in events if e["name"] == name and e["tid"] == tid]
         for name in ("copy x", "layer 0", "layer 1") for tid in (0, 1)}
of = lambda which: [s for key, list in spans.items() if which in key for s in list]
together = any(a < d and c < b for a, b in of(0) for c, d in of(1))
early = min((a for a, _ in of("layer 1"))) < max(b for _, b in of("layer 0"))
sys.exit(not (together and early))
PY
}
for attempt in 1 2 3 4 5 6 7 8 9 last; do
  overlap && break
  [ $attempt != last ] || fail "no tiles overlap in $attempt: $(cat overlap.json)"
done
expect 64 "$(atoll atoll-bench)" mlp --shape 40x64
expect 64 "$(atoll atoll-bench)" mlp --shape 40x64x64x64 --dtype f16
expect 64 "$(atoll atoll-bench)" mlp --shape 40x64x64x64,40x64
# Slices put together; the second remembers what the first has chosen.
for slice in 1 2; do
  run "$(atoll atoll-bench)" mlp --seconds 0 --shape 40x64x64x64,24x64x32x64 --repeats 1 --choices "$PWD/choices.yaml" --json "slice$slice.json"
  says 'the chooser takes '
done
[ "$(grep -c 'chain: ' choices.yaml)" = 2 ] || fail "choices: $(cat choices.yaml)"
run mpi 1 "$(atoll atoll-bench)" mlp --merge slice1.json,slice2.json --json merged.json
says '40 x 64 x 64 x 64 on 2 ranks'
says '( 2 runs )'
says 'median of 2 shapes: cta of the ideal'
python3 - <<'PY' || fail "merged.json"
import json
slices = [json.load(open("slice%d.json" % i))["rows"] for i in (1, 2)]
t = json.load(open("merged.json"))
assert t["rows"] == slices[0] + slices[1] and t["bit_identical"] is True, t
assert [r["M"] for r in t["rows"]] == [40, 24, 40, 24] and all(r["ranks"] == 2 for r in t["rows"]), t
assert [r["chosen"] for r in slices[0]] == [r["chosen"] for r in slices[1]], slices
PY
expect 66 mpi 1 "$(atoll atoll-bench)" mlp --merge missing.json
# On a GPU where there is one; elsewhere the reason, and the code of the list.
"$(atoll atoll-bench)" mlp --seconds 0 --shape 40x64x64x64 --repeats 1 --device cuda > device.txt 2>&1 && code=0 || code=$?
[ "$code" = 0 ] || { [ "$code" = 68 ] && grep -q "device kind cuda: " device.txt; } || fail "exit $code: $(cat device.txt)"
# Training of a stage whose MLPs are pipelined, beside tensor parallel and a pipeline.
export ATOLL_CACHE=$PWD/cache
run "$(atoll atoll-bench)" mlp --stage 64x24 --repeats 1 --json stage.json
python3 - <<'PY' || fail "stage.json"
import json
t = json.load(open("stage.json"))["training"]
assert (t["width"], t["rows"], t["blocks"], t["micro_batches"]) == (64, 24, 2, 4), t
assert all(t[w + "_s"] > 0 for w in ("cta", "tensor", "pipeline", "auto")) and " rows" in t["chosen"] and t["relative_error"] < 1e-5, t
PY
expect 64 "$(atoll atoll-bench)" mlp --stage 64
