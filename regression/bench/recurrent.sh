# atoll-bench decode and rl: outputs agree with those of a padded cache (or the benchmark fails), keys and values of a
# window are those of the window, memory of learning with n steps does not depend on T, and peers' rows find their place.
. "${0%/*}/../lib/case.sh"
cat >peers.json <<'J'
{"rows": [{"program": "other", "T": 40, "window": 8, "batch": 2, "threads": 1, "ms_per_token": 2.5},
          {"program": "other", "T": 40, "window": 0, "batch": 9, "threads": 1, "ms_per_token": 2.5},
          {"program": "model", "T": 4, "window": 0, "batch": 2, "threads": 1, "layers": 8, "ms_per_token": 3.5},
          {"program": "model", "T": 40, "window": 0, "batch": 2, "threads": 1, "layers": 8, "ms_per_token": 3.5},
          {"program": "other", "algorithm": "reinforce_n", "environments": 8, "T": 12, "observation": 4, "hidden": 8,
           "n": 8, "threads": 1, "steps_per_second": 7},
          {"program": "longer returns", "algorithm": "reinforce_n", "environments": 8, "T": 12, "observation": 4,
           "hidden": 8, "n": 16, "threads": 1, "steps_per_second": 9},
          {"program": "more threads", "algorithm": "reinforce_n", "environments": 8, "T": 12, "observation": 4,
           "hidden": 8, "n": 8, "threads": 2, "steps_per_second": 9}]}
J
run atoll-bench decode --lengths 40 --windows 0,8 --batches 2 --block 4 --repeats 1 --model-lengths 4 --layers 2 --peers peers.json --json decode.json
says 'T 4: window 8 is all tokens again and left out'
says '5 of 7 peer rows matched no row; the first has batch 9 instead of 2'
run atoll-bench rl --algorithms reinforce_n --environments 8 --lengths 12,48 --hidden 8 --iterations 2 --repeats 1 \
  --peers peers.json --json rl.json
says '6 of 7 peer rows matched no row'
for cache in /sys/devices/system/cpu/cpu0/cache/index*; do
  [ "$(cat "$cache/level" 2>/dev/null)" = 3 ] && echo $(($(sed 's/K$//' "$cache/size") * 1024))
done >l3
python3 - <<'P' || fail 'the figures'
import json
l3 = int(open("l3").read() or 0) # the kernel's word for it
model = json.load(open("decode.json"))["model"]
causal, window = json.load(open("decode.json"))["rows"]
position = 2 * 4 * 8 * 64  # bytes of a key and a value, of one sequence at least
assert 8 * position <= window["peak_kv_bytes"] < 40 * position <= causal["peak_kv_bytes"], (window, causal)
assert window["peak_kv_bytes"] == (8 + 4) * 2 * position, window  # the window and one block, of two sequences
assert window["peers"] == {"other": 2.5} and causal["peers"] == {}
compiled = json.load(open("decode.json"))["compile"]
assert len(compiled) == 2 and all(0 < r["cached_seconds"] < r["cold_seconds"] for r in compiled), compiled
for r in (causal, window): # what bounds a row, and whether its keys and values fit into the last cache
    assert 0 < r["bandwidth_fraction"] and 0 < r["read_bytes_per_second"] and 0 < r["dram_bytes_per_second"], r
    assert abs(r["speedup"] * r["ms_per_token_tiled"] / r["ms_per_token_padded"] - 1) < 1e-6, r
    assert r["l3_bytes"] == l3 or not r["l3_bytes"] and not l3, (r["l3_bytes"], l3)
assert [r["peers"] for r in model] == [{"model": 3.5}], model
for r in model:
    assert 0 < r["bandwidth_fraction"] and 0 < r["read_bytes_per_second"] and r["ms_per_token"] > 0, r
for r in (causal, window):
    assert r["ms_per_token_tiled"] > 0 and r["ms_per_token_padded"] > 0 and 0 <= r["difference"] < 1e-3, r
short, long = json.load(open("rl.json"))["rows"]
assert short["peers"] == {"other": 7} and long["peers"] == {}
assert short["steps_per_second"] > 0 and long["peak_bytes"] - short["peak_bytes"] < 36 * 8, (short, long)
P
# A machine that is described says how large its cache is.
HWLOC_SYNTHETIC='pack:1 l3:1(size=50331648) core:2 pu:1' run atoll-bench decode --part attention --lengths 16 --windows 0 --batches 1 --block 8 \
  --repeats 1 --json described.json
python3 -c 'import json; r, = json.load(open("described.json"))["rows"]; assert r["l3_bytes"] == 48 << 20, r' || fail 'the cache of a machine'
# A context that is beyond the budget of one rank: two hold it between them.
long=(decode --lengths 96 --windows 0 --batches 1 --block 8 --repeats 1 --memory 300000)
expect 71 mpi 1 "$(atoll atoll-bench)" "${long[@]}"
says 'the budget is 300000'
run mpi 2 "$(atoll atoll-bench)" "${long[@]}" --json placed.json
python3 - <<'P' || fail 'keys over two ranks'
import json
row, = json.load(open("placed.json"))["rows"]
assert row["ranks"] == 2 and row["peak_bytes"] <= 300000 and 0 <= row["difference"] < 1e-3, row
P
# 13 tiles: the first rank has one more than the budget takes, and the other leaves with it.
expect 71 mpi 2 "$(atoll atoll-bench)" decode --lengths 104 --windows 0 --batches 1 --block 8 --repeats 1 --memory 249000
expect 64 atoll-bench rl --algorithms reinforce,ppa
says "'ppa' is none of reinforce, reinforce_n, ppo"
expect 64 atoll-bench rl --lengths 12 --n 30
says '--n 30: reinforce_n has no more steps than --lengths 12'
expect 64 atoll-bench decode --environments 3
says 'decode does not read --environments, which is for: rl'
expect 64 atoll-bench speed
says 'there are: step, io, calibrate, predict, layers, mlp, rl, decode'
expect 64 atoll-bench decode --lengths 512,x
says 'is not a list of at most'
expect 66 atoll-bench decode --peers nowhere.json
exit 0
