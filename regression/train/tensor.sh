# Tensor ranks: plans by hand in which replicas are groups of 2 and 4, alone, with pipeline and data parallelism, and beside stages of another degree, train as one rank does
# but for the order of sums, on the CPU and on the asynchronous test device. A checkpoint of 2 tensor ranks goes on with 1 and 4; one rank killed ends all; heads that a degree
# does not divide are refused.
. "$ATOLL_SOURCE_DIR/regression/lib/case.sh"
. "$ATOLL_SOURCE_DIR/regression/train/job.sh"
write_job job.yaml
sed -i 's/heads: 2/heads: 4/; s/^plan.micro_batch.*/plan.micro_batch: 1/; s/steps: 20, decay_steps: 20/steps: 10, decay_steps: 10/; s/validate_every: 10/validate_every: 5/' job.yaml
by_hand() { # NAME RANKS PIPELINE...: NAME.yaml
  local name=$1 ranks=$2
  shift 2
  python3 "$(sourcefile regression/train/make_plan.py)" "template$ranks/plan.yaml" 1 "$@" >"$name.yaml" || fail "plan $name"
}
near() { # DIR DIR: measured within 1e-6
  run "$(atoll atoll-inspect)" diff --tolerance 1e-5 "$1" "$2"
  says 'loss agrees within the tolerance in 10 common rows'
  says 'gradient_norm agrees within the tolerance in 10 common rows'
  # two means that may be the same by chance
  grep -qF 'validation_loss is the same bit for bit in 2 common rows' "$ATOLL_LAST_OUT" ||
    says 'validation_loss agrees within the tolerance in 2 common rows'
}
train 1 base
for n in 2 3 4; do
  train "$n" "template$n" train.steps=0
done
shape() { # NAME RANKS DEVICES PIPELINE...
  local name=$1 ranks=$2 devices=$3 device
  shift 3
  by_hand "$name" "$ranks" "$@"
  for device in $devices; do
    train "$ranks" "$name-$device" plan.load="$name.yaml" train.device="$device"
    near base "$name-$device"
  done
}

shapes_of_two() {
  shape two 2 'cpu async' '0-5:0+1*8'
  same two-cpu two-async # order of sums over ranks is fixed
  expect 76 "$(atoll atoll-inspect)" diff base two-cpu # which is not the order of one rank: the plan was executed
  shape cta 2 'cpu async' '0-5:0+1*8:cta'
  shape cta_own 2 cpu '0-5:0+1*8:cta_own'
  same cta-cpu cta_own-cpu
  # The way that is measured to be the fastest, whichever it is, has the bits of the pipelined one; the second run remembers it.
  export ATOLL_CACHE=$PWD/cache
  shape auto 2 cpu '0-5:0+1*8:auto'
  same cta-cpu auto-cpu
  train 2 auto-again plan.load=auto.yaml
  grep -q '^pipeline 0 stage 0 replica 0 : mlp [a-z_]* in panels of [0-9]* rows (remembered)' "$ATOLL_LAST_OUT" || fail "no choice: $(cat "$ATOLL_LAST_OUT")"
  same auto-cpu auto-again
  h5dump -d /provenance/mlp auto-again/run.h5 | grep -q 'rows (remembered)' || fail 'no mlp in /provenance'
}
shapes_of_more() {
  shape pipeline 4 cpu '0-2:0+2*8/2-5:1+3*8'
  shape data 4 cpu '0-5:0+1*5,2+3*3'
  shape all 4 'cpu async' '0-2:0+1*8/2-5:3*5,2*3'
  shape cta_all 4 cpu '0-2:0+1*8:cta/2-5:3+2*8'
  shape widening 3 cpu '0-2:1*8/2-5:2+0*8'
}

# The other families.
other_family() { # FAMILY
  local family=$1 more="model.family=$1 model.dropout=0.1 model.vocab=260"
  # shellcheck disable=SC2086
  train 1 "$family-base" $more
  # shellcheck disable=SC2086
  train 2 "$family-template" $more train.steps=0
  python3 "$(sourcefile regression/train/make_plan.py)" "$family-template/plan.yaml" 1 '0-5:0+1*8' >"$family.yaml" || fail "plan $family"
  # shellcheck disable=SC2086
  train 2 "$family-two" $more plan.load="$family.yaml"
  near "$family-base" "$family-two"
  sed 's/mlp: plain/mlp: cta/' "$family.yaml" >"$family-cta.yaml"
  # shellcheck disable=SC2086
  train 2 "$family-cta" $more plan.load="$family-cta.yaml"
  near "$family-base" "$family-cta"
}
# Degrees that nothing here is a power of: 3 and 6, in which the two matrices of a pipelined MLP leave ranks without one.
odd_degrees() {
  local more='model.width=48 model.heads=6' n mlp
  # shellcheck disable=SC2086
  train 1 odd-base $more
  for n in 3 6; do
    # shellcheck disable=SC2086
    train "$n" "odd-template$n" $more train.steps=0
    for mlp in plain cta; do
      python3 "$(sourcefile regression/train/make_plan.py)" "odd-template$n/plan.yaml" 1 "0-5:$(seq -s + 0 $((n - 1)))*8:$mlp" >"odd-$n-$mlp.yaml" || fail "plan odd-$n-$mlp"
      # shellcheck disable=SC2086
      train "$n" "odd-$n-$mlp" $more plan.load="odd-$n-$mlp.yaml"
      near odd-base "odd-$n-$mlp"
      expect 76 "$(atoll atoll-inspect)" diff odd-base "odd-$n-$mlp" # the plan was executed
    done
  done
}
# bf16: parts are summed in f32 and rounded once, pipelined or not; of losses near 5.5, less than one part in a hundred apart.
half() {
  train 1 half-base train.dtype=bf16
  train 2 half-template train.dtype=bf16 train.steps=0
  local mlp
  for mlp in plain cta; do
    python3 "$(sourcefile regression/train/make_plan.py)" half-template/plan.yaml 1 "0-5:0+1*8:$mlp" >"half-$mlp.yaml" || fail "plan half-$mlp"
    train 2 "half-$mlp" train.dtype=bf16 plan.load="half-$mlp.yaml"
    run "$(atoll atoll-inspect)" diff --tolerance 0.01 half-base "half-$mlp"
    says 'loss agrees within the tolerance in 10 common rows'
    says 'validation_loss agrees within the tolerance in 2 common rows'
    expect 76 "$(atoll atoll-inspect)" diff half-base "half-$mlp" # the plan was executed
  done
}
llama() { other_family llama; }
bert() { other_family bert; }
roberta() { other_family roberta; }

# From 2 tensor ranks to 1 and 4, and back.
continues() {
  shape four 4 cpu '0-5:0+1+2+3*8'
  train 2 half plan.load=two.yaml train.steps=5
  cp -r half one && cp -r half more || fail 'copies'
  train 1 one
  near base one
  train 4 more plan.load=four.yaml
  near base more
  train 2 more plan.load=two.yaml train.steps=12
  cp -r half piped || fail 'copies'
  train 2 piped plan.load=cta.yaml
  near base piped
}

# One rank killed between two sums of its group, or two runs of a chain.
killed() {
  local plan got
  for plan in two cta; do
    ATOLL_FAULT=kill:train.backward:3:1 timeout 120 "${ATOLL_MPIRUN[@]}" -np 2 "$(atoll atoll-train)" job.yaml run.dir="killed-$plan" run.silence=4s plan.load="$plan.yaml" >"$ATOLL_LAST_OUT" 2>&1 </dev/null
    got=$?
    [ "$got" != 0 ] && [ "$got" != 124 ] || fail "a rank was killed, but the job ended with $got"
  done
}

refusals() {
  # 3 heads on 2 ranks.
  train 2 odd model.heads=1 train.steps=0
  python3 "$(sourcefile regression/train/make_plan.py)" odd/plan.yaml 1 '0-5:0+1*8' >odd.yaml || fail 'plan odd'
  expect 64 mpi 2 "$(atoll atoll-train)" job.yaml run.dir=refused model.heads=1 plan.load=odd.yaml
  says "degree 2 does not divide the model's 1 heads"
  by_hand alone 2 '0-5:0*8:cta'
  expect 64 mpi 2 "$(atoll atoll-train)" job.yaml run.dir=alone plan.load=alone.yaml
  says 'pipelined over tensor ranks (cta), of which there is one'
  # Replicas of one layer that are divided differently.
  by_hand unequal 3 '0-5:0+1*5,2*3'
  expect 67 mpi 3 "$(atoll atoll-train)" job.yaml run.dir=unequal plan.load=unequal.yaml
  says 'pipeline 0 stage 0 uses several tensor degrees of one layer'
}

together shapes_of_two shapes_of_more llama bert
together roberta half odd_degrees
together continues killed refusals # by plans that the first have written
