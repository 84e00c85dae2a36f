# Bad requests end with their own code and say what would be valid; nothing is written.
. "$ATOLL_SOURCE_DIR/regression/lib/case.sh"
plan=$(atoll atoll-plan)
job=$(sourcefile inputs/jobs/gpt2-124m.yaml)
here=topo.path=$(sourcefile inputs/clusters/mixed-2x2)
expect 69 "$plan" "$job" "$here" plan.memory=100MiB --save p.yaml --explain
says "no plan fits: layer 13 (head) fits nowhere: alone, with one micro-batch of 4 and policy exact20, it needs"
says "and the largest device, on island a, has 100 MiB to plan with (plan.memory); nearest is stage"
says "missing"
says "parameter"
says "does not fit: "
[ ! -e p.yaml ] || fail "p.yaml was written"
# A micro-batch that does not fit, by one that does.
expect 69 "$plan" "$job" "$here" plan.memory=2500MiB plan.micro_batch=32 train.global_batch=64
says "a micro-batch of"
fits=$(sed -n 's/.*a micro-batch of \([0-9]*\) would fit.*/\1/p' "$ATOLL_LAST_OUT")
run "$plan" "$job" "$here" plan.memory=2500MiB plan.micro_batch="$fits" train.global_batch=64
expect 64 "$plan" "$job" "$here" plan.layers=5,6
says "add up to 11 blocks, the model has 12"
expect 64 "$plan" "$job" "$here" plan.stages=9
says "needs 9 devices, there are 4"
expect 64 "$plan" "$job" "$here" plan.polcy=exact
says "plan.policy"
expect 66 "$plan" "$job" "$here" plan.load=absent.yaml
says "absent.yaml"
expect 66 "$plan" "$job" "$here" --profile absent.h5
expect 74 "$plan" "$(sourcefile inputs/jobs/quick.yaml)" "$here" --save no/such/folder/p.yaml
says "no/such/folder"
