# Sourced after case.sh: a real Slurm of four virtual nodes on this host, for the length of one case.
#
# munged, slurmctld and one slurmd per node, all state in one temporary folder, ports of its own. Each slurmd lives in its own UTS namespace, so that hosts
# have the names n0..n3; n0 and n1 are of one kind, n2 and n3 of another (inputs/clusters/mixed-2x2). Everything started is ended by its recorded pid when
# the case ends, also when it fails.
#
#   cluster_start            or skips with a reason
#   batch ARGS...            sbatch --wait with the settings of this cluster; the job's output is in job.out; its exit status is in $BATCH
#   job_state ID             Slurm's word for a job

# A short path of its own: PMIx puts unix sockets below the spool folders, whose names are limited to 107 bytes.
CLUSTER=$(mktemp -d "${TMPDIR:-/tmp}/asl.XXXXXX") || fail 'no temporary folder'
CLUSTER_PIDS=()

cluster_needs() {
  [ "$(id -u)" = 0 ] || skip 'a local Slurm needs root'
  local p
  for p in munged slurmctld slurmd srun sbatch scontrol unshare; do
    command -v "$p" >/dev/null || skip "a local Slurm needs $p (packages slurmctld slurmd slurm-client munge)"
  done
  unshare --uts true 2>/dev/null || skip 'this container forbids namespaces of its own'
}

# A range of free ports: the controller and one a node, and a range for srun.
cluster_ports() {
  local try port
  for try in 1 2 3 4 5 6 7 8 9 10; do
    port=$((20000 + (RANDOM * 32768 + RANDOM) % 20000))
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
  # Virtual nodes share one kernel: their shared-memory files must not meet. The slower kind is really slower, in tests only: each compute task lasts a multiple of
  # the CPU time it took.
  cat >"$CLUSTER/task-prolog" <<'T'
#!/bin/bash
dir=$(dirname "$0")/shm-$SLURMD_NODENAME
echo "export OMPI_MCA_btl_vader_backing_directory=$dir"
case $SLURMD_NODENAME in n0 | n1) pace=${ATOLL_CASE_PACE_FAST:-} ;; *) pace=${ATOLL_CASE_PACE_SLOW:-} ;; esac
[ -n "$pace" ] && echo "export ATOLL_TEST_PACE=$pace"
exit 0
T
  chmod +x "$CLUSTER/task-prolog"
}

cluster_own() { # PIDFILE: waits for the daemon's pid and remembers it
  local try
  for try in $(seq 100); do
    [ -s "$1" ] && CLUSTER_PIDS+=("$(cat "$1")") && return 0
    sleep 0.1
  done
  tail -n 5 "$CLUSTER"/log/* 2>/dev/null
  fail "no $1 after 10 s"
}

cluster_alive() { # a zombie that init has not collected is not alive
  local state
  state=$(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -c1)
  [ -n "$state" ] && [ "$state" != Z ]
}

cluster_stop() {
  local p try any
  trap - EXIT
  scancel --partition=all >/dev/null 2>&1
  for try in $(seq 50); do
    [ -z "$(squeue -h 2>/dev/null)" ] && break
    sleep 0.1
  done
  for p in "${CLUSTER_PIDS[@]}"; do kill "$p" 2>/dev/null; done
  for try in $(seq 100); do
    any=0
    for p in "${CLUSTER_PIDS[@]}"; do cluster_alive "$p" && any=1; done
    [ $any = 0 ] && break
    sleep 0.1
  done
  for p in "${CLUSTER_PIDS[@]}"; do cluster_alive "$p" && kill -9 "$p" 2>/dev/null; done
  cp -r "$CLUSTER/log" "$ATOLL_WORK/cluster-log" 2>/dev/null
  rm -rf "${CLUSTER:?}"
}

cluster_start() {
  trap 'rm -rf "${CLUSTER:?}"' EXIT
  cluster_needs
  cluster_ports
  cluster_configure
  export SLURM_CONF=$CLUSTER/slurm.conf
  srun --mpi=list 2>&1 | grep -qw pmix || skip "this Slurm has no PMIx plug-in (slurm-wlm-basic-plugins, libpmix2)"
  trap cluster_stop EXIT
  trap 'exit 143' TERM INT
  munged --force --socket="$CLUSTER/run/munge.sock" --key-file="$CLUSTER/munge.key" --log-file="$CLUSTER/log/munged.log" \
    --pid-file="$CLUSTER/run/munged.pid" --seed-file="$CLUSTER/state/munge.seed" --num-threads=2 || fail 'munged'
  cluster_own "$CLUSTER/run/munged.pid"
  slurmctld -f "$SLURM_CONF" || fail 'slurmctld'
  cluster_own "$CLUSTER/run/slurmctld.pid"
  local n try
  for n in n0 n1 n2 n3; do
    unshare --uts sh -c 'hostname "$1" && exec slurmd -N "$1" -f "$2"' sh $n "$SLURM_CONF" || fail "slurmd $n"
    cluster_own "$CLUSTER/run/slurmd-$n.pid"
  done
  for try in $(seq 150); do
    [ "$(sinfo -h -N -o %T 2>/dev/null | grep -c '^idle$')" = 4 ] && break
    sleep 0.2
  done
  [ "$(sinfo -h -N -o %T | grep -c '^idle$')" = 4 ] || fail "the nodes did not come up: $(sinfo -h -N -o '%N %T' | tr '\n' ' ')"
  # What the job inherits: where the programs are, and MPI over loopback for nodes that are one host.
  export ATOLL_ROOT=$ATOLL_SOURCE_DIR ATOLL_BIN=$ATOLL_BUILD_DIR/bin
  export OMPI_MCA_btl=self,vader,tcp OMPI_MCA_pml=ob1 OMPI_MCA_btl_tcp_if_include=lo OMPI_MCA_oob_tcp_if_include=lo
  export OMPI_MCA_hwloc_base_binding_policy=none
}

batch() {
  rm -f job.out
  sbatch --wait --parsable --output=job.out --open-mode=append "$@" >job.id 2>"$ATOLL_LAST_OUT"
  BATCH=$?
  cp job.out "$ATOLL_LAST_OUT" 2>/dev/null
  return 0
}

batch_is() { # CODE: the job's exit status
  [ "$BATCH" = "$1" ] && return 0
  echo "the job ended with $BATCH, expected $1"
  tail -n 60 "$ATOLL_LAST_OUT"
  exit 1
}

job_state() { scontrol show job "$1" 2>/dev/null | sed -n 's/.*JobState=\([A-Z_]*\).*/\1/p' | head -n 1; }
