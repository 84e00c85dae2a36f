# Heterogeneous and array jobs finish from their templates; mpirun inside a job works as srun does; singletons and wrong sizes are refused; one killed rank ends the
# job everywhere within 30 seconds.
. "$ATOLL_SOURCE_DIR/regression/lib/case.sh"
. "$ATOLL_SOURCE_DIR/regression/slurm/cluster.sh"
. "$ATOLL_SOURCE_DIR/regression/train/job.sh"
cluster_start
write_job job.yaml
train=$(sourcefile slurm/train.sbatch)
one='--ntasks-per-node=1 --cpus-per-task=1 --time=10'

batch --nodes=2 $one "$train" job.yaml run.dir=runs/srun
batch_is 0
says 'launcher srun'
ATOLL_LAUNCHER=mpirun batch --nodes=2 $one --export=ALL "$train" job.yaml run.dir=runs/mpirun
batch_is 0
says 'launcher mpirun'
run "$(atoll atoll-inspect)" diff runs/srun runs/mpirun

# Two components, one world of four ranks.
id=$(sbatch --parsable --output=het.out "$(sourcefile slurm/het.sbatch)" job.yaml run.dir=runs/het) || fail 'sbatch of the heterogeneous job'
for try in $(seq 300); do
  state=$(job_state "$id")
  case $state in COMPLETED | FAILED | CANCELLED | TIMEOUT) break ;; esac
  sleep 0.2
done
cp het.out "$ATOLL_LAST_OUT"
[ "$state" = COMPLETED ] || { cat het.out; fail "the heterogeneous job is $state"; }
says '4 ranks'
run "$(atoll atoll-inspect)" diff runs/srun runs/het

printf 'train.seed=1\ntrain.seed=2\n' >sweep.txt
sbatch --wait --parsable --array=0-1 --nodes=1 --ntasks-per-node=1 --time=10 --output=array-%a.out "$(sourcefile slurm/array.sbatch)" job.yaml sweep.txt >/dev/null ||
  { cat array-*.out; fail 'the array job'; }
for task in 0 1; do run "$(atoll atoll-inspect)" status runs/job/$task; done

# srun without PMIx: Open MPI refuses, or starts singletons, which are refused. Neither may train.
batch --nodes=2 $one --wrap "srun --mpi=none $(atoll atoll-train) $PWD/job.yaml run.dir=$PWD/runs/single"
[ "$BATCH" != 0 ] || fail 'two singletons called it a success'
[ ! -e runs/single/run.h5 ] || fail 'a singleton trained'

# One rank dies: -K1 in the template ends the step, and the run is resumed by the same command.
export ATOLL_FAULT=kill:train.step:5:1 ATOLL_REQUEUE=0
began=$(date +%s)
batch --nodes=2 $one "$train" job.yaml run.dir=runs/killed
unset ATOLL_FAULT
[ $(($(date +%s) - began)) -le 40 ] || fail 'the job outlived its dead rank'
[ "$BATCH" != 0 ] || fail 'the job ended 0 although a rank was killed'
batch --nodes=2 $one "$train" job.yaml run.dir=runs/killed
batch_is 0
run "$(atoll atoll-inspect)" diff runs/srun runs/killed
