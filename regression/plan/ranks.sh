# Ranks agree on one plan, the one a single process makes for the same cluster; a saved plan needs its number of ranks.
. "$ATOLL_SOURCE_DIR/regression/lib/case.sh"
plan=$(atoll atoll-plan)
job=$(sourcefile inputs/jobs/quick.yaml)
here=topo.path=$(sourcefile inputs/clusters/mixed-2x2)
digest() { sed -n 's/^plan \([0-9a-f]*\).*/\1/p' "$ATOLL_LAST_OUT"; }
run "$plan" "$job" "$here" --save four.yaml
alone=$(digest)
run mpi 4 "$plan" "$job" "$here"
[ -n "$alone" ] && [ "$alone" = "$(digest)" ] || fail "4 ranks plan $(digest), one process $alone"
run mpi 4 "$plan" "$job" "$here" plan.load=four.yaml
[ "$alone" = "$(digest)" ] || fail "loading changed the digest"
# Launchers may turn a rank's exit code into their own: the message is what counts.
"${ATOLL_MPIRUN[@]}" -np 2 "$plan" "$job" "$here" plan.load=four.yaml >"$ATOLL_LAST_OUT" 2>&1 && fail "2 ranks took a plan for 4"
says "made for 4 ranks, the job has 2"
[ "$(grep -c 'made for 4 ranks' "$ATOLL_LAST_OUT")" = 1 ] || fail "said more than once"
