# Training in bf16: 1, 2 and 4 ranks, as pipeline and as data parallel, agree bit for bit, with rounding by chance too; it follows f32 closely, its plans count its bytes, and its checkpoints go on bit for bit, in either dtype.
. "$ATOLL_SOURCE_DIR/regression/lib/case.sh"
. "$ATOLL_SOURCE_DIR/regression/train/job.sh"
export ATOLL_TEST_GEMM=packed # in f32, too, on every machine: bytes of weights are compared below
write_job job.yaml 'train.dtype: bf16'
train 1 base
says 'in bf16'
train 2 pipeline plan.stages=2 plan.data_parallel=1
train 2 data plan.stages=1 plan.data_parallel=2
train 4 both plan.stages=2 plan.data_parallel=2
train 2 exact4 plan.stages=2 plan.policy=exact4
for other in pipeline data both exact4; do
  same base "$other"
  says 'loss is the same bit for bit in 20 common rows'
done

chance=train.stochastic_rounding=true
train 1 chance "$chance"
train 4 chance4 "$chance" plan.stages=2 plan.data_parallel=2
same chance chance4
expect 76 "$(atoll atoll-inspect)" diff base chance
train 2 stopped "$chance" train.steps=7
train 1 stopped "$chance"
same chance stopped

# Close to f32: of losses near 5.5 and falling, less than one part in a hundred apart.
train 1 f32 train.dtype=f32
expect 76 "$(atoll atoll-inspect)" diff base f32
for run in base chance; do run "$(atoll atoll-inspect)" diff --tolerance 0.01 $run f32; done

# Masters are f32 and whole in the checkpoint, so a run may change over. The log says so.
train 1 over train.steps=10
train 2 over train.dtype=f32 plan.stages=2
says 'was trained in bf16, the run goes on in f32'
run "$(atoll atoll-inspect)" diff --tolerance 0.01 over f32

# A plan for one dtype is not one for the other; nor does f32 round by chance, and there are two dtypes.
cp both/plan.yaml plan.yaml
expect 76 mpi 4 "$(atoll atoll-train)" job.yaml run.dir=other train.dtype=f32 plan.load=plan.yaml
says 'made for training in bf16'
expect 64 mpi 1 "$(atoll atoll-train)" job.yaml run.dir=other train.dtype=f32 "$chance"
says 'stochastic_rounding'
expect 64 mpi 1 "$(atoll atoll-train)" job.yaml run.dir=other train.dtype=f16
says 'f32|bf16'
# Policies that keep other values in their place round those, too: the losses stay close.
for policy in eager tempo exact16_lossy; do
  train 1 $policy plan.policy=$policy
  run "$(atoll atoll-inspect)" diff --tolerance 0.001 base $policy
done

PY=/usr/bin/python3
"$PY" -c 'import h5py, numpy' 2>/dev/null || skip 'python3-h5py is not installed; bits and losses were compared'
"$PY" - <<'PY' || fail 'memory or dtype in run.h5'
import h5py
sizes = {}
for run in ("base", "both", "f32"):
    with h5py.File(run + "/run.h5") as f:
        predicted, measured = f["memory/predicted"][...], f["memory/measured"][...]
        assert (predicted == measured).all(), (run, predicted, measured)
        assert f.attrs["dtype"] == ("f32" if run == "f32" else "bf16")
        sizes[run] = dict(zip(f["memory/category"].asstr()[...], measured[0]))
# Two bytes a parameter less; the packed ones beside them are as many in both. The optimizer keeps eight in f32.
assert 4 * (sizes["f32"]["parameter"] - sizes["base"]["parameter"]) == sizes["f32"]["optimizer"]
assert sizes["base"]["activation"] < 0.6 * sizes["f32"]["activation"]
with h5py.File("base/ckpt/step-00000020.a1/model.h5") as f:
    assert f["param/wte.weight"].dtype == "float32"
PY
