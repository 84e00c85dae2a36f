# A step with a NaN in its gradient is skipped on every rank alike, counted and logged; weights stay finite; a row of them ends the run with NONFINITE, and what was
# committed stays good.
. "$ATOLL_SOURCE_DIR/regression/lib/case.sh"
. "$ATOLL_SOURCE_DIR/regression/train/job.sh"
write_job job.yaml
export ATOLL_FAULT='nan:train.gradient:5:1'
train 2 once plan.stages=2
unset ATOLL_FAULT
says 'step 5 skipped'
run "$(atoll atoll-inspect)" metrics --json once
python3 - "$ATOLL_LAST_OUT" <<'P' || fail 'metrics of the skipped step'
import json, sys
m = json.load(open(sys.argv[1]))
assert m["skipped"] == [int(s == 5) for s in m["step"]], m["skipped"]
assert m["gradient_norm"][4] is None
assert all(x is not None for i, x in enumerate(m["loss"]) if i != 4)
assert m["loss"][-1] < m["loss"][0]
P
write_job job.yaml 'ckpt.every_steps: 2' 'train.skip_limit: 3'
export ATOLL_FAULT='nan:train.gradient:5;nan:train.gradient:6;nan:train.gradient:7'
expect 80 mpi 2 "$(atoll atoll-train)" job.yaml run.dir=many
unset ATOLL_FAULT
says '3 steps in a row'
expect 80 "$(atoll atoll-inspect)" status many
run "$(atoll atoll-inspect)" verify many
[ -d many/ckpt/step-00000004.a1 ] || fail 'the last checkpoint with a finite loss was removed'

# What was skipped is part of the state: a run that is stopped behind a skipped step goes on as if it had not been, and a row of skipped steps counts over a resume.
write_job job.yaml 'train.skip_limit: 3'
export ATOLL_FAULT='nan:train.gradient:5'
train 2 straight train.steps=12
train 2 stopped train.steps=7
unset ATOLL_FAULT
train 2 stopped train.steps=12
same straight stopped
says 'loss is the same bit for bit in 12 common rows'
says 'skipped is the same bit for bit in 12 common rows'
export ATOLL_FAULT='nan:train.gradient:5;nan:train.gradient:6'
train 2 row train.steps=6
export ATOLL_FAULT='nan:train.gradient:1'
expect 80 mpi 2 "$(atoll atoll-train)" job.yaml run.dir=row
says '3 steps in a row'
