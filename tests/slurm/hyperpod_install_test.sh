#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The lifecycle step deploy/hyperpod/install_hpctl.sh: on made-up nodes of every kind with stand-in
# compilers, then against the test cluster with the real ones.
# Usage: … BUILD_DIRECTORY
# shellcheck disable=SC2016,SC2154
set -euo pipefail
here=$(dirname "$(realpath "$0")")
cluster_options=--configless
# shellcheck source=tests/slurm/auto_resume_setup.sh
. "$here/auto_resume_setup.sh" "$1" 2
repo=$(realpath "$here/../..")
rm -f "$HPCTL_TEST_CLUSTER"/plugstack.d/*

# A bundle with the shape of one.
mkdir -p "$work"/made/hpctl/{bin,lib,libexec,share/hpctl/src/{slurm-plugins,common}}
printf '#!/bin/sh\necho runs\n' | tee "$work"/made/hpctl/bin/{hpctl,hpagent} >/dev/null
chmod +x "$work"/made/hpctl/bin/*
cp "$repo/deploy/systemd/hpctl-tmpfiles.conf" "$work/made/hpctl/share/hpctl/"
bundle=$work/made/hpctl-bundle.tar.gz
tar -C "$work/made" -czf "$bundle" hpctl

# Both compilers: what they are to write is there, and no more.
mkdir "$work/stand_ins"
cat >"$work/stand_ins/cc" <<'CC'
#!/bin/sh
while [ "$1" != -o ]; do shift; done
echo compiled >"$2"
chmod +x "$2"
CC
chmod +x "$work/stand_ins/cc"
cp "$work/stand_ins/cc" "$work/stand_ins/c++"

step() { # step ROOT ARGUMENTS...: as a node's lifecycle script calls it
  local root=$1
  shift
  HPCTL_ROOT=$root SLURM_CONF='' PATH=$work/stand_ins:$PATH \
    outcome "$repo/deploy/hyperpod/install_hpctl.sh" "$@" --bundle "$bundle"
}
node() { # node NAME: a root with Slurm's headers and library
  root=$work/roots/$1
  mkdir -p "$root"/opt/slurm/{include/slurm,lib,etc,bin}
  touch "$root"/opt/slurm/include/slurm/{spank,slurm_version}.h "$root/opt/slurm/lib/libslurm.so"
}
tree() {
  (cd "$1" && find . -printf '%p %l %m ' \( -type f -exec sha256sum {} \; -o -printf '\n' \))
}
await_line() { # await_line FILE: slurmd writes it when slurmctld has told it to
  local until=$((SECONDS + 60))
  until [ "$(lines "$1")" = 1 ]; do
    [ $SECONDS -lt $until ] || { check "the line in $1" 1 "$(lines "$1")"; return 0; }
    sleep 0.1
  done
}
lines() { grep -cE 'hpctl_auto_resume\.so' "$1" || true; }

# --- controller of a configless cluster ---------------------------------------------------------
node controller
etc=$root/opt/slurm/etc
printf 'SlurmctldParameters=enable_configless\nPlugStackConfig=/opt/slurm/etc/plugstack.conf\n' \
  >"$etc/slurm.conf"
printf '# plugins\nrequired /x/spank_pyxis.so\ninclude /opt/slurm/etc/plugstack.conf.d/*.conf\n' \
  >"$etc/plugstack.conf"
mkdir "$etc/plugstack.conf.d"
printf '#!/bin/sh\n[ "$1" != ping ] || echo "Slurmctld(primary) at here is UP"\necho "$1" >>%s\n' \
  "$work/scontrol_calls" >"$root/opt/slurm/bin/scontrol"
chmod +x "$root/opt/slurm/bin/scontrol"
before=$(tree "$root")
told=$(step "$root")
check_has "it says where the line is" "$etc/plugstack.conf loads the plugin" "$told"
check_has "and tells slurmctld" "was told to hand out" "$told"
check "in the main file, whole" "optional $root/opt/hpctl/lib/hpctl_auto_resume.so" \
  "$(tail -n 1 "$etc/plugstack.conf")"
check "hpctl is found" "$root/opt/hpctl/bin/hpctl" "$(readlink "$root/usr/local/bin/hpctl")"
check "and runs" runs "$("$root/usr/local/bin/hpctl")"
once=$(tree "$root")
told=$(step "$root")
check_has "the second time" "no change" "$told"
check "nothing has changed" "$once" "$(tree "$root")"
check "slurmctld was told once" 1 "$(grep -c reconfigure "$work/scontrol_calls")"
old=$(readlink "$root/opt/hpctl")
echo '/* another release */' >>"$root/opt/slurm/include/slurm/slurm_version.h"
told=$(step "$root")
check_has "another Slurm: built again" "version" "$told"
check "the line is there once" 1 "$(lines "$etc/plugstack.conf")"
check "the version before stays for jobs" yes \
  "$([ -d "$root/opt/$old" ] && [ "$(readlink "$root/opt/hpctl")" != "$old" ] && echo yes)"
: >"$root/opt/slurm/include/slurm/slurm_version.h"
printf '#!/bin/sh\necho "no such header" >&2\nexit 1\n' >"$work/stand_ins/cc"
was=$(tree "$root/opt")
head -c 100 "$bundle" >"$work/cut.tar.gz"
check_has "half a bundle" "cannot be unpacked" "$(bundle=$work/cut.tar.gz step "$root")"
gunzip -c "$bundle" | gzip -1 >"$work/other.tar.gz"  # another version
told=$(bundle=$work/other.tar.gz step "$root")
check_has "it does not compile: said" "do not compile" "$told"
check_has "and a failure" "exit 1" "$told"
check "that changes nothing" "$was" "$(tree "$root/opt")"
cp "$work/stand_ins/c++" "$work/stand_ins/cc"
step "$root" uninstall >/dev/null
rmdir "$root/usr/local/bin" "$root/usr/local" "$root/usr"
check "uninstalled: as before" "$before" "$(tree "$root")"
check_has "again" "nothing of hpctl is installed" "$(step "$root" uninstall)"

# --- another plugin has the option --------------------------------------------------------------
node other
etc=$root/opt/slurm/etc
touch "$etc/slurm.conf"
echo "… auto-resume …" >"$root/aws.so"
echo "optional $root/aws.so" >"$etc/plugstack.conf"
check_has "said" "$root/aws.so stands first and has --auto-resume" "$(step "$root")"
check_lacks "--first" "stands first" "$(step "$root" --first)"
check "order" "hpctl_auto_resume.so aws.so" \
  "$(xargs -n2 <"$etc/plugstack.conf" | xargs -n1 basename |
  grep so | xargs)"
check_has "--first again" "no change" "$(step "$root" --first)"

# --- a directory for plugins, each node with its own configuration ------------------------------
node debian
mv "$root/opt/slurm/etc" "$root/etc" && mkdir "$root/etc/slurm" "$root/etc/slurm/plugstack.conf.d"
mkdir "$root/etc/tmpfiles.d"  # this one has systemd
touch "$root/etc/slurm/slurm.conf"
echo 'include /etc/slurm/plugstack.conf.d/*.conf' >"$root/etc/slurm/plugstack.conf"
step "$root" >/dev/null
check "a file of its own" 1 "$(lines "$root/etc/slurm/plugstack.conf.d/hpctl.conf")"
check "the main file is as it was" 0 "$(lines "$root/etc/slurm/plugstack.conf")"
check "jobs' files in /tmp are kept" "x /tmp/hpctl-*" \
  "$(grep -v '^#' "$root/etc/tmpfiles.d/hpctl.conf")"
check_has "the second time" "no change" "$(step "$root")"
echo '# an older one' >"$root/etc/tmpfiles.d/hpctl.conf"
check_has "brought up to date" "hpctl.conf keeps what running jobs have" "$(step "$root")"
step "$root" uninstall >/dev/null
check "gone" "" "$(find "$root"/etc/{slurm/plugstack.conf.d,tmpfiles.d} -type f)"

# --- configless: the node's copy is slurmd's ----------------------------------------------------
node compute
cache=$root/var/spool/slurmd/conf-cache
mkdir -p "$cache" "$root/etc"
echo 'SlurmctldParameters=enable_configless' >"$cache/slurm.conf"
echo 'required /x/spank_pyxis.so' >"$cache/plugstack.conf"
ln -s "$cache" "$root/etc/slurm"
cached=$(tree "$cache")
told=$(step "$root")
check_has "it says who has the line" "gets plugstack.conf from the controller" "$told"
check "the copy is untouched" "$cached" "$(tree "$cache")"
check "the plugin is there" compiled "$(cat "$root/opt/hpctl/lib/hpctl_auto_resume.so")"
check_has "the second time" "no change" "$(step "$root")"

# --- less than a node of a cluster --------------------------------------------------------------
root=$work/roots/bare
mkdir -p "$root/opt/hpctl"
check_has "somebody else's directory" "is not of this script" "$(step "$root")"
rmdir "$root/opt/hpctl"
rm -rf "$root"/opt/hpctl-*
told=$(step "$root")
check_has "without Slurm" "neither plugin nor hpslurm" "$told"
check_has "the programs are installed" "exit 0" "$told"
check_has "wrong usage" "exit 2" "$(step "$root" --frist)"

# --- the real thing -----------------------------------------------------------------------------
root=$work/roots/real
mkdir -p "$root"
bundle=$work/hpctl-bundle.tar.gz
(cd "$repo" && scripts/bundle.sh "$(basename "$build")" "$bundle" \
  hpctl hpcontroller hpcontroller-step hpagent hpagent-shim) || exit 1
real() { HPCTL_ROOT=$root SLURM_PREFIX=/usr outcome "$repo/deploy/hyperpod/install_hpctl.sh" "$@"; }
survives='[ "$TORCHELASTIC_RESTART_COUNT" -gt 0 ] || kill -KILL $$'
resume() { timeout 60 srun -Q --auto-resume=1 -N2 -n2 sh -c "$survives" </dev/null; }
check_lacks "before: an option that srun does not know" "exit 0" "$(outcome resume)"
stack=$HPCTL_TEST_CLUSTER/plugstack.conf
cp "$stack" "$work/plugstack.before"
cached=$HPCTL_TEST_CLUSTER/nodes/n1/spool/conf-cache
told=$(real --bundle "$bundle")
check_has "installed" "built for the Slurm in /usr" "$told"
check_has "the nodes get it" "scontrol reconfigure" "$told"
await_line "$cached/plugstack.conf"
told=$(outcome resume)
check_has "srun --auto-resume=1 restarts" "start again" "$told"
check_has "and finishes" "exit 0" "$told"
printf 'name: x\nnodes: 1\nslurm: {partition: nowhere}\nworkload: {command: ["true"]}\n' \
  >"$work/x.yaml"
check_has "hpslurm reaches Slurm" "nvalid partition" \
  "$(HPCTL_HOME=$work/home outcome "$root/usr/local/bin/hpctl" submit "$work/x.yaml")"
told=$(HPCTL_HOME=$work/home outcome "$root/usr/local/bin/hpctl" submit "$work/x.yaml" --dry-run)
check_has "jobs call what runs on any node" "$(realpath "$root/opt/hpctl")/bin" "$told"
check_lacks "and not what suits this one alone" "/libexec" "$told"
check "hpctl runs" 0 "$("$root/usr/local/bin/hpctl" --help >/dev/null; echo $?)"
once=$(tree "$root/opt" | cksum)$(cksum <"$stack")
check_has "installed again" "no change" "$(real --bundle "$bundle")"
check "no change it is" "$once" "$(tree "$root/opt" | cksum)$(cksum <"$stack")"
told=$(HPCTL_ROOT=$work/roots/n1 SLURM_CONF=$cached/slurm.conf SLURM_PREFIX=/none outcome \
  "$repo/deploy/hyperpod/install_hpctl.sh" --bundle "$work/made/hpctl-bundle.tar.gz")
check_has "on a node: programs" "version" "$told"
check "on a node: its copy is slurmd's" 1 "$(lines "$cached/plugstack.conf")"
check_has "uninstalled" "is gone" "$(real uninstall)"
check "plugstack.conf is as before" "" "$(diff "$work/plugstack.before" "$stack")"
check_lacks "the option is gone" "exit 0" "$(outcome resume)"
check "and srun works" "exit 0" "$(outcome srun -Q -N2 true)"
finish
