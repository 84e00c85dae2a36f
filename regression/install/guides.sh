#!/usr/bin/env bash
# The pages' command lines, as they stand there, against an installation in $HOME/atoll: a recurrent program by
# pkg-config and by find_package, an environment for atoll-rl.
. "$(dirname "${BASH_SOURCE[0]}")/../lib/case.sh"
. "$(dirname "${BASH_SOURCE[0]}")/../lib/guide.sh"
recurrent=$(sourcefile modules/recurrent/GUIDE.md)
rl=$(sourcefile modules/rl/GUIDE.md)
export HOME=$ATOLL_WORK ATOLL_CACHE=$ATOLL_WORK/cache
run cmake --install "$ATOLL_BUILD_DIR" --prefix "$HOME/atoll"
[ -e atoll/lib ] || ln -s lib64 atoll/lib # the pages tell of both names
doc=$(dirname "$(find atoll/share -path '*modules/rl/GUIDE.md')")/../..
for page in $(sed -n 's/.*(\(modules[^)]*\.md\)).*/\1/p' "$doc/README.md"); do
  [ -f "$doc/$page" ] || fail "README.md names $page, which is not installed"
done
cmp "$rl" "$doc/modules/rl/GUIDE.md" && [ -f "$doc/modules/rl/examples/park.c" ] || fail 'pages lack their programs'
PATH=$HOME/atoll/bin:${PATH#*:}
[ "$(command -v atoll-rl)" = "$HOME/atoll/bin/atoll-rl" ] || fail "atoll-rl is $(command -v atoll-rl)"

# A sanitized library wants its runtime in programs, too.
if [ -n "$(sanitized_flags)" ]; then
  mkdir sanitized
  printf '#!/bin/sh\nexec %s %s "$@"\n' "$(command -v cc)" "$(sanitized_flags)" >sanitized/cc
  chmod +x sanitized/cc
  PATH=$PWD/sanitized:$PATH
fi

block "$recurrent" c 1 >filter.c
block "$recurrent" text 1 >expected
block "$recurrent" sh 1 >build.sh
grep -q pkg-config build.sh || fail 'the page has no command that compiles'
run sh -e build.sh
diff expected "$ATOLL_LAST_OUT" || fail 'the program prints something else than the page'
ldd filter | grep libatoll_ | grep -vF "$HOME/atoll/" && fail 'it loads Atoll from elsewhere'

mkdir project
cp filter.c project/
block "$recurrent" cmake 1 >project/CMakeLists.txt
line=$(grep -o '`cmake -S [^`]*`' "$recurrent" | tr -d '`')
[ -n "$line" ] || fail 'the page has no command that configures'
run sh -e -c "cd project && $line $(sanitized_flags -DCMAKE_C_FLAGS=) && cmake --build build"
run project/build/filter
diff expected "$ATOLL_LAST_OUT" || fail "CMake's program prints something else than the page"

block "$rl" c 1 >park.c
block "$rl" sh 1 >build.sh
run sh -e build.sh
run atoll-rl rl.environment=./park.so rl.environments=4 rl.steps=8 rl.hidden=4 rl.iterations=2 rl.evaluate=0 run.dir=run
says 'reinforce on park , 4 environments'
exit 0
