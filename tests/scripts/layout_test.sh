#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_layout finds folders that include each other in a circle. Its other rules show on every
# landing, in the test `layout`.
#   layout_test.sh CHECK_LAYOUT
set -euo pipefail
# shellcheck source=tests/support/checks.sh
. "$(dirname "$0")/../support/checks.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/hpctl-layout.XXXXXX")
trap 'rm -rf "$work"' EXIT

put() { # put FILE LINE...: a header with these lines
  mkdir -p "$work/$(dirname "$1")"
  printf '%s\n' '// SPDX-License-Identifier: Apache-2.0' '#pragma once' "${@:2}" >"$work/$1"
}
circles() { "$1" "$work" | grep circle || true; }

mkdir -p "$work"/{tests,docs}
put agent/holder/worker.h '#include "agent/core/rules.h"'
put agent/core/rules.h '#include "agent/core/respawn.h"'
put agent/core/respawn.h
check "arrows one way" "" "$(circles "$1")"
put agent/core/respawn.h '#include "agent/shim/task.h"'
put agent/shim/task.h '#include "agent/holder/worker.h"'
found=$(circles "$1")
check_has "where it is" "agent/core/respawn.h:3: folders include each other in a circle" "$found"
check_has "which folders" "agent/core -> agent/shim -> agent/holder -> agent/core" "$found"
check "each arrow of it" 3 "$(wc -l <<<"$found")"
finish_checks
