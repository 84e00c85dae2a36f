# Models of llama, bert and roberta that a job trained leave as published files and come back bit for bit, and begin with the loss they had.
. "${0%/*}/../lib/case.sh"
loss() {
  "$(atoll atoll-inspect)" metrics "$1" --json | tr -d ' \n' | sed 's/.*"validation_loss":\[\([^]]*\)\].*/\1/'
}
heldout=$(sourcefile inputs/corpora/kjv-heldout.txt)
for model in "preset: llama-test, vocab: 260" "preset: llama-test, vocab: 260, untied: true, rope_factor: 8, rope_low: 1, rope_high: 4, rope_context: 16, norm_eps: 1e-6" \
  "preset: bert-test, vocab: 260" "preset: roberta-test, vocab: 260"; do
  rm -rf a b c published
  cat >job.yaml <<Y
model: {$model}
data: {train: $heldout, validation: $heldout}
train: {seq: 32, global_batch: 4, steps: 3, validate_windows: 8, calibrate: false}
topo: {probe: false}
run: {dir: a}
Y
  run mpi 1 "$(atoll atoll-train)" job.yaml
  run atoll-convert export a published/
  run atoll-convert import published b/ckpt
  run atoll-inspect verify b/ckpt/step-00000000.a0
  run atoll-convert export b b.safetensors
  cmp published/model.safetensors b.safetensors || fail "$model does not come back bit for bit"
  run mpi 1 "$(atoll atoll-train)" job.yaml run.dir=c train.steps=0 ckpt.resume=b/ckpt/step-00000000.a0
  [ -n "$(loss a)" ] && [ "$(loss a)" = "$(loss c)" ] || fail "$model: validation loss $(loss c), expected $(loss a)"
done
exit 0
