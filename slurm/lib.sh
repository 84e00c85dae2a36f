# shellcheck shell=bash
# Shared by the job templates; sourced by bash inside a Slurm job, an interactive allocation, or on a plain machine.
#
#   atoll_begin JOB.yaml [key=value ...]   site file, checks before the allocation is spent, echo of what reproduces it
#   atoll_train                            launch, pass signals on, wait
#   atoll_end                              what `atoll-inspect status` says decides: requeue or exit; does not return
#
# Everything a site may want to change is in site.sh; every choice made here is printed.
#
# Signals. --signal=B:... and scancel --batch reach only this shell. It passes each on as USR1, which srun and mpirun both hand to
# every rank; TERM or INT would make the launchers kill. From the first line of atoll_begin on a signal is never lost and never
# ends the shell: before the launch it is remembered, after the ranks have left it changes nothing.

atoll_say() { echo "atoll-job: $*"; }
atoll_die() { # STATUS TEXT
  local status=$1
  shift
  echo "atoll-job: error: $*" >&2
  exit "$status"
}

# --- where things are ------------------------------------------------------------------------------------------------

# This file lies in PREFIX/share/atoll/slurm or in SOURCE/slurm.
atoll_find_root() {
  local here
  [ -z "${ATOLL_ROOT:-}" ] || return 0
  here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
  case $here in
    */share/atoll/slurm) ATOLL_ROOT=${here%/share/atoll/slurm} ;;
    *) ATOLL_ROOT=${here%/*} ;;
  esac
}

atoll_load_site() {
  local f
  [ -z "${ATOLL_SITE:-}" ] || [ -r "$ATOLL_SITE" ] || atoll_die 66 "site file ATOLL_SITE=$ATOLL_SITE is not readable on $(hostname)"
  for f in "${ATOLL_SITE:-}" "$ATOLL_ROOT/share/atoll/slurm/site.sh" "$ATOLL_ROOT/slurm/site.sh"; do
    if [ -n "$f" ] && [ -r "$f" ]; then
      # shellcheck disable=SC1090  # the site's own
      . "$f"
      atoll_say "site file $f"
      return
    fi
  done
}

# Programs: ATOLL_BIN, else bin/ of an installation, else build/release/bin of a source tree, else PATH.
atoll_find_programs() {
  local d
  for d in "${ATOLL_BIN:-}" "$ATOLL_ROOT/bin" "$ATOLL_ROOT/build/release/bin"; do
    if [ -n "$d" ] && [ -x "$d/atoll-train" ]; then
      export PATH="$d:$PATH"
      break
    fi
  done
  command -v atoll-train >/dev/null ||
    atoll_die 66 "no atoll-train in $ATOLL_ROOT/bin, $ATOLL_ROOT/build/release/bin or PATH: load the module or set ATOLL_BIN"
}

# --- launcher --------------------------------------------------------------------------------------------------------

# srun when it speaks PMIx (then Slurm sees and accounts the ranks), else mpirun. Asked, because sites differ.
atoll_pick_launcher() {
  case "${ATOLL_LAUNCHER:-auto}" in
    srun | mpirun) ATOLL_LAUNCHER_USED=$ATOLL_LAUNCHER ;;
    auto)
      if [ -n "${SLURM_JOB_ID:-}" ] && command -v srun >/dev/null && srun --mpi=list 2>&1 | grep -qw pmix; then
        ATOLL_LAUNCHER_USED=srun
      else
        ATOLL_LAUNCHER_USED=mpirun
      fi
      ;;
    *) atoll_die 64 "ATOLL_LAUNCHER is '$ATOLL_LAUNCHER', expected auto, srun or mpirun" ;;
  esac
  command -v "$ATOLL_LAUNCHER_USED" >/dev/null || atoll_die 66 "launcher $ATOLL_LAUNCHER_USED is not in PATH"
  if [ -n "${SLURM_HET_SIZE:-}" ] && [ "$ATOLL_LAUNCHER_USED" = mpirun ]; then
    atoll_die 67 "a heterogeneous job needs srun with PMIx: mpirun sees only its first component"
  fi
}

# The whole command, in ATOLL_COMMAND. ATOLL_LAUNCH_OPTIONS is split at blanks.
atoll_make_command() {
  local c cpus more=()
  read -r -a more <<<"${ATOLL_LAUNCH_OPTIONS:-}"
  if [ "$ATOLL_LAUNCHER_USED" = mpirun ]; then
    # mpirun starts its daemons by srun, one a node; with CPUs per task in the environment these, and all ranks, would get no more.
    unset SRUN_CPUS_PER_TASK
    ATOLL_COMMAND=(mpirun)
    [ -z "${SLURM_NTASKS:-}" ] || ATOLL_COMMAND+=(-np "$SLURM_NTASKS")
    if [ -n "${SLURM_CPUS_PER_TASK:-}" ]; then
      ATOLL_COMMAND+=(--map-by "slot:PE=$SLURM_CPUS_PER_TASK")
    else
      ATOLL_COMMAND+=(--bind-to none) # its default gives each of two ranks one core; the program divides what it is given
    fi
    ATOLL_COMMAND+=("${more[@]}" atoll-train "$@")
    return
  fi
  # -K1: one dead rank ends the step (without it the others wait for ever). CPUs per task are not inherited from 22.05 on.
  ATOLL_COMMAND=(srun)
  if [ -z "${SLURM_HET_SIZE:-}" ]; then
    ATOLL_COMMAND+=(--mpi=pmix -K1)
    [ -z "${SLURM_CPUS_PER_TASK:-}" ] || ATOLL_COMMAND+=(--cpus-per-task="$SLURM_CPUS_PER_TASK")
    ATOLL_COMMAND+=("${more[@]}" atoll-train "$@")
    return
  fi
  # One world over all components, each with its own CPUs per task. With -K1 over several components srun may never return when the
  # ranks end together with a status that is not 0, as they do when they stop early; --wait ends what a dead rank leaves.
  for ((c = 0; c < SLURM_HET_SIZE; c++)); do
    cpus=SLURM_CPUS_PER_TASK_HET_GROUP_$c
    [ "$c" = 0 ] || ATOLL_COMMAND+=(:)
    ATOLL_COMMAND+=(--het-group="$c" --mpi=pmix --wait=20)
    [ -z "${!cpus:-}" ] || ATOLL_COMMAND+=(--cpus-per-task="${!cpus}")
    ATOLL_COMMAND+=("${more[@]}" atoll-train "$@")
  done
}

# --- begin -----------------------------------------------------------------------------------------------------------

# Slurm before 23.02 does not tell a job its end; the program stops in time when it knows. Always asked: a value that came with the
# environment of the submitting shell may be another job's.
atoll_tell_end_time() {
  local end seconds
  [ -n "${SLURM_JOB_ID:-}" ] || return 0
  end=$(SLURM_TIME_FORMAT=standard squeue -h -j "$SLURM_JOB_ID" -o %e 2>/dev/null | head -n 1)
  case $end in
    '' | N/A | UNLIMITED | NONE) unset SLURM_JOB_END_TIME ;;
    *) if seconds=$(date -d "$end" +%s 2>/dev/null); then export SLURM_JOB_END_TIME=$seconds; fi ;;
  esac
}

# Options are checked here, on one node, before the allocation is spent on anything; the run directory is as the program will see it.
atoll_read_options() {
  local config quoted base=${1##*/}
  [ -r "$1" ] || atoll_die 66 "job file $1 is not readable on $(hostname)"
  config=$(atoll-train --print-config "$@") || exit $?
  quoted=$(sed -n 's/^run\.dir "\(.*\)" *# .*/\1/p' <<<"$config")
  if [ -n "$quoted" ]; then # with escapes such as \" and \t; %b does not know the first
    printf -v ATOLL_RUN %b "${quoted//\\\"/\"}"
  else
    ATOLL_RUN=$(sed -n 's/^run\.dir \([^ "][^ ]*\) .*/\1/p' <<<"$config")
  fi
  [ -n "$ATOLL_RUN" ] || ATOLL_RUN=runs/${base%.*}
}

atoll_check_run_dir() {
  local free need=${ATOLL_FREE_KIB:-1024}
  if ! mkdir -p "$ATOLL_RUN" || ! [ -w "$ATOLL_RUN" ]; then
    atoll_die 74 "run directory $ATOLL_RUN cannot be written on $(hostname)"
  fi
  free=$(df -Pk "$ATOLL_RUN" | awk 'NR == 2 { print $4 }')
  [ "${free:-0}" -ge "$need" ] || atoll_die 74 "the file system of $ATOLL_RUN has ${free:-0} KiB free, wanted $need (ATOLL_FREE_KIB)"
}

atoll_begin() {
  local s
  ATOLL_SIGNALS=0 ATOLL_PID='' ATOLL_STATUS=0
  for s in USR1 USR2 TERM HUP; do
    # shellcheck disable=SC2064  # the name now
    trap "atoll_signal $s" "$s"
  done
  [ $# -ge 1 ] || atoll_die 64 "a job file is missing: JOB.yaml [key=value ...]"
  atoll_find_root
  atoll_load_site
  atoll_find_programs
  ATOLL_WORDS=("$@")
  atoll_read_options "$@"
  atoll_pick_launcher
  atoll_make_command "$@"
  atoll_tell_end_time
  export OMPI_MCA_mpi_yield_when_idle=${OMPI_MCA_mpi_yield_when_idle:-1} # ranks may share cores; srun does not set it
  atoll_say "job ${SLURM_JOB_ID:-none} restart ${SLURM_RESTART_COUNT:-0} on ${SLURM_JOB_NODELIST:-$(hostname)} at $(date -u +%FT%TZ)"
  atoll_say "program $(command -v atoll-train) $(atoll-train --version | head -n 1)"
  atoll_say "launcher $ATOLL_LAUNCHER_USED , run directory $ATOLL_RUN , ends ${SLURM_JOB_END_TIME:-unknown}"
  atoll_say "command$(printf ' %q' "${ATOLL_COMMAND[@]}")"
  atoll_check_run_dir
}

# --- run -------------------------------------------------------------------------------------------------------------

atoll_signal() {
  ATOLL_SIGNALS=$((ATOLL_SIGNALS + 1))
  if [ -n "$ATOLL_PID" ]; then
    atoll_say "signal $1, asking the ranks to stop at the next step"
    kill -USR1 "$ATOLL_PID" 2>/dev/null
  else
    atoll_say "signal $1 , no ranks are running"
  fi
}

# Attempts that the run directory has seen; 0 when there is no run yet.
atoll_attempts() {
  local n
  n=$(atoll-inspect status --json "$ATOLL_RUN" 2>/dev/null | sed -n 's/.*"attempt": \([0-9]*\).*/\1/p')
  echo "${n:-0}"
}

# In a process of its own. A launcher that hangs after the run has ended would hold the allocation to its end.
atoll_watch_launcher() {
  local looks=0
  trap '' USR1 USR2 HUP INT
  trap - TERM
  while kill -0 "$ATOLL_PID" 2>/dev/null; do
    sleep 10 >/dev/null 2>&1
    atoll-inspect status "$ATOLL_RUN" >/dev/null 2>&1
    if [ $? = 72 ] || [ "$(atoll_attempts)" = "$ATOLL_ATTEMPTS_BEFORE" ]; then looks=0; else looks=$((looks + 1)); fi
    if [ "$looks" = 3 ]; then
      atoll_say "the run has ended but its launcher has not, ending it"
      kill -KILL "$ATOLL_PID"
    fi
  done
}

# With ATOLL_OWN_GROUP the launcher leaves the terminal's process group, so that Ctrl-C reaches this shell alone. Not in batch jobs:
# some sites let Slurm end a job by its process group.
atoll_launch() {
  local seen got watch
  ATOLL_STATUS=0
  [ -z "${ATOLL_OWN_GROUP:-}" ] || set -m
  "${ATOLL_COMMAND[@]}" </dev/null &
  ATOLL_PID=$!
  set +m
  atoll_watch_launcher &
  watch=$!
  [ "$ATOLL_SIGNALS" = 0 ] || kill -USR1 "$ATOLL_PID" 2>/dev/null # came between the last look and the launch
  while :; do # a trapped signal ends wait early
    seen=$ATOLL_SIGNALS
    wait "$ATOLL_PID" && got=0 || got=$?
    [ "$got" = 127 ] && [ "$ATOLL_STATUS" != 0 ] || ATOLL_STATUS=$got # 127: already waited for
    [ "$ATOLL_SIGNALS" != "$seen" ] || break
  done
  ATOLL_PID=''
  kill -KILL "$watch" 2>/dev/null
  wait "$watch" 2>/dev/null
  atoll_say "launcher ended with $ATOLL_STATUS"
}

# The program has an exit status of its own for whatever it knows; any other one without an attempt is the launcher's.
atoll_launcher_failed() {
  [ "$ATOLL_SIGNALS" = 0 ] && [ "$(atoll_attempts)" = "$ATOLL_ATTEMPTS_BEFORE" ] || return 1
  case $ATOLL_STATUS in 0 | 6[4-9] | 7[0-9] | 80) return 1 ;; esac
}

atoll_train() {
  ATOLL_ATTEMPTS_BEFORE=$(atoll_attempts)
  [ "$ATOLL_SIGNALS" = 0 ] || return 0
  atoll_launch
  # A PMIx plug-in may be there and not fit this MPI; then the ranks die in MPI_Init.
  if [ "$ATOLL_LAUNCHER_USED" = srun ] && [ "${ATOLL_LAUNCHER:-auto}" = auto ] && [ -z "${SLURM_HET_SIZE:-}" ] &&
    command -v mpirun >/dev/null && atoll_launcher_failed; then
    atoll_say "srun did not get the ranks to begin: $(srun --version 2>&1 | head -n 1) , $(mpirun --version 2>&1 | head -n 1) , plug-ins" \
      "$(srun --mpi=list 2>&1 | tail -n +2 | tr -s '\n\t ' ' ')"
    atoll_say "trying mpirun; ATOLL_LAUNCHER in the site file chooses one for good"
    ATOLL_LAUNCHER_USED=mpirun
    ATOLL_LAUNCH_OPTIONS='' # those were for srun
    atoll_make_command "${ATOLL_WORDS[@]}"
    atoll_say "command$(printf ' %q' "${ATOLL_COMMAND[@]}")"
    atoll_launch
  fi
}

# --- end -------------------------------------------------------------------------------------------------------------

# A launcher that was killed leaves ranks behind for a while. Until they are gone the run is neither stopped nor dead.
atoll_settle() {
  local step try
  for ((try = 0; try < 30; try++)); do
    atoll-inspect status "$ATOLL_RUN" >/dev/null 2>&1
    [ $? = 72 ] || return 0
    if [ "$try" = 2 ] && [ "$ATOLL_LAUNCHER_USED" = srun ] && [ -n "${SLURM_JOB_ID:-}" ]; then
      for step in $(squeue -h -s -j "$SLURM_JOB_ID" -o %i 2>/dev/null); do
        case $step in
          *.batch | *.extern | *.interactive) ;;
          *)
            atoll_say "step $step outlived its launcher, ending it"
            scancel --signal=KILL "$step"
            ;;
        esac
      done
    fi
    sleep 1
  done
}

# Launchers lose exit codes, so the run directory is asked. 75 means: nothing is lost, the same job again; so it is after a peer was
# lost (77) or a phase never ended (78). The cap ends a job that dies every time; one that never began is not tried again.
atoll_end() {
  local verdict=75 cap=${ATOLL_REQUEUE_CAP:-20} id=${SLURM_JOB_ID:-}
  trap '' USR1 USR2 TERM HUP INT
  if [ "$(atoll_attempts)" != "$ATOLL_ATTEMPTS_BEFORE" ]; then
    atoll_settle
    atoll-inspect status "$ATOLL_RUN" && verdict=0 || verdict=$?
  elif [ "$ATOLL_SIGNALS" != 0 ]; then
    atoll_say "stopped before the program began"
  else
    atoll_say "the program did not begin"
    [ "$ATOLL_STATUS" != 0 ] || ATOLL_STATUS=70
    exit "$ATOLL_STATUS"
  fi
  case $verdict in
    75 | 77 | 78) ;;
    0)
      atoll_say "finished"
      exit 0
      ;;
    *)
      atoll_say "nothing that the same job would mend"
      exit "$verdict"
      ;;
  esac
  if [ -z "$id" ] || [ "${ATOLL_REQUEUE:-1}" = 0 ]; then
    atoll_say "stopped early; the same command resumes"
    exit "$verdict"
  fi
  if [ "${SLURM_RESTART_COUNT:-0}" -ge "$cap" ]; then
    atoll_say "stopped early, but already requeued ${SLURM_RESTART_COUNT:-0} times (ATOLL_REQUEUE_CAP=$cap)"
    exit "$verdict"
  fi
  [ -z "${SLURM_ARRAY_JOB_ID:-}" ] || id=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID
  atoll_say "stopped early, requeueing $id ( restart $((${SLURM_RESTART_COUNT:-0} + 1)) of at most $cap )"
  scontrol requeue "$id" || atoll_say "requeue refused; submit again to resume"
  exit "$verdict"
}
