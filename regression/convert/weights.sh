# A trained model leaves in each format and comes back bit for bit; a job starts from imported weights and begins with
# the loss they had; bad files and other models are refused.
. "${0%/*}/../lib/case.sh"
cat >job.yaml <<Y
model: {preset: gpt2-tiny}
data: {train: $(sourcefile inputs/corpora/kjv-train.txt), validation: $(sourcefile inputs/corpora/kjv-heldout.txt)}
train: {seq: 64, global_batch: 4, steps: 4, validate_windows: 8, calibrate: false}
topo: {probe_seconds: 0.05}
run: {dir: a}
Y
run mpi 1 "$(atoll atoll-train)" job.yaml
run atoll-convert export a a.safetensors
run atoll-convert export a a.bin
run atoll-convert export a published/
[ -s published/config.json ] || fail "no published/config.json"
cmp a.safetensors published/model.safetensors || fail "the same weights differ"
for from in a.safetensors a.bin published; do
  run atoll-convert import "$from" "b-$from/ckpt" --json
  says '"family": "gpt2"'
  run atoll-inspect verify "b-$from/ckpt/step-00000000.a0"
  run atoll-convert export "b-$from" "b-$from.safetensors"
  cmp a.safetensors "b-$from.safetensors" || fail "$from does not come back bit for bit"
done
run atoll-convert export b-a.bin b.bin
cmp a.bin b.bin || fail "llm.c's format does not come back bit for bit"
run atoll-convert export a.safetensors half.safetensors --dtype bf16
run atoll-convert export half.safetensors half.bin --dtype bf16
run atoll-convert show half.bin
says "BF16"
run atoll-convert show a
says "h.3.mlp.c_proj.bias"
# Held-out loss of the imported weights, before any step, is that of the run they came from, in every digit.
loss() {
  "$(atoll atoll-inspect)" metrics "$1" --json | tr -d ' \n' | sed 's/.*"validation_loss":\[\([^]]*\)\].*/\1/'
}
run mpi 1 "$(atoll atoll-train)" job.yaml run.dir=c train.steps=0 ckpt.resume=b-a.bin/ckpt/step-00000000.a0
says "resumed b-a.bin/ckpt/step-00000000.a0"
[ -n "$(loss a)" ] && [ "$(loss a)" = "$(loss c)" ] || fail "validation loss $(loss c), expected $(loss a)"
# In the run's own folder of checkpoints the import is where a run without checkpoints begins.
run mpi 1 "$(atoll atoll-train)" job.yaml run.dir=b-a.bin
says "resumed b-a.bin/ckpt/step-00000000.a0"
# Imported weights have used no seed yet: a job with another one goes on from them. Trained ones have.
run mpi 1 "$(atoll atoll-train)" job.yaml run.dir=e train.seed=7 train.steps=2 ckpt.resume=b-a.bin/ckpt/step-00000000.a0
says "resumed b-a.bin/ckpt/step-00000000.a0"
expect 76 mpi 1 "$(atoll atoll-train)" job.yaml run.dir=e
says "was trained with train.seed 7, this job has 1"
# Refusals.
head -c 4000 a.safetensors >cut.safetensors
expect 65 atoll-convert import cut.safetensors d
says "cut.safetensors"
expect 76 atoll-convert import a.safetensors d model.ffn=100
says "the model 100 x 128"
expect 76 atoll-convert import a.safetensors d --family bert
expect 64 atoll-convert import a.safetensors d model.heads=3
expect 64 atoll-convert import a.safetensors b-a.bin/ckpt
says "b-a.bin/ckpt/step-00000000.a0 is there already"
expect 64 atoll-convert export a a.pt
says "expected FILE.safetensors"
expect 66 atoll-convert export nowhere a.safetensors2
expect 64 mpi 2 "$(atoll atoll-convert)" import a.safetensors d
says "started as 2 processes, expected one"
printf 'PK\003\004' >torch.bin
expect 67 atoll-convert show torch.bin
[ ! -e d ] || fail "d was made"
exit 0
