# A case of the neutral scorer is planned from its file and data alone: the plan reads well, is written whole, does not
# change from run to run, and follows lost and added devices. Bad cases end with their code and leave no file.
. "$ATOLL_SOURCE_DIR/regression/lib/case.sh"
plan=$(atoll atoll-plan)
data=$(sourcefile regression/plan/case)
run "$plan" --case "$data/mixed.json" --profiles "$data" --judge a.json --explain
says "iterations per s"
says "proved optimal"
says "* the bottleneck"
says "Time of an iteration"
says "Memory of a device"
says "Runners-up and why they lost"
run "$plan" --case "$data/mixed.json" --profiles "$data" --judge b.json
cmp a.json b.json || fail "two runs gave two plans"
python3 - <<'PY' || fail "not the scorer's form"
import json
p = json.load(open("a.json"))
assert list(p) == ["model", "global_batch", "micro_batch", "stages"], p
at = 0
for s in p["stages"]:
    assert s["layers"][0] == at and s["layers"][1] > at and s["replicas"], s
    at = s["layers"][1]
assert at == 6, at
PY
run "$plan" --case "$data/mixed.json" --profiles "$data" --lose "Fast here 2"
says "before"
says "+ stage 0"
run "$plan" --case "$data/mixed.json" --profiles "$data" --lose "Fast here 1, Slow here 2" --add "Slow here 4"
says "iterations per s"
# A limit that cannot be met, a layer that fits nowhere, malformed input.
sed 's/"maximise": "iterations_per_s"/"minimise": "price_per_iteration", "min_iterations_per_s": 1000/' "$data/mixed.json" >floor.json
expect 69 "$plan" --case floor.json --profiles "$data" --judge c.json
says "at least 1000 iterations per second"
mkdir -p apart/profiles
cp "$data/profiles/Toy.json" apart/profiles/
cp "$data/transfer_price.json" apart/
echo '{}' >apart/network.json
expect 69 "$plan" --case floor.json --profiles apart --judge c.json
says "for want of a bandwidth"
mkdir -p small/profiles
cp "$data"/network.json "$data"/transfer_price.json small/
sed 's/"memory_gib": [0-9]*/"memory_gib": 1/' "$data/profiles/Toy.json" >small/profiles/Toy.json
expect 69 "$plan" --case "$data/mixed.json" --profiles small --judge c.json
says "layer 0 fits nowhere"
says "the largest device"
sed 's/"count": 4/"count": -4/' "$data/mixed.json" >count.json
expect 64 "$plan" --case count.json --profiles "$data" --judge c.json
says "count.json: cluster[0].count is -4"
sed 's/"zone"/"zome"/' "$data/mixed.json" >key.json
expect 64 "$plan" --case key.json --profiles "$data" --judge c.json
says "zome"
head -c 100 "$data/mixed.json" >cut.json
expect 64 "$plan" --case cut.json --profiles "$data" --judge c.json
says "cut.json"
sed 's/Toy/Absent/' "$data/mixed.json" >model.json
expect 66 "$plan" --case model.json --profiles "$data" --judge c.json
says "no profile of model 'Absent'"
expect 64 "$plan" --case "$data/mixed.json" --judge c.json
says "needs --profiles"
expect 64 "$plan" --case "$data/mixed.json" --profiles "$data" --save c.json
says "--save does not go with --case"
expect 64 "$plan" --lose "Fast here 1"
says "belong to --case"
expect 74 "$plan" --case "$data/mixed.json" --profiles "$data" --judge no/such/folder/c.json
[ ! -e c.json ] || fail "c.json was written"
