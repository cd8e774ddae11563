#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the trainer with the compiler and LibTorch of another Debian release and runs it there.
#
#   scripts/try_libtorch.sh [--root DIR] [--cuda] RELEASE
#   scripts/try_libtorch.sh sid
#
#   RELEASE     of Debian: trixie (LibTorch 2.6), sid (2.14), ...
#   --cuda      LibTorch for GPUs, of contrib and non-free: compiled and linked, not run
#   --root DIR  the release's system is made in DIR and stays, or is taken from there
#
# Without --cuda: trainer_fsdp_test, and of trainer_worker_test jobs of two ranks. Needs root, mount
# namespaces, the package debootstrap and its mirror, 3 GB (--cuda: 25 GB). Exit codes: 0 = all
# passed, 1 = something did not, 2 = wrong usage, 77 = cannot run here (the reason is on stderr).
set -euo pipefail

repo=$(realpath "$(dirname "$0")/..")
. "$repo/scripts/release_root.sh"
usage() { sed -n '3,/^$/s/^# \{0,1\}//p' "$0" >&2; exit 2; }

arguments=("$@")
root=
cuda=false
while [ $# -gt 1 ]; do
  case $1 in
    --root) root=$(realpath -m "$2"); shift ;;
    --cuda) cuda=true ;;
    *) usage ;;
  esac
  shift
done
case ${1:-} in "" | -*) usage ;; esac
release=$1

packages=(g++ cmake ninja-build mold libgloo-dev libgmock-dev libssl-dev nlohmann-json3-dev procps)
libtorch="libtorch-dev"
targets=(hptrain trainer_fsdp_test trainer_worker_test)
if $cuda; then
  libtorch="libtorch-cuda-dev"
  targets=(hptrain trainer_fsdp_test)
  packages+=(libnccl-dev nvidia-cudnn)
fi
packages+=("$libtorch")

[ "$(id -u)" -eq 0 ] || skip "needs root: a system of its own"
in_own_namespace "${arguments[@]}"
make_directories "$root"
make_root
enter_root
allow_old_lists
if $cuda; then
  sed -E -i 's/ main( .*)?$/ main contrib non-free non-free-firmware/' "$root/etc/apt/sources.list"
fi
install_packages
say "$release: $(inside c++ --version | head -n 1)," "$(inside dpkg-query -W "$libtorch")"

build=/hpctl-build
inside cmake -S "$repo" -B "$build" -G Ninja -DHPCTL_TRAINER_ONLY=ON -DCMAKE_BUILD_TYPE=Release
inside cmake --build "$build" --target "${targets[@]}"
if $cuda; then
  say "compiled and linked; a GPU is what tests/gpu/run.sh needs"
  exit 0
fi
inside "$build/tests/trainer_fsdp_test"
inside env HPCTL_BIN="$build/bin" "$build/tests/trainer_worker_test" \
  --gtest_filter='Worker.EveryWorldSize*:Worker.Documents*'
