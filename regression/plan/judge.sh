# The scorer's own cases: its program accepts each plan, agrees with the figures printed, and finds what is recorded beaten.
. "$ATOLL_SOURCE_DIR/regression/lib/case.sh"
plan=$(atoll atoll-plan)
judge=$(shared judge/score_plan.py) || exit 77
judge=$(dirname "$judge")
plans() { # case, least iterations per s, most $ per iteration
  run "$plan" --case "$judge/cases/$1.json" --profiles "$judge/data" --judge "$1.json"
  printed=$(sed -n 's/^\([0-9.e+-]*\) iterations per s.*/\1/p' "$ATOLL_LAST_OUT")
  run python3 "$judge/score_plan.py" "$1.json" --case "$judge/cases/$1.json"
  python3 - "$ATOLL_LAST_OUT" "$printed" "$2" "$3" <<'PY' || fail "$1"
import json, sys
s = json.load(open(sys.argv[1]))
print(s["iterations_per_s"], s["price_per_iteration"])
assert s["fits"], "does not fit"
assert abs(s["iterations_per_s"] / float(sys.argv[2]) - 1) < 1e-5, sys.argv[2]
assert s["iterations_per_s"] >= float(sys.argv[3]), sys.argv[3]
assert s["price_per_iteration"] <= float(sys.argv[4]), sys.argv[4]
PY
}
plans a100-32 0.1297 1
plans a100-128 0.4175 1
plans a100-32-v100-96 0.1972 1
plans a100-128-v100-384 0.5616 1
plans zones-5x32 0.4149 0.4412
