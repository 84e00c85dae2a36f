# The asynchronous test device, whose queues run with random delays, gives the bits of the CPU device: no event is missing.
. "$ATOLL_SOURCE_DIR/regression/lib/case.sh"
. "$ATOLL_SOURCE_DIR/regression/train/job.sh"
write_job job.yaml
train 1 base
train 2 pipeline train.device=async plan.stages=2 plan.data_parallel=1
train 2 data train.device=async plan.stages=1 plan.data_parallel=2
train 4 both train.device=async plan.stages=2 plan.data_parallel=2
# A deep pipeline fills its rings of two before the first backward: only there would a send be overtaken by the next output.
train 1 small plan.micro_batch=1
train 4 deep train.device=async plan.stages=4 plan.data_parallel=1 plan.micro_batch=1
same base pipeline
same base data
same base both
same small deep
