# Costs held against published runs: constants come from one set and are judged on the other, in words and as JSON.
. "$ATOLL_SOURCE_DIR/regression/lib/case.sh"
plan=$(atoll atoll-plan)
expect 64 "$plan" --accuracy .
says "--accuracy needs --profiles DIR"
expect 66 "$plan" --accuracy absent --profiles .
says "absent is no folder"
expect 66 "$plan" --accuracy . --profiles . --json out.json
says "holds no *.json"
mkdir runs
printf '[{"cluster": [], "plan": {}}]\n' >runs/a.json
expect 64 "$plan" --accuracy runs --profiles . --json out.json
says "runs/a.json: [0]: "
says "measured_iteration_time_s"
[ ! -e out.json ] || fail "out.json was written"

measured=$(shared judge/measured) || exit $?
data=$(shared judge/data) || exit $?
run "$plan" --accuracy "$measured" --profiles "$data" --json out.json --explain
says "the neutral scorer's cost                     7.13 %  -7.13 %   9.34 %"
says "the neutral scorer's cost                     6.26 %  -4.44 %  13.61 %"
says "compute in a whole run over the profile, less one (alpha)"
says "OPT-350, 1024 samples by 8, 4 stages x 8"
# Of every set by every other one: time and memory within 5 %.
awk '/"fitted_on": \{/ { inside = 1 } /"(left_out|scorer|unfitted)": \{/ { inside = 0 }
     inside && /"mean_absolute_error"/ { n++; gsub(/[^0-9.e-]/, "", $2); if ($2 + 0 > 0.05) bad++ }
     END { print n + 0, "errors,", bad + 0, "above 5 %"; exit !(n == 4 && bad == 0) }' out.json || fail "out.json"
