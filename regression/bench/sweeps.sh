# The scripts of whole tables: a piece that is there is not run again, ratios are those of a row's pieces, what no time
# was left for is told. Peers' pieces are written here, so that neither JAX nor PyTorch is needed.
. "${0%/*}/../lib/case.sh"
PY=/usr/bin/python3
"$PY" -c 'import numpy' 2>/dev/null || skip 'python3-numpy is not installed'
mkdir decode rl
cat >decode/attention-jax-40-8-2.json <<'J'
{"rows": [{"program": "slow", "T": 40, "window": 8, "batch": 2, "ms_per_token": 8e3, "checksum": 1e9},
          {"program": "fast", "T": 40, "window": 8, "batch": 2, "ms_per_token": 2e3}]}
J
echo '{"rows": [{"steps_per_second": 2.0}]}' >rl/jax-reinforce_n-8-12-0.json
echo '{"rows": [{"steps_per_second": 0.5}]}' >rl/torch-reinforce_n-8-12-0.json
decode=("$PY" "$(sourcefile apps/atoll-bench/peers/decode_sweep.py)" --bench "$(atoll atoll-bench)" --out decode --lengths 40 --windows 8 --batches 2
  --parts attention --repeat 1)
rl=("$PY" "$(sourcefile apps/atoll-bench/peers/rl_sweep.py)" --bench "$(atoll atoll-bench)" --out rl --algorithms reinforce_n --environments 8 --lengths 12
  --turns 1 --repeat 1)
run "${decode[@]}" --programs atoll,jax --minutes 0
says 'no time: attention atoll 40 8 2'
run "${decode[@]}" --programs atoll,jax
says 'another result: attention slow 40 8 2: 1e+09, not'
run "${rl[@]}"
touch -d '2001-01-01' decode/attention-atoll-40-8-2.json rl/atoll-reinforce_n-8-12-0.json
run "${decode[@]}" --programs atoll,jax
run "${rl[@]}"
"$PY" - <<'P' || fail 'the tables'
import json, os
for name in "decode/attention-atoll-40-8-2", "rl/atoll-reinforce_n-8-12-0":
    assert os.path.getmtime(name + ".json") < 1e9, "%s was run again" % name
row, = json.load(open("decode/sweep.json"))["rows"]
assert row["peers"] == {"slow": 8e3, "fast": 2e3}, row
assert abs(row["against_best_peer"] * row["ms_per_token"] / 2e3 - 1) < 1e-9, row
row, = json.load(open("rl/sweep.json"))["rows"]
assert abs(row["peers"]["jax"]["atoll_over"] * 2 / row["steps_per_second"] - 1) < 1e-9, row
assert abs(row["peers"]["torch"]["atoll_over"] / 2 / row["steps_per_second"] - 1) < 1e-9, row
P
# What fails is told and does not keep others from running.
run "$PY" "$(sourcefile apps/atoll-bench/peers/rl_sweep.py)" --bench /bin/false --out failed --algorithms ppo --environments 8 --lengths 12 --turns 1 --programs atoll
says 'failed: atoll ppo 8 12 0, see the log'
exit 0
