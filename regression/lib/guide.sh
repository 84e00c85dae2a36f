# Sourced by cases that hold a page to what is built.
#   block PAGE WORD N     block N of the page between ```WORD and ```
block() {
  awk -v open="\`\`\`$2" -v n="$3" '$0 == open {on = ++k == n; next} $0 == "```" {on = 0} on' "$1"
}
