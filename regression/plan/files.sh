# A saved plan is used again byte for byte, is in HDF5 for everyone, and fits its own cluster only.
. "$ATOLL_SOURCE_DIR/regression/lib/case.sh"
plan=$(atoll atoll-plan)
job=$(sourcefile inputs/jobs/quick.yaml)
here=topo.path=$(sourcefile inputs/clusters/mixed-2x2)
run "$plan" "$job" "$here" --save p.yaml --hdf5 p.h5
"$plan" "$job" "$here" plan.load=p.yaml --yaml >again.yaml || fail "plan.load"
cmp p.yaml again.yaml || fail "loading and saving changed the plan"
run "$plan" "$job" "$here" plan.load=p.yaml --save q.yaml
says "(loaded)"
cmp p.yaml q.yaml || fail "the second save differs"
h5dump -d /plan/ranks/stage p.h5 >dump.txt || fail "h5dump"
grep -q "long_name" dump.txt || fail "no long_name on /plan/ranks/stage"
h5dump -d /plan/yaml p.h5 | grep -q "global_batch: 16" || fail "no plan text in the file"
expect 76 "$plan" "$job" topo.path="$(sourcefile inputs/clusters/a100-v100)" plan.load=p.yaml
says "made for"
# Same number of devices, other hardware.
expect 76 "$plan" "$job" topo.synthetic='4x(pack:1 core:3 memory=64GiB)' plan.load=p.yaml
says "another cluster"
expect 76 "$plan" "$job" "$here" plan.load=p.yaml model.width=160 model.heads=4
says "another model"
sed 's/^version: 1/version: 3/' p.yaml >v.yaml
expect 64 "$plan" "$job" "$here" plan.load=v.yaml
says "v.yaml:2: plan version 3, this program reads version 1"
sed 's/^world:/color: red\nworld:/' p.yaml >u.yaml
expect 64 "$plan" "$job" "$here" plan.load=u.yaml
says "color"
head -c 900 p.yaml >cut.yaml
"$plan" "$job" "$here" plan.load=cut.yaml >"$ATOLL_LAST_OUT" 2>&1 && fail "half a plan was accepted"
says "cut.yaml"
# A plan the judge's form lacks is refused before anything is written.
expect 67 "$plan" "$job" "$here" --judge j.json --save j.yaml plan.policy=exact
says "policy exact"
[ ! -e j.json ] && [ ! -e j.yaml ] || fail "files were written"
run "$plan" "$job" "$here" --judge j.json plan.policy=eager_flash plan.data_parallel=1
python3 -c 'import json; p = json.load(open("j.json")); assert p["stages"][0]["layers"][0] == 0, p' || fail "not JSON"
