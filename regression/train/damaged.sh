# A damaged checkpoint is seen, named and walked past: a flipped byte, a missing shard, a truncated or stale COMMIT. When none is good, the run starts anew and says so.
. "$ATOLL_SOURCE_DIR/regression/lib/case.sh"
. "$ATOLL_SOURCE_DIR/regression/train/job.sh"
write_job job.yaml 'ckpt.every_steps: 5' 'ckpt.keep: 4'
train 2 base
[ "$(committed base)" = 4 ] || fail 'expected four checkpoints'
damage() { # NAME: base is copied to NAME and its newest checkpoint is $newest
  rm -rf "$1"
  cp -r base "$1"
  newest=$1/ckpt/step-00000020.a1
}
walks_past() { # NAME TEXT
  expect 65 "$(atoll atoll-inspect)" verify "$newest"
  says "$2"
  train 2 "$1" train.steps=20
  says 'skipped checkpoint'
  says "$2"
  says 'step-00000015.a1 : step 15'
  same base "$1"
}
damage flipped
shard=$(ls "$newest"/shard-* | head -n 1)
python3 - "$shard" <<'P'
import sys
f = open(sys.argv[1], "r+b")
f.seek(0, 2)
at = f.tell() // 2
f.seek(at)
b = f.read(1)
f.seek(at)
f.write(bytes([b[0] ^ 1]))
P
walks_past flipped 'checksum'
damage missing
rm "$(ls "$newest"/shard-* | tail -n 1)"
walks_past missing 'missing'
damage cut
truncate -s -10 "$newest/COMMIT"
walks_past cut 'COMMIT'
damage stale
cp stale/ckpt/step-00000015.a1/COMMIT "$newest/COMMIT"
walks_past stale 'step-00000020.a1'
damage none
for c in none/ckpt/step-*; do rm "$c/COMMIT"; done
train 2 none
says 'skipped checkpoint'
same base none
# What cannot be read now (here: names that lead in a circle) may be readable tomorrow: nothing is begun anew.
damage unread
for c in unread/ckpt/step-*; do ln -sf COMMIT "$c/COMMIT"; done
expect 74 mpi 2 "$(atoll atoll-train)" job.yaml run.dir=unread
says '4 checkpoints in unread/ckpt cannot be read, 0 damaged, none is good'
says 'step-00000020.a1/COMMIT'
grep -q 'step 5 /' "$ATOLL_LAST_OUT" && fail 'began anew'
# A moved checkpoint is still good, and can start another run.
mkdir elsewhere
cp -r base/ckpt/step-00000010.a1 elsewhere/moved
run "$(atoll atoll-inspect)" verify elsewhere/moved
train 1 branch ckpt.resume=elsewhere/moved
expect 76 "$(atoll atoll-inspect)" diff base branch # it has no rows of the first ten steps
says 'loss is the same bit for bit in 10 common rows'
