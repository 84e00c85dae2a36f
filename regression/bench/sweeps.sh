# The scripts of whole tables: a piece that is there is not run again, ratios are those of a row's pieces, what no time
# was left for is told. Peers' pieces are written here, so that neither JAX nor PyTorch is needed.
. "${0%/*}/../lib/case.sh"
PY=/usr/bin/python3
"$PY" -c 'import numpy' 2>/dev/null || skip 'python3-numpy is not installed'
mkdir decode rl
peers() { # CHECKSUM: of the right result
  cat >decode/attention-jax-40-8-2.json <<J
{"rows": [{"program": "slow", "T": 40, "window": 8, "batch": 2, "ms_per_token": 8e3, "checksum": 1e9},
          {"program": "fast", "T": 40, "window": 8, "batch": 2, "ms_per_token": 2e3, "checksum": $1},
          {"program": "silent", "T": 40, "window": 8, "batch": 2, "ms_per_token": 4e3},
          {"program": "lost", "T": 40, "window": 8, "batch": 2, "ms_per_token": 4e3, "checksum": NaN}]}
J
}
echo '{"rows": [{"steps_per_second": 2.0}]}' >rl/jax-reinforce_n-8-12-0.json
echo '{"rows": [{"steps_per_second": 0.5}]}' >rl/torch-reinforce_n-8-12-0.json
decode=("$PY" "$(sourcefile apps/atoll-bench/peers/decode_sweep.py)" --bench "$(atoll atoll-bench)" --out decode --lengths 40 --windows 8 --batches 2
  --parts attention --repeat 1)
rl=("$PY" "$(sourcefile apps/atoll-bench/peers/rl_sweep.py)" --bench "$(atoll atoll-bench)" --out rl --algorithms reinforce_n --environments 8 --lengths 12
  --turns 1 --repeat 1)
run "${decode[@]}" --programs atoll,jax --minutes 0
says 'no time: attention atoll 40 8 2'
run "${decode[@]}" --programs atoll
right=$("$PY" -c 'import json; print(json.load(open("decode/attention-atoll-40-8-2.json"))["rows"][0]["checksum"])')
peers "$right"
run "${decode[@]}" --programs atoll,jax
says 'another result: attention slow 40 8 2: 1e+09, not'
says 'another result: attention silent 40 8 2: none, not'
says 'another result: attention lost 40 8 2: nan, not'
[ "$(grep -c 'another result' "$ATOLL_LAST_OUT")" = 3 ] || fail "what is right is told too: $(cat "$ATOLL_LAST_OUT")"
run "${rl[@]}"
touch -d '2001-01-01' decode/attention-atoll-40-8-2.json rl/atoll-reinforce_n-8-12-0.json
run "${decode[@]}" --programs atoll,jax
run "${rl[@]}"
"$PY" - <<'P' || fail 'the tables'
import json, os
for name in "decode/attention-atoll-40-8-2", "rl/atoll-reinforce_n-8-12-0":
    assert os.path.getmtime(name + ".json") < 1e9, "%s was run again" % name
row, = json.load(open("decode/sweep.json"))["rows"]
assert row["peers"] == {"slow": 8e3, "fast": 2e3, "silent": 4e3, "lost": 4e3}, row
assert abs(row["against_best_peer"] * row["ms_per_token"] / 2e3 - 1) < 1e-9, row
row, = json.load(open("rl/sweep.json"))["rows"]
assert abs(row["peers"]["jax"]["atoll_over"] * 2 / row["steps_per_second"] - 1) < 1e-9, row
assert abs(row["peers"]["torch"]["atoll_over"] / 2 / row["steps_per_second"] - 1) < 1e-9, row
P
# Our own result may be none. Peers that were given a part of the tokens have none to compare.
sed -i 's/"checksum": [^,}]*/"checksum": null/' decode/attention-atoll-40-8-2.json
run "${decode[@]}" --programs atoll,jax
says 'another result: attention atoll 40 8 2: none, not none'
says 'another result: attention fast 40 8 2:'
mkdir long
one='"T": 16384, "window": 256, "batch": 16'
echo "{\"rows\": [{$one, \"ms_per_token_tiled\": 1.0, \"bandwidth_fraction\": 0.5, \"checksum\": 2.0}]}" >long/attention-atoll-16384-256-16.json
echo "{\"rows\": [{$one, \"program\": \"part\", \"ms_per_token\": 3.0, \"checksum\": null}]}" >long/attention-jax-16384-256-16.json
run "${decode[@]}" --programs atoll,jax --out long --lengths 16384 --windows 256 --batches 16
says '| 3.000 |'
! grep 'another result' "$ATOLL_LAST_OUT" || fail 'a part of the tokens is no other result'
# What fails is told and does not keep others from running.
run "$PY" "$(sourcefile apps/atoll-bench/peers/rl_sweep.py)" --bench /bin/false --out failed --algorithms ppo --environments 8 --lengths 12 --turns 1 --programs atoll
says 'failed: atoll ppo 8 12 0, see the log'
exit 0
