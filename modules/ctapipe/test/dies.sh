# dies.sh WHEN RANKS VICTIM CLAIMS: a rank of a chain is killed with a tile made and not yet said to be there. All others
# leave with PEER_LOST long before a wait is over, and say where the chain stood and who is gone.
. "$ATOLL_SOURCE_DIR/regression/lib/case.sh"
when=$1 ranks=$2 victim=$3 claims=$4
# The launcher must not end the others, which would hide what they do.
timeout 120 "${ATOLL_MPIRUN[@]}" --enable-recovery -np "$ranks" "$ATOLL_BUILD_DIR/tests/chain_dies" "$when" "$victim" "$claims" \
  >"$ATOLL_LAST_OUT" 2>&1 </dev/null || [ $? != 124 ] || fail "still there after 120 s: $(cat "$ATOLL_LAST_OUT")"
place='tile [0-9]* of panel [0-9]* of [^;]*'
[ "$claims" = 0 ] || place='.*' # whoever finds nothing that it can begin waits for all to arrive
for ((rank = 0; rank < ranks; rank++)); do
  lines=$(grep -c "^rank $rank leaves with 77: .*rank [0-9]* waited [0-9.]* s for $place of rank [0-9]* in epoch [1-9][0-9]*; rank $victim, process [1-9][0-9]*, is gone" "$ATOLL_LAST_OUT")
  [ "$lines" = $((rank != victim)) ] || fail "rank $rank: $(cat "$ATOLL_LAST_OUT")"
done
reports=$(sed -n 's/^rank [0-9]* leaves with 77: .*\(rank [0-9]* waited .*\)/\1/p' "$ATOLL_LAST_OUT" | sort -u | wc -l)
[ "$reports" = 1 ] || fail "$reports reports: $(cat "$ATOLL_LAST_OUT")"
