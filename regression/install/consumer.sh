#!/usr/bin/env bash
# Install into a prefix; build and run a consumer by find_package and by pkg-config; move the prefix and do it again.
. "$(dirname "${BASH_SOURCE[0]}")/../lib/case.sh"
source=$ATOLL_SOURCE_DIR/regression/install/consumer

run cmake --install "$ATOLL_BUILD_DIR" --prefix "$ATOLL_WORK/first"

check() {
  local prefix=$1 name=$2 pc
  run cmake -G Ninja -S "$source" -B "$ATOLL_WORK/$name-cmake" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Release \
    $(sanitized_flags -DCMAKE_C_FLAGS=)
  run cmake --build "$ATOLL_WORK/$name-cmake"
  run "$ATOLL_WORK/$name-cmake/consumer"
  grep -q '^consumer: atoll ' "$ATOLL_LAST_OUT" || fail "the consumer built by CMake printed no greeting"

  pc=$(dirname "$(find "$prefix" -name atoll.pc)")
  # shellcheck disable=SC2046
  run env PKG_CONFIG_PATH="$pc" sh -c 'cc -std=c11 '"$(sanitized_flags)"' -o "$1" "$2" $(pkg-config --cflags --libs atoll)' \
    sh "$ATOLL_WORK/$name-pc" "$source/consumer.c"
  run "$ATOLL_WORK/$name-pc"
  # Both must use the installation at hand, not the build tree or the place it was first installed to.
  local program
  for program in "$ATOLL_WORK/$name-cmake/consumer" "$ATOLL_WORK/$name-pc"; do
    ldd "$program" | grep libatoll_ | grep -vF "$prefix/" && fail "$program loads Atoll from outside $prefix"
  done
  for program in "$prefix"/bin/*; do
    [ -x "$program" ] || continue
    ldd "$program" | grep libatoll_ | grep -vF "$prefix/" && fail "$program loads Atoll from outside $prefix"
    run "$program" --version
  done
  return 0
}

check "$ATOLL_WORK/first" first
mv "$ATOLL_WORK/first" "$ATOLL_WORK/moved"
check "$ATOLL_WORK/moved" moved

if grep -rlF "$ATOLL_WORK/first" "$ATOLL_WORK/moved" --include='*.cmake' --include='*.pc'; then
  fail "package files name the prefix they were installed to"
fi
if grep -rlF -e "$ATOLL_SOURCE_DIR" -e "$ATOLL_BUILD_DIR" "$ATOLL_WORK/moved" --include='*.cmake' --include='*.pc'; then
  fail "package files name the source or build tree"
fi
