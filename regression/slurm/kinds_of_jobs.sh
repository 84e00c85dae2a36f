# Every kind of job runs from its template: srun and mpirun alike, heterogeneous jobs as one world, arrays side by side; all of them
# stop, are requeued and resume. What cannot be one world never trains.
. "$ATOLL_SOURCE_DIR/regression/lib/case.sh"
. "$ATOLL_SOURCE_DIR/regression/slurm/cluster.sh"
. "$ATOLL_SOURCE_DIR/regression/train/job.sh"
cluster_start
write_job job.yaml
T=$(atoll atoll-train) I=$(atoll atoll-inspect)
train=$(sourcefile slurm/train.sbatch) array=$(sourcefile slurm/array.sbatch) het=$(sourcefile slurm/het.sbatch)
one='--ntasks-per-node=1 --cpus-per-task=1'

batch --nodes=2 $one "$train" job.yaml run.dir=runs/srun
status_is 0
says 'launcher srun'

# The template finds its library beside itself, wherever sbatch is typed and whatever the environment says.
mkdir elsewhere
(cd elsewhere && unset ATOLL_ROOT && submit --nodes=1 $one "$train" ../job.yaml run.dir=runs/x train.steps=2 && await && status_is 0) || exit 1

# mpirun, and USR1 through it.
long='train.steps=120 train.decay_steps=20 train.log_every=50 train.validate_every=0'
export ATOLL_LAUNCHER=mpirun
ATOLL_CASE_PACE_FIRST=20 submit --nodes=2 $one "$train" job.yaml run.dir=runs/mpirun $long
unset ATOLL_LAUNCHER
await_file runs/mpirun/run.a1.h5
sleep 1
signal_batch USR1
await
status_is 0
says 'launcher mpirun'
says 'resumed runs/mpirun/ckpt/'

# Two components are one world; stopped, requeued as a whole, resumed.
ATOLL_CASE_PACE_FIRST=20 submit "$het" job.yaml run.dir=runs/het $long
await_file runs/het/run.a1.h5
sleep 1
signal_batch USR1
# Where nothing else happens, Slurm 22.05 does not look again at a heterogeneous job whose time has come; any submission wakes it.
for _ in $(seq 60); do
  sleep 2
  sbatch --output=/dev/null --wrap true >/dev/null
done &
waker=$!
await
kill $waker
status_is 0
says ', 4 ranks'
says 'resumed runs/het/ckpt/'
run "$I" diff runs/mpirun runs/het
says 'loss is the same bit for bit in 120 common rows'
ATOLL_LAUNCHER=mpirun batch "$het" job.yaml run.dir=runs/het
status_is 67
says 'mpirun sees only its first component'

# Two tasks side by side; one is told to stop and is requeued alone.
printf '%s\n' 'train.seed=1' '"train.seed=2"  ckpt.keep=3' >sweep.txt
ATOLL_CASE_PACE_FIRST=20 submit --array=0-1 --nodes=1 --ntasks-per-node=1 --output=job-%a.out "$array" job.yaml sweep.txt ${long/steps=120/steps=50}
await_file runs/job/0/run.a1.h5
await_file runs/job/1/run.a1.h5
sleep 1
first=$JOB
for JOB in ${first}_0 ${first}_1; do
  [ "$JOB" = "${first}_0" ] || signal_batch USR1
done
for JOB in ${first}_0 ${first}_1; do
  await
  status_is 0
  cp "job-${JOB#*_}.out" "$ATOLL_LAST_OUT"
  says finished
done
says "requeueing ${first}_1"
says 'resumed runs/job/1/ckpt/'
for task in 0 1; do run "$I" status runs/job/$task; done
grep -q requeueing job-0.out && fail 'the task that was not told to stop was requeued'
batch --nodes=1 --ntasks-per-node=1 "$array" job.yaml sweep.txt
status_is 64
says 'not an array job'

# A PMIx plug-in that does not fit this MPI, played by another plug-in: the ranks never begin, and mpirun takes over.
ATOLL_LAUNCH_OPTIONS=--mpi=pmi2 batch --nodes=2 $one "$train" job.yaml run.dir=runs/fallback
status_is 0
says 'trying mpirun'
run "$I" diff runs/srun runs/fallback
# Forced to srun, that is an error, and not one that the same job would mend.
ATOLL_LAUNCHER=srun ATOLL_LAUNCH_OPTIONS=--mpi=pmi2 batch --nodes=2 $one "$train" job.yaml run.dir=runs/forced
[ "$STATUS" = 1 ] || status_is 143 # of the rank that failed or of one that -K1 ended
says 'the program did not begin'

# Tasks that do not find each other are refused before anything is written: each would train the same run alone.
batch --nodes=2 $one --wrap "srun --mpi=none env -u SLURM_NODELIST -u SLURM_JOB_NODELIST -u SLURM_STEP_NODELIST $T job.yaml run.dir=runs/single"
status_is 76
says 'MISMATCH: the launcher started 2 tasks (SLURM_STEP_NUM_TASKS) but MPI sees a world of 1'
batch --nodes=2 $one --wrap "srun --mpi=none $T job.yaml run.dir=runs/single"
[ "$STATUS" != 0 ] || fail 'two tasks without MPI called it a success'
[ ! -e runs/single ] || fail 'a singleton made a run directory'

# What is wrong is said before the ranks are started.
batch --nodes=2 $one "$train" job.yaml train.stpes=3
status_is 64
says "did you mean 'train.steps'"
batch --nodes=2 $one "$train" absent.yaml
status_is 66
ATOLL_SITE=absent.sh batch --nodes=2 $one "$train" job.yaml
status_is 66
says 'ATOLL_SITE=absent.sh'
ATOLL_FREE_KIB=99999999999 batch --nodes=2 $one "$train" job.yaml run.dir=runs/x
status_is 74
