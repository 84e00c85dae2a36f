# A described cluster of islands, zones and prices: tensor degrees, objectives, lost and new devices, and one plan for
# any number of ranks that share the search.
. "$ATOLL_SOURCE_DIR/regression/lib/case.sh"
plan=$(atoll atoll-plan)
mkdir cluster
cat >cluster/cluster.yaml <<'END'
nodes:
  - {name: e, count: 4, kind: big, zone: east, price: 3.5, synthetic: 'pack:2 core:8 gpus=4 gpu_model=big gpu_memory=40GiB gpu_f32=16000 gpu_bf16=240000 gpu_bandwidth=1300'}
  - {name: w, count: 4, kind: big, zone: west, price: 3, synthetic: 'pack:2 core:8 gpus=4 gpu_model=big gpu_memory=40GiB gpu_f32=16000 gpu_bf16=240000 gpu_bandwidth=1300'}
  - {name: s, count: 12, kind: small, zone: west, price: 0.4, synthetic: 'pack:2 core:8 gpus=4 gpu_model=small gpu_memory=16GiB gpu_f32=6500 gpu_bf16=40000 gpu_bandwidth=240'}
links:
  in_node: {latency: 2e-6, bandwidth: 100}
  between: {latency: 5e-6, bandwidth: 12}
  pairs:
    - {a: east, b: west, latency: 30e-3, bandwidth: 0.9, price: 0.02}
END
cat >job.yaml <<'END'
model.preset: gpt2-774m
train: {seq: 1024, global_batch: 64}
data: {train: none.bin}
topo: {path: cluster}
plan: {target: any}
END
run "$plan" job.yaml --explain
says "on 80 devices in 3 islands"
says "Price"
says "Idle"
run "$plan" job.yaml --explain plan.objective=price plan.min_throughput=20000
says "rent of the devices in use"
expect 64 "$plan" job.yaml --without 'nobody'
says "found 'nobody', expected the name of a node"
run "$plan" job.yaml --without 's0 b:4'
says "Change                    before          after"
says "devices in use"
run "$plan" job.yaml --with s0
says "throughput"
# Nothing is as fast as that, nothing as cheap as this.
expect 69 "$plan" job.yaml plan.min_throughput=1e12 --save no.yaml
[ ! -e no.yaml ] || fail "a plan was written"
for n in 1 2 4; do
  run mpi $n "$plan" job.yaml --whole --save plan.$n.yaml
  grep -o '^plan [0-9a-f]*' "$ATOLL_LAST_OUT" >digest.$n || fail "no digest with $n ranks"
done
cmp digest.1 digest.2 && cmp digest.1 digest.4 || fail "the plan depends on the number of ranks"
cmp plan.1.yaml plan.2.yaml && cmp plan.1.yaml plan.4.yaml || fail "the file depends on the number of ranks"
