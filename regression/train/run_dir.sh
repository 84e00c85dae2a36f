# Run directories that are full, read-only or taken: a clean refusal with the right code, and nothing that was saved is lost.
. "$ATOLL_SOURCE_DIR/regression/lib/case.sh"
. "$ATOLL_SOURCE_DIR/regression/train/job.sh"
write_job job.yaml 'ckpt.every_steps: 5'
T=$(atoll atoll-train)

# Two jobs in one directory: the second is told who holds it.
"${ATOLL_MPIRUN[@]}" -np 1 "$T" job.yaml run.dir=taken train.steps=100000 train.log_every=100000 train.validate_every=0 ckpt.every_steps=0 >first.out 2>&1 </dev/null &
first=$!
while_alive $first [ -e taken/run.a1.h5 ]
expect 72 mpi 1 "$T" job.yaml run.dir=taken
says 'taken'
run "$(atoll atoll-inspect)" stop taken
wait $first
[ $? = 75 ] || fail 'the first job did not stop with 75'
expect 75 "$(atoll atoll-inspect)" status taken

# A directory that was removed under a running job and given to another one is left alone by the first.
"$T" job.yaml run.dir=given train.steps=100000 train.log_every=100000 train.validate_every=0 ckpt.every_steps=1 >first.out 2>&1 </dev/null &
first=$!
while_alive $first [ -e given/ckpt/LATEST ]
kill -STOP $first
while_alive $first grep -q '^State:[[:space:]]*T' /proc/$first/status
rm -r given
train 1 given
kill -CONT $first
wait $first
[ $? = 72 ] || fail "the first job did not end with 72: $(tail -n 3 first.out)"
run "$(atoll atoll-inspect)" status given
run "$(atoll atoll-inspect)" verify given

[ "$(id -u)" = 0 ] || skip 'a full and a read-only file system need root'
mkdir disk
mount -t tmpfs -o size=2m tmpfs disk 2>/dev/null || skip 'tmpfs cannot be mounted here'
trap 'umount disk' EXIT
# With the ballast no checkpoint fits; without it they do.
head -c 1700000 /dev/zero >disk/ballast
expect 74 mpi 2 "$T" job.yaml model.width=16 run.dir=disk/run
says 'checkpoint needs'
says 'training goes on'
rm disk/ballast
train 2 disk/run model.width=16 ckpt.keep=1
run "$(atoll atoll-inspect)" verify disk/run
mount -o remount,ro disk
expect 74 mpi 2 "$T" job.yaml run.dir=disk/other
says 'Read-only file system'
run "$(atoll atoll-inspect)" verify disk/run
