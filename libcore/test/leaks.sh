# Sanitized, a program that frees nothing of its own says so at its end; what MPI leaves behind by itself is not told.
. "$ATOLL_SOURCE_DIR/regression/lib/case.sh"
program=$ATOLL_BUILD_DIR/tests/leaks_program
run mpi 2 "$program" nothing
for what in memory communicator datatype; do
  expect 1 mpi 2 "$program" $what
  says 'LeakSanitizer: detected memory leaks'
done
