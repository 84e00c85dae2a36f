# Shared by the job templates; sourced by bash inside a Slurm job (or an interactive allocation).
#
#   atoll_begin JOB.yaml [key=value ...]   site file, echo of what is needed to reproduce, preflight
#   atoll_train                            launch, forward signals, wait; the step's own status
#   atoll_end                              what `atoll-inspect status` says decides: requeue or exit
#
# Everything a site may want to change is in site.sh; every choice made here is printed.

atoll_say() { echo "atoll-job: $*"; }
atoll_die() { echo "atoll-job: error: $*" >&2; exit "${ATOLL_DIE_STATUS:-64}"; }

# --- where things are ------------------------------------------------------------------------------------------------

# Programs: $ATOLL_ROOT/bin of an installation, or build/release/bin of a source tree, or PATH.
atoll_find_programs() {
  local d
  for d in "${ATOLL_BIN:-}" "$ATOLL_ROOT/bin" "$ATOLL_ROOT/build/release/bin"; do
    [ -n "$d" ] && [ -x "$d/atoll-train" ] && { export PATH="$d:$PATH"; break; }
  done
  command -v atoll-train >/dev/null || atoll_die "no atoll-train in $ATOLL_ROOT/bin, $ATOLL_ROOT/build/release/bin or PATH: load the module or set ATOLL_BIN"
}

# Run directory as the program will see it: asked, not guessed.
atoll_run_dir() {
  atoll-train --print-config "$@" | awk '$1 == "run.dir" && $2 !~ /^#/ && $2 != "\"\"" { print $2; found = 1 } END { exit !found }' ||
    { local base=${1##*/}; echo "runs/${base%.*}"; }
}

# --- launcher --------------------------------------------------------------------------------------------------------

# srun when it speaks PMIx (then Slurm sees and accounts the ranks), else mpirun. Asked, because sites differ.
atoll_pick_launcher() {
  case "${ATOLL_LAUNCHER:-auto}" in
    srun|mpirun) ATOLL_LAUNCHER_USED=$ATOLL_LAUNCHER ;;
    auto)
      if command -v srun >/dev/null && srun --mpi=list 2>&1 | grep -qw 'pmix'; then
        ATOLL_LAUNCHER_USED=srun
      else
        ATOLL_LAUNCHER_USED=mpirun
      fi ;;
    *) atoll_die "ATOLL_LAUNCHER is '$ATOLL_LAUNCHER', expected auto, srun or mpirun" ;;
  esac
  if [ -n "${SLURM_HET_SIZE:-}" ] && [ "$ATOLL_LAUNCHER_USED" = mpirun ]; then
    atoll_die "a heterogeneous job needs srun: mpirun sees only its first component"
  fi
}

atoll_launch_words() {
  ATOLL_LAUNCH=()
  if [ "$ATOLL_LAUNCHER_USED" = srun ]; then
    # -K1: one dead rank ends the step (without it the others wait for ever). CPUs per task are not inherited from 22.05 on.
    ATOLL_LAUNCH=(srun --mpi=pmix -K1)
    [ -n "${SLURM_CPUS_PER_TASK:-}" ] && ATOLL_LAUNCH+=(--cpus-per-task="$SLURM_CPUS_PER_TASK")
    [ -n "${SLURM_HET_SIZE:-}" ] && ATOLL_LAUNCH+=(--het-group="0-$((SLURM_HET_SIZE - 1))")
  else
    ATOLL_LAUNCH=(mpirun)
    [ -n "${SLURM_NTASKS:-}" ] && ATOLL_LAUNCH+=(-np "$SLURM_NTASKS")
    [ -n "${SLURM_CPUS_PER_TASK:-}" ] && ATOLL_LAUNCH+=(--map-by "slot:PE=$SLURM_CPUS_PER_TASK")
  fi
  # shellcheck disable=SC2206  # words on purpose
  ATOLL_LAUNCH+=(${ATOLL_LAUNCH_OPTIONS:-})
}

# --- begin -----------------------------------------------------------------------------------------------------------

atoll_load_site() {
  local f
  for f in "${ATOLL_SITE:-}" "$ATOLL_ROOT/share/atoll/slurm/site.sh" "$ATOLL_ROOT/slurm/site.sh"; do
    # shellcheck disable=SC1090
    [ -n "$f" ] && [ -r "$f" ] && { . "$f"; atoll_say "site file $f"; return; }
  done
}

# Slurm 22.05 does not tell a job its end; the program stops in time when it knows.
atoll_tell_end_time() {
  [ -z "${SLURM_JOB_END_TIME:-}" ] && [ -n "${SLURM_JOB_ID:-}" ] || return 0
  local end
  end=$(squeue -h -j "$SLURM_JOB_ID" -o %e 2>/dev/null | head -n 1)
  case "$end" in
    ''|N/A|UNLIMITED) ;;
    *) SLURM_JOB_END_TIME=$(date -d "$end" +%s) && export SLURM_JOB_END_TIME ;;
  esac
}

atoll_preflight() {
  local job=$1
  [ -r "$job" ] || ATOLL_DIE_STATUS=66 atoll_die "job file $job is not readable on $(hostname)"
  # Options are checked here, on one node, before the allocation is spent on anything.
  atoll-train --print-config "$@" >/dev/null || exit $?
  mkdir -p "$ATOLL_RUN" && [ -w "$ATOLL_RUN" ] || ATOLL_DIE_STATUS=74 atoll_die "run directory $ATOLL_RUN cannot be written on $(hostname)"
  local free
  free=$(df -Pk "$ATOLL_RUN" | awk 'NR == 2 { print $4 }')
  [ "${free:-0}" -ge "${ATOLL_FREE_KIB:-1024}" ] || ATOLL_DIE_STATUS=74 atoll_die "file system of $ATOLL_RUN has $free KiB free, wanted ${ATOLL_FREE_KIB:-1024}"
}

atoll_begin() {
  [ $# -ge 1 ] || atoll_die "atoll_begin needs a job file"
  ATOLL_ROOT=${ATOLL_ROOT:-${SLURM_SUBMIT_DIR:-$PWD}}
  atoll_load_site
  atoll_find_programs
  ATOLL_WORDS=("$@")
  ATOLL_RUN=$(atoll_run_dir "$@")
  atoll_pick_launcher
  atoll_launch_words
  atoll_tell_end_time
  [ -n "${SLURM_CPUS_PER_TASK:-}" ] && export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
  export OMPI_MCA_mpi_yield_when_idle=${OMPI_MCA_mpi_yield_when_idle:-1} # ranks may share cores; srun does not set it
  atoll_say "job ${SLURM_JOB_ID:-none} restart ${SLURM_RESTART_COUNT:-0} on ${SLURM_JOB_NODELIST:-$(hostname)} at $(date -u +%FT%TZ)"
  atoll_say "program $(command -v atoll-train) $(atoll-train --version | head -n 1)"
  atoll_say "launcher ${ATOLL_LAUNCH[*]} , run directory $ATOLL_RUN , ends ${SLURM_JOB_END_TIME:-unknown}"
  atoll_say "command ${ATOLL_LAUNCH[*]} atoll-train $*"
  atoll_preflight "$@"
}

# --- run -------------------------------------------------------------------------------------------------------------

# The batch shell gets --signal=B:... and scancel's TERM; the ranks must get them too. srun and mpirun both pass USR1 on; TERM would make mpirun kill.
atoll_forward() {
  ATOLL_SIGNALS=$((${ATOLL_SIGNALS:-0} + 1))
  atoll_say "signal $1, asking the ranks to stop at the next step"
  kill -USR1 "$ATOLL_PID" 2>/dev/null || true
}

atoll_train() {
  "${ATOLL_LAUNCH[@]}" atoll-train "${ATOLL_WORDS[@]}" &
  ATOLL_PID=$!
  trap 'atoll_forward USR1' USR1
  trap 'atoll_forward USR2' USR2
  trap 'atoll_forward TERM' TERM
  while :; do # a trapped signal ends wait early
    wait "$ATOLL_PID" && ATOLL_STATUS=0 || ATOLL_STATUS=$?
    kill -0 "$ATOLL_PID" 2>/dev/null || break
  done
  trap - USR1 USR2 TERM
  atoll_say "launcher ended with $ATOLL_STATUS"
}

# --- end -------------------------------------------------------------------------------------------------------------

# Launchers lose exit codes, so the run directory is asked. 75 means: nothing is lost, the same job again. The cap ends a job that dies at once every time.
atoll_end() {
  local verdict cap=${ATOLL_REQUEUE_CAP:-20}
  atoll-inspect status "$ATOLL_RUN" && verdict=0 || verdict=$?
  if [ "$verdict" != 75 ]; then
    [ "$verdict" = 0 ] && atoll_say "finished"
    exit "$verdict"
  fi
  if [ -z "${SLURM_JOB_ID:-}" ] || [ "${ATOLL_REQUEUE:-1}" = 0 ]; then
    atoll_say "stopped early; the same command resumes"
    exit 75
  fi
  if [ "${SLURM_RESTART_COUNT:-0}" -ge "$cap" ]; then
    atoll_say "stopped early, but already requeued ${SLURM_RESTART_COUNT:-0} times (ATOLL_REQUEUE_CAP=$cap)"
    exit 75
  fi
  local id=$SLURM_JOB_ID
  [ -n "${SLURM_ARRAY_JOB_ID:-}" ] && id=${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}
  [ -n "${SLURM_HET_SIZE:-}" ] && id=${SLURM_JOB_ID_HET_GROUP_0:-$SLURM_JOB_ID}
  atoll_say "stopped early, requeueing $id ( restart $((${SLURM_RESTART_COUNT:-0} + 1)) of at most $cap )"
  scontrol requeue "$id" || { atoll_say "requeue refused; submit again to resume"; exit 75; }
  exit 75
}
