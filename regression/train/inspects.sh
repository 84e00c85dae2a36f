# atoll-inspect answers while a job runs, afterwards, and about files that are damaged, empty or something else: with the exit status of its kind and never a crash.
. "$ATOLL_SOURCE_DIR/regression/lib/case.sh"
. "$ATOLL_SOURCE_DIR/regression/train/job.sh"
I=$(atoll atoll-inspect)
write_job job.yaml 'ckpt.every_steps: 5'
"${ATOLL_MPIRUN[@]}" -np 2 "$(atoll atoll-train)" job.yaml run.dir=live train.seed=2 train.steps=1000000 train.log_every=1000000 >live.out 2>&1 </dev/null &
launcher=$!
while_alive $launcher [ -e live/run.h5 ]
expect 72 "$I" status live
for command in ls metrics export counters memory; do
  run "$I" $command live
  [ -s "$ATOLL_LAST_OUT" ] || fail "$command says nothing"
done
run "$I" ls live/run.a1.h5
rows() { python3 -c 'import json, sys; print(len(json.load(open(sys.argv[1]))["step"]))' "$1"; }
longer_than() { # ROWS: what followers see of the live run, in last.out
  run "$I" metrics --json live
  [ "$(rows "$ATOLL_LAST_OUT")" -gt "$1" ]
}
while_alive $launcher longer_than 0
mv "$ATOLL_LAST_OUT" first.json
while_alive $launcher longer_than "$(rows first.json)"
python3 -c '
import json, sys
a, b = (json.load(open(f)) for f in sys.argv[1:])
assert len(b["step"]) > len(a["step"]) > 0, "the file does not grow for readers"
assert b["step"] == list(range(1, len(b["step"]) + 1)) and b["loss"][:len(a["loss"])] == a["loss"]
' first.json "$ATOLL_LAST_OUT" || fail 'following'
run "$I" stop live
says 'live'
wait $launcher
[ $? = 75 ] || fail 'the job did not stop with 75'
expect 68 "$I" stop live

train 2 done
train 2 again
run "$I" export --csv --out done.csv done
run "$I" export --json --out done.json done
run "$I" counters --json done
mv "$ATOLL_LAST_OUT" counters.json
run "$I" memory --json done
mv "$ATOLL_LAST_OUT" memory.json
python3 - <<'P' || fail 'exported figures'
import csv, json
rows, m = list(csv.DictReader(open("done.csv"))), json.load(open("done.json"))
assert [int(r["step"]) for r in rows] == m["step"] == list(range(1, 21))
assert all(abs(float(r["loss"]) - x) < 1e-6 for r, x in zip(rows, m["loss"]))
held = {int(r["step"]): float(r["validation_loss"]) for r in rows if r["validation_loss"]}
assert sorted(held) == m["validation_step"] == [10, 20]
assert all(abs(held[s] - x) < 1e-6 for s, x in zip(m["validation_step"], m["validation_loss"]))
c = json.load(open("counters.json"))
assert c["ranks"] == 2 and c["regions"]["step"]["calls"]["min"] == c["regions"]["step"]["calls"]["max"] == 20
s = c["regions"]["step"]["seconds"]
assert 0 < s["min"] <= s["mean"] <= s["max"] and abs(s["imbalance"] - s["max"] / s["mean"]) < 1e-9
assert c["regions"]["pipeline"]["seconds"]["max"] <= s["max"]
for name, about in c["counters"].items():
    assert about["status"] == "ok" or about["reason"], name
for r in json.load(open("memory.json")):
    assert r["predicted"] == r["measured"] and 0 < r["measured_peak"] <= r["predicted_peak"] <= r["limit"] and r["resident_peak"] > 0, r
P
run "$I" verify done
run "$I" diff done again
for command in ls status verify metrics export counters memory 'diff again'; do # JSON alone, from every command that says it can
  run "$I" --json $command done
  mv "$ATOLL_LAST_OUT" "${command% *}.json"
done
python3 - <<'P' || fail 'JSON'
import json
ls, verify, diff = (json.load(open(n + ".json")) for n in ("ls", "verify", "diff"))
for n in ("status", "metrics", "export", "counters", "memory"): json.load(open(n + ".json"))
assert ls["state"] == "finished" and [c["step"] for c in ls["checkpoints"]] == [15, 20]
assert {"path": "/metrics/loss", "dtype": "f64", "shape": [20], "units": "nat"}.items() <= {d["path"]: d for d in ls["datasets"]}["/metrics/loss"].items()
assert [p["good"] for p in verify] == [True] * 3
assert diff["same"] and diff["loss"] == {"common": 20, "differ": 0, "worst": 0.0, "step": None}, diff
P
expect 64 "$I" plot --json done # a flag that is not read is refused
says 'plot takes no --json'
expect 64 "$I" status --out=x done
expect 64 "$I" export --json --csv done
says 'found --json and --csv'
expect 76 "$I" diff done live
if command -v gnuplot >/dev/null; then
  run "$I" plot done
  run "$I" plot done --svg done.svg
  python3 -c 'import xml.dom.minidom as x; assert x.parse("done.svg").documentElement.tagName == "svg"' || fail 'SVG'
  expect 74 "$I" plot done --svg nowhere/done.svg
  [ "$(wc -l <"$ATOLL_LAST_OUT")" = 1 ] || fail 'an SVG that cannot be written goes elsewhere'
  run "$I" plot done --png done.png
  [ "$(head -c 4 done.png | tail -c 3)" = PNG ] || fail 'PNG'
else
  expect 68 "$I" plot done
  says 'gnuplot is not installed'
fi
# A drawing that fails leaves no file, and one that was there alone.
mkdir fake
echo old >old.svg
for status in 0 3; do
  printf '#!/bin/sh\ncat >/dev/null\nexit %d\n' $status >fake/gnuplot
  chmod +x fake/gnuplot
  PATH=$PWD/fake:$PATH expect 74 "$I" plot done --svg new.svg
  says 'gnuplot'
  [ ! -e new.svg ] || fail 'a failed drawing left an empty file'
done
PATH=$PWD/fake:$PATH expect 74 "$I" plot done --svg old.svg
[ "$(cat old.svg)" = old ] || fail 'a failed drawing harmed what was there'

# Rows that a later attempt ran again are shown only when asked for.
train 2 done ckpt.resume=done/ckpt/step-00000015.a1
run "$I" export --csv --out live.csv done
run "$I" export --csv --all --out all.csv done
[ "$(wc -l <live.csv) $(wc -l <all.csv)" = '21 26' ] || fail "rows: $(wc -l live.csv all.csv)"

mkdir empty junk
head -c 5000 /dev/urandom >junk/run.h5
for command in ls metrics export counters memory verify plot; do
  expect 65 "$I" $command junk/run.h5
  says 'junk/run.h5'
  expect 66 "$I" $command absent
  says 'absent'
  [ $command = ls ] && continue # an empty folder can be listed
  expect 66 "$I" $command empty
  says 'empty'
done
expect 66 "$I" status empty
# HDF5 of another kind is no run, whatever its groups are called.
for command in metrics counters memory verify; do
  expect 65 "$I" $command done/ckpt/step-00000020.a1/model.h5
  says 'not a run file'
done
expect 65 "$I" diff done junk
says 'junk/run.h5'
expect 64 "$I" statsu done
says "did you mean 'status'"
expect 64 "$I" diff done
# A run whose own record is damaged says so; its checkpoints are looked at all the same.
cp junk/run.h5 live/run.h5
expect 65 "$I" verify live --json
sed -i '/^atoll-inspect: /d' "$ATOLL_LAST_OUT" # standard error, which is kept beside
python3 -c 'import json, sys; p = json.load(open(sys.argv[1])); assert not p[0]["good"] and "live/run.h5" in p[0]["damage"] and p[1]["good"]' "$ATOLL_LAST_OUT" || fail 'JSON of damage'
expect 65 "$I" verify live
says 'live/run.h5'
says ': good'
