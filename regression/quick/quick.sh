# The bundled job learns: on two ranks its held-out loss ends below a bigram model fitted on the same training text, and at most 2.3 nats per byte; the files it names are there.
. "$ATOLL_SOURCE_DIR/regression/lib/case.sh"
run mpi 2 "$(atoll atoll-train)" "$(sourcefile inputs/jobs/quick.yaml)" run.dir=quick
says 'finished'
run "$(atoll atoll-inspect)" metrics --json --out metrics.json quick
bigram=$(python3 "$(sourcefile regression/reference/bigram.py)" "$(sourcefile inputs/corpora/kjv-train.txt)" "$(sourcefile inputs/corpora/kjv-heldout.txt)") ||
  fail 'the bigram model'
python3 - metrics.json "$bigram" <<'P' || fail 'the model learned too little'
import json, sys
m, bigram = json.load(open(sys.argv[1])), float(sys.argv[2])
last = m["validation_loss"][-1]
print("held-out loss", last, "bigram", bigram)
assert last < bigram and last <= 2.3 and m["validation_step"][-1] == m["step"][-1]
assert m["validation_loss"] == sorted(m["validation_loss"], reverse=True)
P
run "$(atoll atoll-inspect)" verify quick
run "$(atoll atoll-inspect)" status quick
if command -v gnuplot >/dev/null; then
  run "$(atoll atoll-inspect)" plot quick --terminal
  says 'training'
  run "$(atoll atoll-inspect)" plot quick --svg loss.svg
  grep -q '<svg' loss.svg || fail 'no drawing'
fi
