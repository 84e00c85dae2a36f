#!/bin/sh
# Makes kjv-train.txt and kjv-heldout.txt again from Debian's bible-kjv and bible-kjv-text: one verse a line without its number, an empty line
# between chapters, books in order until 1.4 MB are full. Every 15th chapter is held out, so that both files are of the same language.
# Usage: make-kjv.sh [FOLDER]
set -eu
out=${1:-$(dirname "$0")}
command -v bible >/dev/null || { echo "make-kjv: needs the packages bible-kjv and bible-kjv-text" >&2; exit 1; }
bible -f -l100000 'Gen1:1-Rev22:21' </dev/null | awk -v train="$out/kjv-train.txt" -v held="$out/kjv-heldout.txt" '
  BEGIN { limit = 1400000; printf "" > train; printf "" > held }
  {
    if (!match($0, /^[0-9]?[A-Za-z]+[0-9]+:[0-9]+ /)) next
    split(substr($0, 1, RLENGTH - 1), place, ":")
    if (place[1] != chapter) {
      if (total > limit) exit
      if (chapter != "") print "" > file
      chapter = place[1]
      file = n++ % 15 == 14 ? held : train
    }
    line = substr($0, RLENGTH + 1)
    print line > file
    total += length(line) + 1
  }'
ls -l "$out/kjv-train.txt" "$out/kjv-heldout.txt"
