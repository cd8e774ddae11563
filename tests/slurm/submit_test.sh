#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# hpctl submit on a real Slurm, with a command as workload: through the queue, a requeue and to the
# end; a job that waits; a checkpoint directory that the nodes do not share; what Slurm refuses.
#   submit_test.sh BUILD_DIRECTORY
set -euo pipefail
cluster=$(dirname "$(realpath "$0")")/cluster
bin=$1/bin
[ -x "$bin/hpslurm" ] || {
  echo "skipped: no hpslurm was built (Slurm's headers are absent)" >&2
  exit 77
}

die() {
  echo "FAILED: $*" >&2
  cat "$HPCTL_HOME"/jobs/submit-*/slurm-*.out >&2 || true
  exit 1
}
await() {
  local until=$((SECONDS + 60))
  until "$@"; do [ $SECONDS -lt $until ] || die "in 60 s not: $*"; sleep 0.1; done
}
says() { grep -qF "$1" <<<"$2" || die "expected '$1' in: $2"; }
hpctl() { timeout 120 "$bin/hpctl" "$@"; }
state() { hpctl status "$1" --json | sed 's/.*"state":"\([A-Z]*\)","step".*/\1/'; }
is_state() { [ "$(state "$1")" = "$2" ]; }
job_file() {  # job_file NAME COMMAND [LINE]
  printf '%s\n' "name: $1" "nodes: 2" "slurm: {exclusive: false}" \
    "workload: {command: [sh, -c, \"$2\"]}" "${3:-}" >"$work/$1.yaml"
  echo "$work/$1.yaml"
}
submit() { hpctl submit "$@" --json | sed 's/.*"job":\([0-9]*\).*/\1/'; }

exports=$("$cluster" up --nodes 3 --netns --owner $$) || exit $?
eval "$exports"
work=$(mktemp -d /tmp/hpctl-submit-test-XXXXXX)
trap '"$cluster" down; rm -rf "$work"' EXIT
export HPCTL_HOME=$work/home

echo "a requeued job goes on, and wait follows it"
job=$(submit "$(job_file again '[ ${SLURM_RESTART_COUNT:-0} -gt 0 ] || sleep 300')")
await is_state "$job" RUNNING
hpctl wait "$job" >"$work/waited" 2>&1 &
waiter=$!
scontrol requeue "$job"
scontrol hold "$job"  # else it starts again within seconds, however long we take to look
await is_state "$job" PENDING
says "requeued by Slurm" "$(hpctl status "$job")"
scontrol release "$job"
wait "$waiter" || die "wait ended with $?: $(cat "$work/waited")"
is_state "$job" FINISHED || die "state $(state "$job")"
says "start 2" "$(cat "$HPCTL_HOME/jobs/$job"/slurm-*.out)"

echo "a job with options that only sbatch knows runs as any other"
sed -i 's/exclusive: false/exclusive: false, nice: 5, begin: now+1, comment: "for x #1"/' \
  "$(job_file options 'exit $((SLURM_JOB_NUM_NODES - 2))')"
says "SBATCH --begin=now+1" "$(hpctl submit "$work/options.yaml" --dry-run)"
options=$(submit "$work/options.yaml")
shown=$(scontrol show job "$options")
says "Nice=5" "$shown"
says " for x #1" "$shown"
hpctl wait "$options" >/dev/null || die "a job with options ended with $?"

echo "a job that waits says why, and leaves the queue when it is cancelled"
first=$(submit "$(job_file first 'sleep 300' 'checkpoint: {keep: 1}')")
sed -i 's/exclusive: false/exclusive: true/; s/nodes: 2/nodes: 3/' "$(job_file waits 'true')"
waits=$(submit "$work/waits.yaml")
is_state "$waits" PENDING || die "state $(state "$waits")"
await eval 'hpctl status "$waits" | grep -q "queue: Resources"'
hpctl cancel waits >/dev/null
is_state "$waits" CANCELLED || die "state $(state "$waits")"
await is_state "$first" RUNNING
scancel "$first"
code=0
hpctl wait "$first" >/dev/null || code=$?
[ "$code" -eq 1 ] && is_state "$first" CANCELLED || die "scancel: $code, $(state "$first")"

echo "what cannot be is refused, and nothing is left"
before=$(ls "$HPCTL_HOME/jobs")
sed -i 's/exclusive: false/partition: p9/' "$(job_file bad 'true')"
code=0
said=$(hpctl submit "$work/bad.yaml" 2>&1) || code=$?
[ "$code" -eq 1 ] || die "unknown partition: exit $code"
says "partition p9" "$said"
sed -i 's/nodes: 2/nodes: 9/' "$(job_file large 'true')"
says "the cluster has 3" "$(hpctl submit "$work/large.yaml" 2>&1 || true)"
[ "$(ls "$HPCTL_HOME/jobs")" = "$before" ] || die "a refused job left something"

echo "slurmctld that comes back gets the job once"
"$cluster" stop slurmctld
(sleep 3; "$cluster" start slurmctld) &
late=$(submit "$(job_file late 'true')")
wait $!
[ "$(squeue -h -n late -o %i | wc -l)" -le 1 ] || die "more than one job"
hpctl wait "$late" >/dev/null || die "the late job ended with $?"

if [ "$HPCTL_TEST_NETNS" = true ]; then  # /tmp/hpctl-UID is each node's own
  echo "a checkpoint directory that is not shared"
  alone=/tmp/hpctl-$(id -u)/submit-test-$$
  code=0
  said=$(hpctl submit "$(job_file alone 'true' "checkpoint: {dir: $alone}")" --wait 2>&1) || code=$?
  [ "$code" -eq 2 ] || die "not shared: exit $code: $said"
  says "cannot see in the checkpoint directory" "$(tr -s ' \n' ' ' <<<"$said")"
else
  echo "not tested: a directory that is not shared (no namespaces here)"
fi
echo passed
