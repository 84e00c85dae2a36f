# The tiny published Llama continues the empty text greedily as its makers recorded: every token, and its probability,
# from llama2.c's file, from the checkpoint that is made of it, and from safetensors.
. "${0%/*}/../lib/case.sh"
model=$(shared data/stories260K.bin) || exit $?
tokens=$(shared data/tok512.bin) || exit $?
gold=$(shared data/stories260K_golden_greedy.txt) || exit $?
run atoll-convert import "$model" run/ckpt
run atoll-convert export run published/
for from in "$model" run published; do
  atoll-generate "$from" --tokenizer "llama2c:$tokens" --json generate.tokens=64 >story.json 2>err </dev/null ||
    fail "$from: $(cat err)"
  python3 - story.json "$gold" <<'P' || fail "$from tells another story"
import json, math, sys
text = json.load(open(sys.argv[1]))["texts"][0]
gold = [l.split() for l in open(sys.argv[2]) if not l.startswith("#")]
want = [int(l[2]) for l in gold]
assert len(want) == 64 and text["prompt_tokens"] == [1]
assert text["tokens"] == want[:len(text["tokens"])] and len(text["tokens"]) >= 60, (text["tokens"], want)
for p, l in zip(text["probabilities"], gold):
    assert abs(math.log(p) - (float(l[3]) - float(l[-1]))) < 2e-4, (p, l)
P
done
# Found beside the model, it needs no name; a text that is long ends with the context's, not beyond.
cp "$model" stories.bin
cp "$tokens" tok512.bin
run atoll-generate stories.bin --prompt 'Once upon a time' generate.tokens=20
says 'Once upon a time, there was'
expect 64 atoll-generate stories.bin --prompt 'Once upon a time' generate.tokens=512
says "context of 512"
expect 76 atoll-generate stories.bin --tokenizer "gpt2:$(dirname "$tokens")" --prompt Once
says 'tokens, the model 512'
exit 0
