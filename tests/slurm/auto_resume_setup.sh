# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What the tests of `srun --auto-resume=1` share: a cluster with the plugin, and how to check.
# Sourced with the names of the build directory and the number of nodes; $work is a directory that
# the nodes see.
build=$1
cluster=$(dirname "$(realpath "${BASH_SOURCE[0]}")")/cluster
plugin=$build/lib/hpctl_auto_resume.so
if [ ! -e "$plugin" ]; then
  echo "skipped: $plugin is not built (Slurm's headers are absent)" >&2
  exit 77
fi

# shellcheck disable=SC2086  # options
exports=$("$cluster" up --nodes "$2" --netns --owner $$ ${cluster_options:-}) || exit $?
eval "$exports"
work=$HPCTL_TEST_CLUSTER/work
mkdir -p "$work"
# The step controllers of this cluster: by the step that they are told, whose job is of its slot.
slot=$(sed -n 's/^slot=//p' "$HPCTL_TEST_CLUSTER/settings")
controllers="/hpcontroller-step 3 4 $slot[0-9]{3}[.]"
trap '"$cluster" down' EXIT
# shellcheck source=tests/support/checks.sh
. "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/../support/checks.sh"
plugins() { printf 'optional %s\n' "$@" >"$HPCTL_TEST_CLUSTER/plugstack.d/hpctl.conf"; }
step() { timeout 120 srun -Q --auto-resume=1 "$@"; }
plain() { timeout 120 srun -Q --auto-resume=0 "$@"; }
# Waits until a file is there; what writes it says that it is so far.
await_file() {
  local until=$((SECONDS + 60))
  until [ -e "$1" ]; do
    [ $SECONDS -lt $until ] || { check "the file $1" "there" "missing"; return 0; }
    sleep 0.02
  done
}
await_no_process() { # await_no_process PATTERN: of this test
  local until=$((SECONDS + 60))
  while pgrep -f "$1" >/dev/null; do
    [ $SECONDS -lt $until ] || {
      check_promise leftover "no process $1" "" "$(pgrep -af "$1")"
      return 0
    }
    sleep 0.05
  done
  echo "ok: no $1 left"
}
finish() {
  await_no_process "$controllers"
  finish_checks
}
plugins "$plugin"
