# Malformed clusters, profiles and limits: a message that names file and key, a code of the list, and no output.
. "$ATOLL_SOURCE_DIR/regression/lib/case.sh"
plan=$(atoll atoll-plan)
job=$(sourcefile inputs/jobs/quick.yaml)
refuse() { # CODE TEXT ARGUMENT...
  expect "$1" "$plan" "$job" "${@:3}" --save out.yaml --hdf5 out.h5
  says "$2"
  [ ! -e out.yaml ] && [ ! -e out.h5 ] || fail "an output was written"
  ! ls | grep -q tmp || fail "a half-written file is left"
}
cluster() { # TEXT of cluster.yaml
  mkdir -p c
  printf '%s\n' "$1" >c/cluster.yaml
}
node='name: a, synthetic: "pack:1 core:4", memory: 8GiB'
for value in -5 0 nan inf fast ""; do
  cluster "nodes: [{$node, gemm_f32: $value}]"
  refuse 64 "c/cluster.yaml:1: nodes[0].gemm_f32" topo.path=c
done
cluster "nodes: [{$node, bandwidth: 0}]"
refuse 64 "nodes[0].bandwidth: found '0'" topo.path=c
cluster "nodes: [{$node, price: -1}]"
refuse 64 "nodes[0].price: found '-1'" topo.path=c
cluster 'nodes: [{name: a, synthetic: "pack:1 core:4", memory: 0}]'
refuse 64 "memory: found '0'" topo.path=c
cluster "nodes: [{$node}, {name: b, synthetic: core:4, memory: 8GiB}]
links: {between: {bandwidth: 0, latency: 1e-6}}"
refuse 64 "c/cluster.yaml:2: links.between.bandwidth: found '0'" topo.path=c
cluster "nodes: [{$node, colour: red}]"
refuse 64 "unknown key 'nodes[0].colour'" topo.path=c
cluster "nodes: [{$node}"
refuse 64 "not YAML" topo.path=c
cluster 'nodes: []'
refuse 64 "'nodes' is empty" topo.path=c
head -c 200 /dev/zero >c/cluster.yaml
refuse 64 "c/cluster.yaml" topo.path=c
refuse 66 "nowhere" topo.path=nowhere
refuse 64 "'f32': found '0', expected a rate above 0" topo.synthetic='2x(pack:1 core:4 f32=0)'
# Limits that contradict each other or the machines.
two='topo.synthetic=2x(pack:1 core:4 memory=64GiB)'
refuse 64 "plan.stages 3 x plan.data_parallel 1 needs 3 devices, there are 2" "$two" plan.stages=3
refuse 64 "plan.layers has 3 entries, plan.stages is 2" "$two" plan.stages=2 plan.layers=1,1,2
refuse 64 "is not a multiple of plan.micro_batch 3" "$two" plan.micro_batch=3
refuse 64 "plan.tensor_parallel is 2, no node has more than 1 device" "$two" plan.tensor_parallel=2
refuse 64 "tensor parallelism of degree 3 does not divide the model's" 'topo.synthetic=(pack:4 core:4 memory=64GiB)' plan.tensor_parallel=3
# A layer that fits nowhere: which one, its bytes, the largest device.
refuse 69 "no plan fits: layer 1 (block) fits nowhere: alone, with one micro-batch of 1 and policy exact4, it needs 4.34 MiB, and the largest device, on island b," \
  topo.synthetic='(pack:1 core:4 memory=3MiB), (pack:1 core:2 memory=4MiB)'
says "has 3.60 MiB to plan with (plan.memory_share of its memory)"
refuse 69 "(plan.memory); nearest is stage" "$two" plan.memory=1
# Profiles: not there, not HDF5, cut off, of something else.
cat >small.yaml <<YAML
model: {family: gpt2, layers: 2, width: 32, heads: 2, context: 32, vocab: 256}
train: {seq: 32, global_batch: 4}
YAML
run "$plan" small.yaml "$two" --hdf5 plan.h5
refuse 66 "absent.h5" "$two" --profile absent.h5
refuse 66 "is a directory" "$two" --profile c
refuse 65 "small.yaml" "$two" --profile small.yaml
: >empty.h5
refuse 65 "empty.h5" "$two" --profile empty.h5
head -c 3000 plan.h5 >cut.h5
refuse 65 "cut.h5" "$two" --profile cut.h5
refuse 66 "plan.h5 has no /profile" "$two" --profile plan.h5
# Plans.
run "$plan" "$job" "$two" --save good.yaml
changed=
for change in 's/layers: \[.*/layers: [5, 2]/' 's/micro_batch: .*/micro_batch: -1/' 's/^world: .*/world: 0/' \
  's/tensor: 1/tensor: 0/' 's/^version:.*/version: [1]/' '/^world/d' 's/policy: .*/policy: sometimes/'; do
  sed "$change" good.yaml >bad.yaml
  cmp -s good.yaml bad.yaml && continue
  "$plan" "$job" "$two" plan.load=bad.yaml --save out.yaml --hdf5 out.h5 >"$ATOLL_LAST_OUT" 2>&1
  case $? in 64 | 65 | 76) ;; *) fail "$change: exit $?" ;; esac
  [ ! -e out.yaml ] && [ ! -e out.h5 ] || fail "$change: an output was written"
  changed="$changed$change "
done
[ "$(printf %s "$changed" | wc -w)" -ge 5 ] || fail "only these changes changed the plan: $changed"
