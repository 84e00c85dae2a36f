#!/usr/bin/env bash
# program.sh PROGRAM VERSION   what every program promises: --version and --help work anywhere, without a launcher and
# without touching anything; --help lists the exit codes; an unknown option is a usage error that names it.
set -u
program=$1 version=$2
. "$(dirname "${BASH_SOURCE[0]}")/mpi-env.sh"
fail() {
  printf 'FAILED: %s %s\n' "$(basename "$program")" "$*"
  exit 1
}
work=$(mktemp -d) && cd "$work" || exit 1
trap 'rm -rf "$work"' EXIT

out=$("$program" --version 2>&1 </dev/null) || fail "--version exits $?: $out"
grep -qF -- "$version" <<<"$out" || fail "--version does not say $version: $out"

out=$("$program" --help 2>&1 </dev/null) || fail "--help exits $?: $out"
for code in USAGE IO STOPPED; do
  grep -qw -- "$code" <<<"$out" || fail "--help does not list exit status $code"
done

out=$("$program" --no-such-option 2>&1 </dev/null)
status=$?
[ "$status" = 64 ] || fail "--no-such-option exits $status, expected 64: $out"
grep -qF -- "no-such-option" <<<"$out" || fail "--no-such-option is not named: $out"

[ -z "$(ls -A "$work")" ] || fail "left files behind: $(ls -A "$work")"
