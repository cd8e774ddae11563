#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks the layout of sources and headers with clang-format.
#   scripts/check_format.sh             every .cc, .c and .h file
#   scripts/check_format.sh --changed   those that changed (scripts/changed_sources.sh)
# Examples:
#   scripts/check_format.sh --changed
#   HPCTL_BASE=origin/main scripts/check_format.sh --changed
set -euo pipefail
cd "$(dirname "$0")/.."

which=--all
case ${1:-} in
  --changed) which="" ;;
  "") ;;
  *)
    echo "usage: scripts/check_format.sh [--changed]" >&2
    exit 2
    ;;
esac

scripts/install_packages.sh clang-format
files=$(scripts/changed_sources.sh $which)
count=$(grep -c . <<<"$files" || true)
# Without a newline at the end: no file is no argument.
printf %s "$files" |
  xargs -r -d '\n' -n 50 -P "${HPCTL_JOBS:-$(nproc)}" clang-format --dry-run --Werror || {
  echo "Remedy: clang-format -i FILE for each file above." >&2
  exit 1
}
echo "$count files have the layout of .clang-format"
