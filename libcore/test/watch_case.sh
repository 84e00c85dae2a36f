# watch_case.sh MODE RANKS EXIT TEXT...   the job ends with EXIT long before ranks do that nobody ends, which work for
# 60 s, and says each TEXT
. "$ATOLL_SOURCE_DIR/regression/lib/case.sh"
mode=$1 ranks=$2 code=$3
shift 3
program=$ATOLL_BUILD_DIR/tests/watch_program
start=$(date +%s)
if [ "$mode" = suspended ]; then
  # Stop every rank for longer than the silence allowed, then wake them, last first.
  "${ATOLL_MPIRUN[@]}" -np "$ranks" "$program" suspended >"$ATOLL_LAST_OUT" 2>&1 &
  job=$!
  for _ in $(seq 100); do
    [ "$(grep -c '^ready' "$ATOLL_LAST_OUT")" = "$ranks" ] && break
    sleep 0.1
  done
  pids=$(sed -n 's/^ready //p' "$ATOLL_LAST_OUT")
  sleep 0.5
  for pid in $pids; do kill -STOP "$pid"; done
  sleep 4
  for pid in $pids; do kill -CONT "$pid"; done
  wait "$job"
  got=$?
  [ "$got" = "$code" ] || { tail -n 30 "$ATOLL_LAST_OUT"; fail "exit $got, expected $code"; }
else
  expect "$code" mpi "$ranks" "$program" "$mode"
fi
took=$(($(date +%s) - start))
[ "$took" -le 45 ] || fail "it took $took s"
for text in "$@"; do
  says "$text"
done
