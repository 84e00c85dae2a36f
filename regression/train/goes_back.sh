# A run that is sent back to an earlier checkpoint goes on from what it makes then, not from what it left; a requeued job does not go back again; changed options count.
. "$ATOLL_SOURCE_DIR/regression/lib/case.sh"
. "$ATOLL_SOURCE_DIR/regression/train/job.sh"
write_job job.yaml 'ckpt.every_steps: 2' 'ckpt.keep: 3' 'train.validate_every: 0'
sed -i 's/validate_every: 10, //' job.yaml
train 2 run train.steps=8
train 2 other train.steps=4
back=run/ckpt/step-00000004.a1
train 2 run train.steps=6 ckpt.resume=$back
says "resumed $back : step 4"
[ -d run/ckpt/step-00000006.a2 ] || fail "the newest checkpoint was removed because its step is lower than an old one's: $(ls run/ckpt)"
train 2 run train.steps=7
says 'resumed run/ckpt/step-00000006.a2'
# By hand the same command goes back again; requeued by Slurm it goes on.
train 2 run train.steps=9 ckpt.resume=other/ckpt/step-00000004.a1
says 'resumed other/ckpt/step-00000004.a1'
export SLURM_RESTART_COUNT=1
train 2 run train.steps=10 ckpt.resume=other/ckpt/step-00000004.a1
says 'requeued'
says 'resumed run/ckpt/step-00000009.a4'
train 2 run train.steps=10 ckpt.resume=other/ckpt/step-00000002.a1
says 'resumed other/ckpt/step-00000002.a1'
train 2 fresh train.steps=3 ckpt.resume=none
train 2 fresh train.steps=4 ckpt.resume=none
says 'resumed fresh/ckpt/step-00000003.a1'
unset SLURM_RESTART_COUNT
train 2 fresh train.steps=4 ckpt.resume=none
grep -q resumed "$ATOLL_LAST_OUT" && fail 'ckpt.resume=none resumed'
# The plan is that of the checkpoint, unless planning was asked for something else.
train 2 fresh train.steps=5
says '(of the checkpoint)'
train 2 fresh train.steps=6 plan.stages=2
says 'plan.stages changed'
grep -q '(of the checkpoint)' "$ATOLL_LAST_OUT" && fail 'plan.stages was ignored'
train 2 fresh train.steps=7 train.global_batch=16
says 'the order of samples begins elsewhere'
# What cannot be resumed is refused whole, with both sides.
expect 76 mpi 2 "$(atoll atoll-train)" job.yaml run.dir=fresh model.width=64
says 'change run.dir or the model'
expect 76 mpi 2 "$(atoll atoll-train)" job.yaml run.dir=fresh train.seed=5
says 'train.seed 1, this job has 5'
expect 76 "$(atoll atoll-inspect)" status fresh
run "$(atoll atoll-inspect)" verify fresh
