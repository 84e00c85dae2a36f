#!/usr/bin/env bash
# header-alone.sh HEADER CC CXX|- [-I...]   the header compiles alone, and twice, in strict C11 and C++17
set -eu
header=$1 cc=$2 cxx=$3
shift 3
source=$(printf '#include "%s"\n#include "%s"\nint atoll_header_alone;\n' "$header" "$header")
# System headers of MPI are not ours to correct, and no feature macro may be needed by a user of the interface.
quiet=()
for flag in "$@"; do
  case $flag in
    -I*openmpi* | -I*mpich* | -I*mpi*) quiet+=(-isystem "${flag#-I}") ;;
    *) quiet+=("$flag") ;;
  esac
done
"$cc" -x c -std=c11 -pedantic -Wall -Wextra -Wstrict-prototypes -Werror -fsyntax-only "${quiet[@]}" - <<<"$source"
if [ "$cxx" = - ]; then
  echo "no C++ compiler: checked in C only"
else
  "$cxx" -x c++ -std=c++17 -pedantic -Wall -Wextra -Werror -fsyntax-only -DOMPI_SKIP_MPICXX=1 -DMPICH_SKIP_MPICXX=1 \
    "${quiet[@]}" - <<<"$source"
fi
