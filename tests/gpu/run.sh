#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds hptrain against the LibTorch inside this machine's Python, then runs the checks and the
# benchmark of measure.py on its GPU. One command, on any machine with an NVIDIA GPU:
#
#   tests/gpu/run.sh [--out DIR] [--build DIR] [--python PROGRAM] [--cpu]
#
# Writes DIR/results.json and DIR/results.md (build/gpu/results by default). Needs a C++20 compiler,
# CMake, Ninja or make, OpenSSL's and nlohmann json's headers, and a Python with torch 2.4 or newer;
# no protobuf, no gRPC, no Gloo. --cpu runs the same steps with a small model and without a GPU,
# also with an older torch, to try the script itself. Exit codes: 0 all checks passed, 1 a check
# failed, 2 something is missing or wrong usage.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)

usage() {
  echo "usage: tests/gpu/run.sh [--out DIR] [--build DIR] [--python PROGRAM] [--cpu]" >&2
  exit 2
}

device=cuda
build=$root/build/gpu
out=
python=python3
while [ $# -gt 0 ]; do
  case $1 in
    --cpu) device=cpu ;;
    --out | --build | --python)
      [ $# -ge 2 ] || usage
      declare "${1#--}=$2"
      shift
      ;;
    *) usage ;;
  esac
  shift
done
out=${out:-$build/results}

missing=()
need() { missing+=("$1"); }
torch() { "$python" -c "import torch; print($1)" 2>/dev/null; }

compiler=${CXX:-c++}
if command -v "$compiler" >/dev/null; then
  compiles() { echo "#include <$1>" | "$compiler" -std=c++20 -fsyntax-only -x c++ - 2>/dev/null; }
  compiles concepts || need "a compiler of C++20 ($compiler is not one; set CXX)"
  compiles openssl/evp.h || need "OpenSSL's headers (libssl-dev)"
  compiles nlohmann/json.hpp || need "nlohmann json (nlohmann-json3-dev; CPATH may name its place)"
else
  need "a C++20 compiler ($compiler is not there; set CXX)"
fi
command -v cmake >/dev/null || need "cmake"
generator=Ninja
command -v ninja >/dev/null || generator="Unix Makefiles"
[ "$generator" = Ninja ] || command -v make >/dev/null || need "ninja or make"

version=$(torch "torch.__version__") || need "torch in $python (--python PROGRAM names another)"
if [ -n "$version" ] && [ "$device" = cuda ]; then
  numbers="tuple(map(int, torch.__version__.split('.')[:2]))"
  [ "$(torch "$numbers >= (2, 4)")" = True ] ||
    need "torch 2.4 or newer ($python has $version)"
  [ "$(torch "torch._C._GLIBCXX_USE_CXX11_ABI")" = True ] ||
    need "a torch of the C++11 ABI ($version is not; wheels are since 2.7)"
  [ "$(torch "torch.cuda.is_available()")" = True ] ||
    need "an NVIDIA GPU that torch sees (torch.cuda.is_available() is False; see nvidia-smi)"
fi
if [ ${#missing[@]} -gt 0 ]; then
  printf 'tests/gpu/run.sh: missing: %s\n' "${missing[@]}" >&2
  exit 2
fi

# .../torch/share/cmake
prefix=$(dirname "$(dirname "$(torch "torch.utils.cmake_prefix_path")")")
cmake -S "$root" -B "$build" -G "$generator" -DHPCTL_TRAINER_ONLY=ON -DCMAKE_BUILD_TYPE=Release \
  "-DCMAKE_CXX_FLAGS_RELEASE=-O2 -g1" "-DCMAKE_PREFIX_PATH=$prefix"
cmake --build "$build" --parallel --target hptrain hptrain_engine
"$build/bin/hptrain" --version
"$python" "$root/tests/gpu/measure.py" --hptrain "$build/bin/hptrain" --device "$device" \
  --out "$out"
