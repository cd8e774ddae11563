#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A job goes on, and survives faults, while hpctl is upgraded under it by install.sh, twice: what
# it was started with stays as long as it runs, and what is started for it later is of the same
# release.
# Usage: … BUILD_DIRECTORY [OLD_BIN]
# OLD_BIN has hpctl, hpcontroller and hpagent of an older release, which may know no owners of
# checkpoint directories: then they are the first release (tests/upgrade/run.sh).
set -euo pipefail
build=$(realpath "$1")
old=${2:+$(realpath "$2")}
repo=$(realpath "$(dirname "$0")/../..")
# shellcheck source=tests/support/checks.sh
. "$repo/tests/support/checks.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/hpctl-upgrade.XXXXXX")
root=$work/root
export HPCTL_HOME=$work/home HPCTL_METRICS=
processes() { # processes PROGRAM: of any release in the root
  find /proc -mindepth 2 -maxdepth 2 -name exe -lname "$root/opt/hpctl-*/$1" 2>/dev/null |
    cut -d/ -f3 || true
}
leave() {
  local process
  for process in $(processes '*'); do kill -KILL "$process" 2>/dev/null || true; done
  rm -rf "$work"
}
trap leave EXIT

# Three releases: programs are the same, unless there are older ones. What comes with them is not.
mkdir -p "$root/opt" "$work/made"
(cd "$build/../.." &&
  scripts/bundle.sh "$(basename "$build")" "$work/1.tar.gz" hpctl hpcontroller hpagent)
tar -C "$work/made" -xzf "$work/1.tar.gz"
if [ -n "$old" ]; then
  mkdir "$work/older"
  cp -a "$work/made/hpctl" "$work/older/"
  cp "$old"/{hpctl,hpcontroller,hpagent} "$work/older/hpctl/libexec/"
  tar -C "$work/older" -cf - hpctl | gzip -1 >"$work/1.tar.gz"
fi
for release in 2 3; do
  echo "$release" >"$work/made/hpctl/share/hpctl/release"
  tar -C "$work/made" -cf - hpctl | gzip -1 >"$work/$release.tar.gz"
done
upgrade() { # upgrade RELEASE
  HPCTL_ROOT=$root SLURM_PREFIX=/none SLURM_CONF=/none \
    outcome "$repo/scripts/install.sh" --bundle "$work/$1.tar.gz"
}
hpctl() { "$root/opt/hpctl/bin/hpctl" "$@"; }
await() { # await WHAT COMMAND...: until it succeeds; $promise is the kind of promise that it keeps
  local until=$((SECONDS + 60)) what=$1
  shift
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $until ] || {
      if [ -n "${promise:-}" ]; then check_promise "$promise" "$what" "within 60 s" "not yet"
      else check "$what" "within 60 s" "not yet"; fi
      finish_checks
    }
    sleep 0.1
  done
  echo "ok: $what"
}
status() { hpctl status upgraded --json | jq -r "$1"; }
runs_nothing() { [ -z "$(processes '*')" ]; }
is_generation() { [ "$(status .state) $(status .generation)" = "RUNNING $1" ]; }
has_another_agent() { [ "$(status '.nodes[0].agent_pid')" -gt 0 ] &&
  [ "$(status '.nodes[0].agent_pid')" != "$1" ]; }

check_has "the first release" "exit 0" "$(upgrade 1)"
first=$(readlink "$root/opt/hpctl")
job_yaml() { # job_yaml NAME COMMAND
  cat <<YAML
name: $1
workload:
  command: [sh, -c, "$2"]
checkpoint: {dir: $work/checkpoints}
YAML
}
owner() { [ ! -e "$work/checkpoints/owner.json" ] || jq -r ".$1" "$work/checkpoints/owner.json"; }
job_yaml upgraded "until [ -e $work/go ]; do sleep 0.1; done" >"$work/job.yaml"
job_yaml next true >"$work/next.yaml"
hpctl submit "$work/job.yaml" --local >/dev/null
await "the job runs" is_generation 1
owned="$(owner name) $(owner uuid)"
[ -n "$old" ] || check "the job owns its directory" "upgraded" "$(owner name)"
check_has "the second release" "exit 0" "$(upgrade 2)"
check_has "the third" "$root/opt/$first stays: jobs run on it" "$(upgrade 3)"
check "what is called now is the third" 3 "$(cat "$root/opt/hpctl/share/hpctl/release")"
check_has "it gives the job's checkpoint directory to no other job" \
  '"upgraded"' "$(outcome hpctl submit "$work/next.yaml" --local)"

agent=$(status '.nodes[0].agent_pid')
kill -KILL "$agent"
await "another agent" has_another_agent "$agent"
check "it is of the job's release" "$root/opt/$first/libexec/hpagent" \
  "$(readlink "/proc/$(status '.nodes[0].agent_pid')/exe")"
kill -KILL "$(status '.workers[0].pid')"
await "the worker is replaced" is_generation 2
check "the directory is still the job's" "$owned" "$(owner name) $(owner uuid)"
touch "$work/go"
check_has "the job finishes" "exit 0" "$(outcome hpctl wait upgraded)"

# As a release without owners has left it: the newest record names a job that has ended.
rm -f "$work/checkpoints/owner.json"
for record in "$work"/checkpoints/generations/*.json; do
  jq 'del(.job_uuid)' "$record" >"$record.new" && mv "$record.new" "$record"
done
check_has "a job of the third follows it" "exit 0" \
  "$(outcome hpctl submit "$work/next.yaml" --local)"
check_has "and finishes" "exit 0" "$(outcome hpctl wait next)"
check "it owns the directory" "next upgraded" "$(owner name) $(owner former.name)"
check "and continues the chain" 2 "$(jq .parent "$work/checkpoints/generations/3.json")"
for process in $(processes libexec/hpcontroller); do
  kill "$process" 2>/dev/null || true  # those that write its log end with it
  tail --pid="$process" -s 0.1 -f /dev/null
done
promise=leftover await "nothing runs any more" runs_nothing
check_has "no socket is left" "exit 0" "$(outcome remove_sockets)"
echo 4 >"$work/made/hpctl/share/hpctl/release"
tar -C "$work/made" -cf - hpctl | gzip -1 >"$work/4.tar.gz"
check_has "the fourth" "exit 0" "$(upgrade 4)"
check "and the first is gone" "" "$(ls -d "$root/opt/$first" 2>/dev/null || true)"
finish_checks
