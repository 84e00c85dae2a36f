#!/usr/bin/env bash
# Packagers stage with DESTDIR: everything lands under it, at the configured prefix, and nothing elsewhere.
. "$(dirname "${BASH_SOURCE[0]}")/../lib/case.sh"
DESTDIR=$ATOLL_WORK/stage run cmake --install "$ATOLL_BUILD_DIR" --prefix /opt/atoll-destdir-test
root=$ATOLL_WORK/stage/opt/atoll-destdir-test
[ -e /opt/atoll-destdir-test ] && fail "the prefix itself was written to"
[ -f "$root/include/atoll/err.h" ] || fail "no headers under $root"
find "$root" -name 'libatoll_core.so' | grep -q . || fail "no libatoll_core.so under $root"
find "$root" -path '*/cmake/Atoll/AtollConfig.cmake' | grep -q . || fail "no AtollConfig.cmake under $root"
find "$root" -path '*/pkgconfig/atoll.pc' | grep -q . || fail "no atoll.pc under $root"
find "$root" -path '*/include/*' -name '*_impl.h' | grep -q . && fail "private headers were installed"
[ -f "$root/share/atoll/inputs/jobs/quick.yaml" ] || fail "no inputs under $root/share/atoll"
exit 0
