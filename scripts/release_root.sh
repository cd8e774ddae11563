# SPDX-License-Identifier: Apache-2.0
# For scripts that work in the system of another Debian release: source it. Functions only; they use
#
#   repo     this repository, which the system has under the same path, read-only
#   release  of Debian
#   root     the system's directory; keep = true: it stays
#   stage    a directory for what lies around meanwhile
#
# Needs root. All happens in a mount namespace of its own, so no mount outlives it.
# shellcheck shell=bash disable=SC2154

say() { echo "$(basename "$0" .sh): $*" >&2; }
fail() { say "error: $*"; exit 1; }
skip() { say "skipped: $*"; exit 77; }

# Starts the script again in a mount namespace; its arguments.
in_own_namespace() {
  [ -z "${HPCTL_IN_RELEASE:-}" ] || return 0
  unshare --mount true 2>/dev/null || skip "mount namespaces are not allowed here"
  HPCTL_IN_RELEASE=1 exec unshare --mount --propagation private "$0" "$@"
}

# The directories, which leave() removes at the end. "" = a system that does not stay.
make_directories() {
  root=$1
  keep=true
  if [ -z "$root" ]; then
    keep=false
    root=$(mktemp -d "${TMPDIR:-/tmp}/hpctl-$release.XXXXXX")
  fi
  stage=$(mktemp -d "${TMPDIR:-/tmp}/hpctl-in-release.XXXXXX")
  trap leave EXIT
  trap 'exit 1' INT TERM HUP
}

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

# A mirror may lag behind the dates that its lists promise.
allow_old_lists() {
  echo 'Acquire::Check-Valid-Until "false";' >"$root/etc/apt/apt.conf.d/90hpctl"
}

# Those of the array `packages`.
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
  # /dev is the system's own, which debootstrap has made: CUDA's libraries make devices in it.
  for place in sys dev/shm; do
    mount --rbind "/$place" "$root/$place"
    mount --make-rprivate "$root/$place"
  done
  mkdir -p "$root$repo"
  mount --rbind "$repo" "$root$repo"
  mount -o remount,bind,ro "$root$repo"
}
