# With h5py alone: model.h5 shows every parameter whole, whatever the plan was, NaN where a shard is missing, also when moved; run.h5 explains itself.
. "$ATOLL_SOURCE_DIR/regression/lib/case.sh"
. "$ATOLL_SOURCE_DIR/regression/train/job.sh"
PY=/usr/bin/python3
"$PY" -c 'import h5py, numpy' 2>/dev/null || skip 'python3-h5py is not installed'
write_job job.yaml
train 4 wide plan.stages=2 plan.data_parallel=2
train 1 one
"$PY" "$(sourcefile regression/train/check_h5.py)" wide one || fail 'h5py'
