# The mist parallelizer from the command line: it plans what grid cannot when memory is short, says so when nothing helps,
# plans experts, and what uses axes that train does not execute is refused by train by name.
. "$ATOLL_SOURCE_DIR/regression/lib/case.sh"
plan=$(atoll atoll-plan)
cluster=$(sourcefile inputs/clusters/a100-v100)
cat >job.yaml <<'Y'
model: {layers: 8, width: 512, heads: 8, context: 256, vocab: 512}
train: {seq: 256, global_batch: 64}
Y
base="job.yaml topo.path=$cluster plan.target=any plan.micro_batch=4"
run "$plan" $base plan.parallelizer=mist --save mist.yaml
says "mist"
expect 69 "$plan" $base plan.memory=40MiB
run "$plan" $base plan.memory=40MiB plan.parallelizer=mist --save tight.yaml
grep -Eq '^ +(zero: [123]|recompute: [1-9]|offload_[a-z]+: (0\.[1-9]|1))' tight.yaml || fail "nothing is shared, redone or offloaded"
# Nothing holds a layer: every way is tried for that, and two layers have them all.
expect 69 "$plan" $base plan.memory=1MiB plan.parallelizer=mist model.layers=2
says "layers"
run "$plan" $base plan.parallelizer=mist plan.experts=8 --save experts.yaml
grep -q 'mlp: moe-8-2' experts.yaml || fail "experts are not in the plan"
expect 64 "$plan" $base plan.experts=8
says "plan.experts is 8"
expect 64 "$plan" job.yaml topo.path="$cluster" plan.parallelizer=mist plan.experts=8
says "plan.experts is 8"
# Stages on tensor ranks do their MLP as they are told, and what its ranks hold is counted: what fits with plain ones does
# not with pipelined ones. (Context ranks cannot divide 255 tokens.)
two="$base train.seq=255 plan.parallelizer=mist plan.tensor_parallel=2"
run "$plan" $two plan.mlp=cta
says 'with tensor degree 2'
says '( mlp cta )'
run "$plan" $two plan.memory=60MiB
expect 69 "$plan" $two plan.memory=60MiB plan.mlp=cta
