# Ways to stop early. A time limit stops in time, with a checkpoint and 75; checkpoints come by the clock; a second signal ends at once, also when a rank hangs, with 79 and
# what was committed; a timeline holds every rank.
. "$ATOLL_SOURCE_DIR/regression/lib/case.sh"
. "$ATOLL_SOURCE_DIR/regression/train/job.sh"
I=$(atoll atoll-inspect)
write_job job.yaml 'train.steps: 1000000' 'train.log_every: 1000000' 'train.validate_every: 0'
sed -i 's/steps: 20, decay_steps: 20/decay_steps: 20/; s/validate_every: 10, //; s/, log_every: 5//' job.yaml

began=$(date +%s)
expect 75 mpi 2 "$(atoll atoll-train)" job.yaml run.dir=limit run.time_limit=12s run.stop_margin=1s ckpt.every_seconds=500ms ckpt.keep=9 run.trace=true
took=$(($(date +%s) - began))
says 'time limit'
[ "$took" -le 60 ] || fail "a limit of 12 s was kept after $took s"
[ "$(committed limit)" -ge 3 ] || fail "expected a checkpoint every half second: $(ls limit/ckpt)"
expect 75 "$I" status --json limit
python3 - "$ATOLL_LAST_OUT" limit/trace.json <<'P' || fail 'status or timeline'
import json, os, sys
s = json.load(open(sys.argv[1]))
assert (s["state"], s["status"], s["code"], s["action"]) == ("stopped", 75, "STOPPED", "requeue"), s
assert "step-%08d.a1" % s["last_step"] in os.listdir("limit/ckpt"), s
e = json.load(open(sys.argv[2]))["traceEvents"]
spans = [x for x in e if x["ph"] == "X"]
assert {x["pid"] for x in spans} == {0, 1}
for rank in (0, 1):
    mine = [x for x in spans if x["pid"] == rank]
    assert sum(x["name"] == "step" for x in mine) == s["last_step"], rank
    assert all(x["dur"] >= 0 for x in mine) and {"setup", "pipeline", "reduce", "update", "checkpoint"} <= {x["name"] for x in mine}
P
# With requeue_ok=false an early stop is the wanted end.
run mpi 2 "$(atoll atoll-train)" job.yaml run.dir=limit run.time_limit=3s run.stop_margin=1s run.requeue_ok=false
says 'resumed'
run "$I" status limit

# A rank hangs; somebody who does not want to wait signals twice.
"${ATOLL_MPIRUN[@]}" -np 2 "$(atoll atoll-train)" job.yaml run.dir=twice ckpt.every_steps=20 run.silence=60s >twice.out 2>&1 </dev/null &
launcher=$!
while_alive $launcher [ -e twice/run.h5 ]
ranks=$(pgrep -P $launcher atoll-train)
kill -STOP "$(echo "$ranks" | tail -n 1)"
kill -TERM "$(echo "$ranks" | head -n 1)"
sleep 1.5
kill -TERM "$(echo "$ranks" | head -n 1)"
began=$(date +%s)
wait $launcher
got=$?
[ $got = 79 ] || { cat twice.out; fail "two signals ended the job with $got"; }
[ $(($(date +%s) - began)) -le 30 ] || fail 'two signals did not end the job at once'
expect 79 "$I" status twice
says 'second signal'
run "$I" verify twice
