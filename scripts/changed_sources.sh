#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prints the sources and headers (.cc, .c, .h) that changed, files that git does not know yet
# included.
#   scripts/changed_sources.sh [--since COMMIT | --all] [--alone | --code]
#     --since COMMIT   compare the working tree with COMMIT
#     --all            print every file
#     --alone          print the sources and headers that may no longer compile alone
#                      (scripts/may_break.py)
#     --code           leave out files of which only comments or layout changed
# Without --since the base is $HPCTL_BASE, or else the last commit whose sources scripts/test.sh
# found in order on this machine, if HEAD descends from it, or else the newest commit older than a
# day. A shallow clone and a history of less than a day have no such base: every file counts as
# changed.
# Examples:
#   scripts/changed_sources.sh
#   scripts/changed_sources.sh --since origin/main --alone
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  echo "usage: scripts/changed_sources.sh [--since COMMIT | --all] [--alone | --code]" >&2
  exit 2
}

all=false alone=false code=false base=${HPCTL_BASE:-} named="HPCTL_BASE"
while [ $# -gt 0 ]; do
  case $1 in
    --all) all=true ;;
    --since) [ $# -gt 1 ] || usage; base=$2 named="--since"; shift ;;
    --alone) alone=true ;;
    --code) code=true ;;
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

if [ -n "$base" ] && $alone; then
  exec scripts/may_break.py "$base"
fi
if [ -n "$base" ] && $code; then
  exec scripts/may_break.py "$base" --code
fi
list() { git -c core.quotePath=off "$@"; }
{
  if [ -z "$base" ]; then
    list ls-files --cached
  else
    list diff --name-only --no-renames "$base" --
  fi
  list ls-files --others --exclude-standard
} | sort -u | { grep -E '[.](cc|c|h)$' || true; } |
  while read -r file; do [ ! -f "$file" ] || printf '%s\n' "$file"; done
