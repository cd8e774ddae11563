# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154,SC2034
# Part of run.sh: jobs of both releases follow each other in one checkpoint directory, which has an
# owner.json or has none, and a job with a mirror. Each job has the same training, so the last one
# ends with the state of one that nobody disturbed.
#
# The older release may know no owners, and no mirror. It cannot read a home that the newer one has
# served, so its second job has a home of its own.

owned=$work/owned
record() { find "$owned/generations" -name '[0-9]*.json' | sort -V | tail -n 1; }
owner() { jq -r ".$1" "$owned/owner.json" 2>/dev/null; }
owned_yaml() { # owned_yaml NAME
  checkpoint_more=", dir: $owned"
  job_yaml "$1" >"$work/$1.yaml"
  checkpoint_more=
}
submit_owned() { hpctl "$1" submit --local --json "$work/$2.yaml" "${@:3}" | jq -r .job; }
start_owned() { # start_owned RELEASE NAME
  owned_yaml "$2"
  # An older release that knows owners may be unable to read the home of the former one.
  job=$(submit_owned "$1" "$2") || job=$(submit_owned "$1" "$2" --take-directory)
  job_dir=$HPCTL_HOME/jobs/$job
  echo "== job $job of $HPCTL_HOME: $2, of the $1 release"
  await "$2 trains" is_running
  trains_on
}
refuses() { # refuses NAME: the newer hpctl gives its directory to no other job
  local said
  owned_yaml another
  said=$(outcome hpctl new submit --local "$work/another.yaml")
  check_has "$1 lives, and keeps its directory" "\"$1\"" "$said"
  check_has "another job is refused" "--take-directory" "$said"
}
is_cancelled() { [ "$(status .state)" = CANCELLED ]; }
end_owned() { # end_owned RELEASE: cancelled, so that it saves and the next one goes on
  check_has "hpctl cancel of the $1 release" "exit 0" "$(outcome hpctl "$1" cancel "$job")"
  await "it ends" is_cancelled
  end_processes
}
goes_on() { # goes_on NAME FORMER: NAME has the directory, and what FORMER had saved
  check "$1 owns the directory" "$1" "$(owner name)"
  check "after $2" "$2" "$(owner former.name)"
  check "and goes on from its checkpoint" true "$(jq '.start_step > 0' "$(record)")"
}

forget_owner() { # as a release without owners leaves the directory
  local record
  rm -f "$owned/owner.json"
  for record in "$owned"/generations/*.json; do
    jq 'del(.job_uuid)' "$record" >"$record.new" && mv "$record.new" "$record"
  done
}

# --- without owner.json ---------------------------------------------------------------------------
start_owned old before
forget_owner
refuses before
serve_home_by new
kill_worker 0
check "which owns its directory from then on" before "$(owner name)"
end_owned new
forget_owner
start_owned new after
goes_on after before
uuid=$(owner uuid)
refuses after
kill_worker 0
check "it is the same job's through a recovery" "$uuid" "$(owner uuid)"
end_owned new

# --- with owner.json, and a job of the older release in it ----------------------------------------
former_home=$HPCTL_HOME
export HPCTL_HOME=$work/older-home
start_owned old older-again
refuses older-again
end_owned old
start_owned new last
check "last owns the directory" last "$(owner name)"
check_has "it finishes" "exit 0" "$(outcome timeout 300 "$work/new/hpctl" wait "$job")"
check_promise digest "with the state of one that nobody disturbed" "$undisturbed" \
  "$(hpctl new checkpoint digest "$owned" | cut -d' ' -f1)"
end_processes
remove_sockets 2>/dev/null || true
export HPCTL_HOME=$former_home

# --- a mirror -------------------------------------------------------------------------------------
controller_pid() { jq -r .pid "$(newest_record)"; }
checkpoint_more=", mirror: {dir: $work/mirror}"
new_job mirrored new
checkpoint_more=
said=$(outcome hpctl old submit "$work/mirrored.yaml" --dry-run)
[[ $said == *"exit 0"* ]] ||
  check_has "an older hpctl names the key that it does not know" mirror "$said"
start_controller new n0
start_agent old n0
start_agent new n1
await "an old and a new agent train with a mirror" is_generation 1
trains_on
is_mirrored() { [ -n "$(find "$work/mirror" -name manifest.json 2>/dev/null)" ]; }
await "the mirror has a checkpoint" is_mirrored
ask old
kill_worker 0
kill_controller new n0
kill_worker 3
finish
check "the mirror is the job's" "$job" "$(jq -r .job "$work/mirror/owner.json")"
end_processes
