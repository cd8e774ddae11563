#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The trainer beside PyTorch's FSDP2 in fp32, 4096 tokens of each of two workers a step: this
# machine's build of hptrain, one made for the LibTorch of another Debian release, and that
# release's python3-torch, in turn. Before that the second hptrain beside the release's
# DistributedDataParallel, 128 tokens of each of one, two and four workers.
#
#   fsdp2.sh BUILD_DIRECTORY [--root DIR] [RELEASE]
#
#   BUILD_DIRECTORY  has tests/bench_trainer and bin/hptrain
#   --root DIR       the release's system is made in DIR and stays, or is taken from there
#   RELEASE          sid: PyTorch 2.14
#
# Needs root, mount namespaces, the package debootstrap and its mirror, 4 GB. Prints two tables,
# then one line of JSON. Exit codes: 0 = done, 1 = failed, 2 = wrong usage, 77 = cannot run here.
set -euo pipefail

repo=$(realpath "$(dirname "$0")/../..")
. "$repo/scripts/release_root.sh"
usage() { sed -n '3,/^$/s/^# \{0,1\}//p' "$0" >&2; exit 2; }

[ $# -ge 1 ] && [ -x "$1/bin/hptrain" ] && [ -x "$1/tests/bench_trainer" ] || usage
arguments=("$(realpath "$1")" "${@:2}")
ours=${arguments[0]}
shift
root=
if [ "${1:-}" = --root ]; then
  [ $# -ge 2 ] || usage
  root=$(realpath -m "$2")
  shift 2
fi
release=${1:-sid}
case $release in -*) usage ;; esac

# PyTorch multiplies matrices with what libopenblas0-pthread brings, else ten times slower.
packages=(g++ cmake ninja-build mold libgloo-dev libssl-dev nlohmann-json3-dev libtorch-dev
          python3-torch libopenblas0-pthread)

[ "$(id -u)" -eq 0 ] || skip "needs root: a system of its own"
in_own_namespace "${arguments[@]}"
make_directories "$root"
make_root
enter_root
allow_old_lists
install_packages
say "$release: $(inside dpkg-query -W libtorch-dev python3-torch libopenblas0-pthread | xargs)"
{
  inside cmake -S "$repo" -B /hpctl-build -G Ninja -DHPCTL_TRAINER_ONLY=ON \
    -DCMAKE_BUILD_TYPE=Release
  inside cmake --build /hpctl-build --target hptrain
} >"$stage/log" || {
  tail -n 20 "$stage/log" >&2
  fail "hptrain cannot be built on $release"
}

# Programs of the release that see the runs' directories and their environment.
mount --rbind /tmp "$root/tmp"
mount --bind /usr/share/common-licenses "$root/usr/share/common-licenses"
for program in python3:/usr/bin/python3 "hptrain-$release:/hpctl-build/bin/hptrain"; do
  printf '#!/bin/sh\nexec chroot %s %s "$@"\n' "$root" "${program#*:}" >"$stage/${program%%:*}"
  chmod +x "$stage/${program%%:*}"
done
"$ours/tests/bench_trainer" --ddp "$repo/tests/bench/peers" "$stage/python3" \
  "$stage/hptrain-$release"
"$ours/tests/bench_trainer" --fsdp2 "$repo/tests/bench/peers" "$stage/python3" \
  "$ours/bin/hptrain" "$stage/hptrain-$release"
