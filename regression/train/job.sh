# Sourced after case.sh: a small byte-level job that trains in seconds, and ways to run it.

# write_job FILE [line ...]: the small job with further lines. Dropout is on, so that random numbers are part of what is compared.
write_job() {
  local file=$1
  shift
  cat >"$file" <<YAML
model: {family: gpt2, layers: 3, width: 32, heads: 2, context: 32, vocab: 256, dropout: 0.1}
data:
  train: $(sourcefile inputs/corpora/kjv-train.txt)
  validation: $(sourcefile inputs/corpora/kjv-heldout.txt)
train: {seq: 32, global_batch: 8, steps: 20, decay_steps: 20, learning_rate: 1e-3, min_learning_rate: 1e-4, warmup_steps: 4, validate_every: 10, validate_windows: 24, log_every: 5}
plan.micro_batch: 2
topo.probe: false
train.calibrate: false
YAML
  printf '%s\n' "$@" >>"$file"
}

# train RANKS DIR [key=value ...]: job.yaml on that many ranks into run directory DIR
train() {
  local ranks=$1 dir=$2
  shift 2
  run mpi "$ranks" "$(atoll atoll-train)" job.yaml run.dir="$dir" "$@"
}

# same DIR DIR: trained alike, bit for bit
same() { run "$(atoll atoll-inspect)" diff "$1" "$2"; }

# while_alive PID CONDITION...: returns when the command CONDITION succeeds, or the process PID, of a job, is gone
while_alive() {
  local pid=$1
  shift
  while kill -0 "$pid" 2>/dev/null && ! "$@"; do sleep 0.1; done
}

committed() { ls "$1/ckpt" 2>/dev/null | grep -c '^step-[0-9]*\.a[0-9]*$'; }
