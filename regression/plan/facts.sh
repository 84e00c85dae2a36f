# Plans that others recorded, held against our model: bytes, whether they fit, and our tuner's plan beside the best.
. "$ATOLL_SOURCE_DIR/regression/lib/case.sh"
plan=$(atoll atoll-plan)
expect 66 "$plan" --facts absent.json
says "absent.json"
printf '{"name": "x", "model": {"hidden": 64}}\n' >bad.json
expect 64 "$plan" --facts bad.json
says "bad.json: machines is missing or wrong"

large=$(shared judge/cases/mist-gpt-13b-16xl4.json) || exit $?
small=$(shared judge/cases/mist-gpt-1.3b-2xl4.json) || exit $?
run "$plan" --facts "$large"
says "times analytic: L4"
run "$plan" --facts "$small"
says "19255 (+0.21 %)"
says "the best recorded plan takes"
# A recorded figure that our model does not meet is a failure with its own exit code.
sed 's/19255.25/15000.0/' "$small" >other.json
expect 76 "$plan" --facts other.json
says "TOO FAR"
