#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian packages that are missing. If none is, it needs no network and no rights.
#   scripts/install_packages.sh                            every section of scripts/packages.txt
#   scripts/install_packages.sh --for SECTION [PACKAGE...] one section, and the packages named
#   scripts/install_packages.sh PACKAGE...                 every section, and the packages named
set -euo pipefail
cd "$(dirname "$0")/.."

section=
if [ "${1:-}" = --for ]; then
  section=$2
  grep -qxF "[$section]" scripts/packages.txt || {
    echo "install_packages.sh: scripts/packages.txt has no section [$section]" >&2
    exit 1
  }
  shift 2
fi
mapfile -t wanted < <(
  awk -v section="$section" '
    /^\[/ { current = substr($0, 2, length($0) - 2); next }
    /^[^#]/ && (section == "" || section == current)' scripts/packages.txt
  [ $# -eq 0 ] || printf '%s\n' "$@"
)
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
