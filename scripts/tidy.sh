#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# clang-tidy over our sources, with the presets' compile commands.
#   scripts/tidy.sh            the decision cores and the libraries below them (what CI checks)
#   scripts/tidy.sh FILE...    these files
# Without FILE the static analyser, and what looks only at the file that is compiled, read each
# file alone (and so find an include that is missing there). The other checks read the batches of
# the preset fast (decision 0806), because most of their time goes into headers. All are run over a
# file that is in no batch.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install_packages.sh clang-tidy
# The analyser looks at 225,000 states of a function unless told: 5/6 of the whole time.
# gcc's parameters, and some of its warnings, are unknown to it.
arguments=(--quiet --extra-arg=-Wno-unused-command-line-argument
  --extra-arg=-Wno-unknown-warning-option
  --extra-arg=-Xclang --extra-arg=-analyzer-config
  --extra-arg=-Xclang "--extra-arg=max-nodes=${HPCTL_TIDY_STATES:-20000}")

# tidy PER-PROCESS ARGUMENTS...: clang-tidy over the files named on standard input
tidy() {
  local files=$1
  shift
  xargs -r -d '\n' -n "$files" -P "$(nproc)" clang-tidy "${arguments[@]}" "$@" 2>&1 |
    { grep -v 'warnings generated' || true; }
}

cmake --preset release >/dev/null
if [ $# -gt 0 ]; then
  printf '%s\n' "$@" | tidy 4 -p build/release
  exit
fi

libraries='hp_(authority|base|core|recorder|agent_core|data|tokenize|prepare|checkpoint)'
alone='clang-analyzer-*,misc-unused-alias-decls,misc-unused-using-decls,bugprone-suspicious-include'
mapfile -t files < <(git ls-files 'common/authority/*.cc' 'common/base/*.cc' \
  'common/recorder/*.cc' 'controller/core/*.cc' 'agent/core/*.cc' 'trainer/data/*.cc' \
  'trainer/checkpoint/*.cc')
cmake --preset fast >/dev/null
mapfile -t batches < <(jq -r '.[].file' build/fast/compile_commands.json |
  grep -E "/CMakeFiles/$libraries\.dir/Unity/")
mapfile -t batched < <(sed -n "s|^#include \"$PWD/\(.*\)\"|\1|p" "${batches[@]}")
mapfile -t others < <(printf '%s\n' "${files[@]}" | grep -vFx "$(printf '%s\n' "${batched[@]}")")

status=0
printf '%s\n' "${batches[@]}" |
  tidy 1 -p build/fast --checks="-${alone//,/,-}" \
    --header-filter="^$PWD/(common|controller|agent|trainer)/.*\.(h|cc)$" || status=1
printf '%s\n' "${batched[@]}" | tidy 4 -p build/release --checks="-*,$alone" || status=1
printf '%s\n' "${others[@]}" | tidy 4 -p build/release || status=1
exit "$status"
