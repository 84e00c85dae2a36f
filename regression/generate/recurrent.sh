# The recurrent engine continues texts as the plain one does: a small GPT-2, alone and several together, greedily and
# drawn, with attention over all keys at once, over blocks, and over a window that is long enough; a short window says
# something else, the same by both, and keeps less by programs. So does a small Llama whose frequencies of rotary
# positions are scaled as in Llama 3, and whose head is a matrix of its own.
. "${0%/*}/../lib/case.sh"
cat >job.yaml <<Y
model: {preset: gpt2-tiny}
data: {train: $(sourcefile inputs/corpora/kjv-train.txt), validation: $(sourcefile inputs/corpora/kjv-heldout.txt)}
train: {seq: 64, global_batch: 8, steps: 6, learning_rate: 3e-3, warmup_steps: 1, validate_windows: 1, calibrate: false}
topo: {probe_seconds: 0.05}
run: {dir: a}
Y
run mpi 1 "$(atoll atoll-train)" job.yaml
printf 'In the beginning\nAnd\nthe LORD\n' >prompts
# Of its 12 pairs per head, some keep their frequency, some are divided, and some lie between.
sed -e 's/^model:.*/model: {family: llama, layers: 3, width: 96, heads: 4, kv_heads: 2, vocab: 256, context: 128, untied: true,\n  rope_theta: 500, rope_factor: 8, rope_low: 1, rope_high: 4, rope_context: 32}/' \
  -e 's/steps: 6, learning_rate: 3e-3/steps: 16, learning_rate: 1e-2/' -e 's/dir: a/dir: llama/' job.yaml >llama.yaml
run mpi 1 "$(atoll atoll-train)" llama.yaml
of=a
generate() { # NAME ARGUMENTS...
  local name=$1
  shift
  "$(atoll atoll-generate)" $of --prompts prompts --json generate.tokens=24 "$@" >"$name" 2>err </dev/null ||
    fail "atoll-generate $*: $(cat err)"
}
generate plain
generate recurrent --engine recurrent
generate single --engine recurrent generate.batch=2
generate window --engine recurrent generate.window=64
generate short --engine recurrent generate.window=8
generate plain_short generate.window=8
generate block --engine recurrent generate.block=16
# A budget that holds some of the keys and values: the others wait in a file.
memory=$(python3 -c 'import json; b = json.load(open("block"))["bytes_per_rank"]; print(b["parameter"] + b["activation"] * 6 // 10)')
generate offload --engine recurrent generate.block=16 "generate.memory=$memory" generate.offload=.
generate drawn generate.temperature=0.8 generate.top_k=20
generate drawn_recurrent --engine recurrent generate.temperature=0.8 generate.top_k=20
# Keys and values dealt out over two ranks, in tiles of 8 positions.
"${ATOLL_MPIRUN[@]}" -np 2 "$(atoll atoll-generate)" a --prompts prompts --json generate.tokens=24 --engine recurrent generate.block=8 \
  generate.together=yes generate.threads=1 >placed 2>err </dev/null || fail "two ranks: $(cat err)"
generate whole --engine recurrent generate.block=8
# One rank's numbers are not the other's, to the last bit, where processors are unlike: rank 0 chooses every token. Here the
# second would draw others, too.
"${ATOLL_MPIRUN[@]}" -np 2 bash -c '[ $OMPI_COMM_WORLD_RANK = 0 ] || export ATOLL_GENERATE_SEED=9 ATOLL_CFLAGS="-O1"; exec "$@"' - \
  "$(atoll atoll-generate)" a --prompts prompts --json generate.tokens=24 --engine recurrent generate.block=8 generate.together=yes \
  generate.threads=1 generate.temperature=0.8 generate.top_k=20 >placed_drawn 2>err </dev/null || fail "unlike ranks: $(cat err)"
# So dealt out and under a budget. A disk that fills up on one rank ends the job, although others wait for its sums.
memory=$(python3 -c 'import json; b = json.load(open("placed"))["bytes_per_rank"]; print(b["parameter"] + b["activation"] * 8 // 10)')
budget=("$(atoll atoll-generate)" a --prompts prompts --json generate.tokens=24 --engine recurrent generate.block=8
  generate.together=yes generate.threads=1 "generate.memory=$memory")
"${ATOLL_MPIRUN[@]}" -np 2 "${budget[@]}" generate.offload=. >placed_offload 2>err </dev/null || fail "two ranks, budget: $(cat err)"
expect 74 mpi 2 env ATOLL_FAULT=fail:write:4:ENOSPC:0 "${budget[@]}" generate.offload=.
says 'No space left'
expect 74 mpi 2 "${budget[@]}" generate.offload=not/there
says 'no file can be made in not/there'
of=llama
generate llama_plain
generate llama_recurrent --engine recurrent
generate llama_window --engine recurrent generate.window=64
generate llama_block --engine recurrent generate.block=16 generate.batch=1
generate llama_plain_short generate.window=8
generate llama_short --engine recurrent generate.window=8 generate.block=8
generate llama_drawn generate.temperature=0.8 generate.top_k=20
generate llama_drawn_recurrent --engine recurrent generate.temperature=0.8 generate.top_k=20
python3 - <<'P' || fail 'the texts'
import json
def load(name):
    return json.load(open(name))
def same(a, b, part=1e-3):
    for x, y in zip(load(a)["texts"], load(b)["texts"]):
        assert x["tokens"] == y["tokens"], (a, b, x["text"], y["text"])
        for p, q in zip(x["probabilities"], y["probabilities"]):
            assert abs(p - q) <= part * p, (a, b, p, q)
for other in ("recurrent", "single", "window", "block", "placed", "offload", "placed_offload"):
    same("plain", other)
same("drawn", "drawn_recurrent")
same("drawn", "placed_drawn")
same("plain_short", "short")
for other in ("recurrent", "window", "block"):
    same("llama_plain", "llama_" + other, 1e-4) # 1e-6 apart; without the scaling 9e-4
same("llama_drawn", "llama_drawn_recurrent", 1e-4)
same("llama_plain_short", "llama_short", 1e-4)
assert load("short")["texts"][0]["probabilities"] != load("plain")["texts"][0]["probabilities"]
short, whole = (load(f)["bytes_per_rank"]["activation"] for f in ("short", "recurrent"))
assert short < whole, (short, whole)
placed, whole = (load(f)["bytes_per_rank"]["activation"] for f in ("placed", "whole"))
assert placed < 0.8 * whole, (placed, whole)
held, whole = (load(f)["bytes_per_rank"]["activation"] for f in ("offload", "block"))
assert held <= 0.6 * whole, (held, whole)
P
expect 64 atoll-generate a --prompt And --engine other
says "'other' is neither plain nor recurrent"
expect 64 atoll-generate a --prompt And generate.block=8
says 'needs --engine recurrent'
expect 64 atoll-generate a --prompt And generate.device=cuda
says 'need --engine recurrent'
expect 64 atoll-generate a --prompt And --engine recurrent generate.device=cudo
says "device 'cudo'"
expect 64 atoll-generate a --prompt And --engine recurrent generate.offload=.
says 'needs generate.memory'
expect 71 atoll-generate a --prompt And --engine recurrent generate.memory=10kB
says 'parameter'
exit 0
