# A model that trained a few steps on bytes continues text: greedily and drawn, the same from its checkpoint and from
# exported files, for any batch, threads and number of ranks. Requests that do not fit are refused.
. "${0%/*}/../lib/case.sh"
cat >job.yaml <<Y
model: {preset: gpt2-tiny}
data: {train: $(sourcefile inputs/corpora/kjv-train.txt), validation: $(sourcefile inputs/corpora/kjv-heldout.txt)}
train: {seq: 64, global_batch: 8, steps: 30, learning_rate: 3e-3, warmup_steps: 4, validate_windows: 4, calibrate: false}
topo: {probe_seconds: 0.05}
run: {dir: a}
Y
run mpi 1 "$(atoll atoll-train)" job.yaml
run atoll-convert export a a.bin
run atoll-convert export a published/
generate() { "$(atoll atoll-generate)" "$@" 2>err </dev/null || fail "atoll-generate $*: $(cat err)"; }
# Greedy: the prompt, then 40 bytes, with the speed on standard error.
generate a --prompt 'And God said' generate.tokens=40 >greedy
head -c 12 greedy | grep -qx 'And God said' || fail "it begins with: $(head -c 40 greedy)"
[ "$(wc -c <greedy)" -ge 53 ] || fail "only $(wc -c <greedy) bytes"
grep -q 'tokens/s' err || fail 'no speed on standard error'
for from in a/ckpt 'a.bin model.heads=4' published; do
  generate $from --prompt 'And God said' generate.tokens=40 >same
  cmp greedy same || fail "$from does not say the same"
done
printf 'And God said' >prompt
generate a --prompt-file prompt generate.tokens=40 >same
cmp greedy same || fail '--prompt-file does not say the same'
atoll-generate a generate.tokens=40 <prompt >same 2>/dev/null || fail 'standard input'
cmp greedy same || fail 'standard input does not say the same'
# Drawn: many texts, and the same ones however they are divided.
printf 'In the beginning\n\nAnd\nthe LORD\nx\nMoses spake unto\n' >prompts
draw() { # NAME RANKS KEY=VALUE...
  local name=$1 ranks=$2
  shift 2
  "${ATOLL_MPIRUN[@]}" -np "$ranks" "$(atoll atoll-generate)" a --prompts prompts --json generate.temperature=0.9 \
    generate.top_k=30 generate.top_p=0.95 generate.samples=2 generate.tokens=24 "$@" >"$name" 2>err </dev/null ||
    fail "$name: $(cat err)"
}
draw one 1
draw two 2 generate.batch=3 generate.threads=1
draw three 3 generate.batch=1
draw seed 1 generate.seed=2
# All ranks at each text, with the products that they share, and as they like.
export ATOLL_TEST_TEAM=shared
draw team 2 generate.together=yes generate.threads=1
export ATOLL_TEST_TEAM=pipelined
draw tiles 3 generate.together=yes generate.threads=1 generate.batch=3
unset ATOLL_TEST_TEAM
export ATOLL_CACHE=$PWD/cache # what was measured is remembered
draw some 3 generate.together=yes generate.threads=1 generate.batch=5
draw again 3 generate.together=yes generate.threads=1 generate.batch=5
unset ATOLL_CACHE
python3 - <<'P' || fail 'the texts'
import json
names = "one", "two", "three", "seed", "team", "tiles", "some", "again"
one, two, three, seed, team, tiles, some, again = (json.load(open(f)) for f in names)
assert [r["ranks"] for r in (one, two, three, team, some)] == [1, 2, 3, 2, 3]
assert team["together"]["shared"] == team["together"]["shapes"] >= 4 and not team["together"]["pipelined"], team["together"]
assert tiles["together"]["shared"] == tiles["together"]["shapes"] and tiles["together"]["pipelined"] >= 1, tiles["together"]
assert some["together"]["ranks"] == 3 and "together" not in two
assert some["together"]["remembered"] == 0 < again["together"]["remembered"] == again["together"]["shapes"], again
assert again["together"]["shared"] == some["together"]["shared"], again
assert len(one["texts"]) == 10 and [t["prompt_index"] for t in one["texts"]] == [i // 2 for i in range(10)]
for other in (two, three, team, tiles, some, again):
    for a, b in zip(one["texts"], other["texts"]):
        assert a == b, (a, b)
assert sum(a["tokens"] != b["tokens"] for a, b in zip(one["texts"], seed["texts"])) > 5
assert sum(a["tokens"] != b["tokens"] for a, b in zip(one["texts"][::2], one["texts"][1::2])) > 2, "samples are alike"
for t in one["texts"]:
    assert len(t["tokens"]) == len(t["probabilities"]) == 24 and all(0 < p <= 1 for p in t["probabilities"])
    assert t["prompt"].encode() == bytes(t["prompt_tokens"])
assert one["tokens_per_second"] > 0 and one["memory_fraction"] > 0
# 4 layers, keys and values, 8 slots of 16 + 24 tokens, 128 wide, 4 bytes
assert one["bytes_per_rank"]["activation"] == 4 * 2 * 8 * 40 * 128 * 4, one["bytes_per_rank"]
P
# Numbers for text.
generate a --ids --prompt '65 110 100' generate.tokens=3 >ids
generate a --prompt And generate.tokens=3 >text
[ "$(head -c 11 ids)" = '65 110 100 ' ] || fail "ids: $(cat ids)"
[ "$(printf "$(sed 's/ *\([0-9]*\)/ \1/g' ids | awk '{for (i = 1; i <= NF; i++) printf "\\%03o", $i}')")" = "$(cat text)" ] ||
  fail "ids $(cat ids) are not $(cat text)"
# Refused before work begins.
expect 64 atoll-generate a --prompt And generate.tokens=126
says "the model's context of 128"
expect 64 atoll-generate a --prompt And --prompts prompts
says 'one of them'
expect 64 atoll-generate a
says 'no mark to begin with'
expect 64 atoll-generate a --prompt And model.width=64
says 'has its own sizes'
expect 64 atoll-generate a --prompt And generate.topk=3
says 'generate.top_k'
expect 64 atoll-generate a --ids --prompt '65 sixty'
says "'sixty' is not a token id"
expect 76 atoll-generate a --ids --prompt '65 256'
says 'token 256, the model has 0..255'
expect 66 atoll-generate nowhere --prompt And
expect 66 atoll-generate a --prompt-file nowhere
expect 71 atoll-generate a --prompt And generate.memory=1MiB
says 'parameter'
expect 64 mpi 2 "$(atoll atoll-generate)" a --prompt And generate.tokens=126
says "the model's context of 128"
exit 0
