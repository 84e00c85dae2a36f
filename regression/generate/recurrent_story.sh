# The recurrent engine tells the story that the tiny published Llama's makers recorded.
. "${0%/*}/../lib/case.sh"
model=$(shared data/stories260K.bin) || exit $?
tokens=$(shared data/tok512.bin) || exit $?
gold=$(shared data/stories260K_golden_greedy.txt) || exit $?
atoll-generate "$model" --tokenizer "llama2c:$tokens" --engine recurrent --json generate.tokens=64 >story.json 2>err \
  </dev/null || fail "$(cat err)"
python3 - story.json "$gold" <<'P' || fail 'it tells another story'
import json, math, sys
text = json.load(open(sys.argv[1]))["texts"][0]
gold = [l.split() for l in open(sys.argv[2]) if not l.startswith("#")]
want = [int(l[2]) for l in gold]
assert text["tokens"] == want[:len(text["tokens"])] and len(text["tokens"]) >= 60, (text["tokens"], want)
for p, l in zip(text["probabilities"], gold):
    assert abs(math.log(p) - (float(l[3]) - float(l[-1]))) < 2e-4, (p, l)
P
exit 0
