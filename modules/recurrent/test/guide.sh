# GUIDE.md quotes the program that is compiled here, and what it prints.
. "$ATOLL_SOURCE_DIR/regression/lib/case.sh"

page=$(sourcefile modules/recurrent/GUIDE.md)

# The block of the page between ```$1 and ```.
block() {
  awk -v open="\`\`\`$1" '$0 == open {on = 1; next} on && $0 == "```" {exit} on' "$page"
}

block c >program.c
[ "$(grep -c . program.c)" = 30 ] || fail "the page's program has $(grep -c . program.c) lines, not 30"
diff program.c "$(sourcefile modules/recurrent/examples/filter.c)" || fail "the page's program is not examples/filter.c"
block text >expected
run "$ATOLL_BUILD_DIR/tests/test_recurrent_guide_program"
diff expected "$ATOLL_LAST_OUT" || fail "the page's output is not what the program prints"
