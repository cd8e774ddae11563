#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian packages of scripts/packages.txt (and any named as arguments) that are
# missing; with none missing it does nothing and needs no network and no rights.
set -euo pipefail
cd "$(dirname "$0")/.."

mapfile -t wanted < <(grep -v '^#' scripts/packages.txt; [ $# -eq 0 ] || printf '%s\n' "$@")
missing=()
for package in "${wanted[@]}"; do
  status=$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true)
  [ "$status" = "install ok installed" ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

echo "installing ${#missing[@]} packages: ${missing[*]}"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || {
    echo "error: not root and no sudo; ask an administrator to run:" >&2
    echo "  apt-get install -y --no-install-recommends ${missing[*]}" >&2
    exit 1
  }
  as_root=(sudo)
fi
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
  apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null

# Tests start their own daemons on their own sockets: what was installed just now stays off.
daemons=()
for daemon in munge prometheus slurmd slurmctld; do
  case " ${missing[*]} " in *" $daemon "*) daemons+=("$daemon") ;; esac
done
if [ ${#daemons[@]} -gt 0 ] && [ -d /run/systemd/system ]; then
  "${as_root[@]}" systemctl disable --quiet --now "${daemons[@]}"
fi
