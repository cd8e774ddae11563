#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Writes the manual page of a program from what its --help prints.
#
#   man_page.sh PROGRAM SECTION VERSION [VERB...]
#
#   VERB  a command of it with a --help of its own, which becomes a part of the page ("check
#         network" is one); "all": those that PROGRAM --help lists under "Verbs:"
#
# Theory of operation. A help text is paragraphs: the usage; prose, which begins in the first
# column and is filled; a line that ends in a colon, which is a heading; and indented lines. Of
# these, two spaces, a term, two spaces and its meaning (or the meaning in the lines below, further
# in) are a list; all else, and every example, stands as it is.
set -euo pipefail

program=$1 section=$2 version=$3
shift 3
name=$(basename "$program")
verbs=("$@")
if [ "${verbs[*]}" = all ]; then
  mapfile -t verbs < <("$program" --help |
    awk '/^Verbs:/ {on = 1; next} on && !NF {exit} on {print $1}')
  [ ${#verbs[@]} -gt 0 ] || { echo "man_page.sh: $name --help lists no verbs" >&2; exit 1; }
fi

# Help on stdin, roff on stdout. -v part=main: NAME and SYNOPSIS are sections; else of a verb.
read -r -d '' to_roff <<'AWK' || true
function roff(text) {
  gsub(/\\/, "\\(rs", text)
  gsub(/-/, "\\-", text)
  gsub(/'/, "\\(aq", text)
  gsub(/`/, "\\(ga", text)
  gsub(/\^/, "\\(ha", text)
  gsub(/~/, "\\(ti", text)
  sub(/^[.]/, "\\\&.", text)
  return text
}
function verbatim(from, to,   i) {
  print ".PP\n.nf"
  for (i = from; i <= to; ++i) print roff(line[i])
  print ".fi"
}
function trimmed(text) { sub(/^ +/, "", text); return text }
# "  term  meaning", or "  term" with deeper lines below
function is_term(i) {
  return line[i] ~ /^  [^ ]/ &&
    (line[i] ~ /^  [^ ]+( [^ ]+)*  +[^ ]/ || (i < count && line[i + 1] ~ /^    +/))
}
function list(from, to,   i, at, text) {
  for (i = from; i <= to; ++i) {
    if (line[i] !~ /^  [^ ]/) { print roff(trimmed(line[i])); continue }
    text = trimmed(line[i])
    at = match(text, /  +/)
    print ".TP\n.B " roff(at ? substr(text, 1, at - 1) : text)
    if (at) print roff(trimmed(substr(text, at)))
  }
}
# The lines of one paragraph.
function paragraph(   i, from) {
  if (!count) return
  if (part == "main" && !described && tolower(line[1]) !~ /^usage:/) {  # it is the NAME
    count = 0
    return
  }
  if (tolower(line[1]) ~ /^usage:/) {
    if (part == "main") print ".SH SYNOPSIS"
    print ".nf"
    for (i = 1; i <= count; ++i) print roff(i == 1 ? substr(line[1], 8) : substr(line[i], 8))
    print ".fi"
    if (part == "main") print ".SH DESCRIPTION"
    described = 1
    count = 0
    return
  }
  for (i = 1; i <= count; i = from) {
    from = i
    if (line[i] ~ /^ /) {
      while (from <= count && line[from] ~ /^ /) ++from
      if (!example && is_term(i)) list(i, from - 1)
      else verbatim(i, from - 1)
    } else if (line[i] ~ /^[^ ].*:$/ && (i == count || line[i + 1] ~ /^ /)) {
      example = line[i] ~ /^(Examples|Try it):/
      if (line[i] ~ /^[A-Z][a-z ]*:$/) print ".PP\n.B " roff(line[i])
      else print ".PP\n" roff(line[i])
      ++from
    } else {
      print ".PP"
      # A line further in goes on with the sentence, unless that ended in a colon.
      for (; from <= count && (line[from] !~ /^ / || line[from - 1] !~ /:$/); ++from) {
        print roff(trimmed(line[from]))
      }
    }
  }
  count = 0
}
NF { line[++count] = $0; next }
{ if (line[1] !~ /^ /) example = 0; paragraph() }
END { paragraph() }
AWK

# The first sentence of the first paragraph that is not the usage, without the program's name.
summary() {
  "$program" --help | awk -v RS='' -v name="$name" 'tolower($1) != "usage:" {
    gsub(/\n/, " ")
    sub("^" name " (- )?", "")
    sub(/[.]( .*)?$/, "")
    print tolower(substr($0, 1, 1)) substr($0, 2)
    exit
  }'
}

page() {
  local verb words
  echo ".\\\" From $name --help by tools/man_page.sh."
  echo ".TH ${name^^} $section \"\" \"hpctl $version\" \"hpctl\""
  echo ".SH NAME"
  echo "${name//-/\\-} \\- $(summary | sed 's/-/\\-/g')"
  "$program" --help | awk -v part=main "$to_roff"
  [ ${#verbs[@]} -eq 0 ] || echo ".SH COMMANDS"
  for verb in "${verbs[@]}"; do
    echo ".SS $name $verb"
    read -ra words <<<"$verb"
    "$program" "${words[@]}" --help | awk -v part=verb "$to_roff"
  done
}
page
