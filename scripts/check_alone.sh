#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compiles each source alone and finds an #include that is missing. The other builds do not find
# it: they compile sources in batches, and one source sees what the source before it included.
#   scripts/check_alone.sh             what a change may break (scripts/changed_sources.sh --alone)
#   scripts/check_alone.sh --rest      of that, what neither scripts/tidy.sh --changed nor the build
#                                      in build/release, if it is up to date, compiles alone as well
#   scripts/check_alone.sh --all       every source and header
#   scripts/check_alone.sh FILE...     these sources and headers
# Each file is compiled with -fsyntax-only and the flags of the preset dev, without warnings. A
# header counts as checked if a source of this run, or of tidy.sh, includes it first; any other
# header is compiled by itself. clang++ reads a file first, because it loads precompiled headers in
# half the time that g++ needs. What clang++ refuses, and what includes LibTorch, is left to g++.
# HPCTL_JOBS is the number of compilers at a time (default: one per processor).
# Examples:
#   scripts/check_alone.sh agent/holder/worker.cc common/base/file.h
#   HPCTL_BASE=origin/main scripts/check_alone.sh
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C  # gcc's messages

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# The sources that are alone in their batch, or in none. Those with precompiled headers count only
# if these are gtest's and the source includes gtest itself, so that they hide nothing from it.
built_alone() {
  local build=build/release file with object batch source
  [ -f $build/compile_commands.json ] || return 0
  # Targets that are not built have no object.
  ninja -C $build -n landing_tests 2>/dev/null | grep -q 'no work to do' || return 0
  jq -r '.[] | [.file, "-" + ([.command | scan("-include [^ ]+")] | join(" ")),
                .directory + "/" + (.command | capture(" -o (?<object>[^ ]+)").object)] | @tsv' \
    $build/compile_commands.json | while IFS=$'\t' read -r file with object; do
    [ -f "$object" ] || continue
    source=$file
    if [[ $file == */batches/*/batch_*.cc ]]; then
      batch=$(sed -n 's/^#include "\(.*\)"$/\1/p' "$file")
      [ "$(grep -c . <<<"$batch")" -eq 1 ] || continue
      source=$batch
    fi
    source=${source#"$PWD/"}
    case $with in
      -) ;;
      *hp_test_headers*) grep -qE '^#include <g(mock|test)/' "$source" || continue ;;
      *) continue ;;
    esac
    echo "$source"
  done
}

: >"$scratch/tidied"
case ${1:-} in
  --all) scripts/changed_sources.sh --all >"$scratch/files" ;;
  "") scripts/changed_sources.sh --alone >"$scratch/files" ;;
  --rest)
    scripts/changed_sources.sh --alone >"$scratch/changed"
    scripts/tidy.sh --list >"$scratch/tidied"
    built_alone >"$scratch/built"
    grep -vFx -f "$scratch/tidied" -f "$scratch/built" "$scratch/changed" >"$scratch/files" || true
    ;;
  -*)
    echo "usage: scripts/check_alone.sh [--all | --rest | FILE...]" >&2
    exit 2
    ;;
  *)
    for file; do
      [ -f "$file" ] || { echo "error: no such file: $file" >&2; exit 2; }
      realpath --relative-to=. "$file"
    done >"$scratch/files"
    ;;
esac

# Flags and generated headers. Ninja runs cmake again where a CMake file has changed.
scripts/install_packages.sh clang
build=build/dev
configure() {
  set -e
  [ -f $build/build.ninja ] || cmake --preset dev
  ninja -C $build build.ninja
  ninja -C $build -t targets all |
    sed -n 's/^\(generated\/.*\): CUSTOM_COMMAND$/\1/p' >"$scratch/generated"
  { grep '[.]pb[.]h$' "$scratch/generated" || true; } | xargs -r ninja -C $build
  # Ninja would first build the libraries that lie below a generated header. Nothing of them is
  # needed to make the header, so its command is run without ninja.
  while read -r header; do
    [ -f "$build/$header" ] || sh -c "$(ninja -C $build -t commands -s "$header")"
  done <"$scratch/generated"
}
status=0
(configure) >"$scratch/configure.log" 2>&1 & wait $! || status=$?  # else set -e has no effect there
[ $status -eq 0 ] || {
  cat "$scratch/configure.log" >&2
  echo "error: preset dev cannot be configured; see above" >&2
  exit 2
}

# file TAB command, once for each file
jq -r '.[] | "\(.file)\t\(.command)"' $build/compile_commands.json |
  sed "s|^$PWD/||" >"$scratch/commands"
scripts/includes.sh >"$scratch/graph"

# Four headers are so large that they are precompiled: those of JSON, gtest, gRPC and LibTorch. Only
# a file that includes such a header, directly or through others, gets it. So what the header
# declares is not hidden from a file that lacks its #include. To have it first can hide an #include
# that is missing in another header, so a header that does not include it is then compiled by itself
# too.
#
# Writes a line for each compilation, those that take longest first:
#   file TAB precompiled header or - TAB compiler TAB flags
awk -F '\t' -v scratch="$scratch" "$(cat scripts/source_of.awk)"'
  function closure(start, reached,   queue, first, last, files, count, i) {
    queue[last = 1] = start
    for (first = 1; first <= last; ++first) {
      count = split(includers[queue[first]], files, "\n")
      for (i = 1; i < count; ++i) {
        if (files[i] in reached) continue
        reached[files[i]] = 1
        queue[++last] = files[i]
      }
    }
  }
  function precompiled(file) {
    if (file in torch) return "torch"
    if (file in grpc) return "grpc"
    return file in json ? "json" : file in gtest ? "gtest" : "-"
  }
  function plan(file, source,   header, cost) {
    header = source ~ /[.]c$/ ? "-" : precompiled(file)
    cost = header == "torch" ? 3 : header == "grpc" ? 2 : 1
    print cost, file, header, compiler[source], flags[source]
  }
  BEGIN { OFS = "\t" }
  FILENAME ~ /graph$/ {
    split($0, pair, " ")
    includers[pair[2]] = includers[pair[2]] pair[1] "\n"
    if (!(pair[1] in first_include)) first_include[pair[1]] = pair[2]
    next
  }
  FILENAME ~ /commands$/ {
    if ($1 in flags) next
    candidate[$1]
    count = split($2, words, " ")
    compiler[$1] = words[1]
    kept = ""
    for (i = 2; i <= count; ++i) {
      # Where an object goes, how it is optimised, and the headers that the build precompiles. The
      # last would hide that a test lacks an include.
      if (words[i] ~ /^-(o|c|include)$/) { ++i; continue }
      if (words[i] ~ /^-(g|O|fPI|ffile-prefix-map|Winvalid-pch)/) continue
      kept = kept " " words[i]
    }
    flags[$1] = kept
    next
  }
  FILENAME ~ /tidied$/ {
    checked[first_include[$1]] = 1
    next
  }
  { wanted[++files_wanted] = $1 }
  END {
    closure("gtest/gtest.h", gtest)
    closure("nlohmann/json.hpp", json)
    torch["trainer/compat/torch_compat.h"] = 1
    closure("trainer/compat/torch_compat.h", torch)
    closure("proto/hpctl/v1/hpctl.grpc.pb.h", grpc)
    for (w = 1; w <= files_wanted; ++w) {
      file = wanted[w]
      if (file ~ /[.]h$/) continue
      if (!(file in flags)) {
        print file > (scratch "/skipped_sources")
        continue
      }
      plan(file, file)
      first = first_include[file]
      if (precompiled(first) == precompiled(file)) checked[first] = 1
    }
    for (w = 1; w <= files_wanted; ++w) {
      file = wanted[w]
      if (file !~ /[.]h$/ || file in checked) continue
      source = source_of(file)
      if (source == "") print file > (scratch "/skipped_headers")
      else plan(file, source)
    }
  }' "$scratch/graph" "$scratch/commands" "$scratch/tidied" "$scratch/files" |
  sort -rn -k1,1 -s | cut -f 2- >"$scratch/plan"

clang="clang++ -Qunused-arguments"
# with COMPILER FLAGS INPUT: compiles one file
# shellcheck disable=SC2317  # xargs calls it
with() { eval "$1 -w $2 -fsyntax-only $3" 2>&1; }

precompile() {  # precompile NAME INCLUDED SUFFIX COMPILER: from NAME.h in the scratch directory
  local line flags
  line=$(awk -F '\t' -v name="$1" '$2 == name && ++n == 3' "$scratch/plan")
  [ -n "$line" ] || return 0  # for two files it does not pay
  IFS=$'\t' read -r _ _ _ flags <<<"$line"
  echo "#include $2" >"$scratch/$1.h"
  eval "$4 -w $flags -x c++-header -o '$scratch/$1.h$3' '$scratch/$1.h'" >/dev/null 2>&1 || true
}
precompile gtest '<gtest/gtest.h>' .pch "$clang"
precompile json '<nlohmann/json.hpp>' .pch "$clang"
precompile grpc '"proto/hpctl/v1/hpctl.grpc.pb.h"' .pch "$clang"
precompile torch '"trainer/compat/torch_compat.h"' .gch c++

# shellcheck disable=SC2317
check() {  # check PLAN-LINE: compiles one file and prints what is wrong with it
  local file header compiler flags output input before=""
  IFS=$'\t' read -r file header compiler flags <<<"$1"
  input="'$file'"
  [[ $file != *.h ]] || input="-x c++ - <<<'#include \"$file\"'"
  if [ "$header" = torch ]; then
    [ ! -f "$scratch/torch.h.gch" ] || before="-include '$scratch/torch.h'"
  elif [[ $compiler == *++ ]]; then
    [ ! -f "$scratch/$header.h.pch" ] || before="-include-pch '$scratch/$header.h.pch'"
    ! with "$clang" "$before $flags" "$input" >/dev/null || return 0
    before=""
  fi
  ! output=$(with "$compiler" "$before $flags" "$input") || return 0
  printf '%s does not compile alone:\n%s\n' "$file" \
    "$(grep -E 'error|defined in header' <<<"${output//$PWD\//}" | sed -n 's/^/  /; 1,6p')"
  echo "$file" >>"$scratch/failed"
  return 1
}
export -f check with
export scratch clang

status=0
# shellcheck disable=SC2016
xargs -r -d '\n' -n 1 -P "${HPCTL_JOBS:-$(nproc)}" bash -c 'check "$1"' check \
  <"$scratch/plan" || status=1

while read -r file; do
  list=$(dirname "$file")
  while [ ! -f "$list/CMakeLists.txt" ] && [ "$list" != . ]; do list=$(dirname "$list"); done
  if grep -qs "$(basename "$file")" "$list/CMakeLists.txt"; then
    echo "skipped $file: preset dev does not compile it (see $list/CMakeLists.txt)"
  else
    echo "skipped $file: $list/CMakeLists.txt does not name it"
  fi
done < <(cat "$scratch/skipped_sources" 2>/dev/null)
while read -r file; do
  echo "skipped $file: no source that preset dev compiles includes it"
done < <(cat "$scratch/skipped_headers" 2>/dev/null)

sources=$(grep -cv $'^[^\t]*[.]h\t' "$scratch/plan" || true)
headers=$(grep -c $'^[^\t]*[.]h\t' "$scratch/plan" || true)
if [ $status -eq 0 ]; then
  echo "$sources sources and $headers headers compile alone"
else
  echo "$(grep -c . "$scratch/failed") of $((sources + headers)) files do not compile alone:"
  sort "$scratch/failed" | sed 's/^/  /'
  echo "Remedy: add the missing #include to the file that the first error names."
fi
exit $status
