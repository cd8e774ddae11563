#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the trainer with the compiler and LibTorch of another Debian release and runs it there.
#
#   scripts/try_libtorch.sh [--root DIR] [--cuda] RELEASE
#   scripts/try_libtorch.sh sid
#
#   RELEASE     of Debian: trixie (LibTorch 2.6), sid (2.14), ...
#   --cuda      LibTorch for GPUs, of contrib and non-free; run on the CPU
#   --root DIR  the release's system is made in DIR and stays, or is taken from there
#
# Runs trainer_fsdp_test, trainer_run_test (attention by LibTorch's own calls is there) and of
# trainer_worker_test jobs of two ranks. With --cuda also trainer_nvrtc_test, by the NVRTC that
# comes along, and what is said where there is no GPU. No licence is agreed to: cuDNN, which
# Debian's package would download, is a stand-in that has its names alone.
#
# Needs root, mount namespaces, the package debootstrap and its mirror, 3 GB (--cuda: 10 GB). Exit
# codes: 0 = all passed, 1 = something did not, 2 = wrong usage, 77 = cannot run here (the reason is
# on stderr).
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

packages=(g++ cmake ninja-build mold libgmock-dev libssl-dev nlohmann-json3-dev procps)
targets=(hptrain trainer_fsdp_test trainer_run_test trainer_worker_test)
if $cuda; then
  libtorch="libtorch-cuda-dev"
  packages+=(libgloo-cuda-dev libnccl-dev nvidia-cudnn)
  # The two checks compare our declarations with the vendor's headers.
  targets+=(trainer_nvrtc_test nccl_headers_check cuda_headers_check)
else
  libtorch="libtorch-dev"
  packages+=(libgloo-dev)
fi
packages+=("$libtorch")

# A library that has cuDNN's names, so that LibTorch for GPUs can be loaded where there is none.
make_cudnn_names() {
  local libraries=/usr/lib/x86_64-linux-gnu
  [ ! -e "$root$libraries/libcudnn.so.9" ] || return 0
  inside nm -D --undefined-only "$libraries/libtorch_cuda.so" |
    sed -n 's/^ *U \(cudnn[A-Za-z0-9_]*\).*/void \1(void) { __builtin_trap(); }/p' |
    inside c++ -shared -fPIC -x c - -Wl,-soname,libcudnn.so.9,--default-symver \
      -o "$libraries/libcudnn.so.9"
}

[ "$(id -u)" -eq 0 ] || skip "needs root: a system of its own"
in_own_namespace "${arguments[@]}"
make_directories "$root"
make_root
enter_root
allow_old_lists
if $cuda; then
  sed -E -i 's/ main( .*)?$/ main contrib non-free non-free-firmware/' "$root/etc/apt/sources.list"
  # Else its package agrees to NVIDIA's licence by itself and downloads the library.
  echo "nvidia-cudnn nvidia-cudnn/question select I Decline" | inside debconf-set-selections
fi
install_packages
say "$release: $(inside c++ --version | head -n 1)," "$(inside dpkg-query -W "$libtorch")"
if $cuda; then make_cudnn_names; fi

build=/hpctl-build
inside cmake -S "$repo" -B "$build" -G Ninja -DHPCTL_TRAINER_ONLY=ON -DCMAKE_BUILD_TYPE=Release
inside cmake --build "$build" --target "${targets[@]}"

test_inside() {
  inside env OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 HPCTL_BIN="$build/bin" "${cpu[@]}" \
    "$build/tests/$1" "${@:2}"
}
cpu=()
if $cuda; then
  test_inside trainer_nvrtc_test
  test_inside trainer_worker_test --gtest_filter='Worker.AMissingGpu*'
  cpu=(CUDA_VISIBLE_DEVICES=)
fi
test_inside trainer_fsdp_test
test_inside trainer_run_test
test_inside trainer_worker_test --gtest_filter='Worker.EveryWorldSize*:Worker.Documents*'
