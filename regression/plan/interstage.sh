# The integer program and the dynamic program agree on layers over the stages of a composition; without the library
# only the dynamic program does, and asking for the other is refused.
. "$ATOLL_SOURCE_DIR/regression/lib/case.sh"
plan=$(atoll atoll-plan)
job=$(sourcefile inputs/jobs/gpt2-124m.yaml)
here=topo.path=$(sourcefile inputs/clusters/a100-v100)
step() { sed -n 's/^ *step_seconds: //p' "$1"; }
run "$plan" "$job" "$here" plan.target=any --save dp.yaml
for solver in both cbc; do
  "$plan" "$job" "$here" plan.target=any plan.interstage=$solver --save $solver.yaml >"$ATOLL_LAST_OUT" 2>&1
  code=$?
  if [ $code = 67 ]; then
    says "plan.interstage=$solver needs the CBC library"
    [ ! -e $solver.yaml ] || fail "$solver.yaml was written"
    skip "this build has no CBC; that it says so was tested"
  fi
  [ $code = 0 ] || { cat "$ATOLL_LAST_OUT"; fail "plan.interstage=$solver ended with $code"; }
  [ -n "$(step $solver.yaml)" ] || fail "no step_seconds in the plan by $solver"
done
# Both means that they agreed, and the plan is the dynamic program's (of equal choices the other may take another one).
cmp dp.yaml both.yaml || fail "checking the dynamic program changed the plan"
expect 64 "$plan" "$job" "$here" plan.interstage=simplex
says "dp|cbc|both"
