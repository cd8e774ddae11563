#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs tests/gpu/run.sh --cpu as on a bare machine: in the system of another Debian release, with
# that release's torch and compiler, and with no header or library of OpenSSL and nlohmann json but
# those that run.sh --pack has taken from this machine.
#
#   tests/gpu/in_release.sh [--root DIR] [--gcc N] RELEASE [OPTION of run.sh]...
#   tests/gpu/in_release.sh --gcc 13 trixie --only build
#
#   RELEASE     of Debian: trixie (torch 2.6, g++ 14), sid, ...
#   --gcc N     g++-N of that release instead of its g++
#   --root DIR  the release's system is made in DIR and stays, or is taken from there
#
# Needs root, mount namespaces, the package debootstrap and its mirror, 4 GB. Exit codes: those of
# run.sh, 77 = cannot run here (the reason is on stderr).
set -euo pipefail

repo=$(realpath "$(dirname "$0")/../..")
. "$repo/scripts/release_root.sh"
usage() { sed -n '3,/^$/s/^# \{0,1\}//p' "$0" >&2; exit 2; }

arguments=("$@")
root=
gcc=
while [ $# -gt 1 ]; do
  case $1 in
    --root) root=$(realpath -m "$2"); shift 2 ;;
    --gcc) gcc=-$2; shift 2 ;;
    *) break ;;
  esac
done
case ${1:-} in "" | -*) usage ;; esac
release=$1
shift

packages=("g++$gcc" cmake ninja-build mold libtorch-dev python3-torch)
[ "$(id -u)" -eq 0 ] || skip "needs root: a system of its own"
in_own_namespace "${arguments[@]}"
"$repo/tests/gpu/run.sh" --pack
make_directories "$root"
make_root
enter_root
allow_old_lists
install_packages
# What other packages bring along is none of a bare machine's.
inside rm -rf /usr/include/nlohmann /usr/include/openssl /usr/include/x86_64-linux-gnu/openssl
inside find /usr/lib/x86_64-linux-gnu -maxdepth 1 \
  \( -name 'libssl.so' -o -name 'libssl.a' -o -name 'libcrypto.so' -o -name 'libcrypto.a' \) -delete
say "$release: $(inside "g++$gcc" --version | head -n 1), $(inside dpkg-query -W python3-torch)"
inside env CXX="g++$gcc" CC="gcc$gcc" "$repo/tests/gpu/run.sh" --cpu --build /hpctl-gpu "$@"
