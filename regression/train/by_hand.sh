# Plans that a person wrote, of every shape the schema allows for pipeline and data parallelism: unequal micro-batch counts, stages of different width in both directions,
# pipelines that cut the model differently, idle ranks in the middle. All give the losses of one rank bit for bit, on the CPU and on the asynchronous test device.
. "$ATOLL_SOURCE_DIR/regression/lib/case.sh"
. "$ATOLL_SOURCE_DIR/regression/train/job.sh"
write_job job.yaml
sed -i 's/^plan.micro_batch.*/plan.micro_batch: 1/; s/steps: 20, decay_steps: 20/steps: 10, decay_steps: 10/' job.yaml
train 1 base
for n in 2 3 4; do
  train "$n" "template$n" train.steps=0
done
shape() { # NAME RANKS PIPELINE...
  local name=$1 ranks=$2 device
  shift 2
  python3 "$(sourcefile regression/train/make_plan.py)" "template$ranks/plan.yaml" 1 "$@" >"$name.yaml" || fail "plan $name"
  for device in cpu async; do
    train "$ranks" "$name-$device" plan.load="$name.yaml" train.device="$device"
    same base "$name-$device"
    says 'loss is the same bit for bit in 10 common rows'
  done
}
shape unequal 2 '0-5:0*5,1*3'
shape narrowing 3 '0-2:0*5,1*3/2-5:2*8'
shape widening 3 '0-2:0*8/2-5:1*1,2*7'
shape crossing 4 '0-2:0*5,3*3/2-5:1*2,2*6'
shape two 4 '0-1:0*3/1-5:1*3' '0-4:2*5/4-5:3*5'
shape mixed 4 '0-5:1*3' '0-2:0*5/2-4:3*5/4-5:2*5'
shape whole 3 '0-5:2*7' '0-5:0*1'
shape idle 4 '0-2:3*6,0*2/2-5:2*8'
