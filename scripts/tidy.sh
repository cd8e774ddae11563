#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs clang-tidy over our sources.
#   scripts/tidy.sh             the decision cores and the libraries below them
#   scripts/tidy.sh --changed   those of them of which more than comments changed
#                               (scripts/changed_sources.sh --code)
#   scripts/tidy.sh --list      print the files that --changed reads
#   scripts/tidy.sh FILE...     these files
# A header that changed is read with the source of its name, or else with one source that includes
# it. HPCTL_JOBS is the number of processes at a time (default: one per processor).
#
# Without file names most checks read the batches of the preset release (decision 0806), because
# most of their time goes into headers; with --changed a batch has only the files that changed. Two
# kinds of checks read each file alone, with the flags of the preset dev: the static analyser, and
# the checks that concern only the file that is compiled. A file that is in no batch gets all checks
# alone.
# Examples:
#   scripts/tidy.sh --changed
#   scripts/tidy.sh agent/core/respawn.cc
set -euo pipefail
shopt -s inherit_errexit
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
  local per_process=$1
  shift
  xargs -r -d '\n' -n "$per_process" -P "${HPCTL_JOBS:-$(nproc)}" \
    clang-tidy "${arguments[@]}" "$@" 2>&1 |
    { grep -v 'warnings generated' || true; }
}

cmake --preset dev >/dev/null
case ${1:-} in
  --changed | --list | "") ;;
  -*)
    echo "usage: scripts/tidy.sh [--changed | --list | FILE...]" >&2
    exit 2
    ;;
  *)
    printf '%s\n' "$@" | tidy 4 -p build/dev
    exit
    ;;
esac

libraries='hp_(authority|base|net|process|job|worker|slurm|gpu|core|recorder|agent_core|data'
libraries+='|tokenize|prepare|checkpoint)'
alone='clang-analyzer-*,misc-unused-alias-decls,misc-unused-using-decls,bugprone-suspicious-include'
mapfile -t files < <(git ls-files common/{authority,base,net,process,job,worker,slurm,gpu}/'*.cc' \
  'common/recorder/*.cc' 'controller/core/*.cc' 'agent/core/*.cc' 'agent/nodecheck/core/*.cc' \
  'trainer/data/*.cc' 'trainer/checkpoint/*.cc')

# changed_files: those of `files` that changed, and a source for each header that changed
changed_files() {
  {
    scripts/changed_sources.sh --code
    echo
    scripts/includes.sh
  } | awk "$(cat scripts/source_of.awk)"'
    # `files`, then what changed, then the include graph
    NR == FNR { candidate[$0]; next }
    !graph && $0 == "" { graph = 1; next }
    !graph { changed[$0] = 1; next }
    { includers[$2] = includers[$2] $1 "\n" }
    END {
      for (file in changed) if (file in candidate) wanted[file] = 1
      for (file in changed) if (file ~ /[.]h$/ && (own = source_of(file)) != "") wanted[own] = 1
      for (file in wanted) print file
    }' <(printf '%s\n' "${files[@]}") - | sort
}
if [ "${1:-}" = --list ]; then
  changed_files
  exit
fi
cmake --preset release >/dev/null
# Below build, so that clang-tidy finds .clang-tidy.
scratch=$(mktemp -d "$PWD/build/tidy.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
if [ "${1:-}" = --changed ]; then
  changed_files >"$scratch/files"
else
  printf '%s\n' "${files[@]}" >"$scratch/files"
fi
# Batch N of those that are read is $scratch/N.cc, and its command is in compile_commands.json.
number=0
while IFS=$'\t' read -r directory batch command; do
  chosen=$(sed -n "s|^#include \"\(.*\)\"|\1|p" "$batch" |
    grep -Fx -f "$scratch/files") || continue
  number=$((number + 1))
  # shellcheck disable=SC2001
  sed "s|.*|#include \"$PWD/&\"|" <<<"$chosen" >"$scratch/$number.cc"
  echo "$chosen" >>"$scratch/batched"
  jq -n --arg directory "$directory" --arg file "$scratch/$number.cc" \
    --arg command "${command//"$batch"/"$scratch/$number.cc"}" '$ARGS.named'
done < <(jq -r --arg batches "/batches/${libraries}/" '.[] |
  select(.file | test($batches)) | [.directory, .file, .command] | @tsv' \
  build/release/compile_commands.json) | jq -s . >"$scratch/compile_commands.json"

status=0
jq -r '.[].file' "$scratch/compile_commands.json" |
  tidy 1 -p "$scratch" --checks="-${alone//,/,-}" \
    --header-filter="^$PWD/(common|controller|agent|trainer)/.*\.(h|cc)$" || status=1
if [ -f "$scratch/batched" ]; then
  tidy 4 -p build/dev --checks="-*,$alone" <"$scratch/batched" || status=1
else
  : >"$scratch/batched"
fi
# Without a newline at the end: no file is no argument.
printf %s "$(grep -vFx -f "$scratch/batched" "$scratch/files")" | tidy 4 -p build/dev || status=1
echo "clang-tidy read $(grep -c . "$scratch/files" || true) files"
exit "$status"
