# Bytes counted for each memory policy are the predicted ones, and the largest batch is the last that fits.
. "$ATOLL_SOURCE_DIR/regression/lib/case.sh"
for dtype in f32 bf16; do
run "$(atoll atoll-bench)" layers --preset bert-tiny --dtype $dtype --budget 1 --json layers.json
DTYPE=$dtype python3 - <<'PY' || fail "layers.json"
import json, os
dtype = os.environ["DTYPE"]
t = json.load(open("layers.json"))
rows = {r["policy"]: r for r in t["rows"]}
assert t["benchmark"] == "layers" and len(rows) == len(t["rows"]) == 12, t
for r in rows.values():
    assert r["family"] == "bert-tiny" and r["dtype"] == dtype and r["S"] == 128 and r["B"] == r["max_batch"] > 0, r
    assert r["bytes_predicted"] == r["bytes_measured"] <= r["budget"] < r["bytes_measured"] + r["bytes_per_sample"], r
    assert r["tokens_per_second"] > 0 and r["scaled"] and r["counted_only"] is False, r
    assert r["timed_blocks"] == 2 and r["block_seconds"] > r["block_forward_seconds"] > 0, r
    assert r["block_kernel_seconds"] and min(r["block_kernel_seconds"].values()) > 0, r
frontier = ["eager", "eager_flash", "exact20", "exact18", "exact12", "exact10", "exact6", "exact4", "exact2"]
for r in rows.values():
    assert r["bytes"]["saved"] > 0 and sum(r["bytes"].values()) == r["bytes_predicted"], r
    assert r["recompute_share_counted"] >= 0 and abs(r["loss_counted"] - r["recompute_share_counted"] / (3 + r["recompute_share_counted"])) < 1e-6, r
    assert abs(r["tokens_per_second_over_eager"] * rows["eager"]["tokens_per_second"] / r["tokens_per_second"] - 1) < 1e-6, r
assert rows["exact20"]["recompute_share_counted"] == rows["exact20"]["recompute_share_measured"] == 0 < rows["exact2"]["recompute_share_counted"], rows
kept = [rows[p]["bsh_bytes"] for p in frontier]
assert kept == sorted(kept, reverse=True) and kept[0] > (66 if dtype == "f32" else 34) and kept[-1] < (5 if dtype == "f32" else 3), kept
assert all(abs(r["max_batch_over_eager_by_bytes"] * r["bsh_bytes"] / rows["eager"]["bsh_bytes"] - 1) < 1e-6 for r in rows.values()), rows
assert (rows["eager"]["bytes"]["masters"] > 0) == (dtype == "bf16"), rows
PY
done
# One policy: beside eager, and by a real step.
for policy in tempo exact eager; do
  run "$(atoll atoll-bench)" layers --preset bert-tiny --budget 1 --seq 128 --dtype bf16 --policy $policy --json $policy.json
done
mv tempo.json one.json
python3 - <<'PY' || fail "one.json"
import json
for file, policy in ("one", "tempo"), ("exact", "exact20"), ("eager", "eager"):
    rows = {r["policy"]: r for r in json.load(open(file + ".json"))["rows"]}
    assert sorted(rows) == sorted({"eager", policy}) and [p for p in rows if "confirmed" in rows[p]] == [policy], rows
    r = rows[policy]
    assert r["confirmed"] is True and r["confirmed_bytes"] == r["bytes_measured"] and r["confirmed_seconds"] > 0, r
    assert abs(r["confirmed_tokens_per_second"] * r["confirmed_seconds"] / (r["B"] * 128) - 1) < 1e-6, r
PY
# A run that is ended, here in the real step behind eager's row, leaves the rows it had in a file that is whole.
"$(atoll atoll-bench)" layers --preset bert-tiny --budget 1 --seq 128 --dtype f32 --policy exact20 --json ended.json >"$ATOLL_LAST_OUT" 2>&1 </dev/null &
bench=$!
while kill -0 $bench 2>/dev/null && ! [ -s ended.json ]; do sleep 0.05; done
kill -9 $bench || fail "it ended by itself: $(cat "$ATOLL_LAST_OUT")"
wait $bench 2>/dev/null
python3 - <<'PY' || fail "ended.json"
import json
t, whole = (json.load(open(f)) for f in ("ended.json", "one.json"))
assert not t["complete"] and [r["policy"] for r in t["rows"]] == ["eager"] and t["rows"][0]["tokens_per_second"] > 0, t
assert whole["complete"] and whole["parts"][0]["seconds"] > whole["parts"][0]["timing_seconds"] > 0, whole
PY
# Everything, counted: bytes of models beyond any memory here, without a time.
run "$(atoll atoll-bench)" layers --count --full --json all.json
run "$(atoll atoll-bench)" layers --count --json few.json
# A model that is too large to be timed says that its rows are counted, and so does bf16 where nobody asks for it.
run "$(atoll atoll-bench)" layers --preset llama-3.2-1b --seq 128 --policy exact4 --json large.json
python3 - <<'PY' || fail "all.json"
import json
t, few, large = (json.load(open(f + ".json")) for f in ("all", "few", "large"))
standard = ["bert-large", "gpt2-124m", "roberta-base", "llama-3.2-1b"]
families = standard + ["bert-base", "roberta-large", "gpt2-355m", "gpt2-774m", "gpt2-1.5b", "llama-3.2-3b"]
policies = {r["policy"] for r in t["rows"]}
def keys(rows):
    return [(r["family"], r["dtype"], r["S"], r["policy"]) for r in rows]
def expected(families):
    return {(f, d, s, p) for f in families for d in ("f32", "bf16") for s in (128, 512) for p in policies}
for figures, of in ((t, families), (few, standard)):
    rows = figures["rows"]
    assert len(policies) == 12 and set(keys(rows)) == expected(of) and len(rows) == 48 * len(of), keys(rows)
    assert figures["complete"] and len(figures["parts"]) == 4 * len(of)
    for r in rows:
        assert r["counted_only"] is True and r["tokens_per_second"] is None and "block_seconds" not in r, r
        assert r["bytes_predicted"] == r["bytes_measured"] == sum(r["bytes"].values()) and r["budget"] == 11 << 30, r
        assert (r["bytes_measured"] <= r["budget"]) == (r["max_batch"] > 0), r
        assert r["B"] == max(1, r["max_batch"]) and r["bytes_measured"] + r["bytes_per_sample"] > r["budget"], r
assert few["rows"] == [r for r in t["rows"] if r["family"] in standard]
none = {(r["family"], r["dtype"]) for r in t["rows"] if not r["max_batch"]} # f32: 16 bytes of states a parameter
assert none >= {("gpt2-1.5b", "f32"), ("llama-3.2-1b", "f32"), ("llama-3.2-3b", "f32")}, none
assert not any(f.startswith(("bert", "roberta")) or f == "gpt2-124m" for f, d in none), none
assert sorted(keys(large["rows"])) == sorted(("llama-3.2-1b", d, 128, p) for d in ("f32", "bf16") for p in ("eager", "exact4"))
assert all(r["counted_only"] and "confirmed" not in r for r in large["rows"]), large
PY
expect 64 "$(atoll atoll-bench)" layers --seq 256
expect 64 "$(atoll atoll-bench)" layers --policy tempi
says "tempo_flash"
