# modules/rl/GUIDE.md: its environment is examples/park.c and is learnt by its command; its options are those there are.
# RUN_H5.md names all that such a run records.
. "${0%/*}/../lib/case.sh"
. "${0%/*}/../lib/guide.sh"
page=$(sourcefile modules/rl/GUIDE.md)
block "$page" c 1 | diff - "$(sourcefile modules/rl/examples/park.c)" || fail "the page's environment is not examples/park.c"

run atoll-rl --print-config
sed -n 's/^\(rl\.[a-z_]*\) \([^ ]*\) .*/\1 \2/p' "$ATOLL_LAST_OUT" | sed 's/ ""$/ /' | sort >options
[ "$(wc -l <options)" -ge 20 ] || fail "$(cat options)"
sed -n 's/^| `\(rl\.[a-z_]*\)` | *\([^ |]*\) *|.*|.*|$/\1 \2/p' "$page" | sort >told
diff options told || fail "the page's options are not those of atoll-rl"

cp "$ATOLL_BUILD_DIR/modules/rl/test/librl_env_park.so" park.so
block "$page" sh 2 >learn.sh
grep -q '^atoll-rl ' learn.sh || fail 'no command that learns'
run sh -e learn.sh
atoll-inspect metrics runs/park --json >metrics.json || fail metrics
python3 - "$(sourcefile modules/train/RUN_H5.md)" <<'P' || fail 'the numbers'
import json, re, sys
m = json.load(open("metrics.json"))
print("reward", m["reward"][0], m["reward"][-1], "return", m["validation_return"])
assert m["reward"][0] < 0.5 and m["reward"][-1] > 0.9 and m["validation_return"][-1] > 90
told = set(w for s in re.findall(r"`([a-z_ ]+)`", open(sys.argv[1]).read()) for w in s.split())
assert not set(m) - told, set(m) - told
P
exit 0
