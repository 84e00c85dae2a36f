# The tiny real Llama imports and leaves again bit for bit; its losses are those its makers recorded; a job goes on from it.
. "${0%/*}/../lib/case.sh"
stories=$(shared data/stories260K.bin) || exit $?
golden=$(shared data/stories260K_golden_greedy.txt) || exit $?
loss() {
  "$(atoll atoll-inspect)" metrics "$1" --json | tr -d ' \n' | sed 's/.*"validation_loss":\[\([^]]*\)\].*/\1/'
}
run atoll-convert import "$stories" tiny/ckpt
says 'llama'
run atoll-convert export tiny tiny.bin
tables=$((4 * 512 * 8)) # cosines and sines at the end, which their readers skip
cmp -n $(($(stat -c %s "$stories") - tables)) "$stories" tiny.bin || fail "the tiny Llama does not come back bit for bit"
# Its greedy text as tokens of llm.c: each next token is the likeliest, so its loss is log-sum-exp less the largest logit.
python3 - "$golden" greedy.bin >expected <<'P' || fail 'the recorded text'
import struct, sys
rows = [line.split() for line in open(sys.argv[1]) if line[0] != "#"]
tokens = [int(r[1]) for r in rows]
assert all(int(r[2]) == t for r, t in zip(rows, tokens[1:]))
with open(sys.argv[2], "wb") as f:
    f.write(struct.pack("<256i", 20240520, 1, len(tokens), *[0] * 253) + struct.pack("<%dH" % len(tokens), *tokens))
losses = [float(r[-1]) - float(r[3]) for r in rows[:-1]]
print(len(losses), sum(losses) / len(losses))
P
read -r seq mean <expected
cat >job.yaml <<Y
model: {family: llama, layers: 5, width: 64, heads: 8, kv_heads: 4, ffn: 172, context: 512, vocab: 512}
data: {train: greedy.bin, validation: greedy.bin}
train: {seq: $seq, global_batch: 2, steps: 0, calibrate: false}
topo: {probe: false}
run: {dir: greedy}
ckpt: {resume: tiny/ckpt/step-00000000.a0}
Y
run mpi 2 "$(atoll atoll-train)" job.yaml plan.stages=2
python3 -c 'import sys; assert abs(float(sys.argv[1]) - float(sys.argv[2])) < 2e-5, sys.argv[1:]' "$(loss greedy)" "$mean" ||
  fail "loss $(loss greedy) of the recorded text, expected $mean"
run mpi 2 "$(atoll atoll-train)" job.yaml run.dir=further train.steps=3 plan.data_parallel=2
says 'finished'
exit 0
