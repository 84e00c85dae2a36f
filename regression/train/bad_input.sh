# What is wrong with a request is said by name, with the place, what was found and what was expected, and with the code of its kind.
. "$ATOLL_SOURCE_DIR/regression/lib/case.sh"
. "$ATOLL_SOURCE_DIR/regression/train/job.sh"
write_job job.yaml
T=$(atoll atoll-train)
refuse() { # CODE TEXT RANKS words...
  local code=$1 text=$2 ranks=$3
  shift 3
  expect "$code" mpi "$ranks" "$T" "$@"
  says "$text"
  [ "$(grep -c 'atoll-train: error' "$ATOLL_LAST_OUT")" -le 1 ] || fail "the error of '$text' was printed more than once"
}
refuse 64 "did you mean 'train.steps'" 2 job.yaml train.stpes=3
{ cat job.yaml; echo 'train.seq: 64'; } >twice.yaml
refuse 64 'twice.yaml' 2 twice.yaml
says 'train.seq'
refuse 64 'run.time_limit' 2 job.yaml run.time_limit=3GiB
refuse 64 'run.time_limit 4 s is no more than run.stop_margin 10 s' 2 job.yaml run.time_limit=4s
refuse 64 'train.beta2' 2 job.yaml train.beta2=1 # divides by 1 - beta
refuse 66 'no-such.yaml' 2 no-such.yaml
refuse 66 'nowhere.txt' 2 job.yaml data.train=nowhere.txt
refuse 64 'train.seq' 2 job.yaml train.seq=64
refuse 64 'micro_batch' 2 job.yaml plan.micro_batch=3
head -c 2000 "$(sourcefile inputs/corpora/kjv-train.txt)" >wrong.bin
refuse 65 'magic' 2 job.yaml data.train=wrong.bin
python3 - <<'P'
import struct
h = [20240520, 1, 5000] + [0] * 253
open("cut.bin", "wb").write(struct.pack("<256i", *h) + b"\1\0" * 4000)
open("beyond.bin", "wb").write(struct.pack("<256i", *h) + struct.pack("<H", 300) * 5000)
P
refuse 65 'truncated' 2 job.yaml data.train=cut.bin
expect 65 mpi 1 "$T" job.yaml data.train=beyond.bin run.dir=beyond
says 'token'
says '300'
mpi_any() { "${ATOLL_MPIRUN[@]}" -np "$@" >"$ATOLL_LAST_OUT" 2>&1 </dev/null; }
mpi_any 2 "$T" job.yaml data.train=beyond.bin run.dir=beyond && fail 'a token beyond the vocabulary was trained'
says 'vocabulary'
# A file that loses its end while it is in use is named, too; touching what is gone would only raise SIGBUS.
cat "$(sourcefile inputs/corpora/kjv-train.txt)" >shrinks.txt
"${ATOLL_MPIRUN[@]}" -np 2 "$T" job.yaml run.dir=shrinks data.train=shrinks.txt train.steps=100000 train.validate_every=0 \
  train.log_every=10000 >"$ATOLL_LAST_OUT" 2>&1 </dev/null &
launcher=$!
while_alive $launcher [ -e shrinks/run.a1.h5 ]
truncate -s 5000 shrinks.txt
wait $launcher && fail 'trained on data that was gone'
says 'shrinks.txt was cut from'
expect 65 "$(atoll atoll-inspect)" status shrinks
# Ranks that were given different jobs, as nodes with different environments or stale copies of the data would be.
expect 76 mpi 1 "$T" job.yaml run.dir=unlike : -np 1 "$T" job.yaml run.dir=unlike train.steps=21
says 'train.steps is here 21, on rank 0 20'
ATOLL_TRAIN_SEED=2 expect 0 mpi 1 "$T" job.yaml run.dir=alike train.steps=1 : -np 1 "$T" job.yaml run.dir=alike train.steps=1 train.threads=1
mkdir stale
head -c 40000 "$(sourcefile inputs/corpora/kjv-train.txt)" >words.txt
tail -c 40000 "$(sourcefile inputs/corpora/kjv-train.txt)" >stale/words.txt
expect 76 mpi 1 "$T" job.yaml run.dir=unlike data.train=words.txt : -np 1 "$T" job.yaml run.dir=unlike data.train=stale/words.txt
says 'training data (data.train)'
says 'rank 1 has another'
refuse 69 'stage 0' 2 job.yaml plan.memory=300KiB run.dir=small
says 'missing'
refuse 69 'a micro-batch of 4 would fit' 2 job.yaml plan.micro_batch=32 train.global_batch=64 plan.memory=6MiB run.dir=small
refuse 64 'expected auto' 2 job.yaml plan.policy=tempi run.dir=x
says 'tempo_flash'
echo '<broken' >broken.xml
refuse 65 'broken.xml:1' 1 job.yaml topo.path=broken.xml run.dir=x
refuse 66 'absent.xml' 1 job.yaml topo.path=absent.xml run.dir=x
# A plan for fewer or more ranks, another cluster or model, with an unknown field, or with an axis that this program does not execute.
train 2 saved plan.stages=2
cp saved/plan.yaml good.yaml
refuse 76 'rank' 1 job.yaml plan.load=good.yaml run.dir=x
refuse 76 'rank' 4 job.yaml plan.load=good.yaml run.dir=x
refuse 76 'model' 2 job.yaml plan.load=good.yaml model.width=64 run.dir=x
sed 's/^schedule:/colour: blue\nschedule:/' good.yaml >unknown.yaml
refuse 64 'colour' 2 job.yaml plan.load=unknown.yaml run.dir=x
sed 's/^\( *\)zero: 0/\1zero: 2/' good.yaml >zero.yaml
refuse 67 'ZeRO' 2 job.yaml plan.load=zero.yaml run.dir=x
says 'stage 0'
sed 's/^\( *\)recompute: 0/\1recompute: 1/' good.yaml >recompute.yaml
refuse 67 'recomputation of whole layers' 2 job.yaml plan.load=recompute.yaml run.dir=x
run mpi 2 "$T" job.yaml plan.load=good.yaml run.dir=loaded
same saved loaded
