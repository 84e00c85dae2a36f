# GUIDE.md quotes the programs that are compiled here, and what they print; it names all that the header has.
. "$ATOLL_SOURCE_DIR/regression/lib/case.sh"
. "$ATOLL_SOURCE_DIR/regression/lib/guide.sh"

page=$(sourcefile modules/recurrent/GUIDE.md)
header=$(sourcefile modules/recurrent/include/atoll/recurrent.h)

# quoted N NAME: the page's program N is examples/NAME.c, the text after it what it prints.
quoted() {
  block "$page" c "$1" >program.c
  diff program.c "$(sourcefile modules/recurrent/examples/$2.c)" || fail "the page's program $1 is not examples/$2.c"
  block "$page" text "$1" >expected
  run "$ATOLL_BUILD_DIR/tests/test_recurrent_guide_$3"
  diff expected "$ATOLL_LAST_OUT" || fail "the page's output $1 is not what the program prints"
}
quoted 1 filter program
[ "$(grep -c . program.c)" = 30 ] || fail "the page's program has $(grep -c . program.c) lines, not 30"
quoted 2 learn learns

# Operations: each function that the header declares, and no other.
section() { awk -v title="## $1" '$0 == title {on = 1; next} /^## / {on = 0} on' "$page"; }
section Operations | grep -o '`[a-z_0-9]*[a-z0-9]`' | tr -d '`' | sort -u >named
grep -oE 'ATOLL_API [a-z_]+ \*?atoll_rt_[a-z_0-9]+\(' "$header" | sed 's/.*atoll_rt_//; s/(//' | sort -u >declared
[ "$(wc -l <declared)" -gt 60 ] || fail "the header declares $(wc -l <declared) functions atoll_rt_"
grep -oE 'ATOLL_API atoll_rt \*atoll_rec_[a-z_0-9]+\(' "$header" | sed 's/.*atoll_rec_//; s/(//' | sort -u >made
[ "$(wc -l <made)" -ge 8 ] || fail "the header declares $(wc -l <made) functions that make tensors"
sort -u declared made | diff - named || fail 'the page lists other operations than recurrent.h has'

# Limits.
grep -q "^#define ATOLL_RT_DIMS $(section Limits | sed -n 's/^| dimensions of a context | \([0-9]*\).*/\1/p') " "$header" ||
  fail 'the page tells another number of dimensions'
grep -q "^#define ATOLL_RT_AXES $(section Limits | sed -n 's/^| axes of a value.* | \([0-9]*\) .*/\1/p') " "$header" ||
  fail 'the page tells another number of axes'
graph=$(sourcefile modules/recurrent/src/graph.h)
grep -q "RT_CASES = $(section Limits | sed -n 's/^| cases of a tensor | \([0-9]*\) .*/\1/p') " "$graph" ||
  fail 'the page tells another number of cases'
