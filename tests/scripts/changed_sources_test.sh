#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scripts/changed_sources.sh, check_alone.sh, check_format.sh and tidy.sh --changed, in a small
# repository with a project of its own.
set -euo pipefail
repo=$(realpath "$(dirname "$0")/../..")
# shellcheck source=tests/support/checks.sh
. "$repo/tests/support/checks.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/hpctl-changed.XXXXXX")
trap 'rm -rf "$work"' EXIT
unset HPCTL_BASE HPCTL_JOBS
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
export GIT_AUTHOR_NAME=test GIT_AUTHOR_EMAIL=test@localhost
export GIT_COMMITTER_NAME=test GIT_COMMITTER_EMAIL=test@localhost

put() { # put FILE LINE...
  mkdir -p "$(dirname "$1")"
  printf '%s\n' "${@:2}" >"$1"
}
commit() { # commit AGE: everything, at that time
  git add --all
  GIT_COMMITTER_DATE=$(date -d "$1" +%s) git commit -qm "$1"
}
undo() { git reset -q --hard && git clean -qfd; }
changed() { scripts/changed_sources.sh "$@" 2>/dev/null | xargs; }

export XDG_CACHE_HOME=$work/cache
mkdir "$work/project"
cd "$work/project"
git init -q
mkdir scripts
for script in includes.sh changed_sources.sh check_alone.sh check_format.sh tidy.sh may_break.py \
  source_of.awk; do
  cp "$repo/scripts/$script" scripts/
done
put scripts/install_packages.sh '#!/bin/sh'
chmod +x scripts/install_packages.sh
put .gitignore build/
put .clang-format 'BasedOnStyle: Google'
# shellcheck disable=SC2016  # words of CMake
put CMakePresets.json '{"version": 6, "configurePresets": [
  {"name": "dev", "generator": "Ninja", "binaryDir": "${sourceDir}/build/${presetName}"},
  {"name": "release", "inherits": "dev"}]}'
# The batches of the other presets hide an include that is missing; here a precompiled header does.
# shellcheck disable=SC2016
put CMakeLists.txt 'cmake_minimum_required(VERSION 3.18)' 'project(small LANGUAGES CXX)' \
  'set(CMAKE_EXPORT_COMPILE_COMMANDS ON)' 'include_directories(${CMAKE_SOURCE_DIR})' \
  'add_library(small STATIC common/base/low.cc agent/user.cc agent/other.cc)' \
  'target_compile_definitions(small PRIVATE TEXT="1.0")' \
  'target_precompile_headers(small PRIVATE <string>)'
put common/base/low.h '#pragma once' 'struct Low {' '  int number;' '};'
put common/base/middle.h '#pragma once' '#include "common/base/low.h"' 'inline Low middle;'
put common/base/low.cc '#include "common/base/low.h"'
put agent/user.cc '#include <string>' '' '#include "common/base/middle.h"' \
  'std::string name() { return TEXT; }'
put agent/other.cc 'int other;'
put controller/page/page.html '<html>'
put controller/page/user.cc '#include "controller/page/page.h"'
put proto/low.proto 'syntax = "proto3";'
put proto/high.proto 'syntax = "proto3";' 'import "proto/low.proto";'
put proto/user.cc '#include "proto/high.grpc.pb.h"'
commit "3 days ago"

# What changed.
echo "extern int changed;" >>common/base/low.h
check "a header" "common/base/low.h" "$(changed)"
undo
put agent/new.cc 'int fresh;'
check "a source that git does not know yet" "agent/new.cc" "$(changed)"
undo
rm agent/other.cc
check "a source that is gone" "" "$(changed)"
undo
echo '# changed' >>CMakeLists.txt
check "a CMake file" "" "$(changed)"
undo

# What a change may keep from compiling alone.
echo "extern int changed;" >>common/base/low.h
check "a header that lost nothing" "common/base/low.h" "$(changed --alone)"
undo
put common/base/low.h '#pragma once' '// A comment.' 'struct Low { int number; /* of it */ };'
check "comments and layout alone" "" "$(changed --alone)$(changed --code)"
check "which count as a change of the file" "common/base/low.h" "$(changed)"
undo
put common/base/low.h '#pragma once' 'struct Low {' '  int number;  // NOLINT' '};'
check "what clang-tidy reads of comments" "common/base/low.h" "$(changed --code)"
undo
put agent/user.cc '#include <string>' '' '#include "common/base/middle.h"' \
  'std::string name() { return "1.0//"; }'
check "what only looks like a comment" "agent/user.cc" "$(changed --code)"
undo
put common/base/low.h '#pragma once' 'struct Lower {' '  int number;' '};'
check "a lost name, where it is used" "common/base/low.h common/base/middle.h" "$(changed --alone)"
undo
put common/base/middle.h '#pragma once' 'struct Low;'
check "a lost include, wherever the header is included" "agent/user.cc common/base/middle.h" \
  "$(changed --alone)"
undo
rm common/base/middle.h
check "a header that is gone takes what included it" "agent/user.cc" "$(changed --alone)"
undo
mkdir common/low
git mv common/base/low.h common/low/low.h
sed -i 's|common/base/low.h|common/low/low.h|' common/base/low.cc common/base/middle.h
check "a move with its new path" "" "$(changed --code)$(changed --alone)"
sed -i 's/int number/long number/' common/low/low.h
check "a move with another change" "common/low/low.h" "$(changed --code)"
sed -i '/include/d' common/base/low.cc
check "a move with an include that went" "common/base/low.cc common/low/low.h" "$(changed --code)"
undo
put agent/new.cc 'int fresh;'
check "a new source" "agent/new.cc" "$(changed --alone)"
undo
rm proto/low.proto
check "a .proto that another imports" "proto/user.cc" "$(changed --alone)"
undo

# What it is compared with.
all="agent/other.cc agent/user.cc common/base/low.cc common/base/low.h common/base/middle.h"
all+=" controller/page/user.cc proto/user.cc"
check "nothing has changed" "" "$(changed)"
check "--all" "$all" "$(HPCTL_BASE=HEAD changed --all)"
echo "extern int changed;" >>agent/other.cc
commit "2 days ago"
echo "extern int changed;" >>agent/user.cc
commit "1 hour ago"
check "since the newest commit older than a day" "agent/user.cc" "$(changed)"
mkdir -p "$XDG_CACHE_HOME/hpctl"
git rev-parse HEAD~2 >"$XDG_CACHE_HOME/hpctl/passed"
check "since the commit that passed" "agent/other.cc agent/user.cc" "$(changed)"
git commit-tree -m other 'HEAD^{tree}' >"$XDG_CACHE_HOME/hpctl/passed"
check "not since a commit of another history" "agent/user.cc" "$(changed)"
rm -r "$XDG_CACHE_HOME"
check "--since" "agent/other.cc agent/user.cc" "$(changed --since HEAD~2)"
check "HPCTL_BASE" "agent/other.cc agent/user.cc" "$(HPCTL_BASE=HEAD~2 changed)"
check "--since before HPCTL_BASE" "" "$(HPCTL_BASE=HEAD~2 changed --since HEAD)"
check_has "a base that is no commit" "exit 2" \
  "$(HPCTL_BASE=gone outcome scripts/changed_sources.sh)"
check_has "a base that is no commit is named" "HPCTL_BASE gone: no such commit" \
  "$(HPCTL_BASE=gone outcome scripts/changed_sources.sh)"
check_has "a bad base fails the format check" "exit 2" \
  "$(HPCTL_BASE=gone outcome scripts/check_format.sh --changed)"
check_has "a bad base fails check_alone" "exit 2" \
  "$(HPCTL_BASE=gone outcome scripts/check_alone.sh)"
check_has "a bad base fails tidy" "exit 2" "$(HPCTL_BASE=gone outcome scripts/tidy.sh --changed)"
git clone -q --depth 2 "file://$work/project" "$work/shallow"
check "a shallow clone has no base" "$all" "$(cd "$work/shallow" && changed)"
check "a shallow clone with HPCTL_BASE" "" "$(cd "$work/shallow" && HPCTL_BASE=HEAD changed)"
git checkout -q --orphan young
commit "1 hour ago"
check "no commit is older than a day" "$all" "$(changed)"
check_has "it says so" "no commit is older than a day" "$(outcome scripts/changed_sources.sh)"

# Sources alone.
found=$(outcome scripts/check_alone.sh)
check_has "all compile alone" "3 sources and 1 headers compile alone" "$found"
check_has "a source that no preset compiles" "skipped controller/page/user.cc: " "$found"
check_has "all is well" "exit 0" "$found"
sed -i '/<string>/d' agent/user.cc
found=$(HPCTL_BASE=HEAD outcome scripts/check_alone.sh)
check_has "an include is missing" "exit 1" "$found"
check_has "where" "agent/user.cc does not compile alone:" "$found"
check_has "the compiler's words" "agent/user.cc:3:6: error: 'string' in namespace 'std'" "$found"
check_has "how many" "1 of 1 files" "$found"
check_has "what to do" "add the missing #include" "$found"
undo
sed -i '/low.h/d' common/base/middle.h
sed -i '3i #include "common/base/low.h"' agent/user.cc
found=$(outcome scripts/check_alone.sh agent/user.cc common/base/middle.h)
check_has "an include is missing in a header" "common/base/middle.h does not compile alone:" \
  "$found"
check_lacks "a source that has it from elsewhere" "agent/user.cc does not compile" "$found"
undo
# The precompiled gtest comes first there, so helper.h finds std::string in each of its sources.
put gtest/gtest.h '#pragma once' '#include <string>'
put tests/helper.h '#pragma once' 'inline std::string help() { return ""; }'
for name in one two three; do
  put tests/$name.cc '#include "tests/helper.h"' '' '#include <gtest/gtest.h>'
done
echo 'add_library(tests STATIC tests/one.cc tests/two.cc tests/three.cc)' >>CMakeLists.txt
found=$(HPCTL_BASE=HEAD outcome scripts/check_alone.sh)
check_has "a header before gtest" "tests/helper.h does not compile alone:" "$found"
check_has "gtest is precompiled" "1 of 5 files do not compile alone" "$found"
undo
check_has "a file that is not there" "no such file: agent/gone.cc" \
  "$(outcome scripts/check_alone.sh agent/gone.cc)"
echo 'no CMake' >CMakeLists.txt
check_has "no flags" "preset dev cannot be configured" "$(outcome scripts/check_alone.sh --all)"
undo

# The layout.
check_has "the layout of all" "exit 0" "$(outcome scripts/check_format.sh)"
put agent/other.cc 'int    other;'
found=$(outcome scripts/check_format.sh --changed)
check_has "a bad layout" "agent/other.cc:1:4: error" "$found"
check_has "a bad layout fails" "exit 1" "$found"
commit "1 hour ago"
found=$(HPCTL_BASE=HEAD outcome scripts/check_format.sh --changed)
check "only what changed" $'0 files have the layout of .clang-format\nexit 0' \
  "$(tail -n 2 <<<"$found")"
check_has "and all" "exit 1" "$(outcome scripts/check_format.sh)"

# clang-tidy, of which only the names of the files count here.
# shellcheck disable=SC2016
put "$work/bin/clang-tidy" '#!/bin/sh' 'for file; do echo "read $file"; done' 'exit "${TIDY:-0}"'
chmod +x "$work/bin/clang-tidy"
read_files() {
  PATH=$work/bin:$PATH outcome scripts/tidy.sh --changed | grep -E '^read .*cc$|exit'
}
export HPCTL_BASE=HEAD
echo "extern int changed;" >>agent/other.cc
check "a source outside of the set" "exit 0" "$(read_files)"
undo
put common/base/early.cc '#include "common/base/low.h"'
commit "1 hour ago"
echo "extern int changed;" >>common/base/low.h
check "a header with a source of its name" $'read common/base/low.cc\nexit 0' "$(read_files)"
undo
echo '#include "agent/deep.h"' >>common/base/low.cc
put agent/deep.h '#include "common/base/middle.h"'
commit "1 hour ago"
echo "extern int changed;" >>common/base/middle.h
check "a header that a source of the set includes" $'read common/base/low.cc\nexit 0' \
  "$(read_files)"
check "which files those are" "common/base/low.cc" "$(scripts/tidy.sh --list 2>/dev/null)"
echo "extern int changed;" >>agent/user.cc
echo "extern int changed;" >>common/base/low.cc
echo "extern int changed;" >>common/base/low.h
check_has "what clang-tidy reads is not compiled twice" "1 sources and 1 headers compile alone" \
  "$(outcome scripts/check_alone.sh --rest)"
undo
echo 'int solo;' >agent/solo.cc
echo 'set(solo agent/solo.cc)
if(CMAKE_BINARY_DIR MATCHES release)
  set(solo ${CMAKE_BINARY_DIR}/batches/solo/batch_0.cc)
  file(CONFIGURE OUTPUT ${solo} CONTENT "#include \"agent/solo.cc\"\n" @ONLY)
endif()
add_library(solo STATIC ${solo})
add_custom_target(landing_tests DEPENDS small solo)' >>CMakeLists.txt
commit "1 hour ago"
(cmake --preset release && ninja -C build/release landing_tests) >/dev/null
echo "extern int changed;" >>agent/solo.cc
check_has "what a build that is not up to date has compiled" "1 sources and" \
  "$(HPCTL_BASE=HEAD outcome scripts/check_alone.sh --rest)"
echo "extern int changed;" >>agent/user.cc
ninja -C build/release landing_tests >/dev/null
check_has "what the build compiles alone is not compiled twice" "1 sources and" \
  "$(HPCTL_BASE=HEAD outcome scripts/check_alone.sh --rest)"
undo
echo "extern int changed;" >>common/base/low.cc
check "what clang-tidy finds" $'read common/base/low.cc\nexit 1' "$(TIDY=1 read_files)"
finish_checks
