# Sourced after case.sh: a real Slurm of four virtual nodes on this host, for the length of one case.
#
# munged, slurmctld and one slurmd per node, all state in one temporary folder, ports of its own. Each slurmd lives in its own UTS
# namespace, so that hosts have the names n0..n3; n0 and n1 are of one kind, n2 and n3 of another (inputs/clusters/mixed-2x2).
# Everything started is ended by its recorded pid when the case ends: by its EXIT trap, or, when the case itself is killed, by a
# guard that outlives it.
#
#   cluster_start            or skips with a reason
#   submit ARGS...           sbatch with the settings of this cluster; the id is in $JOB, the output goes to job.out
#   await [SECONDS]          until the job has ended for good: $STATE is Slurm's word, $STATUS the exit status (128 + signal)
#   batch ARGS...            both
#   status_is CODE           the job ended with that exit status
#   await_file PATH          a file that a running job makes
#   signal_batch SIGNAL      to the job's batch shell

# A short path of its own: PMIx puts unix sockets below the spool folders, whose names are limited to 107 bytes.
CLUSTER_DAEMONS='slurmctld slurmd-n0 slurmd-n1 slurmd-n2 slurmd-n3 munged'

# PID NAME: the process runs, is not a zombie that init has not collected yet, and is the daemon (pids are used again).
cluster_alive() {
  case $(sed 's/^[0-9]* \(.*\) \([A-Za-z]\) .*/\1 \2/; s/ -\{0,1\}[0-9].*//' "/proc/$1/stat" 2>/dev/null) in
    '('"$2"') '[!ZX]) return 0 ;;
  esac
  return 1
}

# Every daemon of folder $1 by the pid it wrote, then whatever still carries that folder's SLURM_CONF: ranks and their steps.
cluster_end() {
  local dir=$1 d p try any signal
  export SLURM_CONF=$dir/slurm.conf
  timeout 10 scancel --full --signal=KILL --partition=all >/dev/null 2>&1
  timeout 10 scancel --partition=all >/dev/null 2>&1
  for try in $(seq 50); do
    [ -z "$(timeout 5 squeue -h 2>/dev/null)" ] && break
    sleep 0.1
  done
  for signal in TERM KILL; do
    for d in $CLUSTER_DAEMONS; do
      p=$(cat "$dir/run/$d.pid" 2>/dev/null) && cluster_alive "$p" "${d%%-*}" && kill -$signal "$p" 2>/dev/null
    done
    for try in $(seq 60); do
      any=0
      for d in $CLUSTER_DAEMONS; do
        p=$(cat "$dir/run/$d.pid" 2>/dev/null) && cluster_alive "$p" "${d%%-*}" && any=1
      done
      [ $any = 0 ] && break 2
      sleep 0.1
    done
  done
  for p in $(grep -lsazx "SLURM_CONF=$dir/slurm.conf" /proc/[0-9]*/environ | cut -d/ -f3); do
    [ "$p" = "$$" ] || [ "$p" = "$BASHPID" ] || [ "$p" = "${CLUSTER_CASE:-}" ] || kill -KILL "$p" 2>/dev/null
  done
}

# As a program: cluster.sh guard FOLDER PID. Ends the cluster once the case is gone and its trap has not done it.
if [ "${1:-}" = guard ] && [ "${BASH_SOURCE[0]}" = "$0" ]; then
  unset SLURM_CONF
  while [ -e "/proc/$3" ] && [ -d "$2" ]; do sleep 1; done
  [ -d "$2" ] || exit 0
  cluster_end "$2"
  rm -rf "${2:?}"
  exit 0
fi

CLUSTER=$(mktemp -d "${TMPDIR:-/tmp}/asl.XXXXXX") || fail 'no temporary folder'
CLUSTER_CASE=$$

cluster_needs() {
  local p
  [ "$(id -u)" = 0 ] || skip 'a local Slurm needs root'
  for p in munged slurmctld slurmd srun sbatch scontrol unshare; do
    command -v "$p" >/dev/null || skip "a local Slurm needs $p (packages slurmctld slurmd slurm-client munge)"
  done
  unshare --uts true 2>/dev/null || skip 'this container forbids namespaces of its own'
}

# A range of free ports: the controller, one a node, and a range for srun.
cluster_ports() {
  local try port
  for try in 1 2 3 4 5 6 7 8 9 10; do
    port=$((20000 + (RANDOM * 32768 + RANDOM) % 12000)) # below what the kernel gives to clients
    if ! ss -Hltn 2>/dev/null | awk -v lo=$port '{ n = split($4, a, ":"); if (a[n] >= lo && a[n] < lo + 220) bad = 1 } END { exit !bad }'; then
      CLUSTER_PORT=$port
      return
    fi
  done
  skip 'no range of free ports was found'
}

cluster_configure() {
  local host n i=0
  host=$(hostname)
  mkdir -p "$CLUSTER"/{log,state,run}
  (umask 077 && head -c 128 /dev/urandom >"$CLUSTER/munge.key")
  # AuthInfo: cred_expire is also how long a requeued job waits before it may start again; less than 5 is ignored.
  cat >"$CLUSTER/slurm.conf" <<C
ClusterName=atolltest
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$CLUSTER_PORT
SrunPortRange=$((CLUSTER_PORT + 20))-$((CLUSTER_PORT + 200))
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$CLUSTER/run/munge.sock,cred_expire=5
StateSaveLocation=$CLUSTER/state
SlurmdSpoolDir=$CLUSTER/spool-%n
TmpFS=$CLUSTER/tmp-%n
SlurmctldPidFile=$CLUSTER/run/slurmctld.pid
SlurmdPidFile=$CLUSTER/run/slurmd-%n.pid
SlurmctldLogFile=$CLUSTER/log/slurmctld.log
SlurmdLogFile=$CLUSTER/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
MpiDefault=none
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=bf_interval=1,sched_interval=1,sched_min_interval=0,batch_sched_delay=0
ReturnToService=2
KillWait=5
OverTimeLimit=0
JobRequeue=1
MinJobAge=600
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
TaskProlog=$CLUSTER/task-prolog
PlugStackConfig=$CLUSTER/plugstack.conf
C
  : >"$CLUSTER/plugstack.conf"
  for n in n0 n1 n2 n3; do
    mkdir -p "$CLUSTER/spool-$n" "$CLUSTER/tmp-$n" "$CLUSTER/shm-$n"
    echo "NodeName=$n NodeHostname=$host NodeAddr=127.0.0.1 Port=$((CLUSTER_PORT + 1 + i)) CPUs=1 RealMemory=2048 State=UNKNOWN" >>"$CLUSTER/slurm.conf"
    i=$((i + 1))
  done
  echo 'PartitionName=all Nodes=n0,n1,n2,n3 Default=YES MaxTime=INFINITE DefaultTime=10 State=UP' >>"$CLUSTER/slurm.conf"
  # Virtual nodes share one kernel: their shared-memory files must not meet. The slower kind is really slower, in tests only: each
  # compute task lasts a multiple of the CPU time it took. ATOLL_CASE_PACE_FIRST holds for a job's first run, not when requeued.
  cat >"$CLUSTER/task-prolog" <<'T'
#!/bin/bash
dir=$(dirname "$0")/shm-$SLURMD_NODENAME
echo "export OMPI_MCA_btl_vader_backing_directory=$dir"
case $SLURMD_NODENAME in n0 | n1) pace=${ATOLL_CASE_PACE_FAST:-} ;; *) pace=${ATOLL_CASE_PACE_SLOW:-} ;; esac
[ "${SLURM_RESTART_COUNT:-0}" != 0 ] || pace=${ATOLL_CASE_PACE_FIRST:-$pace}
[ -n "$pace" ] && echo "export ATOLL_TEST_PACE=$pace"
exit 0
T
  chmod +x "$CLUSTER/task-prolog"
}

cluster_started() { # DAEMON: it says so by its pid file
  local try
  for try in $(seq 1200); do
    [ -s "$CLUSTER/run/$1.pid" ] && return 0
    sleep 0.05
  done
  tail -n 5 "$CLUSTER"/log/* 2>/dev/null
  fail "$1 did not start in 60 s"
}

cluster_stop() {
  trap - EXIT
  cluster_end "$CLUSTER"
  cp -r "$CLUSTER/log" "$ATOLL_WORK/cluster-log" 2>/dev/null
  rm -rf "${CLUSTER:?}"
}

cluster_start() {
  local n try here
  here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
  trap 'rm -rf "${CLUSTER:?}"' EXIT
  cluster_needs
  cluster_ports
  cluster_configure
  export SLURM_CONF=$CLUSTER/slurm.conf
  srun --mpi=list 2>&1 | grep -qw pmix || skip "this Slurm has no PMIx plug-in (slurm-wlm-basic-plugins, libpmix2)"
  trap cluster_stop EXIT
  trap 'exit 143' TERM INT HUP
  (setsid bash "$here/cluster.sh" guard "$CLUSTER" $$ </dev/null >/dev/null 2>&1 &)
  munged --force --socket="$CLUSTER/run/munge.sock" --key-file="$CLUSTER/munge.key" --log-file="$CLUSTER/log/munged.log" \
    --pid-file="$CLUSTER/run/munged.pid" --seed-file="$CLUSTER/state/munge.seed" --num-threads=2 || fail 'munged'
  cluster_started munged
  slurmctld -f "$SLURM_CONF" || fail 'slurmctld'
  cluster_started slurmctld
  for n in n0 n1 n2 n3; do
    unshare --uts sh -c 'hostname "$1" && exec slurmd -N "$1" -f "$2"' sh $n "$SLURM_CONF" || fail "slurmd $n"
  done
  for n in n0 n1 n2 n3; do cluster_started slurmd-$n; done
  for try in $(seq 300); do
    [ "$(sinfo -h -N -o %T 2>/dev/null | grep -c '^idle$')" = 4 ] && break
    sleep 0.2
  done
  [ "$(sinfo -h -N -o %T | grep -c '^idle$')" = 4 ] || fail "the nodes did not come up: $(sinfo -h -N -o '%N %T' | tr '\n' ' ')"
  # What the job inherits: where the programs are, and MPI over loopback for nodes that are one host.
  export ATOLL_ROOT=$ATOLL_SOURCE_DIR ATOLL_BIN=$ATOLL_BUILD_DIR/bin
  export OMPI_MCA_btl=self,vader,tcp OMPI_MCA_pml=ob1 OMPI_MCA_btl_tcp_if_include=lo OMPI_MCA_oob_tcp_if_include=lo
  export OMPI_MCA_hwloc_base_binding_policy=none
}

submit() {
  rm -f job.out
  JOB=$(sbatch --parsable --output=job.out --open-mode=append "$@" 2>"$ATOLL_LAST_OUT") || fail "sbatch $*: $(cat "$ATOLL_LAST_OUT")"
}

# sbatch --wait would look every few seconds only. Of a heterogeneous job the first component counts.
await() {
  local show end=$((SECONDS + ${1:-240})) code
  while :; do
    show=$(scontrol show job "$JOB" 2>/dev/null)
    STATE=$(sed -n '/JobState=/{s/.*JobState=\([A-Z_]*\).*/\1/p;q}' <<<"$show")
    code=$(sed -n '/ ExitCode=/{s/.* ExitCode=\([0-9:]*\).*/\1/p;q}' <<<"$show")
    case $STATE in COMPLETED | FAILED | CANCELLED | TIMEOUT | NODE_FAIL | BOOT_FAIL | DEADLINE | OUT_OF_MEMORY) break ;; esac
    [ "$SECONDS" -lt "$end" ] || { cat job.out; fail "job $JOB is still $STATE after ${1:-240} s"; }
    sleep 0.2
  done
  STATUS=${code%:*}
  [ "${code#*:}" = 0 ] || STATUS=$((128 + ${code#*:}))
  cp job.out "$ATOLL_LAST_OUT" 2>/dev/null
  echo "job $JOB $STATE $STATUS after $SECONDS s of the case"
}

batch() {
  submit "$@"
  await
}

status_is() {
  [ "$STATUS" = "$1" ] && return 0
  echo "job $JOB is $STATE with exit status $STATUS, expected $1"
  tail -n 60 "$ATOLL_LAST_OUT"
  exit 1
}

await_file() {
  local try
  for try in $(seq 2400); do
    [ -e "$1" ] && return 0
    sleep 0.05
  done
  cat job.out
  fail "no $1 after 120 s"
}

signal_batch() { scancel --signal="$1" --batch "$JOB" || fail "scancel --signal=$1"; }
