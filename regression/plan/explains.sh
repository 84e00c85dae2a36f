# A job over a recorded mixed cluster: the split, bytes and time by cause, traffic and the runners-up are said.
. "$ATOLL_SOURCE_DIR/regression/lib/case.sh"
plan=$(atoll atoll-plan)
run "$plan" "$(sourcefile inputs/jobs/gpt2-124m.yaml)" --explain --islands topo.path="$(sourcefile inputs/clusters/a100-v100)"
says "in 2 islands"
says "Memory per rank"
says "optimizer"
says "Time of a step"
says "waiting"
says "Traffic per step"
says "wte.weight is used by stages"
says "Runners-up and why they lost"
says "even split of the blocks"
says "Costs are analytic"
# What the user fixes is kept.
run "$plan" "$(sourcefile inputs/jobs/gpt2-124m.yaml)" --yaml topo.path="$(sourcefile inputs/clusters/a100-v100)" plan.layers=5,7 plan.policy=exact
says "version: 1"
says "- [0, 6]"
says "- [6, 14]"
says "policy: exact"
# A made-up cluster of one kind.
run "$plan" "$(sourcefile inputs/jobs/quick.yaml)" topo.synthetic='4x(pack:1 core:8 memory=64GiB f32=500 bandwidth=40)'
says "on 4 devices in 1 island"
