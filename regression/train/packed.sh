# Weights that are kept packed change no bit, also when a run stops and resumes; a plan that has them serves where they are not kept.
. "$ATOLL_SOURCE_DIR/regression/lib/case.sh"
. "$ATOLL_SOURCE_DIR/regression/train/job.sh"
export ATOLL_TEST_GEMM=packed # whose products read packed weights
write_job job.yaml
sed -i "s/steps: 20, decay_steps: 20/steps: 8, decay_steps: 8/" job.yaml
train 2 base plan.pack_weights=no
! grep -q 'packed weights' "$ATOLL_LAST_OUT" || fail 'weights were packed against plan.pack_weights'
train 2 kept plan.pack_weights=yes train.steps=3
says 'packed weights'
train 2 kept plan.pack_weights=yes
says 'resumed'
same base kept

train 2 told plan.load=kept/plan.yaml plan.pack_weights=no
! grep -q 'packed weights' "$ATOLL_LAST_OUT" || fail 'weights were packed against plan.pack_weights'
same base told
train 2 other plan.load=kept/plan.yaml train.kernels=ref train.steps=1
says 'packed weights of the plan are not kept'
! grep -q packed other/plan.yaml || fail 'a plan with packed weights that nobody keeps'
