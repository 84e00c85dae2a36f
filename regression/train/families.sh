# The bundled jobs of llama, bert and roberta learn; and 1 and 2 ranks, as pipeline and as data parallel, give the same losses bit for bit, with dropout,
# padding and short steps between. Llama also with a head of its own.
. "$ATOLL_SOURCE_DIR/regression/lib/case.sh"
. "$ATOLL_SOURCE_DIR/regression/train/job.sh"
quickly="topo.probe=false train.calibrate=false"
for family in llama bert roberta; do
  # shellcheck disable=SC2086
  run mpi 2 "$(atoll atoll-train)" "$(sourcefile "inputs/jobs/$family-tiny.yaml")" run.dir="$family" $quickly
  says 'finished'
  run "$(atoll atoll-inspect)" metrics --json --out metrics.json "$family"
  python3 - metrics.json "$family" <<'P' || fail "$family learned too little"
import json, math, sys
m, family = json.load(open(sys.argv[1])), sys.argv[2]
first, last, held = m["loss"][0], sum(m["loss"][-10:]) / 10, m["validation_loss"][-1]
print(family, "first", first, "last", last, "held out", held)
# Nothing known: as many choices as tokens (and two more for the next sentence). Known: how often each byte occurs (3.0 nats in this text).
blind = math.log(256 if family == "llama" else 260) + (math.log(2) if family == "bert" else 0)
assert abs(first - blind) < 0.3
assert last < blind - 1.5 and held < blind - 1.5
P
done
runs=0
bits() { # FAMILY key=value ...: the same model on one rank, as pipeline and as data parallel
  local family=$1 dir=bits$((runs += 1))
  shift
  cp "$(sourcefile "inputs/jobs/$family-tiny.yaml")" job.yaml
  sed -i "s|\.\./corpora|$(dirname "$(sourcefile inputs/corpora/kjv-train.txt)")|" job.yaml
  # shellcheck disable=SC2086
  set -- $quickly plan.micro_batch=2 train.steps=6 train.global_batch=8 train.seq=40 train.validate_windows=20 train.log_every=5 model.layers=2 model.width=32 model.ffn=48 \
    model.dropout=0.1 data.short_share=0.4 "$@"
  train 1 "$dir-base" plan.stages=1 plan.data_parallel=1 "$@"
  train 2 "$dir-pipeline" plan.stages=2 plan.data_parallel=1 "$@"
  train 2 "$dir-data" plan.stages=1 plan.data_parallel=2 "$@"
  for other in pipeline data; do
    same "$dir-base" "$dir-$other"
    says 'loss is the same bit for bit in 6 common rows'
    says 'gradient_norm is the same bit for bit in 6 common rows'
    says 'validation_loss is the same bit for bit in 1 common rows'
  done
}
bits llama
bits llama model.untied=true
bits bert
bits roberta
