#!/usr/bin/env bash
# The lists of outside packages agree: what configure looks for is named, with the same least version, in INSTALL, in
# the list that quickstart.sh installs and in the Spack recipe.
. "$(dirname "${BASH_SOURCE[0]}")/../lib/case.sh"
found=$(sourcefile libcore/cmake/AtollPackages.cmake)
install=$(sourcefile INSTALL)
recipe=$(sourcefile slurm/packaging/package.py)
. "$(sourcefile regression/lib/setup.sh)"

has() { grep -qE "(^|[^[:alnum:]-])$1([^[:alnum:]-]|\$)" "$2"; } # NAME FILE

for name in $ATOLL_BUILD_PACKAGES $ATOLL_TEST_PACKAGES; do
  has "$name" "$install" || fail "INSTALL does not name $name, which setup.sh installs"
done

# Calls of atoll_package_pkgconfig and atoll_package_missing end with the Debian, RHEL and Spack names. The optional
# ones say so (ATOLL_CBC=ON); they follow below.
calls=$(grep -vF '=ON)' "$found" | grep -oE '("[^"$]+" ){2}"[^"$]+"\)')
[ "$(printf '%s\n' "$calls" | wc -l)" -ge 11 ] || fail "only these packages were recognised: $calls"
while IFS= read -r call; do
  debian=$(printf '%s' "$call" | sed 's/^"\([^"]*\)".*/\1/')
  spack=$(printf '%s' "$call" | sed 's/.*"\([^"]*\)")$/\1/')
  for name in $debian; do
    case " $(echo $ATOLL_BUILD_PACKAGES) " in
      *" $name "*) ;;
      *) fail "setup.sh does not install $name, which configure wants" ;;
    esac
  done
  case $spack in
    gcc | cmocka) ;; # the compiler, and what only tests want: the recipe builds without tests
    openmpi) grep -q 'depends_on("mpi' "$recipe" || fail "the Spack recipe lacks mpi" ;;
    *) grep -qE "depends_on\\(\"${spack%%[+ ]*}[@\" ]" "$recipe" || fail "the Spack recipe lacks $spack" ;;
  esac
done <<<"$calls"

for name in papi cbc libxsmm cuda nccl; do
  grep -q "depends_on(\"$name\", when=\"+$name\")" "$recipe" || fail "the Spack recipe lacks $name"
done

while read -r name module text; do
  least=$(sed -nE "s/.*[( ]$module>=([0-9.]+).*/\\1/p" "$found")
  [ -n "$least" ] || fail "configure takes any $module"
  grep -qF "$text $least" "$install" || fail "INSTALL does not say $text $least"
  grep -qF "depends_on(\"$name@$least:" "$recipe" || fail "the Spack recipe does not ask for $name@$least:"
done <<'LEAST'
hwloc hwloc hwloc
xxhash libxxhash xxHash
pcre2 libpcre2-8 PCRE2
isl isl isl
LEAST
