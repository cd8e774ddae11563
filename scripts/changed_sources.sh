#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prints the sources (.cc, .c) that a change touches: those that changed, and those that include,
# directly or through other headers, a header that changed. A header generated from a file
# (scripts/includes.sh) changes with that file. Changes of CMake files do not count.
#   scripts/changed_sources.sh [--since COMMIT | --all] [--headers | --alone | --format]
#     --since COMMIT   compare the working tree, untracked files included, with COMMIT
#     --all            print every file
#     --headers        print also the headers that changed or include a header that changed
#     --alone          print the sources and headers that may no longer compile alone
#                      (scripts/may_break.py)
#     --format         print the .cc, .c and .h files that changed, and nothing that includes them
# Without --since the base is $HPCTL_BASE, or else the last commit for which scripts/test.sh passed
# on this machine, if HEAD descends from it, or else the newest commit older than a day. A shallow
# clone and a history of less than a day have no such base: every file counts as changed.
# Examples:
#   scripts/changed_sources.sh
#   scripts/changed_sources.sh --since origin/main --headers
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  echo "usage: scripts/changed_sources.sh [--since COMMIT | --all]" \
    "[--headers | --alone | --format]" >&2
  exit 2
}

all=false kind=sources base=${HPCTL_BASE:-} named="HPCTL_BASE"
while [ $# -gt 0 ]; do
  case $1 in
    --all) all=true ;;
    --since) [ $# -gt 1 ] || usage; base=$2 named="--since"; shift ;;
    --headers) kind=headers ;;
    --alone) kind=alone ;;
    --format) kind=format ;;
    *) usage ;;
  esac
  shift
done

if $all; then
  base=""
elif [ -n "$base" ]; then
  git rev-parse --quiet --verify "$base^{commit}" >/dev/null || {
    echo "error: $named $base: no such commit; name one that 'git log' shows" >&2
    exit 2
  }
elif [ "$(git rev-parse --is-shallow-repository)" = true ]; then
  echo "shallow clone: every file counts as changed" >&2
else
  base=$(cat "${XDG_CACHE_HOME:-$HOME/.cache}/hpctl/passed" 2>/dev/null || true)
  if [ -z "$base" ] || ! git merge-base --is-ancestor "$base" HEAD 2>/dev/null; then
    base=$(git rev-list -1 --before='1 day ago' HEAD)
  fi
  [ -n "$base" ] || echo "no commit is older than a day: every file counts as changed" >&2
fi
[ -z "$base" ] || git show -s --format='changed since %h (%cs)' "$base^{commit}" >&2

list() { git -c core.quotePath=off "$@"; }
case $kind in
  sources) wanted='[.](cc|c)$' ;;
  *) wanted='[.](cc|c|h)$' ;;
esac
existing() { while read -r file; do [ ! -f "$file" ] || printf '%s\n' "$file"; done; }

if [ -z "$base" ]; then
  list ls-files --cached --others --exclude-standard | { grep -E "$wanted" || true; } | existing
  exit
fi

[ $kind != alone ] || exec scripts/may_break.py "$base"
changed() {
  list diff --name-only --no-renames "$base" --
  list ls-files --others --exclude-standard
}
if [ $kind = format ]; then
  changed | sort -u | { grep -E "$wanted" || true; } | existing
  exit
fi
# First the files that changed, then the graph.
{
  changed
  echo
  scripts/includes.sh
} | awk -v wanted="$wanted" '
  !graph && $0 == "" { graph = 1; next }
  !graph {
    if (!($0 in reached)) queue[++last] = $0
    reached[$0] = 1
    next
  }
  { includers[$2] = includers[$2] $1 "\n" }
  END {
    for (first = 1; first <= last; ++first) {
      count = split(includers[queue[first]], files, "\n")
      for (i = 1; i < count; ++i) {
        if (files[i] in reached) continue
        reached[files[i]] = 1
        queue[++last] = files[i]
      }
    }
    for (file in reached) if (file ~ wanted) print file
  }' | existing | sort
