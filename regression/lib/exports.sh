#!/usr/bin/env bash
# exports.sh NM LIBRARY INCLUDE_DIR   `nm -D` lists exactly what the public headers declare with ATOLL_API
set -eu
nm=$1 library=$2 include=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Names with two underscores belong to the compiler (sanitizer and coverage builds add some).
"$nm" -D --defined-only "$library" | awk '$2 ~ /[A-TV-Zu]/ {sub(/@.*/, "", $3); print $3}' | grep -v '^__' |
  sort -u >"$work/exported" || true
# Declarations, comments removed: "ATOLL_API type name(" and "ATOLL_API type name;".
find "$include" -name '*.h' -exec cat {} + | sed -E 's@//.*@@; /^[[:space:]]*#/d' | tr '\n' ' ' |
  sed -E 's@/\*([^*]|\*+[^*/])*\*+/@ @g' | grep -oE 'ATOLL_API[^;({]*[;(\[]' |
  sed -E 's/[[:space:]]*(\[.*|[;(])$//; s/.*[^A-Za-z0-9_]//' | sort -u >"$work/declared" || true
hidden=$(comm -23 "$work/exported" "$work/declared")
absent=$(comm -13 "$work/exported" "$work/declared")
if [ -n "$hidden" ]; then
  printf 'exported by %s, declared in no public header of %s:\n%s\n' "$library" "$include" "$hidden"
fi
if [ -n "$absent" ]; then
  printf 'declared with ATOLL_API in %s, not exported by %s:\n%s\n' "$include" "$library" "$absent"
fi
foreign=$(grep -v '^atoll_' "$work/exported" || true)
[ -z "$foreign" ] || printf 'exported without the atoll_ prefix by %s:\n%s\n' "$library" "$foreign"
[ -z "$hidden$absent$foreign" ] || exit 1
echo "$(wc -l <"$work/exported") symbols, all declared"
