#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Two releases, one of which is older, run one job together: whatever may be of another release
# during an upgrade is (docs/install.md, decision 1802). Faults meanwhile, and the job ends exact.
#
#   tests/upgrade/run.sh [OLD_REF [PRESET]]
#
# OLD_REF is a commit of this repository: by default its newest tag, else what the file `before`
# names. PRESET is `release` by default. NEW_BIN, in the environment, is a directory with the newer
# programs; without it they are built. Builds the older release's hpctl, hpcontroller and hpagent
# once, in build/upgrade/COMMIT. Workers are of the newer release on both sides: ranks of one
# generation are always of one release.
# Needs munge for the cluster controller. No test of ctest: a second build costs minutes.
set -euo pipefail
cd "$(dirname "$0")/../.."
old=${1:-$(git describe --tags --abbrev=0 2>/dev/null || cat tests/upgrade/before)}
commit=$(git rev-parse --verify --quiet "$old^{commit}") || {
  echo "error: $old is no commit of this clone; of a shallow one: git fetch --unshallow" >&2
  exit 2
}
preset=${2:-release}
source=build/upgrade/$commit
programs=(hpctl hpcontroller hpagent)

if [ ! -e "$source/CMakeLists.txt" ]; then
  mkdir -p "$source"
  git archive "$commit" | tar -x -C "$source"
fi
if [ ! -e "$source/build/$preset/built" ]; then
  # Optimised as little as a quick build wants.
  (cd "$source" && cmake --preset "$preset" -DHPCTL_TRAINER=OFF -DHPCTL_UNITY=ON \
    -DCMAKE_CXX_FLAGS_RELEASE="-O1 -g0" >configure.log &&
    cmake --build "build/$preset" --target "${programs[@]}" >build.log) || {
    echo "error: $commit does not build here; see $source/configure.log and build.log" >&2
    exit 1
  }
  touch "$source/build/$preset/built"
fi
new_bin=${NEW_BIN:-build/$preset/bin}
[ -n "${NEW_BIN:-}" ] || scripts/build.sh "$preset" "${programs[@]}" hptrain >/dev/null

. tests/support/checks.sh
work=$(mktemp -d "${TMPDIR:-/tmp}/hpctl-releases.XXXXXX")
steps=${STEPS:-3000}
# shellcheck source=tests/upgrade/releases.sh
. tests/upgrade/releases.sh
leave() {
  end_processes
  for ((job = first_job; job <= next_job; ++job)); do
    rm -rf "/tmp/hpctl-$(id -u)/job-$job"-{n0,n1,head}
  done
  remove_sockets 2>/dev/null || true # of the home, where they are left
  rm -rf "$work"
}
trap leave EXIT
mkdir -p "$work"/{old,new,home/jobs}
for program in "${programs[@]}"; do
  cp "$source/build/$preset/bin/$program" "$work/old/"
  cp "$new_bin/$program" "$work/new/"
done
for release in old new; do
  cp "$new_bin/"{hptrain,libhptrain_engine.so,environment.json,instances.json} "$work/$release/"
done
echo "old: $(git log -1 --format='%h %ad %s' --date=iso "$commit")"
echo "new: $(git log -1 --format='%h %ad %s' --date=iso)"

# --- what an undisturbed run ends with -----------------------------------------------------------
new_job undisturbed new
start_controller new n0
start_agent new n0
start_agent new n1
undisturbed=
while [ ! -e "$job_dir/verdict" ]; do sleep 0.2; done
undisturbed=$(hpctl new checkpoint digest "$job_dir/checkpoints" | cut -d' ' -f1)
check "it finishes" "0 0" "$(cat "$job_dir/verdict")"
end_processes

# --- one asks the other --------------------------------------------------------------------------
ask() { # ask RELEASE: everything that shows a job, of that release's hpctl
  local said line words
  check_has "$1 hpctl status" '"state": "RUNNING"' "$(hpctl "$1" status "$job" --json | jq .)"
  check_has "$1 hpctl ps" "$job" "$(outcome hpctl "$1" ps)"
  check_has "$1 hpctl why" "exit 0" "$(outcome hpctl "$1" why "$job")"
  check_has "$1 hpctl events" "exit 0" "$(outcome hpctl "$1" events "$job")"
  check_has "$1 hpctl nodes" "exit 0" "$(outcome hpctl "$1" nodes)"
  check_has "$1 hpctl logs" "exit 0" "$(outcome hpctl "$1" logs "$job" --rank 0)"
  check_has "$1 hpctl goodput" "exit 0" "$(outcome hpctl "$1" goodput "$job")"
  said=$(hpctl "$1" --help)
  for line in "top $job" "watch $job --once" "audit $job"; do
    read -ra words <<<"$line"
    [[ "$said" == *"
  ${words[0]} "* ]] || continue # an older release knows no such verb
    check_lacks "$1 hpctl ${words[0]}" "exit 3" "$(outcome hpctl "$1" "${words[@]}")"
  done
}

# --- the older controller first ------------------------------------------------------------------
new_job older-first old
start_controller old n0
start_agent old n0
start_agent new n1
await "an old and a new agent train under an old controller" is_generation 1
trains_on
ask old
ask new
kill_worker 0
kill_worker 3
kill_agent n0
kill_agent n1
faults=$(status .faults)
kill_controller new n0
check "a new controller takes over the old one's rows: faults" "$faults" "$(status .faults)"
check_has "and its history" "WorkerExited" "$(hpctl new events "$job")"
ask old
kill_worker 1
kill_agent n0
kill_agent n1
replace_node n1 old
replace_node n0 new
kill_worker 2
kill_controller new n0
finish
end_processes

# --- one cancels at the other --------------------------------------------------------------------
for release in old new; do
  other=$([ $release = old ] && echo new || echo old)
  new_job "cancel-by-$release" "$other"
  start_controller "$other" n0
  for node in n0 n1; do start_agent "$other" $node; done
  await "a job of the $other release trains" is_generation 1
  check_has "hpctl cancel of the $release one" "exit 0" "$(outcome hpctl $release cancel "$job")"
  await "ends it" test -e "$job_dir/verdict"
  end_processes
done

# --- whoever takes over --------------------------------------------------------------------------
new_job succession old
start_controller old n0
start_agent old n0
start_agent new n1
await "it trains" is_generation 1
trains_on
kill_controller
kill_worker 1
kill_controller new n1
kill_worker 2
kill_controller old n0
kill_worker 3
kill_controller
finish
end_processes

# --- a home of one machine -----------------------------------------------------------------------
job_yaml home >"$work/home.yaml"
job=$(hpctl old submit --local --json "$work/home.yaml" | jq -r .job)
job_dir=$HPCTL_HOME/jobs/$job
controller_pid() { hpctl new status "$job" --json | jq -r .controller.pid; }
echo "== job $job of a home: $HPCTL_HOME"
await "the old controller's job trains" is_generation 1
trains_on
ask new
kill_worker 0
serve_home_by new
trains_on
check "it has the old one's rows: faults" 1 "$(status .faults)"
ask old
kill_worker 1
agent=$(status '.nodes[0].agent_pid')
kill -KILL "$agent"
await "its agent is replaced" agent_is_another "$(status '.nodes[0].name')" "$agent"
kill -KILL "$(status '.nodes[1].holder_pid')"
await "its node is launched anew" is_generation 4
trains_on
check "by the controller's release" new "$(release_of "$(status '.nodes[1].holder_pid')")"
check_has "it finishes" "exit 0" "$(outcome timeout 300 "$work/old/hpctl" wait "$job")"
check_promise digest "with the state of one that nobody disturbed" "$undisturbed" \
  "$(hpctl old checkpoint digest "$job_dir/checkpoints" | cut -d' ' -f1)"
end_processes

# --- owners of checkpoint directories, and a mirror -----------------------------------------------
. tests/upgrade/owner.sh

# --- cluster controllers -------------------------------------------------------------------------
. tests/upgrade/cluster.sh

# --- an upgrade by install.sh ---------------------------------------------------------------------
echo "== tests/deploy/upgrade_test.sh, with the older release as the first"
tests/deploy/upgrade_test.sh "$(dirname "$new_bin")" "$work/old" || failures=$((failures + 1))
finish_checks
