#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The tests of this directory on the Slurm of another Debian release, as on a cluster that is newer
# than the build machine: the programs come as the bundle of this machine's build, and
# install_hpctl.sh compiles hpslurm and the plugin there.
#
#   tests/slurm/in_release.sh [--root DIR] RELEASE [TEST...]
#   tests/slurm/in_release.sh trixie hpslurm_test slurm_job_test
#
#   RELEASE     of Debian: trixie (Slurm 24.11), forky (newer), ...
#   TEST        names of ctest, patterns as well; without any, all that run there
#   --root DIR  the release's system is made in DIR and stays, or is taken from there
#
# Needs root, mount namespaces, the package debootstrap, its mirror and build/release. Exit codes:
# of ctest; 77 = cannot run here (the reason is on stderr).
#
# Theory of operation. All happens in a mount namespace of its own, so no mount outlives it. The
# system has this repository under the same path, read-only; in place of build/release stand the
# installed bundle, the test programs (which take their libraries from it) and ctest's list.
set -euo pipefail

say() { echo "in_release: $*" >&2; }
fail() { say "error: $*"; exit 1; }
skip() { say "skipped: $*"; exit 77; }
usage() { sed -n '3,/^$/s/^# \{0,1\}//p' "$0" | sed '/^Theory/,$d' >&2; exit 2; }

repo=$(realpath "$(dirname "$0")/../..")
build=$repo/build/release
packages=(slurmctld slurmd slurm-client munge libslurm-dev g++ cmake iproute2 procps jq)

arguments=("$@")
root=
if [ "${1:-}" = --root ]; then
  root=$(realpath -m "${2:?}")
  shift 2
fi
[ $# -gt 0 ] || usage
release=$1
shift

[ "$(id -u)" -eq 0 ] || skip "needs root: slurmd, network namespaces and a system of its own"
[ -x "$build/tests/hpslurm_test" ] || fail "build first: scripts/build.sh release"
if [ -z "${HPCTL_IN_RELEASE:-}" ]; then
  unshare --mount true 2>/dev/null || skip "mount namespaces are not allowed here"
  HPCTL_IN_RELEASE=1 exec unshare --mount --propagation private "$0" "${arguments[@]}"
fi

inside() {
  env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
    DEBIAN_FRONTEND=noninteractive chroot "$root" "$@"
}

kill_inside() {  # what still runs in the system; nothing, if its clusters went down
  local process
  for process in /proc/[0-9]*; do
    [ "$(readlink "$process/root")" = "$root" ] || continue
    kill -KILL "${process#/proc/}" 2>/dev/null || true
  done
}

leave() {
  kill_inside
  rm -rf "$stage"
  # Nothing is removed through a mount: this repository is one of them.
  while mountpoint -q "$root"; do
    umount -lR "$root" || { say "warning: $root cannot be unmounted and stays"; return 0; }
  done
  $keep || rm -rf --one-file-system "$root"
}

make_root() {
  local scripts newer=()  # its own mirror, for a release that it does not know
  if [ ! -e "$root/etc/debian_version" ]; then
    command -v debootstrap >/dev/null || skip "no debootstrap: install the package debootstrap"
    say "debootstrap of $release"
    scripts=/usr/share/debootstrap/scripts
    [ -e "$scripts/$release" ] || newer=("" "$scripts/sid")
    debootstrap --variant=minbase "$release" "$root" "${newer[@]}" >"$stage/log" 2>&1 || {
      tail -n 5 "$stage/log" >&2
      skip "debootstrap $release failed (is its mirror reachable?)"
    }
  fi
  chmod 755 "$root"
}

install_packages() {
  # Daemons are started by the tests, on their own sockets.
  printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
  chmod +x "$root/usr/sbin/policy-rc.d"
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  printf '127.0.0.1 localhost %s\n' "$(hostname)" >"$root/etc/hosts"
  inside dpkg-query -W "${packages[@]}" >/dev/null 2>&1 || {
    inside apt-get update -qq
    inside apt-get install -y -qq --no-install-recommends "${packages[@]}" >"$stage/log" 2>&1 || {
      tail -n 5 "$stage/log" >&2
      fail "packages of $release cannot be installed: ${packages[*]}"
    }
  }
}

enter_root() {
  local place
  mount --bind "$root" "$root"
  mount -t proc proc "$root/proc"
  for place in sys dev; do
    mount --rbind "/$place" "$root/$place"
    mount --make-rprivate "$root/$place"
  done
  mkdir -p "$root$repo" "$root/hpctl-build"
  mount --rbind "$repo" "$root$repo"
  mount -o remount,bind,ro "$root$repo"
  rm -rf "$root"/hpctl-build/*
  mount --bind "$root/hpctl-build" "$root$build"
}

install_programs() {
  (cd "$repo" && scripts/bundle.sh release "$root/hpctl-bundle.tar.gz")
  inside "$repo/deploy/hyperpod/install_hpctl.sh" --bundle /hpctl-bundle.tar.gz
  ln -sT /opt/hpctl/bin "$root$build/bin"
  ln -sT /opt/hpctl/lib "$root$build/lib"
}

install_tests() {
  local there=$root$build/tests program plugin
  mkdir -p "$there"/{plugins,slurm}
  cp "$build/tests/slurm/CTestTestfile.cmake" "$there/slurm/"
  for program in "$build"/tests/{hpslurm_test,slurm_*_test}; do
    strip -o "$there/$(basename "$program")" "$program"
    patchelf --force-rpath --set-rpath /opt/hpctl/lib "$there/$(basename "$program")"
  done
  for plugin in container other_auto_resume; do
    inside cc -std=gnu11 -O2 -fPIC -shared "$repo/tests/slurm/plugins/$plugin.c" \
      -o "$build/tests/plugins/spank_$plugin.so"
  done
}

keep=true
if [ -z "$root" ]; then
  keep=false
  root=$(mktemp -d "${TMPDIR:-/tmp}/hpctl-$release.XXXXXX")
fi
stage=$(mktemp -d "${TMPDIR:-/tmp}/hpctl-in-release.XXXXXX")
trap leave EXIT
trap 'exit 1' INT TERM HUP
make_root
enter_root
install_packages
install_programs
install_tests
say "$release: Slurm $(inside slurmctld -V), $(inside cc --version | head -n 1)"
tests=$(IFS='|'; echo "${*:-.*}")
# slurm_hyperpod_install builds a bundle; what it shows has been done above.
inside ctest --test-dir "$build/tests/slurm" --output-on-failure -R "^($tests)$" \
  -E '^slurm_hyperpod_install$'
