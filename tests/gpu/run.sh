#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds hptrain against the LibTorch inside this machine's Python, then on its GPU holds each
# kernel against its reference (kernels_check.cc), runs the checks and the benchmark of measure.py,
# and prints a roofline of one step. One command, on any machine with an NVIDIA GPU:
#
#   tests/gpu/run.sh [--only PART] [--out DIR] [--build DIR] [--python PROGRAM] [--cpu]
#
# PART: checks, benchmark or roofline, where a machine is lent for too short a time for all; how
# long each took is printed. Writes DIR/results.json and DIR/results.md (build/gpu/results by
# default) after each row, and the logs of runs that failed to DIR/failed. A check that fails, or a
# run that hangs (180 s on a GPU), keeps no other from being made.
#
# Needs a C++20 compiler, CMake 3.18, Ninja or make, OpenSSL's and nlohmann json's headers, and a
# Python with torch 2.4 or newer, of either C++ ABI; no CUDA toolkit, no protobuf, no gRPC, no Gloo.
# Packages that are unpacked elsewhere: CPATH names the directories of their headers,
# CMAKE_PREFIX_PATH the prefix of their libraries. --cpu runs the same steps with a small model and
# without a GPU, also with an older torch, to try the script itself. Exit codes: 0 all checks
# passed, 1 a check failed, 2 something is missing or does not build, or wrong usage.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)

usage() {
  echo "usage: tests/gpu/run.sh [--only checks|benchmark|roofline] [--out DIR] [--build DIR]" >&2
  echo "                        [--python PROGRAM] [--cpu]" >&2
  exit 2
}

device=cuda
build=$root/build/gpu
out=
only=
python=python3
while [ $# -gt 0 ]; do
  case $1 in
    --cpu) device=cpu ;;
    --only | --out | --build | --python)
      [ $# -ge 2 ] || usage
      declare "${1#--}=$2"
      shift
      ;;
    *) usage ;;
  esac
  shift
done
out=${out:-$build/results}
case $only in
  "" | checks | benchmark | roofline) ;;
  *) usage ;;
esac

complaint=$(mktemp)
trap 'rm -f "$complaint"' EXIT
missing=()
need() { missing+=("$*"); }
complained() { sed -n '$s/^/: /p' "$complaint"; }
# Prints its version, whether that is new enough, its C++ ABI (1 = C++11's), whether it sees a GPU,
# and .../torch/share/cmake.
ask_torch() {
  "$python" - 2>"$complaint" <<'EOF'
import torch
recent = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 4)
print(torch.__version__, "new" if recent else "old", int(torch._C._GLIBCXX_USE_CXX11_ABI),
      torch.cuda.is_available(), torch.utils.cmake_prefix_path)
EOF
}

compiler=${CXX:-c++}
if command -v "$compiler" >/dev/null; then
  compiles() { echo "#include <$1>" | "$compiler" -std=c++20 -fsyntax-only -x c++ - 2>/dev/null; }
  compiles concepts || need "a compiler of C++20 ($compiler is not one; set CXX)"
  compiles openssl/evp.h || need "OpenSSL's headers (libssl-dev)"
  compiles nlohmann/json.hpp || need "nlohmann json (nlohmann-json3-dev; CPATH may name its place)"
else
  need "a C++20 compiler ($compiler is not there; set CXX)"
fi
cmake_version=$({ cmake --version 2>/dev/null || true; } | sed -n 's/^cmake version //p')
[ "$(printf '%s\n' 3.18 "${cmake_version:-0}" | sort -V | head -n 1)" = 3.18 ] ||
  need "cmake 3.18 or newer (${cmake_version:-none} is there; pip install cmake)"
generator=Ninja
command -v ninja >/dev/null || generator="Unix Makefiles"
[ "$generator" = Ninja ] || command -v make >/dev/null || need "ninja or make"

if read -r version age abi sees_gpu torch_cmake < <(ask_torch); then
  if [ "$device" = cuda ]; then
    [ "$age" = new ] || need "torch 2.4 or newer ($python has $version)"
    [ "$sees_gpu" = True ] ||
      need "an NVIDIA GPU that torch sees (torch.cuda.is_available() is False;" \
        "see nvidia-smi)$(complained)"
  fi
else
  need "torch in $python (--python PROGRAM names another)$(complained)"
fi
if [ ${#missing[@]} -gt 0 ]; then
  printf 'tests/gpu/run.sh: missing: %s\n' "${missing[@]}" >&2
  exit 2
fi

# Wheels up to 2.6 are of the old C++ ABI, mostly; what we link beside LibTorch is C.
flags="-O2 -g1"
[ "$abi" = 1 ] || flags+=" -D_GLIBCXX_USE_CXX11_ABI=0"
# A wheel's LibTorch has a Gloo inside, and another one beside it would clash. Several ranks are
# tried on GPUs only.
cmake -S "$root" -B "$build" -G "$generator" -DHPCTL_TRAINER_ONLY=ON -DCMAKE_BUILD_TYPE=Release \
  "-DCMAKE_CXX_FLAGS_RELEASE=$flags" "-DCMAKE_PREFIX_PATH=${torch_cmake%/share/cmake}" \
  -DGLOO_INCLUDE_DIR= -DGLOO_LIBRARY= || exit 2
cmake --build "$build" --parallel --target hptrain hptrain_engine || exit 2
# Where this does not build, its check fails, and the others are made.
cmake --build "$build" --parallel --target kernels_check stub_cuda stub_nvrtc || true
"$build/bin/hptrain" --version || exit 2
"$python" "$root/tests/gpu/measure.py" --hptrain "$build/bin/hptrain" --device "$device" \
  --kernels-check "$build/tests/kernels_check" --out "$out" ${only:+--only "$only"}
