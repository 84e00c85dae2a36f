# Training is what a float64 trainer written independently does: losses, gradient norms, learning rates, clipping, AdamW with decay of matrices alone, a skipped step that
# leaves no trace, held-out losses and the weights at the end.
. "$ATOLL_SOURCE_DIR/regression/lib/case.sh"
. "$ATOLL_SOURCE_DIR/regression/train/job.sh"
PY=/usr/bin/python3
"$PY" -c 'import h5py, numpy' 2>/dev/null || skip 'python3-h5py is not installed'
write_job job.yaml 'train.eps: 1e-5' 'train.clip: 1.85' 'data.train: corpus.txt' 'data.validation: held.txt' 'train.weight_decay: 0.2' 'train.beta1: 0.8' 'train.beta2: 0.9'
sed -i '/^  train: /d; /^  validation: /d; /^data:$/d; s/, dropout: 0.1/, dropout: 0/; s/validate_every: 10, validate_windows: 24/validate_every: 7/' job.yaml
tail -c +100000 "$(sourcefile inputs/corpora/kjv-train.txt)" | head -c $((8 * 32 + 1)) >corpus.txt
head -c $((5 * 32 + 9)) "$(sourcefile inputs/corpora/kjv-heldout.txt)" >held.txt
train 1 start train.steps=0
export ATOLL_FAULT='nan:train.gradient:9:0'
train 2 run plan.stages=2
unset ATOLL_FAULT
"$PY" "$(sourcefile regression/train/reference_trainer.py)" start run corpus.txt held.txt || fail 'not what the reference does'
