#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# clang-tidy over our sources, with the release preset's compile commands.
#   scripts/tidy.sh            the decision cores and the libraries below them (what CI checks)
#   scripts/tidy.sh FILE...    these files
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install_packages.sh clang-tidy
[ -f build/release/compile_commands.json ] || cmake --preset release >/dev/null
files=("$@")
if [ ${#files[@]} -eq 0 ]; then
  mapfile -t files < <(git ls-files 'common/base/*.cc' 'controller/core/*.cc' 'agent/core/*.cc' \
    'trainer/data/*.cc' 'trainer/checkpoint/*.cc')
fi
# The analyser looks at 225,000 states of a function unless told: 5/6 of the whole time.
# gcc's parameters are unknown to it.
arguments=(--extra-arg=-Wno-unused-command-line-argument
  --extra-arg=-Xclang --extra-arg=-analyzer-config
  --extra-arg=-Xclang "--extra-arg=max-nodes=${HPCTL_TIDY_STATES:-20000}")
printf '%s\0' "${files[@]}" |
  xargs -0 -n 4 -P "$(nproc)" clang-tidy -p build/release --quiet "${arguments[@]}" 2>&1 |
  { grep -v 'warnings generated' || true; }
