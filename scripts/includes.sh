#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prints the include graph of the working tree: one line `FILE INCLUDED` for each #include of each
# .cc, .c and .h file, in the order of the file. Reads text only, so conditions do not count.
#
# A generated header gets a line of its own, which names the file that it is made of:
#   controller/page/page.h controller/page/page.html    (hp_embed() in cmake/options.cmake)
#   proto/hpctl/v1/hpctl.pb.h proto/hpctl/v1/hpctl.proto
# A .proto that imports another gets a line too.
# failpoint_names.h gets none: it is made of sources, and holds nothing but names.
set -euo pipefail
cd "$(dirname "$0")/.."

{
  git -c core.quotePath=off ls-files --cached --others --exclude-standard
  echo
  git -c core.quotePath=off grep --untracked --no-color --no-line-number -E \
    -e '^[[:space:]]*#[[:space:]]*include[[:space:]]*[<"]' -- '*.cc' '*.c' '*.h' || true
  git -c core.quotePath=off grep --untracked --no-color --no-line-number -E \
    -e '^[[:space:]]*import[[:space:]]*"' -- '*.proto' || true
} | awk '
  function made_of(header, file) {
    if (!((header, file) in told)) print header, file
    told[header, file] = 1
  }
  # First the names of all files, then the lines that include.
  !graph && $0 == "" { graph = 1; next }
  !graph {
    exists[$0] = 1
    stem = $0
    sub(/[.][^.\/]*$/, "", stem)
    if ($0 !~ /[.](cc|c|h)$/) texts[stem] = texts[stem] $0 "\n"
    next
  }
  {
    file = $0
    sub(/:.*/, "", file)
    included = $0
    sub(/^[^:]*:[^<"]*[<"]/, "", included)
    sub(/[>"].*/, "", included)
    print file, included
    if (included in exists) next
    stem = included
    if (!sub(/([.]grpc)?[.]pb[.]h$/, "", stem)) sub(/[.]h$/, "", stem)
    count = split(texts[stem], files, "\n")
    for (i = 1; i < count; ++i) made_of(included, files[i])
  }'
