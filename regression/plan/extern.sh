# A program plans the slices: once per search whatever the number of ranks, with the plan that grid makes; what it does
# wrong is told with its name, and nothing is written then.
. "$ATOLL_SOURCE_DIR/regression/lib/case.sh"
command -v python3 >/dev/null || skip "no python3"
plan=$(atoll atoll-plan)
job=$(sourcefile inputs/jobs/quick.yaml)
here=topo.path=$(sourcefile inputs/clusters/mixed-2x2)
digest() { sed -n 's/^plan \([0-9a-f]*\).*/\1/p' "$ATOLL_LAST_OUT"; }
cat >counted.sh <<'SH'
#!/bin/sh
echo started >>starts
echo "hello from the program" >&2
exec python3 "$1"
SH
chmod +x counted.sh
example=$(sourcefile inputs/parallelizers/uniform.py)
run "$plan" "$job" "$here" plan.tensor_parallel=1
grid=$(digest)
run "$plan" "$job" "$here" plan.tensor_parallel=1 plan.parallelizer=extern plan.extern="./counted.sh $example" plan.policy=eager_flash
says "by extern+compose"
says "warn: counted.sh $example: hello from the program"
[ "$(wc -l <starts)" = 1 ] || fail "started $(wc -l <starts) times for one policy"
rm starts
run mpi 4 "$plan" "$job" "$here" plan.tensor_parallel=1 plan.parallelizer=extern plan.extern="./counted.sh $example"
[ "$grid" = "$(digest)" ] || fail "4 ranks plan $(digest), grid $grid"
[ "$(wc -l <starts)" = 3 ] || fail "4 ranks started it $(wc -l <starts) times for three policies"
run "$plan" "$job" "$here" plan.tensor_parallel=1 plan.parallelizer=extern plan.extern="python3 $example"
[ -n "$grid" ] && [ "$grid" = "$(digest)" ] || fail "the program's plan is $(digest), grid's $grid"
# A plan made by a program is a plan like any other.
run "$plan" "$job" "$here" plan.tensor_parallel=1 plan.parallelizer=extern plan.extern="python3 $example" --save p.yaml
run "$plan" "$job" "$here" plan.tensor_parallel=1 plan.load=p.yaml
[ "$grid" = "$(digest)" ] || fail "loading changed the digest"
# Failures.
extern() { expect "$1" "$plan" "$job" "$here" plan.tensor_parallel=1 plan.parallelizer=extern plan.extern="$2" --save no.yaml --hdf5 no.h5 "${@:3}"; }
nothing_written() { [ ! -e no.yaml ] && [ ! -e no.h5 ] || fail "files were written"; }
extern 64 ""
says "plan.extern names no program"
extern 66 ./absent
says "./absent"
extern 68 false
says "false ended with exit status 1 before it answered"
extern 78 "sleep 60" plan.extern_limit=200ms
says "sleep 60 did not answer within 0.2 s"
extern 65 "echo nonsense"
says "nonsense"
extern 65 cat
says "cat did not greet"
extern 64 cat plan.extern_limit=0
says "plan.extern_limit"
nothing_written
# The fallback is marked in the output and in the plan.
extern 0 false plan.extern_fallback=grid
says "warn: plan.extern: false ended with exit status 1 before it answered; grid plans instead"
says "by extern+grid+compose"
grep -q 'source: extern+grid+compose' no.yaml || fail "the plan does not say who made it"
[ "$grid" = "$(digest)" ] || fail "the fallback's plan is $(digest), grid's $grid"
