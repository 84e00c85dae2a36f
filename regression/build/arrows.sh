#!/usr/bin/env bash
# A copy of the build files with three tiny rooms (core, topo, plan) configures; each offence in turn is refused at
# configure time, with the file, what it reached for, and what it may use.
. "$(dirname "${BASH_SOURCE[0]}")/../lib/case.sh"

tree=$ATOLL_WORK/tree
write() { # write FILE TEXT
  mkdir -p "$(dirname "$tree/$1")"
  printf '%b' "$2" >"$tree/$1"
}
fresh() {
  rm -rf "${tree:?}" && mkdir -p "$tree/libcore" "$tree/regression"
  cp -r "$ATOLL_SOURCE_DIR/libcore/cmake" "$tree/libcore/"
  cp "$ATOLL_SOURCE_DIR/CMakeLists.txt" "$tree/"
  write libcore/CMakeLists.txt 'atoll_library(core SOURCES src/a.c)\n'
  write libcore/include/atoll/a.h 'int atoll_a(void);\n'
  write libcore/src/a.c '#include "atoll/a.h"\nint atoll_a(void) { return 0; }\n'
  write modules/topo/CMakeLists.txt 'atoll_module(topo SOURCES src/b.c)\n'
  write modules/topo/include/atoll/b.h '#include "atoll/a.h"\n'
  write modules/topo/src/b.c '#include "atoll/b.h"\n'
  write modules/plan/CMakeLists.txt 'atoll_module(plan SOURCES src/c.c USES topo)\n'
  write modules/plan/include/atoll/c.h '#include "atoll/b.h"\n'
  write modules/plan/src/c.c '#include "atoll/c.h"\n#include "c_impl.h"\n'
  write modules/plan/src/c_impl.h '\n'
}
configure() { # configure CODE
  expect "$1" cmake -S "$tree" -B "$ATOLL_WORK/b" -G Ninja -DATOLL_CUDA=OFF -DATOLL_NCCL=OFF
}

fresh
configure 0

fresh
write modules/topo/src/b.c '#include "atoll/b.h"\n#include "atoll/c.h"\n'
configure 1
says "modules/topo/src/b.c includes atoll/c.h, which belongs to 'plan'; this unit may use: core"

fresh
write modules/plan/CMakeLists.txt 'atoll_module(plan SOURCES src/c.c)\n'
configure 1
says "modules/plan/include/atoll/c.h includes atoll/b.h, which belongs to 'topo'"

fresh
write libcore/src/a.c '#include "atoll/a.h"\n#include <atoll/b.h>\n'
configure 1
says "libcore/src/a.c includes atoll/b.h, which belongs to 'topo'"

fresh
write modules/topo/src/b.c '#include "../../plan/src/c_impl.h"\n'
configure 1
says "modules/topo/src/b.c includes ../../plan/src/c_impl.h, which leaves its room"

fresh
write modules/topo/CMakeLists.txt 'atoll_module(topo SOURCES src/b.c USES plan)\n'
configure 1
says "USES 'plan': no such arrow in DESIGN"

fresh
write modules/topo/CMakeLists.txt 'atoll_module(topo SOURCES src/b.c PACKAGES leftpad)\n'
configure 1
says "asks for package 'leftpad'"

fresh
expect 1 cmake -S "$tree" -B "$ATOLL_WORK/b" -G Ninja -DATOLL_PAPI=MAYBE
says "ATOLL_PAPI is 'MAYBE'; expected AUTO, ON or OFF"
